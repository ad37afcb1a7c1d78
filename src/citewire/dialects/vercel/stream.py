"""The AI SDK's streams: chunks of a UI message, or of a model's output."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_list, is_object, optional, require
from citewire.dialects.common.incremental import IncrementalReader
from citewire.dialects.vercel.messages import NAME, read_message
from citewire.errors import ShapeError
from citewire.model import Answer, Citation

__all__ = ["NAME", "STREAM", "VercelStream", "detect"]

_SOURCES = frozenset({"source", "source-document", "source-url"})
# Chunks that are complete parts.
_WHOLE = _SOURCES | {"file"}
_KEYS = {"text-start": "id", "text-delta": "id", "source-url": "sourceId", "source-document": "sourceId"}


def detect(payload: Any) -> bool:
    """Whether these are chunks, some of them unique to these streams."""
    return is_list(payload) and all(map(is_object, payload)) and any(map(_is_ours, payload))


def _is_ours(chunk: Json) -> bool:
    kind = chunk.get("type")
    if kind == "source":
        return chunk.get("sourceType") in ("url", "document")
    return isinstance(kind, str) and kind in _KEYS and isinstance(chunk.get(_KEYS[kind]), str)


class VercelStream:
    """Reads the chunks. A citation is returned when its source arrives, or at the end if it had to wait for
    the text of its claim."""

    def __init__(self, options: DialectOptions) -> None:
        del options  # claims count code points
        self._message: Json = {"role": "assistant"}
        self._parts: list[Json] = []
        self._pieces: list[list[str]] = []
        self._open: dict[tuple[str, str], int] = {}
        self._key = "parts"
        self._looks = IncrementalReader(self.answer)

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("a stream event is not an object")
        match kind := event.get("type"):
            case "start":
                name = optional(event, "messageId", str, "$")
                self._message |= {} if name is None else {"id": name}
            case "text-start" | "reasoning-start":
                self._start(str(kind).removesuffix("-start"), require(event, "id", str, "$"))
            case "text-delta" | "reasoning-delta":
                self._add(str(kind).removesuffix("-delta"), event)
            case "start-step":
                self._append({"type": "step-start"})
            case _ if isinstance(kind, str) and kind in _WHOLE:
                self._append(event)
                self._key = "content" if kind == "source" else self._key
            case _:
                pass
        is_source = isinstance(kind, str) and kind in _SOURCES
        return self._looks.read_new(news=is_source, done=kind == "finish")

    def _append(self, part: Json) -> None:
        self._parts.append(part)
        self._pieces.append([])

    def _start(self, kind: str, name: str) -> None:
        self._open[kind, name] = len(self._parts)
        self._append({"type": kind, "text": ""})

    def _add(self, kind: str, event: Json) -> None:
        name, delta = require(event, "id", str, "$"), require(event, "delta", str, "$")
        if (kind, name) not in self._open:
            self._start(kind, name)
        self._pieces[self._open[kind, name]].append(delta)

    def answer(self) -> Answer:
        parts = [
            {**part, "text": "".join(pieces)} if pieces else part
            for part, pieces in zip(self._parts, self._pieces, strict=True)
        ]
        return read_message({**self._message, self._key: parts})


STREAM = VercelStream
