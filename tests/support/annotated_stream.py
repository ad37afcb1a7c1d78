"""A client at the end of a woven stream, and verdicts that need no engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from citewire.agui import Thread, check
from citewire.agui.citations.annotator import AuditRecord, CitationAnnotator, Clock, Options
from citewire.agui.citations.retrieval import RetrievedText
from citewire.agui.events import AnyEvent, RunInput, coerce, to_dict
from citewire.verification.document_set import CheckResult
from citewire.verification.verifier import QuoteCheck

KEY = "deepcitation"
RUN = {"threadId": "t", "runId": "r"}
STARTED, FINISHED = {"type": "RUN_STARTED", **RUN}, {"type": "RUN_FINISHED", **RUN}
KNOWN = "Paris is the capital of France. Costs fell by a third. It rains."
TIME = Clock(lambda: 0.0, lambda: "now")


def block(*quotes: str, source: str = "doc1") -> str:
    entries = ", ".join(
        f'{{"id": {number}, "full_phrase": "{quote}"}}' for number, quote in enumerate(quotes, 1)
    )
    return f'\n\n<<<CITATION_DATA>>>\n{{"{source}": [{entries}]}}\n<<<END_CITATION_DATA>>>'


def start(name: str = "m", **more: Any) -> dict[str, Any]:
    return {"type": "TEXT_MESSAGE_START", "messageId": name, **more}


def say(delta: str, name: str = "m", **more: Any) -> dict[str, Any]:
    return {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": delta, **more}


def end(name: str = "m", **more: Any) -> dict[str, Any]:
    return {"type": "TEXT_MESSAGE_END", "messageId": name, **more}


def chunk(delta: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    named = {} if name is None else {"messageId": name}
    return {"type": "TEXT_MESSAGE_CHUNK", **named, "delta": delta, **more}


def answer(text: str, name: str = "m") -> list[dict[str, Any]]:
    return [start(name), say(text, name), end(name)]


def snapshot(state: Any) -> dict[str, Any]:
    return {"type": "STATE_SNAPSHOT", "snapshot": state}


def delta(*operations: Any) -> dict[str, Any]:
    return {"type": "STATE_DELTA", "delta": list(operations)}


def messages(*found: Any) -> dict[str, Any]:
    return {"type": "MESSAGES_SNAPSHOT", "messages": list(found)}


def judged(asked: QuoteCheck, known: str = KNOWN) -> CheckResult:
    """A verdict by looking the words up."""
    if not asked.quote:
        return CheckResult(asked.id, "skipped", "nothing quoted")
    return CheckResult(asked.id, "verified" if asked.quote in known else "missed", source="doc1")


class Client:
    """Takes a stream as the real client does: what that rejects fails, and what it warns of.

    `theirs` are patches of the agent, which need not apply.
    """

    def __init__(self, sent: Iterable[AnyEvent], state: Any = None, theirs: Sequence[Any] = ()) -> None:
        self.sent = [to_dict(event) for event in sent]
        check(self.sent)
        self.thread = Thread(state={} if state is None else state)
        self.thread.extend(self.sent)
        failed = [int(each.path[1:]) for each in self.thread.agui.problems if each.code == "bad_patch"]
        assert [number for number in failed if self.sent[number - 1] not in theirs] == []

    @property
    def state(self) -> Any:
        return self.thread.agui.state

    @property
    def texts(self) -> dict[str, str]:
        return {
            message["id"]: message.get("content", "")
            for message in self.thread.agui.messages
            if message["role"] == "assistant"
        }

    @property
    def record(self) -> dict[str, Any]:
        return self.state[KEY]

    def message(self, name: str = "m") -> dict[str, Any]:
        return self.record["messages"][name]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.sent]

    def operations(self) -> list[tuple[str, str]]:
        """What our patches do, in order; the stream has none of the agent's."""
        return [
            (each["op"], each["path"])
            for event in self.sent
            if event["type"] == "STATE_DELTA"
            for each in event["delta"]
        ]


Decide = Callable[[QuoteCheck], CheckResult | None]


class Run:
    """A stream through a weaver. `decide` says what becomes of each quote; None leaves it undecided."""

    def __init__(
        self,
        stream: Iterable[Any],
        *,
        decide: Decide = judged,
        at_once: bool = True,
        state: Any = None,
        earlier: Iterable[Any] = (),
        context: Iterable[Any] = (),
        **options: Any,
    ) -> None:
        self._decide, self.sent = decide, list[AnyEvent]()
        given = RunInput(
            thread_id="t", run_id="r", messages=list(earlier), state=state, context=list(context)
        )
        self.weaver = CitationAnnotator(given, Options(**options), TIME)
        self.asked: list[QuoteCheck] = []
        self._waiting: list[QuoteCheck] = []
        self.records: list[AuditRecord] = []
        self.sources: list[RetrievedText] = []
        self._drain()
        for event in stream:
            self.sent += self.weaver.process_event(coerce(event))
            self._drain()
            if at_once or self.weaver.held is not None:
                self.judge()
            if self.weaver.held is not None:
                self.sent += self.weaver.release_terminal_event()
        self.sent += self.weaver.finish()
        self._drain()
        self.judge()
        self.sent += self.weaver.release_terminal_event()
        self._state = state

    @cached_property
    def client(self) -> Client:
        return Client(self.sent, self._state)

    def judge(self) -> None:
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            checked = self._decide(asked)
            if checked is not None:
                self.sent += self.weaver.apply_verdict(checked)
                self._drain()

    def _drain(self) -> None:
        """As whoever drives it does."""
        weaver = self.weaver
        self._waiting += weaver.asked
        self.asked += weaver.asked
        self.records += weaver.records
        self.sources += weaver.sources
        weaver.asked, weaver.sources, weaver.records, weaver.wanted = [], [], [], []
