"""JSON Patch (RFC 6902) over JSON Pointer (RFC 6901).

`apply` gives a new document and leaves the old one alone; what a patch does not touch is shared between
the two. A patch that cannot be applied raises `PatchError` and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

from citewire.errors import InputError
from citewire.text import for_log

__all__ = ["PatchError", "apply", "escape", "parse_pointer"]

_BAD_ESCAPE = re.compile("~(?![01])")
# No list is longer than a number of this many digits.
_LONGEST_INDEX = 15
_UNSAFE = frozenset({"__proto__", "constructor", "prototype"})


class PatchError(InputError):
    """An operation that does not fit the document. `path` is that of the operation."""

    code = "bad_patch"


def escape(key: str) -> str:
    """`key` as one token of a pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def parse_pointer(pointer: str) -> list[str]:
    """The tokens of `pointer`. Raises `PatchError` where it is not one, or leads through an unsafe key."""
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise PatchError("a pointer starts with /", pointer)
    if _BAD_ESCAPE.search(pointer):
        raise PatchError("~ is followed by neither 0 nor 1", pointer)
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]
    if unsafe := _UNSAFE.intersection(tokens):
        raise PatchError(f"{min(unsafe)} is not a safe key", pointer)
    return tokens


def apply(document: Any, operations: Iterable[Any]) -> Any:
    """`document` after all `operations`; what they touch is copied once, however often they do."""
    owned: _Owned = {}
    for operation in operations:
        document = _apply_one(document, operation, owned)
    return document


_Owned = dict[int, Any]
"""Containers that were made on the way and stand in one place only: they may be changed as they are."""


def _apply_one(document: Any, operation: Any, owned: _Owned) -> Any:
    if not isinstance(operation, dict):
        raise PatchError("an operation is not an object", "")
    fields = cast("dict[str, Any]", operation)
    path = _pointer(fields, "path")
    match fields.get("op"):
        case "add":
            return _put(document, path, _value(fields), "add", owned)
        case "replace":
            return _put(document, path, _value(fields), "replace", owned)
        case "remove":
            return _remove(document, path, owned)
        case "copy":
            value = _get(document, _pointer(fields, "from"))
            owned.clear()  # what is copied stands in two places now
            return _put(document, path, value, "add", owned)
        case "move":
            return _move(document, _pointer(fields, "from"), path, owned)
        case "test":
            return _test(document, path, _value(fields))
        case unknown:
            raise PatchError(f"unknown operation {for_log(unknown, 40)}", _text(path))


def _test(document: Any, path: list[str], value: Any) -> Any:
    try:
        same = _same(_get(document, path), value)
    except RecursionError as exc:
        raise PatchError("nested too deeply to compare", _text(path)) from exc
    if not same:
        raise PatchError("the test failed", _text(path))
    return document


def _pointer(fields: dict[str, Any], key: str) -> list[str]:
    pointer = fields.get(key)
    if not isinstance(pointer, str):
        raise PatchError(f"an operation needs a string in {key}", "")
    return parse_pointer(pointer)


def _value(fields: dict[str, Any]) -> Any:
    if "value" not in fields:
        raise PatchError("an operation needs a value", str(fields.get("path")))
    return fields["value"]


def _text(path: list[str]) -> str:
    return "".join(f"/{escape(token)}" for token in path)


def _move(document: Any, source: list[str], target: list[str], owned: _Owned) -> Any:
    if target[: len(source)] == source and len(target) > len(source):
        raise PatchError("a value cannot move into itself", _text(target))
    value = _get(document, source)
    return _put(_remove(document, source, owned), target, value, "add", owned)


def _get(document: Any, path: list[str]) -> Any:
    for token in path:
        document = _child(document, token, path)
    return document


def _child(parent: Any, token: str, path: list[str]) -> Any:
    if isinstance(parent, dict):
        if token in parent:
            return cast("Any", parent[token])
    elif isinstance(parent, list):
        items = cast("list[Any]", parent)
        return items[_index(token, len(items) - 1, path)]
    raise PatchError("there is nothing at this path", _text(path))


def _index(token: str, last: int, path: list[str]) -> int:
    """An array index: digits without leading zeros, at most `last`."""
    digits = token.isascii() and token.isdigit() and len(token) <= _LONGEST_INDEX
    if digits and (len(token) == 1 or not token.startswith("0")) and int(token) <= last:
        return int(token)
    raise PatchError(f"{token!r} is not an index of this list", _text(path))


def _put(document: Any, path: list[str], value: Any, op: str, owned: _Owned) -> Any:
    if not path:
        return value
    parents = _walk(document, path)
    copy = _copied(parents[-1], path, owned)
    last = path[-1]
    if isinstance(copy, dict):
        if op == "replace" and last not in copy:
            raise PatchError("there is nothing to replace", _text(path))
        copy[last] = value
    elif op == "replace":
        copy[_index(last, len(copy) - 1, path)] = value
    else:
        copy.insert(len(copy) if last == "-" else _index(last, len(copy), path), value)
    return _rebuilt(parents, path, copy, owned)


def _remove(document: Any, path: list[str], owned: _Owned) -> Any:
    if not path:
        return None
    parents = _walk(document, path)
    _child(parents[-1], path[-1], path)
    copy = _copied(parents[-1], path, owned)
    if isinstance(copy, dict):
        del copy[path[-1]]
    else:
        del copy[int(path[-1])]
    return _rebuilt(parents, path, copy, owned)


def _walk(document: Any, path: list[str]) -> list[Any]:
    """The containers from the root to the parent of what `path` names."""
    parents = [document]
    for token in path[:-1]:
        parents.append(_child(parents[-1], token, path))
    return parents


def _copied(container: Any, path: list[str], owned: _Owned) -> dict[str, Any] | list[Any]:
    """A container that may be changed: a copy, or the one that was made before."""
    if id(container) in owned:
        return container
    if isinstance(container, dict):
        copy: Any = dict(cast("dict[str, Any]", container))
    elif isinstance(container, list):
        copy = list(cast("list[Any]", container))
    else:
        raise PatchError("the parent is neither an object nor a list", _text(path))
    owned[id(copy)] = copy
    return copy


def _rebuilt(parents: list[Any], path: list[str], last: Any, owned: _Owned) -> Any:
    """The root with `last` in place of the last parent; the way there is copied, the rest shared."""
    changed: Any = last
    for depth in range(len(parents) - 2, -1, -1):
        copy: Any = _copied(parents[depth], path, owned)
        step: Any = path[depth] if isinstance(parents[depth], dict) else int(path[depth])
        copy[step] = changed
        changed = copy
    return changed


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON: numbers by value, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        ours, theirs = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        return ours.keys() == theirs.keys() and all(_same(ours[key], theirs[key]) for key in ours)
    if isinstance(left, list) and isinstance(right, list):
        items, others = cast("list[Any]", left), cast("list[Any]", right)
        return len(items) == len(others) and all(map(_same, items, others))
    return left == right
