"""The harness around the real client: what it is asked is what it answers."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.agui_node import RealClient

STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


@pytest.fixture(scope="module")
def client() -> Iterator[RealClient]:
    with RealClient() as client:
        yield client


def says(*deltas: str) -> list[dict[str, Any]]:
    start, end = ({"type": f"TEXT_MESSAGE_{kind}", "messageId": "m"} for kind in ("START", "END"))
    content = [{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": delta} for delta in deltas]
    return [start, *content, end]


def test_legal_stream(client: RealClient) -> None:
    """Starting points are taken, unknown members stripped, and half a surrogate pair gets through."""
    stream = [STARTED, *says("a\u2028", "\ud83d", "\ude00"), FINISHED | {"novel": 1}]
    earlier = {"id": "u", "role": "user", "content": "?"}
    answer = client.run(stream, messages=[earlier], state={"kept": None})
    assert (answer["outcome"], answer["error"]) == ("completed", None)
    assert answer["events"] == [*stream[:-1], FINISHED]
    assert [message["content"] for message in answer["messages"]] == ["?", "a\u2028\U0001f600"]
    assert answer["state"] == {"kept": None}
    assert "'/novel'" in answer["warnings"][0]


def test_everything_before_an_illegal_event_is_applied(client: RealClient) -> None:
    """However late it comes."""
    answer = client.run([STARTED, *says(*"x" * 2_000), FINISHED, *says("late")])
    assert answer["outcome"] == "failed"
    assert answer["error"] is not None
    assert answer["error"].startswith("Cannot send event type 'TEXT_MESSAGE_START': The run has already")
    assert answer["messages"] == [{"id": "m", "role": "assistant", "content": "x" * 2_000}]
    assert answer["events"][-1] == FINISHED


def test_failed_patch_is_a_warning(client: RealClient) -> None:
    patch = {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/none"}]}
    answer = client.run([STARTED, patch, FINISHED], state={"a": 1})
    assert (answer["outcome"], answer["state"]) == ("completed", {"a": 1})
    assert [text.partition("\n")[0] for text in answer["warnings"]] == ["Failed to apply state patch:"]


def test_interrupts(client: RealClient) -> None:
    interrupts = [{"id": "i", "reason": "approval"}]
    finished = FINISHED | {"outcome": {"type": "interrupt", "interrupts": interrupts}}
    assert client.run([STARTED, finished])["pendingInterrupts"] == interrupts


def test_many_streams_share_nothing(client: RealClient) -> None:
    """Large enough to fill the pipes both ways; the empty stream has an answer too."""
    texts = ["", *(str(number) * 50_000 for number in range(40))]
    answers = client.run_many({"stream": [STARTED, *says(text), FINISHED] if text else []} for text in texts)
    kept = ["".join(message["content"] for message in answer["messages"]) for answer in answers]
    assert kept == texts


def test_a_client_that_failed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with RealClient() as client:
        with pytest.raises(ConnectionError, match="ended early"):
            client.run_many([{"no": "stream"}])
        monkeypatch.setattr("support.agui_node.DEADLINE", 0)
        with pytest.raises(TimeoutError):
            client.run([])
        monkeypatch.undo()
        assert client.run([])["outcome"] == "completed"
