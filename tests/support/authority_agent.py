"""An agent with predictable ids, for a server in this process: `agent="support.authority_agent:answer"`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from citewire.agui.events import RunInput

SOURCE = "The harbour opened in 1887. Its lamp is seen from forty miles. Nobody lives there in winter."
_QUOTES = ("The harbour opened in 1887.", "Its lamp is seen from ninety miles.", "Ships come every day.")
_BLOCK = json.dumps({"harbour.txt": [{"id": at, "full_phrase": each} for at, each in enumerate(_QUOTES, 1)]})
CUTS: dict[str, asyncio.Event] = {}
"""Runs that stop for good in the middle of their answer, once: the event is set when they have."""
TEXT = "It opened in 1887 [1], its lamp reaches far [2], and ships come [3]."


async def answer(run_input: RunInput) -> AsyncIterator[dict[str, Any]]:
    """Says one answer with three citations, as a stream, as chunks, or also in a snapshot of all messages."""
    ids = {"threadId": run_input.thread_id, "runId": run_input.run_id}
    name = f"{run_input.run_id}-answer"
    said = f"{run_input.run_id}: {TEXT}\n\n<<<CITATION_DATA>>>\n{_BLOCK}\n<<<END_CITATION_DATA>>>"
    how = len(run_input.run_id) % 3
    yield {"type": "RUN_STARTED", **ids}
    if how == 1:
        yield {"type": "STATE_SNAPSHOT", "snapshot": run_input.state}
    if how == 2:
        yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": name, "delta": said[:9]}
        await _cut(run_input.run_id)
        yield {"type": "TEXT_MESSAGE_CHUNK", "delta": said[9:]}
    else:
        yield {"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"}
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": said[:9]}
        await _cut(run_input.run_id)
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": said[9:]}
        yield {"type": "TEXT_MESSAGE_END", "messageId": name}
    if how == 1:
        own = {"id": name, "role": "assistant", "content": said}
        given = [each for each in run_input.messages if each.get("id") != name]
        yield {"type": "MESSAGES_SNAPSHOT", "messages": [*given, own]}
    yield {"type": "RUN_FINISHED", **ids}


async def _cut(run_id: str) -> None:
    if cut := CUTS.pop(run_id, None):
        cut.set()
        await asyncio.Event().wait()
