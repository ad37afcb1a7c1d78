"""Ends messages that a run left open: after the run, none may stay `streaming` in the shared state."""

from __future__ import annotations

from typing import Any

from citewire.agui.citations.shared_state import INITIAL_DEEPCITATION_STATE, record_of, status_patches
from citewire.agui.events import Json

__all__ = ["STREAM_ENDED_EARLY", "unfinished_message_patches"]

STREAM_ENDED_EARLY = "the stream ended before the message did"
"""The error of a message that never ended."""


def unfinished_message_patches(state: Any, state_key: str) -> list[Json]:
    """Build the patch that ends a state's open messages: `verifying` if checks are pending, else `error`."""
    patches: list[Json] = []
    for name, message in (record_of(state, state_key) or INITIAL_DEEPCITATION_STATE)["messages"].items():
        if message["status"] in ("streaming", "extracting"):
            is_pending = bool(message["citations"].keys() - message["verifications"].keys())
            status = "verifying" if is_pending else "error"
            patches += status_patches(name, status, STREAM_ENDED_EARLY, state_key)
    return patches
