"""From every dialect into every other one: it works, or the losses say why."""

from __future__ import annotations

import pytest

import citewire
from citewire.model import Answer, Loss
from support.losses import LETTERS, PAGE, converted, page, said_in
from support.oracle import unjustified, unnamed

NAMES = list(citewire.dialects())
PAIRS = [pytest.param(origin, target, id=f"{origin} to {target}") for origin in NAMES for target in NAMES]
# Losses without a letter: of names given anew, and what goes with one that has a letter.
ASIDE = {
    "id",
    "source.id",
    "answer.id",
    "source",
    "order",
    "parts",
    "place",
    "span_origin",
    "overlap",
    "events",
}


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_a_pair_converts_or_says_what_it_loses(origin: str, target: str) -> None:
    answer, written = said_in(origin), converted(origin, target)
    back = citewire.read(written.payload, target)

    assert back.problems == ()
    assert unnamed(answer, back, written.losses) is None
    assert unjustified(answer, back, written.losses) == []
    assert {loss.field for loss in written.losses} <= LETTERS.keys() | ASIDE
    assert _edges(back) >= _edges(answer) - _left_out(answer, written.losses)


def _edges(answer: Answer) -> int:
    return sum(len(citation.refs) for citation in answer.citations)


def _left_out(answer: Answer, losses: tuple[Loss, ...]) -> int:
    """How many sources of citations are said to be left out; without naming one, all of a citation."""
    sizes = {citation.id: len(citation.refs) for citation in answer.citations}
    gone = [loss for loss in losses if loss.field == "citation"]
    return sum(1 if loss.source else sizes[loss.citation or ""] for loss in gone)


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_what_a_pair_writes_is_known_for_what_it_is(origin: str, target: str) -> None:
    """Whatever an answer came from, no other dialect takes the payload for its own."""
    assert citewire.detect(converted(origin, target).payload) == target


def test_the_page_of_losses_is_the_code() -> None:
    """`python tests/support/losses.py` writes it."""
    assert PAGE.read_text("utf-8") == page()
