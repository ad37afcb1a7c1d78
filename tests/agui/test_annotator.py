"""Citations woven into a stream: the reader's text is right, the state says what happened, and the client
takes every event, whatever the agent does."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire import keys
from citewire.agui import CitationMiddleware, check
from citewire.agui.citations.annotator import CitationSeen, ReviewGiven, VerdictReached
from citewire.agui.citations.records import ProofUrls
from citewire.agui.citations.shared_state import INITIAL_DEEPCITATION_STATE, remove_own_state
from citewire.agui.events import coerce, to_dict
from citewire.documents.document import Box
from citewire.documents.text import read_text
from citewire.errors import CitewireError, InputError
from citewire.model import Lines, Source, SourceRef
from citewire.verification.document_set import CheckResult, DocumentSet
from citewire.verification.verifier import QuoteCheck
from support.agui_node import RealClient
from support.annotated_stream import (
    FINISHED,
    KEY,
    STARTED,
    Client,
    Run,
    answer,
    block,
    chunk,
    delta,
    end,
    judged,
    messages,
    say,
    snapshot,
    start,
)
from support.provider_events import ANTHROPIC, COSTS, FRANCE, ITALY, OPENAI

SHOWN = "Paris [1], not Italy [2]."
TEXT = SHOWN + block(FRANCE, ITALY)


def undecided(_: QuoteCheck) -> None:
    """Nobody knows."""


def run(*events: Any, **more: Any) -> Run:
    return Run([STARTED, *events, FINISHED], **more)


def counts(client: Client, name: str = "m") -> dict[str, int]:
    return {key: count for key, count in client.message(name)["summary"].items() if count}


def test_the_reader_sees_no_block_and_the_state_has_what_it_said() -> None:
    woven = run(*answer(TEXT))
    client = woven.client
    assert client.texts == {"m": SHOWN}
    message = client.message()
    assert (message["messageId"], message["status"]) == ("m", "complete")
    assert counts(client) == {"total": 2, "verified": 1, "missed": 1}
    key = keys.key(SourceRef("", quote=FRANCE), Source(""))
    assert message["citations"][key] == {
        "type": "document",
        "attachmentId": "doc1",
        "fullPhrase": FRANCE,
        "citationNumber": 1,
    }
    said = message["verifications"][key]
    assert (said["status"], said["citewire"]["status"], said["verifiedAt"]) == ("found", "verified", "now")
    assert client.record["citations"] == message["citations"]
    assert client.record["verifications"] == message["verifications"]
    assert [(each["index"], each["snippet"]) for each in client.state["citations"]["m"]] == [
        (1, FRANCE),
        (2, ITALY),
    ]
    assert [each["extra"]["citewire"]["status"] for each in client.state["citations"]["m"]] == [
        "verified",
        "missed",
    ]
    assert client.types[-1] == "RUN_FINISHED"


def test_a_citation_is_asked_about_before_its_message_ends() -> None:
    woven = Run([STARTED, start(), say(SHOWN + block(FRANCE)[:-24])])
    assert [asked.quote for asked in woven.asked] == [FRANCE]
    assert woven.asked[0].likely == ("doc1", "s1")


def test_text_goes_through_as_it_is() -> None:
    """What need not change is the very event that came."""
    woven = run(start(), say("Hello ", rawEvent={"a": 1}, novel=2), say("world"), end())
    assert [event for event in woven.client.sent if event["type"].startswith("TEXT")] == [
        start(),
        say("Hello ", rawEvent={"a": 1}, novel=2),
        say("world"),
        end(),
    ]


def test_the_published_sequence() -> None:
    stream = [STARTED, start(), *map(say, TEXT), end(), FINISHED]
    state = {KEY: INITIAL_DEEPCITATION_STATE}
    woven = Run(stream, state=state, at_once=False, incremental=False, emit_ngaf=False, custom_events=False)
    one, two = (asked.id.partition("\n")[2] for asked in woven.asked if asked.id)
    at = f"/{KEY}/messages/m"
    assert woven.client.operations() == [
        ("add", at),
        ("replace", f"{at}/status"),
        ("replace", f"{at}/citations"),
        ("add", f"/{KEY}/citations/{one}"),
        ("add", f"/{KEY}/citations/{two}"),
        ("replace", f"{at}/summary"),
        ("replace", f"{at}/status"),
        ("add", f"{at}/verifications/{one}"),
        ("add", f"/{KEY}/verifications/{one}"),
        ("replace", f"{at}/summary"),
        ("add", f"{at}/verifications/{two}"),
        ("add", f"/{KEY}/verifications/{two}"),
        ("replace", f"{at}/summary"),
        ("replace", f"{at}/status"),
    ]
    statuses = [
        each["value"]
        for event in woven.client.sent
        if event["type"] == "STATE_DELTA"
        for each in event["delta"]
        if each["path"].endswith("/status")
    ]
    assert statuses == ["extracting", "verifying", "complete"]
    begun = next(event for event in woven.client.sent if event["type"] == "STATE_DELTA")
    assert begun["delta"][0]["value"] == {
        "messageId": "m",
        "citations": {},
        "verifications": {},
        "summary": dict.fromkeys(
            ("total", "verified", "partial", "pending", "skipped", "missed", "altered"), 0
        ),
        "status": "streaming",
    }
    text_ends = woven.client.types.index("TEXT_MESSAGE_END")
    assert woven.client.types[:text_ends].count("STATE_DELTA") == 1


TEXTS = st.sampled_from(
    [
        TEXT,
        "No citation < here, but <b>tags</b> & more <<",
        f"Before [1].{block(COSTS)}\n\nAnd after [1].",
        f'Said "{COSTS}" [1].',
        f"Paris [^2], costs [^1].{block(COSTS, FRANCE)}",
        f"A tag <cite full_phrase='{FRANCE}' attachment_id='doc1' /> within.",
        f"Zwei {chr(0x1F1E9)}{chr(0x1F1EA)} é [1]{block('It rains.')}",
        SHOWN + block(FRANCE, ITALY)[:-40],
    ]
)


def cut(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(at % (len(text) + 1) for at in cuts)})
    return [text[low:high] for low, high in pairwise(edges)]


@given(
    TEXTS,
    st.lists(st.integers(0, 10_000), max_size=12),
    st.sampled_from(["deltas", "chunks", "named chunks"]),
    st.booleans(),
    st.booleans(),
)
def test_however_a_text_is_split(
    text: str, cuts: list[int], kind: str, at_once: bool, incremental: bool
) -> None:
    """The same reader's text, citations and state come of it."""
    whole = run(*answer(text))
    pieces = cut(text, cuts)
    if kind == "deltas":
        events = [start(), *map(say, pieces), end()]
    elif kind == "chunks":
        events = [chunk(piece, None if at else "m") for at, piece in enumerate(pieces)]
    else:
        events = [chunk(piece, "m") for piece in pieces]
    woven = run(*events, at_once=at_once, incremental=incremental)
    assert woven.client.texts == whole.client.texts
    assert woven.client.state == whole.client.state


def set_own(value: int) -> dict[str, Any]:
    return delta({"op": "add", "path": "/a", "value": value})


STATES = st.one_of(
    st.builds(snapshot, st.sampled_from([{}, {"a": 1}, {"citations": {}}, {KEY: 3, "b": 2}])),
    st.integers().map(set_own),
    st.just(delta({"op": "add", "path": f"/{KEY}", "value": 1}, {"op": "remove", "path": f"/{KEY}"})),
    st.just(delta({"op": "add", "path": "/citations", "value": {}})),
    st.just(messages({"id": "m", "role": "assistant", "content": TEXT})),
)


@given(st.lists(st.tuples(st.integers(0, 40), STATES), max_size=6), st.booleans())
def test_whatever_the_agent_does_to_the_state(
    theirs: list[tuple[int, dict[str, Any]]], at_once: bool
) -> None:
    """Its own keys are as they would be without us, and ours are whole."""
    stream: list[Any] = [start(), *(say(TEXT[at : at + 10]) for at in range(0, len(TEXT), 10)), end()]
    for at, event in sorted(theirs, key=lambda each: -each[0]):
        stream.insert(min(at, len(stream)), event)
    if any(event["type"] == "MESSAGES_SNAPSHOT" and event in stream[:-1] for _, event in theirs):
        # A snapshot in the middle already has what is still to be said.
        stream = [event for event in stream if event["type"] != "MESSAGES_SNAPSHOT"]
    woven = run(*stream, at_once=at_once)
    plain = run(*answer(TEXT))
    assert woven.client.record == plain.client.record
    assert woven.client.texts == {"m": SHOWN}
    assert woven.client.state["citations"] == plain.client.state["citations"]
    alone: dict[str, Any] = {}
    for event in stream:
        if event["type"] == "STATE_SNAPSHOT":
            alone = dict(event["snapshot"])
        elif event["type"] == "STATE_DELTA" and event["delta"][0]["path"] == "/a":
            alone["a"] = event["delta"][0]["value"]
    for each in (alone, kept := dict(remove_own_state(woven.client.state))):
        each.pop(KEY, None)
        each.pop("citations", None)
    assert kept == alone


def test_snapshots_that_come_last_are_followed_by_ours() -> None:
    """As LangGraph sends them."""
    closing = messages(
        {"id": "u", "role": "user", "content": "?"}, {"id": "m", "role": "assistant", "content": TEXT}
    )
    client = run(*answer(TEXT), snapshot({"a": 1}), closing).client
    assert client.texts == {"m": SHOWN}
    assert (client.state["a"], client.message()["status"]) == (1, "complete")
    assert client.types[-3:] == ["MESSAGES_SNAPSHOT", "STATE_DELTA", "RUN_FINISHED"]


@pytest.mark.parametrize("strip", [True, False])
def test_a_message_that_changes_its_id_keeps_what_it_cites(strip: bool) -> None:
    closing = messages({"id": "new", "role": "assistant", "content": TEXT})
    client = run(*answer(TEXT), closing, strip_block=strip, at_once=False).client
    assert list(client.record["messages"]) == list(client.state["citations"]) == ["new"]
    assert client.message("new")["messageId"] == "new"
    assert counts(client, "new") == {"total": 2, "verified": 1, "missed": 1}
    assert client.texts == {"new": SHOWN if strip else TEXT}


def test_an_answer_that_was_never_streamed_is_read_from_the_snapshot() -> None:
    said = {"id": "m", "role": "assistant", "content": TEXT}
    client = run(messages({"id": "e", "role": "assistant", "content": ""}, said)).client
    assert client.texts == {"e": "", "m": SHOWN}
    assert list(client.record["messages"]) == ["m"]
    assert counts(client) == {"total": 2, "verified": 1, "missed": 1}


def test_what_an_earlier_run_said_is_not_read_again() -> None:
    earlier = [{"id": "m", "role": "assistant", "content": SHOWN}]
    woven = run(messages({"id": "m", "role": "assistant", "content": TEXT}), earlier=earlier)
    assert woven.asked == []
    assert woven.client.texts == {"m": SHOWN}


@pytest.mark.parametrize("named", [True, False])
def test_nothing_of_ours_stands_between_chunks(named: bool) -> None:
    """It would end the message, and the next chunk without an id would fail the run."""
    pieces = [TEXT[at : at + 5] for at in range(0, len(TEXT), 5)]
    stream = [chunk(piece, "m" if named or not at else None) for at, piece in enumerate(pieces)]
    client = run(
        *stream, {"type": "STEP_STARTED", "stepName": "s"}, {"type": "STEP_FINISHED", "stepName": "s"}
    ).client
    chunks = [at for at, name in enumerate(client.types) if name == "TEXT_MESSAGE_CHUNK"]
    assert set(client.types[chunks[0] : chunks[-1] + 1]) == {"TEXT_MESSAGE_CHUNK"}
    assert client.texts == {"m": SHOWN}
    assert client.message()["status"] == "complete"


def test_what_is_held_back_of_chunks_is_shown_when_they_end() -> None:
    client = run(chunk("a <<<", "m"), chunk("b", "n")).client
    assert client.texts == {"m": "a <<<", "n": "b"}


def test_chunks_of_tools_name_their_results() -> None:
    call = {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "search", "delta": "{}"}
    result = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "It rains."}
    assert [source.title for source in run(call, result).sources] == ["search"]


@pytest.mark.parametrize("kind", ["START", "CHUNK"])
def test_a_stream_that_just_stops(kind: str) -> None:
    """What it held back is shown, in its own way, and the state says so."""
    said = [chunk(TEXT[:-40], "m")] if kind == "CHUNK" else [start(), say(TEXT[:-40])]
    client = Run([STARTED, *said, chunk(" <<<", None) if kind == "CHUNK" else say(" <<<")]).client
    message = client.message()
    assert (message["status"], message["error"]) == ("error", "the stream ended before the message did")
    assert counts(client)["total"] >= 1


def test_a_run_that_fails_in_the_middle_of_a_message() -> None:
    """After RUN_ERROR a client takes nothing, so the rest of the text comes before it."""
    client = Run([STARTED, start(), say("so far <<<"), {"type": "RUN_ERROR", "message": "boom"}]).client
    assert client.texts == {"m": "so far <<<"}
    assert client.types[-1] == "RUN_ERROR"
    assert client.message()["status"] == "error"


@pytest.mark.parametrize("terminal", [{**FINISHED, "usage": None}, {"type": "RUN_ERROR", "message": 3}])
def test_a_terminal_event_is_held_even_if_it_is_malformed(terminal: dict[str, Any]) -> None:
    weaver = Run([STARTED, *answer(TEXT)], decide=undecided).weaver
    assert weaver.process_event(coerce(terminal)) == []
    assert weaver.is_waiting
    assert to_dict(weaver.release_terminal_event()[-1]) == terminal


def test_several_messages_at_once() -> None:
    one, two = TEXT, f"Costs [1].{block(COSTS)}"
    stream: list[Any] = [start("a"), start("b")]
    for at in range(0, max(len(one), len(two)), 8):
        stream += [say(one[at : at + 8], "a"), say(two[at : at + 8], "b")]
    client = run(*stream, end("b"), end("a")).client
    assert client.texts == {"a": SHOWN, "b": "Costs [1]."}
    assert [counts(client, name)["total"] for name in "ab"] == [2, 1]


def test_several_runs_in_one_stream() -> None:
    client = Run([STARTED, *answer(TEXT, "a"), FINISHED, STARTED, *answer(TEXT, "b"), FINISHED]).client
    assert client.texts == {"a": SHOWN, "b": SHOWN}
    assert [client.message(name)["status"] for name in "ab"] == ["complete", "complete"]


def test_a_verdict_between_runs_waits_for_the_next() -> None:
    woven = run(*answer(TEXT), decide=undecided)
    weaver = woven.weaver
    assert [weaver.apply_verdict(judged(asked)) for asked in woven.asked] == [[], []]
    more = [
        sent for event in (STARTED, FINISHED) for sent in weaver.process_event(coerce(event))
    ] + weaver.release_terminal_event()
    client = Client([*woven.sent, *more])
    assert client.message()["status"] == "complete"


def test_subagents() -> None:
    sub = {"subagentRunId": "s"}
    inside = [start("m", **sub), *(say(TEXT[at : at + 9], "m", **sub) for at in range(0, len(TEXT), 9))]
    client = run(
        {"type": "SUBAGENT_STARTED", **sub, "name": "helper"},
        *inside,
        say(" <<<", "m", **sub),
        end("m", **sub),
        {"type": "SUBAGENT_FINISHED", **sub},
    ).client
    assert client.texts == {"m": f"{SHOWN} <<<"}
    assert counts(client)["total"] == 2


def test_chunks_of_a_subagent_beside_those_of_the_agent() -> None:
    sub = {"subagentRunId": "s"}
    pieces = [TEXT[at : at + 11] for at in range(0, len(TEXT), 11)]
    stream: list[Any] = [{"type": "SUBAGENT_STARTED", **sub, "name": "helper"}]
    for at, piece in enumerate(pieces):
        stream += [chunk(piece, None if at else "a"), chunk(piece, None if at else "b", **sub)]
    stream += [{"type": "SUBAGENT_FINISHED", **sub}]
    client = run(*stream).client
    assert client.texts == {"a": SHOWN, "b": SHOWN}
    assert [counts(client, name)["total"] for name in "ab"] == [2, 2]


def test_only_answers_are_read() -> None:
    woven = run(start(role="user"), say(TEXT), end())
    assert woven.asked == []
    assert KEY not in woven.client.state


def test_a_message_that_goes_on_after_its_end() -> None:
    client = run(*answer(TEXT), *answer(f" Costs [1].{block(COSTS)}")).client
    assert client.texts == {"m": f"{SHOWN} Costs [1]."}
    assert counts(client) == {"total": 3, "verified": 2, "missed": 1}


def test_an_id_of_an_earlier_run_that_is_used_again() -> None:
    """Its message goes on, as that of the client does."""
    first = run(*answer(TEXT)).client
    earlier = [{"id": "m", "role": "assistant", "content": SHOWN}]
    again = run(*answer(f" Costs [1].{block(COSTS)}"), state=first.state, earlier=earlier)
    client = again.client
    assert counts(client) == {"total": 3, "verified": 2, "missed": 1}
    assert [each["snippet"] for each in client.state["citations"]["m"]] == [FRANCE, ITALY, COSTS]


def test_what_was_not_decided_is_decided_in_the_next_run() -> None:
    first = run(*answer(TEXT), decide=undecided).client
    assert (first.message()["status"], counts(first)) == ("verifying", {"total": 2, "pending": 2})
    again = run(state=first.state)
    assert sorted(asked.quote for asked in again.asked) == [FRANCE, ITALY]
    assert (again.client.message()["status"], counts(again.client)) == (
        "complete",
        {"total": 2, "verified": 1, "missed": 1},
    )
    said = [each["extra"]["citewire"]["status"] for each in again.client.state["citations"]["m"]]
    assert said == ["verified", "missed"]


def test_a_verdict_that_says_pending_leaves_it_so() -> None:
    def late(asked: QuoteCheck) -> CheckResult:
        return CheckResult(asked.id, "pending", "deadline")

    client = run(*answer(TEXT), decide=late).client
    assert (client.message()["status"], counts(client)) == ("verifying", {"total": 2, "pending": 2})


def test_verdicts_that_nobody_asked_for_do_no_harm() -> None:
    woven = run(*answer(TEXT))
    for name in (None, "", "m\nnone", woven.asked[0].id):
        assert woven.weaver.apply_verdict(CheckResult(name, "verified")) == []


def test_a_verifier_that_fails_in_the_middle_of_the_text() -> None:
    """What comes later is still checked, and the message says what happened."""
    woven = Run([STARTED, start(), say(f"{SHOWN}{block(FRANCE, ITALY)}")], decide=undecided, at_once=False)
    weaver = woven.weaver
    sent = [*weaver.fail_pending("the verifier failed: boom")]
    assert not weaver.is_waiting
    client = Client([*woven.sent, *sent])
    assert (client.message()["status"], client.message()["error"]) == ("error", "the verifier failed: boom")
    assert counts(client) == {"total": 2, "pending": 2}


@pytest.mark.parametrize("name", ["__proto__", "constructor", "prototype"])
def test_ids_that_reach_a_prototype_are_only_passed_on(name: str) -> None:
    woven = run(*answer(TEXT, name), *answer(TEXT, "m"))
    assert woven.client.texts[name] == SHOWN
    assert list(woven.client.record["messages"]) == ["m"]
    said = [event["value"] for event in woven.client.sent if event.get("name") == "citewire.message_complete"]
    (told,) = [value for value in said if value["messageId"] == name]
    assert told["error"].startswith("its citations are not checked: the message has an id")
    assert (told["summary"]["total"], told["summary"]["skipped"]) == (2, 2)


@pytest.mark.parametrize("name", ["__proto__", "constructor", "prototype"])
def test_an_unsafe_id_without_citations_is_nothing_to_speak_of(name: str) -> None:
    said = [event.get("value") for event in run(*answer("Hello.", name)).client.sent]
    assert not any("error" in value for value in said if isinstance(value, dict))


@pytest.mark.parametrize(
    "key",
    ["__proto__", "constructor", "prototype", "", "citations", "a\nb", "\x00", "\ud800", "\u202e", "x" * 129],
)
def test_a_state_key_that_no_client_can_hold_is_refused(key: str) -> None:
    """When the middleware is made, not in the middle of a run."""
    with pytest.raises(InputError) as caught:
        CitationMiddleware.over(state_key=key)
    assert caught.value.path == "state_key"


@pytest.mark.parametrize("key", ["deepcitation", "my key", "a/b", "~1", "引用", "x" * 128])
def test_any_other_state_key_will_do(key: str) -> None:
    client = run(*answer(TEXT), state_key=key).client
    assert client.state[key]["messages"]["m"]["status"] == "complete"


@pytest.mark.parametrize("at", range(len("<<<CITATION_DATA"), 60, 3))
def test_a_data_block_that_is_cut_leaves_an_error(at: int) -> None:
    begins = TEXT.index("<<<")
    client = run(*answer(TEXT[: begins + at])).client
    message = client.message()
    assert (message["status"], client.texts["m"]) == ("error", SHOWN)
    assert message["error"] == "its data block was cut off: citations may be missing"


@pytest.mark.parametrize("name", ["", "a/b~c", "../../etc", "\x1b[31m", "m\nn", "é" * 5000, "0", "-"])
def test_any_other_id_is_a_key_like_all(name: str) -> None:
    client = run(*answer(TEXT, name)).client
    assert counts(client, name)["total"] == 2
    assert len(client.state["citations"][name]) == 2


POSTED: list[Any] = [
    None,
    3,
    [],
    {KEY: 1},
    {KEY: {"citations": [], "verifications": {}, "messages": {}}},
    {KEY: {**INITIAL_DEEPCITATION_STATE, "messages": {"m": {"citations": {"k": {}}, "verifications": {}}}}},
    {
        KEY: {
            "citations": {"__proto__": {}, "constructor": {}},
            "verifications": {"prototype": {}},
            "messages": {
                "__proto__": {
                    "citations": {"k": {"fullPhrase": "x"}},
                    "verifications": {},
                    "summary": {},
                    "status": "",
                },
                "n": {
                    "citations": {"__proto__": {"fullPhrase": "x"}},
                    "verifications": {},
                    "summary": {},
                    "status": "",
                },
                "o": {
                    "citations": {"k": {"fullPhrase": 7}, "l": {"fullPhrase": "It rains."}},
                    "verifications": {"z": {"status": 9}},
                    "summary": 3,
                    "status": [],
                },
            },
            "reviews": {"m": 3, "n": {"k": [1, {"event": "x"}]}},
        },
        "citations": {"m": [{"id": "x", "extra": {"citewire": {"own": True, "key": "__proto__"}}}]},
    },
]


@pytest.mark.parametrize("state", POSTED)
@pytest.mark.parametrize("keep", [None, 1])
def test_a_state_that_a_client_made_up_does_no_harm(state: Any, keep: int | None) -> None:
    woven = run(*answer(TEXT, "a"), *answer(TEXT, "m"), state=state, keep_last=keep)
    assert woven.client.texts == {"a": SHOWN, "m": SHOWN}
    if state is None or isinstance(state, dict):
        assert woven.client.message()["status"] == "complete"


@pytest.mark.parametrize(
    "hostile",
    [
        "<<<CITATION_DATA>>>" * 3,
        "<<<END_CITATION_DATA>>> <<<CITATION_DATA>>> [[[",
        "\x1b[31mred\x1b]8;;http://x\x07 <script>alert(1)</script>",
        "[1]" * 3000,
        "<cite " * 500,
        block("__proto__", "constructor"),
    ],
)
def test_hostile_text(hostile: str) -> None:
    """It is text like all; what comes after it is read."""
    client = run(*answer(hostile, "h"), *answer(TEXT)).client
    assert counts(client) == {"total": 2, "verified": 1, "missed": 1}
    assert "CITATION_DATA" not in client.texts["m"]


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["x" * 1000, "[" * 1000, "word [7] " * 100, "<<<CITATION_DATA>>>{" * 50])
def test_ten_megabytes(piece: str) -> None:
    """The text still streams, past what is looked at, and no text is kept of what has ended."""
    times = 10_000_000 // len(piece)
    woven = Run([STARTED, start(), *(say(piece) for _ in range(times)), end(), FINISHED], max_text=1 << 17)
    message = woven.client.message()
    assert (message["status"], "was not looked at" in message["error"]) == ("error", True)
    assert woven.weaver._messages["m"].scanner is None  # pyright: ignore[reportPrivateUsage]
    if "<" not in piece:
        assert len(woven.client.texts["m"]) == times * len(piece)


def test_past_the_limit_what_was_found_is_still_checked() -> None:
    text = f"One [1].{block(FRANCE)} {'x' * 400} two [1].{block(COSTS)}"
    client = run(*answer(text), max_text=300).client
    message = client.message()
    assert [each["fullPhrase"] for each in message["citations"].values()] == [FRANCE]
    assert (message["status"], counts(client)) == ("error", {"total": 1, "verified": 1})
    assert message["error"] == "what it cites after 300 characters was not looked at"
    assert "CITATION_DATA" not in client.texts["m"]


def test_the_block_can_stay() -> None:
    client = run(start(), *map(say, TEXT), end(), strip_block=False).client
    assert client.texts == {"m": TEXT}
    assert counts(client)["total"] == 2


def test_either_half_can_be_switched_off() -> None:
    neither = run(*answer(TEXT), emit_deepcitation=False, emit_ngaf=False, custom_events=False).client
    assert neither.types == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    lists = run(*answer(TEXT), emit_deepcitation=False).client
    assert (list(lists.state), len(lists.state["citations"]["m"])) == (["citations"], 2)
    assert list(run(*answer(TEXT), emit_ngaf=False).client.state) == [KEY]
    assert list(run(*answer(TEXT), state_key="other", emit_ngaf=False).client.state) == ["other"]


def test_only_the_last_messages_are_kept() -> None:
    texts = {"a": f"x{block(FRANCE, ITALY)}", "b": f"y{block(ITALY, COSTS)}", "c": f"z{block(COSTS)}"}
    client = run(*(event for name, text in texts.items() for event in answer(text, name)), keep_last=2).client
    assert list(client.record["messages"]) == list(client.state["citations"]) == ["b", "c"]
    lists = [*answer(TEXT, "a"), *answer(TEXT, "b")]
    assert list(run(*lists, keep_last=1, emit_deepcitation=False).client.state["citations"]) == ["b"]
    kept = {each["fullPhrase"] for each in client.record["citations"].values()}
    assert kept == {ITALY, COSTS}
    assert client.record["verifications"].keys() == client.record["citations"].keys()


def test_a_message_that_was_let_go_may_come_back() -> None:
    listed = delta({"op": "add", "path": "/citations", "value": {"a": [{"id": "x", "snippet": FRANCE}]}})
    stream = [*answer(TEXT, "a"), *answer(TEXT, "b"), *answer(TEXT, "a"), listed]
    client = run(*stream, keep_last=1).client
    assert list(client.record["messages"]) == ["a"]
    assert client.message("a")["status"] == "complete"


def test_what_is_said_of_a_message_that_was_let_go_is_passed_on() -> None:
    said = {"type": "CUSTOM", "name": "sources", "value": [{"snippet": COSTS}]}
    listed = snapshot({"citations": {"b": [{"id": "x", "snippet": FRANCE}]}})
    client = run(*answer(TEXT, "a"), listed, said, {**said, "value": {"messageId": "a"}}, keep_last=1).client
    assert list(client.record["messages"]) == ["b"]


def test_what_is_still_undecided_is_not_let_go() -> None:
    client = run(*answer(TEXT, "a"), *answer(TEXT, "b"), keep_last=1, at_once=False).client
    assert [client.message(name)["status"] for name in client.record["messages"]] == ["complete", "complete"]


def boxed(asked: QuoteCheck) -> CheckResult:
    return CheckResult(asked.id, "verified", start=0, end=1, boxes=(Box(1, 0, 0, 1, 1),))


def links(message: str, key: str, checked: CheckResult) -> ProofUrls:
    return ProofUrls(f"/proof/{message}/{key}", f"/proof/{key}.png" if checked.boxes else None)


def test_a_proof_that_somebody_serves() -> None:
    client = run(*answer(TEXT), decide=boxed, proofs=links).client
    for key, said in client.message()["verifications"].items():
        assert said["evidence"] == {"src": f"/proof/{key}.png"}
        assert said["citewire"]["proof"] == f"/proof/m/{key}"


def test_a_picture_that_is_drawn_comes_later() -> None:
    woven = Run([STARTED, *answer(TEXT)], decide=boxed)
    weaver, name = woven.weaver, woven.asked[0].id or ""
    assert weaver.is_waiting
    sent = [*weaver.add_picture(name, "data:image/avif;base64,AA"), *weaver.add_picture("none", "x")]
    sent += weaver.add_picture(woven.asked[1].id or "", None)
    assert not weaver.is_waiting
    client = Client([*woven.sent, *sent])
    first, second = client.message()["verifications"].values()
    assert (first["evidence"], "evidence" in second) == ({"src": "data:image/avif;base64,AA"}, False)
    aggregate = client.record["verifications"]
    assert not any("evidence" in verdict for verdict in aggregate.values())  # a picture is there once
    assert [*aggregate.values()] == [
        {name: value for name, value in verdict.items() if name != "evidence"} for verdict in (first, second)
    ]


def test_a_picture_for_a_message_that_was_let_go_does_no_harm() -> None:
    woven = Run([STARTED, *answer(TEXT, "a"), *answer(TEXT, "b")], decide=boxed, keep_last=1)
    sent = [event for asked in woven.asked for event in woven.weaver.add_picture(asked.id or "", "data:,")]
    assert Client([*woven.sent, *sent]).message("b")["status"] == "complete"


def test_custom_events_tell_when() -> None:
    client = run(*answer(TEXT)).client
    told = [
        (event["name"], event["value"].get("status")) for event in client.sent if event["type"] == "CUSTOM"
    ]
    assert told == [
        ("citewire.citation_seen", None),
        ("citewire.citation_seen", None),
        ("citewire.evidence_ready", "verified"),
        ("citewire.evidence_ready", "missed"),
        ("citewire.message_complete", None),
    ]
    assert all(event["value"]["messageId"] == "m" for event in client.sent if event["type"] == "CUSTOM")


def test_what_is_recorded() -> None:
    reviews = {"m": {"k": [{"event": "citation_reviewed", "at": 5}]}}
    state = {KEY: {**INITIAL_DEEPCITATION_STATE, "reviews": reviews}}
    woven = run(*answer(TEXT), state=state)
    review, *rest = woven.records
    assert review == ReviewGiven("m", "k", {"event": "citation_reviewed", "at": 5})
    assert [type(each) for each in rest] == [CitationSeen] * 2 + [VerdictReached] * 2
    assert remove_own_state(woven.client.state) == {}
    assert woven.client.record["reviews"] == reviews


def test_a_marker_means_what_tools_returned() -> None:
    result = {
        "type": "TOOL_CALL_RESULT",
        "messageId": "r",
        "toolCallId": "c",
        "content": '[{"id": "d1", "title": "T", "url": "https://e.org/a", "text": "It rains."}]',
    }
    woven = run(result, *answer('It says "It rains." [1], and so does [d1], but not [9].'))
    client = woven.client
    assert [(asked.quote, asked.likely[:2]) for asked in woven.asked] == [
        ("It rains.", ("https://e.org/a", "T")),
    ]
    (listed,) = client.state["citations"]["m"]
    assert (listed["index"], listed["title"], listed["url"]) == (1, "T", "https://e.org/a")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_footnote_goes_by_its_label(at_once: bool) -> None:
    """Which is how a front end finds it, also where it was known before its marker."""
    client = run(*answer(f'Said "{FRANCE}" [^a].\n\n[^a]: https://e.org/a'), at_once=at_once).client
    (listed,) = client.state["citations"]["m"]
    assert (listed["id"], listed["url"]) == ("a", "https://e.org/a")
    client = run(*answer(f"Paris [^1], costs [^2], [^1].{block(FRANCE, COSTS)}"), at_once=at_once).client
    assert [each["id"] for each in client.state["citations"]["m"]] == ["1", "2"]
    statuses = [each["extra"]["citewire"]["status"] for each in client.state["citations"]["m"]]
    assert statuses == ["verified", "verified"]


@pytest.mark.parametrize("media", ["audio", "video"])
def test_a_citation_of_a_recording_keeps_its_times(media: str) -> None:
    times = {"start_time": "00:00:01.000", "end_time": "00:00:02.000"}
    entry = {"id": 1, "attachment_id": "talk", "full_phrase": FRANCE, "timestamps": times, "type": media}
    text = f"Said [1].\n<<<CITATION_DATA>>>\n{json.dumps([entry])}\n<<<END_CITATION_DATA>>>"
    [cited] = run(*answer(text)).client.message()["citations"].values()
    assert cited["type"] == media
    assert cited["timestamps"] == {"startTime": "00:00:01.000", "endTime": "00:00:02.000"}


def test_the_sentence_goes_along_where_it_quotes_nothing() -> None:
    content = '[{"id": "1", "title": "T", "text": "Paris is the capital."}]'
    found = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": content}
    woven = run(found, *answer("It rains. The capital is Paris [1]."))
    assert [(asked.quote, asked.claim) for asked in woven.asked] == [("", "The capital is Paris")]


def test_what_is_quoted_is_looked_for_though_nothing_says_where() -> None:
    woven = run(*answer(f'He said "{COSTS}" [1]. And so [2].'))
    assert [asked.quote for asked in woven.asked] == [COSTS]
    assert counts(woven.client) == {"total": 1, "verified": 1}


def test_the_lines_that_a_citation_names_are_compared() -> None:
    text = "Seas rose.\n" * 20 + FRANCE
    library = DocumentSet([read_text(text.encode(), sha256="0")])

    def decide(asked: QuoteCheck) -> CheckResult:
        return library.check(asked.quote, near=asked.near, name=asked.id)

    entries = [{"id": 1, "full_phrase": FRANCE, "page_id": "page_number_1_index_0", "line_ids": [6, 1]}]
    data = f"<<<CITATION_DATA>>>{json.dumps({'doc1': entries})}<<<END_CITATION_DATA>>>"
    woven = run(*answer(f"Paris [1].\n{data}"), decide=decide)
    (said,) = woven.client.message()["verifications"].values()
    assert (said["status"], said["citewire"]["warnings"]) == ("found", ["on line 21, not 1, 6"])
    (entry,) = woven.client.state["citations"]["m"]
    assert entry["extra"]["citewire"]["warnings"] == ["on line 21, not 1, 6"]


def test_keys_are_the_published_ones() -> None:
    """With a URL, and with lines in any order."""
    text = (
        'A [1], B [2].\n<<<CITATION_DATA>>>[{"id": 1, "url": "https://e.org", "full_phrase": "It rains."},'
        ' {"id": 2, "attachment_id": "f", "full_phrase": "It rains.", "page_id": "2_1", "line_ids": [9, 4]}]'
        "<<<END_CITATION_DATA>>>"
    )
    cited = run(*answer(text)).client.message()["citations"]
    web, lines = cited
    assert web == keys.key(SourceRef("", quote="It rains."), Source("", "web", "https://e.org"))
    assert lines == keys.key(
        SourceRef("", Lines((4, 9), 2), "It rains."), Source("", "document", file_id="f")
    )
    assert cited[lines]["lineIds"] == [9, 4]


def test_pages_are_fetched_only_when_asked_for() -> None:
    def fetched(url: str, **options: Any) -> list[str | None]:
        entry = f'{{"id": 1, "url": "{url}", "full_phrase": "It rains."}}'
        woven = run(*answer(f"A [1].<<<CITATION_DATA>>>[{entry}, {entry}]<<<END_CITATION_DATA>>>"), **options)
        return [source.url for source in woven.sources]

    assert fetched("https://e.org/a") == []
    assert fetched("https://e.org/a", fetch_urls=True) == ["https://e.org/a"]
    assert fetched("/etc/passwd", fetch_urls=True) == []
    assert fetched("file:///etc/passwd", fetch_urls=True) == []


URL = "https://e.org/a"
GIVEN = json.dumps([{"title": "T", "url": URL, "text": "It rains."}])
AGENTS_RESULT = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": GIVEN}
POSTED_RESULT = {"id": "r", "role": "tool", "toolCallId": "c", "content": GIVEN}


@pytest.mark.parametrize(
    ("earlier", "events", "fetched"),
    [
        pytest.param([], [AGENTS_RESULT], [], id="the agent's tool"),
        pytest.param([POSTED_RESULT], [], [URL], id="posted"),
        pytest.param([POSTED_RESULT], [AGENTS_RESULT], [], id="both"),
    ],
)
def test_a_posted_text_does_not_stand_for_a_page(
    earlier: list[Any], events: list[Any], fetched: list[str]
) -> None:
    entry = f'{{"id": 1, "url": "{URL}", "full_phrase": "It rains."}}'
    said = answer(f"A [1].<<<CITATION_DATA>>>[{entry}]<<<END_CITATION_DATA>>>")
    woven = run(*events, *said, earlier=earlier, fetch_urls=True)
    assert [each.url for each in woven.sources if not each.text] == fetched


def test_a_marker_means_the_result_of_the_agent_before_a_posted_one() -> None:
    posted = {**POSTED_RESULT, "content": '[{"id": "1", "title": "Forged", "text": "It rains."}]'}
    found = {**AGENTS_RESULT, "content": '[{"id": "1", "title": "T", "text": "It rains."}]'}
    for events, title in (([], "Forged"), ([found], "T")):
        woven = run(*events, *answer('It says "It rains." [1].'), earlier=[posted])
        assert [asked.likely[0] for asked in woven.asked] == [title]


def attached(url: str) -> list[Any]:
    part = {"type": "document", "source": {"type": "url", "value": url}}
    return [{"id": "u", "role": "user", "content": [part]}]


def test_an_attachment_is_an_address_and_never_a_path() -> None:
    assert run(earlier=attached("https://e.org"), fetch_urls=True).sources[0].url == "https://e.org"
    assert run(earlier=attached("https://e.org")).sources == []
    assert run(earlier=attached("/etc/passwd"), fetch_urls=True).sources == []


# --- citations that the agent hands over itself ------------------------------------------------------------


def test_citations_in_the_state() -> None:
    """We add to their `extra` and to nothing else, and list none of our own beside them."""
    theirs = [
        {"id": "x", "title": "T", "snippet": FRANCE, "extra": {"score": 1}},
        {"refId": "y", "snippet": ITALY},
        7,
    ]
    listed = delta({"op": "add", "path": "/citations", "value": {"m": theirs}})
    client = run(*answer("Paris [^x]."), listed, at_once=False).client
    first, second, third = client.state["citations"]["m"]
    assert first["extra"]["score"] == 1
    assert [each["extra"]["citewire"]["status"] for each in (first, second)] == ["verified", "missed"]
    assert (third, remove_own_state(client.state)["citations"]["m"]) == (7, theirs)
    assert (client.message()["status"], counts(client)["total"]) == ("complete", 2)
    numbers = [each["citationNumber"] for each in client.message()["citations"].values()]
    assert numbers == [1, 2]


def test_citations_in_the_state_before_their_message() -> None:
    client = run(
        snapshot({"citations": {"m": [{"id": "x", "snippet": FRANCE}], "n": [{}], "o": 3}}), *answer("Hi")
    ).client
    assert list(client.record["messages"]) == ["m"]
    assert (client.message()["status"], counts(client)) == ("complete", {"total": 1, "verified": 1})


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize(
    "where",
    ["START", "CONTENT", "END", "chunk", "custom", "custom list", "snapshot"],
)
def test_citations_beside_the_text(where: str, incremental: bool) -> None:
    cites = {"sources": [{"title": "T", "url": "https://e.org", "snippet": COSTS}]}
    data: dict[str, Any] = {"metadata": cites}
    text: list[Any] = [
        start("m", **(data if where == "START" else {})),
        say(TEXT[:20], **(data if where == "CONTENT" else {})),
        say(TEXT[20:]),
        end("m", **(data if where == "END" else {})),
    ]
    if where == "chunk":
        text = [chunk(TEXT[:20], "m"), chunk(TEXT[20:], None, **data)]
    after: dict[str, list[Any]] = {
        "custom": [{"type": "CUSTOM", "name": "any", "value": {"messageId": "m", **cites}}],
        "custom list": [{"type": "CUSTOM", "name": "my.Sources", "value": cites["sources"]}],
        "snapshot": [messages({"id": "m", "role": "assistant", "content": TEXT, **data})],
    }
    client = run(*text, *after.get(where, []), incremental=incremental).client
    assert counts(client) == {"total": 3, "verified": 2, "missed": 1}
    assert {each["fullPhrase"] for each in client.message()["citations"].values()} == {FRANCE, ITALY, COSTS}
    assert len(client.state["citations"]["m"]) == 3


def raw(*events: Any) -> list[dict[str, Any]]:
    return [{"type": "RAW", "event": event, "source": "provider"} for event in events]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("events", "title"), [(ANTHROPIC, "Guide"), (OPENAI, "Guide")])
def test_citations_in_what_the_provider_sent(events: list[Any], title: str, before: bool) -> None:
    """Agents pass it on before what they make of it, or after."""
    text = [start(), say("Paris.")]
    stream = [*raw(*events), *text] if before else [*text, *raw(*events)]
    client = run(*stream, end()).client
    (cited,) = client.message()["citations"].values()
    assert cited["title"] == title
    assert client.message()["status"] == "complete"


def test_closed_messages_hold_no_text_and_lists_are_drained() -> None:
    woven = run(*(event for n in range(50) for event in answer(TEXT, f"m{n}")))
    weaver = woven.weaver
    held = [message.scanner for message in weaver._messages.values()]  # pyright: ignore[reportPrivateUsage]
    assert held == [None] * 50
    assert (weaver.asked, weaver.wanted, weaver.sources, weaver.records, weaver.held) == (
        [],
        [],
        [],
        [],
        None,
    )
    assert [to_dict(event) for event in weaver.release_terminal_event()] == []


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    STARTED,
                    FINISHED,
                    start(),
                    start("n"),
                    end(),
                    end("n"),
                    say("x [1]"),
                    say(TEXT),
                    say(TEXT, "n"),
                    chunk(TEXT, "m"),
                    chunk(TEXT),
                    chunk("<<<", "n"),
                    snapshot(None),
                    snapshot([]),
                    snapshot({"citations": {"m": [{"id": "x", "snippet": FRANCE}]}}),
                    delta({"op": "add", "path": "/citations/m/0", "value": 1}, {"op": "nonsense"}),
                    messages(
                        3,
                        {"id": "k", "role": "assistant", "content": TEXT},
                        {"role": "assistant", "content": "y"},
                    ),
                    {"type": "RUN_ERROR", "message": "x"},
                    {"type": "RUN_FINISHED"},
                    {"type": "TEXT_MESSAGE_CONTENT"},
                    {"type": "NOVEL", "x": 1},
                    {
                        "type": "CUSTOM",
                        "name": "sources",
                        "value": [{"snippet": COSTS}, None, "https://e.org"],
                    },
                    {"type": "RAW", "event": {"type": "message_start"}},
                    {
                        "type": "TOOL_CALL_RESULT",
                        "messageId": "r",
                        "toolCallId": "c",
                        "content": [1, {"text": "It rains."}],
                    },
                ]
            ),
        ),
        max_size=25,
    ),
    st.booleans(),
    st.sampled_from([None, 1, 2]),
)
def test_an_agent_that_keeps_no_rule(events: list[Any], at_once: bool, keep: int | None) -> None:
    """Nothing is raised, all that is not text goes through in its order, and what is legal stays so."""
    woven = Run(events, at_once=at_once, keep_last=keep)
    ours = {"STATE_DELTA", "CUSTOM"}
    sent = [event.type for event in woven.sent if event.type not in ours and "TEXT" not in event.type]
    assert sent == [
        each["type"] for each in events if each["type"] not in ours and "TEXT" not in each["type"]
    ]
    try:
        check(events)
    except CitewireError:
        return
    Client(woven.sent, theirs=events)


def in_chunks(text: str, name: str, **more: Any) -> list[Any]:
    pieces = [text[at : at + 11] for at in range(0, len(text), 11)]
    return [chunk(piece, None if at else name, **more) for at, piece in enumerate(pieces)]


SUB = {"subagentRunId": "s"}
SUBAGENT = {"type": "SUBAGENT_STARTED", **SUB, "name": "helper"}, {"type": "SUBAGENT_FINISHED", **SUB}
SNAPSHOT = messages({"id": "new", "role": "assistant", "content": TEXT})
STREAMS: dict[str, list[Any]] = {
    "text": [STARTED, *answer(TEXT), FINISHED],
    "chunks": [STARTED, *in_chunks(TEXT, "m"), FINISHED],
    "chunks of two": [STARTED, *in_chunks(TEXT, "m"), *in_chunks(TEXT, "n"), FINISHED],
    "chunks, then a step": [
        STARTED,
        *in_chunks(TEXT, "m"),
        snapshot({"a": 1}),
        *in_chunks("more", "m"),
        FINISHED,
    ],
    "chunks beside those of a subagent": [
        STARTED,
        SUBAGENT[0],
        *(
            each
            for pair in zip(in_chunks(TEXT, "a"), in_chunks(TEXT, "b", **SUB), strict=True)
            for each in pair
        ),
        SUBAGENT[1],
        FINISHED,
    ],
    "closing snapshots": [STARTED, *answer(TEXT), snapshot({"a": 1}), SNAPSHOT, FINISHED],
    "snapshots that hold nothing": [STARTED, snapshot(None), *answer(TEXT), snapshot([]), FINISHED],
    "two runs": [STARTED, *answer(TEXT, "a"), FINISHED, STARTED, *answer(TEXT, "b"), FINISHED],
    "an error within a message": [STARTED, start(), say("so <<<"), {"type": "RUN_ERROR", "message": "x"}],
    "an error within chunks": [STARTED, *in_chunks(TEXT[:-30], "m"), {"type": "RUN_ERROR", "message": "x"}],
    "no end": [STARTED, start(), say("so <<<")],
    "no end of chunks": [STARTED, chunk("so ", "m"), chunk("<<<")],
    "a message that goes on": [STARTED, *answer(TEXT), *answer(TEXT), FINISHED],
    "odd ids": [STARTED, *answer(TEXT, "a/b~c"), *answer(TEXT, "__proto__"), *answer(TEXT, "0"), FINISHED],
}


OPTIONS: list[dict[str, Any]] = [{}, {"incremental": False}, {"keep_last": 1}]


@pytest.mark.slow
def test_the_real_client_takes_every_stream_that_is_woven() -> None:
    """With all our patches, and to the state and the text that we say it has."""
    runs = [
        Run(stream, at_once=at_once, **options)
        for stream in STREAMS.values()
        for at_once in (True, False)
        for options in OPTIONS
    ]
    with RealClient() as real:
        found = real.run_many({"stream": run.client.sent} for run in runs)
    for woven, taken in zip(runs, found, strict=True):
        assert (taken["error"], taken["warnings"]) == (None, [])
        assert taken["state"] == woven.client.state
        assert {message["id"]: message["content"] for message in taken["messages"]} == woven.client.texts
