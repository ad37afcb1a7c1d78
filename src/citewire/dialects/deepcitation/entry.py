"""A citation entry: every spelling of a field is read into `EntryFields` and written back as it was."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, cast

from msgspec import Meta, Struct
from msgspec.structs import replace

from citewire.dialects.base import Json, is_list, is_object
from citewire.errors import ShapeError
from citewire.keys import CitationKeys
from citewire.model import Lines, Locator, Native, Pages, Source, SourceKind, SourceRef, Times

NAME = "deepcitation"
UPSTREAM = "deepcitation 0.2.1 / HEAD 69c0450, 2026-03-14"
SUPPORTED_FIELDS = frozenset(
    {
        *("marker", "ordinal", "verification", "answer.id", "refs.quote", "refs.anchor"),
        *("refs.locator.pages", "refs.locator.lines", "refs.locator.times"),
        *("source.url", "source.title", "source.file_id", "source.domain", "source.metadata"),
    }
)
BLOCK_START = "<<<CITATION_DATA>>>"
BLOCK_END = "<<<END_CITATION_DATA>>>"
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
SPELLINGS = {spelling: name for name, spellings in ALIASES.items() for spelling in spellings}
_TEXTS = frozenset({"type", "attachmentId", "fullPhrase", "anchorText", "value", "url", "title", "domain"})
# Fields that only web citations have; they are metadata of the source in our model.
_EXTRAS = (
    *("description", "faviconUrl", "sourceType", "platform", "siteName"),
    *("author", "publishedAt", "imageUrl", "accessedAt"),
)
_EXTRA_NAMES = frozenset(_EXTRAS)
MEDIA_TYPES = ("audio", "video")
_PLACES = ("pageNumber", "lineIds", "timestamps")
# Other fields with the same meaning, which must be removed on a change.
_STALE = {"pageNumber": ("startPageId", *ALIASES["startPageId"]), "anchorText": ("value",)}
MODEL_FIELDS = ALIASES.keys() - {"reasoning", "claimText", "startTime", "endTime"}
BLOCK_SPELLINGS = {
    name: next((s for s in spellings if "_" in s), name) for name, spellings in ALIASES.items()
}
BLOCK_SPELLINGS.update(citationNumber="id", startPageId="page_id")
PROMPTED_FIELDS = ("fullPhrase", "anchorText", "startPageId", "lineIds")
_PAGE = re.compile(r"(?:page[_a-z]{0,30})?(\d{1,9})(?:_(?:index_)?(\d{1,9}))?", re.IGNORECASE)
_LONGEST_PAGE = 64
_DIGITS = re.compile(r"[0-9]{1,15}")
# The largest exact integer in JavaScript.
MAX_NUMBER = 2**53


def canonicalize(entry: Json) -> Json:
    """Return `entry` with published field names, itself if it has no others. Unknown fields stay."""
    if SPELLINGS.keys().isdisjoint(entry):
        return entry
    out: Json = {}
    clashes: set[str] = set()
    for key, value in entry.items():
        name = SPELLINGS.get(key, key)
        if name in out:
            clashes.add(name)
        out[name] = value
    for name in clashes:
        spelled = [entry[key] for key in (name, *ALIASES[name]) if key in entry]
        out[name] = next((value for value in spelled if value is not None), None)
    return out


class EntryFields(NamedTuple):
    """The fields of an entry that the model can represent."""

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

    def key(self, keys: CitationKeys, *, in_block: bool = False) -> str:
        """Return the published key; the data block parser sorts the lines first."""
        ref = self.ref("")
        if in_block and isinstance(self.locator, Lines):
            ref = replace(ref, locator=Lines(tuple(sorted(self.locator.ids)), self.locator.page))
        source = Source("", self.kind, self.url, self.title, file_id=self.file_id, domain=self.domain)
        return keys.assign(ref, source)


class PromptedEntry(Struct, forbid_unknown_fields=True, gc=False):
    """An entry exactly as the published prompt specifies it; nothing has to be inferred."""

    id: Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
    full_phrase: str
    reasoning: str | None = None
    anchor_text: str | None = None
    page_id: str | None = None
    line_ids: tuple[Annotated[int, Meta(ge=0, le=MAX_NUMBER)], ...] = ()

    def fields(self, attachment: str | None) -> EntryFields:
        """Return the same result as `read_fields`."""
        page = None if self.page_id is None else _page_of(self.page_id[:_LONGEST_PAGE]) or None
        pages = None if page is None else Pages(page, page)
        locator = Lines(self.line_ids, page) if self.line_ids else pages
        quote, anchor = self.full_phrase, self.anchor_text
        return EntryFields(self.id, quote, anchor, locator, "document", attachment, None, None, None, ())


def read_fields(raw: Any, attachment: str | None) -> EntryFields:
    if not is_object(raw):
        raise ShapeError("a citation is not an object", "")
    entry = canonicalize(raw)
    for name, value in entry.items():
        if type(value) is not str and value is not None and name in _TEXTS:
            raise _wrong(raw, name, "a string")
    get = entry.get
    locator = _read_locator(raw, entry)
    file_id, anchor, url = get("attachmentId"), get("anchorText"), get("url")
    if url is None and get("type") == "url":
        raise ShapeError("a citation of type url has none", ".url")
    return EntryFields(
        _read_number(raw, get("citationNumber")),
        get("fullPhrase"),
        get("value") if anchor is None else anchor,
        locator,
        type_of(get("type"), url, locator),
        attachment if file_id is None else file_id,
        url,
        get("title"),
        get("domain"),
        () if _EXTRA_NAMES.isdisjoint(entry) else extras_of(entry),
    )


def _wrong(raw: Json, name: str, wanted: str) -> ShapeError:
    spelling = next((key for key in (name, *ALIASES[name]) if raw.get(key) is not None), name)
    return ShapeError(f"{spelling} is not {wanted}", f".{spelling}")


def type_of(word: Any, url: str | None, locator: Locator | None) -> str:
    """Return the type: without an explicit one, a URL means web and a time range means audio."""
    if word in MEDIA_TYPES:
        return cast("str", word)
    if url is not None:
        return "url"
    return "audio" if isinstance(locator, Times) else "document"


def extras_of(entry: Json) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name in _EXTRAS if isinstance(value := entry.get(name), str))


def metadata_of(media: Any, extras: tuple[tuple[str, str], ...]) -> Json:
    return {"type": media, **dict(extras)} if media in MEDIA_TYPES else dict(extras)


def _read_number(raw: Json, value: Any) -> int | None:
    number = _whole(value)
    if number is None and value is not None:
        raise _wrong(raw, "citationNumber", "a number")
    return number


def _whole(value: Any) -> int | None:
    if type(value) is int:
        return value if 0 <= value <= MAX_NUMBER else None
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else None


def is_page(page: int | None) -> bool:
    return page is not None and 1 <= page <= MAX_NUMBER


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
    times = canonicalize(value) if is_object(value) else {"startTime": value}
    start, end = times.get("startTime"), times.get("endTime")
    if not is_object(value) or not all(at is None or isinstance(at, str) for at in (start, end)):
        raise _wrong(raw, "timestamps", "an object with startTime and endTime")
    return Times(start, end)


def _read_page(raw: Json, entry: Json) -> int | None:
    """Return the page from the page number or page id, None if the value is not a page."""
    for name in ("pageNumber", "startPageId"):
        value = entry.get(name)
        if isinstance(value, str):
            page = _page_of(value[:_LONGEST_PAGE])
        elif value is None:
            continue
        elif _whole(value) is None:
            raise _wrong(raw, name, "a page")
        else:
            page = value
        if page:
            return page
    return None


@lru_cache
def _page_of(page_id: str) -> int:
    """Return the page number, which starts at one; models also write the first page as `0_0`."""
    found = _PAGE.fullmatch(page_id)
    return int(found[1]) or int(found[2] is not None and int(found[2]) == 0) if found else 0


def as_json(fields: EntryFields) -> Json:
    """Return an entry with the published field names; missing values are None."""
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


def write_entry(fields: EntryFields, native: Native | None) -> Json:
    if native is None or native.was is None:
        return {name: value for name, value in as_json(fields).items() if value is not None}
    return update_entry(native.raw, native.was, fields)


def update_entry(raw: Json, was: EntryFields, fields: EntryFields) -> Json:
    """Return `raw` with the changed fields, in its own spelling."""
    if was == fields:
        return raw
    before, out = as_json(was), dict(raw)
    moved = _PLACES if was.locator != fields.locator else ()
    for name, value in as_json(fields).items():
        if value == before[name] and name not in moved:
            continue
        spellings = [key for key in (name, *ALIASES[name]) if key in raw]
        for key in (*spellings, *_STALE.get(name, ())):
            out.pop(key, None)
        if value is not None:
            out[spellings[0] if spellings else name] = value
    if type_of(out.get("type"), fields.url, fields.locator) != fields.type:
        out["type"] = fields.type
    return out
