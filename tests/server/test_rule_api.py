"""Rules of channels: where they come from, which counts, and that they hold at once and for good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from citewire.channels.channels import Channels
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.rules import Rule, Rules, is_pattern, seconds_of
from citewire.server.ably.codec import FrameAction
from citewire.server.access.capability import FULL
from citewire.server.access.keys import Caller
from citewire.server.bridge.rule_api import RuleApi
from citewire.server.http.operations import ApiCall
from citewire.server.ops.settings import PatternRule, SettingError, Settings, read_toml
from support.ably_socket import Socket
from support.app import App, opened_app

MUTABLE = Rule(mutable=True)


# What a rule is for, and which one counts


@pytest.mark.parametrize("text", ["*", "ai:*", "ai", "ai:x", "ai:x:y", "support desk:*", "a=b", "ü:*"])
def test_patterns(text: str) -> None:
    assert is_pattern(text)


@pytest.mark.parametrize(
    "text", ["", ":", ":*", "**", "ai*", "ai:x:*", "*:x", "a:*:b", "[x", "a\nb", "a\0", "\ud800", "x" * 257]
)
def test_what_no_rule_can_be_for(text: str) -> None:
    assert not is_pattern(text)


@given(st.text(max_size=20))
def test_a_pattern_counts_for_what_it_names(text: str) -> None:
    """Whatever is a pattern has channels for which its rule counts."""
    if is_pattern(text):
        channel = text.removesuffix(":*") if text != "*" else "anything"
        assert Rules({text: Rule(retention="7d")}).of(channel).retention == "7d"


@pytest.mark.parametrize(
    ("given_rules", "channel", "mutable", "retention"),
    [
        ({}, "ai:x", True, "none"),
        ({}, "x", False, "none"),
        # What a rule does not say, the next one does.
        ({"ai:*": Rule(retention="1d")}, "ai:x", True, "1d"),
        ({"*": Rule(retention="1d")}, "ai:x", True, "1d"),
        ({"ai:x": Rule(retention="1h"), "*": Rule(retention="1d")}, "ai:x", True, "1h"),
        ({"ai:x": Rule(retention="none"), "*": Rule(retention="1d")}, "ai:x", True, "none"),
        # The nearest counts, also against what is built in.
        ({"*": Rule(mutable=False)}, "ai:x", True, "none"),
        ({"ai:*": Rule(mutable=False)}, "ai:x", False, "none"),
        ({"ai:x": Rule(mutable=False)}, "ai:y", True, "none"),
        ({"*": MUTABLE}, "x", True, "none"),
        ({"x:*": MUTABLE}, "x", True, "none"),
        ({"x:*": MUTABLE}, "xy", False, "none"),
    ],
)
def test_which_rule_counts(given_rules: dict[str, Rule], channel: str, mutable: bool, retention: str) -> None:
    assert Rules(given_rules).of(channel) == Rule(mutable, retention)


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("36h", 129_600), ("30d", 2_592_000)])
def test_times(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds
    assert Rules({"x": Rule(retention=text)}).retention_seconds("x") == seconds
    assert Rules({"x": Rule(retention=text)}).retention_seconds("y") is None


# In the settings

SAID = (PatternRule("support:*", Rule(True, "30d")), PatternRule("ai:x", Rule(mutable=False)))


def test_rules_in_every_place(tmp_path: Path) -> None:
    texts = ["support:*=mutable,retention=30d", "ai:x=mutable=false"]
    file = tmp_path / "citewire.toml"
    file.write_text(
        '[rules."support:*"]\nmutable = true\nretention = "30d"\n[rules."ai:x"]\nmutable = false\n', "utf-8"
    )
    in_json = '["support:*=mutable,retention=30d", "ai:x=mutable=false"]'
    assert Settings.load({"rules": texts}, {}, {}).rules == SAID
    assert Settings.load({}, {"CITEWIRE_RULES": in_json}, {}).rules == SAID
    assert Settings.load({}, {}, read_toml(file)).rules == SAID


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["support:*"], "`object`"),
        (["support:*="], "unknown field"),
        (["=mutable"], "number 1: expected a channel, a namespace as `ai:*`, or `*`"),
        (["a=mutable", "a:b:*=mutable"], "number 2: expected a channel"),
        (["a=mutable=perhaps"], "`bool"),
        (["a=retention=30"], "a time such as `90m`"),
        (["a=retention=0d"], "a time such as `90m`"),
        (["a=retention"], "got `bool`"),
        (["a=muteable"], "unknown field `muteable`"),
        (["a=mutable", "a=retention=1d"], "two rules for one pattern"),
    ],
)
def test_rules_that_are_none(rules: list[str], said: str) -> None:
    with pytest.raises(SettingError, match="--rule: ") as caught:
        Settings.load({"rules": rules}, {}, {})
    assert said in caught.value.message


@pytest.mark.parametrize("rules", [3, ["a"], [3], {"a": 3}, {"a": {"mutable": "true"}}, {"a": {"x": 1}}])
def test_tables_that_are_no_rules(rules: Any) -> None:
    with pytest.raises(SettingError, match="rules in the file: "):
        Settings.load({}, {}, {"rules": rules})


# Over HTTP


def run(folder: Path, main: Callable[[App], Awaitable[None]], **settings: Any) -> None:
    async def opened() -> None:
        async with opened_app(folder, **settings) as app:
            await main(app)

    asyncio.run(asyncio.wait_for(opened(), 50))


async def update(socket: Socket, channel: str, number: int, serial: str) -> int | None:
    """The code with which an update is refused."""
    edit = {"action": 1, "serial": serial, "data": "new"}
    socket.send(FrameAction.MESSAGE, channel=channel, msgSerial=number, messages=[edit])
    return (await socket.done(number)).get("error", {}).get("code")


def test_a_rule_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    """On a connection that was open before, too; and until it is deleted, it goes before the settings."""
    settings = {"rules": (PatternRule("support:*", MUTABLE),)}

    async def first(app: App) -> None:
        async with Socket(app.server.realtime, key=app.key) as socket:
            [serial] = await socket.publish("support:1", 0, {"data": "text"})
            assert await update(socket, "support:1", 1, serial) is None
            put = await app.ask("PUT", "/rules/support:*", {"mutable": False, "retention": "30d"})
            assert put.json == {"pattern": "support:*", "mutable": False, "retention": "30d", "said": "call"}
            assert await update(socket, "support:1", 2, serial) == 93002
            assert (await app.ask("PUT", "/rules/support:1", {"mutable": True})).status == 200
            assert await update(socket, "support:1", 3, serial) is None

    async def second(app: App) -> None:
        shown = (await app.ask("GET", "/rules/support:1")).json
        assert shown == {"pattern": "support:1", "mutable": True, "retention": "30d", "said": "call"}
        listed = (await app.ask("GET", "/rules")).json["rules"]
        assert [(each["pattern"], each["mutable"], each["said"]) for each in listed] == [
            ("ai:*", True, None),
            ("support:*", False, "call"),
            ("support:1", True, "call"),
        ]
        for pattern in ("support:*", "support:1"):
            assert (await app.ask("DELETE", f"/rules/{pattern}")).status == 204
            assert (await app.ask("DELETE", f"/rules/{pattern}")).code == "not_found"
        async with Socket(app.server.realtime, key=app.key) as socket:
            [serial] = await socket.publish("support:1", 0, {"data": "text"})
            assert await update(socket, "support:1", 1, serial) is None

    async def third(app: App) -> None:
        shown = (await app.ask("GET", "/rules/support:1")).json
        assert shown == {"pattern": "support:1", "mutable": True, "retention": "none", "said": None}

    for main in (first, second, third):
        run(tmp_path, main, **settings)


@pytest.mark.parametrize(
    ("pattern", "body", "code"),
    [
        ("a:b:*", {}, "bad_input"),
        ("%5Bx", {}, "bad_input"),
        ("x", {"muteable": True}, "bad_shape"),
        ("x", {"mutable": "yes"}, "bad_shape"),
        ("x", {"retention": 30}, "bad_shape"),
        ("x", {"retention": "30"}, "bad_shape"),
        ("x", {"retention": "30d\n"}, "bad_shape"),
        ("x", b"[", "bad_json"),
    ],
)
def test_rules_that_are_refused(tmp_path: Path, pattern: str, body: Any, code: str) -> None:
    async def main(app: App) -> None:
        answer = await app.ask("PUT", f"/rules/{pattern}", body, content_type="application/json")
        assert (answer.status, answer.code) == (400, code)
        assert [each["pattern"] for each in (await app.ask("GET", "/rules")).json["rules"]] == ["ai:*"]

    run(tmp_path, main)


def test_whose_rules_one_may_set(tmp_path: Path) -> None:
    """A capability for a namespace is for its rules, not for those of others or of all."""

    async def main(app: App) -> None:
        key = app.token({"rule:support:*": ["set", "read"], "rule:*": ["list"]})
        for pattern, status in (("support:*", 200), ("support:1", 200), ("*", 403), ("ai:*", 403)):
            answer = await app.ask("PUT", f"/rules/{pattern}", {"mutable": True}, key=key)
            assert answer.status == status, pattern
        listed = (await app.ask("GET", "/rules", key=key)).json["rules"]
        assert [each["pattern"] for each in listed] == ["support:*", "support:1"]

    run(tmp_path, main)


def test_any_process_that_reads_the_log_has_the_same_rules() -> None:
    """Whoever said what, the last counts."""

    async def main() -> None:
        store = MemoryStore()
        channels = [Channels(store, Hub(store)) for _ in range(2)]
        one, other = (RuleApi(Hub(store), each) for each in channels)
        await one.put(call("x", MUTABLE))
        await other.put(call("x", Rule(retention="1d")))
        await one.put(call("y", MUTABLE))
        await other.catch_up()
        await other.delete(call("y", None))
        await one.catch_up()
        assert [each.rules for each in channels] == [Rules({"x": Rule(retention="1d")})] * 2

    asyncio.run(main())


def call(pattern: str, rule: Rule | None) -> ApiCall:
    return ApiCall(Caller("app.key", FULL), {"pattern": pattern}, None, rule, Request({"type": "http"}))
