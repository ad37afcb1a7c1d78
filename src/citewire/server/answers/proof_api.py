"""HTTP operations on proofs: for each verdict a page that can be shared, and a picture of the place.

A proof is a row of its thread's log, and is deleted with the thread. The link to it is signed and expires.
Everyone who reads the thread later gets new links, see `proof_links`.
"""

from __future__ import annotations

import asyncio
import re
import time
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Struct
from starlette.responses import Response

from citewire import codec
from citewire.channels.store import RowReader
from citewire.documents.draw import QUOTE_MARGIN, Crop, ImageFormat
from citewire.errors import CitewireError, InputError, NotFound
from citewire.server.answers.proof_links import ProofLinks
from citewire.server.answers.proof_page import VerdictPlace, VerdictRecord, has_picture, render_proof
from citewire.server.answers.proof_refusal import refuse
from citewire.server.http.operations import ApiCall, Authenticate, HtmlPage, ImageFile, Operation
from citewire.server.pages.site import SECURITY_HEADERS
from citewire.server.sources.versions import CheckedVersion
from citewire.threadlog.names import channel_of, proof_id

__all__ = ["ProofApi", "VersionFinder"]

_FORMATS: dict[str, ImageFormat] = {"png": "png", "jpg": "jpeg", "webp": "webp", "avif": "avif"}
_NAME = re.compile(rf"([\w-]+)\.([0-9a-f]{{32}})(?:\.({'|'.join(_FORMATS)}))?", re.ASCII)
# Bytes of rendered pictures that are cached.
_DRAWN = 64 << 20


class VersionFinder(Protocol):
    """**Protocol:** finds the sources that verdicts refer to."""

    async def find(self, sha256: str, name: str | None, text_sha256: str | None) -> CheckedVersion:
        """Return the checked version of a source with these hashes, as far as it still exists."""
        ...

    async def draw(self, sha256: str, crop: Crop) -> bytes:
        """Render a picture of a source. Raises `NotFound` if it is gone, `DocumentError` if it has none."""
        ...


class ProofQuery(Struct, frozen=True):
    """The signature of the link, and whether to draw the whole page."""

    sig: str | None = None
    whole: bool = False


class ProofApi:
    """The proofs in `store`, with access by `links`."""

    def __init__(
        self,
        links: ProofLinks,
        store: RowReader,
        shelves: VersionFinder,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.links, self._store, self._shelves, self._clock = links, store, shelves, clock
        self._drawn: OrderedDict[tuple[str, Crop], bytes] = OrderedDict()
        self._size = 0

    def operations(self, authenticate: Authenticate) -> list[Operation]:
        """Return the operations on proofs. A valid link needs no other credentials."""

        async def show(call: ApiCall) -> Response:
            try:
                return await self._show(call, authenticate)
            except CitewireError as exc:
                return refuse(exc, call)

        return [
            Operation(
                method="GET", path="/proofs/{name}", summary="The proof of a verdict, as a page or a picture",
                handle=show, query=ProofQuery, gives=HtmlPage, also=(ImageFile,), errors=(401, 403, 410, 422),
            )
        ]  # fmt: skip

    async def _show(self, call: ApiCall, authenticate: Authenticate) -> Response:
        match = _NAME.fullmatch(call.path["name"])
        if match is None:
            raise NotFound("there is no such proof")
        token, proof, ending = match.groups(default="")
        thread_id, channel = _thread(token)
        name = f"{token}.{proof}"
        end = self._authorize(call, authenticate, name, ending, thread_id)
        row = await self._store.get(channel, proof_id(proof))
        if row is None:
            raise NotFound("there is no such proof, or its thread was deleted")
        record = msgspec.convert(codec.decode_with_surrogates(row.data), VerdictRecord)
        if not ending:
            return await self._page(record, name, end)
        picture = await self._picture(record.verification.citewire, _FORMATS[ending], call.query.whole)
        picture.headers["cache-control"] = self._caching(end)
        return picture

    def _authorize(
        self, call: ApiCall, authenticate: Authenticate, name: str, ending: str, thread_id: str
    ) -> float | None:
        """Return when access to the proof ends: with the link, or with the caller's token."""
        if call.query.sig is not None:
            return self.links.check(name, ending, call.query.sig)
        caller = authenticate(call.request)
        caller.require("read", f"thread:{thread_id}")
        return caller.expires

    def _caching(self, end: float | None) -> str:
        """Return the cache header of a picture: it must not be shown after the link has expired."""
        seconds = self.links.part if end is None else min(self.links.part, int(end - self._clock()))
        return f"private, max-age={max(0, seconds)}, must-revalidate"

    async def _picture(self, place: VerdictPlace, form: ImageFormat, whole: bool) -> Response:
        if not place.boxes or place.sha256 is None:
            raise NotFound("this source has no looks; the page of the proof shows its words")
        page = place.boxes[0].page
        boxes = tuple((box.left, box.top, box.right, box.bottom) for box in place.boxes if box.page == page)
        crop = Crop(page, boxes, whole=whole, format=form, margin=QUOTE_MARGIN)
        image = await self._draw(place.sha256, crop)
        return Response(image, media_type=f"image/{form}", headers=SECURITY_HEADERS)

    def forget(self, sha256: str) -> None:
        """Drop the cached pictures of a deleted source."""
        for each in [each for each in self._drawn if each[0] == sha256]:
            self._size -= len(self._drawn.pop(each))

    async def _draw(self, name: str, crop: Crop) -> bytes:
        image = self._drawn.get((name, crop)) or await self._shelves.draw(name, crop)
        # Another request may have cached it meanwhile.
        self._size += len(image) - len(self._drawn.pop((name, crop), b""))
        self._drawn[name, crop] = image
        while self._size > _DRAWN and len(self._drawn) > 1:
            self._size -= len(self._drawn.popitem(last=False)[1])
        return image

    async def _page(self, record: VerdictRecord, name: str, end: float | None) -> Response:
        place = record.verification.citewire
        version = CheckedVersion("not_kept")
        if place.sha256:
            version = await self._shelves.find(place.sha256, place.source, place.text_sha256)
        picture = self.links.sign(name, ".avif", end) if has_picture(place, version) else ""
        body = await asyncio.to_thread(render_proof, record, version, picture)
        return Response(
            body, media_type="text/html", headers={**SECURITY_HEADERS, "cache-control": "private, no-cache"}
        )


def _thread(token: str) -> tuple[str, str]:
    """Decode a token into a thread id and its channel. Raises `NotFound`."""
    try:
        thread_id = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        return thread_id, channel_of(thread_id)
    except (ValueError, InputError):
        raise NotFound("there is no such proof") from None
