"""The state of the AG-UI client: messages, state and pending interrupts of protocol 1.0.

The fold follows the TypeScript client event by event, with the rules of `ProtocolEnforcer`. After a rejected
event the rest of the stream is lost, as it is for the client, and `error` has the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, cast

from msgspec import UNSET, Struct

from citewire.agui import events as ev
from citewire.agui.events import Event, Json
from citewire.agui.protocol import ProtocolEnforcer, ProtocolError
from citewire.agui.thread import log_entries as en
from citewire.agui.thread.fold import Fold, problems_to_json
from citewire.agui.thread.log_entries import LogEntry
from citewire.agui.thread.persistent_list import JsonDraft, JsonDraftList, ListSnapshot
from citewire.frozen import FrozenDict, FrozenList, freeze
from citewire.patch import PatchError, PatchTarget
from citewire.text import one_line

__all__ = ["ClientView", "ClientViewFold"]

_AUTHORITY = "@ag-ui/client"


class ClientView(Struct, frozen=True):
    """The state of the client at one moment.

    `outcome` says whether it accepted the stream, `error` why not; `run_error` is the agent's own error.
    """

    messages: ListSnapshot
    state: Any
    pending_interrupts: FrozenList
    outcome: Literal["completed", "failed"]
    error: str | None
    run_error: str | None
    problems: ListSnapshot

    def to_json(self) -> Json:
        """Convert the view to JSON values."""
        return {
            "outcome": self.outcome,
            "error": self.error,
            "runError": self.run_error,
            "messages": list(self.messages),
            "state": self.state,
            "pendingInterrupts": self.pending_interrupts,
            "problems": problems_to_json(self.problems),
        }


class _Call(JsonDraft):
    """A tool call in a message; its JSON has `name` and `arguments` under `function`."""

    __slots__ = ()

    def _make(self) -> FrozenDict:
        made = {name: value for name, value in self.fields.items() if name not in ("name", "arguments")}
        function = FrozenDict(name=self.fields["name"], arguments=self.get("arguments"))
        return FrozenDict(made | {"function": function})


class _Message(JsonDraft):
    """A message with its tool calls, or an activity whose content is being patched."""

    __slots__ = ("activity", "calls")

    def __init__(self, fields: Json, calls: Iterable[_Call] | None = None) -> None:
        super().__init__(fields)
        self.calls = None if calls is None else JsonDraftList(calls)
        self.activity: PatchTarget | None = None

    def copy(self) -> _Message:
        twin = cast("_Message", super().copy())
        twin.calls = None if self.calls is None else self.calls.copy()
        twin.activity = None
        if self.activity is not None:
            twin.fields["content"] = self.activity.value
        return twin

    def patch(self, operations: list[Any]) -> None:
        """Patch the content. Raises `PatchError`, and changes nothing, if the patch does not apply."""
        self._made = None
        self.activity = self.activity or PatchTarget(self.get("content"), as_client=True, frozen=True)
        self.activity.apply(operations)

    def edit_call(self, name: str) -> JsonDraft | None:
        self._made = None
        return None if self.calls is None else self.calls.edit(name)

    def add_call(self, call: _Call) -> JsonDraft:
        self._made = None
        self.calls = self.calls or JsonDraftList()
        return self.calls.add(call)

    def _make(self) -> FrozenDict:
        made = super()._make()
        if self.activity is not None:
            return FrozenDict(made | {"content": self.activity.value})
        if self.calls is None:
            return made
        return FrozenDict(made | {"toolCalls": FrozenList(call.value for call in self.calls)})


def _message(message: Json) -> _Message:
    """Build a draft from a complete message."""
    fields = cast("Json", dict(freeze(message)))
    calls = fields.get("toolCalls")
    if not isinstance(calls, list) or not all(map(_is_call, cast("list[Any]", calls))):
        return _Message(fields)
    del fields["toolCalls"]
    return _Message(fields, [_call(call) for call in cast("list[Json]", calls)])


def _is_call(call: Any) -> bool:
    fields = cast("Json", call) if isinstance(call, dict) else {}
    function = fields.get("function")
    has_id = isinstance(fields.get("id"), str)
    return has_id and isinstance(function, dict) and {"name", "arguments"} <= function.keys()


def _id_of(message: JsonDraft) -> str | None:
    """Return the id of a message; None if it is not a string, which only local messages can have."""
    found = message.fields.get("id")
    return found if isinstance(found, str) else None


def _call(call: Json) -> _Call:
    return _Call({name: value for name, value in call.items() if name != "function"} | call["function"])


def _merge_metadata(draft: JsonDraft, event: Event) -> None:
    if event.metadata is not UNSET:
        draft.put("metadata", FrozenDict((draft.get("metadata") or {}) | freeze(event.metadata)))


class ClientViewFold(Fold):
    """Folds the entries of a log into a `ClientView`."""

    def __init__(self, messages: Iterable[Json] = (), state: Any = None) -> None:
        super().__init__()
        self.messages = JsonDraftList()
        # The message key of each tool call.
        self._message_of_call: dict[str, Any] = {}
        # The number of tool messages that follow each message with calls.
        self._results: dict[Any, int] = {}
        self._state = PatchTarget({} if state is None else state, as_client=True, frozen=True)
        self._interrupts = FrozenList()
        self._handlers = self._table()
        self._set_messages(messages)
        self._reset_stream()

    def _reset_stream(self) -> None:
        self._enforcer = ProtocolEnforcer(self._report)
        self._error: str | None = None
        self._run_error: str | None = None

    def copy(self) -> ClientViewFold:
        """Return an independent fold with the same state."""
        twin = ClientViewFold()
        twin.messages, twin._message_of_call = self.messages.copy(), self._message_of_call.copy()
        twin._state.replace(self._state.value)
        twin._interrupts = self._interrupts
        self._copy_to(twin)
        twin._enforcer = self._enforcer.copy(twin._report)
        twin._error, twin._run_error = self._error, self._run_error
        return twin

    @property
    def value(self) -> ClientView:
        """The current state of the client."""
        return ClientView(
            self.messages.snapshot(),
            self._state.value,
            self._interrupts,
            "completed" if self._error is None else "failed",
            self._error,
            self._run_error,
            self._problems.snapshot(),
        )

    def _go_on(self, event: Any, more: Sequence[Any]) -> bool:
        """Apply deltas that continue `event` at once."""
        if self._error is not None:
            return True
        if isinstance(event, ev.ToolCallArgs):
            draft, name = self._edit_call(event.tool_call_id), "arguments"
        else:
            draft, name = self.messages.edit(event.message_id), "content"
        if draft is None or draft.fields.get("role") == "activity":
            return False
        draft.extend(name, [each.delta for each in more])
        return True

    def _apply(self, entry: LogEntry, time: float | None) -> None:
        del time
        if isinstance(entry, ev.Event | ev.UnknownEvent | ev.MalformedEvent):
            if self._error is None:
                self._admit(entry)
            return
        match entry:
            case en.MessageAdded(message):
                self._add(_message(message))
            case en.MessagesSet(messages):
                self._set_messages(messages)
            case en.StateSet(state):
                self._state.replace(state)
            case en.MessagesCut(name):
                if (place := self.messages.index_of(name)) is not None:
                    self.messages.truncate(place + 1)
                    self._index_tool_calls()
            case en.StreamOpened(goes_on=True):
                self._error = None
            case en.StreamOpened():
                self._reset_stream()
            case en.RunStopped() | en.ProblemNoted():
                pass
            case en.RunFailed(_, error):
                self._error = self._error or error
            case en.InvalidEventReceived(code, message) if self._error is None:
                self._error = message
                self._report(code, message)
            case en.InvalidEventReceived():
                pass

    def _admit(self, event: ev.AnyEvent) -> None:
        try:
            for delivered in self._enforcer.admit(event):
                handler = self._handlers.get(type(delivered))
                if handler is not None:
                    handler(delivered)
        except ProtocolError as exc:
            self._error = exc.message
            self._report(exc.code, exc.message)

    def _table(self) -> dict[type[Event], Callable[[Any], None]]:
        return {
            ev.RunStarted: self._run_started,
            ev.RunFinished: self._run_finished,
            ev.RunError: self._run_failed,
            ev.TextMessageStart: self._text_start,
            ev.TextMessageContent: self._content,
            ev.TextMessageEnd: self._end,
            ev.ReasoningMessageStart: self._reasoning_start,
            ev.ReasoningMessageContent: self._content,
            ev.ReasoningMessageEnd: self._end,
            ev.ReasoningEncryptedValue: self._encrypted,
            ev.ToolCallStart: self._tool_start,
            ev.ToolCallArgs: self._tool_args,
            ev.ToolCallEnd: self._tool_end,
            ev.ToolCallResult: self._tool_result,
            ev.StateSnapshot: self._state_snapshot,
            ev.StateDelta: self._state_delta,
            ev.MessagesSnapshot: self._messages_snapshot,
            ev.ActivitySnapshot: self._activity_snapshot,
            ev.ActivityDelta: self._activity_delta,
        }

    # Messages

    def _set_messages(self, messages: Iterable[Json]) -> None:
        self.messages.reset(_message(message) for message in messages)
        for message in self.messages:
            self._note_message_added(message)
        self._index_tool_calls()

    def _add(self, message: _Message) -> _Message:
        self.messages.add(message)
        self._note_message_added(message)
        for call in message.calls or ():
            self._message_of_call.setdefault(call.fields["id"], message.key)
        return message

    def _index_tool_calls(self) -> None:
        self._message_of_call, self._results = {}, {}
        for message in self.messages:
            for call in cast("_Message", message).calls or ():
                self._message_of_call.setdefault(call.fields["id"], message.key)

    def _text_start(self, event: ev.TextMessageStart) -> None:
        role = "assistant" if event.role is UNSET else event.role
        name = {} if event.name is UNSET else {"name": event.name}
        self._start(event, {"id": event.message_id, "role": role, "content": "", **name})

    def _reasoning_start(self, event: ev.ReasoningMessageStart) -> None:
        self._start(event, {"id": event.message_id, "role": "reasoning", "content": ""})

    def _start(self, event: Any, fields: Json) -> None:
        message = self.messages.find(event.message_id)
        if message is None:
            message = self._add(_Message(fields | _owner(event)))
        elif self._is_activity(message, event):
            return
        if event.metadata is not UNSET:
            _merge_metadata(self._editable(event.message_id), event)

    def _content(self, event: ev.TextMessageContent | ev.ReasoningMessageContent) -> None:
        message = self.messages.edit(event.message_id)
        if message is None:
            self._report("unknown_message", f"{event.type}: there is no such message")
        elif not self._is_activity(message, event):
            message.extend("content", (event.delta,))
            if event.metadata is not UNSET:
                _merge_metadata(message, event)

    def _end(self, event: ev.TextMessageEnd | ev.ReasoningMessageEnd) -> None:
        message = self.messages.find(event.message_id)
        if message is None:
            self._report("unknown_message", f"{event.type}: there is no such message")
        elif event.metadata is not UNSET and not self._is_activity(message, event):
            _merge_metadata(self._editable(event.message_id), event)

    def _is_activity(self, message: JsonDraft, event: Event) -> bool:
        """Whether the id already names an activity. If so, report it; the event's text is dropped."""
        if message.fields.get("role") != "activity":
            return False
        self._report("activity_message", f"{event.type}: the message of this id is an activity")
        return True

    def _editable(self, key: Any) -> _Message:
        return cast("_Message", self.messages.edit(key))

    def _encrypted(self, event: ev.ReasoningEncryptedValue) -> None:
        target: JsonDraft | None
        if event.subtype == "tool-call":
            target = self._edit_call(event.entity_id)
        else:
            target = self.messages.edit(event.entity_id)
        if target is not None and target.fields.get("role") != "activity":
            target.put("encryptedValue", event.encrypted_value)

    # Tool calls

    def _edit_call(self, name: str) -> JsonDraft | None:
        home = self._message_of_call.get(name)
        return None if home is None else self._editable(home).edit_call(name)

    def _tool_start(self, event: ev.ToolCallStart) -> None:
        call = self._edit_call(event.tool_call_id)
        if call is None:
            fields: Json = {"id": event.tool_call_id, "type": "function", "name": event.tool_call_name}
            message = self._get_or_add_parent(event)
            call = message.add_call(_Call({**fields, "arguments": ""}))
            self._message_of_call[event.tool_call_id] = message.key
        elif call.fields["name"] != event.tool_call_name:
            self._report(
                "renamed_tool_call", f"the call of {one_line(call.fields['name'], 80)} has a new name"
            )
            call.put("name", event.tool_call_name)
        _merge_metadata(call, event)

    def _get_or_add_parent(self, event: ev.ToolCallStart) -> _Message:
        """Return the assistant message that a call belongs to, adding one if needed."""
        name = event.tool_call_id
        if event.parent_message_id:
            parent = self.messages.find(event.parent_message_id)
            if parent is None:
                name = event.parent_message_id
            elif parent.fields.get("role") == "assistant":
                return self._editable(event.parent_message_id)
            else:
                self._report("bad_parent", "TOOL_CALL_START: its parent is not an assistant message")
        owner = {} if name in self.messages else _owner(event)
        return self._add(_Message({"id": name, "role": "assistant", **owner}, ()))

    def _tool_args(self, event: ev.ToolCallArgs) -> None:
        call = self._edit_call(event.tool_call_id)
        if call is None:
            self._report("unknown_tool_call", "TOOL_CALL_ARGS: no message holds such a call")
            return
        call.extend("arguments", (event.delta,))
        if event.metadata is not UNSET:
            _merge_metadata(call, event)

    def _tool_end(self, event: ev.ToolCallEnd) -> None:
        if event.tool_call_id not in self._message_of_call:
            self._report("unknown_tool_call", "TOOL_CALL_END: no message holds such a call")
        elif event.metadata is not UNSET:
            _merge_metadata(cast("JsonDraft", self._edit_call(event.tool_call_id)), event)

    def _tool_result(self, event: ev.ToolCallResult) -> None:
        """Insert a result after the message with its call and the results that already follow it."""
        message = _Message(
            {
                "id": event.message_id,
                "toolCallId": event.tool_call_id,
                "role": "tool",
                "content": freeze(event.content),
                **_owner(event),
            }
        )
        _merge_metadata(message, event)
        home = self._message_of_call.get(event.tool_call_id)
        place = None if home is None else self.messages.index_of(home)
        if place is None or self.messages.at(place).fields.get("role") != "assistant":
            self._add(message)
            return
        # Skip the results counted before, and any added since.
        first = place + 1
        place = first + self._results.get(home, 0)
        while place < len(self.messages) and self.messages.at(place).fields.get("role") == "tool":
            place += 1
        self._results[home] = place - first + 1
        if place == len(self.messages):
            self._add(message)
        else:
            self._insert(place, message)

    def _insert(self, place: int, message: _Message) -> None:
        keys_change = self.messages.insert(place, message)
        self._note_message_added(message)
        if keys_change:
            self._index_tool_calls()

    # State and snapshots

    def _state_snapshot(self, event: ev.StateSnapshot) -> None:
        self._state.replace(event.snapshot)

    def _state_delta(self, event: ev.StateDelta) -> None:
        try:
            self._state.apply(event.delta)
        except PatchError as exc:
            self._report(exc.code, str(exc))

    def _messages_snapshot(self, event: ev.MessagesSnapshot) -> None:
        """Update messages by id, append new ones, drop missing ones unless only the client can know them."""
        new = {message["id"]: message for message in event.messages}
        roles = {message["role"] for message in event.messages}
        owned = _owned_activities(event)

        def is_kept(message: JsonDraft) -> bool:
            role = message.fields.get("role")
            if role == "reasoning":
                return "reasoning" not in roles
            if role != "activity" or owned is None:
                return False
            if owned is UNSET:
                return "activity" not in roles
            return message.fields.get("activityType") not in owned

        kept = [message for message in self.messages if _id_of(message) in new or is_kept(message)]
        known = {_id_of(message) for message in kept}
        listed = [
            _message(new[name]) if (name := _id_of(message)) in new else message.copy() for message in kept
        ]
        listed += [_message(message) for message in event.messages if message["id"] not in known]
        self.messages.reset(listed)
        for message in listed:
            self._note_message_added(message)
        self._index_tool_calls()

    def _activity_snapshot(self, event: ev.ActivitySnapshot) -> None:
        new = {"activityType": event.activity_type, "content": freeze(event.content), **_owner(event)}
        fresh = _Message({"id": event.message_id, "role": "activity", **new})
        place = self.messages.index_of(event.message_id)
        if place is None:
            _merge_metadata(self._add(fresh), event)
            return
        is_activity = self.messages.at(place).fields.get("role") == "activity"
        if event.replace is False:
            if is_activity:
                _merge_metadata(self._editable(event.message_id), event)
            return
        if is_activity and (metadata := self.messages.at(place).get("metadata")) is not None:
            fresh.put("metadata", metadata)
        self.messages.replace(place, fresh)
        if not is_activity:
            self._index_tool_calls()  # the replaced message's calls are gone
        _merge_metadata(fresh, event)

    def _activity_delta(self, event: ev.ActivityDelta) -> None:
        message = self.messages.edit(event.message_id)
        if message is None:
            return
        if message.fields.get("role") != "activity":
            self._report("bad_parent", "ACTIVITY_DELTA: the message of this id is not an activity")
            return
        _merge_metadata(message, event)
        try:
            cast("_Message", message).patch(event.patch)
        except PatchError as exc:
            self._report(exc.code, str(exc))
            return
        message.put("activityType", event.activity_type)

    # Runs

    def _run_started(self, event: ev.RunStarted) -> None:
        for message in (event.input or {}).get("messages", ()):
            if message["id"] not in self.messages:
                self._add(_message(message))

    def _run_finished(self, event: ev.RunFinished) -> None:
        outcome = event.outcome or {}
        self._interrupts = freeze(outcome.get("interrupts", []) if outcome.get("type") == "interrupt" else [])

    def _run_failed(self, event: ev.RunError) -> None:
        self._run_error = event.message


def _owner(event: Any) -> Json:
    return {} if event.subagent_run_id is UNSET else {"subagentRunId": event.subagent_run_id}


def _owned_activities(event: ev.MessagesSnapshot) -> Any:
    """Return the activity types that a snapshot lists in full: None for all, UNSET if it does not say."""
    metadata = event.metadata or {}
    if _AUTHORITY not in metadata:
        return UNSET
    said = metadata[_AUTHORITY]
    if not isinstance(said, dict):
        return []
    types = cast("Json", said).get("authoritativeActivityTypes", UNSET)
    if types is None or types is UNSET:
        return types
    named = cast("list[Any]", types) if isinstance(types, list) else []
    return named if all(isinstance(name, str) for name in named) else []
