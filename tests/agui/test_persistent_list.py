"""What grows, beside plain lists that do the same; what was handed out stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.agui.thread.persistent_list import (
    AppendOnlyText,
    JsonDraft,
    JsonDraftList,
    ListSnapshot,
    PersistentList,
    join_surrogates,
)
from citewire.frozen import FrozenDict

Json = dict[str, Any]

# Rows stand in chunks of 64: the sizes are around one, two and three of them.
sizes = st.sampled_from([0, 1, 2, 63, 64, 65, 127, 128, 129, 192, 200])
fractions = st.floats(0, 1)


def at(fraction: float, count: int) -> int:
    """A place among `count`; near the edges of chunks more often than not."""
    return min(int(fraction * count), count - 1)


class Branch:
    """Rows, and the list that they should be."""

    def __init__(self, rows: PersistentList[int], plain: list[int]) -> None:
        self.rows, self.plain = rows, plain

    def agree(self) -> None:
        assert len(self.rows) == len(self.plain)
        assert list(self.rows) == self.plain
        assert [self.rows[place] for place in range(len(self.plain))] == self.plain


row_steps = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["append", "append", "many", "set", "set", "insert", "cut", "snapshot", "copy"]),
        fractions,
    ),
    max_size=25,
)


@given(sizes, row_steps)
def test_rows_are_a_list(start: int, steps: list[tuple[int, str, float]]) -> None:
    """Several that were copied from one another go their own ways, and no snapshot is changed by any."""
    branches = [Branch(PersistentList(range(start)), list(range(start)))]
    handed_out: list[tuple[ListSnapshot, list[int]]] = []
    for number, (which, step, fraction) in enumerate(steps, 1000):
        branch = branches[which % len(branches)]
        rows, plain = branch.rows, branch.plain
        match step:
            case "append":
                rows.append(number)
                plain.append(number)
            case "many":
                for extra in range(70):
                    rows.append(extra)
                plain.extend(range(70))
            case "set" if plain:
                rows[at(fraction, len(plain))] = plain[at(fraction, len(plain))] = number
            case "insert":
                rows.insert(at(fraction, len(plain) + 1), number)
                plain.insert(at(fraction, len(plain) + 1), number)
            case "cut":
                keep = round(fraction * len(plain))
                rows.truncate(keep)
                del plain[keep:]
            case "snapshot":
                handed_out.append((rows.snapshot(), plain.copy()))
            case "copy":
                branches.append(Branch(rows.copy(), plain.copy()))
            case _:
                pass
        branch.agree()
    for branch in branches:
        branch.agree()
    for listing, then in handed_out:
        assert listing == then
        assert len(listing) == len(then)


def test_a_snapshot_shares_what_it_can() -> None:
    """A write after a snapshot copies one chunk: rows elsewhere are the same objects, chunk and all."""
    rows = PersistentList([object() for _ in range(1000)])
    before = rows.snapshot()
    rows[500] = object()
    after = rows.snapshot()
    changed = [place for place in range(1000) if before[place] is not after[place]]
    assert changed == [500]


texts = st.text("ab é😀\ud83d\ude00", max_size=5)


@given(
    texts,
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["extend", "copy", "read"]), st.lists(texts))),
)
def test_texts_that_were_copied_grow_apart(start: str, steps: list[tuple[int, str, list[str]]]) -> None:
    """Whoever of them appends first, and whenever they are read."""
    branches = [(AppendOnlyText(start), start)]
    for which, step, pieces in steps:
        place = which % len(branches)
        text, plain = branches[place]
        if step == "extend":
            text.extend(pieces)
            branches[place] = (text, plain + "".join(pieces))
        elif step == "copy":
            branches.append((text.copy(), plain))
        else:
            assert text.join() == plain
    for text, plain in branches:
        assert text.join() == plain
        assert str(text) == join_surrogates(plain)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("aé😀", "aé😀", id="nothing to mend"),
        pytest.param("a\ud83d\ude00b", "a😀b", id="both halves"),
        pytest.param("\ud83d", "\ufffd", id="the first half"),
        pytest.param("\ude00", "\ufffd", id="the second half"),
        pytest.param("\ude00\ud83d", "\ufffd\ufffd", id="halves in the wrong order"),
        pytest.param("\ud83d\ud83d\ude00", "\ufffd😀", id="a half before a pair"),
        pytest.param("\ud83dx\ude00", "\ufffdx\ufffd", id="halves apart"),
        pytest.param("\ud83d😀", "\ufffd😀", id="a half before a whole"),
    ],
)
def test_mending(text: str, whole: str) -> None:
    assert join_surrogates(text) == whole
    pieces = AppendOnlyText()
    for half in text:
        pieces.extend((half,))
    assert str(pieces) == whole
    assert pieces.join() == text


words = st.text("ab é", max_size=3)
names = st.sampled_from(["id", "content", "reasoning"])
draft_steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["extend", "put", "drop", "copy", "value"]), names, words)
)


@given(st.dictionaries(names, words | st.none() | st.just(5)), draft_steps)
def test_a_draft_is_an_object(start: Json, steps: list[tuple[int, str, str, str]]) -> None:
    """Its texts are appended to, and members are put and dropped, in any order; copies go their own ways."""
    branches: list[tuple[JsonDraft, Json]] = [(JsonDraft(start.copy()), start.copy())]
    handed_out: list[tuple[FrozenDict, Json]] = []
    for which, step, name, text in steps:
        draft, plain = branches[which % len(branches)]
        if step == "extend":
            draft.extend(name, (text, text))
            begun = plain.get(name)
            plain[name] = (begun if isinstance(begun, str) else "") + text + text
        elif step == "put":
            draft.put(name, text)
            plain[name] = text
        elif step == "drop":
            draft.drop(name)
            plain.pop(name, None)
        elif step == "copy":
            branches.append((draft.copy(), plain.copy()))
        else:
            handed_out.append((draft.value, plain.copy()))
            assert draft.value is draft.value
        assert {name: draft.get(name) for name in plain} == plain
    for draft, plain in branches:
        assert draft.value == plain
    for value, then in handed_out:
        assert value == then


ids = st.sampled_from(["a", "b", "c", "d", "", None])
drafts_steps = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(
            [
                "add",
                "add",
                "insert",
                "insert",
                "extend",
                "extend",
                "put",
                "replace",
                "reset",
                "snapshot",
                "copy",
            ]
        ),
        ids,
        fractions,
    ),
    max_size=25,
)


def first(plain: list[Json], name: str | None) -> int | None:
    """The place of what can be found by that name; nobody can name what has no id."""
    if name is None:
        return None
    return next((place for place, row in enumerate(plain) if row["id"] == name), None)


@given(st.lists(ids, max_size=5), drafts_steps)
def test_drafts_are_a_list_of_objects(
    start: list[str | None], steps: list[tuple[int, str, str | None, float]]
) -> None:
    """Found by their id, which is that of the first where ids repeat, wherever one is put in."""
    rows: list[Json] = [{"id": name, "content": ""} for name in start]
    branches = [(JsonDraftList(map(new, rows)), [row.copy() for row in rows])]
    handed_out: list[tuple[ListSnapshot, list[Json]]] = []
    for number, (which, step, name, fraction) in enumerate(steps):
        drafts, plain = branches[which % len(branches)]
        row: Json = {"id": name, "content": f"<{number}>"}
        place = first(plain, name)
        match step:
            case "add":
                drafts.add(new(row))
                plain.append(row)
            case "insert":
                drafts.insert(at(fraction, len(plain) + 1), new(row))
                plain.insert(at(fraction, len(plain) + 1), row)
            case "extend" if place is not None:
                edit(drafts, name).extend("content", (str(number),))
                plain[place] = plain[place] | {"content": plain[place]["content"] + str(number)}
            case "put" if place is not None:
                edit(drafts, name).put("more", number)
                plain[place] = plain[place] | {"more": number}
            case "replace" if place is not None:
                drafts.replace(place, new(row))
                plain[place] = row
            case "reset":
                kept = [each for each in plain if each["id"] != name]
                drafts.reset([new(each) for each in kept])
                plain[:] = kept
            case "snapshot":
                handed_out.append((drafts.snapshot(), plain.copy()))
            case "copy":
                branches.append((drafts.copy(), plain.copy()))
            case _:
                assert edit_or_none(drafts, name) is None
        agree(drafts, plain)
    for drafts, plain in branches:
        agree(drafts, plain)
    for listing, then in handed_out:
        assert listing == then


def new(row: Json) -> JsonDraft:
    return JsonDraft(row.copy())


def edit(drafts: JsonDraftList, name: str | None) -> JsonDraft:
    found = drafts.edit(name)
    assert found is not None
    return found


def edit_or_none(drafts: JsonDraftList, name: str | None) -> JsonDraft | None:
    return drafts.edit(name)


def agree(drafts: JsonDraftList, plain: list[Json]) -> None:
    assert len(drafts) == len(plain)
    assert [draft.value for draft in drafts] == plain
    for name in ("a", "b", "c", "d", "", None, "nobody"):
        place = first(plain, name)
        assert (name in drafts) is (place is not None)
        assert drafts.index_of(name) == place
        found = drafts.find(name)
        if place is None:
            assert found is None
        else:
            assert found is drafts.at(place)
    for place, draft in enumerate(drafts):
        assert drafts.index_of(draft.key) == place


def test_untouched_drafts_are_the_same_in_every_snapshot() -> None:
    drafts = JsonDraftList(JsonDraft({"id": str(number), "content": ""}) for number in range(200))
    before = list(drafts.snapshot())
    edit(drafts, "150").extend("content", ("x",))
    after = list(drafts.snapshot())
    assert [place for place in range(200) if before[place] is not after[place]] == [150]
    assert before[150]["content"] == ""
    assert after[150]["content"] == "x"


def test_a_draft_is_changed_in_place_until_it_is_handed_out() -> None:
    drafts = JsonDraftList([JsonDraft({"id": "a"})])
    mine = edit(drafts, "a")
    assert edit(drafts, "a") is mine
    drafts.snapshot()
    copied = edit(drafts, "a")
    assert copied is not mine
    assert edit(drafts, "a") is copied


@given(sizes, st.integers(-210, 210), st.slices(210))
def test_a_listing_is_a_sequence(size: int, place: int, part: slice) -> None:
    plain = [number % 7 for number in range(size)]
    rows = PersistentList(plain)
    listing = rows.snapshot()
    rows.append(99)
    assert isinstance(listing, Sequence)
    assert len(listing) == size
    assert bool(listing) is bool(plain)
    assert list(listing) == plain
    assert list(reversed(listing)) == plain[::-1]
    assert listing[part] == plain[part]
    assert (3 in listing, 99 in listing) == (3 in plain, False)
    assert listing.count(3) == plain.count(3)
    assert repr(listing) == repr(plain)
    if -size <= place < size:
        assert listing[place] == plain[place]
        assert listing.index(plain[place]) == plain.index(plain[place])
    else:
        with pytest.raises(IndexError):
            listing[place]


def test_a_listing_compares_like_a_list() -> None:
    listing = PersistentList([1, 2]).snapshot()
    for same in ([1, 2], (1, 2), PersistentList([1, 2]).snapshot()):
        assert listing == same
        assert same == listing
    for other in ([1], [1, 3], [2, 1], {1, 2}, "12", None, PersistentList([1]).snapshot()):
        assert listing != other
        assert other != listing


def test_nothing_changes_a_listing() -> None:
    listing: Any = PersistentList([JsonDraft({"id": "a"})]).snapshot()
    with pytest.raises(TypeError):
        listing[0] = 1
    with pytest.raises(TypeError):
        del listing[0]
    with pytest.raises(TypeError):
        listing[0]["id"] = "b"
    with pytest.raises(TypeError):
        hash(listing)
    with pytest.raises(AttributeError):
        listing.more = 1
    assert listing == [{"id": "a"}]
