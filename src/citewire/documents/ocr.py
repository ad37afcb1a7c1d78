"""Read the words in a picture, with their boxes and confidence, by the `tesseract` command.

Each call reads one picture. If the caller dies, tesseract is killed too.
"""

from __future__ import annotations

import ctypes
import io
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from citewire.documents.document import Boxes
from citewire.documents.errors import DocumentError
from citewire.model import Problem

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "MOST_PICTURES",
    "OCR_SECONDS",
    "OcrFailed",
    "OcrReader",
    "OcrText",
    "OcrTurn",
    "OcrUnfinished",
    "die_with_parent",
    "fit_scale",
    "ocr_languages",
]

# Seconds per picture, which takes three on an idle machine; and most pictures per source.
OCR_SECONDS, MOST_PICTURES = 60.0, 200
# Tesseract is limited to 32,767 pixels per side; more pixels in total take long and show no more words.
_MOST_SIDE, _MOST_PIXELS = 30_000, 40_000_000
# Percent. Upside-down text is read with almost no confidence: below this it is turned and read again.
_UPSIDE_DOWN = 50.0
_WORD = "5"
_LACKING = re.compile(r"Failed loading language '(?!osd')([^']*)'")
_PR_SET_PDEATHSIG = 1


class OcrFailed(DocumentError):
    """Tesseract does not work, for example because it lacks a language."""

    code = "ocr_failed"


class OcrTimeout(DocumentError):
    """Tesseract took too long for one page."""

    code = "ocr_timeout"


class OcrUnfinished(DocumentError):
    """The time of this turn is over. Pages read so far are stored, and the next turn continues."""

    code = "ocr_unfinished"


class OcrText(NamedTuple):
    """A text that ends with a line break, and for each character its word's box and confidence."""

    text: str
    boxes: Boxes
    confidence: NDArray[np.uint8]


NO_WORDS = OcrText("\n", np.full((1, 4), np.nan, np.float32), np.zeros(1, np.uint8))
# Stored for a page that timed out: it would take as long in the next turn.
_TOO_SLOW = NO_WORDS._replace(text="")


def ocr_languages() -> str | None:
    """Return the languages for OCR, as tesseract names them; None if it is not installed."""
    return os.environ.get("CITEWIRE_OCR_LANGUAGES", "eng") if shutil.which("tesseract") else None


def fit_scale(width: float, height: float, scale: float) -> float:
    """Return the scale for reading a picture of that size: less than `scale` if it is large."""
    return min(scale, _MOST_SIDE / max(width, height), math.sqrt(_MOST_PIXELS / (width * height)))


class OcrPageStore(Protocol):
    """**Protocol:** stores the text of each page of one source, for later turns."""

    def get(self, where: str) -> OcrText | None:
        """Return the text of a page; None if it was not read yet."""
        ...

    def put(self, where: str, reading: OcrText) -> bool:
        """Store the text of a page, and return whether that succeeded."""
        ...


class OcrTurn:
    """One turn of reading a source's pictures. It ends after `seconds`, once `pages` has stored a page."""

    def __init__(self, pages: OcrPageStore | None = None, seconds: float | None = None) -> None:
        self._pages = pages
        self._until = math.inf if seconds is None else time.monotonic() + seconds
        self._has_gained = False

    def read(self, where: str, read: Callable[[], OcrText]) -> OcrText:
        """Read a page with `read`, or return its text from an earlier turn. Raises `OcrUnfinished`."""
        reading = self._pages.get(where) if self._pages else None
        if reading is None and self._has_gained and time.monotonic() >= self._until:
            raise OcrUnfinished("tesseract has not read all pages yet")
        if reading is None:
            reading = _read_in_time(read)
            if self._pages:
                self._has_gained |= self._pages.put(where, reading)
        if not reading.text:
            raise OcrTimeout(f"a picture not read within {OCR_SECONDS:g} s")
        return reading if reading.text.strip() else NO_WORDS


class OcrReader:
    """Reads the pictures of one source; without languages it reports them as not read."""

    def __init__(self, languages: str | None, problems: list[Problem], turn: OcrTurn | None = None) -> None:
        self.languages = languages
        self._problems, self._turn = problems, turn or OcrTurn()
        self._left = MOST_PICTURES

    def read(self, where: str, picture: Callable[[], Image], dpi: int | None = None) -> OcrText:
        """Read a grey picture. Raises `OcrFailed`."""
        if self.languages is None:
            message = "the page is a picture: it has no text layer, and was not read by tesseract"
            self._problems.append(Problem("no_text_layer", where, message))
            return NO_WORDS
        self._left -= 1
        if self._left < 0:
            if self._left == -1:
                message = f"only {MOST_PICTURES} pages that are pictures were read"
                self._problems.append(Problem("too_many_pages", where, message))
            return NO_WORDS
        try:
            reading = self._turn.read(where, partial(_read, picture, self.languages, dpi))
        except OcrTimeout as exc:
            self._problems.append(Problem(exc.code, where, exc.message))
            return NO_WORDS
        if reading is NO_WORDS:
            self._problems.append(Problem("no_words", where, "the page is a picture without words"))
        return reading


def _read_in_time(read: Callable[[], OcrText]) -> OcrText:
    try:
        return read()
    except subprocess.TimeoutExpired:
        return _TOO_SLOW


def _read(take_picture: Callable[[], Image], languages: str, dpi: int | None) -> OcrText:
    picture = take_picture()
    reading = _recognised(picture, languages, dpi)
    if reading is NO_WORDS or reading.confidence.mean() >= _UPSIDE_DOWN:
        return reading
    turned = _recognised(picture.rotate(180), languages, dpi)
    if turned.confidence.mean() <= reading.confidence.mean():
        return reading
    size = np.array([picture.width, picture.height] * 2, np.float32)
    return turned._replace(boxes=size - turned.boxes[:, [2, 3, 0, 1]])


def _recognised(picture: Image, languages: str, dpi: int | None) -> OcrText:
    data = io.BytesIO()
    picture.save(data, "PPM")
    # Mode 1 detects the orientation of the page, and its columns.
    command = ["tesseract", "stdin", "stdout", "-l", languages, "--psm", "1", "-c", "tessedit_create_tsv=1"]
    try:
        done = subprocess.run(  # noqa: S603
            command + (["--dpi", str(dpi)] if dpi else []), input=data.getvalue(), capture_output=True,
            check=True, timeout=OCR_SECONDS / 2, env=os.environ | {"OMP_THREAD_LIMIT": "1"},
            preexec_fn=die_with_parent,  # a reader has no other threads
        )  # fmt: skip
    except subprocess.CalledProcessError as exc:
        said = exc.stderr.decode("utf-8", "replace")
        _check_languages(said)
        raise OcrFailed(
            f"tesseract ended with status {exc.returncode}", detail=" ".join(said.split())
        ) from exc
    except OSError as exc:
        raise OcrFailed("tesseract cannot be run", detail=exc) from exc
    # If a language is missing, tesseract continues with the others.
    _check_languages(done.stderr.decode("utf-8", "replace"))
    return _parsed(done.stdout.decode("utf-8", "replace"))


def _check_languages(said: str) -> None:
    """Raise `OcrFailed` if tesseract reports a missing language."""
    if lacking := _LACKING.search(said):
        raise OcrFailed(f"tesseract does not have the language {lacking[1]!r}")


def _parsed(table: str) -> OcrText:
    """Parse a table with the columns level, page, block, paragraph, line, word, left, top, width, height,
    confidence and text."""
    rows = [row.split("\t", 11) for row in table.split("\n")]
    words = [row for row in rows if row[0] == _WORD and row[11].strip()]
    if not words:
        return NO_WORDS
    lines = [row[1:5] for row in words] + [[]]
    text = "".join(
        row[11].strip() + (" " if here == after else "\n")
        for row, (here, after) in zip(words, pairwise(lines), strict=True)
    )
    sizes = [len(row[11].strip()) + 1 for row in words]
    places = np.array([row[6:10] for row in words], np.float32)
    places[:, 2:] += places[:, :2]
    sure = np.array([row[10] for row in words], np.float32).clip(0, 100).astype(np.uint8)
    boxes = np.repeat(places, sizes, axis=0)
    boxes[np.cumsum(sizes) - 1] = np.nan
    return OcrText(text, boxes, np.repeat(sure, sizes))


def die_with_parent() -> None:
    """Kill this process when its parent ends, if the system supports that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
