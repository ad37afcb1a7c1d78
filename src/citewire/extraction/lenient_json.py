"""Read JSON as models write it, while it streams and entry by entry, so that a broken one costs no other.

It accepts strings of any kind (`strings`), bare words and keys, comments, `None`, too many or too few commas,
unclosed brackets, and prose and fences around. A value that was cut off is dropped: half a quote is none.

A complete block of plain JSON takes a faster path (`plain_json`); both give the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from citewire.dialects.deepcitation import ALIASES
from citewire.extraction.delimiters import DELIMITER, LONGEST_DELIMITER, ScanBuffer, is_cut_end
from citewire.extraction.plain_json import (
    CITATION_KEYS,
    UNSAFE_KEYS,
    WRAPPER_KEYS,
    PlainEntry,
    read_plain_json,
)
from citewire.extraction.strings import FIELD_NAMES, QUOTE_MARKS, QUOTE_PAIRS, StringReader

__all__ = ["BlockEntry", "CUT_BLOCK", "LenientJsonReader"]

CUT_BLOCK = "cut_block"
"""The code of the problem that the text ended within a data block: citations may be missing."""

_LISTS = frozenset({"lineIds", *ALIASES["lineIds"], "timestamps", *ALIASES["timestamps"]})
_QUOTED = frozenset({"fullPhrase", *ALIASES["fullPhrase"]})

# Deeper than any entry.
_DEEPEST = 32
# How far to look ahead to see whether JSON starts, and whether a block continues after its JSON.
_BEHIND_BRACKET, _BEHIND_JSON = 80, 300
_LONGEST_BARE = 2000

_SPACE = re.compile(r"\s+")
_COMMENTS = {"//": "\n", "#": "\n", "/*": "*/"}
_BARE_KEY = re.compile(r"[\w$-]{1,60}")
_BARE = re.compile(r"[^,}\]\n<\"]+")
_PROSE = re.compile(r"[^\[{<&\\`]*")
_STARTS = re.compile(rf"\{{\s*(?:[{QUOTE_MARKS}}}/#\w]|\Z)|\[\s*(?:[{{\[\]/#]|\Z)")
_RECORD = re.compile(r"\d+|[0-9a-f]{16}")
_FENCE = re.compile(r"```[\w-]*")
_GOES_ON = re.compile(rf"{DELIMITER.pattern}|[\[{{]\s*[{QUOTE_MARKS}{{]", re.IGNORECASE)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None, "none": None, "undefined": None, "nan": None}


class BlockEntry(NamedTuple):
    """An object that may be a citation: the key it was under, its offset, and what was repaired."""

    raw: dict[str, Any]
    group: str | None
    start: int
    whole: bool
    repairs: tuple[str, ...] = ()


class EntrySink(Protocol):
    """**Protocol:** receives the entries that are read, in order."""

    def add_entry(self, entry: BlockEntry) -> object: ...

    def add_all(self, entries: list[PlainEntry], end: int) -> bool:
        """Add all entries, and return whether they are within the limit; the last ends before `end`."""
        ...

    def report(self, code: str, at: int, message: str) -> None: ...


class _OpenContainer:
    """An open object or list. With `entries`, it or its items may be an entry."""

    __slots__ = ("entries", "group", "items", "key", "members", "repairs", "start", "strays", "wraps")

    def __init__(self, start: int, is_object: bool, entries: bool, group: str | None) -> None:
        self.start, self.entries, self.group = start, entries, group
        self.members: dict[str, Any] | None = {} if is_object else None
        self.items: list[Any] = []
        self.key: str | None = None
        self.wraps = False
        self.strays: list[int] = []
        self.repairs: dict[str, None] = {}


class LenientJsonReader:
    """Reads the body of one block, which starts at `start`, and passes on its entries as they end."""

    def __init__(self, buffer: ScanBuffer, sink: EntrySink, start: int = 0) -> None:
        self._buffer, self._sink, self._start = buffer, sink, start
        self._string = StringReader(buffer, self._repaired)
        self._stack: list[_OpenContainer] = []
        self._step: Callable[[], bool] = self._at_top
        self._comment: str | None = None
        self._bare: list[str] = []
        self._value_start = 0
        self._began = self._strayed = self._done = False
        self.delimited = False

    def read(self) -> bool:
        """Read the available text; return whether the block has ended."""
        while not self._done and self._step():
            pass
        if self._buffer.ended and not self._done:
            if self._stack or not self._began:
                self._sink.report(CUT_BLOCK, self._start, "the data block was cut off")
            self._buffer.at = len(self._buffer.text)
            self._finish()
        return self._done

    def _finish(self) -> None:
        """End the block: the complete parts of open values count."""
        self._done = True
        while self._stack:
            self._leave(self._stack.pop(), whole=False)

    def _repaired(self, what: str) -> None:
        if self._stack:
            self._stack[-1].repairs[what] = None

    def _next(self) -> str | None:
        """Return the next character that is no space or comment; None at a delimiter or the buffer's end."""
        buffer = self._buffer
        while self._comment is None or self._skip_comment():
            if space := _SPACE.match(buffer.text, buffer.at):
                buffer.at = space.end()
            if buffer.at == len(buffer.text):
                return None
            char = buffer.text[buffer.at]
            if char in "<&\\" and self._delimiter() is not False:
                return None
            if not self._stack or char not in "/#`":
                return char
            mark = buffer.text[buffer.at : buffer.at + 2] if char == "/" else char
            if mark == "/" and not buffer.ended:
                return None
            if char == "/" and mark not in _COMMENTS:
                return char
            self._repaired("fence" if char == "`" else "comment")
            self._comment = _COMMENTS.get(mark)
            buffer.at += len(mark)
        return None

    def _skip_comment(self) -> bool:
        buffer, ends = self._buffer, self._comment or ""
        end = buffer.text.find(ends, buffer.at)
        found = DELIMITER.search(buffer.text, buffer.at, end if end >= 0 else len(buffer.text))
        if found is None and end < 0:
            # Part of a delimiter may be there.
            buffer.at = max(buffer.at, len(buffer.text) - LONGEST_DELIMITER)
            return False
        buffer.at = found.start() if found else end + len(ends)
        self._comment = None
        return True

    def _delimiter(self) -> bool | None:
        """Return whether a delimiter ended the block here; None if it is too early to tell."""
        buffer = self._buffer
        found = DELIMITER.match(buffer.text, buffer.at)
        if found is None:
            return False if buffer.look_ahead(buffer.at, LONGEST_DELIMITER)[1] else None
        self.delimited = True
        if found["end"]:
            buffer.at = found.end()
        self._finish()
        return True

    # The states follow: each reads one token, and returns whether it could.

    def _at_top(self) -> bool:
        """Read outside all brackets."""
        if (char := self._next()) is None:
            return False
        buffer = self._buffer
        if char in "{[":
            seen, settled = buffer.look_ahead(buffer.at, _BEHIND_BRACKET)
            starts = _STARTS.match(seen)
            if not settled and (starts is None or starts.end() == len(seen)):
                return False
            if starts is not None:
                first, self._began = not self._began, True
                return (first and self._read_all()) or self._open(char)
        elif char == "`":
            seen, settled = buffer.look_ahead(buffer.at, 20)
            fence = _FENCE.match(seen)
            if settled or (fence is not None and fence.end() < len(seen)):
                buffer.at += fence.end() if fence else 1
                return True
            return False
        elif char in ",]}" and self._began:
            buffer.at += 1
            return True
        return self._prose()

    def _prose(self) -> bool:
        """Skip prose in place of JSON. After the JSON, with no end of the block near, it is the answer."""
        buffer = self._buffer
        if self._began and buffer.ended and is_cut_end(buffer.text, buffer.at):
            return False  # the JSON is complete
        if self._began:
            seen, settled = buffer.look_ahead(buffer.at, _BEHIND_JSON)
            if _GOES_ON.search(seen) is None:
                if settled:
                    self._done = True
                    self._sink.report("unclosed", buffer.offset_of(), "the data block has no end")
                return False
        if not self._strayed:
            self._sink.report("stray", buffer.offset_of(), "words in the data block")
        self._strayed = True
        prose = _PROSE.match(buffer.text, buffer.at + 1)
        buffer.at = prose.end() if prose else buffer.at + 1
        return True

    def _read_all(self) -> bool:
        """Read the block at once, if it is complete and valid."""
        buffer = self._buffer
        end = buffer.text.find("<<<", buffer.at)
        entries = read_plain_json(buffer.text[buffer.at : end]) if end >= 0 else None
        if entries is None or not self._sink.add_all(entries, buffer.offset_of(end)):
            return False
        buffer.at = end
        return True

    def _open(self, char: str) -> bool:
        buffer = self._buffer
        if len(self._stack) < _DEEPEST:
            entries, group = self._role(char)
            self._stack.append(_OpenContainer(buffer.offset_of(), char == "{", entries, group))
            self._step = self._before_key if char == "{" else self._before_item
        else:
            self._repaired("nested too deeply")
        buffer.at += 1
        return True

    def _role(self, char: str) -> tuple[bool, str | None]:
        """Return whether an entry is possible here, and under which key."""
        if not self._stack:
            return True, None
        above = self._stack[-1]
        if above.members is None:
            return above.entries, above.group
        key = above.key or ""
        is_field = key in (_LISTS if char == "[" else FIELD_NAMES)
        entries = above.entries and (
            key in CITATION_KEYS or (not is_field and FIELD_NAMES.isdisjoint(above.members))
        )
        if key in UNSAFE_KEYS:
            self._sink.report("unsafe_key", self._buffer.offset_of(), "an attachment under an unsafe key")
        is_name = key in WRAPPER_KEYS or key in UNSAFE_KEYS or (char == "{" and _RECORD.fullmatch(key))
        return entries, above.group if is_name else key

    def _close(self) -> bool:
        frame = self._stack.pop()
        self._step = self._after_value()
        self._leave(frame, whole=True)
        return True

    def _leave(self, frame: _OpenContainer, *, whole: bool) -> None:
        """Pass on an entry; any other value is stored in its container."""
        for at in frame.strays if frame.wraps or not self._stack else ():
            self._sink.report("no_citation", at, "an entry is not an object")
        members = frame.members
        wraps = frame.wraps and (members is None or _QUOTED.isdisjoint(members))
        if members is not None and frame.entries and not wraps:
            wraps = self._hand_on(BlockEntry(members, frame.group, frame.start, whole, tuple(frame.repairs)))
        elif whole and self._stack and not wraps:
            self._store(frame.items if members is None else members)
            self._stack[-1].repairs |= frame.repairs
        if self._stack:
            self._stack[-1].wraps |= wraps

    def _hand_on(self, entry: BlockEntry) -> bool:
        """Pass on an entry; return whether it is a citation, complete or not."""
        if not FIELD_NAMES.isdisjoint(entry.raw):
            self._sink.add_entry(entry)
            return True
        if not entry.whole:
            self._sink.report("cut", entry.start, "cut off")
        elif any(entry.raw.values()):
            self._sink.report("no_citation", entry.start, "no citation in this entry")
        return False

    def _after_value(self) -> Callable[[], bool]:
        if not self._stack:
            return self._at_top
        return self._before_item if self._stack[-1].members is None else self._before_key

    def _store(self, value: Any) -> None:
        frame = self._stack[-1]
        if frame.members is None:
            frame.items.append(value)
        elif frame.key is not None:
            frame.members[frame.key] = value
            frame.key = None

    def _before_key(self) -> bool:
        if (char := self._next()) is None:
            return False
        buffer = self._buffer
        if char in "}]{":
            buffer.at += char == "}"
            if char != "}":
                self._repaired("unclosed object")
            return self._close()
        if char in QUOTE_PAIRS:
            return self._open_string(char, "key")
        key = _BARE_KEY.match(buffer.text, buffer.at)
        if key is None:
            buffer.at += 1
            if char != ",":
                self._repaired("stray characters")
            return True
        if key.end() == len(buffer.text) and not buffer.ended:
            return False
        buffer.at = key.end()
        self._repaired("bare key")
        return self._put_key(key[0])

    def _put_key(self, key: str) -> bool:
        self._stack[-1].key = key
        self._step = self._before_colon
        return True

    def _before_colon(self) -> bool:
        if (char := self._next()) is None:
            return False
        if char in ":=":
            self._buffer.at += 1
            self._step = self._before_value
        else:
            self._repaired("key without a value")
            self._step = self._before_key
        return True

    def _before_value(self) -> bool:
        if (char := self._next()) is None:
            return False
        if char in ",}]":
            self._repaired("key without a value")
            self._store(None)
            self._step = self._before_key
            return True
        return self._start_value(char, "value")

    def _before_item(self) -> bool:
        if (char := self._next()) is None:
            return False
        if char not in ",]}":
            return self._start_value(char, "item")
        self._buffer.at += char != "}"
        if char == "}":
            self._repaired("unclosed list")
        return char == "," or self._close()

    def _start_value(self, char: str, role: str) -> bool:
        if char in "{[":
            return self._open(char)
        self._value_start = self._buffer.offset_of()
        if char in QUOTE_PAIRS:
            return self._open_string(char, role)
        self._bare = []
        self._step = self._in_bare
        return True

    def _open_string(self, char: str, role: str) -> bool:
        self._string.open(char, role)
        self._step = self._in_key if role == "key" else self._in_string
        return True

    def _in_key(self) -> bool:
        key = self._string.read()
        return self._put_key(key) if key is not None else self._cut()

    def _in_string(self) -> bool:
        value = self._string.read()
        return self._put(value) if value is not None else self._cut()

    def _cut(self) -> bool:
        if self._string.is_cut:
            self._delimiter()
        return False

    def _in_bare(self) -> bool:
        """Read a number, a word, or text without quotation marks."""
        buffer = self._buffer
        if bare := _BARE.match(buffer.text, buffer.at):
            buffer.at = bare.end()
            self._bare.append(bare[0][:_LONGEST_BARE])
            del self._bare[_LONGEST_BARE:]
        if buffer.at == len(buffer.text):
            return False
        if buffer.text[buffer.at] == "<" and not DELIMITER.match(buffer.text, buffer.at):
            if not buffer.look_ahead(buffer.at, LONGEST_DELIMITER)[1]:
                return False
            self._bare.append("<")
            buffer.at += 1
            return True
        return self._put(self._word("".join(self._bare)[:_LONGEST_BARE].strip()))

    def _word(self, word: str) -> Any:
        if (number := _NUMBER.fullmatch(word)) and len(word) < _LONGEST_BARE:
            return float(word) if number[1] or number[2] else int(word)
        known = word.lower() in _WORDS
        if word not in ("true", "false", "null"):
            self._repaired("a constant of another language" if known else "no quote marks")
        return _WORDS[word.lower()] if known else word

    def _put(self, value: Any) -> bool:
        """Store a value that is neither object nor list."""
        frame = self._stack[-1]
        if frame.members is None and frame.entries:
            frame.strays.append(self._value_start)
        self._store(value)
        self._step = self._after_value()
        return True
