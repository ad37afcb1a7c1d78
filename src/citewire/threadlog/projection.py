"""Project a thread's answers into its channel: a fold over the rows of the thread's log.

It reads no clock and awaits nothing. The same rows give the same steps, so after a restart the log can be
folded again, continuing behind the last step that was published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias

from msgspec import UNSET, Struct

from citewire.agui import events as ev
from citewire.agui.chunks import ChunkExpander, ProtocolError, subagent_of
from citewire.agui.citations.message_state import CitationSeen, VerdictReached
from citewire.agui.citations.posted_messages import find_posted_ids, id_of, is_posted, started_message_id
from citewire.agui.citations.records import read_record
from citewire.agui.events import Event, Json
from citewire.channels.annotation import AnnotationDraft
from citewire.channels.message import Action, MessageDraft, MessageOperation
from citewire.channels.projection_mark import ProjectionMark
from citewire.channels.store import Row
from citewire.dialects.base import is_object
from citewire.threadlog.answer_annotations import (
    CITEWIRE,
    make_citation_delete,
    make_citation_note,
    make_remaining_verdicts,
    make_verdict_note,
    name_of,
)
from citewire.threadlog.answer_text import AnswerText
from citewire.threadlog.foreign_citations import ForeignCitation
from citewire.threadlog.rows import EndedRun, EventRow, RowKind, StartedRun, WithdrawnCitations, decode_row

__all__ = ["Projection", "ProjectionStep"]

_RESPONSE = "response"
_NAME_BYTES = 512
_PROJECTED = frozenset({RowKind.INPUT, RowKind.EVENT, RowKind.RECORD, RowKind.END})

CitationRecord: TypeAlias = CitationSeen | VerdictReached | WithdrawnCitations


class ProjectionStep(Struct, frozen=True):
    """A message or annotation about the message `answer`. `mark` is the position of this step."""

    mark: ProjectionMark
    answer: str
    sent: MessageDraft | AnnotationDraft


class _Citation:
    """A citation of an answer. If another client made it, `annotation` is its serial and `by` the client."""

    def __init__(self, seen: CitationSeen) -> None:
        self.key, self.cited = seen.key, seen.citation
        self.annotation, self.by = seen.annotation, seen.by
        self.is_told = self.annotation is not None
        self.verification: Json | None = None
        self.told: str | None = None
        """The status last published in the channel."""


class _Answer:
    """An answer. Its message retains its `name` when the thread gives the answer another id."""

    def __init__(self, message_id: str, name: str, run_id: str, client_id: str) -> None:
        self.message_id, self.name = message_id, name
        self.run_id, self.client_id = run_id, client_id
        self.editor = MessageOperation(client_id=client_id)
        self.text = AnswerText()
        self.is_open = self.is_gone = False
        self.citations: dict[str, _Citation] = {}
        # Citations that are not completely published yet.
        self.untold: dict[str, _Citation] = {}


class Projection:
    """The answers of a thread. `agent` is the client id of messages that no subagent wrote."""

    def __init__(self, thread_id: str, series: str, agent: str) -> None:
        self._thread_id, self._series, self._agent = thread_id, series, agent
        self.run_id = ""
        self._chunks = ChunkExpander()
        self._subagents: dict[str, str] = {}
        self._answers: dict[str, _Answer] = {}
        self._names: set[str] = set()
        # Messages that clients posted in any run, messages in the input of this run, and records of messages
        # that have not started yet.
        self._earlier: set[str] = set()
        self._listed: frozenset[str] = frozenset()
        self._early: dict[str, list[CitationRecord]] = {}
        self._steps: list[tuple[str, MessageDraft | AnnotationDraft]] = []

    def apply_row(self, row: Row) -> list[ProjectionStep]:
        """Return the steps that publish a row in the channel."""
        if row.kind not in _PROJECTED:
            return []
        match decode_row(row):
            case EventRow(event, is_deferred=False):
                self._event(event)
            case StartedRun() as started:
                self._begin(started)
            case CitationSeen() | VerdictReached() | WithdrawnCitations() as record:
                self._record(record)
            case EndedRun():
                for answer in self._answers.values():
                    self._end(answer)
            case _:
                pass
        if not self._steps:
            return []
        steps, self._steps = self._steps, []
        return [
            ProjectionStep(ProjectionMark(self._series, row.n, at), *step) for at, step in enumerate(steps, 1)
        ]

    def message_id(self, name: str) -> str | None:
        """Return the thread's id for the answer whose message is called `name`, or None."""
        if (same := self._answers.get(name)) and same.name == name:
            return name
        return next((each.message_id for each in self._answers.values() if each.name == name), None)

    def foreign_citations(self) -> Iterator[tuple[ForeignCitation, bool]]:
        """Yield the citations by other clients, and whether each has a verdict."""
        for answer in self._answers.values():
            for each in answer.citations.values():
                cited = read_record(each.cited) if each.annotation else None
                if cited and each.annotation:
                    yield (
                        ForeignCitation(answer.message_id, cited, each.by, each.annotation),
                        each.verification is not None,
                    )

    # --- messages -----------------------------------------------------------------------------------------

    def _begin(self, started: StartedRun) -> None:
        self.run_id, self._chunks = started.input.run_id, ChunkExpander()
        self._listed = frozenset(map(id_of, started.input.messages))
        self._earlier |= self._listed - self._answers.keys()

    def _event(self, event: ev.AnyEvent) -> None:
        if not isinstance(event, Event):
            return
        try:
            steps = self._chunks.expand(event) if self._chunks.affects(event) else [event]
        except ProtocolError:
            return
        self._earlier.discard(started_message_id(event))
        for step in steps:
            if handler := self._HANDLERS.get(type(step)):
                handler(self, step)

    def _on_start(self, event: ev.TextMessageStart) -> None:
        if event.role not in (UNSET, "assistant") or not _is_name(event.message_id):
            return
        answer = self._answers.get(event.message_id)
        if answer is None:
            answer = self._new(event.message_id, subagent_of(event))
            answer.is_open = True
            self._create(answer, "")
        elif answer.is_gone or (answer.run_id != self.run_id and answer.message_id not in self._listed):
            self._say_anew(answer)
        answer.is_open = True

    def _on_content(self, event: ev.TextMessageContent) -> None:
        if (answer := self._answers.get(event.message_id)) and answer.is_open:
            self._append(answer, event.delta)
            if answer.untold:
                self._tell(answer)

    def _on_end(self, event: ev.TextMessageEnd) -> None:
        if answer := self._answers.get(event.message_id):
            self._end(answer)

    def _end(self, answer: _Answer) -> None:
        if answer.is_open:
            answer.is_open = False
            self._tell(answer)

    def _on_subagent(self, event: ev.SubagentStarted) -> None:
        if _is_name(event.name) and event.name not in ("*", CITEWIRE):
            self._subagents[event.subagent_run_id] = event.name

    def _on_messages(self, event: ev.MessagesSnapshot) -> None:
        """Apply a snapshot of the messages: answers may be new, changed, deleted or renamed."""
        said = {id_of(each): each for each in event.messages if _is_answer(each) and not is_posted(each)}
        self._earlier |= find_posted_ids(event) - self._answers.keys()
        new = {
            name: message
            for name, message in said.items()
            if name not in self._answers
            and name not in self._earlier
            and _is_name(name)
            and message["content"]
        }
        for answer in [each for each in self._answers.values() if each.message_id not in said]:
            if answer.run_id == self.run_id and not (answer.is_open or answer.is_gone):
                same = next(
                    (name for name, each in new.items() if answer.text.matches(each["content"])), None
                )
                if same is None:
                    answer.is_gone = True
                    self._edit(answer, Action.DELETE)
                else:
                    del new[same]
                    self._rename(answer, same)
        for name, message in new.items():
            self._create(self._new(name, message.get("subagentRunId")), message["content"])
        for name, message in said.items():
            if (known := self._answers.get(name)) and name not in new:
                self._replace(known, message["content"])

    def _new(self, message_id: str, subagent: str | None) -> _Answer:
        client = self._subagents.get(subagent or "", self._agent)
        name = message_id
        while name in self._names:  # taken by an answer that has another id now
            name += "#"
        self._names.add(name)
        answer = self._answers[message_id] = _Answer(message_id, name, self.run_id, client)
        return answer

    def _rename(self, answer: _Answer, message_id: str) -> None:
        self._answers[message_id] = self._answers.pop(answer.message_id)
        answer.message_id = message_id
        self._edit(answer, Action.APPEND, "", self._extras(answer))

    def _replace(self, answer: _Answer, content: str) -> None:
        if answer.is_gone or not answer.text.matches(content):
            answer.is_gone = False
            self._update(answer, content)
            self._tell(answer)

    def _say_anew(self, answer: _Answer) -> None:
        """Restart an answer that was withdrawn. Its former citations are dropped."""
        answer.is_gone, answer.run_id = False, self.run_id
        self._update(answer, "")
        own = [each for each in answer.citations.values() if each.annotation is None]
        for name in dict.fromkeys(name_of(each.cited, each.key) for each in own if each.is_told):
            self._note(answer, make_citation_delete(name, answer.client_id))
        self._drop(answer, own)
        self._tell(answer)

    # --- publishing in the channel ------------------------------------------------------------------------

    def _create(self, answer: _Answer, content: str) -> None:
        """Publish the answer, with the records that came before it."""
        first, *rest = answer.text.replace(content)
        self._steps.append(
            (
                answer.name,
                MessageDraft(
                    id=answer.name,
                    name=_RESPONSE,
                    data=first,
                    extras=self._extras(answer),
                    client_id=answer.client_id,
                ),
            )
        )
        self._more(answer, rest)
        for record in self._early.pop(answer.message_id, ()):
            self._record(record)

    def _update(self, answer: _Answer, content: str) -> None:
        first, *rest = answer.text.replace(content)
        self._edit(answer, Action.UPDATE, first, self._extras(answer))
        self._more(answer, rest)

    def _append(self, answer: _Answer, delta: str) -> None:
        was_cut = answer.text.is_cut
        self._more(answer, answer.text.add(delta))
        if answer.text.is_cut and not was_cut:
            self._edit(answer, Action.APPEND, "", self._extras(answer))

    def _more(self, answer: _Answer, pieces: list[str]) -> None:
        for piece in pieces:
            self._edit(answer, Action.APPEND, piece)

    def _edit(
        self, answer: _Answer, action: Action, data: str | None = None, extras: Json | None = None
    ) -> None:
        draft = MessageDraft(action=action, data=data, extras=extras, version=answer.editor)
        self._steps.append((answer.name, draft))

    def _extras(self, answer: _Answer) -> Json:
        headers = {"threadId": self._thread_id, "runId": answer.run_id, "messageId": answer.message_id}
        return {"headers": {**headers, "truncated": True} if answer.text.is_cut else headers}

    def _note(self, answer: _Answer, note: AnnotationDraft) -> None:
        self._steps.append((answer.name, note))

    # --- citations and verdicts ---------------------------------------------------------------------------

    def _record(self, record: CitationRecord) -> None:
        answer = self._answers.get(record.message_id)
        if answer is None:
            self._early.setdefault(record.message_id, []).append(record)
            return
        match record:
            case CitationSeen(key=key) if key not in answer.citations:
                answer.citations[key] = answer.untold[key] = _Citation(record)
            case VerdictReached(key=key) if known := answer.citations.get(key):
                known.verification = record.verification
                answer.untold[key] = known
            case WithdrawnCitations(annotations=taken):
                self._drop(answer, [each for each in answer.citations.values() if each.annotation in taken])
            case _:
                return
        self._tell(answer)

    def _tell(self, answer: _Answer) -> None:
        """Publish pending citations and verdicts, each citation as soon as its claim is known."""
        if answer.is_gone:
            return
        for each in list(answer.untold.values()):
            if not each.is_told:
                number, is_whole = each.cited.get("citationNumber"), not answer.is_open
                claim = answer.text.claim(number, is_whole=is_whole)
                if not (claim or is_whole):
                    continue
                each.is_told = True
                self._note(answer, make_citation_note(each.cited, each.key, claim, answer.client_id))
            del answer.untold[each.key]
            if each.verification:
                self._tell_verdict(answer, each, each.verification)

    def _tell_verdict(self, answer: _Answer, citation: _Citation, verification: Json) -> None:
        before, citation.told = citation.told, verification["citewire"]["status"]
        if before != citation.told:
            self._tell_left(answer, [before])
            self._note(answer, make_verdict_note(verification, citation.key, citation.annotation))

    def _drop(self, answer: _Answer, citations: list[_Citation]) -> None:
        for each in citations:
            del answer.citations[each.key]
            answer.untold.pop(each.key, None)
        self._tell_left(answer, [each.told for each in citations])

    def _tell_left(self, answer: _Answer, before: list[str | None]) -> None:
        """Publish the remaining counts of statuses that lost a verdict."""
        for status in dict.fromkeys(filter(None, before)):
            left = sum(each.told == status for each in answer.citations.values())
            for note in make_remaining_verdicts(status, left):
                self._note(answer, note)

    _HANDLERS: ClassVar[dict[type[Event], Callable[[Projection, Any], None]]] = {
        ev.TextMessageStart: _on_start,
        ev.TextMessageContent: _on_content,
        ev.TextMessageEnd: _on_end,
        ev.SubagentStarted: _on_subagent,
        ev.MessagesSnapshot: _on_messages,
    }


def _is_name(text: str) -> bool:
    """Return whether a channel accepts the text as an id: 1 to 512 bytes."""
    try:
        return 1 <= len(text.encode()) <= _NAME_BYTES
    except UnicodeEncodeError:
        return False


def _is_answer(message: Any) -> bool:
    fields: Json = message if is_object(message) else {}
    return fields.get("role") == "assistant" and isinstance(fields.get("content"), str)
