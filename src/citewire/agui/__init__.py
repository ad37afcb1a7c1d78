"""AG-UI for Python: events, the order rules, threads, and agents to talk to."""

from __future__ import annotations

from citewire.agui.agent import Agent
from citewire.agui.citations import bridge_citations_state
from citewire.agui.client import HttpAgent
from citewire.agui.protocol import ProtocolError, check
from citewire.agui.sources import LocalAgent, Replay
from citewire.agui.thread import Thread

__all__ = [
    "Agent",
    "HttpAgent",
    "LocalAgent",
    "ProtocolError",
    "Replay",
    "Thread",
    "bridge_citations_state",
    "check",
]
