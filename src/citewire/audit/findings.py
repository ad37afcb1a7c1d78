"""What a verification finds: what is broken and where, and what is only worth a note."""

from __future__ import annotations

from typing import NamedTuple

from citewire.audit.signing import TrustedKeys

__all__ = ["Break", "Findings"]


class Break(NamedTuple):
    """Where something is wrong, and what."""

    where: str
    what: str


class Findings:
    """What came of a verification with these trusted keys."""

    def __init__(self, trust: TrustedKeys | None = None) -> None:
        self.trust = trust or TrustedKeys()
        self.breaks: list[Break] = []
        self.notes: list[str] = []
        self.rows = 0

    def add_break(self, where: str, what: str) -> None:
        """Something is wrong."""
        self.breaks.append(Break(where, what))

    def add_note(self, text: str) -> None:
        """Something is as it may be, and a person should know."""
        self.notes.append(text)
