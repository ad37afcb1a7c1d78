"""The example that people try first: a chat in the terminal, run as they run it."""

import asyncio
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from citewire.agui.events import from_dict
from citewire.agui.sse import encode_frame
from support.cases import ROOT
from support.loopback import EVENTS, HOLD, Loopback, answer

Json = dict[str, Any]

CHAT = [sys.executable, "-W", "error", str(ROOT / "examples/terminal_chat.py")]
# Seconds: what takes this long hangs.
DEADLINE = 50

STARTED: Json = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED: Json = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


def say(content: str, name: str = "m1") -> Json:
    return {"type": "TEXT_MESSAGE_CHUNK", "messageId": name, "role": "assistant", "delta": content}


def stream(*events: Json) -> bytes:
    return b"".join(encode_frame(from_dict(event)) for event in events)


async def start(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(*CHAT, *arguments, stdin=PIPE, stdout=PIPE, stderr=STDOUT)


async def finish(process: Process, lines: str) -> list[str]:
    """What it prints, after the last lines of its input."""
    async with asyncio.timeout(DEADLINE):
        printed, _ = await process.communicate(lines.encode())
    assert process.returncode == 0, printed.decode()
    return printed.decode().splitlines()


def test_answers_with_sources() -> None:
    async def main() -> list[str]:
        return await finish(
            await start(), "Are refunds available for shipping?\nPlease cancel my order\nyes\n"
        )

    printed = asyncio.run(main())
    for line in (
        "› Are refunds available for shipping?",
        "  ✻ Which of my documents speaks of this?",
        "  ⚙ search(query: Are refunds available for shipping?)",
        "    Refund policy, Shipping and returns",
        "  [1] Refund policy — https://shop.example/refunds",
        "  [2] Shipping and returns — https://shop.example/shipping",
        "› Please cancel my order",
        "  ? Cancel order 1042 for good?",
        "  Order 1042 is cancelled.",
    ):
        assert line in printed
    assert any(line.startswith("  Refunds are available within 30 days of delivery.[1]") for line in printed)


def test_is_not_impressed_by_what_an_agent_says() -> None:
    """No escape sequence gets through, and what looks like markup is shown."""
    evil = "\x1b[2J\x1b]0;owned\x07 [bold red]x[/] [link=file:///etc]y[/link]\x9b31m\u202ez"
    events: list[Json] = [
        STARTED,
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "m0", "delta": evil},
        {
            "type": "TOOL_CALL_CHUNK",
            "toolCallId": evil,
            "toolCallName": evil,
            "delta": json.dumps({evil: evil}),
        },
        {"type": "TOOL_CALL_RESULT", "toolCallId": evil, "messageId": "m2", "content": evil},
        say(evil),
        {"type": "STATE_SNAPSHOT", "snapshot": {"citations": {"m1": [{"title": evil, "url": evil}]}}},
    ]
    asked = {"type": "interrupt", "interrupts": [{"id": "i", "reason": "confirm", "message": evil}]}

    async def main() -> list[str]:
        first = answer(stream(*events, {**FINISHED, "outcome": asked}))
        second = answer(stream({"type": "RUN_ERROR", "message": evil}))
        async with Loopback([first], [second]) as server:
            return await finish(await start(server.url), "hello\n\n")

    printed = "\n".join(asyncio.run(main()))
    for mark in ("✻", "⚙", "[1]", "?", "✗"):
        assert mark in printed
    assert printed.count("[bold red]x[/]") >= 6
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", printed)


def test_is_not_upset_by_what_an_agent_sends() -> None:
    """What is not of the right form is left out, and what can be read is shown."""
    sent: list[Json] = [
        {"id": "1", "content": [5]},
        {"id": "2", "content": [{"type": "text"}, {"type": "text", "text": 7}, {"type": []}, {}]},
        {"id": "3", "content": 7},
        {"id": [7], "content": "no id"},
        {"id": {}, "content": "cited by five\x1b[2J", "citations": 5},
        {"id": "6", "content": "cited by one", "citations": [5, {}, {"title": [1], "url": {}}]},
        {"id": "7", "content": [{"type": "text", "text": "part one"}, "part two"], "reasoning": [1]},
        {"content": "nameless", "citations": {"a": 1}, "role": "assistant"},
        {"id": "9", "content": None, "role": ["assistant"], "toolCalls": 5},
    ]
    messages = [{"role": "assistant", **message} for message in sent]
    call: Json = {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "look", "delta": "[1]"}
    asked: Json = {
        "type": "interrupt",
        "interrupts": [5, None, {}, {"id": 5}, {"id": "i", "message": {"a": 1}}],
    }

    async def main() -> list[str]:
        odd = stream(STARTED, call, {"type": "MESSAGES_SNAPSHOT", "messages": messages})
        first = answer(odd + stream({**FINISHED, "outcome": asked}))
        second = answer(stream({"type": "RUN_ERROR", "message": "enough"}))
        async with Loopback([first], [second]) as server:
            return await finish(await start(server.url), "hello\nyes\n")

    printed = asyncio.run(main())
    for line in (
        "  ⚙ look()",
        "  no id",
        "  cited by five␛[2J",
        "  cited by one",
        "  part one",
        "  part two",
        "  nameless",
        "  ? {'a': 1}",
        "  ✗ enough",
    ):
        assert line in printed


def test_shows_what_subagents_do() -> None:
    def of(name: str, event: Json) -> Json:
        return {**event, "subagentRunId": name}

    events: list[Json] = [
        STARTED,
        of("s1", {"type": "SUBAGENT_STARTED", "name": "researcher\x1b[2J"}),
        of("s1", {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "search", "delta": "{}"}),
        of("s1", say("Found it.", "m8")),
        of("s1", {"type": "SUBAGENT_FINISHED"}),
        of("s2", {"type": "SUBAGENT_STARTED", "name": "critic"}),
        of("s2", {"type": "SUBAGENT_ERROR", "message": "no luck"}),
        of("s3", {"type": "SUBAGENT_STARTED", "name": "sleeper"}),
        say("Here it is."),
        FINISHED,
    ]

    async def main() -> list[str]:
        second = answer(stream(STARTED, say("Nothing new.", "m2"), FINISHED))
        async with Loopback([answer(stream(*events))], [second]) as server:
            return await finish(await start(server.url), "one\ntwo\n")

    printed = asyncio.run(main())
    shown = [
        "  ▸ researcher complete",
        "    ⚙ search()",
        "    Found it.",
        "",
        "  ▸ critic ✗ no luck",
        "",
        "  ▸ sleeper ■ stopped",
        "",
        "  Here it is.",
    ]
    at = printed.index(shown[0])
    assert printed[at : at + len(shown)] == shown
    assert "▸" not in "".join(printed[at + len(shown) :])
    assert "  Nothing new." in printed


def test_ctrl_c_stops_an_answer() -> None:
    """The request ends, and the chat goes on with the next question."""

    async def main() -> list[str]:
        half, whole = (
            stream(STARTED, say("Half an answer")),
            stream(STARTED, say("A whole one", "m2"), FINISHED),
        )
        async with Loopback([EVENTS, half, HOLD], [answer(whole)]) as server:
            process = await start(server.url)
            assert process.stdin
            process.stdin.write(b"one\n")
            await server.until(requests=1)
            process.send_signal(signal.SIGINT)
            await server.until(lost=1)
            return await finish(process, "two\n")

    printed = asyncio.run(main())
    assert "  ■ stopped" in printed
    assert "  A whole one" in printed


@pytest.mark.parametrize(
    ("pressed", "said", "sent"),
    [
        pytest.param(1, "no\n", ["cancelled", "resolved"], id="the first"),
        pytest.param(2, "", None, id="twice leaves"),
    ],
)
def test_ctrl_c_cancels_a_question(pressed: int, said: str, sent: list[str] | None) -> None:
    asked = {
        "type": "interrupt",
        "interrupts": [{"id": "i1", "message": "A?"}, {"id": "i2", "message": "B?"}],
    }
    first = answer(stream(STARTED, {**FINISHED, "outcome": asked}))
    second = answer(stream(STARTED, say("Very well."), FINISHED))

    async def main() -> list[list[str]]:
        async with Loopback([first], [second]) as server, asyncio.timeout(DEADLINE):
            process = await start(server.url)
            assert process.stdin
            assert process.stdout
            process.stdin.write(b"one\n")
            for question in (b"? A?", b"? B?")[:pressed]:
                await process.stdout.readuntil(question)
                process.send_signal(signal.SIGINT)
            if sent:
                await process.stdout.readuntil(b"? B?")
            await finish(process, said)
            return [[entry["status"] for entry in each.json["resume"]] for each in server.requests[1:]]

    assert asyncio.run(main()) == ([sent] if sent else [])


def test_a_failure_is_shown() -> None:
    async def main() -> list[str]:
        async with Loopback([answer(b"<html>", "text/html", "500 Oops")]) as server:
            return await finish(await start(server.url), "one\n")

    (shown,) = [line for line in asyncio.run(main()) if "✗" in line]
    assert shown.startswith("  ✗ the agent answered HTTP 500 (error id ")
    assert "<html>" not in shown


def test_what_is_no_address_is_refused() -> None:
    async def main() -> tuple[int | None, str]:
        process = await start("agent.example")
        async with asyncio.timeout(DEADLINE):
            printed, _ = await process.communicate()
        return process.returncode, printed.decode().splitlines()[-1]

    code, printed = asyncio.run(main())
    assert (code, printed.partition("error: ")[2]) == (
        2,
        "the URL of an agent is absolute, and http or https",
    )


@contextmanager
def terminal(*arguments: str) -> Generator[tuple[int, subprocess.Popen[bytes]]]:
    """The chat in a terminal; Ctrl-D leaves."""
    ours, theirs = os.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "90", "LINES": "24"}
    env.pop("NO_COLOR", None)
    command = [*CHAT, *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        read_until(ours, "› ")
        yield ours, process
        os.write(ours, b"\x04")
        assert process.wait(DEADLINE) == 0
        os.close(ours)


def read_until(terminal: int, end: str) -> str:
    printed, until = b"", time.monotonic() + DEADLINE
    while end.encode() not in printed:
        ready, _, _ = select.select([terminal], [], [], max(0, until - time.monotonic()))
        assert ready, printed.decode()
        printed += os.read(terminal, 65536)
    return printed.decode(errors="replace")


@pytest.mark.slow
def test_draws_the_answer_as_it_comes() -> None:
    """In colour."""
    with terminal() as (screen, _):
        os.write(screen, b"Are refunds available?\n")
        printed = read_until(screen, "\n› ")
    final = printed.rpartition("\x1b[2K")[2]
    assert "delivery.\x1b[36m[1]\x1b[0m" in final
    assert "\x1b]8;" in final
    assert printed.count("Refunds are") > final.count("Refunds are")


@pytest.mark.slow
def test_what_was_stopped_says_so() -> None:
    call: Json = {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "search"}
    subagent: Json = {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "researcher"}

    def press(url: str) -> str:
        with terminal(url) as (screen, process):
            os.write(screen, b"one\n")
            read_until(screen, "researcher …")
            process.send_signal(signal.SIGINT)
            return read_until(screen, "\n› ").rpartition("\x1b[2K")[2]

    async def main() -> str:
        async with Loopback([EVENTS, stream(STARTED, call, subagent), HOLD]) as server:
            return await asyncio.to_thread(press, server.url)

    final = re.sub(r"\x1b\[[0-9;]*m", "", asyncio.run(main()))
    for line in ("⚙ search() ■ stopped", "▸ researcher ■ stopped", "  ■ stopped"):
        assert line in final
