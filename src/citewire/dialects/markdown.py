"""Markdown: text with markers, and the definitions that they point to.

The writer produces `[^1]: [Title](https://…), p. 3: "quote"`. The reader accepts footnote definitions with
any text, and link definitions (`[1]: https://… "Title"`). A marker `[1]` or `[^1]` means the definition with
that label. A definition keeps its wording and position while its content is unchanged.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import DialectOptions, SourceRegistry, native_for
from citewire.dialects.common.marker_records import (
    MarkedRecord,
    MarkerLabels,
    UniqueIds,
    assign_records,
    find_record_markers,
    find_unowned_markers,
    order_by_record,
    rename_records,
    write_markers,
)
from citewire.errors import ShapeError
from citewire.markers import code_ranges
from citewire.model import (
    Answer,
    Citation,
    Native,
    Pages,
    Part,
    Source,
    SourceKind,
    SourceRef,
    SpanOrigin,
    Written,
)

NAME = "markdown"
UPSTREAM = "CommonMark 0.31 with footnotes as in GFM and Pandoc"
SUPPORTED_FIELDS = frozenset(
    {"marker", "ordinal", "refs.locator.pages", "refs.quote", "source.title", "source.url"}
)
IS_TEXT = True

_DEFINITION = re.compile(r"^\[(\^?)([^\[\]\s]{1,200})\]:[ \t]+(.*)\n?", re.MULTILINE)
_CONTINUED = re.compile(r"(?:[ \t]*\n)*    .*\n?")
_LABEL = re.compile(r"[^\[\]\s]{1,200}")
_GENERATED = re.compile(r"c([1-9]\d{0,5})")


class _Reference(NamedTuple):
    """The content of a definition."""

    url: str | None = None
    title: str | None = None
    quote: str | None = None
    pages: Pages | None = None


class _Definition(NamedTuple):
    start: int
    end: int
    label: str
    cited: _Reference


def detect(payload: Any) -> bool:
    return isinstance(payload, str)


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not isinstance(payload, str):
        raise ShapeError("Markdown is text")
    return (_read(payload),)


def _read(payload: str) -> Answer:
    definitions = _definitions(payload)
    text, places = _without(payload, definitions)
    labels = _labels([definition.label for definition in definitions])
    markers = find_record_markers(text, labels)
    sources, names = SourceRegistry(), UniqueIds()
    citations: list[Citation] = []
    for number, definition in enumerate(definitions):
        cited = definition.cited
        source_id = sources.add(_kind_of(cited.url), cited.url, cited.title)
        ref = SourceRef(source_id, cited.pages, cited.quote)
        first = names.assign(_id_of(definition.label))
        raw = payload[definition.start : definition.end]
        native = Native(NAME, raw, places[number], was=(definition.label, cited, first))
        for again, marker in enumerate(markers.get(number) or [None]):
            citations.append(
                Citation(
                    names.assign(first) if again else first,
                    (ref,),
                    _ordinal_of(definition.label),
                    marker=marker,
                    span_origin="exact" if marker else "unknown",
                    native=native,
                )
            )
    tail = text[len(text.rstrip("\n")) :] if definitions else ""
    return Answer(
        parts=(Part(text[: len(text) - len(tail)]),),
        citations=tuple(citations),
        sources=tuple(sources),
        native=Native(NAME, text, was=tail),
    )


def _kind_of(url: str | None) -> SourceKind:
    return "document" if url is None else "web"


def _id_of(label: str) -> str:
    return f"c{label}" if label.isdecimal() and label.isascii() else label


def _ordinal_of(label: str) -> int | None:
    return int(label) if label.isdecimal() and label.isascii() and len(label) < 10 else None


def _labels(labels: list[str]) -> MarkerLabels:
    """Map labels to definitions; the first definition of a label counts."""
    table: dict[str, int] = {}
    for number, label in enumerate(labels):
        table.setdefault(label, number)
    return MarkerLabels(table, table)


def _definitions(payload: str) -> list[_Definition]:
    """Find the definitions outside code, with their continuation lines."""
    found: list[_Definition] = []
    code = list(code_ranges(payload))
    at, passed = 0, 0
    while match := _DEFINITION.search(payload, at):
        end = match.end()
        while (more := _CONTINUED.match(payload, end)) and match[1] and more.end() > end:
            end = more.end()
        while passed < len(code) and code[passed][1] <= match.start():
            passed += 1
        in_code = passed < len(code) and code[passed][0] <= match.start()
        at = match.end() if in_code else end
        cited = None if in_code else _cited(match, payload[match.start(3) : end])
        if cited is not None:
            found.append(_Definition(match.start(), end, match[2], cited))
    return found


def _without(payload: str, definitions: list[_Definition]) -> tuple[str, list[int]]:
    """Return the text without the definitions, and the offset of each definition in it."""
    pieces: list[str] = []
    places: list[int] = []
    at = length = 0
    for definition in definitions:
        pieces.append(payload[at : definition.start])
        length += len(pieces[-1])
        places.append(length)
        at = definition.end
    return "".join([*pieces, payload[at:]]), places


_OURS = re.compile(
    r"""(?: \[(?P<title>(?:[^\[\]\\]|\\.)*)\]\((?:<(?P<angled>(?:[^<>\\\n]|\\.)*)>|(?P<url>[^\s()<>\\]*))\)
          | <(?P<auto>[^<>\s]+)> )
        (?:,[ ]pp?\.[ ](?P<first>\d{1,9})(?:[–-](?P<last>\d{1,9}))?)?
        (?::[ ]"(?P<quote>(?:[^"\\]|\\.)*)")?""",
    re.VERBOSE | re.DOTALL,
)
_LINK_DEFINITION = re.compile(r"""<?([^\s<>]+)>?(?:[ \t]+(?:"(.*)"|'(.*)'|\((.*)\)))?""")
_URL = re.compile(r"<?(https?://[^\s<>\"]+[^\s<>\".,;:!?)\]])>?")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _cited(match: re.Match[str], body: str) -> _Reference | None:
    """Read what a definition points to; a link definition must contain only a link."""
    body = body.removesuffix("\n").replace("\n    ", "\n")
    if match[1]:
        return _cited_by_footnote(body)
    link = _LINK_DEFINITION.fullmatch(body.strip())
    if link is None or not link[1].startswith(("http://", "https://")):
        return None
    return _Reference(link[1], link[2] or link[3] or link[4])


def _cited_by_footnote(body: str) -> _Reference:
    ours = _OURS.fullmatch(body.strip())
    if ours is not None:
        url = ours["url"] or _plain(ours["angled"]) or ours["auto"] or None
        pages = _pages(ours["first"], ours["last"])
        return _Reference(url, _plain(ours["title"]) or None, _plain(ours["quote"]), pages)
    link = _URL.search(body)
    if link is None:
        return _Reference(title=body.strip() or None)
    words = f"{body[: link.start()]} {body[link.end() :]}".replace("[", "").replace("]()", "")
    return _Reference(link[1], " ".join(words.split()).strip(" ,;:.()") or None)


def _plain(escaped: str | None) -> str | None:
    return None if escaped is None else _ESCAPED.sub(r"\1", escaped)


def _pages(first: str | None, last: str | None) -> Pages | None:
    if first is None or int(first) < 1 or int(last or first) < int(first):
        return None
    return Pages(int(first), int(last or first))


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = Adaptation(answer, NAME)
    fitting.require_text()
    fitting.join_parts()
    fitting.require_refs()
    fitting.split_refs()
    read_back: dict[_Reference, _Reference] = {}
    fitting.map_citations(lambda citation: _fit_definition(citation, fitting, read_back))
    records, labels = _labelled(assign_records(fitting.answer.citations, _content), fitting)
    order_by_record(records, fitting)
    write_markers(fitting, records, _labels(labels), lambda number: f"[^{labels[number]}]")
    fit = fitting.finish(
        SUPPORTED_FIELDS, kind=lambda source: _kind_of(source.url), origin=_origin, keep_ids=True
    )
    sources = {source.id: source for source in fit.sources}
    definitions: list[tuple[int | None, str]] = []
    at = 0
    for record, label in zip(records, labels, strict=True):
        citation = fit.citations[at]
        definitions.append(_definition(label, citation, sources[citation.refs[0].source_id]))
        at += len(record.citations)
    return Written(_payload(fit, definitions, fitting), tuple(fitting.losses))


def _origin(citation: Citation) -> SpanOrigin:
    return "exact" if citation.marker else "unknown"


def _content(citation: Citation) -> Any:
    ref, native = citation.refs[0], native_for(citation.native, NAME)
    return ref.source_id, ref.locator, ref.quote, native and native.at


def _fit_definition(
    citation: Citation, fitting: Adaptation, read_back: dict[_Reference, _Reference]
) -> Citation:
    """Fit a citation to what a definition can express. `read_back` caches the result of reading it."""
    ref = citation.refs[0]
    source = fitting.sources[ref.source_id]
    pages = ref.locator if isinstance(ref.locator, Pages) else None
    wanted = _Reference(source.url, source.title, ref.quote, pages)
    if wanted not in read_back:
        read_back[wanted] = _cited_by_footnote(_body(wanted))
    read = read_back[wanted]
    if read == wanted:
        return citation
    if read.quote != wanted.quote:
        fitting.record_loss("refs.quote", "cannot be written in a footnote", citation=citation.id)
    if read.pages != wanted.pages:
        fitting.record_loss("refs.locator", "cannot be written in a footnote", citation=citation.id)
    fitted = replace(source, url=read.url, title=read.title)
    for field in ("url", "title"):
        if getattr(fitted, field) != getattr(source, field):
            fitting.record_loss(f"source.{field}", "cannot be written in a footnote", source=source.id)
    if fitted != source:
        fitting.sources[source.id] = fitted
    locator = ref.locator if pages is None else read.pages
    return replace(citation, refs=(replace(ref, quote=read.quote, locator=locator),))


def _labelled(records: list[MarkedRecord], fitting: Adaptation) -> tuple[list[MarkedRecord], list[str]]:
    """Return the labels, and the records with the ids and numbers that a reader derives from them."""
    labels: list[str] = []
    names = UniqueIds()
    loose = () if all(map(_kept_label, records)) else find_unowned_markers(fitting.answer)
    taken = {label for marker in loose for label in marker.labels}
    given: dict[str, str] = {}
    numbered: list[MarkedRecord] = []
    for record in records:
        label = _kept_label(record) or _free_label(record, taken)
        taken.add(label)
        labels.append(label)
        first = names.assign(_id_of(label))
        ordinal = _ordinal_of(label)
        for number, citation in enumerate(record.citations):
            given[citation.id] = names.assign(first) if number else first
            if citation.ordinal != ordinal:
                fitting.record_loss("ordinal", f"will read as {ordinal}", citation=citation.id)
        citations = [replace(citation, ordinal=ordinal) for citation in record.citations]
        numbered.append(MarkedRecord(record.id, ordinal, citations))
    return rename_records(numbered, given, fitting), labels


def _kept_label(record: MarkedRecord) -> str | None:
    native = native_for(record.citations[0].native, NAME)
    if native is None:
        return None
    label, _, name = native.was
    return label if (name, _ordinal_of(label)) == (record.id, record.ordinal) else None


def _free_label(record: MarkedRecord, taken: set[str]) -> str:
    """Choose a label: the printed number, else the number of a generated id, else the id made valid."""
    if record.ordinal is not None and record.ordinal >= 0:
        wanted = str(record.ordinal)
    else:
        generated = _GENERATED.fullmatch(record.id)
        wanted = generated[1] if generated else record.id
    if not _LABEL.fullmatch(wanted):
        wanted = re.sub(r"[\[\]\s]+", "-", wanted)[:200] or "c"
    label, again = wanted, 1
    while label in taken:
        again += 1
        label = f"{wanted}.{again}"
    return label


def _definition(label: str, citation: Citation, source: Source) -> tuple[int | None, str]:
    """Write a definition; one whose content is unchanged keeps its wording."""
    ref, native = citation.refs[0], native_for(citation.native, NAME)
    pages = ref.locator if isinstance(ref.locator, Pages) else None
    cited = _Reference(source.url, source.title, ref.quote, pages)
    if native is not None and native.was[:2] == (label, cited):
        return native.at, native.raw
    return (native.at if native else None), f"[^{label}]: {_indented(_body(cited))}\n"


_TO_ESCAPE = re.compile(r'([\\\[\]<>*_`"])')
_PLAIN_URL = re.compile(r"[^\s()<>\\]+")


def _body(cited: _Reference) -> str:
    """Return the text of a definition."""
    title = _TO_ESCAPE.sub(r"\\\1", cited.title or "")
    place = f"[{title}]({_destination(cited.url)})"
    if cited.title is None and cited.url and _PLAIN_URL.fullmatch(cited.url):
        place = f"<{cited.url}>"
    elif cited.title and _cited_by_footnote(cited.title) == cited:
        place = cited.title
    if cited.pages:
        first, last = cited.pages.first, cited.pages.last
        place += f", p. {first}" if first == last else f", pp. {first}–{last}"
    if cited.quote is not None:
        place += ': "' + _TO_ESCAPE.sub(r"\\\1", cited.quote) + '"'
    return place


def _indented(body: str) -> str:
    return body.replace("\n", "\n    ")


def _destination(url: str | None) -> str:
    if url is None or _PLAIN_URL.fullmatch(url):
        return url or ""
    return "<" + re.sub(r"([\\<>])", r"\\\1", url) + ">"


def _payload(answer: Answer, definitions: list[tuple[int | None, str]], fitting: Adaptation) -> str:
    native = native_for(answer.native, NAME)
    text, tail = answer.text, native.was if native else ""
    places = [place for place, _ in definitions]
    old = [place for place in places if place is not None]
    in_order = places == [*sorted(old), *([None] * (len(places) - len(old)))]
    if native is not None and text + tail == native.raw and in_order:
        payload = _put_back(text + tail, definitions)
    elif definitions:
        payload = f"{text}\n\n{''.join(definition for _, definition in definitions)}"
    else:
        payload = text
    read = _definitions(payload)
    seen = _without(payload, read)[0]
    if len(read) != len(definitions) or (seen.rstrip("\n") if read else seen) != text:
        fitting.record_loss(
            "text", "lines of the text read as definitions, or line breaks at its end are lost"
        )
    return payload


def _put_back(text: str, definitions: list[tuple[int | None, str]]) -> str:
    """Insert each definition at its old position; new ones go at the end, on their own lines."""
    pieces: list[str] = []
    at = 0
    for place, definition in definitions:
        if place is not None and place >= at:
            pieces += (text[at:place], definition)
            at = place
    pieces.append(text[at:])
    new = [definition for place, definition in definitions if place is None]
    body = "".join(pieces)
    if new and not body.endswith("\n"):
        body += "\n"
    if new and not at:
        body += "\n"
    return body + "".join(new)
