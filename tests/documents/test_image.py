"""Pictures and scanned pages: read by tesseract, and judged by what it can know."""

from __future__ import annotations

import io
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2  # pyright: ignore[reportMissingTypeStubs]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageDraw, ImageFont

from citewire.documents import Cache, Document, DocumentError, load
from citewire.documents.document import Page
from citewire.documents.image import read_image
from citewire.documents.reader import ReaderTimeout, read_in_child
from citewire.verification.document_set import DocumentSet
from support.cases import need, need_cases
from support.pdfs import Line, Sheet, make_pdf

pytestmark = pytest.mark.slow

pdfium: Any = pypdfium2

LINES = (
    "The committee did not approve the budget of 1,204 dollars",
    "for 2019, and modern learning will fill 15% of the room.",
    "All members must return their forms before 30 June 2021.",
)
QUOTE = "modern learning will fill 15% of the room. All members must return their forms"
OTHER = ("Guests pay 60 dollars for each of the following days,", "and children pay nothing before noon.")


def need_tesseract() -> None:
    need("tesseract", shutil.which("tesseract") is not None, "apt-get install tesseract-ocr")


def drawn(*columns: Sequence[str], size: int = 32, mode: str = "L") -> Image.Image:
    """Lines of text in columns, black on white."""
    font = ImageFont.load_default(size=size)
    widths = [max(font.getlength(line) for line in column) for column in columns]
    height = max(map(len, columns)) * size * 3 // 2
    edge = 2 * size
    picture = Image.new("L", (int(sum(widths)) + edge * (1 + len(columns)), height + 2 * edge), 255)
    pen, left = ImageDraw.Draw(picture), float(edge)
    for column, width in zip(columns, widths, strict=True):
        for row, line in enumerate(column):
            pen.text((left, edge + row * size * 3 // 2), line, fill=0, font=font)
        left += width + edge
    return picture.convert(mode)


def saved(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    data = io.BytesIO()
    picture.save(data, kind, **options)
    return data.getvalue()


def scan(*pictures: Image.Image, resolution: int = 150) -> bytes:
    """A PDF with a picture on each page."""
    return saved(pictures[0], "PDF", save_all=True, append_images=pictures[1:], resolution=resolution)


def changed(data: bytes, change: Callable[[Any], object]) -> bytes:
    """A PDF that pdfium has done something to."""
    file, out = pdfium.PdfDocument(data), io.BytesIO()
    change(file)
    file.save(out)
    return out.getvalue()


def rotated(file: Any, by: int) -> None:
    file[0].set_rotation(by)


def cropped(file: Any) -> None:
    file[0].set_cropbox(20, 10, 450, 110)


def stamp(file: Any) -> None:
    """Write a few characters onto the first page, as copiers do."""
    raw, page = pdfium.raw, file[0]
    text = raw.FPDFPageObj_NewTextObj(file, b"Helvetica", 8)
    words = "Received 0042".encode("utf-16-le") + b"\0\0"
    raw.FPDFText_SetText(text, (raw.FPDF_WCHAR * (len(words) // 2)).from_buffer_copy(words))
    raw.FPDFPageObj_Transform(text, 1, 0, 0, 1, 5, 5)
    raw.FPDFPage_InsertObject(page, text)
    raw.FPDFPage_GenerateContent(page)


def codes(document: Document) -> list[str]:
    return [problem.code for problem in document.problems]


def ink(picture: Image.Image, boxes: Any, scale: float = 1.0) -> tuple[list[float], float]:
    """The share of dark pixels in each box, and the share of all dark pixels that is in none."""
    dark = np.asarray(picture.convert("L")) < 128
    left = dark.copy()
    shares: list[float] = []
    for box in boxes:
        x, y = (
            slice(int(box[0] * scale), -int(-box[2] * scale // 1)),
            slice(int(box[1] * scale), -int(-box[3] * scale // 1)),
        )
        shares.append(float(dark[y, x].mean()))
        left[y, x] = False
    return shares, float(left.sum() / dark.sum())


def words(document: Document) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(r"\S+", document.text)]


def check_boxes(document: Document, picture: Image.Image, scale: float = 1.0) -> None:
    """Every word has a box with ink in it, and there is next to none outside of them."""
    assert document.boxes is not None
    boxes = [document.boxes[start] for start, _ in words(document)]
    assert all((document.boxes[start:end] == document.boxes[start]).all() for start, end in words(document))
    shares, missed = ink(picture, boxes, scale)
    assert min(shares) > 0.1
    assert missed < 0.01
    assert np.isnan(document.boxes[[char.isspace() for char in document.text]]).all()


def check_found(document: Document, quote: str = QUOTE, page: int = 1) -> None:
    checked = DocumentSet([document]).check(quote)
    assert (checked.status, checked.page) == ("verified", page)
    assert "the source is a picture, read by a machine" in checked.warnings
    assert checked.boxes


@pytest.mark.parametrize(
    ("kind", "mode", "size"),
    [
        ("PNG", "L", 32), ("PNG", "1", 32), ("PNG", "P", 16), ("JPEG", "RGB", 40), ("TIFF", "CMYK", 32),
        ("WEBP", "RGB", 32), ("BMP", "RGB", 24), ("GIF", "P", 32), ("AVIF", "RGB", 32), ("JPEG2000", "L", 32),
    ],
)  # fmt: skip
def test_pictures_of_all_kinds(kind: str, mode: str, size: int) -> None:
    need_tesseract()
    picture = drawn(LINES, size=size, mode=mode)
    document = load(saved(picture, kind), name="scan")
    assert document.text.splitlines() == list(LINES)
    assert (document.kind, document.problems) == ("image", ())
    [page] = document.pages
    assert (page.ocr, page.width, page.height) == (True, *picture.size)
    assert document.confidence is not None
    assert np.median(document.confidence) > 90
    check_boxes(document, picture)
    check_found(document)


def turned(angle: int) -> Callable[[Image.Image], bytes]:
    return lambda picture: saved(picture.rotate(angle, expand=True))


def exif(picture: Image.Image, kind: str = "JPEG") -> bytes:
    """Stored on its side, with a note that says so."""
    note = Image.Exif()
    note[0x0112] = 6
    return saved(picture.rotate(90, expand=True), kind, exif=note)


def transparent(picture: Image.Image) -> bytes:
    clear = Image.new("RGBA", picture.size, (0, 0, 0, 0))
    clear.putalpha(ImageChops.invert(picture))
    return saved(clear)


def negative(picture: Image.Image) -> bytes:
    return saved(ImageChops.invert(picture))


def deep(picture: Image.Image) -> bytes:
    return saved(Image.fromarray(np.asarray(picture).astype(np.uint16) * 200 + 5000))


@pytest.mark.parametrize(
    "save",
    [
        *(pytest.param(turned(angle), id=f"turned by {angle}") for angle in (90, 180, 270, 1)),
        pytest.param(exif, id="exif"),
        pytest.param(partial(exif, kind="TIFF"), id="exif of TIFF"),
        pytest.param(transparent, id="black on nothing"),
        pytest.param(deep, id="16 bits"),
        pytest.param(negative, id="white on black"),
    ],
)  # fmt: skip
def test_pictures_that_are_not_plain(save: Callable[[Image.Image], bytes]) -> None:
    need_tesseract()
    document = load(save(drawn(LINES)))
    assert document.text.splitlines() == list(LINES)


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_boxes_are_where_the_words_are_on_a_page_that_is_turned(angle: int) -> None:
    need_tesseract()
    picture = drawn(LINES).rotate(angle, expand=True)
    check_boxes(load(saved(picture)), picture)


def test_every_page_of_a_tiff() -> None:
    need_tesseract()
    blank = Image.new("L", (300, 300), 255)
    data = saved(drawn(OTHER), "TIFF", save_all=True, append_images=[blank, drawn(LINES, size=24)])
    document = load(data)
    assert [page.ocr for page in document.pages] == [True, False, True]
    assert [(problem.code, problem.path) for problem in document.problems] == [("no_words", "page 2")]
    check_found(document, OTHER[0], page=1)
    check_found(document, page=3)


def test_columns_are_read_one_after_the_other() -> None:
    need_tesseract()
    document = load(saved(drawn(LINES * 3, OTHER * 4, size=24)))
    check_found(document)
    check_found(document, " ".join(OTHER))


@pytest.mark.parametrize(
    ("change", "size"),
    [
        pytest.param(partial(rotated, by=0), None, id="upright"),
        pytest.param(partial(rotated, by=90), None, id="turned"),
        pytest.param(partial(rotated, by=180), None, id="upside down"),
        pytest.param(cropped, (430, 100), id="cropped"),
    ],
)  # fmt: skip
def test_a_scanned_pdf(change: Callable[[Any], object], size: tuple[float, float] | None) -> None:
    need_tesseract()
    data = changed(scan(drawn(LINES)), change)
    document = load(data)
    assert document.text.splitlines() == list(LINES)
    [page] = document.pages
    assert page.ocr
    assert size in (None, (page.width, page.height))
    check_boxes(document, pdfium.PdfDocument(data)[0].render(scale=2).to_pil(), 2)
    check_found(document)


def test_pages_with_a_text_layer_are_not_looked_at() -> None:
    """Not even if there is a picture on them."""
    need_tesseract()
    text = make_pdf(
        Sheet(
            (
                Line(OTHER[0]),
                Line("More words, as many as there are on a page.", y=600),
                Line("x" * 60, y=500),
            )
        )
    )
    data = changed(scan(drawn(LINES)), lambda file: file.import_pages(pdfium.PdfDocument(text), index=0))
    document = load(data)
    assert [page.ocr for page in document.pages] == [False, True]
    assert document.confidence is not None
    assert (document.confidence[: document.pages[0].end] == 100).all()
    assert DocumentSet([document]).check(OTHER[0]).warnings == ()
    check_found(document, page=2)
    assert load(text).confidence is None


def test_a_scan_with_a_stamp_and_a_page_in_an_unreadable_font() -> None:
    need_tesseract()
    document = load(changed(scan(drawn(LINES)), stamp))
    assert document.text.startswith("Received 0042\n" + "\n".join(LINES))
    check_found(document)
    nameless = load(make_pdf(Sheet((Line(b"\1\2\1", size=40),))))
    assert "�" not in nameless.text or "no_words" in codes(nameless)


def test_without_tesseract_and_once_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not read is read as soon as it can be, and only once."""
    cache, looks = Cache(tmp_path / "cache"), list[str | None]()

    def read_in(data: bytes, reader: str, **options: Any) -> Document:
        looks.append(options.get("ocr"))
        return read_in_child(data, reader, **options)

    path = os.environ["PATH"]
    for data in (saved(drawn(OTHER)), scan(drawn(OTHER))):
        looks.clear()
        monkeypatch.setenv("PATH", str(tmp_path))
        for _ in range(2):
            document = load(data, cache=cache, read_in=read_in)
            assert (document.text, codes(document)) == ("\n", ["no_text_layer"])
            checked = DocumentSet([document]).check(OTHER[0])
            assert (checked.status, checked.reason) == ("skipped", "no text layer")
        assert looks == [None]
        monkeypatch.setenv("PATH", path)
        need_tesseract()
        for _ in range(2):
            check_found(load(data, cache=cache, read_in=read_in), OTHER[0])
        assert looks == [None, "eng"]


def test_a_language_that_tesseract_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tesseract()
    cache, data = Cache(tmp_path), saved(drawn(OTHER))
    monkeypatch.setenv("CITEWIRE_OCR_LANGUAGES", "eng+none")
    document = load(data, cache=cache)
    assert codes(document) == ["no_text_layer", "ocr_failed"]
    assert "'none'" in document.problems[-1].message
    monkeypatch.delenv("CITEWIRE_OCR_LANGUAGES")
    check_found(load(data, cache=cache), OTHER[0])


def test_what_tesseract_says_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It names files of this machine."""
    program = tmp_path / "tesseract"
    program.write_text("#!/bin/sh\necho Error opening data file /srv/tessdata/eng.traineddata >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    document = load(saved(drawn(OTHER)))
    assert codes(document) == ["no_text_layer", "ocr_failed"]
    said = document.problems[-1].message
    assert said.startswith("its pictures were not read: tesseract ended with status 1 (error id ")
    assert "/srv" not in said
    assert "/srv/tessdata" in caplog.text


def huge() -> bytes:
    """A picture of two and a half billion pixels in a hundred bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 50_000, 50_000, 8, 0, 0, 0, 0))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (saved(drawn(LINES))[:1000], "damaged"),
        (saved(drawn(LINES), "JPEG")[:3000], "truncated"),
        (saved(drawn(LINES), "TIFF")[:3000], "damaged"),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 50, "damaged picture"),
        (b"\0\0\0\x20ftypheic" + bytes(50), "damaged picture, or one of a kind that is not read"),
        (huge(), "more than 100,000,000 pixels"),
        (saved(Image.new("1", (11_000, 10_000))), "more than 100,000,000 pixels"),
        (saved(drawn(LINES), "GIF", save_all=True, append_images=[drawn(OTHER)]), "it is an animation"),
        (saved(drawn(LINES), "PNG", save_all=True, append_images=[drawn(OTHER)]), "it is an animation"),
    ],
    ids=range(10),
)  # fmt: skip
def test_pictures_that_cannot_be_read(data: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        load(data)


def test_a_page_of_a_tiff_that_is_damaged_costs_that_page_only() -> None:
    first, second = Image.new("L", (80, 40), 255), Image.new("L", (50, 60), 255)
    data = bytearray(saved(first, "TIFF", save_all=True, append_images=[second], compression="tiff_lzw"))
    with Image.open(io.BytesIO(data)) as image:
        image.seek(1)
        at = image.tag_v2[273][0]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]
    data[at : at + 8] = b"\xff" * 8
    document = read_image(bytes(data), sha256="")
    assert codes(document) == ["no_text_layer", "bad_page"]


PICTURES = [
    saved(Image.new("L", (9, 7), 200), kind) for kind in ("PNG", "JPEG", "TIFF", "GIF", "WEBP", "BMP")
]


@given(st.data())
def test_damage_gives_a_document_or_a_document_error(data: st.DataObject) -> None:
    """Cut off anywhere, and with bytes changed anywhere."""
    whole = data.draw(st.sampled_from(PICTURES))
    damaged = bytearray(whole[: data.draw(st.integers(1, len(whole)))])
    for at in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=5)):
        damaged[at] = data.draw(st.integers(0, 255))
    try:
        document = read_image(bytes(damaged), sha256="")
    except DocumentError:
        return
    assert not document.text.strip()
    assert set(codes(document)) <= {"no_text_layer", "bad_page"}


FOREVER = '#!/bin/sh\nexec 3>"$FIFO"; echo up >&3; exec /bin/sleep 600\n'
READ = """
from citewire.documents.reader import read_in_child
read_in_child(open(%r, "rb").read(), "citewire.documents.image:read_image", timeout=600, sha256="", ocr="eng")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process when its parent was killed")
@pytest.mark.parametrize("how", ["too long", "killed"])
def test_no_tesseract_outlives_its_reader(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that never ends holds a pipe, which ends with the last that holds it."""
    fifo, program, picture = (tmp_path / name for name in ("fifo", "tesseract", "picture"))
    os.mkfifo(fifo)
    program.write_text(FOREVER)
    program.chmod(0o755)
    picture.write_bytes(saved(drawn(OTHER)))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("FIFO", str(fifo))
    with os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
        if how == "too long":
            os.set_blocking(pipe.fileno(), True)
            options: dict[str, Any] = {"timeout": 3, "sha256": "", "ocr": "eng"}
            said = b""
            # Where a machine takes longer to start it, it gets longer.
            while not said:
                with pytest.raises(ReaderTimeout):
                    read_in_child(picture.read_bytes(), "citewire.documents.image:read_image", **options)
                said, options["timeout"] = pipe.read(), 2 * options["timeout"]
        else:
            with subprocess.Popen([sys.executable, "-c", READ % str(picture)]) as parent:
                select.select([pipe], [], [])
                parent.kill()
            os.set_blocking(pipe.fileno(), True)
            said = pipe.read()
        assert said == b"up\n"


def read_as(text: str, doubts: dict[str, int]) -> Document:
    """A picture that was read so; what is not doubted is read with 95 percent."""
    confidence = np.full(len(text), 95, np.uint8)
    for word, sure in doubts.items():
        start = text.index(word)
        confidence[start : start + len(word)] = sure
    lines = np.array([0, *(found.end() for found in re.finditer("\n", text[:-1]))], np.int32)
    page = Page(1, 0, len(text), 100, 100, ocr=True)
    return Document(sha256(text.encode()).hexdigest(), "image", text, (page,), lines, confidence=confidence)


FEE = "The fee for modern rooms is 45 dollars, and it did not rise before the end of 2019."


@pytest.mark.parametrize(
    ("read", "doubts", "status"),
    [
        # The quote is what the picture says, and was read as it is.
        (FEE, {}, "verified"),
        (FEE, {"45": 10}, "verified"),
        # Misread, as everybody can see.
        (FEE.replace("modern", "modem"), {}, "partial"),
        (FEE.replace(" and it", "\ne and it"), {}, "partial"),
        (FEE.replace(" and it", " e and it"), {}, "altered"),
        (FEE.replace("45", "4S"), {}, "partial"),
        (FEE.replace("2019", "2Ol9"), {}, "partial"),
        (FEE.replace("is 45", "ls 45"), {}, "partial"),
        # Misread, as tesseract feared.
        (FEE.replace("rooms", "roams"), {"roams": 70}, "partial"),
        (FEE.replace("dollars", "do!!ors"), {"do!!ors": 30}, "partial"),
        (FEE.replace("45", "46"), {"46": 40}, "partial"),
        (FEE.replace("not", "nol"), {"nol": 55}, "partial"),
        (FEE.replace("rooms is", "rooms ~ae is"), {"~ae": 20}, "partial"),
        # Read without doubt: the quote says something else.
        (FEE.replace("rooms", "roams"), {}, "altered"),
        (FEE.replace("45", "46"), {}, "altered"),
        (FEE.replace("45", "46"), {"46": 75}, "altered"),
        (FEE.replace("2019", "2018"), {}, "altered"),
        (FEE.replace(" not", ""), {}, "altered"),
        (FEE.replace("did", "did nearly"), {}, "altered"),
        (FEE.replace("before", "after"), {}, "altered"),
        # In doubt, but nothing that is read so looks like that.
        (FEE.replace("before", "after"), {"after": 50}, "altered"),
        (FEE.replace("is 45", "is not 45"), {"not": 30}, "altered"),
        (FEE.replace("45", "120"), {"120": 40}, "altered"),
        # One difference that may be misread, and one that is not.
        (FEE.replace("modern", "modem").replace("45", "54"), {}, "altered"),
        # Of a word that stands twice, it is not known which is meant.
        (FEE.replace("rooms", "roams").replace("end", "roams"), {"roams": 30}, "altered"),
    ],
)
def test_no_stricter_than_the_picture_allows(read: str, doubts: dict[str, int], status: str) -> None:
    checked = DocumentSet([read_as(read + "\n", doubts)]).check(FEE)
    assert checked.status == status, checked.reason
    if status == "partial":
        assert re.search(r"the picture was read as .* look at the crop", checked.reason or "")
        assert checked.diff


def test_what_is_no_picture_is_judged_as_ever() -> None:
    document = read_as(FEE.replace("modern", "modem") + "\n", {})
    text = Document(document.sha256, "text", document.text, (Page(1, 0, len(document.text)),), document.lines)
    assert DocumentSet([text]).check(FEE).status == "altered"


@pytest.mark.slow
def test_quotes_from_the_text_layer_are_found_in_the_picture_of_the_page() -> None:
    need_tesseract()
    pages = (("pdf.js__tracemonkey.pdf", 1), ("pdfplumber__federal-register-2020-17221.pdf", 3))
    pictures, quotes = list[Image.Image](), list[tuple[str, int]]()
    for number, (name, index) in enumerate(pages, 1):
        page = pdfium.PdfDocument(need_cases() / "corpus/pdf" / name)[index]
        pictures.append(page.render(scale=200 / 72, grayscale=True).to_pil())
        lines = page.get_textpage().get_text_range().splitlines()
        quotes += [(line.strip(), number) for line in lines if len(line.split()) >= 7 and line[-1].isalnum()]
    document = load(
        saved(pictures[0], "TIFF", save_all=True, append_images=pictures[1:], compression="tiff_lzw")
    )
    library = DocumentSet([document])
    found = [(library.check(quote), number) for quote, number in quotes]
    assert len(found) > 50
    assert all(checked.page == number for checked, number in found if checked.page)
    statuses = [checked.status for checked, _ in found]
    assert statuses.count("verified") > 0.9 * len(found)
