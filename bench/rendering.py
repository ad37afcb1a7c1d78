"""Rendering a 1 MB answer with 1,000 citations, against splicing numbers into the same text.

The peer does the least that could be called rendering: it puts `[n]` behind each claim and a list below. What
we do besides (order, escaping, safe links, claims marked up) is what the ratio shows.
"""

from __future__ import annotations

from functools import partial

import citewire
from bench.dialects import CITATIONS, SIZE, make_answer
from bench.table import interleaved, ratio, show
from citewire.model import Answer
from citewire.rendering import FORMATS

ROUNDS = 7


def plain(answer: Answer) -> str:
    """Markers behind claims and a list of titles, and nothing else."""
    text = answer.parts[0].text
    pieces: list[str] = []
    at = 0
    for number, citation in enumerate(answer.citations, 1):
        end = citation.claim.end if citation.claim else at
        pieces += (text[at:end], f"[{number}]")
        at = end
    sources = [f"[{number}] {source.title} {source.url}" for number, source in enumerate(answer.sources, 1)]
    return "".join([*pieces, text[at:], "\n\n", "\n".join(sources)])


def measure(to: str) -> tuple[str, ...]:
    small, large = make_answer(CITATIONS, SIZE), make_answer(CITATIONS * 10, SIZE * 10)
    times = interleaved({"plain": partial(plain, small), "ours": partial(citewire.render, small, to)}, ROUNDS)
    growth = interleaved(
        {"ours": partial(citewire.render, small, to), "x10": partial(citewire.render, large, to)}, 3
    )
    millis = f"{min(times['ours']) * 1000:.1f}"
    return to, millis, f"{ratio(times, 'ours', 'plain'):.1f}", f"{ratio(growth, 'x10', 'ours'):.1f}"


def main() -> None:
    head = ("format", "best ms", "× plain splicing", "10 × input (≤ 12)")
    show(f"render, {CITATIONS:,} citations", head, [measure(to) for to in FORMATS])


if __name__ == "__main__":
    main()
