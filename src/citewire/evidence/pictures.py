"""Draw pictures of quotes in their sources, many at once and within limits.

Their cost is known before any is drawn: the number of pixels limits bytes, time and memory.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePath
from time import monotonic

from msgspec import Struct

from citewire.documents.document import Document
from citewire.documents.draw import QUOTE_MARGIN, Crop, Rectangle, draw_all_in_child
from citewire.documents.errors import DocumentError
from citewire.evidence.proof import Proof
from citewire.verification.sources import SourceInput, iter_sources

__all__ = [
    "PICTURE_FORMAT",
    "PictureRequest",
    "ReadBytes",
    "draw_pictures",
    "limit_pixels",
    "make_original_reader",
    "plan_pictures",
]

# WebP: half the size of JPEG, supported by every browser since 2020. AVIF saves a quarter more, but takes
# three times as long to encode and is supported only since 2023. See `python -m bench.proof`.
PICTURE_FORMAT = "webp"
_CROP_SCALE, _PAGE_SCALE = 2.0, 1.5
# Most pages shown for one quote.
_MOST_PAGES = 3
# Even a small picture takes some time: it counts as at least this many pixels.
_LEAST_PIXELS = 250_000
# Pictures per process, and its seconds for each and to start. If a picture kills the process, the batch is
# halved until that picture is found, for at most this many seconds per document.
_BATCH, _SECONDS_EACH, _SECONDS_TO_START, _SECONDS_PER_DOCUMENT = 32, 1.0, 8.0, 90.0

ReadBytes = Callable[[Document], bytes]


class PictureRequest(Struct, frozen=True, gc=False):
    """A crop to draw of a source. `width` and `height` are in points, `pixels` is the cost."""

    sha256: str
    crop: Crop
    width: float
    height: float
    pixels: float


def plan_pictures(document: Document, proof: Proof, *, whole: bool = False) -> Iterator[PictureRequest]:
    """Yield the crop, or the `whole` page, for each page of a PDF that a quote is on."""
    if document.kind != "pdf":
        return
    pages: dict[int, list[Rectangle]] = {}
    for box in proof.boxes:
        pages.setdefault(box.page, []).append((box.left, box.top, box.right, box.bottom))
    for number, boxes in islice(pages.items(), _MOST_PAGES):
        crop = Crop(
            number, tuple(boxes), _PAGE_SCALE if whole else _CROP_SCALE, whole, PICTURE_FORMAT, QUOTE_MARGIN
        )
        page = document.pages[bisect_left(document.pages, number, key=lambda page: page.number)]
        if frame := crop.frame(page.width, page.height):
            width, height = frame.right - frame.left, frame.bottom - frame.top
            yield PictureRequest(document.sha256, crop, width, height, max(frame.pixels, _LEAST_PIXELS))


def limit_pixels(pixels: float, pictures: Iterable[PictureRequest]) -> list[PictureRequest]:
    """Return the first pictures, without duplicates, that together cost at most `pixels`."""
    chosen: list[PictureRequest] = []
    for picture in dict.fromkeys(pictures):
        pixels -= picture.pixels
        if pixels < 0:
            break
        chosen.append(picture)
    return chosen


def draw_pictures(
    pictures: Iterable[PictureRequest], documents: Iterable[Document], read: ReadBytes
) -> dict[PictureRequest, bytes | DocumentError]:
    """Draw pictures; the value is an error for each that cannot be drawn.

    `read` returns the bytes of a document, or raises `DocumentError`.
    """
    wanted: dict[str, list[PictureRequest]] = {}
    for picture in pictures:
        wanted.setdefault(picture.sha256, []).append(picture)
    known = {document.sha256: document for document in documents}

    def drawn(sha256: str) -> list[bytes | DocumentError]:
        return _of_one(known[sha256], [picture.crop for picture in wanted[sha256]], read)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(drawn, wanted))
    asked = (picture for each in wanted.values() for picture in each)
    return dict(zip(asked, (image for each in made for image in each), strict=True))


def make_original_reader(sources: SourceInput | Iterable[SourceInput]) -> ReadBytes:
    """Return a function that reads the bytes of documents again from their sources."""
    listed = [each.source for each in iter_sources(sources)]

    def read(document: Document) -> bytes:
        if document.url is not None:
            from citewire.documents.fetch import fetch  # noqa: PLC0415  # a sixth of a second, see HttpAgent

            return fetch(document.url).data
        name = PurePath(document.name or "").name
        paths = (Path(source) for source in listed if isinstance(source, str | os.PathLike))
        for path in paths:
            with suppress(OSError):
                if path.name == name and _is(document, data := path.read_bytes()):
                    return data
        raise DocumentError("its file is gone, or has changed since it was read")

    return read


def _is(document: Document, data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == document.sha256


def _of_one(document: Document, crops: list[Crop], read: ReadBytes) -> list[bytes | DocumentError]:
    try:
        data = read(document)
    except DocumentError as exc:
        return [exc] * len(crops)
    if not _is(document, data):
        return [DocumentError("the source has changed since it was read")] * len(crops)
    deadline = monotonic() + _SECONDS_PER_DOCUMENT
    batches = (crops[at : at + _BATCH] for at in range(0, len(crops), _BATCH))
    return [image for batch in batches for image in _batch(data, batch, deadline)]


def _batch(data: bytes, crops: list[Crop], deadline: float) -> list[bytes | DocumentError]:
    seconds = min(_SECONDS_TO_START + _SECONDS_EACH * len(crops), deadline - monotonic())
    if seconds <= 0:
        return [DocumentError("drawing this source took too long")] * len(crops)
    try:
        return draw_all_in_child(data, crops, timeout=seconds)
    except DocumentError as exc:
        if len(crops) == 1:
            return [exc]
    half = len(crops) // 2
    return _batch(data, crops[:half], deadline) + _batch(data, crops[half:], deadline)
