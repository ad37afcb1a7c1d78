"""Pages with two columns, as PDF."""

from __future__ import annotations

from support.pdfs import Line, Sheet

LEFT = """
The harbour board met in May and
approved a loan of 40 million for
the new pier. Members did not ask
for a second opinion on the engi-
neering report, which had named
three risks and one remedy. The
""".strip().splitlines()


RIGHT = """
remedy was found to cost more than
the pier itself. No vote was held
on it before the summer, and the
works were started in September by
two firms from the region. Their
bids were lower than expected.
""".strip().splitlines()


NOTE = "1 Minutes of the board, page 12."


def columns() -> tuple[list[Line], list[Line]]:
    left = [Line(line, 72, 700 - 14 * row, 11) for row, line in enumerate(LEFT)]
    return left, [Line(line, 320, 700 - 14 * row, 11) for row, line in enumerate(RIGHT)]


def two_columns() -> Sheet:
    """Two columns that the file has line by line across, and a small note at the foot of the first."""
    rows = zip(*columns(), strict=True)
    return Sheet([*(line for row in rows for line in row), Line(NOTE, 72, 590, 7)])
