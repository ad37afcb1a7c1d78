"""An agent that a server runs in its own process: `citewire serve --agent support.server_agents:held`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

from citewire.agui.events import RunInput

QUOTE = "you may return any lamp within 30 days of delivery and get the full price back"
VISIBLE = "You have 30 days [1], and I am sure of it."
_CITED = {"refund-policy.html": [{"id": 1, "full_phrase": QUOTE, "anchor_text": "30 days"}]}
_TEXT = f"{VISIBLE}\n\n<<<CITATION_DATA>>>\n{json.dumps(_CITED)}\n<<<END_CITATION_DATA>>>"
_STEP = {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/steps", "value": 1}]}


def held(run_input: RunInput) -> AsyncIterator[dict[str, Any]]:
    """Answers. Where it is asked about a pipe, it stops in the middle until somebody writes to that."""
    return _answer(run_input, "answer")


def held_by_run(run_input: RunInput) -> AsyncIterator[dict[str, Any]]:
    """The same agent, but the message of each run has an id of its own."""
    return _answer(run_input, f"{run_input.run_id}-answer")


async def _answer(run_input: RunInput, message_id: str) -> AsyncIterator[dict[str, Any]]:
    ids = {"threadId": run_input.thread_id, "runId": run_input.run_id}
    said = {"messageId": message_id}
    yield {"type": "RUN_STARTED", **ids}
    yield _STEP
    yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **said}
    for at in range(0, len(_TEXT), 10):
        if at == 20:
            await _opened(run_input.messages[-1]["content"])
        yield {"type": "TEXT_MESSAGE_CONTENT", "delta": _TEXT[at : at + 10], **said}
    yield {"type": "TEXT_MESSAGE_END", **said}
    yield {"type": "RUN_FINISHED", **ids}


async def _opened(pipe: str) -> None:
    if not pipe.startswith("/"):
        return
    come, loop = asyncio.Event(), asyncio.get_running_loop()
    handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    loop.add_reader(handle, come.set)
    try:
        await come.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def flood(run_input: RunInput) -> AsyncIterator[dict[str, Any]]:
    """Says more than the buffers between two processes hold, if it is asked for much."""
    ids = {"threadId": run_input.thread_id, "runId": run_input.run_id}
    yield {"type": "RUN_STARTED", **ids}
    for _ in range(256 if run_input.messages[-1]["content"] == "much" else 1):
        yield {"type": "CUSTOM", "name": "much", "value": "x" * 65536}
    yield {"type": "RUN_FINISHED", **ids}
