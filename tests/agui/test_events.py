"""Every event is read as what it is and written as it came; what is none raises an error of ours."""

from __future__ import annotations

import importlib.util
import json
import re
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from citewire import codec
from citewire.agui import events as ev
from citewire.agui.events import Event, EventError, MalformedEvent, UnknownEvent
from citewire.errors import CitewireError, DecodeError, InputError
from support.cases import need
from support.strategies import any_text

Json = dict[str, Any]

# What every event may carry, and what most may.
BASE: Json = {"timestamp": 1794768559562, "rawEvent": {"a": [None]}, "metadata": {"k": None}}
OWNED: Json = {**BASE, "subagentRunId": "s1"}
RUN_INPUT: Json = {"threadId": "t", "runId": "r", "messages": []}
PATCH = [{"op": "add", "path": "/a", "value": 1}]
# By type: what it must have, and what it may have.
WIRE: dict[str, tuple[Json, Json]] = {
    "RUN_STARTED": (
        {"threadId": "t", "runId": "r"},
        {"protocolVersion": "1.0", "parentRunId": "p", "input": RUN_INPUT, **BASE},
    ),
    "RUN_FINISHED": (
        {"threadId": "t", "runId": "r"},
        {"result": [1], "outcome": {"type": "success"}, "usage": [{"model": "m"}], **BASE},
    ),
    "RUN_ERROR": ({"message": "no"}, {"code": "x", "usage": [], **BASE}),
    "STEP_STARTED": ({"stepName": "plan"}, OWNED),
    "STEP_FINISHED": ({"stepName": "plan"}, OWNED),
    "TEXT_MESSAGE_START": ({"messageId": "m"}, {"role": "user", "name": "Ann", **OWNED}),
    "TEXT_MESSAGE_CONTENT": ({"messageId": "m", "delta": ""}, OWNED),
    "TEXT_MESSAGE_END": ({"messageId": "m"}, OWNED),
    "TEXT_MESSAGE_CHUNK": ({}, {"messageId": "m", "role": "system", "delta": "é😀", "name": "Ann", **OWNED}),
    "TOOL_CALL_START": ({"toolCallId": "t", "toolCallName": "look"}, {"parentMessageId": "m", **OWNED}),
    "TOOL_CALL_ARGS": ({"toolCallId": "t", "delta": '{"q":'}, OWNED),
    "TOOL_CALL_END": ({"toolCallId": "t"}, OWNED),
    "TOOL_CALL_CHUNK": (
        {},
        {"toolCallId": "t", "toolCallName": "look", "parentMessageId": "m", "delta": "{}", **OWNED},
    ),
    "TOOL_CALL_RESULT": (
        {"messageId": "m", "toolCallId": "t", "content": [{"type": "text", "text": "hi"}]},
        {"role": "tool", **OWNED},
    ),
    "STATE_SNAPSHOT": ({"snapshot": None}, OWNED),
    "STATE_DELTA": ({"delta": PATCH}, OWNED),
    "MESSAGES_SNAPSHOT": ({"messages": [{"id": "m", "role": "user", "content": "hi"}]}, BASE),
    "ACTIVITY_SNAPSHOT": (
        {"messageId": "m", "activityType": "plan", "content": {"a": 1}},
        {"replace": False, **OWNED},
    ),
    "ACTIVITY_DELTA": ({"messageId": "m", "activityType": "plan", "patch": PATCH}, OWNED),
    "RAW": ({"event": {"any": [1.5]}}, {"source": "agno", **OWNED}),
    "CUSTOM": ({"name": "x", "value": None}, OWNED),
    "REASONING_START": ({"messageId": "m"}, OWNED),
    "REASONING_MESSAGE_START": ({"messageId": "m", "role": "reasoning"}, OWNED),
    "REASONING_MESSAGE_CONTENT": ({"messageId": "m", "delta": "hm"}, OWNED),
    "REASONING_MESSAGE_END": ({"messageId": "m"}, OWNED),
    "REASONING_MESSAGE_CHUNK": ({}, {"messageId": "m", "delta": "hm", **OWNED}),
    "REASONING_END": ({"messageId": "m"}, OWNED),
    "REASONING_ENCRYPTED_VALUE": ({"subtype": "message", "entityId": "m", "encryptedValue": "AA=="}, OWNED),
    "SUBAGENT_STARTED": (
        {"subagentRunId": "s", "name": "helper"},
        {
            "description": "d",
            "parentSubagentRunId": "p",
            "parentToolCallId": "t",
            "parentMessageId": "m",
            **BASE,
        },
    ),
    "SUBAGENT_FINISHED": ({"subagentRunId": "s"}, {"result": 0, "outcome": {"type": "success"}, **BASE}),
    "SUBAGENT_ERROR": ({"subagentRunId": "s", "message": "no"}, {"code": "x", **BASE}),
}
RETIRED: dict[str, tuple[Json, Json]] = {
    "THINKING_START": ({}, {"title": "t", **OWNED}),
    "THINKING_END": ({}, OWNED),
    "THINKING_TEXT_MESSAGE_START": ({}, OWNED),
    "THINKING_TEXT_MESSAGE_CONTENT": ({"delta": "hm"}, OWNED),
    "THINKING_TEXT_MESSAGE_END": ({}, OWNED),
}


def payloads(*tables: dict[str, tuple[Json, Json]]) -> list[Any]:
    """Each event with only what it must have, with all it may have, and the latter in another order."""
    listed: list[Any] = []
    for name, (needed, optional) in (row for table in tables for row in table.items()):
        least: Json = {"type": name, **needed}
        listed.append(pytest.param(least, id=f"{name} least"))
        listed.append(pytest.param(least | optional, id=f"{name} most"))
        listed.append(pytest.param({**dict(reversed(optional.items())), **least}, id=f"{name} shuffled"))
    return listed


def test_the_tables_name_every_event() -> None:
    assert len(WIRE) == 31
    assert {**WIRE, **RETIRED}.keys() == ev.TYPES.keys()


@pytest.mark.parametrize("payload", payloads(WIRE, RETIRED))
def test_an_event_is_typed_and_written_as_it_was(payload: Json) -> None:
    data = codec.encode(payload)
    event = ev.decode(data)
    assert type(event) is ev.TYPES[payload["type"]]
    assert ev.is_typed(event)
    assert event.type == payload["type"]
    assert not event.extra
    assert ev.to_dict(event) == payload
    assert codec.decode(ev.encode(event)) == payload
    assert ev.decode(ev.encode(event)) == event
    assert ev.decode(json.dumps(payload, indent=3)) == event
    assert (
        ev.from_dict(payload) == ev.coerce(payload) == ev.coerce(event) == ev.coerce(data.decode()) == event
    )


@pytest.mark.parametrize("payload", payloads(WIRE, RETIRED))
def test_wire_names_are_camel_case_of_ours(payload: Json) -> None:
    event = ev.decode(codec.encode(payload))
    for name, value in payload.items():
        if name != "type":
            ours = re.sub("[A-Z]", lambda upper: f"_{upper[0].lower()}", name)
            assert getattr(event, ours) == value
    said = {name for name in event.__struct_fields__ if name != "extra" and getattr(event, name) is not UNSET}
    assert len(said) == len(payload) - 1


@pytest.mark.parametrize("payload", payloads(WIRE, RETIRED))
def test_events_do_not_change(payload: Json) -> None:
    event = ev.decode(codec.encode(payload))
    with pytest.raises(AttributeError):
        setattr(event, "timestamp", 1)  # noqa: B010  # what a type checker would refuse


# What no parser of ours may touch: the text of a number, spaces, order, escapes, repeated keys.
VERBATIM = [
    b"1.10",
    b"1e400",
    b"-0.0",
    b"1E+2",
    b"123456789012345678901234567890",
    b"9" * 5000,
    b'{ "b" : [ 1.0 ,\t2 ] , "a":{}}',
    b'{"a":1,"a":2}',
    b'"\\u00e9\\/\\ud83d\\ude00 \xc3\xa9"',
    b'"\\ud83d"',
    b"null",
    b"[[[[]]]]",
]


@pytest.mark.parametrize("value", VERBATIM, ids=lambda value: value[:20].decode())
def test_unknown_types_are_kept_byte_for_byte(value: bytes) -> None:
    data = b' {"value": %b ,\n "type" : "NEW_IN_1_7" , "type2":0} ' % value
    event = ev.decode(data)
    assert event == UnknownEvent("NEW_IN_1_7", data)
    assert not ev.is_typed(event)
    assert ev.encode(event) == data
    assert ev.encode(ev.coerce(event)) == data


@pytest.mark.parametrize("value", VERBATIM, ids=lambda value: value[:20].decode())
def test_unknown_fields_are_kept_byte_for_byte(value: bytes) -> None:
    data = b'{"type":"TEXT_MESSAGE_END","newer":%b,"messageId":"m","new \\" est":%b}' % (value, value)
    event = ev.decode(data)
    assert isinstance(event, ev.TextMessageEnd)
    assert event.message_id == "m"
    assert event.extra
    assert {name: bytes(raw) for name, raw in event.extra.items()} == {"newer": value, 'new " est': value}
    assert ev.encode(event) == (
        b'{"type":"TEXT_MESSAGE_END","messageId":"m","newer":%b,"new \\" est":%b}' % (value, value)
    )
    assert ev.encode(ev.decode(ev.encode(event))) == ev.encode(event)


def test_an_unknown_field_of_an_event_with_nothing_else() -> None:
    assert ev.encode(ev.decode(b'{"type":"THINKING_END","x":1.10}')) == b'{"type":"THINKING_END","x":1.10}'


@pytest.mark.parametrize("value", ["null", "{}", '{"a":1.10}', "5"])
def test_a_field_called_like_ours_is_one_we_do_not_know(value: str) -> None:
    data = f'{{"type":"RUN_ERROR","message":"x","citewire:extra":{value}}}'.encode()
    assert ev.encode(ev.decode(data)) == data


@pytest.mark.parametrize("value", ["123456789012345678901234567890", "1.5", "[-0.0]"])
def test_a_number_of_a_known_field_is_not_lost(value: str) -> None:
    """One that no float holds is read as infinite and written as null, as JavaScript does."""
    written = ev.encode(ev.decode(f'{{"type":"STATE_SNAPSHOT","snapshot":{value}}}'))
    assert json.loads(written)["snapshot"] == json.loads(value)


TEXT = (
    "messageId",
    "toolCallId",
    "delta",
    "stepName",
    "name",
    "threadId",
    "runId",
    "message",
    "toolCallName",
)
WRONG: dict[str, list[Any]] = {
    **{name: [None, 5, True, [], {}] for name in TEXT},
    "timestamp": [None, 1.5, "12", True, 2**53, -(2**53), 1e300, [1]],
    "metadata": [None, [], "x", 1],
    "subagentRunId": [None, 1],
    "role": [None, "robot", 5, "\ud800"],
    "parentMessageId": [5, []],
    "protocolVersion": [None, 1.0],
    "input": [None, [], "x"],
    "outcome": ["success", []],
    "usage": [None, {}],
    "messages": [None, {}, "x"],
    "patch": [None, {}],
    "replace": [None, 1, "false"],
    "subtype": [None, "other", "\ud83d"],
    "content": [None, 5],
    "ACTIVITY_SNAPSHOT content": [None, [], "x"],
    "STATE_DELTA delta": [None, {}, "x"],
}


def wrong_fields() -> list[Any]:
    listed: list[Any] = []
    for name, (needed, optional) in {**WIRE, **RETIRED}.items():
        whole: Json = {"type": name, **needed, **optional}
        for field in needed:
            without = {key: value for key, value in whole.items() if key != field}
            listed.append(pytest.param(without, field, id=f"{name} without {field}"))
        for field in whole:
            values = WRONG.get(f"{name} {field}", WRONG.get(field, []))
            listed += [
                pytest.param(whole | {field: value}, field, id=f"{name} {field} {value!r}")
                for value in values
            ]
    return listed


@pytest.mark.parametrize(("payload", "field"), wrong_fields())
def test_a_wrong_field_is_kept_and_named(payload: Json, field: str) -> None:
    data = json.dumps(payload | {"x": 1}, indent=1).encode()
    event = ev.decode(data)
    assert isinstance(event, MalformedEvent)
    assert event.type == payload["type"]
    assert event.raw == ev.encode(event) == data
    assert event.fields == ev.to_dict(event) == payload | {"x": 1}
    assert field in event.reason or "surrogates" in event.reason
    assert not ev.is_typed(event)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        pytest.param("RUN_ERROR", "rawEvent", None, id="rawEvent null"),
        pytest.param("RUN_FINISHED", "result", None, id="result null"),
        pytest.param("RUN_FINISHED", "outcome", None, id="outcome null"),
        pytest.param("SUBAGENT_FINISHED", "result", None, id="result of a subagent null"),
        pytest.param("TOOL_CALL_START", "parentMessageId", None, id="parentMessageId null"),
        pytest.param("TOOL_CALL_CHUNK", "parentMessageId", None, id="parentMessageId of a chunk null"),
        pytest.param("STATE_SNAPSHOT", "snapshot", None, id="snapshot null"),
        pytest.param("CUSTOM", "value", None, id="value null"),
        pytest.param("RAW", "event", None, id="event null"),
        pytest.param("RUN_ERROR", "metadata", {"a": None}, id="null within metadata"),
        pytest.param("RUN_ERROR", "timestamp", -(2**53) + 1, id="the least timestamp"),
        pytest.param("RUN_ERROR", "timestamp", 2**53 - 1, id="the greatest timestamp"),
        pytest.param("TEXT_MESSAGE_START", "messageId", "", id="an empty id"),
        pytest.param("STATE_SNAPSHOT", "snapshot", 5, id="a number as state"),
        pytest.param("TOOL_CALL_RESULT", "content", "", id="a result that is text"),
    ],
)
def test_what_looks_wrong_and_is_not(name: str, field: str, value: Any) -> None:
    payload = {"type": name, **WIRE[name][0], field: value}
    event = ev.from_dict(payload)
    assert ev.is_typed(event)
    assert ev.to_dict(event) == payload


def test_a_whole_float_is_an_integer() -> None:
    event = ev.decode(b'{"type":"RUN_ERROR","message":"x","timestamp":12.0}')
    assert event == ev.RunError("x", timestamp=12)


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b" ", id="a space"),
        pytest.param(b"[DONE]", id="no JSON"),
        pytest.param(b"<html>", id="a page"),
        pytest.param(b'{"type":"RUN_ERROR","message":"x"', id="cut off"),
        pytest.param(b'{"type":"RUN_ERROR","message":"x"}}', id="more behind it"),
        pytest.param(b'{"type":"RUN_ERROR","message":"x"}{}', id="two values"),
        pytest.param(b'{"type":"NEW","x":01}', id="no number"),
        pytest.param(b'{"type":"NEW","x":NaN}', id="NaN"),
        pytest.param(b'{"type":"NEW","x":"\n"}', id="a bare newline in text"),
        pytest.param(b'{"type":"NEW","x":"\\x"}', id="no escape"),
        pytest.param(b'{"type":"RUN_ERROR","message":"\xff"}', id="no UTF-8"),
        pytest.param(b'{"type":"RUN_ERROR","message":"x","more":"\xff"}', id="no UTF-8 in an unknown field"),
        pytest.param(b'{"type":"RUN_ERROR","message":"x","\xff":1}', id="no UTF-8 in a name"),
        pytest.param(b'{"type":"NEW","x":"\xff"}', id="no UTF-8 in an unknown event"),
        pytest.param(b'{"type":"NEW\xff"}', id="no UTF-8 in the type"),
        pytest.param(b'{"type":"RUN_ERROR","message":"\xed\xa0\xbd"}', id="a surrogate as UTF-8"),
        pytest.param(b'{"type":"RUN_ERROR","message":"x","more":"\xed\xa0\xbd"}', id="in an unknown field"),
        pytest.param(b'{"type":"NEW","x":"\xed\xa0\xbd"}', id="in an unknown event"),
        pytest.param('{"type":"RUN_ERROR","message":"x"}'.encode("utf-16"), id="UTF-16 with its mark"),
        pytest.param('{"type":"RUN_ERROR","message":"x"}'.encode("utf-16-le"), id="UTF-16"),
        pytest.param('{"type":"NEW"}'.encode("utf-32"), id="UTF-32"),
        pytest.param(DEEP, id="deep"),
        pytest.param(b'{"type":"NEW","x":' + DEEP, id="deep and cut"),
        pytest.param(
            b'{"type":"CUSTOM","name":"x","value":%b%b}' % (DEEP, b"]" * len(DEEP)), id="deep value"
        ),
        pytest.param(b'{"type":"NEW","value":%b%b}' % (DEEP, b"]" * len(DEEP)), id="deep and unknown"),
        pytest.param(
            b'{"type":"RUN_ERROR","message":"","x":%b%b}' % (DEEP, b"]" * len(DEEP)), id="deep field"
        ),
    ],
)
def test_what_is_no_json(data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        ev.decode(data)
    assert caught.value.code == "bad_json"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"[]", id="an array"),
        pytest.param(b"null", id="null"),
        pytest.param(b"5", id="a number"),
        pytest.param(b'"RUN_STARTED"', id="a string"),
        pytest.param(b"{}", id="no type"),
        pytest.param(b'{"Type":"RUN_STARTED"}', id="another spelling"),
        pytest.param(b'{"type":null}', id="type null"),
        pytest.param(b'{"type":5}', id="type a number"),
        pytest.param(b'{"type":["CUSTOM"]}', id="type a list"),
        pytest.param(b'{"type":""}', id="type empty"),
    ],
)
def test_what_is_json_and_no_event(data: bytes) -> None:
    with pytest.raises(EventError) as caught:
        ev.decode(data)
    assert caught.value.code == "bad_event"
    assert isinstance(caught.value, InputError)
    assert caught.value.path in {"$", "$.type"}


@pytest.mark.parametrize("depth", [100, 300, 600, 900, 950, 990, 1010])
def test_depths_that_may_or_may_not_be_read(depth: int) -> None:
    """Near the limit of the interpreter it is either read and written, or refused with an error of ours."""
    nested = b"[" * depth + b"]" * depth
    for data in (
        b'{"type":"CUSTOM","name":"x","value":%b}' % nested,
        b'{"type":"RUN_ERROR","message":"\\ud83d","rawEvent":%b}' % nested,
        b'{"type":"RUN_ERROR","message":"x","more":%b}' % nested,
        b'{"type":"RUN_ERROR","message":5,"rawEvent":%b}' % nested,
        b'{"type":"NEW","value":%b}' % nested,
    ):
        try:
            event = ev.decode(data)
            assert ev.encode(event) == data
            ev.to_dict(event)
        except CitewireError:
            assert depth > 300


def type_name(value: object) -> str:
    """Ids of tests are the same in every process."""
    return type(value).__name__


HALF, OTHER_HALF = "\ud83d", "\ude00"


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": f"a{HALF}"}, id="text"),
        pytest.param({"type": "TEXT_MESSAGE_CONTENT", "messageId": OTHER_HALF, "delta": ""}, id="an id"),
        pytest.param({"type": "TOOL_CALL_ARGS", "toolCallId": "t", "delta": OTHER_HALF}, id="arguments"),
        pytest.param({"type": "STATE_SNAPSHOT", "snapshot": {HALF: [OTHER_HALF]}}, id="a key"),
        pytest.param({"type": "CUSTOM", "name": HALF, "value": [1.5, 2**70]}, id="beside numbers"),
        pytest.param({"type": "RUN_ERROR", "message": "x", "more": HALF}, id="an unknown field"),
        pytest.param({"type": "RUN_ERROR", "message": "x", HALF: 1}, id="the name of an unknown field"),
        pytest.param({"type": "RUN_ERROR", "message": 5, "code": HALF}, id="a malformed event"),
        pytest.param({"type": "NEW", "x": HALF}, id="an unknown event"),
        pytest.param({"type": HALF}, id="an unknown type"),
    ],
)
def test_half_of_a_surrogate_pair_is_kept(payload: Json) -> None:
    """A text may be cut anywhere; its other half comes with the next event."""
    event = ev.decode(json.dumps(payload))
    assert event.type == payload["type"]
    assert ev.to_dict(event) == payload
    assert json.loads(ev.encode(event)) == payload
    assert ev.decode(ev.encode(event)) == event
    with suppress(DecodeError):  # as it stands in text, which nothing could write as UTF-8, it may be refused
        event = ev.decode(json.dumps(payload, ensure_ascii=False))
        assert ev.to_dict(event) == payload
        ev.encode(event).decode()


@pytest.mark.parametrize("name", ["delta", "messageId", "rawEvent", "more"])
def test_half_of_a_pair_in_a_dict(name: str) -> None:
    """As JSON it is taken, so as a dict it is."""
    payload = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "", name: f"a{HALF}"}
    assert ev.to_dict(ev.coerce(payload)) == payload


def test_half_of_a_pair_beside_a_number_that_no_float_holds() -> None:
    """Whatever becomes of the number, what is written is JSON."""
    for data in (
        b'{"type":"CUSTOM","name":"\\ud83d","value":1e400}',
        b'{"type":"RUN_ERROR","message":"","\\ud83d":1e400}',
    ):
        try:
            written = ev.encode(ev.decode(data))
        except CitewireError:
            continue
        codec.decode_with_surrogates(written)


@pytest.mark.parametrize(
    "value", [None, 5, 1.5, [], (), object(), bytearray(b"{}"), Event, print], ids=type_name
)
def test_what_cannot_be_an_event(value: object) -> None:
    with pytest.raises(EventError):
        ev.coerce(value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"type": "CUSTOM", "name": "x", "value": object()}, id="an object of Python"),
        pytest.param({"type": "CUSTOM", "name": "x", "value": {object(): 1}}, id="as a key"),
        pytest.param({"type": object()}, id="as the type"),
        pytest.param({"type": None}, id="type None"),
        pytest.param({}, id="empty"),
        pytest.param({1: 2}, id="a number as a key"),
    ],
)
def test_a_dict_that_is_no_json_or_no_event(value: Json) -> None:
    with pytest.raises(CitewireError):
        ev.coerce(value)


def test_ours_are_taken_as_they_are() -> None:
    for event in (
        ev.TextMessageEnd("m"),
        UnknownEvent("NEW", b"{}"),
        MalformedEvent("RUN_ERROR", {}, "x", b"{}"),
    ):
        assert ev.coerce(event) is event


numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
extras = st.dictionaries(any_text | st.sampled_from(["type", "messageId", "delta", "metadata"]), values)
names = st.sampled_from([*ev.TYPES, "NEW"]) | any_text


@given(names, extras)
def test_any_object_with_a_type_is_an_event(name: str, fields: Json) -> None:
    """It is read without another error than ours, and written as the same JSON."""
    payload = {**fields, "type": name}
    try:
        event = ev.decode(json.dumps(payload))
    except CitewireError:
        assert not name
        return
    assert event.type == name
    assert ev.to_dict(event) == payload
    assert json.loads(ev.encode(event)) == payload
    assert ev.decode(ev.encode(event)) == event


@given(
    st.sampled_from(sorted({**WIRE, **RETIRED})),
    st.dictionaries(any_text, values, max_size=3),
    st.data(),
)
def test_an_event_with_one_field_of_any_value(name: str, more: Json, data: st.DataObject) -> None:
    needed, optional = {**WIRE, **RETIRED}[name]
    field = data.draw(st.sampled_from([*needed, *optional]))
    payload = {**more, **needed, **optional, field: data.draw(values), "type": name}
    event = ev.decode(json.dumps(payload))
    assert isinstance(event, ev.TYPES[name] | MalformedEvent)
    assert ev.to_dict(event) == payload
    assert json.loads(ev.encode(event)) == payload


@given(st.binary(max_size=60) | st.binary(max_size=20).map(lambda junk: b'{"type":"CUSTOM","name":"' + junk))
def test_any_bytes_are_an_event_or_an_error_of_ours(data: bytes) -> None:
    with suppress(CitewireError):
        ev.decode(data)


# The models of ag-ui-protocol


def need_models() -> Any:
    present = importlib.util.find_spec("ag_ui") is not None
    need("ag-ui-protocol", present, "install it, or the group `agents` of pyproject.toml")
    return importlib.import_module("ag_ui.core")


@pytest.mark.parametrize("payload", payloads(WIRE))
def test_models_are_taken_and_given(payload: Json) -> None:
    core = need_models()
    event = ev.from_dict(payload)
    model = ev.to_model(event)
    assert isinstance(model, core.BaseEvent)
    assert type(model).__name__ == f"{type(event).__name__.removesuffix('Event')}Event"
    assert ev.coerce(model) == event


def test_models_with_fields_that_they_do_not_know() -> None:
    core = need_models()
    model = core.TextMessageEndEvent(message_id="m", newer={"a": 1.5})
    event = ev.coerce(model)
    assert isinstance(event, ev.TextMessageEnd)
    assert event.extra
    assert bytes(event.extra["newer"]) == b'{"a":1.5}'
    assert ev.to_model(event) == model


def test_models_leave_out_what_is_none() -> None:
    core = need_models()
    model = core.TextMessageStartEvent(message_id="m", role="assistant", name=None, timestamp=None)
    assert ev.coerce(model) == ev.TextMessageStart("m", "assistant")


@pytest.mark.parametrize(
    "data",
    [
        *(
            pytest.param(json.dumps({"type": name, **needed}), id=name)
            for name, (needed, _) in RETIRED.items()
        ),
        pytest.param('{"type":"CITATION_ADDED"}', id="unknown"),
        pytest.param('{"type":"RUN_ERROR","message":5}', id="malformed"),
        pytest.param(
            '{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"x"}}', id="outcome"
        ),
        pytest.param('{"type":"STATE_DELTA","delta":[{"op":"upsert","path":""}]}', id="operation"),
        pytest.param('{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"x"}]}', id="role"),
        pytest.param('{"type":"RUN_ERROR","message":"\\ud83d"}', id="half a pair"),
    ],
)
def test_what_the_models_refuse(data: str) -> None:
    need_models()
    with pytest.raises(EventError) as caught:
        ev.to_model(ev.decode(data))
    assert json.loads(data)["type"] in caught.value.message


@pytest.mark.parametrize("value", [object(), "\ud83d", {1: object()}, float("nan")], ids=type_name)
def test_models_that_cannot_be_written(value: Any) -> None:
    """What a model holds is not checked when it is made, so it may have no JSON; that is an error of ours."""
    model = need_models().CustomEvent(name="x", value=value)
    try:
        event = ev.coerce(model)
    except CitewireError:
        return
    assert isinstance(event, ev.Custom)


def test_a_model_of_something_else() -> None:
    core = need_models()
    with pytest.raises(EventError):
        ev.coerce(core.UserMessage(id="u", content="hi"))


def test_a_run_input_is_what_the_models_take() -> None:
    core = need_models()
    run_input = ev.RunInput(
        thread_id="t", run_id="r", messages=[{"id": "u", "role": "user", "content": "hi"}]
    )
    written = msgspec.json.encode(run_input)
    assert json.loads(written) == {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "u", "role": "user", "content": "hi"}],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
        "protocolVersion": "1.0",
    }
    assert core.RunAgentInput.model_validate_json(written).thread_id == "t"
