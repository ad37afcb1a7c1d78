"""Citations woven into the events of a stream: what the agent says goes through, ours is put between.

A `Weaver` takes the events of one stream, and the verdicts as they are reached, and gives the events to send.
It awaits nothing. What it wants checked or drawn, the sources that it came upon and what is to be recorded
wait in lists for whoever drives it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Literal, NamedTuple, cast

from msgspec import UNSET, Struct
from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui import given, records, state
from citewire.agui.chunks import Chunks, ProtocolError
from citewire.agui.events import AnyEvent, Event, Json, RunInput
from citewire.agui.records import Cited
from citewire.agui.retrieved import Retrieved, in_input, in_result
from citewire.agui.state import MessageStatus, SharedState, is_safe_key
from citewire.extraction import Scanner, extract
from citewire.keys import Keys
from citewire.model import Citation, Lines, Source, Span, Status
from citewire.text import for_log
from citewire.verification.library import Checked
from citewire.verification.verifier import Asked

__all__ = ["CitationSeen", "Options", "Record", "ReviewGiven", "Time", "VerdictReached", "Wanted", "Weaver"]

# Characters of what tools returned that are searched, for one stream, and how many texts.
_MOST_RETRIEVED, _MOST_TEXTS = 32 << 20, 1000
# Citations of one message that are looked at: past that a message is no answer any more.
_MOST_CITED = 10_000
ImageFormat = Literal["avif", "webp", "jpeg", "png"]
_TERMINAL = ("RUN_FINISHED", "RUN_ERROR")


class Options(Struct, frozen=True, kw_only=True):
    """How citations are woven in; the table in docs/reference says more of each.

    `deadline` is in seconds, and None waits for every verdict; `max_text` counts characters of a message.
    """

    state_key: str = "deepcitation"
    emit_deepcitation: bool = True
    emit_ngaf: bool = True
    incremental: bool = True
    strip_block: bool = True
    custom_events: bool = True
    max_text: int = 1 << 20
    deadline: float | None = 30.0
    keep_last: int | None = None
    image_format: ImageFormat | None = "avif"
    proof_urls: str | None = None
    fetch_urls: bool = False


class CitationSeen(Struct, frozen=True, gc=False):
    """For the record: a message cites something."""

    message_id: str
    key: str
    citation: Json


class VerdictReached(Struct, frozen=True, gc=False):
    """For the record: what became of it."""

    message_id: str
    key: str
    verification: Json


class ReviewGiven(Struct, frozen=True, gc=False):
    """For the record: what a client says of somebody who looked at it."""

    message_id: str
    key: str
    review: Json


Record = CitationSeen | VerdictReached | ReviewGiven


class Wanted(NamedTuple):
    """A picture that is to be drawn of where a quote stands."""

    id: str
    checked: Checked


class Time(NamedTuple):
    """The clocks: seconds that only grow, and what is written down."""

    seconds: Callable[[], float]
    date: Callable[[], str]


class _Message:
    """An answer that is being written, or was."""

    def __init__(self, name: str, began: float) -> None:
        self.id, self.began = name, began
        self.scanner: Scanner | None = None
        self.cited: dict[str, Cited] = {}
        self.seen: dict[str, float] = {}
        self.taken = 0
        self.pending: set[str] = set()
        self.counts: Counter[Status] = Counter()
        self.digest: int | None = None
        self.error: str | None = None


class Weaver:
    """The citations of one stream."""

    def __init__(self, run_input: RunInput, options: Options, time: Time) -> None:
        self._options, self._time, self._state_key = options, time, options.state_key
        self._state = SharedState(
            run_input.state, options.state_key, deepcitation=options.emit_deepcitation, ngaf=options.emit_ngaf
        )
        self._chunks, self._keys, self._provider = Chunks(), Keys(), given.Provider()
        self._messages: dict[str, _Message] = {}
        self._last: _Message | None = None
        # Citations that came before the message that they must be of.
        self._loose: list[Cited] = []
        # Messages of earlier runs: what they cite is known.
        self._earlier = {_id_of(message) for message in run_input.messages} | {
            *self._state.record["messages"]
        }
        self._tools: dict[str, str] = {}
        self._retrieved: list[Retrieved] = []
        self._room = _MOST_RETRIEVED
        self._fetched: set[str] = set()
        self._undecided: dict[str, tuple[_Message, str]] = {}
        self._undrawn: dict[str, tuple[_Message, str]] = {}
        self._customs: list[Event] = []
        self._repeated: list[str] = []
        self.asked: list[Asked] = []
        self.wanted: list[Wanted] = []
        self.sources: list[Retrieved] = []
        self.records: list[Record] = list(_reviews(self._state.record))
        self.held: AnyEvent | None = None
        # Before a run starts and after it has ended a client takes nothing.
        self._is_over = True
        self._retrieve(in_input(run_input.messages, run_input.context))
        self._ask_again()

    @property
    def has_to_wait(self) -> bool:
        """Whether a verdict or a picture is still to come in this run."""
        return not self._is_over and bool(self._undecided or self._undrawn)

    # --- the stream ---------------------------------------------------------------------------------------

    def take(self, event: AnyEvent) -> list[AnyEvent]:
        """What to send for `event`: itself, or what is left of it, and ours. A terminal event is `held`."""
        if not isinstance(event, Event):
            return self._hold(event) if event.type in _TERMINAL else [event]
        if not self._chunks.concern(event):
            return [*self._handle(event), *self._flush()]
        try:
            steps = self._chunks.expand(event)
        except ProtocolError:
            return [event]  # the client says what is wrong with it
        if isinstance(event, ev.TextMessageChunk):
            return [*self._take_chunk(event, steps), *self._flush()]
        out = [sent for step in steps if step is not event for sent in self._end_chunks(step)]
        for step in steps:
            if isinstance(step, ev.ToolCallStart) and step is not event:
                self._on_tool(step)
        # Chunks of tools and thoughts are only passed on.
        out += self._handle(event) if steps[-1:] == [event] else [event]
        return [*out, *self._flush()]

    def release(self) -> list[AnyEvent]:
        """The terminal event that was held, after what could be said before it."""
        held, self.held = self.held, None
        if held is None:
            return self._flush()
        ours, self._is_over = self._flush(), True
        return [*ours, held]

    def finish(self) -> list[AnyEvent]:
        """The stream has ended: what it left open is as whole as it gets."""
        return [*self._cut(), *self._flush()]

    def _cut(self) -> list[AnyEvent]:
        """End what is open, chunks as their kind is ended."""
        left = [message for message in self._messages.values() if message.scanner is not None]
        for message in left:
            message.error = "the stream ended before the message did"
        ends = self._chunks.expand(ev.RunError(""))[:-1]
        out = [sent for step in ends for sent in self._end_chunks(step)]
        for message in left:
            if message.scanner is not None:
                out += self._tail(message, ev.TextMessageContent(message.id, ""))
        return out

    def fail(self, reason: str) -> list[AnyEvent]:
        """Nothing more will be checked."""
        waiting = {message.id: message for message, _ in self._undecided.values()}
        self._undecided.clear()
        self._undrawn.clear()
        for message in waiting.values():
            message.error = reason
            message.pending.clear()
            self._complete(message)
        return self._flush()

    def _handle(self, event: Event) -> list[AnyEvent]:
        handler = self._HANDLERS.get(type(event))
        return [event] if handler is None else handler(self, event)

    def _flush(self) -> list[AnyEvent]:
        """Ours, unless chunks are under way that it would cut in two."""
        if self._is_over or self._chunks.is_speaking:
            return []
        operations = self._state.flush()
        if self._repeated:
            operations += self._state.repeat(self._repeated)
            self._repeated = []
        customs, self._customs = self._customs, []
        return [ev.StateDelta(operations), *customs] if operations else [*customs]

    def _tell(self, name: str, message: _Message, **value: Any) -> None:
        if self._options.custom_events:
            self._customs.append(ev.Custom(f"citewire.{name}", {"messageId": message.id, **value}))

    def _milliseconds(self, since: float) -> float:
        return round((self._time.seconds() - since) * 1000, 1)

    def _on_run(self, event: ev.RunStarted) -> list[AnyEvent]:
        self._is_over = False
        return [event]

    def _hold(self, event: AnyEvent) -> list[AnyEvent]:
        """A run may fail in the middle of a message, and after that nothing can be said of it."""
        self.held = event
        return self._cut()

    # --- messages -----------------------------------------------------------------------------------------

    def _on_start(self, event: ev.TextMessageStart) -> list[AnyEvent]:
        if event.role in (UNSET, "assistant"):
            message = self._last = self._begin(event.message_id)
            self._take_metadata(message, event)
            self._cite(message, self._loose)
            self._loose = []
        return [event]

    def _begin(self, name: str) -> _Message:
        """A message that starts, or goes on after it had ended, maybe in an earlier run."""
        message, known = self._messages.get(name), self._state.record["messages"].get(name)
        if message is None and known is not None:
            message = self._recall(name, known)
        if message is None:
            message = self._messages[name] = _Message(name, self._time.seconds())
            if is_safe_key(name):
                self._evict()
                self._state.patch(state.message_patches(name, self._state_key))
        elif message.scanner is None:
            self._say_status(message, "streaming")
        if message.scanner is None:
            message.scanner, message.taken = Scanner(limit=self._options.max_text), 0
        return message

    def _on_content(self, event: ev.TextMessageContent) -> list[AnyEvent]:
        message = self._messages.get(event.message_id)
        if message is None or message.scanner is None:
            return [event]
        self._take_metadata(message, event)
        shown = self._say(message, message.scanner, event.delta)
        if shown == event.delta:
            return [event]
        return [replace(event, delta=shown)] if shown or event.metadata is not UNSET else []

    def _say(self, message: _Message, scanner: Scanner, delta: str) -> str:
        """What of `delta` a reader sees."""
        shown = scanner.feed(delta)
        if self._options.incremental and len(scanner.citations) > message.taken:
            self._take_found(message, scanner)
        return shown if self._options.strip_block else delta

    def _on_end(self, event: ev.TextMessageEnd) -> list[AnyEvent]:
        message = self._messages.get(event.message_id)
        if message is None or message.scanner is None:
            return [event]
        self._take_metadata(message, event)
        tail = ev.TextMessageContent(message.id, "", subagent_run_id=event.subagent_run_id)
        shown, *ours = self._ended(message, tail)
        return [*shown, event, *ours]

    def _take_chunk(self, chunk: ev.TextMessageChunk, steps: list[Event]) -> list[AnyEvent]:
        out: list[AnyEvent] = []
        shown = chunk
        for step in steps:
            if isinstance(step, ev.TextMessageStart):
                self._on_start(step)
            elif isinstance(step, ev.TextMessageContent):
                said = self._on_content(step)
                if said != [step]:
                    shown = replace(chunk, delta=cast("ev.TextMessageContent", said[0]).delta if said else "")
            else:
                out += self._end_chunks(step)
        # One that only said what is held back has nothing to say, unless it opens the stream.
        is_empty = shown is not chunk and not shown.delta and len(steps) == 1 and chunk.metadata is UNSET
        return out if is_empty else [*out, shown]

    def _end_chunks(self, step: Event) -> list[AnyEvent]:
        """A stream of chunks is over. What was held back of it is its last chunk."""
        message = self._messages.get(step.message_id) if isinstance(step, ev.TextMessageEnd) else None
        if message is None or message.scanner is None:
            return self._flush()
        owner = cast("ev.TextMessageEnd", step).subagent_run_id
        tail = ev.TextMessageChunk(message_id=message.id, delta="", subagent_run_id=owner)
        return [*self._tail(message, tail), *self._flush()]

    def _tail(self, message: _Message, tail: ev.TextMessageContent | ev.TextMessageChunk) -> list[AnyEvent]:
        shown, *ours = self._ended(message, tail)
        return [*shown, *ours]

    def _ended(self, message: _Message, tail: ev.TextMessageContent | ev.TextMessageChunk) -> Iterator[Any]:
        """First what is still to be shown, as `tail`; then ours, for all that it cites is known now."""
        scanner = cast("Scanner", message.scanner)
        rest = scanner.close()
        message.scanner = None
        yield [replace(tail, delta=rest)] if rest and self._options.strip_block else []
        found = scanner.extraction()
        message.digest = hash(found.visible_text)
        sources = {source.id: source for source in found.sources}
        text = found.visible_text
        cited = [each for citation in found.citations for each in self._resolved(citation, sources, text)]
        if cited or message.cited:
            self._say_status(message, "extracting")
            yield from self._flush()
        self._cite(message, cited)
        if scanner.is_cut:
            message.error = f"what it cites after {self._options.max_text} characters was not looked at"
        if message.pending:
            self._say_status(message, "verifying")
        self._complete(message)

    def _say_status(self, message: _Message, status: MessageStatus) -> None:
        if is_safe_key(message.id):
            error = message.error if status == "error" else None
            self._state.patch(state.status_patches(message.id, status, error, self._state_key))

    def _complete(self, message: _Message) -> None:
        """Say so where nothing more is to come for a message."""
        if message.scanner is None and not message.pending:
            self._say_status(message, "error" if message.error else "complete")
            summary = state.summary_of(message.counts)
            self._tell("message_complete", message, summary=summary, ms=self._milliseconds(message.began))

    def _evict(self) -> None:
        most, known = self._options.keep_last, self._state.known
        if most is None or len(known) < most:
            return
        busy = {message.id for message in self._messages.values() if message.scanner or message.pending}
        busy |= {message.id for message, _ in self._undrawn.values()}
        gone = {name for name in known[: len(known) - most + 1] if name not in busy}
        self._state.evict(gone)
        self._earlier |= gone
        for name in gone:
            if self._messages.pop(name, None) is self._last:
                self._last = None

    # --- citations ----------------------------------------------------------------------------------------

    def _take_found(self, message: _Message, scanner: Scanner) -> None:
        """Those that are complete while the text goes on. One without words of its own waits for the text."""
        found = scanner.citations[message.taken :]
        message.taken = len(scanner.citations)
        sources = {source.id: source for source in scanner.sources}
        quoted = [citation for citation in found if citation.refs[0].quote]
        self._cite(message, [each for citation in quoted for each in self._resolved(citation, sources)])

    def _resolved(self, citation: Citation, sources: dict[str, Source], text: str = "") -> Iterator[Cited]:
        """What a citation points to. What nothing in the text explains is among what tools returned."""
        for ref in citation.refs:
            source = sources[ref.source_id]
            label = source.record_id
            meant = self._meant(label) if source.kind == "unknown" and label is not None else None
            if source.kind == "unknown" and meant is None and not ref.quote:
                continue  # nothing says what it is, and there is nothing to look for
            if meant is not None:
                name = meant.id or meant.url or meant.title or label or ""
                source = Source(
                    name, "web" if meant.url else "document", meant.url, meant.title, record_id=label
                )
            label = _footnote(text, citation.marker)
            yield Cited(replace(ref, source_id=source.id), source, citation.ordinal, label)

    def _meant(self, label: str) -> Retrieved | None:
        for text in self._retrieved:
            if label in (text.id, text.title, text.url):
                return text
        place = int(label) if label.isascii() and label.isdecimal() else 0
        return self._retrieved[place - 1] if 0 < place <= len(self._retrieved) else None

    def _cite(self, message: _Message, found: Iterable[Cited]) -> None:
        new: dict[str, Cited] = {}
        for cited in found:
            key = self._key(cited)
            if key not in message.cited and len(message.cited) < _MOST_CITED:
                message.cited[key] = new[key] = cited
            elif cited.label is not None:
                self._state.label(message.id, key, cited.label)
        if not new or not is_safe_key(message.id):
            return
        made = {key: records.record(cited) for key, cited in new.items()}
        message.counts["pending"] += len(new)
        message.pending.update(new)
        together = not self._options.incremental and len(message.cited) == len(new)
        self._state.patch(state.citation_patches(message.id, made, self._state_key, together=together))
        self._state.patch(state.summary_patches(message.id, message.counts, self._state_key))
        for key, cited in new.items():
            if cited.entry_id is None:
                entry = records.entry(cited, key, len(self._state.own(message.id)) + 1)
                self._state.list_citation(message.id, entry)
            message.seen[key] = self._time.seconds()
            self._tell("citation_seen", message, key=key, ms=self._milliseconds(message.began))
            self.records.append(CitationSeen(message.id, key, made[key]))
            self._fetch(cited)
            self._ask(message, key, cited)

    def _key(self, cited: Cited) -> str:
        """The published key, for which lines are in order."""
        ref, source = cited.ref, cited.source
        if isinstance(ref.locator, Lines):
            ref = replace(ref, locator=Lines(tuple(sorted(ref.locator.ids)), ref.locator.page))
        return self._keys.assign(ref, replace(source, id=source.record_id or ""))

    def _fetch(self, cited: Cited) -> None:
        """Have the page of a citation read, unless a tool returned it."""
        url = cited.source.url
        if self._options.fetch_urls and cited.ref.quote and url and _is_web(url):
            known = len(self._fetched) >= _MOST_TEXTS or any(text.url == url for text in self._retrieved)
            if url not in self._fetched and not known:
                self._fetched.add(url)
                self.sources.append(Retrieved("", url=url))

    def _ask(self, message: _Message, key: str, cited: Cited) -> None:
        name = f"{message.id}\n{key}"
        self._undecided[name] = message, key
        self.asked.append(Asked(name, cited.ref.quote or "", None, cited.pages, cited.names))

    def judge(self, checked: Checked) -> list[AnyEvent]:
        """What to send for a verdict. One that was not reached in time stays pending."""
        message, key = self._undecided.pop(checked.id or "", (None, ""))
        if message is None or checked.status == "pending":
            return []
        cited = message.cited[key]
        picture = self._picture(checked, key)
        verdict = records.verification(checked, cited, picture, self._time.date())
        message.pending.discard(key)
        message.counts["pending"] -= 1
        message.counts[checked.status] += 1
        self._state.patch(state.verification_patches(message.id, key, verdict, self._state_key))
        self._state.patch(state.summary_patches(message.id, message.counts, self._state_key))
        note = {"key": key, **records.note(checked)}
        self._state.annotate(message.id, key, cited.entry_id, note)
        self.records.append(VerdictReached(message.id, key, verdict))
        if picture is None and self._options.image_format and checked.boxes and checked.id:
            self._undrawn[checked.id] = message, key
            self.wanted.append(Wanted(checked.id, checked))
        else:
            self._tell(
                "evidence_ready", message, key=key, status=checked.status, ms=self._since(message, key)
            )
        self._complete(message)
        return self._flush()

    def _since(self, message: _Message, key: str) -> float:
        return self._milliseconds(message.seen[key])

    def _picture(self, checked: Checked, key: str) -> str | None:
        """The address at which somebody serves the picture."""
        if self._options.proof_urls is None or not checked.boxes:
            return None
        return self._options.proof_urls.format(key=key, format=self._options.image_format or "png")

    def show(self, name: str, address: str | None) -> list[AnyEvent]:
        """What to send for a picture that was drawn, or could not be."""
        message, key = self._undrawn.pop(name, (None, ""))
        if message is None:
            return []
        if address is not None:
            self._state.patch(state.evidence_patches(message.id, key, {"src": address}, self._state_key))
        self._tell("evidence_ready", message, key=key, ms=self._since(message, key))
        return self._flush()

    def _ask_again(self) -> None:
        """What an earlier run did not decide in time."""
        for name, message in self._state.record["messages"].items():
            left = [key for key in message["citations"] if key not in message["verifications"]]
            if not left:
                continue
            known = self._recall(name, message)
            for key in left:
                if (cited := known.cited.get(key)) is not None:
                    known.pending.add(key)
                    self._ask(known, key, cited)

    def _recall(self, name: str, raw: Json) -> _Message:
        """A message of an earlier run, as far as the client says."""
        message = self._messages[name] = _Message(name, self._time.seconds())
        citations, verdicts = raw["citations"], raw["verifications"]
        for key, each in citations.items():
            if (cited := records.read_record(each)) is not None:
                message.cited[key], message.seen[key] = cited, message.began
        undecided = len(citations.keys() - verdicts)
        message.counts.update(records.counts(verdicts.values()), pending=undecided)
        return message

    # --- what the agent says beside its text -----------------------------------------------------------

    def _retrieve(self, texts: Iterable[Retrieved]) -> None:
        for text in texts:
            size = len(text.text) + len(text.data or b"")
            if size > self._room or len(self._retrieved) >= _MOST_TEXTS:
                continue
            is_address = not text.text and text.data is None
            if is_address and not (self._options.fetch_urls and text.url and _is_web(text.url)):
                continue
            self._room -= size
            self._retrieved.append(text)
            self.sources.append(text)

    def _on_tool(self, event: ev.ToolCallStart) -> list[AnyEvent]:
        self._tools[event.tool_call_id] = event.tool_call_name
        return [event]

    def _on_result(self, event: ev.ToolCallResult) -> list[AnyEvent]:
        self._retrieve(in_result(event.content, self._tools.get(event.tool_call_id)))
        return [event]

    def _take_metadata(self, message: _Message, event: Event) -> None:
        if event.metadata is not UNSET:
            self._cite(message, given.in_metadata(event.metadata))

    def _on_custom(self, event: ev.Custom) -> list[AnyEvent]:
        name, cited = given.in_custom(event.name, event.value)
        message = self._last if name is None else self._messages.get(name)
        if message is not None:
            self._take_given(message, cited)
        return [event]

    def _on_raw(self, event: ev.RawEvent) -> list[AnyEvent]:
        cited = self._provider.take(event.event)
        if self._last is None:
            self._loose += cited
        else:
            self._take_given(self._last, cited)
        return [event]

    def _take_given(self, message: _Message, cited: list[Cited]) -> None:
        self._cite(message, cited)
        if cited and message.scanner is None and message.pending:
            self._say_status(message, "verifying")

    def _on_snapshot(self, event: ev.StateSnapshot) -> list[AnyEvent]:
        ours = self._flush()
        self._state.take_snapshot(event.snapshot)
        self._take_entries()
        return [*ours, event]

    def _on_delta(self, event: ev.StateDelta) -> list[AnyEvent]:
        ours = self._flush()
        if self._state.take_delta(event.delta):
            self._take_entries()
        return [*ours, event]

    def _take_entries(self) -> None:
        """Citations that the agent put into the state are checked like those in its text."""
        for name, entries in self._state.agent_entries():
            cited = given.in_entries(entries, listed=True)
            if cited and name not in self._earlier and is_safe_key(name):
                self._take_given(self._messages.get(name) or self._silent(name), cited)

    def _silent(self, name: str) -> _Message:
        """A message of which no text was seen yet."""
        message = self._begin(name)
        message.scanner = None
        return message

    def _on_messages(self, event: ev.MessagesSnapshot) -> list[AnyEvent]:
        """Blocks are taken out of its messages, and what moved to another id moves here too."""
        ours = self._flush()
        answers = {_id_of(message): message for message in event.messages if _is_answer(message)}
        visible = {name: _visible(message["content"]) for name, message in answers.items()}
        self._follow(visible)
        after: list[AnyEvent] = []
        for name, message in answers.items():
            if name not in self._earlier:
                after += self._take_whole(name, message)
        self._repeated = [name for name in answers if name]
        shown = [
            {**message, "content": visible[_id_of(message)]}
            if self._options.strip_block and _is_answer(message)
            else message
            for message in event.messages
        ]
        return [*ours, event if shown == event.messages else replace(event, messages=shown), *after]

    def _follow(self, answers: dict[str, str]) -> None:
        """Messages that were streamed under one id and stand in the snapshot under another."""
        unknown = {
            hash(text): name
            for name, text in answers.items()
            if name and name not in self._messages and name not in self._earlier
        }
        for old, message in list(self._messages.items()):
            new = None if old in answers or message.digest is None else unknown.pop(message.digest, None)
            if new is not None:
                self._state.move(old, new)
                message.id = new
                self._messages[new] = self._messages.pop(old)

    def _take_whole(self, name: str, answer: Json) -> list[AnyEvent]:
        """What is new in an answer of a snapshot; maybe all of it was never streamed. Ours, to follow it."""
        after: list[AnyEvent] = []
        if name not in self._messages and answer["content"]:
            message = self._begin(name)
            self._say(message, cast("Scanner", message.scanner), answer["content"])
            _, *ours = self._ended(message, ev.TextMessageContent(name, ""))
            after += ours
        metadata = answer.get("metadata")
        if name in self._messages and isinstance(metadata, dict):
            self._take_given(self._messages[name], given.in_metadata(cast("Json", metadata)))
        return after

    _HANDLERS: ClassVar[dict[type[Event], Callable[[Weaver, Any], list[AnyEvent]]]] = {
        ev.RunStarted: _on_run,
        ev.TextMessageStart: _on_start,
        ev.TextMessageContent: _on_content,
        ev.TextMessageEnd: _on_end,
        ev.ToolCallStart: _on_tool,
        ev.ToolCallResult: _on_result,
        ev.StateSnapshot: _on_snapshot,
        ev.StateDelta: _on_delta,
        ev.MessagesSnapshot: _on_messages,
        ev.Custom: _on_custom,
        ev.RawEvent: _on_raw,
        ev.RunFinished: _hold,
        ev.RunError: _hold,
    }


def _is_web(address: str) -> bool:
    """Whether it is one to fetch: all else would be taken for a file of this machine."""
    return address.lower().startswith(("http://", "https://"))


def _footnote(text: str, marker: Span | None) -> str | None:
    """The label of a marker `[^label]`."""
    shown = text[marker.start : marker.end] if marker else ""
    return shown[2:-1] if shown.startswith("[^") and shown.endswith("]") else None


def _id_of(message: Any) -> str:
    name = cast("Json", message).get("id") if isinstance(message, dict) else None
    return name if isinstance(name, str) else ""


def _visible(content: str) -> str:
    may_cite = "<" in content or "&lt;" in content or "cite" in content
    return extract(content).visible_text if may_cite else content


def _is_answer(message: Any) -> bool:
    fields = cast("Json", message) if isinstance(message, dict) else {}
    return fields.get("role") == "assistant" and isinstance(fields.get("content"), str)


def _reviews(record: Json) -> Iterator[ReviewGiven]:
    """What the client noted about who looked at which citation."""
    reviews = record.get("reviews")
    for name, by_key in cast("Json", reviews).items() if isinstance(reviews, dict) else ():
        for key, given_reviews in cast("Json", by_key).items() if isinstance(by_key, dict) else ():
            for review in cast("list[Any]", given_reviews) if isinstance(given_reviews, list) else ():
                if isinstance(review, dict):
                    yield ReviewGiven(for_log(name, 200), for_log(key, 64), cast("Json", review))
