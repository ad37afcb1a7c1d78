"""The `citewire` object: model fields that a dialect cannot express, for dialects that allow extra fields.

PROTOCOL.md describes it in "The citewire object".
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from citewire.adapt import Adaptation, SupportedFields
from citewire.codec import decode, encode, prepare_types
from citewire.dialects.base import Json, is_object
from citewire.errors import ShapeError
from citewire.model import Citation, Locator, Source, SourceKind, Span, Status, Verification

__all__ = ["EXTENSIBLE_FIELDS", "EXTENSION_KEY", "ExtensionFields", "drop_reserved_key", "pack", "unpack"]

EXTENSION_KEY = "citewire"

EXTENSIBLE_FIELDS: SupportedFields = frozenset(
    {
        "answer.id",
        "claim",
        "refs.anchor",
        "refs.locator.blocks",
        "refs.locator.chars",
        "refs.locator.chunk",
        "refs.locator.lines",
        "refs.locator.opaque",
        "refs.locator.pages",
        "refs.locator.times",
        "refs.quote",
        "refs.score",
        "source.domain",
        "source.file_id",
        "source.filename",
        "source.index",
        "source.metadata",
        "source.record_id",
        "source.snippet",
        "source.title",
        "source.url",
        "verification",
    }
)
"""What a dialect has a place for that carries the object, and a title, a URL, a quote and metadata itself."""


class ExtensionFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of the object: a verdict, then the location in the source, then more about the source.

    `claim` is in code points of the answer's text; `kind` and the fields after it describe the source.
    """

    status: Status | None = None
    reason: str | None = None
    found: str | None = None
    page: int | None = None
    locator: Locator | None = None
    anchor: str | None = None
    score: float | None = None
    claim: tuple[int, int] | None = None
    kind: SourceKind | None = None
    filename: str | None = None
    file_id: str | None = None
    record_id: str | None = None
    index: int | None = None
    domain: str | None = None
    snippet: str | None = None

    @property
    def verification(self) -> Verification | None:
        return None if self.status is None else Verification(self.status, self.reason, self.found, self.page)

    def span(self, length: int | None) -> Span | None:
        """Return the claim. Raises `ShapeError` if it is reversed or outside a text of `length`."""
        if self.claim is None:
            return None
        start, end = self.claim
        if not 0 <= start <= end or (length is not None and end > length):
            raise ShapeError(
                f"claim {start} to {end} is reversed or outside the text", f".{EXTENSION_KEY}.claim"
            )
        return Span(0, start, end)


prepare_types(ExtensionFields)


def pack(citation: Citation, source: Source, kind: SourceKind, kept: Any = None) -> dict[str, Any] | None:
    """Return the object for a citation of one source, or None if it would be empty.

    `kind` is the source kind that a reader infers without the object. `kept` is the original object: its
    unknown fields stay.
    """
    ref, verdict, claim = citation.refs[0], citation.verification, citation.claim
    fields: Json = {}
    if verdict is not None:
        fields = {"status": verdict.status}
        more = {"reason": verdict.reason, "found": verdict.quote, "page": verdict.page}
        fields |= {name: value for name, value in more.items() if value is not None}
    if ref.locator is not None:
        fields["locator"] = decode(encode(ref.locator))
    if claim is not None:
        fields["claim"] = [claim.start, claim.end]
    if source.kind != kind or (is_object(kept) and kept.get("kind") == source.kind):
        fields["kind"] = source.kind
    if ref.anchor is not None:
        fields["anchor"] = ref.anchor
    if ref.score is not None:
        fields["score"] = ref.score
    about = _about_source(source)
    if about != _NO_MORE:
        fields |= {name: value for name, value in zip(_OF_SOURCE, about, strict=True) if value is not None}
    if is_object(kept):
        others = {name: value for name, value in kept.items() if value is None or name not in _FIELDS}
        fields = others | fields if others else fields
    return fields if fields or kept == {} else None


_FIELDS = frozenset(ExtensionFields.__struct_fields__)
_OF_SOURCE = ("filename", "file_id", "record_id", "index", "domain", "snippet")
_about_source = attrgetter(*_OF_SOURCE)
_NO_MORE = (None,) * len(_OF_SOURCE)


def unpack(raw: Any, where: str) -> ExtensionFields:
    """Read the object. Raises `ShapeError` at `where` if it is not valid."""
    if raw is None:
        return _NOTHING
    try:
        return msgspec.convert(raw, ExtensionFields)
    except (msgspec.ValidationError, RecursionError, UnicodeError) as exc:
        raise ShapeError(f"not what citewire writes: {exc}", where) from exc


def drop_reserved_key(fitting: Adaptation) -> None:
    """Drop the metadata key that is reserved for the `citewire` object."""
    for source in fitting.cited_sources():
        if EXTENSION_KEY in source.metadata:
            fitting.record_loss("source.metadata", f"the key {EXTENSION_KEY} is taken", source=source.id)
            free = {key: value for key, value in source.metadata.items() if key != EXTENSION_KEY}
            fitting.sources[source.id] = replace(source, metadata=free)


_NOTHING = ExtensionFields()
