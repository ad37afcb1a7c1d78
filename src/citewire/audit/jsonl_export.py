"""Export as JSON Lines that reveals tampering: every row, the lines derived from the rows, and a digest.

The audit log with its signed heads comes first. The rows of a thread come with the hashes that chain them,
without their content if that was erased. The runs and citations derived from them follow; the last line is a
digest of all lines before it, signed with the audit key.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Iterator
from hashlib import sha256
from tempfile import SpooledTemporaryFile

from msgspec import Struct

from citewire.agui.events import write_json
from citewire.audit import record
from citewire.audit import statements as audit_log
from citewire.audit.audit_filter import AuditFilter
from citewire.audit.record_types import RecordedCitation
from citewire.audit.signing import AuditKey, SignedStatement
from citewire.audit.sources_fold import SOURCES_CHANNEL, SourcesFold
from citewire.audit.statements import ChainPoint, chain_point_of
from citewire.audit.thread_fold import ThreadFold, date_of
from citewire.channels.store import Chain, ChainLink, Log, Row
from citewire.errors import ShapeError
from citewire.threadlog.names import LOG_PREFIX, run_channel, thread_of

__all__ = [
    "ALWAYS_SHOWN", "ChainLine", "Digest", "EXPORT_FORMAT", "EndLine", "ExportLine", "RowLine",
    "derive_lines", "export_jsonl",
]  # fmt: skip

EXPORT_FORMAT = 2
ALWAYS_SHOWN = frozenset({"begin", "head", "key"})
"""The kinds of rows of the audit log whose content is in every export."""
_ABOUT_CHANNELS = audit_log.Position | audit_log.Tombstone | audit_log.Removal
# Bytes of a thread held in memory before it is known whether the thread matches.
_HELD = 8 << 20


class ExportLine(Struct, frozen=True, tag="export"):
    """The first line: when the export was started, by which program, and with which filter."""

    format: int
    made: str
    by: str
    which: AuditFilter


class ChainLine(Struct, frozen=True, omit_defaults=True, tag="chain"):
    """A channel whose rows follow: those after the floor, up to the head."""

    channel: str
    epoch: str
    floor: ChainPoint
    head: ChainPoint
    thread: str | None = None
    deleted: str | None = None


class RowLine(Struct, frozen=True, omit_defaults=True, tag="row"):
    """A row with its id and its data, as text or else in base64; or with the hash of both instead."""

    n: int
    tick: int
    kind: str
    before: str
    id: str | None = None
    data: str | None = None
    base64: str | None = None
    content: str | None = None


class EndLine(SignedStatement, frozen=True, tag="end"):
    """The last line: the number of lines before it, and the SHA-256 of their bytes, signed.

    Without a key there is no signature, and anybody could have written it.
    """

    lines: int
    sha256: str


class Digest:
    """Counts and hashes the bytes of an export."""

    def __init__(self) -> None:
        self._hash, self.lines = sha256(), 0

    def take(self, line: bytes) -> bytes:
        """Add a line, including its line end, and return it."""
        self._hash.update(line)
        self.lines += 1
        return line

    @property
    def end(self) -> EndLine:
        """The last line, before it is signed."""
        return EndLine(lines=self.lines, sha256=self._hash.hexdigest())


async def export_jsonl(
    log: Log, which: AuditFilter, made: str, by: str, key: AuditKey | None = None
) -> AsyncIterator[bytes]:
    """Yield the lines of an export of a snapshot, each with its line end, signed if there is a key.

    Only one thread is in memory at a time.
    """
    digest = Digest()
    async for line in _lines(log, ExportLine(EXPORT_FORMAT, made, by, which)):
        yield digest.take(line)
    yield _line(key.sign(digest.end) if key else digest.end)


async def _lines(log: Log, first: ExportLine) -> AsyncIterator[bytes]:
    yield _line(first)
    async for line in _audit_lines(log, first.which):
        yield line
    sources, shown = SourcesFold(), set[int]()
    if chain := await record.read_chain(log, SOURCES_CHANNEL):
        yield _chain_line(chain)
        async for row in record.read_rows(log, chain):
            sources.take(row)
            # References to a source appear with each thread, and not for threads outside the filter.
            yield _row_line(row) if sources.is_source_kind(row.kind) else _link_line(row.link)
    with SpooledTemporaryFile(_HELD) as rows:

        def begin() -> record.RowSink:
            rows.seek(0)
            rows.truncate()
            return lambda row: rows.write(_row_line(row))

        async for thread in record.read_threads(log, first.which, begin):
            yield _chain_line(thread.chain)
            rows.seek(0)
            for line in rows:
                yield line
            for line in derive_lines(thread.fold, thread.citations, sources, shown):
                yield line
    async for erased in record.find_erased_threads(log, first.which):
        yield _chain_line(Chain(erased.floor, erased.head), date_of(erased.at * 1000))
        after = erased.floor.n
        while links := await log.links(erased.head.epoch, after):
            for link in links:
                yield _link_line(link)
            after = links[-1].n


async def _audit_lines(log: Log, which: AuditFilter) -> AsyncIterator[bytes]:
    """Yield the audit log; for threads outside the filter, only the hashes."""
    chain = await record.read_chain(log, audit_log.AUDIT_CHANNEL)
    if chain is None:
        return
    wanted = await _wanted(log, which)
    yield _chain_line(chain)
    async for row in record.read_rows(log, chain):
        yield _row_line(row) if wanted is None or _is_shown(row, wanted) else _link_line(row.link)


async def _wanted(log: Log, which: AuditFilter) -> set[str] | None:
    """Return the names and epochs of the channels in the export; None for all.

    Rows about an epoch are included whatever channel name they give, so that a renamed thread is found.
    """
    if which == AuditFilter():
        return None
    wanted = {SOURCES_CHANNEL}
    if which.thread is not None:
        wanted.add(run_channel(which.thread))
        if chain := await record.read_chain(log, run_channel(which.thread)):
            wanted.add(chain.head.epoch)
    else:
        async for thread in record.read_threads(log, which):
            wanted |= {thread.chain.head.channel, thread.chain.head.epoch}
    async for erased in record.find_erased_threads(log, which):
        wanted.add(erased.head.epoch)
    return wanted


def _is_shown(row: Row, wanted: set[str]) -> bool:
    if row.kind in ALWAYS_SHOWN:
        return True
    try:
        about = audit_log.read_statement(row)
    except ShapeError:
        return True  # the verifier should see it
    return isinstance(about, _ABOUT_CHANNELS) and not wanted.isdisjoint((about.channel, about.epoch))


def derive_lines(
    fold: ThreadFold, citations: Iterable[RecordedCitation], sources: SourcesFold, shown: set[int]
) -> Iterator[bytes]:
    """Yield the lines derived from a thread's rows. Each set of sources comes once, before its first run."""
    for run in fold.runs(sources.row_at):
        if run.sources and run.sources not in shown:
            shown.add(run.sources)
            yield _line(sources.sources_after(run.sources))
        yield _line(run)
    for citation in citations:
        yield _line(citation)


def _line(value: Struct) -> bytes:
    return write_json(value) + b"\n"


def _chain_line(chain: Chain, deleted: str | None = None) -> bytes:
    head = chain.head
    thread = thread_of(head.channel) if head.channel.startswith(LOG_PREFIX) else None
    return _line(
        ChainLine(
            head.channel, head.epoch, chain_point_of(chain.floor), chain_point_of(head), thread, deleted
        )
    )


def _row_line(row: Row) -> bytes:
    try:
        text, coded = row.data.decode(), None
    except UnicodeDecodeError:
        text, coded = None, b64encode(row.data).decode()
    return _line(RowLine(row.n, row.tick, row.kind, row.before.hex(), row.id, text, coded))


def _link_line(link: ChainLink) -> bytes:
    return _line(RowLine(link.n, link.tick, link.kind, link.before.hex(), content=link.content.hex()))
