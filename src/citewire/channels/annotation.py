"""Annotations: the draft that a client sends and the annotation that a channel stores (Ably's spec TAN2)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from msgspec import Struct

from citewire.channels.errors import ChannelError
from citewire.channels.message import KIB, NAME_BYTES, PUBLISH_BYTES, Data, bytes_of, check_ids
from citewire.channels.offsets import OffsetCheck
from citewire.channels.summary import METHODS, SummaryStep, SummaryTotal, method_of

__all__ = [
    "Annotation",
    "AnnotationAction",
    "AnnotationDraft",
    "check_annotation_drafts",
    "check_step",
    "step_of",
]

_MOST = 1_000_000_000
"""The most that one annotation may count: a million of them still fit into a number of JavaScript."""


class AnnotationAction(IntEnum):
    """Whether an annotation is created or deleted."""

    CREATE = 0
    DELETE = 1


class AnnotationDraft(Struct, frozen=True, kw_only=True, rename="camel"):
    """An annotation as a client sends it."""

    message_serial: str
    type: str
    action: AnnotationAction = AnnotationAction.CREATE
    id: str | None = None
    name: str | None = None
    count: int | None = None
    data: Data = None
    encoding: str | None = None
    extras: dict[str, Any] | None = None
    client_id: str | None = None


class Annotation(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An annotation as a channel stores and delivers it. `citewire` is the result of our offset check."""

    action: AnnotationAction
    serial: str
    message_serial: str
    type: str
    timestamp: int
    id: str
    name: str | None = None
    count: int | None = None
    data: Data = None
    encoding: str | None = None
    extras: dict[str, Any] | None = None
    client_id: str | None = None
    connection_id: str | None = None
    citewire: OffsetCheck | None = None


def check_annotation_drafts(notes: Sequence[AnnotationDraft]) -> None:
    """Raise `ChannelError` for drafts that are too large or whose ids do not form one sequence."""
    size = 0
    for note in notes:
        size += bytes_of(note.name, note.data, note.client_id, note.extras)
        bytes_of(note.encoding)
        if max(bytes_of(note.type), bytes_of(note.name)) > NAME_BYTES:
            raise ChannelError(40000, f"the type and the name of an annotation have up to {NAME_BYTES} bytes")
        if not 0 <= (note.count or 0) <= _MOST:
            raise ChannelError(40000, f"an annotation counts 0 to {_MOST}")
    if size > PUBLISH_BYTES:
        raise ChannelError(40009, f"more than {PUBLISH_BYTES // KIB} KiB in one publish")
    check_ids([note.id for note in notes])


def step_of(annotation: AnnotationDraft | Annotation) -> SummaryStep | None:
    """Return the annotation's change to its message's summary; None if its type has no summary."""
    method = method_of(annotation.type)
    if method is None:
        return None
    return SummaryStep(
        type=annotation.type,
        method=method,
        name=(annotation.name or "") if method.named else "",
        client_id=None if method.form is SummaryTotal else annotation.client_id,
        count=(annotation.count or 1) if method.adds and method.named else 1,
        delete=annotation.action is AnnotationAction.DELETE,
    )


def check_step(step: SummaryStep) -> None:
    """Raise `ChannelError` if the step lacks the name or the client id that its method requires (D6)."""
    if step.method.named and not step.name:
        raise ChannelError(40000, f"an annotation of type {step.type} needs a name")
    if step.method.identified and step.client_id is None:
        anyone = ", ".join(name for name, method in METHODS.items() if not method.identified)
        raise ChannelError(40000, f"only with a client id; without one there are {anyone}")
