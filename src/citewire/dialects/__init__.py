"""Read and write citations in every supported provider format, with a report of what was lost.

Each provider has a folder with its dialects and their stream readers. To add a dialect, add a module; `base`
lists what the module must define.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from citewire.codec import decode
from citewire.dialects.base import Dialect, DialectOptions, DialectStream, StreamDialect
from citewire.errors import (
    AmbiguousDialect,
    DecodeError,
    DialectError,
    InputError,
    ShapeError,
    UndetectedDialect,
    UnknownDialect,
    WrongDialect,
)
from citewire.model import Answer, Citation, Written
from citewire.text import Unit

__all__ = [
    "check_answer",
    "detect",
    "dialects",
    "open_stream",
    "read",
    "read_all",
    "stream_dialects",
    "write",
]


@cache
def dialects() -> dict[str, Dialect]:
    """Return all dialects by name."""
    return _by_name(each for each in _modules() if hasattr(each, "UPSTREAM") and hasattr(each, "read_all"))


@cache
def stream_dialects() -> dict[str, StreamDialect]:
    """Return the stream modules of the dialects that can stream, by dialect name."""
    return _by_name(each for each in _modules() if hasattr(each, "STREAM"))


@cache
def _modules() -> list[Any]:
    """Import and return every module of this package."""
    return [importlib.import_module(info.name) for info in pkgutil.walk_packages(__path__, f"{__name__}.")]


def _by_name(modules: Iterable[Any]) -> dict[str, Any]:
    return {module.NAME: module for module in sorted(modules, key=lambda module: module.NAME)}


def _get_dialect(name: str) -> Dialect:
    known = dialects()
    if name not in known:
        raise UnknownDialect(name, tuple(known))
    return known[name]


def detect(payload: Any) -> str:
    """Return the name of the only dialect that recognises `payload`, judged by its envelope.

    Raises `AmbiguousDialect`, naming the candidates, if several match, `UndetectedDialect` if none does.
    """
    fitting = _matching_dialects(payload)
    if len(fitting) > 1:
        raise AmbiguousDialect(fitting)
    if not fitting:
        raise UndetectedDialect
    return fitting[0]


def _matching_dialects(payload: Any) -> tuple[str, ...]:
    """Return the names of all dialects that recognise a payload."""
    whole = tuple(name for name, dialect in dialects().items() if dialect.detect(payload))
    return whole + tuple(name for name, stream in stream_dialects().items() if stream.detect(payload))


def _reject_foreign_payload(name: str, payload: Any) -> None:
    """Raise `WrongDialect` when only other dialects recognise the payload: dialects use the same field names
    for different things. Payloads of the dialects in `READS_TOO` are accepted if no citation is lost."""
    dialect = _get_dialect(name)
    if dialect.detect(payload):
        return
    fitting = _matching_dialects(payload)
    readers = (dialect, stream_dialects().get(name)) if isinstance(payload, list) else (dialect,)
    known = {name for reader in readers for name in getattr(reader, "READS_TOO", ())}
    if not fitting or name in fitting or (known.issuperset(fitting) and _is_all_read(name, fitting, payload)):
        return
    raise WrongDialect(name, fitting)


def _is_all_read(name: str, others: tuple[str, ...], payload: Any) -> bool:
    """Check that a dialect finds at least as many citations as the dialects that recognise the payload."""
    theirs = max(_count(other, payload) for other in others)
    try:
        return _count(name, payload) >= theirs
    except InputError:
        return False


def _count(name: str, payload: Any) -> int:
    return sum(len(answer.citations) for answer in _answers(name, payload, DialectOptions()))


def read(
    payload: Any, dialect: str | None = None, *, text: str | None = None, unit: Unit | None = None
) -> Answer:
    """Read the first answer of `payload`. For the arguments, and for all answers, see `read_all`.

    Raises `ShapeError` also when the payload contains no answer.
    """
    answers = read_all(payload, dialect, text=text, unit=unit)
    if not answers:
        raise ShapeError("there is no answer in this payload")
    return answers[0]


def read_all(
    payload: Any, dialect: str | None = None, *, text: str | None = None, unit: Unit | None = None
) -> tuple[Answer, ...]:
    """Read all answers of `payload`, which is JSON (bytes, text or decoded) or the text of a text dialect.

    Without `dialect`, the dialect is detected. `text` is the answer's text, for payloads that contain only
    citations; `unit` overrides the dialect's offset unit. Pieces that cannot be read are listed in
    `Answer.problems`; a payload that cannot be read at all raises `InputError`.
    """
    with _garbage_collection_paused():
        value = _decode_payload(payload, dialect)
        name = dialect or detect(value)
        if dialect is not None:
            _reject_foreign_payload(dialect, value)
        return _answers(name, value, DialectOptions(text, unit))


def _answers(name: str, value: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if name in stream_dialects() and isinstance(value, list):
        return (_read_events(stream_dialects()[name].STREAM(options), cast("list[Any]", value)),)
    return _get_dialect(name).read_all(value, options)


@contextmanager
def _garbage_collection_paused() -> Generator[None]:
    """Pause garbage collection. Readers and writers build only trees, where the collector finds nothing, but
    with many citations it runs again and again, and its cost grows faster than the payload."""
    was_running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_running:
            gc.enable()


def _read_events(stream: DialectStream, events: list[Any]) -> Answer:
    for number, event in enumerate(events):
        try:
            stream.feed(event)
        except ShapeError as exc:
            raise ShapeError(exc.message, f"$[{number}]{exc.path.removeprefix('$')}") from exc
    return stream.answer()


def _decode_payload(payload: Any, dialect: str | None) -> Any:
    """Decode bytes and text as JSON, unless the dialect is a text dialect."""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        data = bytes(cast("bytes", payload))
        return _text_or_json(data, dialect)
    return _text_or_json(payload, dialect) if isinstance(payload, str) else payload


def _text_or_json(data: bytes | str, dialect: str | None) -> Any:
    if dialect is not None:
        is_text = getattr(_get_dialect(dialect), "IS_TEXT", False)
        return _as_text(data) if is_text else decode(data)
    data = data.removeprefix("\ufeff") if isinstance(data, str) else data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise UndetectedDialect
    opening = data.lstrip()[:1]
    if opening in (b"{", "{"):
        return decode(data)
    # Markdown text can also start with a bracket: a link or a footnote.
    try:
        return decode(data) if opening in (b"[", "[") else _as_text(data)
    except DecodeError:
        return _as_text(data)


def _as_text(data: bytes | str) -> str:
    try:
        return data if isinstance(data, str) else data.decode()
    except UnicodeDecodeError as exc:
        raise ShapeError(f"the text is not UTF-8 at byte {exc.start}") from exc


def write(answer: Answer, dialect: str, *, unit: Unit | None = None) -> Written:
    """Write `answer` in `dialect`. `losses` lists what the dialect cannot express.

    An unchanged answer gives the payload it was read from. Raises `ShapeError` for an answer whose citations
    point outside its text or to sources it does not have.
    """
    module = _get_dialect(dialect)
    check_answer(answer)
    with _garbage_collection_paused():
        return module.write(answer, DialectOptions(unit=unit))


def check_answer(answer: Answer) -> None:
    """Raise `ShapeError` for an inconsistent answer: duplicate ids, missing sources, bad spans."""
    lengths = [len(part.text) for part in answer.parts]
    sources = {source.id for source in answer.sources}
    if len(sources) != len(answer.sources):
        raise ShapeError("two sources have the same id", "$.sources")
    if len({citation.id for citation in answer.citations}) != len(answer.citations):
        raise ShapeError("two citations have the same id", "$.citations")
    for number, citation in enumerate(answer.citations):
        for ref in citation.refs:
            if ref.source_id not in sources:
                raise ShapeError(f"there is no source {ref.source_id!r}", f"$.citations[{number}].refs")
        if lengths and not _is_inside(citation, lengths):
            raise ShapeError("its place is reversed or outside the text", f"$.citations[{number}]")


def _is_inside(citation: Citation, lengths: list[int]) -> bool:
    claim, marker, point = citation.claim, citation.marker, citation.insert_at
    if claim is not None and not _fits(claim.part, claim.start, claim.end, lengths):
        return False
    if marker is not None and not _fits(marker.part, marker.start, marker.end, lengths):
        return False
    return point is None or _fits(point.part, point.at, point.at, lengths)


def _fits(part: int, start: int, end: int, lengths: list[int]) -> bool:
    return 0 <= part < len(lengths) and 0 <= start <= end <= lengths[part]


def open_stream(dialect: str, *, unit: Unit | None = None) -> DialectStream:
    """Return a reader for one stream in `dialect`. Feed it the stream's events one at a time."""
    _get_dialect(dialect)
    if dialect not in stream_dialects():
        raise DialectError(f"{dialect} does not stream; {', '.join(stream_dialects())} do")
    return stream_dialects()[dialect].STREAM(DialectOptions(unit=unit))
