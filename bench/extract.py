"""Extracting the citations of a 1 MB answer with 1,000 citations, against decoding and hashing alone.

The answer is 1 MB in all: some 650 characters of prose before each marker, and behind the text one data
block, grouped by attachment, of 1,000 entries of about 340 characters as the published prompt asks for them
(reasoning, phrase, anchor, page id, line ids). The peer is what a naive implementation does with the block
alone, handed to it cut out: `json.loads`, and for each entry a SHA-1 of the fields of the published key,
joined as they stand. It reads no prose, looks for no marker, checks no type, and makes nothing of it.

Then the same in deltas, the cost of a delta of plain text, and text that has been slow for others, at one and
at ten times its size, whole and in deltas.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.table import interleaved, ratio, show
from citewire.dialects.deepcitation import BLOCK_END, BLOCK_START
from citewire.extraction import Extraction, Scanner, extract

CITATIONS = 1_000
SIZE = 1_000_000
ROUNDS = 15
DELTA = 16

_WORDS = "Revenue rose by 45% in the third quarter, as the report says; costs fell in the fourth. "
_QUOTE = (
    "Revenue rose by 45% in the third quarter of the year, to {number:,} million euros in all, of which the "
    "larger part came from services."
)
_REASON = "The passage gives the figure for the third quarter that the sentence states."


def make_block(citations: int) -> str:
    """Entries as the published prompt asks for them: a reason, a passage, its main words and its place."""
    groups: dict[str, list[Any]] = {}
    for number in range(1, citations + 1):
        entry = {
            "id": number,
            "reasoning": _REASON,
            "full_phrase": _QUOTE.format(number=number),
            "anchor_text": "rose by 45%",
            "page_id": f"page_number_{number % 90 + 1}_index_{number % 90}",
            "line_ids": [12, 13],
        }
        groups.setdefault(f"attachment{number % 7}", []).append(entry)
    return json.dumps(groups)


def make_answer(citations: int, size: int) -> tuple[str, str]:
    """An answer of `size` characters in all, and its block."""
    block = make_block(citations)
    stretch = (size - len(block)) // citations - 8
    prose = (_WORDS * (stretch // len(_WORDS) + 1))[:stretch]
    text = "".join(f"{prose} [{number}]." for number in range(1, citations + 1))
    return f"{text}\n\n{BLOCK_START}\n{block}\n{BLOCK_END}\n", block


def least(block: str) -> list[str]:
    """Decode the block and hash its entries."""
    keys: list[str] = []
    for entries in json.loads(block).values():
        for entry in entries:
            lines = ",".join(map(str, entry["line_ids"]))
            said = "|".join((entry["full_phrase"], entry["anchor_text"], entry["page_id"], lines))
            keys.append(hashlib.sha1(said.encode()).hexdigest()[:16])
    return keys


def in_deltas(text: str) -> Extraction:
    scanner = Scanner()
    for at in range(0, len(text), DELTA):
        scanner.feed(text[at : at + DELTA])
    scanner.close()
    return scanner.extraction()


def feed_plain(count: int) -> None:
    scanner = Scanner()
    for _ in range(count):
        scanner.feed("of the revenue, ")


HOSTILE: dict[str, Callable[[int], str]] = {
    "spaces in a broken block": lambda n: f'{BLOCK_START}\n[{{"id": 1, "f": "x"' + " " * n,
    "spaces behind a quote mark": lambda n: f'{BLOCK_START}\n[{{"f": "' + ('x"' + " " * 99) * (n // 100),
    "unclosed tags": lambda n: "<cite attachment_id='a' " * (n // 24),
    "brackets": lambda n: "[" * n,
    "brackets in a block": lambda n: f"{BLOCK_START}\n" + "[" * n,
    "open strings": lambda n: f"{BLOCK_START}\n" + '[{"a":"x, ' * (n // 10),
    "quote marks": lambda n: f'{BLOCK_START}\n[{{"f":"' + '", "' * (n // 4),
    "line breaks in a string": lambda n: f'{BLOCK_START}\n[{{"f":"' + "\n" * n,
    "open delimiters": lambda n: "<<<CITATION_DATA>>" * (n // 18),
    "delimiters in a row": lambda n: BLOCK_START * (n // len(BLOCK_START)),
    "entries that are broken": lambda n: f"{BLOCK_START}\n[" + '{"id":1,"f":"a "b" c"},' * (n // 23),
    "entities": lambda n: "&lt;" * (n // 4),
    "line breaks": lambda n: "\n" * n,
    "fences": lambda n: "\n```json\n" * (n // 9),
}


def measure() -> list[tuple[str, ...]]:
    answer, block = make_answer(CITATIONS, SIZE)
    larger, _ = make_answer(CITATIONS * 10, SIZE * 10)
    found = extract(answer)
    assert len(found.citations) == CITATIONS, found.problems
    assert not found.problems
    times = interleaved(
        {
            "least": partial(least, block),
            "ours": partial(extract, answer),
            "x10": partial(extract, larger),
            "deltas": partial(in_deltas, answer),
            "plain": partial(feed_plain, SIZE // DELTA),
        },
        ROUNDS,
    )
    each = f"{min(times['plain']) / (SIZE // DELTA) * 1e6:.2f} µs each"
    return [
        ("json.loads + hashing of the block", _millis(times["least"]), "1.0", ""),
        ("extract, 1 MB", _millis(times["ours"]), f"{ratio(times, 'ours', 'least'):.2f}", "≤ 2"),
        ("extract, 10 MB (× 1 MB)", _millis(times["x10"]), f"{ratio(times, 'x10', 'ours'):.1f}", "≤ 12"),
        (f"in deltas of {DELTA}", _millis(times["deltas"]), f"{ratio(times, 'deltas', 'least'):.1f}", ""),
        ("1 MB of plain deltas, fed", _millis(times["plain"]), each, "< 3 µs"),
    ]


def measure_hostile(name: str) -> tuple[str, ...]:
    small, large = HOSTILE[name](100_000), HOSTILE[name](1_000_000)
    times = interleaved(
        {
            "small": partial(extract, small),
            "large": partial(extract, large),
            "small deltas": partial(in_deltas, small),
            "large deltas": partial(in_deltas, large),
        },
        1,
    )
    return (
        name,
        _millis(times["large"]),
        f"{ratio(times, 'large', 'small'):.1f}",
        _millis(times["large deltas"]),
        f"{ratio(times, 'large deltas', 'small deltas'):.1f}",
    )


def _millis(times: list[float]) -> str:
    return f"{min(times) * 1000:.1f}"


def main() -> None:
    show(f"extract, {CITATIONS:,} citations", ("", "best ms", "×", "goal"), measure())
    head = ("1 MB of", "whole, ms", "× 100 kB (≤ 12)", f"deltas of {DELTA}, ms", "× 100 kB (≤ 12)")
    show("hostile text", head, [measure_hostile(name) for name in HOSTILE])


if __name__ == "__main__":
    main()
