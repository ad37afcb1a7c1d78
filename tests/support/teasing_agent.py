"""An agent whose ids and words try to be frames of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from citewire.agui.events import RunInput


async def teasing(run_input: RunInput) -> AsyncIterator[dict[str, Any]]:
    """An agent whose ids and words try to be frames of their own."""
    ids = {"threadId": run_input.thread_id, "runId": run_input.run_id}
    said = {"messageId": "m\r\nid: 9\n\ndata: {}\u2028\x85"}
    yield {"type": "RUN_STARTED", **ids}
    yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **said}
    yield {"type": "TEXT_MESSAGE_CONTENT", "delta": "a\n\nevent: evil\rdata: x\r\n\r\nid: 1:1\n", **said}
    yield {"type": "TEXT_MESSAGE_END", **said}
    yield {"type": "CUSTOM\nid: 5", "name": "x\n\n", "value": "\0\n"}
    yield {"type": "RUN_FINISHED", **ids}
