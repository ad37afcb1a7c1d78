"""Data blocks in model text: where they are, what is in them, and how they are written anew."""

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
# A delimiter that is only talked about is followed by none of these.
_BLOCK_FOLLOWS = re.compile(r"\s*(?:\{|\[\s*[{\]]|```|<<<END_CITATION_DATA>>>|\Z)")
_BLANK_TO_END = re.compile(r"\s*\Z")
_UNSAFE = frozenset({"__proto__", "constructor", "prototype"})


def is_safe_key(key: Any) -> bool:
    return isinstance(key, str) and key not in _UNSAFE


class HiddenBlock(NamedTuple):
    """A data block: where in the visible text it stood, and the text before, within and behind its JSON."""

    at: int
    before: str
    body: str
    behind: str


def split_text(text: str) -> tuple[str, tuple[HiddenBlock, ...]]:
    """The visible text, and the data blocks that stood in it."""
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
    """Where each block starts, where its body does, where that ends, and where the text goes on."""
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
    """The text with its data blocks where they stood, or all at its end."""
    pieces: list[str] = []
    at = 0
    for block in hidden:
        to = len(text) if at_end else block.at
        pieces += (text[at:to], block.before, block.body, block.behind)
        at = to
    return "".join((*pieces, text[at:]))


def read_block(body: str) -> list[tuple[str | None, list[Any]]]:
    """The entries of a block by attachment, in whichever of its shapes."""
    value: Any = decode(body) if body.strip() else []
    if is_list(value):
        return [(None, value)]
    if is_object(value) and all(map(is_list, value.values())):
        return [(None if key in {"citations", ""} else key, raws) for key, raws in value.items()]
    if is_object(value) and not ALIASES.keys().isdisjoint(canonicalize(value)):
        return [(None, [value])]
    raise ShapeError("the data block has no citations in it", "")


def write_block(entries: list[tuple[EntryFields, Native | None]], kept: UnreadEntries) -> str:
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


def _block_entry(fields: EntryFields, raw: Json | None) -> Json:
    """An entry as the prompt asks for it; what else it had stays."""
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
