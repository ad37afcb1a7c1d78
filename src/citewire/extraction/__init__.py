"""Citations out of model text: data blocks, tags, footnotes, lists of sources and bare markers.

`extract` reads a whole text, a `Scanner` one that streams; `prompt` makes a model write what they read.
"""

from __future__ import annotations

import gc
from typing import Any

from citewire.codec import encode
from citewire.dialects import read_all
from citewire.extraction.collector import CitationCollector
from citewire.extraction.delimiters import ScanBuffer
from citewire.extraction.lenient_json import LenientJsonReader
from citewire.extraction.prompt import prompt
from citewire.extraction.scanner import Extraction, Scanner
from citewire.model import Answer

__all__ = ["Extraction", "Scanner", "extract", "prompt", "read_answers"]


def extract(text: str | dict[str, Any] | list[Any]) -> Extraction:
    """What the answer of a model cites.

    Also takes citations that are objects already, alone or anywhere within others. Nothing that a model can
    write raises; what could not be read is in `problems`.
    """
    if not isinstance(text, str):
        return _extract_objects(text)
    scanner = Scanner()
    # What is made here are trees, in which the collector of garbage would look for cycles again and again.
    collects = gc.isenabled()
    gc.disable()
    try:
        scanner.feed(text)
        scanner.close()
        return scanner.extraction()
    finally:
        if collects:
            gc.enable()


def read_answers(payload: Any, dialect: str | None = None) -> tuple[Answer, ...]:
    """The answers of a payload, as `citewire.read_all` reads them; but text that is the answer of a model,
    and of no named dialect, is read for whatever it cites."""
    answers = read_all(payload, dialect)
    native = answers[0].native if len(answers) == 1 and dialect is None else None
    if native is None or not isinstance(native.raw, str):
        return answers
    found = extract(native.raw)
    return (found.answer,) if found.citations or found.problems else answers


def _extract_objects(value: dict[str, Any] | list[Any]) -> Extraction:
    """Objects go the way of a data block: as JSON, in which problems have their places.

    Raises `OutputError` for what is no JSON.
    """
    collector, buffer = CitationCollector(), ScanBuffer()
    buffer.grow(encode(value).decode())
    buffer.ended = True
    LenientJsonReader(buffer, collector).read()
    return Extraction("", tuple(collector.citations), tuple(collector.sources), tuple(collector.problems))
