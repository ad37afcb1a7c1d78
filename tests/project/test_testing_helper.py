"""`assert_citations_verified`: what passes, what fails, and what is said of it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from msgspec.structs import replace

import citewire
from citewire.errors import UndetectedDialect
from citewire.model import Answer, Citation, Part, Problem, Source, SourceRef, Span, Status
from citewire.testing import assert_citations_verified
from citewire.verification.sources import SourceContent
from support.python_process import run_python

SOURCE = SourceContent("Sales rose by 12 percent in 2023. The costs fell by a third.", name="report.txt")


def answer(*quotes: str | None) -> Answer:
    """One sentence for each quote, cited for it."""
    sentences = [f"Sentence number {at}." for at in range(1, len(quotes) + 1)]
    starts = [sum(map(len, sentences[:at])) + at for at in range(len(sentences))]
    citations = tuple(
        Citation(f"c{at + 1}", (SourceRef("s1", quote=quote),), claim=Span(0, start, start + len(sentence)))
        for at, (quote, start, sentence) in enumerate(zip(quotes, starts, sentences, strict=True))
    )
    return Answer((Part(" ".join(sentences)),), citations, (Source("s1", "file", filename="report.txt"),))


def failure(*args: Any, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_citations_verified(*args, **options)
    return str(caught.value)


GOOD = "Sales rose by 12 percent in 2023"
TEXT = f"""Sales rose.[1]

<<<CITATION_DATA>>>
{json.dumps({"report.txt": [{"id": 1, "full_phrase": GOOD, "anchor_text": "12 percent"}]})}
<<<END_CITATION_DATA>>>"""


@pytest.mark.parametrize(
    "said",
    [
        answer(GOOD),
        answer(GOOD, "costs fell by a third"),
        TEXT,
        citewire.write(answer(GOOD), "anthropic").payload,
        json.dumps(citewire.write(answer(GOOD), "anthropic").payload),
    ],
    ids=["answer", "two", "text", "payload", "json"],
)
def test_what_is_there_passes(said: Any) -> None:
    assert_citations_verified(said, [SOURCE], every_sentence=True)


def test_the_message_says_which_and_what_and_where() -> None:
    said = failure(answer(GOOD, "Sales rose by 15 percent", "Zebras graze at night"), SOURCE)

    assert said == (
        "1 of 3 citations verified\n"
        "\n"
        "c2 is altered: number: 15 percent for 12 percent\n"
        "  cited for: Sentence number 2.\n"
        "  quote:     Sales rose by 15 percent\n"
        "  source:    Sales rose by 12 percent\n"
        "  differs:   15 percent -> 12 percent (number)\n"
        "  where:     report.txt, page 1, characters 0 to 24\n"
        "\n"
        "c3 is missed: these words are not in the source\n"
        "  cited for: Sentence number 3.\n"
        "  quote:     Zebras graze at night\n"
        "  cites:     report.txt"
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (answer(), "The answer cites nothing."),
        (answer(None), "c1 is skipped: nothing quoted"),
        (
            replace(answer(GOOD), problems=(Problem("bad_shape", "$.citations[1]", "url is missing"),)),
            "A citation that cannot be read, at $.citations[1]: url is missing",
        ),
        (answer("Sales rose \x1b[31mby 15 percent"), "quote:     Sales rose ␛[31mby 15 percent"),
    ],
    ids=["no citation", "no quote", "unreadable", "escape sequence"],
)
def test_what_cannot_be_verified_fails(said: Answer, told: str) -> None:
    assert told in failure(said, SOURCE)


@pytest.mark.parametrize(("quote", "verdict"), [("Costs fell by third", "partial"), (None, "skipped")])
def test_other_verdicts_can_be_accepted(quote: str | None, verdict: Status) -> None:
    said = answer(GOOD, quote)

    assert f"c2 is {verdict}" in failure(said, SOURCE)
    assert_citations_verified(said, SOURCE, accept=("verified", verdict))


def test_of_several_quotes_those_that_fail_are_told() -> None:
    refs = (SourceRef("s1", quote=GOOD), SourceRef("s1", quote="Sales fell by 12 percent"))
    said = answer(GOOD)
    said = replace(said, citations=(replace(said.citations[0], refs=refs),))

    told = failure(said, SOURCE)
    assert "Sales fell" in told
    assert GOOD not in told


def test_every_answer_of_a_payload_is_looked_at() -> None:
    first, second = (answer(quote) for quote in (GOOD, "Sales rose by 15 percent"))
    messages = [citewire.write(one, "langchain").payload for one in (first, second)]

    assert_citations_verified({"messages": messages[:1]}, SOURCE, dialect="langchain")
    assert "1 of 2 citations verified" in failure({"messages": messages}, SOURCE)


def test_sentences_without_a_citation_fail_on_demand() -> None:
    said = replace(answer(GOOD), parts=(Part("Sentence number 1. And this is mine."),))

    assert_citations_verified(said, SOURCE)
    assert "A sentence without a citation: And this is mine." in failure(said, SOURCE, every_sentence=True)


def test_a_long_list_is_cut() -> None:
    said = failure(answer(*["Zebras graze at night"] * 30), SOURCE)

    assert said.count("is missed") == 20
    assert said.endswith("… and 10 more")


def test_what_is_no_answer_is_not_a_failed_assertion() -> None:
    with pytest.raises(UndetectedDialect):
        assert_citations_verified({"no": "answer"}, SOURCE)


def test_it_needs_no_test_library() -> None:
    run_python(
        "import sys; sys.modules['pytest'] = sys.modules['hypothesis'] = None\n"
        "from citewire.testing import assert_citations_verified\n"
        "import citewire.testing\n"
        "try:\n    citewire.testing.StoreContract\n"
        "except ImportError as error:\n    assert 'pytest and hypothesis' in str(error)\n"
        "else:\n    raise SystemExit('the contracts cannot be there')\n"
    )


def test_the_package_and_what_agents_use_load_no_framework() -> None:
    loaded = run_python("import sys, citewire, citewire.adapters, citewire.testing; print(*sys.modules)")
    packages = {name.partition(".")[0] for name in loaded.split()}

    assert packages.isdisjoint({"pydantic_ai", "langchain_core", "pytest", "hypothesis"})
    assert sys.modules["pytest"], "which this test itself has loaded"
