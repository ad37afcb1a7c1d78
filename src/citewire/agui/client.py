"""HTTP client for remote agents: `HttpAgent` posts a run input and streams the events of the response."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

from msgspec.structs import replace

from citewire.agui import events
from citewire.agui.agents import BaseAgent
from citewire.agui.compression import Decompressor, coding_of
from citewire.agui.events import AnyEvent, RunInput
from citewire.agui.retired_shapes import modernise_messages, without_null
from citewire.agui.sse import SseFrame, SseParser
from citewire.agui.transport import (
    BadStatus,
    ConnectFailed,
    DeadlinePassed,
    NoAnswer,
    NotAnEventStream,
    RunTimer,
    StreamEnded,
    StreamStalled,
    Timeouts,
    UnsupportedEncoding,
)
from citewire.errors import DecodeError, InputError
from citewire.text import one_line

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

__all__ = ["HttpAgent"]

_EVENT_STREAM = "text/event-stream"
_PROTOBUF = "application/vnd.ag-ui.event+proto"
_DOCUMENT = re.compile(r"text/html|application/(?:\S+\+)?(?:json|xml)")
# Compressed responses are read, but not requested.
_OURS = {"accept": _EVENT_STREAM, "accept-encoding": "identity"}
_UNNAMED = "the response has no content type of events, and holds none"
_TERMINAL = frozenset({"RUN_FINISHED", "RUN_ERROR"})

# A gateway's statuses when the agent is unreachable: nothing ran, so a retry is safe. After 504 one may have.
_TRY_AGAIN = frozenset({502, 503})
_LONGEST_PAUSE = 10.0

# For the body of a response that is not an event stream: bytes to read, seconds to wait, characters to show.
_EXCERPT_BYTES, _EXCERPT_SECONDS, _EXCERPT_SHOWN = 4096, 5.0, 200

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")

_DEFAULT = Timeouts()


class _HttpRequest(NamedTuple):
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


class HttpAgent(BaseAgent):
    """A remote AG-UI agent at `url`, for use with an `Agent` or with a loop over `run_agent()`.

    Failed connections and HTTP 502 and 503 are retried up to `retries` times with a growing pause; nothing is
    retried after the first event. Values of `headers` never appear in errors. A `client` passed by the caller
    stays open; without one the agent creates its own and closes it in `aclose` or at the end of `async with`.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = _DEFAULT,
        retries: int = 2,
        backoff: float = 0.25,
        connect_url: str | None = None,
        client: AsyncClient | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.url = _checked_url(url)
        self.connect_url = _checked_url(connect_url or url)
        self.timeouts = timeouts
        self.last_event_id: str | None = None
        self._headers = _checked_headers(headers or {})
        self._retries = retries
        self._backoff = backoff
        self._client = client
        self._owned: AsyncClient | None = None

    def run(self, run_input: RunInput) -> AsyncIterator[AnyEvent]:
        body, self.last_event_id = events.write_json(prepare_input(run_input)), None
        return self._stream(_HttpRequest("POST", self.url, {"content-type": "application/json"}, body))

    def connect(self, last_event_id: str | None = None) -> AsyncGenerator[AnyEvent]:
        """Join a run started by another client and return its events after `last_event_id`. Skips middleware.

        A peer without events may answer with HTTP 204 or an empty stream.
        """
        headers = {} if last_event_id is None else {"last-event-id": last_event_id}
        self.last_event_id = last_event_id
        return self._until_aborted(lambda _: self._stream(_HttpRequest("GET", self.connect_url, headers)))

    async def aclose(self) -> None:
        """Abort the active runs and close the agent's own HTTP client."""
        self.abort_run()
        owned, self._owned = self._owned, None
        if owned:
            await owned.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _stream(self, ask: _HttpRequest) -> AsyncGenerator[AnyEvent]:
        waits = RunTimer(self.timeouts.total)
        response = await self._send_with_retries(ask, waits)
        try:
            if ask.method == "GET" and response.status_code == 204:
                return
            reading = _ResponseReader(
                self, sure=await _is_event_stream(response), joining=ask.method == "GET"
            )
            async with aclosing(reading.frames(response, waits)) as received:
                async for frames in received:
                    for event in reading.events(frames):
                        yield event
            reading.check_ended()
        finally:
            await response.aclose()

    async def _send_with_retries(self, ask: _HttpRequest, waits: RunTimer) -> Response:
        """Send the request, with retries, and return the response. Raises the error of the last attempt."""
        pause, left = self._backoff, self._retries
        while True:
            try:
                return await self._send_once(ask, waits)
            except (ConnectFailed, BadStatus) as exc:
                if not left or (isinstance(exc, BadStatus) and exc.status not in _TRY_AGAIN):
                    raise
                jitter = random.uniform(0.5, 1.5)  # noqa: S311  # keeps clients apart, hides nothing
                await waits.wait_within(None, asyncio.sleep(min(pause * jitter, _LONGEST_PAUSE)), exc)
            pause, left = pause * 2, left - 1

    async def _send_once(self, ask: _HttpRequest, waits: RunTimer) -> Response:
        import httpx2  # noqa: PLC0415  # a sixth of a second that only those pay who use it

        client = self._client or self._owned
        if client is None:
            client = self._owned = httpx2.AsyncClient()
        # As bytes, since an event id may contain any character.
        headers = [(k.encode(), v.encode()) for k, v in {**self._headers, **ask.headers, **_OURS}.items()]
        timeout = httpx2.Timeout(None, connect=self.timeouts.connect)
        where, seconds = _origin_of(ask.url), self.timeouts.first_byte
        try:
            request = client.build_request(
                ask.method, ask.url, headers=headers, content=ask.body, timeout=timeout
            )
            sent = client.send(request, stream=True, follow_redirects=False)
            late = NoAnswer(f"the agent did not answer within {seconds} s", detail=where)
            response = await waits.wait_within(seconds, sent, late)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            raise ConnectFailed(
                "cannot connect to the agent", detail=f"{where}: {type(exc).__name__}"
            ) from exc
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            # Not `from exc`: some of these errors quote header values.
            raise NoAnswer("the agent gave no answer", detail=f"{where}: {type(exc).__name__}") from None
        if response.is_success:
            return response
        raise BadStatus(response.status_code, await _excerpt(response))


class _ResponseReader:
    """Reads the events of one response and tracks whether the run has ended."""

    def __init__(self, agent: HttpAgent, sure: bool, joining: bool) -> None:
        self._agent = agent
        self._sure = sure
        self._begun = False
        self._cut = False
        # A client that joins may be too late to receive any event.
        self._ended = joining
        self._until: float | None = None

    async def frames(self, response: Response, waits: RunTimer) -> AsyncGenerator[list[SseFrame]]:
        """Yield the frames as they arrive, and finally those completed by the end of the response.

        Connection errors after the end of the run are ignored.
        """
        import httpx2  # noqa: PLC0415  # see _send_once

        frames, unpacked = SseParser(), _make_decoder(response)
        late = StreamStalled(f"the agent sent nothing for {self._agent.timeouts.idle} s")
        async with aclosing(response.aiter_raw()) as pieces:
            try:
                while (
                    piece := await waits.wait_within(self._next_timeout(), anext(pieces, None), late)
                ) is not None:
                    for part in unpacked(piece):
                        yield frames.feed(part)
            except httpx2.HTTPError as exc:
                if not self._ended:
                    raise StreamEnded("the connection broke before the run ended") from exc
            except (StreamStalled, DeadlinePassed):
                if not self._ended:
                    raise
        self._cut = True
        yield frames.finish()

    def _next_timeout(self) -> float | None:
        """Return the seconds to wait for more data; after a run has ended, the rest of the grace period."""
        timeouts, now = self._agent.timeouts, asyncio.get_running_loop().time()
        if not (self._begun and self._ended):
            self._until = None
            return timeouts.idle
        if self._until is None:
            self._until = now + timeouts.grace
        return self._until - now

    def events(self, frames: Iterable[SseFrame]) -> Iterator[AnyEvent]:
        for frame in frames:
            if frame.id is not None:
                self._agent.last_event_id = frame.id or None
            if frame.data and (event := self._event(frame.data)):
                if frame.replaced:
                    self._agent.on_problem(
                        "bad_utf8", f"{one_line(event.type, 80)} has bytes that are not UTF-8"
                    )
                self._note(event.type)
                yield event

    def _event(self, data: bytes) -> AnyEvent | None:
        try:
            return events.decode(data)
        except (events.EventError, DecodeError) as exc:
            if not (self._sure or self._begun):
                raise NotAnEventStream(_UNNAMED) from exc
            if not self._cut:
                raise
            if not self._ended:
                raise StreamEnded("the agent closed the stream within an event") from exc
            return None

    def _note(self, kind: str) -> None:
        if kind in _TERMINAL:
            self._ended = True
        elif kind == "RUN_STARTED" or not self._begun:
            self._ended = False
        self._begun = True

    def check_ended(self) -> None:
        """Raise unless the run has ended."""
        if self._ended:
            return
        if self._sure or self._begun:
            raise StreamEnded("the agent closed the stream before the run ended")
        raise NotAnEventStream(_UNNAMED)


async def _is_event_stream(response: Response) -> bool:
    """Whether the content type is that of an event stream. Raises if it is known to be something else."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _PROTOBUF:
        raise UnsupportedEncoding("the agent sends protobuf; citewire reads text/event-stream")
    if coding_of(coding := response.headers.get("content-encoding", "")) is None:
        raise UnsupportedEncoding("the agent sends compressed events that cannot be read", detail=coding)
    if _DOCUMENT.fullmatch(kind):
        said = f"{one_line(kind, 80)}: {await _excerpt(response)}"
        raise NotAnEventStream("the agent answered with a document, not with events", detail=said)
    return kind == _EVENT_STREAM


def _make_decoder(response: Response) -> Callable[[bytes], Iterable[bytes]]:
    """Return a function that decompresses pieces of the body; its pieces may be smaller or larger."""
    coded = coding_of(response.headers.get("content-encoding", ""))
    return Decompressor().feed if coded else lambda piece: (piece,)


async def _excerpt(response: Response) -> str:
    """Return the start of a response body, in a form that is safe to display."""
    import httpx2  # noqa: PLC0415  # see _send_once

    taken = b""
    with suppress(httpx2.HTTPError, TimeoutError):
        async with asyncio.timeout(_EXCERPT_SECONDS), aclosing(response.aiter_raw()) as pieces:
            async for piece in pieces:
                taken += piece[:_EXCERPT_BYTES]
                if len(taken) >= _EXCERPT_BYTES:
                    break
    await response.aclose()
    return one_line(" ".join(taken.decode("utf-8", "replace").split()), _EXCERPT_SHOWN)


def prepare_input(run_input: RunInput) -> RunInput:
    """Convert the input to protocol 1.0: no activities, which only clients show, and no retired parts."""
    sent = [message for message in run_input.messages if message.get("role") != "activity"]
    messages = [without_null(message, "subagentRunId") for message in modernise_messages(sent)]
    return replace(run_input, messages=messages)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or 0) >= 0
    except ValueError:
        fine = False
    if not fine:
        raise InputError("the URL of an agent is absolute, and http or https")
    return url


def _origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, without parts that may be secret."""
    parts = urlsplit(url)
    return one_line(f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else ""), 200)


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Validate headers and lower-case their names. HTTP libraries would quote a refused value in errors."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InputError(f"the header {one_line(name, 80)} has a character that HTTP does not take")
    return {name.lower(): value for name, value in headers.items()}
