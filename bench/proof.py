"""Proofs: a crop and a page drawn and encoded, the process around it, and a fragment for a web page."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Literal

from PIL import Image

from bench.table import interleaved, show
from citewire.documents.document import Document
from citewire.documents.draw import Crop, draw, draw_all_in_child, draw_in_child, encode_image
from citewire.documents.html import read_html
from citewire.documents.pdf import read_pdf
from citewire.evidence.proof import find_fragment, make_snippet, text_fragment

ROOT = Path(__file__).parents[1]
CORPUS = Path(os.environ.get("CITEWIRE_CASES", ROOT / "../shared/cases")) / "corpus"
ROUNDS, QUOTES = 15, 20
FORMATS: tuple[Literal["png", "jpeg", "webp", "avif"], ...] = ("jpeg", "png", "webp", "avif")


def crops(document: Document) -> list[Crop]:
    """Quotes of a dozen words or so, one to three lines."""
    random = Random(0)
    made: list[Crop] = []
    while len(made) < QUOTES:
        start = random.randrange(len(document.text) - 200)
        places = document.places(start, start + random.randrange(40, 160))
        boxes = tuple((box.left, box.top, box.right, box.bottom) for box in places[0].boxes)
        if len(places) == 1 and boxes:
            made.append(Crop(places[0].page, boxes))
    return made


def main() -> None:
    pdf = CORPUS / "pdf/pdf.js__tracemonkey.pdf"
    html = CORPUS / "html/markitdown__test_wikipedia.html"
    if not (pdf.is_file() and html.is_file()):
        print("\nproof: no shared cases, set CITEWIRE_CASES")
        return
    data = pdf.read_bytes()
    quotes = crops(read_pdf(data, sha256="0" * 64))
    works: dict[str, Callable[[], object]] = {}
    sizes: dict[str, float] = {}

    def add(name: str, make: Callable[[Crop], bytes]) -> None:
        turn = iter(range(1 << 30))
        sizes[name] = median(len(make(quote)) for quote in quotes)
        works[name] = lambda: make(quotes[next(turn) % QUOTES])

    for kind in FORMATS:
        add(f"crop, {kind}", lambda quote, kind=kind: draw(data, quote.page, quote.boxes, format=kind))
    for kind in FORMATS:
        add(f"page, {kind}", lambda quote, kind=kind: draw(data, quote.page, whole=True, format=kind))
    picture = Image.open(io.BytesIO(draw(data, quotes[0].page, quotes[0].boxes)))
    for kind in FORMATS:
        works[f"encode a crop of {picture.width} by {picture.height}, {kind}"] = lambda kind=kind: (
            encode_image(picture, kind)
        )
    works["crop, jpeg, in a child"] = lambda: draw_in_child(
        data, quotes[0].page, quotes[0].boxes, format="jpeg"
    )
    works[f"{QUOTES} crops, png, in one child"] = lambda: draw_all_in_child(data, quotes)
    web = read_html(html.read_bytes(), sha256="0" * 64, url="https://a.example/")
    middle = web.text.index(" ", len(web.text) // 2) + 1
    works["text fragment"] = lambda: text_fragment(web, middle, middle + 80)
    # Another text each time, or it would be remembered.
    turn = iter(range(1 << 30))
    works["text fragment, page not seen before"] = lambda: find_fragment(
        f"{web.text} {next(turn)}", "#:~:text=absent"
    )
    works["snippet"] = lambda: make_snippet(web, middle, middle + 80)
    times = interleaved(works, ROUNDS)
    rows = [
        (
            name,
            f"{median(seconds) * 1000:.2f}",
            f"{max(seconds) * 1000:.2f}",
            f"{sizes[name] / 1000:.0f}" if name in sizes else "",
        )
        for name, seconds in times.items()
    ]
    title = f"Proofs: {pdf.name} at 144 dpi, opened anew each time, and {len(web.text):,} characters of HTML"
    show(title, ("work", "ms", "max ms", "kB"), rows)


if __name__ == "__main__":
    main()
