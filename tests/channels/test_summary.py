"""How annotations add up, without a store."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from citewire.channels.errors import ChannelError
from citewire.channels.summary import (
    METHODS,
    SUMMARY_BYTES,
    HiddenClient,
    SummaryStep,
    fold_step,
    method_of,
    summarize_client,
)

UP, DOWN, CROSS = "👍", "👎", "❌"


class Say(NamedTuple):
    """An annotation in short."""

    client: str | None
    name: str = ""
    n: int = 1
    delete: bool = False


class Sum:
    """A summary and those it hides, as slots keep them."""

    def __init__(self, method: str, shown: int = 100) -> None:
        self.type, self.method, self.shown = f"x:{method}", METHODS[method], shown
        self.summary: bytes | None = None
        self.hidden: dict[tuple[str | None, str], HiddenClient] = {}

    def say(self, say: Say) -> bool:
        """Whether it changed anything."""
        step = SummaryStep(self.type, self.method, say.name, say.client, say.n, say.delete)
        key = (say.client, "" if self.method.moves else say.name)
        folded = fold_step(self.summary, self.hidden.get(key), step, self.shown)
        if folded is None:
            return False
        self.summary = folded.summary
        self.hidden.pop(key, None)
        if folded.hidden:
            self.hidden[key] = folded.hidden
        return True

    @property
    def shape(self) -> Any:
        """What clients get for the type."""
        return msgpack.decode(self.summary or b"\x80").get(self.type)


def listed(total: int, *clients: str, clipped: bool = False) -> dict[str, Any]:
    return {"total": total, "clientIds": list(clients), "clipped": clipped}


def tallied(total: int, clients: dict[str, int], unidentified: int, ids: int) -> dict[str, Any]:
    return {
        "total": total,
        "clientIds": clients,
        "totalUnidentified": unidentified,
        "totalClientIds": ids,
        "clipped": ids > len(clients),
    }


def gone(client: str | None, name: str = "", n: int = 1) -> Say:
    return Say(client, name, n, delete=True)


@pytest.mark.parametrize(
    ("method", "said", "shape"),
    [
        pytest.param(
            "distinct.v1",
            [
                Say("u1", UP),
                Say("u1", DOWN),
                Say("u2", UP),
                Say("u2", UP),
                Say("u3", CROSS),
                gone("u3", CROSS),
            ],
            {UP: listed(2, "u1", "u2"), DOWN: listed(1, "u1")},
            id="distinct",
        ),
        pytest.param(
            "unique.v1",
            [
                Say("u1", UP),
                Say("u1", DOWN),
                Say("u2", UP),
                Say("u2", UP),
                Say("u3", CROSS),
                gone("u3", CROSS),
            ],
            {UP: listed(1, "u2"), DOWN: listed(1, "u1")},
            id="unique",
        ),
        pytest.param(
            "multiple.v1",
            [
                Say("u1", UP),
                Say("u1", DOWN),
                Say(None, DOWN),
                Say("u2", UP),
                Say("u2", UP, 2),
                Say("u3", CROSS),
                gone("u3", CROSS),
            ],
            {UP: tallied(4, {"u1": 1, "u2": 3}, 0, 2), DOWN: tallied(2, {"u1": 1}, 1, 1)},
            id="multiple",
        ),
        pytest.param(
            "flag.v1", [Say("u1"), Say("u2"), Say("u3"), gone("u3")], listed(2, "u1", "u2"), id="flag"
        ),
        pytest.param("total.v1", [Say(None)] * 5 + [gone(None)], {"total": 4}, id="total"),
    ],
)
def test_the_golden_vector(method: str, said: list[Say], shape: Any) -> None:
    summed = Sum(method)
    for say in said:
        summed.say(say)
    assert summed.shape == shape


@pytest.mark.parametrize(
    ("method", "before", "say", "changes", "shape"),
    [
        pytest.param(
            "multiple.v1", [Say("u", "a", 3), Say("v", "a")], gone("u", "a", 1), True,
            {"a": tallied(1, {"v": 1}, 0, 1)}, id="D1: a delete takes all, whatever its count",
        ),
        pytest.param("multiple.v1", [Say("u", "a", 3)], gone("u", "a"), True, None, id="D1: and the name"),
        pytest.param(
            "multiple.v1", [Say("u", "a")], gone("u", "b"), False, {"a": tallied(1, {"u": 1}, 0, 1)},
            id="another name",
        ),
        pytest.param(
            "multiple.v1", [Say(None, "a", 5), Say("u", "a")], gone(None, "a", 2), True,
            {"a": tallied(4, {"u": 1}, 3, 1)}, id="D2: nobody takes back as many as it says",
        ),
        pytest.param(
            "multiple.v1", [Say(None, "a", 2), Say("u", "a")], gone(None, "a", 9), True,
            {"a": tallied(1, {"u": 1}, 0, 1)}, id="D2: and no more than there are",
        ),
        pytest.param(
            "multiple.v1", [Say("u", "a")], gone(None, "a"), False, {"a": tallied(1, {"u": 1}, 0, 1)},
            id="D2: of nobody's there are none",
        ),
        pytest.param(
            "unique.v1", [Say("u", "a"), Say("u", "b")], gone("u", "a"), False, {"b": listed(1, "u")},
            id="D3: a name it has left",
        ),
        pytest.param("unique.v1", [Say("u", "a")], gone("u", "a"), True, None, id="D3: its name"),
        pytest.param(
            "distinct.v1", [Say("u", "a")], Say("u", "a"), False, {"a": listed(1, "u")}, id="twice the same"
        ),
        pytest.param("flag.v1", [Say("u")], Say("u"), False, listed(1, "u"), id="twice the same flag"),
        pytest.param("flag.v1", [], gone("u"), False, None, id="no flag to take down"),
        pytest.param("total.v1", [Say(None)], gone(None), True, None, id="a total of nothing is none"),
        pytest.param("total.v1", [], gone(None), False, None, id="and goes no lower"),
    ],
)  # fmt: skip
def test_decisions(method: str, before: list[Say], say: Say, changes: bool, shape: Any) -> None:
    summed = Sum(method)
    for each in before:
        summed.say(each)
    assert summed.say(say) is changes
    assert summed.shape == shape


def test_who_comes_late_is_counted_but_not_named() -> None:
    """D7: totals stay exact, and who was left out can still go."""
    summed = Sum("multiple.v1", shown=2)
    for client in ("u", "v", "w", "w"):
        summed.say(Say(client, "a"))
    assert summed.shape == {"a": tallied(4, {"u": 1, "v": 1}, 0, 3)}
    assert summed.say(gone("w", "a"))
    assert not summed.say(gone("w", "a"))
    assert summed.shape == {"a": tallied(2, {"u": 1, "v": 1}, 0, 2)}
    assert not summed.hidden


_CLIENTS = ["u", "v", "w", "x"]
_says = st.builds(
    Say, st.sampled_from([*_CLIENTS, None]), st.sampled_from("ab"), st.integers(1, 3), st.booleans()
)


def model(method: str, said: list[Say]) -> dict[str, dict[str | None, int]]:
    """What counts under each name for each client, done the long way."""
    names: dict[str, dict[str | None, int]] = {"a": {}, "b": {}, "": {}}
    for say in said:
        here = names[say.name]
        if say.delete:
            left = here.get(say.client, 0) - say.n if say.client is None else 0
            here[say.client] = max(left, 0)
        elif method in {"multiple.v1", "total.v1"}:
            here[say.client] = here.get(say.client, 0) + say.n
        else:
            for there in names.values() if method == "unique.v1" else ():
                there.pop(say.client, None)
            here[say.client] = 1
    return {name: {who: n for who, n in here.items() if n} for name, here in names.items()}


@pytest.mark.parametrize("method", METHODS)
@given(said=st.lists(_says, max_size=25), shown=st.integers(0, 4))
def test_like_the_model(method: str, said: list[Say], shown: int) -> None:
    """Totals are exact, whoever is named, and what changes nothing says so."""
    how = METHODS[method]
    said = [
        Say(
            None if method == "total.v1" else say.client,
            say.name if how.named else "",
            say.n if method == "multiple.v1" else 1,
            say.delete,
        )
        for say in said
        if say.client is not None or not how.identified
    ]
    summed = Sum(method, shown)
    for at, say in enumerate(said):
        assert summed.say(say) is (model(method, said[:at]) != model(method, said[: at + 1]))
    shape: dict[str, Any] = summed.shape or {}
    groups = shape if how.named or not shape else {"": shape}
    counted = {name: counts for name, counts in model(method, said).items() if counts}
    assert groups.keys() == counted.keys()
    for name, counts in counted.items():
        group = groups[name]
        clients = {who: n for who, n in counts.items() if who is not None}
        assert group["total"] == sum(counts.values())
        if method != "total.v1":
            named = group["clientIds"]
            assert len(named) <= shown
            assert group["clipped"] is (len(named) < len(clients))
            assert set(named) <= clients.keys()
        if method == "multiple.v1":
            assert group["totalUnidentified"] == counts.get(None, 0)
            assert group["totalClientIds"] == len(clients)
            assert group["clientIds"].items() <= clients.items()
    for client in _CLIENTS:
        check_client(summed, client, model(method, said))


def check_client(summed: Sum, client: str, counts: dict[str, dict[str | None, int]]) -> None:
    """One client's summary has its groups, hidden or not, and nobody else."""
    hidden = [each for (who, _), each in summed.hidden.items() if who == client]
    mine = summarize_client(summed.summary, client, hidden).get(summed.type, {})
    if not summed.method.named:
        mine = {"": mine} if mine else {}
    assert mine.keys() == {name for name, here in counts.items() if here.get(client)}
    for name, group in mine.items():
        assert group["total"] == sum(counts[name].values())
        assert list(group["clientIds"]) == [client]
        assert group["clipped"]
        if isinstance(group["clientIds"], dict):
            assert group["clientIds"] == {client: counts[name][client]}


@pytest.mark.parametrize("method", ["flag.v1", "distinct.v1", "multiple.v1"])
def test_a_crowd_makes_no_larger_summary(method: str) -> None:
    """With ids as long as they may be, it stays below its limit, and what one more writes stays the same."""
    summed = Sum(method, shown=100_000)
    sizes: list[int] = []
    for at in range(400):
        summed.say(Say(f"{at:0500d}", "a" if METHODS[method].named else ""))
        sizes.append(len(summed.summary or b""))
    assert sizes[-1] == sizes[-2] <= SUMMARY_BYTES
    assert len(summed.hidden) > 200


def test_no_more_names_than_there_is_room_for() -> None:
    """Those that are there count on."""
    summed, refused = Sum("multiple.v1"), list[int]()
    for at in range(SUMMARY_BYTES // 500):
        try:
            summed.say(Say(None, f"{at:0500d}"))
        except ChannelError as error:
            refused.append(error.ably)
    assert refused == [40009] * len(refused) != []
    assert summed.say(Say(None, f"{0:0500d}"))
    assert len(summed.summary or b"") <= SUMMARY_BYTES


@pytest.mark.parametrize(
    "type_", ["", ":", ":total.v1", "a:", "a:total", "a:bar.v9", "a:b:total.v1", "a:total.v1 "]
)
def test_what_is_no_type(type_: str) -> None:
    """D4."""
    with pytest.raises(ChannelError) as refused:
        method_of(type_)
    assert refused.value.ably == 40000


def test_a_type_without_a_method() -> None:
    """D5: it is not summarised."""
    assert method_of("reaction") is None
