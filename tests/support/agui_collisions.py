"""Random AG-UI streams in which things of every kind share a few ids, and most of which a client takes."""

from __future__ import annotations

from random import Random
from typing import Any

Json = dict[str, Any]

IDS = ("c", "d", "")
_FAMILIES = {
    "TEXT_MESSAGE": ("START", "CONTENT", "END", "messageId"),
    "TOOL_CALL": ("START", "ARGS", "END", "toolCallId"),
    "REASONING_MESSAGE": ("START", "CONTENT", "END", "messageId"),
    "STEP": ("STARTED", None, "FINISHED", "stepName"),
}
_ROLES = ("assistant", "assistant", "user", "tool", "activity", "reasoning")


class Collisions:
    """Makes one stream after another. What is open is remembered, so that few events are out of order."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def make(self) -> Json:
        """A stream, with the messages that a client starts with."""
        random = self._random
        self._open: list[tuple[str, str]] = []
        events: list[Json] = [{"type": "RUN_STARTED", "threadId": "t", "runId": "r"}]
        events += [self._with_metadata(self._event()) for _ in range(random.randrange(3, 16))]
        if random.random() < 0.7:
            events += [self._end(*opened) for opened in list(self._open)]
            events.append({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"})
        messages = [self._message(name) for name in random.sample(IDS, random.choice((0, 0, 1, 2)))]
        return {"stream": events, "messages": messages}

    def _event(self) -> Json:
        random = self._random
        if self._open and random.random() < 0.45:
            family, name = random.choice(self._open)
            if _FAMILIES[family][1] is None or random.random() < 0.4:
                return self._end(family, name)
            return self._part(family, 1, name) | {"delta": random.choice(("a", "", '{"q":1}'))}
        return self._start() if random.random() < 0.45 else self._single()

    def _start(self) -> Json:
        random = self._random
        family, name = random.choice(list(_FAMILIES)), random.choice(IDS)
        if (family, name) in self._open and random.random() < 0.95:
            return self._end(family, name)
        self._open.append((family, name))
        event = self._part(family, 0, name)
        if family == "TEXT_MESSAGE":
            return event | {"role": random.choice(("assistant", "user"))}
        if family == "REASONING_MESSAGE":
            return event | {"role": "reasoning"}
        if family == "TOOL_CALL":
            parent = {"parentMessageId": random.choice(IDS)} if random.random() < 0.5 else {}
            return event | {"toolCallName": random.choice(("look", "find"))} | parent
        return event

    def _end(self, family: str, name: str) -> Json:
        self._open.remove((family, name))
        return self._part(family, 2, name)

    def _part(self, family: str, part: int, name: str) -> Json:
        return {"type": f"{family}_{_FAMILIES[family][part]}", str(_FAMILIES[family][3]): name}

    def _single(self) -> Json:
        """An event that opens nothing."""
        random, name = self._random, self._random.choice(IDS)
        match random.randrange(7):
            case 0 | 1 | 2:
                replace = {"replace": random.random() < 0.5} if random.random() < 0.5 else {}
                content = {"a": random.choice((1, [1]))}
                activity = {"messageId": name, "activityType": "x", "content": content}
                return {"type": "ACTIVITY_SNAPSHOT", **activity, **replace}
            case 3:
                patch = [{"op": "add", "path": random.choice(("/b", "/a/-")), "value": 2}]
                return {"type": "ACTIVITY_DELTA", "messageId": name, "activityType": "y", "patch": patch}
            case 4:
                result = {"messageId": name, "toolCallId": random.choice(IDS), "content": "done"}
                return {"type": "TOOL_CALL_RESULT", **result}
            case 5:
                kind = random.choice(("tool-call", "message"))
                value = {"subtype": kind, "entityId": name, "encryptedValue": "v"}
                return {"type": "REASONING_ENCRYPTED_VALUE", **value}
            case _:
                names = random.sample(IDS, random.randrange(len(IDS) + 1))
                return {"type": "MESSAGES_SNAPSHOT", "messages": [self._message(each) for each in names]}

    def _message(self, name: str) -> Json:
        random, role = self._random, self._random.choice(_ROLES)
        message: Json = {"id": name, "role": role, "content": "said"}
        if role == "assistant" and random.random() < 0.6:
            function = {"name": "look", "arguments": "{}"}
            calls = random.sample(IDS, random.randrange(1, 3))
            message["toolCalls"] = [{"id": each, "type": "function", "function": function} for each in calls]
        if role == "tool":
            message["toolCallId"] = random.choice(IDS)
        return message | ({"activityType": "x", "content": {"a": 1}} if role == "activity" else {})

    def _with_metadata(self, event: Json) -> Json:
        random = self._random
        return event if random.random() < 0.6 else event | {"metadata": {random.choice("ab"): 1}}
