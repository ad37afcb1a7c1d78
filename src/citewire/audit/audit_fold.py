"""Fold the channel `audit:`: the signed heads, and what they cover of all other channels.

Only heads, removals and key introductions are signed individually. Positions, tombstones and API keys are
signed by the next head, so anyone who can write to the store can append such rows after the last head.
Therefore a later row never replaces what an earlier one says: a contradiction is a break.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from citewire.audit.chain_check import KnownHashes
from citewire.audit.findings import Findings
from citewire.audit.signing import KeyIntroduction
from citewire.audit.statements import (
    ApiKey,
    ChainPoint,
    Position,
    Removal,
    SignedHead,
    Statement,
    Tombstone,
)
from citewire.audit.thread_fold import date_of
from citewire.errors import CitewireError, ShapeError
from citewire.threadlog.names import LOG_PREFIX, thread_of

__all__ = ["AUDIT_LOG_NAME", "AuditFold", "date_of_ms", "known_audit_log_hashes", "name_of", "parse_time_ms"]

AUDIT_LOG_NAME = "the audit log"
# Milliseconds by which the clocks of two servers may differ.
_SKEW = 60_000
# Milliseconds that a deletion may take after it was signed.
_DELETION = 300_000


class AuditFold:
    """The state after folding the audit log. Pass the rows in order to `take`, each with its hash."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.heads: list[SignedHead] = []
        self.positions: dict[str, Position] = {}
        """The last position of each epoch."""
        self.tombstones: dict[int, Tombstone] = {}
        self.api_keys: dict[str, ApiKey] = {}
        self._channels: dict[str, str] = {}
        self._erased: dict[str, Tombstone] = {}
        self._hashes: dict[str, dict[int, str]] = {}
        self._first_floors: dict[str, ChainPoint] = {}
        self._trims: dict[str, dict[int, str]] = {}
        self._deletions: dict[str, Removal] = {}
        self.began = 1 << 62
        """The time of the first head, in milliseconds."""
        self.since = 0
        """The time of the last head, in milliseconds, with room for clocks that differ; 0 without one."""
        # The hashes of rows since the last head: the next head signs one of them.
        self._recent: dict[int, str] = {}
        # Positions since the last head with their row numbers, and how far heads cover each epoch.
        self._unsigned: list[tuple[int, Position]] = []
        self._covered: dict[str, int] = {}
        self._kept: frozenset[SignedHead] = frozenset()
        self._pinned = 0

    def pin(self, kept: Iterable[SignedHead]) -> None:
        """Accept signatures of any key in heads that were saved elsewhere, and in the rows they cover.

        The caller compares the hashes in these heads with the rows, see `known_audit_log_hashes`.
        """
        self._kept = frozenset(kept)
        self._pinned = max((head.n for head in self._kept), default=0)

    def take(self, n: int, row_hash: str, statement: Statement | None) -> None:
        """Fold a row's statement; None if it cannot be decoded here."""
        self._recent[n] = row_hash
        match statement:
            case SignedHead():
                self._on_head(n, statement)
            case Position():
                self._on_position(n, statement)
            case Removal():
                self._on_removal(n, statement)
            case KeyIntroduction():
                is_pinned = n <= self._pinned
                self._report(f"row {n}", self._findings.trust.introduce(statement, is_pinned=is_pinned))
            case Tombstone():
                self._on_tombstone(n, statement)
            case ApiKey():
                self._on_api_key(n, statement)
            case None:
                pass

    def _on_head(self, n: int, head: SignedHead) -> None:
        name = f"head {head.number}"
        is_pinned = n <= self._pinned or head in self._kept
        self._report(name, self._findings.trust.find_problem(head, is_pinned=is_pinned))
        try:
            self.began = min(self.began, parse_time_ms(head.at))
            self.since = max(self.since, parse_time_ms(head.at) - _SKEW)
        except ShapeError as exc:
            self._report(name, exc.message)
        before = self.heads[-1] if self.heads else None
        if head.number != (before.number + 1 if before else 1):
            self._report(
                name, f"it comes after head {before.number if before else 0}: one between is missing"
            )
        elif head.previous != (before.digest if before else ""):
            self._report(name, "it does not follow the head before it")
        signed = self._recent.get(head.n)
        if signed != head.hash:
            first = min(self._recent, default=n)
            self._report(
                name, f"a row from {first} to {head.n} of {AUDIT_LOG_NAME} is not the one that was signed"
            )
        self.heads.append(head)
        self._recent = {at: found for at, found in self._recent.items() if at >= n}
        for at, position in self._unsigned:
            if at <= head.n:
                epoch = position.epoch
                self._covered[epoch] = max(self._covered.get(epoch, 0), position.head.n)
        self._unsigned = [each for each in self._unsigned if each[0] > head.n]

    def _on_position(self, n: int, position: Position) -> None:
        if not self._is_same_channel(n, position):
            return
        epoch = position.epoch
        self.positions[epoch] = position
        self._first_floors.setdefault(epoch, position.floor)
        for mark in (position.floor, position.head):
            self._note_hash(n, position, mark.n, mark.hash)
        self._unsigned.append((n, position))

    def _on_removal(self, n: int, removal: Removal) -> None:
        problem = self._findings.trust.find_problem(removal, is_pinned=n <= self._pinned)
        self._report(f"row {n} of {AUDIT_LOG_NAME}", problem)
        if problem is not None or not self._is_same_channel(n, removal):
            return
        self._note_hash(n, removal, removal.n, removal.hash)
        if removal.what == "trimmed":
            self._trims.setdefault(removal.epoch, {})[removal.n] = removal.hash
        elif (noted := self._deletions.get(removal.epoch)) is None or noted.at < removal.at:
            # Of several, for example after a failed deletion, the last one took place.
            self._deletions[removal.epoch] = removal

    def _on_tombstone(self, n: int, stone: Tombstone) -> None:
        noted = self.tombstones.get(stone.no) or self._erased.get(stone.epoch)
        if noted is not None and noted != stone:
            self._contradiction(n, f"it changes what an earlier row says of how {_named(noted)} was deleted")
        elif noted is None and self._is_same_channel(n, stone):
            self.tombstones[stone.no] = self._erased[stone.epoch] = stone
            for mark in (stone.floor, stone.head):
                self._note_hash(n, stone, mark.n, mark.hash)

    def _on_api_key(self, n: int, key: ApiKey) -> None:
        noted = self.api_keys.get(key.name)
        if noted is None or noted.may_become(key):
            self.api_keys[key.name] = key
        else:
            self._contradiction(n, f"it changes the key {key.name}, which can only be revoked")

    def _is_same_channel(self, n: int, about: Position | Tombstone | Removal) -> bool:
        """Tell whether no earlier row gives this epoch to a different channel."""
        noted = self._channels.setdefault(about.epoch, about.channel)
        if noted != about.channel:
            self._contradiction(n, f"it calls {_named(about)} what an earlier row calls {name_of(noted)}")
        return noted == about.channel

    def _note_hash(self, n: int, about: Position | Tombstone | Removal, row: int, row_hash: str) -> None:
        """Record the hash of a channel's row; report a contradiction with an earlier record."""
        if self._hashes.setdefault(about.epoch, {}).setdefault(row, row_hash) != row_hash:
            self._contradiction(n, f"it has another hash of row {row} of {_named(about)} than an earlier row")

    def _contradiction(self, n: int, what: str) -> None:
        self._findings.add_break(f"row {n} of {AUDIT_LOG_NAME}", what)

    def _report(self, where: str, problem: str | None) -> None:
        if problem:
            self._findings.add_break(where, problem)

    def known_hashes(self, epoch: str) -> KnownHashes:
        """Return the known hashes of the channel with this epoch."""
        covered = self._covered.get(epoch, 0)
        return KnownHashes(self._hashes.get(epoch, {}), "a signed head", self.since, covered)

    def known_of_deleted(self, epoch: str) -> KnownHashes:
        """Return the known hashes of a deleted channel. Its rows may be older: perhaps no head covered it."""
        return self.known_hashes(epoch)._replace(since=0)

    def deletion(self, epoch: str) -> Removal | None:
        """Return the signed statement about the deletion of the channel with this epoch, if any."""
        return self._deletions.get(epoch)

    def deletion_problem(self, epoch: str, at: int) -> str | None:
        """Return what is wrong with the time of a deletion, in milliseconds, given its signed statement."""
        removal = self._deletions.get(epoch)
        if removal is None:
            return None
        try:
            signed = parse_time_ms(removal.at)
        except ShapeError as exc:
            return f"the signed statement of its deletion has no time: {exc.message}"
        if signed - _SKEW <= at <= signed + _SKEW + _DELETION:
            return None
        return f"it was deleted at {date_of_ms(at)}, and the signed statement of that is of {removal.at}"

    def needs_signed_deletion(self, stone: Tombstone) -> bool:
        """Tell whether a deletion must be signed: unless it precedes the first head and no head knows it."""
        return stone.epoch in self.positions or stone.at >= self.began

    def is_removal_signed(self, epoch: str, floor: ChainPoint) -> bool:
        """Tell whether a signed statement covers the removal of the rows up to this one.

        Removals before a channel was first recorded are unknown: the floor at that time is accepted.
        """
        return self._trims.get(epoch, {}).get(floor.n) == floor.hash or self._first_floors.get(epoch) == floor


def known_audit_log_hashes(epoch: str, kept: Iterable[SignedHead]) -> KnownHashes:
    """Return the hashes of the audit log itself according to heads that were saved elsewhere."""
    heads = [head for head in kept if head.epoch == epoch]
    said = ", ".join(f"head {head.number}" for head in heads)
    return KnownHashes({head.n: head.hash for head in heads}, f"{said}, kept elsewhere,")


def name_of(channel: str) -> str:
    """Return the name of a channel for findings."""
    return f"thread {thread_of(channel)}" if channel.startswith(LOG_PREFIX) else f"channel {channel}"


def _named(about: Position | Tombstone | Removal) -> str:
    return name_of(about.channel)


def date_of_ms(at: int) -> str:
    """Format a time in milliseconds since 1970; a tampered, invalid value is formatted as such."""
    try:
        return date_of(at * 1000)
    except CitewireError:
        return f"{at} ms, which is no time,"


def parse_time_ms(text: str) -> int:
    """Parse the time of a statement into milliseconds since 1970. Raises `ShapeError`."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ShapeError("not a time") from None
