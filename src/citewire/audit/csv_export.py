"""Export the citations as CSV for spreadsheets, one line each."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator
from io import StringIO

from citewire.audit import record
from citewire.audit.audit_filter import AuditFilter
from citewire.audit.record_types import RecordedCitation
from citewire.channels.store import Log
from citewire.rendering.safety import clean_text

__all__ = ["COLUMNS", "csv_line", "export_csv"]

COLUMNS = (
    "thread", "run", "message", "key", "at", "by", "asked by", "quote", "source", "sha256", "page", "status",
    "reason", "judged at", "proof", "row", "hash", "looked at by", "origin",
)  # fmt: skip


async def export_csv(log: Log, which: AuditFilter) -> AsyncIterator[str]:
    """Yield the lines of the table, starting with the column names."""
    yield csv_line(COLUMNS)
    async for thread in record.read_threads(log, which):
        for citation in thread.citations:
            yield csv_line(_cells(citation))


def _cells(citation: RecordedCitation) -> tuple[object, ...]:
    verdict = citation.verdict
    judged = (
        (verdict.reason, verdict.at, verdict.proof, verdict.row, verdict.hash) if verdict else (None,) * 5
    )
    return (
        citation.thread, citation.run, citation.message, citation.key, citation.at, citation.who,
        citation.asked_by, citation.quote, citation.source, verdict and verdict.sha256,
        verdict and verdict.page, citation.status, *judged,
        "; ".join(f"{review.who} {review.event} {review.at}" for review in citation.reviews),
        verdict and verdict.origin,
    )  # fmt: skip


def csv_line(cells: tuple[object, ...]) -> str:
    """Format the cells as a line of CSV without formulas."""
    out = StringIO()
    csv.writer(out).writerow([_escape_formula(cell) for cell in cells])
    return out.getvalue()


def _escape_formula(cell: object) -> object:
    """Escape a cell that a spreadsheet would interpret as a formula."""
    if not isinstance(cell, str):
        return cell
    text = clean_text(cell)
    return f"'{text}" if text.lstrip()[:1] in tuple("=+-@＝＋－＠|%") else text
