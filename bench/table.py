"""Timing side by side: what is compared is run in turn, so that a busy moment hits all alike."""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import median
from time import perf_counter

Work = Callable[[], object]


def interleaved(works: dict[str, Work], rounds: int) -> dict[str, list[float]]:
    """Seconds of each work in each round, one after the other, collections between the rounds."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        gc.collect()
        for name, work in works.items():
            start = perf_counter()
            work()
            times[name].append(perf_counter() - start)
    return times


def ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    """How many times as long as `base`, taken round by round: the median of the rounds."""
    return median(ours / theirs for ours, theirs in zip(times[name], times[base], strict=True))


def show(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A table for people."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    print(f"\n{title}\n")
    for row in [head, tuple("-" * width for width in widths), *rows]:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        print("  ".join(cells).rstrip())
