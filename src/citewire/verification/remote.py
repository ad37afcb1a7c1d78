"""A verifier on another server: citewire, or any that implements DeepCitation's contract.

Sources are sent as attachments and quotes as citations; waiting quotes share one request. A failed request
costs only its own quotes their verdicts.

Errors are reported on the quotes they affect: `RemoteError` is never raised to the caller of `check`.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections import OrderedDict, defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from contextlib import aclosing, suppress
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from citewire.dialects.base import Json, is_object
from citewire.dialects.deepcitation.verdict import read_verdict
from citewire.documents.document import Document
from citewire.documents.draw import ImageFormat
from citewire.error_reports import report_detail, report_error
from citewire.errors import CitewireError
from citewire.text import one_line
from citewire.verification.document_set import NO_SOURCE, CheckResult
from citewire.verification.expected_place import replace_surrogates
from citewire.verification.named_sources import ORIGIN_WARNINGS
from citewire.verification.reader_pool import run_in_thread
from citewire.verification.remote_client import RemoteClient, RemoteError
from citewire.verification.sources import (
    SourceContent,
    SourceInput,
    SourceItem,
    iter_sources,
    qualified_name,
    read_original,
)
from citewire.verification.verifier import QuoteCheck, check_concurrently

if TYPE_CHECKING:
    from httpx2 import AsyncClient

__all__ = ["RemoteVerifier"]

_log = logging.getLogger("citewire.verification")

# Citations per request, concurrent requests, and quotes in progress per call.
_BATCH, _REQUESTS, _WAITING = 100, 4, 256
# Verdicts whose places are remembered, to request pictures later.
_REMEMBERED = 4096
# The first status present wins. If one source failed, it is unknown whether a quote is nowhere.
_RANK = {
    word: at
    for at, word in enumerate(("verified", "partial", "altered", "pending", "skipped", "missed"))
}  # fmt: skip
_CLOSED = "the verifier was closed"
# Statuses for an unknown attachment, and for a request that names none.
_UNKNOWN, _UNNAMED = (404,), (400, 403, 404)


class _Upload(NamedTuple):
    """A source being uploaded to the verifier, and its id there.

    The task returns None, or an error message.
    """

    id: str
    listed: SourceItem
    task: asyncio.Task[str | None]


class _Batch(NamedTuple):
    """Quotes to be sent in one request: all for one attachment, with pictures in one format."""

    attachment: str | None
    form: ImageFormat
    waiting: list[tuple[QuoteCheck, asyncio.Future[Json]]]


class RemoteVerifier:
    """A `Verifier` at `url`: `CitationMiddleware(agent, verifier=RemoteVerifier(url, api_key))`.

    A quote is checked in the source it names, added here or known to the verifier by that name; without a
    name, in all of them. A quote without a verdict after `deadline` seconds is `pending`, one whose request
    failed is `skipped`. A request times out after `timeout` seconds and is retried up to `retries` times, not
    before the `Retry-After` of a refusal. A `client` passed in is not closed.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        deadline: float | None = 30.0,
        timeout: float = 20.0,
        retries: int = 2,
        client: AsyncClient | None = None,
    ) -> None:
        patience = timeout if deadline is None else deadline
        self._peer = RemoteClient(
            url, api_key, timeout=timeout, patience=patience, retries=retries, client=client
        )
        self._deadline = deadline
        self._uploads: defaultdict[str | None, list[_Upload]] = defaultdict(list)
        self._batches: dict[tuple[str | None, ImageFormat], _Batch] = {}
        self._room = asyncio.Semaphore(_REQUESTS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._places: OrderedDict[CheckResult, tuple[str | None, QuoteCheck]] = OrderedDict()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop all requests, and delete the added sources. Checks in progress end as `skipped`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._remove_scope(scope) for scope in [*self._uploads]))
        await self._peer.aclose()

    # Sources.

    async def add(self, *sources: SourceInput, scope: str | None = None) -> None:
        """See `Verifier`. If a source cannot be sent, the quotes that need it are `skipped`."""
        for listed in await run_in_thread(lambda: list(iter_sources(sources))):
            name = token_hex(10)
            task = asyncio.create_task(self._upload(name, listed))
            self._uploads[scope].append(_Upload(name, listed, task))

    async def forget(self, scope: str) -> None:
        """See `Verifier`. The delete request is sent once; if it fails, the sources expire there."""
        await self._remove_scope(scope)

    async def prewarm(self) -> None:
        """See `Verifier`."""
        await _wait_for_uploads(self._uploads[None])

    async def _upload(self, name: str, listed: SourceItem) -> str | None:
        try:
            async with self._room:
                said = await self._peer.request(
                    "POST", "/prepareAttachments", await _upload_form(name, listed)
                )
        except RemoteError as exc:
            return report_error(exc, _log).message
        if said.get("status") != "error":
            return None
        why = one_line(said.get("error") or "", 500)
        return report_detail(why, _log, code=RemoteError.code, message="the verifier cannot read it").message

    async def _remove_scope(self, scope: str | None) -> None:
        gone = self._uploads.pop(scope, [])
        for upload in gone:
            upload.task.cancel()
        await _wait_for_uploads(gone)
        # Cancelled uploads too: they may have arrived.
        await asyncio.gather(*(self._delete(upload.id) for upload in gone))

    async def _delete(self, name: str) -> None:
        with suppress(RemoteError):
            async with self._room:
                await self._peer.request_once("DELETE", f"/attachments/{name}", {})

    # Quotes.

    async def check(
        self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]
    ) -> AsyncGenerator[CheckResult]:
        """See `Verifier`."""
        async with aclosing(check_concurrently(quotes, self._check_in_time, _WAITING)) as results:
            async for checked in results:
                yield checked

    async def _check_in_time(self, asked: QuoteCheck) -> CheckResult:
        try:
            async with asyncio.timeout(self._deadline):
                checked = await self._check_quote(asked)
        except TimeoutError:
            checked = CheckResult(None, "pending", "deadline")
        except Exception as exc:  # noqa: BLE001  # the root of a task: a bug is told of the quote that shows it
            report = report_error(exc, _log, code="check_failed", message="the check failed")
            checked = CheckResult(None, "skipped", report.message)
        return replace(checked, id=asked.id, quote=asked.quote)

    async def _check_quote(self, asked: QuoteCheck) -> CheckResult:
        """Check a quote in the source it names, or else in all sources. See `QuoteCheck`."""
        here = self._uploads.get(asked.scope, []) if asked.scope else []
        here = [*here, *(() if asked.alone else self._uploads[None])]
        ours = [upload for upload in here if upload.listed.origin is None]
        theirs = [upload for upload in here if upload.listed.origin is not None]
        wanted = asked.likely if asked.source is None else (asked.source,)
        if named := _named(ours, wanted):
            return _best([await self._check_in_upload(upload, asked) for upload in named])
        for name in () if asked.alone else wanted:
            if checked := await self._check_in_attachment(name, asked):
                return checked
        if named := _named(theirs, wanted):
            return _best([await self._check_in_upload(upload, asked) for upload in named])
        if asked.source is not None:
            return CheckResult(None, "skipped", f"no source is called {one_line(asked.source, 80)}")
        results = await asyncio.gather(*(self._check_in_upload(upload, asked) for upload in [*ours, *theirs]))
        everywhere = None if asked.alone else await self._check_in_attachment(None, asked)
        # A verifier without sources of its own says nothing about those that were added here.
        known = [everywhere] if everywhere and everywhere.reason != NO_SOURCE else []
        found = [*results[: len(ours)], *known, *results[len(ours) :]]
        return _best(found) if found else CheckResult(None, "skipped", "there is no source to look in")

    async def _check_in_upload(self, upload: _Upload, asked: QuoteCheck) -> CheckResult:
        await _wait_for_uploads([upload])
        if why := _CLOSED if upload.task.cancelled() else upload.task.result():
            return CheckResult(None, "skipped", why, upload.listed.name)
        checked = await self._check_in_attachment(upload.id, asked, upload.listed)
        return checked or CheckResult(None, "skipped", "the verifier has lost it", upload.listed.name)

    async def _check_in_attachment(
        self, name: str | None, asked: QuoteCheck, listed: SourceItem | None = None
    ) -> CheckResult | None:
        """Check a quote in an attachment; None if the verifier does not know this name.

        `listed` is the source if it was added here.
        """
        try:
            said = await self._request_verdict(name, "avif", asked)
        except RemoteError as exc:
            if _is_unknown_attachment(name, exc):
                return None
            return CheckResult(None, "skipped", exc.message)
        checked = _with_origin(_read_verdict(said), listed)
        if checked.boxes or "evidence" in said:
            self._places[checked] = name, asked
            if len(self._places) > _REMEMBERED:
                self._places.popitem(last=False)
        return checked

    async def pictures(self, found: Sequence[CheckResult], form: ImageFormat) -> list[bytes | None]:
        """See `Verifier`. Only for recent verdicts."""

        async def one(checked: CheckResult) -> bytes | None:
            place = self._places.get(replace(checked, id=None, quote=""))
            if place is None:
                return None
            try:
                return _picture(await self._request_verdict(place[0], form, place[1]), form)
            except RemoteError:
                return None

        return [*await asyncio.gather(*map(one, found))]

    # Requests.

    async def _request_verdict(self, attachment: str | None, form: ImageFormat, asked: QuoteCheck) -> Json:
        """Request the published record of a verdict. Raises `RemoteError`."""
        batch = self._batches.get((attachment, form))
        if batch is None or len(batch.waiting) >= _BATCH:
            batch = self._batches[attachment, form] = _Batch(attachment, form, [])
            self._tasks.add(task := asyncio.create_task(self._send(batch)))
            task.add_done_callback(self._tasks.discard)
        future = asyncio.get_running_loop().create_future()
        batch.waiting.append((asked, future))
        return await future

    async def _send(self, batch: _Batch) -> None:
        """Send all quotes that join the batch before it gets a request slot."""
        failure: Exception = RemoteError(_CLOSED)
        said: Json = {}
        try:
            # Once the request is sent, no quote waits for it longer than this.
            async with self._room, asyncio.timeout(self._deadline):
                self._close_batch(batch)
                answer = await self._peer.request("POST", "/verifyCitations", {"json": _question(batch)})
            verdicts = answer.get("verifications")
            said = verdicts if is_object(verdicts) else {}
            failure = RemoteError("the verifier said nothing of it")
        except Exception as exc:  # noqa: BLE001  # the root of a task: those who wait are told
            failure = exc if _is_unknown_attachment(batch.attachment, exc) else _reported(exc)
        finally:
            self._close_batch(batch)
            for at, (_, future) in enumerate(batch.waiting):
                if future.done():
                    continue
                if is_object(record := said.get(_name(at))):
                    future.set_result(record)
                else:
                    future.set_exception(failure)

    def _close_batch(self, batch: _Batch) -> None:
        if self._batches.get((batch.attachment, batch.form)) is batch:
            del self._batches[batch.attachment, batch.form]


def _is_unknown_attachment(attachment: str | None, error: Exception) -> bool:
    """Return whether the error says that the verifier does not know this attachment."""
    return isinstance(error, RemoteError) and error.status in (_UNNAMED if attachment is None else _UNKNOWN)


def _reported(error: Exception) -> RemoteError:
    """Log an error once, and return it as reported to all quotes of the request."""
    report = report_error(error, _log, code=RemoteError.code, message="the request to the verifier failed")
    return RemoteError(report.message)


async def _wait_for_uploads(uploads: Iterable[_Upload]) -> None:
    """Wait for uploads. They continue if this is cancelled."""
    if tasks := [upload.task for upload in uploads if not upload.task.done()]:
        await asyncio.wait(tasks)


async def _upload_form(name: str, listed: SourceItem) -> Json:
    """Return the request body that uploads a source. Raises `RemoteError`."""
    if isinstance(listed.source, str):
        return {"json": {"url": listed.source, "attachmentId": name}}
    data = await run_in_thread(lambda: _content(listed))
    if data is None:
        raise RemoteError(f"{one_line(listed.name, 80)} cannot be read")
    kind = listed.source.content_type if isinstance(listed.source, SourceContent) else ""
    file = ("source", data, kind or "application/octet-stream")
    return {
        "files": {"file": file},
        "data": {"attachmentId": name, "filename": replace_surrogates(listed.name)},
    }


def _content(listed: SourceItem) -> bytes | None:
    source = listed.source
    text = source.content if isinstance(source, SourceContent) else None
    if isinstance(source, Document):
        text = source.text
    return text.encode("utf-8", "replace") if isinstance(text, str) else read_original(listed)


def _name(at: int) -> str:
    return f"{at:016x}"


def _question(batch: _Batch) -> Json:
    citations = {_name(at): _citation(asked) for at, (asked, _) in enumerate(batch.waiting)}
    named = {} if batch.attachment is None else {"attachmentId": replace_surrogates(batch.attachment)}
    return {"data": {**named, "citations": citations, "outputImageFormat": batch.form}}


def _citation(asked: QuoteCheck) -> Json:
    near = asked.near.wire_safe
    said: Json = {
        "fullPhrase": replace_surrogates(asked.quote) if asked.quote.strip() else None,
        "pageNumber": near.pages[0] if near.pages else None,
        "lineIds": near.lines,
        "claimText": replace_surrogates(asked.claim),
    }
    return {"type": "document", **{name: value for name, value in said.items() if value}}


def _read_verdict(said: Json) -> CheckResult:
    """Read a verdict from our own extension if it is there, else from the published fields."""
    try:
        verdict = read_verdict(said)
    except CitewireError as exc:
        return CheckResult(None, "skipped", f"the verdict cannot be read: {exc.message}")
    label = said.get("label")
    plainly = CheckResult(
        None, verdict.status, verdict.reason, label if isinstance(label, str) else None, verdict.page,
        found=verdict.quote,
    )  # fmt: skip
    ours = said.get("citewire")
    if not is_object(ours):
        return plainly
    try:
        return msgspec.convert({**ours, "id": None, "quote_found": verdict.quote}, CheckResult)
    except msgspec.ValidationError:
        return plainly


def _with_origin(checked: CheckResult, listed: SourceItem | None) -> CheckResult:
    """Add a source's client origin to its verdict. The names of the verifier's own sources are unknown."""
    origin = listed.origin if listed else None
    if listed is None or origin is None or checked.status not in ("verified", "partial", "altered"):
        return checked
    warnings = (*checked.warnings, ORIGIN_WARNINGS[origin])
    return replace(checked, source=qualified_name(listed.name, origin), warnings=warnings, origin=origin)


def _named(uploads: Iterable[_Upload], wanted: Iterable[str]) -> list[_Upload]:
    """Return the sources with the first of the `wanted` names that any source has."""
    known = list(uploads)
    found = ([each for each in known if name.casefold() in each.listed.names] for name in wanted)
    return next(filter(None, found), list[_Upload]())


def _picture(said: Json, form: ImageFormat) -> bytes | None:
    evidence = said.get("evidence")
    src = evidence.get("src") if is_object(evidence) else None
    head = f"data:image/{form};base64,"
    if not isinstance(src, str) or not src.startswith(head):
        return None
    try:
        return b64decode(src[len(head) :], validate=True)
    except ValueError:
        return None


def _best(found: Sequence[CheckResult]) -> CheckResult:
    return min(found, key=lambda checked: _RANK[checked.status])
