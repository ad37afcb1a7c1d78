"""Finds, reads and rewrites the data blocks in model text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from citewire.codec import decode, encode
from citewire.dialects.base import Json, is_list, is_object
from citewire.dialects.deepcitation.entry import (
    ALIASES,
    BLOCK_END,
    BLOCK_SPELLINGS,
    BLOCK_START,
    MODEL_FIELDS,
    PROMPTED_FIELDS,
    SPELLINGS,
    EntryFields,
    as_json,
    canonicalize,
    type_of,
)
from citewire.errors import ShapeError
from citewire.model import Native, Times

UnreadEntries = tuple[tuple[str | None, Any], ...]
# A delimiter that the text only mentions is not followed by any of these.
_BLOCK_FOLLOWS = re.compile(r"\s*(?:\{|\[\s*[{\]]|```|<<<END_CITATION_DATA>>>|\Z)")
_BLANK_TO_END = re.compile(r"\s*\Z")
_UNSAFE = frozenset({"__proto__", "constructor", "prototype"})


def is_safe_key(key: Any) -> bool:
    return isinstance(key, str) and key not in _UNSAFE


class HiddenBlock(NamedTuple):
    """A data block: its offset in the visible text, and the text before, inside and after its JSON."""

    at: int
    before: str
    body: str
    behind: str


def split_text(text: str) -> tuple[str, tuple[HiddenBlock, ...]]:
    """Split a text into the visible text and its data blocks."""
    visible: list[str] = []
    hidden: list[HiddenBlock] = []
    at = length = 0
    for start, body, end, behind in find_blocks(text):
        shown = text[at:start].rstrip()
        visible.append(shown)
        length += len(shown)
        hidden.append(HiddenBlock(length, text[at + len(shown) : body], text[body:end], text[end:behind]))
        at = behind
    visible.append(text[at:])
    return "".join(visible), tuple(hidden)


def find_blocks(text: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield the offsets of each block: its start, the start and end of its body, and its end."""
    at = text.find(BLOCK_START)
    while at >= 0:
        body = at + len(BLOCK_START)
        if _BLOCK_FOLLOWS.match(text, body):
            end = text.find(BLOCK_END, body)
            behind = len(text) if end < 0 else end + len(BLOCK_END)
            behind = len(text) if _BLANK_TO_END.match(text, behind) else behind
            yield at, body, len(text) if end < 0 else end, behind
            body = behind
        at = text.find(BLOCK_START, body)


def compose_text(text: str, hidden: tuple[HiddenBlock, ...], *, at_end: bool = False) -> str:
    """Put the data blocks back into the text at their old positions, or all at the end."""
    pieces: list[str] = []
    at = 0
    for block in hidden:
        to = len(text) if at_end else block.at
        pieces += (text[at:to], block.before, block.body, block.behind)
        at = to
    return "".join((*pieces, text[at:]))


def read_block(body: str) -> list[tuple[str | None, list[Any]]]:
    """Read the entries of a block, in any of its forms, grouped by attachment."""
    value: Any = decode(body) if body.strip() else []
    if is_list(value):
        return [(None, value)]
    if is_object(value) and all(map(is_list, value.values())):
        return [(None if key in {"citations", ""} else key, raws) for key, raws in value.items()]
    if is_object(value) and not ALIASES.keys().isdisjoint(canonicalize(value)):
        return [(None, [value])]
    raise ShapeError("the data block has no citations in it", "")


def write_block(entries: list[tuple[EntryFields, Native | None]], kept: UnreadEntries) -> str:
    """Write a block grouped by attachment; an attachment id that cannot be a key is written in the entry."""
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
    # A quote must not contain a delimiter.
    return encode(groups).decode().replace("<<<", "\\u003c" * 3)


def _block_entry(fields: EntryFields, raw: Json | None) -> Json:
    """Write an entry as the prompt specifies it; its other original fields stay."""
    new = as_json(fields)
    page, times = new.pop("pageNumber"), fields.locator
    new["startPageId"] = page and f"page_number_{page}_index_{page - 1}"
    if isinstance(times, Times):
        new["timestamps"] = {"start_time": times.start, "end_time": times.end}
    if fields.type == type_of(None, fields.url, fields.locator):
        del new["type"]
    del new["attachmentId"]
    out: Json = {"id": fields.number} if fields.number is not None else {}
    for key, value in (raw or {}).items():
        if (name := SPELLINGS.get(key, key)) not in MODEL_FIELDS:
            out[BLOCK_SPELLINGS.get(name, key)] = value
    names = dict.fromkeys((*PROMPTED_FIELDS, *new))
    return out | {BLOCK_SPELLINGS[name]: value for name in names if (value := new[name]) is not None}
