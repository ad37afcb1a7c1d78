"""citewire on agents that know nothing of it: over HTTP with the real client, and whatever goes wrong."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import zlib
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citewire.agui import HttpAgent, LocalAgent
from citewire.agui.agents import RunRequest
from citewire.agui.asgi import CitationMiddleware
from citewire.agui.citations.annotator import AuditRecord, CitationSeen, ReviewGiven, VerdictReached
from citewire.agui.citations.records import ProofUrls
from citewire.agui.citations.shared_state import INITIAL_DEEPCITATION_STATE
from citewire.agui.events import AnyEvent, RunInput, coerce, to_dict
from citewire.agui.middleware import Citing
from citewire.verification.document_set import CheckResult
from citewire.verification.sources import SourceContent
from support import agents
from support.agents import (
    CITING,
    DOCUMENT,
    PATH,
    VISIBLE,
    fifty,
    in_pieces,
    need_agents,
    said,
    scripted,
    serve,
)
from support.agui_node import RealClient
from support.annotated_stream import FINISHED, KEY, STARTED, Client, answer, block, say, start
from support.loopback import EVENTS, Loopback
from support.middleware_runs import POSTED, Call, Words, going, post, through, wrapped
from support.pdfs import Line, Sheet, make_pdf

if TYPE_CHECKING:
    from starlette.types import ASGIApp

TEXT = f"Paris [1].{block('Paris is the capital of France.')}"


class Sink:
    def __init__(self) -> None:
        self.items: list[AnyEvent | AuditRecord] = []

    async def put(self, thread_id: str, run_id: str, items: Sequence[AnyEvent | AuditRecord]) -> None:
        assert (thread_id, run_id) == ("t", "r")
        self.items += items


# --- the real client, over HTTP -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Iterator[RealClient]:
    with RealClient() as client:
        yield client


def accepted(real: RealClient, url: str, version: str) -> dict[str, Any]:
    """What the real client made of a run, which it took without a warning, to the end."""
    asked = [{"id": "u", "role": "user", "content": "What is the capital of France?"}]
    found = real.run_at(url + PATH, version, messages=asked, state={"theme": "dark"}, threadId=f"t{version}")
    assert (found["outcome"], found["error"], found["warnings"]) == ("completed", None, [])
    assert found["events"][-1]["type"] == "RUN_FINISHED"
    assert "CITATION_DATA" not in json.dumps(found["messages"])
    return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [agents.pydantic_ai_function_model, agents.langgraph_scripted, agents.agno_scripted]
)
def test_agents_of_others(real: RealClient, build: Callable[[Sequence[str]], ASGIApp]) -> None:
    need_agents()
    app = CitationMiddleware(build(in_pieces(CITING)), [SourceContent(DOCUMENT["text"], "doc1")])
    with serve(app) as url:
        for version in ("1.0.0", "0.0.59"):
            found = accepted(real, url, version)
            last = [message for message in found["messages"] if message["role"] == "assistant"][-1]
            assert last["content"] == VISIBLE
            record = found["state"][KEY]["messages"][last["id"]]
            assert record["status"] == "complete"
            assert [each["citewire"]["status"] for each in record["verifications"].values()] == [
                "verified",
                "missed",
            ]
            assert record["verifications"].keys() == record["citations"].keys()
            listed = found["state"]["citations"][last["id"]]
            assert [each["index"] for each in listed] == [1, 2]
            assert [each["extra"]["citewire"]["status"] for each in listed] == ["verified", "missed"]


def links(_: str, key: str, checked: CheckResult) -> ProofUrls:
    return ProofUrls(f"/p/{key}", f"/p/{key}.png" if checked.boxes else None)


@pytest.mark.slow
def test_fifty_citations_of_three_pdfs(real: RealClient, tmp_path: Path) -> None:
    need_agents()
    files, text, visible = fifty()
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with serve(CitationMiddleware(scripted(said(text)), tmp_path, proofs=links)) as url:
        for version in ("1.0.0", "0.0.59"):
            found = accepted(real, url, version)
            assert found["messages"][-1]["content"] == visible
            record, state = found["state"][KEY]["messages"]["m"], found["state"]
            assert (record["status"], state["theme"]) == ("complete", "dark")
            assert {key: n for key, n in record["summary"].items() if n} == {
                "total": 50,
                "verified": 40,
                "missed": 10,
                "altered": 10,
            }
            for key, cited in record["citations"].items():
                said_of = record["verifications"][key]
                wrong = cited["citationNumber"] % 5 == 0
                assert said_of["citewire"]["status"] == ("altered" if wrong else "verified")
                assert (said_of["label"], said_of["document"]["verifiedPageNumber"]) == (
                    cited["attachmentId"],
                    cited["pageNumber"],
                )
                assert said_of["evidence"] == {"src": f"/p/{key}.png"}
            assert [each["index"] for each in state["citations"]["m"]] == list(range(1, 51))


@pytest.mark.slow
def test_two_runs_of_a_thread(real: RealClient) -> None:
    """What the first could not decide in time the second does, and the agent never sees ours."""
    need_agents()
    seen: list[Any] = []

    async def agent(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        seen.append(json.loads(body)["state"])

        async def nothing() -> Any:
            return {"type": "http.request", "body": b""}

        await scripted(said(TEXT, f"m{len(seen)}"))(scope, nothing, send)

    with serve(wrapped(agent, verifier=Words(hangs=True), deadline=0)) as url:
        first = accepted(real, url, "1.0.0")
    assert first["state"][KEY]["messages"]["m1"]["status"] == "verifying"
    with serve(wrapped(agent)) as url:
        again = real.run_at(url, messages=first["messages"], state=first["state"])
    assert (again["outcome"], again["warnings"]) == ("completed", [])
    assert [each["status"] for each in again["state"][KEY]["messages"].values()] == ["complete", "complete"]
    assert seen == [{"theme": "dark"}, {"theme": "dark"}]


# --- the engine ---------------------------------------------------------------------------------------------


def test_the_engine_finds_draws_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(make_pdf(Sheet([Line("The fee is 40 dollars.")])))
    citing = CitationMiddleware.over(tmp_path)
    text = f"Forty [1].{block('The fee is 40 dollars.', source='a.pdf')}"

    async def main() -> tuple[Client, list[int]]:
        async with citing:
            sent = [
                event async for event in citing(RunInput(thread_id="t", run_id="r"), replayed(said(text)))
            ]
            verifier: Any = await citing.verifier()
            return Client(sent), verifier.pids

    client, pids = going(main)
    (verdict,) = client.message()["verifications"].values()
    assert (verdict["status"], verdict["document"]) == ("found", {"verifiedPageNumber": 1})
    assert verdict["evidence"]["src"].startswith("data:image/avif;base64,")
    assert pids
    assert not any(map(is_running, pids))


def replayed(events: Iterable[Any]) -> Callable[[RunInput], AsyncIterator[Any]]:
    async def agent(_: RunInput) -> AsyncIterator[Any]:
        for event in events:
            yield event

    return agent


def test_a_tool_result_is_a_source_of_its_own_stream_only() -> None:
    verifier = Words("")
    result = {
        "type": "TOOL_CALL_RESULT",
        "messageId": "r",
        "toolCallId": "c",
        "content": "Paris is the capital of France.",
    }
    with_it = through([STARTED, result, *answer(TEXT), FINISHED], verifier=verifier).client
    without = through([STARTED, *answer(TEXT), FINISHED], verifier=verifier).client
    assert [client.message()["summary"]["verified"] for client in (with_it, without)] == [1, 0]
    assert verifier.scopes == {}


# --- around an agent elsewhere ------------------------------------------------------------------------------


def test_around_a_remote_agent() -> None:
    async def main() -> tuple[Client, Any]:
        body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in said(TEXT))
        async with Loopback([EVENTS, body]) as server, HttpAgent(server.url) as agent:
            agent.use(CitationMiddleware.over(verifier=Words()))
            state = {"a": 1, KEY: INITIAL_DEEPCITATION_STATE}
            sent = [event async for event in agent.run_agent(RunRequest(state=state))]
            return Client(sent, state), server.requests[0].json["state"]

    client, posted = going(main)
    assert client.texts == {"m": "Paris [1]."}
    assert (client.message()["status"], posted) == ("complete", {"a": 1})


def test_around_a_function() -> None:
    async def main() -> Client:
        agent = LocalAgent(lambda _: said(TEXT))
        agent.use(Citing(verifier=Words()))
        return Client([event async for event in agent.run_agent(RunRequest())])

    assert going(main).message()["status"] == "complete"


# --- what is none of our business ---------------------------------------------------------------------------


def echo(kind: bytes, body: bytes, status: int = 200, *more: tuple[bytes, bytes]) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        got = b""
        while (message := await receive())["type"] == "http.request":
            got += message["body"]
            if not message["more_body"]:
                break
        headers = [(b"content-type", kind), *more]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        shown = b"|".join([body, got, dict(scope["headers"]).get(b"Content-Length", b"")])
        await send({"type": "http.response.body", "body": shown})

    return app


SSE = b"text/event-stream"


@pytest.mark.parametrize(
    ("app", "posted", "method"),
    [
        (echo(SSE, b"data: {}\n\n"), POSTED, "GET"),
        (echo(SSE, b"data: {}\n\n"), b"not JSON", "POST"),
        (echo(SSE, b"data: {}\n\n"), b"", "POST"),
        (echo(SSE, b"data: {}\n\n"), [1], "POST"),
        (echo(SSE, b"data: {}\n\n"), {"messages": []}, "POST"),
        (echo(SSE, b"data: {}\n\n"), {"threadId": "t", "messages": 3}, "POST"),
        (echo(b"application/json", b'{"a": 1}'), POSTED, "POST"),
        (echo(b"application/vnd.ag-ui.event+proto", b"\0\0"), POSTED, "POST"),
        (echo(SSE, b"data: {}\n\n", 500), POSTED, "POST"),
        (echo(SSE, b"brotli", 200, (b"content-encoding", b"br")), POSTED, "POST"),
    ],
)
def test_all_else_goes_through(app: Any, posted: Any, method: str) -> None:
    async def main() -> tuple[Call, Call]:
        return await post(app, posted, method=method), await post(wrapped(app), posted, method=method)

    plain, ours = going(main)
    assert (ours.start, ours.bodies, ours.has_ended) == (plain.start, plain.bodies, True)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate"])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_compressed_events_are_read(coding: str, size: int) -> None:
    """Their client gets them as they are read: decompressed, and checked."""
    plain = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in said(CITING))
    packed = gzip.compress(plain) if "gzip" in coding else zlib.compress(plain)
    call = going(lambda: post(wrapped(compressed(coding, packed, size)), POSTED))
    assert b"content-encoding" not in dict(call.start["headers"])
    client = Client(map(coerce, call.events))
    assert client.message()["status"] == "complete"
    assert VISIBLE in client.texts.values()


def test_compressed_events_that_are_none_end_the_run() -> None:
    call = going(lambda: post(wrapped(compressed("gzip", b"not gzip at all", 100)), POSTED))
    (event,) = call.events
    assert (event["type"], event["code"]) == ("RUN_ERROR", "unsupported_encoding")


def compressed(coding: str, packed: bytes, size: int) -> ASGIApp:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"content-type", SSE), (b"content-encoding", coding.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for at in range(0, len(packed), size):
            await send({"type": "http.response.body", "body": packed[at : at + size], "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def test_the_agent_is_given_its_own_state_and_a_length_that_fits() -> None:
    posted = {**POSTED, "novel": 1.5, "state": {"a": 1, KEY: INITIAL_DEEPCITATION_STATE}}
    call = going(lambda: post(wrapped(echo(b"text/plain", b"")), posted))
    _, body, _ = call.body.split(b"|")
    assert json.loads(body) == {**posted, "state": {"a": 1}}


async def nobody(_scope: Any, _receive: Any, _send: Any) -> None:
    """Takes no part in the life of its server."""


async def loud(scope: Any, receive: Any, _send: Any) -> None:
    """Neither, and says so late."""
    await receive()
    raise NotImplementedError(scope["type"])


async def lively(_scope: Any, receive: Any, send: Any) -> None:
    for step in ("startup", "shutdown"):
        assert (await receive())["type"] == f"lifespan.{step}"
        await send({"type": f"lifespan.{step}.complete"})


@pytest.mark.parametrize("app", [nobody, loud, lively])
def test_the_engine_ends_with_the_server(app: Any) -> None:
    """Whether or not the app would know when that is."""

    async def main() -> tuple[list[str], list[int]]:
        ours, told, pids = CitationMiddleware(app, [SourceContent("words", "a")]), list[str](), list[int]()
        steps = ["startup", "shutdown"]

        async def receive() -> Any:
            step = steps.pop(0)
            if step == "shutdown":
                verifier: Any = await ours._citing.verifier()  # pyright: ignore[reportPrivateUsage]
                await verifier.prewarm()
                pids.extend(verifier.pids)
            return {"type": f"lifespan.{step}"}

        async def send(message: Any) -> None:
            told.append(message["type"])

        await ours({"type": "lifespan"}, receive, send)
        return told, pids

    told, pids = going(main)
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert pids
    assert not any(map(is_running, pids))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_that_cannot_start() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.failed", "message": "no database"})
        raise RuntimeError("no database")

    async def main() -> None:
        with pytest.raises(RuntimeError, match="no database"):
            await wrapped(app)({"type": "lifespan"}, nothing, nothing)

    going(main)


async def nothing(*_: Any) -> Any:
    return {}


def test_sockets_are_those_of_the_app() -> None:
    seen: list[str] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    going(lambda: wrapped(app)({"type": "websocket"}, nothing, nothing))
    assert seen == ["websocket"]


# --- frames -------------------------------------------------------------------------------------------------


def framed(*events: Any, end: bytes = b"\n\n") -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + end for event in events)


def test_what_is_not_changed_keeps_its_bytes() -> None:
    odd = b'data:  {"type": "RAW",  "event": {"a": 1.50}}\n\n'
    ping, named = b": ping\n\n", b'event: message\nid: 7\ndata: {"type":"NOVEL",\ndata: "x": 1}\n\n'
    call = through([framed(STARTED), odd, ping, named, framed(*answer("Hi")), framed(FINISHED)])
    for kept in (odd, ping, named):
        assert kept in call.body
    assert call.body.endswith(framed(FINISHED))


def test_lines_that_end_in_crlf() -> None:
    """The real client cannot read them."""
    call = through([framed(STARTED, *answer(TEXT), FINISHED, end=b"\r\n\r\n")])
    assert b"\r" not in call.body
    assert call.client.texts == {"m": "Paris [1]."}


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2000), max_size=10), st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]))
def test_however_the_bytes_are_split(cuts: list[int], end: bytes) -> None:
    body = b": hello\n\n" + framed(*said(TEXT), end=end)
    edges = sorted({0, len(body), *(cut % len(body) for cut in cuts)})
    call = through([body[low:high] for low, high in pairwise(edges)])
    client = call.client
    assert client.texts == {"m": "Paris [1]."}
    assert client.message()["status"] == "complete"


def test_a_last_frame_needs_no_end() -> None:
    assert through([framed(*said(TEXT))[:-2]]).client.types[-1] == "RUN_FINISHED"


@pytest.mark.parametrize("done", [b"data: [DONE]\n\n", b"data: [DONE]\r\n\r\n", b"id: 3\n\nid: 4\n\n"])
def test_what_would_fail_a_client_for_nothing_is_left_out(done: bytes) -> None:
    call = through([framed(*said(TEXT)), done])
    assert b"[DONE]" not in call.body
    assert b"data: \n" not in call.body


def test_what_is_no_event_is_for_the_client_to_reject() -> None:
    call = through([framed(STARTED), b"data: {broken\n\n", b"data: 3\n\n"])
    assert call.body.endswith(b"data: {broken\n\ndata: 3\n\n")


def test_a_frame_that_no_client_takes_ends_the_run() -> None:
    large = [framed(STARTED), b"data: {", *[b"x" * (1 << 20)] * 11, b"}\n\n", framed(*answer(TEXT), FINISHED)]
    client = through(large).client
    assert client.types == ["RUN_STARTED", "RUN_ERROR"]
    assert client.sent[-1]["code"] == "frame_too_large"


# --- verifiers that fail ------------------------------------------------------------------------------------


@pytest.mark.parametrize("deadline", [30.0, None])
@pytest.mark.parametrize(
    ("verifier", "reason"),
    [(Words(fails=True), "the verifier failed (error id "), (Words(stops=True), "the verifier stopped")],
)
def test_a_verifier_that_fails(verifier: Words, reason: str, deadline: float | None) -> None:
    """The run ends, the text is right, and every message says why it has no verdicts."""
    stream = [STARTED, *answer(TEXT, "a"), *answer(f"More [1].{block('It rains.')}", "b"), FINISHED]
    client = through(stream, verifier=verifier, deadline=deadline).client
    assert client.texts == {"a": "Paris [1].", "b": "More [1]."}
    for name in "ab":
        message = client.message(name)
        assert (message["status"], message["summary"]["pending"]) == ("error", 1)
        assert message["error"].startswith(reason)
        assert "\x1b" not in message["error"]
    assert client.types[-1] == "RUN_FINISHED"


def test_a_verifier_that_hangs_past_the_deadline() -> None:
    verifier = Words(hangs=True)
    client = through(said(TEXT), verifier=verifier, deadline=0).client
    assert (client.message()["status"], client.message()["summary"]["pending"]) == ("verifying", 1)
    assert (client.types[-1], verifier.open, verifier.scopes) == ("RUN_FINISHED", 0, {})
    again = through([STARTED, FINISHED], {**POSTED, "state": client.state})
    assert again.events[1]["delta"][0]["path"].startswith(f"/{KEY}/messages/m/verifications/")


def test_a_verifier_that_cannot_forget_harms_no_one() -> None:
    class Clinging(Words):
        async def forget(self, scope: str) -> None:
            raise OSError(scope)

    assert through(said(TEXT), verifier=Clinging()).has_ended


# --- agents and readers that fail ---------------------------------------------------------------------------


async def run_app(app: Any, call: Call) -> None:
    await app(call.scope, call.receive, call.send)


def test_an_agent_that_raises_in_the_middle() -> None:
    """What it said until then is whole, and what it raised is raised."""

    def events() -> Iterator[Any]:
        yield from (STARTED, start(), say(f"{TEXT} <<<"))
        raise RuntimeError("the agent broke")

    async def main() -> Call:
        call = Call(json.dumps(POSTED).encode())
        with pytest.raises(RuntimeError, match="the agent broke"):
            await run_app(wrapped(scripted(events())), call)
        return call

    call = going(main)
    assert call.client.message()["status"] == "error"
    assert not call.has_ended


def test_an_agent_that_stops_without_a_terminal_event() -> None:
    client = through([STARTED, *answer(TEXT)]).client
    assert (client.message()["status"], client.types[-1]) == ("complete", "CUSTOM")


def endless(counted: list[int]) -> Iterator[Any]:
    yield from (STARTED, start())
    while True:
        counted[0] += 1
        yield say("word ")


def test_a_reader_that_never_reads_is_not_read_ahead_of() -> None:
    async def main() -> int:
        counted = [0]
        call = Call(json.dumps(POSTED).encode(), read_at_most=3)
        task = asyncio.create_task(run_app(wrapped(scripted(endless(counted))), call))
        seen = -1
        while seen != counted[0]:
            seen = counted[0]
            for _ in range(200):
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    assert 0 < going(main) < 100


@pytest.mark.parametrize("verifier", [Words(), Words(hangs=True)])
@pytest.mark.parametrize("listens", [True, False])
def test_a_reader_that_leaves(verifier: Words, listens: bool) -> None:
    """Nobody waits for verdicts then, even without a deadline."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await scripted([STARTED, *answer(TEXT)])(scope, receive, send)
        while listens and (await receive())["type"] != "http.disconnect":
            pass

    async def main() -> None:
        call = Call(json.dumps(POSTED).encode())
        task = asyncio.create_task(run_app(wrapped(app, verifier=verifier, deadline=None), call))
        await call.has_text.wait()
        call.gone.set()
        if not listens:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    going(main)
    assert verifier.open == 0


def test_a_consumer_that_closes_the_iterator() -> None:
    verifier = Words(hangs=True)

    async def main() -> None:
        citing = Citing(verifier=verifier, deadline=None)
        stream = citing(RunInput(thread_id="t", run_id="r"), replayed([STARTED, *answer(TEXT), FINISHED]))
        async with aclosing(stream) as events:
            async for event in events:
                if to_dict(event)["type"] == "TEXT_MESSAGE_END":
                    break

    going(main)
    assert verifier.open == 0


# --- the record ---------------------------------------------------------------------------------------------


def test_the_record_has_everything_and_the_agent_no_review() -> None:
    sink, reviews = Sink(), {"m0": {"k": [{"event": "citation_reviewed", "at": 1, "dwellMs": 2500}]}}
    posted = {**POSTED, "state": {KEY: {**INITIAL_DEEPCITATION_STATE, "reviews": reviews}}}
    call = through(said(TEXT), posted, sink=sink)
    records = [item for item in sink.items if isinstance(item, CitationSeen | VerdictReached | ReviewGiven)]
    events = [
        to_dict(item)
        for item in sink.items
        if not isinstance(item, CitationSeen | VerdictReached | ReviewGiven)
    ]
    assert events == call.events
    assert [type(record) for record in records] == [ReviewGiven, CitationSeen, VerdictReached]
    assert records[0] == ReviewGiven("m0", "k", {"event": "citation_reviewed", "at": 1, "dwellMs": 2500})


def test_a_record_that_cannot_be_kept_ends_the_stream() -> None:
    class Full:
        async def put(self, *_: Any) -> None:
            raise OSError("the disk is full")

    async def main() -> None:
        with pytest.raises(OSError, match="full"):
            await post(wrapped(scripted(said(TEXT)), sink=Full()))

    going(main)


def test_text_is_sent_while_verdicts_are_awaited() -> None:
    """A slow verifier holds back nothing but the end."""

    async def main() -> list[str]:
        citing = Citing(verifier=Words(hangs=True), deadline=None)
        more = [say("after", "b")] * 100
        stream = citing(
            RunInput(thread_id="t", run_id="r"), replayed([STARTED, *answer(TEXT, "a"), start("b"), *more])
        )
        seen: list[str] = []
        async with aclosing(stream) as events:
            async for event in events:
                seen.append(to_dict(event)["type"])
                if seen.count("TEXT_MESSAGE_CONTENT") == 101:
                    return seen
        return seen

    assert going(main).count("TEXT_MESSAGE_CONTENT") == 101
