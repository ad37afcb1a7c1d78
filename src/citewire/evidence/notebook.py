"""Notebook view of an answer: its text, its sources, and the verdict on each quote.

It is one element with its own style and no script. Colours are mixed with the surrounding text colour, to fit
light and dark notebooks alike; without the style, which some pages strip, all information is still there. All
text in it is untrusted, and escaped.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from citewire.evidence.citation_html import (
    VERDICT_LABELS,
    claim_text,
    compare_wordings,
    escape_text,
    truncate,
)
from citewire.model import Answer, Citation, Source, Span, Verification
from citewire.rendering import render_html
from citewire.verification.document_set import CheckResult
from citewire.verification.report import Report

__all__ = ["answer_html", "checks_html", "report_html"]

# Most quotes per verdict, and characters of a claim, before the rest is only counted.
_MOST, _LONG = 20, 400
# Most citations, and characters of the text, that are shown in place.
_CITATIONS, _TEXT = 300, 20_000
_STYLE = """
.citewire{line-height:1.5;max-width:60em;overflow-wrap:anywhere}
.citewire p{margin:.4em 0}
.citewire a{color:inherit}
.citewire ul,.citewire ol{margin:.3em 0;padding-left:1.6em}
.citewire mark,.citewire ins,.citewire del{color:inherit;border-radius:2px;padding:0 .1em}
.citewire mark{background:color-mix(in srgb,#d9a400 22%,transparent)}
.citewire del{background:color-mix(in srgb,#d93025 28%,transparent)}
.citewire ins{background:color-mix(in srgb,#1a9c55 28%,transparent)}
.citewire [data-status]{--tone:#808890}
.citewire [data-status=verified]{--tone:#1a9c55}
.citewire [data-status=partial]{--tone:#c98a00}
.citewire [data-status=altered]{--tone:#d93025}
.citewire [data-status=missed]{--tone:#c2287f}
.citewire sup[data-status],.citewire [data-status]>summary{
color:color-mix(in srgb,var(--tone) 65%,currentColor)}
.citewire li[data-status]{margin:.5em 0;padding-left:.6em;border-left:3px solid var(--tone);list-style:none}
.citewire .what{display:inline-block;width:5em;opacity:.75}
.citewire summary{cursor:pointer}
"""


def answer_html(answer: Answer) -> str:
    """Return the view of an answer with the verdicts it carries."""
    given = ((citation, citation.verification) for citation in answer.citations)
    return checks_html(
        answer, [_to_check_result(citation, verdict) for citation, verdict in given if verdict]
    )


def _to_check_result(citation: Citation, verdict: Verification) -> CheckResult:
    """Convert a verdict to a check result. With several quotes, it does not say which one it is about."""
    quotes = [ref.quote for ref in citation.refs if ref.quote]
    quote = quotes[0] if len(quotes) == 1 else ""
    return CheckResult(
        citation.id, verdict.status, verdict.reason, page=verdict.page, found=verdict.quote, quote=quote
    )


def report_html(report: Report) -> str:
    """Return the view of a report: its answer, and every check."""
    return checks_html(report.answer, report.checks, report.uncited)


def checks_html(answer: Answer, checks: Sequence[CheckResult], uncited: Iterable[Span] = ()) -> str:
    """Return an answer, its checks and the sentences without a citation, as one HTML element."""
    body = "".join((*_head(answer), _text(answer), *_groups(answer, checks), *_uncited(answer, uncited)))
    return f'<div class="citewire"><style>{_STYLE}</style>{body}</div>'


def _head(answer: Answer) -> Iterator[str]:
    counts = Counter(one.verification.status for one in answer.citations if one.verification)
    verdicts = [f"{VERDICT_LABELS[status]} {counts[status]}" for status in VERDICT_LABELS if counts[status]]
    yield f"<p>{' · '.join([_number(len(answer.citations), 'citation'), *verdicts])}</p>"
    if answer.problems:
        yield f"<p>⚠ {_number(len(answer.problems), 'piece')} of it could not be read.</p>"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _text(answer: Answer) -> str:
    if len(answer.text) > _TEXT or len(answer.citations) > _CITATIONS:
        text = escape_text(truncate(answer.text, _TEXT))
        return f"<p>{text}</p><p>Too much to show the citations in place.</p>"
    # Links lead to this answer's own list of sources, on a page with several answers.
    name = hashlib.sha256(repr(answer.bare()).encode("utf-8", "replace")).hexdigest()[:12]
    return render_html(answer, f"cite-{name}")


def _groups(answer: Answer, checks: Sequence[CheckResult]) -> Iterator[str]:
    """Yield the checks by verdict, the worst first; verified ones are collapsed."""
    cited = {citation.id: citation for citation in answer.citations}
    named = {source.id: source for source in answer.sources}
    for status, words in VERDICT_LABELS.items():
        own = [check for check in checks if check.status == status]
        if not own:
            continue
        items = "".join(_item(answer, cited.get(check.id or ""), named, check) for check in own[:_MOST])
        more = f"<p>… and {len(own) - _MOST:,} more</p>" if len(own) > _MOST else ""
        is_open = "" if status == "verified" else " open"
        summary = f"<summary>{words}: {_number(len(own), 'quote')}</summary>"
        yield f'<details data-status="{status}"{is_open}>{summary}<ul>{items}</ul>{more}</details>'


def _item(answer: Answer, citation: Citation | None, named: dict[str, Source], check: CheckResult) -> str:
    rows = list(_rows(answer, citation, check))
    where = check.source or _sources(citation, named) or "no source"
    page = f", page {check.page}" if check.page is not None else ""
    lines = "".join(f'<div><span class="what">{what}</span> {words}</div>' for what, words in rows)
    return (
        f'<li data-status="{check.status}"><bdi>{escape_text(truncate(where, _LONG))}</bdi>{page}{lines}</li>'
    )


def _sources(citation: Citation | None, named: dict[str, Source]) -> str:
    refs = citation.refs if citation else ()
    labels = (named[ref.source_id].label if ref.source_id in named else ref.source_id for ref in refs)
    return ", ".join(islice(dict.fromkeys(labels), 3))


def _rows(answer: Answer, citation: Citation | None, check: CheckResult) -> Iterator[tuple[str, str]]:
    if citation and (claim := claim_text(answer, citation).strip()):
        yield "cited for", escape_text(truncate(claim, _LONG))
    found = check.found or ""
    quote, source = compare_wordings(check.quote, found, marked=check.status == "altered" and bool(found))
    if check.quote:
        yield "quote", f'<span dir="auto">{quote}</span>'
    if found and check.status in {"altered", "partial"}:
        yield "source", f'<span dir="auto">{source}</span>'
    if check.reason:
        yield "why", escape_text(truncate(check.reason, _LONG))
    yield from (("note", escape_text(truncate(warning, _LONG))) for warning in check.warnings[:_MOST])


def _uncited(answer: Answer, uncited: Iterable[Span]) -> Iterator[str]:
    spans = list(uncited)
    if spans:
        sentences = (escape_text(truncate(answer.covered(span), _LONG)) for span in spans[:_MOST])
        more = [f"… and {len(spans) - _MOST:,} more"] if len(spans) > _MOST else []
        items = "".join(f"<li>{sentence}</li>" for sentence in [*sentences, *more])
        summary = f"<summary>{_number(len(spans), 'sentence')} without a citation</summary>"
        yield f"<details>{summary}<ul>{items}</ul></details>"
