"""`citewire audit`, called in this process, and an agent that says hostile things."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from citewire import cli
from citewire.agui.events import RunInput

Json = dict[str, Any]


HOSTILE = "</q><script>document.title='run'</script>\x1b[31m =SUM(A1)"


# What the agent says of the policy in a thread, by the status that it deserves.
SAYS: dict[str, list[tuple[str, str]]] = {
    "shop": [
        ("verified", "You may return any lamp within 30 days."),
        ("altered", "You may return any lamp within 60 days."),
        ("missed", "Lamps are made of moon rock and marzipan, they say."),
    ],
    "thé/<b>": [("verified", "Gift cards are final."), ("missed", HOSTILE)],
    "gone": [("verified", "Shipping is not refunded.")],
    "quiet": [],
}


async def agent(run_input: RunInput) -> AsyncIterator[Json]:
    """Looks something up, and cites what it is to cite in this thread."""
    ids, said = {"threadId": run_input.thread_id, "runId": run_input.run_id}, {"messageId": "m"}
    quotes = [quote for _, quote in SAYS[run_input.thread_id]]
    cited = [{"id": at, "full_phrase": quote} for at, quote in enumerate(quotes, 1)]
    found = [{"title": "Old catalogue", "url": "https://shop.example/old", "text": "Lamps of 1970."}]
    text = " ".join(f"So it is [{at}]." for at in range(1, len(quotes) + 1)) or "No idea."
    block = f"\n<<<CITATION_DATA>>>\n{json.dumps({'policy.txt': cited})}\n<<<END_CITATION_DATA>>>"
    yield {"type": "RUN_STARTED", **ids}
    yield {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "look_up"}
    yield {"type": "TOOL_CALL_END", "toolCallId": "c"}
    yield {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "messageId": "r", "content": json.dumps(found)}
    yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **said}
    yield {"type": "TEXT_MESSAGE_CONTENT", "delta": text + block, **said}
    yield {"type": "TEXT_MESSAGE_END", **said}
    yield {"type": "RUN_FINISHED", **ids}


def audit(*arguments: str | Path) -> Result:
    env = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    given = ["audit", *map(str, arguments)]
    return CliRunner(env=env).invoke(cli.app, given, prog_name="citewire")
