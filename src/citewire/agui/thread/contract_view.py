"""The Agent contract that citation front ends follow, as the AG-UI adapter of @ngaf documents it.

Events are accepted in any order: one that does not fit is reported and changes nothing. Beyond the contract,
the view has interrupts, subagents with their own messages, chunk events, and arguments in fragments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import UNSET, Struct, ValidationError, convert
from msgspec.structs import fields

from citewire.agui import events as ev
from citewire.agui.chunks import ChunkExpander, ProtocolError
from citewire.agui.citation_bridge import (
    citations_by_message,
    is_citation_list,
    normalise_citations,
    renormalise_changed,
)
from citewire.agui.events import Event, Json
from citewire.agui.protocol import version_problem
from citewire.agui.thread import log_entries as en
from citewire.agui.thread.arguments import Arguments
from citewire.agui.thread.fold import Fold, problems_to_json
from citewire.agui.thread.log_entries import LogEntry
from citewire.agui.thread.persistent_list import JsonDraft, JsonDraftList, ListSnapshot, PersistentList
from citewire.frozen import FrozenDict, FrozenList, freeze
from citewire.patch import PatchError, PatchTarget, parse_pointer
from citewire.text import one_line

__all__ = ["Contract", "ContractFold"]

# Custom events that stay in the view: at least this many of the last ones, and at most twice as many.
_MOST_EVENTS = 10_000
RunStatus = Literal["idle", "running", "error"]
_INDEX = re.compile(r"[0-9]{1,9}")
_Touched: TypeAlias = dict[str, set[int] | None]
"""The indexes of changed citations, by message id; None if the whole list changed."""


class Contract(Struct, frozen=True):
    """The view for a front end at one moment. Its lists and JSON never change."""

    status: RunStatus
    is_loading: bool
    error: Any
    messages: ListSnapshot
    tool_calls: ListSnapshot
    state: Any
    interrupts: FrozenList
    subagents: ListSnapshot
    events: ListSnapshot
    problems: ListSnapshot

    def to_json(self) -> Json:
        """Convert the view to JSON values, with the names that front ends use."""
        return {
            "status": self.status,
            "isLoading": self.is_loading,
            "error": self.error,
            "messages": list(self.messages),
            "toolCalls": list(self.tool_calls),
            "state": self.state,
            "interrupts": self.interrupts,
            "subagents": [subagent.to_json() for subagent in self.subagents],
            "events": list(self.events),
            "problems": problems_to_json(self.problems),
        }


class Subagent(Struct, frozen=True):
    """A subagent run: its metadata, messages and tool calls."""

    info: FrozenDict
    messages: ListSnapshot
    tool_calls: ListSnapshot

    def to_json(self) -> Json:
        return {**self.info, "messages": list(self.messages), "toolCalls": list(self.tool_calls)}


class _Call(JsonDraft):
    __slots__ = ("arguments", "born")

    def __init__(self, fields: Json, arguments: Arguments, born: int) -> None:
        super().__init__(fields)
        self.arguments, self.born = arguments, born

    def copy(self) -> _Call:
        twin = cast("_Call", super().copy())
        twin.arguments, twin.born = self.arguments.copy(), self.born
        return twin

    def feed(self, fragment: str) -> None:
        self._made = None
        self.arguments.feed(fragment)

    def _make(self) -> FrozenDict:
        return FrozenDict(self.fields | {"args": self.arguments.value})


class _Message(JsonDraft):
    __slots__ = ()

    def _make(self) -> FrozenDict:
        """Build the message. Text streamed after content blocks becomes another block."""
        made = super()._make()
        blocks = self.fields.get("content")
        if "content" not in self.texts or not isinstance(blocks, list):
            return made
        block = FrozenDict(type="text", text=made["content"])
        return FrozenDict(made | {"content": FrozenList([*cast("list[Any]", blocks), block])})


class _Lane:
    """The messages and tool calls of one agent: the main agent or a subagent."""

    def __init__(self, info: Json | None = None, place: int = 0) -> None:
        self.info: Json = info or {}
        self.place = place
        self.messages = JsonDraftList()
        self.calls = JsonDraftList()

    def copy(self) -> _Lane:
        twin = _Lane(self.info.copy(), self.place)
        twin.messages, twin.calls = self.messages.copy(), self.calls.copy()
        return twin

    @property
    def value(self) -> Subagent:
        return Subagent(FrozenDict(self.info), self.messages.snapshot(), self.calls.snapshot())


class ContractFold(Fold):
    """Folds the entries of a log into a `Contract`."""

    def __init__(
        self,
        messages: Iterable[Json] = (),
        state: Any = None,
        seed_args: bool = False,
        clear_removed: bool = False,
    ) -> None:
        super().__init__()
        self._seed_args, self._clear_removed = seed_args, clear_removed
        self._status: RunStatus = "idle"
        self._loading = False
        self._error: Any = None
        # Whether a run has started without a terminal event, regardless of transport failures.
        self._in_run = False
        self._main = _Lane()
        self._lanes: dict[str, _Lane] = {}
        # The lanes of subagents' messages and calls; those of the main agent are in the main lane.
        self._message_lanes: dict[str, _Lane] = {}
        self._call_lanes: dict[str, _Lane] = {}
        self._state = PatchTarget({} if state is None else state, frozen=True)
        # The subagents in the last snapshot, and the ids of those that changed since.
        self._subagents = PersistentList[Subagent]()
        self._changed: set[str] = set()
        self._interrupts = FrozenList()
        self._events = PersistentList[FrozenDict]()
        self._chunks = ChunkExpander()
        # Ids of cited messages that have not arrived, and of those that arrived since the last state event.
        self._early: set[str] = set()
        self._due: set[str] = set()
        # The citations that were set on each message.
        self._bridged: dict[str, FrozenList] = {}
        self._thinking_since: dict[str, float] = {}
        self._time: float | None = None
        self._handlers = self._table()
        self._set_messages(messages)
        self._mark_all_due()

    def copy(self) -> ContractFold:
        """Return an independent fold with the same state."""
        twin = ContractFold((), None, self._seed_args, self._clear_removed)
        twin._status, twin._loading, twin._error = self._status, self._loading, self._error
        twin._in_run = self._in_run
        lanes = {id(lane): lane.copy() for lane in (self._main, *self._lanes.values())}
        twin._main = lanes[id(self._main)]
        twin._lanes = {name: lanes[id(lane)] for name, lane in self._lanes.items()}
        twin._message_lanes = {name: lanes[id(lane)] for name, lane in self._message_lanes.items()}
        twin._call_lanes = {name: lanes[id(lane)] for name, lane in self._call_lanes.items()}
        twin._state.replace(self._state.value)
        twin._interrupts, twin._events = self._interrupts, self._events.copy()
        self._copy_to(twin)
        twin._subagents, twin._changed = self._subagents.copy(), self._changed.copy()
        twin._chunks = self._chunks.copy()
        twin._early, twin._due = self._early.copy(), self._due.copy()
        twin._thinking_since, twin._bridged = self._thinking_since.copy(), self._bridged.copy()
        return twin

    @property
    def value(self) -> Contract:
        """The current contract."""
        return Contract(
            self._status,
            self._loading,
            self._error,
            self._main.messages.snapshot(),
            self._main.calls.snapshot(),
            self._state.value,
            self._interrupts,
            self._shown_subagents(),
            self._events.snapshot(),
            self._problems.snapshot(),
        )

    def _go_on(self, event: Any, more: Sequence[Any]) -> bool:
        """Apply deltas that continue `event` at once."""
        if isinstance(event, ev.ToolCallArgs):
            return False
        message = self._edit(event.message_id)
        if message is not None:
            name = "content" if isinstance(event, ev.TextMessageContent) else "reasoning"
            message.extend(name, [each.delta for each in more])
        return message is not None

    def _apply(self, entry: LogEntry, time: float | None) -> None:
        self._time = time
        if isinstance(entry, ev.Event):
            self._take_event(entry)
            return
        match entry:
            case ev.MalformedEvent(reason=reason):
                self._report("bad_field", f"{entry.type}: {one_line(reason, 200)}")
                if (event := _repair_event(entry)) is not None:
                    self._take_event(event)
                if entry.type == "RUN_ERROR" and entry.fields.get("message") is None:
                    self._error = freeze(entry.fields)
            case en.MessageAdded(message):
                self._add(self._main, _Message(freeze(message).copy()))
            case en.MessagesSet(messages):
                self._set_messages(messages)
                self._mark_all_due()
            case en.MessagesCut(name):
                self._cut(name)
            case en.StateSet(state):
                self._state.replace(state)
                self._mark_all_due()
            case en.RunFailed(code, error):
                self._status, self._loading, self._error = "error", False, error
                self._report(code, error)
            case en.RunStopped():
                self._status, self._loading = "idle", False
            case en.InvalidEventReceived(code, message) | en.ProblemNoted(code, message):
                self._report(code, message)
            case en.StreamOpened(goes_on=True):
                if self._in_run:
                    self._status, self._loading, self._error = "running", True, None
            case en.StreamOpened():
                self._chunks = ChunkExpander()
            case _:  # unknown events are ignored
                pass

    def _take_event(self, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None and not self._chunks.affects(event):
            handler(event)
            return
        try:
            expanded = self._chunks.expand(event)
        except ProtocolError as exc:
            self._report(exc.code, exc.message)
            return
        for each in expanded:
            if (handler := self._handlers.get(type(each))) is not None:
                handler(each)

    def _table(self) -> dict[type[Event], Callable[[Any], None]]:
        return {
            ev.RunStarted: self._run_started,
            ev.RunFinished: self._run_finished,
            ev.RunError: self._run_failed,
            ev.TextMessageStart: self._text_start,
            ev.TextMessageContent: self._text_content,
            ev.ReasoningMessageStart: self._reasoning_start,
            ev.ReasoningMessageContent: self._reasoning_content,
            ev.ReasoningMessageEnd: self._reasoning_end,
            ev.ToolCallStart: self._tool_start,
            ev.ToolCallArgs: self._tool_args,
            ev.ToolCallResult: self._tool_result,
            ev.ToolCallEnd: self._tool_end,
            ev.StateSnapshot: self._state_snapshot,
            ev.StateDelta: self._state_delta,
            ev.MessagesSnapshot: self._messages_snapshot,
            ev.Custom: self._custom,
            ev.SubagentStarted: self._subagent_started,
            ev.SubagentFinished: self._subagent_finished,
            ev.SubagentError: self._subagent_failed,
        }

    # Runs

    def _run_started(self, event: ev.RunStarted) -> None:
        if problem := version_problem(event.protocol_version):
            self._report(*problem)
        self._status, self._loading, self._error = "running", True, None
        self._in_run = True

    def _run_finished(self, event: ev.RunFinished) -> None:
        self._status, self._loading, self._in_run = "idle", False, False
        outcome = event.outcome or {}
        listed = outcome.get("interrupts") if outcome.get("type") == "interrupt" else None
        given = cast("list[Any]", listed) if isinstance(listed, list) else []
        self._interrupts = FrozenList(freeze(one) for one in given if _is_named(one))
        if len(self._interrupts) < len(given):
            self._report("bad_field", "RUN_FINISHED: an interrupt is an object with an id")

    def _run_failed(self, event: ev.RunError) -> None:
        self._status, self._loading, self._error = "error", False, event.message
        self._in_run = False

    # Messages

    def _set_messages(self, messages: Iterable[Json]) -> None:
        self._main.messages.reset(_Message(freeze(message).copy()) for message in messages)
        for message in self._main.messages:
            self._note_added(message)

    def _add(self, lane: _Lane, message: _Message) -> JsonDraft:
        lane.messages.add(message)
        if lane is not self._main:
            self._message_lanes[message.fields["id"]] = lane
        self._note_added(message)
        return message

    def _note_added(self, message: JsonDraft) -> None:
        self._note_message_added(message)
        if message.key in self._early:
            self._early.remove(message.key)
            self._due.add(message.key)

    def _cut(self, name: str) -> None:
        """Remove the messages after this one, and the calls made since it was added."""
        place = self._main.messages.index_of(name)
        if place is None:
            return
        self._main.messages.truncate(place + 1)
        since = self.born[name]
        self._main.calls.truncate(sum(cast("_Call", call).born <= since for call in self._main.calls))

    def _lane(self, event: Any) -> _Lane:
        name = event.subagent_run_id
        if not isinstance(name, str):
            return self._main
        return self._lane_of(name)

    def _lane_of(self, name: str) -> _Lane:
        """Return the lane of a subagent, and mark it as changed."""
        if name not in self._lanes:
            self._lanes[name] = _Lane({"id": name, "status": "running"}, len(self._lanes))
            self._subagents.append(self._lanes[name].value)
        self._changed.add(name)
        return self._lanes[name]

    def _shown_subagents(self) -> ListSnapshot:
        for name in self._changed:
            lane = self._lanes[name]
            self._subagents[lane.place] = lane.value
        self._changed.clear()
        return self._subagents.snapshot()

    def _edit(self, name: str) -> JsonDraft | None:
        message = self._main.messages.edit(name)
        if message is None and name in self._message_lanes:
            return self._editable_lane(self._message_lanes[name]).messages.edit(name)
        return message

    def _find(self, name: str) -> JsonDraft | None:
        message = self._main.messages.find(name)
        if message is None and name in self._message_lanes:
            return self._message_lanes[name].messages.find(name)
        return message

    def _editable_lane(self, lane: _Lane) -> _Lane:
        return lane if lane is self._main else self._lane_of(lane.info["id"])

    def _get_or_add_message(self, event: Any) -> JsonDraft:
        """Return the message with the event's id, or add an assistant message."""
        message = self._edit(event.message_id)
        if message is None:
            fields = {"id": event.message_id, "role": "assistant", "content": ""}
            return self._add(self._lane(event), _Message(fields))
        if message.get("content") is None:
            message.put("content", "")
        return message

    def _text_start(self, event: ev.TextMessageStart) -> None:
        self._get_or_add_message(event)

    def _text_content(self, event: ev.TextMessageContent) -> None:
        message = self._edit(event.message_id)
        if message is None:
            self._no_message(event)
        else:
            message.extend("content", (event.delta,))

    def _no_message(self, event: Any) -> None:
        self._report(
            "unknown_message", f"{event.type}: no message is called {one_line(event.message_id, 80)}"
        )

    def _reasoning_start(self, event: ev.ReasoningMessageStart) -> None:
        self._get_or_add_message(event).extend("reasoning", ())
        if self._time is not None:
            self._thinking_since[event.message_id] = self._time

    def _reasoning_content(self, event: ev.ReasoningMessageContent) -> None:
        message = self._edit(event.message_id)
        if message is None:
            self._no_message(event)
        else:
            message.extend("reasoning", (event.delta,))

    def _reasoning_end(self, event: ev.ReasoningMessageEnd) -> None:
        message, start = self._edit(event.message_id), self._thinking_since.get(event.message_id)
        if message is not None and start is not None and self._time is not None:
            message.put("reasoningDurationMs", max(0, round((self._time - start) * 1000)))

    # Tool calls

    def _edit_call(self, event: Any) -> _Call | None:
        lane = self._editable_lane(self._call_lanes.get(event.tool_call_id, self._main))
        call = lane.calls.edit(event.tool_call_id)
        if call is None:
            self._report(
                "unknown_tool_call", f"{event.type}: no call is called {one_line(event.tool_call_id, 80)}"
            )
        return cast("_Call | None", call)

    def _tool_start(self, event: ev.ToolCallStart) -> None:
        lane = self._lane(event)
        if event.tool_call_id in self._main.calls or event.tool_call_id in self._call_lanes:
            self._report(
                "duplicate_start", f"the call {one_line(event.tool_call_id, 80)} has started already"
            )
            return
        if lane is not self._main:
            self._call_lanes[event.tool_call_id] = lane
        fields = {"id": event.tool_call_id, "name": event.tool_call_name, "status": "running"}
        lane.calls.add(_Call(fields, Arguments(self._seed_args), self.number))

    def _tool_args(self, event: ev.ToolCallArgs) -> None:
        call = self._edit_call(event)
        if call is not None:
            call.feed(event.delta)

    def _tool_result(self, event: ev.ToolCallResult) -> None:
        call = self._edit_call(event)
        if call is not None:
            call.put("result", freeze(event.content))

    def _tool_end(self, event: ev.ToolCallEnd) -> None:
        call = self._edit_call(event)
        if call is not None:
            call.put("status", "complete")

    # State, and the citations in it

    def _state_snapshot(self, event: ev.StateSnapshot) -> None:
        self._state.replace({} if event.snapshot is None else event.snapshot)
        self._merge(None)

    def _state_delta(self, event: ev.StateDelta) -> None:
        try:
            self._state.apply(event.delta)
        except PatchError as exc:
            self._report(exc.code, str(exc))
            return
        self._merge(_touched_citations(event.delta))
        if self._clear_removed:
            self._clear(event.delta)

    def _merge(self, touched: _Touched | None) -> None:
        """Copy citations from the state to the `touched` messages, all if None, and to those that are due."""
        entries = citations_by_message(self._state.peek())
        if entries is None:
            return
        if touched is None:
            touched = dict.fromkeys(entries)
        if self._due:
            touched |= dict.fromkeys(self._due)
            self._due.clear()
        for name, places in touched.items():
            if is_citation_list(entry := entries.get(name)):
                self._cite(name, entry, places)

    def _cite(self, name: str, entry: list[Any], places: set[int] | None) -> None:
        message = self._find(name)
        if message is None:
            self._early.add(name)
            return
        before, citations = message.fields.get("citations"), None
        if places is not None and before is not None and before is self._bridged.get(name):
            citations = renormalise_changed(entry, before, places)
        if citations is None:
            citations = normalise_citations(entry, self._bad_citation)
        if before == citations:
            citations = cast("FrozenList", before)
        else:
            cast("JsonDraft", self._edit(name)).put("citations", citations)
        self._bridged[name] = citations

    def _mark_all_due(self) -> None:
        """Let the next state event set all citations, because the messages or the state were replaced."""
        self._due.update(citations_by_message(self._state.peek()) or ())

    def _bad_citation(self, message: str) -> None:
        self._report("bad_citation", message)

    def _clear(self, operations: list[Any]) -> None:
        for operation in operations:
            path = parse_pointer(operation["path"])
            if operation["op"] == "remove" and len(path) == 2 and path[0] == "citations":
                message = self._find(path[1])
                if message is not None and "citations" in message.fields:
                    cast("JsonDraft", self._edit(path[1])).drop("citations")

    def _messages_snapshot(self, event: ev.MessagesSnapshot) -> None:
        listed: Any = event.messages
        if not isinstance(listed, list):
            self._report("bad_field", "MESSAGES_SNAPSHOT: messages are a list")
            return
        messages = [
            self._message(message) for message in cast("list[Any]", listed) if self._is_object(message)
        ]
        tagged = [draft for draft in messages if _is_tagged(draft)]
        self._main.messages.reset(draft for draft in messages if not _is_tagged(draft))
        if tagged:
            self._reset_lanes(tagged)
        else:
            self._remove_moved_messages()
        for draft in messages:
            self._note_added(draft)
        self._mark_all_due()

    def _remove_moved_messages(self) -> None:
        """Remove messages from subagents' lanes that are now in the main lane."""
        moved = [name for name in self._message_lanes if name in self._main.messages]
        for lane in {id(lane): lane for name in moved if (lane := self._message_lanes.pop(name))}.values():
            kept = [message.copy() for message in lane.messages if message.key not in moved]
            self._editable_lane(lane).messages.reset(kept)

    def _reset_lanes(self, tagged: list[_Message]) -> None:
        for name in self._lanes:
            self._lane_of(name).messages.reset(())
        self._message_lanes.clear()
        for draft in tagged:
            lane = self._lane_of(draft.fields["subagentRunId"])
            lane.messages.add(draft)
            if isinstance(draft.key, str):
                self._message_lanes[draft.key] = lane

    def _is_object(self, message: Any) -> bool:
        if not _is_named(message):
            self._report("bad_field", "MESSAGES_SNAPSHOT: a message is an object with an id")
        return isinstance(message, dict)

    def _message(self, message: Json) -> _Message:
        """Build a draft from a complete message, with its citations normalised."""
        fields = cast("Json", dict(freeze(message)))
        if is_citation_list(entry := fields.get("citations")):
            fields["citations"] = normalise_citations(entry, self._bad_citation)
        return _Message(fields)

    # Custom events and subagents

    def _custom(self, event: ev.Custom) -> None:
        value = freeze(event.value)
        if len(self._events) >= 2 * _MOST_EVENTS:
            self._events = PersistentList(self._events.snapshot()[-_MOST_EVENTS:])
        if event.name == "state_update" and isinstance(value, dict):
            self._events.append(FrozenDict(type="state_update", data=value))
        else:
            self._events.append(FrozenDict(type="custom", name=event.name, data=value))

    def _subagent_started(self, event: ev.SubagentStarted) -> None:
        info = self._lane(event).info
        info |= {"name": event.name, "status": "running"}
        for name in ("description", "parent_subagent_run_id", "parent_tool_call_id", "parent_message_id"):
            if isinstance(value := getattr(event, name), str):
                info[_WIRE[name]] = value

    def _subagent_finished(self, event: ev.SubagentFinished) -> None:
        info = self._lane(event).info
        outcome: Any = event.outcome
        suspended = isinstance(outcome, dict) and cast("Json", outcome).get("type") == "suspended"
        info["status"] = "suspended" if suspended else "complete"
        if event.result is not UNSET:
            info["result"] = freeze(event.result)

    def _subagent_failed(self, event: ev.SubagentError) -> None:
        self._lane(event).info |= {"status": "error", "error": event.message}


_WIRE = dict(
    zip(ev.SubagentStarted.__struct_fields__, ev.SubagentStarted.__struct_encode_fields__, strict=True)
)


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(cast("Json", value).get("id"), str)


def _is_tagged(message: JsonDraft) -> bool:
    return isinstance(message.fields.get("subagentRunId"), str)


def _touched_citations(operations: list[Json]) -> _Touched | None:
    """Return the messages whose citations an applied patch may have changed; None for all."""
    touched: _Touched = {}
    for operation in operations:
        within = operation["op"] == "replace"
        for key in ("path", "from") if operation["op"] in ("move", "copy") else ("path",):
            pointer = operation[key]
            if pointer in ("", "/citations"):
                return None
            if pointer.startswith("/citations/"):
                _, name, *rest = parse_pointer(pointer)
                places = touched.setdefault(name, set())
                if (
                    places is None
                    or not rest
                    or not _INDEX.fullmatch(rest[0])
                    or not (within or len(rest) > 1)
                ):
                    touched[name] = None
                else:
                    places.add(int(rest[0]))
    return touched


# Defaults of missing or invalid fields; other text fields become empty.
_FALLBACKS: Json = {"message_id": "unknown", "snapshot": None, "value": None, "event": None}
# Fields that the adapter accepts with any value.
_VERBATIM = frozenset({"content"})


def _repair_event(event: ev.MalformedEvent) -> Event | None:
    """Build the event from its valid fields, as the adapter reads it; None if a required list is missing."""
    values: Json = {}
    kind = ev.TYPES[event.type]
    for field in fields(kind):
        value = event.fields.get(field.encode_name)
        if field.name in _VERBATIM or (value is not None and _has_type(value, field.type)):
            values[field.name] = value
        elif field.required and field.type == list[Any]:
            return None
        elif field.required:
            values[field.name] = _FALLBACKS.get(field.name, "")
    return kind(**values)


def _has_type(value: Any, kind: Any) -> bool:
    try:
        convert(value, kind)
    except (ValidationError, UnicodeError):
        return False
    return True
