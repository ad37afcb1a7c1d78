"""Finding quotes in a megabyte of text, against the libraries that are used for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random
from statistics import median
from sys import getsizeof
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.table import show
from citewire.verification.gram_index import GramIndex
from citewire.verification.match import SearchableText
from citewire.verification.text_views import canonical_view

ROOT = Path(__file__).parents[1]
CASES = Path(os.environ.get("CITEWIRE_CASES", ROOT / "../shared/cases"))
LENGTH = 1_000_000
# Quotes of each kind for ours and for those that keep up; the slow ones get the first few.
MANY, FEW, VERY_FEW = 50, 8, 2
ABSENT = """
the senate postponed the hearing until the witness had recovered from surgery and could travel again
she planted three rows of beans behind the greenhouse before the frost arrived in late october
our ferry left the island at dawn carrying nobody except the mail clerk and his elderly spaniel
a violinist from porto played the encore twice because the audience refused to leave the hall
"""
Span = tuple[int, int] | None
Finder = Callable[[str], Span]


class Quote(NamedTuple):
    words: str
    start: int
    end: int


def corpus() -> str:
    """A megabyte of real documents, or of made-up prose where they are not there."""
    pypdfium2: Any = import_module("pypdfium2")  # only to have something to search
    texts: list[str] = []
    for path in sorted((CASES / "corpus/pdf").glob("*.pdf")):
        document = pypdfium2.PdfDocument(path)
        texts += [page.get_textpage().get_text_range() for page in document]
        document.close()
    if sum(map(len, texts)) < LENGTH:
        random = Random(0)
        words = [
            f"{random.choice('bcdfglmnprst')}{random.choice('aeiou')}{random.choice('lmnrst')}"
            for _ in range(4000)
        ]
        texts += [" ".join(random.choice(words) for _ in range(LENGTH // 4))]
    return canonical_view("\n".join(texts)).text[:LENGTH]


def quotes(text: str, kind: str) -> list[Quote]:
    random = Random(kind)
    if kind == "absent":
        lines = ABSENT.strip().splitlines()
        return [Quote(" ".join(random.sample(random.choice(lines).split(), 12)), 0, 0) for _ in range(MANY)]
    made: list[Quote] = []
    while len(made) < MANY:
        start = text.index(" ", random.randrange(LENGTH - 500)) + 1
        end = text.index(" ", start + random.randrange(30, 250))
        words = text[start:end]
        if sum(char.isalpha() for char in words) > len(words) * 0.6:
            made.append(Quote(_spoilt(words, kind, random), start, end))
    return made


def _spoilt(words: str, kind: str, random: Random) -> str:
    if kind == "words 15%":
        return " ".join("other" if random.random() < 0.15 else word for word in words.split())
    share = {"exact": 0.0, "5%": 0.05, "10%": 0.1, "20%": 0.2}[kind]
    letters = "abcdefghijklmnopqrstuvwxyz "
    return "".join(random.choice(letters) if random.random() < share else char for char in words)


def ours(text: str) -> Finder:
    source = SearchableText(text)
    source.find("warm it up, please, with words")

    def find(words: str) -> Span:
        hits = source.find(words)
        return (hits[0].start, hits[0].end) if hits else None

    return find


def with_rapidfuzz(text: str) -> Finder:
    fuzz: Any = import_module("rapidfuzz.fuzz")  # a peer, which only `make bench` installs

    def find(words: str) -> Span:
        found = fuzz.partial_ratio_alignment(words, text, score_cutoff=75)
        return (found.dest_start, found.dest_end) if found else None

    return find


def with_edlib(text: str) -> Finder:
    index = GramIndex(text)

    def find(words: str) -> Span:
        found = index.align(index.encode(words), 0, index.length, int(len(words) * 0.35))
        good = found and 1 - found[0].distance / len(words) >= 0.75
        return (found[0].start, found[0].end) if good else None

    return find


def with_fuzzysearch(text: str) -> Finder:
    fuzzysearch: Any = import_module("fuzzysearch")  # a peer without types

    def find(words: str) -> Span:
        found = fuzzysearch.find_near_matches(words, text, max_l_dist=int(len(words) * 0.15))
        best = min(found, key=lambda one: one.dist, default=None)  # pyright: ignore[reportUnknownLambdaType]
        return (best.start, best.end) if best else None

    return find


def with_langextract(text: str) -> Finder:
    data: Any = import_module("langextract.core.data")  # a peer without types
    resolver: Any = import_module("langextract.resolver")

    def find(words: str) -> Span:
        (aligned,), *_ = resolver.WordAligner().align_extractions([[data.Extraction("quote", words)]], text)
        place = aligned.char_interval
        return None if place is None else (place.start_pos or 0, place.end_pos or 0)

    return find


def is_hit(quote: Quote, found: Span, text: str) -> bool:
    """The right place within 15 %, or another that says the same."""
    if found is None:
        return False
    slack = max(6, (quote.end - quote.start) * 15 // 100)
    near = abs(found[0] - quote.start) <= slack and abs(found[1] - quote.end) <= slack
    return near or text[quote.start : quote.end] in text[found[0] - slack : found[1] + slack]


def main() -> None:
    text = corpus()
    finders = {
        "citewire": (ours(text), MANY),
        "rapidfuzz 3.14.6": (with_rapidfuzz(text), MANY),
        "edlib, whole text": (with_edlib(text), MANY),
        "fuzzysearch 0.8.1": (with_fuzzysearch(text), FEW),
        "langextract 1.7.1": (with_langextract(text), VERY_FEW),
    }
    rows: list[tuple[str, ...]] = []
    for kind in ("exact", "5%", "10%", "20%", "words 15%", "absent"):
        given = quotes(text, kind)
        took: dict[str, float] = dict.fromkeys(finders, 0.0)
        hits: dict[str, int] = dict.fromkeys(finders, 0)
        for number, quote in enumerate(given):
            for name, (find, most) in finders.items():
                if number < most:
                    start = perf_counter()
                    found = find(quote.words)
                    took[name] += perf_counter() - start
                    hits[name] += found is not None if kind == "absent" else is_hit(quote, found, text)
        base = took["rapidfuzz 3.14.6"] / MANY
        for name, (_, most) in finders.items():
            each = took[name] / most
            rows.append(
                (f"{kind}: {name}", f"{hits[name]}/{most}", f"{each * 1e3:.2f}", f"{base / each:.1f}×")
            )
    show(
        "Quotes in 1 MB: hits (for absent ones false hits), ms each",
        ("", "hits", "ms", "faster than rapidfuzz"),
        rows,
    )
    show("Index of 1 MB, and what is held of it beside boxes", ("", ""), index_rows(text))


def index_rows(text: str) -> list[tuple[str, str]]:
    """What an index takes, beside sorting the hashes and nothing else."""
    took: dict[str, list[float]] = {"view": [], "index": [], "bare": []}
    source = SearchableText(text)
    for _ in range(5):
        for name, make in (
            ("view", lambda: canonical_view(text)),
            ("index", lambda: GramIndex(source.view.text)),
            ("bare", lambda: bare(source.view.text)),
        ):
            start = perf_counter()
            make()
            took[name].append(perf_counter() - start)
    view, index, least = (median(took[name]) * 1e3 for name in ("view", "index", "bare"))
    seeds = sum(map(_size, source.index.grams))
    view_arrays = (source.view.starts, source.view.ends, source.letters.starts)
    views = getsizeof(source.view.text) + getsizeof(source.letters.text) + sum(map(_size, view_arrays))
    held = getsizeof(text) + views + source.index.size
    return [
        ("canonical view", f"{view:.0f} ms"),
        ("index", f"{index:.0f} ms"),
        ("hash and argsort in numpy", f"{least:.0f} ms, the index takes {index / least:.1f}×"),
        ("bytes per character: seeds", f"{seeds / len(text):.1f}"),
        ("all, with text and views", f"{held / len(text):.1f}"),
    ]


def _size(array: NDArray[Any]) -> int:
    return array.nbytes


def bare(text: str) -> None:
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.uint64)
    count = len(codes) - 5
    hashes = np.zeros(count, np.uint64)
    for at in range(6):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + codes[at : at + count]
    np.argsort(hashes)


if __name__ == "__main__":
    main()
