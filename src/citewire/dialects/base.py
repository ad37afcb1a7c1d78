"""What the dialects share: careful field access, a source register, and writing over what was kept.

A dialect is one module beside this one. It has

* `NAME`, and `UPSTREAM`, the version of the shape it follows;
* `ROOM`, what the shape has a place for;
* `detect(payload)`, whether a payload looks like this dialect, by its envelope;
* `read_all(payload, options)`, every answer in it;
* `write(answer, options)`, the payload and what it could not say.

A dialect that streams has a second module of the same name in `streams`.

Readers raise `ShapeError` when the payload as a whole is unusable, and otherwise leave out just the
citation that is, with a `Problem`.
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
    """What the caller knows that the payload does not say.

    `text` is the answer's text where a payload carries citations alone; `unit` overrides the unit that
    the dialect is known to count in.
    """

    text: str | None = None
    unit: Unit | None = None


class DialectStream(Protocol):
    """Reads a provider's stream, event by event."""

    def feed(self, event: Any) -> tuple[Citation, ...]:
        """The citations this event made known or complete; one with an id seen before replaces it."""
        ...

    def answer(self) -> Answer:
        """The answer so far."""
        ...


class Dialect(Protocol):
    """The module of a dialect, as the package sees it."""

    NAME: str
    UPSTREAM: str
    ROOM: SupportedFields
    # And, where payloads of other dialects are read as well: `READS_TOO`, their names (in the module of the
    # stream, for events alone). Where it has a place for files, but none without an address: `NEEDS_URL`.

    def detect(self, payload: Any) -> bool: ...

    def read_all(self, payload: Any, options: DialectOptions) -> tuple[Answer, ...]: ...

    def write(self, answer: Answer, options: DialectOptions) -> Written: ...


class StreamDialect(Protocol):
    """The module of a dialect's stream, as the package sees it."""

    NAME: str

    def detect(self, payload: Any) -> bool: ...

    @property
    def STREAM(self) -> Callable[[DialectOptions], DialectStream]:  # noqa: N802  a constant of the module
        """Makes a reader of one stream."""
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
    """`raw[key]`, of that type. Raises `ShapeError` with the path `at.key`."""
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
    """`raw[key]`, or None where it is absent or null. Raises `ShapeError` for another type."""
    value = raw.get(key)
    if value is None or type(value) is kind:
        return value
    raise ShapeError(f"{key} is not {_WORDS[kind]}", f"{at}.{key}")


class ProblemList:
    """Pieces of a payload that could not be read."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def try_read(self, path: Callable[[], str], read: Callable[..., T], *args: Any) -> T | None:
        """What `read` gives, or None and a problem noted. `path` is only made when it is needed."""
        try:
            return read(*args)
        except InputError as exc:
            self.add(path(), exc)
            return None

    def add(self, path: str, error: InputError) -> None:
        """Note what `error` says, at the place below `path` that it names."""
        self._found.append(Problem(error.code, path + error.path, error.message))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)


class SourceRegistry:
    """The sources of an answer, each once, under ids `s1`, `s2`, … in the order of first use."""

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
        """The id of this source."""
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
        """Drop what was added after there were `size` sources: nothing readable points to it."""
        del self._sources[size:]
        self._ids = dict(list(self._ids.items())[:size])

    def __iter__(self) -> Iterator[Source]:
        return iter(self._sources)


def native_for(native: Native | None, dialect: str) -> Native | None:
    """What was kept, if it was kept by this dialect."""
    return native if native is not None and native.dialect == dialect else None


def overlay(raw: Json | None, fields: Json) -> Json:
    """`fields` written over what was kept: the model decides, the rest stays.

    None takes a field away, except where the payload itself said null.
    """
    out = dict(raw) if raw else {}
    for key, value in fields.items():
        if value is not None:
            out[key] = value
        elif out.get(key) is not None:
            del out[key]
    return out


def interleave(kept: Iterable[tuple[Any, Any]] | None, written: list[tuple[Any | None, Any]]) -> list[Any]:
    """What is written, in its order, with what could not be read back in its old places between.

    Each comes with the place it had; what is new has none, and stands behind what was kept at the end.
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
    """The value at `path`."""
    for step in path:
        root = root[step]
    return root


def path_text(path: tuple[str | int, ...]) -> str:
    """`path` as people write it: `$.messages[0].text`."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def put_at(root: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """`root` with `value` at `path`; only the containers on the way are copied."""
    if not path:
        return value
    copy: Any = dict(cast("Json", root)) if isinstance(root, dict) else list(root)
    copy[path[0]] = put_at(copy[path[0]], path[1:], value) if path[1:] else value
    return copy
