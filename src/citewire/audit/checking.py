"""Whether an export is what was exported: its digest, its chains, and whether it says what its rows say.

Whoever changes an export can also make its hashes anew. That cannot be told from the file alone, only by
comparing where its chains end with the store.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import NamedTuple

import msgspec

from citewire.audit.catalog import SourcesFold
from citewire.audit.chain import FORMAT, ChainLine, Digest, ExportLine, RowLine, said
from citewire.audit.record import chain_of, erased, threads
from citewire.audit.thread import PREFIX, ThreadFold, date_of, thread_of
from citewire.audit.which import Which
from citewire.channels.store import Cursor, Link, Log, Row, first_hash
from citewire.errors import CitewireError, InputError

__all__ = ["Break", "Report", "check", "compare"]

_Line = ChainLine | RowLine
_line: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)
_first = msgspec.json.Decoder(ExportLine)
_SAID = (b'{"type":"citation"', b'{"type":"run"', b'{"type":"sources"')
_NOT_OURS = "no export of `citewire audit export --format jsonl`: other formats have no chain to check"


class _Numbered(msgspec.Struct):
    n: int


class Break(NamedTuple):
    """Where something is wrong, and what."""

    where: str
    what: str


class Report:
    """What came of a check."""

    def __init__(self, first: ExportLine) -> None:
        self.first = first
        self.chains: dict[str, ChainLine] = {}
        self.rows = self.citations = 0
        self.breaks: list[Break] = []

    def broken(self, where: str, what: str) -> None:
        """Something is wrong."""
        self.breaks.append(Break(where, what))


class _ChainCheck:
    """The rows of one chain as they come, up to the first that does not fit."""

    def __init__(self, line: ChainLine, report: Report) -> None:
        self.line, self._report = line, report
        self.name = _name(line)
        self._n, self._hash = line.floor.n, line.floor.hash
        self._awaited: int | None = None
        self.is_whole = True
        if line.epoch in report.chains:
            self._stop("it is there twice")
        if line.thread != (thread_of(line.channel) if line.channel.startswith(PREFIX) else None):
            self._stop("the thread is not that of the channel")
        if line.floor.n == 0 and line.floor.hash != first_hash(line.channel, line.epoch).hex():
            self._stop("the chain does not begin as that of this channel does")

    def _stop(self, what: str) -> None:
        self.is_whole = False
        self._report.broken(self.name, what)

    def take(self, line: RowLine) -> Row | None:
        """The row in a line, if it has its content and all up to it is well."""
        row, link = _row(self.line.epoch, line)
        if not self.is_whole:
            self._look_back(line.n)
            return None
        if line.n <= self._n:
            self._stop(f"row {line.n} is there twice or was inserted, after row {self._n}")
        elif line.n > self._n + 1:
            self._awaited = self._n + 1
            self._stop(f"{_rows(self._n + 1, line.n - 1)} missing before row {line.n}")
        elif line.before != self._hash:
            is_first = self._n == self.line.floor.n
            self._stop(f"row {line.n} is not the first" if is_first else _changed(self._n))
        elif row is None and self._has_content(line.kind):
            self._stop(f"row {line.n} is without its content, which was not deleted")
        self._n, self._hash = line.n, link.hash.hex()
        return row if self.is_whole else None

    def _has_content(self, kind: str) -> bool:
        return SourcesFold.tells(kind) if self.line.thread is None else self.line.deleted is None

    def _look_back(self, n: int) -> None:
        """What is missing where it belongs may come later."""
        if n == self._awaited:
            self._awaited = None
            self._report.breaks[-1] = Break(self.name, f"row {n} is out of order")

    def end(self) -> None:
        """All rows were there."""
        head = self.line.head
        if not self.is_whole:
            return
        if self._n != head.n:
            self._stop(f"it ends with row {self._n}, not with row {head.n}")
        elif self._hash != head.hash:
            self._stop(_changed(self._n))


def _name(chain: ChainLine) -> str:
    return chain.channel if chain.thread is None else f"thread {chain.thread}"


def _rows(first: int, last: int) -> str:
    return f"row {first} is" if first == last else f"rows {first} to {last} are"


def _changed(n: int) -> str:
    return f"row {n} was changed: it has not the hash that was recorded"


def _row(epoch: str, line: RowLine) -> tuple[Row | None, Link]:
    try:
        before = bytes.fromhex(line.before)
        if line.content is not None:
            return None, Link(line.n, line.tick, line.kind, bytes.fromhex(line.content), before)
        if line.id is None or (line.data is None) == (line.base64 is None):
            raise InputError("a row without its content, and without the hash of it")
        data = line.data.encode() if line.data is not None else b64decode(line.base64 or "", validate=True)
    except (ValueError, Error) as exc:
        raise InputError("a row whose content cannot be read") from exc
    row = Row(epoch, line.n, line.tick, line.id, line.kind, data, before)
    return row, row.link


class _Check:
    """The lines of an export as they come."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._sources, self._shown = SourcesFold(), set[int]()
        self._chain: _ChainCheck | None = None
        self._fold: ThreadFold | SourcesFold | None = None
        self._expected: Iterator[bytes] | None = None

    def take(self, number: int, line: bytes) -> None:
        """Take in a line between the first and the last."""
        try:
            if line.startswith(_SAID):
                self._on_said(number, line)
                return
            found = _line.decode(line)
            if isinstance(found, ChainLine):
                self._begin(found)
            else:
                self._on_row(found)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, CitewireError) as exc:
            self._report.broken(f"line {number}", f"it cannot be read: {exc}")

    def _begin(self, line: ChainLine) -> None:
        self.end()
        self._chain, self._expected = _ChainCheck(line, self._report), None
        self._report.chains[line.epoch] = line
        self._fold = self._sources if line.thread is None else ThreadFold(line.thread)

    def _on_row(self, line: RowLine) -> None:
        if self._chain is None or self._fold is None or self._expected is not None:
            raise InputError("a row that is in no chain")
        row = self._chain.take(line)
        self._report.rows += 1
        if row:
            self._fold.take(row)

    def _on_said(self, number: int, line: bytes) -> None:
        self._report.citations += line.startswith(b'{"type":"citation"')
        if self._chain is None:
            raise InputError("it is said of no thread")
        if self._expected is None:
            self._chain.end()
            self._expected = self._lines()
        if not self._chain.is_whole:
            if line.startswith(b'{"type":"sources"'):
                self._shown.add(msgspec.json.decode(line, type=_Numbered).n)
        elif next(self._expected, None) != line:
            self._chain.is_whole = False
            self._report.broken(f"line {number}, of {self._chain.name}", "it says what the rows do not say")

    def _lines(self) -> Iterator[bytes]:
        """What the rows of the chain say."""
        if not isinstance(self._fold, ThreadFold):
            return iter(())
        wanted = [each for each in self._fold.citations() if self._report.first.which.wants(each)]
        return said(self._fold, wanted, self._sources, self._shown)

    def end(self) -> None:
        """The chain is over."""
        if self._chain is None:
            return
        if self._expected is None:
            self._chain.end()
            self._expected = self._lines()
        if self._chain.is_whole and next(self._expected, None) is not None:
            self._report.broken(self._chain.name, "a line is missing that tells what its rows say")


def check(lines: Iterable[bytes]) -> Report:
    """What is wrong with an export, whose lines these are. An `InputError` where it is none at all."""
    rest, digest = iter(lines), Digest()
    report = Report(_read_first(digest.take(next(rest, b""))))
    checked, is_over = _Check(report), False
    for line in rest:
        if is_over:
            report.broken(f"line {digest.lines + 2}", "something comes after the end")
            break
        if line.startswith(b'{"type":"end"'):
            is_over = True
            if line != digest.end:
                report.broken("digest", "it is another one: something was changed, added or left out")
        else:
            digest.take(line)
            checked.take(digest.lines, line)
    checked.end()
    if not is_over:
        report.broken("end", "the last line is missing: the file was cut off")
    return report


def _read_first(line: bytes) -> ExportLine:
    try:
        first = _first.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InputError(_NOT_OURS) from exc
    if first.format != FORMAT:
        raise InputError(f"an export in format {first.format}; this citewire reads format {FORMAT}")
    return first


async def compare(report: Report, log: Log) -> None:
    """Compare where the chains of an export end with a store. Adds to its breaks."""
    for chain in report.chains.values():
        if wrong := await _compared(chain, log):
            report.broken(_name(chain), wrong)
    if report.first.which == Which():
        async for thread in _left_out(report, log):
            report.broken(f"thread {thread}", "the store has it, the export has not")


async def _compared(chain: ChainLine, log: Log) -> str | None:
    """What is wrong with the end of a chain."""
    end = chain.head
    now = await chain_of(log, chain.channel)
    if now and now.head.epoch == chain.epoch:
        if chain.deleted is not None:
            return "it was not deleted"
        if end.n < now.floor.n:
            return None  # the store has forgotten what came then
        if end.n > now.head.n:
            return f"the store has only {now.head.n} rows of it, not {end.n}"
        known = now.floor.hash
        if end.n > now.floor.n:
            [row] = await log.read(chain.channel, Cursor(chain.epoch, end.n - 1), 1)
            known = row.hash
    else:
        links = await log.links(chain.epoch, end.n - 1, 1)
        if not links:
            return "the store does not know it"
        known = links[0].hash
    return None if known.hex() == end.hash else f"row {end.n} is another one in the store"


async def _left_out(report: Report, log: Log) -> AsyncIterator[str]:
    """The threads that were there when everything was exported, and are not in the export."""
    known, made = report.chains, report.first.made
    async for chain in threads(log, Which()):
        rows = () if chain.head.epoch in known else await log.read(chain.head.channel, limit=1)
        if rows and date_of(rows[0].tick) < made:
            yield thread_of(chain.head.channel)
    async for each in erased(log, Which()):
        links = () if each.head.epoch in known else await log.links(each.head.epoch, limit=1)
        if links and date_of(links[0].tick) < made:
            yield thread_of(each.head.channel)
