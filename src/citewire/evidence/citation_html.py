"""Write untrusted text as HTML: an answer with marked citations, two wordings with marked differences."""

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

# A sign and a word for each, since not everybody sees colours. The most serious come first.
VERDICT_LABELS: dict[Status, str] = {
    "altered": "≠ Altered",
    "missed": "✗ Not found",
    "partial": "≈ Partial",
    "skipped": "– Not checked",
    "pending": "… Pending",
    "verified": "✓ Verified",
}
# Kinds of marking in an answer; if several apply, the first is used.
_KINDS = (*VERDICT_LABELS, "uncited")
_UNCITED = '<span class="none">no citation</span>'
# Characters of a quote, and of a URL, that are shown.
_LONG = 2_000


class CitationLink(Struct, frozen=True, gc=False):
    """A citation in the text, with its anchor, and the anchor of the card it links to."""

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
    """Escape text for a page: nothing can run, nothing is hidden. For attributes too."""
    return escape(clean_text(text))


def truncate(text: str, most: int) -> str:
    """Return the start of a text, and how many characters follow."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} more characters)"


def web_href(url: str) -> str | None:
    """Return the URL for a link, or None if it is not http(s) or suspiciously long."""
    safe = safe_link(url) if len(url) <= _LONG else None
    return safe if safe and safe.lower().startswith("http") else None


def find_marker_place(answer: Answer, citation: Citation) -> tuple[int, int] | None:
    """Return the part and offset of a citation: its marker, its insertion point, or the end of its claim."""
    marker, point, claim = citation.marker, citation.insert_at, citation.claim
    places = (
        marker and (marker.part, marker.start),
        point and (point.part, point.at),
        claim and (claim.part, claim.end),
    )
    return next((place for place in places if place and _inside(answer, *place)), None)


def claim_text(answer: Answer, citation: Citation) -> str:
    """Return the text of a citation's claim, or an empty string."""
    claim = citation.claim
    return answer.covered(claim) if claim and _inside(answer, claim.part, claim.start) else ""


def _inside(answer: Answer, part: int, at: int) -> bool:
    """Return whether this place exists: a payload without text may still have places."""
    return 0 <= part < len(answer.parts) and 0 <= at <= len(answer.parts[part].text)


def mark_citations(
    answer: Answer, links: Iterable[tuple[Citation, CitationLink]], uncited: Iterable[Span]
) -> Iterator[str]:
    """Yield each part of the answer, with claims coloured by verdict and markers replaced by links."""
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
    """Return both texts as HTML, with differences marked: `del` in the quote, `ins` in the source.

    They are compared token by token, as for the verdict. Long texts are truncated, and not marked.
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
