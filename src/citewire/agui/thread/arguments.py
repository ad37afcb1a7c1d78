"""Incremental parser for the arguments of a tool call: takes JSON fragments, gives the best value so far.

Each fragment is scanned once. The value is the longest valid prefix with its brackets closed: an incomplete
string is shown, an incomplete number is not.
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
# Inside a string: its closing quote, or an escape, which may be cut off.
_IN_STRING = re.compile(r'"|\\(?:u[0-9a-fA-F]{0,4}|.|$)', re.DOTALL)
# An incomplete escape, or the first half of a surrogate pair.
_CUT_ESCAPE = re.compile(r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}))?\Z")
_ESCAPE_LENGTH = len("\\ud83d")
_NOTHING = FrozenDict()


class Arguments:
    """The arguments of one call. With `seed`, each fragment is parsed as the whole, as @ngaf/ag-ui does."""

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
        self._length = 0  # code points scanned so far
        self._safe = 0  # the text before this index is valid JSON once its brackets are closed
        self._closers: list[str] = []  # the missing closing brackets, outermost first
        self._root = ""  # the closing bracket of the outermost value
        self._string = self._is_key = False
        self._carry = ""  # an incomplete escape at the end
        self._made: FrozenDict | None = _NOTHING

    def copy(self) -> Arguments:
        twin = Arguments.__new__(Arguments)
        for name in Arguments.__slots__:
            setattr(twin, name, getattr(self, name))
        twin._text, twin._closers = self._text.copy(), self._closers.copy()
        return twin

    def feed(self, fragment: str) -> None:
        """Add `fragment`. If the value is complete, a fragment that is a whole object replaces it."""
        if self._seed:
            self._made = _object(fragment) or _NOTHING
            return
        if self.is_complete:
            if _object(fragment) is None:
                return  # the value is complete
            self._restart()
        self._text.extend((fragment,))
        self._made = None
        self._scan(self._carry + fragment)

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is a closed object."""
        return self._root == "}" and not self._closers and not self._string

    @property
    def value(self) -> FrozenDict:
        """The best value so far; `{}` if there is no object."""
        if self._made is None:
            self._made = _object(self._close_text()) or _NOTHING
        return self._made

    def _close_text(self) -> str:
        text, closers = self._text.join(), "".join(reversed(self._closers))
        if self._string and not self._is_key:
            return text[: len(text) - len(self._carry)] + '"' + closers
        return text[: self._safe] + closers

    def _scan(self, text: str) -> None:
        """Track the brackets and strings that the new text opens and closes. `text` starts with `_carry`."""
        start = self._length - len(self._carry)
        self._carry = ""
        at, half = 0, -1  # `half`: start of the last escape if it is the first half of a surrogate pair
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
    """Return `value` with the halves of surrogate pairs in its text joined."""
    try:
        codec.encode(value)
    except OutputError:
        return codec.decode(join_surrogates(json.dumps(value, ensure_ascii=False)))
    return value
