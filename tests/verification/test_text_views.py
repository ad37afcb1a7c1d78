"""The canonical view: what does not count, and the way back to the source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.verification.text_views import TextView, canonical_view
from support.strategies import any_text

# Text with what the pass has rules for, more often than chance has it.
ODD = st.text(
    st.one_of(
        st.sampled_from("aB9 -\n\r\t.\u00ad\u200b\u2010\u2011\ufffe\x02\u00a0\u0301ﬁßİ²½™é中字\u3000—“’"),
        st.characters(codec="utf-8"),
    ),
    max_size=60,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Plain words", "plain words", id="case"),
        pytest.param("  a \t\n b  ", "a b", id="blanks"),
        pytest.param("12\u00a0%\u2009x", "12 % x", id="kinds of space"),
        pytest.param("“a” ‘b’ «c»", '"a" \'b\' "c"', id="quotation marks"),
        pytest.param("a—b–c−d\u2011e", "a-b-c-d-e", id="dashes"),
        pytest.param("ﬁne ﬂow oﬃce", "fine flow office", id="ligatures"),
        pytest.param("Ｆｕｌｌ １２", "full 12", id="full width"),
        pytest.param("cafe\u0301", "café", id="marks"),
        pytest.param("Straße", "strasse", id="folding to several"),
        pytest.param("with-\nin", "within", id="hyphen at a line end"),
        pytest.param("with- \r\n  in", "within", id="hyphen, blanks and a break"),
        pytest.param("with\u00ad\nin", "within", id="soft hyphen at a line end"),
        pytest.param("with\ufffein", "within", id="as pdfium has it"),
        pytest.param("co\u00adop", "coop", id="soft hyphen"),
        pytest.param("2019-\n2020", "2019-2020", id="hyphen between numbers"),
        pytest.param("2019\ufffe2020", "2019-2020", id="between numbers, as pdfium has it"),
        pytest.param("Anglo-\nSaxon", "anglo-saxon", id="hyphen before a capital"),
        pytest.param("MIL-\nLION", "million", id="hyphen between capitals"),
        pytest.param("a\u200bb\ufeff", "ab", id="no width"),
        pytest.param("10² 1½ word¹", "10² 1½ word¹", id="superscripts stay apart"),
        pytest.param("中文\n字", "中文字", id="a break between characters of CJK"),
        pytest.param("中文 字", "中文 字", id="a space between them"),
        pytest.param("हिन्दी", "हिन्दी", id="vowel signs"),
        pytest.param("أحـــرار\u061c", "أحرار", id="an Arabic word made longer"),
        pytest.param("", "", id="nothing"),
        pytest.param(" \n\u200b ", "", id="nothing to see"),
    ],
)
def test_canonical(text: str, expected: str) -> None:
    assert canonical_view(text).text == expected


def check(text: str, view: TextView) -> None:
    assert len(view.text) == len(view.starts) == len(view.ends)
    assert all(0 <= start < end <= len(text) for start, end in zip(view.starts, view.ends, strict=True))
    assert list(view.starts) == sorted(view.starts)
    assert list(view.ends) == sorted(view.ends)


@given(st.one_of(ODD, any_text))
def test_every_character_knows_where_it_comes_from(text: str) -> None:
    view = canonical_view(text)
    check(text, view)
    check(text, view.letters_only())


@given(ODD)
def test_a_canonical_text_stays_as_it_is(text: str) -> None:
    once = canonical_view(text).text
    assert canonical_view(once).text == once


@given(st.text(st.sampled_from("abc \n-é“ß"), max_size=40), st.data())
def test_a_range_maps_back_to_text_that_reads_the_same(text: str, data: st.DataObject) -> None:
    """Where it starts and ends with a letter: what a blank or a hyphen becomes depends on its neighbours."""
    view = canonical_view(text)
    letters = [at for at, char in enumerate(view.text) if char.isalpha()]
    if not letters:
        return
    first, last = sorted((data.draw(st.sampled_from(letters)), data.draw(st.sampled_from(letters))))
    start, end = view.to_source(first, last + 1)
    assert view.text[first : last + 1] in canonical_view(text[start:end]).text
    assert view.from_source(start, end)[0] <= first
    assert view.from_source(start, end)[1] >= last + 1
