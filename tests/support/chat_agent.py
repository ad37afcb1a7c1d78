"""An agent that does what the question says, in this process: `agent="support.chat_agent:answer"`."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from citewire.agui.events import RunInput

EVIL = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
CITED = {
    "refund-policy.html": {1: "you may return any lamp within 30 days of delivery"},
    "report.pdf": {2: "revenue grow by 12.4% in 2025, from £5.92 million", 5: "Profit for the year 405 577"},
    "handbook.md": {3: "Each parent has 80 days of the parental leave at full pay."},
    EVIL: {4: f"Lamps are made of cheese {EVIL}"},
}  # fmt: skip
FIRST = "You may return any lamp within 30 days [1]."
REST = (
    f" Revenue grew by 12.4 percent in 2025 [2], and there was a profit [5]. Nobody doubts it.\n\n"
    f"- Leave is 80 days [3].\n- Lamps are made of cheese {EVIL} [4].\n"
)
_ENTRIES = {
    name: [{"id": n, "full_phrase": quote} for n, quote in some.items()] for name, some in CITED.items()
}
_BLOCK = f"\n\n<<<CITATION_DATA>>>\n{json.dumps(_ENTRIES)}\n<<<END_CITATION_DATA>>>"
LONG = "\n\n".join(
    f"Paragraph {n} says the same at some length, so that there is something to read." for n in range(60)
)


class Held:
    """Where an agent waits until a test lets it go on."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._go: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def here(self) -> None:
        """Wait."""
        go = asyncio.Event()
        self._go = asyncio.get_running_loop(), go
        self._reached.set()
        await go.wait()

    def go_on(self) -> None:
        """Let it go on, once it is there."""
        assert self._reached.wait(20)
        assert self._go
        loop, go = self._go
        self._reached.clear()
        loop.call_soon_threadsafe(go.set)


HELD = Held()
_asked: Counter[str] = Counter()


async def answer(run_input: RunInput) -> AsyncIterator[dict[str, Any]]:
    """Thinks, looks something up, and answers; says how often it was asked that in this thread."""
    question = run_input.messages[-1]["content"]
    word = question.lower()
    ids = {"threadId": run_input.thread_id, "runId": run_input.run_id}
    times = _asked[run_input.thread_id + question] = _asked[run_input.thread_id + question] + 1
    message, call = {"messageId": f"{run_input.run_id}-m"}, {"toolCallId": f"{run_input.run_id}-c"}
    said = {"type": "TEXT_MESSAGE_CONTENT", **message}
    yield {"type": "RUN_STARTED", **ids}
    yield {"type": "REASONING_MESSAGE_START", "role": "reasoning", "messageId": f"{run_input.run_id}-t"}
    yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": f"{run_input.run_id}-t", "delta": f"Hm. {EVIL}"}
    yield {"type": "REASONING_MESSAGE_END", "messageId": f"{run_input.run_id}-t"}
    yield {"type": "TOOL_CALL_START", "toolCallName": f"look_up {EVIL}", **call}
    yield {"type": "TOOL_CALL_ARGS", "delta": json.dumps({"query": question}), **call}
    yield {"type": "TOOL_CALL_END", **call}
    yield {"type": "TOOL_CALL_RESULT", "content": "4 passages", "messageId": f"{run_input.run_id}-r", **call}
    yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **message}
    yield {**said, "delta": f"Answer {times}. {FIRST}"}
    if "long" in word:
        yield {**said, "delta": f"\n\n{LONG}"}
    if "wait" in word:
        await HELD.here()
    if "fail" in word and times == 1:
        yield {"type": "RUN_ERROR", "message": f"no model {EVIL}", "code": "agent_failed"}
        return
    for at in range(0, len(text := REST + _BLOCK), 20):
        yield {**said, "delta": text[at : at + 20]}
    yield {"type": "TEXT_MESSAGE_END", **message}
    yield {"type": "RUN_FINISHED", **ids}
