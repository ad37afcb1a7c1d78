"""Keys: the published ones to the letter, and no two citations of a thread under the same one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.keys import CitationKeys, key, key_v2
from citewire.model import Lines, Locator, Pages, Source, SourceRef, Times
from support.strategies import any_text, locators

DOCUMENT = Source("s1", "document", file_id="att_A")
PAGE = Source("s1", "web", url="https://example.com", title="T", domain="example.com")
QUOTE, ANCHOR = "Revenue grew 45%", "45%"
TIMES = Times("00:00:01.000", "00:00:02.000")


def ref(quote: str | None = QUOTE, anchor: str | None = ANCHOR, locator: Locator | None = None) -> SourceRef:
    return SourceRef("s1", locator, quote, anchor)


@pytest.mark.parametrize(
    ("cited", "source", "published"),
    [
        (ref(locator=Lines((12, 13), 2)), DOCUMENT, "92296a0e8c688c3b"),
        (ref(), PAGE, "afbd48aae90fa6fa"),
        (ref(locator=TIMES), Source("s1", "file", file_id="vid1"), "f3f3ad61ea0a4249"),
        (ref(None, None), DOCUMENT, "98c4b7d37a4c63c3"),
    ],
)
def test_published_keys(cited: SourceRef, source: Source, published: str) -> None:
    assert key(cited, source) == published


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ref(locator=Pages(2, 2)), ref(locator=Lines((), 2))),
        (ref(locator=Pages(2, 5)), ref(locator=Pages(2, 2))),
        (ref("a", ""), ref("a", None)),
    ],
)
def test_the_same_to_v1(one: SourceRef, other: SourceRef) -> None:
    assert key(one, DOCUMENT) == key(other, DOCUMENT)


@pytest.mark.parametrize(
    "other",
    [
        ref("Revenue grew 45% "),
        ref("revenue grew 45%"),
        ref(anchor="5%"),
        ref(locator=Pages(1, 1)),
        ref(locator=Lines((1,))),
        ref(locator=Lines((1, 2))),
        ref(locator=Lines((2, 1))),
        ref("Revenue grew 45\uff05"),
    ],
)
def test_nothing_is_normalised(other: SourceRef) -> None:
    assert key(other, DOCUMENT) != key(ref(), DOCUMENT)
    assert key_v2(other, DOCUMENT) != key_v2(ref(), DOCUMENT)


A_B, B_C = ref("a|b", "c"), ref("a", "b|c")


def test_v1_forgets_what_v2_tells_apart() -> None:
    elsewhere = Source("s2", "document", file_id="att_B")
    assert key(ref(), DOCUMENT) == key(ref(), elsewhere)
    assert key_v2(ref(), DOCUMENT) != key_v2(ref(), elsewhere)
    assert key(A_B, DOCUMENT) == key(B_C, DOCUMENT)
    assert key_v2(A_B, DOCUMENT) != key_v2(B_C, DOCUMENT)


def test_a_collision_gets_the_v2_key_and_nothing_is_renamed() -> None:
    elsewhere = Source("s2", "document", file_id="att_B")
    keys = CitationKeys()
    for _ in range(2):
        assert keys.assign(A_B, DOCUMENT) == key(A_B, DOCUMENT)
        assert keys.assign(B_C, DOCUMENT) == key_v2(B_C, DOCUMENT)
        assert keys.assign(A_B, elsewhere) == key_v2(A_B, elsewhere)
        assert keys.assign(B_C, elsewhere) == key_v2(B_C, elsewhere)


def test_first_come_first_served() -> None:
    keys = CitationKeys()
    assert keys.assign(B_C, DOCUMENT) == key(B_C, DOCUMENT)
    assert keys.assign(A_B, DOCUMENT) == key_v2(A_B, DOCUMENT)


def test_sources_without_a_file_id_are_told_apart_by_their_id() -> None:
    """As in `key_v2`: else one verdict would overwrite the other's."""
    keys = CitationKeys()
    assert keys.assign(ref(), Source("one", "document")) != keys.assign(ref(), Source("two", "document"))


HEX = re.compile(r"[0-9a-f]{16}")
# Few and short, so that they collide.
pieces = st.sampled_from(["", "a", "b", "a|b", "b|a", "|"])
refs = st.builds(ref, pieces, pieces, st.none() | st.builds(Pages, st.just(1), st.just(1)))
sources = st.sampled_from(["att_A", "att_B"]).map(lambda file: Source(file, "document", file_id=file))


@given(st.lists(st.tuples(refs, sources), max_size=30))
def test_keys_are_stable_and_never_shared(cited: list[tuple[SourceRef, Source]]) -> None:
    keys = CitationKeys()
    given_out = [(one, keys.assign(*one)) for one in cited]
    owners: dict[str, tuple[SourceRef, Source]] = {}
    for (one, source), name in given_out:
        assert HEX.fullmatch(name)
        assert name in {key(one, source), key_v2(one, source)}
        assert owners.setdefault(name, (one, source)) == (one, source)
        assert keys.assign(one, source) == name
    firsts = {key(*one): name for one, name in reversed(given_out)}
    assert all(v1 == name for v1, name in firsts.items())


@given(any_text | st.text(st.characters(exclude_categories=())), any_text, st.none() | locators)
def test_any_citation_has_keys(quote: str, anchor: str, locator: Locator | None) -> None:
    for source in (DOCUMENT, PAGE, Source("s")):
        cited = ref(quote, anchor, locator)
        assert HEX.fullmatch(key(cited, source))
        assert HEX.fullmatch(key_v2(cited, source))
        assert key(cited, source) == CitationKeys().assign(cited, source)
