"""Whether the words of a citation are in its source: found, judged and shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from citewire.dialects import read
from citewire.model import Answer

if TYPE_CHECKING:
    from os import PathLike

    from citewire.documents import Document
    from citewire.verification.report import Report

__all__ = ["verify"]


def verify(answer: Answer | Any, sources: Iterable[Document | str | PathLike[str] | bytes]) -> Report:
    """Check the quotes of an answer, or of a payload in any dialect, against its sources.

    Raises `DocumentError` for a source that cannot be read. It says whether the words are there, not whether
    they support what they are cited for.
    """
    # They bring numpy along, which those who only read and write need not wait for.
    from citewire.documents import Document, load  # noqa: PLC0415
    from citewire.verification.library import Library  # noqa: PLC0415
    from citewire.verification.report import verify_answer  # noqa: PLC0415

    known = answer if isinstance(answer, Answer) else read(answer)
    documents = [source if isinstance(source, Document) else load(source) for source in sources]
    return verify_answer(known, Library(documents))
