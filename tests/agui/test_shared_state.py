"""Our part of shared state: whatever the agent does to it, all our patches apply, ours is whole in the end,
and the agent's part is what it would be without us."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.agui.citations import shared_state
from citewire.agui.citations.shared_state import SharedState, remove_own_state
from citewire.patch import PatchError, PatchTarget

KEY = "deepcitation"
CITED = {"type": "document", "fullPhrase": "words"}


def entry(key: str) -> dict[str, Any]:
    return {"id": key, "index": 1, "extra": {"citewire": {"own": True, "key": key, "status": "pending"}}}


class Client:
    """A client: what it is sent it applies, and complains where it cannot."""

    def __init__(self, value: Any) -> None:
        self.document = PatchTarget(value, as_client=True)

    def apply(self, operations: list[Any]) -> None:
        self.document.apply(operations)

    @property
    def value(self) -> Any:
        return self.document.value


def test_the_parents_come_with_the_first_patch() -> None:
    shared, client = SharedState({}, KEY), Client({})
    shared.patch(shared_state.message_patches("m"))
    shared.patch(shared_state.citation_patches("m", {"k": CITED}, together=False))
    shared.list_citation("m", entry("k"))
    operations = shared.flush()
    assert [(each["op"], each["path"]) for each in operations] == [
        ("add", "/deepcitation"),
        ("add", "/citations"),
    ]
    client.apply(operations)
    assert client.value[KEY]["messages"]["m"]["citations"] == {"k": CITED}
    assert client.value["citations"] == {"m": [entry("k")]}
    assert shared.flush() == []


def test_later_patches_are_small() -> None:
    shared = SharedState({}, KEY)
    shared.patch(shared_state.message_patches("m"))
    shared.flush()
    shared.patch(shared_state.verification_patches("m", "k", {"status": "found"}))
    shared.patch(shared_state.summary_patches("m", {"verified": 1}))
    shared.patch(shared_state.status_patches("m", "complete"))
    assert [(each["op"], each["path"]) for each in shared.flush()] == [
        ("add", "/deepcitation/messages/m/verifications/k"),
        ("add", "/deepcitation/verifications/k"),
        ("replace", "/deepcitation/messages/m/summary"),
        ("replace", "/deepcitation/messages/m/status"),
    ]


def test_ids_are_escaped_and_unsafe_ones_refused() -> None:
    shared = SharedState({}, KEY)
    shared.patch(shared_state.message_patches("a/b~c"))
    shared.flush()
    shared.patch(shared_state.status_patches("a/b~c", "complete"))
    assert shared.flush()[0]["path"] == "/deepcitation/messages/a~1b~0c/status"
    with pytest.raises(PatchError):
        shared_state.message_patches("__proto__")


@pytest.mark.parametrize("snapshot", [None, [], 3, "text"])
def test_a_state_that_cannot_hold_ours_gets_it_later(snapshot: Any) -> None:
    shared = SharedState({}, KEY)
    shared.patch(shared_state.message_patches("m"))
    shared.flush()
    shared.apply_snapshot(snapshot)
    assert shared.flush() == []
    shared.patch(shared_state.status_patches("m", "complete"))
    assert shared.flush() == []
    shared.apply_snapshot({"a": 1})
    client = Client({"a": 1})
    client.apply(shared.flush())
    assert client.value["a"] == 1
    assert client.value[KEY]["messages"]["m"]["status"] == "complete"


def test_citations_that_are_no_lists_by_message_are_left_alone() -> None:
    shared = SharedState({"citations": ["mine"]}, KEY)
    shared.list_citation("m", entry("k"))
    assert shared.flush() == []


def test_on_the_agents_citations_we_only_add_to_extra() -> None:
    theirs = {"id": "x", "title": "T", "extra": {"score": 2}}
    shared, client = SharedState({}, KEY), Client({})
    delta = [{"op": "add", "path": "/citations", "value": {"m": [theirs]}}]
    shared.apply_delta(delta)
    client.apply(delta)
    assert list(shared.agent_entries()) == [("m", [theirs])]
    shared.list_citation("m", entry("k"))
    shared.annotate("m", "k", "x", {"status": "verified"})
    client.apply(shared.flush())
    noted = {**theirs, "extra": {"score": 2, "citewire": {"status": "verified"}}}
    assert client.value == {"citations": {"m": [noted]}}
    assert remove_own_state(client.value) == {"citations": {"m": [theirs]}}


def test_what_goes_back_to_the_agent_is_its_own() -> None:
    posted: Any = {"a": 1, KEY: {"messages": {}}, "citations": {"m": [entry("k")], "n": [{"id": "x"}]}}
    assert remove_own_state(posted) == {"a": 1, "citations": {"n": [{"id": "x"}]}}
    assert remove_own_state({"citations": {"m": [entry("k")]}}) == {}
    assert remove_own_state({"citations": {}}) == {"citations": {}}
    assert remove_own_state(None) is None


def test_a_message_that_moves_takes_all_of_its_own_along() -> None:
    shared, client = SharedState({}, KEY), Client({})
    shared.patch(shared_state.message_patches("old"))
    shared.list_citation("old", entry("k"))
    client.apply(shared.flush())
    shared.rename_message("old", "new")
    client.apply(shared.flush())
    assert list(client.value[KEY]["messages"]) == ["new"]
    assert client.value[KEY]["messages"]["new"]["messageId"] == "new"
    assert client.value["citations"] == {"new": [entry("k")]}


def test_eviction_drops_what_no_kept_message_uses() -> None:
    shared, client = SharedState({}, KEY), Client({})
    for name, keys in (("a", "xy"), ("b", "yz")):
        shared.patch(shared_state.message_patches(name))
        shared.patch(shared_state.citation_patches(name, dict.fromkeys(keys, CITED)))
        for key in keys:
            shared.patch(shared_state.verification_patches(name, key, {"status": "found"}))
            shared.list_citation(name, entry(key))
    client.apply(shared.flush())
    shared.evict(["a"])
    client.apply(shared.flush())
    record = client.value[KEY]
    assert (list(record["messages"]), [*record["citations"]], [*record["verifications"]]) == (
        ["b"],
        ["y", "z"],
        ["y", "z"],
    )
    assert list(client.value["citations"]) == ["b"]


@pytest.mark.parametrize(
    "posted",
    [
        {KEY: 3},
        {KEY: {"messages": []}},
        {KEY: {"citations": {}, "verifications": {}, "messages": {"m": 1, "n": {"citations": 2}}}},
        {"citations": {"m": [{"extra": {"citewire": {"own": True}}}]}},
        {"citations": {"m": [{"id": 1, "extra": {"citewire": {"own": True, "key": 4}}}]}},
        {"citations": {"__proto__": [entry("k")]}},
    ],
)
def test_a_state_that_a_client_made_up_does_no_harm(posted: Any) -> None:
    shared = SharedState(posted, KEY)
    shared.patch(shared_state.message_patches("m"))
    shared.list_citation("m", entry("k"))
    shared.annotate("m", "k", None, {"status": "verified"})
    shared.evict(["m"])
    Client(posted).apply(shared.flush())


NAMES = st.sampled_from(["m", "n", "a/b"])
VALUES = st.sampled_from([1, "x", [], {}, {"b": 1}])
AGENT_STATE = st.dictionaries(st.sampled_from(["a", "b"]), VALUES)
AGENT_LISTS = st.dictionaries(NAMES, st.sampled_from([[{"id": "x"}], [{"id": "y", "title": "T"}]]))
STEPS = st.one_of(
    st.tuples(st.just("message"), NAMES),
    st.tuples(st.just("cite"), NAMES),
    st.tuples(st.just("judge"), NAMES),
    st.tuples(st.just("flush"), st.none()),
    st.tuples(st.just("snapshot"), AGENT_STATE),
    st.tuples(st.just("lists"), AGENT_LISTS),
    st.tuples(st.just("set"), st.tuples(st.sampled_from(["a", "b"]), VALUES)),
    st.tuples(st.just("wipe"), st.none()),
)


def agent_delta(step: str, value: Any) -> list[Any]:
    if step == "lists":
        return [{"op": "add", "path": "/citations", "value": value}]
    if step == "wipe":
        return [{"op": "remove", "path": "/deepcitation"}]
    return [{"op": "add", "path": f"/{value[0]}", "value": value[1]}]


@given(st.lists(STEPS, max_size=30))
def test_any_interleaving_leaves_the_agents_and_completes_ours(steps: list[tuple[str, Any]]) -> None:
    shared, client, alone = SharedState({}, KEY), Client({}), Client({})
    messages: dict[str, set[str]] = {}
    for step, value in steps:
        if step == "message" and value not in messages:
            messages[value] = set()
            shared.patch(shared_state.message_patches(value))
        elif step == "cite" and value in messages:
            key = f"k{len(messages[value])}"
            messages[value].add(key)
            shared.patch(shared_state.citation_patches(value, {key: CITED}, together=False))
            shared.list_citation(value, entry(key))
        elif step == "judge" and messages.get(value):
            shared.patch(shared_state.verification_patches(value, "k0", {"status": "found"}))
            shared.annotate(value, "k0", None, {"key": "k0", "status": "verified"})
        elif step == "flush":
            client.apply(shared.flush())
        elif step == "snapshot":
            shared.apply_snapshot(value)
            client.document.replace(value)
            alone.document.replace(value)
        elif step in {"set", "lists", "wipe"}:
            delta = agent_delta(step, value)
            for each in (client, alone):
                try:
                    each.apply(delta)
                except PatchError:
                    assert step == "wipe"
            shared.apply_delta(delta)
    client.apply(shared.flush())
    # Nothing tells an empty object that was there from the one that ours needed.
    assert {"citations": {}} | remove_own_state(client.value) == {"citations": {}} | alone.value
    if messages:
        assert client.value[KEY] == shared.own_record
        assert {
            name: set(each["citations"]) for name, each in shared.own_record["messages"].items()
        } == messages
