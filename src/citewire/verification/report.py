"""An answer checked against its sources: each citation with its verdict, and the sentences without one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from citewire.model import Answer, Citation, Source, SourceRef, Span, Status, Verification
from citewire.notebook_views import notebook_html
from citewire.verification.document_set import CheckResult, DocumentSet
from citewire.verification.expected_place import ExpectedPlace
from citewire.verification.verifier import QuoteCheck

__all__ = ["Report", "UncitedSentence", "list_quote_checks", "make_report", "verify_answer"]

_WORST: tuple[Status, ...] = ("altered", "missed", "partial", "pending", "skipped", "verified")
_SENTENCE = re.compile(r"[^\s.!?][^.!?\n]*[.!?]*[\"'”’)\]]*")


class UncitedSentence(Struct, frozen=True, gc=False):
    """A sentence of an answer without a citation, and its place."""

    text: str
    part: int
    start: int
    end: int


class Report(Struct, frozen=True, gc=False):
    """`answer` with verdicts, and the detailed `checks`: one per quote, under the id of its citation."""

    answer: Answer
    checks: tuple[CheckResult, ...]
    uncited: tuple[Span, ...]

    @property
    def counts(self) -> dict[Status, int]:
        """The number of citations per verdict."""
        verdicts = Counter(
            citation.verification.status for citation in self.answer.citations if citation.verification
        )
        return {status: verdicts[status] for status in _WORST if verdicts[status]}

    @property
    def uncited_sentences(self) -> tuple[UncitedSentence, ...]:
        """The sentences without a citation."""
        parts = self.answer.parts
        return tuple(
            UncitedSentence(parts[span.part].text[span.start : span.end], span.part, span.start, span.end)
            for span in self.uncited
        )

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return notebook_html("report", self)


def verify_answer(answer: Answer, library: DocumentSet) -> Report:
    """Check every quote of `answer`, in this process."""
    return make_report(answer, [_check(library, asked) for asked in list_quote_checks(answer)])


def _check(library: DocumentSet, asked: QuoteCheck) -> CheckResult:
    named = next((name for name in asked.likely if library.find_named(name)), None)
    return library.check(asked.quote, named, asked.near, asked.id)


def list_quote_checks(answer: Answer) -> list[QuoteCheck]:
    """Return the quotes of `answer`, each with the possible names of its source."""
    sources = {source.id: source for source in answer.sources}
    return [
        QuoteCheck(
            citation.id,
            ref.quote,
            near=ExpectedPlace.from_reference(ref, source),
            likely=tuple(_names(source, ref)),
        )
        for citation in answer.citations
        for ref in citation.refs
        for source in (sources.get(ref.source_id),)
        if ref.quote
    ]


def make_report(answer: Answer, checks: Sequence[CheckResult]) -> Report:
    """Turn the results for the quotes of `answer`, in their order, into verdicts on its citations.

    A citation with several quotes gets the worst of their verdicts.
    """
    each = iter(checks)
    told: list[CheckResult] = []
    citations: list[Citation] = []
    for citation in answer.citations:
        found = list(islice(each, sum(bool(ref.quote) for ref in citation.refs)))
        found = found or [CheckResult(citation.id, "skipped", "nothing quoted")]
        told += found
        worst = min(found, key=lambda check: _WORST.index(check.status))
        verdict = Verification(worst.status, worst.reason, worst.found, worst.page)
        citations.append(replace(citation, verification=verdict))
    checked = replace(answer, citations=tuple(citations))
    return Report(checked, tuple(told), tuple(_uncited(answer)))


def _names(source: Source | None, ref: SourceRef) -> Iterator[str]:
    given = (source.filename, source.url, source.title, source.file_id, source.id) if source else ()
    return (name for name in (*given, ref.source_id) if name)


def _uncited(answer: Answer) -> Iterator[Span]:
    """Yield the sentences that no citation claims, marks or follows."""
    for number, part in enumerate(answer.parts):
        text = _without_markers(part.text, answer.citations, number)
        taken = _merged(_ranges(answer.citations, number, text))
        ends = [end for _, end in taken]
        for sentence in _SENTENCE.finditer(text):
            at = bisect_right(ends, sentence.start())
            is_taken = at < len(taken) and taken[at][0] < sentence.end()
            if len(sentence[0].split()) > 2 and not is_taken:
                yield Span(number, sentence.start(), sentence.start() + len(sentence[0].rstrip()))


def _without_markers(text: str, citations: Iterable[Citation], part: int) -> str:
    markers = (citation.marker for citation in citations)
    here = [(marker.start, marker.end) for marker in markers if marker is not None and marker.part == part]
    pieces: list[str] = []
    at = 0
    for start, end in _merged(here):
        pieces += text[at:start], " " * (end - start)
        at = end
    return "".join((*pieces, text[at:]))


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges, and merge those that touch."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            start, end = merged[-1][0], max(end, merged.pop()[1])  # noqa: PLW2901
        merged.append((start, end))
    return merged


def _ranges(citations: Iterable[Citation], part: int, text: str) -> Iterator[tuple[int, int]]:
    """Yield the cited ranges: claims, and the last character before a marker or insertion point."""
    for citation in citations:
        if citation.claim is not None and citation.claim.part == part:
            yield citation.claim.start, citation.claim.end
        for span in (citation.marker, citation.insert_at):
            if span is not None and span.part == part:
                at = span.start if isinstance(span, Span) else span.at
                last = len(text[:at].rstrip())
                yield last - 1, last
