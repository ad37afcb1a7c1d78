"""A chat in the terminal with any AG-UI agent, or without an address with a small one of its own.

    python examples/terminal_chat.py
    python examples/terminal_chat.py https://host.example/agui -H "Authorization: Bearer …"

Ctrl-C stops an answer, and cancels a question of the agent's; at the prompt, or pressed again, it leaves, as
Ctrl-D does. What is said may also come from a pipe.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast
from uuid import uuid4

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

import citewire
from citewire import CitewireError
from citewire.agui import Agent, HttpAgent, LocalAgent
from citewire.agui.agent import OpenInterrupts
from citewire.agui.events import RunInput
from citewire.agui.runs import Run
from citewire.agui.thread.contract_view import Contract, Subagent
from citewire.rendering import render_terminal
from citewire.rendering.safety import clean_line, clean_text
from citewire.text import one_line

Json = dict[str, Any]

PROMPT = "› "
CANCELLED: Json = {"status": "cancelled"}
WORDS: Json = {"y": True, "yes": True, "n": False, "no": False}
# How often a terminal is drawn anew while an answer comes: smooth to the eye, and little work.
FRAMES_PER_SECOND = 12


# What is shown. All that an agent says is foreign text: it becomes `Text`, in which rich reads no markup, and
# is cleaned before, so that no escape sequence gets through.


class Column:
    """Blocks one below the other, indented, `gap` lines apart; at most the last `height` lines of them."""

    def __init__(self, blocks: Sequence[RenderableType], height: int | None = None, gap: int = 1) -> None:
        self._blocks = blocks
        self._height = height
        self._gap = gap

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.update_width(options.max_width - 4)
        lines: list[list[Segment]] = []
        for block in self._blocks:
            lines += [[Segment("  "), *line] for line in console.render_lines(block, narrow, pad=False)]
            lines += [[]] * self._gap
        for line in lines[-self._height :] if self._height else lines:
            yield from line
            yield Segment.line()


class View:
    """One turn of the conversation: what came since the user spoke."""

    def __init__(self, console: Console, agent: Agent) -> None:
        self._colour = console.is_terminal and not console.no_color
        self._agent = agent
        before = agent.contract
        self._known = {key(one) for lane in (before, *before.subagents) for one in said_and_done(lane)}
        self._subagents_before = len(before.subagents)
        self._spinner = Spinner("dots", style="dim")
        self.stopped = False

    def blocks(self) -> list[RenderableType]:
        contract = self._agent.contract
        blocks = [*self._work(contract), *self._subagents(contract), *self._answers(contract)]
        if self._agent.is_loading:
            blocks.append(self._spinner)
        elif self.stopped:
            blocks.append(Text("■ stopped", style="dim"))
        elif contract.status == "error":
            blocks.append(Text(f"✗ {one_line(contract.error)}", style="bold red"))
        return blocks

    def _new(self, values: Iterable[Json]) -> list[Json]:
        return [value for value in values if key(value) not in self._known]

    def _work(self, lane: Contract | Subagent) -> Iterator[RenderableType]:
        """What it thought and did before it answered."""
        for message in self._new(lane.messages):
            if message.get("role") == "assistant" and message.get("reasoning"):
                yield Text(f"✻ {clean_text(str(message['reasoning'])).strip()}", style="dim italic")
        for call in self._new(lane.tool_calls):
            yield self._call(call)

    def _call(self, call: Json) -> Text:
        arguments = ", ".join(
            f"{one_line(name, 40)}: {one_line(value, 60)}" for name, value in call["args"].items()
        )
        line = Text.assemble(("⚙ ", "yellow"), f"{one_line(call['name'], 60)}({arguments})")
        if call["status"] != "complete":
            line.append(self._unfinished(), style="dim")
        if "result" in call:
            line.append(f"\n  {one_line(call['result'], 200)}", style="dim")
        return line

    def _unfinished(self) -> str:
        return " …" if self._agent.is_loading else " ■ stopped"

    def _subagents(self, contract: Contract) -> Iterator[RenderableType]:
        for at, subagent in enumerate(contract.subagents):
            inner = [*self._work(subagent), *self._answers(subagent)]
            if inner or at >= self._subagents_before:
                yield Group(self._header(subagent.info), Column(inner, gap=0))

    def _header(self, info: Json) -> Text:
        line = Text(f"▸ {one_line(info.get('name') or info['id'], 60)}", style="dim")
        match info["status"]:
            case "running":
                line.append(self._unfinished())
            case "error":
                line.append(f" ✗ {one_line(info.get('error'), 200)}", style="not dim red")
            case status:
                line.append(f" {one_line(status, 20)}")
        return line

    def _answers(self, lane: Contract | Subagent) -> Iterator[RenderableType]:
        for message in self._new(lane.messages):
            if message.get("role") == "assistant" and words(message):
                yield self._answer(message)

    def _answer(self, message: Json) -> Text:
        """The text with numbered markers, and the sources below it: what citewire is for."""
        payload = {**message, "content": words(message), "citations": message.get("citations", [])}
        try:
            shown = render_terminal(citewire.read(payload, "ngaf"), colour=self._colour)
        except CitewireError:  # citations that are none, say: what it wrote can be read all the same
            return Text(clean_text(words(message)))
        return Text.from_ansi(shown) if self._colour else Text(shown)


def said_and_done(lane: Contract | Subagent) -> Iterator[Json]:
    yield from lane.messages
    yield from lane.tool_calls


def key(value: Json) -> tuple[str, str]:
    """Tells messages and calls apart; an agent may send anything for an id."""
    return str(value.get("role")), str(value.get("id"))


def words(message: Json) -> str:
    """The text of a message, which may come in parts. An agent may send anything there, too."""
    content = message.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else [content]
    return "\n".join(filter(None, map(part_words, parts)))


def part_words(part: Any) -> str:
    match part:
        case str(text) | {"type": "text", "text": str(text)}:
            return text
        case _:
            return ""


# What is said.


def read_line(console: Console, prompt: str) -> str:
    """A line from the user. Raises EOFError at the end, and KeyboardInterrupt for Ctrl-C."""
    if sys.stdin.isatty():
        return input(prompt).strip()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    console.print(Text(prompt + clean_line(line)))
    return line.strip()


def read_answer(console: Console, interrupt: Json) -> Any:
    """What the user says to a question that the agent waits for. An empty line cancels it."""
    question = clean_text(str(interrupt.get("message") or interrupt.get("reason")))
    console.print(Text(f"  ? {question}", style="bold yellow"))
    said = read_line(console, "  yes, no, or words: ")
    return WORDS.get(said.lower(), said) if said else CANCELLED


class Chat:
    def __init__(self, console: Console, agent: Agent, runner: asyncio.Runner) -> None:
        self._console = console
        self._agent = agent
        self._runner = runner
        # Whether Ctrl-C was the last that the user had to say.
        self._leaving = False

    def go(self) -> None:
        """Talk until the user leaves."""
        with suppress(EOFError, KeyboardInterrupt):
            while True:
                if said := read_line(self._console, PROMPT):
                    self._leaving = False
                    self._take_turn(said, {})
                while self._agent.contract.interrupts and self._agent.contract.status == "idle":
                    self._take_turn(None, self._read_answers())
        self._console.print()

    def _read_answers(self) -> Json:
        """For each question that the agent waits for. Ctrl-C cancels one; a second in a row leaves."""
        answers: Json = {}
        for interrupt in self._agent.contract.interrupts:
            try:
                answers[interrupt["id"]] = read_answer(self._console, interrupt)
                self._leaving = False
            except KeyboardInterrupt:
                if self._leaving:
                    raise
                self._leaving = True
                self._console.print(Text("\n  ■ cancelled", style="dim"))
                answers[interrupt["id"]] = CANCELLED
        return answers

    def _take_turn(self, said: str | None, answers: Json) -> None:
        self._console.print()
        self._runner.run(self._turn(said, answers))

    async def _turn(self, said: str | None, answers: Json) -> None:
        view = View(self._console, self._agent)
        run = self._submit(said, answers)
        try:
            if self._console.is_terminal:
                await self._watch(run, view)
            else:
                await run
        except asyncio.CancelledError:  # Ctrl-C, as asyncio.Runner gives it to us
            if task := asyncio.current_task():
                task.uncancel()
            await self._agent.stop()
            view.stopped = True
        # What scrolled by while it came stays, whole.
        self._console.print(Column(view.blocks()), end="")

    def _submit(self, said: str | None, answers: Json) -> Run:
        """What was not answered, or not in time, is cancelled."""
        while True:
            try:
                return self._agent.submit(said, resume=answers or None)
            except OpenInterrupts as exc:
                answers = {**answers, **dict.fromkeys(exc.ids, CANCELLED)}

    async def _watch(self, run: Run, view: View) -> None:
        ended = asyncio.create_task(wait_for(run))
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            try:
                while not ended.done():
                    live.update(Column(view.blocks(), self._console.height - 2), refresh=True)
                    await asyncio.wait({ended}, timeout=1 / FRAMES_PER_SECOND)
            finally:
                ended.cancel()


async def wait_for(run: Run) -> None:
    await run


# An agent of our own: a clerk who knows three documents.

DOCUMENTS: tuple[Json, ...] = (
    {
        "id": "refunds",
        "title": "Refund policy",
        "url": "https://shop.example/refunds",
        "snippet": "Refunds are available within 30 days of delivery.",
    },
    {
        "id": "shipping",
        "title": "Shipping and returns",
        "url": "https://shop.example/shipping",
        "snippet": "Shipping is not refunded unless the item arrived damaged.",
    },
    {
        "id": "warranty",
        "title": "Warranty",
        "url": "https://shop.example/warranty",
        "snippet": "Every device has a warranty of two years.",
    },
)
NOTHING = (
    "My three documents say nothing about that. "
    "Ask me about refunds, shipping or the warranty, or to cancel your order."
)


def stems(text: str) -> set[str]:
    """Words without their endings, roughly: enough for three documents."""
    return {word[:5] for word in re.findall(r"[a-z]{4,}", text.lower())}


def search(question: str) -> list[Json]:
    asked = stems(question)
    return [document for document in DOCUMENTS if asked & stems(f"{document['title']} {document['snippet']}")]


class Clerk:
    """Thinks, searches, answers with citations, and asks before it does something that cannot be undone."""

    def __init__(self, pause: float) -> None:
        self._pause = pause

    async def __call__(self, run_input: RunInput) -> AsyncIterator[Json]:
        run = {"threadId": run_input.thread_id, "runId": run_input.run_id}
        yield {"type": "RUN_STARTED", **run}
        question = words(run_input.messages[-1]) if run_input.messages else ""
        outcome: Json = {"type": "success"}
        if run_input.resume:
            agreed = run_input.resume[0].get("payload") is True
            reply = self._say("Order 1042 is cancelled." if agreed else "Nothing was changed.")
        elif {"cance", "order"} <= stems(question):
            reply = self._say("I can do that for you.")
            interrupt = {"id": str(uuid4()), "reason": "confirm", "message": "Cancel order 1042 for good?"}
            outcome = {"type": "interrupt", "interrupts": [interrupt]}
        else:
            reply = self._look_up(question, run_input.state)
        async for event in reply:
            await asyncio.sleep(self._pause)
            yield event
        yield {"type": "RUN_FINISHED", **run, "outcome": outcome}

    async def _look_up(self, question: str, state: Any) -> AsyncIterator[Json]:
        async for event in self._think("Which of my documents speaks of this?"):
            yield event
        call, found = {"toolCallId": str(uuid4())}, search(question)
        yield {"type": "TOOL_CALL_START", **call, "toolCallName": "search"}
        for piece in ('{"query": ', json.dumps(question), "}"):
            yield {"type": "TOOL_CALL_ARGS", **call, "delta": piece}
        yield {"type": "TOOL_CALL_END", **call}
        titles = ", ".join(document["title"] for document in found) or "nothing"
        yield {"type": "TOOL_CALL_RESULT", **call, "messageId": str(uuid4()), "content": titles}
        text = " ".join(f"{document['snippet']}[^{document['id']}]" for document in found)
        async for event in self._say(text or NOTHING, found, state):
            yield event

    async def _think(self, text: str) -> AsyncIterator[Json]:
        message = {"messageId": str(uuid4())}
        yield {"type": "REASONING_START", **message}
        yield {"type": "REASONING_MESSAGE_START", **message, "role": "reasoning"}
        for word in re.findall(r"\S+\s*", text):
            yield {"type": "REASONING_MESSAGE_CONTENT", **message, "delta": word}
        yield {"type": "REASONING_MESSAGE_END", **message}
        yield {"type": "REASONING_END", **message}

    async def _say(self, text: str, cited: Sequence[Json] = (), state: Any = None) -> AsyncIterator[Json]:
        name = str(uuid4())
        yield {"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"}
        if cited:
            held = cast("Json", state) if isinstance(state, dict) else {}
            citations = {**held.get("citations", {}), name: list(cited)}
            yield {"type": "STATE_SNAPSHOT", "snapshot": {**held, "citations": citations}}
        for word in re.findall(r"\S+\s*", text):
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": word}
        yield {"type": "TEXT_MESSAGE_END", "messageId": name}


def main() -> None:
    parser = argparse.ArgumentParser(description="Chat with an AG-UI agent.")
    parser.add_argument("url", nargs="?", help="where the agent is; without it, a small one answers here")
    parser.add_argument("-H", "--header", action="append", default=[], help="to send along, as NAME: VALUE")
    options = parser.parse_args()
    console = Console(highlight=False)
    # A person wants to see it come.
    pause = 0.03 if console.is_terminal else 0
    if sys.stdin.isatty():
        with suppress(ImportError):  # editing and history, where Python has them
            import readline  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]
    headers = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in options.header)
    }
    try:
        source = HttpAgent(options.url, headers=headers) if options.url else LocalAgent(Clerk(pause))
    except CitewireError as exc:
        parser.error(exc.message)
    who = clean_line(options.url or "a clerk who knows about refunds, shipping and warranties")
    console.print(Text("citewire chat", style="bold").append(f" with {who}", style="not bold dim"))
    console.print(Text("Ctrl-C stops an answer, Ctrl-D leaves.\n", style="dim"))
    with asyncio.Runner() as runner:
        agent = Agent(source)
        try:
            Chat(console, agent, runner).go()
        finally:
            runner.run(agent.aclose())


if __name__ == "__main__":
    main()
