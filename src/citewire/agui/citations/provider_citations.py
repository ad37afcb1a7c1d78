"""Reads citations from provider payloads that an agent forwards: whole answers, or events of a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from citewire.agui.citations.records import MessageCitation
from citewire.agui.events import Json
from citewire.codec import decode, encode
from citewire.dialects import dialects, open_stream, read_all, stream_dialects
from citewire.dialects.base import is_list, is_object
from citewire.dialects.gemini import stream as gemini_stream
from citewire.errors import CitewireError
from citewire.model import Answer, Citation, Source

__all__ = ["ProviderCitations"]

# A payload or event of a dialect has one of its words as a member, or as its type up to the first dot. Agents
# forward every token and much else, so only dialects with a matching word are tried.
_DIALECT_WORDS = {
    "ably": "action annotations name",
    "anthropic": "content content_block_delta content_block_start message_start message_stop",
    "azure.oyd": "choices context",
    "bedrock.converse": (
        "contentBlockDelta contentBlockStart contentBlockStop messageStart messageStop output"
    ),
    "bedrock.rag": "citation citations",
    "cohere": "citation-start content-delta message message-end message-start",
    "csl": "citationClusters",
    "deepcitation": "citations data text verifications",
    "gemini": "candidates",
    "gemini.interactions": "event_type steps",
    "langchain": "content data kwargs messages",
    "llamaindex": "blocks message source_nodes",
    "mistral": "choices conversation message outputs",
    "ngaf": "citations messages",
    "openai.assistants": "content data delta",
    "openai.chat": "author choices message",
    "openai.responses": "output response",
    "openrouter": "choices",
    "perplexity": "choices",
    "salesforce": "abstractMessage conversationEntries conversationEntry entryPayload staticContent",
    "salesforce.agent-api": "citedReferences message messages",
    "slack": "blocks event message",
    "teams": "channelData entities",
    "vercel": "content parts source source-document source-url text-delta text-start",
    "w3c": "first items target",
    "xai": "output response",
}
_DIALECTS_BY_WORD = {
    word: tuple(name for name, words in _DIALECT_WORDS.items() if word in words.split())
    for word in " ".join(_DIALECT_WORDS.values()).split()
}
# Dialects whose streams look alike until a distinctive event arrives, and the plainest dialect of each group.
_PLAIN = {
    "azure.oyd": "openai.chat",
    "mistral": "openai.chat",
    "openai.chat": "openai.chat",
    "openrouter": "openai.chat",
    "perplexity": "openai.chat",
    "openai.responses": "openai.responses",
    "xai": "openai.responses",
}
# Event types that have a meaning only in a stream that is already known.
_LATER = {
    "content_block_stop": "anthropic",
    "conversation.response.done": "mistral",
    "finish": "vercel",
    "start": "vercel",
}
# Event types that begin another answer of the same provider, and members that differ between answers.
_STARTS = frozenset(
    {
        "conversation.response.started",
        "interaction.created",
        "message-start",
        "messageStart",
        "message_start",
        "response.created",
        "start",
    }
)
_IDS = {"gemini": "responseId", "langchain": "id", "openai.chat": "id"}
# Events that also contain the whole answer: an agent may forward only these.
_REPEATS = ("response.completed", "response.incomplete")
# Bytes of events that are buffered until their dialect is known.
_BUFFER_BYTES = 1 << 20
# Sources are resolved from the answer so far. One stream may re-read this many characters (a citation counts
# as some), more than real streams need; after that, only when the stream has grown by 1/8.
_READ_AGAIN, _PER_CITATION, _GROWTH = 20_000_000, 200, 8


class ProviderCitations:
    """Recognises provider payloads, and follows provider streams."""

    def __init__(self) -> None:
        self._followed: dict[str, _ProviderStream] = {}
        self._last = ""
        # Bedrock sends text before the event that identifies the dialect.
        self._early = _EventBuffer()

    def read_event(self, event: Any) -> list[MessageCitation]:
        """Return the citations that `event` completes; none unless exactly one dialect recognises it. Bad
        content raises nothing."""
        try:
            payload = _unwrap_event(event)
            if is_object(payload):
                return self._take(payload)
            return [*_citations_of_all(read_all(payload))] if is_list(payload) else []
        except CitewireError:
            return []

    def _take(self, event: Json) -> list[MessageCitation]:
        streams = stream_dialects()
        if self._last and streams[self._last].detect([event]):
            return self._continue_stream(self._last, event)
        asked = _candidate_dialects(event)
        streamed = {name for name in asked & streams.keys() if streams[name].detect([event])}
        fitting = streamed | {name for name in asked if dialects()[name].detect(event)}
        if len(fitting) > 1:
            return []
        for name in fitting:
            return (
                self._continue_stream(name, event)
                if streamed
                else [*_citations_of_all(read_all(event, name))]
            )
        return self._take_later(event)

    def _take_later(self, event: Json) -> list[MessageCitation]:
        """Handle an event that only continues a stream, or may turn out to."""
        kind = event.get("type")
        name = _LATER.get(kind) if isinstance(kind, str) else "bedrock.rag" if "output" in event else None
        if name is not None and _PLAIN.get(name, name) in self._followed:
            return self._continue_stream(name, event)
        if name == "bedrock.rag":
            self._early.add(event)
        return []

    def _continue_stream(self, name: str, event: Json) -> list[MessageCitation]:
        kin = _PLAIN.get(name, name)
        followed = self._followed.get(kin)
        if followed is None or followed.is_other_answer(event):
            followed = self._followed[kin] = _ProviderStream(name, event)
            if name == "bedrock.rag":
                self._feed_early(followed, event)
        cited = [] if followed.name == name else followed.redetect(event)
        self._last = followed.name
        return [*cited, *followed.feed(event)]

    def _feed_early(self, followed: _ProviderStream, event: Json) -> None:
        early, self._early = self._early, _EventBuffer()
        for one in early:
            if stream_dialects()[followed.name].detect([one, event]):
                followed.feed(one)


class _ProviderStream:
    """A provider's stream of one answer."""

    def __init__(self, name: str, event: Json) -> None:
        self.name = name
        self._kin, self._telling = _PLAIN.get(name, name), event
        self._stream, self._kept = open_stream(name), _EventBuffer()
        self._id = event.get(_IDS.get(self._kin, ""))
        self._found: list[Citation] = []
        # Gemini's responses may have no id.
        self._is_at_end = False
        self._left, self._events, self._next = _READ_AGAIN, 0, 0

    def is_other_answer(self, event: Json) -> bool:
        """Whether `event` belongs to another answer."""
        if self._events and not _STARTS.isdisjoint(_kinds(event)):
            return True
        said = event.get(_IDS.get(self._kin, ""))
        self._id = self._id or said
        return said != self._id if said else self._is_at_end and gemini_stream.has_answer_text(event)

    def redetect(self, event: Json) -> list[MessageCitation]:
        """Detect the dialect again with `event`. If it changes, re-read the stream; returns its citations."""
        both, streams = [self._telling, event], stream_dialects()
        alike = (name for name, kin in _PLAIN.items() if kin == self._kin)
        name = next((name for name in alike if streams[name].detect(both)), self.name)
        if name == self.name:
            return []
        self.name, self._telling, self._stream = name, event, open_stream(name)
        self._found, kept, self._kept = [], self._kept, _EventBuffer()
        return [cited for one in kept for cited in self.feed(one)]

    def feed(self, event: Json) -> list[MessageCitation]:
        """Add `event` to the stream and return the new citations."""
        self._events += 1
        self._is_at_end = self._is_at_end or (
            self._kin == gemini_stream.NAME and gemini_stream.is_last_response(event)
        )
        self._found += self._stream.feed(event)
        if self._kin in _PLAIN:
            self._kept.add(event)
        if not self._found or (self._left <= 0 and self._events < self._next):
            return []
        found, self._found = self._found, []
        self._next = self._events + self._events // _GROWTH + 1
        answer = self._stream.answer()
        entries = len(answer.citations) + len(answer.problems)
        self._left -= sum(len(part.text) for part in answer.parts) + _PER_CITATION * entries
        return [*_citations_of(answer, found)]


class _EventBuffer:
    """Buffers the last events, up to a size limit."""

    def __init__(self) -> None:
        self._events: deque[bytes] = deque()
        self._size = 0

    def add(self, event: Json) -> None:
        self._events.append(encode(event))
        self._size += len(self._events[-1])
        while self._size > _BUFFER_BYTES:
            self._size -= len(self._events.popleft())

    def __iter__(self) -> Iterator[Any]:
        return map(decode, self._events)


def _unwrap_event(event: Any) -> Any:
    """Return the model data in a LangChain event, or the response in an event that repeats the whole answer.
    Other events are returned unchanged."""
    if not is_object(event):
        return event
    if event.get("type") in _REPEATS:
        return event.get("response")
    name, data = event.get("event"), event.get("data")
    if not isinstance(name, str) or not name.startswith("on_chat_model_") or not is_object(data):
        return event
    return data.get("chunk", data.get("output"))


def _candidate_dialects(event: Json) -> set[str]:
    """Return the dialects that `event` may belong to."""
    words, kind = event.keys() & _DIALECTS_BY_WORD.keys(), event.get("type")
    if isinstance(kind, str):
        words.add(kind.partition(".")[0])
    return {name for word in words for name in _DIALECTS_BY_WORD.get(word, ())}


def _kinds(event: Json) -> Iterator[str]:
    """Yield the possible type names of an event: its type, or its only member."""
    kinds = event.get("type"), event.get("event_type"), *(event if len(event) == 1 else ())
    return (kind for kind in kinds if isinstance(kind, str))


def _citations_of_all(answers: Iterable[Answer]) -> Iterator[MessageCitation]:
    return (cited for answer in answers for cited in _citations_of(answer, answer.citations))


def _citations_of(answer: Answer, citations: Iterable[Citation]) -> Iterator[MessageCitation]:
    sources = {source.id: source for source in answer.sources}
    for citation in citations:
        for ref in citation.refs:
            yield MessageCitation(ref, sources.get(ref.source_id, Source(ref.source_id)), citation.ordinal)
