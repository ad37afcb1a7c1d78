"""JSON Patch (RFC 6902) over JSON Pointer (RFC 6901).

`apply_patch` returns a new value and leaves the old one unchanged. A `PatchTarget` is for repeated patches:
it changes its own copies in place, so a patch costs only what it touches, and `PatchTarget.value` returns the
value for good. In both cases untouched parts are shared between before and after, and a patch that cannot be
applied raises `PatchError` and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from citewire.errors import InputError
from citewire.frozen import drop_item, drop_member, freeze, insert_item, set_item, set_member
from citewire.text import one_line

__all__ = ["PatchError", "PatchTarget", "apply_patch", "escape_token", "parse_pointer"]

_BAD_ESCAPE = re.compile("~(?![01])")
# No list has an index with more digits.
_LONGEST_INDEX = 15
# How many values `copy` may duplicate in a document before it is replaced.
_MOST_COPIES = 1_000_000
_UNSAFE = frozenset({"__proto__", "constructor", "prototype"})


class PatchError(InputError):
    """An operation that does not fit the document. `path` is the operation's path."""

    code = "bad_patch"


def escape_token(key: str) -> str:
    """Escape `key` as one token of a pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def parse_pointer(pointer: str) -> list[str]:
    """Return the tokens of `pointer`. Raises `PatchError` if it is invalid or contains an unsafe key."""
    tokens = _tokens(pointer)
    if unsafe := _UNSAFE.intersection(tokens):
        raise PatchError(f"{min(unsafe)} is not a safe key", pointer)
    return tokens


def _tokens(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise PatchError("a pointer starts with /", pointer)
    if "~" not in pointer:
        return pointer[1:].split("/")
    if _BAD_ESCAPE.search(pointer):
        raise PatchError("~ is followed by neither 0 nor 1", pointer)
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]


def _client_pointer(pointer: str) -> list[str]:
    """Return the tokens of `pointer` as the AG-UI client does: it refuses only paths to a prototype."""
    tokens = _tokens(pointer)
    for at, key in enumerate(tokens):
        if key == "__proto__" or (key == "prototype" and at and tokens[at - 1] == "constructor"):
            raise PatchError(f"{key} is not a safe key", pointer)
    return tokens


def apply_patch(document: Any, operations: Iterable[Any]) -> Any:
    """Return `document` after all `operations`. Each touched container is copied only once."""
    patched = PatchTarget(document)
    patched.apply(operations)
    return patched.value


class PatchTarget:
    """A JSON value that is patched in place where nobody else holds a reference.

    With `frozen`, the value and everything patched into it is frozen. With `as_client` it accepts what the
    AG-UI client accepts beyond the RFC: the index of an added value may have leading zeros or be empty, a
    value copied or moved past the end of a list is appended, and a key is unsafe only if it reaches a
    prototype.
    """

    def __init__(self, value: Any, as_client: bool = False, frozen: bool = False) -> None:
        self._value = freeze(value) if frozen else value
        self._as_client = as_client
        self._parse = _client_pointer if as_client else parse_pointer
        self._taken: Callable[[Any], Any] = freeze if frozen else _as_is
        # Containers created here and referenced in one place only, by identity.
        self._owned: dict[int, Any] = {}
        self._undo: list[Callable[[], object]] = []
        self._copies = _MOST_COPIES

    @property
    def value(self) -> Any:
        """The current value. Later patches copy what they change."""
        self._owned = {}
        return self._value

    def peek(self) -> Any:
        """Return the value without giving up ownership. Valid only until the next patch."""
        return self._value

    def replace(self, value: Any) -> None:
        """Replace the whole value."""
        self._owned, self._copies = {}, _MOST_COPIES
        self._value = self._taken(value)

    def apply(self, operations: Iterable[Any]) -> None:
        """Apply all `operations`, or raise `PatchError` and apply none."""
        before, self._undo = self._value, []
        try:
            for operation in operations:
                self._value = self._apply_one(operation)
        except BaseException:
            for step in reversed(self._undo):
                step()
            self._value = before
            raise

    def _apply_one(self, operation: Any) -> Any:
        if not isinstance(operation, dict):
            raise PatchError("an operation is not an object", "")
        fields = cast("dict[str, Any]", operation)
        path = self._pointer(fields, "path")
        match fields.get("op"):
            case "add":
                return self._put(path, self._taken(_value(fields)), "add")
            case "replace":
                return self._put(path, self._taken(_value(fields)), "replace")
            case "remove":
                return self._remove(path)
            case "copy":
                value = self._get(self._pointer(fields, "from"))
                self._spend(value, path)
                self._owned = {}  # the copied value is now in two places
                return self._put(path, value, "copy")
            case "move":
                return self._move(self._pointer(fields, "from"), path)
            case "test":
                return self._test(path, _value(fields))
            case unknown:
                raise PatchError(f"unknown operation {one_line(unknown, 40)}", _format_pointer(path))

    def _spend(self, value: Any, path: list[str]) -> None:
        """Limit copying: copies of copies would double a document with every operation."""
        left = [value]
        while left and self._copies:
            inner = left.pop()
            self._copies -= 1
            if isinstance(inner, dict):
                left.extend(cast("dict[str, Any]", inner).values())
            elif isinstance(inner, list):
                left.extend(cast("list[Any]", inner))
        if left:
            raise PatchError("too much was copied", _format_pointer(path))

    def _pointer(self, fields: dict[str, Any], key: str) -> list[str]:
        pointer = fields.get(key)
        if not isinstance(pointer, str):
            raise PatchError(f"an operation needs a string in {key}", "")
        return self._parse(pointer)

    def _test(self, path: list[str], value: Any) -> Any:
        try:
            same = _json_equal(self._get(path), value)
        except RecursionError as exc:
            raise PatchError("nested too deeply to compare", _format_pointer(path)) from exc
        if not same:
            raise PatchError("the test failed", _format_pointer(path))
        return self._value

    def _move(self, source: list[str], target: list[str]) -> Any:
        if target[: len(source)] == source and len(target) > len(source):
            raise PatchError("a value cannot move into itself", _format_pointer(target))
        value = self._get(source)
        self._value = self._remove(source)
        return self._put(target, value, "move")

    def _get(self, path: list[str]) -> Any:
        found = self._value
        for token in path:
            found = self._child(found, token, path)
        return found

    def _child(self, parent: Any, token: str, path: list[str]) -> Any:
        if isinstance(parent, dict):
            if token in parent:
                return cast("Any", parent[token])
            raise PatchError("a non-existent key", _format_pointer(path))
        if isinstance(parent, list):
            items = cast("list[Any]", parent)
            return items[self._index(token, len(items) - 1, path)]
        raise PatchError("there is nothing at this path", _format_pointer(path))

    def _index(self, token: str, last: int, path: list[str]) -> int:
        """Parse an array index: digits without leading zeros, at most `last`."""
        digits = token.isascii() and token.isdigit() and len(token) <= _LONGEST_INDEX
        if digits and (len(token) == 1 or not token.startswith("0")) and int(token) <= last:
            return int(token)
        raise PatchError(f"{token!r} is not an index of this list", _format_pointer(path))

    def _put(self, path: list[str], value: Any, op: str) -> Any:
        if not path:
            return value
        parents = self._walk(path)
        copy, last = self._copied(parents[-1], path), path[-1]
        if isinstance(copy, dict):
            self._put_member(copy, last, value, op, path)
        elif op == "replace":
            at = self._index(last, len(copy) - 1, path)
            self._undo.append(partial(set_item, copy, at, copy[at]))
            set_item(copy, at, value)
        else:
            at = len(copy) if last == "-" else self._place(last, len(copy), op, path)
            self._undo.append(partial(drop_item, copy, at))
            insert_item(copy, at, value)
        return self._rebuilt(parents, path, copy)

    def _put_member(self, copy: dict[str, Any], key: str, value: Any, op: str, path: list[str]) -> None:
        if key in copy:
            self._undo.append(partial(set_member, copy, key, copy[key]))
        elif op == "replace":
            raise PatchError("there is nothing to replace", _format_pointer(path))
        else:
            self._undo.append(partial(drop_member, copy, key))
        set_member(copy, key, value)

    def _place(self, token: str, length: int, op: str, path: list[str]) -> int:
        if not self._as_client:
            return self._index(token, length, path)
        at = self._index(token.lstrip("0") or "0", length if op == "add" else 10**_LONGEST_INDEX, path)
        return min(at, length)

    def _remove(self, path: list[str]) -> Any:
        if not path:
            return None
        parents = self._walk(path)
        old = self._child(parents[-1], path[-1], path)
        if isinstance(parents[-1], dict):
            # Always change a copy: undo would put the member back as the last one.
            self._owned.pop(id(cast("object", parents[-1])), None)
            copy = self._copied(parents[-1], path)
            drop_member(cast("dict[str, Any]", copy), path[-1])
        else:
            copy = cast("list[Any]", self._copied(parents[-1], path))
            at = self._index(path[-1], len(copy) - 1, path)
            self._undo.append(partial(insert_item, copy, at, old))
            drop_item(copy, at)
        return self._rebuilt(parents, path, copy)

    def _walk(self, path: list[str]) -> list[Any]:
        """Return the containers from the root to the parent of `path`."""
        parents = [self._value]
        for token in path[:-1]:
            parents.append(self._child(parents[-1], token, path))
        return parents

    def _copied(self, container: Any, path: list[str]) -> dict[str, Any] | list[Any]:
        """Return a container that may be changed: a copy of the same type, or one already owned."""
        if id(container) in self._owned:
            return container
        if not isinstance(container, dict | list):
            raise PatchError("the parent is neither an object nor a list", _format_pointer(path))
        kind = cast("type[dict[str, Any] | list[Any]]", type(cast("object", container)))
        copy = kind(cast("Any", container))
        self._owned[id(copy)] = copy
        return copy

    def _rebuilt(self, parents: list[Any], path: list[str], last: Any) -> Any:
        """Return the root with `last` in place of the last parent. The path is copied, the rest shared."""
        changed = last
        for depth in range(len(parents) - 2, -1, -1):
            if changed is parents[depth + 1]:
                return self._value  # already owned and in its place
            copy = self._copied(parents[depth], path)
            if isinstance(copy, dict):
                self._undo.append(partial(set_member, copy, path[depth], copy[path[depth]]))
                set_member(copy, path[depth], changed)
            else:
                at = self._index(path[depth], len(copy) - 1, path)
                self._undo.append(partial(set_item, copy, at, copy[at]))
                set_item(copy, at, changed)
            changed = copy
        return changed


def _as_is(value: Any) -> Any:
    return value


def _value(fields: dict[str, Any]) -> Any:
    if "value" not in fields:
        raise PatchError("an operation needs a value", str(fields.get("path")))
    return fields["value"]


def _format_pointer(path: list[str]) -> str:
    return "".join(f"/{escape_token(token)}" for token in path)


def _json_equal(left: Any, right: Any) -> bool:
    """Whether two values are equal as JSON: numbers by value, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        ours, theirs = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        return ours.keys() == theirs.keys() and all(_json_equal(ours[key], theirs[key]) for key in ours)
    if isinstance(left, list) and isinstance(right, list):
        items, others = cast("list[Any]", left), cast("list[Any]", right)
        return len(items) == len(others) and all(map(_json_equal, items, others))
    return left == right
