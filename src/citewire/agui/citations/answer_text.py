"""Helpers that read an answer's text and citations, in addition to the scanner."""

from __future__ import annotations

from typing import Any, cast

from citewire.agui.events import Json
from citewire.answer_edits import Sentences
from citewire.extraction import extract
from citewire.model import Citation, Point, Span

__all__ = ["cited_sentence", "footnote_label", "is_answer", "is_web_url", "visible_text"]


def is_web_url(address: str) -> bool:
    """Whether the address may be fetched: any other would be read as a file of this machine."""
    return address.lower().startswith(("http://", "https://"))


def cited_sentence(text: str, sentences: Sentences, citation: Citation) -> str:
    """Return the sentence before a citation; empty if the citation has no position."""
    point = Point(0, citation.marker.start) if citation.marker else citation.insert_at
    found = sentences.sentence_before(point) if point else None
    return text[found.start : found.end] if found else ""


def footnote_label(text: str, marker: Span | None) -> str | None:
    """Return the label of a marker `[^label]`; None for other markers."""
    shown = text[marker.start : marker.end] if marker else ""
    return shown[2:-1] if shown.startswith("[^") and shown.endswith("]") else None


def visible_text(content: str) -> str:
    """Return the text that readers see, without a data block."""
    may_cite = "<" in content or "&lt;" in content or "cite" in content
    return extract(content).visible_text if may_cite else content


def is_answer(message: Any) -> bool:
    """Whether a message is an assistant message with text."""
    fields = cast("Json", message) if isinstance(message, dict) else {}
    return fields.get("role") == "assistant" and isinstance(fields.get("content"), str)
