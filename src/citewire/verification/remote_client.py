"""HTTP client for a remote verifier, with a timeout and retries where they may help."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from citewire import codec
from citewire.dialects.base import Json, is_object
from citewire.errors import CitewireError, InputError
from citewire.text import one_line

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

__all__ = ["RemoteClient", "RemoteError"]

# Most bytes of a response: a hundred verdicts with pictures are a tenth of it.
_LARGEST = 64 << 20
# Seconds before the first retry, unless the response says otherwise; doubled for each later one.
_PAUSE = 0.5
# Characters of the body of an error response that are logged.
_EXCERPT = 500
_KEY = re.compile(r"[!-~]+")


class RemoteError(CitewireError):
    """The verifier gave no usable response. Retry after `wait` seconds; None means never."""

    code = "verifier_failed"

    def __init__(
        self, message: str, wait: float | None = None, status: int | None = None, *, detail: object = ""
    ) -> None:
        super().__init__(message, detail=detail)
        self.wait, self.status = wait, status


class RemoteClient:
    """Client for the verifier at `url`.

    A request times out after `timeout` seconds and is retried up to `retries` times, unless the verifier asks
    for a wait of more than `patience` seconds. A `client` passed in is not closed.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout: float,
        patience: float,
        retries: int,
        client: AsyncClient | None,
    ) -> None:
        if not _is_base(url):
            raise InputError("the address of a verifier is an http or https URL without a query", "url")
        if not _KEY.fullmatch(api_key):
            raise InputError("an API key is printable ASCII", "api_key")
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {api_key}", "accept-encoding": "identity"}
        self._timeout, self._patience, self._retries = timeout, patience, retries
        self._client, self._owned = client, None

    async def aclose(self) -> None:
        """Close the connections opened here."""
        owned, self._owned = self._owned, None
        if owned:
            await owned.aclose()

    async def request(self, method: str, path: str, body: Json) -> Json:
        """Send a request, with retries, and return the response. Raises the error of the last attempt."""
        pause, left = _PAUSE, self._retries
        while True:
            try:
                return await self.request_once(method, path, body)
            except RemoteError as exc:
                if exc.wait is None or not left or exc.wait > self._patience:
                    raise
                await asyncio.sleep(max(exc.wait, pause))
            pause, left = pause * 2, left - 1

    async def request_once(self, method: str, path: str, body: Json) -> Json:
        """Send one request and return the response; `body` holds httpx2's arguments. Raises `RemoteError`."""
        import httpx2  # noqa: PLC0415  # a sixth of a second that only those pay who use it

        client = self._client or self._owned
        if client is None:
            client = self._owned = httpx2.AsyncClient()
        try:
            async with (
                asyncio.timeout(self._timeout),
                client.stream(
                    method,
                    self._url + path,
                    headers=self._headers,
                    timeout=None,
                    follow_redirects=False,
                    **body,
                ) as response,
            ):
                data = await _data(response)
        except TimeoutError:
            raise RemoteError(f"the verifier did not answer within {self._timeout:g} s", 0) from None
        except httpx2.HTTPError as exc:
            # Not `from exc`: some of these errors quote the value of a header.
            raise RemoteError(f"the verifier gave no answer: {type(exc).__name__}", 0) from None
        return _answer(response, data)


def _is_base(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query + parts.fragment
    except ValueError:
        return False


async def _data(response: Response) -> bytes:
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) > _LARGEST:
            raise RemoteError("the answer of the verifier is too large")
    return bytes(data)


def _answer(response: Response, data: bytes) -> Json:
    status = response.status_code
    if not response.is_success:
        wait = _wait(response) if status == 429 or status >= 500 else None
        why = f"the verifier answered HTTP {status}"
        raise RemoteError(why, wait, status, detail=one_line(data.decode("utf-8", "replace"), _EXCERPT))
    try:
        said = codec.decode(data)
    except CitewireError:
        said = None
    if not is_object(said):
        raise RemoteError("the answer of the verifier is no JSON object")
    return said


def _wait(response: Response) -> float:
    """Return the seconds in `Retry-After`: a number, or the time until a date."""
    said = response.headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        return float(said[:9])
    try:
        until = parsedate_to_datetime(said)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
