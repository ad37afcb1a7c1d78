"""Extract citations from model text, whole or in deltas, with one scanner for both.

It passes on the visible text as it arrives, holding back only a possible start of a delimiter or tag, and
reads data blocks and tags as they stream. The result does not depend on how the text is split.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from citewire.extraction.citation_places import place_citations
from citewire.extraction.collector import CitationCollector
from citewire.extraction.delimiters import (
    DELIMITER,
    ScanBuffer,
    find_cut_delimiter,
    find_held_back,
    find_lead,
)
from citewire.extraction.lenient_json import CUT_BLOCK, BlockEntry, LenientJsonReader
from citewire.extraction.tags import CLOSING, OPENING, read_tag
from citewire.keys import CitationKeys
from citewire.model import Answer, Citation, Part, Point, Problem, Source, Span

__all__ = ["Extraction", "Scanner"]


class Extraction(Struct, frozen=True, gc=False):
    """The visible text, its citations, and what could not be read: `$[7]` is character 7 of the text.

    A citation is an edge, as everywhere: one that is marked twice is there twice, as `key` and `key.2`.
    """

    visible_text: str
    citations: tuple[Citation, ...] = ()
    sources: tuple[Source, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether the text ended within a data block, so that citations may be missing."""
        return any(problem.code == CUT_BLOCK for problem in self.problems)

    @property
    def answer(self) -> Answer:
        """The extraction as an answer: to be verified, rendered, or written in a dialect."""
        return Answer((Part(self.visible_text),), self.citations, self.sources, problems=self.problems)


# Text without any of these is passed on at once.
_SUSPECT = re.compile(r"[<&\\\r\n]|[Cc](?:ite\s|(?<![A-Za-z][Cc])(?:i(?:te?)?)?\Z)")
_SHORT = 1000
_BARE = re.compile(r"cite(?=\s)")
# How far after a delimiter its JSON may start.
_BEFORE_JSON = 500
_JSON = re.compile(r"[*_]{0,3}\s*(?:```[\w-]*\s*)?(?:\{\s*[\"'“‘}/#\w]|\[\s*[{\]\[/#])")
_LATER_JSON = re.compile(rf"(?P<json>\{{\s*[\"'“‘]|\[\s*\{{)|{DELIMITER.pattern}", re.IGNORECASE)
_NOTHING = re.compile(r"[*_]{0,3}\s*(?:```[\w-]*\s*)?(?:[\[{]\s*)?\Z")
_LINE_BREAK = re.compile(r"[ \t]*\r?\n")
_CLOSING = re.compile(r"\s{0,15}```[ \t]*(?=\r?\n|\Z)|[*_]{1,3}(?=\s|\Z)")
_FENCE_LINE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)


class Scanner:
    """Scans deltas; `citations` grows with each complete citation. Share `keys` within a thread.

    Before the end, a citation in `citations` has no place yet; `extraction` has everything. Past `limit`
    characters nothing is stored: text is passed on without its blocks, and its citations are ignored.
    """

    def __init__(self, keys: CitationKeys | None = None, limit: int | None = None) -> None:
        self._buffer = ScanBuffer()
        self._limit = sys.maxsize if limit is None else limit
        self._collector = CitationCollector(keys, self._limit)
        self._block: LenientJsonReader | None = None
        self._visible: list[str] = []
        self._length = 0
        self._out: list[str] = []
        # For each open tag, its citation and the start of its content.
        self._pairs: list[tuple[int, int]] = []
        self._wrapped = self._behind_block = self._behind_tag = False
        self._in_code = (0, False)
        self._openings: Iterator[int] = iter(())
        self._is_plain = False
        self._extraction: Extraction | None = None

    @property
    def citations(self) -> list[Citation]:
        """The complete citations, in order."""
        return self._collector.citations

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the citations."""
        return tuple(self._collector.sources)

    @property
    def is_cut(self) -> bool:
        """Whether there was more text than `limit`."""
        return self._buffer.offset_of(len(self._buffer.text)) > self._limit

    def feed(self, delta: str) -> str:
        """Add a delta, and return the visible text that is certain now."""
        buffer = self._buffer
        size = len(delta)
        within = buffer.start + len(buffer.text) + size <= self._limit
        if self._is_plain and 0 < size < _SHORT and within and not _SUSPECT.search(delta):
            buffer.skip(delta)
            self._visible.append(delta)
            self._length += size
            return delta
        buffer.grow(delta)
        self._scan()
        return self._shown()

    def close(self) -> str:
        """End the text, and return the rest of the visible text."""
        self._buffer.ended = True
        self._buffer.grow("")
        self._scan()
        return self._shown()

    def extraction(self) -> Extraction:
        """Return everything that was found, once the scanner is closed."""
        if self._extraction is None:
            text = "".join(self._visible)
            citations = tuple(place_citations(text, self._collector))
            problems = tuple(self._collector.problems)
            self._extraction = Extraction(text, citations, tuple(self._collector.sources), problems)
        return self._extraction

    def _shown(self) -> str:
        shown, self._out = "".join(self._out), []
        return shown

    def _show(self, text: str) -> None:
        self._out.append(text)
        kept = text[: max(self._limit - self._buffer.offset_of(), 0)]
        if kept:
            self._visible.append(kept)
            self._length += len(kept)

    def _show_to(self, at: int) -> None:
        buffer = self._buffer
        if at > buffer.at:
            self._show(buffer.text[buffer.at : at])
            buffer.at = at

    def _scan(self) -> None:
        buffer = self._buffer
        self._openings = _openings(buffer)
        while self._read_block() if self._block else self._read_text():
            pass
        busy = self._block or self._behind_block or self._behind_tag or not self._length
        self._is_plain = not busy and buffer.at == len(buffer.text)

    def _read_block(self) -> bool:
        if self._block is None or not self._block.read():
            return False
        if not self._block.delimited and self._buffer.at < len(self._buffer.text):
            # The separator between the block and the following text was taken as part of the block.
            self._wrapped = False
            self._show("\n\n" if self._length else "")
        self._block, self._behind_block = None, True
        return True

    def _read_text(self) -> bool:
        """Show text up to the next block or tag, and enter it; return whether there may be more to do."""
        buffer = self._buffer
        if self._behind_block and not self._leave_block():
            return False
        text = buffer.text
        if self._behind_tag and buffer.at < len(text):
            # Of the spaces on both sides of the removed tag, one is enough.
            doubled = text[buffer.at] == " " and (not self._visible or self._visible[-1].endswith(" "))
            buffer.at += doubled
            self._behind_tag = False
        for at in self._openings:
            escaped = at > buffer.at and text[at - 1 : at + 1] == "\\<"
            if delimiter := DELIMITER.match(text, at - escaped):
                is_block = self._is_block(delimiter)
                if is_block is None:
                    self._show_to(find_lead(text, buffer.at, delimiter.start())[0])
                    return False
                if is_block:
                    return self._enter(delimiter)
                self._show_to(delimiter.end())  # nothing else starts within it
            elif OPENING.match(text, at) and not self._is_code(at):
                tag = self._read_tag(at)
                if tag is not None:
                    return tag
            elif self._pairs and (closing := CLOSING.match(text, at)):
                self._show_to(at)
                buffer.at = closing.end()
                self._close_pair()
                return True
        if buffer.ended:
            self._drop_cut_delimiter()
        self._show_to(len(text) if buffer.ended else find_held_back(text, buffer.at))
        return False

    def _drop_cut_delimiter(self) -> None:
        """Show the text up to a delimiter that is cut off at its end, which no reader wants to see."""
        buffer = self._buffer
        at = find_cut_delimiter(buffer.text, buffer.at)
        if at is not None:
            self._show_to(find_lead(buffer.text, buffer.at, at)[0])
            self._collector.report(CUT_BLOCK, buffer.offset_of(at), "the data block was cut off")
            buffer.at = len(buffer.text)

    def _leave_block(self) -> bool:
        """Skip the closing fence after a block, and blanks if no text follows or came before."""
        buffer = self._buffer
        seen, settled = buffer.look_ahead(buffer.at, 40)
        fence = _CLOSING.match(seen) if self._wrapped else None
        if (
            not settled
            and (fence is None or fence.end() == len(seen))
            and (self._wrapped or not seen.strip())
        ):
            return False
        buffer.at += fence.end() if fence else 0
        if fence:
            seen = seen[fence.end() :]
        if not seen.strip() and buffer.ended:
            buffer.at = len(buffer.text)
        elif not self._length:
            buffer.at += len(seen) - len(seen.lstrip())
        self._wrapped = self._behind_block = False
        return True

    def _is_block(self, delimiter: re.Match[str]) -> bool | None:
        """Return whether a delimiter opens a block and is not just mentioned; None if not known yet."""
        if delimiter["end"]:
            return True
        buffer = self._buffer
        seen, settled = buffer.look_ahead(delimiter.end(), _BEFORE_JSON)
        if _JSON.match(seen):
            return True
        if _NOTHING.match(seen):
            return True if settled else None
        start = delimiter.start()
        starts_line = start == 0 or find_lead(buffer.text, buffer.at, start)[0] < start
        if not starts_line and not _LINE_BREAK.match(seen):
            # It may still be a bracket whose content has not arrived, or an end that follows at once.
            follows = DELIMITER.match(buffer.text, delimiter.end() + len(seen) - len(seen.lstrip()))
            if follows:
                return bool(follows["end"])
            return (
                None if not settled and len(seen.strip()) < 48 and seen.lstrip()[:1] in "[{`<\\&" else False
            )
        later = _LATER_JSON.search(seen)
        if later is None:
            return False if settled else None
        return bool(later["json"] or later["end"])

    def _enter(self, delimiter: re.Match[str]) -> bool:
        buffer = self._buffer
        start, self._wrapped = find_lead(buffer.text, buffer.at, delimiter.start())
        self._show_to(start)
        if delimiter["end"]:
            self._collector.report("stray", buffer.offset_of(delimiter.start()), "the end of no data block")
            self._behind_block = True
        else:
            self._block = LenientJsonReader(buffer, self._collector, buffer.offset_of(delimiter.start()))
        buffer.at = delimiter.end()
        return True

    def _read_tag(self, at: int) -> bool | None:
        """Read the tag at `at`; False if its end has not arrived, None if it is not one of ours."""
        buffer = self._buffer
        tag = read_tag(buffer, at)
        if tag is None:
            self._show_to(at)
            return False
        if not tag.raw:
            return None
        self._show_to(at)
        start = buffer.offset_of(at)
        entry = BlockEntry(tag.raw, None, start, whole=True)
        if self._collector.add_entry(entry, Point(0, self._length)) and tag.is_pair and tag.is_closed:
            self._pairs.append((len(self.citations) - 1, self._length))
        if not tag.is_closed:
            self._collector.report("unclosed", start, "the tag has no end")
        buffer.at = tag.end
        self._behind_tag = True
        return True

    def _close_pair(self) -> None:
        place, start = self._pairs.pop()
        if start < self._length:
            claim = Span(0, start, self._length)
            self.citations[place] = replace(
                self.citations[place], claim=claim, insert_at=Point(0, self._length)
            )

    def _is_code(self, at: int) -> bool:
        """Return whether a tag at `at` is in a fence or after a backtick."""
        buffer = self._buffer
        if buffer.text[max(at - 1, 0) : at] == "`":
            return True
        self._show_to(at)
        seen, inside = self._in_code
        fences = len(_FENCE_LINE.findall("".join(self._visible[seen:])))
        self._in_code = (len(self._visible), inside ^ (fences % 2 == 1))
        return self._in_code[1]


def _openings(buffer: ScanBuffer) -> Iterator[int]:
    """Yield where a delimiter or tag may start, from the buffer's position; each range is searched once."""
    text, at, size = buffer.text, buffer.at, len(buffer.text)
    bracket = entity = -1
    while True:
        if bracket < at:
            bracket = _find(text, "<", at)
        if entity < at:
            entity = _find(text, "&", at)
        mark = min(bracket, entity)
        bare = _BARE.search(text, at, mark)
        opening = bare.start() if bare else mark
        if opening == size:
            return
        yield opening
        at = max(opening + 1, buffer.at)


def _find(text: str, mark: str, at: int) -> int:
    found = text.find(mark, at)
    return found if found >= 0 else len(text)
