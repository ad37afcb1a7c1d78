"""Pictures of pages: what is yellow, what stays dark, what is refused, and that nothing is left running."""

import io
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from citewire.documents.draw import (
    MOST_PIXELS,
    MOST_SIDE,
    Crop,
    Rectangle,
    draw,
    draw_all_in_child,
    draw_in_child,
)
from citewire.documents.errors import DocumentError, EncryptedDocument
from citewire.documents.pdf import read_pdf
from citewire.documents.reader import ReaderFailed, ReaderTimeout
from support.pdfs import HEIGHT, WIDTH, Line, Sheet, make_pdf

pytestmark = pytest.mark.slow

Pixels = NDArray[np.int16]
LINES = (Line("The first line of a text"), Line("goes on in the second", y=680), Line("Not quoted", y=600))
PDF = make_pdf(Sheet(LINES))
BOX = (70.0, 130.0, 250.0, 145.0)


def pixels(image: bytes) -> Pixels:
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB"), np.int16)


def yellow(image: Pixels) -> NDArray[np.bool_]:
    """Highlighted background: bright in red, far less so in blue."""
    return (image[..., 0] > 200) & (image[..., 0] - image[..., 2] > 80)


def dark(image: Pixels) -> NDArray[np.bool_]:
    return image.max(axis=2) < 90


def boxes_of(data: bytes, words: str) -> list[Rectangle]:
    document = read_pdf(data, sha256="0" * 64)
    start = document.text.index(words)
    [place] = document.places(start, start + len(words))
    return [(box.left, box.top, box.right, box.bottom) for box in place.boxes]


def two_lines(data: bytes) -> list[Rectangle]:
    """Looked up one by one: on a turned page pdfium reads the lines in another order."""
    return boxes_of(data, "first line of a text") + boxes_of(data, "goes on in")


def marked(image: Pixels, boxes: list[Rectangle], scale: float) -> NDArray[np.bool_]:
    """Where the boxes are on a picture of the whole page."""
    mask = np.zeros(image.shape[:2], np.bool_)
    for left, top, right, bottom in boxes:
        x, y = int(left * scale), int(top * scale)
        mask[y : int(np.ceil(bottom * scale)), x : int(np.ceil(right * scale))] = True
    return mask


@pytest.mark.parametrize(
    "sheet",
    [
        pytest.param(Sheet(LINES), id="plain"),
        pytest.param(Sheet(LINES, rotate=90), id="turned right"),
        pytest.param(Sheet(LINES, rotate=180), id="upside down"),
        pytest.param(Sheet(LINES, rotate=270), id="turned left"),
        pytest.param(Sheet(LINES, crop=(50, 500, 400, 780)), id="cropped"),
        pytest.param(Sheet(LINES, rotate=90, crop=(50, 500, 400, 780)), id="cropped and turned"),
        pytest.param(
            Sheet((Line("first line of a text", 300, 100, turn="0 1 -1 0"),)), id="text that goes up"
        ),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 2.0, 3.3])
def test_the_quote_is_yellow_and_its_letters_dark(sheet: Sheet, scale: float) -> None:
    data = make_pdf(sheet)
    boxes = two_lines(data) if len(sheet.lines) > 1 else boxes_of(data, "first line of a text")
    image = pixels(draw(data, 1, boxes, scale=scale, whole=True))
    bare = pixels(draw(data, 1, scale=scale))
    assert image.shape == bare.shape
    mask = marked(image, boxes, scale)
    assert not yellow(bare).any()
    assert (yellow(image) <= mask).all()
    assert yellow(image)[mask].mean() > 0.5
    assert (image[~mask] == bare[~mask]).all()
    assert dark(image)[mask].sum() == dark(bare)[mask].sum() > 20 * scale


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
@pytest.mark.parametrize("scale", [1.0, 2.0, 2.7])
def test_a_crop_is_a_part_of_the_page(rotate: int, scale: float) -> None:
    """Pixel for pixel, with a margin around the boxes."""
    data = make_pdf(Sheet(LINES, rotate=rotate))
    boxes = two_lines(data)
    whole, part = (
        pixels(draw(data, 1, boxes, scale=scale, whole=True)),
        pixels(draw(data, 1, boxes, scale=scale)),
    )
    left, top = (int(np.floor((min(box[side] for box in boxes) - (20, 30)[side]) * scale)) for side in (0, 1))
    height, width = part.shape[:2]
    assert (whole[top : top + height, left : left + width] == part).all()
    assert yellow(part).sum() == yellow(whole).sum()
    assert not yellow(part)[0].any()
    assert not yellow(part)[:, -1].any()


@pytest.mark.parametrize(
    ("box", "size"),
    [
        pytest.param((0, 0, 30, 10), (50, 40), id="top left"),
        pytest.param((-50, -50, 30, 10), (50, 40), id="over the top left"),
        pytest.param((WIDTH - 30, HEIGHT - 10, WIDTH, HEIGHT), (50, 40), id="bottom right"),
        pytest.param((WIDTH - 30, HEIGHT - 10, 1e30, float("inf")), (50, 40), id="far over the bottom right"),
        pytest.param((0, 0, WIDTH, HEIGHT), (WIDTH, HEIGHT), id="the page"),
    ],
)
def test_a_box_at_the_edge(box: tuple[float, ...], size: tuple[int, int]) -> None:
    image = pixels(draw(PDF, 1, [box], scale=1))
    assert image.shape[:2] == size[::-1]
    assert yellow(image).any()


@pytest.mark.parametrize("margin", [(0.0, 0.0), (0.0, 5.0), (1000.0, 1000.0)])
def test_margins(margin: tuple[float, float]) -> None:
    image = pixels(draw(PDF, 1, [BOX], scale=1, margin=margin))
    across, down = min(70.0, margin[0]), min(130.0, margin[1])
    if max(margin) < 100:
        assert image.shape[:2] == (15 + 2 * down, 180 + 2 * across)
    else:
        assert image.shape[:2] == (HEIGHT, WIDTH)


def test_what_overlaps_is_not_marked_twice() -> None:
    once, twice = draw(PDF, 1, [BOX]), draw(PDF, 1, [BOX, BOX])
    assert (pixels(once) == pixels(twice)).all()


@pytest.mark.parametrize("format", ["png", "jpeg", "webp", "avif"])
def test_formats(format: Any) -> None:  # noqa: A002  # the name of the option
    image = draw(PDF, 1, [BOX], format=format)
    opened = Image.open(io.BytesIO(image))
    assert (opened.format, opened.mode) == (format.upper(), "RGB")
    assert opened.size == (440, 150)
    shown = pixels(image)
    # 180 by 15 points of 220 by 75, letters in between.
    assert 0.1 < yellow(shown).mean() < 0.17
    assert dark(shown).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"scale": 100.0}, "scale", id="huge scale"),
        pytest.param({"scale": 0.0}, "scale", id="no scale"),
        pytest.param({"scale": -2.0}, "scale", id="negative scale"),
        pytest.param({"scale": float("nan")}, "scale", id="scale is no number"),
        pytest.param({"page": 0}, "no page 0", id="page 0"),
        pytest.param({"page": 2}, "no page 2", id="no such page"),
        pytest.param({"boxes": [(700, 0, 800, 10)]}, "outside", id="beside the page"),
        pytest.param({"boxes": [(float("nan"),) * 4]}, "outside", id="a box of no numbers"),
        pytest.param({"boxes": [(100, 100, 50, 50)]}, "outside", id="a box inside out"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"page": 1, "boxes": [BOX]} | options
    with pytest.raises(DocumentError, match=message):
        draw(PDF, **given)


def test_a_large_page_is_drawn_smaller() -> None:
    plan = PDF.replace(b"[0 0 595 842]", b"[0 0 14400 9000]")
    image = Image.open(io.BytesIO(draw(plan, 1, scale=8.0, format="jpeg")))
    assert image.width * image.height <= MOST_PIXELS * 1.01
    assert max(image.size) <= MOST_SIDE + 1
    band = Image.open(io.BytesIO(draw(plan, 1, [(0, 8000, 14400, 8010)], scale=8.0, format="jpeg")))
    assert max(band.size) <= MOST_SIDE + 1


def test_what_a_form_shows_is_drawn() -> None:
    bare, field = (pixels(draw(make_pdf(Sheet(LINES, field=text)), 1)) for text in ("", "filled in"))
    assert dark(field).sum() > dark(bare).sum()


@pytest.mark.parametrize("orientation", [1, 6])
def test_an_image_is_drawn_as_it_is_shown(orientation: int) -> None:
    """Its boxes are in pixels of what one sees, which may be turned; it is never drawn larger than it is."""
    image = Image.new("RGB", (400, 200) if orientation == 1 else (200, 400), "white")
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    image.save(out, "PNG", exif=exif)
    box = (100.0, 50.0, 150.0, 70.0)
    [whole, half, crop, outside, gone] = draw_all_in_child(
        out.getvalue(),
        [
            Crop(1, (box,), whole=True, scale=4),
            Crop(1, (box,), whole=True, scale=0.5),
            Crop(1, (box,), margin=(10, 20)),
            Crop(1, ((500.0, 0.0, 600.0, 10.0),)),
            Crop(2),
        ],
    )
    assert isinstance(whole, bytes)
    assert isinstance(half, bytes)
    assert isinstance(crop, bytes)
    assert pixels(whole).shape == (200, 400, 3)
    rows, columns = np.nonzero(yellow(pixels(whole)))
    assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == box
    assert pixels(half).shape == (100, 200, 3)
    assert pixels(crop).shape == (60, 70, 3)
    assert np.nonzero(yellow(pixels(crop)))[0].min() == 20
    assert "outside" in str(outside)
    assert "there is no page 2" in str(gone)


def test_pictures_from_a_child_are_the_same() -> None:
    crops = [Crop(1, (BOX,)), Crop(2), Crop(1, (BOX,), scale=1.0, format="jpeg")]
    first, second, third = draw_all_in_child(PDF, crops)
    assert first == draw(PDF, 1, [BOX]) == draw_in_child(PDF, 1, [BOX])
    assert isinstance(second, DocumentError)
    assert second.message == "there is no page 2"
    assert isinstance(third, bytes)
    assert Image.open(io.BytesIO(third)).format == "JPEG"
    with pytest.raises(DocumentError, match="no page 9"):
        draw_in_child(PDF, 9)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(b"", DocumentError, id="empty"),
        pytest.param(b"%PDF-1.7 and no more", DocumentError, id="cut off"),
        pytest.param(b"\0" * 10_000, DocumentError, id="not a PDF"),
        pytest.param(make_pdf(Sheet(LINES), locked=True), EncryptedDocument, id="encrypted"),
        pytest.param(make_pdf(Sheet(broken=True)), DocumentError, id="a broken page"),
        pytest.param(make_pdf(), DocumentError, id="no pages"),
    ],
)
def test_a_bad_file_is_an_error(data: bytes, error: type[DocumentError]) -> None:
    with pytest.raises(error) as caught:
        draw_in_child(data, 1, [BOX])
    assert type(caught.value) is error


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def laughs(levels: int) -> bytes:
    """A picture of ten pictures of ten pictures: small to write, and without end to draw."""
    resources = b"/Resources << /XObject << /X %d 0 R >> >>"
    form = b"%d 0 obj << /Subtype /Form /BBox [0 0 9 9] %s /Length %d >> stream\n%s\nendstream endobj\n"
    page = b"3 0 obj << /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R %s >> endobj\n"
    inner = range(10, 10 + levels)
    return b"".join((
        b"%PDF-1.7\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n",
        b"2 0 obj << /Type /Pages /Kids [3 0 R] /Count 1 >> endobj\n",
        page % (resources % 10),
        b"4 0 obj << /Length 5 >> stream\n/X Do\nendstream endobj\n",
        *(form % (level, resources % (level + 1), 60, b"/X Do " * 10) for level in inner),
        form % (10 + levels, b"", 12, b"0 0 9 9 re f"),
        b"trailer << /Root 1 0 R >>\n%%EOF\n",
    ))  # fmt: skip


def test_a_hostile_file_costs_an_error_only() -> None:
    assert dark(pixels(draw_in_child(laughs(2), 1))).sum() == 18 * 18
    started: list[subprocess.Popen[bytes]] = []
    with pytest.raises(DocumentError):
        draw_all_in_child(laughs(9), [Crop(1)], timeout=5, memory=400 << 20, started=started.append)
    [child] = started
    assert gone(child.pid)


@pytest.mark.parametrize("ending", ["kill", "timeout", "memory"])
def test_no_process_is_left(ending: str) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def begin(child: subprocess.Popen[bytes]) -> None:
        started.append(child)
        if ending == "kill":
            child.kill()

    limits: dict[str, Any] = {"timeout": {"timeout": 0.01}, "memory": {"memory": 50 << 20}}.get(ending, {})
    with pytest.raises(ReaderTimeout if ending == "timeout" else ReaderFailed):
        draw_all_in_child(PDF, [Crop(1)], started=begin, **limits)
    [child] = started
    assert child.returncode is not None
    assert gone(child.pid)


def test_pictures_that_take_too_much_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that there is room for are drawn. A process that writes more anyway is ended."""
    [whole] = draw_all_in_child(PDF, [Crop(1)])
    assert isinstance(whole, bytes)
    first, second = draw_all_in_child(PDF, [Crop(1)] * 2, most_result=len(whole) * 3 // 2)
    assert first == whole
    assert isinstance(second, ReaderFailed)
    monkeypatch.setattr(
        "citewire.documents.draw._COMMAND", ("-c", "import os\nwhile True: os.write(1, b'x')")
    )
    with pytest.raises(ReaderFailed, match="the pictures take more than 1,000 bytes"):
        draw_all_in_child(PDF, [Crop(1)], most_result=1000)


def test_a_process_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ReaderFailed, match="no process"):
        draw_in_child(PDF, 1)


def test_only_the_child_loads_pdfium() -> None:
    code = (
        "import sys, citewire.documents.draw as draw\n"
        f"draw.draw_in_child({PDF!r}, 1)\n"
        "assert not {'pypdfium2', 'pypdfium2_raw', 'PIL'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 0, done.stderr
