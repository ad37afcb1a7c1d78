"""Judging a quote: by what differs, never by how much.

One changed digit or a dropped "not" leaves two sentences more alike than harmless noise does, so no score
decides anything here. Words, quantities and signs are compared one to one and in order. Case, typography,
spacing and what the quote itself marks as edited do not count; an article more or less makes a quote
`partial`; anything else makes it `altered`.

It says whether the words are there. Whether they support what is said with them is not for it to know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from citewire.model import Status
from citewire.verification.match import Hit, Method, Searchable
from citewire.verification.quotes import Piece, Quote, read_quote
from citewire.verification.tokens import NEGATION, Token, TokenKind, tokens
from citewire.verification.views import View, canonical

__all__ = ["Difference", "Finding", "judge"]

# Tokens that must agree for a place to be the one that was meant.
_SAME_PLACE = 0.5
# What an ellipsis may leave out, and brackets may replace, in characters.
_MOST_OMITTED, _MOST_REPLACED = 1000, 60
# Places that are looked at closely.
_MOST_PLACES = 40
# Words beside a quote that are looked at for a negation.
_BESIDE = 3
_EXCEPTIONS = NEGATION | {"but", "however", "only", "provided", "although", "though", "if"}
_RANK: dict[Status, int] = {
    "verified": 0,
    "partial": 1,
    "altered": 2,
    "missed": 3,
    "skipped": 4,
    "pending": 5,
}

DifferenceKind: TypeAlias = TokenKind | Literal["case"]
# What a harmless difference is called among the edits.
_EDITS: dict[DifferenceKind, str] = {"mark": "footnote mark", "word": "spacing"}
# One letter of these is a prefix: a thousandth of it, or a million times it.
_PREFIXED = frozenset({"W", "B", "b", "Hz", "V", "A", "J", "Pa", "g", "s"})
# Words that are something else in capitals.
_WORDS_AND_ACRONYMS = frozenset({"us", "it", "who", "is", "in", "or", "aids", "may", "nice", "care"})


class Difference(Struct, frozen=True, gc=False):
    """What the quote says, and what stands in the source instead; either may be empty."""

    quote: str
    source: str
    kind: DifferenceKind
    harmless: bool = False


class Finding(Struct, frozen=True, gc=False):
    """What became of a quote in one text.

    `start` and `end` are offsets in the text, `found` is what it says there; `edits` are the harmless changes
    of a quote that is there, `warnings` what stands beside it, and `places` how many places are as good.
    """

    status: Status
    reason: str | None = None
    start: int = 0
    end: int = 0
    found: str = ""
    method: Method | None = None
    edits: tuple[str, ...] = ()
    diff: tuple[Difference, ...] = ()
    warnings: tuple[str, ...] = ()
    places: int = 0
    score: float = 0.0

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better."""
        return _RANK[self.status], -self.score


def judge(quote: str, source: Searchable, near: Sequence[tuple[int, int]] = ()) -> Finding:
    """What `quote` is in `source`. Of places that are equally good, one in the ranges of `near` is taken."""
    read = read_quote(quote)
    if not read.pieces or not any(char.isalnum() for piece in read.pieces for char in piece.text):
        return Finding("skipped", "the quote is empty")
    pieces = [canonical(piece.text) for piece in read.pieces]
    findings = list(islice(_findings(read, pieces, source), _MOST_PLACES))
    if not findings:
        return Finding("missed", "these words are not in the source")
    best = min(finding.rank for finding in findings)
    equal = [finding for finding in findings if finding.rank == best]
    chosen = next((one for one in equal if any(a <= one.start < b for a, b in near)), equal[0])
    return replace(chosen, places=len(equal))


def _findings(quote: Quote, pieces: list[View], source: Searchable) -> Iterator[Finding]:
    hits = [source.find(piece.text) for piece in pieces]
    for first in hits[0]:
        placed = _placed(first, quote.pieces, hits)
        if placed is None:
            continue
        finding = _judged(quote, pieces, placed, source)
        if finding is not None:
            yield finding


def _placed(first: Hit, pieces: tuple[Piece, ...], hits: list[list[Hit]]) -> list[Hit] | None:
    """A place for each piece, in order and near enough, or None."""
    placed = [first]
    for piece, found in zip(pieces[1:], hits[1:], strict=True):
        most = _MOST_OMITTED if piece.gap == "text" else _MOST_REPLACED
        end = placed[-1].end
        after = next((hit for hit in found if end <= hit.start <= end + most), None)
        if after is None:
            return None
        placed.append(after)
    return placed


def _judged(quote: Quote, pieces: list[View], placed: list[Hit], source: Searchable) -> Finding | None:
    text = source.view.text
    differences: list[Difference] = []
    agreed = total = 0
    spans: list[tuple[int, int]] = []
    for piece, view, hit in zip(quote.pieces, pieces, placed, strict=True):
        ours, theirs = tokens(view.text), _tokens_at(text, hit)
        if not theirs or not ours:
            return None
        spans.append((theirs[0].start, theirs[-1].end))
        found, same = _compared(ours, theirs, view, piece.text, source)
        differences += found
        agreed, total = agreed + same, total + len(ours)
    if agreed < total * _SAME_PLACE:
        return None
    omitted, inside = _gaps(quote.pieces, spans, text)
    differences += inside
    start, end = source.view.to_source(spans[0][0], spans[-1][1])
    warnings = [*omitted, *_beside(text, spans[0][0], spans[-1][1])]
    edits: list[str] = list(quote.edits)
    said = " ".join(piece.text for piece in quote.pieces)
    if not any(not each.harmless for each in differences) and not quote.edits:
        edits += _typography(said, source.text[start:end])
    harmless = {_EDITS.get(each.kind, each.kind) for each in differences if each.harmless}
    edits += sorted(harmless - set(edits))
    return Finding(
        _status(differences, bool(omitted)),
        _reason(differences, omitted),
        start,
        end,
        source.view.spelled(source.text, spans[0][0], spans[-1][1]),
        placed[0].method,
        tuple(edits),
        tuple(each for each in differences if not each.harmless),
        tuple(warnings),
        score=agreed / total,
    )


def _status(differences: list[Difference], omitted: bool) -> Status:
    real = [each for each in differences if not each.harmless]
    if any(each.kind != "article" for each in real):
        return "altered"
    return "partial" if real or omitted else "verified"


def _reason(differences: list[Difference], omitted: list[str]) -> str | None:
    real = [each for each in differences if not each.harmless]
    if not real:
        return omitted[0] if omitted else None
    worst = next((each for each in real if each.kind != "article"), real[0])
    return f"{worst.kind}: {worst.quote or 'nothing'} for {worst.source or 'nothing'}"


def _tokens_at(text: str, hit: Hit) -> list[Token]:
    """The whole tokens of the text that a hit touches."""
    first, last = max(0, hit.start - 80), min(len(text), hit.end + 80)
    while first > 0 and not text[first].isspace():
        first -= 1
    while last < len(text) and not text[last].isspace():
        last += 1
    found = (
        replace(token, start=token.start + first, end=token.end + first) for token in tokens(text[first:last])
    )
    return [token for token in found if token.start < hit.end and token.end > hit.start]


def _compared(
    ours: list[Token], theirs: list[Token], view: View, said: str, source: Searchable
) -> tuple[list[Difference], int]:
    """The differences between two lists of tokens, and how many agree."""
    differences: list[Difference] = []
    same = 0
    there = source.text[slice(*source.view.to_source(theirs[0].start, theirs[-1].end))]
    spelled = not (_is_loud(said) or _is_loud(there))
    matcher = SequenceMatcher(None, [one.key for one in ours], [one.key for one in theirs], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            same += b - a
            for one, other in zip(ours[a:b], theirs[c:d], strict=True):
                raw = said[slice(*view.to_source(one.start, one.end))]
                there = source.text[slice(*source.view.to_source(other.start, other.end))]
                if spelled and _case_matters(raw, there):
                    differences.append(Difference(raw, there, "case"))
        else:
            differences.append(_difference(ours[a:b], theirs[c:d], view.text, source.view.text))
    return differences, same


def _difference(ours: list[Token], theirs: list[Token], said: str, text: str) -> Difference:
    quote = said[ours[0].start : ours[-1].end] if ours else ""
    there = text[theirs[0].start : theirs[-1].end] if theirs else ""
    both = [*ours, *theirs]
    if all(token.kind == "mark" for token in both) or (not ours and _is_reference(theirs, text)):
        return Difference(quote, there, "mark", harmless=True)
    if all(token.kind in ("word", "article") for token in both) and _letters(ours) == _letters(theirs):
        return Difference(quote, there, "word", harmless=True)
    if all(token.kind == "article" for token in both):
        return Difference(quote, there, "article")
    kinds: list[DifferenceKind] = [
        token.kind for token in both if token.kind not in ("word", "article", "mark")
    ]
    return Difference(quote, there, kinds[0] if kinds else "word")


def _is_reference(found: list[Token], text: str) -> bool:
    """Whether tokens of the source are only the mark of a reference, like [3] or [ZF14]."""
    start, end = found[0].start, found[-1].end
    enclosed = text[start - 1 : start] == "[" and text[end : end + 1] == "]"
    return enclosed and all(token.kind in ("number", "identifier") for token in found)


def _letters(found: list[Token]) -> str:
    return "".join(token.key for token in found).replace("'", "")


def _is_loud(text: str) -> bool:
    """Whether a text is in capitals throughout, as headings are: case says nothing there."""
    letters = [char for char in text if char.isalpha()]
    return sum(map(str.isupper, letters)) > len(letters) * 0.7


def _case_matters(quote: str, source: str) -> bool:
    """Whether two spellings that differ in case are two things: US and us, MW and mW."""
    if quote == source or not quote.isalpha() or quote.casefold() != source.casefold():
        return False
    if quote[1:] == source[1:]:  # only the first letter: a sentence starts there, or a unit has a prefix
        return quote[1:] in _PREFIXED and quote[0] in "mM"
    return quote.isupper() != source.isupper() and quote.casefold() in _WORDS_AND_ACRONYMS


def _gaps(
    pieces: tuple[Piece, ...], spans: list[tuple[int, int]], text: str
) -> tuple[list[str], list[Difference]]:
    """What stands in the source between the pieces: a warning where it turns the meaning, a difference
    where brackets say something else."""
    warnings: list[str] = []
    differences: list[Difference] = []
    for piece, (_, end), (start, _) in zip(pieces[1:], spans, spans[1:], strict=False):
        there = tokens(text[end:start])
        turning = [token for token in there if token.kind == "negation" or token.key in _EXCEPTIONS]
        if turning:
            warnings.append(f"what is left out says {text[end + turning[0].start : end + turning[0].end]!r}")
        put_in = [
            token for token in tokens(canonical(piece.inserted).text) if token.kind in ("negation", "number")
        ]
        known = {token.key for token in there}
        differences += [
            Difference(token.key, text[end:start].strip(), token.kind)
            for token in put_in
            if token.key not in known
        ]
    return warnings, differences


def _beside(text: str, start: int, end: int) -> list[str]:
    """Warnings where a negation or an exception stands right beside the quote, in the same sentence."""
    before = text[max(0, start - 60) : start]
    sentence = max(before.rfind(mark) for mark in ".!?;:") + 1
    near = tokens(before[sentence:])[-_BESIDE:]
    warnings = [f"{token.key!r} stands right before it" for token in near if token.kind == "negation"]
    after = text[end : end + 60]
    stops = [at for mark in ".!?;" if (at := after.find(mark)) >= 0]
    follows = tokens(after[: min(stops)] if stops else after)[:_BESIDE]
    return warnings + [f"it goes on with {token.key!r}" for token in follows if token.key in _EXCEPTIONS]


def _typography(quote: str, source: str) -> list[str]:
    """The kinds of harmless change between two spellings of the same words."""
    if quote.split() == source.split():
        return []
    if quote.casefold().split() == source.casefold().split():
        return ["case"]
    return ["typography"]
