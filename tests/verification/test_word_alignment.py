"""Two lists of words beside each other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.verification.word_alignment import AlignmentStep, align_words

words = st.lists(st.sampled_from("abc"), min_size=1, max_size=12)
many = st.lists(st.integers(0, 2_000).map(str), min_size=1, max_size=800)


@pytest.mark.parametrize(
    ("ours", "theirs", "steps"),
    [
        pytest.param("abc", "abc", [AlignmentStep(True, 0, 3, 0, 3)], id="the same"),
        pytest.param("a", "b", [AlignmentStep(False, 0, 1, 0, 1)], id="nothing the same"),
        pytest.param(
            "abc",
            "axc",
            [
                AlignmentStep(True, 0, 1, 0, 1),
                AlignmentStep(False, 1, 2, 1, 2),
                AlignmentStep(True, 2, 3, 2, 3),
            ],
            id="one other",
        ),
        pytest.param(
            "ab",
            "abx",
            [AlignmentStep(True, 0, 2, 0, 2), AlignmentStep(False, 2, 2, 2, 3)],
            id="one more behind",
        ),
        pytest.param(
            "ab",
            "b",
            [AlignmentStep(False, 0, 1, 0, 0), AlignmentStep(True, 1, 2, 0, 1)],
            id="one less in front",
        ),
        pytest.param(
            "ab",
            "aab",
            [AlignmentStep(False, 0, 0, 0, 1), AlignmentStep(True, 0, 2, 1, 3)],
            id="the same in front",
        ),
    ],
)
def test_beside(ours: str, theirs: str, steps: list[AlignmentStep]) -> None:
    assert align_words(list(ours), list(theirs)) == steps


@given(st.one_of(st.tuples(words, words), st.tuples(many, many)))
def test_the_stretches_are_the_lists(lists: tuple[list[str], list[str]]) -> None:
    """Also of more words than the aligner can tell apart."""
    ours, theirs = lists
    steps = align_words(ours, theirs)
    assert [word for step in steps for word in ours[step.a : step.b]] == ours
    assert [word for step in steps for word in theirs[step.c : step.d]] == theirs
    assert all(step.same == (ours[step.a : step.b] == theirs[step.c : step.d]) for step in steps)
    assert all(one.same != other.same for one, other in pairwise(steps))


def test_a_long_list_of_one_word() -> None:
    """Comparing each with each would take a day."""
    ours, theirs = ["word"] * 300_000, ["word"] * 300_000
    ours[1000] = theirs[200_000] = "other"
    assert [step.same for step in align_words(ours, theirs)] == [True, False, True, False, True]
