"""What an agent passes on of its provider: answers as a whole, or event by event as they are streamed."""

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

# What a payload or an event of a dialect has one of: a member, or a type, up to its first dot. Agents pass on
# every token and much else, so that only those are asked whose it could be.
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
# Streams that look alike until something comes that only one of them has, by the one that has nothing.
_PLAIN = {
    "azure.oyd": "openai.chat",
    "mistral": "openai.chat",
    "openai.chat": "openai.chat",
    "openrouter": "openai.chat",
    "perplexity": "openai.chat",
    "openai.responses": "openai.responses",
    "xai": "openai.responses",
}
# Types that say something only in a stream that is known already.
_LATER = {
    "content_block_stop": "anthropic",
    "conversation.response.done": "mistral",
    "finish": "vercel",
    "start": "vercel",
}
# With what another answer of the same provider begins, or what is another for each.
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
# With these, too, comes the whole answer: an agent may pass on no more than that.
_REPEATS = ("response.completed", "response.incomplete")
# Bytes of events that are kept until it is known whose they are.
_BUFFER_BYTES = 1 << 20
# Which source is meant is read from the answer so far. So many characters (a citation counts as some) are
# read again for one stream, more than real ones need; then only when the stream has grown by a part.
_READ_AGAIN, _PER_CITATION, _GROWTH = 20_000_000, 200, 8


class ProviderCitations:
    """Recognises what comes from a provider, and follows its streams."""

    def __init__(self) -> None:
        self._followed: dict[str, _ProviderStream] = {}
        self._last = ""
        # Bedrock sends text before it says what tells whose it is.
        self._early = _EventBuffer()

    def read_event(self, event: Any) -> list[MessageCitation]:
        """The citations that `event` completes. Nothing in it raises, and what nobody or more than one
        dialect recognises has none."""
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
        """An event that only goes on with a stream, or will turn out to."""
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
    """A stream of one answer."""

    def __init__(self, name: str, event: Json) -> None:
        self.name = name
        self._kin, self._telling = _PLAIN.get(name, name), event
        self._stream, self._kept = open_stream(name), _EventBuffer()
        self._id = event.get(_IDS.get(self._kin, ""))
        self._found: list[Citation] = []
        # Gemini's responses need not have an id.
        self._is_at_end = False
        self._left, self._events, self._next = _READ_AGAIN, 0, 0

    def is_other_answer(self, event: Json) -> bool:
        """Whether `event` is of another answer."""
        if self._events and not _STARTS.isdisjoint(_kinds(event)):
            return True
        said = event.get(_IDS.get(self._kin, ""))
        self._id = self._id or said
        return said != self._id if said else self._is_at_end and gemini_stream.has_answer_text(event)

    def redetect(self, event: Json) -> list[MessageCitation]:
        """Read anew as what it is known to be with `event`, if that is something else."""
        both, streams = [self._telling, event], stream_dialects()
        alike = (name for name, kin in _PLAIN.items() if kin == self._kin)
        name = next((name for name in alike if streams[name].detect(both)), self.name)
        if name == self.name:
            return []
        self.name, self._telling, self._stream = name, event, open_stream(name)
        self._found, kept, self._kept = [], self._kept, _EventBuffer()
        return [cited for one in kept for cited in self.feed(one)]

    def feed(self, event: Json) -> list[MessageCitation]:
        """The citations to give after `event`."""
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
    """The last events, as many as there is room for."""

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
    """What is told of a model in an event of LangChain's, the response at the end of a stream that has all
    of it again, and all else as it is."""
    if not is_object(event):
        return event
    if event.get("type") in _REPEATS:
        return event.get("response")
    name, data = event.get("event"), event.get("data")
    if not isinstance(name, str) or not name.startswith("on_chat_model_") or not is_object(data):
        return event
    return data.get("chunk", data.get("output"))


def _candidate_dialects(event: Json) -> set[str]:
    """The dialects that `event` could be of."""
    words, kind = event.keys() & _DIALECTS_BY_WORD.keys(), event.get("type")
    if isinstance(kind, str):
        words.add(kind.partition(".")[0])
    return {name for word in words for name in _DIALECTS_BY_WORD.get(word, ())}


def _kinds(event: Json) -> Iterator[str]:
    """What an event says it is: a type, or its only member."""
    kinds = event.get("type"), event.get("event_type"), *(event if len(event) == 1 else ())
    return (kind for kind in kinds if isinstance(kind, str))


def _citations_of_all(answers: Iterable[Answer]) -> Iterator[MessageCitation]:
    return (cited for answer in answers for cited in _citations_of(answer, answer.citations))


def _citations_of(answer: Answer, citations: Iterable[Citation]) -> Iterator[MessageCitation]:
    sources = {source.id: source for source in answer.sources}
    for citation in citations:
        for ref in citation.refs:
            yield MessageCitation(ref, sources.get(ref.source_id, Source(ref.source_id)), citation.ordinal)
