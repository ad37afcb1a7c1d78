"""Extract citations from model text: data blocks, tags, footnotes, lists of sources and bare markers.

`extract` reads a whole text, a `Scanner` a stream; `prompt` makes a model write what they read.
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
    """Extract the citations of a model's answer.

    Also takes citations that are objects already, alone or nested anywhere. Nothing that a model can write
    makes this raise; unreadable pieces are in `problems`.
    """
    if not isinstance(text, str):
        return _extract_objects(text)
    scanner = Scanner()
    # This builds trees, which the garbage collector would search for cycles again and again.
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
    """Read the answers of a payload, like `citewire.read_all`; but text that is a model's answer, and of no
    named dialect, is searched for any citations."""
    answers = read_all(payload, dialect)
    native = answers[0].native if len(answers) == 1 and dialect is None else None
    if native is None or not isinstance(native.raw, str):
        return answers
    found = extract(native.raw)
    return (found.answer,) if found.citations or found.problems else answers


def _extract_objects(value: dict[str, Any] | list[Any]) -> Extraction:
    """Read objects like a data block: as JSON, which gives problems an offset.

    Raises `OutputError` for values that are not JSON.
    """
    collector, buffer = CitationCollector(), ScanBuffer()
    buffer.grow(encode(value).decode())
    buffer.ended = True
    LenientJsonReader(buffer, collector).read()
    return Extraction("", tuple(collector.citations), tuple(collector.sources), tuple(collector.problems))
