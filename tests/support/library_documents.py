"""Small documents with pages, to look for quotes in."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from citewire.documents.document import Aside, Document, Page

PAGES = [
    "Annual report\nThe fee is 40 dollars and it covers all members of the\n3\n",
    "Annual report\nclub for a year. The deposit is 15 dollars.\n4\n",
    "Annual report\nThe fee is 40 dollars for guests too.\n5\n",
]


def document(pages: list[str], name: str = "report.pdf", **more: Any) -> Document:
    text = "".join(pages)
    ends = np.cumsum([len(page) for page in pages]).tolist()
    listed = tuple(
        Page(number, end - len(page), end)
        for number, (page, end) in enumerate(zip(pages, ends, strict=True), 1)
    )
    lines = np.array([0, *(at + 1 for at, char in enumerate(text[:-1]) if char == "\n")], np.int32)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return Document(sha256, "pdf", text, listed, lines, name=name, **more)


def apart(pages: list[str]) -> tuple[Aside, ...]:
    """The first line of each page is a header, the last one a page number."""
    found: list[Aside] = []
    at = 0
    for page in pages:
        first, last = page.index("\n") + 1, page.rstrip("\n").rindex("\n") + 1
        found += [Aside(at, at + first, "header"), Aside(at + last, at + len(page), "footer")]
        at += len(page)
    return tuple(found)


REPORT = document(PAGES, asides=apart(PAGES))


OTHER = document(["Guests pay 60 dollars.\n"], name="docs/guests.txt", url="https://example.com/guests")
