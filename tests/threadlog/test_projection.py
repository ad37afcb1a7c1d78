"""The fold from the log of a thread to what its channel is told, over logs that nobody would think of."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from citewire import codec
from citewire.agui import Thread
from citewire.agui import events as ev
from citewire.channels.annotation import AnnotationAction, AnnotationDraft
from citewire.channels.message import Action, MessageDraft
from citewire.channels.store import Row
from citewire.threadlog.projection import Projection, ProjectionStep
from support.annotated_stream import FINISHED, STARTED, chunk, end, messages, say, start

Json = dict[str, Any]
NAMES, KEYS = st.sampled_from(["a", "b", "c"]), st.sampled_from(["k", "l", "m"])
TEXTS = st.lists(st.text("Ab .😀é[1]\n", max_size=8), min_size=1, max_size=4)
STATUSES = st.sampled_from(["verified", "missed", "partial"])


class Log:
    """The rows of a thread, and what a client makes of them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.thread = Thread()
        # What is cited, by answer and key, with the status it has.
        self.cited: dict[str, dict[str, str | None]] = {}
        self.gone: set[str] = set()

    def row(self, kind: str, data: bytes) -> None:
        n = len(self.rows) + 1
        self.rows.append(Row("e", n, n, str(n), kind, data, b""))

    def events(self, *events: Json) -> None:
        for event in events:
            self.row("event", codec.encode(event))
            self.thread.apply(codec.encode(event))

    def record(self, kind: str, name: str, **fields: Any) -> None:
        self.row("record", codec.encode({"type": kind, "message_id": name, **fields}))

    def begin(self) -> None:
        self.row("input", codec.encode({"input": {"threadId": "t", "runId": "r"}}))
        self.events(STARTED)

    @property
    def answers(self) -> dict[str, str]:
        return {each["id"]: each["content"] for each in self.thread.agui.messages}

    # --- what may happen ----------------------------------------------------------------------------------

    def say(self, name: str, texts: list[str], in_chunks: bool) -> None:
        if name in self.gone:
            self.gone.discard(name)
            self.cited[name] = {}
        self.cited.setdefault(name, {})
        if in_chunks:
            self.events(*(chunk(text, name) for text in texts))
        else:
            self.events(start(name), *(say(text, name) for text in texts), end(name))

    def snapshot(self, dropped: set[str], said: dict[str, str]) -> None:
        kept = {name: text for name, text in (self.answers | said).items() if name not in dropped and text}
        for name in self.answers.keys() - kept.keys():
            self.gone.add(name)
        for name in kept:
            self.gone.discard(name)
            self.cited.setdefault(name, {})
        # Two that say the same could have changed their names.
        listed = {text: name for name, text in kept.items()}
        if len(listed) == len(kept):
            self.events(
                messages(*({"id": name, "role": "assistant", "content": text} for name, text in kept.items()))
            )
        else:
            self.gone = self.cited.keys() - self.answers.keys()

    def cite(self, name: str, key: str, number: int) -> None:
        if name in self.cited:
            self.cited[name].setdefault(key, None)
            self.record(
                "citation", name, key=key, citation={"url": f"https://{key}.org", "citationNumber": number}
            )

    def judge(self, name: str, key: str, status: str) -> None:
        if key in self.cited.get(name, {}):
            self.cited[name][key] = status
            self.record("verdict", name, key=key, quote="", verification={"citewire": {"status": status}})


Happening = tuple[Any, ...]
HAPPENINGS = st.one_of(
    st.tuples(st.just("say"), NAMES, TEXTS, st.booleans()),
    st.tuples(st.just("cite"), NAMES, KEYS, st.integers(0, 2)),
    st.tuples(st.just("judge"), NAMES, KEYS, STATUSES),
    st.tuples(
        st.just("snapshot"),
        st.sets(NAMES, max_size=2),
        st.dictionaries(NAMES, st.text("xyz", min_size=1, max_size=5), max_size=1),
    ),
)


def made(happened: list[Happening]) -> Log:
    log = Log()
    log.begin()
    for what, *given_values in happened:
        getattr(log, what)(*given_values)
    log.events(FINISHED)
    log.row("over", codec.encode({"runId": "r", "outcome": "finished"}))
    return log


class Channel:
    """What a subscriber has who was told all of the steps."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def take(self, step: ProjectionStep) -> None:
        name, sent = step.answer, step.sent
        if isinstance(sent, AnnotationDraft):
            counts = self.counts[name, sent.type.partition(":")[0]]
            assert name in self.texts
            assert sent.name
            if sent.action is AnnotationAction.DELETE:
                del counts[sent.name]
            else:
                counts[sent.name] += sent.count or 1
            return
        match sent:
            case MessageDraft(action=Action.CREATE, data=str() as text):
                assert name not in self.texts
                self.texts[name] = text
            case MessageDraft(action=Action.UPDATE, data=str() as text):
                self.texts[name] = text
            case MessageDraft(action=Action.APPEND, data=str() as text):
                self.texts[name] += text
            case _:
                del self.texts[name]


def steps_of(log: Log) -> list[ProjectionStep]:
    projection = Projection("t", "e", "bot")
    return [step for row in log.rows for step in projection.apply_row(row)]


@given(st.lists(HAPPENINGS, max_size=12))
def test_the_channel_has_what_a_client_has(happened: list[Happening]) -> None:
    log, channel = made(happened), Channel()
    for step in steps_of(log):
        channel.take(step)
    assert channel.texts == log.answers
    for name in log.answers:
        cited = log.cited[name]
        assert channel.counts[name, "citations"] == {f"{key}.org": 1 for key in cited}
        assert channel.counts[name, "verdicts"] == Counter(filter(None, cited.values()))


@given(st.lists(HAPPENINGS, max_size=8))
def test_it_goes_on_behind_any_step(happened: list[Happening]) -> None:
    """Whoever folds the log again tells all steps behind the mark, and none before it."""
    log = made(happened)
    steps = steps_of(log)
    assert [step.mark for step in steps] == sorted(step.mark for step in steps)
    for at, step in enumerate(steps):
        left = [each for each in steps_of(log) if not step.mark.covers(each.mark)]
        assert left == steps[at + 1 :]


@given(st.lists(st.text(max_size=30), max_size=5), st.sampled_from([[], ["\ud83d"], ["\ude00", "a"]]))
def test_any_text_can_be_told(texts: list[str], odd: list[str]) -> None:
    """Half a character becomes a mark of the same length."""
    log, channel = Log(), Channel()
    log.begin()
    for event in (start(), *(say(text) for text in [*texts, *odd]), end()):
        log.row("event", ev.encode(ev.coerce(event)))
    for step in steps_of(log):
        channel.take(step)
    whole = "".join([*texts, *odd])
    assert channel.texts["m"] == "".join("?" if "\ud800" <= char <= "\udfff" else char for char in whole)
