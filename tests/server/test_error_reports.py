"""Errors tell a client a code, a sentence and an id; what other programs said is in the log under that id."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from citewire.agui import Agent, HttpAgent
from citewire.agui.citing_agent import CitingAgent
from citewire.agui.events import RunInput, to_dict
from citewire.agui.transport import BadStatus
from citewire.channels.store import StoreError
from citewire.documents.errors import DocumentError
from citewire.error_reports import report_error, report_unexpected
from citewire.errors import CitewireError, InputError
from citewire.server.ably.errors import AblyError, info_of
from citewire.server.http.operations import error_response
from citewire.server.ops.logs import Formatter
from support.loopback import Loopback, answer
from support.thread_runs import House

SECRET = "s3cret-stack"
_ID = re.compile(r"\(error id ([0-9a-f]{16})\)")
_log = logging.getLogger("citewire.test")


def error_id(message: str) -> str:
    found = _ID.search(message)
    assert found, message
    return found[1]


def logged(caplog: pytest.LogCaptureFixture, name: str) -> str:
    """The one line of the server's log that has this id."""
    lines = [Formatter("json").format(record) for record in caplog.records]
    (line,) = [line for line in lines if name in line]
    assert f'"error_id":"{name}"' in line
    return line


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError(SECRET), "internal", "the server failed"),
        (KeyError(SECRET), "internal", "the server failed"),
        (StoreError("cannot read the store", detail=SECRET), "store_failed", "cannot read the store"),
        (BadStatus(401, f'{{"error": "{SECRET}"}}'), "bad_status", "the agent answered HTTP 401"),
        (DocumentError("the reader failed", detail=OSError(SECRET)), "bad_document", "the reader failed"),
    ],
)
def test_what_others_said_is_only_logged(
    caplog: pytest.LogCaptureFixture, error: Exception, code: str, message: str
) -> None:
    report = report_error(error, _log)
    assert report.message == f"{message} (error id {report.error_id})"
    assert report.code == (error.code if isinstance(error, CitewireError) else code)
    assert report.metadata == {"citewire": {"errorId": report.error_id}}
    assert SECRET not in report.message
    assert SECRET in logged(caplog, report.error_id)


def test_an_error_of_ours_that_has_no_detail_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    report = report_error(InputError("a message is an object", "$.messages[0]"), _log)
    assert (report.code, report.message, report.error_id) == ("bad_input", "a message is an object", "")
    assert not report.metadata
    assert not caplog.records


def test_secrets_are_kept_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    report = report_error(StoreError("no store", detail="postgresql://me:hunter2@db/x?token=abc"), _log)
    line = caplog.records[0].getMessage()
    assert report.error_id in line
    assert "hunter2" not in line
    assert "abc" not in line


def test_an_error_shows_its_detail_to_whoever_runs_the_program_and_to_no_one_else() -> None:
    error = StoreError("cannot open the store", detail="/srv/data/log.sqlite: locked")
    assert "/srv" not in str(error)
    assert "/srv" not in error.message
    assert error.explanation.endswith("/srv/data/log.sqlite: locked")


@pytest.mark.parametrize(
    "error",
    [
        ValueError(SECRET),
        StoreError("cannot write to the store", detail=SECRET),
        DocumentError("the transfer failed", detail=SECRET),
        CitewireError(SECRET),  # no status of its own: nobody meant it for a client
    ],
)
def test_rest(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    """The id is in the message and beside it."""
    body = bytes(error_response(error).body).decode()
    assert SECRET not in body
    name = error_id(body)
    assert f'"id":"{name}"' in body
    assert SECRET in logged(caplog, name)


def test_rest_without_detail_has_no_id() -> None:
    body = bytes(error_response(InputError("no", "$.a")).body).decode()
    assert body == '{"error":{"code":"bad_input","message":"$.a: no"}}'


@pytest.mark.parametrize(
    "error",
    [
        ValueError(SECRET),
        StoreError("cannot write to the store", detail=SECRET),
        AblyError(40000, "no", 400),
    ],
)
def test_ably(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    told = info_of(error)
    assert SECRET not in told.message
    if not isinstance(error, AblyError):
        assert SECRET in logged(caplog, error_id(told.message))


def test_unexpected_errors_of_ours_are_told_nobody(caplog: pytest.LogCaptureFixture) -> None:
    report = report_unexpected(CitewireError(SECRET), _log)
    assert SECRET not in report.message
    assert SECRET in logged(caplog, report.error_id)


# --- runs ---------------------------------------------------------------------------------------------------


async def raises(_: RunInput) -> AsyncIterator[dict[str, Any]]:
    yield {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
    raise ValueError(SECRET)


def not_an_event(_: RunInput) -> list[Any]:
    class Odd:
        def model_dump_json(self, **_: Any) -> str:
            raise ValueError(SECRET)

    return [Odd()]


@pytest.mark.parametrize(("agent", "code"), [(raises, "agent_failed"), (not_an_event, "bad_event")])
def test_an_agent_in_this_process(caplog: pytest.LogCaptureFixture, agent: Any, code: str) -> None:
    async def main() -> None:
        events = await House(agent).post()
        check_run_error(caplog, events[-1], code)

    asyncio.run(main())


def check_run_error(caplog: pytest.LogCaptureFixture, event: dict[str, Any], code: str) -> None:
    assert (event["type"], event["code"]) == ("RUN_ERROR", code)
    assert SECRET not in str(event)
    name = error_id(event["message"])
    assert event["metadata"] == {"citewire": {"errorId": name}}
    assert SECRET in logged(caplog, name)


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (answer(f'{{"error": "{SECRET}"}}'.encode(), "application/json", "401 No"), "bad_status"),
        (answer(f"<h1>{SECRET}</h1>".encode(), "text/html"), "not_an_event_stream"),
        (answer(b"x", more=f"content-encoding: {SECRET}\r\n"), "unsupported_encoding"),
    ],
)
def test_an_agent_elsewhere(caplog: pytest.LogCaptureFixture, response: bytes, code: str) -> None:
    async def main() -> None:
        async with Loopback([response]) as server, HttpAgent(server.url) as agent:
            found: Any = agent  # which is as good as a function
            events = await House(found).post()
            check_run_error(caplog, events[-1], code)

    asyncio.run(main())


def test_an_agent_that_cannot_be_reached_keeps_its_address_to_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with Agent(HttpAgent("http://127.0.0.1:9/inner", retries=0)) as agent:
            contract = await agent.submit("hi")
            assert "127.0.0.1" not in str(contract.error)
            assert "127.0.0.1" in logged(caplog, error_id(contract.error))

    asyncio.run(main())


def test_an_agent_that_answers_through_citing_agent(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(CitingAgent):
        async def answer(self, run_input: RunInput) -> AsyncIterator[str]:
            del run_input
            yield "Paris"
            raise ValueError(SECRET)

    async def main() -> None:
        agent = Broken()
        events = [to_dict(event) async for event in agent.run(RunInput(thread_id="t", run_id="r"))]
        check_run_error(caplog, events[-1], "agent_failed")
        await agent.aclose()

    asyncio.run(main())


def test_what_the_agent_itself_reports_goes_on_as_it_is() -> None:
    """A RUN_ERROR of the agent's is what it says to its client."""
    said = {"type": "RUN_ERROR", "message": "the quota is used up", "code": "quota"}

    async def main() -> None:
        started = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
        events = await House(lambda _: [started, said]).post()
        assert events[-1] == said

    asyncio.run(main())
