"""Judge a quote by what differs, never by how much.

One changed digit or a dropped "not" leaves two sentences more similar than harmless noise does, so no score
decides anything here. Words, quantities and signs are compared one to one and in order. Case, typography,
spacing and edits that the quote itself marks do not count; an added or missing article makes a quote
`partial`; any other difference makes it `altered`.

The verdict says whether the words are there, not whether they support the claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from citewire.model import Status
from citewire.verification.match import Hit, Method, SearchableText
from citewire.verification.quotes import Gap, ParsedQuote, Piece, parse_quote
from citewire.verification.spelling import (
    case_matters,
    differs_in_spacing,
    differs_in_superscript,
    is_all_caps,
    typographic_edits,
    with_superscript,
)
from citewire.verification.text_views import TextView, canonical_view
from citewire.verification.tokens import ARTICLE, NEGATION, TextToken, TokenKind, tokenize, word_set
from citewire.verification.word_alignment import align_words

__all__ = ["Difference", "Finding", "choose_best", "find_and_judge", "judge_quote"]

# More than this share of the tokens must agree for a place to count as the quoted one.
_SAME_PLACE = 0.5
# Most characters that an ellipsis may leave out, and brackets may replace.
_REACH: dict[Gap, int] = {"none": 0, "words": 60, "text": 1000}
# Most words that brackets may insert or replace: enough to say who or what is meant.
_MOST_INSERTED = 4
# Limits on places compared closely, and on their characters: a long repeated text is compared in few places.
_MOST_PLACES, _MOST_COMPARED = 40, 1_000_000
# Words before and after a quote that are checked for a negation.
_BESIDE = 3
_EXCEPTIONS = NEGATION | word_set("but however only provided although though if aber mais pero")
_RANK: dict[Status, int] = {
    "verified": 0,
    "partial": 1,
    "altered": 2,
    "missed": 3,
    "skipped": 4,
    "pending": 5,
}

DifferenceKind: TypeAlias = TokenKind | Literal["case"]
# Names of harmless differences in the list of edits.
_EDITS: dict[DifferenceKind, str] = {"mark": "footnote mark", "word": "spacing", "identifier": "typography"}
# Text touching the edge of a quote that belongs to the word or number there: the quote cuts it in two.
_CUT_BEFORE = re.compile(r"(?:\b(?:non|un|not|anti|pseudo|quasi|ex)-|[不没沒未無无非]|ไม่)$")
_CUT_AFTER = re.compile(r"-(?:free|less|proof)\b|ない|なかっ|なけれ|ません|ずに")
_NUMBER_BEFORE = re.compile(r"(?:\d ?[-/] ?|[<>≤≥±~≈] ?)$")
_NAME_AFTER = re.compile(r"[+#]+(?!\w)")  # C++ is not C
# The start of a range of hours or days keeps its meaning without the end.
_MOMENT = re.compile(r"\d:\d\d$|\d[./]\d+[./]\d+$")
_NUMBER_AFTER = re.compile(r" ?[-/] ?\d|\+|[¼-¾⅐-⅞]")
# Negations in scripts without spaces, in omitted or adjacent text.
_UNSPACED_NEGATION = re.compile(r"ない|なかっ|ません|않|없|못|아니|ไม่")
# Words that brackets may insert or remove: they refer to something named before.
_POINTING = word_set(
    """
    i me my we us our you your he him his she her it its they them their this these those who which what there
    here is are was were be been being has have had do does did of to in on at by for from with as also then
    so such company firm group agency court plaintiff defendant author authors
    """
)


class Difference(Struct, frozen=True, gc=False):
    """What the quote says, and what the source says instead; either may be empty."""

    quote: str
    source: str
    kind: DifferenceKind
    harmless: bool = False


class Finding(Struct, frozen=True, gc=False):
    """The verdict on a quote in one text.

    `start` and `end` are offsets in the text, `ranges` the parts between them without what the quote leaves
    out, and `found` is the text there. `edits` are harmless changes, `warnings` name suspicious words next to
    the quote, and `places` counts the equally good places.
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
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def rank(self) -> tuple[int, float]:
        """Sort key; smaller is better."""
        return _RANK[self.status], -self.score

    @property
    def is_perfect(self) -> bool:
        """Return whether no other place can be better."""
        return self.status == "verified" and self.score >= 1


def judge_quote(quote: str, source: SearchableText) -> Finding:
    """Judge `quote` at its best place in `source`."""
    return choose_best(find_and_judge(quote, source))


def find_and_judge(quote: str, source: SearchableText, *, thorough: bool = True) -> list[Finding]:
    """Judge `quote` at each place of `source` where it may be.

    Without `thorough`, only the gram index is used to find places.
    """
    read = parse_quote(quote)
    if not read.pieces:
        return [Finding("skipped", "the quote is empty")]
    most = min(_MOST_PLACES, 1 + _MOST_COMPARED // (len(quote) + _REACH["text"] * len(read.pieces)))
    found = list(islice(_find_verbatim(quote, source), most)) if read.edits else []
    if not any(finding.is_perfect for finding in found):
        found += islice(_findings(read, source, thorough), most)
    if not found and read.edits:
        # Brackets and dots may be part of the source.
        found += islice(_findings(ParsedQuote((Piece(quote),)), source, thorough=False), most)
    return found


def choose_best(found: Sequence[Finding], distance: Callable[[Finding], Any] = lambda _: 0) -> Finding:
    """Return the best finding; among equally good ones, the first with the least `distance`."""
    if not found:
        return Finding("missed", "these words are not in the source")
    rank = min(finding.rank for finding in found)
    equal = [finding for finding in found if finding.rank == rank]
    return replace(min(equal, key=distance), places=len({(one.start, one.end) for one in equal}))


def _find_verbatim(quote: str, source: SearchableText) -> Iterator[Finding]:
    """Find a quote verbatim, with its brackets or with their content only."""
    whole = [ParsedQuote((Piece(quote),))]
    if "[" in quote:
        whole.append(ParsedQuote((Piece(re.sub(r"[\[\]]", "", quote)),), ("brackets",)))
    for each in whole:
        said = _TokenizedPiece.from_piece(each.pieces[0])
        for hit in source.find_exactly(said.view.text):
            if finding := _judge_at(each, [said], [hit], source):
                yield finding


def _findings(quote: ParsedQuote, source: SearchableText, thorough: bool) -> Iterator[Finding]:
    """Judge the quote at each place of its longest piece, with the other pieces around it."""
    said = [_TokenizedPiece.from_piece(piece) for piece in quote.pieces]
    longest = max(range(len(said)), key=lambda at: len(said[at].view.text))
    for hit in source.find(said[longest].view.text, thorough):
        placed = _place_pieces(quote, said, longest, hit, source.view.text)
        if placed is not None and (finding := _judge_at(quote, said, placed, source)):
            yield finding


def _place_pieces(
    quote: ParsedQuote, said: list[_TokenizedPiece], longest: int, hit: Hit, text: str
) -> list[Hit] | None:
    """Find a place for each piece, in order and close enough; None if there is none."""
    placed = [hit]
    for at in range(longest - 1, -1, -1):
        end, words = placed[0].start, said[at].view.text
        found = _find_within(text, end - _REACH[quote.pieces[at + 1].gap] - 2 * len(words), end, words)
        if not found:
            return None
        placed.insert(0, found[-1])
    for at in range(longest + 1, len(said)):
        start, words = placed[-1].end, said[at].view.text
        found = _find_within(text, start, start + _REACH[quote.pieces[at].gap] + 2 * len(words), words)
        if not found:
            return None
        placed.append(found[0])
    return placed


def _find_within(text: str, start: int, end: int, words: str) -> list[Hit]:
    """Find words in a range of a text; the nearest ones, even if they occur everywhere."""
    start, end = max(0, start), min(len(text), end)
    stretch = SearchableText(text[start:end])
    spans = ((hit, *stretch.view.to_source(hit.start, hit.end)) for hit in stretch.find(words))
    return [replace(hit, start=first + start, end=last + start) for hit, first, last in spans]


def _judge_at(
    quote: ParsedQuote, said: list[_TokenizedPiece], placed: list[Hit], source: SearchableText
) -> Finding | None:
    text = source.view.text
    differences: list[Difference] = []
    agreed = total = 0
    spans: list[tuple[int, int]] = []
    for piece, hit in zip(said, placed, strict=True):
        theirs = _tokens_at(text, hit)
        if not theirs or not piece.tokens:
            return None
        compared = _PieceComparison(piece, source)
        compared.compare(piece.tokens, theirs)
        if compared.end <= compared.start:
            return None
        spans.append((compared.start, compared.end))
        differences += compared.differences
        agreed, total = agreed + compared.same, total + len(piece.tokens)
    if agreed <= total * _SAME_PLACE:
        return None
    first, last = spans[0][0], spans[-1][1]
    omitted, inside = _gaps(quote, spans, text)
    differences += [*inside, *_find_cut_words(text, first, last)]
    start, end = source.view.to_source(first, last)
    warnings = [*omitted, *_warn_of_neighbours(text, first, last)]
    edits: list[str] = list(quote.edits)
    if not any(not each.harmless for each in differences) and not quote.edits:
        edits += typographic_edits(quote.pieces[0].text, source.text[start:end])
    harmless = {_EDITS.get(each.kind, each.kind) for each in differences if each.harmless}
    edits += sorted(harmless - set(edits))
    return Finding(
        _decide_status(differences, bool(omitted)),
        _describe_difference(differences, omitted),
        start,
        end,
        source.view.source_spelling(source.text, first, last),
        placed[0].method,
        tuple(edits),
        tuple(each for each in differences if not each.harmless),
        tuple(warnings),
        score=agreed / total,
        ranges=tuple(source.view.to_source(*span) for span in _merge_spans(quote, spans)),
    )


def _merge_spans(quote: ParsedQuote, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans of the pieces, merged unless an ellipsis separates them."""
    made = spans[:1]
    for piece, (start, end) in zip(quote.pieces[1:], spans[1:], strict=True):
        made.append((start, end) if piece.gap == "text" else (made.pop()[0], end))
    return made


def _decide_status(differences: list[Difference], omitted: bool) -> Status:
    real = [each for each in differences if not each.harmless]
    # An article missing in one place and added in another has moved.
    moved = any(each.quote for each in real) and any(each.source for each in real)
    if moved or any(each.kind != "article" for each in real):
        return "altered"
    return "partial" if real or omitted else "verified"


def _describe_difference(differences: list[Difference], omitted: list[str]) -> str | None:
    real = [each for each in differences if not each.harmless]
    if not real:
        return omitted[0] if omitted else None
    worst = next((each for each in real if each.kind != "article"), real[0])
    return f"{worst.kind}: {worst.quote or 'nothing'} for {worst.source or 'nothing'}"


def _tokens_at(text: str, hit: Hit) -> list[TextToken]:
    """Return the whole tokens of the text that a hit touches."""
    first, last = max(0, hit.start - 80), min(len(text), hit.end + 80)
    if text[hit.start].isalpha() and text[hit.start - 1 : hit.start] in ("", " "):
        first = hit.start  # `dollars a year` is in `5 dollars a year`, though `5` is not in `5 million`
    while 0 < first < hit.start and not text[first].isspace():
        first -= 1
    while last < len(text) and not text[last].isspace():
        last += 1
    found = (
        replace(token, start=token.start + first, end=token.end + first)
        for token in tokenize(text[first:last])
    )
    return [token for token in found if token.start < hit.end and token.end > hit.start]


class _TokenizedPiece(NamedTuple):
    """A piece of a quote, its canonical view, and its tokens."""

    text: str
    view: TextView
    tokens: list[TextToken]

    @classmethod
    def from_piece(cls, piece: Piece) -> _TokenizedPiece:
        view = canonical_view(piece.text)
        return cls(piece.text, view, tokenize(view.text))


class _PieceComparison:
    """Compares a piece of a quote with the source: differences, matching tokens, and range."""

    def __init__(self, said: _TokenizedPiece, source: SearchableText) -> None:
        self._view = said.view
        self._said = said.text
        self._source = source
        self.differences: list[Difference] = []
        self.same = self.start = self.end = 0

    def compare(self, ours: list[TextToken], theirs: list[TextToken]) -> None:
        steps = align_words([one.key for one in ours], [one.key for one in theirs])
        # Extra source tokens at the ends are not part of the quote, unless they are half of a token there.
        if steps[0].a == steps[0].b and _are_apart(theirs, steps[0].d):
            del steps[0]
        if steps and steps[-1].a == steps[-1].b and _are_apart(theirs, steps[-1].c):
            del steps[-1]
        if not steps or steps[0].c == steps[-1].d:
            return
        self.start, self.end = theirs[steps[0].c].start, theirs[steps[-1].d - 1].end
        spelled = not (is_all_caps(self._said) or is_all_caps(self._there(self.start, self.end)))
        for same, a, b, c, d in steps:
            if not same:
                self._differ(ours, theirs, (a, b, c, d))
                continue
            self.same += b - a
            for at in range(b - a) if spelled else ():
                self._case(ours[a + at], theirs[c + at], ours[a + at - 1].kind if a + at else "word")

    def _ours(self, token: TextToken) -> str:
        return self._said[slice(*self._view.to_source(token.start, token.end))]

    def _there(self, start: int, end: int) -> str:
        return self._source.text[slice(*self._source.view.to_source(start, end))]

    def _case(self, one: TextToken, other: TextToken, before: TokenKind) -> None:
        said, there = self._ours(one), self._there(other.start, other.end)
        if said != there and case_matters(said, there, before == "number"):
            self.differences.append(Difference(said, there, "case"))

    def _differ(self, ours: list[TextToken], theirs: list[TextToken], at: tuple[int, int, int, int]) -> None:
        a, b, c, d = at
        said, text = self._view.text, self._source.view.text
        quote = said[ours[a].start : ours[b - 1].end] if b > a else ""
        there = text[theirs[c].start : theirs[d - 1].end] if d > c else ""
        both = [*ours[a:b], *theirs[c:d]]
        if a == b and _is_reference(theirs[c:d], text):
            self.differences.append(Difference(quote, there, "mark", harmless=True))
        elif differs_in_spacing(quote, there, both):
            self.differences.append(Difference(quote, there, "word", harmless=True))
            self.same += b - a
        elif (
            b > a
            and d > c
            and differs_in_superscript(with_superscript(said, ours[a:b]), with_superscript(text, theirs[c:d]))
        ):
            self.differences.append(Difference(quote, there, "identifier", harmless=True))
            self.same += b - a
        else:
            kind = _kind(both)
            spelled = self._ours(ours[a]) if b > a else self._there(theirs[c].start, theirs[c].end)
            beside = [*ours[max(0, a - 1) : a], *ours[b : b + 1]]
            idle = (
                kind == "article"
                and spelled != "A"
                and _is_optional_article(both[0], beside, ours[b : b + 1])
            )
            self.differences.append(
                Difference(quote, there, "word" if kind == "article" and not idle else kind)
            )


def _are_apart(found: list[TextToken], at: int) -> bool:
    """Return whether the tokens around `at` are separate words, unlike `can` and `not` of `cannot`."""
    return at in (0, len(found)) or found[at - 1].end <= found[at].start


def _kind(both: list[TextToken]) -> DifferenceKind:
    if len(both) == 1 and both[0].kind == "article":
        return "article"
    critical: list[DifferenceKind] = [each.kind for each in both if each.kind not in ("word", "article")]
    return critical[0] if critical else "word"


def _is_optional_article(article: TextToken, beside: list[TextToken], after: list[TextToken]) -> bool:
    """Return whether an article may be added or dropped: not in `a few` and `the the`."""
    return article.key not in {one.key for one in beside} and all(one.kind == "word" for one in after)


def _is_reference(found: list[TextToken], text: str) -> bool:
    """Return whether tokens of the source are only a reference mark, such as [3] or [ZF14]."""
    start, end = found[0].start, found[-1].end
    enclosed = text[start - 1 : start] == "[" and text[end : end + 1] == "]"
    return enclosed and all(token.kind in ("number", "identifier") for token in found)


def _gaps(quote: ParsedQuote, spans: list[tuple[int, int]], text: str) -> tuple[list[str], list[Difference]]:
    """Check the source text between pieces: warn if it reverses the meaning, and report a difference
    if brackets say something else."""
    warnings: list[str] = []
    first, last = spans[0][0], spans[-1][1]
    differences = _compare_insertion(quote.pieces[0].inserted, _before(text, first), False)
    differences += _compare_insertion(quote.inserted, _after(text, last), False)
    for piece, (_, end), (start, _) in zip(quote.pieces[1:], spans, spans[1:], strict=False):
        left_out = text[end:start]
        turning = _find_reversing_word(left_out)
        if turning and (piece.gap == "text" or not piece.inserted):
            warnings.append(f"what is left out says {turning!r}")
        differences += _compare_insertion(piece.inserted, left_out, piece.gap == "words")
    return warnings, differences


def _find_reversing_word(text: str) -> str | None:
    """Return the first word that may reverse the meaning of a sentence, or None."""
    unspaced = _UNSPACED_NEGATION.search(text)
    words = (token for token in tokenize(text) if token.kind == "negation" or token.key in _EXCEPTIONS)
    turning = next(words, None)
    return text[turning.start : turning.end] if turning else unspaced and unspaced[0]


def _compare_insertion(inserted: str, there: str, replaces: bool) -> list[Difference]:
    """Return differences if bracketed words add anything except who or what is meant."""
    if not inserted:
        return []
    put, found = tokenize(canonical_view(inserted).text), tokenize(there)
    if replaces and there.strip().startswith("["):  # the brackets are in the source
        same = [one.key for one in put] == [one.key for one in found]
        return [] if same else [Difference(inserted, there.strip(), "word")]
    new, gone = _tokens_missing_from(put, found), _tokens_missing_from(found, put) if replaces else []
    for token in (*new, *gone):
        if token.kind not in ("word", "article"):
            return [Difference(inserted, there.strip(), token.kind)]
    names, named = ([each for each in some if each.key not in _POINTING | ARTICLE] for some in (new, gone))
    if max(len(new), len(gone)) > _MOST_INSERTED or (names and named):
        return [Difference(inserted, there.strip(), "word")]
    return []


def _tokens_missing_from(some: list[TextToken], others: list[TextToken]) -> list[TextToken]:
    """Return the tokens not among the others, not even in another form: increased for increases."""
    stems = {token.key[:4] if token.kind == "word" and len(token.key) > 4 else token.key for token in others}
    return [
        token
        for token in some
        if token.key not in stems
        and not (token.kind == "word" and len(token.key) > 4 and token.key[:4] in stems)
    ]


def _find_cut_words(text: str, start: int, end: int) -> list[Difference]:
    """Find differences where the quote is cut inside a word that reverses it, or a range of numbers."""
    before, after = text[max(0, start - 8) : start], text[end : end + 8]
    cut: list[tuple[DifferenceKind, re.Match[str] | None]]
    cut = [("negation", _CUT_BEFORE.search(before)), ("negation", _CUT_AFTER.match(after))]
    cut.append(("sign", _NAME_AFTER.match(after)))
    if text[start].isdigit() and not _MOMENT.search(before.rstrip(" -")):
        cut.append(("number", _NUMBER_BEFORE.search(before)))
    if text[end - 1].isdigit() and not _MOMENT.search(text, max(0, end - 12), end):
        cut.append(("number", _NUMBER_AFTER.match(after)))
    return [Difference("", found[0].strip(), kind) for kind, found in cut if found]


def _warn_of_neighbours(text: str, start: int, end: int) -> list[str]:
    """Warn of a negation or exception just before or after the quote, in the same sentence."""
    near, after = tokenize(_before(text, start))[-_BESIDE:], _after(text, end)
    warnings = [f"{token.key!r} stands right before it" for token in near if token.kind == "negation"]
    follows = [token.key for token in tokenize(after)[:_BESIDE] if token.key in _EXCEPTIONS]
    follows += [found[0] for found in _UNSPACED_NEGATION.finditer(after[:12])]
    return warnings + [f"it goes on with {word!r}" for word in follows]


def _before(text: str, at: int) -> str:
    """Return the text before an offset in the same sentence, at most 60 characters."""
    return re.split(r"[.!?;:。](?!\w)", text[max(0, at - 60) : at])[-1]


def _after(text: str, at: int) -> str:
    return re.split(r"[.!?;。](?!\w)", text[at : at + 60])[0]
