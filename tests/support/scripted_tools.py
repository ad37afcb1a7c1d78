"""An agent that calls tools and cites their results, as its script says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from citewire.agui.events import RunInput
from support.annotated_stream import FINISHED, STARTED

Json = dict[str, Any]


async def script(run_input: RunInput) -> AsyncIterator[Json]:
    """An agent that says the events that the client asks for."""
    ids = {"threadId": run_input.thread_id, "runId": run_input.run_id}
    for event in (STARTED, *run_input.forwarded_props["events"], FINISHED):
        yield {**event, **(ids if event["type"].startswith("RUN_") else {})}
