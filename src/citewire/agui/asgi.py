"""ASGI middleware for apps that answer a POST request with a stream of AG-UI events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, TypeAlias, cast

from citewire import codec
from citewire.agui import events
from citewire.agui.compression import Decompressor, coding_of
from citewire.agui.events import AnyEvent, Json, RunInput, write_json
from citewire.agui.middleware import Citing, OutgoingEvent, PutEvent, RunSink
from citewire.agui.sse import MAX_FRAME, FrameTooLarge, SseFrame, SseParser, encode_frame
from citewire.agui.transport import UnsupportedEncoding
from citewire.errors import CitewireError
from citewire.verification.sources import SourceInput
from citewire.verification.verifier import Verifier

__all__ = ["CitationMiddleware"]

AsgiMessage: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

# Bytes of a request body that are read to detect a run input; a larger request passes through unchanged.
_LARGEST_INPUT = 64 << 20
_CODED = {b"content-encoding", b"content-length"}


class CitationMiddleware:
    """Checks the citations in the event streams of `app`: `app = CitationMiddleware(app, sources="docs/")`.

    Other requests, and responses that are not event streams, pass through unchanged. A stream compressed with
    gzip or deflate is sent on decompressed; streams with other compressions pass through unchecked.
    """

    def __init__(
        self,
        app: App,
        sources: SourceInput | Iterable[SourceInput] = (),
        *,
        verifier: Verifier | None = None,
        sink: RunSink | None = None,
        **options: Any,
    ) -> None:
        self.app = app
        self._citing = Citing(sources, verifier=verifier, sink=sink, **options)

    @staticmethod
    def over(
        sources: SourceInput | Iterable[SourceInput] = (),
        *,
        verifier: Verifier | None = None,
        sink: RunSink | None = None,
        **options: Any,
    ) -> Citing:
        """Return the same checks for a remote agent: `HttpAgent(url).use(CitationMiddleware.over(…))`."""
        return Citing(sources, verifier=verifier, sink=sink, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] != "http" or scope.get("method") != "POST":
            await self.app(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle lifespan. Closes the engine, which the first stream starts, even if the app ignores it."""
        life = _Lifespan(receive, send)
        try:
            try:
                await self.app(scope, life.receive, life.send)
            except Exception:
                if life.has_answered:
                    raise
            if not life.has_answered:
                await life.stand_in()
        finally:
            await self._citing.aclose()
        if life.stands_in:
            await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _Request(scope, receive)
        posted = await request.read()
        if posted is None:
            await self.app(scope, request.replay, send)
            return
        run_input = _run_input(posted)
        state = self._citing.input_for_agent(run_input).state
        if state != run_input.state:
            request.change({**posted, "state": state})
        response = _Response(send)
        stream = await self._citing.stream(run_input)

        async def receive_next() -> AsgiMessage:
            message = await request.replay()
            if message["type"] == "http.disconnect":
                stream.disconnect()
            return message

        async def produce(put: PutEvent) -> None:
            response.put = put
            await self.app(request.scope, receive_next, response.take)

        async def send_on(sent: list[OutgoingEvent]) -> None:
            await send({"type": "http.response.body", "body": _bytes(sent), "more_body": True})

        await stream.run(produce, send_on)
        if response.is_events:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Lifespan:
    """Answers the lifespan protocol for an app that does not support it."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.has_answered = self.stands_in = self._has_started = False

    async def receive(self) -> AsgiMessage:
        message = await self._receive()
        self._has_started = True
        return message

    async def send(self, message: AsgiMessage) -> None:
        self.has_answered = True
        await self._send(message)

    async def stand_in(self) -> None:
        """Confirm the startup in place of the app, and return at shutdown."""
        self.stands_in = True
        if not self._has_started:
            await self._receive()
        await self._send({"type": "lifespan.startup.complete"})
        await self._receive()


class _Request:
    """A request whose body is read first and then replayed to the app."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope, self._receive = scope, receive
        self._messages: list[AsgiMessage] = []

    async def read(self) -> Json | None:
        """Return the run input in the body, or None if the body is something else."""
        size, more = 0, True
        while more and size <= _LARGEST_INPUT:
            message = await self._receive()
            self._messages.append(message)
            size += len(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)
        try:
            posted = codec.decode(b"".join(message.get("body", b"") for message in self._messages))
        except CitewireError:
            return None
        if more or not isinstance(posted, dict):
            return None
        fields = cast("Json", posted)
        return fields if isinstance(fields.get("messages"), list) and "threadId" in fields else None

    def change(self, posted: Json) -> None:
        body = write_json(posted)
        headers = [pair for pair in self.scope["headers"] if pair[0].lower() not in _CODED]
        length = (b"content-length", str(len(body)).encode())
        self.scope = {**self.scope, "headers": [*headers, length]}
        self._messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay(self) -> AsgiMessage:
        return self._messages.pop(0) if self._messages else await self._receive()


def _run_input(posted: Json) -> RunInput:
    """Build a `RunInput` with the fields the middleware needs; the app gets the complete input."""
    context = posted.get("context")
    return RunInput(
        thread_id=str(posted["threadId"]),
        run_id=str(posted.get("runId", "")),
        messages=posted["messages"],
        state=posted.get("state"),
        context=cast("list[Any]", context) if isinstance(context, list) else [],
    )


class _Response:
    """The app's response: events go into the citation stream, any other response passes through."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.put: PutEvent = _nowhere
        self.is_events = self._is_cut = False
        self._frames = SseParser()
        self._unpacked: Decompressor | None = None

    async def take(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            coding = _coding(message)
            self.is_events = _is_event_stream(message) and coding is not None
            if self.is_events:
                self._unpacked = Decompressor() if coding else None
                headers = [pair for pair in message["headers"] if pair[0].lower() not in _CODED]
                message = {**message, "headers": headers}
            await self._send(message)
        elif not self.is_events or message["type"] != "http.response.body":
            await self._send(message)
        elif self._unpacked:
            await self._unpack(self._unpacked, message)
        else:
            await self._take_body(message)

    async def _take_body(self, message: AsgiMessage) -> None:
        if (event := self._whole(message)) is not None:
            await self.put((event, message["body"]))
        else:
            async for sent in self._events(message):
                await self.put(sent)

    async def _unpack(self, unpacked: Decompressor, message: AsgiMessage) -> None:
        """Decompress the body piece by piece. An unreadable body ends the run with RUN_ERROR."""
        if not self._is_cut:
            try:
                for part in unpacked.feed(message.get("body", b"")):
                    await self._take_body({"type": message["type"], "body": part, "more_body": True})
            except UnsupportedEncoding as exc:
                self._is_cut = True
                await self.put((events.RunError(exc.message, exc.code), b""))
        if not message.get("more_body", False):
            await self._take_body({"type": message["type"], "body": b""})

    def _whole(self, message: AsgiMessage) -> AnyEvent | None:
        """Return the event if the message is exactly one plain frame, as nearly all are; otherwise None."""
        body: bytes = message.get("body", b"")
        if not (
            body.startswith(b"data: {")
            and body.endswith(b"}\n\n")
            and body.count(b"\n") == 2
            and b"\r" not in body
            and len(body) < MAX_FRAME
            and message.get("more_body")
            and self._frames.is_between_frames
        ):
            return None
        try:
            event = events.decode_plain(body[6:-2])
        except events.PLAIN_ERRORS:
            return None
        return None if event.extra else event

    async def _events(self, message: AsgiMessage) -> AsyncIterator[OutgoingEvent]:
        body: bytes = message.get("body", b"")
        try:
            for sent in self._read(body):
                yield sent
            if not message.get("more_body", False):
                for each in self._frames.finish():
                    yield _sent(each, b"")
        except FrameTooLarge as exc:
            # No client accepts this frame or anything after it.
            if not self._is_cut:
                self._is_cut = True
                yield events.RunError(exc.message, exc.code), b""

    def _read(self, body: bytes) -> Iterator[OutgoingEvent]:
        was_between = self._frames.is_between_frames
        frames = self._frames.feed(body)
        is_between = self._frames.is_between_frames
        if not frames and was_between and is_between and body:
            yield None, body  # keep-alive comments
        elif len(frames) == 1 and was_between and is_between and b"\r" not in body:
            yield _sent(frames[0], body)
        else:
            for each in frames:
                yield _sent(each, b"")


async def _nowhere(_: OutgoingEvent) -> None:
    """Ignore events before the stream runs."""


def _sent(found: SseFrame, raw: bytes) -> OutgoingEvent:
    raw = raw or _framed(found)
    try:
        return events.decode(found.data), raw
    except CitewireError:
        # Passed on: the client reports the error. [DONE], which ends the streams of other APIs, is dropped.
        return None, b"" if found.data == b"[DONE]" else raw


def _framed(found: SseFrame) -> bytes:
    lines = [b"event: " + found.event.encode()] if found.event is not None else []
    if found.id is not None:
        lines.append(b"id: " + found.id.encode())
    if found.data:
        lines += (b"data: " + line for line in found.data.split(b"\n"))
    return b"\n".join(lines) + b"\n\n"


def _bytes(sent: list[OutgoingEvent]) -> bytes:
    return b"".join(raw or (encode_frame(event) if event is not None else b"") for event, raw in sent)


def _is_event_stream(start: AsgiMessage) -> bool:
    kind = _header(start, b"content-type").partition(";")[0].strip().lower()
    return kind == "text/event-stream" and start["status"] == 200


def _coding(start: AsgiMessage) -> str | None:
    return coding_of(_header(start, b"content-encoding"))


def _header(start: AsgiMessage, wanted: bytes) -> str:
    """Return all values of a header, joined with commas."""
    values = (value for name, value in start.get("headers", ()) if name.lower() == wanted)
    return b",".join(values).decode("latin-1")
