"""Finding: everything that is there, wherever it is, and nothing that is not."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.verification.gram_index import GramIndex
from citewire.verification.match import SearchableText
from citewire.verification.text_views import canonical_view

WORDS = """
    ledger margin harbour signal copper orchard winter engine letter market castle planet bottle garden silver
    thread window basket candle forest
"""


def prose(seed: int, words: int = 4000) -> str:
    random = Random(seed)
    return " ".join(
        f"{random.choice(WORDS.split())}{random.choice(('', '', 's', 'ing', ','))}" for _ in range(words)
    )


TEXT = (
    prose(1) + " The committee approved 45 of 60 proposals in March without any further debate. " + prose(2)
)
SOURCE = SearchableText(TEXT)


def noisy(text: str, share: float, random: Random) -> str:
    return "".join(random.choice("abcdefgh ") if random.random() < share else char for char in text)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
def test_noise_does_not_hide_a_passage(share: float) -> None:
    random = Random(3)
    text = SOURCE.view.text
    found = 0
    for _ in range(60):
        at = text.index(" ", random.randrange(len(text) - 400)) + 1
        end = text.index(" ", at + random.randrange(60, 200))
        hits = SOURCE.find(canonical_view(noisy(text[at:end], share, random)).text)
        found += any(abs(hit.start - at) <= 12 and abs(hit.end - end) <= 12 for hit in hits)
    assert found >= 58


def test_what_is_not_there_is_not_found() -> None:
    absent = [
        "the senate postponed the hearing until the witness had recovered from surgery",
        "to talk about how congress",
        "photosynthesis requires chlorophyll",
    ]
    assert [SOURCE.find(words) for words in absent] == [[], [], []]


def test_every_place_is_given() -> None:
    source = SearchableText("one two three. " * 5)
    assert [hit.start for hit in source.find("one two three")] == [0, 15, 30, 45, 60]


def test_short_words_are_found_whole_only() -> None:
    source = SearchableText("unable to pay 15% or 1,500.5 now, able again, 5%")
    assert [hit.start for hit in source.find("able")] == [source.view.text.index(", able") + 2]
    assert [hit.start for hit in source.find("5%")] == [len(source.view.text) - 2]
    assert source.find("500") == []
    assert source.find("500.5") == []


def test_spacing_and_hyphens_do_not_hide_a_passage() -> None:
    hits = SOURCE.find("thecommittee approved45 of 60 proposals")
    assert len(hits) == 1
    assert SOURCE.view.text[hits[0].start : hits[0].end] == "the committee approved 45 of 60 proposals"


def test_without_any_gram_letters_alone_are_enough() -> None:
    hits = SOURCE.find("c,o,m,m,i,t,t,e,e,a,p,p,r,o,v,e,d,4,5,o,f,6,0,p,r,o,p,o,s,a,l,s")
    assert [hit.method for hit in hits] == ["letters"]


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        pytest.param(
            "人権の尊重は世界における自由、正義及び平和の基礎である。" * 3, "世界における自由、正義", id="CJK"
        ),
        pytest.param("כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם", "נולדו בני חורין", id="Hebrew"),
        pytest.param("सभी मनुष्यों को गौरव और अधिकारों के मामले में", "गौरव और अधिकारों", id="Hindi"),
        pytest.param("Все люди рождаются свободными и равными", "рождаются свободными", id="Russian"),
    ],
)
def test_any_script(text: str, quote: str) -> None:
    source = SearchableText(text)
    hits = source.find(canonical_view(quote).text)
    start, end = source.view.to_source(hits[0].start, hits[0].end)
    assert text[start:end] == quote


def test_more_than_256_characters_are_aligned() -> None:
    random = Random(5)
    text = "".join(chr(random.randrange(0x4E00, 0x9000)) for _ in range(3000))
    source = SearchableText(text)
    quote = text[1000:1010] + "字" + text[1011:1060]
    assert [(hit.start, hit.end) for hit in source.find(quote)] == [(1000, 1060)]


@given(st.text(st.sampled_from("ab c"), max_size=80), st.integers(0, 80), st.integers(1, 40))
def test_a_part_of_a_text_is_in_it(text: str, start: int, length: int) -> None:
    source = SearchableText(text)
    words = source.view.text[start : start + length].strip()
    whole = words and f" {source.view.text} ".find(f" {words} ") >= 0
    assert not whole or any(hit.distance == 0 for hit in source.find(words))


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        pytest.param("and revenue rose 12% in 2023.", "revenue fell 12% in 2023", True, id="a word replaced"),
        pytest.param(
            "and revenue rose 12% in 2023.", "revenue rose 15% in 2023", True, id="a digit replaced"
        ),
        pytest.param("tenants shall not pay fees here", "shall pay fees", True, id="a word left out"),
        pytest.param("tenants shall pay fees here", "shall not pay fees", True, id="a word put in"),
        pytest.param("to talk about how presidents do", "to talk about how congress", False, id="at the end"),
        pytest.param("it is the property of the state", "it is the kingdom of a man", False, id="two words"),
        pytest.param("so the parcel is on", "so the kingdom is on", False, id="too few letters agree"),
    ],
)
def test_all_words_but_one_within_make_a_short_text_a_hit(text: str, words: str, found: bool) -> None:
    assert bool(SearchableText(text).find(words)) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน", "มีอิสระและเสมอภาค", id="Thai"),
        pytest.param("មនុស្សទាំងអស់កើតមកមានសេរីភាពនិងសមភាព", "កើតមកមានសេរីភាព", id="Khmer"),
        pytest.param("売上高は前年より12億円増えた", "前年より12億円", id="Japanese"),
        pytest.param("جميع الناس أحـــرار متساوون", "الناس أحرار", id="Arabic with a bar"),
        pytest.param("در بازار اصلي كالا", "بازار اصلی کالا", id="Persian in Arabic letters"),
    ],
)
def test_scripts_without_spaces_and_with_other_codes(text: str, words: str) -> None:
    assert [hit.method for hit in SearchableText(text).find(canonical_view(words).text)] == ["exact"]


def test_korean_words_are_whole() -> None:
    source = SearchableText("보건복지부장관이 지정하는 감염병을 포함한다")
    assert [hit.method for hit in source.find("지정하는 감염병을")] == ["exact"]
    assert all(hit.method != "exact" for hit in source.find("보건복지부장관"))


@pytest.mark.parametrize(
    ("text", "words", "places"),
    [
        pytest.param("a" * 1_000_000, "a", 0, id="a letter in a text of it"),
        pytest.param("word " * 200_000, "word", 100, id="a word in a text of it"),
        pytest.param("word " * 200_000, ("word " * 5_000).strip(), 100, id="many words in a text of them"),
        pytest.param("a" * 200_000, "a" * 25_000 + "b" + "a" * 25_000, 1, id="a long text, nearly"),
        pytest.param(TEXT, canonical_view(TEXT).text, 1, id="all of it"),
        pytest.param(TEXT, canonical_view(prose(7, 8_000)).text, 0, id="a long text that is not there"),
    ],
)
@pytest.mark.slow
def test_no_text_takes_more_than_seconds(text: str, words: str, places: int) -> None:
    """Those that would compare everything with everything run into the time limit of a test."""
    assert len(SearchableText(text).find(words)) == places


def test_the_index_takes_nine_bytes_for_a_character() -> None:
    index = GramIndex(SOURCE.view.text)
    assert sum(array.nbytes for array in index.grams) <= 8 * len(SOURCE.view.text)
    assert index.size <= 9.1 * len(SOURCE.view.text)
