"""`citewire audit`: the record of a server, which may be running."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from citewire import __version__
from citewire.cli.audit_keys import KeyFileOption, find_key, find_key_or_fail, keys_app
from citewire.cli.output import fail, say, write_bytes, write_out
from citewire.cli.serve import load_settings
from citewire.errors import CitewireError
from citewire.text import one_line

if TYPE_CHECKING:
    from citewire.audit.audit_filter import AuditFilter
    from citewire.audit.export_check import ExportReport
    from citewire.audit.findings import Findings
    from citewire.audit.record_types import RecordedCitation
    from citewire.audit.signing import AuditKey, TrustedKeys
    from citewire.audit.statements import SignedHead
    from citewire.channels.store import Log
    from citewire.server.ops.settings import Settings

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="markdown")
_audit = typer.Typer(help="Who cited what, from which source, with which verdict, and who looked at it.")
app.add_typer(_audit, name="audit")
_audit.add_typer(keys_app, name="key")

# Bytes of the longest line of an export: the largest row that a store accepts, fully escaped.
_LONGEST = 128 << 20
_MARKS = {"verified": "✓", "partial": "~", "altered": "≠", "missed": "✗", "pending": "…", "skipped": "-"}


class _ListFormat(StrEnum):
    text = "text"
    json = "json"


class _Format(StrEnum):
    jsonl = "jsonl"
    csv = "csv"
    html = "html"


_Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="The data folder; else the one that `citewire serve` takes."),
]
_Store = Annotated[
    str | None, typer.Option("--store", metavar="DSN", help="Where the log is, when not in the data folder.")
]
_Thread = Annotated[str | None, typer.Option("--thread", metavar="ID", help="Only this thread.")]
_Source = Annotated[
    str | None,
    typer.Option("--source", metavar="NAME", help="Only of this source: its name, address, id or sha256."),
]
_Status = Annotated[
    str | None, typer.Option("--status", metavar="STATUS", help="Only with this verdict, as `altered`.")
]
_Client = Annotated[
    str | None,
    typer.Option("--client", metavar="ID", help="Only what this client cited, asked or saw."),
]
_Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only from then on (UTC).")]
_Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only from before then (UTC).")]


@_audit.command(
    "list",
    epilog="""**Examples**

`citewire audit list --status altered --since 2026-11-01`

`citewire audit list --source report.pdf --format json`""",
)
def list_record(
    thread: _Thread = None,
    source: _Source = None,
    status: _Status = None,
    client: _Client = None,
    since: _Since = None,
    until: _Until = None,
    form: Annotated[_ListFormat, typer.Option("--format", help="How to show them.")] = _ListFormat.text,
    data: _Data = None,
    store: _Store = None,
) -> None:
    """List the citations, thread by thread, and the threads that were deleted."""
    which = _parse_filter(
        thread=thread, source=source, status=status, client=client, since=since, until=until
    )
    show = _text if form is _ListFormat.text else _json
    _print(data, store, lambda log: show(log, which))


@_audit.command(
    epilog="""**Examples**

`citewire audit export -o record.jsonl`

`citewire audit export --format html --thread t1 -o t1.html`"""
)
def export(
    thread: _Thread = None,
    source: _Source = None,
    status: _Status = None,
    client: _Client = None,
    since: _Since = None,
    until: _Until = None,
    form: Annotated[_Format, typer.Option("--format", help="jsonl can be checked later.")] = _Format.jsonl,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.")] = "-",
    data: _Data = None,
    store: _Store = None,
    key_file: KeyFileOption = None,
    heads: Annotated[
        str | None,
        typer.Option("--audit-heads", metavar="FILE", help="A file to which the signed head is appended."),
    ] = None,
) -> None:
    """Write the record down: as JSON Lines with its chain of hashes, as CSV, or as a page to print.

    A thread of which anything fits is in the JSON Lines with all its rows, so that its chain can be checked.
    A signed head is written into the store first, unless a server has the data folder.
    """
    which = _parse_filter(
        thread=thread, source=source, status=status, client=client, since=since, until=until
    )
    made = datetime.now(UTC).isoformat(timespec="milliseconds")
    key = (
        find_key_or_fail(data, store, key_file)
        if form is _Format.jsonl
        else _key_of_head(data, store, key_file)
    )
    if form is _Format.jsonl and key is None:
        say("note: there is no audit key here, so the export is not signed")
    if key:
        _run(_write_head(load_settings(None, {"data": data, "store": store, "audit_heads": heads}), key))
    _print(data, store, lambda log: _export_pieces(log, which, form, made, key), output)


def _key_of_head(data: str | None, store: str | None, key_file: str | None) -> AuditKey | None:
    """Return the audit key for the head of an export that needs no signature itself, or None."""
    try:
        return find_key(data, store, key_file)
    except CitewireError as exc:
        _say_no_head(exc.explanation)
        return None


async def _write_head(settings: Settings, key: AuditKey) -> None:
    """Write a signed head for an export into the store, or print why not."""
    from citewire.channels.store import StoreInUse  # noqa: PLC0415
    from citewire.server.records.export_head import write_export_head  # noqa: PLC0415

    async with _open_log(settings):
        pass  # the log exists in this version: nothing is created, and an older one is not changed
    try:
        await write_export_head(settings, key)
    except StoreInUse as exc:
        _say_no_head(f"{exc.explanation}; the server writes heads on its schedule")
    except CitewireError as exc:
        _say_no_head(exc.explanation)


def _say_no_head(why: str) -> None:
    say(f"note: no signed head was kept for this export: {why}")


@_audit.command(
    epilog="""**Examples**

`citewire audit verify record.jsonl --public-key audit.pub`

`citewire audit verify --data .citewire --head head.json --public-key audit.pub`"""
)
def verify(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="An export in JSON Lines; - is stdin.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Check the store in this folder, too.")
    ] = None,
    store: _Store = None,
    head: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="FILE", help="A signed head kept elsewhere."),
    ] = None,
    public_key: Annotated[
        list[str] | None,
        typer.Option("--public-key", metavar="KEY|FILE", help="A key that is trusted, see `audit key show`."),
    ] = None,
) -> None:
    """Check that an export, a store or both were not changed since they were signed.

    Exit 1 where they were, with the places; 3 where all fits and no trusted key has signed it.
    """
    if file is None and not (data or store):
        fail("give an export, or a store with --data")
    trust, kept = _trust(public_key or []), [_head(each) for each in head or []]
    report = None if file is None else _check_export(file, trust, kept)
    from citewire.audit.findings import Findings  # noqa: PLC0415

    findings = report or Findings(trust)
    if data or store:
        _run(_check_store(data, store, findings, report, kept))
    for broken in findings.breaks:
        write_out(f"broken: {one_line(broken.where, 600)}: {one_line(broken.what, 200)}\n")
    for note in findings.notes:
        say(f"note: {note}")
    if findings.breaks:
        raise typer.Exit(1)
    write_out(_format_totals(report) if report else f"whole: the store has {_count(findings.rows, 'row')}\n")
    _say_who_signed(trust)


def _say_who_signed(trust: TrustedKeys) -> None:
    from citewire.audit.signing import key_id  # noqa: PLC0415

    for key in sorted(trust.known):
        write_out(f"signed by the trusted key {key_id(key)}\n")
    for key in sorted(trust.pinned):
        write_out(f"signed by the key {key_id(key)}, up to the head given with --head\n")
    if trust.known and not trust.unknown:
        return
    for key in sorted(trust.unknown):
        write_out(f"signed by the unknown key {key_id(key)}\n")
    if not trust.unknown and not trust.pinned:
        write_out("not signed\n")
    say("note: nothing tells who signed it; --public-key names a key that is trusted")
    raise typer.Exit(3)


def _check_export(file: str, trust: TrustedKeys, kept: list[SignedHead]) -> ExportReport:
    from citewire.audit.export_check import check_export  # noqa: PLC0415  # `--help` need not wait for it

    try:
        return check_export(_lines(file), trust, kept)
    except CitewireError as exc:
        fail(f"{file}: {exc.explanation}")


async def _check_store(
    data: str | None,
    store: str | None,
    findings: Findings,
    report: ExportReport | None,
    kept: list[SignedHead],
) -> None:
    from citewire.audit.export_check import compare_with_store  # noqa: PLC0415
    from citewire.audit.store_check import check_store  # noqa: PLC0415
    from citewire.server.records.data_check import check_api_keys, check_source_bytes  # noqa: PLC0415

    settings = load_settings(None, {"data": data, "store": store})
    async with _open_log(settings) as log, log.snapshot() as snapshot:
        if report:
            await compare_with_store(report, snapshot)
        fold = await check_store(snapshot, findings, kept)
        await check_source_bytes(snapshot, settings, findings)
    await check_api_keys(settings, fold.api_keys, findings)


def _trust(keys: list[str]) -> TrustedKeys:
    from citewire.audit.signing import TrustedKeys  # noqa: PLC0415

    lines = [line for key in keys for line in _key_lines(key)]
    try:
        return TrustedKeys(lines)
    except CitewireError as exc:
        fail(f"--public-key: {exc.explanation}")


def _key_lines(key: str) -> list[str]:
    """Return a public key given as text, or those in a file."""
    if key.startswith("ed25519:"):
        return [key]
    return [line for line in _read(key).decode("utf-8", "replace").splitlines() if line.strip()]


def _head(file: str) -> SignedHead:
    from citewire.audit.statements import read_head  # noqa: PLC0415

    try:
        return read_head(_read(file))
    except CitewireError as exc:
        fail(f"{file}: {exc.explanation}")


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as exc:
        fail(f"{file}: {exc.strerror or exc}")


def _format_totals(report: ExportReport) -> str:
    threads = [chain for chain in report.chains.values() if chain.thread is not None]
    deleted = sum(chain.deleted is not None for chain in threads)
    return (
        f"whole: {_count(len(threads), 'thread')} ({deleted} deleted), {_count(report.rows, 'row')}, "
        f"{_count(report.citations, 'citation')}, made {one_line(report.first.made, 40)}\n"
    )


def _parse_filter(**given: str | None) -> AuditFilter:
    from citewire.audit.audit_filter import AuditFilter  # noqa: PLC0415

    try:
        return AuditFilter.parse(**given)
    except CitewireError as exc:
        fail(exc.explanation)


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    except CitewireError as exc:
        fail(exc.explanation)


@asynccontextmanager
async def _open_log(settings: Settings) -> AsyncGenerator[Log]:
    """Open the log for reading."""
    from citewire.channels.sqlite_log import SqliteLog  # noqa: PLC0415
    from citewire.server.storage.backend import open_log  # noqa: PLC0415

    log = SqliteLog.open(settings.store_folder) if settings.dsn is None else await open_log(settings.dsn)
    try:
        yield log
    finally:
        await log.close()


@contextmanager
def _sink(output: str) -> Generator[Callable[[bytes], object]]:
    """Yield the function to write with; an output file appears only once it is complete."""
    if output == "-":
        yield write_bytes
        return
    part = Path(f"{output}.part")
    try:
        with part.open("wb") as file:
            yield file.write
        part.replace(output)
    except OSError as exc:
        fail(f"{output}: {exc.strerror or exc}")
    finally:
        part.unlink(missing_ok=True)


def _print(
    data: str | None, store: str | None, pieces: Callable[[Log], AsyncIterator[str]], output: str = "-"
) -> None:
    """Write out the pieces, made from one snapshot."""
    from citewire.audit.spool import pieces_of, spool  # noqa: PLC0415

    async def work() -> None:
        async with _open_log(load_settings(None, {"data": data, "store": store})) as log:
            file = await spool(log, pieces)
        async for piece in pieces_of(file):
            write(piece)

    with _sink(output) as write:
        _run(work())


async def _export_pieces(
    log: Log, which: AuditFilter, form: _Format, made: str, key: AuditKey | None
) -> AsyncIterator[str]:
    match form:
        case _Format.jsonl:
            from citewire.audit.jsonl_export import export_jsonl  # noqa: PLC0415

            async for line in export_jsonl(log, which, made, f"citewire {__version__}", key):
                yield line.decode()
        case _Format.csv:
            from citewire.audit.csv_export import export_csv  # noqa: PLC0415

            async for line in export_csv(log, which):
                yield line
        case _Format.html:
            from citewire.audit.html_export import export_html  # noqa: PLC0415

            async for piece in export_html(log, which, made, f"citewire {__version__}"):
                yield piece


async def _json(log: Log, which: AuditFilter) -> AsyncIterator[str]:
    from citewire.agui.events import write_json  # noqa: PLC0415
    from citewire.audit import record  # noqa: PLC0415

    before = "[\n"
    async for thread in record.read_threads(log, which):
        for citation in thread.citations:
            yield f"{before}{write_json(citation).decode()}"
            before = ",\n"
    async for erased in record.find_erased_threads(log, which):
        yield f"{before}{write_json(record.describe_deleted(erased)).decode()}"
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


async def _text(log: Log, which: AuditFilter) -> AsyncIterator[str]:
    from citewire.audit import record  # noqa: PLC0415

    counts, threads, deleted = Counter[str](), 0, 0
    width = max(80, shutil.get_terminal_size().columns)
    async for thread in record.read_threads(log, which):
        threads += 1
        counts.update(citation.status for citation in thread.citations)
        name = one_line(thread.name, 200)
        yield f"{name}  {_count(len(thread.citations), 'citation')}\n"
        for citation in thread.citations:
            yield _row(citation, width)
    async for erased in record.find_erased_threads(log, which):
        deleted += 1
        gone = record.describe_deleted(erased)
        rows = _count(gone.rows, "row")
        yield f"{one_line(gone.thread, 200)}  deleted {_when(gone.at)}, {rows} without their content\n"
    said = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    total = f"{_count(counts.total(), 'citation')} in {_count(threads, 'thread')}"
    yield f"{total}{': ' + said if said else ''}{f'; {deleted} deleted' if deleted else ''}\n"


def _row(citation: RecordedCitation, width: int) -> str:
    """Format a citation: time, verdict, who and source; then the quote, the proof and the reviews."""
    verdict = citation.verdict
    page = f", page {verdict.page}" if verdict and verdict.page else ""
    proof = f"proof {verdict.proof or verdict.hash[:32]}" if verdict else "not judged yet"
    looked = ", ".join(f"{review.who or 'somebody'} {review.event}" for review in citation.reviews)
    first = (
        f"  {_when(citation.at)}  {_MARKS.get(citation.status, '?')} {citation.status:<8}  "
        f"{one_line(citation.who, 60)}: {one_line(citation.source or 'no source', 100)}{page}"
    )
    below = f"      {proof}{f'; looked at: {one_line(looked, 200)}' if looked else ''}"
    quote = f"      “{one_line(citation.quote, width - 8)}”"
    return f"{first}\n{quote}\n{below}\n"


def _when(date: str) -> str:
    """Format a time of the record for people."""
    return date[:19].replace("T", " ")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _lines(file: str) -> Iterator[bytes]:
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as given:
            while line := given.readline(_LONGEST):
                yield line
    except OSError as exc:
        fail(f"{file}: {exc.strerror or exc}")
