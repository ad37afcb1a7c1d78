"""An endpoint that streams AG-UI, with every citation checked: `uvicorn fastapi_app:app --app-dir examples`.

The endpoint knows nothing of citewire. It answers from what it was given, and cites it in a data block.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from citewire.agui import CitationMiddleware

ANSWER = """You can get a refund within 30 days [1], but not for gift cards [2].
<<<CITATION_DATA>>>
{"policy.txt": [
  {"id": 1, "full_phrase": "Refunds are available within 30 days of purchase."},
  {"id": 2, "full_phrase": "They are not available for gift cards."}
]}
<<<END_CITATION_DATA>>>"""

endpoint = FastAPI()


@endpoint.post("/agui")
async def answer(run: dict[str, Any]) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        ids = {"threadId": run["threadId"], "runId": run["runId"]}
        yield frame("RUN_STARTED", **ids)
        yield frame("TEXT_MESSAGE_START", messageId="answer", role="assistant")
        for word in ANSWER.split(" "):
            yield frame("TEXT_MESSAGE_CONTENT", messageId="answer", delta=f"{word} ")
        yield frame("TEXT_MESSAGE_END", messageId="answer")
        yield frame("RUN_FINISHED", **ids)

    return StreamingResponse(events(), media_type="text/event-stream")


def frame(kind: str, **fields: str) -> str:
    return f"data: {json.dumps({'type': kind, **fields})}\n\n"


app = CitationMiddleware(endpoint, sources=Path(__file__).with_name("policy.txt"))
