"""A verifier elsewhere: one of ours, the service whose contract that is, and one that fails in every way."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from citewire.agui import CitationMiddleware, Thread
from citewire.agui.events import coerce
from citewire.errors import InputError
from citewire.model import Status
from citewire.server.access.capability import Capability
from citewire.server.ops.settings import SettingError, Settings
from citewire.verification.document_set import CheckResult
from citewire.verification.expected_place import ExpectedPlace
from citewire.verification.remote import RemoteVerifier
from citewire.verification.sources import SourceContent
from citewire.verification.verifier import QuoteCheck
from support.agents import said, scripted
from support.app import App, listening, opened_app
from support.app import ask as asgi_ask
from support.clock import hurried, on_clock
from support.loopback import BREAK, Loopback, answer
from support.pdfs import Line, Sheet, make_pdf
from support.server_agents import QUOTE

pytestmark = pytest.mark.slow

Json = dict[str, Any]

KEY = "app.key:very-secret"
URL = "http://verifier.example"
WORDS = "The gate opens at seven"
PRICE = "A ticket costs 12 euros"
PDF = make_pdf(Sheet([Line("The first page.")]), Sheet([Line(f"{PRICE} for a day.")]))
NOTE = SourceContent(f"{WORDS}, and closes at nine.", "note.txt", "https://park.example/note")
# So long that no time which flies reaches it.
AGES = 1e9


def of(verdicts: Iterable[CheckResult]) -> dict[str | None, Status]:
    return {checked.id: checked.status for checked in verdicts}


async def verdicts(verifier: RemoteVerifier, *asked: QuoteCheck) -> list[CheckResult]:
    found = [checked async for checked in verifier.check(asked)]
    assert sorted(checked.id or "" for checked in found) == sorted(each.id or "" for each in asked)
    assert {checked.id: checked.quote for checked in found} == {each.id: each.quote for each in asked}
    return sorted(found, key=lambda checked: checked.id or "")


# --- another citewire ---------------------------------------------------------------------------------------


class Real(NamedTuple):
    app: App
    url: str

    def verifier(self, *words: str, **options: Any) -> RemoteVerifier:
        """With a key that may use attachments and these."""
        granted = {"attachments": ["*"], **{word: ["*"] for word in words}}
        key = self.app.server.keyring.create(Capability.of(granted))
        return RemoteVerifier(self.url, key, **options)


@asynccontextmanager
async def real(folder: Path) -> AsyncGenerator[Real]:
    async with opened_app(folder) as app, listening(app) as (host, port):
        yield Real(app, f"http://{host}:{port}")


def with_real(folder: Path, main: Callable[[Real], Coroutine[Any, Any, None]]) -> None:
    async def opened() -> None:
        async with real(folder) as found:
            await main(found)

    asyncio.run(opened())


def test_another_citewire(tmp_path: Path) -> None:
    """Quotes are looked for where the local engine would look, and are told as it tells them."""

    async def main(server: Real) -> None:
        known = b"Dogs are welcome in the park."
        await server.app.ask("POST", "/sources?name=rules.txt", known)
        async with server.verifier("verify", deadline=None, timeout=60) as verifier:
            await verifier.add(NOTE)
            await verifier.add(
                SourceContent(PDF, "prices.pdf"), SourceContent(b"%PDF-1.7 broken", "bad.pdf"), scope="s"
            )
            found = await verdicts(
                verifier,
                QuoteCheck("a", WORDS, "note.txt"),
                QuoteCheck("b", PRICE, None, ExpectedPlace((2,)), ("nothing", "PRICES"), "s"),
                QuoteCheck("c", PRICE.replace("12", "21"), "prices.pdf", ExpectedPlace((1,)), scope="s"),
                QuoteCheck("d", WORDS, "bad.pdf", scope="s"),
                QuoteCheck("e", "Dogs are welcome", "rules.txt"),
                QuoteCheck("f", "Dogs are welcome", likely=("nowhere",)),
                QuoteCheck("g", WORDS, "nowhere"),
                QuoteCheck("h", WORDS, likely=("https://park.example/note",)),
                QuoteCheck("i", "Dogs are welcome", scope="s", alone=True, likely=("prices.pdf",)),
                QuoteCheck("j", "", claim="When does the gate open", source="note.txt"),
                QuoteCheck("k", PRICE, "prices.pdf"),
            )
            assert of(found) == {
                **dict.fromkeys("abefh", "verified"),
                "c": "altered",
                "i": "missed",
                **dict.fromkeys("dgjk", "skipped"),
            }, found
            by = {checked.id: checked for checked in found}
            assert (by["b"].page, by["b"].source, by["b"].found) == (2, "prices.pdf", PRICE)
            assert by["c"].diff
            assert by["c"].warnings == ("on page 2, not 1",)
            assert by["g"].reason == "no source is called nowhere"
            assert by["d"].source == "bad.pdf"
            drawn = await verifier.pictures([by["b"], by["a"], by["c"], by["d"]], "png")
            assert [each is not None for each in drawn] == [True, False, True, False]
            assert Image.open(io.BytesIO(drawn[0] or b"")).format == "PNG"
            assert kept(tmp_path) == 3
            await verifier.forget("s")
            assert kept(tmp_path) == 1
            [gone] = await verdicts(verifier, QuoteCheck("a", PRICE, "prices.pdf", scope="s"))
            assert gone.status == "skipped"
        assert kept(tmp_path) == 0

    with_real(tmp_path, main)


def test_what_a_client_posted_takes_no_name_of_the_verifier(tmp_path: Path) -> None:
    """Neither of what was added here nor of what the verifier has itself, and its verdict says so."""

    async def main(server: Real) -> None:
        await server.app.ask("POST", "/sources?name=rules.txt", b"Dogs are welcome in the park.")
        async with server.verifier("verify", deadline=None, timeout=60) as verifier:
            await verifier.add(NOTE)
            forged = f"{WORDS.replace('seven', 'six')}. Cats are welcome in the park."
            names = ("note.txt", "rules.txt", "letter.txt")
            await verifier.add(*(SourceContent(forged, name, origin="posted") for name in names), scope="s")
            cats, six = "Cats are welcome in the park", WORDS.replace("seven", "six")
            found = await verdicts(
                verifier,
                QuoteCheck("a", six, "note.txt", scope="s"),
                QuoteCheck("b", cats, likely=("rules.txt",), scope="s"),
                QuoteCheck("c", cats, likely=("letter.txt",), scope="s"),
            )
            assert of(found) == {"a": "altered", "b": "altered", "c": "verified"}, found
            assert [each.origin for each in found] == [None, None, "posted"]
            assert found[2].source == "letter.txt (posted)"
            assert found[2].warnings == ("the source was posted with the question",)

    with_real(tmp_path, main)


def kept(folder: Path) -> int:
    """How many files the server keeps for its callers."""
    return sum(path.is_file() for path in (folder / "attachments").glob("??/*"))


def test_without_the_right_to_look_in_its_sources(tmp_path: Path) -> None:
    """What was added is looked in all the same."""

    async def main(server: Real) -> None:
        await server.app.ask("POST", "/sources?name=rules.txt", b"Dogs are welcome in the park.")
        async with server.verifier(deadline=None, timeout=60) as verifier:
            asked = [QuoteCheck("a", "Dogs are welcome", "rules.txt"), QuoteCheck("b", "Dogs are welcome")]
            assert of(await verdicts(verifier, *asked)) == {"a": "skipped", "b": "skipped"}
            await verifier.add(NOTE)
            await verifier.prewarm()
            asked = [QuoteCheck("a", "Dogs are welcome"), QuoteCheck("b", WORDS)]
            assert of(await verdicts(verifier, *asked)) == {"a": "missed", "b": "verified"}

    with_real(tmp_path, main)


def test_the_middleware_asks_it(tmp_path: Path) -> None:
    """An answer that cites an attachment which somebody had prepared, a source of the server, and nothing."""
    form = (
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="p.pdf"\r\n\r\n%b\r\n--x--\r\n' % PDF
    )

    async def main(server: Real) -> None:
        ask = server.app.ask
        await ask("POST", "/sources?name=rules.txt", b"Dogs are welcome in the park.")
        kind = "multipart/form-data; boundary=x"
        prepared = (await ask("POST", "/prepareAttachments", form, content_type=kind)).json
        entries = {
            prepared["attachmentId"]: [{"id": 1, "full_phrase": PRICE}],
            "rules.txt": [{"id": 2, "full_phrase": "Dogs are welcome"}],
            "gone.txt": [{"id": 3, "full_phrase": "Cats are better off at home"}],
        }
        block = f"<<<CITATION_DATA>>>\n{json.dumps(entries)}\n<<<END_CITATION_DATA>>>"
        async with RemoteVerifier(server.url, server.app.key, deadline=None, timeout=60) as verifier:
            agent = scripted(said(f"It is 12 euros [1], with dogs [2] and cats [3].\n\n{block}"))
            app = CitationMiddleware(agent, verifier=verifier, deadline=None)
            sent = await asgi_ask(app, "POST", "/", b'{"threadId": "t", "runId": "r", "messages": []}')
        events = [json.loads(line[6:]) for line in sent.body.decode().splitlines() if line[:6] == "data: "]
        thread = Thread()
        for event in events:
            thread.apply(coerce(event))
        record = thread.state["deepcitation"]["messages"]["m"]
        words = [record["verifications"][key]["citewire"]["status"] for key in record["citations"]]
        assert (record["status"], words) == ("complete", ["verified", "verified", "missed"])

    with_real(tmp_path, main)


def test_a_server_that_has_its_quotes_checked_by_another(tmp_path: Path) -> None:
    """It has no sources of its own."""

    async def main(server: Real) -> None:
        await server.app.ask("POST", "/sources?name=refund-policy.html", f"<p>{QUOTE}.</p>".encode())
        folder = tmp_path / "asking"
        given: Json = {
            "verifier": server.url,
            "verifier_key": server.app.key,
            "agent": "support.server_agents:held",
        }
        async with opened_app(folder, **given) as asking:
            message = {"id": "u", "role": "user", "content": "How long?"}
            run = {"threadId": "t", "runId": "r", "messages": [message]}
            await asking.ask("POST", "/agui", run)
            thread = (await asking.ask("GET", "/threads/t")).json
        [record] = thread["state"]["deepcitation"]["messages"]["answer"]["verifications"].values()
        assert (record["status"], record["label"]) == ("found", "refund-policy.html")

    with_real(tmp_path / "asked", main)


def test_the_settings_of_a_verifier(tmp_path: Path) -> None:
    shown = Settings(verifier="https://x.example", verifier_key="secret.key:1")
    assert repr(shown) == "Settings(verifier='https://x.example', verifier_key='…')"
    for flags in ({"verifier": "ftp://x"}, {"verifier": URL + "?a=1"}, {"verifier_key": "a b"}):
        with pytest.raises(SettingError):
            Settings.load(flags, {}, {})

    async def main() -> None:
        async with opened_app(tmp_path, verifier=URL):
            pass

    with pytest.raises(SettingError):
        asyncio.run(main())


# --- what may go wrong --------------------------------------------------------------------------------------


FOUND = {
    "status": "found",
    "label": "a.pdf",
    "verifiedMatchSnippet": WORDS,
    "document": {"verifiedPageNumber": 3},
}
Said = int | bytes | Json | tuple[int, str] | None


class Peer(httpx2.AsyncBaseTransport):
    """A verifier without a wire, so that no time passes but that which a test lets pass.

    It answers as it is told, at last always the same: with a status, a status and a `Retry-After`, bytes, a
    record for every citation, or never.
    """

    def __init__(self, *said: Said, refuses: str | None = None) -> None:
        self._said, self._refuses = said, refuses
        self.asked: list[Json] = []
        self.times: list[float] = []
        self.news = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.times.append(asyncio.get_running_loop().time())
        self.asked.append(json.loads(await request.aread())["data"])
        self.news.set()
        said = self._said[min(len(self.asked), len(self._said)) - 1]
        if self._refuses is not None and self.asked[-1].get("attachmentId") == self._refuses:
            said = 500
        match said:
            case None:
                await asyncio.Event().wait()
                raise AssertionError
            case int():
                return _response(said, b'{"error": {"message": "no luck"}}')
            case bytes():
                return _response(200, said)
            case dict():
                records = dict.fromkeys(self.asked[-1]["citations"], said)
                return _response(200, json.dumps({"verifications": records}).encode())
            case (status, wait):
                return _response(status, b"wait", {"retry-after": wait})

    def verifier(self, deadline: float | None = None, timeout: float = AGES) -> RemoteVerifier:
        return RemoteVerifier(
            f"{URL}/", KEY, deadline=deadline, timeout=timeout, client=httpx2.AsyncClient(transport=self)
        )


def _response(status: int, body: bytes, headers: dict[str, str] | None = None) -> httpx2.Response:
    return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(body))


def told(peer: Peer, *asked: QuoteCheck, **options: Any) -> list[CheckResult]:
    """What becomes of quotes, in a time that flies."""

    async def main() -> list[CheckResult]:
        async with peer.verifier(**options) as verifier:
            found = await hurried(asyncio.create_task(verdicts(verifier, *asked)))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert "very-secret" not in repr(found)
        return found

    return on_clock(main())


ONE = QuoteCheck("a", WORDS, "att")


def in_ten_minutes() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(minutes=10), usegmt=True)


@pytest.mark.parametrize("wait", [lambda: "600", in_ten_minutes], ids=["seconds", "date"])
@pytest.mark.parametrize("status", [429, 503])
def test_it_waits_as_long_as_it_is_asked_to(status: int, wait: Callable[[], str]) -> None:
    peer = Peer((status, wait()), FOUND)
    [checked] = told(peer, ONE)
    assert (checked.status, checked.page, checked.found, checked.source) == ("verified", 3, WORDS, "a.pdf")
    assert len(peer.asked) == 2
    assert peer.times[1] - peer.times[0] > 500


@pytest.mark.parametrize("wait", ["", "soon", "-5", "Mon, 01 Jan 1990 00:00:00 GMT", "1e9"])
def test_whatever_it_is_asked_to_wait(wait: str) -> None:
    peer = Peer((429, wait), FOUND)
    assert of(told(peer, ONE)) == {"a": "verified"}
    assert peer.times[1] - peer.times[0] < 500


def test_it_does_not_wait_longer_than_anybody_would() -> None:
    peer = Peer((429, "99999999999999999999"), FOUND)
    [checked] = told(peer, ONE, timeout=1e6)
    assert (checked.status, len(peer.asked)) == ("skipped", 1)
    assert "429" in (checked.reason or "")


@pytest.mark.parametrize(
    ("said", "requests", "reason"),
    [
        ((500,), 3, "the verifier answered HTTP 500 (error id "),
        ((502, 503), 3, "the verifier answered HTTP 503 (error id "),
        ((400,), 1, "the verifier answered HTTP 400 (error id "),
        ((401,), 1, "the verifier answered HTTP 401 (error id "),
        ((302,), 1, "the verifier answered HTTP 302 (error id "),
        ((404,), 1, "no source is called att"),
        ((b"",), 1, "the answer of the verifier is no JSON object"),
        ((b"<html>",), 1, "the answer of the verifier is no JSON object"),
        ((b"[1]",), 1, "the answer of the verifier is no JSON object"),
        ((b"\xff\xfe",), 1, "the answer of the verifier is no JSON object"),
        ((b"[" * 100_000,), 1, "the answer of the verifier is no JSON object"),
        ((b"{}",), 1, "the verifier said nothing of it"),
        ((b'{"verifications": 7}',), 1, "the verifier said nothing of it"),
        ((b'{"verifications": {"a": {}}}',), 1, "the verifier said nothing of it"),
    ],
)
def test_a_failure_is_told_of_the_quote(said: tuple[Said, ...], requests: int, reason: str) -> None:
    peer = Peer(*said)
    [checked] = told(peer, ONE)
    assert (checked.status, len(peer.asked)) == ("skipped", requests)
    assert (checked.reason or "").startswith(reason)
    assert "no luck" not in (checked.reason or "")  # what the verifier says is in the log


@pytest.mark.parametrize(
    ("options", "status", "requests"),
    [({"timeout": 20.0}, "skipped", 3), ({"timeout": 20.0, "deadline": 30.0}, "pending", 2)],
)
def test_who_never_answers(options: dict[str, float], status: Status, requests: int) -> None:
    peer = Peer(None)
    [checked] = told(peer, ONE, **options)
    assert (checked.status, len(peer.asked)) == (status, requests)


def test_partial_failure_stays_partial() -> None:
    peer = Peer(FOUND, refuses="bad")
    found = told(
        peer,
        ONE,
        QuoteCheck("b", WORDS, "bad"),
        QuoteCheck("c", "Other words", "att"),
        QuoteCheck("d", "", "bad"),
    )
    assert of(found) == {"a": "verified", "b": "skipped", "c": "verified", "d": "skipped"}


def test_quotes_that_wait_are_asked_about_together() -> None:
    peer = Peer(FOUND)
    asked = [
        QuoteCheck(str(n), f"Quote {n}", "att", ExpectedPlace((2,), (3, 4)), claim="So it is")
        for n in range(250)
    ]
    assert {*of(told(peer, *asked)).values()} == {"verified"}
    assert [len(each["citations"]) for each in peer.asked] == [100, 100, 50]
    assert peer.asked[0]["citations"]["0" * 16] == {
        "type": "document", "fullPhrase": "Quote 0", "pageNumber": 2, "lineIds": [3, 4],
        "claimText": "So it is",
    }  # fmt: skip
    assert peer.asked[0]["attachmentId"] == "att"


@pytest.mark.parametrize(
    ("record", "status", "reason"),
    [
        ({"status": "found_on_other_page"}, "partial", "found_on_other_page"),
        ({"status": "not_found"}, "missed", None),
        ({"status": "pending"}, "pending", None),
        ({"status": "a new one"}, "skipped", "a new one"),
        ({"searchState": {"status": "found"}, "pageNumber": 2}, "verified", None),
        ({"status": "not_found", "citewire": {"status": "altered", "reason": "x"}}, "altered", "x"),
        ({"status": "found", "citewire": {"status": "verified", "boxes": "none"}}, "verified", None),
        ({"status": "found", "citewire": {"status": "fine"}}, "skipped", None),
        ({"status": 5}, "skipped", None),
    ],
)
def test_verdicts_of_the_service(record: Json, status: Status, reason: str | None) -> None:
    [checked] = told(Peer(record), ONE)
    assert checked.status == status
    assert reason is None or checked.reason == reason


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["status", "citewire", "label", "evidence", "document", "src", "boxes", "page"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=10,
    )
)
def test_no_record_is_raised_at_whoever_checks(record: Any) -> None:
    body = json.dumps({"verifications": {"0" * 16: record}}).encode()
    [checked] = told(Peer(body), ONE)
    assert checked.status in ("verified", "partial", "altered", "missed", "pending", "skipped")


@pytest.mark.parametrize("cut", [[BREAK], [answer(b'{"verif', "application/json")[:-3], BREAK]])
def test_a_connection_that_is_cut(cut: list[Any]) -> None:
    """The next attempt gets through."""
    record = json.dumps({"verifications": {"0" * 16: FOUND}}).encode()

    async def main() -> None:
        async with Loopback(cut, [answer(record, "application/json")]) as server:
            url = server.url.removesuffix("/agui")
            async with RemoteVerifier(url, KEY, deadline=None, timeout=AGES) as verifier:
                found = await hurried(asyncio.create_task(verdicts(verifier, ONE)))
            assert of(found) == {"a": "verified"}
            assert [request.path for request in server.requests] == ["/verifyCitations"] * 2
            assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"

    on_clock(main())


def test_nobody_there() -> None:
    async def main() -> None:
        async with Loopback([BREAK]) as server:
            url = server.url.removesuffix("/agui")
        async with RemoteVerifier(url, KEY, deadline=None, timeout=AGES) as verifier:
            await verifier.add(NOTE)
            found = await hurried(
                asyncio.create_task(verdicts(verifier, ONE, QuoteCheck("b", WORDS, "note")))
            )
        assert of(found) == {"a": "skipped", "b": "skipped"}
        assert found[1].source == "note.txt"

    on_clock(main())


def test_what_waits_when_it_is_closed_is_skipped() -> None:
    async def main() -> None:
        peer = Peer(None)
        verifier = peer.verifier()
        checking = asyncio.create_task(verdicts(verifier, ONE))
        await peer.news.wait()
        await verifier.aclose()
        [checked] = await checking
        assert (checked.status, checked.reason) == ("skipped", "the verifier was closed")

    on_clock(main())


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("ftp://x", KEY), ("x", KEY), ("http://", KEY), ("http://[", KEY), ("http://x/?a=1", KEY),
        (URL, ""), (URL, "a b"), (URL, "a\r\nx: y"), (URL, "ключ"),
    ],
)  # fmt: skip
def test_what_can_be_no_verifier(url: str, key: str) -> None:
    with pytest.raises(InputError) as caught:
        RemoteVerifier(url, key)
    assert not key or key not in str(caught.value)
