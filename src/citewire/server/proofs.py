"""Proofs over HTTP: for every verdict a page that can be sent to somebody, and the place in a picture.

A proof is a row of its thread's log, and goes with the thread. The link to it is signed and works for a
while; whoever reads the thread later gets links that work again.
"""

from __future__ import annotations

import asyncio
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Protocol

import msgspec
from msgspec import Struct
from starlette.responses import Response

from citewire import __version__, codec
from citewire.agui.events import write_json
from citewire.agui.records import Links
from citewire.channels.store import Store
from citewire.documents.document import Box, Document
from citewire.documents.draw import Crop, Format
from citewire.errors import InputError
from citewire.rendering.safety import clean
from citewire.server.http import Authenticate, Call, NotFound, Operation, Page, Picture
from citewire.server.journal import channel_of, proof_id
from citewire.server.keys import Keyring
from citewire.server.refusals import Refused, TokenExpired
from citewire.server.site import SAFE
from citewire.verification.library import Checked
from citewire.verification.pictures import MARGIN
from citewire.verification.proof import links, snippet

__all__ = ["Proofs", "Shelves"]

_FORMATS: dict[str, Format] = {"png": "png", "jpg": "jpeg", "webp": "webp", "avif": "avif"}
_NAME = re.compile(rf"([\w-]+)\.([0-9a-f]{{32}})(?:\.({'|'.join(_FORMATS)}))?", re.ASCII)
_LINK = re.compile(
    rb"https?://(?:[\w.-]+|\[[\da-f:]+\])(?::\d+)?(?:/[\w./~-]*?)?"
    rb"/proofs/([\w-]+\.[0-9a-f]{32})(\.\w+)?\?sig=(\d+\.[\w-]{43})"
)
_PURPOSE = "proof"
# A link stays the same for a part of its lifetime, so that a browser need not load its picture again.
_PARTS, _LONGEST_PART = 24, 3600
_PAGE = Template((files("citewire.server") / "pages" / "proof.html").read_text("utf-8"))
_WORDS = {
    "verified": ("✓", "Verified"),
    "partial": ("~", "Partly there"),
    "altered": ("≠", "Altered"),
    "missed": ("✗", "Not found"),
}
# Bytes of pictures that are kept drawn.
_DRAWN = 64 << 20


class Shelves(Protocol):
    """**Protocol:** where the sources are that verdicts refer to."""

    async def document(self, sha256: str) -> Document | None:
        """What was read of a source; None where it is gone."""
        ...

    async def draw(self, sha256: str, crop: Crop) -> bytes:
        """A picture of a source. Raises `NotFound` where it is gone, `DocumentError` where it has none."""
        ...


class Place(Struct, frozen=True):
    """What of a verdict says where the quote stands, and what became of it."""

    status: str
    reason: str | None = None
    source: str | None = None
    page: int | None = None
    start: int | None = None
    end: int | None = None
    boxes: tuple[Box, ...] = ()
    warnings: tuple[str, ...] = ()
    sha256: str | None = None


class Verdict(Struct, frozen=True, rename="camel"):
    """A verdict as the state has it, as far as a proof needs it."""

    citewire: Place
    verified_at: str = ""
    verified_match_snippet: str | None = None


class Record(Struct, frozen=True):
    """A verdict as the log has it."""

    message_id: str
    key: str
    quote: str
    verification: Verdict


class ProofQuery(Struct, frozen=True):
    """The signature of the link, and whether the whole page is to be drawn."""

    sig: str | None = None
    whole: bool = False


class Proofs:
    """The proofs of a server that is reached at `address`. Links work for `lifetime` seconds, or a little
    longer."""

    def __init__(
        self,
        keyring: Keyring,
        store: Store,
        shelves: Shelves,
        address: str,
        lifetime: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keyring, self._store, self._shelves = keyring, store, shelves
        self._address, self._lifetime, self._clock = address.rstrip("/"), int(lifetime), clock
        self._part = max(1, min(self._lifetime // _PARTS, _LONGEST_PART))
        self._drawn: OrderedDict[tuple[str, Crop], bytes] = OrderedDict()
        self._size = 0

    def operations(self, authenticate: Authenticate) -> list[Operation]:
        """What can be asked of proofs: whoever has the link needs nothing else."""

        async def show(call: Call) -> Response:
            return await self._show(call, authenticate)

        return [
            Operation(
                method="GET", path="/proofs/{name}", summary="The proof of a verdict, as a page or a picture",
                handle=show, query=ProofQuery, gives=Page, also=(Picture,), errors=(401, 403, 422),
            )
        ]  # fmt: skip

    # --- links --------------------------------------------------------------------------------------------

    def links(self, thread_id: str, message_id: str, key: str, checked: Checked) -> Links:
        """Where the proof of a verdict will be."""
        about = write_json([message_id, key, msgspec.structs.replace(checked, id=None)])
        name = f"{_token(thread_id)}.{sha256(about).hexdigest()[:32]}"
        picture = f"{self._address}{self._signed(name, '.avif')}" if checked.boxes else None
        return Links(f"{self._address}{self._signed(name)}", picture)

    def renew(self, thread_id: str, data: bytes) -> bytes:
        """`data` with every link to a proof of the thread in it good for another while, and at this address.

        It is for those who may read the thread. Links of other threads stay as they are: anybody can have an
        old one repeated to them.
        """
        token = f"{_token(thread_id)}."

        def renewed(found: re.Match[bytes]) -> bytes:
            name, ending, signature = (part.decode() if part else "" for part in found.groups())
            ours = name.startswith(token) and self._was_signed(name, signature)
            return f"{self._address}{self._signed(name, ending)}".encode() if ours else found[0]

        return _LINK.sub(renewed, data)

    def _was_signed(self, name: str, signature: str) -> bool:
        try:
            self._keyring.check(_PURPOSE, name, signature)
        except TokenExpired:
            return True
        except Refused:
            return False
        return True

    def _signed(self, name: str, ending: str = "") -> str:
        expires = (int(self._clock()) + self._lifetime) // self._part * self._part + self._part
        return f"/proofs/{name}{ending}?sig={self._keyring.sign(_PURPOSE, name, expires)}"

    # --- what is there ------------------------------------------------------------------------------------

    async def _show(self, call: Call, authenticate: Authenticate) -> Response:
        match = _NAME.fullmatch(call.path["name"])
        if match is None:
            raise NotFound("there is no such proof")
        token, proof, ending = match.groups()
        thread_id, channel = _thread(token)
        if call.query.sig is not None:
            self._keyring.check(_PURPOSE, f"{token}.{proof}", call.query.sig)
        else:
            authenticate(call.request).require("read", f"thread:{thread_id}")
        row = await self._store.get(channel, proof_id(proof))
        if row is None:
            raise NotFound("there is no such proof, or its thread was deleted")
        record = msgspec.convert(codec.decode_cut(row.data), Record)
        if ending is None:
            return await self._page(record, f"{token}.{proof}")
        return await self._picture(record.verification.citewire, _FORMATS[ending], call.query.whole)

    async def _picture(self, place: Place, form: Format, whole: bool) -> Response:
        if not place.boxes or place.sha256 is None:
            raise NotFound("this source has no looks; the page of the proof shows its words")
        page = place.boxes[0].page
        boxes = tuple((box.left, box.top, box.right, box.bottom) for box in place.boxes if box.page == page)
        crop = Crop(page, boxes, whole=whole, format=form, margin=MARGIN)
        image = await self._draw(place.sha256, crop)
        headers = {**SAFE, "cache-control": f"private, max-age={self._part}"}
        return Response(image, media_type=f"image/{form}", headers=headers)

    async def _draw(self, name: str, crop: Crop) -> bytes:
        image = self._drawn.get((name, crop)) or await self._shelves.draw(name, crop)
        # Somebody else may have asked for it meanwhile.
        self._size += len(image) - len(self._drawn.pop((name, crop), b""))
        self._drawn[name, crop] = image
        while self._size > _DRAWN and len(self._drawn) > 1:
            self._size -= len(self._drawn.popitem(last=False)[1])
        return image

    async def _page(self, record: Record, name: str) -> Response:
        place = record.verification.citewire
        document = await self._shelves.document(place.sha256) if place.sha256 else None
        has_looks = bool(place.boxes) and document is not None and document.kind == "pdf"
        sign, word = _WORDS.get(place.status, ("?", place.status))
        shown = {
            "status": place.status,
            "sign": sign,
            "word": word,
            "source": place.source or "a source",
            "quote": record.quote,
            "reason": place.reason or "",
            "page": "" if place.page is None else str(place.page),
            "warnings": "; ".join(place.warnings),
            "picture": self._signed(name, ".avif") if has_looks else "",
            "sha256": place.sha256 or "",
            "checked": record.verification.verified_at,
            "version": __version__,
        }
        # A link to words that a page has often takes a while to find.
        marked = await asyncio.to_thread(_marked, document, place) if document else None
        found = marked or _text(record.verification.verified_match_snippet or "")
        filled = {name: _text(text) for name, text in shown.items()} | {"found": found}
        headers = {**SAFE, "cache-control": "private, no-cache"}
        return Response(_PAGE.substitute(filled), media_type="text/html", headers=headers)


def _marked(document: Document, place: Place) -> str | None:
    """The words among those around them, and a link to them; None where the source reads differently now."""
    if place.start is None or place.end is None or place.end > len(document.text):
        return None
    marked = snippet(document, place.start, place.end)
    to = next(iter(links(document, place.start, place.end)), None)
    return f'{marked} <a href="{escape(to)}" rel="noreferrer">in the source</a>' if to else marked


def _text(text: str) -> str:
    """Text of others as a page may show it."""
    return escape(clean(text))


def _token(thread_id: str) -> str:
    return urlsafe_b64encode(thread_id.encode()).decode().rstrip("=")


def _thread(token: str) -> tuple[str, str]:
    """The thread that a token stands for, and its channel."""
    try:
        thread_id = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        return thread_id, channel_of(thread_id)
    except (ValueError, InputError):
        raise NotFound("there is no such proof") from None
