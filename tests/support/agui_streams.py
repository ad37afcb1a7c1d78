"""Random AG-UI streams, most of them nearly legal: that is where it is decided what a client takes."""

from __future__ import annotations

from random import Random
from typing import Any

from citewire.agui.events import TYPES

Json = dict[str, Any]

_IDS = ("m1", "m2", "m3", "")
_CALLS = ("t1", "t2", "m2")
_AGENTS = ("s1", "s2", "")
_STEPS = ("plan", "act")
_ROLES = ("assistant", "user", "system", "developer")
_PIECES = ("a", "", "Paris ", "ü\u0301", "😀", "\u200d", '{"q":', '"x"}', "\n\n")
_PATHS = (
    "/a",
    "/b",
    "/a/x",
    "/a/0",
    "/a/-",
    "/a/9",
    "/a/01",
    "/list/0",
    "/list/1",
    "/list/-",
    "/list",
    "",
    "/",
)
_BAD_PATHS = ("a", "/~2", "/__proto__/x", "/constructor/prototype", "/prototype")
_OTHERS: tuple[Any, ...] = (None, 5, True, [], {}, "other", 1.0, 1.5)
_TYPES = (*TYPES, "NEW_IN_1_7")


class Streams:
    """Makes one stream after another."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def make(self) -> Json:
        """A stream, with the messages and the state that a client starts with."""
        random = self._random
        self._tags = random.random() < 0.3
        # How often something is spoilt, and whether ids are taken anew, so that most of a stream is legal.
        self._wrong = random.choice((0.0, 0.0, 0.02, 0.15))
        self._fresh = random.random() < 0.75
        self._made = 0
        events = [self._event("RUN_STARTED")]
        for _ in range(random.randrange(14)):
            events += self._some()
        if random.random() < 0.8:
            events.append(self._event("RUN_FINISHED"))
        if random.random() < 0.2:
            events.append(self._event("RUN_STARTED"))
            events += self._some()
        stream: Json = {"stream": [self._spoilt(event) for event in events]}
        if random.random() < 0.3:
            stream["messages"] = [self._message() for _ in range(random.randrange(3))]
        if random.random() < 0.3:
            stream["state"] = {"a": self._value(), "list": [1, 2]}
        return stream

    def _some(self) -> list[Json]:
        """A few events that belong together, or one that need not."""
        random = self._random
        match random.randrange(8 if self._fresh and random.random() < 0.97 else 9):
            case 0 | 1:
                return self._whole("TEXT_MESSAGE", ("START", "CONTENT", "END"), "messageId")
            case 2:
                return self._whole("TOOL_CALL", ("START", "ARGS", "END"), "toolCallId")
            case 3:
                return self._whole("REASONING_MESSAGE", ("START", "CONTENT", "END"), "messageId")
            case 4:
                kind = random.choice(("TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK", "REASONING_MESSAGE_CHUNK"))
                chunks = [self._event(kind) for _ in range(random.randrange(1, 4))]
                return self._agreeing(chunks) if self._fresh else chunks
            case 5:
                pairs = (("STEP_STARTED", "STEP_FINISHED"), ("THINKING_START", "THINKING_END"))
                start, end = map(self._event, random.choice(pairs))
                if "stepName" in start:
                    end |= {key: start[key] for key in ("stepName", "subagentRunId") if key in start}
                return [start, *([] if random.random() < 0.7 else self._some()), end]
            case 6 | 7:
                return [
                    self._event(
                        random.choice(("STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT", "CUSTOM"))
                    )
                ]
            case _:
                return [self._event(random.choice(_TYPES))]

    def _agreeing(self, chunks: list[Json]) -> list[Json]:
        """Chunks of one stream: the first says whose they are."""
        first, *others = chunks
        self._made += 1
        first["toolCallId" if first["type"] == "TOOL_CALL_CHUNK" else "messageId"] = f"chunk{self._made}"
        if first["type"] == "TOOL_CALL_CHUNK":
            first["toolCallName"] = "look"
        allowed = ("type", "delta", "metadata")
        return [first, *({key: other[key] for key in allowed if key in other} for other in others)]

    def _whole(self, family: str, parts: tuple[str, str, str], key: str) -> list[Json]:
        start, middle, end = (self._event(f"{family}_{part}") for part in parts)
        if self._fresh:
            self._made += 1
            start[key] = f"{start[key]}{self._made}"
        middle[key] = end[key] = start[key]
        for each in (middle, end):
            if "subagentRunId" in start and self._random.random() < 0.9:
                each["subagentRunId"] = start["subagentRunId"]
            else:
                each.pop("subagentRunId", None)
        inside = [] if self._random.random() < 0.8 else self._some()
        return [start, *inside, middle, end]

    def _event(self, name: str) -> Json:
        random = self._random
        event: Json = {"type": name}
        fields = _FIELDS.get(name, ())
        for field in fields:
            wanted = field.rstrip("?")
            if field == wanted or random.random() < 0.5:
                event[wanted] = self._field(name, wanted)
        if random.random() < 0.1:
            event["metadata"] = {random.choice("ab"): self._value()}
        if self._tags and random.random() < 0.4 and not name.startswith(("RUN_", "SUBAGENT", "MESSAGES")):
            event["subagentRunId"] = random.choice(_AGENTS)
        return event

    def _field(self, name: str, field: str) -> Any:
        random = self._random
        match field:
            case "messageId" | "parentMessageId" | "entityId":
                return random.choice(_IDS)
            case "toolCallId" | "parentToolCallId":
                return random.choice(_CALLS)
            case "subagentRunId" | "parentSubagentRunId":
                return random.choice(_AGENTS)
            case "stepName":
                return random.choice(_STEPS)
            case "role":
                return {"TOOL_CALL_RESULT": "tool", "REASONING_MESSAGE_START": "reasoning"}.get(
                    name, random.choice(_ROLES)
                )
            case "delta" if name == "STATE_DELTA":
                return self._patch()
            case "patch":
                return self._patch()
            case "messages":
                return [self._message() for _ in range(random.randrange(4))]
            case "content" if name == "TOOL_CALL_RESULT":
                return random.choice(("done", [self._part()]))
            case "content":
                return {"a": self._value()}
            case "input":
                return {"threadId": "t", "runId": "r", "messages": [self._message()]}
            case "outcome" if name == "RUN_FINISHED":
                interrupt = {"id": "i1", "reason": "ask", **({"subagentRunId": "s1"} if self._tags else {})}
                return random.choice(
                    (
                        {"type": "success"},
                        {"type": "interrupt", "interrupts": [interrupt]},
                        {"type": "cancelled"},
                    )
                )
            case "outcome":
                return random.choice(({"type": "success"}, {"type": "suspended", "interruptIds": ["i1"]}))
            case "subtype":
                return random.choice(("tool-call", "message"))
            case "snapshot":
                return self._value() if random.random() < 0.2 else {"a": self._value(), "list": [1, 2]}
            case "value" | "event":
                return self._value()
            case "replace":
                return random.random() < 0.5
            case _:
                return random.choice(_PIECES) if field == "delta" else random.choice(("x", "y"))

    def _value(self, depth: int = 2) -> Any:
        random = self._random
        if depth and random.random() < 0.6:
            if random.random() < 0.5:
                return {key: self._value(depth - 1) for key in random.sample(("a", "b", "list", ""), 2)}
            return [self._value(depth - 1) for _ in range(random.randrange(3))]
        return random.choice((None, True, False, 0, 1, 2.5, "", "text"))

    def _patch(self) -> list[Json]:
        random = self._random
        patch: list[Json] = []
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            op = random.choice(("add", "add", "replace", "remove", "copy", "move", "test"))
            bad = random.random() < self._wrong
            operation: Json = {"op": op, "path": random.choice(_BAD_PATHS if bad else _PATHS)}
            if op in ("copy", "move"):
                # To the root from nowhere makes the client's state undefined, which JSON cannot say.
                operation["path"] = operation["path"] or "/a"
                operation["from"] = random.choice(_PATHS[:11])
            elif op != "remove" or random.random() < 0.2:
                # A number or a string as the state takes members in JavaScript, and forgets them.
                operation["value"] = self._value() if operation["path"] else {"a": self._value()}
            if random.random() < self._wrong:
                operation["op"] = "upsert"
            patch.append(operation)
        return patch

    def _message(self) -> Json:
        random = self._random
        role = random.choice(("assistant", "assistant", "user", "tool", "activity", "reasoning", "system"))
        message: Json = {"id": random.choice(_IDS), "role": role, "content": random.choice(_PIECES)}
        if role == "assistant" and random.random() < 0.5:
            function = {"name": "look", "arguments": '{"q":1}'}
            message["toolCalls"] = [{"id": random.choice(_CALLS), "type": "function", "function": function}]
        if role == "tool":
            message["toolCallId"] = random.choice(_CALLS)
        if role == "activity":
            message |= {"activityType": "x", "content": {"a": 1}}
        if role == "user" and random.random() < 0.3:
            message["content"] = [self._part()]
        if self._tags and random.random() < 0.3:
            message["subagentRunId"] = random.choice(_AGENTS)
        return message

    def _part(self) -> Json:
        random = self._random
        parts: tuple[Json, ...] = (
            {"type": "text", "text": "hi"},
            {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}},
            {"type": "document", "source": {"type": "new", "value": "x"}},
            {"type": "binary", "mimeType": "image/png", "url": "https://example.com/b.png"},
            {"type": "hologram", "x": 1},
            {
                "type": "image",
                "source": {"type": "data", "value": "AA==", "mimeType": "image/png"},
                "metadata": None,
            },
        )
        return dict(random.choice(parts if random.random() < 0.3 + self._wrong else parts[:2]))

    def _spoilt(self, event: Json) -> Json:
        """Sometimes `event` with something wrong: a field gone, of another type, or new."""
        random = self._random
        if random.random() >= self._wrong:
            return event
        spoilt = dict(event)
        field = random.choice(list(spoilt))
        match random.randrange(4):
            case 0 if field != "type":
                del spoilt[field]
            case 1 if field != "type":
                spoilt[field] = random.choice(_OTHERS)
            case 2:
                spoilt[random.choice(("extra", "annotations", "toString"))] = 1
            case _:
                spoilt[random.choice(("timestamp", "rawEvent", "metadata"))] = random.choice(_OTHERS)
        return spoilt


_FIELDS = {
    "RUN_STARTED": ("threadId", "runId", "input?"),
    "RUN_FINISHED": ("threadId", "runId", "outcome?", "result?"),
    "RUN_ERROR": ("message", "code?"),
    "STEP_STARTED": ("stepName",),
    "STEP_FINISHED": ("stepName",),
    "TEXT_MESSAGE_START": ("messageId", "role?", "name?"),
    "TEXT_MESSAGE_CONTENT": ("messageId", "delta"),
    "TEXT_MESSAGE_END": ("messageId",),
    "TEXT_MESSAGE_CHUNK": ("messageId?", "role?", "delta?", "name?"),
    "TOOL_CALL_START": ("toolCallId", "toolCallName", "parentMessageId?"),
    "TOOL_CALL_ARGS": ("toolCallId", "delta"),
    "TOOL_CALL_END": ("toolCallId",),
    "TOOL_CALL_CHUNK": ("toolCallId?", "toolCallName?", "parentMessageId?", "delta?"),
    "TOOL_CALL_RESULT": ("messageId", "toolCallId", "content", "role?"),
    "STATE_SNAPSHOT": ("snapshot",),
    "STATE_DELTA": ("delta",),
    "MESSAGES_SNAPSHOT": ("messages",),
    "ACTIVITY_SNAPSHOT": ("messageId", "activityType", "content", "replace?"),
    "ACTIVITY_DELTA": ("messageId", "activityType", "patch"),
    "RAW": ("event", "source?"),
    "CUSTOM": ("name", "value"),
    "REASONING_START": ("messageId",),
    "REASONING_MESSAGE_START": ("messageId", "role"),
    "REASONING_MESSAGE_CONTENT": ("messageId", "delta"),
    "REASONING_MESSAGE_END": ("messageId",),
    "REASONING_MESSAGE_CHUNK": ("messageId?", "delta?"),
    "REASONING_END": ("messageId",),
    "REASONING_ENCRYPTED_VALUE": ("subtype", "entityId", "encryptedValue"),
    "SUBAGENT_STARTED": ("subagentRunId", "name", "parentSubagentRunId?", "description?"),
    "SUBAGENT_FINISHED": ("subagentRunId", "result?", "outcome?"),
    "SUBAGENT_ERROR": ("subagentRunId", "message", "code?"),
    "THINKING_START": ("title?",),
    "THINKING_TEXT_MESSAGE_CONTENT": ("delta",),
    "NEW_IN_1_7": ("value",),
}
