"""Reading and writing a 1 MB answer with 1,000 citations, against `json` on the same payload.

For a JSON dialect the work is bytes to bytes: decode, read, write, encode, compared in the same run with
`json.loads` and `json.dumps` of that payload. Text dialects have no such peer; for all of them the cost of
ten times the input is shown, which should not be above twelve times.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import citewire
from bench.table import interleaved, ratio, show
from citewire import codec
from citewire.model import Answer, Citation, Part, Point, Source, SourceRef, Span

CITATIONS = 1_000
SIZE = 1_000_000
ROUNDS = 15

# Prose with what real answers have: accents, a dash, now and then an emoji; two languages of letters.
_WORDS = "Le remboursement est possible sous trente jours — naïve répétition, ponctuée de chiffres 42. "


def make_answer(citations: int, size: int) -> Answer:
    """An answer of `size` characters, cited evenly, each citation with a source and a quote of its own."""
    stretch = size // citations
    sentence = (_WORDS * (stretch // len(_WORDS) + 1))[: stretch - 2].rstrip() + ". "
    text = (sentence * citations)[:-1]
    claims = [Span(0, at * len(sentence), (at + 1) * len(sentence) - 1) for at in range(citations)]
    return Answer(
        parts=(Part(text),),
        citations=tuple(
            Citation(
                f"c{number}",
                (SourceRef(f"s{number}", quote=f"sous trente jours, article {number}"),),
                claim=claim,
                insert_at=Point(0, claim.end),
                span_origin="exact",
            )
            for number, claim in enumerate(claims, 1)
        ),
        sources=tuple(
            Source(f"s{number}", "web", f"https://example.com/articles/{number}", f"Article {number}")
            for number in range(1, citations + 1)
        ),
    )


def through(payload: Any, dialect: str) -> Any:
    """Read and write, bytes to bytes; text to text for a text dialect."""
    written = citewire.write(citewire.read(payload, dialect), dialect).payload
    return written if isinstance(payload, str) else codec.encode(written)


def through_json(data: bytes) -> str:
    return json.dumps(json.loads(data))


def measure(dialect: str) -> tuple[str, ...]:
    written = citewire.write(make_answer(CITATIONS, SIZE), dialect).payload
    larger = citewire.write(make_answer(CITATIONS * 10, SIZE * 10), dialect).payload
    works: dict[str, Any] = {}
    payload: Any = written
    if not isinstance(written, str):
        payload, larger = codec.encode(written), codec.encode(larger)
        works["json"] = partial(through_json, payload)
    works["ours"] = partial(through, payload, dialect)
    times = interleaved(works, ROUNDS)
    growth = interleaved({"ours": works["ours"], "x10": partial(through, larger, dialect)}, 3)
    to_json = f"{ratio(times, 'ours', 'json'):.2f}" if "json" in times else "text"
    millis = f"{min(times['ours']) * 1000:.1f}"
    return dialect, f"{len(payload) / 1e6:.2f}", millis, to_json, f"{ratio(growth, 'x10', 'ours'):.1f}"


def main() -> None:
    rows = [measure(dialect) for dialect in citewire.dialects()]
    head = ("dialect", "MB", "best ms", "× json (goal ≤ 3)", "10 × input (≤ 12)")
    show(f"read + write, {CITATIONS:,} citations", head, rows)


if __name__ == "__main__":
    main()
