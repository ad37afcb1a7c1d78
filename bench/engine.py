"""The engine from end to end: quotes against PDFs, cold and warm, and what a thousand documents cost."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from textwrap import wrap
from time import perf_counter
from typing import Any

import numpy as np

from bench.table import show
from bench.verify import ABSENT, ROOT, corpus
from citewire.documents.cache import Cache
from citewire.documents.document import Document, Page
from citewire.verification.engine import Engine
from citewire.verification.verifier import QuoteCheck

sys.path.append(str(ROOT / "tests"))
from support.pdfs import Line, Sheet, make_pdf  # small PDFs, made where they are needed

PDFS, PAGES, QUOTES = 50, 8, 1000
# What pdfplumber and rapidfuzz are given of it: the rest is extrapolated.
FEW_PDFS, FEW_QUOTES = 3, 10
SIZES = (100, 300, 1000)
LENGTH, ASKED = 100_000, 60


def pages(random: Random, words: list[str]) -> list[list[str]]:
    """The lines of some pages: words of real documents, in pieces, in another order each time."""
    made: list[list[str]] = []
    for _ in range(PAGES):
        text = ""
        while len(text) < 3500:
            at = random.randrange(len(words) - 12)
            text += " ".join(words[at : at + 12]) + " "
        made.append(wrap(text, 85)[:45])
    return made


def pdf(sheets: Sequence[Sequence[str]]) -> bytes:
    return make_pdf(
        *(
            Sheet([Line(line, 56, 780 - 15 * n, 10) for n, line in enumerate(lines)])
            for lines in sheets
        )
    )  # fmt: skip


def quotes(random: Random, texts: Sequence[str], named: bool) -> list[QuoteCheck]:
    """One in ten is nowhere, one in five has letters that differ."""
    absent, letters = ABSENT.split(), "abcdefghijklmnopqrstuvwxyz "
    asked: list[QuoteCheck] = []
    for number in range(QUOTES):
        home = random.randrange(len(texts))
        start = texts[home].index(" ", random.randrange(len(texts[home]) - 500)) + 1
        words = texts[home][start : texts[home].index(" ", start + random.randrange(60, 200))]
        if number % 10 == 0:
            words = " ".join(random.choices(absent, k=16))
        elif number % 5 == 1:
            words = "".join(random.choice(letters) if random.random() < 0.03 else char for char in words)
        asked.append(QuoteCheck(str(number), words, f"{home}.pdf" if named else None))
    return asked


async def timed(sources: Path, asked: list[QuoteCheck], cache: Cache) -> tuple[float, float, int]:
    """Seconds to the first verdict and to the last, from nothing, and how many were found."""
    start, first, found = perf_counter(), 0.0, 0
    async with Engine(sources, cache=cache, deadline=None) as engine:
        async for checked in engine.check(asked):
            first = first or perf_counter() - start
            found += checked.status not in ("missed", "skipped")
    return first, perf_counter() - start, found


def peers(folder: Path, asked: list[QuoteCheck]) -> tuple[str, ...]:
    """The same with pdfplumber and rapidfuzz: read what is cited, take the best alignment from 80 on."""
    try:
        pdfplumber: Any = import_module("pdfplumber")
        fuzz: Any = import_module("rapidfuzz.fuzz")
    except ImportError:
        return ("pdfplumber + rapidfuzz", "", "", "", "not installed")
    start, texts = perf_counter(), dict[str, str]()
    for number in range(FEW_PDFS):
        with pdfplumber.open(folder / f"{number}.pdf") as opened:
            texts[f"{number}.pdf"] = " ".join(page.extract_text() for page in opened.pages)
    reading = (perf_counter() - start) / FEW_PDFS
    few = [each for each in asked if each.source in texts][:FEW_QUOTES]
    start = perf_counter()
    hits = [
        fuzz.partial_ratio_alignment(each.quote, texts[each.source or ""], score_cutoff=80) for each in few
    ]
    each_quote = (perf_counter() - start) / len(few)
    total = reading * PDFS + each_quote * QUOTES
    found = f"{sum(hit is not None for hit in hits)} of {len(few)}"
    return ("pdfplumber + rapidfuzz", found, f"{reading + each_quote:.2f}", f"{total:.1f}", "extrapolated")


def pdfs() -> list[tuple[str, ...]]:
    words = corpus().encode("cp1252", "ignore").decode("cp1252").split()
    made = [pages(Random(number), words) for number in range(PDFS)]
    texts = [" ".join(line for lines in sheets for line in lines) for sheets in made]
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "sources")
        home.mkdir()
        for number, sheets in enumerate(made):
            (home / f"{number}.pdf").write_bytes(pdf(sheets))
        for named in (True, False):
            asked = quotes(Random(named), texts, named)
            for state in ("cold", "warm"):
                first, total, found = asyncio.run(timed(home, asked, Cache(Path(folder, f"cache{named}"))))
                which = "name their source" if named else "name none"
                rows.append((f"{which}, {state}", str(found), f"{first:.2f}", f"{total:.1f}", ""))
        rows.append(peers(home, quotes(Random(True), texts, True)))
    return rows


def document(number: int, words: list[str]) -> Document:
    random, pieces = Random(number), list[str]()
    for _ in range(LENGTH // 60):
        at = random.randrange(len(words) - 12)
        pieces.append(" ".join(words[at : at + 12]))
    text = "\n".join(pieces)[:LENGTH]
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return Document(
        sha256, "text", text, (Page(1, 0, len(text)),), np.zeros(1, np.int32), name=f"{number}.pdf"
    )


async def growing(count: int, words: list[str]) -> tuple[str, ...]:
    """Milliseconds for a quote that names no source, in that many documents that were read."""
    documents = [document(number, words) for number in range(count)]
    size = sum(len(each.text) for each in documents)
    texts = [each.text for each in documents]
    every = {asked.id: asked for asked in quotes(Random(count), texts, named=False)}
    absent = [asked for name, asked in every.items() if int(name or 0) % 10 == 0][:ASKED]
    exact = [asked for name, asked in every.items() if int(name or 0) % 5 == 2][:ASKED]
    start = perf_counter()
    async with Engine(documents, deadline=None) as engine:
        await engine.prewarm()
        opened = perf_counter() - start
        row = [f"{count} documents, {size / 1e6:.0f} MB", f"{opened:.1f} s"]
        for asked in (exact, absent):
            start = perf_counter()
            found = [checked.status async for checked in engine.check(asked)]
            each = (perf_counter() - start) / len(asked) * 1e3
            row += [f"{each:.1f} ms", str(sum(status not in ("missed", "skipped") for status in found))]
    return tuple(row)


def main() -> None:
    show(
        f"{QUOTES} quotes against {PDFS} PDFs of {PAGES} pages, {os.cpu_count()} cores",
        ("", "found", "first s", "all s", ""),
        pdfs(),
    )
    words = corpus().split()
    show(
        f"A quote that names no source ({ASKED} of each kind)",
        ("", "read and index", "exact", "found", "absent", "found"),
        [asyncio.run(growing(count, words)) for count in SIZES],
    )


if __name__ == "__main__":
    main()
