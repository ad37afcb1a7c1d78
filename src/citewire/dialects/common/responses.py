"""Shared code for Responses formats: output items contain messages, and messages contain annotated texts."""

from __future__ import annotations

from typing import Any

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    Json,
    interleave,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    require,
)
from citewire.dialects.common.annotations import AnnotationReader, AnnotationWriter, write_annotations
from citewire.errors import ShapeError
from citewire.model import Answer, Citation, Native

__all__ = ["find_response_dialect", "group_by_part", "read_response", "write_response"]


def find_response_dialect(response: Any) -> str | None:
    """Return the dialect of a response. Only this function decides, so no two dialects claim the same one."""
    if not is_object(response) or response.get("object") != "response" or not is_list(response.get("output")):
        return None
    model, usage = response.get("model"), response.get("usage")
    is_grok = isinstance(model, str) and model.startswith("grok")
    return "xai" if is_grok or (is_object(usage) and "num_sources_used" in usage) else "openai.responses"


def read_response(response: Json, reader: AnnotationReader) -> Answer:
    """Read the answer in a response; `reader` reads the annotations."""
    for number, item in enumerate(require(response, "output", list, "$")):
        if is_object(item) and item.get("type") == "message":
            _read_message(item, number, reader)
    return reader.answer(optional(response, "id", str, "$"), Native(reader.dialect, response))


def _read_message(item: Json, number: int, reader: AnnotationReader) -> None:
    where = f"$.output[{number}]"
    contents = reader.problems.try_read(lambda: where, require, item, "content", list)
    for at, content in enumerate(contents or ()):
        if is_object(content) and content.get("type") == "output_text":
            place = f"{where}.content[{at}]"
            if isinstance(text := content.get("text"), str):
                reader.read_text(text, content, (number, at), place)
            else:
                reader.problems.add(place, ShapeError("text is missing or not a string", ".text"))


def group_by_part(answer: Answer, dialect: str) -> list[list[Citation]]:
    """Group citations by part. One without a position goes to its old part, else with the one before."""
    homes = {
        native.at: number
        for number, part in enumerate(answer.parts)
        if (native := native_for(part.native, dialect))
    }
    found: list[list[Citation]] = [[] for _ in answer.parts]
    home = 0
    for citation in answer.citations:
        place = citation.marker or citation.insert_at or citation.claim
        native = native_for(citation.native, dialect)
        if place is not None:
            home = place.part
        elif native is not None:
            home = homes.get(native.at[:-1], home)
        found[home].append(citation)
    return found


def write_response(answer: Answer, fitting: Adaptation, envelope: Json, entry: AnnotationWriter) -> Json:
    """Write the finished answer into its original response, else into a new `envelope`."""
    dialect = fitting.dialect
    native = native_for(answer.native, dialect)
    contents: list[tuple[Native | None, Json]] = []
    for part, citations in zip(answer.parts, fitting.groups(), strict=True):
        kept = native_for(part.native, dialect)
        fields = {"text": part.text, **write_annotations(part, citations, dialect, entry)}
        content = overlay(kept.raw if kept else {"type": "output_text"}, fields)
        contents.append((kept if native else None, content))
    if native is None:
        return overlay(envelope, {"id": answer.id, "output": [_message([one for _, one in contents])]})
    return overlay(native.raw, {"id": answer.id, "output": _output(native.raw["output"], contents)})


def _message(contents: list[Json]) -> Json:
    return {"type": "message", "role": "assistant", "content": contents}


def _output(old: list[Any], contents: list[tuple[Native | None, Json]]) -> list[Any]:
    """Replace the text of each message in the output; new content is added to the last message."""
    by_item: dict[int, list[tuple[int | None, Any]]] = {}
    last = next((number for number in reversed(range(len(old))) if _is_message(old[number])), None)
    for native, content in contents:
        item, at = native.at if native else (last, None)
        by_item.setdefault(len(old) if item is None else item, []).append((at, content))
    output: list[Any] = []
    for number, item in enumerate(old):
        if number in by_item:
            others = tuple(
                (at, content) for at, content in enumerate(item["content"]) if not _is_text(content)
            )
            output.append({**item, "content": interleave(others, by_item[number])})
        elif not _is_message(item) or not any(map(_is_text, item["content"])):
            output.append(item)
    if len(old) in by_item:
        output.append(_message([content for _, content in by_item[len(old)]]))
    return output


def _is_message(item: Any) -> bool:
    return is_object(item) and item.get("type") == "message" and is_list(item.get("content"))


def _is_text(content: Any) -> bool:
    return (
        is_object(content) and content.get("type") == "output_text" and isinstance(content.get("text"), str)
    )
