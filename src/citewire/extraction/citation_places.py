"""Find the place of each citation in the text, the targets of bare markers, and the quotes there."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count, islice

from msgspec.structs import replace

from citewire.answer_edits import Sentences
from citewire.dialects import read
from citewire.extraction.collector import CitationCollector
from citewire.markers import Marker, find_markers
from citewire.model import Citation, Point, Source, SourceRef, Span, SpanOrigin

__all__ = ["place_citations"]

# Characters per marker, if text is limited: a text of nothing but markers would block other work.
_SPACED = 50
# Entries that may share one number: a claim has a few sources, and the work stays linear.
_SHARING = 16
# How far back a quotation may start, and how many are searched per sentence.
_REACH, _MOST_QUOTED = 1000, 8
_QUOTED = re.compile(r'"([^"\n]{3,800})"|“([^“”\n]{3,800})”|«([^«»\n]{3,800})»|„([^„“”\n]{3,800})[“”]')
_WORDS = re.compile(r"\w")


def place_citations(text: str, collector: CitationCollector) -> Iterator[Citation]:
    """Yield the citations, one for each marker; markers without a known target are citations, too.

    Their source is of kind `unknown`, and its `record_id` is the marker's label.
    """
    citations, shared = collector.citations, _by_label(collector.citations)
    bare = not shared and "[" in text
    markers = [] if bare else _some(find_markers(text, shared.keys()), collector)
    if bare or any(label not in shared for marker in markers for label in marker.labels):
        markers = _point_to_definitions(text, shared, collector)
    uses: dict[int, list[Marker]] = defaultdict(list)
    for marker in markers:
        for label in dict.fromkeys(marker.labels) if len(marker.labels) > 1 else marker.labels:
            for place in shared[label]:
                uses[place].append(marker)
    own = all(citation.refs[0].quote for citation in citations)
    lows: dict[Marker, int] = {} if own else _lows(text, markers)
    sentences = Sentences(text)
    for place, citation in enumerate(citations):
        if place not in uses:
            yield _with_quotes(text, sentences, citation, citation.insert_at, 0)
            continue
        for number, marker in enumerate(uses[place]):
            name = collector.names.assign(citation.id) if number else citation.id
            found = _at(marker, text, name, citation)
            if not citation.refs[0].quote:
                found = _with_quotes(text, sentences, found, Point(0, marker.start), lows[marker])
            yield found


def _lows(text: str, markers: list[Marker]) -> dict[Marker, int]:
    """Return the offset from which the words before a marker belong to it; adjacent markers share it."""
    lows: dict[Marker, int] = {}
    low = last = 0
    for marker in markers:
        if _WORDS.search(text, last, marker.start):
            low = last
        last, lows[marker] = marker.end, low
    return lows


def _by_label(citations: list[Citation]) -> dict[str, list[int]]:
    """Map each label to the citations it may mean; an entry without a number gets that of its position."""
    shared: dict[str, list[int]] = defaultdict(list)
    unnumbered: list[int] = []
    for place, citation in enumerate(citations):
        if citation.ordinal is None and citation.insert_at is None:
            unnumbered.append(place)
        elif citation.insert_at is None and len(places := shared[str(citation.ordinal)]) < _SHARING:
            places.append(place)
    for place in unnumbered:
        if str(place + 1) not in shared:
            shared[str(place + 1)].append(place)
            citations[place] = replace(citations[place], ordinal=place + 1, span_origin="derived")
    return shared


def _at(marker: Marker, text: str, name: str, citation: Citation) -> Citation:
    start, end, kind, _ = marker
    claim = Span(0, start + 1, text.index("](cite:", start)) if kind == "link" else None
    origin: SpanOrigin = "derived" if citation.span_origin == "derived" else "exact"
    span, ordinal = Span(0, start, end), citation.ordinal
    return Citation(name, citation.refs, ordinal, claim, span, None, origin, None, citation.native)


def _with_quotes(
    text: str, sentences: Sentences, citation: Citation, point: Point | None, behind: int
) -> Citation:
    """Return the citation with the quotations in the cited sentence, if it has no quote of its own."""
    ref = citation.refs[0]
    quotes = (
        _quotes(text, sentences.sentence_before(point), point, behind) if point and ref.quote is None else []
    )
    refs = tuple(replace(ref, quote=quote) for quote in quotes)
    return replace(citation, refs=refs) if refs else citation


def _quotes(text: str, sentence: Span | None, point: Point, behind: int) -> list[str]:
    if sentence is None:
        return []
    low = max(behind, point.at - _REACH)
    low = max(low, text.rfind("\n", low, point.at) + 1)
    found = [match for match in _QUOTED.finditer(text, low, point.at) if match.end() > sentence.start]
    return [words for match in found[:_MOST_QUOTED] if (words := match[match.lastindex or 0].strip())]


def _point_to_definitions(
    text: str, shared: dict[str, list[int]], collector: CitationCollector
) -> list[Marker]:
    """Add the targets of bare markers: a footnote, an item of the list, or an unknown source."""
    end, listed = _source_list(text)
    known = _definitions(listed) | _definitions(text)
    found = _some(find_markers(text, {*shared, *known}), collector)
    markers = [marker for marker in found if marker.start < end]
    for label in dict.fromkeys(label for marker in markers for label in marker.labels):
        if label not in shared:
            shared[label].append(len(collector.citations))
            ref, source = known.get(label) or (SourceRef(""), Source(label, record_id=label))
            collector.add(ref, source, int(label) if label.isascii() and label.isdecimal() else None)
    return markers


def _some(markers: Iterable[Marker], collector: CitationCollector) -> list[Marker]:
    most = collector.limit // _SPACED + _SPACED
    found = list(islice(markers, most + 1))
    if len(found) > most:
        last = found.pop()
        collector.report("too_many", last.start, f"only the first {most} markers were looked at")
    return found


def _definitions(markdown: str) -> dict[str, tuple[SourceRef, Source]]:
    """Return the targets of labels from the footnotes and link definitions of a text."""
    if "]:" not in markdown:
        return {}
    answer = read(markdown, "markdown")
    sources = {source.id: source for source in answer.sources}
    return {
        citation.id if citation.ordinal is None else str(citation.ordinal): (ref, sources[ref.source_id])
        for citation in reversed(answer.citations)
        for ref in citation.refs
    }


_TITLES = (
    *("sources?", "references?", "citations?", "bibliography", "works cited", "footnotes", "notes", "links"),
    *("quellen", "quellenangaben", "quellenverzeichnis", "referenzen", "literatur", "literaturverzeichnis"),
    *("références", "bibliographie", "fuentes", "referencias", "bibliografía", "fonti", "riferimenti"),
    *("bibliografia", "fontes", "referências", "bronnen", "referenties", "källor", "kilder", "źródła"),
    *(
        "kaynaklar",
        "источники",
        "литература",
        "ссылки",
        "المصادر",
        "المراجع",
        "参考文献",
        "参考资料",
        "参考資料",
    ),
    *(
        "參考文獻",
        "參考資料",
        "来源",
        "來源",
        "资料来源",
        "資料來源",
        "引用",
        "出典",
        "참고문헌",
        "참고 자료",
        "출처",
    ),
)
# A heading is alone on its line, or followed by the first item.
_HEADING = re.compile(
    r"^[ \t]{0,3}(?:#{1,6}[ \t]{1,3})?[*_]{0,2}(?:[^\w\s\[*_-]{1,3}[ ])?(?:(?:cited|list of)[ ])?"
    rf"(?:{'|'.join(_TITLES)})(?:[ ](?:used|cited|consulted))?"
    r"[*_]{0,2}[ \t]?(?:[:：][*_]{0,2}[ \t]{1,3}(?=\[\d)|[:：]?[*_]{0,2}[ \t]{0,3}$)",
    re.IGNORECASE | re.MULTILINE,
)
_ITEM = re.compile(
    r"[ \t]*(?P<bullet>[-*•+][ \t]+)?"
    r"(?:[*_]{0,2}\[\^?(?P<bracket>\d{1,6})\]:?[*_]{0,2}|(?P<number>\d{1,6})[.):、])?[ \t]*(?P<body>\S.*)"
)
_NEXT_ITEM = re.compile(r"[,;]?[ \t]{1,3}(?=\[\d{1,6}\][ \t:])")
# A list without a heading has bracketed numbers followed by text, or has URLs.
_BARE_ITEM = re.compile(
    r"[ \t]*(?:[-*•+][ \t]+)?(?:\[\d{1,6}\][ \t]*[^\s:]|\d{1,6}[.)][ \t][^\n]{0,300}?https?://)"
)
_RULE = re.compile(r"[ ]{0,3}[-*_]{3,20}[ \t]*\n")
_DASH = re.compile(r"[ ][-–—|:][ ](?=<?https?://)|\*\*|__(?=\w)|(?<=\w)__")
_LONGEST_LIST = 200_000


def _source_list(text: str) -> tuple[int, str]:
    """Return where the closing list of sources starts, and its items as footnotes."""
    low = max(0, len(text) - _LONGEST_LIST)
    headings = list(_HEADING.finditer(text, low))
    if headings:
        start, body = headings[-1].start(), text[headings[-1].end() :]
        lines = (body if body[:1] in ("\r", "\n") else _NEXT_ITEM.sub("\n", body)).splitlines()
    else:
        stripped = text.rstrip()
        start = max(stripped.rfind("\n\n", low) + 2, low)
        rule = _RULE.match(stripped, start)
        lines = stripped[rule.end() if rule else start :].splitlines()
        if start < 2 or not all(map(_BARE_ITEM.match, lines)):
            return len(text), ""
    counter = count(1)
    items: list[str] = []
    for line in lines:
        item = _ITEM.fullmatch(line.rstrip())
        if item is None:
            continue
        label = item["bracket"] or item["number"] or (str(next(counter)) if item["bullet"] else None)
        if label is not None:
            items.append(f"[^{int(label)}]: {_DASH.sub(' ', item['body']).strip()}\n")
        elif items:
            items[-1] = f"{items[-1].rstrip()} {item['body']}\n"
    return (start, "".join(items)) if items else (len(text), "")
