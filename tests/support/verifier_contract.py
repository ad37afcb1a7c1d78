"""What every `Verifier` promises: the one in this process, at another server, and of workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeAlias

import pytest

from citewire.verification.document_set import CheckResult
from citewire.verification.sources import SourceContent
from citewire.verification.verifier import QuoteCheck, Verifier

WORDS = "The gate opens at seven"
NOTE = SourceContent(f"{WORDS}, and closes at nine.", "note.txt")
OTHER = SourceContent("Dogs are welcome in the park.", "rules.txt")
HOSTILE = ["", " ", "\0", "\ud800", "🙂" * 500, "[" * 5000, "x" * 20_000]

Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[Verifier]]


async def check(verifier: Verifier, *quotes: QuoteCheck) -> dict[str | None, CheckResult]:
    """The results by id. Each quote has one, exactly once."""
    found = [checked async for checked in verifier.check(quotes)]
    assert sorted(each.id or "" for each in found) == sorted(each.id or "" for each in quotes)
    return {each.id: each for each in found}


class VerifierContract:
    """Subclass it with a fixture `opened` that opens a verifier without sources."""

    def run(self, opened: Opener, test: Callable[[Verifier], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(50), opened() as verifier:
                await test(verifier)

        asyncio.run(main())

    def test_each_quote_has_one_result(self, opened: Opener) -> None:
        async def test(verifier: Verifier) -> None:
            await verifier.add(NOTE, OTHER)
            quotes = [QuoteCheck(str(n), WORDS if n % 2 else "The gate never opens") for n in range(30)]
            found = await check(verifier, *quotes)
            assert {found[str(n)].status for n in range(1, 30, 2)} == {"verified"}
            assert "verified" not in {found[str(n)].status for n in range(0, 30, 2)}
            assert all(found[each.id].quote == each.quote for each in quotes)

        self.run(opened, test)

    def test_a_quote_is_looked_for_in_its_source(self, opened: Opener) -> None:
        async def test(verifier: Verifier) -> None:
            await verifier.add(NOTE, OTHER)
            found = await check(
                verifier,
                QuoteCheck("there", WORDS, "note.txt"),
                QuoteCheck("elsewhere", WORDS, "rules.txt"),
                QuoteCheck("nowhere", WORDS, "no such.txt"),
            )
            assert [found[each].status for each in ("there", "elsewhere", "nowhere")] == [
                "verified",
                "missed",
                "skipped",
            ]
            assert found["nowhere"].reason

        self.run(opened, test)

    def test_sources_of_a_scope_are_for_its_quotes_until_they_are_forgotten(self, opened: Opener) -> None:
        async def test(verifier: Verifier) -> None:
            await verifier.add(OTHER)
            await verifier.add(NOTE, scope="s")
            inside, outside = QuoteCheck("in", WORDS, scope="s"), QuoteCheck("out", WORDS)
            found = await check(verifier, inside, outside)
            assert (found["in"].status, found["out"].status) == ("verified", "missed"), found["out"].reason
            await verifier.forget("s")
            assert (await check(verifier, inside))["in"].status != "verified"

        self.run(opened, test)

    @pytest.mark.parametrize("quote", HOSTILE, ids=range(len(HOSTILE)))
    def test_no_quote_makes_it_raise(self, opened: Opener, quote: str) -> None:
        async def test(verifier: Verifier) -> None:
            await verifier.add(NOTE)
            found = await check(verifier, QuoteCheck("bad", quote), QuoteCheck("good", WORDS))
            assert found["bad"].status in ("missed", "skipped")
            assert found["good"].status == "verified"

        self.run(opened, test)

    def test_no_source_makes_it_raise(self, opened: Opener) -> None:
        async def test(verifier: Verifier) -> None:
            await verifier.add(SourceContent(b"%PDF-1.7 broken", "bad.pdf"), NOTE)
            found = await check(
                verifier, QuoteCheck("bad", WORDS, "bad.pdf"), QuoteCheck("good", WORDS, "note.txt")
            )
            assert (found["bad"].status, found["good"].status) == ("skipped", "verified")
            assert found["bad"].reason

        self.run(opened, test)

    def test_what_the_producer_raises_comes_after_the_results_before_it(self, opened: Opener) -> None:
        async def test(verifier: Verifier) -> None:
            await verifier.add(NOTE)
            seen: list[str | None] = []

            async def produce() -> AsyncGenerator[QuoteCheck]:
                yield QuoteCheck("a", WORDS)
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                seen.extend([checked.id async for checked in verifier.check(produce())])
            async with aclosing(verifier.check([QuoteCheck("b", WORDS)])) as results:
                assert [each.status async for each in results] == ["verified"]

        self.run(opened, test)

    def test_a_caller_may_stop_early(self, opened: Opener) -> None:
        async def test(verifier: Verifier) -> None:
            await verifier.add(NOTE)
            async with aclosing(verifier.check([QuoteCheck(str(n), WORDS) for n in range(50)])) as results:
                assert (await anext(results)).status == "verified"
            assert (await check(verifier, QuoteCheck("a", WORDS)))["a"].status == "verified"

        self.run(opened, test)

    def test_a_source_without_looks_has_no_picture(self, opened: Opener) -> None:
        async def test(verifier: Verifier) -> None:
            await verifier.add(NOTE)
            await verifier.prewarm()
            found = await check(verifier, QuoteCheck("a", WORDS))
            assert await verifier.pictures([found["a"]], "png") == [None]

        self.run(opened, test)
