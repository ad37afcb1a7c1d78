"""PDF as text with a box for every character, through pdfium.

pdfium is met in this module only. It is not thread-safe, and a hostile file may crash or hang it: callers run
this in a process of its own.

The text is pdfium's, character by character and in its order. Lines end with a line break, or with the U+0002
or U+FFFE that pdfium puts for a hyphen at a line end, without a break after it. What a form or a text note
shows comes last on its page. A glyph whose character the file does not tell is U+FFFD: pdfium's guess, the
number of the glyph, may look like text and is not.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import repeat
from statistics import median
from typing import Any, NamedTuple, cast

import numpy as np
import pypdfium2_raw  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from citewire.documents.document import Aside, Boxes, Document, Page
from citewire.documents.errors import DocumentError, Encrypted
from citewire.model import Problem

__all__ = ["MOST_PAGES", "read_pdf"]

MOST_PAGES = 10_000
# From this share of unreadable characters on, a page is one that text cannot be taken from.
_UNREADABLE = 0.1
# A page without text but with this many drawn shapes is likely to show letters drawn as outlines.
_OUTLINES = 100
# Running headers and footers stand in this share of the page, at its top and bottom (the page numbers of
# LaTeX are at 0.852 of A4), with nothing but their like beyond or beside them ...
_MARGIN = 0.15
# ... on so many pages, or half of them, at the same height, give or take so many points: half a line.
_REPEATED, _SAME_HEIGHT = 3, 6.0

_LINE_BREAK, _HYPHEN, _OLD_HYPHEN, _UNKNOWN = 0x0A, 0x02, 0xFFFE, 0xFFFD
_BLANK = [code for code in range(0x3001) if chr(code).isspace() or code == 0x200B]
_CONTROL = (*(set(range(0x20)) - {0x09, 0x0A, 0x0D, _HYPHEN}), *range(0x7F, 0xA0))

_Codes = NDArray[np.uint32]
_pdfium: Any = pypdfium2_raw
_Handle = ctypes.c_void_p


def _fast(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of pdfium that takes plain addresses, so that `map` can call it for a whole page."""
    address = cast("Any", ctypes.cast(getattr(_pdfium, name), _Handle).value)
    return ctypes.PYFUNCTYPE(result, _Handle, ctypes.c_int, *arguments)(address)


_unicode = _fast("FPDFText_GetUnicode", ctypes.c_uint)
_map_error = _fast("FPDFText_HasUnicodeMapError", ctypes.c_int)
_angle = _fast("FPDFText_GetCharAngle", ctypes.c_float)
_loose_box = _fast("FPDFText_GetLooseCharBox", ctypes.c_int, _Handle)
_tight_box = _fast("FPDFText_GetCharBox", ctypes.c_int, *(_Handle,) * 4)


class _Sheet(NamedTuple):
    """A page as it was read. The text ends with a line break."""

    codes: _Codes
    boxes: Boxes
    width: float = 0.0
    height: float = 0.0
    label: str | None = None


_END = _Sheet(np.array([_LINE_BREAK], np.uint32), np.full((1, 4), np.nan, np.float32))


def read_pdf(data: bytes, *, sha256: str, name: str | None = None, most_pages: int = MOST_PAGES) -> Document:
    """The document in a PDF file; what could not be read of it is in its `problems`.

    Raises Encrypted if it needs a password, DocumentError if it is no PDF or has no page.
    """
    problems: list[Problem] = []
    # A damaged file may place its characters at infinity.
    with np.errstate(all="ignore"), _opened(data) as file:
        count = int(_pdfium.FPDF_GetPageCount(file))
        if count < 1:
            raise DocumentError("the PDF has no pages")
        sheets = [_sheet(file, index, problems) for index in range(min(count, most_pages))]
        title = _string(_pdfium.FPDF_GetMetaText, file, b"Title")
    if count > most_pages:
        message = f"only {most_pages:,} of {count:,} pages were read"
        problems.append(Problem("too_many_pages", f"page {most_pages + 1}", message))
    codes = np.concatenate([sheet.codes for sheet in sheets])
    boxes = np.concatenate([sheet.boxes for sheet in sheets])
    edges = np.cumsum([0, *(len(sheet.codes) for sheet in sheets)]).tolist()
    pages = tuple(
        Page(number, start, end, sheet.width, sheet.height, label=sheet.label)
        for number, (sheet, start, end) in enumerate(zip(sheets, edges, edges[1:], strict=False), 1)
    )
    text = codes.astype("<u4").tobytes().decode("utf-32-le")
    breaks = (codes == _LINE_BREAK) | (codes == _HYPHEN) | (codes == _OLD_HYPHEN)
    lines = np.concatenate(([0], np.flatnonzero(breaks[:-1]) + 1)).astype(np.int32)
    asides = (*_repeated(text, lines, boxes, pages), *_off_page(boxes, pages))
    return Document(
        sha256, "pdf", text, pages, lines, boxes,
        asides=tuple(sorted(asides, key=lambda aside: aside.start)), title=title, name=name,
        problems=tuple(problems),
    )  # fmt: skip


@contextmanager
def _opened(data: bytes) -> Generator[Any]:
    # Does nothing from the second time on, nor when others in the process did it.
    _pdfium.FPDF_InitLibraryWithConfig(_pdfium.FPDF_LIBRARY_CONFIG(version=2))
    file = _pdfium.FPDF_LoadMemDocument64(data, len(data), None)
    if not file:
        if _pdfium.FPDF_GetLastError() in {_pdfium.FPDF_ERR_PASSWORD, _pdfium.FPDF_ERR_SECURITY}:
            raise Encrypted("the PDF is encrypted: it needs a password")
        raise DocumentError("not a PDF, or damaged beyond repair")
    try:
        yield file
    finally:
        _pdfium.FPDF_CloseDocument(file)


@contextmanager
def _page(file: Any, index: int) -> Generator[tuple[Any, Any]]:
    """A page and its text; the text is None where pdfium cannot read them."""
    page = _pdfium.FPDF_LoadPage(file, index)
    # Drawn into the page, what forms and notes show is text like any other; a page loaded anew has it.
    if page and _shows_notes(page) and _pdfium.FPDFPage_Flatten(page, _pdfium.FLAT_NORMALDISPLAY):
        _pdfium.FPDF_ClosePage(page)
        page = _pdfium.FPDF_LoadPage(file, index)
    text = _pdfium.FPDFText_LoadPage(page) if page else None
    try:
        yield page, text or None
    finally:
        _pdfium.FPDFText_ClosePage(text)
        _pdfium.FPDF_ClosePage(page)


def _string(get: Callable[..., int], *arguments: Any) -> str | None:
    """A string from one of the functions that fill a buffer with UTF-16."""
    buffer = ctypes.create_string_buffer(get(*arguments, None, 0))
    size = get(*arguments, buffer, len(buffer))
    return buffer.raw[: max(0, size - 2)].decode("utf-16-le", "replace").strip("\0 \t\r\n") or None


def _sheet(file: Any, index: int, problems: list[Problem]) -> _Sheet:
    where, label = f"page {index + 1}", _string(_pdfium.FPDF_GetPageLabel, file, index)
    with _page(file, index) as (page, text):
        if text is None:
            problems.append(Problem("bad_page", where, "the page is damaged and was left out"))
            return _END._replace(label=label)
        codes, boxes = _characters(text)
        boxes[np.isin(codes, _BLANK)] = np.nan
        inked = int(np.count_nonzero(~np.isnan(boxes[:, 0])))
        unreadable = int(np.count_nonzero((codes == _UNKNOWN) | ((codes >= 0xE000) & (codes <= 0xF8FF))))
        if unreadable > inked * _UNREADABLE:
            message = f"{unreadable:,} of {inked:,} characters are in fonts without a Unicode map"
            problems.append(Problem("no_unicode", where, message))
        elif not inked and _draws(page):
            problems.append(Problem("no_text_layer", where, "the page is a picture: it has no text layer"))
        return _Sheet(codes, *_shown(boxes, page), label)


def _draws(page: Any) -> bool:
    """Whether there is something to read for eyes only."""
    items = [_pdfium.FPDFPage_GetObject(page, at) for at in range(_pdfium.FPDFPage_CountObjects(page))]
    shapes = 0
    for item in items:
        # Scanners like to wrap a page in a form. What is no form counts -1.
        inside = range(_pdfium.FPDFFormObj_CountObjects(item))
        items.extend(_pdfium.FPDFFormObj_GetObject(item, at) for at in inside)
        kind = _pdfium.FPDFPageObj_GetType(item)
        shapes += kind == _pdfium.FPDF_PAGEOBJ_PATH
        if kind == _pdfium.FPDF_PAGEOBJ_IMAGE or shapes == _OUTLINES:
            return True
    return False


def _shows_notes(page: Any) -> bool:
    """Whether a field of a form, a text note or a stamp is on the page."""
    for at in range(_pdfium.FPDFPage_GetAnnotCount(page)):
        note = _pdfium.FPDFPage_GetAnnot(page, at)
        kind = _pdfium.FPDFAnnot_GetSubtype(note)
        _pdfium.FPDFPage_CloseAnnot(note)
        if kind in {_pdfium.FPDF_ANNOT_WIDGET, _pdfium.FPDF_ANNOT_FREETEXT, _pdfium.FPDF_ANNOT_STAMP}:
            return True
    return False


def _characters(text: Any) -> tuple[_Codes, Boxes]:
    """The characters of a page and their boxes (left, top, right, bottom), from the bottom up."""
    count = max(0, int(_pdfium.FPDFText_CountChars(text)))
    at = ctypes.cast(text, _Handle).value
    codes = np.fromiter(map(_unicode, repeat(at), range(count)), np.uint32, count)
    unmapped = np.fromiter(map(_map_error, repeat(at), range(count)), np.bool_, count)
    boxes = _all_boxes(at, count)
    codes[unmapped | np.isin(codes, _CONTROL) | (codes > 0x10FFFF)] = _UNKNOWN
    kept = _joined(codes)
    return np.concatenate((codes[kept], _END.codes)), np.concatenate((boxes[kept], _END.boxes))


def _joined(codes: _Codes) -> NDArray[np.bool_]:
    """Which characters to keep after CR LF became a line break and surrogates one character, in place."""
    kept = np.ones(len(codes), np.bool_)
    returns = codes == 0x0D
    kept[:-1] = ~(returns[:-1] & (codes[1:] == _LINE_BREAK))
    codes[returns] = _LINE_BREAK
    high, low = codes & 0xFFFFFC00 == 0xD800, codes & 0xFFFFFC00 == 0xDC00
    pairs = np.flatnonzero(high[:-1] & low[1:])
    codes[high | low] &= 0x3FF
    high[pairs] = low[pairs + 1] = kept[pairs + 1] = False
    codes[pairs] = 0x10000 + (codes[pairs] << 10) + codes[pairs + 1]
    codes[high | low] = _UNKNOWN
    return kept


def _all_boxes(at: int | None, count: int) -> Boxes:
    """Loose boxes, as high as the line, which highlight well; tight ones where pdfium gets the loose wrong.

    It takes every text for upright: one that is turned gets a loose box without width, or a wrong one.
    """
    boxes = np.zeros((count, 4), np.float32)
    base = boxes.ctypes.data
    deque(map(_loose_box, repeat(at), range(count), range(base, base + 16 * count, 16)), maxlen=0)
    angles = np.fromiter(map(_angle, repeat(at), range(count)), np.float32, count)
    wrong = np.flatnonzero((angles > 0) | (boxes[:, 0] == boxes[:, 2]) | (boxes[:, 1] == boxes[:, 3]))
    tight = np.zeros((len(wrong), 4), np.float64)
    base, end = tight.ctypes.data, tight.ctypes.data + tight.nbytes
    # It writes left, right, bottom and top.
    fields = (range(base + 8 * field, end + 8 * field, 32) for field in (0, 2, 3, 1))
    deque(map(_tight_box, repeat(at), wrong.tolist(), *fields), maxlen=0)
    tight[(tight[:, 0] == tight[:, 2]) | (tight[:, 1] == tight[:, 3])] = np.nan
    boxes[wrong] = tight
    boxes[~np.isfinite(sum(boxes.T))] = np.nan
    return boxes


def _shown(boxes: Boxes, page: Any) -> tuple[Boxes, float, float]:
    """The boxes as the page is shown, cropped and turned, from its top left corner; and its size."""
    bounds = _pdfium.FS_RECTF()
    _pdfium.FPDF_GetPageBoundingBox(page, bounds)
    left, top, right, bottom = bounds.left, bounds.top, bounds.right, bounds.bottom
    xs, ys = boxes[:, 0::2], boxes[:, 1::2]
    turned = int(_pdfium.FPDFPage_GetRotation(page))
    across: Boxes = (xs - left, ys - bottom, right - xs, top - ys)[turned]
    down: Boxes = (top - ys, xs - left, ys - bottom, right - xs)[turned]
    corners = np.minimum(*across.T), np.minimum(*down.T), np.maximum(*across.T), np.maximum(*down.T)
    size = right - left, top - bottom
    return np.stack(corners, axis=1), *(size[::-1] if turned % 2 else size)


def _repeated(text: str, lines: NDArray[np.int32], boxes: Boxes, pages: tuple[Page, ...]) -> Iterator[Aside]:
    """The lines, each with its break, that repeat at the top or bottom of pages, whatever their numbers."""
    tops, bottoms = np.fmin.reduceat(boxes[:, 1], lines), np.fmax.reduceat(boxes[:, 3], lines)
    on = np.searchsorted([page.start for page in pages], lines, "right") - 1
    heights = np.array([page.height for page in pages])[on]
    at_top = (bottoms > 0) & (bottoms < heights * _MARGIN)
    margin = np.flatnonzero(at_top | ((tops > heights * (1 - _MARGIN)) & (tops < heights))).tolist()
    # Of each line, from the edge of the page: where it begins, and where it ends.
    outer, inner = np.where(at_top, (tops, bottoms), (heights - bottoms, heights - tops)).tolist()
    ends = np.append(lines[1:], len(text)).tolist()
    alike: defaultdict[tuple[bool, str], list[int]] = defaultdict(list)
    for line in margin:
        words = re.sub(r"\d+", "0", text[lines[line] : ends[line]].strip())
        # Numbers alone are those of the pages, or of a table that runs over them.
        if any(char.isalpha() for char in words) or words.count("0") == 1:
            alike[bool(at_top[line]), words].append(line)
    needed = min(_REPEATED, max(2, (len(pages) + 1) // 2))
    repeated: set[int] = set()
    for group in alike.values():
        middle = median(outer[line] for line in group)
        near = [line for line in group if abs(outer[line] - middle) <= _SAME_HEIGHT]
        if len({int(on[line]) for line in near}) >= needed:
            repeated.update(near)
    # Cells of a table repeat as well, but with others beside them.
    body: defaultdict[tuple[int, bool], float] = defaultdict(lambda: math.inf)
    for line in set(margin) - repeated:
        side = int(on[line]), bool(at_top[line])
        body[side] = min(inner[line], body[side])
    for line in repeated:
        if inner[line] < body[int(on[line]), bool(at_top[line])]:
            yield Aside(int(lines[line]), ends[line], "header" if at_top[line] else "footer")


def _off_page(boxes: Boxes, pages: tuple[Page, ...]) -> Iterator[Aside]:
    """What stands wholly outside of what is shown of its page."""
    inked = np.flatnonzero(~np.isnan(boxes[:, 0]))
    sizes = np.array([(page.width, page.height) for page in pages])
    on = np.searchsorted([page.start for page in pages], inked, "right") - 1
    off = (boxes[inked, 2:] <= 0).any(axis=1) | (boxes[inked, :2] >= sizes[on]).any(axis=1)
    edges = np.flatnonzero(np.diff(off, prepend=False, append=False)).reshape(-1, 2)
    yield from (Aside(int(inked[start]), int(inked[end - 1]) + 1, "hidden") for start, end in edges.tolist())
