"""PDF reader: text with a box for every character, by pdfium.

Only this module reads text with pdfium. It is not thread-safe, and a hostile file may crash or hang it:
callers run this in a child process.

The text is pdfium's, character by character and in its order. Lines end with a line break, or with the U+0002
or U+FFFE that pdfium returns for a hyphen at a line end, without a break after it. The text of forms and text
notes comes last on its page. A glyph whose character the file does not declare is U+FFFD: pdfium's guess, the
number of the glyph, may look like text and is not. Pages that are pictures are read by tesseract.
"""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import repeat
from typing import Any, NamedTuple, cast

import numpy as np
import pypdfium2_raw  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray
from PIL import Image

from citewire.documents.document import Aside, Boxes, Document, Page
from citewire.documents.errors import DocumentError, EncryptedDocument
from citewire.documents.ocr import NO_WORDS, OcrReader, OcrTurn, fit_scale
from citewire.documents.pdf_lines import (
    BLANK,
    BREAK,
    LINE_ENDS,
    Codes,
    GlyphMetrics,
    convert_superscripts,
    find_inked,
    find_running_lines,
    join_broken_lines,
    reorder_ligatures,
)
from citewire.model import Problem

__all__ = ["MOST_PAGES", "read_pdf"]

MOST_PAGES = 10_000
# As in 7,000 full pages of text, which take half a minute and 400 MB.
MOST_CHARACTERS = 20_000_000
# From this share of unreadable characters on, the text of a page counts as not extractable.
_UNREADABLE = 0.1
# From this share on it is read by OCR, and so is a page with few characters whose pictures cover this share
# of it: a stamp or a page number on a scan.
_ILLEGIBLE, _FEW, _COVERED = 0.5, 100, 0.5
# Dots per inch at which tesseract works best.
_SHARP = 300
# Of 255: from this value on a colour is white, and from this difference on it is visible.
_WHITE, _FAINT = 250, 8
# A page without text but with this many drawn shapes probably shows letters drawn as outlines.
_OUTLINES = 100
_UNKNOWN = 0xFFFD
_CONTROL = (*(set(range(0x20)) - {0x09, 0x0D, *LINE_ENDS}), *range(0x7F, 0xA0))

_pdfium: Any = pypdfium2_raw
_Handle = ctypes.c_void_p


def _bind_fast(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Bind a pdfium function to plain addresses, so that `map` can call it for a whole page."""
    address = cast("Any", ctypes.cast(getattr(_pdfium, name), _Handle).value)
    return ctypes.PYFUNCTYPE(result, _Handle, *arguments)(address)


_Index = ctypes.c_int
_unicode = _bind_fast("FPDFText_GetUnicode", ctypes.c_uint, _Index)
_map_error = _bind_fast("FPDFText_HasUnicodeMapError", ctypes.c_int, _Index)
_angle = _bind_fast("FPDFText_GetCharAngle", ctypes.c_float, _Index)
_loose_box = _bind_fast("FPDFText_GetLooseCharBox", ctypes.c_int, _Index, _Handle)
_tight_box = _bind_fast("FPDFText_GetCharBox", ctypes.c_int, _Index, *(_Handle,) * 4)
_font_size = _bind_fast("FPDFText_GetFontSize", ctypes.c_double, _Index)
_matrix = _bind_fast("FPDFText_GetMatrix", ctypes.c_int, _Index, _Handle)
_owner = _bind_fast("FPDFText_GetTextObject", _Handle, _Index)
_item = _bind_fast("FPDFPage_GetObject", _Handle, _Index)
_inner = _bind_fast("FPDFFormObj_GetObject", _Handle, ctypes.c_ulong)
_count = _bind_fast("FPDFFormObj_CountObjects", ctypes.c_int)
_kind = _bind_fast("FPDFPageObj_GetType", ctypes.c_int)
_mode = _bind_fast("FPDFTextObj_GetTextRenderMode", ctypes.c_int)
_fill = _bind_fast("FPDFPageObj_GetFillColor", ctypes.c_int, *(_Handle,) * 4)


class _PdfPage(NamedTuple):
    """A page of a PDF. The text ends with a line break."""

    codes: Codes
    boxes: Boxes
    width: float = 0.0
    height: float = 0.0
    label: str | None = None
    confidence: NDArray[np.uint8] | None = None
    # Offsets of invisible text; if `traced`, the text layer of a scan, visible only in the picture.
    unseen: NDArray[np.intp] = np.zeros(0, np.intp)
    traced: bool = False


_END = _PdfPage(np.array([BREAK], np.uint32), np.full((1, 4), np.nan, np.float32))


def read_pdf(
    data: bytes, *, sha256: str, name: str | None = None, most_pages: int = MOST_PAGES,
    ocr: str | None = None, turn: OcrTurn | None = None,
) -> Document:  # fmt: skip
    """Read a PDF file; parts that could not be read are in its `problems`.

    Pages that are pictures are read in the languages `ocr`, or not at all. Raises `EncryptedDocument` if it
    needs a password, `DocumentError` if it is no PDF or has no page.
    """
    problems: list[Problem] = []
    reader = OcrReader(ocr, problems, turn)
    # A damaged file may have characters at infinite positions.
    with np.errstate(all="ignore"), _opened(data) as file:
        count = int(_pdfium.FPDF_GetPageCount(file))
        if count < 1:
            raise DocumentError("the PDF has no pages")
        sheets: list[_PdfPage] = []
        room = MOST_CHARACTERS
        for index in range(min(count, most_pages)):
            sheets.append(_sheet(file, index, problems, reader))
            room -= len(sheets[-1].codes)
            if room < 0:
                break
        title = _string(_pdfium.FPDF_GetMetaText, file, b"Title")
    if count > len(sheets):
        message = f"only {len(sheets):,} of {count:,} pages were read"
        problems.append(Problem("too_many_pages", f"page {len(sheets) + 1}", message))
    codes = np.concatenate([sheet.codes for sheet in sheets])
    boxes = np.concatenate([sheet.boxes for sheet in sheets])
    edges = np.cumsum([0, *(len(sheet.codes) for sheet in sheets)]).tolist()
    pages = tuple(
        Page(
            number,
            start,
            end,
            sheet.width,
            sheet.height,
            sheet.traced or sheet.confidence is not None,
            sheet.label,
        )
        for number, (sheet, start, end) in enumerate(zip(sheets, edges, edges[1:], strict=False), 1)
    )
    text = codes.astype("<u4").tobytes().decode("utf-32-le")
    breaks = np.flatnonzero(np.isin(codes[:-1], LINE_ENDS))
    lines = np.concatenate(([0], breaks + 1)).astype(np.int32)
    unseen = [sheet.unseen + start for sheet, start in zip(sheets, edges, strict=False) if not sheet.traced]
    asides = (*find_running_lines(text, lines, boxes, pages), *_hidden(boxes, pages, np.concatenate(unseen)))
    return Document(
        sha256, "pdf", text, pages, lines, boxes, _confidence(sheets),
        asides=tuple(sorted(asides, key=lambda aside: aside.start)), title=title, name=name,
        problems=tuple(problems),
    )  # fmt: skip


@contextmanager
def _opened(data: bytes) -> Generator[Any]:
    # A no-op if this process has already initialised it.
    _pdfium.FPDF_InitLibraryWithConfig(_pdfium.FPDF_LIBRARY_CONFIG(version=2))
    file = _pdfium.FPDF_LoadMemDocument64(data, len(data), None)
    if not file:
        if _pdfium.FPDF_GetLastError() in {_pdfium.FPDF_ERR_PASSWORD, _pdfium.FPDF_ERR_SECURITY}:
            raise EncryptedDocument("the PDF is encrypted: it needs a password")
        raise DocumentError("not a PDF, or damaged beyond repair")
    try:
        yield file
    finally:
        _pdfium.FPDF_CloseDocument(file)


@contextmanager
def _page(file: Any, index: int) -> Generator[tuple[Any, Any]]:
    """Yield a page and its text; the text is None if pdfium cannot read them."""
    page = _pdfium.FPDF_LoadPage(file, index)
    # Flattening turns forms and notes into ordinary text, which a reloaded page has.
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
    """Return a string from a function that fills a buffer with UTF-16."""
    buffer = ctypes.create_string_buffer(get(*arguments, None, 0))
    size = get(*arguments, buffer, len(buffer))
    return buffer.raw[: max(0, size - 2)].decode("utf-16-le", "replace").strip("\0 \t\r\n") or None


def _confidence(sheets: list[_PdfPage]) -> NDArray[np.uint8] | None:
    """Return the confidence of each character, or None if no page was read from a picture."""
    if all(sheet.confidence is None for sheet in sheets):
        return None
    layer = (np.full(len(sheet.codes), 100, np.uint8) for sheet in sheets)
    pairs = zip(sheets, layer, strict=True)
    return np.concatenate([given if sheet.confidence is None else sheet.confidence for sheet, given in pairs])


def _sheet(file: Any, index: int, problems: list[Problem], reader: OcrReader) -> _PdfPage:
    where, label = f"page {index + 1}", _string(_pdfium.FPDF_GetPageLabel, file, index)
    with _page(file, index) as (page, text):
        if text is None:
            problems.append(Problem("bad_page", where, "the page is damaged and was left out"))
            return _END._replace(label=label)
        codes, boxes, kept = _characters(text)
        boxes[np.isin(codes, BLANK)] = np.nan
        shown = int(np.count_nonzero(~np.isnan(boxes[:, 0])))
        unreadable = int(np.count_nonzero((codes == _UNKNOWN) | ((codes >= 0xE000) & (codes <= 0xF8FF))))
        if unreadable > shown * _UNREADABLE:
            message = f"{unreadable:,} of {shown:,} characters are in fonts without a Unicode map"
            problems.append(Problem("no_unicode", where, message))
        sheet = _find_invisible(page, text, kept, _PdfPage(codes, *_shown(boxes, page), label))
        area = sheet.width * sheet.height
        legible = unreadable <= shown * _ILLEGIBLE
        if 0 < area < math.inf and (
            (not legible and reader.languages)
            or (shown <= _FEW and _draws(page, area * _COVERED if shown else 0.0))
        ):
            return _add_ocr(page, sheet, bool(shown and legible), reader, where)
        return sheet


def _add_ocr(page: Any, sheet: _PdfPage, keep: bool, reader: OcrReader, where: str) -> _PdfPage:
    """Return the page with its OCR words, after those of its text layer if `keep`."""
    scale = fit_scale(sheet.width, sheet.height, _SHARP / 72)
    reading = reader.read(where, lambda: _picture(page, sheet, scale), round(scale * 72))
    if reading is NO_WORDS:
        return sheet
    kept = len(sheet.codes) if keep else 0
    codes = np.frombuffer(reading.text.encode("utf-32-le"), "<u4")
    return sheet._replace(
        codes=np.concatenate((sheet.codes[:kept], codes)),
        boxes=np.concatenate((sheet.boxes[:kept], reading.boxes / np.float32(scale))),
        confidence=np.concatenate((np.full(kept, 100, np.uint8), reading.confidence)),
    )


def _picture(page: Any, sheet: _PdfPage, scale: float) -> Image.Image:
    """Return the page as displayed, in grey."""
    width, height = max(1, round(sheet.width * scale)), max(1, round(sheet.height * scale))
    pixels = np.full((height, width), 255, np.uint8)
    bitmap = _pdfium.FPDFBitmap_CreateEx(width, height, _pdfium.FPDFBitmap_Gray, pixels.ctypes.data, width)
    _pdfium.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, 0)
    _pdfium.FPDFBitmap_Destroy(bitmap)
    return Image.fromarray(pixels)


def _draws(page: Any, area: float) -> bool:
    """Return whether the page shows something for OCR, in pictures that cover at least `area`."""
    items = [_pdfium.FPDFPage_GetObject(page, at) for at in range(_pdfium.FPDFPage_CountObjects(page))]
    shapes, covered = 0, 0.0
    for item in items:
        # Scanners often wrap a page in a form. An object that is no form has a count of -1.
        inside = range(_pdfium.FPDFFormObj_CountObjects(item))
        items.extend(_pdfium.FPDFFormObj_GetObject(item, at) for at in inside)
        kind = _pdfium.FPDFPageObj_GetType(item)
        if kind == _pdfium.FPDF_PAGEOBJ_IMAGE:
            left, bottom, right, top = (ctypes.c_float() for _ in range(4))
            _pdfium.FPDFPageObj_GetBounds(item, left, bottom, right, top)
            # Scanners often cut a page into strips, too.
            covered += (right.value - left.value) * (top.value - bottom.value)
            if covered >= area:
                return True
        shapes += kind == _pdfium.FPDF_PAGEOBJ_PATH
        if shapes == _OUTLINES and not area:
            return True
    return False


def _shows_notes(page: Any) -> bool:
    """Return whether a form field, a text note or a stamp is on the page."""
    for at in range(_pdfium.FPDFPage_GetAnnotCount(page)):
        note = _pdfium.FPDFPage_GetAnnot(page, at)
        kind = _pdfium.FPDFAnnot_GetSubtype(note)
        _pdfium.FPDFPage_CloseAnnot(note)
        if kind in {_pdfium.FPDF_ANNOT_WIDGET, _pdfium.FPDF_ANNOT_FREETEXT, _pdfium.FPDF_ANNOT_STAMP}:
            return True
    return False


def _find_invisible(page: Any, text: Any, kept: NDArray[np.intp], sheet: _PdfPage) -> _PdfPage:
    """Return the page with its invisible text: not painted, transparent, or white on white."""
    items = list(map(_item, repeat(_address(page)), range(_pdfium.FPDFPage_CountObjects(page))))
    kinds: list[int] = []
    for item in items:
        kinds.append(_kind(item))
        if kinds[-1] == _pdfium.FPDF_PAGEOBJ_FORM:
            items.extend(map(_inner, repeat(item), range(_count(item))))
    texts = [item for item, kind in zip(items, kinds, strict=True) if kind == _pdfium.FPDF_PAGEOBJ_TEXT]
    modes, colours = np.fromiter(map(_mode, texts), np.int8, len(texts)), _colours(texts)
    filled = modes == _pdfium.FPDF_TEXTRENDERMODE_FILL
    clear = (modes == _pdfium.FPDF_TEXTRENDERMODE_INVISIBLE) | (filled & (colours[:, 3] == 0))
    pale = filled & ~clear & (colours[:, :3] >= _WHITE).all(axis=1)
    if not (clear | pale).any():
        return sheet
    owners = np.fromiter(
        (owner or 0 for owner in map(_owner, repeat(_address(text)), kept.tolist())), np.uint64, len(kept)
    )
    unseen, faint = (np.isin(owners, np.array(texts, np.uint64)[some]) for some in (clear, pale))
    # Scanners put their OCR text over the picture in this way.
    if _pdfium.FPDF_PAGEOBJ_IMAGE in kinds and 2 * np.count_nonzero(unseen) > len(kept):
        return sheet._replace(traced=True)
    return sheet._replace(
        unseen=np.append(np.flatnonzero(unseen), _find_unpainted(page, sheet, np.flatnonzero(faint)))
    )


def _find_unpainted(page: Any, sheet: _PdfPage, places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return those of the characters that are invisible in a picture of the page."""
    places = places[~np.isnan(sheet.boxes[places, 0])]
    if not len(places) or not 0 < sheet.width * sheet.height < math.inf:
        return places[:0]
    scale = fit_scale(sheet.width, sheet.height, 1.0)
    pixels = np.asarray(_picture(page, sheet, scale))
    boxes = np.clip(sheet.boxes[places] * scale, 0, max(pixels.shape)).astype(int).tolist()
    parts = (pixels[top : bottom + 1, left : right + 1] for left, top, right, bottom in boxes)
    return places[[not part.size or int(part.max()) - int(part.min()) < _FAINT for part in parts]]


def _colours(items: list[int]) -> NDArray[np.uint32]:
    """Return the fill colours of text objects: red, green, blue and opacity."""
    colours = np.full((len(items), 4), (0, 0, 0, 255), np.uint32)
    base, end = colours.ctypes.data, colours.ctypes.data + colours.nbytes
    fields = (range(base + 4 * field, end + 4 * field, 16) for field in range(4))
    deque(map(_fill, items, *fields), maxlen=0)
    return colours


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, _Handle).value


def _characters(text: Any) -> tuple[Codes, Boxes, NDArray[np.intp]]:
    """Return a page's characters, their boxes (left, top, right, bottom), from the bottom up, and indexes."""
    count = max(0, int(_pdfium.FPDFText_CountChars(text)))
    at = _address(text)
    codes = np.fromiter(map(_unicode, repeat(at), range(count)), np.uint32, count)
    unmapped = np.fromiter(map(_map_error, repeat(at), range(count)), np.bool_, count)
    turned = np.fromiter(map(_angle, repeat(at), range(count)), np.float32, count) > 0
    boxes = _all_boxes(at, turned)
    codes[unmapped | np.isin(codes, _CONTROL) | (codes > 0x10FFFF)] = _UNKNOWN
    kept = np.flatnonzero(_joined(codes))
    codes, boxes = codes[kept], boxes[kept]
    whole = join_broken_lines(codes, boxes)
    codes, boxes, kept = codes[whole], boxes[whole], kept[whole]
    level = find_inked(codes, boxes)
    level = level[~turned[kept[level]]]
    if len(level):
        convert_superscripts(codes, boxes, level, cache(partial(_glyph_metrics, at, kept)))
    reorder_ligatures(codes, boxes)
    return np.concatenate((codes, _END.codes)), np.concatenate((boxes, _END.boxes)), kept


def _joined(codes: Codes) -> NDArray[np.bool_]:
    """Turn CR LF into a line break and surrogates into one character, in place; return which to keep."""
    kept = np.ones(len(codes), np.bool_)
    returns = codes == 0x0D
    kept[:-1] = ~(returns[:-1] & (codes[1:] == BREAK))
    codes[returns] = BREAK
    high, low = codes & 0xFFFFFC00 == 0xD800, codes & 0xFFFFFC00 == 0xDC00
    pairs = np.flatnonzero(high[:-1] & low[1:])
    codes[high | low] &= 0x3FF
    high[pairs] = low[pairs + 1] = kept[pairs + 1] = False
    codes[pairs] = 0x10000 + (codes[pairs] << 10) + codes[pairs + 1]
    codes[high | low] = _UNKNOWN
    return kept


def _glyph_metrics(at: int | None, kept: NDArray[np.intp], index: int) -> GlyphMetrics:
    index = int(kept[index])
    matrix = (ctypes.c_float * 6)()
    _matrix(at, index, ctypes.addressof(matrix))
    _, _, skew, scale, _, base = matrix
    return GlyphMetrics(_font_size(at, index) * math.hypot(skew, scale), base)


def _all_boxes(at: int | None, turned: NDArray[np.bool_]) -> Boxes:
    """Return loose boxes, as high as the line, which highlight well; tight ones where those are wrong.

    pdfium takes all text for upright: rotated text gets a loose box without width, or a wrong one.
    """
    count = len(turned)
    boxes = np.zeros((count, 4), np.float32)
    base = boxes.ctypes.data
    deque(map(_loose_box, repeat(at), range(count), range(base, base + 16 * count, 16)), maxlen=0)
    wrong = np.flatnonzero(turned | (boxes[:, 0] == boxes[:, 2]) | (boxes[:, 1] == boxes[:, 3]))
    tight = np.zeros((len(wrong), 4), np.float64)
    base, end = tight.ctypes.data, tight.ctypes.data + tight.nbytes
    # pdfium writes left, right, bottom and top.
    fields = (range(base + 8 * field, end + 8 * field, 32) for field in (0, 2, 3, 1))
    deque(map(_tight_box, repeat(at), wrong.tolist(), *fields), maxlen=0)
    tight[(tight[:, 0] == tight[:, 2]) | (tight[:, 1] == tight[:, 3])] = np.nan
    boxes[wrong] = tight
    boxes[~np.isfinite(sum(boxes.T))] = np.nan
    return boxes


def _shown(boxes: Boxes, page: Any) -> tuple[Boxes, float, float]:
    """Return the boxes on the page as displayed, cropped and rotated, from its top left; and its size."""
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


def _hidden(boxes: Boxes, pages: tuple[Page, ...], unseen: NDArray[np.intp]) -> Iterator[Aside]:
    """Yield invisible text, and text entirely outside the visible part of its page."""
    inked = np.flatnonzero(~np.isnan(boxes[:, 0]))
    sizes = np.array([(page.width, page.height) for page in pages])
    on = np.searchsorted([page.start for page in pages], inked, "right") - 1
    off = (boxes[inked, 2:] <= 0).any(axis=1) | (boxes[inked, :2] >= sizes[on]).any(axis=1)
    off |= np.isin(inked, unseen)
    edges = np.flatnonzero(np.diff(off, prepend=False, append=False)).reshape(-1, 2)
    yield from (Aside(int(inked[start]), int(inked[end - 1]) + 1, "hidden") for start, end in edges.tolist())
