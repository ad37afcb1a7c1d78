"""Foreign text as HTML: an answer with its citations marked, two wordings with what differs marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import pairwise

from msgspec import Struct

from citewire.model import Answer, Citation, Span, Status
from citewire.rendering.safety import clean_text, safe_link
from citewire.verification.text_views import TextView, canonical_view
from citewire.verification.tokens import TextToken, tokenize

__all__ = [
    "CitationLink",
    "VERDICT_LABELS",
    "claim_text",
    "compare_wordings",
    "escape_text",
    "find_marker_place",
    "mark_citations",
    "truncate",
    "web_href",
]

# A sign and a word for each, since not everybody sees colours. What must not be overlooked comes first.
VERDICT_LABELS: dict[Status, str] = {
    "altered": "≠ Altered",
    "missed": "✗ Not found",
    "partial": "≈ Partial",
    "skipped": "– Not checked",
    "pending": "… Pending",
    "verified": "✓ Verified",
}
# How the words of an answer may be marked; of several, the first.
_KINDS = (*VERDICT_LABELS, "uncited")
_UNCITED = '<span class="none">no citation</span>'
# Characters of a quote, and of an address, that are shown.
_LONG = 2_000


class CitationLink(Struct, frozen=True, gc=False):
    """A citation in the text, under its own anchor, and the anchor of the card that it leads to."""

    anchor: str
    label: str
    status: Status
    target: str | None

    def html(self) -> str:
        sign, words = VERDICT_LABELS[self.status].split(" ", 1)
        name = f'id="{self.anchor}" class="cite {self.status}"'
        text = f'{self.label} {sign}<span class="heard"> {words}</span>'
        return f'<a {name} href="#{self.target}">{text}</a>' if self.target else f"<span {name}>{text}</span>"


def escape_text(text: str) -> str:
    """Text as a page shows it: nothing to run, nothing hidden. For attributes too."""
    return escape(clean_text(text))


def truncate(text: str, most: int) -> str:
    """The beginning of a text, and how much more there is."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} more characters)"


def web_href(url: str) -> str | None:
    """The address as a link may carry it, if it is one of the web and of some honest length."""
    safe = safe_link(url) if len(url) <= _LONG else None
    return safe if safe and safe.lower().startswith("http") else None


def find_marker_place(answer: Answer, citation: Citation) -> tuple[int, int] | None:
    """The part and offset at which a citation shows: its marker, its point, or the end of its claim."""
    marker, point, claim = citation.marker, citation.insert_at, citation.claim
    places = (
        marker and (marker.part, marker.start),
        point and (point.part, point.at),
        claim and (claim.part, claim.end),
    )
    return next((place for place in places if place and _inside(answer, *place)), None)


def claim_text(answer: Answer, citation: Citation) -> str:
    """The words that a citation is for, where they are known."""
    claim = citation.claim
    return answer.covered(claim) if claim and _inside(answer, claim.part, claim.start) else ""


def _inside(answer: Answer, part: int, at: int) -> bool:
    """Whether there is such a place: a payload without text may still have places in it."""
    return 0 <= part < len(answer.parts) and 0 <= at <= len(answer.parts[part].text)


def mark_citations(
    answer: Answer, links: Iterable[tuple[Citation, CitationLink]], uncited: Iterable[Span]
) -> Iterator[str]:
    """Each part of the answer, its claims in the colour of their verdicts, its markers replaced by links."""
    changes = [Counter[tuple[int, str, int]]() for _ in answer.parts]
    marks: list[dict[int, list[str]]] = [{} for _ in answer.parts]

    def mark(span: Span | None, kind: str) -> None:
        if span and _inside(answer, span.part, span.start) and _inside(answer, span.part, span.end):
            changes[span.part][span.start, kind, 1] += 1
            changes[span.part][span.end, kind, -1] += 1

    for citation, one in links:
        mark(citation.claim, one.status)
        mark(citation.marker, "marker")
        if place := find_marker_place(answer, citation):
            marks[place[0]].setdefault(place[1], []).append(one.html())
    for span in uncited:
        mark(span, "uncited")
        marks[span.part].setdefault(span.end, []).append(_UNCITED)
    for part, changed, marked in zip(answer.parts, changes, marks, strict=True):
        yield "".join(_runs(part.text, changed, marked))


def _runs(
    text: str, changes: Mapping[tuple[int, str, int], int], marks: Mapping[int, Sequence[str]]
) -> Iterator[str]:
    by_offset: dict[int, Counter[str]] = {}
    for (offset, kind, step), count in changes.items():
        by_offset.setdefault(offset, Counter())[kind] += step * count
    opened = Counter[str]()
    edges = sorted({0, *by_offset, *marks})
    for start, end in pairwise([*edges, len(text)]):
        yield from marks.get(start, ())
        opened.update(by_offset.get(start, {}))
        words = "" if opened["marker"] > 0 else escape_text(text[start:end])
        kind = next((kind for kind in _KINDS if opened[kind] > 0), None)
        style = kind if kind == "uncited" else f"claim {kind}"
        yield f'<span class="{style}">{words}</span>' if kind and words.strip() else words


def compare_wordings(quote: str, source: str, *, marked: bool) -> tuple[str, str]:
    """Both texts as HTML, with what differs marked: `del` in the quote, `ins` in the source.

    They are compared token by token, as they were judged. What is too long is cut, and not marked.
    """
    if not marked or max(len(quote), len(source)) > _LONG:
        return escape_text(truncate(quote, _LONG)), escape_text(truncate(source, _LONG))
    ours, theirs = canonical_view(quote), canonical_view(source)
    left, right = tokenize(ours.text), tokenize(theirs.text)
    matcher = SequenceMatcher(None, [one.key for one in left], [one.key for one in right], autojunk=False)
    differing = [
        (left[a:b], right[c:d])
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal" and any(token.kind != "mark" for token in (*left[a:b], *right[c:d]))
    ]
    return (
        _marked(quote, ours, (pair[0] for pair in differing), "del"),
        _marked(source, theirs, (pair[1] for pair in differing), "ins"),
    )


def _marked(text: str, view: TextView, differing: Iterable[list[TextToken]], tag: str) -> str:
    pieces: list[str] = []
    at = 0
    for found in filter(None, differing):
        start, end = view.to_source(found[0].start, found[-1].end)
        pieces += [escape_text(text[at:start]), f"<{tag}>{escape_text(text[start:end])}</{tag}>"]
        at = end
    return "".join([*pieces, escape_text(text[at:])])
