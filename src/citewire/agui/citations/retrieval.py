"""Finds the texts that an agent answers from, in its tools' results and in the input of its run.

Search results have no standard format, so any text with a name counts as one, wherever it is: the items of
LangChain, LlamaIndex and MCP, of vector stores and of web searches.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from citewire.agui.events import Json
from citewire.codec import decode
from citewire.errors import CitewireError
from citewire.verification.sources import SourceOrigin

__all__ = ["RetrievedText", "find_input_texts", "find_result_texts", "posted_origin"]

# Limits for one result: values that are visited, and nesting depth.
_MOST, _DEEPEST = 20_000, 12

_TEXT = (
    "text", "content", "page_content", "pageContent", "raw_content", "rawContent", "body", "passage", "chunk",
    "excerpt", "snippet", "quote", "highlights", "description", "document", "answer",
)  # fmt: skip
_TITLE = ("title", "name", "filename", "file_name", "fileName", "document_title", "documentTitle", "heading")
_URL = ("url", "uri", "link", "href", "source_url", "sourceUrl", "document_uri", "source", "permalink")
_ID = (
    "id", "id_", "doc_id", "document_id", "documentId", "chunk_id", "file_id", "fileId", "ref", "index",
    "number",
)  # fmt: skip
_PAGE = ("page", "page_number", "pageNumber", "page_label")
# Members that describe the text in the same object.
_ABOUT = ("metadata", "meta", "source", "document", "resource", "node", "location", "web", "retrievedContext")


class RetrievedText(Struct, frozen=True, gc=False):
    """A text that the agent received, and its possible names. `data` is the content of a complete file.

    `origin` is set if a client supplied the text; its names are then the client's claim.
    """

    text: str
    id: str | None = None
    title: str | None = None
    url: str | None = None
    page: int | None = None
    data: bytes | None = None
    origin: SourceOrigin | None = None


def find_result_texts(content: Any, name: str | None = None) -> list[RetrievedText]:
    """Return the texts in a tool's result. A text without a name gets the name of the tool."""
    walk = _ResultWalk()
    found = walk.in_text(content, 0) if isinstance(content, str) else walk.texts(content, False, 0)
    return [each if each.title or each.url or each.id else replace(each, title=name) for each in found]


def posted_origin(_: Json) -> SourceOrigin | None:
    """Return the origin of a result of which only one fact is known: a client posted it."""
    return "posted"


def find_input_texts(
    messages: Iterable[Any],
    context: Iterable[Any],
    result_origin: Callable[[Json], SourceOrigin | None] = posted_origin,
) -> Iterator[RetrievedText]:
    """Yield the texts and files in the input of a run: attachments, earlier tool results, and context.

    `result_origin` returns the origin of a tool result, given its message. All other texts were posted.
    """
    for text in _in_context(context):
        yield replace(text, origin="posted")
    for message in messages:
        fields = cast("Json", message) if isinstance(message, dict) else {}
        is_result = fields.get("role") == "tool"
        origin = result_origin(fields) if is_result else "posted"
        for text in _result(fields) if is_result else _attachments(fields):
            yield replace(text, origin=origin)


def _in_context(context: Iterable[Any]) -> Iterator[RetrievedText]:
    for entry in context:
        fields = cast("Json", entry) if isinstance(entry, dict) else {}
        if isinstance(value := fields.get("value"), str) and value.strip():
            described = fields.get("description")
            yield from find_result_texts(value, described if isinstance(described, str) else None)


def _result(message: Json) -> list[RetrievedText]:
    return find_result_texts(message.get("content"), _first(message, ("name", "toolCallId")))


def _attachments(message: Json) -> Iterator[RetrievedText]:
    parts = message.get("content")
    if message.get("role") != "user" or not isinstance(parts, list):
        return
    for part in cast("list[Any]", parts):
        found = _attachment(cast("Json", part) if isinstance(part, dict) else {})
        if found is not None:
            yield found


def _attachment(part: Json) -> RetrievedText | None:
    """Return the file in a part of a message or of a result; None if there is none."""
    source = part.get("source")
    if part.get("type") not in ("document", "image") or not isinstance(source, dict):
        return None
    held = cast("Json", source)
    about = cast("Json", part.get("metadata")) if isinstance(part.get("metadata"), dict) else {}
    title, name, value = _first(about, _TITLE), _first(part, ("id",)), held.get("value")
    if held.get("type") == "url" and isinstance(value, str):
        return RetrievedText("", name, title, url=value)
    if held.get("type") != "data" or not isinstance(value, str):
        return None
    try:
        return RetrievedText("", name, title, data=b64decode(value, validate=True))
    except (Error, ValueError):
        return None


def _parsed(text: str) -> Any:
    """Return the JSON value in a text, or None if it is not JSON."""
    if not text.lstrip().startswith(("{", "[", '"')):
        return None
    try:
        return decode(text)
    except CitewireError:
        return None


class _ResultWalk:
    """Searches a result for texts, within limits on size and depth."""

    def __init__(self) -> None:
        self._left = _MOST

    def in_text(self, text: str, depth: int) -> Iterator[RetrievedText]:
        """Yield the texts in a JSON text, or the text itself if it is not JSON."""
        value = _parsed(text)
        if isinstance(value, dict | list):
            found = list(self.texts(value, False, depth + 1))
            lines = [] if found else [line for line in islice(_lines(value), _MOST) if line.strip()]
            yield from found or ([RetrievedText("\n".join(lines))] if lines else [])
        elif (plain := value if isinstance(value, str) else text).strip():
            yield RetrievedText(plain)

    def texts(self, value: Any, named: bool, depth: int) -> Iterator[RetrievedText]:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return
        if isinstance(value, list):
            for item in cast("list[Any]", value):
                if isinstance(item, str) and item.strip():
                    yield RetrievedText(item)
                else:
                    yield from self.texts(item, True, depth + 1)
        elif isinstance(value, dict):
            fields = cast("Json", value)
            found = _attachment(fields) or _retrieved(fields, named)
            if found is not None and found == RetrievedText(found.text):
                # A content part of MCP or AG-UI, which may contain the tool's result as JSON.
                yield from self.in_text(found.text, depth)
            elif found is not None:
                yield found
            else:
                for inner in fields.values():
                    if isinstance(inner, dict | list):
                        yield from self.texts(cast("Any", inner), False, depth + 1)


def _retrieved(fields: Json, named: bool) -> RetrievedText | None:
    """Return the text of an item with its names; None for an object that only contains others."""
    about = [fields, *_about(fields)]
    about += [inner for each in about[1:] for inner in _about(each)]
    title, url, name = (
        next((said for each in about if (said := _first(each, keys)) is not None), None)
        for keys in (_TITLE, _URL, _ID)
    )
    text = next((said for each in about if (said := _text(each)) is not None), None)
    if text is None or not (named or title or url or name):
        return None
    page = next((page for each in about for key in _PAGE if type(page := each.get(key)) is int), None)
    return RetrievedText(text, name, title, url, page)


def _about(fields: Json) -> list[Json]:
    return [cast("Json", fields[key]) for key in _ABOUT if isinstance(fields.get(key), dict)]


def _lines(value: Any, name: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the values of an object that contains no named text, one value per line."""
    if depth > _DEEPEST:
        return
    if isinstance(value, dict):
        for key, inner in cast("Json", value).items():
            yield from _lines(inner, key, depth + 1)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _lines(inner, name, depth + 1)
    else:
        yield f"{name}: {value}" if name else str(value)


def _text(fields: Json) -> str | None:
    for key in _TEXT:
        value = fields.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list):
            parts = [_part(part) for part in cast("list[Any]", value)]
            if any(parts) and all(part is not None for part in parts):
                return "\n".join(cast("list[str]", parts))
    return None


def _part(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    inner = cast("Json", part) if isinstance(part, dict) else {}
    plain = inner.keys() <= {"type", "text", "annotations", "citations", "id"}
    return inner["text"] if plain and isinstance(inner.get("text"), str) else None


def _first(fields: Json, names: Iterable[str]) -> str | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if type(value) is int:
            return str(value)
    return None
