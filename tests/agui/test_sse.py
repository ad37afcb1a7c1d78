"""Framing: what the TypeScript client reads and more, however the bytes are cut."""

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.agui import events
from citewire.agui.events import EventError
from citewire.agui.sse import (
    MAX_FRAME,
    PING,
    FrameTooLarge,
    SseFrame,
    SseParser,
    encode_frame,
    split_event_log,
)
from citewire.errors import CitewireError, InputError

Json = dict[str, Any]

STREAM = (
    b'\xef\xbb\xbf: hello\n\nid: 1\nevent: message\ndata: {"a":1}\n\n'
    b"data:one\ndata: two\nretry: 10\n\n: ping\n\nid: 2\n\n" + 'data: "héé 😀 "\n\ndata: last'.encode()
)
FOUND = [
    SseFrame(b'{"a":1}', "1", "message"),
    SseFrame(b"one\ntwo"),
    SseFrame(b"", "2"),
    SseFrame('"héé 😀 "'.encode()),
    SseFrame(b"last"),
]


def read(*pieces: bytes, limit: int = MAX_FRAME) -> list[SseFrame]:
    frames = SseParser(limit)
    return [found for piece in pieces for found in frames.feed(piece)] + frames.finish()


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        pytest.param(b"data: x\n\n", [b"x"], id="plain"),
        pytest.param(b"data:x\n\n", [b"x"], id="no space"),
        pytest.param(b"data:  x \n\n", [b" x "], id="one space only is taken"),
        pytest.param(b"data: x\r\n\r\n", [b"x"], id="CRLF"),
        pytest.param(b"data: x\r\r", [b"x"], id="CR"),
        pytest.param(b"data: x\r\n\ndata: y\n\r", [b"x", b"y"], id="mixed"),
        pytest.param(b"data: x\ndata: y\n\n", [b"x\ny"], id="several lines"),
        pytest.param(b"data: x\n: note\ndata: y\n\n", [b"x\ny"], id="comment within"),
        pytest.param(b"data\ndata\n\n", [b"\n"], id="a field without colon is empty"),
        pytest.param(b"data: x", [b"x"], id="no blank line at the end"),
        pytest.param(b"data: x\r", [b"x"], id="CR at the end"),
        pytest.param(b"\xef\xbb\xbfdata: x\n\n", [b"x"], id="byte order mark"),
        pytest.param(b"\n\n\ndata: x\n\n\n\n", [b"x"], id="blank lines"),
        pytest.param(b"dat: x\n data: y\nnoise\n\n", [], id="other fields"),
        pytest.param(b": only\n\nevent: x\n\nretry: 1\n\n", [], id="nothing to give"),
        pytest.param(b"", [], id="empty"),
        pytest.param(PING, [], id="ping"),
        pytest.param("data: \u2028\x85\n\n".encode(), ["\u2028\x85".encode()], id="other breaks"),
    ],
)  # fmt: skip
def test_frames(stream: bytes, data: list[bytes]) -> None:
    assert [found.data for found in read(stream)] == data


def test_fields_of_a_frame() -> None:
    assert read(STREAM) == FOUND


@given(st.lists(st.integers(0, len(STREAM)), max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_cuts_change_nothing(cuts: list[int], newline: bytes) -> None:
    """Wherever the bytes are cut, inside a character or a CRLF too."""
    stream = STREAM.replace(b"\n", newline)
    edges = [0, *sorted(cuts), len(stream)]
    assert read(*(stream[a:b] for a, b in pairwise(edges))) == FOUND


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_byte_by_byte(newline: bytes) -> None:
    stream = STREAM.replace(b"\n", newline)
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == FOUND


def test_a_frame_is_given_with_its_last_byte() -> None:
    """A CR alone may be all that comes for a while: its LF is not waited for."""
    frames = SseParser()
    assert frames.feed(b"data: x\r\n\r") == [SseFrame(b"x")]
    assert frames.feed(b"\ndata: y\r\n\r\n") == [SseFrame(b"y")]


def test_bytes_that_are_no_utf8_are_replaced_and_flagged() -> None:
    assert read(b"data: a\xffb\n\ndata: \xed\xa0\x80\n\n") == [
        SseFrame("a\ufffdb".encode(), replaced=True),
        SseFrame("\ufffd\ufffd\ufffd".encode(), replaced=True),
    ]


def test_an_id_with_nul_is_ignored() -> None:
    assert read(b"id: a\0b\ndata: x\n\n") == [SseFrame(b"x")]


def test_a_frame_has_a_limit() -> None:
    fits = b"data: " + b"x" * 94
    assert [len(found.data) for found in read(fits, limit=101)] == [94]
    for cut in (1, 7, 1000):
        pieces = [fits[at : at + cut] for at in range(0, len(fits), cut)]
        with pytest.raises(FrameTooLarge, match="frame_too_large"):
            read(*pieces, limit=99)


def test_many_short_lines_have_the_same_limit() -> None:
    with pytest.raises(FrameTooLarge):
        read(*[b"data:\n"] * 20, limit=100)


def test_what_is_not_kept_has_no_limit() -> None:
    assert read(*[b": a comment\n"] * 100, b"data: x\n\n", limit=50) == [SseFrame(b"x")]


def test_frames_before_one_that_is_too_large_are_given() -> None:
    frames = SseParser(limit=20)
    assert frames.feed(b"data: a\n\ndata: b\n\ndata: " + b"x" * 30) == [SseFrame(b"a"), SseFrame(b"b")]
    for _ in range(2):
        with pytest.raises(FrameTooLarge):
            frames.feed(b"data: c\n\n")
    with pytest.raises(FrameTooLarge):
        frames.finish()


def test_a_large_frame_in_small_pieces_takes_linear_time() -> None:
    """10 MB in pieces of a kilobyte: copying the whole for each piece would be 50 GB."""
    piece = b"x" * 1024
    frames = SseParser()
    began = time.process_time()
    frames.feed(b"data: ")
    for _ in range(MAX_FRAME // 1024 - 1):
        assert frames.feed(piece) == []
    (found,) = frames.feed(b"\n\n")
    assert len(found.data) == MAX_FRAME - 1024
    assert time.process_time() - began < 5


EVENT = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "a\nb\u2028😀"}


def test_writes_a_frame() -> None:
    written = encode_frame(events.from_dict(EVENT), "7")
    assert written == b"id: 7\ndata: %b\n\n" % events.encode(events.from_dict(EVENT))
    assert b"\r" not in written
    assert read(written) == [SseFrame(events.encode(events.from_dict(EVENT)), "7")]


def test_writes_json_of_several_lines() -> None:
    """An unknown event keeps its bytes, and they may hold line breaks."""
    unknown = events.decode(b'{\r\n "type":\n"NEW",\r"x": 1}')
    written = encode_frame(unknown)
    assert written == b'data: {\ndata:  "type":\ndata: "NEW",\ndata: "x": 1}\n\n'
    assert json.loads(read(written)[0].data) == {"type": "NEW", "x": 1}


@pytest.mark.parametrize("event_id", ["a\nb", "a\rdata: x", "a\0", "\ud800"])
def test_refuses_ids_that_break_the_frame(event_id: str) -> None:
    with pytest.raises(InputError, match="the id of an event"):
        encode_frame(events.from_dict(EVENT), event_id)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0")))
def test_ids_come_back(event_id: str) -> None:
    assert [found.id for found in read(encode_frame(events.from_dict(EVENT), event_id))] == [event_id]


LOG: list[Json] = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "NEW", "x": [1, {"y": None}]},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("\n".join(map(json.dumps, LOG)), id="lines"),
        pytest.param("\r\n\r\n".join(map(json.dumps, LOG)) + "\r\n", id="lines with blanks"),
        pytest.param("\ufeff  " + "\n".join(map(json.dumps, LOG)), id="lines with a mark"),
        pytest.param(json.dumps(LOG), id="array"),
        pytest.param("\ufeff\n" + json.dumps(LOG, indent=2), id="array over lines"),
        pytest.param("".join(f"data: {json.dumps(event)}\n\n" for event in LOG), id="frames"),
        pytest.param(": hi\r\n\r\n" + "\r\n\r\n".join(f"data:{json.dumps(e)}" for e in LOG), id="CRLF"),
        pytest.param("".join(f"id: {n}\ndata: {json.dumps(e)}\n\n" for n, e in enumerate(LOG)), id="ids"),
    ],
)  # fmt: skip
def test_reads_logs(data: str) -> None:
    assert [
        events.to_dict(events.decode(record))
        for record in split_event_log(data.encode().splitlines(keepends=True))
    ] == LOG


@pytest.mark.parametrize("data", [b"", b" \n\n", b"\xef\xbb\xbf", b"[]", b": nothing yet", b"id: 1\n\n"])
def test_reads_empty_logs(data: bytes) -> None:
    assert list(split_event_log(data.splitlines(keepends=True))) == []


FIRST = json.dumps(LOG[0])


@pytest.mark.parametrize(
    ("data", "last"),
    [
        pytest.param(f"{FIRST}\n\n{{]", b"{]", id="lines"),
        pytest.param(f"data: {FIRST}\n\n: x\n\ndata: [DONE]\n\n", b"[DONE]", id="frames"),
        pytest.param(f"data: {FIRST}\n\nid: 1\ndata: {{", b"{", id="frames: cut"),
        pytest.param(f"[{FIRST}, 5]", b"5", id="list"),
        pytest.param(f'[{FIRST}, {{"type":', b'{"type":', id="list: cut"),
    ],
)
def test_what_is_no_event_is_given_too(data: str, last: bytes) -> None:
    first, second = split_event_log(data.encode().splitlines(keepends=True))
    assert events.decode(first).type == "RUN_STARTED"
    assert second == last


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(b"\n<html>\n<body>", EventError, id="a page"),
        pytest.param(b"data: " + b"x" * (MAX_FRAME + 1), FrameTooLarge, id="a frame without end"),
        pytest.param(b"{" + b"x" * (MAX_FRAME + 1), FrameTooLarge, id="a line without end"),
    ],
)
def test_what_is_no_log_is_refused(data: bytes, error: type[CitewireError]) -> None:
    with pytest.raises(error):
        list(split_event_log(data.splitlines(keepends=True)))
