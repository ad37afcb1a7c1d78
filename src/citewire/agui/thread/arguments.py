"""The arguments of a tool call while they are streamed: fragments of one JSON text, as the best value so far.

Each fragment is looked at once. What is read is the text up to where it makes sense, closed: the half of a
string is shown, the half of a number is not.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from citewire import codec
from citewire.agui.thread.persistent_list import AppendOnlyText, join_surrogates
from citewire.errors import DecodeError, OutputError
from citewire.frozen import FrozenDict, freeze

__all__ = ["Arguments"]

_MARKS = re.compile(r'["{}\[\],:]')
# Within a string: its end, or an escape that is not at an end and may be cut off.
_IN_STRING = re.compile(r'"|\\(?:u[0-9a-fA-F]{0,4}|.|$)', re.DOTALL)
# An escape that goes on, or the first half of a surrogate pair.
_CUT_ESCAPE = re.compile(r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}))?\Z")
_ESCAPE_LENGTH = len("\\ud83d")
_NOTHING = FrozenDict()


class Arguments:
    """The arguments of one call. With `seed`, each fragment is taken for the whole, as @ngaf/ag-ui does."""

    __slots__ = (
        "_carry",
        "_closers",
        "_is_key",
        "_length",
        "_made",
        "_root",
        "_safe",
        "_seed",
        "_string",
        "_text",
    )

    def __init__(self, seed: bool = False) -> None:
        self._seed = seed
        self._restart()

    def _restart(self) -> None:
        self._text = AppendOnlyText()
        self._length = 0  # of what was looked at, in code points
        self._safe = 0  # where the text, closed, is whole
        self._closers: list[str] = []  # the brackets that will close it, outermost first
        self._root = ""  # the bracket that closes the outermost one
        self._string = self._is_key = False
        self._carry = ""  # an escape that was cut
        self._made: FrozenDict | None = _NOTHING

    def copy(self) -> Arguments:
        twin = Arguments.__new__(Arguments)
        for name in Arguments.__slots__:
            setattr(twin, name, getattr(self, name))
        twin._text, twin._closers = self._text.copy(), self._closers.copy()
        return twin

    def feed(self, fragment: str) -> None:
        """Go on with `fragment`; an object by itself replaces an object that is whole."""
        if self._seed:
            self._made = _object(fragment) or _NOTHING
            return
        if self.is_complete:
            if _object(fragment) is None:
                return  # nothing more belongs to it
            self._restart()
        self._text.extend((fragment,))
        self._made = None
        self._scan(self._carry + fragment)

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is an object, and closed."""
        return self._root == "}" and not self._closers and not self._string

    @property
    def value(self) -> FrozenDict:
        """The best value so far; `{}` where there is no object."""
        if self._made is None:
            self._made = _object(self._close_text()) or _NOTHING
        return self._made

    def _close_text(self) -> str:
        text, closers = self._text.join(), "".join(reversed(self._closers))
        if self._string and not self._is_key:
            return text[: len(text) - len(self._carry)] + '"' + closers
        return text[: self._safe] + closers

    def _scan(self, text: str) -> None:
        """Note what the new text opens and closes. `text` starts with what was carried over."""
        start = self._length - len(self._carry)
        self._carry = ""
        at, half = 0, -1  # where the first half of a surrogate pair was escaped, right before
        while at < len(text):
            mark = (_IN_STRING if self._string else _MARKS).search(text, at)
            if mark is None:
                break
            at = mark.end()
            if not self._string:
                self._mark(mark[0], start + mark.start())
            elif mark[0] == '"':
                self._string = False
                if not self._is_key:
                    self._safe = start + at
            elif at == len(text) and _CUT_ESCAPE.match(mark[0]):
                follows = half >= 0 and mark.start() == half + _ESCAPE_LENGTH
                self._carry = text[half if follows else mark.start() :]
            else:
                half = mark.start() if _CUT_ESCAPE.match(mark[0]) else -1
        self._length = start + len(text)

    def _mark(self, mark: str, at: int) -> None:
        if mark == '"':
            self._string = True
        elif mark in "{[":
            closer = "}" if mark == "{" else "]"
            self._root = self._root if self._closers else closer
            self._closers.append(closer)
            self._is_key = mark == "{"
            self._safe = at + 1
        elif mark in "}]":
            del self._closers[-1:]
            self._is_key = False
            self._safe = at + 1
        elif mark == ",":
            self._safe = at
            self._is_key = self._closers[-1:] == ["}"]
        else:
            self._is_key = False


def _object(text: str) -> FrozenDict | None:
    try:
        value: Any = codec.decode_with_surrogates(text.encode("utf-8", "surrogatepass"))
        if isinstance(value, dict):
            return cast("FrozenDict", freeze(_whole(value)))
    except (DecodeError, RecursionError):
        pass
    return None


def _whole(value: Any) -> Any:
    """`value` with the halves of surrogate pairs in its text joined."""
    try:
        codec.encode(value)
    except OutputError:
        return codec.decode(join_surrogates(json.dumps(value, ensure_ascii=False)))
    return value
