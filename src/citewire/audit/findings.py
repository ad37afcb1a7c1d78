"""The findings of a verification: breaks with their place, and notes."""

from __future__ import annotations

from typing import NamedTuple

from citewire.audit.signing import TrustedKeys

__all__ = ["Break", "Findings"]


class Break(NamedTuple):
    """A place and what is wrong there."""

    where: str
    what: str


class Findings:
    """The findings of a verification with these trusted keys."""

    def __init__(self, trust: TrustedKeys | None = None) -> None:
        self.trust = trust or TrustedKeys()
        self.breaks: list[Break] = []
        self.notes: list[str] = []
        self.rows = 0

    def add_break(self, where: str, what: str) -> None:
        """Report a problem."""
        self.breaks.append(Break(where, what))

    def add_note(self, text: str) -> None:
        """Report something that is valid but that a person should know."""
        self.notes.append(text)
