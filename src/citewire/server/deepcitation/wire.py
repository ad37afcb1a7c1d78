"""What goes over the wire, in the published names (deepcitation 0.2.1 / HEAD 69c0450, 2026-03-14).

Fields that we have no use for (`endUserId`, `endFileId`, `convertedPdfDownloadPolicy`, `unsafeFastUrlOutput`)
are taken and ignored; optional ones that have nothing to say are left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from citewire.documents.draw import ImageFormat

__all__ = [
    "AttachmentDetails", "AttachmentRef", "CitationsToVerify", "ConvertedAttachment", "ConvertedFile",
    "DeletedAttachment", "ExtendRequest", "ExtendedAttachment", "PrepareRequest", "PreparedAttachment",
    "PreparedFile", "UrlCache", "UrlSource", "Verifications", "VerifyRequest",
]  # fmt: skip

MOST_CITATIONS = 500
_Url: TypeAlias = Annotated[str, Meta(min_length=1, max_length=8192)]
_Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1000)]


class PrepareRequest(Struct, frozen=True, rename="camel"):
    """A URL to fetch, or without one an attachment that is there already."""

    url: _Url | None = None
    attachment_id: _Id | None = None
    filename: Annotated[str, Meta(max_length=4096)] | None = None
    skip_cache: bool = False


class PreparedFile(Struct, frozen=True, rename="camel"):
    """What an attachment is."""

    filename: str
    mime_type: str
    page_count: int
    text_byte_size: int


class UrlSource(Struct, frozen=True):
    """Where an attachment came from."""

    url: str
    domain: str


class UrlCache(Struct, frozen=True, rename="camel"):
    """Whether a URL was fetched before, and until when that counts."""

    cached: bool
    cache_expires_at: str
    cache_key: str


class PreparedAttachment(Struct, frozen=True, rename="camel"):
    """An attachment that can be cited, or the `error` for which it cannot."""

    attachment_id: str
    deep_text_prompt_portion: str
    metadata: PreparedFile
    status: Literal["ready", "error"]
    processing_time_ms: int
    expires_at: str
    error: str | UnsetType = UNSET
    url_source: UrlSource | UnsetType = UNSET
    url_cache: UrlCache | UnsetType = UNSET


class ConvertedFile(Struct, frozen=True, rename="camel"):
    """What a file was, and what it is now."""

    original_filename: str
    original_mime_type: str
    converted_mime_type: str
    conversion_time_ms: int


class ConvertedAttachment(Struct, frozen=True, rename="camel"):
    """A file that can be prepared by its id."""

    attachment_id: str
    metadata: ConvertedFile
    status: Literal["converted", "error"]
    error: str | UnsetType = UNSET


class CitationsToVerify(Struct, frozen=True, rename="camel"):
    """Citations under keys of the caller's, and what they cite, by its id or its bytes."""

    citations: Annotated[dict[str, Any], Meta(max_length=MOST_CITATIONS)]
    attachment_id: _Id | None = None
    sha256: _Id | None = None
    output_image_format: ImageFormat = "avif"


class VerifyRequest(Struct, frozen=True):
    """What to check."""

    data: CitationsToVerify


class Verifications(Struct, frozen=True):
    """What became of each citation, under its key."""

    verifications: dict[str, dict[str, Any]]


class AttachmentRef(Struct, frozen=True, rename="camel"):
    """An attachment by its id."""

    attachment_id: _Id


class AttachmentDetails(Struct, frozen=True, rename="camel"):
    """An attachment with its text."""

    id: str
    status: Literal["ready", "error"]
    source: Literal["upload", "url"]
    original_filename: str
    mime_type: str
    file_size: int
    page_count: int
    uploaded_at: str
    processed_at: str
    expires_at: str
    deep_text_prompt_portion: str
    page_texts: list[str]
    page_images: list[Any] = []
    verifications: dict[str, Any] = {}
    error: str | UnsetType = UNSET
    url_source: UrlSource | UnsetType = UNSET


class ExtendRequest(Struct, frozen=True):
    """How long an attachment is to stay: 30 or 365 days from now."""

    duration: Literal["month", "year"]


class ExtendedAttachment(Struct, frozen=True, rename="camel"):
    """Until when an attachment stays."""

    attachment_id: str
    expires_at: str
    previous_expires_at: str


class DeletedAttachment(Struct, frozen=True, rename="camel"):
    """An attachment that is gone."""

    attachment_id: str
    deleted: bool
