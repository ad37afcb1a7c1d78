"""Server-sent events in the framing of AG-UI, and event log files.

`SseParser` takes a response in arbitrary pieces and returns its frames. It accepts what the TypeScript client
accepts and more: CRLF and CR lines, a byte order mark, bytes that are not UTF-8. `encode_frame` writes what
that client needs: LF lines only, and a blank one at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec
from msgspec import Raw, Struct

from citewire.agui import events
from citewire.agui.events import AnyEvent
from citewire.errors import CitewireError, InputError

__all__ = ["FrameTooLarge", "PING", "SseFrame", "SseParser", "encode_frame", "split_event_log"]

# The limit of the TypeScript client, in bytes.
MAX_FRAME = 10 * 1024 * 1024

PING = b": ping\n\n"
"""A comment that keeps an idle connection open; it is not an event."""

_BOM = b"\xef\xbb\xbf"
_BETWEEN = re.compile(r"[\s,]*")
_FIELD = re.compile(rb":|(?:data|event|id|retry)(?:[:\r\n]|\Z)")


class FrameTooLarge(CitewireError):
    """A frame exceeds the size limit; it would have to be held in memory as a whole."""

    code = "frame_too_large"


class SseFrame(Struct, frozen=True, gc=False):
    """One frame; `data` is empty if it only has an id.

    `replaced` means that bytes of the data were not UTF-8 and became U+FFFD.
    """

    data: bytes
    id: str | None = None
    event: str | None = None
    replaced: bool = False


class SseParser:
    """Parses the bytes of one response, in pieces, into frames. Takes time linear in the bytes."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._partial = bytearray()  # the incomplete last line
        self._after_cr = False
        self._at_start = True
        self._failure: FrameTooLarge | None = None
        self._clear()

    def _clear(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None
        self._event: str | None = None

    @property
    def is_between_frames(self) -> bool:
        """Whether no frame is incomplete."""
        return not (self._partial or self._data or self._after_cr) and self._id is self._event is None

    def feed(self, piece: bytes) -> list[SseFrame]:
        """Return the frames that end in `piece`.

        Raises `FrameTooLarge` once the frames completed before have been returned, and on every later call.
        """
        if self._failure:
            raise self._failure
        if not piece:
            return []
        if self._after_cr:  # the line ended at the CR; its LF may be here
            piece = piece.removeprefix(b"\n")
        self._after_cr = piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = piece.split(b"\n")
        return self._checked(self._take(lines), rest)

    def finish(self) -> list[SseFrame]:
        """Return the last frame, if any, at the end of the response; it needs no blank line."""
        return self.feed(b"\n\n") if not self._failure else self.feed(b"")

    def _take(self, lines: list[bytes]) -> Iterator[SseFrame]:
        for line in lines:
            if self._partial:
                self._partial += line
                line = bytes(self._partial)  # noqa: PLW2901  # the whole of it
                self._partial.clear()
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BOM)  # noqa: PLW2901  # the same line
            if line:
                self._read(line)
            else:
                if self._data or self._id is not None:
                    yield self._frame()
                self._clear()
            if self._size > self._limit:
                return

    def _checked(self, found: Iterator[SseFrame], rest: bytes) -> list[SseFrame]:
        frames = list(found)
        if self._size <= self._limit:
            self._partial += rest
        if self._size + len(self._partial) > self._limit:
            self._failure = FrameTooLarge(f"a frame of more than {self._limit} bytes")
            self._partial.clear()
            self._clear()
            if not frames:
                raise self._failure
        return frames

    def _read(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(line) + 1
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")

    def _frame(self) -> SseFrame:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        text = data if data.isascii() else data.decode("utf-8", "replace").encode()
        return SseFrame(text, self._id, self._event, replaced=text != data)


def encode_frame(event: AnyEvent, event_id: str | None = None) -> bytes:
    """Encode `event` as one frame. Raises `InputError` for an id with a line break, NUL or lone surrogate."""
    data = events.encode(event)
    if b"\n" in data or b"\r" in data:  # JSON from another program, over several lines
        data = b"\ndata: ".join(data.splitlines())
    return b"%bdata: %b\n\n" % (b"" if event_id is None else _id_line(event_id), data)


def _id_line(event_id: str) -> bytes:
    if not {"\n", "\r", "\0"}.isdisjoint(event_id):
        raise InputError("the id of an event has no line break and no NUL")
    try:
        return b"id: %b\n" % event_id.encode()
    except UnicodeEncodeError as exc:
        raise InputError("the id of an event has no lone surrogate") from exc


def split_event_log(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the JSON of each event in a log, from its lines; long lines may be split into pieces.

    The format is detected: JSON Lines, server-sent events or one JSON list. Raises `EventError` if it is none
    of them, and `FrameTooLarge`.
    """
    left = iter(lines)
    first = next((line for line in left if line.removeprefix(_BOM).strip()), b"").removeprefix(_BOM)
    start = first.lstrip()
    if start.startswith(b"["):
        return _from_list(b"".join((first, *left)))
    if start.startswith(b"{"):
        return _from_lines(chain((first,), left))
    if start and not _FIELD.match(start):
        raise events.EventError("neither JSON nor server-sent events")
    return _from_frames(chain((first,), left))


def _from_list(data: bytes) -> Iterator[bytes]:
    try:
        return map(bytes, msgspec.json.decode(data, type=list[Raw]))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _from_broken_list(data)


def _from_broken_list(data: bytes) -> Iterator[bytes]:
    """Yield the items up to the first syntax error, and then the unparsed rest."""
    text = data.decode("utf-8", "replace").strip()
    decoder, at = json.JSONDecoder(), 1
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        yield text[at:end].encode()
        at = end
    if text[at:] != "]":
        yield text[at:].encode()


def _from_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        if len(line) > MAX_FRAME:
            raise FrameTooLarge(f"a line of more than {MAX_FRAME} bytes")
        if record := line.strip():
            yield record


def _from_frames(lines: Iterable[bytes]) -> Iterator[bytes]:
    frames = SseParser()
    for line in lines:
        yield from (found.data for found in frames.feed(line) if found.data)
    yield from (found.data for found in frames.finish() if found.data)
