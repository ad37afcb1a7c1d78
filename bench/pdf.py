"""Reading a PDF, against a bare loop over pdfium's characters and boxes that keeps nothing.

The corpus is used where it is there; without it, a report of our own making.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

import pypdfium2.raw as untyped  # pyright: ignore[reportMissingTypeStubs]

from bench.table import interleaved, ratio, show
from citewire.documents.pdf import read_pdf

ROUNDS = 7
CASES = Path(os.environ.get("CITEWIRE_CASES", Path(__file__).parents[1] / "../shared/cases")).resolve()
# Two columns, dense text, tables, turned text, many pages.
FILES = (
    "pdf.js__tracemonkey.pdf",
    "ALCE__ALCE.pdf",
    "pdf.js__pdkids.pdf",
    "pdfplumber__WARN-Report-for-7-1-2015-to-03-25-2016.pdf",
    "pdfplumber__senate-expenditures.pdf",
)

pdfium: Any = untyped


def report(pages: int) -> bytes:
    """A PDF of so many pages of 50 lines of 60 characters."""
    lines = "".join(f"BT /F 10 Tf 50 {790 - 15 * line} Td ({'lorem ips ' * 6}) Tj ET\n" for line in range(50))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{' '.join(['5 0 R'] * pages)}] /Count {pages} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Length {len(lines)} >> stream\n{lines}\nendstream",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R "
        "/Resources << /Font << /F 3 0 R >> >> >>",
    ]
    body = "".join(f"{number} 0 obj\n{text}\nendobj\n" for number, text in enumerate(objects, 1))
    # pdfium finds the objects without a table of their places.
    return f"%PDF-1.7\n{body}trailer << /Root 1 0 R >>\n%%EOF\n".encode()


def bare(data: bytes) -> None:
    file = pdfium.FPDF_LoadMemDocument64(data, len(data), None)
    box = pdfium.FS_RECTF()
    at = ctypes.byref(box)
    get_unicode, get_box = pdfium.FPDFText_GetUnicode, pdfium.FPDFText_GetLooseCharBox
    for index in range(pdfium.FPDF_GetPageCount(file)):
        page = pdfium.FPDF_LoadPage(file, index)
        text = pdfium.FPDFText_LoadPage(page)
        for char in range(pdfium.FPDFText_CountChars(text)):
            get_unicode(text, char)
            get_box(text, char, at)
        pdfium.FPDFText_ClosePage(text)
        pdfium.FPDF_ClosePage(page)
    pdfium.FPDF_CloseDocument(file)


def files() -> Iterator[tuple[str, bytes]]:
    yield "made here", report(20)
    for name in FILES:
        path = CASES / "corpus/pdf" / name
        if path.is_file():
            yield name.partition("__")[2].removesuffix(".pdf")[:24], path.read_bytes()


def measure(name: str, data: bytes) -> tuple[str, ...]:
    ours = partial(read_pdf, data, sha256="")
    document = ours()
    times = interleaved({"bare": partial(bare, data), "ours": cast("Any", ours)}, ROUNDS)
    millis = [f"{median(times[work]) * 1000:.1f}" for work in ("bare", "ours")]
    sizes = f"{len(document.pages):,}", f"{len(document.text):,}"
    return name, *sizes, *millis, f"{ratio(times, 'ours', 'bare'):.2f}"


def main() -> None:
    head = ("PDF", "pages", "characters", "bare loop ms", "ours ms", "× bare loop (≤ 2)")
    show("Reading PDF: text and a box for each character", head, [measure(*file) for file in files()])


if __name__ == "__main__":
    main()
