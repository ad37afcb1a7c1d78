"""Check the rows of one channel: their hashes, their order, and their agreement with signed heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from citewire.audit.findings import Break, Findings
from citewire.audit.statements import ChainPoint
from citewire.channels.store import ChainLink, first_hash

__all__ = ["ChainCheck", "KnownHashes"]


class KnownHashes(NamedTuple):
    """Hashes of some rows of a channel from another source, and the name of that source.

    Rows after number `covered` were written after `since`, in milliseconds; 0 if that is unknown.
    """

    hashes: Mapping[int, str] = {}
    says: str = "a signed head"
    since: int = 0
    covered: int = 0

    @property
    def last(self) -> int:
        """The number of the last row whose hash is known."""
        return max(self.hashes, default=0)


class ChainCheck:
    """Checks the rows of one chain in order, up to the first mismatch."""

    def __init__(
        self,
        name: str,
        channel: str,
        epoch: str,
        ends: tuple[ChainPoint, ChainPoint],
        findings: Findings,
        known: KnownHashes,
    ) -> None:
        self.name, self._findings, self._known = name, findings, known
        self.floor, self.head = ends
        self.n, self.hash, self._tick = self.floor.n, self.floor.hash, self.floor.tick
        self._sure, self._last_known, self._awaited = self.floor.n, known.last, 0
        self.is_whole = True
        if self.floor.n == 0 and self.floor.hash != first_hash(channel, epoch).hex():
            self.fail("the chain does not begin as that of this channel does")
        self._compare()

    def fail(self, what: str) -> None:
        """Report a problem; later rows cannot be checked."""
        self.is_whole = False
        self._findings.add_break(self.name, what)

    def take(self, link: ChainLink) -> bool:
        """Check the next row and return whether the chain is valid up to and including it."""
        if not self.is_whole:
            self._check_out_of_order(link.n)
            return False
        if link.n <= self.n:
            self.fail(f"row {link.n} is there twice or was inserted, after row {self.n}")
        elif link.n > self.n + 1:
            self._awaited = self.n + 1
            self.fail(f"{_rows(self.n + 1, link.n - 1)} missing before row {link.n}")
        elif link.before.hex() != self.hash:
            is_first = self.n == self.floor.n
            self.fail(f"row {link.n} is not the first" if is_first else _changed(self.n))
        self._check_time(link)
        self.n, self.hash, self._tick = link.n, link.hash.hex(), link.tick
        self._compare()
        return self.is_whole

    def _check_time(self, link: ChainLink) -> None:
        if not self.is_whole:
            return
        if link.tick <= self._tick:
            self.fail(f"row {link.n} is dated before row {self.n}")
        elif link.n > self._known.covered and link.tick < self._known.since * 1000:
            self.fail(f"row {link.n} is dated before the last head, after which it was written")

    def _compare(self) -> None:
        """Compare the current row with its known hash, if any."""
        expected = self._known.hashes.get(self.n)
        if expected is None or not self.is_whole:
            return
        if expected != self.hash:
            first = self._sure + 1
            what = f"row {self.n}" if first >= self.n else f"a row from {first} to {self.n}"
            self.fail(f"{what} was changed: {self._known.says} has another hash of row {self.n}")
        self._sure = self.n

    def _check_out_of_order(self, n: int) -> None:
        """Report a missing row that appears later as out of order."""
        if n == self._awaited:
            self._awaited = 0
            self._findings.breaks[-1] = Break(self.name, f"row {n} is out of order")

    def end(self) -> None:
        """Check the end of the chain after the last row."""
        if not self.is_whole:
            return
        if self.n != self.head.n:
            self.fail(f"it ends with row {self.n}, not with row {self.head.n}")
        elif self.hash != self.head.hash:
            self.fail(_changed(self.n))
        elif self._last_known > self.n:
            self.fail(
                f"{_rows(self.n + 1, self._last_known)} missing at its end: {self._known.says} has them"
            )


def _rows(first: int, last: int) -> str:
    return f"row {first} is" if first == last else f"rows {first} to {last} are"


def _changed(n: int) -> str:
    return f"row {n} was changed: it has not the hash that was recorded"
