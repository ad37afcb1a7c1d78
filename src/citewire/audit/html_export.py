"""Export the record as a self-contained HTML page to read, send and print, without scripts or downloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from html import escape
from importlib.resources import files
from string import Template
from tempfile import SpooledTemporaryFile

from msgspec import to_builtins

from citewire.audit import record
from citewire.audit.audit_filter import AuditFilter
from citewire.audit.record import RecordedThread
from citewire.audit.record_types import RecordedCitation, RecordedRetrieval, RecordedReview, RecordedRun
from citewire.audit.sources_fold import RecordedSources, SourcesFold
from citewire.channels.store import Log
from citewire.rendering.safety import clean_text
from citewire.verification.named_sources import ORIGIN_WARNINGS

__all__ = ["export_html"]

_HEAD = Template((files("citewire.audit") / "page.html").read_text("utf-8"))
_FOOT = (
    '<footer><h2>How to check this</h2><p class="faint">A page can be changed without a trace. '
    "<code>citewire audit export --format jsonl</code> writes the same record with its chain of hashes, and "
    "<code>citewire audit verify</code> checks it; the last hash of each thread is the one printed here. "
    "A verdict says whether the quoted words stand in the source, never whether they support the answer.</p>"
    "</footer>\n</body>\n</html>\n"
)
_COLUMNS = (
    "<thead><tr><th class=when>When</th><th class=verdict>Verdict</th><th>Quoted</th>"
    "<th class=who>Cited by, looked at by</th></tr></thead>"
)
# Bytes of the page held in memory until its figures are known.
_HELD = 8 << 20


class _Figures:
    """The totals of the page."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.cited: Counter[str] = Counter()
        self.threads = self.deleted = self.reviews = 0
        self.sets: dict[int, RecordedSources] = {}

    def add(self, thread: RecordedThread) -> None:
        self.threads += 1
        self.statuses.update(citation.status for citation in thread.citations)
        self.reviews += sum(len(citation.reviews) for citation in thread.citations)
        self.cited.update(
            citation.verdict.sha256
            for citation in thread.citations
            if citation.verdict and citation.verdict.sha256
        )

    def shown(self) -> str:
        numbers = {"threads": self.threads, "citations": self.statuses.total()}
        more = {**self.statuses, "reviews": self.reviews, "deleted threads": self.deleted}
        numbers |= {name: number for name, number in more.items() if number}
        return "".join(
            f"<div><dt>{escape(name)}</dt><dd>{number}</dd></div>" for name, number in numbers.items()
        )


async def export_html(log: Log, which: AuditFilter, made: str, by: str) -> AsyncIterator[str]:
    """Yield the pieces of the page, with only one thread in memory at a time."""
    figures, sources = _Figures(), await record.read_sources(log)
    with SpooledTemporaryFile(_HELD, "w+", encoding="utf-8", newline="") as body:
        async for thread in record.read_threads(log, which):
            figures.add(thread)
            body.writelines(_thread(thread, sources, figures))
        async for erased in record.find_erased_threads(log, which):
            figures.deleted += 1
            body.write(_deleted(record.describe_deleted(erased)))
        asked = ", ".join(f"{name} {value}" for name, value in to_builtins(which).items())
        yield _HEAD.substitute(
            made=_when(made), by=_safe(by), figures=figures.shown(),
            asked=_safe(f"Only {asked}." if asked else "Everything that is on record."),
        )  # fmt: skip
        body.seek(0)
        while piece := body.read(1 << 16):
            yield piece
    for _, held in sorted(figures.sets.items()):
        yield _sources(held, figures.cited)
    yield _FOOT


def _thread(thread: RecordedThread, sources: SourcesFold, figures: _Figures) -> Iterator[str]:
    head = thread.chain.head
    yield f"<section><h2>Thread {_safe(thread.name)}</h2>\n"
    for run in thread.fold.runs(sources.row_at):
        if run.sources not in figures.sets:
            figures.sets[run.sources] = sources.sources_after(run.sources)
        yield _run(run, len(figures.sets[run.sources].sources))
    if thread.citations:
        yield f"<table>{_COLUMNS}<tbody>\n"
        yield from map(_citation, thread.citations)
        yield "</tbody></table>\n"
    yield f"<p class=faint>{head.n} rows; the last hash is <code>{head.hash.hex()}</code></p></section>\n"


def _run(run: RecordedRun, count: int) -> str:
    had = f'had <a href="#sources-{run.sources}">{count} source{"" if count == 1 else "s"}</a>'
    return (
        f"<p>Run {_safe(run.run)}, asked by {_safe(run.who or 'somebody')} on {_when(run.at)}, "
        f"{_safe(run.outcome or 'not over')}; {had}{_retrieved(run.retrieved)}</p>\n"
    )


def _retrieved(found: Iterable[RecordedRetrieval]) -> str:
    names = Counter(f"{each.name}, page {each.page}" if each.page else each.name for each in found)
    listed = ", ".join(f"{_safe(name)}{f' ({n} times)' if n > 1 else ''}" for name, n in names.items())
    return f" and was given or retrieved {listed}" if listed else " and retrieved nothing"


def _citation(citation: RecordedCitation) -> str:
    verdict = citation.verdict
    place = f"{citation.source or 'no source'}{f', page {verdict.page}' if verdict and verdict.page else ''}"
    reason = f"<p>{_safe(verdict.reason)}</p>" if verdict and verdict.reason else ""
    if verdict and (said := ORIGIN_WARNINGS.get(verdict.origin or "")):
        reason += f"<p>{_safe(said)}</p>"
    proof = f"<p><code>{verdict.proof or verdict.hash[:32]}</code></p>" if verdict else ""
    before = ", ".join(each.status for each in citation.earlier)
    status = _safe(citation.status)
    return (
        f"<tr><td>{_when(citation.at)}</td>"
        f"<td><p><b class={status}>{status}</b></p>{reason}{proof}"
        f"{f'<p class=faint>before: {_safe(before)}</p>' if before else ''}</td>"
        f"<td><p dir=auto><q>{_safe(citation.quote)}</q></p><p class=faint>{_safe(place)}</p></td>"
        f"<td><p>{_safe(citation.who)}</p>{''.join(map(_review, citation.reviews))}</td></tr>\n"
    )


def _review(review: RecordedReview) -> str:
    seconds = f", {review.dwell_ms / 1000:.0f} s" if review.dwell_ms else ""
    done = review.event.replace("_", " ")
    return f"<p class=faint>{_safe(review.who or 'somebody')}: {_safe(done)}{seconds}, {_when(review.at)}</p>"


def _deleted(gone: record.DeletedThread) -> str:
    return (
        f"<section><h2>Thread {_safe(gone.thread)}, deleted</h2><p>Deleted on {_when(gone.at)}. Of its "
        f"{gone.rows} rows only the chain is kept; the last hash is <code>{gone.hash}</code></p></section>\n"
    )


def _sources(held: RecordedSources, cited: Counter[str]) -> str:
    rows = "".join(
        f"<li>{_safe(each.name or each.id)} <span class=faint>{_times(cited[each.sha256 or ''])}</span>"
        f"{f' <code>{each.sha256}</code>' if each.sha256 else ''}</li>"
        for each in held.sources
    )
    name = f"Sources, as of change {held.n}" if held.n else "No sources"
    return f'<section id="sources-{held.n}"><h2>{name}</h2><ul>{rows}</ul></section>\n'


def _times(count: int) -> str:
    return "not cited" if not count else "cited once" if count == 1 else f"cited {count} times"


def _when(date: str) -> str:
    return _safe(date[:19].replace("T", " "))


def _safe(text: object) -> str:
    return escape(clean_text(str(text)))
