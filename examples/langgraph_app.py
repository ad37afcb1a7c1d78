"""A LangGraph agent, with every citation checked: `uvicorn langgraph_app:app --app-dir examples`.

Its one node answers without a model, so that it runs offline; put a model in its place.
"""

# LangGraph has types that are known in part only.
# pyright: basic, reportMissingTypeStubs=false

from __future__ import annotations

from pathlib import Path
from typing import Any

from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from citewire.agui import CitationMiddleware

ANSWER = 'The policy says: "Refunds are available within 30 days of purchase." [1]\n\nSources:\n1. policy.txt'


def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(ANSWER)]}


graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile(MemorySaver())
endpoint = FastAPI()
add_langgraph_fastapi_endpoint(endpoint, LangGraphAgent(name="policy", graph=graph), "/agui")
app = CitationMiddleware(endpoint, sources=Path(__file__).with_name("policy.txt"))
