"""Request and response types, with the published field names (deepcitation 0.2.1 / HEAD 69c0450, 2026-03-14).

Unused fields (`endUserId`, `endFileId`, `convertedPdfDownloadPolicy`, `unsafeFastUrlOutput`) are accepted and
ignored. Optional fields without a value are left out.
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
    """A URL to fetch, or the id of an existing attachment."""

    url: _Url | None = None
    attachment_id: _Id | None = None
    filename: Annotated[str, Meta(max_length=4096)] | None = None
    skip_cache: bool = False


class PreparedFile(Struct, frozen=True, rename="camel"):
    """Metadata of a prepared attachment."""

    filename: str
    mime_type: str
    page_count: int
    text_byte_size: int


class UrlSource(Struct, frozen=True):
    """The URL an attachment was fetched from."""

    url: str
    domain: str


class UrlCache(Struct, frozen=True, rename="camel"):
    """Whether a URL was served from the cache, and when that entry expires."""

    cached: bool
    cache_expires_at: str
    cache_key: str


class PreparedAttachment(Struct, frozen=True, rename="camel"):
    """An attachment ready to be cited, or the `error` that prevents it."""

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
    """A file's original and converted media type."""

    original_filename: str
    original_mime_type: str
    converted_mime_type: str
    conversion_time_ms: int


class ConvertedAttachment(Struct, frozen=True, rename="camel"):
    """A stored file that can be prepared by its id."""

    attachment_id: str
    metadata: ConvertedFile
    status: Literal["converted", "error"]
    error: str | UnsetType = UNSET


class CitationsToVerify(Struct, frozen=True, rename="camel"):
    """Citations by the caller's own keys, and the cited attachment by its id or SHA-256."""

    citations: Annotated[dict[str, Any], Meta(max_length=MOST_CITATIONS)]
    attachment_id: _Id | None = None
    sha256: _Id | None = None
    output_image_format: ImageFormat = "avif"


class VerifyRequest(Struct, frozen=True):
    """A request to verify citations."""

    data: CitationsToVerify


class Verifications(Struct, frozen=True):
    """The result for each citation, by its key."""

    verifications: dict[str, dict[str, Any]]


class AttachmentRef(Struct, frozen=True, rename="camel"):
    """A reference to an attachment by its id."""

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
    """How long to keep an attachment: 30 or 365 days from now."""

    duration: Literal["month", "year"]


class ExtendedAttachment(Struct, frozen=True, rename="camel"):
    """The new and the previous expiry of an attachment."""

    attachment_id: str
    expires_at: str
    previous_expires_at: str


class DeletedAttachment(Struct, frozen=True, rename="camel"):
    """Confirms that an attachment was deleted."""

    attachment_id: str
    deleted: bool
