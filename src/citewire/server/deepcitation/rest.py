"""The operations of DeepCitation's API: prepare, convert, get, extend, delete and verify.

A problem with one attachment is reported in that attachment's response, not as an HTTP error: `status` is
`error`, and its citations are `skipped`. The published client drops all of its attachments when one request
is refused.
"""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import urlsplit

from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from starlette.datastructures import UploadFile

from citewire.codec import decode_as
from citewire.documents.document import Document
from citewire.documents.errors import DocumentError
from citewire.errors import InputError, ShapeError
from citewire.extraction.prompt import format_document
from citewire.server.answers.verify_api import cancel_on_disconnect
from citewire.server.deepcitation import wire
from citewire.server.deepcitation.attachments import DAY, Attachment, Attachments, day_end, iso
from citewire.server.deepcitation.verification import DeepCitationVerifier
from citewire.server.http.operations import ApiCall, MultipartForm, Operation
from citewire.server.sources.source_api import MEDIA_TYPES, read_form, read_short_body, read_upload
from citewire.verification.engine import Engine
from citewire.verification.reader_pool import run_in_thread

__all__ = ["DeepCitation", "UPLOADS"]

UPLOADS = ("/prepareAttachments", "/convertFile")
"""Paths that accept file uploads."""

_RESOURCE = "attachments"
_DURATIONS = {"month": 30 * DAY, "year": 365 * DAY}


class DeepCitation:
    """DeepCitation's API over HTTP."""

    def __init__(self, attachments: Attachments, engine: Engine, deadline: float) -> None:
        self._attachments = attachments
        self._verifying = DeepCitationVerifier(attachments, engine, deadline)

    def operations(self) -> list[Operation]:
        """Return the operations of the API."""
        return [
            Operation(
                method="POST", path="/prepareAttachments",
                summary="DeepCitation: an attachment of a file, of a URL, or by its id",
                handle=self.prepare, needs=("add", _RESOURCE), body=bytes,
                takes=(MultipartForm, wire.PrepareRequest), gives=wire.PreparedAttachment, errors=(404,),
            ),
            Operation(
                method="POST", path="/convertFile", summary="DeepCitation: keep a file to be prepared",
                handle=self.convert, needs=("add", _RESOURCE), body=bytes,
                takes=(MultipartForm, wire.PrepareRequest), gives=wire.ConvertedAttachment, errors=(404,),
            ),
            Operation(
                method="POST", path="/verifyCitations", summary="DeepCitation: check citations",
                handle=self.verify, needs=("verify", _RESOURCE), body=wire.VerifyRequest,
                gives=wire.Verifications, errors=(404,),
            ),
            Operation(
                method="POST", path="/getAttachment", summary="DeepCitation: an attachment with its text",
                handle=self.show, needs=("read", _RESOURCE), body=wire.AttachmentRef,
                gives=wire.AttachmentDetails, errors=(404,),
            ),
            Operation(
                method="POST", path="/attachments/{attachment}/extend",
                summary="DeepCitation: keep an attachment longer",
                handle=self.extend, needs=("extend", _RESOURCE), body=wire.ExtendRequest,
                gives=wire.ExtendedAttachment,
            ),
            Operation(
                method="DELETE", path="/attachments/{attachment}",
                summary="DeepCitation: delete an attachment",
                handle=self.delete, needs=("delete", _RESOURCE), gives=wire.DeletedAttachment,
            ),
        ]  # fmt: skip

    async def prepare(self, call: ApiCall) -> wire.PreparedAttachment:
        """Store an upload or URL and return its text for a prompt."""
        held, cached = await self._taken(call)
        document = await self._document(held)
        return wire.PreparedAttachment(
            held.id,
            await _portion(held, document),
            wire.PreparedFile(held.name, mime_type(held), held.pages, held.text_bytes),
            "error" if held.reason else "ready",
            round(held.seconds * 1000),
            iso(held.expires),
            held.reason or UNSET,
            _url_source(held),
            UNSET if cached is None or held.url is None else _cache(held, cached),
        )

    async def convert(self, call: ApiCall) -> wire.ConvertedAttachment:
        """Store an upload or URL. Nothing is converted: every readable format is read as it is."""
        held, _ = await self._taken(call)
        kind = mime_type(held)
        return wire.ConvertedAttachment(
            held.id,
            wire.ConvertedFile(held.name, held.content_type or kind, kind, round(held.seconds * 1000)),
            "error" if held.reason else "converted",
            held.reason or UNSET,
        )

    async def verify(self, call: ApiCall) -> wire.Verifications:
        """Check citations. Stops when the client disconnects."""
        checking = self._verifying.verify(call.caller, call.body.data)
        return wire.Verifications(await cancel_on_disconnect(call.request, checking))

    async def show(self, call: ApiCall) -> wire.AttachmentDetails:
        """Return an attachment with its text."""
        held = await self._found(call.caller.key, call.body.attachment_id)
        document = await self._document(held)
        return wire.AttachmentDetails(
            held.id,
            "error" if held.reason else "ready",
            "upload" if held.url is None else "url",
            held.name,
            mime_type(held),
            held.size,
            held.pages,
            iso(held.added),
            iso(held.read or held.added),
            iso(held.expires),
            await _portion(held, document),
            [document.text[page.start : page.end] for page in document.pages] if document else [],
            error=held.reason or UNSET,
            url_source=_url_source(held),
        )

    async def extend(self, call: ApiCall) -> wire.ExtendedAttachment:
        """Extend an attachment's lifetime."""
        key, name = call.caller.key, call.path["attachment"]
        before = await self._attachments.find_synced(key, name)
        now = await self._attachments.extend(key, name, _DURATIONS[call.body.duration])
        return wire.ExtendedAttachment(name, iso(now.expires), iso(before.expires))

    async def delete(self, call: ApiCall) -> wire.DeletedAttachment:
        """Delete an attachment."""
        await self._attachments.remove(call.caller.key, call.path["attachment"])
        return wire.DeletedAttachment(call.path["attachment"], deleted=True)

    async def _taken(self, call: ApiCall) -> tuple[Attachment, bool | None]:
        """Return the request's attachment, stored and read, and for a URL whether it was cached."""
        request, key = call.request, call.caller.key
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == MultipartForm.media:
            return await self._uploaded(call), None
        if kind != "application/json":
            raise InputError("send a form with a file, or JSON with a url or an attachmentId")
        asked: wire.PrepareRequest = decode_as(await read_short_body(request), wire.PrepareRequest)
        if asked.url is not None:
            return await self._fetched(key, asked)
        if asked.attachment_id is None:
            raise ShapeError("a url or an attachmentId is needed", "$.url")
        return await self._found(key, asked.attachment_id), None

    async def _found(self, key: str, name: str) -> Attachment:
        """Return an attachment of this key, read. Raises `NotFound`."""
        return await self._attachments.read(await self._attachments.find_synced(key, name))

    async def _fetched(self, key: str, asked: wire.PrepareRequest) -> tuple[Attachment, bool]:
        try:
            return await self._attachments.fetch(
                key, asked.attachment_id, asked.url or "", asked.filename, fresh=asked.skip_cache
            )
        except DocumentError as exc:
            # A retry would not help.
            raise ShapeError(exc.message, "$.url", detail=exc.detail) from exc

    async def _uploaded(self, call: ApiCall) -> Attachment:
        form = await read_form(call.request)
        try:
            files = [each for _, each in form.multi_items() if isinstance(each, UploadFile)]
            if len(files) != 1:
                raise InputError("a form has one file", "file")
            name, filename = (_text(form.get(field)) for field in ("attachmentId", "filename"))
            async with self._attachments.draft() as draft:
                async for piece in read_upload(files[0]):
                    await draft.write(piece)
                filename = filename or files[0].filename or "document"
                return await self._attachments.upload(
                    call.caller.key, name, draft, filename, files[0].content_type or ""
                )
        finally:
            await form.close()

    async def _document(self, held: Attachment) -> Document | None:
        return None if held.reason else await self._attachments.document(held)


def mime_type(held: Attachment) -> str:
    """Return the media type found while reading an attachment, else the declared one."""
    return MEDIA_TYPES.get(held.kind or "", held.content_type) or "application/octet-stream"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


async def _portion(held: Attachment, document: Document | None) -> str:
    """Return the text that a model cites, under the attachment's id."""
    return (
        ""
        if document is None
        else await run_in_thread(lambda: format_document(replace(document, name=held.id)))
    )


def _url_source(held: Attachment) -> wire.UrlSource | UnsetType:
    if held.url is None:
        return UNSET
    return wire.UrlSource(held.url, (urlsplit(held.url).hostname or "").removeprefix("www."))


def _cache(held: Attachment, cached: bool) -> wire.UrlCache:
    name = sha256(f"{held.key}\n{held.url}".encode("utf-8", "replace")).hexdigest()[:32]
    return wire.UrlCache(cached, iso(day_end(held.added)), name)
