"""HTTP operation for on-demand checks of quotes, or of an answer, with optional sources in the request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar
from uuid import uuid4

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace
from starlette.requests import ClientDisconnect, Request

from citewire.dialects import read_all
from citewire.errors import ShapeError
from citewire.extraction import extract
from citewire.model import Answer, Problem, Status
from citewire.server.http.event_stream import wait_for_disconnect
from citewire.server.http.operations import ApiCall, Operation
from citewire.server.ops.settings import Settings
from citewire.verification.document_set import CheckResult
from citewire.verification.engine import Engine
from citewire.verification.report import UncitedSentence, list_quote_checks, make_report
from citewire.verification.sources import SourceContent
from citewire.verification.verifier import QuoteCheck, QuoteInput, Verifier

__all__ = ["VerifyApi", "cancel_on_disconnect", "check_with_deadline"]

_T = TypeVar("_T")

MOST_QUOTES = 1000
_MOST_SOURCES = 100
# Most characters of an answer, as in a run.
_LONGEST_ANSWER = 1 << 20


class AskedQuote(QuoteInput, frozen=True, forbid_unknown_fields=True):
    """A quote, with what is known about its place."""

    id: str | int | None = None


class GivenSource(Struct, frozen=True, forbid_unknown_fields=True):
    """A source in the request: text, or a file of any kind in base64."""

    name: Annotated[str, Meta(min_length=1, max_length=1000)]
    text: str | None = None
    base64: bytes | None = None
    url: str | None = None
    title: str | None = None


class CheckRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The input to check: the `answer` of a model, or a `payload` in a dialect, or `quotes`.

    Quotes are searched in the `sources` of the request and in the server's, or with `only="given"` in the
    former only.
    """

    answer: Annotated[str, Meta(max_length=_LONGEST_ANSWER)] | None = None
    payload: Any = None
    dialect: str | None = None
    quotes: Annotated[tuple[AskedQuote, ...], Meta(max_length=MOST_QUOTES)] | None = None
    sources: Annotated[tuple[GivenSource, ...], Meta(max_length=_MOST_SOURCES)] = ()
    only: Literal["given"] | None = None
    deadline: Annotated[float, Meta(gt=0)] | None = None


class Check(CheckResult, frozen=True, rename={"found": "quote_found"}):
    """The result for one quote; `answer` is the id of its answer."""

    answer: str | None = None


class UncitedAnswerSentence(UncitedSentence, frozen=True):
    """A sentence without a citation."""

    answer: str | None = None


class CheckReport(Struct, frozen=True):
    """The results. `counts` has the number of citations by status; `problems` lists unreadable parts."""

    counts: dict[Status, int]
    checks: list[Check]
    uncited: list[UncitedAnswerSentence]
    problems: list[Problem]


class VerifyApi:
    """The operation `POST /verify`. Sources in a request are deleted after the response."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._deadline = engine, settings.deadline

    def operations(self) -> list[Operation]:
        """Return the operation."""
        return [
            Operation(
                method="POST", path="/verify", summary="Check quotes, or all that an answer quotes",
                handle=self.verify, needs=("verify", "verify"), body=CheckRequest, gives=CheckReport,
            )
        ]  # fmt: skip

    async def verify(self, call: ApiCall) -> CheckReport:
        """Check the request. Cancelled if the client disconnects."""
        return await cancel_on_disconnect(call.request, self._verify(call.body))

    async def _verify(self, request: CheckRequest) -> CheckReport:
        given = [_given(source, f"$.sources[{at}]") for at, source in enumerate(request.sources)]
        answers, asked = await asyncio.to_thread(_read, request)
        scope = uuid4().hex
        alone = request.only == "given"
        try:
            await self._engine.add(*given, scope=scope)
            checks = await check_with_deadline(
                self._engine,
                [replace(each, scope=scope, alone=alone) for each in asked],
                min(request.deadline or self._deadline, self._deadline),
            )
            unread = [reading.problem for reading in self._engine.scope_sources(scope) if reading.problem]
        finally:
            await self._engine.forget(scope)
        if request.quotes is not None:
            counts = Counter[Status](check.status for check in checks)
            return CheckReport(dict(counts), [Check(**asdict(check)) for check in checks], [], unread)
        left_out = [problem for answer in answers for problem in answer.problems]
        return await asyncio.to_thread(_make_report, answers, checks, left_out + unread)


async def check_with_deadline(
    verifier: Verifier, asked: Sequence[QuoteCheck], seconds: float
) -> list[CheckResult]:
    """Check the quotes, in their order. Those that exceed the deadline stay `pending`."""
    checks = [CheckResult(each.id, "pending", "deadline", quote=each.quote) for each in asked]
    numbered = (replace(each, id=str(number)) for number, each in enumerate(asked))
    try:
        async with asyncio.timeout(seconds), aclosing(verifier.check(numbered)) as results:
            async for checked in results:
                number = int(checked.id or 0)
                checks[number] = replace(checked, id=asked[number].id)
    except TimeoutError:
        pass
    return checks


def _given(source: GivenSource, path: str) -> SourceContent:
    content = source.base64 if source.text is None else source.text
    if content is None or (source.text is not None and source.base64 is not None):
        raise ShapeError("a source has either `text` or `base64`", path)
    return SourceContent(content, source.name, source.url, source.title)


def _read(request: CheckRequest) -> tuple[Sequence[Answer], list[QuoteCheck]]:
    """Read the answers in the request and their quotes, or the quotes that were sent instead."""
    ways = (request.answer, request.payload, request.quotes)
    if sum(way is not None for way in ways) != 1:
        raise ShapeError("send exactly one of `answer`, `payload` and `quotes`")
    if request.dialect is not None and request.payload is None:
        raise ShapeError("only a payload has a dialect", "$.dialect")
    if request.quotes is not None:
        return (), [each.to_quote_check(None if each.id is None else str(each.id)) for each in request.quotes]
    if request.answer is not None:
        answers = (extract(request.answer).answer,)
    else:
        answers = read_all(request.payload, request.dialect)
    asked = [each for answer in answers for each in list_quote_checks(answer)]
    if len(asked) > MOST_QUOTES:
        raise ShapeError(f"{len(asked)} quotes; at most {MOST_QUOTES} are checked at once")
    return answers, asked


def _make_report(
    answers: Iterable[Answer], checks: Iterable[CheckResult], problems: list[Problem]
) -> CheckReport:
    left = iter(checks)
    reports = [make_report(answer, list(islice(left, len(list_quote_checks(answer))))) for answer in answers]
    counts = sum((Counter(one.counts) for one in reports), Counter[Status]())
    return CheckReport(
        dict(counts),
        [Check(**asdict(check), answer=one.answer.id) for one in reports for check in one.checks],
        [
            UncitedAnswerSentence(**asdict(each), answer=one.answer.id)
            for one in reports
            for each in one.uncited_sentences
        ],
        problems,
    )


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work`, and cancel it if the client disconnects. Raises `ClientDisconnect`."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
