"""Verification of citations: find each quote in its source, judge it and report the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from citewire.errors import ShapeError
from citewire.model import Answer

if TYPE_CHECKING:
    from citewire.verification.report import Report
    from citewire.verification.sources import SourceInput

__all__ = ["verify"]


def verify(answer: Answer | Any, sources: SourceInput | Iterable[SourceInput]) -> Report:
    """Check the quotes of an answer against its sources, and return a report.

    The answer is an `Answer`, a payload in any dialect, or a model's text; sources are files, folders, URLs
    and documents. The verdict says whether the words are there, not whether they support the claim.
    Everything runs in this process, with or without an event loop; `Engine` uses child processes. Raises
    `DocumentError` for a source that cannot be read.
    """
    # These import numpy, which callers that only read and write answers should not wait for.
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    from citewire.verification.document_set import DocumentSet  # noqa: PLC0415
    from citewire.verification.report import verify_answer  # noqa: PLC0415
    from citewire.verification.sources import iter_sources, load_source  # noqa: PLC0415

    known = answer if isinstance(answer, Answer) else _first(answer)
    with ThreadPoolExecutor() as threads:
        documents = [document for _, document in threads.map(load_source, iter_sources(sources))]
    return verify_answer(known, DocumentSet(documents))


def _first(payload: Any) -> Answer:
    from citewire.extraction import read_answers  # noqa: PLC0415  # its patterns take a while to compile

    answers = read_answers(payload)
    if not answers:
        raise ShapeError("there is no answer in it")
    return answers[0]
