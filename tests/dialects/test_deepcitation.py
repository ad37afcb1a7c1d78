"""DeepCitation: every form, spelling and status word, and markers that must read back as they were meant."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from citewire.codec import decode, encode
from citewire.dialects import deepcitation
from citewire.dialects.base import DialectOptions
from citewire.dialects.deepcitation import ALIASES, BLOCK_END, BLOCK_START, canonicalize
from citewire.errors import CitewireError, ShapeError
from citewire.keys import key
from citewire.model import (
    Answer,
    Citation,
    Lines,
    Pages,
    Part,
    Point,
    Source,
    SourceRef,
    Span,
    Times,
    Verification,
    Written,
)
from support.cases import payload_paths
from support.oracle import unjustified, unnamed

TEXT = "The ferry sails at noon [1]. It carries forty cars [2], and in summer sixty [1, 2]. See x[1] and [9]."

ENTRY: Any = {
    "type": "document",
    "attachmentId": "timetable",
    "pageNumber": 3,
    "lineIds": [12, 13],
    "fullPhrase": "departs daily at 12:00",
    "anchorText": "12:00",
    "citationNumber": 1,
    "reasoning": "states the hour",
    "future": None,
}
WEB: Any = {
    "type": "url",
    "url": "https://ferry.example/fleet",
    "title": "The fleet",
    "domain": "ferry.example",
    "siteName": "Ferry",
    "fullPhrase": "room for 40 cars",
    "citationNumber": 2,
}
FILM: Any = {
    "type": "video",
    "attachmentId": "tour",
    "timestamps": {"startTime": "00:00:01.000", "endTime": "00:00:02.500"},
    "fullPhrase": "sixty in summer",
}
NEW_VERDICT: Any = {
    "status": "found_on_other_page",
    "verifiedMatchSnippet": "departs daily at 12:00 sharp",
    "document": {"verifiedPageNumber": 4, "mimeType": "application/pdf"},
    "evidence": {"src": "data:"},
}
OLD_VERDICT: Any = {
    "searchState": {"status": "found", "tries": 2},
    "pageNumber": 3,
    "matchSnippet": "room for 40 cars",
}

RECORD: Any = {
    "text": TEXT,
    "citations": {"92296a0e8c688c3b": ENTRY, "k2": WEB, "k3": FILM, "k4": 7},
    "verifications": {
        "92296a0e8c688c3b": NEW_VERDICT,
        "k2": OLD_VERDICT,
        "gone": {"status": "not_found"},
        "k4": {},
    },
    "model": "some-model",
}
RESPONSE: Any = {
    "verifications": {
        "a1": {**NEW_VERDICT, "citation": ENTRY},
        "a2": {"status": None, "citation": None, "label": "The fleet"},
        "a3": {"status": "found", "citation": 7},
    },
    "requestId": "r1",
}
REQUEST: Any = {
    "data": {
        "attachmentId": "timetable",
        "citations": {
            "b1": {"fullPhrase": "at noon", "pageNumber": 1},
            "b2": {**ENTRY, "attachmentId": "other"},
        },
        "outputImageFormat": "avif",
    }
}
MESSAGE: Any = {
    "messageId": "m1",
    "citations": {"92296a0e8c688c3b": ENTRY},
    "verifications": {"92296a0e8c688c3b": {"status": "pending"}},
    "summary": {"total": 1, "verified": 0, "partial": 0, "missed": 0, "pending": 1},
    "status": "verifying",
}
STATE: Any = {
    "citations": {"92296a0e8c688c3b": ENTRY, "k2": WEB},
    "verifications": {"92296a0e8c688c3b": {"status": "pending"}},
    "messages": {
        "m1": MESSAGE,
        "m2": {"citations": {"k2": WEB}, "status": "complete"},
    },
}


def in_block(value: Any, before: str = TEXT + "\n\n", behind: str = "\n") -> Any:
    return {"text": f"{before}{BLOCK_START}\n{json.dumps(value, indent=1)}\n{BLOCK_END}{behind}", "run": 3}


SHORT: Any = {"n": 1, "r": "why", "f": "departs daily at 12:00", "k": "12:00", "p": "3_2", "l": [13, 12]}
LONG: Any = {"id": 2, "full_phrase": "room for 40 cars", "page_id": "page_number_2_index_1", "line_ids": []}
GROUPED = in_block({"timetable": [SHORT, 5], "fleet": [LONG]})
FLAT = in_block(
    [{**SHORT, "a": "timetable"}, {**LONG, "attachmentId": "fleet"}], behind="\n\nGood journey [2]."
)
SINGLE = in_block(SHORT, behind="")
WRAPPED = in_block({"citations": [SHORT, LONG]})
CHECKED = {**GROUPED, "verifications": {"5edf0b9a0c7a2b6f": {"status": "found"}, "x": {"citation": WEB}}}

SAMPLES = {
    "record": RECORD,
    "response": RESPONSE,
    "request": REQUEST,
    "state": STATE,
    "block by attachment": GROUPED,
    "flat block": FLAT,
    "block of one": SINGLE,
    "block in a wrapper": WRAPPED,
    "block and verdicts": CHECKED,
}


def read(payload: Any, text: str | None = None) -> Answer:
    return deepcitation.read_all(payload, DialectOptions(text=text))[0]


def write(answer: Answer) -> Written:
    return deepcitation.write(answer, DialectOptions())


def touched(answer: Answer) -> Answer:
    """An equal answer that is not the one that was read, so that the writer has to look at all of it."""
    return replace(answer, citations=tuple(replace(citation) for citation in answer.citations))


def by_id(answer: Answer) -> dict[str, Citation]:
    return {citation.id: citation for citation in answer.citations}


def markers(answer: Answer) -> dict[str, str | None]:
    return {c.id: c.marker and answer.covered(c.marker) for c in answer.citations}


@pytest.mark.parametrize("payload", SAMPLES.values(), ids=SAMPLES)
def test_every_form_is_detected_and_given_back(payload: Any) -> None:
    assert deepcitation.detect(payload)
    for answer in deepcitation.read_all(payload, DialectOptions()):
        assert write(answer) == Written(payload)
        assert write(touched(answer)) == Written(payload)


@pytest.mark.parametrize("payload", SAMPLES.values(), ids=SAMPLES)
def test_a_bare_answer_loses_only_what_is_named(payload: Any) -> None:
    for answer in deepcitation.read_all(payload, DialectOptions()):
        written = write(answer.bare())
        back = read(decode(encode(written.payload)))

        assert back.problems == ()
        assert unnamed(answer, back, written.losses) is None
        assert unjustified(answer, back, written.losses) == []


@pytest.mark.parametrize("payload", SAMPLES.values(), ids=SAMPLES)
def test_what_could_not_be_read_outlives_the_citations(payload: Any) -> None:
    for number, answer in enumerate(deepcitation.read_all(payload, DialectOptions())):
        written = write(replace(answer, citations=(), sources=()))
        back = deepcitation.read_all(written.payload, DialectOptions())[number]

        assert back.citations == ()
        assert back.text == answer.text
        assert [p.message for p in back.problems] == [p.message for p in answer.problems]


def test_a_record() -> None:
    answer = read(RECORD)
    assert markers(answer) == {
        "92296a0e8c688c3b": "[1]",
        "92296a0e8c688c3b.2": "[1, 2]",
        "k2": "[2]",
        "k2.2": "[1, 2]",
        "k3": None,
        "gone": None,
    }
    first = by_id(answer)["92296a0e8c688c3b"]
    assert first.refs[0] == replace(
        SourceRef("s1", Lines((12, 13), 3), "departs daily at 12:00", "12:00"), native=first.refs[0].native
    )
    assert (first.ordinal, first.span_origin) == (1, "exact")
    assert by_id(answer)["k3"].refs[0].locator == Times("00:00:01.000", "00:00:02.500")
    assert [replace(source, native=None) for source in answer.sources] == [
        Source("s1", "document", file_id="timetable"),
        Source(
            "s2",
            "web",
            "https://ferry.example/fleet",
            "The fleet",
            domain="ferry.example",
            metadata={"siteName": "Ferry"},
        ),
        Source("s3", "document", file_id="tour", metadata={"type": "video"}),
    ]
    assert by_id(answer)["gone"].refs == ()
    assert [problem.path for problem in answer.problems] == ["$.citations.k4"]


def test_text_may_come_from_the_caller() -> None:
    payload = {name: value for name, value in RECORD.items() if name != "text"}
    answer = read(payload, text=TEXT)

    assert answer.text == TEXT
    assert write(touched(answer)).payload == payload
    changed = write(replace(answer, parts=(Part(TEXT + " Aye."),)))
    assert changed.payload == {**payload, "text": TEXT + " Aye."}


def test_a_response_speaks_of_its_citations_from_within() -> None:
    answer = read(RESPONSE)
    assert [c.id for c in answer.citations] == ["a1", "a2"]
    assert answer.citations[0].refs[0].quote == "departs daily at 12:00"
    assert answer.citations[1].refs == ()
    assert answer.citations[1].verification == replace(
        Verification("pending"),
        native=answer.citations[1].verification and answer.citations[1].verification.native,
    )
    assert [problem.path for problem in answer.problems] == ["$.verifications.a3.citation"]


def test_a_request_names_the_attachment_for_all() -> None:
    answer = read(REQUEST)
    assert [source.file_id for source in answer.sources] == ["timetable", "other"]
    moved = replace(answer, sources=(replace(answer.sources[0], file_id="new"), *answer.sources[1:]))
    assert write(moved).payload["data"]["citations"]["b1"] == {
        "fullPhrase": "at noon",
        "pageNumber": 1,
        "attachmentId": "new",
    }
    nowhere = replace(answer, sources=(replace(answer.sources[0], file_id=None), *answer.sources[1:]))
    assert [loss.field for loss in write(nowhere).losses] == ["source.file_id"]


def test_state_has_an_answer_for_each_message() -> None:
    first, second = deepcitation.read_all(STATE, DialectOptions())
    assert (first.id, second.id) == ("m1", "m2")
    verdict = Verification("verified", quote="departs daily at 12:00")
    checked = replace(first, citations=(replace(first.citations[0], verification=verdict),))
    payload = write(checked).payload

    found = {"status": "found", "verifiedMatchSnippet": "departs daily at 12:00"}
    assert (
        payload["verifications"] == payload["messages"]["m1"]["verifications"] == {"92296a0e8c688c3b": found}
    )
    assert payload["messages"]["m1"]["summary"] == {**MESSAGE["summary"], "verified": 1, "pending": 0}
    assert payload["messages"]["m2"] is STATE["messages"]["m2"]
    assert write(replace(second, id="m3")).payload["messages"]["m2"]["messageId"] == "m3"


@pytest.mark.parametrize(
    "payload", [GROUPED, FLAT, WRAPPED, CHECKED], ids=["grouped", "flat", "wrapped", "checked"]
)
def test_a_block_is_no_text(payload: Any) -> None:
    answer = read(payload)
    assert answer.text.startswith(TEXT)
    assert BLOCK_START not in answer.text
    first = answer.citations[0]
    assert first.refs[0] == replace(
        SourceRef(first.refs[0].source_id, Lines((13, 12), 3), "departs daily at 12:00", "12:00"),
        native=first.refs[0].native,
    )
    assert answer.covered(first.marker) == "[1]" if first.marker else False
    # The published key, over the lines in order.
    ref = replace(first.refs[0], locator=Lines((12, 13), 3))
    assert first.id == key(ref, answer.source(ref))


def test_text_behind_a_block_stays() -> None:
    answer = read(FLAT)
    assert answer.text == TEXT + "\n\nGood journey [2]."
    assert markers(answer)[answer.citations[-1].id] == "[2]"


def test_a_changed_block_is_written_anew_and_the_rest_stays() -> None:
    answer = read(FLAT)
    ref = replace(answer.citations[0].refs[0], quote="leaves at <<<noon>>>")
    changed = replace(
        answer,
        citations=tuple(replace(c, refs=(ref,)) if c.ordinal == 1 else c for c in answer.citations),
    )
    text = write(changed).payload["text"]
    before, _, rest = text.partition(BLOCK_START)
    body, _, behind = rest.partition(BLOCK_END)

    assert (before, behind) == (TEXT + "\n\n", "\n\nGood journey [2].")
    assert json.loads(body) == {
        "timetable": [
            {
                "id": 1,
                "reasoning": "why",
                "full_phrase": "leaves at <<<noon>>>",
                "anchor_text": "12:00",
                "page_id": "page_number_3_index_2",
                "line_ids": [13, 12],
            }
        ],
        "fleet": [{"id": 2, "full_phrase": "room for 40 cars", "page_id": "page_number_2_index_1"}],
    }
    back = read({"text": text})
    assert [c.refs[0].quote for c in back.citations] == [c.refs[0].quote for c in changed.citations]


def test_a_verdict_on_a_block_stands_beside_it() -> None:
    answer = read(SINGLE)
    checked = replace(
        answer,
        citations=tuple(
            replace(c, verification=Verification("altered", "a number")) for c in answer.citations
        ),
    )
    payload = write(checked).payload
    assert payload == {
        **SINGLE,
        "verifications": {
            answer.citations[0].id: {
                "status": "not_found",
                "citewire": {"status": "altered", "reason": "a number"},
            }
        },
    }
    assert read(payload).bare() == checked.bare()


@pytest.mark.parametrize(
    ("text", "visible", "citations", "problems"),
    [
        pytest.param(f"Hi [1]. {BLOCK_START}", "Hi [1].", 0, 0, id="cut off at once"),
        pytest.param(f'Hi [1].{BLOCK_START}[{{"id":1}}]', "Hi [1].", 1, 0, id="never closed"),
        pytest.param(f"Hi. {BLOCK_START}  {BLOCK_END} Bye.", "Hi. Bye.", 0, 0, id="empty"),
        pytest.param(
            f"A model ends with {BLOCK_START} as told.",
            f"A model ends with {BLOCK_START} as told.",
            0,
            0,
            id="prose",
        ),
        pytest.param(
            f'Of {BLOCK_START}, then [1] {BLOCK_START}[{{"id":1}}]{BLOCK_END}',
            f"Of {BLOCK_START}, then [1]",
            1,
            0,
            id="both",
        ),
        pytest.param(
            f'[1][2]{BLOCK_START}[{{"n":1}}]{BLOCK_END} x {BLOCK_START}[{{"n":2}}]{BLOCK_END}',
            "[1][2] x",
            2,
            0,
            id="two",
        ),
        pytest.param(f"Hi. {BLOCK_START}[{{'id': 1}}]{BLOCK_END}", "Hi.", 0, 1, id="not JSON"),
        pytest.param(f'Hi. {BLOCK_START}{{"note": "x"}}{BLOCK_END}', "Hi.", 0, 1, id="no entries"),
        pytest.param(f'Hi. {BLOCK_START}{{"__proto__": [{{"n": 1}}]}}{BLOCK_END}', "Hi.", 0, 1, id="unsafe"),
        pytest.param(
            f'[1] {BLOCK_START}[{{"n":1}},{{"n":-1}},{{"n":1,"f":5}}]{BLOCK_END}',
            "[1]",
            1,
            2,
            id="bad entries",
        ),
    ],
)
def test_blocks_of_all_sorts(text: str, visible: str, citations: int, problems: int) -> None:
    answer = read({"text": text})
    assert (answer.text, len(answer.citations), len(answer.problems)) == (visible, citations, problems)
    assert write(touched(answer)).payload == {"text": text}


def test_unreadable_blocks_stay_when_citations_come() -> None:
    payload = {"text": f"Hi. {BLOCK_START}{{oops{BLOCK_END}"}
    new = Citation("c1", (SourceRef("s1", quote="q"),), insert_at=Point(0, 2))
    written = write(
        replace(read(payload), citations=(new,), sources=(Source("s1", "document", file_id="f"),))
    )

    assert written.payload["text"] == f"Hi [1]. {BLOCK_START}{{oops{BLOCK_END}"
    assert [c.ordinal for c in read(written.payload).citations] == [1]


EXTRAS = ("description", "faviconUrl", "sourceType", "platform", "siteName", "author")
# What a field is in the model: of the citation, its source, or the place within it.
FIELDS: dict[str, tuple[str, Any]] = {
    "attachmentId": ("source.file_id", "att"),
    "citationNumber": ("citation.ordinal", 7),
    "fullPhrase": ("ref.quote", "a phrase"),
    "anchorText": ("ref.anchor", "words"),
    "value": ("ref.anchor", "words"),
    "url": ("source.url", "https://x.example"),
    "title": ("source.title", "A title"),
    "domain": ("source.domain", "x.example"),
    **{name: (f"metadata.{name}", "said") for name in (*EXTRAS, "publishedAt", "imageUrl", "accessedAt")},
    "pageNumber": ("locator.first", 4),
    "startPageId": ("locator.first", 4),
}


def look_up(answer: Answer, path: str) -> Any:
    citation, source = answer.citations[0], answer.sources[0]
    roots = {
        "citation": citation,
        "source": source,
        "ref": citation.refs[0],
        "locator": citation.refs[0].locator,
    }
    root, _, name = path.partition(".")
    return source.metadata.get(name) if root == "metadata" else getattr(roots[root], name)


@pytest.mark.parametrize(
    ("name", "spelling"), [(name, key) for name in FIELDS for key in (name, *ALIASES[name])]
)
def test_every_spelling_is_read_on_every_path(name: str, spelling: str) -> None:
    path, value = FIELDS[name]
    entry = {spelling: value}
    response = {"verifications": {"k": {"citation": entry}}}
    for payload in ({"citations": {"k": entry}}, response, in_block([entry], "Hi.")):
        assert look_up(read(payload), path) == value


@pytest.mark.parametrize("spelling", ["lineIds", *ALIASES["lineIds"]])
@pytest.mark.parametrize("value", [[5, 6], ["5", 6]])
def test_spellings_of_lines(spelling: str, value: Any) -> None:
    assert read({"citations": {"k": {spelling: value}}}).citations[0].refs[0].locator == Lines((5, 6))


@pytest.mark.parametrize("spelling", ["timestamps", *ALIASES["timestamps"]])
@pytest.mark.parametrize("start", ["startTime", *ALIASES["startTime"]])
@pytest.mark.parametrize("end", ["endTime", *ALIASES["endTime"]])
def test_spellings_of_times(spelling: str, start: str, end: str) -> None:
    answer = read({"citations": {"k": {spelling: {start: "00:01", end: "00:02"}, "lineIds": [1]}}})
    assert answer.citations[0].refs[0].locator == Times("00:01", "00:02")
    assert answer.sources[0].metadata == {"type": "audio"}


def test_canonical_prefers_the_published_name() -> None:
    assert canonicalize({"k": "last", "anchor": "later", "anchorText": "first"}) == {"anchorText": "first"}
    assert canonicalize({"k": "last", "anchor": "later", "anchorText": None}) == {"anchorText": "later"}
    assert canonicalize({"own": 1}) == {"own": 1}


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("page_number_2_index_1", 2),
        ("PAGE_NUMBER_2_INDEX_1", 2),
        ("page_2_index_0", 2),
        ("3_2", 3),
        ("3", 3),
        (3, 3),
        ("0_0", 1),
        ("page_number_0_index_0", 1),
        ("0_5", None),
        (0, None),
        ("cover", None),
        ("9" * 5000, None),
    ],
)
def test_page_ids(page: Any, expected: int | None) -> None:
    locator = read({"citations": {"k": {"page_id": page}}}).citations[0].refs[0].locator
    assert locator == (None if expected is None else Pages(expected, expected))


WORDS: list[tuple[str | None, str, str | None]] = [
    ("found", "verified", None),
    ("found_phrase_missed_anchor_text", "verified", "found_phrase_missed_anchor_text"),
    ("found_anchor_text_only", "partial", "found_anchor_text_only"),
    ("partial_text_found", "partial", None),
    ("found_on_other_page", "partial", "found_on_other_page"),
    ("found_on_other_line", "partial", "found_on_other_line"),
    ("first_word_found", "partial", "first_word_found"),
    ("not_found", "missed", None),
    ("pending", "pending", None),
    ("loading", "pending", "loading"),
    (None, "pending", None),
    ("skipped", "skipped", "skipped"),
    ("timestamp_wip", "skipped", "timestamp_wip"),
    ("quantum_found", "skipped", "quantum_found"),
]


@pytest.mark.parametrize(("word", "status", "reason"), WORDS)
@pytest.mark.parametrize("older", [False, True])
def test_status_words(word: str | None, status: str, reason: str | None, older: bool) -> None:
    raw = {"searchState": {"status": word}} if older else {"status": word}
    payload = {"verifications": {"k": raw}}
    verdict = read(payload).citations[0].verification

    assert verdict is not None
    assert (verdict.status, verdict.reason) == (status, reason)
    again = write(read(payload).bare()).payload["verifications"]["k"]
    if word is None:
        assert again == {"status": "pending"}
    elif word == "quantum_found":
        assert again == {"status": "skipped", "citewire": {"status": "skipped", "reason": word}}
    else:
        assert again == {"status": word}


@pytest.mark.parametrize(
    ("verdict", "written"),
    [
        (Verification("verified"), {"status": "found"}),
        (
            Verification("verified", "why"),
            {"status": "found", "citewire": {"status": "verified", "reason": "why"}},
        ),
        (Verification("partial", "first_word_found"), {"status": "first_word_found"}),
        (
            Verification("partial", "found"),
            {"status": "partial_text_found", "citewire": {"status": "partial", "reason": "found"}},
        ),
        (Verification("altered"), {"status": "not_found", "citewire": {"status": "altered"}}),
        (Verification("missed", page=2), {"status": "not_found", "document": {"verifiedPageNumber": 2}}),
        (Verification("skipped"), {"status": "skipped", "citewire": {"status": "skipped"}}),
        (Verification("pending", quote=""), {"status": "pending", "verifiedMatchSnippet": ""}),
    ],
)
def test_our_verdicts_in_their_words(verdict: Verification, written: Any) -> None:
    answer = Answer(citations=(Citation("k", verification=verdict),))
    payload = write(answer).payload
    assert payload == {"citations": {}, "verifications": {"k": written}}
    assert read(payload).bare() == answer


def test_a_changed_verdict_keeps_its_shape() -> None:
    answer = read(RECORD)
    changed = tuple(
        replace(
            c, verification=c.verification and replace(c.verification, status="missed", reason=None, page=9)
        )
        for c in answer.citations
    )
    verdicts = write(replace(answer, citations=changed)).payload["verifications"]

    assert verdicts["92296a0e8c688c3b"] == {
        **NEW_VERDICT,
        "status": "not_found",
        "document": {"verifiedPageNumber": 9, "mimeType": "application/pdf"},
    }
    assert verdicts["k2"] == {
        **OLD_VERDICT,
        "searchState": {"status": "not_found", "tries": 2},
        "pageNumber": 9,
    }
    assert verdicts["k4"] == {}


@pytest.mark.parametrize(
    ("raw", "change", "written"),
    [
        ({"k": "old"}, {"anchor": "new"}, {"k": "new"}),
        ({"value": "old"}, {"anchor": "new"}, {"anchorText": "new"}),
        ({"k": "old", "x": 1}, {"anchor": None}, {"x": 1}),
        ({"page_id": "3_2"}, {"locator": Pages(4, 4)}, {"pageNumber": 4}),
        ({"page": 3, "p": "3_2"}, {"locator": Lines((1,), 4)}, {"page": 4, "lineIds": [1]}),
        ({"t": {"s": "1"}, "page": 3}, {"locator": None}, {"type": "audio"}),
        ({"page": 3}, {"locator": Times("1")}, {"type": "audio", "timestamps": {"startTime": "1"}}),
        ({"phrase": None}, {"quote": "new"}, {"phrase": "new"}),
    ],
)
def test_a_change_changes_just_that(raw: Any, change: Any, written: Any) -> None:
    answer = read({"citations": {"k": raw}})
    citation = answer.citations[0]
    changed = replace(answer, citations=(replace(citation, refs=(replace(citation.refs[0], **change),)),))
    assert write(changed).payload == {"citations": {"k": written}}


def test_a_change_reaches_the_copy_within_the_verdict() -> None:
    payload = {"citations": {"k": ENTRY}, "verifications": {"k": {"status": "found", "citation": ENTRY}}}
    answer = read(payload)
    citation = answer.citations[0]
    changed = replace(answer, citations=(replace(citation, refs=(replace(citation.refs[0], quote="new"),)),))
    new = {**ENTRY, "fullPhrase": "new"}
    assert write(changed).payload == {
        "citations": {"k": new},
        "verifications": {"k": {"status": "found", "citation": new}},
    }


PROBLEMS: list[tuple[Any, str]] = [
    (5, "$.citations.bad"),
    (None, "$.citations.bad"),
    ({"f": 5}, "$.citations.bad.f"),
    ({"fileId": []}, "$.citations.bad.fileId"),
    ({"page": -1}, "$.citations.bad.page"),
    ({"page": 1.5}, "$.citations.bad.page"),
    ({"page": True}, "$.citations.bad.page"),
    ({"page": 10**400}, "$.citations.bad.page"),
    ({"lines": ["a"]}, "$.citations.bad.lines"),
    ({"lines": "a"}, "$.citations.bad.lines"),
    ({"lineIds": [1, -1]}, "$.citations.bad.lineIds"),
    ({"id": "one"}, "$.citations.bad.id"),
    ({"citationNumber": -3}, "$.citations.bad.citationNumber"),
    ({"t": "1-5"}, "$.citations.bad.t"),
    ({"timestamps": {"s": 1}}, "$.citations.bad.timestamps"),
    ({"type": "url"}, "$.citations.bad.url"),
    ({"type": 3}, "$.citations.bad.type"),
]


@pytest.mark.parametrize(("bad", "path"), PROBLEMS)
def test_a_bad_entry_costs_only_itself(bad: Any, path: str) -> None:
    payload = {"text": TEXT, "citations": {"a": ENTRY, "bad": bad, "b": WEB}}
    answer = read(payload)

    assert {citation.id for citation in answer.citations} == {"a", "a.2", "b", "b.2"}
    assert [(problem.code, problem.path) for problem in answer.problems] == [("bad_shape", path)]
    dropped = replace(answer, citations=tuple(c for c in answer.citations if c.ordinal != 2))
    assert write(dropped).payload["citations"] == {"a": ENTRY, "bad": bad}


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (5, "$.verifications.a"),
        ({"status": 5}, "$.verifications.a.status"),
        ({"searchState": {"status": []}}, "$.verifications.a.searchState.status"),
        ({"citewire": {"status": "best"}}, "$.verifications.a.citewire.status"),
        ({"document": 5}, "$.verifications.a.document"),
        ({"document": {"verifiedPageNumber": "3"}}, "$.verifications.a.document.verifiedPageNumber"),
        ({"verifiedMatchSnippet": 5}, "$.verifications.a.verifiedMatchSnippet"),
    ],
)
def test_a_bad_verdict_costs_only_itself(bad: Any, path: str) -> None:
    payload = {"citations": {"a": ENTRY, "b": WEB}, "verifications": {"a": bad, "b": OLD_VERDICT}}
    answer = read(payload)

    assert [c.verification and c.verification.status for c in answer.citations] == [None, "verified"]
    assert [problem.path for problem in answer.problems] == [path]
    assert write(touched(answer)).payload == payload


@pytest.mark.parametrize("name", ["__proto__", "constructor", "prototype"])
def test_unsafe_keys_are_left_out(name: str) -> None:
    payload = {"citations": {name: ENTRY, "a": WEB}, "verifications": {name: NEW_VERDICT}}
    answer = read(payload)
    assert [citation.id for citation in answer.citations] == ["a"]
    assert [problem.path for problem in answer.problems] == [f"$.citations.{name}"]
    state = {**STATE, "messages": {name: MESSAGE, "m2": STATE["messages"]["m2"]}}
    assert [a.id for a in deepcitation.read_all(state, DialectOptions())] == ["m2"]
    assert name not in write(Answer(citations=(Citation(name, verification=Verification("missed")),))).payload


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (None, "$"),
        ([1], "$"),
        ({}, "$"),
        ({"data": {}}, "$.data"),
        ({"text": 5}, "$.text"),
        ({"citations": [1]}, "$.citations"),
        ({"citations": {}, "verifications": 3}, "$.verifications"),
        ({"messages": {"m": 3}}, "$.messages"),
        ({"messages": {"m": {"citations": 3}}}, "$.messages.m.citations"),
        ({"data": {"attachmentId": 3, "citations": {}}}, "$.data.attachmentId"),
    ],
)
def test_a_hopeless_payload_is_refused(payload: Any, path: str) -> None:
    with pytest.raises(ShapeError) as caught:
        deepcitation.read_all(payload, DialectOptions())
    assert caught.value.path == path


SOURCES = (
    Source("s1", "document", file_id="timetable"),
    Source("s2", "web", "https://ferry.example/fleet", "The fleet"),
)


def cite(name: str, source: str = "s1", **fields: Any) -> Citation:
    return Citation(name, (SourceRef(source, quote=f"quote of {source}"),), **fields)


def test_a_bare_answer_becomes_a_record() -> None:
    ref = SourceRef("s1", Lines((12, 13), 3), "departs daily at 12:00", "12:00")
    text = "It sails at noon. It carries cars."
    claim = Citation("c1", (ref,), claim=Span(0, 0, 16), span_origin="exact")
    timed = Citation("c3", (SourceRef("s3", Times("00:01", None)),), ordinal=4)
    third = Source("s3", "file", file_id="tour")
    written = write(
        Answer((Part(text),), (claim, cite("c2", "s2", insert_at=Point(0, 34)), timed), (*SOURCES, third))
    )

    first, second, last = written.payload["citations"]
    assert first == key(ref, SOURCES[0])
    assert written.payload == {
        "text": "It sails at noon [1]. It carries cars. [2]",
        "citations": {
            first: {
                "type": "document",
                "attachmentId": "timetable",
                "pageNumber": 3,
                "lineIds": [12, 13],
                "fullPhrase": "departs daily at 12:00",
                "anchorText": "12:00",
                "citationNumber": 1,
            },
            second: {
                "type": "url",
                "fullPhrase": "quote of s2",
                "citationNumber": 2,
                "url": "https://ferry.example/fleet",
                "title": "The fleet",
            },
            last: {
                "type": "audio",
                "attachmentId": "tour",
                "citationNumber": 4,
                "timestamps": {"startTime": "00:01"},
            },
        },
    }
    assert {str(loss) for loss in written.losses} == {
        "ordinal of c1: made up: 1",
        "ordinal of c2: made up: 2",
        "marker of c1: written into the text",
        "marker of c2: written into the text",
        "claim of c1: deepcitation has no place for it",
        "span_origin of c2: unknown will read as exact",
        "source.metadata of s3: entries have fields of their own and a type",
        "source.kind of s3: file will read as document",
        f"id of c1: will read as {first}",
        f"id of c2: will read as {second}",
        f"id of c3: will read as {last}",
    }


# What the text says, what is cited (markers by what they cover, else a point at the end), and what comes out.
NUMBERS: list[Any] = [
    pytest.param(
        "A [7].", [cite("a", ordinal=7, marker="[7]")], "A [7].", id="a number that is printed stays"
    ),
    pytest.param("A [7].", [cite("a", marker="[7]")], "A [7].", id="a printed number is taken"),
    pytest.param(
        "A 【7†x】.", [cite("a", ordinal=7, marker="【7†x】")], "A [7].", id="another marker is replaced"
    ),
    pytest.param("A [7].", [cite("a")], "A [7]. [1]", id="numbers of the text are not taken"),
    pytest.param("A [1].", [cite("a")], "A [1]. [2]", id="not even the first one"),
    pytest.param("A [1].", [cite("a", ordinal=1)], "A [1]. [2]", id="nor when they are asked for"),
    pytest.param(
        "A [1].",
        [cite("a", ordinal=1, marker="[1]"), cite("b", "s2", ordinal=1, marker="[1]")],
        "A [1].",
        id="shared",
    ),
    pytest.param(
        "A [1]. B [1].",
        [cite("a", ordinal=1, marker="[1]"), cite("b", ordinal=1, marker=9)],
        "A [1]. B [1].",
        id="used twice",
    ),
    pytest.param(
        "A [1]. B [1].",
        [cite("a", ordinal=1, marker="[1]"), cite("b", "s2", ordinal=1, marker=9)],
        "A [1]. B [2].",
        id="one number for two things",
    ),
    pytest.param(
        "row[1]", [cite("a")], "row[1] [2]", id="an index is no marker, and its number is not taken"
    ),
    pytest.param("`code`", [cite("a", insert_at=Point(0, 3))], "`code`", id="no marker within code"),
    pytest.param(
        "A [2024].", [cite("a", ordinal=2024, marker="[2024]")], "A [2024].", id="a year that is a number"
    ),
    pytest.param("A", [cite("a", ordinal=10**7)], "A [1]", id="a number too large for a marker"),
]


@pytest.mark.parametrize(("text", "citations", "expected"), NUMBERS)
def test_numbers_mean_what_they_say(text: str, citations: list[Citation], expected: str) -> None:
    def placed(citation: Citation) -> Citation:
        marker: Any = citation.marker
        if isinstance(marker, str):
            return replace(citation, marker=Span(0, text.index(marker), text.index(marker) + len(marker)))
        if isinstance(marker, int):
            return replace(citation, marker=Span(0, marker, marker + 3))
        return citation if citation.insert_at else replace(citation, insert_at=Point(0, len(text)))

    answer = Answer((Part(text),), tuple(map(placed, citations)), SOURCES)
    written = write(answer)
    back = read(written.payload)

    assert written.payload["text"] == expected
    assert len(back.citations) == len(citations)
    assert write(back.bare()) == Written(written.payload)
    assert unnamed(answer, back, written.losses) is None


def test_ids_that_are_keys_stay() -> None:
    answer = Answer(citations=(cite("0123456789abcdef"), cite("0123456789abcdef.2")), sources=SOURCES[:1])
    written = write(answer)
    assert list(written.payload["citations"]) == ["0123456789abcdef", "0123456789abcdef.2"]
    assert "id" not in {loss.field for loss in written.losses}


def test_what_looks_like_a_block_is_taken_out_and_named() -> None:
    answer = Answer((Part(f"A {BLOCK_START}[{{}}]{BLOCK_END} B"),))
    written = write(answer)
    assert written.payload == {"text": "A B", "citations": {}}
    assert [loss.field for loss in written.losses] == ["text"]
    nested = Answer((Part(f"{BLOCK_START[:5]}{BLOCK_START}{{{BLOCK_END}{BLOCK_START[5:]}{{" * 4),))
    assert read(write(nested).payload).bare() == replace(nested, parts=(Part(""),))


# Text in which brackets, code and delimiters meet in every way.
PIECES = [
    *(
        "Rivers rise",
        " ",
        "[1]",
        "[2]",
        "[1, 2]",
        "[3]",
        ". ",
        "x",
        "arr",
        "`",
        "```\n",
        "[",
        "(",
        "= ",
        "\\",
        "\n\n",
    ),
    *(
        "é",
        "😀",
        "[2024]",
        "[0]",
        "[cite: 1]",
        "【4:0†s】",
        "[^n]",
        BLOCK_START,
        BLOCK_END,
        "{",
        "[]",
        "iPhone",
        ": ",
    ),
]
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
words = st.sampled_from(["", "a", "a|b", BLOCK_END, "é😀", "citations", "__proto__", "0_0", "\ud800"])
whole = st.sampled_from(["", "a", "a|b", BLOCK_END, "é😀", "citations", "__proto__"])
junk = st.sampled_from(
    [None, 0, -1, 1.5, True, "", "x", [], {}, [1], {"a": 1}, "3", "2_1", 10**400, "\ud800"]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(["document", "url", "audio", "video", "image"]),
    "citationNumber": st.integers(0, 4) | st.just("1"),
    "pageNumber": st.integers(0, 4),
    "startPageId": st.sampled_from(["page_number_2_index_1", "3_2", "0_0", "0_5", "nope", 4]),
    "lineIds": st.lists(st.integers(0, 9), max_size=3),
    "timestamps": st.sampled_from([{}, {"startTime": "a"}, {"s": "a", "e": "b"}, {"s": 1}]),
}


def mostly(draw: st.DrawFn, strategy: st.SearchStrategy[Any]) -> Any:
    return draw(strategy) if draw(st.integers(0, 14)) else draw(junk)


@st.composite
def entries(draw: st.DrawFn) -> Any:
    names = draw(st.lists(st.sampled_from([*ALIASES, "own"]), max_size=7))
    return {
        draw(st.sampled_from((name, *ALIASES.get(name, ())))): mostly(draw, VALUES.get(name, words))
        for name in names
    }


@st.composite
def verdicts(draw: st.DrawFn) -> Any:
    fields = {
        "status": st.sampled_from(
            ["found", "found_on_other_page", "not_found", "loading", "skipped", "odd", None]
        ),
        "searchState": st.sampled_from([{"status": "found"}, {"status": None}, {"status": "odd", "own": 1}]),
        "citewire": st.sampled_from(
            [{"status": "altered", "reason": "n"}, {"reason": "x"}, {"status": "bad"}]
        ),
        "document": st.sampled_from([{}, {"verifiedPageNumber": 3}, {"verifiedPageNumber": -1}]),
        "pageNumber": st.integers(-1, 3),
        "matchSnippet": words,
        "verifiedMatchSnippet": words,
        "citation": entries(),
        "label": words,
    }
    return {name: mostly(draw, value) for name, value in fields.items() if draw(st.booleans())}


@st.composite
def blocks(draw: st.DrawFn) -> str:
    few = st.lists(entries() | junk, max_size=2)
    groups = st.dictionaries(st.sampled_from(["att", "b", "", "citations", "__proto__"]), few, max_size=3)
    value = draw(groups | few | entries() | junk)
    try:
        body = json.dumps(value, indent=draw(st.none() | st.just(1)))
    except ValueError:
        body = "{oops"
    space = st.sampled_from(["", "\n\n", " "])
    end = draw(st.sampled_from([BLOCK_END, f"{BLOCK_END} ", ""]))
    return f"{draw(space)}{BLOCK_START}{draw(space)}{body}{end}"


KEYS = st.sampled_from(
    ["k1", "k2", "0123456789abcdef", "0123456789abcdef.2", "__proto__", "98c4b7d37a4c63c3", ""]
)


@st.composite
def records(draw: st.DrawFn) -> Any:
    out: Any = {}
    if draw(st.booleans()):
        block = draw(blocks()) if draw(st.booleans()) else ""
        out["text"] = f"{draw(texts)}{block}{draw(st.sampled_from(['', ' tail [1]']))}"
    if draw(st.booleans()):
        out["citations"] = mostly(draw, st.dictionaries(KEYS, entries() | junk, max_size=4))
    if draw(st.booleans()):
        out["verifications"] = mostly(draw, st.dictionaries(KEYS, verdicts() | junk, max_size=4))
    for name in ("attachmentId", "messageId", "own"):
        if draw(st.integers(0, 3)) == 0:
            out[name] = draw(words)
    return out


@st.composite
def payloads(draw: st.DrawFn) -> Any:
    form = draw(st.integers(0, 9))
    if form < 6:
        return draw(records())
    if form == 6:
        return {"data": draw(records()), "own": 1}
    messages = st.dictionaries(st.sampled_from(["m1", "m2", "__proto__"]), records() | junk, max_size=2)
    return {**draw(records()), "messages": draw(messages)} if form < 9 else draw(junk)


def changed(draw: st.DrawFn, answer: Answer) -> Answer:
    """The answer with one thing changed, dropped, added or moved."""
    citations, sources = list(answer.citations), list(answer.sources)
    place = draw(st.integers(0, len(citations) - 1)) if citations else 0
    kind = draw(st.integers(0, 9))
    if kind == 0:
        new = Citation("new", (SourceRef("new", quote=draw(whole)),), draw(st.none() | st.integers(0, 4)))
        if answer.parts and draw(st.booleans()):
            new = replace(new, insert_at=Point(0, len(answer.parts[0].text)))
        citations.insert(place, new)
        sources.append(Source("new", "web", draw(st.none() | whole)))
    elif kind == 1:
        del citations[place : place + 1]
    elif kind == 2:
        return replace(answer, id=draw(st.none() | whole))
    elif kind == 3 and answer.parts:
        return replace(answer, parts=(Part(answer.parts[0].text + draw(texts)),))
    elif kind == 4 and sources:
        sources[0] = replace(
            sources[0], title=draw(st.none() | whole), file_id=draw(st.none() | whole), url=None
        )
    elif citations:
        citation = citations[place]
        options = [
            replace(citation, ordinal=draw(st.none() | st.integers(0, 4))),
            replace(citation, verification=draw(st.none() | st.just(Verification("altered", "why", "q", 2)))),
            replace(citation, refs=()),
            replace(citation, refs=tuple(replace(ref, locator=draw(LOCATORS)) for ref in citation.refs)),
            replace(citation, refs=tuple(replace(ref, quote=draw(whole)) for ref in citation.refs)),
        ]
        citations[place] = options[kind - 5]
    return replace(answer, citations=tuple(citations), sources=tuple(sources))


LOCATORS = st.sampled_from(
    [None, Pages(2, 2), Pages(2, 3), Pages(0, 0), Lines((2, 1), 3), Lines(()), Times("a"), Times()]
)


@given(payload=payloads(), text=st.none() | texts, data=st.data())
def test_any_payload_is_given_back_and_any_change_is_read_back(payload: Any, text: Any, data: Any) -> None:
    options = DialectOptions(text=text)
    try:
        answers = deepcitation.read_all(payload, options)
    except CitewireError:
        return
    for number, answer in enumerate(answers):
        assert write(touched(answer)) == Written(payload)
        bare = answer.bare()
        written = write(bare)
        assert (read(written.payload).bare() == bare) == (not written.losses)
        new = changed(data.draw, changed(data.draw, answer))
        try:
            written = write(new)
            encode(written.payload)
        except CitewireError:
            continue
        back = deepcitation.read_all(written.payload, options)[number]
        assert written.losses or back.bare() == new.bare()
        assert write(touched(back)) == Written(written.payload)


@st.composite
def placed(draw: st.DrawFn, name: str, text: str) -> Citation:
    edge = st.integers(0, len(text))
    start, end = sorted((draw(edge), draw(edge)))
    printed = [
        Span(0, at, at + 3) for at in range(len(text)) if text[at] == "[" and text[at + 2 : at + 3] == "]"
    ]
    span = st.sampled_from([*printed, Span(0, start, end)])
    return Citation(
        name,
        (SourceRef(draw(st.sampled_from(["s1", "s2"])), draw(LOCATORS), draw(st.none() | whole)),),
        draw(st.none() | st.integers(-1, 4) | st.sampled_from([2024, 10**7])),
        draw(st.none() | span),
        draw(st.none() | span),
        draw(st.none() | edge.map(lambda at: Point(0, at))),
        verification=draw(st.none() | st.just(Verification("missed"))),
    )


@given(text=texts, data=st.data())
def test_markers_among_brackets_read_back(text: str, data: st.DataObject) -> None:
    """What is written is what is read: a second time, nothing is lost."""
    citations = tuple(data.draw(placed(f"c{number}", text)) for number in range(data.draw(st.integers(0, 5))))
    written = write(Answer((Part(text),), citations, SOURCES))
    back = read(decode(encode(written.payload)))

    assert back.problems == ()
    assert len(back.citations) == len(citations)
    assert write(back.bare()) == Written(written.payload)


HOSTILE = {
    "one number for all": {"text": "[1] " * 3000, "citations": {str(n): {"n": 1} for n in range(3000)}},
    "delimiters": {"text": BLOCK_START * 5000 + " " * 5000},
    "open blocks": {"text": (BLOCK_START + "{") * 5000},
    "spaces before blocks": {"text": (" " * 500 + BLOCK_START + "{}" + BLOCK_END) * 500},
    "the same entry": {"text": BLOCK_START + json.dumps([{"n": 1, "f": "q"}] * 3000) + BLOCK_END},
}


@pytest.mark.slow
@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_hostile_payloads_take_no_longer_than_others(payload: Any) -> None:
    answer = read(payload)
    assert write(answer) == Written(payload)
    assert write(answer.bare()).payload
    assert write(replace(answer, citations=answer.citations[1:])).payload


@pytest.mark.parametrize("path", payload_paths("deepcitation"), ids=lambda path: path.stem)
def test_a_published_example(path: Any) -> None:
    payload = decode(path.read_bytes())
    answer = read(payload)

    assert answer.problems == ()
    assert list(markers(answer).values()) == ["[1]", "[2]"]
    assert [c.refs[0].locator for c in answer.citations] == [Lines((12,), 2), Lines((5, 6, 7), 3)]
    assert [source.file_id for source in answer.sources] == ["abc123"]
    assert write(answer.bare()).losses == ()
