"""Tokens: what is one, what it is compared by, and that nothing which counts is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.verification.text_views import canonical_view
from citewire.verification.tokens import tokenize

SAME = {
    "groups": ("1,204", "1204", "1 204", "1'204", "\uff11\uff12\uff10\uff14"),
    "a group and a decimal comma": ("1.204,50", "1,204.50", "1 204,50"),
    "money": ("$3.4 million", "$3,400,000", "3.4 million dollars", "USD 3.4m", "$3.40M"),
    "percent": ("12.5%", "12.5 %", "12,5 percent", "12.5 per cent", "12,50 Prozent", "12,5 pour cent"),
    "native digits": ("٣٫٥٪", "3.5%"),
    "no zero": (".5", "0.5"),
    "a power": ("10⁶", "10^6"),
    "a negative power": ("10⁻⁶", "10^-6"),
    "a unit": ("m²", "m^2"),
    "a formula": ("H₂O", "H2O"),
    "a fraction": ("1½", "1 1/2"),
    "a footnote": ("word¹", "word"),
    "a footnote of a year": ("2019³", "2019"),
    "initials": ("U.S.", "US", "u.s"),
    "a contraction": ("won't", "will not"),
    "a range": ("10-20", "10 – 20", "10—20"),
    "a plus": ("+5", "5"),
    "times": ("3 × 4", "3 x 4"),
    "and": ("R&D", "R & D", "R and D"),
}
DIFFERENT = {
    "signs": ("-5", "5", "±5", "~5", "<5", ">5", "≤5", "5+"),
    "amounts": (
        "5",
        "0.5",
        "50",
        "5%",
        "5‰",
        "$5",
        "A$5",
        "€5",
        "₽5",
        "5 pp",
        "5 bn",
        "(5.0)",
        "5²",
        "5³",
        "5½",
    ),
    "two numbers": ("1 2", "12", "1-2", "1/2", "1:2", "1.2", "1x2", "1+2", "1=2", "1≠2", "1^2"),
    "names": ("3.10", "3.1", "3.1.0", "v3.1", "007", "7"),
    "languages": ("C", "C++", "C#"),
    "formulas": ("CO", "CO₂", "C¹⁴", "¹⁴C", "¹²C"),
    "symbols": ("a", "a ↑", "a ↓", "a ▲", "a ▼", "a ☑", "a ☐", "a ∞", "a ?", "a 👍", "a 👎"),
    "addresses": ("a.b@c.org", "ab@c.org", "a_b@c.org", "a-b@c.org"),
}


def _keys(text: str) -> list[str]:
    return [token.key for token in tokenize(canonical_view(text).text)]


@pytest.mark.parametrize("spellings", SAME.values(), ids=SAME)
def test_the_same(spellings: tuple[str, ...]) -> None:
    assert {spelling: _keys(spelling) for spelling in spellings} == dict.fromkeys(
        spellings, _keys(spellings[0])
    )


@pytest.mark.parametrize("spellings", DIFFERENT.values(), ids=DIFFERENT)
def test_different(spellings: tuple[str, ...]) -> None:
    assert len({tuple(_keys(spelling)) for spelling in spellings}) == len(spellings)


@given(st.text(max_size=60))
def test_tokens_stand_in_order_and_have_a_key(text: str) -> None:
    view = canonical_view(text).text
    found = tokenize(view)
    assert all(token.key and 0 <= token.start < token.end <= len(view) for token in found)
    assert [token.start for token in found] == sorted(token.start for token in found)


@given(
    st.decimals(min_value=0, max_value=10**9, places=2), st.decimals(min_value=0, max_value=10**9, places=2)
)
def test_numbers_are_the_same_when_their_values_are(one: object, other: object) -> None:
    assert (_keys(f"${one:,}") == _keys(f"${other}")) == (one == other)
