"""Adds citation events to an agent's event stream; the agent's own events pass through.

`CitationAnnotator` takes the events of one stream, and verdicts as they are reached, and returns the events
to send. It awaits nothing. Quotes to check, pictures to draw, new sources and audit records collect in lists
for its caller to process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, ClassVar, cast

from msgspec import UNSET
from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui.chunks import ChunkExpander, ProtocolError
from citewire.agui.citations import agent_citations
from citewire.agui.citations.answer_text import cited_sentence, footnote_label, is_answer, visible_text
from citewire.agui.citations.echoes import EchoDetector
from citewire.agui.citations.message_state import (
    AuditRecord,
    CitationSeen,
    Clock,
    CropRequest,
    LogKnowledge,
    MessageState,
    MessageTracker,
    Options,
    ReviewGiven,
    ThreadVerdicts,
    VerdictReached,
)
from citewire.agui.citations.posted_messages import (
    id_of,
    mark_posted,
    role_of,
    started_message_id,
    without_mark,
)
from citewire.agui.citations.provider_citations import ProviderCitations
from citewire.agui.citations.records import MessageCitation
from citewire.agui.citations.retrieval import (
    RetrievedText,
    find_input_texts,
    find_result_texts,
    posted_origin,
)
from citewire.agui.citations.retrieved_texts import RetrievedTexts
from citewire.agui.citations.shared_state import is_safe_key
from citewire.agui.citations.unfinished_messages import STREAM_ENDED_EARLY
from citewire.agui.events import AnyEvent, Event, Json, RunInput
from citewire.answer_edits import Sentences
from citewire.extraction import Scanner
from citewire.model import Citation, Source
from citewire.verification.document_set import CheckResult
from citewire.verification.verifier import QuoteCheck

__all__ = [
    "AuditRecord", "CitationAnnotator", "CitationSeen", "Clock", "CropRequest", "LogKnowledge", "Options",
    "ReviewGiven", "ThreadVerdicts", "VerdictReached",
]  # fmt: skip

_TERMINAL = ("RUN_FINISHED", "RUN_ERROR")


class CitationAnnotator:
    """Annotates one stream with citations. A caller with a log passes `known`, any other passes `trust`."""

    def __init__(
        self,
        run_input: RunInput,
        options: Options,
        time: Clock,
        known: LogKnowledge | None = None,
        trust: ThreadVerdicts | None = None,
    ) -> None:
        self._options = options
        self._tracker = MessageTracker(
            run_input.state, map(id_of, run_input.messages), options, time, known, trust
        )
        self._posted = {*known.posted} if known else set[str]()
        self._roles = {id_of(each): role_of(each) for each in run_input.messages}
        self._news = [*known.news] if known else []
        theirs = trust.find_echo_fingerprints(run_input.messages) if trust else frozenset[bytes]()
        self._echoes = EchoDetector(known.echoes if known else theirs)
        # Ids under which the agent repeated posted messages.
        self.echoed: set[str] = set()
        self._messages = self._tracker.messages
        self._chunks, self._provider = ChunkExpander(), ProviderCitations()
        # Citations that arrived before their message.
        self._loose: list[MessageCitation] = []
        self._tools: dict[str, str] = {}
        self._texts = RetrievedTexts(options.fetch_urls)
        self.sources: list[RetrievedText] = []
        self.held: AnyEvent | None = None
        # Clients accept no events before a run starts and after it has ended.
        self._is_over = True
        # Without a log, nothing shows that a posted result is the agent's.
        origin = known.result_origin if known else posted_origin
        self.sources += self._texts.add(find_input_texts(run_input.messages, run_input.context, origin))

    @property
    def asked(self) -> list[QuoteCheck]:
        """Quotes to check."""
        return self._tracker.checks

    @asked.setter
    def asked(self, left: list[QuoteCheck]) -> None:
        self._tracker.checks = left

    @property
    def wanted(self) -> list[CropRequest]:
        """Pictures to draw."""
        return self._tracker.crops

    @wanted.setter
    def wanted(self, left: list[CropRequest]) -> None:
        self._tracker.crops = left

    @property
    def records(self) -> list[AuditRecord]:
        """Audit records to store."""
        return self._tracker.records

    @records.setter
    def records(self, left: list[AuditRecord]) -> None:
        self._tracker.records = left

    @property
    def is_waiting(self) -> bool:
        """Whether a verdict or a picture is still pending in this run."""
        return not self._is_over and self._tracker.is_waiting

    @property
    def is_run_open(self) -> bool:
        """Whether a run is open, so that events can be sent."""
        return not self._is_over

    def add_foreign_citation(
        self, name: str, cited: MessageCitation, by: str | None, annotation: str
    ) -> list[AnyEvent]:
        """Add another client's citation of a message, if it exists, and return the events to send."""
        message = self._tracker.find_message(name)
        if message is None and name in self._tracker.closed_ids and is_safe_key(name):
            message = self._tracker.add_message(name)
        if message is None:
            return []
        self._tracker.add_foreign_citation(message, cited, by, annotation)
        if message.scanner is None and message.pending:
            self._tracker.set_status(message, "verifying")
        return self._flush()

    def apply_verdict(self, checked: CheckResult) -> list[AnyEvent]:
        """Apply a verdict and return the events to send."""
        self._tracker.apply_verdict(checked)
        return self._flush()

    def add_picture(self, name: str, address: str | None) -> list[AnyEvent]:
        """Add a picture, None if it could not be drawn, and return the events to send."""
        self._tracker.add_picture(name, address)
        return self._flush()

    def fail_pending(self, reason: str) -> list[AnyEvent]:
        """Fail all pending checks, since no more will run, and return the events to send."""
        self._tracker.fail_pending(reason)
        return self._flush()

    # --- the stream ---------------------------------------------------------------------------------------

    def process_event(self, event: AnyEvent) -> list[AnyEvent]:
        """Return the events to send: `event` or its visible part, and our own. A terminal event is `held`."""
        if not isinstance(event, Event):
            return self._hold(event) if event.type in _TERMINAL else [event]
        if self._posted and (name := started_message_id(event, self._roles.get)) in self._posted:
            # The agent now writes a message with this id; the one posted under it was withdrawn.
            self._posted.discard(name)
            self._tracker.closed_ids.discard(name)
        if not self._chunks.affects(event):
            out = self._handle(event)
            ours = self._flush()
            return [*out, *ours] if ours else out
        try:
            steps = self._chunks.expand(event)
        except ProtocolError:
            return [event]  # the client reports the error
        if isinstance(event, ev.TextMessageChunk):
            return [*self._take_chunk(event, steps), *self._flush()]
        out = [sent for step in steps if step is not event for sent in self._end_chunk_stream(step)]
        for step in steps:
            if isinstance(step, ev.ToolCallStart) and step is not event:
                self._on_tool(step)
        # Chunks of tool calls and reasoning are only passed on.
        out += self._handle(event) if steps[-1:] == [event] else [event]
        return [*out, *self._flush()]

    def release_terminal_event(self) -> list[AnyEvent]:
        """Return the held terminal event, after our unsent events."""
        held, self.held = self.held, None
        if held is None:
            return self._flush()
        ours, self._is_over = self._flush(), True
        return [*ours, held]

    def finish(self) -> list[AnyEvent]:
        """End the stream and its open messages, and return the events to send."""
        return [*self._end_open_messages(), *self._flush()]

    def _end_open_messages(self) -> list[AnyEvent]:
        """End all open messages; those of chunk streams end with a chunk."""
        left = [message for message in self._messages.values() if message.scanner is not None]
        for message in left:
            message.error = STREAM_ENDED_EARLY
        ends = self._chunks.expand(ev.RunError(""))[:-1]
        out = [sent for step in ends for sent in self._end_chunk_stream(step)]
        for message in left:
            if message.scanner is not None:
                shown, ours = self._end_message(
                    message, message.scanner, ev.TextMessageContent(message.id, "")
                )
                out += [*shown, *ours]
        return out

    def _handle(self, event: Event) -> list[AnyEvent]:
        handler = self._HANDLERS.get(type(event))
        return [event] if handler is None else handler(self, event)

    def _flush(self) -> list[AnyEvent]:
        """Return our unsent events; none while they would split an open chunk stream."""
        if self._is_over or self._chunks.has_open_main_stream or not self._tracker.has_unsent_changes:
            return []
        return [*self._tracker.flush()]

    def _on_run(self, event: ev.RunStarted) -> list[AnyEvent]:
        self._is_over = False
        news, self._news = self._news, []
        return [self._with_posted_input(event), *news]

    def _with_posted_input(self, event: ev.RunStarted) -> ev.RunStarted:
        """Mark posted messages in the run's input, which the agent repeats but did not write."""
        posted = (event.input or {}).get("messages")
        if not posted:
            return event
        self._note_echoes({id_of(each) for each in posted} - self._tracker.closed_ids)
        shown = [self._mark_if_posted(each) for each in posted]
        return event if shown == posted else replace(event, input={**(event.input or {}), "messages": shown})

    def _note_echoes(self, names: Set[str]) -> None:
        self._posted |= names
        self._tracker.closed_ids |= names
        self.echoed |= names

    def _hold(self, event: AnyEvent) -> list[AnyEvent]:
        """Hold a terminal event, and end open messages: a run may fail within one, and nothing can follow."""
        self.held = event
        return self._end_open_messages()

    # --- messages -----------------------------------------------------------------------------------------

    def _on_start(self, event: ev.TextMessageStart) -> list[AnyEvent]:
        self._echoes.note_streamed(event.message_id)
        if event.role in (UNSET, "assistant"):
            message = self._tracker.last = self._tracker.begin_message(event.message_id)
            self._take_metadata(message, event)
            self._cite(message, self._loose)
            self._loose = []
        return [event]

    def _on_content(self, event: ev.TextMessageContent) -> list[AnyEvent]:
        message = self._messages.get(event.message_id)
        if message is None or message.scanner is None:
            return [event]
        self._take_metadata(message, event)
        shown = self._scan_delta(message, message.scanner, event.delta)
        if shown == event.delta:
            return [event]
        return [replace(event, delta=shown)] if shown or event.metadata is not UNSET else []

    def _scan_delta(self, message: MessageState, scanner: Scanner, delta: str) -> str:
        """Scan `delta` and return the part that readers see."""
        shown = scanner.feed(delta)
        if self._options.incremental and len(scanner.citations) > message.taken:
            self._cite_scanned(message, scanner)
        return shown if self._options.strip_block else delta

    def _on_end(self, event: ev.TextMessageEnd) -> list[AnyEvent]:
        message = self._messages.get(event.message_id)
        if message is None or message.scanner is None:
            return [event]
        self._take_metadata(message, event)
        tail = ev.TextMessageContent(message.id, "", subagent_run_id=event.subagent_run_id)
        shown, ours = self._end_message(message, message.scanner, tail)
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
                out += self._end_chunk_stream(step)
        # A chunk whose whole text is held back is dropped, unless it opens the stream.
        is_empty = shown is not chunk and not shown.delta and len(steps) == 1 and chunk.metadata is UNSET
        return out if is_empty else [*out, shown]

    def _end_chunk_stream(self, step: Event) -> list[AnyEvent]:
        """End a chunk stream. Its held-back text is sent as its last chunk."""
        message = self._messages.get(step.message_id) if isinstance(step, ev.TextMessageEnd) else None
        if message is None or message.scanner is None:
            return self._flush()
        owner = cast("ev.TextMessageEnd", step).subagent_run_id
        tail = ev.TextMessageChunk(message_id=message.id, delta="", subagent_run_id=owner)
        shown, ours = self._end_message(message, message.scanner, tail)
        return [*shown, *ours, *self._flush()]

    def _end_message(
        self, message: MessageState, scanner: Scanner, tail: ev.TextMessageContent | ev.TextMessageChunk
    ) -> tuple[list[AnyEvent], list[AnyEvent]]:
        """End a message, whose citations are now complete; returns its last text, as `tail`, and our own."""
        rest = scanner.close()
        message.scanner = None
        found = scanner.extraction()
        text = found.visible_text
        self._tracker.record_text(message, text)
        sources = {source.id: source for source in found.sources}
        sentences = Sentences(text)
        cited = [
            each
            for citation in found.citations
            for each in self._resolve_citation(citation, sources, text, sentences)
        ]
        ours: list[AnyEvent] = []
        if cited or message.cited:
            self._tracker.set_status(message, "extracting")
            ours = self._flush()
        self._cite(message, cited)
        if found.is_cut and message.error is None:
            message.error = "its data block was cut off: citations may be missing"
        if scanner.is_cut:
            message.error = f"what it cites after {self._options.max_text} characters was not looked at"
        if message.pending:
            self._tracker.set_status(message, "verifying")
        self._tracker.complete_if_done(message)
        return [replace(tail, delta=rest)] if rest and self._options.strip_block else [], ours

    # --- citations ----------------------------------------------------------------------------------------

    def _cite_scanned(self, message: MessageState, scanner: Scanner) -> None:
        """Add the citations that are complete so far. One without a quote waits for the end of the text."""
        found = scanner.citations[message.taken :]
        message.taken = len(scanner.citations)
        sources = {source.id: source for source in scanner.sources}
        quoted = [citation for citation in found if citation.refs[0].quote]
        self._cite(
            message, [each for citation in quoted for each in self._resolve_citation(citation, sources)]
        )

    def _resolve_citation(
        self,
        citation: Citation,
        sources: dict[str, Source],
        text: str = "",
        sentences: Sentences | None = None,
    ) -> Iterator[MessageCitation]:
        """Yield the references of a citation. A source unknown to the text is looked up in tool results."""
        for ref in citation.refs:
            source = sources[ref.source_id]
            label = source.record_id
            meant = (
                self._texts.find_by_label(label) if source.kind == "unknown" and label is not None else None
            )
            if source.kind == "unknown" and meant is None and not ref.quote:
                continue  # the source is unknown, and there is no quote to search for
            if meant is not None:
                name = meant.id or meant.url or meant.title or label or ""
                source = Source(
                    name, "web" if meant.url else "document", meant.url, meant.title, record_id=label
                )
            label = footnote_label(text, citation.marker)
            claim = "" if ref.quote or sentences is None else cited_sentence(text, sentences, citation)
            yield MessageCitation(
                replace(ref, source_id=source.id), source, citation.ordinal, label, claim=claim
            )

    def _cite(self, message: MessageState, found: Iterable[MessageCitation]) -> None:
        for cited in self._tracker.add_citations(message, found):
            if cited.ref.quote:
                self.sources += self._texts.pages_to_fetch(cited.source.url)

    # --- what the agent sends besides its text ---------------------------------------------------------

    def _on_tool(self, event: ev.ToolCallStart) -> list[AnyEvent]:
        self._tools[event.tool_call_id] = event.tool_call_name
        self._echoes.note_streamed(event.parent_message_id or event.tool_call_id)
        return [event]

    def _on_result(self, event: ev.ToolCallResult) -> list[AnyEvent]:
        self._echoes.note_streamed(event.message_id)
        self.sources += self._texts.add(find_result_texts(event.content, self._tools.get(event.tool_call_id)))
        return [event]

    def _take_metadata(self, message: MessageState, event: Event) -> None:
        if event.metadata is not UNSET:
            self._cite(message, agent_citations.find_metadata_citations(event.metadata))

    def _on_custom(self, event: ev.Custom) -> list[AnyEvent]:
        name, cited = agent_citations.find_custom_citations(event.name, event.value)
        # A recognised provider payload takes precedence over a generic list.
        cited = self._provider.read_event(event.value) or cited
        if name is None:
            self._cite_unnamed(cited)
        elif name in self._messages:
            self._cite_given(self._messages[name], cited)
        return [event]

    def _on_raw(self, event: ev.RawEvent) -> list[AnyEvent]:
        self._cite_unnamed(self._provider.read_event(event.event))
        return [event]

    def _cite_unnamed(self, cited: list[MessageCitation]) -> None:
        """Add citations without a message id to the last message, or to the first one that starts."""
        if self._tracker.last is None:
            self._loose += cited
        else:
            self._cite_given(self._tracker.last, cited)

    def _cite_given(self, message: MessageState, cited: list[MessageCitation]) -> None:
        self._cite(message, cited)
        if cited and message.scanner is None and message.pending:
            self._tracker.set_status(message, "verifying")

    def _on_snapshot(self, event: ev.StateSnapshot) -> list[AnyEvent]:
        ours = self._flush()
        self._tracker.state.apply_snapshot(event.snapshot)
        self._take_entries()
        return [*ours, event]

    def _on_delta(self, event: ev.StateDelta) -> list[AnyEvent]:
        ours = self._flush()
        if self._tracker.state.apply_delta(event.delta):
            self._take_entries()
        return [*ours, event]

    def _take_entries(self) -> None:
        """Check the citations that the agent put into the state like those in its text."""
        for name, entries in self._tracker.state.agent_entries():
            cited = agent_citations.find_entry_citations(entries, listed=True)
            if cited and name not in self._tracker.closed_ids and is_safe_key(name):
                self._cite_given(self._messages.get(name) or self._begin_without_text(name), cited)

    def _begin_without_text(self, name: str) -> MessageState:
        """Begin a message whose text has not been seen yet."""
        message = self._tracker.begin_message(name)
        message.scanner = None
        return message

    def _on_messages(self, event: ev.MessagesSnapshot) -> list[AnyEvent]:
        """Remove data blocks from the messages of a snapshot, and follow messages whose id has changed."""
        ours = self._flush()
        answers = {id_of(message): message for message in event.messages if is_answer(message)}
        visible = {name: visible_text(message["content"]) for name, message in answers.items()}
        self._tracker.follow_renamed_messages(visible)
        self._note_echoes(
            self._echoes.find_echoes(event.messages) - self._messages.keys() - self._tracker.closed_ids
        )
        after: list[AnyEvent] = []
        for name, message in answers.items():
            if name not in self._tracker.closed_ids:
                after += self._scan_whole_answer(name, message)
        self._tracker.resend(filter(None, answers))
        shown = [self._shown(message, visible) for message in event.messages]
        return [*ours, event if shown == event.messages else replace(event, messages=shown), *after]

    def _shown(self, message: Any, visible: dict[str, str]) -> Any:
        """Return a message of a snapshot without data blocks, and marked if a client posted it."""
        name = id_of(message)
        if self._options.strip_block and is_answer(message):
            message = {**message, "content": visible[name]}
        return self._mark_if_posted(message)

    def _mark_if_posted(self, message: Any) -> Any:
        """Return the message with the mark if a client posted it, otherwise without."""
        return mark_posted(message) if id_of(message) in self._posted else without_mark(message)

    def _scan_whole_answer(self, name: str, answer: Json) -> list[AnyEvent]:
        """Add new citations of a snapshot's answer, which may not have been streamed; returns our events."""
        ours: list[AnyEvent] = []
        if name not in self._messages and answer["content"]:
            message = self._tracker.begin_message(name)
            scanner = cast("Scanner", message.scanner)
            self._scan_delta(message, scanner, answer["content"])
            _, ours = self._end_message(message, scanner, ev.TextMessageContent(name, ""))
        metadata = answer.get("metadata")
        if name in self._messages and isinstance(metadata, dict):
            self._cite_given(
                self._messages[name], agent_citations.find_metadata_citations(cast("Json", metadata))
            )
        return ours

    _HANDLERS: ClassVar[dict[type[Event], Callable[[CitationAnnotator, Any], list[AnyEvent]]]] = {
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
