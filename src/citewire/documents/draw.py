"""Draw a page of a PDF or an image, or the part with a quote, with the quote highlighted.

pdfium is not thread-safe and a hostile file may crash or hang it, so `draw` is for a process that may die.
Other callers use `draw_in_child`, or `draw_all_in_child`, which starts one process for many pictures.
"""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from msgspec import Struct, msgpack
from msgspec.structs import replace

from citewire.codec import prepare_types
from citewire.documents.errors import DocumentError, EncryptedDocument
from citewire.documents.load import is_image
from citewire.documents.reader import (
    MOST_RESULT,
    ReaderFailed,
    ReaderTimeout,
    exchange,
    limit_process,
    terminate,
)

__all__ = [
    "Crop",
    "CropFrame",
    "QUOTE_MARGIN",
    "draw",
    "draw_all_in_child",
    "draw_in_child",
    "encode_image",
    "is_drawable",
]

ImageFormat = Literal["png", "jpeg", "webp", "avif"]
Rectangle = tuple[float, float, float, float]

DRAW_TIMEOUT, DRAW_MEMORY = 30.0, 1 << 30
# Sharp enough for small print on any screen (576 dots per inch); a larger request is a mistake.
MOST_SCALE = 8.0
# Larger pictures are scaled down: no screen shows more, and WebP is limited to 16,383 per side.
MOST_PIXELS, MOST_SIDE = 16_000_000, 8_192
# pdfium counts pixels of the whole page in 32 bits, also for a crop. PDF itself allows 14,400 points.
_LARGEST_PAGE = 1_000_000.0
# Light enough for print to keep its contrast, also in grey.
_YELLOW = (255, 235, 100)
# More effort makes files a few percent smaller and takes twice as long.
_SAVE: dict[ImageFormat, dict[str, Any]] = {
    "png": {"compress_level": 6},
    "jpeg": {"quality": 85, "subsampling": 0},
    "webp": {"quality": 80, "method": 2},
    "avif": {"quality": 60, "speed": 8, "max_threads": 1},
}
_OUTSIDE = "the boxes are outside of what the page shows"
# Bytes of encoding overhead per picture in a result.
_OVERHEAD = 1 << 12
_COMMAND = ("-P", "-c", "from citewire.documents.draw import serve; serve()")


# Points around a quote: whole lines on most pages, and two more lines above and below.
QUOTE_MARGIN = (150.0, 36.0)


class CropOptions(TypedDict, total=False):
    """The options of `Crop`."""

    scale: float
    whole: bool
    format: ImageFormat
    margin: tuple[float, float]


class Crop(Struct, frozen=True, gc=False):
    """What to draw: boxes on a page, in points from the top left of the page as displayed.

    `margin` is added horizontally and vertically. Without boxes the whole page is drawn.
    """

    page: int
    boxes: tuple[Rectangle, ...] = ()
    scale: float = 2.0
    whole: bool = False
    format: ImageFormat = "png"
    margin: tuple[float, float] = (20.0, 30.0)

    @classmethod
    def of(cls, page: int, boxes: Iterable[Sequence[float]], options: CropOptions) -> Crop:
        return cls(page, tuple((left, top, right, bottom) for left, top, right, bottom in boxes), **options)

    def frame(self, width: float, height: float) -> CropFrame | None:
        """Return the part of a page of this size that is drawn; None if all boxes are outside."""
        boxes = [box for box in (_within(box, width, height) for box in self.boxes) if box]
        if self.boxes and not boxes:
            return None
        left, top, right, bottom = 0.0, 0.0, width, height
        if boxes and not self.whole:
            lefts, tops, rights, bottoms = zip(*boxes, strict=True)
            across, down = self.margin
            left, top = max(left, min(lefts) - across), max(top, min(tops) - down)
            right, bottom = min(right, max(rights) + across), min(bottom, max(bottoms) + down)
        wide, tall = right - left, bottom - top
        scale = min(self.scale, math.sqrt(MOST_PIXELS / (wide * tall)), MOST_SIDE / wide, MOST_SIDE / tall)
        return CropFrame(left, top, right, bottom, scale, tuple(boxes))


class CropFrame(NamedTuple):
    """The part of a page that a picture shows, in points, its scale, and the boxes on the page."""

    left: float
    top: float
    right: float
    bottom: float
    scale: float
    boxes: tuple[Rectangle, ...]

    @property
    def pixels(self) -> float:
        return (self.right - self.left) * (self.bottom - self.top) * self.scale**2


class _Job(Struct, frozen=True):
    data: bytes
    crops: tuple[Crop, ...]
    seconds: int
    memory: int
    most_result: int


class _DrawResult(Struct, frozen=True):
    image: bytes = b""
    error: tuple[str, str, str] | None = None
    """The code, the message and the detail of what was raised."""

    def result(self) -> bytes | DocumentError:
        if self.error is None:
            return self.image
        code, message, detail = self.error
        kinds = {kind.code: kind for kind in (EncryptedDocument, ReaderFailed)}
        return kinds.get(code, DocumentError)(message, detail=detail)


prepare_types(_DrawResult)


def is_drawable(data: bytes) -> bool:
    """Return whether the bytes are a PDF or an image."""
    return b"%PDF-" in data[:1024] or is_image(data)


def draw(
    data: bytes, page: int, boxes: Iterable[Sequence[float]] = (), **options: Unpack[CropOptions]
) -> bytes:
    """Draw the picture that `Crop(page, boxes, **options)` describes. Raises `DocumentError`."""
    with _opened(data) as file:
        return _drawn(file, Crop.of(page, boxes, options))


def draw_in_child(
    data: bytes, page: int, boxes: Iterable[Sequence[float]] = (), *,
    timeout: float = DRAW_TIMEOUT, memory: int = DRAW_MEMORY, **options: Unpack[CropOptions],
) -> bytes:  # fmt: skip
    """Like `draw`, in a child process. Raises `DocumentError`."""
    [image] = draw_all_in_child(data, [Crop.of(page, boxes, options)], timeout=timeout, memory=memory)
    if isinstance(image, DocumentError):
        raise image
    return image


def draw_all_in_child(
    data: bytes, crops: Iterable[Crop], *, timeout: float = DRAW_TIMEOUT, memory: int = DRAW_MEMORY,
    most_result: int = MOST_RESULT,
    started: Callable[[subprocess.Popen[bytes]], object] = lambda _: None,
) -> list[bytes | DocumentError]:  # fmt: skip
    """Draw pictures of one file, in order; a picture that cannot be drawn is an error in the list.

    Pictures that would exceed `most_result` bytes together with earlier ones are not drawn either. Raises
    `ReaderFailed` or `ReaderTimeout` if the process dies or takes too long. To stop earlier, kill the process
    passed to `started`.
    """
    crops = tuple(crops)
    job = msgpack.encode(_Job(data, crops, math.ceil(timeout), memory, most_result))
    try:
        child = subprocess.Popen(  # noqa: S603  # our own interpreter and code
            (sys.executable, *_COMMAND), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
    except OSError as exc:
        raise ReaderFailed("no process to draw it in", detail=exc) from exc
    try:
        started(child)
        made = exchange(child, job, timeout=timeout, most=most_result + _OVERHEAD * (len(crops) + 1))
    except subprocess.TimeoutExpired as exc:
        raise ReaderTimeout(f"not drawn within {timeout:g} s") from exc
    except OverflowError as exc:
        raise ReaderFailed(f"the pictures take more than {most_result:,} bytes") from exc
    finally:
        terminate(child)
    try:
        return [one.result() for one in msgpack.decode(made, type=list[_DrawResult])]
    except ValueError as exc:
        names = {-number: number.name for number in signal.Signals}
        how = names.get(child.returncode, f"status {child.returncode}")
        raise ReaderFailed(f"the drawing ended with {how}") from exc


def serve() -> None:
    """Run the child: do one job and exit."""
    out = os.dup(1)
    # Output that a library prints must not mix with the result.
    os.dup2(2, 1)
    job = msgpack.decode(sys.stdin.buffer.read(), type=_Job)
    limit_process(job.seconds, job.memory)
    made: list[_DrawResult] = []
    try:
        with _opened(job.data) as file:
            made += _within_limit((_attempted(file, crop) for crop in job.crops), job.most_result)
    except DocumentError as exc:
        made = [_DrawResult(error=(exc.code, exc.message, exc.detail))] * len(job.crops)
    with os.fdopen(out, "wb") as pipe:
        pipe.write(msgpack.encode(made))
    # Skip the exit handlers of libraries: the result is sent.
    os._exit(0)


def _within_limit(drawn: Iterable[_DrawResult], most: int) -> Iterator[_DrawResult]:
    """Yield the pictures, with an error in place of each that exceeds the limit."""
    for one in drawn:
        if len(one.image) > most:
            yield _DrawResult(error=(ReaderFailed.code, "the pictures of this file take too many bytes", ""))
            continue
        most -= len(one.image)
        yield one


def _attempted(file: Any, crop: Crop) -> _DrawResult:
    try:
        return _DrawResult(_drawn(file, crop))
    except DocumentError as exc:
        return _DrawResult(error=(exc.code, exc.message, exc.detail))
    except Exception as exc:  # noqa: BLE001  # the root of a process: what a file shows is told of that file
        return _DrawResult(error=(ReaderFailed.code, "the drawing failed", f"{type(exc).__name__}: {exc}"))


@contextmanager
def _opened(data: bytes) -> Generator[Any]:
    if is_image(data):
        yield data
        return
    # The import starts pdfium, which must not happen in a process that only calls `draw_in_child`.
    import pypdfium2  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    pdfium: Any = pypdfium2
    try:
        file = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as exc:
        if exc.err_code in {pdfium.raw.FPDF_ERR_PASSWORD, pdfium.raw.FPDF_ERR_SECURITY}:
            raise EncryptedDocument("the PDF is encrypted: it needs a password") from exc
        raise DocumentError("not a PDF, or damaged beyond repair") from exc
    try:
        yield file
    finally:
        file.close()


def _page(file: Any, number: int) -> Any:
    """Load a page with its form fields and notes drawn into it, as for the text."""
    from pypdfium2 import raw  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    pdfium: Any = raw
    if not 1 <= number <= len(file):
        raise DocumentError(f"there is no page {number}")
    try:
        page = file[number - 1]
        if pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY) == pdfium.FLATTEN_SUCCESS:
            page.close()
            page = file[number - 1]
    # pdfium's errors are a subclass.
    except RuntimeError as exc:
        raise DocumentError(f"page {number} is damaged") from exc
    return page


def _drawn(file: Any, crop: Crop) -> bytes:
    if not 0 < crop.scale <= MOST_SCALE:
        raise DocumentError(f"a scale of {crop.scale:g}: more than 0 and at most {MOST_SCALE:g} is drawn")
    if isinstance(file, bytes):
        return _drawn_image(file, crop)
    page = _page(file, crop.page)
    width, height = page.get_size()
    if not (0 < width <= _LARGEST_PAGE and 0 < height <= _LARGEST_PAGE):
        raise DocumentError(f"a page of {width:g} by {height:g} points cannot be drawn")
    frame = crop.frame(width, height)
    if frame is None:
        raise DocumentError(_OUTSIDE)
    left, top, right, bottom, scale, boxes = frame
    cuts = [math.floor(cut * scale) for cut in (left, height - bottom, width - right, top)]
    # pdfium rounds up; this yields whole pixels in spite of float errors.
    bitmap = page.render(scale=scale, crop=[max(0.0, cut - 0.5) / scale for cut in cuts])
    shifted = [[side * scale - cuts[(0, 3)[at % 2]] for at, side in enumerate(box)] for box in boxes]
    return encode_image(_highlighted(bitmap.to_pil().convert("RGB"), shifted), crop.format)


def _drawn_image(data: bytes, crop: Crop) -> bytes:
    """Draw an image. A point is a pixel, so it is never enlarged."""
    from PIL.Image import Resampling  # noqa: PLC0415  # for the child only, as pdfium is

    from citewire.documents.image import load_page_image  # noqa: PLC0415  # the same

    image = load_page_image(data, crop.page)
    frame = replace(crop, scale=min(crop.scale, 1.0)).frame(*image.size)
    if frame is None:
        raise DocumentError(_OUTSIDE)
    edges = [math.floor(frame.left), math.floor(frame.top), math.ceil(frame.right), math.ceil(frame.bottom)]
    part = image.crop((edges[0], edges[1], edges[2], edges[3]))
    size = [max(1, round(side * frame.scale)) for side in part.size]
    shifted = [[(side - edges[at % 2]) * frame.scale for at, side in enumerate(box)] for box in frame.boxes]
    return encode_image(
        _highlighted(part.resize((size[0], size[1]), Resampling.LANCZOS), shifted), crop.format
    )


def _within(box: Rectangle, width: float, height: float) -> Rectangle | None:
    """Return the part of a box that is on the page, or None."""
    left, top, right, bottom = max(box[0], 0.0), max(box[1], 0.0), min(box[2], width), min(box[3], height)
    # With the arguments in this order NaN stays NaN, and compares false.
    return (left, top, right, bottom) if left < right and top < bottom else None


def _highlighted(image: Any, boxes: list[list[float]]) -> Any:
    """Highlight boxes like a marker pen: white becomes yellow, black stays black."""
    from PIL import Image, ImageChops, ImageDraw  # noqa: PLC0415  # for the child only, as pdfium is

    if not boxes:
        return image
    layer = Image.new("RGB", image.size, "white")
    pen = ImageDraw.Draw(layer)
    for left, top, right, bottom in boxes:
        # The bottom right pixel is part of the rectangle.
        pen.rectangle(
            (math.floor(left), math.floor(top), math.ceil(right) - 1, math.ceil(bottom) - 1), _YELLOW
        )
    return ImageChops.multiply(image, layer)


def encode_image(image: Any, format: ImageFormat) -> bytes:  # noqa: A002  # the name of the option
    """Encode a Pillow image."""
    out = io.BytesIO()
    image.save(out, format, **_SAVE[format])
    return out.getvalue()
