"""What is harmless stays verified; what is harmful is never verified, and never partial."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from citewire.documents.html import read_html
from citewire.verification.match import SearchableText
from citewire.verification.policy import choose_best, find_and_judge, judge_quote
from citewire.verification.text_views import canonical_view

SOURCE = """
The company's revenue rose 12.5% to $3.4 million in fiscal 2019, according to the audited report. Operating
expenses did not increase during the same period, and the board approved the plan on 5 March 2020. Dr. Maria
Smith, who joined Acme Corp. before John Miller did, said that all employees must complete the training within
30 days. The new turbine produces 5 MW, which is more than the old one could deliver. Users of version 3.10
may upgrade at any time. Well-known risks in-
clude fire and flood. The drug was effective in 45 of 60 patients — “a striking result”, the authors wrote.
The US economy grew by 2 percentage points. He paid €1,204 for the painting and sold it after two years. The
bill passed the House and, except for two articles, became law. The office ﬁled 10² forms. Revenue was
higher than cost. Most members can vote; only officers cannot. The café on Main Street opened at 10:30,
as earlier work [7] has shown for paper. It cost 06. . . $5.00 in the end.
"""
TEXT = SearchableText(SOURCE)

HARMLESS = {
    "as it is": "revenue rose 12.5% to $3.4 million in fiscal 2019",
    "upper case": "REVENUE ROSE 12.5% TO $3.4 MILLION IN FISCAL 2019",
    "a capital at the start": "Revenue rose 12.5% to $3.4 million",
    "straight quotation marks": 'effective in 45 of 60 patients - "a striking result", the authors wrote',
    "quotation marks around it": "“The US economy grew”",
    "other dashes": "45 of 60 patients – “a striking result”",
    "a curly apostrophe": "The company’s revenue rose 12.5%",
    "line breaks": "said that all\nemployees must\r\ncomplete the training",
    "no-break spaces": "within\u00a030\u00a0days",
    "more spaces": "the  board   approved the plan",
    "a hyphen of a line end taken out": "Well-known risks include fire and flood",
    "a compound without its hyphen": "Well known risks include fire and flood",
    "a compound in one word": "Wellknown risks include fire and flood",
    "a ligature taken apart": "The office filed 10² forms",
    "a soft hyphen": "the board ap\u00adproved the plan",
    "no width": "the board\u200b approved the plan",
    "bold": "the **board approved** the plan",
    "italics": "the _board_ approved the *plan*",
    "code": "Users of `version 3.10` may upgrade",
    "a link": "the [board](https://example.com) approved the plan",
    "a heading": "## The US economy grew",
    "an entity": "The company&rsquo;s revenue rose 12.5%",
    "a tag": "the <b>board</b> approved the plan",
    "a footnote": "the board approved the plan[3]",
    "a footnote of ours": "the board approved the plan[^policy]",
    "grouping of digits": "He paid €1204 for the painting",
    "a space before percent": "revenue rose 12.5 % to $3.4 million",
    "percent in a word": "revenue rose 12.5 percent to $3.4 million",
    "percent in two": "revenue rose 12.5 per cent to $3.4 million",
    "a scale written out": "revenue rose 12.5% to $3,400,000 in fiscal 2019",
    "a number in a word": "grew by two percentage points",
    "a contraction": "Operating expenses didn't increase during the same period",
    "the other way round": "only officers can not",
    "a month cut short": "approved the plan on 5 Mar 2020",
    "an ellipsis": "The company's revenue rose ... in fiscal 2019",
    "an ellipsis in brackets": "The company's revenue rose [...] in fiscal 2019",
    "one character of ellipsis": "The company's revenue rose … in fiscal 2019",
    "a letter in brackets": "[O]perating expenses did not increase",
    "words in brackets": "The drug [was] effective in 45 of 60 patients",
    "sic": "The drug was effective [sic] in 45 of 60 patients",
    "no punctuation": "The bill passed the House and except for two articles became law",
    "a mark decomposed": "The cafe\u0301 on Main Street",
    "full width": "within ３０ days",
    "trailing punctuation": "the board approved the plan.",
    "a reference of the source left out": "as earlier work has shown for paper",
    "a reference of the source kept": "as earlier work [7] has shown for paper",
}

HARMFUL = {
    "a digit": "revenue rose 12.6% to $3.4 million in fiscal 2019",
    "a digit more": "revenue rose 12.5% to $33.4 million in fiscal 2019",
    "a digit less": "in fiscal 201, according to the audited report",
    "a decimal point": "revenue rose 125% to $3.4 million in fiscal 2019",
    "a sign": "revenue rose -12.5% to $3.4 million in fiscal 2019",
    "a unit": "The new turbine produces 5 kW, which is more than the old one could deliver",
    "a prefix": "The new turbine produces 5 mW, which is more than the old one could deliver",
    "a magnitude": "revenue rose 12.5% to $3.4 billion in fiscal 2019",
    "no magnitude": "revenue rose 12.5% to $3.4 in fiscal 2019",
    "a year": "revenue rose 12.5% to $3.4 million in fiscal 2018",
    "a day": "the board approved the plan on 6 March 2020",
    "a month": "the board approved the plan on 5 May 2020",
    "no negation": "Operating expenses did increase during the same period",
    "a negation": "the board did not approve the plan on 5 March 2020",
    "a negation put in": "said that not all employees must complete the training",
    "never": "Users of version 3.10 may never upgrade at any time",
    "a contraction that negates": "all employees mustn't complete the training within 30 days",
    "without a contraction": "Most members can vote; only officers can",
    "a quantifier": "said that some employees must complete the training",
    "another quantifier": "All members can vote; only officers cannot",
    "only": "Most members can vote; officers cannot",
    "a modal": "said that all employees may complete the training within 30 days",
    "a direction": "revenue fell 12.5% to $3.4 million in fiscal 2019",
    "a comparison": "produces 5 MW, which is less than the old one could deliver",
    "before and after": "who joined Acme Corp. after John Miller did, said that all employees",
    "a name": "Dr. Maria Smyth, who joined Acme Corp. before John Miller did",
    "another name": "Dr. Maria Jones, who joined Acme Corp. before John Miller did",
    "swapped names": "Dr. John Miller, who joined Acme Corp. before Maria Smith did",
    "an order": "Cost was higher than revenue.",
    "swapped numbers": "The drug was effective in 60 of 45 patients",
    "a currency": "He paid £1,204 for the painting and sold it after two years",
    "another currency": "revenue rose 12.5% to €3.4 million in fiscal 2019",
    "points for percent": "The US economy grew by 2 percent",
    "percent for points": "revenue rose 12.5 percentage points to $3.4 million in fiscal 2019",
    "a version": "Users of version 3.1 may upgrade at any time",
    "a time": "The café on Main Street opened at 10:50",
    "a word": "the board rejected the plan on 5 March 2020",
    "a word at the end": "who joined Acme Corp. before John Miller died",
    "a word at the start": "The company's profit rose 12.5% to $3.4 million in fiscal 2019",
    "a word more": "the board unanimously approved the plan on 5 March 2020",
    "a clause left out": "the board approved the plan, who joined Acme Corp. before John Miller did",
    "words left out": "He paid €1,204 for the painting after two years",
    "a superscript made a digit": "The office filed 102 forms",
    "letters for a word": "The us economy grew by 2 percentage points",
    "a prefix that negates": "The drug was ineffective in 45 of 60 patients",
    "a word that is near": "The drug was affective in 45 of 60 patients",
    "a negation in brackets": "Users of version 3.10 may [not] upgrade at any time",
    "the digit in an ellipsis": "The company's revenue rose 12.6% ... in fiscal 2019",
    "pieces in another order": "in fiscal 2019 ... revenue rose 12.5%",
    "a number beside dots": "It cost 07. . . $5.00 in the end.",
    "nothing like it": "The committee postponed the hearing until further notice was given",
}


@pytest.mark.parametrize("quote", HARMLESS.values(), ids=HARMLESS)
def test_harmless(quote: str) -> None:
    finding = judge_quote(quote, TEXT)
    assert finding.status == "verified", finding
    assert canonical_view(SOURCE[finding.start : finding.end]).text == canonical_view(finding.found).text
    assert "\n" not in finding.found


@pytest.mark.parametrize("quote", HARMFUL.values(), ids=HARMFUL)
def test_harmful(quote: str) -> None:
    finding = judge_quote(quote, TEXT)
    assert finding.status in ("altered", "missed"), finding
    if finding.status == "altered":
        assert finding.diff


@pytest.mark.parametrize(
    ("quote", "status", "warning"),
    [
        pytest.param("increase during the same period", "verified", "'not' stands right before it", id="cut"),
        pytest.param("The bill passed the House", "verified", "it goes on with 'except'", id="goes on"),
        pytest.param("Operating expenses did ... increase", "partial", "left out says 'not'", id="left out"),
        pytest.param("the US economy grew by 2 percentage points", "verified", None, id="nothing"),
    ],
)
def test_context(quote: str, status: str, warning: str | None) -> None:
    finding = judge_quote(quote, TEXT)
    assert finding.status == status
    assert (warning in " ".join(finding.warnings)) if warning else not finding.warnings


@pytest.mark.parametrize("quote", ["", " ", "…", "[...]", "**", "- -", "[1]"])
def test_an_empty_quote_is_skipped(quote: str) -> None:
    assert (judge_quote(quote, TEXT).status, judge_quote(quote, TEXT).reason) == (
        "skipped",
        "the quote is empty",
    )


@pytest.mark.parametrize(
    "quote", ["2.5%", "5%", "able", "fire and floo", "2019, according to the audited repor", "204"]
)
def test_the_inside_of_a_word_or_number_is_no_hit(quote: str) -> None:
    assert judge_quote(quote, TEXT).status in ("missed", "altered")


def test_all_places_that_are_as_good_are_counted() -> None:
    source = SearchableText("The fee is 5 dollars. Later: the fee is 5 dollars. And the fee is 6 dollars.")
    finding = judge_quote("the fee is 5 dollars", source)
    assert (finding.status, finding.places, finding.start) == ("verified", 2, 0)
    found = find_and_judge("the fee is 5 dollars", source)
    assert choose_best(found, lambda each: abs(each.start - 40)).start == 29


def test_any_order_of_pages_and_a_whole_document() -> None:
    assert judge_quote(SOURCE, TEXT).status == "verified"


def test_what_an_ellipsis_leaves_out_is_not_among_the_ranges() -> None:
    finding = judge_quote("The company's [own] revenue rose ... in fiscal 2019", TEXT)
    said = [" ".join(SOURCE[start:end].split()) for start, end in finding.ranges]
    assert said == ["The company's revenue rose", "in fiscal 2019"]
    assert (finding.ranges[0][0], finding.ranges[-1][1]) == (finding.start, finding.end)


LONG = " ".join(f"{SOURCE} {number}" for number in range(300))


@pytest.mark.parametrize(
    ("text", "quote", "status"),
    [
        pytest.param(LONG, LONG, "verified", id="all of it"),
        pytest.param(LONG, LONG[:50_000].replace("board", "bird", 3), "altered", id="some words of 50 KB"),
        pytest.param(LONG, LONG.replace("board", "bird", 3), "altered", id="some words of all of it"),
        pytest.param("word " * 200_000, "word " * 200_000, "verified", id="one word again and again"),
        pytest.param("word " * 9_000, f"{'word ' * 4_000}not {'word ' * 4_000}", "altered", id="but one"),
        pytest.param(
            "see a.com/b-c 5 - 6 " * 20_000, "see a.com/b-c 5 - 6 " * 20_000, "verified", id="links"
        ),
        pytest.param(
            "売上高は前年より12億円増えた" * 5_000,
            "売上高は前年より12億円増えた" * 4_000,
            "verified",
            id="CJK",
        ),
        pytest.param("word " * 9_000, "word ... " * 5_000, "verified", id="ellipses"),
        pytest.param("x." * 50_000, "x." * 50_000, "verified", id="points"),
    ],
)
@pytest.mark.slow
def test_no_quote_takes_more_than_seconds(text: str, quote: str, status: str) -> None:
    """Those that would compare everything with everything run into the time limit of a test."""
    assert judge_quote(quote, SearchableText(text)).status == status


SENTENCES = [
    sentence
    for sentence in re.split(r"(?<=[.!?])\s+", " ".join(SOURCE.replace("in-\nclude", "include").split()))
    if len(sentence) > 40 and "[" not in sentence
]
Edit = Callable[[str, Random], str]


def _cased(text: str, random: Random) -> str:
    return (
        random.choice((text.upper, text.title, text.capitalize))()
        if "US" not in text and "MW" not in text and "-\n" not in text
        else text
    )


def _spaced(text: str, random: Random) -> str:
    return "".join(random.choice((" ", "\n", "\u00a0", "  ")) if char == " " else char for char in text)


def _dressed(text: str, random: Random) -> str:
    swaps = {"'": "’", '"': "”", "“": '"', "”": '"', "—": "-", "-": "\u2011"}
    return "".join(swaps.get(char, char) if random.random() < 0.7 else char for char in text)


def _bold(text: str, random: Random) -> str:
    words = text.split(" ")
    at = random.randrange(len(words))
    words[at] = f"**{words[at]}**"
    return " ".join(words)


def _broken(text: str, random: Random) -> str:
    long: list[str] = re.findall(r"[a-z]{7,}", text)
    if not long:
        return text
    word = random.choice(long)
    return text.replace(word, f"{word[:3]}-\n{word[3:]}", 1)


HARMLESS_EDITS: list[Edit] = [_cased, _spaced, _dressed, _bold, _broken]


@given(st.sampled_from(SENTENCES), st.lists(st.sampled_from(HARMLESS_EDITS), max_size=3), st.randoms())
def test_any_harmless_edits_of_a_sentence_leave_it_verified(
    sentence: str, edits: list[Edit], random: Random
) -> None:
    quote = sentence
    for edit in edits:
        quote = edit(quote, random)
    finding = judge_quote(quote, TEXT)
    assert finding.status == "verified", (quote, finding)


WORDS = [
    "never",
    "red",
    "Jones",
    "only",
    "seven",
    "because",
    "quickly",
    "99",
    "July",
    "fewer",
    "without",
    "half",
]


def _replaced(words: list[str], random: Random) -> list[str]:
    at = random.randrange(len(words))
    return [*words[:at], random.choice(WORDS), *words[at + 1 :]]


def _put_in(words: list[str], random: Random) -> list[str]:
    at = random.randrange(1, len(words))
    return [*words[:at], random.choice(WORDS), *words[at:]]


def _left_out(words: list[str], random: Random) -> list[str]:
    at = random.randrange(1, len(words) - 2)
    return [*words[:at], *words[at + random.randrange(1, 3) :]]


def _swapped(words: list[str], random: Random) -> list[str]:
    at = random.randrange(len(words) - 1)
    return [*words[:at], words[at + 1], words[at], *words[at + 2 :]]


@given(st.sampled_from(SENTENCES), st.sampled_from([_replaced, _put_in, _left_out, _swapped]), st.randoms())
def test_any_harmful_edit_of_a_sentence_is_seen(
    sentence: str, edit: Callable[[list[str], Random], list[str]], random: Random
) -> None:
    words = sentence.split(" ")
    changed = edit(words, random)
    letters = [re.sub(r"\W", "", word).casefold() for word in words]
    after = [re.sub(r"\W", "", word).casefold() for word in changed]
    # Not where only a dash moved, or an article came or went.
    bare = [word for word in letters if word not in ("", "the", "a", "an", "that")]
    assume(bare != [word for word in after if word not in ("", "the", "a", "an", "that")])
    finding = judge_quote(" ".join(changed), TEXT)
    assert finding.status in ("altered", "missed"), (changed, finding)


RAISED = b"<p>It is about 10<sup>2</sup> times as large as in 2019<sup>3</sup>, see the note<sup>4</sup> too."


@pytest.mark.parametrize(
    ("quote", "status"),
    [
        pytest.param("about 10² times as large", "verified", id="as it is"),
        pytest.param("about 102 times as large", "altered", id="a digit of the number"),
        pytest.param("about 10 times as large", "altered", id="no exponent"),
        pytest.param("as large as in 2019, see the note too", "verified", id="without footnotes"),
    ],
)
def test_a_raised_digit_is_no_digit_of_the_number(quote: str, status: str) -> None:
    assert judge_quote(quote, SearchableText(read_html(RAISED, sha256="0").text)).status == status
