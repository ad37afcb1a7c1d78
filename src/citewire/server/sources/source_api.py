"""HTTP operations on sources: add, list, show and remove them, and follow their progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import ASGIApp

from citewire import codec
from citewire.agui.sse import PING
from citewire.codec import decode_as
from citewire.documents.document import Document, Page
from citewire.documents.draw import Crop, ImageFormat
from citewire.errors import InputError, NotFound
from citewire.server.access.keys import Caller
from citewire.server.http.event_stream import EventStreamResponse
from citewire.server.http.operations import (
    ApiCall,
    Bytes,
    EventStream,
    ImageFile,
    MultipartForm,
    Operation,
    json_response,
)
from citewire.server.sources.catalog import Catalog
from citewire.server.sources.source import SourceList, SourceRecord
from citewire.server.sources.stored_sources import SourceVersion, safe_name

__all__ = ["MEDIA_TYPES", "SourceApi", "read_form", "read_short_body", "read_upload"]

# Most files in one form, and most bytes of a body with a URL.
_MOST_FILES, _LONGEST_BODY = 100, 64 << 10
_FORMATS: dict[str, ImageFormat] = {"png": "png", "jpg": "jpeg", "webp": "webp", "avif": "avif"}
MEDIA_TYPES: dict[str, str] = {
    "pdf": "application/pdf",
    "html": "text/html",
    "markdown": "text/markdown",
    "text": "text/plain",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
# Headers for uploaded content: a browser must save it and run none of its scripts.
_HARMLESS = {"content-security-policy": "default-src 'none'; sandbox", "x-content-type-options": "nosniff"}


class AddUrlRequest(Struct, frozen=True):
    """The URL of a source to add."""

    url: Annotated[str, Meta(min_length=1, max_length=8192)]


class AddedSources(Struct, frozen=True):
    """The sources that were added, in their current state."""

    sources: list[SourceRecord]


class VersionList(Struct, frozen=True):
    """The versions of a source, the oldest first."""

    versions: list[SourceVersion]


class SourceText(Struct, frozen=True):
    """The text of a source. Pages and lines are offsets into it, in code points."""

    sha256: str
    text: str
    pages: list[Page]
    lines: list[int]


class NameQuery(Struct, frozen=True):
    """The file name, when the body is a file."""

    name: Annotated[str, Meta(max_length=4096)] | None = None


class SourceListQuery(Struct, frozen=True):
    """The name after which the list starts, and the page size."""

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000


class ScaleQuery(Struct, frozen=True):
    """Pixels per point of a page: 1 is 72 dots per inch."""

    scale: Annotated[float, Meta(ge=0.1, le=4)] = 2.0


class SourceApi:
    """The operations on sources."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def operations(self) -> list[Operation]:
        """Return the operations on sources."""
        every, one = "source:*", "source:{source}"
        return [
            Operation(
                method="POST", path="/sources",
                summary="Add sources: a file as the body with ?name=, files of a form, or a URL. Other bytes "
                "in the place of a source need the operation `replace` on it",
                handle=self.add, needs=("add", every), query=NameQuery, body=bytes,
                takes=(MultipartForm, AddUrlRequest), gives=AddedSources, creates=True, errors=(422,),
            ),
            Operation(
                method="GET", path="/sources", summary="The sources by name, and how many are being read",
                handle=self.list, needs=("list", every), query=SourceListQuery, gives=SourceList,
            ),
            Operation(
                method="GET", path="/sources/events", summary="All sources, then each one that changes",
                handle=self.events, needs=("list", every), gives=EventStream,
            ),
            Operation(
                method="GET", path="/sources/{source}", summary="A source",
                handle=self.show, needs=("read", one), gives=SourceRecord,
            ),
            Operation(
                method="DELETE", path="/sources/{source}", summary="Remove a source",
                handle=self.remove, needs=("delete", one), errors=(409,),
            ),
            Operation(
                method="GET", path="/sources/{source}/versions",
                summary="All that a source ever was, when, and who made it so",
                handle=self.versions, needs=("trace", one), gives=VersionList,
            ),
            Operation(
                method="GET", path="/sources/{source}/text", summary="The text of a source, with its pages",
                handle=self.text, needs=("read", one), gives=SourceText, errors=(409, 422),
            ),
            Operation(
                method="GET", path="/sources/{source}/content", summary="A source as it was added",
                handle=self.content, needs=("read", one), gives=Bytes, also=(*MEDIA_TYPES.values(),),
            ),
            Operation(
                method="GET", path="/sources/{source}/pages/{number}.{format}",
                summary="A page of a PDF or an image: png, jpg, webp or avif",
                handle=self.page, needs=("read", one), query=ScaleQuery, gives=ImageFile, errors=(409, 422),
            ),
        ]  # fmt: skip

    async def add(self, call: ApiCall) -> Response:
        """Store the sources in the request; they are read afterwards. Raises `TooManyReads`."""
        self._catalog.check_room()
        request, name = call.request, call.query.name
        whole = request.headers.get("content-type", "")
        kind = whole.partition(";")[0].strip().lower()
        if kind == MultipartForm.media:
            kept = await self._add_form(request, call.caller)
        elif name is not None:
            safe_name(name)  # reject a bad name before reading the body
            kept = [await self._add_file(name, whole, request.stream(), call.caller)]
        elif kind == "application/json":
            url = decode_as(await read_short_body(request), AddUrlRequest).url
            kept = [await self._catalog.fetch(url, caller=call.caller)]
        else:
            raise InputError("it needs a name, as ?name=", "?name")
        created = any(new for _, new in kept)
        return json_response(AddedSources([record for record, _ in kept]), 201 if created else 200)

    async def list(self, call: ApiCall) -> SourceList:
        """Return a page of the sources that the caller may read."""
        query: SourceListQuery = call.query
        left = [record for record in self._readable(call.caller) if record.name > query.after]
        shown = left[: query.limit]
        more = shown[-1].name if len(left) > len(shown) else None
        return SourceList(shown, *self._catalog.status(), more)

    async def events(self, call: ApiCall) -> ASGIApp:
        """Stream a snapshot, then every change."""
        return EventStreamResponse(self._frames(call.caller))

    async def show(self, call: ApiCall) -> SourceRecord:
        """Return one source."""
        return await self._catalog.find(call.path["source"])

    async def remove(self, call: ApiCall) -> None:
        """Remove a source."""
        await self._catalog.remove(call.path["source"], call.caller.actor)

    async def versions(self, call: ApiCall) -> VersionList:
        """Return all versions of a source."""
        return VersionList(await self._catalog.versions(call.path["source"]))

    async def text(self, call: ApiCall) -> Response:
        """Return the text of a source."""
        document = await self._catalog.text(call.path["source"])
        return Response(await asyncio.to_thread(partial(_text, document)), media_type="application/json")

    async def content(self, call: ApiCall) -> Response:
        """Return the original file as a download."""
        record = await self._catalog.find(call.path["source"])
        kind = MEDIA_TYPES.get(record.kind or "", "application/octet-stream")
        path = await self._catalog.path(record.id)
        headers = _HARMLESS | {"content-type": kind}
        return FileResponse(path, headers=headers, filename=safe_name(record.name))

    async def page(self, call: ApiCall) -> Response:
        """Render a page as an image."""
        number, form = call.path["number"], _FORMATS.get(call.path["format"])
        if form is None or not (number.isascii() and number.isdigit() and len(number) < 8):
            raise NotFound("a page is called by its number: 1.png, 1.jpg, 1.webp or 1.avif")
        crop = Crop(int(number), scale=call.query.scale, format=form)
        drawn = await self._catalog.picture(call.path["source"], crop)
        return Response(drawn, media_type=f"image/{form}", headers=_HARMLESS)

    async def _add_form(self, request: Request, caller: Caller) -> list[tuple[SourceRecord, bool]]:
        form = await read_form(request)
        try:
            files = [each for _, each in form.multi_items() if isinstance(each, UploadFile)]
            names = [safe_name(file.filename or "") for file in files]
            if not files or len({*names}) < len(names):
                raise InputError("a form has one or more files, each under a name of its own")
            return [
                await self._add_file(name, file.content_type or "", read_upload(file), caller)
                for name, file in zip(names, files, strict=True)
            ]
        finally:
            await form.close()

    async def _add_file(
        self, name: str, kind: str, pieces: AsyncIterable[bytes], caller: Caller
    ) -> tuple[SourceRecord, bool]:
        async with self._catalog.draft() as draft:
            async for piece in pieces:
                await draft.write(piece)
            return await self._catalog.upload(draft, name, kind, caller)

    def _readable(self, caller: Caller) -> Iterable[SourceRecord]:
        return (each for each in self._catalog.records() if caller.may("read", f"source:{each.id}"))

    async def _frames(self, caller: Caller) -> AsyncGenerator[bytes]:
        async for changes in self._catalog.changes():
            if changes is None:
                yield _frame("snapshot", SourceList([*self._readable(caller)], *self._catalog.status()))
            elif not changes:
                yield PING
            for change in changes or ():
                if caller.may("read", f"source:{change.id}"):
                    kind = "source" if change.record else "removed"
                    yield _frame(kind, change.record or {"id": change.id})


def _frame(event: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), codec.encode(data))


def _text(document: Document) -> bytes:
    lines: list[int] = document.lines.tolist()
    return codec.encode(SourceText(document.sha256, document.text, [*document.pages], lines))


async def read_form(request: Request) -> FormData:
    """Parse a multipart form, which the caller must close. Raises `InputError`."""
    try:
        return await request.form(max_files=_MOST_FILES, max_fields=_MOST_FILES)
    except (HTTPException, MultiPartException) as exc:
        raise InputError(f"not a form that can be read: {getattr(exc, 'detail', exc)}") from exc


async def read_short_body(request: Request) -> bytes:
    """Read a short body, such as one with a URL. Raises `InputError`."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _LONGEST_BODY:
            raise InputError("a body that names a URL is short; a file needs a name, as ?name=")
    return bytes(body)


async def read_upload(file: UploadFile) -> AsyncGenerator[bytes]:
    """Yield the content of an uploaded file in pieces."""
    while piece := await file.read(1 << 20):
        yield piece
