"""The interface of a dialect, and helpers for field access, source ids and merging with the original.

Each dialect is one module, which defines

* `NAME`, and `UPSTREAM`, the version of the provider's format that it follows;
* `SUPPORTED_FIELDS`, the fields that the format can express;
* `detect(payload)`, whether the payload's envelope looks like this dialect;
* `read_all(payload, options)`, which returns every answer in the payload;
* `write(answer, options)`, which returns the payload and what it could not express.

A dialect that streams has a second module with the same `NAME` and a `STREAM`.

Readers raise `ShapeError` when the payload as a whole is unusable. Otherwise they omit only the unreadable
citation and report a `Problem`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeGuard, TypeVar, cast, overload

from msgspec import Struct

from citewire.adapt import SupportedFields, to_hashable
from citewire.errors import InputError, ShapeError
from citewire.model import Answer, Citation, Native, Problem, Source, SourceKind, Written
from citewire.text import Unit

__all__ = [
    "Dialect",
    "DialectOptions",
    "DialectStream",
    "Json",
    "ProblemList",
    "SourceRegistry",
    "StreamDialect",
    "get_at",
    "interleave",
    "is_list",
    "is_object",
    "native_for",
    "optional",
    "overlay",
    "path_text",
    "put_at",
    "require",
]

Json = dict[str, Any]
T = TypeVar("T")


class DialectOptions(Struct, frozen=True):
    """Facts that the caller knows and the payload does not contain.

    `text` is the answer's text, for payloads that contain only citations; `unit` overrides the dialect's
    usual offset unit.
    """

    text: str | None = None
    unit: Unit | None = None


class DialectStream(Protocol):
    """Reads a provider's stream, event by event."""

    def feed(self, event: Any) -> tuple[Citation, ...]:
        """Read an event and return the new and changed citations; a known id replaces the earlier one."""
        ...

    def answer(self) -> Answer:
        """Return the answer so far."""
        ...


class Dialect(Protocol):
    """The interface of a dialect's module."""

    NAME: str
    UPSTREAM: str
    SUPPORTED_FIELDS: SupportedFields
    # Optional constants: `READS_TOO` names other dialects whose payloads this one can read as well (in the
    # stream module, for events only). `NEEDS_URL` says that files can be cited only if they have a URL.

    def detect(self, payload: Any) -> bool: ...

    def read_all(self, payload: Any, options: DialectOptions) -> tuple[Answer, ...]: ...

    def write(self, answer: Answer, options: DialectOptions) -> Written: ...


class StreamDialect(Protocol):
    """The interface of a dialect's stream module."""

    NAME: str

    def detect(self, payload: Any) -> bool: ...

    @property
    def STREAM(self) -> Callable[[DialectOptions], DialectStream]:  # noqa: N802  a constant of the module
        """Create a reader for one stream."""
        ...


def is_object(value: Any) -> TypeGuard[Json]:
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


_WORDS: dict[type, str] = {
    str: "a string",
    int: "an integer",
    dict: "an object",
    list: "a list",
    float: "a number",
}


@overload
def require(raw: Json, key: str, kind: type[dict[Any, Any]], at: str = "") -> Json: ...
@overload
def require(raw: Json, key: str, kind: type[list[Any]], at: str = "") -> list[Any]: ...
@overload
def require(raw: Json, key: str, kind: type[T], at: str = "") -> T: ...
def require(raw: Json, key: str, kind: type[Any], at: str = "") -> Any:
    """Return `raw[key]`. Raises `ShapeError` with the path `at.key` if it is missing or of another type."""
    value = raw.get(key)
    if type(value) is kind:
        return value
    problem = "is missing" if key not in raw else f"is not {_WORDS[kind]}"
    raise ShapeError(f"{key} {problem}", f"{at}.{key}")


@overload
def optional(raw: Json, key: str, kind: type[dict[Any, Any]], at: str = "") -> Json | None: ...
@overload
def optional(raw: Json, key: str, kind: type[list[Any]], at: str = "") -> list[Any] | None: ...
@overload
def optional(raw: Json, key: str, kind: type[T], at: str = "") -> T | None: ...
def optional(raw: Json, key: str, kind: type[Any], at: str = "") -> Any:
    """Return `raw[key]`, or None if it is absent or null. Raises `ShapeError` if it is of another type."""
    value = raw.get(key)
    if value is None or type(value) is kind:
        return value
    raise ShapeError(f"{key} is not {_WORDS[kind]}", f"{at}.{key}")


class ProblemList:
    """The pieces of a payload that could not be read."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def try_read(self, path: Callable[[], str], read: Callable[..., T], *args: Any) -> T | None:
        """Return the result of `read`, or None after recording its `InputError`, at `path`."""
        try:
            return read(*args)
        except InputError as exc:
            self.add(path(), exc)
            return None

    def add(self, path: str, error: InputError) -> None:
        """Record `error` as a problem. Its path is relative to `path`."""
        self._found.append(Problem(error.code, path + error.path, error.message))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)


class SourceRegistry:
    """The distinct sources of an answer, with ids `s1`, `s2`, … in the order of first use."""

    def __init__(self) -> None:
        self._ids: dict[tuple[Any, ...], str] = {}
        self._sources: list[Source] = []

    def add(
        self,
        kind: SourceKind,
        url: str | None = None,
        title: str | None = None,
        *,
        filename: str | None = None,
        file_id: str | None = None,
        record_id: str | None = None,
        index: int | None = None,
        domain: str | None = None,
        snippet: str | None = None,
        metadata: Json | None = None,
    ) -> str:
        """Register a source and return its id. The same source gets the same id."""
        fields = (kind, url, title, filename, file_id, record_id, index, domain, snippet)
        identity = (*fields, to_hashable(metadata)) if metadata else fields
        name = self._ids.get(identity)
        if name is None:
            name = self._ids[identity] = f"s{len(self._ids) + 1}"
            self._sources.append(Source(name, *fields, metadata or {}))
        return name

    def __len__(self) -> int:
        return len(self._sources)

    def truncate(self, size: int) -> None:
        """Drop all sources after the first `size`, because no readable citation refers to them."""
        del self._sources[size:]
        self._ids = dict(list(self._ids.items())[:size])

    def __iter__(self) -> Iterator[Source]:
        return iter(self._sources)


def native_for(native: Native | None, dialect: str) -> Native | None:
    """Return `native` if this dialect created it, else None."""
    return native if native is not None and native.dialect == dialect else None


def overlay(raw: Json | None, fields: Json) -> Json:
    """Return the original object `raw` updated with `fields`; other fields stay unchanged.

    A value of None removes the field, except where the original says null.
    """
    out = dict(raw) if raw else {}
    for key, value in fields.items():
        if value is not None:
            out[key] = value
        elif out.get(key) is not None:
            del out[key]
    return out


def interleave(kept: Iterable[tuple[Any, Any]] | None, written: list[tuple[Any | None, Any]]) -> list[Any]:
    """Merge written items with the unreadable originals in `kept`, which return to their old positions.

    Each item comes with its old position, None for a new item. New items at the end follow all originals.
    """
    waiting = deque(sorted(kept or (), key=lambda item: item[0]))
    if not waiting:
        return [value for _, value in written]
    last_old = max((number for number, (at, _) in enumerate(written) if at is not None), default=-1)
    out: list[Any] = []
    for number, (at, value) in enumerate(written):
        while waiting and (number > last_old if at is None else waiting[0][0] < at):
            out.append(waiting.popleft()[1])
        out.append(value)
    return out + [value for _, value in waiting]


def get_at(root: Any, path: tuple[str | int, ...]) -> Any:
    """Return the value at `path`."""
    for step in path:
        root = root[step]
    return root


def path_text(path: tuple[str | int, ...]) -> str:
    """Format `path` for people: `$.messages[0].text`."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def put_at(root: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Return `root` with `value` at `path`; only the containers along the path are copied."""
    if not path:
        return value
    copy: Any = dict(cast("Json", root)) if isinstance(root, dict) else list(root)
    copy[path[0]] = put_at(copy[path[0]], path[1:], value) if path[1:] else value
    return copy
