"""Ably: every form, event and spelling, and that next to nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from citewire.codec import decode, encode
from citewire.dialects import ably
from citewire.dialects.ably import ANNOTATION_TYPE
from citewire.dialects.base import DialectOptions, is_list, is_object
from citewire.errors import CitewireError, ShapeError
from citewire.model import (
    Answer,
    Citation,
    Pages,
    Part,
    Source,
    SourceRef,
    Span,
    Verification,
    Written,
)
from support.cases import payload_paths
from support.oracle import unjustified, unnamed
from support.strategies import answers

TEXT = "Die Fähre 😀 legt um zwölf ab."
DATA: Any = {
    "url": "https://www.ferry.example/times",
    "title": "Times",
    "startOffset": 10,
    "endOffset": 12,
    "own": None,
}


def note(name: str = "ferry.example", data: Any = DATA, **fields: Any) -> Any:
    return {"type": ANNOTATION_TYPE, "messageSerial": "m1", "name": name, "data": data, **fields}


def message(*annotations: Any, **fields: Any) -> Any:
    return {
        "message": {"serial": "m1", "data": TEXT, **fields},
        "annotations": list(annotations),
        "channel": "ai:1",
    }


COUNTS: Any = {
    "summary": {
        ANNOTATION_TYPE: {"a.example": {"total": 2, "clientIds": {"u": 2}}, "A file": {"total": 1}},
        "x": 1,
    }
}
SAMPLES: dict[str, Any] = {
    "both": message(note(), note("verdict", {}, type="verdicts:multiple.v1"), note("plain", None), 5),
    "a list": [note(), note("two", {"startIndex": 0, "endIndex": 3, "page": 4})],
    "one": note(action="annotation.create", clientId="bot"),
    "a frame": {"action": 21, "channel": "ai:1", "annotations": [note(action=0)]},
    "a summary": {"serial": "m1", "data": TEXT, "annotations": COUNTS},
    "a summary of some": message(note("a.example"), annotations=COUNTS),
    "encoded": message(note(data=json.dumps(DATA), encoding="json")),
    "two messages": [note(), note(messageSerial="m2"), note(messageSerial="m1")],
    "silent": {"message": {"data": TEXT}, "annotations": [{"type": ANNOTATION_TYPE, "data": DATA}]},
}


def read(payload: Any, text: str | None = None) -> Answer:
    return ably.read_all(payload, DialectOptions(text=text))[0]


def write(answer: Answer) -> Written:
    return ably.write(answer, DialectOptions())


def touched(answer: Answer) -> Answer:
    """An equal answer that is not the one that was read, so that the writer has to look at all of it."""
    return replace(answer, citations=tuple(replace(citation) for citation in answer.citations))


@pytest.mark.parametrize("payload", SAMPLES.values(), ids=SAMPLES)
def test_every_form_is_detected_and_given_back(payload: Any) -> None:
    assert ably.detect(payload)
    for answer in ably.read_all(payload, DialectOptions()):
        assert answer.citations
        assert write(answer) == write(touched(answer)) == Written(payload)


@pytest.mark.parametrize("payload", SAMPLES.values(), ids=SAMPLES)
def test_a_bare_answer_loses_only_what_is_named(payload: Any) -> None:
    for answer in ably.read_all(payload, DialectOptions()):
        written = write(answer.bare())
        back = read(decode(encode(written.payload)))

        assert back.bare() == answer.bare()
        assert written.losses == ()


@given(answer=answers())
def test_next_to_nothing_is_lost(answer: Answer) -> None:
    written = write(answer)
    back = read(decode(encode(written.payload)))

    assert unnamed(answer, back, written.losses) is None
    assert unjustified(answer, back, written.losses) == []


def test_an_annotation() -> None:
    answer = read(SAMPLES["both"])
    first, plain = answer.citations
    assert answer.id == "m1"
    assert first.claim == Span(0, 10, 11)
    assert first.span_origin == "exact"
    assert answer.covered(Span(0, 10, 11)) == "😀"
    assert [replace(source, native=None) for source in answer.sources] == [
        Source("s1", "web", "https://www.ferry.example/times", "Times"),
        Source("s2", "document", title="plain"),
    ]
    assert (plain.claim, plain.span_origin) == (None, "unknown")
    assert [problem.path for problem in answer.problems] == ["$.annotations[3]"]


def test_without_the_text_offsets_are_as_given() -> None:
    answer = read(SAMPLES["a list"])
    assert answer.parts == ()
    assert [(c.claim, c.span_origin) for c in answer.citations] == [
        (Span(0, 10, 12), "unknown"),
        (Span(0, 0, 3), "unknown"),
    ]
    assert answer.citations[1].refs[0].locator == Pages(4, 4)
    known = read(SAMPLES["a list"], text=TEXT)
    assert known.citations[0].claim == Span(0, 10, 11)
    assert write(touched(known)).payload == SAMPLES["a list"]


def test_a_list_has_an_answer_for_each_message() -> None:
    first, second = ably.read_all(SAMPLES["two messages"], DialectOptions())
    assert [(a.id, len(a.citations)) for a in (first, second)] == [("m1", 2), ("m2", 1)]
    changed = replace(second, citations=(replace(second.citations[0], verification=Verification("missed")),))
    payload = write(changed).payload
    assert payload[::2] == SAMPLES["two messages"][::2]
    assert payload[1]["data"]["citewire"] == {"status": "missed"}


def test_counts_are_citations_where_no_annotation_is() -> None:
    answer = read(SAMPLES["a summary"])
    assert [(s.domain or s.title, s.metadata) for s in answer.sources] == [
        ("a.example", {"total": 2, "clientIds": {"u": 2}}),
        ("A file", {"total": 1}),
    ]
    assert [len(read(SAMPLES[name]).citations) for name in ("a summary", "a summary of some")] == [2, 1]
    dropped = write(replace(answer, citations=answer.citations[1:], sources=answer.sources)).payload
    assert dropped["annotations"]["summary"] == {ANNOTATION_TYPE: {"A file": {"total": 1}}, "x": 1}


EVENTS: list[Any] = [
    pytest.param([note(action=0)], 1, id="create"),
    pytest.param([note(action="annotation.create")], 1, id="create in words"),
    pytest.param(
        [note(clientId="u"), note(clientId="u"), note(clientId="u", action=1)], 0, id="delete takes all"
    ),
    pytest.param(
        [note(clientId="u"), note(clientId="u", action="annotation.delete")], 0, id="delete in words"
    ),
    pytest.param([note(clientId="u", action=1), note(clientId="u")], 1, id="only what came before"),
    pytest.param([note(clientId="u"), note(clientId="v", action=1)], 1, id="only of the same client"),
    pytest.param(
        [note(clientId="u"), note("other", clientId="u", action=1)], 1, id="only under the same name"
    ),
    pytest.param([note(), note(), note(), note(action=1)], 2, id="one of the anonymous"),
    pytest.param([note(), note(), note(), note(action=1, count=2)], 1, id="two of the anonymous"),
]


@pytest.mark.parametrize(("annotations", "left"), EVENTS)
def test_events(annotations: list[Any], left: int) -> None:
    payload = message(*annotations)
    answer = read(payload)
    assert len(answer.citations) == left
    assert answer.problems == ()
    kept = [
        raw
        for raw in annotations
        if all(c.native is None or c.native.raw is not raw for c in answer.citations)
    ]
    assert write(replace(answer, citations=(), sources=())).payload["annotations"] == kept


PROBLEMS: list[tuple[Any, str]] = [
    (note(data=5), ".data"),
    (note(data="{}"), ".data"),
    (note(data="{oops", encoding="json"), ".data"),
    (note(encoding="json/cipher"), ".encoding"),
    (note(data={"startOffset": 1}), ".data.endOffset"),
    (note(data={"startIndex": "1", "endIndex": 2}), ".data.startIndex"),
    (note(data={"startOffset": -1, "endOffset": 2}), ".data.startOffset"),
    (note(data={"startOffset": 3, "endOffset": 2}), ".data.startOffset"),
    (note(data={"startOffset": 3, "endOffset": 10**400}), ".data.endOffset"),
    (note(data={"page": 0}), ".data.page"),
    (note(data={"page": "iv"}), ".data.page"),
    (note(data={"url": 5}), ".data.url"),
    (note(data={"key": 5}), ".data.key"),
    (note(data={"citewire": 5}), ".data.citewire"),
    (note(data={"citewire": {"status": "best"}}), ".data.citewire"),
    (note(action=2), ".action"),
    (note(action=True), ".action"),
    (note(clientId={}), ".clientId"),
    (note(messageSerial="m2"), ".messageSerial"),
    (note(messageSerial=5), ".messageSerial"),
    (None, ""),
]


@pytest.mark.parametrize(("bad", "path"), PROBLEMS)
def test_a_bad_annotation_costs_only_itself(bad: Any, path: str) -> None:
    payload = message(note(), bad, note("b"))
    answer = read(payload)
    assert len(answer.citations) == 2
    assert [problem.path for problem in answer.problems] == [f"$.annotations[1]{path}"]
    assert write(replace(answer, citations=answer.citations[:1])).payload["annotations"] == [note(), bad]


def test_an_offset_within_a_character_is_repaired_and_given_back() -> None:
    payload = message(note(data={"startOffset": 11, "endOffset": 12}))
    answer = read(payload)
    assert (answer.citations[0].claim, answer.citations[0].span_origin) == (Span(0, 10, 11), "repaired")
    assert write(touched(answer)).payload == payload


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (None, "$"),
        ([1], "$"),
        ({}, "$"),
        ({"message": 5, "annotations": []}, "$.message"),
        ({"message": 5}, "$"),
    ],
)
def test_a_hopeless_payload_is_refused(payload: Any, path: str) -> None:
    with pytest.raises(ShapeError) as caught:
        ably.read_all(payload, DialectOptions())
    assert caught.value.path == path


NAMED: list[tuple[Source, str]] = [
    (Source("s", url="https://www.Ferry.example:80/x", title="T"), "ferry.example"),
    (Source("s", url="https://u@ferry.example"), "ferry.example"),
    (Source("s", url="nowhere", title="T", filename="f.pdf"), "T"),
    (Source("s", domain="ferry.example", title="T"), "T"),
    (Source("s", filename="f.pdf", file_id="1"), "f.pdf"),
    (Source("s"), "s"),
]


@pytest.mark.parametrize(("source", "name"), NAMED)
def test_names(source: Source, name: str) -> None:
    written = write(Answer(citations=(Citation("c1", (SourceRef("s"),)),), sources=(source,)))
    assert written.payload["annotations"][0]["name"] == name
    titled = source if source.url or source.title else replace(source, title=name)
    assert read(written.payload).sources[0] == replace(titled, id="s1")


def test_a_change_changes_just_that() -> None:
    payload = message(note(data=json.dumps({**DATA, "citewire": {"proof": "p"}}), encoding="json"), note("b"))
    answer = read(payload)
    first = answer.citations[0]
    new = replace(first, claim=Span(0, 0, 3), verification=Verification("missed"))
    changed = write(replace(answer, citations=(new, *answer.citations[1:]))).payload
    said = json.loads(changed["annotations"][0]["data"])
    assert said == {**DATA, "startOffset": 0, "endOffset": 3, "citewire": {"proof": "p", "status": "missed"}}
    assert changed["annotations"][1] == payload["annotations"][1]
    longer = replace(answer, parts=(Part("😀" + TEXT[1:]),))
    assert write(longer).payload["annotations"][1]["data"]["startOffset"] == 11


words = st.sampled_from(["", "a", "é😀", "c1", "\ud800"])
junk = st.sampled_from([None, 0, -1, 1.5, True, "", "x", [], {}, [1], {"a": 1}, 10**400, "\ud800"])
extras = st.fixed_dictionaries(
    {},
    optional={
        "id": words,
        "ordinal": st.integers(-1, 4),
        "marker": st.sampled_from([[0, 1], [1, 0], [0, 99], "x"]),
        "insert_at": st.integers(-1, 3),
        "origin": st.sampled_from(["exact", "derived", "bad"]),
        "kind": st.sampled_from(["web", "file", "bad"]),
        "metadata": st.sampled_from([{}, {"a": [1]}, 3]),
        "status": st.sampled_from(["verified", "bad"]),
        "locator": st.sampled_from(
            [{"type": "chunk", "id": "x"}, {"type": "lines", "ids": [1], "page": 3}, {}]
        ),
        "own": junk,
    },
)
datas = st.fixed_dictionaries(
    {},
    optional={
        "url": st.sampled_from(["https://www.a.example/x", "nope", ""]),
        "title": words,
        "snippet": words,
        "startOffset": st.integers(-1, 8),
        "endOffset": st.integers(0, 9),
        "startIndex": st.integers(0, 3),
        "endIndex": st.integers(2, 9),
        "page": st.integers(0, 4),
        "key": st.sampled_from(["0123456789abcdef", "k"]),
        "citewire": extras | extras | junk,
        "own": junk,
    },
)
names = st.sampled_from(["a.example", "b.example", "A title", ""])
serials = st.sampled_from(["m1", "m1", "m1", "m2", None])


@st.composite
def notes(draw: st.DrawFn) -> Any:
    data = draw(datas | datas | datas | junk)
    out: Any = {
        "type": draw(
            st.sampled_from([ANNOTATION_TYPE, ANNOTATION_TYPE, ANNOTATION_TYPE, "verdicts:multiple.v1"])
        ),
        "data": data,
    }
    if draw(st.integers(0, 3)) == 0:
        try:
            out |= {"data": json.dumps(data), "encoding": "json"}
        except ValueError:
            out |= {"data": "{oops", "encoding": "json"}
    fields = {
        "action": st.sampled_from([0, 0, 1, "annotation.create", "annotation.delete"]),
        "name": names,
        "clientId": st.sampled_from(["u1", "u2"]),
        "messageSerial": serials,
        "count": st.integers(0, 3),
    }
    return out | {
        name: draw(value | value | value | junk) for name, value in fields.items() if draw(st.booleans())
    }


@st.composite
def messages(draw: st.DrawFn) -> Any:
    counts = st.sampled_from([{"total": 2, "clientIds": {"u": 2}}, {"total": 1}, {"total": "x"}, 5])
    summary = st.dictionaries(names, counts, max_size=3).map(
        lambda counted: {"summary": {ANNOTATION_TYPE: counted, "x": 1}}
    )
    fields = {"serial": serials, "data": st.text("a😀[1] ", max_size=12), "annotations": summary}
    return {name: draw(value | value | value | junk) for name, value in fields.items() if draw(st.booleans())}


payloads: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"message": messages(), "annotations": st.lists(notes() | junk, max_size=5)}),
    st.lists(notes() | junk, max_size=5),
    notes(),
    messages(),
    st.fixed_dictionaries({"annotations": st.lists(notes(), max_size=3), "action": st.just(21)}),
    junk,
)


def changed(draw: st.DrawFn, answer: Answer) -> Answer:
    """The answer with one thing changed, dropped, added or moved."""
    citations, sources = list(answer.citations), list(answer.sources)
    kind = draw(st.integers(0, 6))
    if kind == 0:
        citations.insert(
            0, Citation("new", (SourceRef("new", quote="q"),), draw(st.none() | st.integers(0, 4)))
        )
        sources.append(Source("new", "web", draw(st.none() | st.just("https://b.example"))))
    elif kind == 1:
        return replace(answer, id=draw(st.sampled_from(["m3", "m4"])))
    elif kind == 2 and sources:
        sources[0] = replace(sources[0], title=draw(st.none() | st.just("Another")), url=None)
    elif kind == 3:
        citations.reverse()
    elif citations:
        place = draw(st.integers(0, len(citations) - 1))
        citation = citations[place]
        options = [
            [],
            [replace(citation, claim=None, verification=Verification("missed"), span_origin="unknown")],
            [replace(citation, id=draw(st.sampled_from(["k", "c9", "c1"])), ordinal=3), citation],
        ]
        citations[place : place + 1] = options[kind - 4]
    return replace(answer, citations=tuple(citations), sources=tuple(sources))


@given(payload=payloads, text=st.none() | st.text("a😀", max_size=9), data=st.data())
def test_any_payload_is_given_back_and_any_change_is_read_back(payload: Any, text: Any, data: Any) -> None:
    options = DialectOptions(text=text)
    try:
        found = ably.read_all(payload, options)
    except CitewireError:
        return
    for answer in found:
        assert write(touched(answer)).payload == payload
    if len(found) != 1:
        return
    new = changed(data.draw, changed(data.draw, found[0]))
    try:
        written = write(new)
        encode(written.payload)
    except CitewireError:
        return
    if written.payload != [] and is_list(written.payload) and not any(map(is_object, written.payload)):
        return  # nothing is left that says what it is
    back = next((a for a in ably.read_all(written.payload, options) if a.id == new.id), None)
    assert written.losses or (back and back.bare() == new.bare()) or not (new.citations or new.parts)
    if back is not None:
        assert write(touched(back)).payload == written.payload


def test_deep_metadata_is_a_problem() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    answer = read(message(note(data={"metadata": deep}), note()))
    assert len(answer.citations) == 1
    assert len(answer.problems) == 1


@pytest.mark.parametrize("path", payload_paths("ably"), ids=lambda path: path.stem)
def test_a_published_example(path: Any) -> None:
    payload = decode(path.read_bytes())
    answer = read(payload)
    assert answer.problems == ()
    assert answer.citations[0].claim == Span(0, 10, 42)
    assert answer.id == payload["messageSerial"]
    assert write(answer.bare()).losses == ()
