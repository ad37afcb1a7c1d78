"""AG-UI for Python: events, ordering rules, threads, agent clients, and citation checking in streams."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from citewire.agui.agent import Agent
from citewire.agui.agents import LocalAgent, Replay
from citewire.agui.citation_bridge import bridge_citations_state
from citewire.agui.citations.shared_state import INITIAL_DEEPCITATION_STATE
from citewire.agui.client import HttpAgent
from citewire.agui.protocol import ProtocolError, check
from citewire.agui.thread import Thread

if TYPE_CHECKING:
    from citewire.agui.asgi import CitationMiddleware
    from citewire.agui.citations.message_state import Options
    from citewire.agui.citing_agent import CitingAgent
    from citewire.agui.middleware import Citing, RunSink

__all__ = [
    "Agent",
    "CitationMiddleware",
    "Citing",
    "CitingAgent",
    "HttpAgent",
    "INITIAL_DEEPCITATION_STATE",
    "LocalAgent",
    "Options",
    "ProtocolError",
    "Replay",
    "RunSink",
    "Thread",
    "bridge_citations_state",
    "check",
]

# Imported lazily: these modules import numpy, which programs that only read events do not need.
_HEAVY = {
    "CitationMiddleware": "asgi",
    "Citing": "middleware",
    "CitingAgent": "citing_agent",
    "Options": "citations.message_state",
    "RunSink": "middleware",
}


def __getattr__(name: str) -> Any:
    if name not in _HEAVY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HEAVY[name]}"), name)
