"""Verify citations in DeepCitation's record format and return the results in that format."""

from __future__ import annotations

import asyncio
import io
from base64 import b64encode
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

from msgspec.structs import replace
from PIL import Image

from citewire.agui.citations.records import MessageCitation, make_verification, read_record
from citewire.dialects.base import Json
from citewire.dialects.deepcitation import canonicalize
from citewire.documents.document import Document
from citewire.documents.draw import ImageFormat
from citewire.documents.errors import DocumentError
from citewire.errors import NotFound, ShapeError
from citewire.model import Source, SourceRef
from citewire.server.access.keys import Caller
from citewire.server.answers.verify_api import check_with_deadline
from citewire.server.deepcitation.attachments import UNSAFE, Attachment, Attachments
from citewire.server.deepcitation.wire import CitationsToVerify
from citewire.server.ops.timestamps import now_iso
from citewire.verification.document_set import CheckResult
from citewire.verification.engine import Engine
from citewire.verification.reader_pool import run_in_thread
from citewire.verification.verifier import QuoteCheck

__all__ = ["DeepCitationVerifier"]

_NOTHING = MessageCitation(SourceRef(""), Source("", "document"))
# The largest number of lines a record names for one place.
_MOST_LINES = 100


class _CheckedCitation(NamedTuple):
    """The result for one citation, with a picture of the place and the document that contains it."""

    checked: CheckResult
    picture: bytes | None = None
    document: Document | None = None


class DeepCitationVerifier:
    """Checks citations of a key's attachments or, for callers that may `verify`, of the server's sources."""

    def __init__(self, attachments: Attachments, engine: Engine, deadline: float) -> None:
        self._attachments, self._engine, self._deadline = attachments, engine, deadline

    async def verify(self, caller: Caller, data: CitationsToVerify) -> dict[str, Json]:
        """Return a record for each citation, by its key. An unreadable citation does not affect others."""
        if UNSAFE & data.citations.keys():
            raise ShapeError("a key is unsafe", "$.data.citations")
        held = await self._attachment(caller, data)
        held = held and await self._attachments.read(held)
        cited = {key: each for key, raw in data.citations.items() if (each := read_record(raw))}
        if held and held.reason:
            found = {
                key: _CheckedCitation(CheckResult(key, "skipped", held.reason, held.name)) for key in cited
            }
        else:
            found = await self._found(data, held, cited)
        return await run_in_thread(lambda: _records(data, held, cited, found))

    async def _attachment(self, caller: Caller, data: CitationsToVerify) -> Attachment | None:
        """Return the cited attachment, or None if the citations are of the server's own sources."""
        if data.attachment_id is None and data.sha256 is not None:
            return await self._attachments.find_by_hash(caller.key, data.sha256)
        if data.attachment_id is None:
            caller.require("verify", "verify")
            return None
        try:
            return await self._attachments.find_synced(caller.key, data.attachment_id)
        except NotFound:
            name = data.attachment_id.casefold()
            if caller.may("verify", "verify") and any(
                name in each.names for each in self._engine.shared_sources
            ):
                return None
            raise

    async def _found(
        self, data: CitationsToVerify, held: Attachment | None, cited: Mapping[str, MessageCitation]
    ) -> dict[str, _CheckedCitation]:
        scope, source = uuid4().hex, None if held else data.attachment_id
        asked = [
            QuoteCheck(
                key, _quote(each), source, each.expected_place, scope=scope, alone=held is not None,
                claim=_claim(data.citations[key]),
            )
            for key, each in cited.items()
        ]  # fmt: skip
        try:
            if held:
                await self._engine.add(await self._attachments.as_source(held), scope=scope, is_kept=True)
            checks = await check_with_deadline(self._engine, asked, self._deadline)
            pictures = await self._pictures(checks, data.output_image_format)
            documents = await self._documents(scope, {each.sha256 for each in checks if each.sha256})
        finally:
            await self._engine.forget(scope)
        return {
            checked.id or "": _CheckedCitation(checked, picture, documents.get(checked.sha256 or ""))
            for checked, picture in zip(checks, pictures, strict=True)
        }

    async def _pictures(self, checks: list[CheckResult], form: ImageFormat) -> list[bytes | None]:
        # Pictures are optional: the verdict already says where to look.
        with suppress(DocumentError, TimeoutError):
            async with asyncio.timeout(self._deadline):
                return await self._engine.pictures(checks, form)
        return [None] * len(checks)

    async def _documents(self, scope: str, sha256s: Collection[str]) -> dict[str, Document]:
        readings = {
            each.sha256: each for each in (*self._engine.shared_sources, *self._engine.scope_sources(scope))
        }

        def read() -> dict[str, Document]:
            known = {name: readings[name] for name in sha256s if name in readings}
            documents = {name: self._engine.get_document(each, boxes=False) for name, each in known.items()}
            return {name: document for name, document in documents.items() if document}

        return await run_in_thread(read)


def _quote(cited: MessageCitation) -> str:
    return cited.ref.quote or cited.ref.anchor or ""


def _claim(raw: Json) -> str:
    claim = canonicalize(raw).get("claimText")
    return claim if isinstance(claim, str) else ""


def _records(
    data: CitationsToVerify,
    held: Attachment | None,
    cited: Mapping[str, MessageCitation],
    found: Mapping[str, _CheckedCitation],
) -> dict[str, Json]:
    unread = _CheckedCitation(CheckResult(None, "skipped", "not a citation that can be read"))
    form, attached = data.output_image_format, _attached(held, data)
    return {
        key: {
            "citation": raw,
            **_record(cited.get(key, _NOTHING), found.get(key, unread), form),
            **attached,
        }
        for key, raw in data.citations.items()
    }


def _record(cited: MessageCitation, found: _CheckedCitation, form: ImageFormat) -> Json:
    checked, picture, document = found
    if checked.status == "verified" and not cited.ref.quote:
        checked = replace(checked, status="partial", reason="found_anchor_text_only")
    record: Json = {"searchAttempts": [], **make_verification(checked, cited, None, now_iso())}
    if document and checked.start is not None and checked.end is not None:
        record["document"] = {**record.get("document", {}), **_place(document, checked.start, checked.end)}
        if checked.status == "verified":
            record["status"] = _word(cited, document, checked.start, checked.end)
    anchor = cited.ref.anchor
    if anchor and anchor in (checked.found or ""):
        record["verifiedAnchorText"] = anchor
    if picture:
        width, height = Image.open(io.BytesIO(picture)).size
        src = f"data:image/{form};base64,{b64encode(picture).decode()}"
        record["evidence"] = {"src": src, "dimensions": {"width": width, "height": height}}
    return record


def _word(cited: MessageCitation, document: Document, start: int, end: int) -> str:
    """Return DeepCitation's status for a quote that was found verbatim."""
    if cited.expected_place.is_on_other_page(document, start, end):
        return "found_on_other_page"
    if any(cited.expected_place.describe_mismatch(document, start, end)):
        return "found_on_other_line"
    anchor, quote = cited.ref.anchor or "", cited.ref.quote or ""
    return "found" if anchor.casefold() in quote.casefold() else "found_phrase_missed_anchor_text"


def _place(document: Document, start: int, end: int) -> Json:
    """Return the page and lines of the words, on the page where they begin."""
    page = document.page_at(start)
    first, last = (document.line_at(at) for at in (start, max(start, min(end, page.end) - 1)))
    return {
        "verifiedPageNumber": page.number,
        "verifiedLineIds": [*range(first, last + 1)][:_MOST_LINES],
        "totalLinesOnPage": document.line_at(max(page.start, page.end - 1)),
    }


def _attached(held: Attachment | None, data: CitationsToVerify) -> Json:
    """Return the fields of a record that identify its attachment."""
    if held:
        return {"attachmentId": held.id, "label": held.name}
    return {"attachmentId": data.attachment_id} if data.attachment_id else {}
