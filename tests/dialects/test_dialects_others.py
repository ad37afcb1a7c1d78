"""What is particular to the shapes of frameworks, chat surfaces and libraries."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

import citewire
from citewire.dialects.base import is_list, is_object
from citewire.model import Answer, Chars, Citation, Pages, Part, Source, SourceRef, Span, Verification
from support.cases import ROOT
from support.losses import an_answer
from support.oracle import unnamed
from support.samples_others import CSL, LANGCHAIN, LLAMAINDEX, LLAMAINDEX_CHAT, PAYLOADS, SLACK, TEAMS, W3C

TEXT = "Refunds take 30 days. Ask us."
POLICY = Source("s1", "web", "https://example.com/refunds", "Refund policy")


def cited(quote: str | None = None, source: Source = POLICY, **fields: Any) -> Answer:
    place: dict[str, Any] = {"claim": Span(0, 0, 20), "span_origin": "exact"} | fields
    return Answer((Part(TEXT),), (Citation("c1", (SourceRef("s1", quote=quote),), **place),), (source,))


def lost(written: citewire.Written) -> set[str]:
    return {loss.field for loss in written.losses}


def own_fields(payload: Any) -> set[str]:
    """The names in all objects of ours."""
    if is_list(payload):
        return set[str]().union(*map(own_fields, payload))
    if not is_object(payload):
        return set()
    ours = payload.get("citewire")
    return set(ours or ()).union(*map(own_fields, payload.values()))


@pytest.mark.parametrize("dialect", ["ably", "langchain", "ngaf", "vercel", "w3c"])
def test_the_protocol_names_all_that_we_add(dialect: str) -> None:
    answer = an_answer()
    marked = replace(answer.citations[1], marker=Span(0, 49, 50), span_origin="derived")
    checked = replace(marked, verification=Verification("altered", "a number", "31 days", 3))
    written = citewire.write(replace(answer, citations=(answer.citations[0], checked)), dialect)
    section = (ROOT / "PROTOCOL.md").read_text("utf-8").partition("## 2.")[2].partition("## 3.")[0]
    added = own_fields(written.payload)

    assert {"status", "reason", "found", "anchor"} <= added
    assert added <= set(re.findall(r"`(\w+)`", section))


# Teams


def test_teams_cuts_what_teams_would_refuse_and_says_so() -> None:
    written = citewire.write(cited("q" * 200, replace(POLICY, title="t" * 100)), "teams")
    appearance = written.payload["entities"][0]["citation"][0]["appearance"]
    assert (len(appearance["name"]), len(appearance["abstract"])) == (80, 160)
    assert appearance["name"].endswith("…")
    assert {"source.title", "refs.quote"} <= lost(written)


def test_teams_keeps_a_long_name_that_came_so() -> None:
    answer = citewire.read(TEAMS)
    assert max(len(source.title or "") for source in answer.sources) == 90
    assert "source.title" not in lost(citewire.write(answer, "teams"))


def test_teams_does_not_reuse_a_number_that_the_text_itself_has() -> None:
    answer = replace(cited(), parts=(Part("Refunds take 30 days. See [1]."),))
    payload = citewire.write(answer, "teams").payload
    assert payload["text"] == "Refunds take 30 days [2]. See [1]."
    assert [claim["position"] for claim in payload["entities"][0]["citation"]] == [2]


def test_teams_shared_markers_point_to_both() -> None:
    answer = citewire.read(TEAMS)
    shared = [c.ordinal for c in answer.citations if c.marker and answer.covered(c.marker) == "[1, 2]"]
    assert shared == [2, 1]


# LangChain


def test_langchain_tells_links_from_claims() -> None:
    answer = citewire.read(LANGCHAIN)
    covered = [answer.covered(place) for c in answer.citations if (place := c.claim or c.marker)]
    assert covered == ["😀 ouvre à 8 h.", "([a.example](https://a.example/hours))", "refunds take 30 days"]
    assert [c.marker is not None for c in answer.citations] == [False, True, False, False]
    assert [c.span_origin for c in answer.citations] == ["exact", "exact", "block", "unknown"]


def test_langchain_text_blocks_that_touch_are_one_text() -> None:
    assert "In short: refunds take 30 days." in [part.text for part in citewire.read(LANGCHAIN).parts]


def test_langchain_says_when_citations_are_a_provider_s_own() -> None:
    """Under the older output version the blocks are those of the provider, and its citations are not ours."""
    block = {"type": "text", "text": "x", "citations": [{"type": "char_location"}]}
    answer = citewire.read({"type": "ai", "content": [block]})
    assert [problem.path for problem in answer.problems] == ["$.content[0].citations"]


def test_langchain_blocks_are_joined_where_a_claim_runs_over_them() -> None:
    payload: Any = {
        "type": "ai",
        "content": [
            {"type": "text", "text": "One ", "odd": 1},
            {"type": "text", "text": "two.", "annotations": [{"type": "citation", "title": "T"}]},
        ],
    }
    answer = citewire.read(payload)
    (citation,) = answer.citations
    over = replace(citation, claim=Span(0, 1, 8), span_origin="exact")
    written = citewire.write(replace(answer, citations=(over,)), "langchain").payload
    assert written["content"] == [
        {
            "type": "text",
            "text": "One two.",
            "odd": 1,
            "annotations": [{"type": "citation", "title": "T", "start_index": 1, "end_index": 8}],
        }
    ]


def test_langchain_offsets_may_be_counted_otherwise() -> None:
    entry = {"type": "citation", "title": "T", "start_index": 2, "end_index": 5}
    payload: Any = {"type": "ai", "content": [{"type": "text", "text": "😀abc", "annotations": [entry]}]}
    answer = citewire.read(payload, unit="utf16")
    assert [answer.covered(c.claim) for c in answer.citations if c.claim] == ["abc"]
    assert citewire.write(answer, "langchain").payload == payload


# W3C


def page(*annotations: Any, text: str | None = TEXT) -> Any:
    own = {} if text is None else {"citewire": {"text": text}}
    return {
        "@context": "http://www.w3.org/ns/anno.jsonld",
        "type": "AnnotationPage",
        **own,
        "items": [*annotations],
    }


def annotation(
    *selectors: Any, target: str = "https://chat.example/1", body: Any = "https://a.example"
) -> Any:
    return {"type": "Annotation", "body": body, "target": {"source": target, "selector": [*selectors]}}


def at(start: int, end: int) -> Any:
    return {"type": "TextPositionSelector", "start": start, "end": end}


def words(exact: str, **around: str) -> Any:
    return {"type": "TextQuoteSelector", "exact": exact, **around}


@pytest.mark.parametrize(
    ("selectors", "origin"),
    [
        pytest.param([at(8, 12)], "exact", id="offsets"),
        pytest.param([at(8, 12), words("take")], "exact", id="both"),
        pytest.param([at(3, 7), words("take")], "repaired", id="offsets that are wrong"),
        pytest.param([words("take")], "exact", id="words"),
        pytest.param([words("take", prefix="unds ", suffix=" 30")], "exact", id="words and what is around"),
    ],
)
def test_w3c_targets_are_found(selectors: list[Any], origin: str) -> None:
    payload = page(annotation(*selectors))
    answer = citewire.read(payload)
    (citation,) = answer.citations
    assert citation.claim is not None
    assert (answer.covered(citation.claim), citation.span_origin) == ("take", origin)
    assert citewire.write(answer, "w3c").payload == payload


@pytest.mark.parametrize("selector", [words("a"), words("gone"), at(5, 999), at(5, 2)])
def test_w3c_a_target_that_is_not_in_the_text_is_a_problem(selector: Any) -> None:
    answer = citewire.read(page(annotation(selector), annotation(at(0, 7))))
    assert [problem.path for problem in answer.problems] == [answer.problems[0].path]
    assert answer.problems[0].path.startswith("$.items[0].target")
    assert len(answer.citations) == 1


def test_w3c_different_targets_are_different_answers() -> None:
    payload = [annotation(at(0, 3)), annotation(at(1, 2), target="https://chat.example/2")]
    first, second = citewire.read_all(payload)
    assert (first.id, second.id) == ("https://chat.example/1", "https://chat.example/2")
    changed = citewire.write(replace(second, citations=(), sources=()), "w3c").payload
    assert changed == payload[:1]


def test_w3c_without_a_text_takes_the_one_it_is_given() -> None:
    payload = [annotation(at(8, 12))]
    assert citewire.read(payload).parts == ()
    answer = citewire.read(payload, text=TEXT)
    assert [answer.covered(c.claim) for c in answer.citations if c.claim] == ["take"]
    assert citewire.write(answer, "w3c").payload == payload


def test_w3c_reads_what_it_says_of_a_source() -> None:
    answer = citewire.read(W3C)
    refs = answer.citations[0].refs
    assert [answer.source(ref).url for ref in refs] == [
        "https://a.example/hours",
        "https://a.example/more",
        "https://a.example/film",
        "https://a.example/log",
    ]
    assert [ref.locator for ref in refs] == [Pages(3, 3), None, None, Chars(4, 9)]
    assert [answer.source(ref).title for ref in refs] == ["Hours", None, "A film", None]
    assert refs[0].quote == "at eight"


def test_w3c_loses_nothing_of_one_part() -> None:
    written = citewire.write(citewire.read(LANGCHAIN).bare(), "w3c")
    assert lost(written) <= {"parts", "id", "source.id"}


# Slack


def test_slack_is_cut_where_a_citation_stands() -> None:
    written = citewire.write(cited("within 30 days"), "slack")
    (block,) = written.payload["blocks"]
    assert block["elements"][0]["elements"] == [
        {"type": "text", "text": "Refunds take 30 days"},
        {
            "type": "citation",
            "url": "https://example.com/refunds",
            "text": "Refund policy",
            "index": 1,
            "details": {"citation_type": "web", "snippet": "within 30 days"},
        },
        {"type": "text", "text": ". Ask us."},
    ]
    assert written.payload["text"] == TEXT


def test_slack_refuses_what_has_no_address() -> None:
    written = citewire.write(cited(source=Source("s1", "document", title="A book")), "slack")
    assert "citation of c1: Slack needs a URL, and A book has none" in map(str, written.losses)


def test_slack_keeps_the_style_of_what_did_not_change() -> None:
    answer = citewire.read(SLACK)
    first = answer.parts[0]
    longer = replace(first, text="Now: " + first.text.replace("30 days", "30 days"))
    moved = tuple(
        replace(c, insert_at=replace(c.insert_at, at=c.insert_at.at + 5))
        if c.insert_at and not c.insert_at.part
        else c
        for c in answer.citations
    )
    written = citewire.write(replace(answer, parts=(longer, *answer.parts[1:]), citations=moved), "slack")
    elements = written.payload["message"]["blocks"][1]["elements"][0]["elements"]
    assert [element.get("text") for element in elements[:4]] == [
        "Now: ",
        "Refunds take ",
        "30 days",
        "Refund policy",
    ]
    assert elements[2]["style"] == {"bold": True}
    assert citewire.read(written.payload).citations[0].insert_at == moved[0].insert_at


# CSL


def test_csl_items_may_be_keyed() -> None:
    keyed = CSL | {"items": {f"k{number}": item for number, item in enumerate(CSL["items"])}}
    answer = citewire.read(keyed)
    assert answer.bare() == citewire.read(CSL).bare()
    assert citewire.write(answer, "csl").payload == keyed
    more = replace(
        answer,
        citations=(*answer.citations, Citation("new", (SourceRef("new"),))),
        sources=(*answer.sources, Source("new", "web", "https://new.example")),
    )
    written = citewire.write(more, "csl").payload
    assert [*written["items"]][:-1] == [*keyed["items"]]
    assert [*written["items"].values()][-1]["URL"] == "https://new.example"


def test_csl_one_source_is_one_item_however_often_it_is_cited() -> None:
    answer = cited()
    twice = replace(
        answer,
        citations=(
            replace(answer.citations[0], refs=(SourceRef("s1", Pages(3, 5)),), ordinal=4),
            Citation("c2", (SourceRef("s1"),)),
        ),
    )
    payload = citewire.write(twice, "csl").payload
    assert payload["items"] == [
        {"id": "s1", "type": "webpage", "title": "Refund policy", "URL": "https://example.com/refunds"}
    ]
    assert payload["citationClusters"] == [
        {
            "citationID": "c1",
            "citationItems": [{"id": "s1", "locator": "3-5", "label": "page"}],
            "properties": {"noteIndex": 4},
        },
        {"citationID": "c2", "citationItems": [{"id": "s1"}], "properties": {"noteIndex": 0}},
    ]


def test_csl_an_item_that_is_not_there_costs_one_reference() -> None:
    cluster = {"citationItems": [{"id": "gone"}, {"id": 7, "suffix": "x"}]}
    payload = {"items": CSL["items"], "citationClusters": [cluster]}
    answer = citewire.read(payload)
    assert [problem.path for problem in answer.problems] == [
        "$.items[2].id",
        "$.citationClusters[0].citationItems[0].id",
    ]
    assert citewire.write(answer, "csl").payload == payload


# LlamaIndex


def test_llamaindex_the_engine_s_heading_is_no_part_of_the_quote() -> None:
    answer = citewire.read(LLAMAINDEX)
    first = answer.citations[0].refs[0]
    assert first.quote == "Refunds are available within 30 days."
    assert (first.locator, first.score) == (Pages(3, 3), 0.83)
    assert [answer.covered(c.marker) for c in answer.citations if c.marker] == ["[1]", "[3]", "[1]"]


def test_llamaindex_a_message_stays_one() -> None:
    answer = citewire.read(LLAMAINDEX_CHAT)
    assert [(c.insert_at and c.insert_at.at, c.refs[0].locator) for c in answer.citations] == [
        (20, Pages(3, 4)),
        (20, Chars(0, 9)),
    ]
    shorter = replace(answer, citations=answer.citations[1:], sources=answer.sources[1:])
    blocks = citewire.write(shorter, "llamaindex").payload["message"]["blocks"]
    assert [block["block_type"] for block in blocks] == [
        "thinking",
        "text",
        "citation",
        "text",
        "text",
        "text",
        "citation",
    ]


@pytest.mark.parametrize(
    "payload",
    [
        {"text": "x", "entities": [{"type": "mention"}]},
        {"type": "ai", "content": 7},
        {"type": "human", "content": "no answer"},
        {"type": "Annotation"},
        [{"type": "Annotation", "target": "x"}, {"type": "other"}],
        {"blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "no rich text"}}]},
        [{"id": 1, "type": "not-a-type-of-csl"}],
        {"items": []},
        {"response": "text"},
        {"message": {"blocks": [{"text": "of no type"}]}},
    ],
)
def test_what_only_looks_like_one_of_them_is_not_taken_for_it(payload: Any) -> None:
    with pytest.raises(citewire.CitewireError):
        citewire.detect(payload)


@pytest.mark.parametrize(("dialect", "payload"), PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize("kept", ["citations", "parts", "neither"])
def test_what_was_kept_of_a_piece_need_not_come_with_the_rest(dialect: str, payload: Any, kept: str) -> None:
    """People put answers together from pieces of others."""
    answer = citewire.read(payload, dialect)
    bare = answer.bare()
    pieced = replace(
        answer,
        parts=answer.parts if kept == "parts" else bare.parts,
        citations=answer.citations if kept == "citations" else bare.citations,
        native=None,
    )
    written = citewire.write(pieced, dialect)
    back = citewire.read(written.payload, dialect)
    assert unnamed(pieced, back, written.losses) is None
