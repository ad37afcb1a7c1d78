"""Image reader: the words in PNG, JPEG, TIFF with all its pages, and others.

Boxes and sizes are in pixels of the picture as displayed, one per point: the resolution that a picture
declares is often wrong.
"""

from __future__ import annotations

import io
import struct
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from citewire.documents.document import Document, Page
from citewire.documents.errors import DocumentError
from citewire.documents.ocr import MOST_PICTURES, NO_WORDS, OcrReader, OcrText, OcrTurn, fit_scale
from citewire.model import Problem

__all__ = ["load_page_image", "read_image"]

# A page of A3 at 600 dots per inch has 70 million. Pillow warns at 89 million, and fails at twice that.
MOST_PIXELS = 100_000_000
# Small print of screenshots is too small for tesseract: pictures are enlarged to this side, or by this scale.
_SHARP, _MOST_SCALE = 2000, 3
_FORMATS = ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "JPEG2000", "AVIF")
# Exceptions that Pillow raises for damaged pictures, depending on where they are damaged.
_DAMAGE = (
    OSError, SyntaxError, ValueError, EOFError, TypeError, LookupError, ArithmeticError, struct.error,
)  # fmt: skip


class _ImagePage(NamedTuple):
    reading: OcrText
    width: int = 0
    height: int = 0


def read_image(
    data: bytes, *, sha256: str, name: str | None = None, ocr: str | None = None, turn: OcrTurn | None = None
) -> Document:
    """Read a picture in the languages `ocr`; without them, return a document without words and a problem
    that says so. Raises `DocumentError`."""
    problems: list[Problem] = []
    reader = OcrReader(ocr, problems, turn)
    with warnings.catch_warnings():
        # Ignore warnings about large pictures, whose size is checked here, and about odd metadata.
        warnings.simplefilter("ignore")
        image, count = _opened(data)
        sheets = [_sheet(image, index, reader, problems) for index in range(min(count, MOST_PICTURES))]
    if all(not sheet.width for sheet in sheets):
        raise DocumentError(problems[0].message)
    if count > MOST_PICTURES:
        message = f"only {MOST_PICTURES} of {count:,} pages were read"
        problems.append(Problem("too_many_pages", f"page {MOST_PICTURES + 1}", message))
    edges = np.cumsum([0, *(len(sheet.reading.text) for sheet in sheets)]).tolist()
    pages = tuple(
        Page(number, start, end, sheet.width, sheet.height, ocr=sheet.reading is not NO_WORDS)
        for number, (sheet, start, end) in enumerate(zip(sheets, edges, edges[1:], strict=False), 1)
    )
    text = "".join(sheet.reading.text for sheet in sheets)
    lines = [0, *(at for at, char in enumerate(text[:-1], 1) if char == "\n")]
    return Document(
        sha256, "image", text, pages, np.array(lines, np.int32),
        np.concatenate([sheet.reading.boxes for sheet in sheets]),
        np.concatenate([sheet.reading.confidence for sheet in sheets]),
        name=name, problems=tuple(problems),
    )  # fmt: skip


def load_page_image(data: bytes, page: int) -> Image.Image:
    """Return a page as displayed. Raises `DocumentError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image, count = _opened(data)
        if not 1 <= page <= count:
            raise DocumentError(f"there is no page {page}")
        try:
            image.seek(page - 1)
            return _upright(image).convert("RGB")
        except _DAMAGE as exc:
            raise DocumentError("the picture is damaged", detail=exc) from exc


def _opened(data: bytes) -> tuple[Image.Image, int]:
    """Return the picture, and its number of pages."""
    try:
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
        count = getattr(image, "n_frames", 1)
    except UnidentifiedImageError as exc:
        raise DocumentError("it is a damaged picture, or one of a kind that is not read") from exc
    except Image.DecompressionBombError as exc:
        raise DocumentError(f"it is a picture of more than {MOST_PIXELS:,} pixels") from exc
    except _DAMAGE as exc:
        raise DocumentError("it is a damaged picture", detail=exc) from exc
    # Cameras append a thumbnail or a second view to the picture.
    if count == 1 or image.format == "MPO":
        return image, 1
    if image.format != "TIFF":
        raise DocumentError("it is an animation, not a picture of a page")
    return image, count


def _damage(error: Exception) -> str:
    """Describe the damage in our words: the library's message may reveal details of this machine."""
    if isinstance(error, DocumentError):
        return error.message
    return "it is damaged: truncated" if "truncated" in str(error) else "it is damaged"


def _sheet(image: Image.Image, index: int, reader: OcrReader, problems: list[Problem]) -> _ImagePage:
    where = f"page {index + 1}"
    try:
        image.seek(index)
        grey = _upright(image).convert("L")
    except (*_DAMAGE, DocumentError) as exc:
        problems.append(Problem("bad_page", where, f"the picture cannot be read: {_damage(exc)}"))
        return _ImagePage(NO_WORDS)
    longer = max(grey.size)
    scale = fit_scale(*grey.size, min(_MOST_SCALE, max(1, -(-_SHARP // longer))))
    size = max(1, round(grey.width * scale)), max(1, round(grey.height * scale))
    reading = reader.read(where, partial(grey.resize, size, Image.Resampling.LANCZOS))
    if reading is not NO_WORDS:
        reading = reading._replace(boxes=reading.boxes / np.float32(scale))
    return _ImagePage(reading, *grey.size)


def _upright(image: Image.Image) -> Image.Image:
    """Return the picture the right way up, on white if it is transparent."""
    if image.width * image.height > MOST_PIXELS:
        raise DocumentError(f"it has more than {MOST_PIXELS:,} pixels")
    shown = ImageOps.exif_transpose(image)
    if shown.mode[0] in "IF":
        # Pillow would clip values above 255.
        values = np.nan_to_num(np.asarray(shown, np.float32)).clip(0)
        return Image.fromarray((values * (255 / max(1.0, values.max()))).astype(np.uint8))
    if shown.has_transparency_data:
        white = Image.new("RGBA", shown.size, "white")
        white.alpha_composite(shown.convert("RGBA"))
        shown = white
    return shown
