"""The prompt that makes a model cite its sources in a verifiable way."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from citewire.dialects.deepcitation import BLOCK_END, BLOCK_START
from citewire.model import LINE_STEP

if TYPE_CHECKING:
    from citewire.documents import Document
    from citewire.documents.document import Page

__all__ = ["format_document", "prompt"]

_RULES = f"""\
Answer from the documents below, and show where each statement comes from.

In the answer, put a number in square brackets behind every statement that rests on a document: [1], [2], and
so on, a new number for each passage that you rely on. Write nothing else about sources in the answer.

After the answer write one block of data and nothing behind it:

{BLOCK_START}
{{"<id of the document>": [{{"id": 1, "reasoning": "...", "full_phrase": "...", "anchor_text": "...", \
"page_id": "...", "line_ids": [...]}}]}}
{BLOCK_END}

There is one entry for each number, in a list under the id of its document. In an entry, in this order:
- id: the number, as in the answer.
- reasoning: in a few words, why this passage supports the statement.
- full_phrase: the passage, copied character by character. Do not shorten, correct or translate it.
- anchor_text: the few words of full_phrase that matter most, exactly as they stand there.
- page_id: the name of the tag around the page, such as page_number_2_index_1.
- line_ids: the ids of the lines nearest to the passage. Not every line has one.

The block is JSON: strings in double quotes, with \\" for a quote within one and \\n for a line break. For a
recording, write "timestamps": {{"start_time": "HH:MM:SS.mmm", "end_time": "HH:MM:SS.mmm"}} instead of page_id
and line_ids. A statement that no document supports gets no number; say that the documents do not tell.
"""


def prompt(sources: Iterable[Document]) -> str:
    """Return instructions for a model, and the text of the sources with the ids to cite them by."""
    return "\n".join([_RULES, *(format_document(source) for source in sources)])


def format_document(document: Document) -> str:
    """Return the text of one source, with the ids to cite it by."""
    name = document.name or document.url or document.sha256[:12]
    pages = "\n".join(_page(document, page, index) for index, page in enumerate(document.pages))
    return f"<document id={quoteattr(name)}>\n{pages}\n</document>\n"


def _page(document: Document, page: Page, index: int) -> str:
    tag = f"page_number_{page.number}_index_{index}"
    return f"<{tag}>\n" + "\n".join(_lines(document, page)) + f"\n</{tag}>"


def _lines(document: Document, page: Page) -> Iterator[str]:
    """Yield the lines of a page, counted from 1; every few lines one carries its number."""
    starts = document.lines.tolist()
    inner = starts[bisect_left(starts, page.start) : bisect_left(starts, page.end)]
    edges = sorted({page.start, *inner})
    for number, (start, end) in enumerate(zip(edges, [*edges[1:], page.end], strict=True), 1):
        line = document.text[start:end].rstrip("\r\n\f")
        yield f'<line id="{number}">{line}</line>' if number % LINE_STEP == 1 else line
