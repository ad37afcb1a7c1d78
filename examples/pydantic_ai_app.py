"""A pydantic-ai agent, with every citation checked: `uvicorn pydantic_ai_app:app --app-dir examples`.

MODEL names the model, such as `openai:gpt-5`; without it, pydantic-ai's test model answers, offline.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import citewire
from citewire.agui import CitationMiddleware
from citewire.documents import load

POLICY = Path(__file__).with_name("policy.txt")

agent = Agent(os.environ.get("MODEL", "test"), instructions=citewire.prompt([load(POLICY)]))


async def answer(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent)


app = CitationMiddleware(Starlette(routes=[Route("/agui", answer, methods=["POST"])]), sources=POLICY)
