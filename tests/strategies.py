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
    SourceRef,
    Span,
    Times,
    Verification,
)

# Letters of one to four bytes, combining marks, emoji, spaces and sentence ends; no brackets, because
# text that looks like a marker is one to a dialect of markers (and has tests of its own).
ALPHABET = "ab é\u0301中😀𝒳.,!?\n- \"'"
texts = st.text(ALPHABET, max_size=40)
words = st.text("abcXYZ 019é中😀.-_/", min_size=1, max_size=12)
any_text = st.text(max_size=60)

small = st.integers(0, 9)
ranges = st.tuples(small, small).map(lambda pair: (min(pair), max(pair)))
locators: st.SearchStrategy[Locator] = st.one_of(
    ranges.map(lambda pair: Chars(*pair)),
    ranges.map(lambda pair: Pages(pair[0] + 1, pair[1] + 1)),
    ranges.map(lambda pair: Blocks(*pair)),
    st.builds(Lines, st.lists(small, max_size=3).map(tuple), st.none() | st.integers(1, 9)),
    st.builds(Times, st.none() | words, st.none() | words),
    st.builds(Chunk, words),
    st.builds(Opaque, words),
)
verdicts = st.builds(
    Verification,
    st.sampled_from(["verified", "partial", "altered", "missed", "pending", "skipped"]),
    st.none() | words,
    st.none() | words,
    st.none() | st.integers(1, 9),
)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | any_text
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def sources(draw: st.DrawFn, name: str) -> Source:
    return Source(
        name,
        draw(st.sampled_from(["web", "document", "file", "record", "tool", "unknown"])),
        draw(st.none() | words.map(lambda word: f"https://x.example/{word}")),
        draw(st.none() | words),
        draw(st.none() | words),
        draw(st.none() | words),
        draw(st.none() | words),
        draw(st.none() | small),
        draw(st.none() | words),
        draw(st.none() | words),
        draw(
            st.builds(dict[str, str])
            | st.just({"container_id": "c"})
            | st.dictionaries(words, words, max_size=2)
        ),
    )


def spans(parts: tuple[Part, ...], *, empty: bool = True) -> st.SearchStrategy[Span]:
    def within(part: int) -> st.SearchStrategy[Span]:
        length = len(parts[part].text)
        edges = st.tuples(st.integers(0, length), st.integers(0, length)).map(sorted)
        found = edges.map(lambda pair: Span(part, pair[0], pair[1]))
        return found if empty else found.filter(lambda span: span.start < span.end)

    usable = [number for number, part in enumerate(parts) if empty or part.text]
    return st.sampled_from(usable).flatmap(within) if usable else st.nothing()


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Any answer: parts, overlapping claims, several sources, every kind of place and locator."""
    parts = tuple(map(Part, draw(st.lists(texts, min_size=0, max_size=3))))
    names = draw(st.lists(st.sampled_from(["s1", "s2", "s3", "doc"]), min_size=1, max_size=3, unique=True))
    register = tuple(draw(sources(name)) for name in names)
    ids = draw(st.lists(st.sampled_from(["c1", "c2", "c3", "ref-1", "k"]), max_size=4, unique=True))
    return Answer(
        parts,
        tuple(draw(citations(name, parts, names)) for name in ids),
        register,
        draw(st.none() | words),
    )


@st.composite
def citations(draw: st.DrawFn, name: str, parts: tuple[Part, ...], names: list[str]) -> Citation:
    refs = draw(st.lists(refs_to(names), min_size=0 if draw(st.booleans()) else 1, max_size=2))
    claim = draw(st.none() | spans(parts)) if parts else None
    marker = draw(st.none() | spans(parts, empty=False)) if any(part.text for part in parts) else None
    if marker and not _could_be_marker(parts[marker.part].text[marker.start : marker.end]):
        marker = None
    point = draw(st.none() | spans(parts).map(lambda span: Point(span.part, span.start))) if parts else None
    return Citation(
        name,
        tuple(refs),
        draw(st.none() | st.integers(1, 9)),
        claim,
        marker,
        point,
        draw(st.sampled_from(["exact", "block", "derived", "repaired", "unknown"])),
        draw(st.none() | verdicts),
    )


def _could_be_marker(text: str) -> bool:
    """No marker starts or ends with the white space around it."""
    return text.strip() == text


@st.composite
def refs_to(draw: st.DrawFn, names: list[str]) -> SourceRef:
    return SourceRef(
        draw(st.sampled_from(names)),
        draw(st.none() | locators),
        draw(st.none() | words),
        draw(st.none() | words),
        draw(st.none() | st.floats(0, 1)),
    )
