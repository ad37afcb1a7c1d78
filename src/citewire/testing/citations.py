"""An assertion on the citations of an answer, which reports what is wrong with each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from citewire.extraction import read_answers
from citewire.model import Answer, Citation, Status
from citewire.rendering.safety import clean_line
from citewire.verification import verify
from citewire.verification.document_set import CheckResult
from citewire.verification.report import Report
from citewire.verification.sources import SourceInput, iter_sources, load_source

__all__ = ["assert_citations_verified"]

# Maximum characters of a claim or a quote, and maximum citations, in a message.
_LONG, _MOST = 300, 20


def assert_citations_verified(
    answer: Answer | Any,
    sources: SourceInput | Iterable[SourceInput],
    *,
    dialect: str | None = None,
    accept: Collection[Status] = ("verified",),
    every_sentence: bool = False,
) -> None:
    """Assert that every citation of `answer` is verified: its quotes are in `sources`, word for word.

    `answer` is an `Answer`, a payload in any dialect (or in `dialect`), or the text of a model. All answers
    of a payload are checked. The assertion fails for an answer without citations, and for a citation that
    cannot be read or has no quote. `accept` lists the verdicts that pass, such as `("verified", "partial")`;
    with `every_sentence`, every sentence needs a citation. Raises `AssertionError` or what `verify` raises.
    """
    __tracebackhide__ = True
    answers = (answer,) if isinstance(answer, Answer) else read_answers(answer, dialect)
    documents = [load_source(listed)[1] for listed in iter_sources(sources)]
    reports = [verify(one, documents) for one in answers]
    wrong = [
        line for report in reports for line in _find_failures(report, accept, every_sentence=every_sentence)
    ]
    if not reports:
        wrong = ["There is no answer in it."]
    if wrong:
        more = [f"… and {len(wrong) - _MOST} more"] if len(wrong) > _MOST else []
        raise AssertionError("\n\n".join([_tally(reports), *wrong[:_MOST], *more]))


def _tally(reports: Iterable[Report]) -> str:
    cited = [citation for report in reports for citation in report.answer.citations]
    verified = sum(_status(citation) == "verified" for citation in cited)
    return f"{verified} of {len(cited)} citation{'s' * (len(cited) != 1)} verified"


def _status(citation: Citation) -> Status:
    return citation.verification.status if citation.verification else "pending"


def _find_failures(report: Report, accept: Collection[Status], *, every_sentence: bool) -> Iterator[str]:
    answer, checks = report.answer, iter(report.checks)
    if not answer.citations:
        yield "The answer cites nothing."
    for problem in answer.problems:
        yield f"A citation that cannot be read, at {_short(problem.path)}: {_short(problem.message)}"
    for citation in answer.citations:
        own = list(islice(checks, sum(bool(ref.quote) for ref in citation.refs) or 1))
        if _status(citation) not in accept:
            yield "\n".join(
                line
                for check in own
                if check.status not in accept
                for line in _describe_check(answer, citation, check)
            )
    if every_sentence:
        yield from (f"A sentence without a citation: {_short(one.text)}" for one in report.uncited_sentences)


def _describe_check(answer: Answer, citation: Citation, check: CheckResult) -> Iterator[str]:
    number = "" if citation.ordinal is None else f" [{citation.ordinal}]"
    yield f"{citation.id}{number} is {check.status}" + (f": {check.reason}" if check.reason else "")
    if citation.claim and answer.parts:
        yield f"  cited for: {_short(answer.covered(citation.claim))}"
    if check.quote:
        yield f"  quote:     {_short(check.quote)}"
    if check.found:
        yield f"  source:    {_short(check.found)}"
    for one in check.diff:
        quote, source = one.quote or "nothing", one.source or "nothing"
        yield f"  differs:   {_short(quote)} -> {_short(source)} ({one.kind})"
    yield from _where(answer, citation, check)
    yield from (f"  note:      {_short(warning)}" for warning in check.warnings)


def _where(answer: Answer, citation: Citation, check: CheckResult) -> Iterator[str]:
    """Yield where the quote was found, or else the sources that the citation names."""
    if check.source is not None:
        page = f", page {check.page}" if check.page is not None else ""
        place = f", characters {check.start} to {check.end}" if check.start is not None else ""
        yield f"  where:     {_short(check.source)}{page}{place}"
        return
    named = {source.id: source.label for source in answer.sources}
    for label in dict.fromkeys(named.get(ref.source_id, ref.source_id) for ref in citation.refs):
        yield f"  cites:     {_short(label)}"


def _short(text: str) -> str:
    line = clean_line(text[: 2 * _LONG])
    return line if len(line) <= _LONG else line[:_LONG] + " …"
