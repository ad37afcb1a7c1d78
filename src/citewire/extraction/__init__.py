"""Citations out of model text: data blocks, tags, footnotes, lists of sources and bare markers.

`extract` reads a whole text, a `Scanner` one that streams; `prompt` makes a model write what they read.
"""

from __future__ import annotations

import gc
from typing import Any

from citewire.codec import encode
from citewire.extraction.delimiters import Buffer
from citewire.extraction.entries import Collector
from citewire.extraction.lenient import LenientReader
from citewire.extraction.prompt import prompt
from citewire.extraction.scanner import Extraction, Scanner

__all__ = ["Extraction", "Scanner", "extract", "prompt"]


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


def _extract_objects(value: dict[str, Any] | list[Any]) -> Extraction:
    """Objects go the way of a data block: as JSON, in which problems have their places.

    Raises `OutputError` for what is no JSON.
    """
    collector, buffer = Collector(), Buffer()
    buffer.grow(encode(value).decode())
    buffer.ended = True
    LenientReader(buffer, collector).read()
    return Extraction("", tuple(collector.citations), tuple(collector.sources), tuple(collector.problems))
