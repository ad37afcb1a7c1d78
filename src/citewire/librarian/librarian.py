"""The agent without a model: it looks up a question in the sources, and answers with quotes.

The same run gives the same events: nothing in them is random, and their ids derive from the run's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

from citewire.agui import events as ev
from citewire.agui.events import AnyEvent, Json, RunInput
from citewire.librarian.answer import LookupResult, find_quotes, write_answer
from citewire.librarian.index import MOST_QUESTION_CHARACTERS, PassageIndex

__all__ = ["Librarian", "SEARCH_TOOL", "user_questions"]

SEARCH_TOOL = "search_sources"
# Characters of a delta, and of the snippet of a found passage.
_DELTA, _SNIPPET = 24, 160
_PIECE = re.compile(rf"[\s\S]{{1,{_DELTA}}}(?<=\s)|[\s\S]{{1,{_DELTA}}}")
# Events after which other tasks get a turn.
_TURN = 16
_NO_QUESTION = "Ask me something about the sources."


class Librarian:
    """Answers from an index: `LocalAgent(Librarian(index).run)`.

    `status` returns how many sources are still being read, and the total; the default is none. `read` waits
    for them, as long as it is worthwhile.
    """

    def __init__(
        self,
        index: PassageIndex,
        status: Callable[[], tuple[int, int]] | None = None,
        read: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._index, self._read = index, read
        self._status = status or (lambda: (0, len(index.source_ids())))

    async def run(self, run_input: RunInput) -> AsyncIterator[AnyEvent]:
        """Yield the events of a run: the search, its result, and the answer."""
        asked = user_questions(run_input.messages)
        yield ev.RunStarted(run_input.thread_id, run_input.run_id, RunInput.PROTOCOL)
        text = _NO_QUESTION
        if asked:
            call = f"{run_input.run_id}-search"
            query = {"query": asked[-1][:MOST_QUESTION_CHARACTERS]}
            yield ev.ToolCallStart(call, SEARCH_TOOL)
            yield ev.ToolCallArgs(call, ev.write_json(query).decode())
            yield ev.ToolCallEnd(call)
            if self._read:
                await self._read()
            (reading, total), found = await asyncio.to_thread(self._find, asked)
            yield ev.ToolCallResult(f"{call}-result", call, _result(found), "tool")
            text = write_answer(found, reading, total)
        for count, event in enumerate(_message_events(f"{run_input.run_id}-answer", text), 1):
            yield event
            if count % _TURN == 0:
                await asyncio.sleep(0)
        yield ev.RunFinished(run_input.thread_id, run_input.run_id)

    def _find(self, asked: Sequence[str]) -> tuple[tuple[int, int], LookupResult]:
        # In this order: a source read in between is then reported as unread, not as having no answer.
        return self._status(), find_quotes(self._index, asked[-1], asked[-2] if len(asked) > 1 else "")


def user_questions(messages: Sequence[Any]) -> list[str]:
    """Return the user's messages that have text, the latest last."""
    given = [cast("Json", message) for message in messages if isinstance(message, dict)]
    said = [_text(message.get("content")) for message in given if message.get("role") == "user"]
    return [text for text in said if text.strip()]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [cast("Json", part).get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _result(found: LookupResult) -> str:
    """Return the passages found, for display. Citations are checked against the source, not these fields."""
    shown = [
        {"file": passage.source, "page": passage.page, "says": _snippet(passage.text)}
        for passage in found.passages
    ]
    return ev.write_json({"found": shown}).decode()


def _snippet(text: str) -> str:
    return text if len(text) <= _SNIPPET else f"{text[:_SNIPPET].rsplit(' ', 1)[0]} …"


def _message_events(name: str, text: str) -> Iterator[AnyEvent]:
    yield ev.TextMessageStart(name, "assistant")
    for piece in _PIECE.findall(text):
        yield ev.TextMessageContent(name, piece)
    yield ev.TextMessageEnd(name)
