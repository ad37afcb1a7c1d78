"""Names of a thread's channels, rows and leases."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from citewire.errors import InputError

__all__ = [
    "LOG_PREFIX",
    "ai_channel",
    "annotation_id",
    "bridge_lease",
    "channel_of",
    "deferred_lease",
    "input_id",
    "proof_id",
    "run_channel",
    "thread_of",
    "thread_of_ai_channel",
]

LOG_PREFIX: Final = "run:"
"""The prefix of the channels that hold the logs of threads."""
_AI_PREFIX: Final = "ai:"
_LONGEST_NAME: Final = 512


def run_channel(thread_id: str) -> str:
    """Return the channel that holds the log of a thread, for an id that may be invalid."""
    return LOG_PREFIX + quote(thread_id, safe="", errors="replace")


def channel_of(thread_id: str) -> str:
    """Return the channel that holds the log of a thread. Raises `InputError` for an invalid id."""
    channel = LOG_PREFIX + quote(thread_id, safe="", errors="strict") if _is_text(thread_id) else ""
    if not len(LOG_PREFIX) < len(channel) <= _LONGEST_NAME:
        raise InputError("the id of a thread is text of 1 to about 500 bytes", "threadId")
    return channel


def thread_of(channel: str) -> str:
    """Return the id of the thread whose log is in this channel."""
    return unquote(channel.removeprefix(LOG_PREFIX))


def ai_channel(thread_id: str) -> str:
    """Return the channel in which the answers of a thread are published."""
    return _AI_PREFIX + quote(thread_id, safe="").replace("~", "%7E")


def thread_of_ai_channel(channel: str) -> str | None:
    """Return the id of the thread whose answers are published in this channel, or None."""
    thread_id = unquote(channel.partition(":")[2])
    return thread_id if thread_id and ai_channel(thread_id) == channel else None


def input_id(run_id: str) -> str:
    """Return the id of the row that starts a run. It makes starting a run idempotent."""
    name = f"input:{run_id}"
    if not run_id or not _is_text(run_id) or len(name.encode()) > _LONGEST_NAME or "\0" in run_id:
        raise InputError("the id of a run is text of 1 to about 500 bytes", "runId")
    return name


def proof_id(name: str) -> str:
    """Return the id of the row that holds the verdict with this proof."""
    return f"proof:{name}"


def annotation_id(serial: str) -> str:
    """Return the id of the row with the citation from this annotation, so that it is added only once."""
    return f"annotation:{serial}"


def deferred_lease(channel: str) -> str:
    """Return the name of the lease for deferred verdicts in a thread."""
    return f"late:{channel.removeprefix(LOG_PREFIX)}"


def bridge_lease(channel: str) -> str:
    """Return the name of the lease, and of the log, for the bridge's positions in a thread."""
    return f"tie:{channel.removeprefix(LOG_PREFIX)}"


def _is_text(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
