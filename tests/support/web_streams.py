"""Random streams for the contract view: what `agui_streams` makes too rarely, and what is broken."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

Json = dict[str, Any]

IDS = ("m1", "m2", "__proto__", "constructor", 'a"/~b', "a/b", "~1", "", "7")
_HALVES = ("\ud83d", "\ude00", "😀", "x", "\u2028", "[1]", "")
_TEXTS = (
    '{"a":"\\ud83d\\ude00 \\"x\\\\","b":[1,-2.5e3,{"c":null,"d":tru',
    'e}],"__proto__":{"e":""},"\\u00e9":"\\ud83d"}',
    '{"b":2}',
    '{"q": "😀\ud83d", "r": [[], {}]}',
    "[1, 2]}",
    '"a',
)
_ENTRIES: tuple[Any, ...] = (
    "https://example.com", "", {"id": "a"}, {"refId": "c1", "href": "u"}, {"title": 5, "name": "N"},
    {"id": "c2"}, {"index": 2.5, "extra": {"citewire": {"status": "verified"}}}, {"extra": [1]},
    {"unknown": 1}, 5, None, [], {}, {"publishedAt": 3, "iconUrl": "i", "content": "c"},
    {"__proto__": {"id": "x"}}, {"index": True, "id": ""},
)  # fmt: skip
_WRONG: tuple[Any, ...] = (None, 5, True, [], {}, "", "x", [None], {"id": 3})


class Broken:
    """Makes one stream after another, in which little is as it should be."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def make(self) -> Json:
        """A stream with what a client starts with."""
        random = self._random
        stream: Json = {"stream": [self._event() for _ in range(random.randrange(1, 40))]}
        if random.random() < 0.3:
            stream["stream"] += self._call()
        if random.random() < 0.3:
            stream["seedArgs"] = True
        if random.random() < 0.3:
            stream["state"] = self._state()
        if random.random() < 0.3:
            stream["messages"] = [{"id": self._id(), "role": "user", "content": "?"}]
        return stream

    def _id(self) -> str:
        return self._random.choice(IDS)

    def _event(self) -> Any:
        random = self._random
        if random.random() < 0.03:
            return random.choice(({}, {"type": ""}, {"type": 5}, {"type": "NEW"}, {"type": "__proto__"}))
        event = self._right()
        if random.random() < 0.3:
            event["subagentRunId"] = random.choice(("s1", "__proto__", ""))
        if random.random() < 0.15:
            event[random.choice([*event, "metadata", "timestamp", "rawEvent"])] = random.choice(_WRONG)
        return event if isinstance(event["type"], str) else {**event, "type": "CUSTOM"}

    def _right(self) -> Json:
        random, name = self._random, self._id()
        message: Json = {"messageId": name} if random.random() < 0.9 else {}
        delta: Json = {"delta": random.choice(_HALVES)} if random.random() < 0.9 else {}
        match random.randrange(12):
            case 0:
                return {"type": "TEXT_MESSAGE_START", **message}
            case 1:
                return {"type": "TEXT_MESSAGE_CONTENT", **message, **delta}
            case 2:
                return {
                    "type": random.choice(("TEXT_MESSAGE_CHUNK", "REASONING_MESSAGE_CHUNK")),
                    **message,
                    **delta,
                }
            case 3:
                part = random.choice(("START", "CONTENT", "END"))
                return {"type": f"REASONING_MESSAGE_{part}", "role": "reasoning", **message, **delta}
            case 4:
                part = random.choice(("START", "ARGS", "ARGS", "ARGS", "CHUNK", "CHUNK", "END", "RESULT"))
                said = {"toolCallName": "look", "content": random.choice(_WRONG)}
                return {
                    "type": f"TOOL_CALL_{part}",
                    "toolCallId": name,
                    "delta": random.choice(_TEXTS),
                    **said,
                }
            case 5:
                return {"type": "STATE_SNAPSHOT", "snapshot": self._state()}
            case 6 | 7:
                return {
                    "type": "STATE_DELTA",
                    "delta": [self._operation() for _ in range(random.randrange(4))],
                }
            case 8:
                return {
                    "type": "MESSAGES_SNAPSHOT",
                    "messages": [self._message() for _ in range(random.randrange(4))],
                }
            case 9:
                value = random.choice(_WRONG)
                return {"type": "CUSTOM", "name": random.choice(("state_update", "n")), "value": value}
            case 10:
                part = random.choice(("STARTED", "FINISHED", "ERROR"))
                said = {"name": "scout", "message": "lost", "outcome": {"type": "suspended"}, "result": None}
                return {"type": f"SUBAGENT_{part}", "subagentRunId": name, **said}
            case _:
                outcome = {"type": "interrupt", "interrupts": random.choice((*_WRONG, [{"id": "i"}, 5]))}
                part, ids = random.choice(("STARTED", "FINISHED", "ERROR")), {"threadId": "t", "runId": "r"}
                return {"type": f"RUN_{part}", "message": "boom", "outcome": outcome, **ids}

    def _call(self) -> list[Json]:
        """A call whose arguments are cut anywhere."""
        random, call = self._random, {"toolCallId": f"t{self._random.random()}", "toolCallName": "look"}
        text = "".join(random.choices(_TEXTS, k=random.choice((1, 2, 2, 2, 3))))
        cuts = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(8)))
        pieces = [text[start:end] for start, end in pairwise((0, *cuts, len(text)))]
        args = [{"type": "TOOL_CALL_ARGS", "delta": piece, **call} for piece in pieces]
        return [{"type": "TOOL_CALL_START", **call}, *args]

    def _entries(self) -> list[Any]:
        return self._random.choices(_ENTRIES, k=self._random.randrange(4))

    def _state(self) -> Any:
        random = self._random
        if random.random() < 0.1:
            return random.choice((*_WRONG, {"citations": random.choice(_WRONG)}))
        return {"citations": {self._id(): self._entries() for _ in range(random.randrange(4))}, "a": [1]}

    def _message(self) -> Any:
        random = self._random
        if random.random() < 0.1:
            return random.choice(_WRONG)
        content = random.choice(("", "x\ud83d", None, [], [{"type": "image"}], {"a": 1}))
        message: Json = {"id": self._id(), "role": "assistant", "content": content}
        if random.random() < 0.3:
            message["citations"] = self._entries() or random.choice(_WRONG)
        if random.random() < 0.2:
            message["subagentRunId"] = random.choice(("s1", "", 5))
        return message

    def _operation(self) -> Json:
        random, name = self._random, self._id().replace("~", "~0").replace("/", "~1")
        at = random.choice(("0", "1", "-", "01", "9", "0/extra", "0/title", "1/id"))
        paths = (
            f"/citations/{name}",
            f"/citations/{name}/{at}",
            "/citations",
            "",
            "/a",
            f"/a/{at}",
            "/b",
            f"/{name}",
        )
        path = random.choices(paths, (4, 8, 1, 1, 1, 1, 1, 1))[0]
        op = random.choice(("add", "add", "replace", "remove", "move", "copy", "test", "upsert"))
        value = random.choice((self._entries(), random.choice(_ENTRIES), random.choice(_WRONG)))
        return {"op": op, "path": path, "from": random.choice(paths), "value": value}
