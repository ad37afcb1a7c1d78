"""Adapter for LangChain's `AIMessage`, whose text blocks have `citation` annotations.

The blocks are the dialect `langchain`; this module handles the message around them. A provider's message has
that provider's blocks; LangChain translates them into standard ones, which are read here.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace

from citewire.dialects import read as read_payload
from citewire.dialects import write as write_payload
from citewire.dialects.base import Json, get_at, is_list, is_object, native_for
from citewire.errors import ShapeError
from citewire.model import Answer, Native, Written
from citewire.text import Unit

try:
    from langchain_core.messages import AIMessage
    from langchain_core.messages.content import Citation as _  # noqa: F401  # what there is from 1.0 on
except ImportError as error:
    raise ImportError(
        f"citewire.adapters.langchain needs langchain-core 1.0 or newer: pip install langchain-core ({error})"
    ) from error

__all__ = ["read", "write"]

_DIALECT = "langchain"
_GOOGLE = "google_genai"


def read(message: AIMessage, *, unit: Unit | None = None) -> Answer:
    """Read the text of `message` and its citations; `unit` is the unit of its offsets, if not code points.

    Raises `ShapeError` if it is not an `AIMessage`.
    """
    if not isinstance(message, AIMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ShapeError(f"a {type(message).__name__} is no AIMessage")
    content = cast("list[Json]", message.content_blocks)
    if message.response_metadata.get("model_provider") == _GOOGLE:
        content, unit = [_of_google(block) for block in content], unit or "utf8"
    payload: Json = {"type": "ai", "content": content}
    if message.id is not None:
        payload["id"] = message.id
    answer = read_payload(payload, _DIALECT, unit=unit)
    native = answer.native or Native(_DIALECT, payload)
    return replace(answer, native=replace(native, kept=message))


def _of_google(block: Json) -> Json:
    """Correct a block from Google: LangChain copies Google's fields, which count bytes, omit zeros, and
    repeat the words of the answer in place of those of the source."""
    text, cited = block.get("text"), block.get("annotations")
    if not isinstance(text, str) or not is_list(cited):
        return block
    data = text.encode("utf-8", "surrogatepass")
    return {**block, "annotations": [_meant(one, data) for one in cited]}


def _meant(annotation: Any, text: bytes) -> Any:
    if not is_object(annotation) or type(annotation.get("end_index")) is not int:
        return annotation
    said = {"start_index": 0} | {key: value for key, value in annotation.items() if value is not None}
    start, end = said["start_index"], said["end_index"]
    if type(start) is int and text[start:end] == str(said.get("cited_text")).encode("utf-8", "surrogatepass"):
        del said["cited_text"]
    return said


def write(answer: Answer) -> Written:
    """Write `answer` as an `AIMessage` of standard blocks; unsupported fields are in `losses`.

    An unchanged answer returns the message it was read from; of a changed one all but the content stays.
    Raises `ShapeError` as `citewire.write` does.
    """
    written = write_payload(answer, _DIALECT)
    native = native_for(answer.native, _DIALECT)
    message = native.kept if native else None
    if native and message is not None and written.payload == native.raw:
        return replace(written, payload=message)
    fields: Json = get_at(written.payload, native.at) if native else written.payload
    content = fields["content"]
    if message is None:
        message = AIMessage(content="", id=fields.get("id"))
    # Without it, LangChain would take the blocks for the provider's.
    metadata = {**message.response_metadata, "output_version": "v1"}
    update = {"content": content, "id": fields.get("id"), "response_metadata": metadata}
    return replace(written, payload=message.model_copy(update=update))
