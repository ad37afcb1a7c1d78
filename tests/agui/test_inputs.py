"""What a client posts to start a run is checked before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from citewire.agui.events import RunInput
from citewire.agui.inputs import check_input, check_messages
from citewire.errors import ShapeError
from support.agui_collisions import Collisions

USER: dict[str, Any] = {"id": "u", "role": "user", "content": "What?"}
TOOL = {"name": "look", "description": "Looks."}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}


NO_MESSAGES: list[tuple[Any, str]] = [
    (5, ""),
    (None, ""),
    ("hello", ""),
    (list[Any](), ""),
    (dict[str, Any](), ".role"),
    ({"id": "m", "content": "x"}, ".role"),
    ({**USER, "role": "oracle"}, ".role"),
    ({**USER, "role": ["user"]}, ".role"),
    ({**USER, "id": 5}, ".id"),
    ({**USER, "id": None}, ".id"),
    ({**USER, "id": ""}, ".id"),
    ({"role": "user", "content": "x"}, ".id"),
    ({"id": "u", "role": "user"}, ".content"),
    ({**USER, "content": 5}, ".content"),
    ({**USER, "content": {"text": "x"}}, ".content"),
    ({**USER, "content": ["x"]}, ".content[0]"),
    ({**USER, "content": [{"type": "text"}]}, ".content[0].text"),
    ({"id": "a", "role": "assistant", "content": []}, ".content"),
    ({"id": "a", "role": "assistant", "toolCalls": {}}, ".toolCalls"),
    ({"id": "a", "role": "assistant", "toolCalls": [{"function": {}}]}, ".toolCalls[0].function.name"),
    ({"id": "a", "role": "assistant", "toolCalls": [{**CALL, "id": 1}]}, ".toolCalls[0].id"),
    ({"id": "t", "role": "tool", "content": "x"}, ".toolCallId"),
]


@pytest.mark.parametrize(("message", "path"), NO_MESSAGES)
def test_an_entry_that_is_no_message(message: Any, path: str) -> None:
    """The path says which entry, and what of it."""
    with pytest.raises(ShapeError) as caught:
        check_messages([USER, message])
    assert caught.value.path == f"$.messages[1]{path}"


@pytest.mark.parametrize(
    "message",
    [
        USER,
        {**USER, "novel": 1, "name": None, "metadata": None},
        {**USER, "content": [{"type": "text", "text": "hi"}, {"type": "hologram", "x": 1}]},
        {**USER, "content": [{"type": "binary", "mimeType": "image/png", "url": "https://example.com/a"}]},
        {"id": "a", "role": "assistant"},
        {"id": "a", "role": "assistant", "content": None, "toolCalls": None},
        {"id": "a", "role": "assistant", "content": "", "toolCalls": [{**CALL, "encryptedValue": None}]},
        {"id": "t", "role": "tool", "content": "x", "toolCallId": "c", "error": None},
        {"id": "s", "role": "system", "content": "x"},
        {"id": "r", "role": "reasoning", "content": "x"},
        {"id": "x", "role": "activity", "activityType": "y", "content": {}},
    ],
)
def test_what_clients_of_any_version_send(message: dict[str, Any]) -> None:
    check_messages([message])


def posted(**lists: Any) -> RunInput:
    return RunInput(thread_id="t", run_id="r", **lists)


@pytest.mark.parametrize(
    ("name", "entry", "path"),
    [
        ("tools", 5, ""),
        ("tools", {"description": "x"}, ".name"),
        ("tools", {"name": "look"}, ".description"),
        ("tools", {**TOOL, "metadata": 5}, ".metadata"),
        ("context", 5, ""),
        ("context", {"description": "a"}, ".value"),
        ("context", {"description": "a", "value": 5}, ".value"),
        ("resume", None, ""),
        ("resume", {"interruptId": 5, "status": "resolved"}, ".interruptId"),
        ("resume", {"interruptId": "i"}, ".status"),
        ("resume", {"interruptId": "i", "status": "perhaps"}, ".status"),
        ("messages", 5, ""),
    ],
)
def test_an_entry_of_another_list(name: str, entry: Any, path: str) -> None:
    with pytest.raises(ShapeError) as caught:
        check_input(posted(**{name: [entry]}))
    assert caught.value.path == f"$.{name}[0]{path}"


def test_lists_that_clients_send() -> None:
    check_input(posted())
    check_input(
        posted(
            messages=[USER],
            tools=[TOOL, {**TOOL, "parameters": {"type": "object", "default": None}, "novel": 1}],
            context=[{"description": "", "value": "", "novel": None}],
            resume=[
                {"interruptId": "i", "status": "resolved", "payload": None},
                {"interruptId": "j", "status": "cancelled", "metadata": None},
            ],
        )
    )


def test_messages_of_random_streams() -> None:
    streams = Collisions(3)
    for _ in range(200):
        check_messages(each for each in streams.make()["messages"] if each["id"])
