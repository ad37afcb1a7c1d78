"""Judge differences from text that OCR read from a picture, since OCR may have misread it.

A quote that differs only where a misreading is likely is `partial`, not `altered`, with a reason that says
how the picture was read. Words read with confidence count as in any text, and numbers and negations need more
doubt than other words. Nothing becomes `verified` here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

from msgspec.structs import replace

from citewire.documents.document import Document
from citewire.verification.policy import Difference, Finding
from citewire.verification.text_views import canonical_view

__all__ = ["allow_for_misreading"]

# OCR confidence in percent. Of the words that tesseract reads correctly from a clean page, one in a hundred
# is below the first; of those it misreads nine in ten are, and more than half are below the second.
_DOUBTED, _DOUBTFUL = 90, 60
# Least similarity of a misread word to the word on the page.
_ALIKE = 0.5
# Digits and the letters that look like them. One digit is never accepted for another.
_LOOK_ALIKE = frozenset({"1l", "1i", "1|", "1!", "0o", "0q", "5s", "8b", "2z", "6b", "9g"})
# What OCR reads bullets as, at the start of a line.
_BULLET = re.compile(r"[eo¢*«»®©°+.·•-](?: |$)")


def allow_for_misreading(finding: Finding, document: Document) -> Finding:
    """Return the finding, `partial` instead of `altered` if the picture may well say what the quote says."""
    if finding.status != "altered" or document.confidence is None:
        return finding
    real = [each for each in finding.diff if each.kind != "article"]
    if not all(_may_be_misread(each, finding, document) for each in real):
        return finding
    quote, source = (f"{said!r}" if said else "nothing" for said in (real[0].quote, real[0].source))
    reason = (
        f"the picture was read as {source} where the quote has {quote}, perhaps wrongly: look at the crop"
    )
    return replace(finding, status="partial", reason=reason)


def _may_be_misread(difference: Difference, finding: Finding, document: Document) -> bool:
    """Return whether each differing word may be misread. Of several occurrences the surest reading counts."""
    quote, source = difference.quote.split(), difference.source.split()
    places = _places(difference.source, finding, document)
    if _is_bullet(difference, places, document):
        return True
    if not places or (quote and len(quote) != len(source)):
        return False
    sure = [max(readings) for readings in zip(*places.values(), strict=True)]
    plain = difference.kind in ("word", "identifier")
    if not quote:
        return (plain or difference.kind == "sign") and max(sure) < _DOUBTFUL
    return all(
        one == other or _is_alike(one, other, percent, plain)
        for one, other, percent in zip(quote, source, sure, strict=True)
    )


def _places(source: str, finding: Finding, document: Document) -> dict[int, list[int]]:
    """Map each place of the words in the finding to OCR's confidence in each word; empty if not from OCR."""
    view = canonical_view(document.text[finding.start : finding.end])
    found = re.finditer(rf"(?<!\w){re.escape(source)}(?!\w)", view.text) if source else ()
    places: dict[int, list[int]] = {}
    for place in found:
        words = [(place.start() + at.start(), place.start() + at.end()) for at in re.finditer(r"\S+", source)]
        spans = [view.to_source(*word) for word in words]
        start = finding.start + spans[0][0]
        if document.confidence is None or not document.page_at(start).ocr:
            return {}
        read = document.confidence[finding.start : finding.end]
        places[start] = [int(read[first:last].max()) for first, last in spans]
    return places


def _is_bullet(difference: Difference, places: Iterable[int], document: Document) -> bool:
    bullet = _BULLET.match(difference.source)
    at_start = all(at == 0 or document.text[at - 1] == "\n" for at in places)
    return bullet is not None and at_start and difference.source[bullet.end() :] == difference.quote


def _is_alike(quote: str, source: str, sure: int, plain: bool) -> bool:
    if _looks_alike(quote, source):
        return True
    same_digits = re.findall(r"\d", quote) == re.findall(r"\d", source)
    most = _DOUBTED if plain and same_digits else _DOUBTFUL
    return sure < most and SequenceMatcher(None, quote, source, autojunk=False).ratio() >= _ALIKE


def _looks_alike(quote: str, source: str) -> bool:
    one, other = (text.replace("rn", "m").replace("vv", "w") for text in (quote, source))
    return len(one) == len(other) and all(
        a == b or f"{min(a, b)}{max(a, b)}" in _LOOK_ALIKE or (starts and {a, b} == {"i", "l"})
        for a, b, starts in zip(one, other, _word_starts(one), strict=True)
    )


def _word_starts(text: str) -> list[bool]:
    """Return where a capital may be: I is read as l, but i is not."""
    return [not before.isalnum() for before in f" {text}"[:-1]]
