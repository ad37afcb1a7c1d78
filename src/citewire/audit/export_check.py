"""Verify an export: its signature, digest and hash chains, and the lines derived from its rows.

Anyone who changes an export can also recompute its hashes, but cannot sign it. Signatures are checked against
the public keys that the verifier trusts, and against heads that were saved elsewhere.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import msgspec

from citewire.audit import statements as audit_log
from citewire.audit.audit_filter import AuditFilter
from citewire.audit.audit_fold import (
    AUDIT_LOG_NAME,
    AuditFold,
    date_of_ms,
    known_audit_log_hashes,
    name_of,
    parse_time_ms,
)
from citewire.audit.chain_check import ChainCheck
from citewire.audit.findings import Findings
from citewire.audit.jsonl_export import (
    ALWAYS_SHOWN,
    EXPORT_FORMAT,
    ChainLine,
    Digest,
    EndLine,
    ExportLine,
    RowLine,
    derive_lines,
)
from citewire.audit.record import find_erased_threads, find_thread_chains, read_chain
from citewire.audit.signing import TrustedKeys
from citewire.audit.sources_fold import SourcesFold
from citewire.audit.statements import SignedHead
from citewire.audit.thread_fold import ThreadFold, date_of
from citewire.channels.store import ChainLink, Cursor, Log, Row
from citewire.errors import CitewireError, InputError
from citewire.threadlog.names import LOG_PREFIX, thread_of

__all__ = ["ExportReport", "check_export", "compare_with_store"]

_Line = ChainLine | RowLine
_line: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)
_first, _end = msgspec.json.Decoder(ExportLine), msgspec.json.Decoder(EndLine)
_SAID = (b'{"type":"citation"', b'{"type":"run"', b'{"type":"sources"')
_NOT_OURS = "no export of `citewire audit export --format jsonl`: other formats have no chain to check"


class _RowNumber(msgspec.Struct):
    n: int


class ExportReport(Findings):
    """The result of a check."""

    def __init__(self, first: ExportLine, trust: TrustedKeys | None = None) -> None:
        super().__init__(trust)
        self.first = first
        self.chains: dict[str, ChainLine] = {}
        self.citations = 0
        self.is_signed = False
        self.audit = AuditFold(self)
        """What the audit log in the export says."""


def _name(chain: ChainLine) -> str:
    if chain.channel == audit_log.AUDIT_CHANNEL:
        return AUDIT_LOG_NAME
    return chain.channel if chain.thread is None else f"thread {chain.thread}"


def _row(epoch: str, line: RowLine) -> tuple[Row | None, ChainLink]:
    try:
        before = bytes.fromhex(line.before)
        if line.content is not None:
            return None, ChainLink(line.n, line.tick, line.kind, bytes.fromhex(line.content), before)
        if line.id is None or (line.data is None) == (line.base64 is None):
            raise InputError("a row without its content, and without the hash of it")
        data = line.data.encode() if line.data is not None else b64decode(line.base64 or "", validate=True)
    except (ValueError, Error) as exc:
        raise InputError("a row whose content cannot be read") from exc
    row = Row(epoch, line.n, line.tick, line.id, line.kind, data, before)
    return row, row.link


class _ExportCheck:
    """Checks the lines of an export in order."""

    def __init__(self, report: ExportReport, kept: Sequence[SignedHead]) -> None:
        self._report, self._kept = report, kept
        self._sources, self._shown = SourcesFold(), set[int]()
        self._line: ChainLine | None = None
        self._chain: ChainCheck | None = None
        self._fold: ThreadFold | None = None
        self._expected: Iterator[bytes] | None = None

    def take(self, number: int, line: bytes) -> None:
        """Check a line between the first and the last."""
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
            self._report.add_break(f"line {number}", f"it cannot be read: {exc}")

    def _begin(self, line: ChainLine) -> None:
        self.end()
        report, is_audit = self._report, line.channel == audit_log.AUDIT_CHANNEL
        if is_audit:
            kept = [head for head in self._kept if head.n <= line.head.n and head.epoch == line.epoch]
            report.audit.pin(kept)
            known = known_audit_log_hashes(line.epoch, kept)
        elif line.deleted is None:
            known = report.audit.known_hashes(line.epoch)
        else:
            known = report.audit.known_of_deleted(line.epoch)
        chain = ChainCheck(_name(line), line.channel, line.epoch, (line.floor, line.head), report, known)
        if line.epoch in report.chains:
            chain.fail("it is there twice")
        if line.thread != (thread_of(line.channel) if line.channel.startswith(LOG_PREFIX) else None):
            chain.fail("the thread is not that of the channel")
        if line.floor.n and not report.audit.is_removal_signed(line.epoch, line.floor):
            chain.fail("its first rows were cut off, and no signed statement says so")
        self._line, self._chain, self._expected = line, chain, None
        report.chains[line.epoch] = line
        self._fold = None if line.thread is None else ThreadFold(line.thread)

    def _on_row(self, line: RowLine) -> None:
        if self._chain is None or self._line is None or self._expected is not None:
            raise InputError("a row that is in no chain")
        self._report.rows += 1
        row, link = _row(self._line.epoch, line)
        is_whole = self._chain.take(link)
        if is_whole and row is None and self._has_content(line.kind):
            self._chain.fail(f"row {line.n} is without its content, which was not deleted")
        elif self._line.channel == audit_log.AUDIT_CHANNEL:
            self._report.audit.take(line.n, link.hash.hex(), audit_log.read_statement(row) if row else None)
        elif is_whole and row:
            (self._fold or self._sources).take(row)

    def _has_content(self, kind: str) -> bool:
        if self._line and self._line.channel == audit_log.AUDIT_CHANNEL:
            return kind in ALWAYS_SHOWN or self._report.first.which == AuditFilter()
        is_thread = self._line and self._line.thread is not None
        return self._line is not None and (
            self._line.deleted is None if is_thread else SourcesFold.is_source_kind(kind)
        )

    def _on_said(self, number: int, line: bytes) -> None:
        self._report.citations += line.startswith(b'{"type":"citation"')
        if self._chain is None:
            raise InputError("it is said of no thread")
        if self._expected is None:
            self._chain.end()
            self._expected = self._lines()
        if not self._chain.is_whole:
            if line.startswith(b'{"type":"sources"'):
                self._shown.add(msgspec.json.decode(line, type=_RowNumber).n)
        elif next(self._expected, None) != line:
            self._chain.is_whole = False
            self._report.add_break(
                f"line {number}, of {self._chain.name}", "it says what the rows do not say"
            )

    def _lines(self) -> Iterator[bytes]:
        """Derive the expected lines from the rows of the chain."""
        if self._fold is None:
            return iter(())
        wanted = [each for each in self._fold.citations() if self._report.first.which.matches(each)]
        return derive_lines(self._fold, wanted, self._sources, self._shown)

    def end(self) -> None:
        """Finish the check of the current chain."""
        if self._chain is None:
            return
        if self._expected is None:
            self._chain.end()
            self._expected = self._lines()
        if self._chain.is_whole and next(self._expected, None) is not None:
            self._report.add_break(self._chain.name, "a line is missing that tells what its rows say")


def check_export(
    lines: Iterable[bytes], trust: TrustedKeys | None = None, kept: Sequence[SignedHead] = ()
) -> ExportReport:
    """Check the lines of an export and report the problems. Raises `InputError` if it is not an export.

    `kept` are heads that were saved elsewhere.
    """
    rest, digest = iter(lines), Digest()
    report = ExportReport(_read_first(digest.take(next(rest, b""))), trust)
    checked, is_over = _ExportCheck(report, kept), False
    for line in rest:
        if is_over:
            report.add_break(f"line {digest.lines + 2}", "something comes after the end")
            break
        if line.startswith(b'{"type":"end"'):
            is_over = True
            _check_end(report, line, digest)
        else:
            digest.take(line)
            checked.take(digest.lines, line)
    checked.end()
    if not is_over:
        report.add_break("end", "the last line is missing: the file was cut off")
    _check_covered(report)
    _check_kept(report, kept)
    return report


def _check_end(report: ExportReport, line: bytes, digest: Digest) -> None:
    """Check the digest and its signature."""
    try:
        end = _end.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        report.add_break("digest", "the last line cannot be read")
        return
    if (end.lines, end.sha256) != (digest.end.lines, digest.end.sha256):
        report.add_break("digest", "it is another one: something was changed, added or left out")
    if end.key or end.signature:
        if problem := report.trust.find_problem(end):
            report.add_break("signature", problem)
        report.is_signed = True
    elif not report.trust.is_empty:
        report.add_break("signature", "the export is not signed")


def _check_covered(report: ExportReport) -> None:
    """Check that a full export has every signed thread, and that every deletion is signed."""
    audit, chains, which = report.audit, report.chains, report.first.which
    missing = set[str]() if which.filters_citations else audit.positions.keys() - chains.keys()
    for channel in sorted(audit.positions[epoch].channel for epoch in missing):
        if channel.startswith(LOG_PREFIX) and which.thread in (None, thread_of(channel)):
            report.add_break(f"thread {thread_of(channel)}", "a signed head has it, the export has not")
    dates = {stone.epoch: date_of_ms(stone.at) for stone in audit.tombstones.values()}
    for epoch, chain in chains.items():
        noted = audit.positions.get(epoch)
        if noted and noted.channel != chain.channel:
            report.add_break(_name(chain), f"a signed head has it as {name_of(noted.channel)}")
        if chain.deleted != dates.get(epoch, chain.deleted):
            said_at = chain.deleted or "no time"
            report.add_break(_name(chain), f"it was deleted at {dates[epoch]}, not at {said_at}")
        elif chain.deleted and audit.heads:
            _check_deletion(report, chain, chain.deleted, is_noted=epoch in dates)


def _check_deletion(report: ExportReport, chain: ChainLine, deleted: str, *, is_noted: bool) -> None:
    """Check that a deletion is signed, at about its time, unless it is older than the audit log."""
    audit = report.audit
    try:
        at = parse_time_ms(deleted)
    except CitewireError:
        report.add_break(_name(chain), "the time of its deletion is none")
        return
    is_old = chain.epoch not in audit.positions and at < audit.began
    if not is_noted and at < audit.since:
        report.add_break(
            _name(chain), "its deletion is dated before the last head, which does not know of it"
        )
    elif audit.deletion(chain.epoch) is None and not is_old:
        report.add_break(_name(chain), "it was deleted, and no signed statement says by whom")
    elif problem := audit.deletion_problem(chain.epoch, at):
        report.add_break(_name(chain), problem)


def _check_kept(report: ExportReport, kept: Sequence[SignedHead]) -> None:
    """Check that heads saved elsewhere are signed, and that those of this audit log are in it."""
    chains = {each.epoch: each for each in report.chains.values() if each.channel == audit_log.AUDIT_CHANNEL}
    is_sound = report.is_signed and not report.trust.is_empty and not report.breaks
    for head in kept:
        if problem := report.trust.find_problem(head, is_pinned=True):
            report.add_break(f"head {head.number}, kept elsewhere", problem)
        chain = chains.get(head.epoch)
        if chain is None:
            report.add_break(AUDIT_LOG_NAME, f"it is not the one that head {head.number} is of")
        elif head.n > chain.head.n and is_sound:
            report.add_note(f"the export is older than head {head.number}, which says nothing of it")
        elif head.n > chain.head.n:
            report.add_break(
                AUDIT_LOG_NAME, f"it ends with row {chain.head.n}, before head {head.number}, kept elsewhere"
            )


def _read_first(line: bytes) -> ExportLine:
    try:
        first = _first.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InputError(_NOT_OURS) from exc
    if first.format != EXPORT_FORMAT:
        raise InputError(f"an export in format {first.format}; this citewire reads format {EXPORT_FORMAT}")
    return first


async def compare_with_store(report: ExportReport, log: Log) -> None:
    """Compare the ends of an export's chains with a store. Adds to the report's breaks."""
    for chain in report.chains.values():
        if wrong := await _compare_chain(chain, log):
            report.add_break(_name(chain), wrong)
    if report.first.which == AuditFilter():
        async for thread in _find_missing_threads(report, log):
            report.add_break(f"thread {thread}", "the store has it, the export has not")


async def _compare_chain(chain: ChainLine, log: Log) -> str | None:
    """Return what is wrong with the end of a chain, or None."""
    end = chain.head
    now = await read_chain(log, chain.channel)
    if now and now.head.epoch == chain.epoch:
        if chain.deleted is not None:
            return "it was not deleted"
        if end.n < now.floor.n:
            return None  # the store has trimmed these rows
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


async def _find_missing_threads(report: ExportReport, log: Log) -> AsyncIterator[str]:
    """Yield threads that existed at the time of a full export but are not in it."""
    known, made = report.chains, report.first.made
    async for chain in find_thread_chains(log, AuditFilter()):
        rows = () if chain.head.epoch in known else await log.read(chain.head.channel, limit=1)
        if rows and date_of(rows[0].tick) < made:
            yield thread_of(chain.head.channel)
    async for each in find_erased_threads(log, AuditFilter()):
        links = () if each.head.epoch in known else await log.links(each.head.epoch, limit=1)
        if links and date_of(links[0].tick) < made:
            yield thread_of(each.head.channel)
