"""What is lost from each dialect to each other one, by writing the same answer in one and then in the other.

`python tests/support/losses.py` writes the page.
"""

from __future__ import annotations

from functools import cache

import citewire
from citewire.model import (
    Answer,
    Citation,
    Pages,
    Part,
    Point,
    Source,
    SourceRef,
    Span,
    Verification,
    Written,
)
from support.cases import ROOT

PAGE = ROOT / "docs" / "losses.md"
TEXT = "Refunds take 30 days. Ask us for one, if you must."

# What a loss is about, in a letter; what has none is about names that are given anew, or goes with another.
LETTERS = {
    "text": "T",
    "citation": "C",
    "claim": "c",
    "marker": "m",
    "insert_at": "i",
    "refs": "r",
    "ordinal": "n",
    "refs.quote": "q",
    "refs.anchor": "a",
    "refs.locator": "l",
    "refs.score": "s",
    "verification": "v",
    "source.kind": "k",
    "source.url": "U",
    "source.title": "t",
    "source.filename": "f",
    "source.file_id": "F",
    "source.record_id": "R",
    "source.domain": "d",
    "source.snippet": "S",
    "source.index": "x",
    "source.metadata": "M",
}


def an_answer() -> Answer:
    """An answer with something of everything, so that each dialect says of it what it can."""
    return Answer(
        (Part(TEXT),),
        (
            Citation(
                "c1",
                (
                    SourceRef("s1", Pages(3, 3), "available within 30 days", "30 days", 0.75),
                    SourceRef("s2", quote="We help."),
                ),
                1,
                Span(0, 0, 20),
                insert_at=Point(0, 20),
                span_origin="exact",
                verification=Verification("verified"),
            ),
            Citation("c2", (SourceRef("s3"),), 2, Span(0, 22, 49), span_origin="exact"),
        ),
        (
            Source(
                "s1",
                "web",
                "https://example.com/refunds",
                "Refund policy",
                "refunds.html",
                domain="example.com",
                snippet="Our policy.",
                metadata={"rank": 1},
            ),
            Source("s2", "record", "https://example.com/help", "Help", record_id="ka01", index=4),
            Source("s3", "file", title="Terms", filename="terms.pdf", file_id="file-1", index=0),
        ),
        "answer-1",
    )


@cache
def said_in(dialect: str) -> Answer:
    """What a dialect says of the answer."""
    return citewire.read(citewire.write(an_answer(), dialect).payload, dialect)


@cache
def converted(origin: str, target: str) -> Written:
    """What one dialect says, in another; within one, without what was kept of the payload."""
    answer = said_in(origin)
    return citewire.write(answer.bare() if origin == target else answer, target)


def page() -> str:
    """The page with the matrix."""
    names = list(citewire.dialects())
    legend = ", ".join(f"`{letter}` {field}" for field, letter in LETTERS.items())
    head = [f"| from \\ to | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    return "\n".join([_OPENING, f"{legend}.", "", *head, *(_row(origin, names) for origin in names), ""])


_OPENING = """\
# What is lost between dialects

Made by `python tests/support/losses.py`, which writes an answer in the dialect of the row, reads it back, and
writes it in the dialect of the column. A cell names what `Written.losses` then names; an empty one loses
nothing but ids. Where a link or marker is written into the text, or taken out of it, that is a loss too: the
text is not as it was. What each dialect has a place for is in [dialects](dialects.md). The letters:
"""


def _row(origin: str, names: list[str]) -> str:
    return f"| **{origin}** | {' | '.join(_cell(origin, target) for target in names)} |"


def _cell(origin: str, target: str) -> str:
    lost = {loss.field for loss in converted(origin, target).losses}
    return "".join(letter for field, letter in LETTERS.items() if field in lost)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
