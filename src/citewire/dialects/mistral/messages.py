"""Mistral: a message whose content is a list of chunks, with references among the pieces of text.

A `reference` names tool results by id; a `tool_reference`, which agents produce, describes its source. Both
follow the text they support, and nothing says where that text begins: their position is a point. Chat has the
message in a completion; the Conversations API has messages among its outputs.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    ProblemList,
    SourceRegistry,
    get_at,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    path_text,
    put_at,
    require,
)
from citewire.dialects.common.completions import (
    JsonPath,
    find_completion_dialect,
    is_reference,
    list_messages,
    put_message,
)
from citewire.dialects.common.inline_items import (
    InlineItem,
    fit_points,
    group_by_point,
    offset_of,
    write_items,
)
from citewire.errors import InputError, ShapeError
from citewire.model import Answer, Citation, Native, Part, Point, Source, SourceKind, SourceRef, Written

NAME = "mistral"
UPSTREAM = "mistralai 3.7.0, Chat and Conversations APIs"
READS_TOO = ("openai.chat",)
SUPPORTED_FIELDS = frozenset(
    {
        "answer.id",
        "insert_at",
        "source.index",
        "source.metadata",
        "source.record_id",
        "source.snippet",
        "source.title",
        "source.url",
    }
)

# The default tool of a reference, and the optional fields of one.
_TOOL = "web_search"
_MORE = ("tool", "favicon")


def detect(payload: Any) -> bool:
    return is_object(payload) and (find_completion_dialect(payload) == NAME or _is_conversation(payload))


def _is_conversation(payload: Json) -> bool:
    return payload.get("object") == "conversation.response" and is_list(payload.get("outputs"))


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    del options  # this dialect has no offsets
    if is_object(payload) and _is_conversation(payload):
        outputs = enumerate(payload["outputs"])
        paths = [("outputs", at, "content") for at, output in outputs if _is_output(output)]
        return (_read(payload, tuple(paths), "conversation_id"),)
    return tuple(_read(payload, ((*path, "content"),), "id") for path, _ in list_messages(payload))


def _is_output(output: Any) -> bool:
    return is_object(output) and output.get("type") == "message.output"


def _read(payload: Json, paths: tuple[JsonPath, ...], id_key: str) -> Answer:
    """Read the answer whose contents are at `paths`."""
    reader = _Reader()
    for path in paths:
        message: Json = get_at(payload, path[:-1])
        reader.read_content(message.get("content"), path)
    return Answer(
        parts=tuple(reader.parts),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=optional(payload, id_key, str, "$"),
        problems=tuple(reader.problems),
        native=Native(NAME, payload, paths, was=id_key),
    )


class _Reader:
    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.citations: list[Citation] = []
        self.sources = SourceRegistry()
        self.problems = ProblemList()

    def read_content(self, content: Any, path: JsonPath) -> None:
        """Read the text of a message as a part, with the citations in it."""
        if content is None:
            return
        if isinstance(content, str):
            self.parts.append(Part(content, Native(NAME, [InlineItem(_text(content), content)], path)))
            return
        if not is_list(content):
            raise ShapeError("content is neither text nor a list", path_text(path))
        items: list[InlineItem] = []
        length = 0
        for at, chunk in enumerate(content):
            item = InlineItem(chunk, _visible_text(chunk))
            if is_reference(chunk):
                try:
                    self.citations.append(self._citation(chunk, Point(len(self.parts), length), at))
                    item = InlineItem(chunk, None, is_cited=True)
                except InputError as exc:
                    self.problems.add(f"{path_text(path)}[{at}]", exc)
            items.append(item)
            length += len(item.text or "")
        self.parts.append(Part("".join(item.text or "" for item in items), Native(NAME, items, path)))

    def _citation(self, chunk: Json, point: Point, at: int) -> Citation:
        if chunk["type"] == "reference":
            ids = require(chunk, "reference_ids", list)
            if not ids:
                raise ShapeError("reference_ids is empty", ".reference_ids")
            refs = tuple(SourceRef(self._returned(one)) for one in ids)
        else:
            refs = (SourceRef(self._found(chunk)),)
        name = f"c{len(self.citations) + 1}"
        return Citation(name, refs, insert_at=point, span_origin="exact", native=Native(NAME, chunk, at))

    def _returned(self, name: Any) -> str:
        """Register the tool result with this id."""
        if type(name) is int:
            return self.sources.add("tool", index=name)
        if isinstance(name, str):
            return self.sources.add("tool", record_id=name)
        raise ShapeError("an id is neither a number nor a string", ".reference_ids")

    def _found(self, chunk: Json) -> str:
        """Register the source that a `tool_reference` describes."""
        url, title, words = (optional(chunk, key, str) for key in ("url", "title", "description"))
        more = {key: value for key in _MORE if isinstance(value := chunk.get(key), str)}
        return self.sources.add(
            "document" if url is None else "web", url, title, snippet=words, metadata=_unusual(more)
        )


def _unusual(more: Json) -> Json:
    return {key: value for key, value in more.items() if (key, value) != ("tool", _TOOL)}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _visible_text(chunk: Any) -> str | None:
    """Return the text of a chunk, None if it is not answer text (for example thinking)."""
    if not is_object(chunk) or chunk.get("type") != "text":
        return None
    text = chunk.get("text")
    return text if isinstance(text, str) else None


def write(answer: Answer, options: DialectOptions) -> Written:
    del options
    fitting = Adaptation(answer, NAME)
    native = native_for(answer.native, NAME)
    if answer.citations or native is None:
        fitting.require_text()
    if not _are_apart(fitting.answer, native):
        fitting.join_parts()
    fitting.require_refs()
    _fit_sources(fitting)
    several = [citation for citation in fitting.answer.citations if len(citation.refs) > 1]
    if not all(_is_returned_all(citation, fitting) for citation in several):
        fitting.split_refs()
    fit_points(fitting)
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=_kind,
        origin=lambda citation: "exact",
        group=group_by_point,
        why="citations follow the text",
    )
    sources = {source.id: source for source in fit.sources}
    contents = [
        _content(part, [_cited(citation, sources) for citation in citations], native)
        for part, citations in zip(fit.parts, fitting.groups(), strict=True)
    ]
    return Written(_envelope(native, fit, contents), tuple(fitting.losses))


def _are_apart(answer: Answer, native: Native | None) -> bool:
    """Whether every part still belongs to its own message."""
    homes: list[JsonPath] = [kept.at for part in answer.parts if (kept := native_for(part.native, NAME))]
    are_all = len(homes) == len(answer.parts)
    return native is not None and are_all and homes == [path for path in native.at if path in homes]


def _is_returned(source: Source) -> bool:
    """Whether the id alone describes the source."""
    has_id = source.index is not None or source.record_id is not None
    return has_id and source.url is None and source.title is None and source.snippet is None


def _is_returned_all(citation: Citation, fitting: Adaptation) -> bool:
    return all(_is_returned(fitting.sources[ref.source_id]) for ref in citation.refs)


def _kind(source: Source) -> SourceKind:
    if _is_returned(source):
        return "tool"
    return "document" if source.url is None else "web"


def _fit_sources(fitting: Adaptation) -> None:
    """Fit each source to an id alone or to a description; a title is required unless it was missing."""
    untitled = {
        ref.source_id
        for citation in fitting.answer.citations
        if (native := native_for(citation.native, NAME)) and not native.raw.get("title")
        for ref in citation.refs
    }
    for source in fitting.cited_sources():
        changes: Json = {}

        def change(field: str, value: Any, reason: str, source: Source = source, new: Json = changes) -> None:
            fitting.record_loss(f"source.{field}", reason, source=source.id)
            new[field] = value

        kept: Json = {}
        if _is_returned(source):
            if source.index is not None and source.record_id is not None:
                change("record_id", None, "there is one id, the index")
        else:
            kept = _unusual(
                {key: value for key in _MORE if isinstance(value := source.metadata.get(key), str)}
            )
            for field in ("index", "record_id"):
                if getattr(source, field) is not None:
                    change(field, None, "what is described has no id")
            if source.title is None and source.id not in untitled:
                change("title", source.label, "required: what the source is called")
        if source.metadata != kept:
            change("metadata", kept, f"{NAME} has no place for all of it")
        if changes:
            fitting.sources[source.id] = replace(source, **changes)


def _cited(citation: Citation, sources: dict[str, Source]) -> tuple[int, int | None, Json]:
    native = native_for(citation.native, NAME)
    cited = [sources[ref.source_id] for ref in citation.refs]
    if _is_returned(cited[0]):
        kind = "reference"
        fields: Json = {"reference_ids": [one.record_id if one.index is None else one.index for one in cited]}
    else:
        kind, source = "tool_reference", cited[0]
        fields = {"title": source.title, "url": source.url, "description": source.snippet}
        fields |= {"tool": source.metadata.get("tool", _TOOL), "favicon": source.metadata.get("favicon")}
    raw: Json = native.raw if native and native.raw["type"] == kind else {"type": kind}
    if native and raw is native.raw and "tool" in fields and not isinstance(raw.get("tool"), str):
        del fields["tool"]
    return offset_of(citation), native and native.at, overlay(raw, fields)


def _content(
    part: Part, cited: list[tuple[int, int | None, Json]], native: Native | None
) -> tuple[JsonPath | None, Any]:
    """Return a message's content: a string if it was one or is new, and nothing is cited; else a list."""
    kept = native_for(part.native, NAME) if native else None
    old: list[InlineItem] = kept.raw if kept else []
    was_text = native is None or kept is None or isinstance(get_at(native.raw, kept.at), str)
    content = part.text if was_text and not cited else write_items(part.text, old, cited, _show)
    return (kept.at if kept else None), content


def _show(raw: Any, text: str) -> Json:
    return _text(text) if raw is None else {**raw, "text": text}


def _envelope(native: Native | None, answer: Answer, contents: list[tuple[JsonPath | None, Any]]) -> Json:
    if native is None:
        return put_message(None, answer.id, {"content": contents[0][1]}, {})
    payload: Json = native.raw
    paths: tuple[JsonPath, ...] = native.at
    if not paths and contents:
        paths = (("outputs", len(payload["outputs"]), "content"),)
        payload = {**payload, "outputs": [*payload["outputs"], {"type": "message.output"}]}
    for path, content in contents:
        payload = put_at(payload, path or paths[0], content)
    gone = {path[1] for path in paths[1:]} - {path[1] for path, _ in contents if path}
    if gone:
        outputs = [output for at, output in enumerate(payload["outputs"]) if at not in gone]
        payload = {**payload, "outputs": outputs}
    return overlay(payload, {native.was: answer.id})
