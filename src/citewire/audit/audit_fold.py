"""Fold the channel `audit:`: the signed heads, and what they cover of all other channels."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from citewire.audit.chain_check import Known
from citewire.audit.findings import Findings
from citewire.audit.signing import KeyIntroduced
from citewire.audit.statements import (
    ApiKey,
    Mark,
    Position,
    Removal,
    SignedHead,
    Statement,
    Tombstone,
)
from citewire.errors import ShapeError

__all__ = ["NAME", "AuditFold", "known_of_audit_log", "time_of"]

NAME = "the audit log"
# Milliseconds by which the clocks of two servers may differ.
_SKEW = 60_000


class AuditFold:
    """What the rows of the audit log say. `take` them in order, each with the hash that it has."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.heads: list[SignedHead] = []
        self.positions: dict[str, Position] = {}
        """The last position of each epoch."""
        self.tombstones: dict[int, Tombstone] = {}
        self.api_keys: dict[str, ApiKey] = {}
        self._hashes: dict[str, dict[int, str]] = {}
        self._first_floors: dict[str, Mark] = {}
        self._trims: dict[str, dict[int, str]] = {}
        self._deletions: dict[str, Removal] = {}
        self.began = 1 << 62
        """The time of the first head, in milliseconds."""
        self.since = 0
        """The time of the last head, in milliseconds, with room for clocks that differ; 0 without one."""
        # The hashes of rows since the last head: the next one signs one of them.
        self._recent: dict[int, str] = {}

    def take(self, n: int, row_hash: str, statement: Statement | None) -> None:
        """Take in what a row says; None where it says nothing that can be read here."""
        self._recent[n] = row_hash
        match statement:
            case SignedHead():
                self._on_head(n, statement)
            case Position():
                self.positions[statement.epoch] = statement
                self._first_floors.setdefault(statement.epoch, statement.floor)
                hashes = self._hashes.setdefault(statement.epoch, {})
                hashes[statement.head.n] = statement.head.hash
                hashes.setdefault(statement.floor.n, statement.floor.hash)
            case Removal():
                self._on_removal(n, statement)
            case KeyIntroduced():
                self._tell(f"row {n}", self._findings.trust.introduce(statement))
            case Tombstone():
                self.tombstones[statement.no] = statement
            case ApiKey():
                self.api_keys[statement.name] = statement
            case None:
                pass

    def _on_head(self, n: int, head: SignedHead) -> None:
        name = f"head {head.number}"
        self._tell(name, self._findings.trust.problem(head))
        try:
            self.began = min(self.began, time_of(head.at))
            self.since = max(self.since, time_of(head.at) - _SKEW)
        except ShapeError as exc:
            self._tell(name, exc.message)
        before = self.heads[-1] if self.heads else None
        if head.number != (before.number + 1 if before else 1):
            self._tell(name, f"it comes after head {before.number if before else 0}: one between is missing")
        elif head.previous != (before.digest if before else ""):
            self._tell(name, "it does not follow the head before it")
        signed = self._recent.get(head.n)
        if signed != head.hash:
            first = min(self._recent, default=n)
            self._tell(name, f"a row from {first} to {head.n} of {NAME} is not the one that was signed")
        self.heads.append(head)
        self._recent = {at: found for at, found in self._recent.items() if at >= n}

    def _on_removal(self, n: int, removal: Removal) -> None:
        problem = self._findings.trust.problem(removal)
        self._tell(f"row {n} of {NAME}", problem)
        if problem is not None:
            return
        if removal.what == "deleted":
            self._deletions[removal.epoch] = removal
        else:
            self._trims.setdefault(removal.epoch, {})[removal.n] = removal.hash

    def _tell(self, where: str, problem: str | None) -> None:
        if problem:
            self._findings.broken(where, problem)

    def known(self, epoch: str) -> Known:
        """What is known of the channel with this epoch."""
        return Known(self._hashes.get(epoch, {}), "a signed head", self.since)

    def deletion(self, epoch: str) -> Removal | None:
        """Who deleted the channel with this epoch, as far as that is signed."""
        return self._deletions.get(epoch)

    def has_to_explain(self, stone: Tombstone) -> bool:
        """Whether a deletion has to be signed: not one from before the first head that no head knows of."""
        return stone.epoch in self.positions or stone.at >= self.began

    def explains(self, epoch: str, floor: Mark) -> bool:
        """Whether it is signed that the rows up to this one were removed.

        What was removed before a channel was first noted is not known: its floor counts as it was then.
        """
        return self._trims.get(epoch, {}).get(floor.n) == floor.hash or self._first_floors.get(epoch) == floor


def known_of_audit_log(epoch: str, kept: Iterable[SignedHead]) -> Known:
    """What heads that were kept elsewhere say of the audit log itself."""
    heads = [head for head in kept if head.epoch == epoch]
    said = ", ".join(f"head {head.number}" for head in heads)
    return Known({head.n: head.hash for head in heads}, f"{said}, kept elsewhere,")


def time_of(text: str) -> int:
    """Milliseconds since 1970 of a time as statements have it. Raises `ShapeError`."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ShapeError("not a time") from None
