"""What a node asks of workers, and what they say: typed and bounded, a question always the same bytes."""

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
"""Bytes of a question, a manifest or a verdict: more than an answer has that quotes itself whole."""
_Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Some = Annotated[tuple[str, ...], Meta(max_length=10_000)]


class AttachedSource(Struct, frozen=True, omit_defaults=True):
    """A source that came with a run: its content by its sha256, or else what is at its `url`."""

    name: str
    sha256: _Sha256 | None = None
    is_text: bool = False
    url: str | None = None
    title: str | None = None
    also: _Some = ()
    content_type: str = ""
    origin: SourceOrigin | None = None

    def source(self, contents: Mapping[str, bytes]) -> SourceInput:
        """The source again. Raises `ShapeError` where it would be anything else, such as a file of ours."""
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
    """All that came with a run. `scope` is there where some of it is still to be fetched: another run may get
    another page."""

    handed: Annotated[tuple[AttachedSource, ...], Meta(max_length=100_000)]
    scope: str | None = None


class JobQuestion(Struct, frozen=True, omit_defaults=True):
    """An `Asked` as it travels.

    It is looked for in the sources as they were `at` a place of their log, and in those of a manifest,
    `given` by its sha256.
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
        """What is asked, without who asks, and without what makes no difference."""
        place = None if at is None or asked.alone else str(at)
        near, likely = asked.near.wire_safe, asked.likely if asked.source is None else ()
        claim = "" if asked.quote.strip() else asked.claim
        return cls(asked.quote, asked.source, near, likely, claim, asked.alone, given, place)

    def asked(self, name: str, scope: str | None) -> QuoteCheck:
        """For the engine of a worker, which has what the manifest names in a scope."""
        return QuoteCheck(
            name, self.quote, self.source, self.near, self.likely, scope, self.claim, self.alone
        )


def write(value: JobQuestion | Manifest | CheckResult) -> bytes:
    """A value as it travels; of a verdict, what is the same for all who ask."""
    return write_json(replace(value, id=None, quote="") if isinstance(value, CheckResult) else value)


def read(data: bytes, kind: type[_T]) -> _T:
    """The value that was written so. Raises `InputError` for anything else."""
    if len(data) > LARGEST:
        raise ShapeError(f"more than {LARGEST} bytes")
    value: Any = codec.decode_with_surrogates(data)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise ShapeError(str(exc)) from exc


def sha256_of(data: bytes) -> str:
    """What names bytes."""
    return hashlib.sha256(data).hexdigest()


def key_of(question: bytes) -> str:
    """What a question is known by, whoever asks it."""
    return f"verify:{sha256_of(question)}"
