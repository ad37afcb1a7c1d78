"""The rows of a thread's log: what is written reads back, in the form that stored logs already have."""

from __future__ import annotations

import pytest

from citewire import codec
from citewire.agui import events as ev
from citewire.agui.citations.message_state import CitationSeen, ReviewGiven, VerdictReached
from citewire.agui.events import RunInput
from citewire.channels.store import Row
from citewire.errors import CitewireError, InputError
from citewire.threadlog.names import (
    ai_channel,
    channel_of,
    input_id,
    run_channel,
    thread_of,
    thread_of_ai_channel,
)
from citewire.threadlog.rows import (
    EndedRun,
    EventRow,
    NodeRequest,
    PostedReviewRow,
    StartedRun,
    ThreadRow,
    UnknownRow,
    WithdrawnCitations,
    decode_event,
    decode_row,
    encode_row,
    is_verdict,
)

PROOF = "/threads/t/proofs/k." + "0" * 32
INPUT = RunInput(thread_id="t", run_id="r", messages=[{"id": "m", "role": "user", "content": "x"}])
STARTED = ev.RunStarted("t", "r")
DELTA = ev.StateDelta([{"op": "add", "path": "/a", "value": 1}])
# A row, its kind and data in the store, and its id; "new" is the id that the writer gives.
ROWS: list[tuple[ThreadRow, str, object, str]] = [
    (
        EventRow(ev.RunStarted("t", "r")),
        "event",
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        "new",
    ),
    (EventRow(DELTA, is_deferred=True), "late", codec.decode(ev.encode(DELTA)), "new"),
    (
        CitationSeen("m", "k", {"fullPhrase": "q"}),
        "record",
        {"type": "citation", "message_id": "m", "key": "k", "citation": {"fullPhrase": "q"}},
        "new",
    ),
    (
        CitationSeen("m", "k", {}, "bob", "s1"),
        "record",
        {
            "type": "citation",
            "message_id": "m",
            "key": "k",
            "citation": {},
            "by": "bob",
            "annotation": "s1",
        },
        "annotation:s1",
    ),
    (
        VerdictReached("m", "k", "q", {"citewire": {"status": "missed"}}),
        "record",
        {
            "type": "verdict",
            "message_id": "m",
            "key": "k",
            "quote": "q",
            "verification": {"citewire": {"status": "missed"}},
        },
        "new",
    ),
    (
        VerdictReached("m", "k", "q", {"citewire": {"status": "verified", "proof": PROOF}}),
        "record",
        {
            "type": "verdict",
            "message_id": "m",
            "key": "k",
            "quote": "q",
            "verification": {"citewire": {"status": "verified", "proof": PROOF}},
        },
        "proof:" + "0" * 32,
    ),
    (
        ReviewGiven("m", "k", {"event": "popover_opened"}),
        "record",
        {"type": "review", "message_id": "m", "key": "k", "review": {"event": "popover_opened"}},
        "new",
    ),
    (
        WithdrawnCitations("m", ["s1"], "bob"),
        "record",
        {"type": "withdrawal", "message_id": "m", "annotations": ["s1"], "by": "bob"},
        "new",
    ),
    (
        PostedReviewRow("m", "k", {"event": "popover_opened"}, "bob", "key", None),
        "review",
        {
            "messageId": "m",
            "key": "k",
            "review": {"event": "popover_opened"},
            "clientId": "bob",
            "account": "key",
            "person": None,
        },
        "new",
    ),
    (EndedRun("r", "finished"), "over", {"runId": "r", "outcome": "finished"}, "new"),
    (NodeRequest("cited", None, "n1"), "ask", {"what": "cited", "runId": None, "by": "n1"}, "new"),
]


def _row(kind: str, data: bytes) -> Row:
    return Row("e", 1, 1, "x", kind, data, b"")


@pytest.mark.parametrize(("row", "kind", "stored", "name"), ROWS)
def test_a_row_is_stored_as_it_always_was(row: ThreadRow, kind: str, stored: object, name: str) -> None:
    entry = encode_row(row, "new")

    assert (entry.kind, codec.decode(entry.data), entry.id) == (kind, stored, name)
    assert decode_row(_row(entry.kind, entry.data)) == row


def test_the_start_of_a_run_has_the_id_of_the_run() -> None:
    started = StartedRun(INPUT, "key", "bob", ("state",))

    entry = encode_row(started, "new")

    assert entry.id == input_id("r")
    assert decode_row(_row(entry.kind, entry.data)) == started


def test_a_delta_cut_within_a_character_reads_back() -> None:
    seen = CitationSeen("m", "k", {"fullPhrase": "half \ud83d"})

    entry = encode_row(seen, "new")

    assert decode_row(_row(entry.kind, entry.data)) == seen


@pytest.mark.parametrize(("kind", "data"), [("later", b"{}"), ("record", b'{"type":"of a later version"}')])
def test_rows_of_a_later_version_are_unknown(kind: str, data: bytes) -> None:
    assert decode_row(_row(kind, data)) == UnknownRow(kind)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("over", b'{"runId":"r"}'),
        ("over", b"[]"),
        ("record", b"[]"),
        ("record", b"{}"),
        ("record", b'{"type":"citation"}'),
        ("input", b"{"),
        ("review", b"{}"),
        ("ask", b'{"what":"dance","runId":null,"by":"n"}'),
    ],
)
def test_a_damaged_row_is_an_error(kind: str, data: bytes) -> None:
    with pytest.raises(CitewireError):
        decode_row(_row(kind, data))


def test_an_unknown_row_cannot_be_written() -> None:
    with pytest.raises(CitewireError):
        encode_row(UnknownRow("later"), "new")


@pytest.mark.parametrize(("row", "kind", "stored", "name"), ROWS)
def test_rows_are_told_apart_without_decoding(row: ThreadRow, kind: str, stored: object, name: str) -> None:
    entry = encode_row(row, "new")
    stored_row = _row(entry.kind, entry.data)

    assert is_verdict(stored_row) == isinstance(row, VerdictReached)
    assert (decode_event(stored_row) is not None) == (kind == "event")


@pytest.mark.parametrize("thread", ["t", "a b", "ä/ö", "~", "%", "x" * 160])
def test_channels_name_their_thread(thread: str) -> None:
    assert thread_of(channel_of(thread)) == thread
    assert run_channel(thread) == channel_of(thread)
    assert thread_of_ai_channel(ai_channel(thread)) == thread


@pytest.mark.parametrize("thread", ["", "\ud800", "x" * 600])
def test_an_invalid_thread_id_is_refused(thread: str) -> None:
    with pytest.raises(InputError):
        channel_of(thread)
