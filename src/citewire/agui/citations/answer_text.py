"""What is read of the text of an answer and of its citations, beside what the scanner finds."""

from __future__ import annotations

from typing import Any, cast

from citewire.agui.events import Json
from citewire.answer_edits import Sentences
from citewire.extraction import extract
from citewire.model import Citation, Point, Span

__all__ = ["cited_sentence", "footnote_label", "is_answer", "is_web_url", "visible_text"]


def is_web_url(address: str) -> bool:
    """Whether it is one to fetch: all else would be taken for a file of this machine."""
    return address.lower().startswith(("http://", "https://"))


def cited_sentence(text: str, sentences: Sentences, citation: Citation) -> str:
    """The sentence that a citation stands behind; empty where it has no place."""
    point = Point(0, citation.marker.start) if citation.marker else citation.insert_at
    found = sentences.sentence_before(point) if point else None
    return text[found.start : found.end] if found else ""


def footnote_label(text: str, marker: Span | None) -> str | None:
    """The label of a marker `[^label]`."""
    shown = text[marker.start : marker.end] if marker else ""
    return shown[2:-1] if shown.startswith("[^") and shown.endswith("]") else None


def visible_text(content: str) -> str:
    """What a reader sees of a text, which may have a data block."""
    may_cite = "<" in content or "&lt;" in content or "cite" in content
    return extract(content).visible_text if may_cite else content


def is_answer(message: Any) -> bool:
    """Whether a message is of an assistant, and has text."""
    fields = cast("Json", message) if isinstance(message, dict) else {}
    return fields.get("role") == "assistant" and isinstance(fields.get("content"), str)
