"""Whether the words of a citation are in its source: found, judged and shown."""

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
    """Check the quotes of an answer, a payload in any dialect or the text of a model, against its sources.

    Those are files, folders, addresses and documents. Raises `DocumentError` for one that cannot be read. It
    says whether the words are there, not whether they support what they are cited for. It checks in this
    process, event loop or none; `Engine` does it in others.
    """
    # They bring numpy along, which those who only read and write need not wait for.
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
