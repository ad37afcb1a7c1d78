"""DeepCitation: `[N]` in the text, and beside it what each number stands for.

Entries come as a record under 16-character keys, with verdicts under the same keys; as the request or
response of /verifyCitations; as shared state with one such record per message; or as a data block within
the text. Every spelling of a field is read on every path. A number may stand for several entries, and an
entry for several markers: each marker is a citation, `key`, `key.2`, …. `reasoning` and `claimText` have
no place in the model and are only kept.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count
from operator import is_
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from citewire import shape
from citewire.codec import decode, encode
from citewire.dialects.base import (
    Json,
    Options,
    Problems,
    Sources,
    get_at,
    is_list,
    is_object,
    kept_native,
    optional,
    overlay,
    path_text,
    put_at,
)
from citewire.dialects.by_marker import Names
from citewire.errors import ShapeError
from citewire.keys import Keys
from citewire.markers import find_markers
from citewire.model import (
    Answer,
    Citation,
    Lines,
    Locator,
    Native,
    Pages,
    Part,
    Point,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
    Status,
    Times,
    Verification,
    Written,
)
from citewire.shape import Fitting

NAME = "deepcitation"
UPSTREAM = "deepcitation 0.2.1 / HEAD 69c0450, 2026-03-14"
ROOM = frozenset(
    {
        *("marker", "ordinal", "verification", "answer.id", "refs.quote", "refs.anchor"),
        *("refs.locator.pages", "refs.locator.lines", "refs.locator.times"),
        *("source.url", "source.title", "source.file_id", "source.domain", "source.metadata"),
    }
)

START = "<<<CITATION_DATA>>>"
END = "<<<END_CITATION_DATA>>>"

ALIASES: dict[str, tuple[str, ...]] = {
    "type": (),
    "attachmentId": ("attachment_id", "attachment-id", "file_id", "fileId", "file-id", "a"),
    "citationNumber": ("citation_number", "citation-number", "number", "id", "n"),
    "reasoning": ("r",),
    "fullPhrase": (
        *("full_phrase", "full-phrase", "source_context", "sourceContext", "source-context"),
        *("phrase", "full", "f"),
    ),
    "anchorText": (
        *("anchor_text", "anchor-text", "source_match", "sourceMatch", "source-match"),
        *("anchor", "keySpan", "key_span", "key-span", "k"),
    ),
    "value": (),
    "claimText": ("claim_text", "claim-text", "displayLabel", "display_label", "display-label", "d"),
    "pageNumber": ("page_number", "page-number", "page"),
    "startPageId": (
        *("start_page_id", "start-page-id", "start_pageid", "page_id", "pageId", "page-id"),
        *("start_page_key", "startPageKey", "start-page-key", "start_pagekey"),
        *("page_key", "pageKey", "page-key", "start_page", "startPage", "start-page", "p"),
    ),
    "lineIds": ("line_ids", "line-ids", "lines", "l"),
    "timestamps": ("timestamp", "t"),
    "startTime": ("start_time", "start-time", "s"),
    "endTime": ("end_time", "end-time", "e"),
    "url": ("URL", "uri", "href", "link"),
    "title": (),
    "domain": (),
    "description": ("desc",),
    "faviconUrl": ("favicon_url", "favicon-url", "favicon"),
    "sourceType": ("source_type", "source-type"),
    "platform": (),
    "siteName": ("site_name", "site-name"),
    "author": (),
    "publishedAt": ("published_at", "published-at"),
    "imageUrl": ("image_url", "image-url"),
    "accessedAt": ("accessed_at", "accessed-at"),
}
"""Every spelling of a field, by its published name: earlier ones outrank later ones."""

_NAMES = {spelling: name for name, spellings in ALIASES.items() for spelling in spellings}
_TEXTS = frozenset({"type", "attachmentId", "fullPhrase", "anchorText", "value", "url", "title", "domain"})
# What only citations of the web have; metadata of the source to us.
_EXTRAS = (
    *("description", "faviconUrl", "sourceType", "platform", "siteName"),
    *("author", "publishedAt", "imageUrl", "accessedAt"),
)
_EXTRA_NAMES = frozenset(_EXTRAS)
_MEDIA = ("audio", "video")
_PLACES = ("pageNumber", "lineIds", "timestamps")
# Other fields that say the same, and must not outlive a change.
_STALE = {"pageNumber": ("startPageId", *ALIASES["startPageId"]), "anchorText": ("value",)}
_MODELLED = ALIASES.keys() - {"reasoning", "claimText", "startTime", "endTime"}
_IN_BLOCK = {name: next((s for s in spellings if "_" in s), name) for name, spellings in ALIASES.items()}
_IN_BLOCK.update(citationNumber="id", startPageId="page_id")
_PROMPTED = ("fullPhrase", "anchorText", "startPageId", "lineIds")

_PAGE = re.compile(r"(?:page[_a-z]{0,30})?(\d{1,9})(?:_(?:index_)?(\d{1,9}))?", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,15}")
# What JavaScript can count to.
_LARGEST = 2**53


def canonical(entry: Json) -> Json:
    """`entry` under the published names, itself where it has no others; unknown fields keep theirs."""
    if _NAMES.keys().isdisjoint(entry):
        return entry
    out: Json = {}
    clashes: set[str] = set()
    for key, value in entry.items():
        name = _NAMES.get(key, key)
        if name in out:
            clashes.add(name)
        out[name] = value
    for name in clashes:
        spelled = [entry[key] for key in (name, *ALIASES[name]) if key in entry]
        out[name] = next((value for value in spelled if value is not None), None)
    return out


class _Fields(NamedTuple):
    """An entry, as far as the model has words for it."""

    number: int | None
    quote: str | None
    anchor: str | None
    locator: Locator | None
    type: str
    file_id: str | None
    url: str | None
    title: str | None
    domain: str | None
    extras: tuple[tuple[str, str], ...]

    @property
    def kind(self) -> SourceKind:
        return "web" if self.type == "url" else "document"

    def ref(self, source_id: str) -> SourceRef:
        return SourceRef(source_id, self.locator, self.quote, self.anchor)

    def key(self, keys: Keys, *, in_block: bool = False) -> str:
        """The published key; the parser of data blocks sorts the lines first."""
        ref = self.ref("")
        if in_block and isinstance(self.locator, Lines):
            ref = replace(ref, locator=Lines(tuple(sorted(self.locator.ids)), self.locator.page))
        source = Source("", self.kind, self.url, self.title, file_id=self.file_id, domain=self.domain)
        return keys.assign(ref, source)


def _read_fields(raw: Any, attachment: str | None) -> _Fields:
    if not is_object(raw):
        raise ShapeError("a citation is not an object", "")
    entry = canonical(raw)
    for name, value in entry.items():
        if type(value) is not str and value is not None and name in _TEXTS:
            raise _wrong(raw, name, "a string")
    get = entry.get
    locator = _read_locator(raw, entry)
    file_id, anchor, url = get("attachmentId"), get("anchorText"), get("url")
    if url is None and get("type") == "url":
        raise ShapeError("a citation of type url has none", ".url")
    return _Fields(
        _read_number(raw, get("citationNumber")),
        get("fullPhrase"),
        get("value") if anchor is None else anchor,
        locator,
        _type(get("type"), url, locator),
        attachment if file_id is None else file_id,
        url,
        get("title"),
        get("domain"),
        () if _EXTRA_NAMES.isdisjoint(entry) else _extras(entry),
    )


def _wrong(raw: Json, name: str, wanted: str) -> ShapeError:
    spelling = next((key for key in (name, *ALIASES[name]) if raw.get(key) is not None), name)
    return ShapeError(f"{spelling} is not {wanted}", f".{spelling}")


def _type(word: Any, url: str | None, locator: Locator | None) -> str:
    """A URL makes a citation one of the web, and a stretch of time one of audio, unless it says otherwise."""
    if word in _MEDIA:
        return cast("str", word)
    if url is not None:
        return "url"
    return "audio" if isinstance(locator, Times) else "document"


def _extras(entry: Json) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name in _EXTRAS if isinstance(value := entry.get(name), str))


def _metadata(media: Any, extras: tuple[tuple[str, str], ...]) -> Json:
    return {"type": media, **dict(extras)} if media in _MEDIA else dict(extras)


def _read_number(raw: Json, value: Any) -> int | None:
    number = _whole(value)
    if number is None and value is not None:
        raise _wrong(raw, "citationNumber", "a number")
    return number


def _whole(value: Any) -> int | None:
    if type(value) is int:
        return value if 0 <= value <= _LARGEST else None
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else None


def _is_page(page: int | None) -> bool:
    return page is not None and 1 <= page <= _LARGEST


def _read_locator(raw: Json, entry: Json) -> Locator | None:
    times = entry.get("timestamps")
    if times is not None:
        return _read_times(raw, times)
    page = _read_page(raw, entry)
    lines = entry.get("lineIds")
    if lines:
        ids = tuple(map(_whole, lines)) if is_list(lines) else (_whole(lines),)
        if None in ids:
            raise _wrong(raw, "lineIds", "a list of numbers")
        return Lines(cast("tuple[int, ...]", ids), page)
    return None if page is None else Pages(page, page)


def _read_times(raw: Json, value: Any) -> Times:
    times = canonical(value) if is_object(value) else {"startTime": value}
    start, end = times.get("startTime"), times.get("endTime")
    if not is_object(value) or not all(at is None or isinstance(at, str) for at in (start, end)):
        raise _wrong(raw, "timestamps", "an object with startTime and endTime")
    return Times(start, end)


def _read_page(raw: Json, entry: Json) -> int | None:
    """The page, by number or by page id; None where what stands there is no page."""
    for name in ("pageNumber", "startPageId"):
        value = entry.get(name)
        if isinstance(value, str):
            # Pages count from one, but models also write the first page as 0_0.
            found = _PAGE.fullmatch(value)
            page = int(found[1]) or int(found[2] is not None and int(found[2]) == 0) if found else 0
        elif value is None:
            continue
        elif _whole(value) is None:
            raise _wrong(raw, name, "a page")
        else:
            page = value
        if page:
            return page
    return None


def _json(fields: _Fields) -> Json:
    """An entry in published names; None where there is nothing to say."""
    locator = fields.locator
    times = locator if isinstance(locator, Times) else None
    ends = times and {"startTime": times.start, "endTime": times.end}
    return {
        "type": fields.type,
        "attachmentId": fields.file_id,
        "pageNumber": locator.first if isinstance(locator, Pages) else getattr(locator, "page", None),
        "lineIds": list(locator.ids) if isinstance(locator, Lines) else None,
        "fullPhrase": fields.quote,
        "anchorText": fields.anchor,
        "citationNumber": fields.number,
        "url": fields.url,
        "title": fields.title,
        "domain": fields.domain,
        **dict.fromkeys(_EXTRAS),
        **dict(fields.extras),
        "timestamps": ends and {name: end for name, end in ends.items() if end is not None},
    }


def _write_entry(fields: _Fields, native: Native | None) -> Json:
    if native is None or native.was is None:
        return {name: value for name, value in _json(fields).items() if value is not None}
    return _changed(native.raw, native.was, fields)


def _changed(raw: Json, was: _Fields, fields: _Fields) -> Json:
    """`raw` with what is different now, in the spelling that it has."""
    if was == fields:
        return raw
    before, out = _json(was), dict(raw)
    moved = _PLACES if was.locator != fields.locator else ()
    for name, value in _json(fields).items():
        if value == before[name] and name not in moved:
            continue
        spellings = [key for key in (name, *ALIASES[name]) if key in raw]
        for key in (*spellings, *_STALE.get(name, ())):
            out.pop(key, None)
        if value is not None:
            out[spellings[0] if spellings else name] = value
    if _type(out.get("type"), fields.url, fields.locator) != fields.type:
        out["type"] = fields.type
    return out


_STATUS: dict[str, tuple[Status, str | None]] = {
    "found": ("verified", None),
    "found_phrase_missed_anchor_text": ("verified", "found_phrase_missed_anchor_text"),
    "partial_text_found": ("partial", None),
    "found_anchor_text_only": ("partial", "found_anchor_text_only"),
    "found_on_other_page": ("partial", "found_on_other_page"),
    "found_on_other_line": ("partial", "found_on_other_line"),
    "first_word_found": ("partial", "first_word_found"),
    "not_found": ("missed", None),
    "pending": ("pending", None),
    "loading": ("pending", "loading"),
    "skipped": ("skipped", "skipped"),
    "timestamp_wip": ("skipped", "timestamp_wip"),
}
_EXACT_WORD = {verdict: word for word, verdict in _STATUS.items()}
_WORD: dict[Status, str] = {
    "verified": "found",
    "partial": "partial_text_found",
    "altered": "not_found",
    "missed": "not_found",
    "pending": "pending",
    "skipped": "skipped",
}


def _said(verdict: Verification | None) -> tuple[Any, ...] | None:
    return verdict and (verdict.status, verdict.reason, verdict.quote, verdict.page)


def _read_verdict(raw: Any) -> Verification:
    if not is_object(raw):
        raise ShapeError("a verification is not an object", "")
    status, reason = _read_status(raw)
    quote = optional(raw, "verifiedMatchSnippet", str)
    if quote is None:
        quote = optional(raw, "matchSnippet", str)
    page = _verified_page(raw)
    return Verification(status, reason, quote, page, Native(NAME, raw, was=(status, reason, quote, page)))


def _read_status(raw: Json) -> tuple[Status, str | None]:
    """Our own word where we left one, else what the published word means."""
    ours = raw.get("citewire")
    if is_object(ours) and ours.get("status") is not None:
        status = optional(ours, "status", str, ".citewire")
        if status not in _WORD:
            raise ShapeError("status is none of ours", ".citewire.status")
        return status, optional(ours, "reason", str, ".citewire")
    word = optional(raw, "status", str)
    if word is None and is_object(search := raw.get("searchState")):
        word = optional(search, "status", str, ".searchState")
    return ("pending", None) if word is None else _STATUS.get(word, ("skipped", word))


def _verified_page(raw: Json) -> int | None:
    document = optional(raw, "document", dict)
    page = optional(document, "verifiedPageNumber", int, ".document") if document else None
    if page is None:
        page = optional(raw, "pageNumber", int)
    # The older shape says -1 for "nowhere".
    return page if _is_page(page) else None


def _write_verdict(verdict: Verification) -> Json:
    native = kept_native(verdict.native, NAME)
    was: tuple[Any, ...] = native.was if native else (None,) * 4
    if native and _said(verdict) == was:
        return native.raw
    out: Json = dict(native.raw) if native else {}
    if (verdict.status, verdict.reason) != was[:2]:
        _put_status(out, verdict.status, verdict.reason)
    if verdict.quote != was[2]:
        names = ["verifiedMatchSnippet", "matchSnippet"]
        if out.get(names[0]) is None and out.get(names[1]) is not None:
            names.reverse()
        out = overlay(out, {names[0]: verdict.quote, names[1]: None})
    if verdict.page != was[3]:
        older = "pageNumber" in out and not is_object(out.get("document"))
        document = overlay(out.get("document"), {"verifiedPageNumber": None if older else verdict.page})
        out = overlay(out, {"pageNumber": verdict.page if older else None, "document": document or None})
    return out


def _put_status(out: Json, status: Status, reason: str | None) -> None:
    """The published word that comes closest, and ours beside it where that would not give it back."""
    word = _EXACT_WORD.get((status, reason), _WORD[status])
    search = out.get("searchState")
    if is_object(search) and out.get("status") is None:
        out["searchState"] = overlay(search, {"status": word})
    else:
        out["status"] = word
    kept = out.pop("citewire", None)
    is_exact = _STATUS[word] == (status, reason)
    ours = {"status": None, "reason": None} if is_exact else {"status": status, "reason": reason}
    if beside := overlay(kept if is_object(kept) else None, ours):
        out["citewire"] = beside


_Unread = tuple[tuple[str | None, Any], ...]

# A delimiter that is only talked about is followed by none of these.
_BLOCK_FOLLOWS = re.compile(r"\s*(?:\{|\[\s*[{\]]|```|<<<END_CITATION_DATA>>>|\Z)")
_BLANK_TO_END = re.compile(r"\s*\Z")
_UNSAFE = frozenset({"__proto__", "constructor", "prototype"})


def _is_safe(key: Any) -> bool:
    return isinstance(key, str) and key not in _UNSAFE


class _Block(NamedTuple):
    """A data block: where in the visible text it stood, and the text before, within and behind its JSON."""

    at: int
    before: str
    body: str
    behind: str


def _split(text: str) -> tuple[str, tuple[_Block, ...]]:
    """The visible text, and the data blocks that stood in it."""
    visible: list[str] = []
    hidden: list[_Block] = []
    at = length = 0
    for start, body, end, behind in _blocks(text):
        shown = text[at:start].rstrip()
        visible.append(shown)
        length += len(shown)
        hidden.append(_Block(length, text[at + len(shown) : body], text[body:end], text[end:behind]))
        at = behind
    visible.append(text[at:])
    return "".join(visible), tuple(hidden)


def _blocks(text: str) -> Iterator[tuple[int, int, int, int]]:
    """Where each block starts, where its body does, where that ends, and where the text goes on."""
    at = text.find(START)
    while at >= 0:
        body = at + len(START)
        if _BLOCK_FOLLOWS.match(text, body):
            end = text.find(END, body)
            behind = len(text) if end < 0 else end + len(END)
            behind = len(text) if _BLANK_TO_END.match(text, behind) else behind
            yield at, body, len(text) if end < 0 else end, behind
            body = behind
        at = text.find(START, body)


def _compose(text: str, hidden: tuple[_Block, ...], *, at_end: bool = False) -> str:
    """The text with its data blocks where they stood, or all at its end."""
    pieces: list[str] = []
    at = 0
    for block in hidden:
        to = len(text) if at_end else block.at
        pieces += (text[at:to], block.before, block.body, block.behind)
        at = to
    return "".join((*pieces, text[at:]))


def _read_block(body: str) -> list[tuple[str | None, list[Any]]]:
    """The entries of a block by attachment, in whichever of its shapes."""
    value: Any = decode(body) if body.strip() else []
    if is_list(value):
        return [(None, value)]
    if is_object(value) and all(map(is_list, value.values())):
        return [(None if key in {"citations", ""} else key, raws) for key, raws in value.items()]
    if is_object(value) and not ALIASES.keys().isdisjoint(canonical(value)):
        return [(None, [value])]
    raise ShapeError("the data block has no citations in it", "")


def _write_block(entries: list[tuple[_Fields, Native | None]], kept: _Unread) -> str:
    """A block by attachment; what no key could say is said in the entry."""
    groups: dict[str, list[Any]] = {}
    for fields, native in entries:
        label = fields.file_id or ""
        entry = _block_entry(fields, native.raw if native else None)
        if not label or label == "citations" or label in _UNSAFE:
            label = ""
            entry |= {} if fields.file_id is None else {"attachment_id": fields.file_id}
        groups.setdefault(label, []).append(entry)
    for group, raw in kept:
        groups.setdefault(group or "", []).append(raw)
    # No delimiter may stand in a quote.
    return encode(groups).decode().replace("<<<", "\\u003c" * 3)


def _block_entry(fields: _Fields, raw: Json | None) -> Json:
    """An entry as the prompt asks for it; what else it had stays."""
    new = _json(fields)
    page, times = new.pop("pageNumber"), fields.locator
    new["startPageId"] = page and f"page_number_{page}_index_{page - 1}"
    if isinstance(times, Times):
        new["timestamps"] = {"start_time": times.start, "end_time": times.end}
    if fields.type == _type(None, fields.url, fields.locator):
        del new["type"]
    del new["attachmentId"]
    out: Json = {"id": fields.number} if fields.number is not None else {}
    for key, value in (raw or {}).items():
        if (name := _NAMES.get(key, key)) not in _MODELLED:
            out[_IN_BLOCK.get(name, key)] = value
    names = dict.fromkeys((*_PROMPTED, *new))
    return out | {_IN_BLOCK[name]: value for name in names if (value := new[name]) is not None}


_Path = tuple[str, ...]
_Printed = dict[tuple[int, int], tuple[int, ...]]

_MARKERS = ("number", "cite")
# Entries that one number may stand for: a claim has a few sources, and work stays linear.
_SHARING = 16


class _Kept(NamedTuple):
    """What could not be read: keys of either record, and entries of a block by attachment."""

    citations: frozenset[Any]
    verdicts: frozenset[Any]
    entries: _Unread


class _Was(NamedTuple):
    """How an answer was read. `in_block` counts the entries of data blocks, where the entries are there."""

    id: str | None
    text: str | None
    hidden: tuple[_Block, ...]
    in_block: int | None
    values: tuple[Any, ...]

    def is_still(self, answer: Answer) -> bool:
        """Whether nobody has touched the answer: its values are the very ones that were read."""
        values = (answer.parts, answer.citations, answer.sources)
        return answer.id == self.id and all(map(is_, values, self.values))


def detect(payload: Any) -> bool:
    if not is_object(payload):
        return False
    if is_object(data := payload.get("data")):
        payload = data
    text, cited = payload.get("text"), payload.get("citations")
    if is_object(payload.get("verifications")):
        return True
    if is_object(cited):
        return is_object(next(iter(cited.values()))) if cited else isinstance(text, str)
    return isinstance(text, str) and START in text


def read_all(payload: Any, options: Options) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("not an object")
    if is_object(messages := payload.get("messages")) and messages:
        return _read_messages(payload, messages, options)
    path = ("data",) if is_object(payload.get("data")) else ()
    record: Json = get_at(payload, path)
    if not {"citations", "verifications", "text"} & record.keys():
        raise ShapeError("neither citations nor verifications nor text", path_text(path))
    return (_read(payload, path, options, Problems()),)


def _read_messages(payload: Json, messages: Json, options: Options) -> tuple[Answer, ...]:
    problems = Problems()
    answers: list[Answer] = []
    for name, record in messages.items():
        if is_object(record) and _is_safe(name):
            answers.append(_read(payload, ("messages", name), options, problems))
            problems = Problems()
        else:
            problems.add(f"$.messages.{name}", ShapeError("is not an object, or under an unsafe key", ""))
    if not answers:
        raise ShapeError("no message is an object", "$.messages")
    answers[-1] = replace(answers[-1], problems=(*answers[-1].problems, *problems))
    return tuple(answers)


def _read(payload: Json, path: _Path, options: Options, problems: Problems) -> Answer:
    record: Json = get_at(payload, path)
    where = path_text(path)
    text = optional(record, "text", str, where)
    text = options.text if text is None else text
    visible, hidden = (None, ()) if text is None else _split(text)
    reader = _Reader(where, optional(record, "attachmentId", str, where), problems)
    reader.verdicts = optional(record, "verifications", dict, where) or {}
    cited = optional(record, "citations", dict, where)
    in_block = None
    if cited is not None:
        reader.read_record(cited)
    elif hidden:
        in_block = reader.read_blocks(hidden)
    reader.read_orphans(cited or {})
    name = optional(record, "messageId", str, where)
    if name is None and path[:1] == ("messages",):
        name = path[-1]
    parts = () if visible is None else (Part(visible),)
    citations, sources = tuple(_citations(reader.entries, visible)), tuple(reader.sources)
    kept = _Kept(frozenset(reader.kept), frozenset(reader.kept_verdicts), tuple(reader.kept_entries))
    was = _Was(name, visible, hidden, in_block, (parts, citations, sources))
    return Answer(parts, citations, sources, name, tuple(problems), Native(NAME, payload, path, kept, was))


class _Entry(NamedTuple):
    key: str
    number: int | None
    refs: tuple[SourceRef, ...]
    native: Native
    verdict: Verification | None


class _Reader:
    def __init__(self, where: str, attachment: str | None, problems: Problems) -> None:
        self.where = where
        self.attachment = attachment
        self.problems = problems
        self.verdicts: Json = {}
        self.sources = Sources()
        self.entries: list[_Entry] = []
        self.kept: set[Any] = set()
        self.kept_verdicts: set[Any] = set()
        self.kept_entries: list[tuple[str | None, Any]] = []
        self._source_ids: dict[Any, str] = {}

    def read_record(self, cited: Json) -> None:
        for key, raw in cited.items():
            fields = self._guard(("citations", key), key, _read_fields, raw, self.attachment)
            if fields is None:
                self.kept.add(key)
                self.kept_verdicts.add(key)
            else:
                self._add(key, fields, Native(NAME, raw, key, was=fields), self._verdict(key))

    def read_blocks(self, hidden: tuple[_Block, ...]) -> int | None:
        """How many entries the data blocks had; None where there is no reading them."""
        groups: list[tuple[str | None, list[Any]]] = []
        for block in hidden:
            found = self.problems.guard(lambda: f"{self.where}.text", _read_block, block.body)
            if found is None:
                return None
            groups += found
        keys, names = Keys(), Names()
        for group, raws in groups:
            path = ("text",) if group is None else ("text", group)
            for number, raw in enumerate(raws):
                attachment = group or self.attachment
                fields = self._guard((*path, number), group or "", _read_fields, raw, attachment)
                if fields is None:
                    self.kept_entries.append((group, raw))
                    continue
                key = names.give(fields.key(keys, in_block=True))
                self._add(key, fields, Native(NAME, raw, len(self.entries), was=fields), self._verdict(key))
        return len(self.entries)

    def read_orphans(self, cited: Json) -> None:
        """Verdicts without an entry of their own: it may be within, or not be known."""
        known = {entry.key for entry in self.entries} | cited.keys()
        for key, raw in self.verdicts.items():
            if key in known or (verdict := self._verdict(key)) is None:
                continue
            inner, fields = raw.get("citation"), None
            if inner is not None:
                path = ("verifications", key, "citation")
                fields = self._guard(path, key, _read_fields, inner, self.attachment)
            if fields is None and inner is not None:
                self.kept_verdicts.add(key)
            else:
                self._add(key, fields, Native(NAME, inner, key, was=fields), verdict)

    def _guard(self, path: tuple[Any, ...], key: Any, read: Any, *args: Any) -> Any:
        def where() -> str:
            return self.where + path_text(path)[1:]

        if _is_safe(key):
            return self.problems.guard(where, read, *args)
        self.problems.add(where(), ShapeError("the key is unsafe", ""))
        return None

    def _verdict(self, key: Any) -> Verification | None:
        if key not in self.verdicts:
            return None
        verdict = self._guard(("verifications", key), key, _read_verdict, self.verdicts[key])
        if verdict is None:
            self.kept_verdicts.add(key)
        return verdict

    def _add(self, key: str, fields: _Fields | None, native: Native, verdict: Verification | None) -> None:
        if fields is None:
            self.entries.append(_Entry(key, None, (), native, verdict))
            return
        source_id = self._source_ids.get(fields[4:])
        if source_id is None:
            source_id = self._source_ids[fields[4:]] = self.sources.add(
                fields.kind,
                fields.url,
                fields.title,
                file_id=fields.file_id,
                domain=fields.domain,
                metadata=_metadata(fields.type, fields.extras),
            )
        self.entries.append(_Entry(key, fields.number, (fields.ref(source_id),), native, verdict))


def _citations(entries: list[_Entry], text: str | None) -> Iterator[Citation]:
    """A citation for each marker of an entry; for an entry without any, one without a place."""
    uses = {} if text is None else _uses(text, [entry.number for entry in entries])
    names = Names()
    for entry in entries:
        names.give(entry.key)
    for place, (key, number, refs, native, verdict) in enumerate(entries):
        if place not in uses:
            yield Citation(key, refs, number, verification=verdict, native=native)
            continue
        for use, marker in enumerate(uses[place]):
            name = names.give(key) if use else key
            yield Citation(name, refs, number, None, marker, None, "exact", verdict, native)


def _uses(text: str, numbers: list[int | None]) -> dict[int, list[Span]]:
    """The markers of each entry that has any, by its place among `numbers`."""
    places: dict[int, list[int]] = defaultdict(list)
    for place, number in enumerate(numbers):
        if number is not None and len(places[number]) < _SHARING:
            places[number].append(place)
    uses: dict[int, list[Span]] = defaultdict(list)
    for (start, end), labels in _printed(text, places.keys()).items():
        span = Span(0, start, end)
        for label in labels:
            for place in places.get(label, ()):
                uses[place].append(span)
    return uses


def _printed(text: str, known: Iterable[int]) -> _Printed:
    """The markers in the text with their numbers."""
    names = set(map(str, known))
    return {
        (marker.start, marker.end): tuple(dict.fromkeys(map(int, marker.labels)))
        for marker in find_markers(text, names)
        if marker.kind in _MARKERS
    }


def write(answer: Answer, options: Options) -> Written:
    native = kept_native(answer.native, NAME)
    if native and native.was.is_still(answer):
        return Written(native.raw)
    fitting, layout = Fitting(answer, NAME), _Layout(native)
    layout.need_id(fitting)
    fitting.join_parts()
    fitting.split_refs()
    fitting.map_citations(partial(_fit, fitting))
    _fit_sources(fitting, layout.raw.get("attachmentId"))
    if fitting.answer.parts and fitting.answer.parts[0].text != layout.was.text:
        _cut_blocks(fitting, bool(layout.was.hidden))
    records = layout.arrange(_Numbering(fitting, bool(layout.was.hidden)).records(), fitting)
    fitting.finish(
        ROOM,
        kind=_kind,
        origin=_origin,
        keep_ids=True,
        group=lambda fit: [[fit.citations[place] for place in record.places] for record in records],
        why="citations come in the order of their entries",
    )
    named = layout.named(records, fitting)
    return Written(layout.payload(fitting.answer, named), tuple(fitting.losses))


def _kind(source: Source) -> SourceKind:
    return "web" if source.url is not None and source.metadata.get("type") not in _MEDIA else "document"


def _origin(citation: Citation) -> SpanOrigin:
    return "exact" if citation.marker else "unknown"


def _fit(fitting: Fitting, citation: Citation) -> Citation | None:
    if not citation.refs and citation.verification is None:
        fitting.lose("citation", "points to no source", citation=citation.id)
        return None
    changes: Json = {}
    if not fitting.answer.parts:
        places = [field for field in ("claim", "marker", "insert_at") if getattr(citation, field) is not None]
        for field in places:
            fitting.lose(field, "the text of the answer is not known", citation=citation.id)
        changes = dict.fromkeys(places)
    if citation.ordinal is not None and not (citation.refs and 0 <= citation.ordinal <= _LARGEST):
        fitting.lose("ordinal", "no number that an entry could have", citation=citation.id)
        changes["ordinal"] = None
    for ref in citation.refs:
        locator = _fit_locator(ref.locator)
        if locator != ref.locator:
            fitting.lose("refs.locator", "a place is one page, or lines by number", citation=citation.id)
            changes["refs"] = (replace(ref, locator=locator),)
    verdict = citation.verification
    if verdict and verdict.page is not None and not _is_page(verdict.page):
        fitting.lose("verification", "pages count from 1", citation=citation.id)
        changes["verification"] = replace(verdict, page=None)
    return replace(citation, **changes) if changes else citation


def _fit_locator(locator: Locator | None) -> Locator | None:
    match locator:
        case Pages(first=page):
            return Pages(page, page) if _is_page(page) else None
        case Lines(ids=ids, page=page):
            if ids and all(0 <= number <= _LARGEST for number in ids):
                return locator if page is None or _is_page(page) else Lines(ids)
            return None if page is None or not _is_page(page) else Pages(page, page)
        case _:
            return locator


def _fit_sources(fitting: Fitting, attachment: str | None) -> None:
    refs = [ref for citation in fitting.answer.citations for ref in citation.refs]
    timed = {ref.source_id for ref in refs if isinstance(ref.locator, Times)}
    for source in fitting.cited_sources():
        fit = source
        if source.file_id is None and attachment is not None:
            fitting.lose("source.file_id", "the payload names one for all", source=source.id)
            fit = replace(fit, file_id=attachment)
        if source.metadata or source.id in timed:
            media = source.metadata.get("type")
            if source.id in timed and source.url is None and media not in _MEDIA:
                media = "audio"
            fit = replace(fit, metadata=_metadata(media, _extras(source.metadata)))
            if fit.metadata != source.metadata:
                fitting.lose(
                    "source.metadata", "entries have fields of their own and a type", source=source.id
                )
        fitting.sources[source.id] = fit


def _cut_blocks(fitting: Fitting, strip: bool) -> None:
    """A reader takes what looks like a data block for one, and the space in front of one with it."""
    for last in (False, False, True):
        text = fitting.answer.parts[0].text
        spans = _block_spans(text)
        if not spans:
            break
        # Taking a block out may have joined the halves of another.
        cut = {Span(0, text.find(START), len(text))} if last else spans
        _cut(fitting, cut, "what looks like a data block is taken out")
    text = fitting.answer.parts[0].text
    if strip and text[-1:].isspace():
        _cut(fitting, {Span(0, len(text.rstrip()), len(text))}, "the space in front of the data block goes")


def _cut(fitting: Fitting, spans: set[Span], reason: str) -> None:
    fitting.lose("text", reason)
    fitting.answer = shape.take_markers_out(fitting.answer, {*spans})


def _block_spans(text: str) -> set[Span]:
    spans: set[Span] = set()
    at = 0
    for start, _, _, behind in _blocks(text):
        spans.add(Span(0, at + len(text[at:start].rstrip()), behind))
        at = behind
    return spans


_LARGEST_MARKER = 999_999
# Rounds of writing markers that a reader would not find again, before doing without.
_ROUNDS = 3


class _Record(NamedTuple):
    """Citations, by their places in the answer, that one entry stands for. No fields: a verdict alone.

    An entry stands `within` its verdict in a response.
    """

    places: list[int]
    fields: _Fields | None
    native: Native | None
    within: bool = False

    @property
    def at(self) -> Any:
        return self.native.at if self.native else None


class _Use(NamedTuple):
    """A number that a citation asks for, and the spot for its marker: it `fits` when it stands there."""

    want: int | None
    spot: Span | Point | None
    fits: bool


_UNUSED = _Use(None, None, fits=False)


class _Plan(NamedTuple):
    numbers: list[int | None]
    groups: list[list[int]]
    leaving: set[Span]
    changes: bool


class _Numbering:
    """Gives every citation with a place a number and a marker, so that a reader finds just these.

    A number is kept where the text prints it for the same entries and nothing else; otherwise, and where
    there is none, the next free one is taken, in reading order.
    """

    def __init__(self, fitting: Fitting, strip: bool) -> None:
        self.fitting = fitting
        self.strip = strip
        self.before = fitting.answer
        self.natives = [kept_native(citation.native, NAME) for citation in self.before.citations]
        self.fields = [_fields_of(citation, fitting.sources) for citation in self.before.citations]

    def records(self) -> list[_Record]:
        if self.before.parts:
            plan = self._settle()
            return [self._record(group, plan.numbers[group[0]]) for group in plan.groups]
        return [self._record([n], fields and fields.number) for n, fields in enumerate(self.fields)]

    def _record(self, group: list[int], number: int | None) -> _Record:
        fields = self.fields[group[0]]
        if fields is not None and fields.number != number:
            fields = fields._replace(number=number)
        if len(group) > 1:
            citations = self.fitting.answer.citations
            group.sort(key=lambda place: cast("Span", citations[place].marker).start)
        return _Record(group, fields, self.natives[group[0]])

    def _settle(self) -> _Plan:
        """The first plan that reads back as planned; at last, one without numbers and markers."""
        barred: set[int] = set()
        for _ in range(_ROUNDS):
            plan = self._plan(barred)
            if not plan.changes:
                return plan
            misread = self._apply(plan, Fitting(self.before, NAME))
            if not misread:
                break
            barred |= misread
        else:
            plan = self._plan(set(range(len(self.fields))))
        self._apply(plan, self.fitting)
        _cut_blocks(self.fitting, self.strip)
        return plan

    def _plan(self, barred: set[int]) -> _Plan:
        citations = self.before.citations
        known = (fields.number for fields in self.fields if fields and fields.number is not None)
        printed = _printed(self.before.parts[0].text, known)
        uses = [_UNUSED if n in barred else self._use(n, printed) for n in range(len(citations))]
        groups = self._groups(uses)
        numbers = _numbers(groups, uses, printed)
        leaving = {
            citation.marker
            for citation, use, number in zip(citations, uses, numbers, strict=True)
            if citation.marker and not (use.fits and use.want == number)
        }
        return _Plan(numbers, groups, leaving, bool(leaving) or any(map(_is_new, citations, numbers)))

    def _use(self, place: int, printed: _Printed) -> _Use:
        citation, fields = self.before.citations[place], self.fields[place]
        if fields is None:
            return _UNUSED
        marker = citation.marker
        if marker is None:
            return _Use(fields.number, citation.insert_at or citation.claim, fits=False)
        labels = printed.get((marker.start, marker.end), ())
        want = labels[0] if fields.number is None and len(labels) == 1 else fields.number
        return _Use(want, marker, want in labels)

    def _groups(self, uses: list[_Use]) -> list[list[int]]:
        """Citations that one entry may stand for: they say the same under one number, in different spots."""
        groups: dict[Any, list[int]] = {}
        times: Counter[Any] = Counter()
        for place, use in enumerate(uses):
            if use.spot is None:
                groups[place] = [place]
                continue
            native = self.natives[place]
            same = (self.fields[place], native and native.at, use.want)
            groups.setdefault((same, times[same, use.spot]), []).append(place)
            times[same, use.spot] += 1
        return list(groups.values())

    def _apply(self, plan: _Plan, fitting: Fitting) -> set[int]:
        """Do as planned; what comes back are citations that a reader would not find where they are."""
        numbers = iter(plan.numbers)
        fitting.map_citations(lambda citation: _with_number(citation, next(numbers), fitting))
        fitting.take_markers_out(lambda citation, _: citation.marker not in plan.leaving)
        fitting.insert_markers(_marker, padded=True)
        text = fitting.answer.parts[0].text
        if self.strip:
            text = text.rstrip()
        if _block_spans(text):
            return set(range(len(self.fields)))
        return _misread(plan, fitting.answer.citations, text)


def _numbers(groups: list[list[int]], uses: list[_Use], printed: _Printed) -> list[int | None]:
    """The number of each citation: what it asks for where that can be had, else a free one or none."""
    shown: Counter[int | None] = Counter(label for labels in printed.values() for label in labels)
    numbers = [use.want for use in uses]
    fresh, held = _without_own(groups, uses, shown)
    for place, use in enumerate(uses):
        if use.spot is None and (use.want in held or shown[use.want]):
            numbers[place] = None
    taken = shown.keys() | set(numbers)
    free = (number for number in count(1) if number not in taken)
    for group in sorted(fresh, key=lambda group: _position(uses[group[0]].spot)):
        number = next(free)
        for place in group:
            numbers[place] = number
    return numbers


def _without_own(
    groups: list[list[int]], uses: list[_Use], shown: Counter[int | None]
) -> tuple[list[list[int]], dict[int, list[set[Any]]]]:
    """Groups that cannot have the number they ask for, and who holds which."""
    owned: dict[int | None, set[Any]] = defaultdict(set)
    for use in uses:
        if use.fits:
            owned[use.want].add(use.spot)
    held: dict[int, list[set[Any]]] = {}
    fresh: list[list[int]] = []
    for group in groups:
        want, spot, _ = uses[group[0]]
        if spot is None:
            continue
        spots = {uses[place].spot for place in group if uses[place].fits}
        if want is None or want > _LARGEST_MARKER or shown[want] != len(owned[want]):
            fresh.append(group)
        elif want not in held:
            # Only a number that is printed wherever it is used can be shared.
            held[want] = [spots if len(spots) == len(group) else set()]
        elif len(spots) == len(group) and held[want][0] == spots and len(held[want]) < _SHARING:
            held[want].append(spots)
        else:
            fresh.append(group)
    return fresh, held


def _misread(plan: _Plan, citations: tuple[Citation, ...], text: str) -> set[int]:
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for span, labels in _printed(text, (number for number in plan.numbers if number is not None)).items():
        for label in labels:
            found[label].add(span)
    misread: set[int] = set()
    for group in plan.groups:
        number = plan.numbers[group[0]]
        markers = (citations[place].marker for place in group)
        spans = {(marker.start, marker.end) for marker in markers if marker}
        if number is not None and spans != found.get(number, set()):
            misread.update(group)
    return misread


def _is_new(citation: Citation, number: int | None) -> bool:
    if citation.ordinal != number:
        return True
    return citation.marker is None and number is not None and bool(citation.insert_at or citation.claim)


def _with_number(citation: Citation, number: int | None, fitting: Fitting) -> Citation:
    if citation.ordinal == number:
        return citation
    reason = "stands for something else in the text" if number is None else f"made up: {number}"
    fitting.lose("ordinal", reason, citation=citation.id)
    return replace(citation, ordinal=number)


def _marker(citation: Citation) -> str | None:
    return None if citation.ordinal is None else f"[{citation.ordinal}]"


def _position(spot: Span | Point | None) -> int:
    return spot.end if isinstance(spot, Span) else spot.at if spot else 0


def _fields_of(citation: Citation, sources: dict[str, Source]) -> _Fields | None:
    if not citation.refs:
        return None
    ref = citation.refs[0]
    source = sources[ref.source_id]
    media = source.metadata.get("type") if source.metadata else None
    return _Fields(
        citation.ordinal,
        ref.quote,
        ref.anchor,
        ref.locator,
        media or ("document" if source.url is None else "url"),
        source.file_id,
        source.url,
        source.title,
        source.domain,
        _extras(source.metadata) if source.metadata else (),
    )


_Home = tuple[int, int]
_Named = tuple[str, _Record, Citation]

_KEY = re.compile(r"[0-9a-f]{16}(?:\.\d+)*")
# The key of an entry with nothing in it.
_KEYLESS = "98c4b7d37a4c63c3"
_LAST = 2**63


class _Layout:
    """Where things go: back to where they were read from, or into a new record."""

    def __init__(self, native: Native | None) -> None:
        self.native = native
        self.was: _Was = native.was if native else _Was(None, None, (), None, ())
        self.raw: Json = get_at(native.raw, native.at) if native else {}
        self.kept: _Kept = native.kept if native else _Kept(frozenset(), frozenset(), ())
        self.in_block = self.was.in_block is not None
        self.block_stays = False

    def need_id(self, fitting: Fitting) -> None:
        """A message of shared state goes by its key when it has no id."""
        if self.native and self.native.at[:1] == ("messages",) and fitting.answer.id is None:
            name = self.native.at[-1]
            fitting.lose("answer.id", f"will read as {name}")
            fitting.answer = replace(fitting.answer, id=name)

    def arrange(self, records: list[_Record], fitting: Fitting) -> list[_Record]:
        """The records as a reader will come upon them."""
        _share_verdicts(records, fitting)
        homes = self._homes(records, fitting.answer.citations)
        if self.in_block:
            self.block_stays = self._is_as_it_was(records, homes)
            homes = homes if self.block_stays else _by_attachment(records, homes)
        return [
            records[n]._replace(within=bool(homes[n][0] and records[n].fields))
            for n in sorted(range(len(records)), key=homes.__getitem__)
        ]

    def _homes(self, records: list[_Record], citations: tuple[Citation, ...]) -> list[_Home]:
        """Entries come first, then verdicts that stand alone or hold their entry; what is new comes last."""
        known: dict[Any, _Home] = {}
        for rank, name in ((1, "verifications"), (0, "citations")):
            known |= {key: (rank, place) for place, key in enumerate(self.raw.get(name) or ())}
        known |= {place: (0, place) for place in range(self.was.in_block or 0)}
        homes: list[_Home] = []
        for record in records:
            rank, place = known.pop(record.at, (0, _LAST))
            if record.fields is None:
                rank, place = 1, place if rank else _LAST
            elif rank and citations[record.places[0]].verification is None:
                rank, place = 0, _LAST
            homes.append((rank, place))
        return homes

    def _is_as_it_was(self, records: list[_Record], homes: list[_Home]) -> bool:
        entries = sorted((place, n) for n, (rank, place) in enumerate(homes) if not rank)
        if [place for place, _ in entries] != list(range(self.was.in_block or 0)):
            return False
        natives = [(records[n].native, records[n].fields) for _, n in entries]
        return all(native and native.was == fields for native, fields in natives)

    def named(self, records: list[_Record], fitting: Fitting) -> list[_Named]:
        """Each record with its key and its first citation; ids become what a reader makes of the keys."""
        groups = fitting.groups()
        keys = self._keys(records, [group[0].id for group in groups])
        names = Names()
        for key in keys:
            names.give(key)
        pairs = list(zip(keys, groups, strict=True))
        fitting.rename([names.give(key) if use else key for key, group in pairs for use in range(len(group))])
        return [(key, record, group[0]) for record, (key, group) in zip(records, pairs, strict=True)]

    def _keys(self, records: list[_Record], ids: list[str]) -> list[str]:
        """Keys as they were; new ones by content, except that an id which is a key stays one."""
        keys, names = Keys(), Names()
        for key in self.kept.citations:
            names.give(key)
        own = [not self.in_block and isinstance(record.at, str) for record in records]
        kept = [names.give(record.at) if stays else "" for record, stays in zip(records, own, strict=True)]
        for key in () if self.in_block else self.kept.verdicts:
            names.give(key)
        return [
            key if stays else names.give(self._key(record, name, keys))
            for key, stays, record, name in zip(kept, own, records, ids, strict=True)
        ]

    def _key(self, record: _Record, name: str, keys: Keys) -> str:
        if record.fields is None or record.within:
            key = record.at if isinstance(record.at, str) else name
            return key if _is_safe(key) else _KEYLESS
        if not self.in_block and _KEY.fullmatch(name):
            return name
        return record.fields.key(keys, in_block=self.in_block)

    def payload(self, answer: Answer, named: list[_Named]) -> Json:
        out = dict(self.raw)
        cited: Json = {}
        verdicts: Json = {}
        for key, record, first in named:
            entry = _write_entry(record.fields, record.native) if record.fields else {}
            if first.verification:
                verdicts[key] = _with_entry(_write_verdict(first.verification), record, entry)
            if record.fields and not record.within:
                cited[key] = entry
        self._put_text(out, answer, [record for _, record, _ in named])
        if not self.in_block:
            _put_record(out, "citations", self.kept.citations, cited, always=self.native is None)
        _put_record(out, "verifications", self.kept.verdicts, verdicts)
        if answer.id != self.was.id:
            out = overlay(out, {"messageId": answer.id})
        return self._envelope(out, named)

    def _put_text(self, out: Json, answer: Answer, records: list[_Record]) -> None:
        if not answer.parts:
            if out.get("text") is not None:
                del out["text"]
            return
        text, hidden = answer.parts[0].text, self.was.hidden
        if self.in_block and not self.block_stays:
            entries = [(r.fields, r.native) for r in records if r.fields and not r.within]
            body = f"\n{_write_block(entries, self.kept.entries)}\n"
            hidden = (hidden[0]._replace(body=body, behind=hidden[0].behind or END),)
        text = _compose(text, hidden, at_end=text != self.was.text)
        if self.was.text is None or text != _compose(self.was.text, self.was.hidden):
            out["text"] = text

    def _envelope(self, record: Json, named: list[_Named]) -> Json:
        if self.native is None:
            return record
        payload: Json = self.native.raw
        if self.native.at[:1] == ("messages",):
            # State also holds all entries and verdicts at its top, and counts them.
            changes = {name: _changes(self.raw, record, name) for name in ("citations", "verifications")}
            if any(changes.values()) and is_object(summary := record.get("summary")):
                record["summary"] = _summary(summary, named)
            for name, changed in changes.items():
                if changed and is_object(every := payload.get(name)):
                    payload = {**payload, name: {**every, **changed}}
        return put_at(payload, self.native.at, record)


def _share_verdicts(records: list[_Record], fitting: Fitting) -> None:
    """An entry has one verdict, whichever of its markers it was reached on."""
    citations = list(fitting.answer.citations)
    for record in records:
        verdict = next((v for place in record.places if (v := citations[place].verification)), None)
        for place in record.places:
            citation = citations[place]
            if citation.verification is not verdict and _said(citation.verification) != _said(verdict):
                fitting.lose("verification", "the entry has another one already", citation=citation.id)
                citations[place] = replace(citation, verification=verdict)
    fitting.answer = replace(fitting.answer, citations=tuple(citations))


def _by_attachment(records: list[_Record], homes: list[_Home]) -> list[_Home]:
    groups: dict[str | None, int] = {}
    return [
        home if home[0] or fields is None else (0, groups.setdefault(fields.file_id, len(groups)))
        for (_, fields, _, _), home in zip(records, homes, strict=True)
    ]


def _put_record(out: Json, name: str, kept: frozenset[Any], written: Json, *, always: bool = False) -> None:
    """What could not be read stays where it was; what is gone from the model goes."""
    raw: Json | None = out.get(name)
    if written or raw or always:
        old = {key: value for key, value in (raw or {}).items() if key in written or key in kept}
        out[name] = {**old, **written}


def _with_entry(out: Json, record: _Record, entry: Json) -> Json:
    """A verdict with the entry within it, where it has one."""
    inner, native = out.get("citation"), record.native
    if record.within:
        new = entry
    elif record.fields is None:
        new = None
    elif is_object(inner) and native and native.was is not None:
        new = _changed(inner, native.was, record.fields)
    else:
        return out
    return out if new is inner else overlay(out, {"citation": new})


def _changes(before: Json, after: Json, name: str) -> Json:
    old: Json = before.get(name) or {}
    new: Json = after.get(name) or {}
    return {key: value for key, value in new.items() if old.get(key) is not value}


def _summary(kept: Json, named: list[_Named]) -> Json:
    verdicts = [first.verification for _, _, first in named]
    counts = Counter(verdict.status if verdict else "pending" for verdict in verdicts)
    counts.update(total=len(named), missed=counts["altered"])
    return overlay(kept, {name: counts[name] for name in kept if name == "total" or name in _WORD})
