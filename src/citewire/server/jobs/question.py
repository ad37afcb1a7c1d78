"""The questions of nodes to workers and the replies: typed, limited in size, and with canonical bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from citewire import codec
from citewire.agui.events import write_json
from citewire.channels.store import Cursor
from citewire.errors import ShapeError
from citewire.verification.document_set import CheckResult
from citewire.verification.expected_place import ANYWHERE, ExpectedPlace
from citewire.verification.sources import SourceContent, SourceInput, SourceOrigin, SourceUrl
from citewire.verification.verifier import QuoteCheck

__all__ = ["AttachedSource", "JobQuestion", "LARGEST", "Manifest", "key_of", "read", "sha256_of", "write"]

_T = TypeVar("_T")

LARGEST = 16 << 20
"""Most bytes of a question, a manifest or a verdict: more than an answer that quotes all of itself."""
_Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Some = Annotated[tuple[str, ...], Meta(max_length=10_000)]


class AttachedSource(Struct, frozen=True, omit_defaults=True):
    """A source attached to a run: the sha256 of its content, or else the `url` to fetch."""

    name: str
    sha256: _Sha256 | None = None
    is_text: bool = False
    url: str | None = None
    title: str | None = None
    also: _Some = ()
    content_type: str = ""
    origin: SourceOrigin | None = None

    def source(self, contents: Mapping[str, bytes]) -> SourceInput:
        """Return the source. Raises `ShapeError` for anything else, such as a path on this machine."""
        if self.sha256 is None:
            if self.url is None or not self.url.startswith(("http://", "https://")):
                raise ShapeError("a source without content or address")
            return SourceUrl(self.url, self.origin)
        data = contents[self.sha256]
        content = data.decode("utf-8", "replace") if self.is_text else data
        return SourceContent(
            content, self.name, self.url, self.title, self.also, self.content_type, self.origin
        )


class Manifest(Struct, frozen=True):
    """All sources attached to a run, with a `scope` if some must be fetched: pages may differ per run."""

    handed: Annotated[tuple[AttachedSource, ...], Meta(max_length=100_000)]
    scope: str | None = None


class JobQuestion(Struct, frozen=True, omit_defaults=True):
    """A `QuoteCheck` in transit.

    It is searched for in the sources as of the cursor `at` of their log, and in those of the manifest whose
    sha256 is `given`.
    """

    quote: str
    source: str | None = None
    near: ExpectedPlace = ANYWHERE
    likely: _Some = ()
    claim: str = ""
    alone: bool = False
    given: _Sha256 | None = None
    at: str | None = None

    @classmethod
    def of(cls, asked: QuoteCheck, given: str | None, at: Cursor | None) -> JobQuestion:
        """Make the question without the asker and without fields that do not affect the verdict."""
        place = None if at is None or asked.alone else str(at)
        near, likely = asked.near.wire_safe, asked.likely if asked.source is None else ()
        claim = "" if asked.quote.strip() else asked.claim
        return cls(asked.quote, asked.source, near, likely, claim, asked.alone, given, place)

    def asked(self, name: str, scope: str | None) -> QuoteCheck:
        """Return the check for a worker's engine, which has the manifest's sources in `scope`."""
        return QuoteCheck(
            name, self.quote, self.source, self.near, self.likely, scope, self.claim, self.alone
        )


def write(value: JobQuestion | Manifest | CheckResult) -> bytes:
    """Encode a value. In a verdict, the fields that differ between askers are omitted."""
    return write_json(replace(value, id=None, quote="") if isinstance(value, CheckResult) else value)


def read(data: bytes, kind: type[_T]) -> _T:
    """Decode a value. Raises `InputError` if it is invalid."""
    if len(data) > LARGEST:
        raise ShapeError(f"more than {LARGEST} bytes")
    value: Any = codec.decode_with_surrogates(data)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise ShapeError(str(exc)) from exc


def sha256_of(data: bytes) -> str:
    """Return the sha256 that identifies bytes."""
    return hashlib.sha256(data).hexdigest()


def key_of(question: bytes) -> str:
    """Return the key of a question, which is the same for all askers."""
    return f"verify:{sha256_of(question)}"
