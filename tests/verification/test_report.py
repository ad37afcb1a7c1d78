"""An answer checked: each citation has its verdict, pinned to its source, and what has none is known."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import citewire
from citewire.documents import DocumentError
from citewire.model import Answer, Citation, Pages, Part, Point, Source, SourceRef, Span
from citewire.verification.document_set import DocumentSet
from citewire.verification.report import Report, verify_answer
from citewire.verification.sources import SourceContent
from support.library_documents import OTHER, REPORT

LIBRARY = DocumentSet([REPORT, OTHER])
TEXT = "The fee is low. Guests pay more. Nobody knows why this is so."
SOURCES = (
    Source("s1", filename="report.pdf"),
    Source("s2", url="https://example.com/guests"),
    Source("s3", filename="elsewhere.pdf"),
)


def cited(quote: str | None, source: str = "s1", name: str = "c1", **more: object) -> Citation:
    ref = SourceRef(source, quote=quote, locator=more.pop("locator", None))  # type: ignore[arg-type]
    return Citation(name, (ref,), claim=Span(0, 0, 15))


def verdict(*citations: Citation) -> list[tuple[str, str | None, int | None]]:
    report = verify_answer(Answer((Part(TEXT),), citations, SOURCES), LIBRARY)
    verdicts = [citation.verification for citation in report.answer.citations]
    return [(one.status, one.reason, one.page) for one in verdicts if one is not None]


@pytest.mark.parametrize(
    ("citation", "expected"),
    [
        pytest.param(cited("The deposit is 15 dollars"), ("verified", None, 2), id="verified"),
        pytest.param(
            cited("Guests pay 60 dollars"), ("missed", "these words are not in the source", None), id="pinned"
        ),
        pytest.param(cited("Guests pay 60 dollars", "s2"), ("verified", None, 1), id="by its address"),
        pytest.param(
            cited("Guests pay 60 dollars", "s3"), ("verified", None, 1), id="a source that is not there"
        ),
        pytest.param(cited(None), ("skipped", "nothing quoted", None), id="no quote"),
        pytest.param(
            cited("The fee is 40 dollars", locator=Pages(3, 3)), ("verified", None, 3), id="its page"
        ),
    ],
)
def test_a_citation_gets_its_verdict(
    citation: Citation, expected: tuple[str, str | None, int | None]
) -> None:
    assert verdict(citation) == [expected]


def test_of_several_quotes_the_worst_counts() -> None:
    good, bad = (
        SourceRef("s1", quote="The deposit is 15 dollars"),
        SourceRef("s1", quote="The deposit is 16 dollars"),
    )
    report = verify_answer(Answer((Part(TEXT),), (Citation("c1", (good, bad)),), SOURCES), LIBRARY)
    assert report.counts == {"altered": 1}
    assert [(check.id, check.status) for check in report.checks] == [("c1", "verified"), ("c1", "altered")]


@pytest.mark.parametrize(
    ("text", "citations", "uncited"),
    [
        pytest.param("One two three. Four five six.", [(0, 14)], ["Four five six."], id="a claim"),
        pytest.param(
            "One two three.[1] Four five six.", [("m", 14, 17)], ["Four five six."], id="a marker behind"
        ),
        pytest.param(
            "One two three [1]. Four five six.", [("m", 14, 17)], ["Four five six."], id="a marker within"
        ),
        pytest.param("One two three. Four five six.", [("p", 14)], ["Four five six."], id="a place for one"),
        pytest.param("Yes. Of course. One two three.", [], ["One two three."], id="too short to need one"),
        pytest.param("", [], [], id="nothing"),
    ],
)
def test_sentences_without_a_citation_are_known(text: str, citations: list[Any], uncited: list[str]) -> None:
    def made(number: int, place: tuple[Any, ...]) -> Citation:
        match place:
            case ("m", start, end):
                return Citation(f"c{number}", marker=Span(0, start, end))
            case ("p", at):
                return Citation(f"c{number}", insert_at=Point(0, at))
            case (start, end):
                return Citation(f"c{number}", claim=Span(0, start, end))
            case _:
                raise AssertionError(place)

    given = tuple(made(number, place) for number, place in enumerate(citations))
    report = verify_answer(Answer((Part(text),), given), LIBRARY)
    assert [text[span.start : span.end] for span in report.uncited] == uncited


def test_verify_takes_payloads_and_files(tmp_path: Path) -> None:
    (tmp_path / "fees.txt").write_text("The fee is 40 dollars.", "utf-8")
    payload = {"citations": {"m1": [{"id": "a", "title": "fees.txt", "snippet": "The fee is 40 dollars"}]}}
    report = citewire.verify(payload, [tmp_path / "fees.txt"])
    assert report.counts == {"verified": 1}
    for sources in (
        tmp_path,
        str(tmp_path),
        [b"The fee is 40 dollars."],
        SourceContent("The fee is 40 dollars."),
    ):
        assert citewire.verify(payload, sources).counts == {"verified": 1}
    with pytest.raises(DocumentError):
        citewire.verify(payload, [tmp_path / "nothing.txt"])


MODEL = """The fee is 40 dollars [1], which is little [2].

<<<CITATION_DATA>>>
{"fees.txt": [{"id": 1, "full_phrase": "The fee is 40 dollars."},
              {"id": 2, "full_phrase": "The fee is 41 dollars."}]}
<<<END_CITATION_DATA>>>"""


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        (MODEL, {"altered": 1, "verified": 1}),
        (MODEL.encode(), {"altered": 1, "verified": 1}),
        ("It is little.[^1]\n\n[^1]: fees.txt", {"skipped": 1}),
        ("Nobody is cited.", {}),
    ],
)
def test_verify_takes_what_a_model_wrote(said: str | bytes, counts: dict[str, int]) -> None:
    assert citewire.verify(said, SourceContent("The fee is 40 dollars.", "fees.txt")).counts == counts


def test_verify_works_within_an_event_loop() -> None:
    async def main() -> Report:
        return citewire.verify(Answer((), (cited("The deposit is 15 dollars"),), SOURCES), [REPORT])

    assert asyncio.run(main()).counts == {"verified": 1}
