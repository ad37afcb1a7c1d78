"""The event order rules of AG-UI 1.0, as the TypeScript client enforces them.

`ProtocolEnforcer` takes the events of one response and returns what the client delivers: retired shapes are
translated, unknown content is removed, chunks are expanded. An event that the client rejects raises
`ProtocolError`. `check` validates a whole stream; with `lenient` it reports all rejected events instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from copy import copy
from enum import Enum
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui import shapes
from citewire.agui.chunks import ChunkExpander, ProtocolError, subagent_of
from citewire.agui.events import AnyEvent, Event, Json, MalformedEvent, UnknownEvent
from citewire.agui.retired_shapes import RetiredEventTranslator
from citewire.errors import CitewireError
from citewire.model import Problem
from citewire.text import one_line

__all__ = ["FieldError", "ProtocolEnforcer", "ProtocolError", "check", "version_problem"]

ProblemReporter = Callable[[str, str], None]
"""Called with the code and message of a problem in an event that was accepted with changes."""


class FieldError(ProtocolError):
    """A known event has a missing or invalid field."""

    code = "bad_field"


def check(events: Iterable[Any], lenient: bool = False) -> tuple[Problem, ...]:
    """Validate a whole stream. Raises `ProtocolError` for the first event that the client would reject.

    With `lenient` nothing is raised: every rejected event is reported and skipped, and content that the
    client removes from other events is reported too.
    """
    problems: list[Problem] = []
    number = 0

    def report(code: str, message: str) -> None:
        problems.append(Problem(code, f"#{number}", message))

    gate = ProtocolEnforcer(report if lenient else None)
    for number, event in enumerate(events, 1):  # `report` reads `number`
        try:
            for _ in gate.admit(ev.coerce(event)):
                pass
        except CitewireError as exc:
            if not lenient:
                if isinstance(exc, ProtocolError):
                    exc.path = f"#{number}"
                raise
            report(exc.code, exc.message)
    return tuple(problems)


_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")
# The newest version that we read. 1.1 has the rules of 1.0, which is the version we write.
_NEWEST = (1, 1)


def version_problem(declared: str | UnsetType) -> tuple[str, str] | None:
    """Return the code and message of a warning if `protocolVersion` is newer than ours or unreadable."""
    if declared is UNSET:
        return None
    found = _VERSION.fullmatch(declared)
    if found is None:
        return "unreadable_protocol", f"{one_line(declared, 40)} is no version of the protocol"
    if (int(found[1]), int(found[2])) > _NEWEST:
        known = ".".join(map(str, _NEWEST))
        return "newer_protocol", f"the producer speaks protocol {declared}; {known} is known here"
    return None


class _Move(Enum):
    OPEN = "open"
    GO_ON = "go on with"
    CLOSE = "close"


class _StreamKind(NamedTuple):
    """A stream type: opened, continued and closed by id. Ids are unique within a `bucket` of owners."""

    noun: str
    bucket: str
    id: str


_TEXT = _StreamKind("text message", "message", "message_id")
_TOOL = _StreamKind("tool call", "tool call", "tool_call_id")
_REASONING = _StreamKind("reasoning message", "reasoning", "message_id")
_SPAN = _StreamKind("reasoning span", "reasoning", "message_id")

# What each event does to the stream it names. The client also checks for open streams in this order.
_MOVES: dict[type[Event], tuple[_Move, _StreamKind]] = {
    ev.TextMessageStart: (_Move.OPEN, _TEXT),
    ev.TextMessageContent: (_Move.GO_ON, _TEXT),
    ev.TextMessageEnd: (_Move.CLOSE, _TEXT),
    ev.ReasoningMessageStart: (_Move.OPEN, _REASONING),
    ev.ReasoningMessageContent: (_Move.GO_ON, _REASONING),
    ev.ReasoningMessageEnd: (_Move.CLOSE, _REASONING),
    ev.ReasoningStart: (_Move.OPEN, _SPAN),
    ev.ReasoningEnd: (_Move.CLOSE, _SPAN),
    ev.ToolCallStart: (_Move.OPEN, _TOOL),
    ev.ToolCallArgs: (_Move.GO_ON, _TOOL),
    ev.ToolCallEnd: (_Move.CLOSE, _TOOL),
}


class _Phase(Enum):
    BEFORE = "no run has started"
    RUNNING = "a run is going on"
    FINISHED = "the run is finished"
    FAILED = "the run has failed"


# The phase transitions of run events; every other event requires a running run.
_RUN: dict[type[Event], dict[_Phase, _Phase]] = {
    ev.RunStarted: dict.fromkeys((_Phase.BEFORE, _Phase.FINISHED, _Phase.FAILED), _Phase.RUNNING),
    ev.RunFinished: {_Phase.RUNNING: _Phase.FINISHED},
    ev.RunError: dict.fromkeys((_Phase.BEFORE, _Phase.RUNNING, _Phase.FINISHED), _Phase.FAILED),
}

# The JSON fields inside events, with the shape the protocol defines. A field is optional if its value may be
# an unknown member of a union, which is removed.
_INNER: dict[type[Event], tuple[tuple[str, shapes.Shape], ...]] = {
    ev.StateDelta: (("delta", shapes.PATCH),),
    ev.ActivityDelta: (("patch", shapes.PATCH),),
    ev.MessagesSnapshot: (("messages", shapes.MESSAGES),),
    ev.ToolCallResult: (("content", shapes.CONTENT),),
    ev.RunStarted: (("input", shapes.RUN_INPUT),),
    ev.RunFinished: (("outcome", shapes.RUN_OUTCOME), ("usage", shapes.USAGE)),
    ev.RunError: (("usage", shapes.USAGE),),
    ev.SubagentFinished: (("outcome", shapes.SUBAGENT_OUTCOME),),
}
# Events that may contain a retired shape.
_OLD = frozenset(
    {
        ev.ThinkingStart,
        ev.ThinkingTextMessageStart,
        ev.ThinkingTextMessageContent,
        ev.ThinkingTextMessageEnd,
        ev.ThinkingEnd,
        ev.ToolCallStart,
        ev.ToolCallChunk,
        ev.RunStarted,
        ev.RunFinished,
        ev.SubagentFinished,
        ev.MessagesSnapshot,
    }
)


def _ignore_problem(code: str, message: str) -> None:
    del code, message


class ProtocolEnforcer:
    """Validates the events of one response and normalises them as the client does."""

    def __init__(self, report: ProblemReporter | None = None) -> None:
        self._report = report or _ignore_problem
        self._retired = RetiredEventTranslator()
        self._chunks = ChunkExpander()
        self._order = _OrderState()

    def copy(self, report: ProblemReporter | None = None) -> ProtocolEnforcer:
        """Return an independent enforcer with the same state."""
        twin = ProtocolEnforcer(report)
        twin._retired, twin._chunks, twin._order = (
            copy(self._retired),
            self._chunks.copy(),
            self._order.copy(),
        )
        return twin

    def admit(self, event: AnyEvent) -> Iterable[Event]:
        """Return the events that the client delivers for `event`, in order.

        Raises `ProtocolError` if the client rejects the stream; events returned before stay valid.
        """
        if not isinstance(event, Event):
            return self._admit_untyped(event)
        if event.extra or event.raw_event is None or type(event) in _OLD or type(event) in _INNER:
            event = self._enforce(event)
        if self._chunks.affects(event):
            return self._check_order(self._chunks.expand(event))
        self._order.check(event)
        return (event,)

    def closing_events(self) -> list[Event]:
        """Return events that close all open streams. Chunk streams need none: the next event closes them."""
        order = self._order.copy()
        for event in self._chunks.copy().expand(ev.RunError(""))[:-1]:
            order.check(event)
        return order.closing_events()

    def _check_order(self, events: list[Event]) -> Iterable[Event]:
        for event in events:
            try:
                self._order.check(event)
            except ProtocolError:
                self._chunks.forget_stream(event)
                raise
            yield event

    def _admit_untyped(self, event: UnknownEvent | MalformedEvent) -> tuple[Event, ...]:
        if isinstance(event, MalformedEvent):
            raise FieldError(f"{event.type}: {one_line(event.reason, 200)}")
        self._report("unknown_event", f"{one_line(event.type, 80)} is not an event that the protocol knows")
        return ()

    def _enforce(self, event: Event) -> Event:
        """Translate retired shapes in `event` and remove unknown fields. Raises for invalid fields."""
        modern = event
        if type(event) in _OLD or event.raw_event is None:
            modern = self._retired.translate(event)
            if type(modern) is not type(event):
                self._report("retired_event", f"{event.type} is read as {modern.type}")
        if modern.extra:
            names = one_line(", ".join(list(modern.extra)[:8]), 200)
            self._report("unknown_field", f"{modern.type} has no {names}")
            modern = replace(modern, extra=UNSET)
        if isinstance(modern, ev.RunStarted) and (problem := version_problem(modern.protocol_version)):
            self._report(*problem)
        for name, shape in _INNER.get(type(modern), ()):
            modern = self._cleaned(modern, name, shape)
        return modern

    def _cleaned(self, event: Event, name: str, shape: shapes.Shape) -> Event:
        value = getattr(event, name)
        if value is UNSET or (shape is shapes.PATCH and shapes.is_plain_patch(value)):
            return event
        cleaned = shapes.clean(value, shape, f"/{name}")
        if cleaned.faults:
            raise FieldError(f"{event.type}: {one_line(cleaned.faults[0], 200)}")
        if not cleaned.removed:
            return event
        self._report("unknown_field", f"{event.type} has no {one_line(', '.join(cleaned.removed), 200)}")
        return replace(event, **{name: UNSET if cleaned.value is None else cleaned.value})


class _OrderState:
    """Tracks open streams, steps and subagents, and which agent owns each."""

    def __init__(self) -> None:
        self._phase = _Phase.BEFORE
        self._reset()

    def _reset(self) -> None:
        self._open: dict[_StreamKind, dict[str, None]] = {thing: {} for _, thing in _MOVES.values()}
        self._steps: dict[tuple[str | None, str], None] = {}
        self._subagents: dict[str, bool] = {}
        self._owners: dict[str, dict[str, str | None]] = {
            "message": {},
            "tool call": {},
            "reasoning": {},
            "activity": {},
        }

    def copy(self) -> _OrderState:
        twin = _OrderState()
        twin._phase = self._phase
        twin._open = {thing: ids.copy() for thing, ids in self._open.items()}
        twin._steps, twin._subagents = self._steps.copy(), self._subagents.copy()
        twin._owners = {bucket: owners.copy() for bucket, owners in self._owners.items()}
        return twin

    def closing_events(self) -> list[Event]:
        closers: dict[_StreamKind, Callable[..., Event]] = {
            thing: kind for kind, (move, thing) in _MOVES.items() if move is _Move.CLOSE
        }
        closed: list[Event] = [
            closers[thing](**{thing.id: name}) for thing, ids in self._open.items() for name in ids
        ]
        closed += [
            ev.StepFinished(name, subagent_run_id=UNSET if tag is None else tag) for tag, name in self._steps
        ]
        running = [name for name, is_active in self._subagents.items() if is_active]
        return [*closed, *(ev.SubagentFinished(name) for name in reversed(running))]

    def check(self, event: Event) -> None:
        """Record `event`, or raise `ProtocolError` if it is out of order."""
        kind = type(event)
        if (move := _MOVES.get(kind)) is not None and self._phase is _Phase.RUNNING:
            self._move(event, *move)
        elif (leads := _RUN.get(kind)) is not None:
            self._run(event, leads)
        elif self._phase is not _Phase.RUNNING:
            raise ProtocolError(f"{event.type} has no place here: {self._phase.value}")
        elif (check := _CHECKS.get(kind)) is not None:
            check(self, event)

    def _run(self, event: Event, leads: dict[_Phase, _Phase]) -> None:
        phase = leads.get(self._phase)
        if phase is None:
            raise ProtocolError(f"{event.type} has no place here: {self._phase.value}")
        if isinstance(event, ev.RunFinished):
            self._check_nothing_open()
        if isinstance(event, ev.RunStarted):
            self._reset()
            self._note_owners(event.input["messages"] if event.input else [], afresh=False)
        self._phase = phase

    def _check_nothing_open(self) -> None:
        still: list[tuple[str, list[str]]] = [("step", [name for _, name in self._steps])]
        still += [(thing.noun, list(ids)) for thing, ids in self._open.items()]
        still.append(("subagent", [name for name, active in self._subagents.items() if active]))
        for noun, ids in still:
            if ids:
                names = one_line(", ".join(ids), 200)
                raise ProtocolError(f"RUN_FINISHED leaves a {noun} open: {names}")

    def _move(self, event: Any, move: _Move, thing: _StreamKind) -> None:
        name: str = getattr(event, thing.id)
        ids = self._open[thing]
        if (name in ids) is (move is _Move.OPEN):
            state = "open already" if name in ids else "not open"
            raise ProtocolError(f"{event.type}: the {thing.noun} {one_line(name, 80)!r} is {state}")
        if event.subagent_run_id is not UNSET:
            self._check_owner(event, thing.bucket, name)
        if move is _Move.OPEN:
            owner = self._tool_owner(event, name) if thing is _TOOL else subagent_of(event)
            self._owners[thing.bucket].setdefault(name, owner)
            ids[name] = None
        elif move is _Move.CLOSE:
            del ids[name]

    def _check_owner(self, event: Any, bucket: str, name: str) -> None:
        """Raise `ProtocolError` if the event's subagent is not the owner of the stream it names."""
        owners, tag = self._owners[bucket], subagent_of(event)
        if tag is not None and name in owners and owners[name] != tag:
            named, whose = one_line(name, 80), one_line(tag, 80)
            raise ProtocolError(f"{event.type}: the {bucket} {named!r} is not that of subagent {whose!r}")

    def _tool_owner(self, event: ev.ToolCallStart, name: str) -> str | None:
        """Return the owner of a tool call: the owner of its parent message."""
        tag, owners = subagent_of(event), self._owners["message"]
        parent = event.parent_message_id
        if not isinstance(parent, str) or parent not in owners:
            return tag
        inherited = owners[parent]
        if tag is not None and tag != inherited:
            raise ProtocolError(f"TOOL_CALL_START: the message {one_line(parent, 80)!r} is another agent's")
        calls = self._owners["tool call"]
        if tag is None and name in calls and calls[name] != inherited:
            raise ProtocolError(
                f"TOOL_CALL_START: the call {one_line(name, 80)!r} is in another agent's message"
            )
        return inherited

    def _note_owners(self, messages: list[Json], afresh: bool) -> None:
        """Record the owners of the messages and tool calls in a history."""
        for message in messages:
            owner: str | None = message.get("subagentRunId")
            bucket = message["role"] if message["role"] in ("reasoning", "activity") else "message"
            names = [(bucket, message["id"])]
            names += [("tool call", call["id"]) for call in message.get("toolCalls", ())]
            for kind, name in names:
                if afresh or name not in self._owners[kind]:
                    self._owners[kind][name] = owner

    def snapshot(self, event: ev.MessagesSnapshot) -> None:
        self._note_owners(event.messages, afresh=True)

    def result(self, event: ev.ToolCallResult) -> None:
        self._owners["message"][event.message_id] = subagent_of(event)

    def activity(self, event: ev.ActivitySnapshot) -> None:
        owners = self._owners["activity"]
        if event.message_id not in owners or event.replace is not False:
            owners[event.message_id] = subagent_of(event)

    def activity_delta(self, event: ev.ActivityDelta) -> None:
        self._check_owner(event, "activity", event.message_id)

    def encrypted(self, event: ev.ReasoningEncryptedValue) -> None:
        bucket = "tool call" if event.subtype == "tool-call" else "message"
        if bucket == "message" and event.entity_id not in self._owners["message"]:
            bucket = "reasoning"
        self._check_owner(event, bucket, event.entity_id)

    def step_started(self, event: ev.StepStarted) -> None:
        step = (subagent_of(event), event.step_name)
        if step in self._steps:
            raise ProtocolError(f"STEP_STARTED: the step {one_line(event.step_name, 80)!r} is open already")
        self._steps[step] = None

    def step_finished(self, event: ev.StepFinished) -> None:
        step = (subagent_of(event), event.step_name)
        if step not in self._steps:
            raise ProtocolError(f"STEP_FINISHED: the step {one_line(event.step_name, 80)!r} is not open here")
        del self._steps[step]

    def subagent_started(self, event: ev.SubagentStarted) -> None:
        name, parent = event.subagent_run_id, event.parent_subagent_run_id
        if name in self._subagents:
            raise ProtocolError(f"SUBAGENT_STARTED: {one_line(name, 80)!r} has run in this run already")
        if isinstance(parent, str) and parent not in self._subagents:
            raise ProtocolError(f"SUBAGENT_STARTED: its parent {one_line(parent, 80)!r} has not started")
        self._subagents[name] = True

    def subagent_ended(self, event: ev.SubagentFinished | ev.SubagentError) -> None:
        if not self._subagents.get(event.subagent_run_id):
            raise ProtocolError(f"{event.type}: {one_line(event.subagent_run_id, 80)!r} is not running")
        self._subagents[event.subagent_run_id] = False


_CHECKS: dict[type[Event], Callable[[_OrderState, Any], None]] = {
    ev.MessagesSnapshot: _OrderState.snapshot,
    ev.ToolCallResult: _OrderState.result,
    ev.ActivitySnapshot: _OrderState.activity,
    ev.ActivityDelta: _OrderState.activity_delta,
    ev.ReasoningEncryptedValue: _OrderState.encrypted,
    ev.StepStarted: _OrderState.step_started,
    ev.StepFinished: _OrderState.step_finished,
    ev.SubagentStarted: _OrderState.subagent_started,
    ev.SubagentFinished: _OrderState.subagent_ended,
    ev.SubagentError: _OrderState.subagent_ended,
}
