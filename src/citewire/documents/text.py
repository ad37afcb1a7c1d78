"""Reader for plain text and Markdown in any encoding; and `TextBuilder`, which other readers use."""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from citewire.documents.charset import guess_charset
from citewire.documents.document import Aside, AsideKind, Document, DocumentKind, Element, Page
from citewire.documents.errors import DocumentError

__all__ = [
    "GAP_CELL",
    "GAP_LINE",
    "GAP_ROW",
    "GAP_SPACE",
    "TextBuilder",
    "decode",
    "line_starts",
    "read_markdown",
    "read_text",
]

# The byte order mark of UTF-32 begins with that of UTF-16.
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NEWLINE = re.compile(r"\r\n?")
_LINE_END = re.compile(r"[\n\f]")
# As far as git looks for a NUL to detect a binary file.
_SAMPLE = 8000
# Control characters, except those that terminals use.
_CONTROLS = dict.fromkeys(range(0x20)) | dict.fromkeys(range(0x7F, 0xA0)) | {0xFFFD: None}
for _code in b"\t\n\r\f\b\x1b\x85":
    del _CONTROLS[_code]
_FEW_CONTROLS, _MOST_CONTROLS = 50, 0.05

# Separators between two texts, the weakest first: of several only the strongest is written.
GAP_SPACE, GAP_LINE, GAP_CELL, GAP_ROW = 1, 2, 3, 4
_GAPS = ("", " ", "\n", "\t", "\n")


# Superscript and subscript digits and signs, so that 10<sup>2</sup> does not read 102.
SUPERSCRIPTS = str.maketrans("0123456789+-\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
SUBSCRIPTS = str.maketrans("0123456789+-\u2212", "₀₁₂₃₄₅₆₇₈₉₊₋₋")


class TextBuilder:
    """Builds a text, with named ranges.

    A gap is written when text follows it on the same line, so no line begins or ends with one.
    """

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.at = 0
        self.gap = 0
        self.elements: list[Element] = []
        self.asides: list[Aside] = []
        self.pages: list[Page] = []
        self._fresh = True
        self.named = False
        # For each opened range without text yet, the list that receives its start.
        self._waiting: list[list[int]] = []

    def separate(self, gap: int) -> None:
        self.gap = max(self.gap, gap)

    def write(self, text: str) -> None:
        """Append non-empty text, after the pending gap."""
        if self.gap and not self._fresh:
            self.parts.append(_GAPS[self.gap])
            self.at += 1
        self.gap = 0
        for start in self._waiting:
            start.append(self.at)
        self._waiting.clear()
        self.parts.append(text)
        self.at += len(text)
        self._fresh = text[-1] == "\n"

    def break_line(self) -> None:
        """Write an explicit line break; a second one makes an empty line."""
        self.gap = 0
        if self.at:
            self.write("\n")

    def end_page(self, label: str | None = None, width: float = 0.0, height: float = 0.0) -> None:
        """End the page that began after the last one; it ends with a line break, so no page is empty."""
        start = self.pages[-1].end if self.pages else 0
        self.gap = 0
        if self.at == start or not self._fresh:
            self.write("\n")
        self.pages.append(Page(len(self.pages) + 1, start, self.at, width, height, label=label))

    @contextmanager
    def element(self, path: str) -> Generator[None]:
        """Record the text written within as an element, unless it is inside another one."""
        inner, self.named = self.named, True
        with self._range() as start:
            yield
        self.named = inner
        if start and not inner:
            self.elements.append(Element(start[0], self.at, path))

    @contextmanager
    def aside(self, kind: AsideKind | None) -> Generator[None]:
        with self._range() as start:
            yield
        if kind and start:
            self.asides.append(Aside(start[0], self.at, kind))

    @contextmanager
    def _range(self) -> Generator[list[int]]:
        start: list[int] = []
        self._waiting.append(start)
        yield start
        if not start:
            self._waiting.pop()


def decode(data: bytes, charset: str | None = None) -> str:
    """Decode `data` by its byte order mark, by `charset` if Python knows it, else by the best guess."""
    for bom, codec in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(codec, "replace")
    try:
        return data.decode(charset or guess_charset(data), "replace")
    except (LookupError, ValueError):  # an unknown codec, or one that is not for text
        return data.decode(guess_charset(data), "replace")


def line_starts(text: str) -> NDArray[np.int32]:
    """Return the offsets at which the lines of `text` start. A form feed ends a line as well."""
    starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
    return np.array(starts[:-1] if len(starts) > 1 and starts[-1] == len(text) else starts, np.int32)


def read_text(data: bytes, *, sha256: str, name: str | None = None) -> Document:
    """Read plain text; a form feed starts a new page. Raises `DocumentError` if the bytes are not text."""
    return _read("text", data, sha256, name)


def read_markdown(data: bytes, *, sha256: str, name: str | None = None) -> Document:
    """Read Markdown as it is written: offsets count its markup."""
    return _read("markdown", data, sha256, name)


def _read(kind: DocumentKind, data: bytes, sha256: str, name: str | None) -> Document:
    text = _NEWLINE.sub("\n", decode(data))
    head = text[:_SAMPLE]
    controls = len(head) - len(head.translate(_CONTROLS))
    if "\0" in head or controls > max(_FEW_CONTROLS, len(head) * _MOST_CONTROLS):
        raise DocumentError("this is not text: it has NUL bytes, or others that no text has")
    starts = [0, *(at.end() for at in re.finditer("\f", text) if at.end() < len(text))]
    ends = [*starts[1:], len(text)]
    pages = tuple(Page(n, *edges) for n, edges in enumerate(zip(starts, ends, strict=True), 1))
    return Document(sha256, kind, text, pages, line_starts(text), name=name)
