"""Answers, texts and JSON that nobody would think of."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from citewire.model import (
    Answer,
    Blocks,
    Chars,
    Chunk,
    Citation,
    Lines,
    Locator,
    Opaque,
    Pages,
    Part,
    Point,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
    Times,
    Verification,
)

# Letters of one to four bytes, combining marks, emoji, spaces and sentence ends; no brackets, because
# text that looks like a marker is one to a dialect of markers (and has tests of its own).
ALPHABET = "ab é\u0301中😀𝒳.,!?\n- \"'"
texts = st.text(ALPHABET, max_size=40)
words = st.text("abcXYZ 019é中😀.-_/", min_size=1, max_size=12)
any_text = st.text(max_size=60)

# Made once: to make a strategy takes longer than to draw from it.
small = st.integers(0, 9)
maybe_word = st.none() | words
maybe_number = st.none() | st.integers(1, 9)
ranges = st.tuples(small, small).map(lambda pair: (min(pair), max(pair)))
locators: st.SearchStrategy[Locator] = st.one_of(
    ranges.map(lambda pair: Chars(*pair)),
    ranges.map(lambda pair: Pages(pair[0] + 1, pair[1] + 1)),
    ranges.map(lambda pair: Blocks(*pair)),
    st.builds(Lines, st.lists(small, max_size=3).map(tuple), maybe_number),
    st.builds(Times, maybe_word, maybe_word),
    st.builds(Chunk, words),
    st.builds(Opaque, words),
)
verdicts = st.builds(
    Verification,
    st.sampled_from(["verified", "partial", "altered", "missed", "pending", "skipped"]),
    maybe_word,
    maybe_word,
    maybe_number,
)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | any_text
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


kinds: st.SearchStrategy[SourceKind] = st.sampled_from(
    ["web", "document", "file", "record", "tool", "unknown"]
)
urls = st.none() | words.map(lambda word: f"https://x.example/{word}")
records = (
    st.builds(dict[str, str]) | st.just({"container_id": "c"}) | st.dictionaries(words, words, max_size=2)
)
maybe_small = st.none() | small
maybe_locator = st.none() | locators
maybe_score = st.none() | st.floats(0, 1)
maybe_verdict = st.none() | verdicts
# Of the sources of a citation; it is seldom that there is none.
counts = st.sampled_from([1, 2, 0, 1, 2])
origins: st.SearchStrategy[SpanOrigin] = st.sampled_from(["exact", "block", "derived", "repaired", "unknown"])
source_names = st.lists(st.sampled_from(["s1", "s2", "s3", "doc"]), min_size=1, max_size=3, unique=True)
citation_names = st.lists(st.sampled_from(["c1", "c2", "c3", "ref-1", "k"]), max_size=4, unique=True)


def _source(draw: st.DrawFn, name: str) -> Source:
    return Source(
        name,
        draw(kinds),
        draw(urls),
        draw(maybe_word),
        draw(maybe_word),
        draw(maybe_word),
        draw(maybe_word),
        draw(maybe_small),
        draw(maybe_word),
        draw(maybe_word),
        draw(records),
    )


def _span(draw: st.DrawFn, parts: tuple[Part, ...], least: int = 0) -> Span | None:
    """So many characters of a part or more, or None."""
    if not parts or draw(st.booleans()):
        return None
    part = draw(st.integers(0, len(parts) - 1))
    length = len(parts[part].text)
    if length < least:
        return None
    start = draw(st.integers(0, length - least))
    return Span(part, start, draw(st.integers(start + least, length)))


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Any answer: parts, overlapping claims, several sources, every kind of place and locator."""
    parts = tuple(map(Part, draw(st.lists(texts, min_size=0, max_size=3))))
    names = draw(source_names)
    register = tuple(_source(draw, name) for name in names)
    ids = draw(citation_names)
    return Answer(
        parts, tuple(_citation(draw, name, parts, names) for name in ids), register, draw(maybe_word)
    )


def _citation(draw: st.DrawFn, name: str, parts: tuple[Part, ...], names: list[str]) -> Citation:
    refs = tuple(_ref(draw, names) for _ in range(draw(counts)))
    point = _span(draw, parts)
    marker = _span(draw, parts, least=1)
    return Citation(
        name,
        refs,
        draw(maybe_number),
        _span(draw, parts),
        marker if marker and _could_be_marker(parts[marker.part].text[marker.start : marker.end]) else None,
        Point(point.part, point.start) if point else None,
        draw(origins),
        draw(maybe_verdict),
    )


def _could_be_marker(text: str) -> bool:
    """No marker starts or ends with the white space around it."""
    return text.strip() == text


def _ref(draw: st.DrawFn, names: list[str]) -> SourceRef:
    return SourceRef(
        draw(st.sampled_from(names)),
        draw(maybe_locator),
        draw(maybe_word),
        draw(maybe_word),
        draw(maybe_score),
    )
