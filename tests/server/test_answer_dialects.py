"""Answers of a thread in every dialect: what the middleware wrote goes out whole, or its loss is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import citewire
from citewire.agui import LocalAgent
from citewire.agui.agents import RunRequest
from citewire.agui.citations.records import ProofUrls
from citewire.agui.middleware import Citing
from citewire.channels.store import Cursor
from citewire.errors import CitewireError, NotFound, UnknownDialect
from citewire.model import Answer, Pages, Verification
from citewire.server.runs.answer_dialects import read_answer, write_answer
from citewire.threadlog.history import ThreadAtCursor
from citewire.verification.document_set import CheckResult
from citewire.verification.sources import SourceContent
from citewire.verification.verifier import QuoteCheck
from support.agents import said
from support.annotated_stream import FINISHED, KEY, STARTED, Client, Run, answer, block, delta
from support.oracle import unnamed
from support.pdfs import Line, Sheet, make_pdf
from support.strategies import json_values

HANDBOOK = make_pdf(
    Sheet([Line("Welcome to the company.")]),
    Sheet([Line("Refunds are paid within 30 days."), Line("Lunch is free on Fridays.", y=600)]),
)
REPORT = SourceContent(
    "Sales rose by 12 percent in spring.", "report", "https://example.com/report", "The report"
)
QUOTES: dict[str, list[dict[str, Any]]] = {
    "handbook.pdf": [
        {
            "id": 1,
            "full_phrase": "Refunds are paid within 30 days.",
            "anchor_text": "30 days",
            "page_id": "2_1",
        },
        {"id": 2, "full_phrase": "Lunch is free on Mondays.", "page": 2},
        {"id": 4, "full_phrase": "Whales own all of the parking spaces in Norway."},
    ]
}
WEB = {
    "id": 3,
    "full_phrase": "Sales rose by 12 percent in spring.",
    "url": "https://example.com/report",
    "title": "The report",
}
VISIBLE = "😀 You get it back [1]. Lunch is free [2], sales rose [3]; whales park [4]. In [30 days](cite:1)."
TEXT = f"{VISIBLE}\n\n<<<CITATION_DATA>>>\n{json.dumps({**QUOTES, 'report': [WEB]})}\n<<<END_CITATION_DATA>>>"
SAID = VISIBLE.replace("[30 days](cite:1)", "30 days [1]")


def links(message_id: str, key: str, checked: CheckResult) -> ProofUrls:
    return ProofUrls(f"https://citewire.example/proofs/{message_id}-{key}-{checked.page}", None)


def after(client: Client) -> ThreadAtCursor:
    view = client.thread.agui
    return ThreadAtCursor(Cursor("e", 1), "idle", "r", None, list(view.messages), view.state)


def alone(content: Any, state: Any) -> ThreadAtCursor:
    """A thread with one message, and others that are none."""
    messages: list[Any] = [None, {}, {"id": "m", "role": "assistant", "content": content}]
    return ThreadAtCursor(Cursor("e", 1), "idle", "r", None, messages, state)


def past_of(text: str, *more: Any, **options: Any) -> ThreadAtCursor:
    """A thread after an answer whose verdicts need no engine."""
    return after(Run([STARTED, *answer(text), *more, FINISHED], **options).client)


@pytest.fixture(scope="module")
def past() -> ThreadAtCursor:
    """The real thing: an agent that knows nothing of it, and an engine that reads a PDF."""

    async def main() -> Client:
        async with Citing([SourceContent(HANDBOOK, "handbook.pdf"), REPORT], proofs=links) as citing:
            agent = LocalAgent(lambda _: said(TEXT))
            agent.use(citing)
            return Client([event async for event in agent.run_agent(RunRequest())])

    return after(asyncio.run(asyncio.wait_for(main(), 50)))


def key_of(past: ThreadAtCursor, number: int) -> str:
    cited = past.state[KEY]["messages"]["m"]["citations"]
    return next(key for key, each in cited.items() if each["citationNumber"] == number)


def proof_of(past: ThreadAtCursor, number: int) -> str:
    return f"https://citewire.example/proofs/m-{key_of(past, number)}-2"


def test_an_answer_is_what_the_state_says(past: ThreadAtCursor) -> None:
    found = read_answer(past, "m")
    first, second, third, fourth = (key_of(past, number) for number in (1, 2, 3, 4))

    assert (found.id, found.text, found.problems) == ("m", SAID, ())
    assert [(each.id, each.ordinal) for each in found.citations] == [
        (first, 1), (f"{first}.2", 1), (second, 2), (fourth, 4), (third, 3),
    ]  # fmt: skip
    assert [found.covered(each.marker) for each in found.citations if each.marker] == [
        "[1]", "[1]", "[2]", "[4]", "[3]",
    ]  # fmt: skip
    by_id = {each.id: each for each in found.citations}
    (ref,) = by_id[first].refs
    assert (ref.quote, ref.anchor, ref.locator) == (
        "Refunds are paid within 30 days.",
        "30 days",
        Pages(2, 2),
    )
    assert by_id[first].verification == Verification("verified", None, "Refunds are paid within 30 days", 2)
    altered = by_id[second].verification
    assert altered is not None
    assert (altered.status, altered.quote, altered.page) == ("altered", "Lunch is free on Fridays", 2)
    missed = by_id[fourth].verification
    assert missed is not None
    assert missed.status == "missed"
    sources = [found.source(by_id[name].refs[0]) for name in (first, second, third, fourth)]
    assert [(each.kind, each.url, each.title, each.metadata.get("proof")) for each in sources] == [
        ("document", None, "handbook.pdf", proof_of(past, 1)),
        ("document", None, "handbook.pdf", proof_of(past, 2)),
        ("web", "https://example.com/report", "The report", sources[2].metadata["proof"]),
        ("document", None, "handbook.pdf", None),
    ]
    assert (sources[0].filename, sources[0].file_id) == ("handbook.pdf", "handbook.pdf")


NEED_ADDRESS = {
    "openai.chat", "openrouter", "perplexity", "salesforce", "salesforce.agent-api", "slack", "xai",
}  # fmt: skip


@pytest.mark.parametrize("dialect", sorted(citewire.dialects()))
def test_it_goes_out_in_every_dialect(past: ThreadAtCursor, dialect: str) -> None:
    result = write_answer(past, "m", dialect)
    back = citewire.read(result.payload, dialect)
    room = citewire.dialects()[dialect].SUPPORTED_FIELDS
    before = read_answer(past, "m")
    if dialect == KEY:
        before = citewire.read(result.payload, KEY)
    elif "source.file_id" not in room or dialect == "slack":
        before = at_proofs(before)
    assert unnamed(before, back, result.losses) is None
    lost = [each.citation for each in result.losses if each.field == "citation"]
    # Nothing proves it, so it has no address.
    assert lost == ([key_of(past, 4)] if dialect in NEED_ADDRESS else [])
    # Gemini has words of documents only, Slack those of web pages, as the losses say.
    if "refs.quote" in room and dialect not in {"gemini", "slack"}:
        quotes = {ref.quote for each in back.citations for ref in each.refs}
        assert quotes == {each["full_phrase"] for each in [*QUOTES["handbook.pdf"], WEB]}


def at_proofs(found: Answer) -> Answer:
    moved = [
        each if each.url else replace(each, url=each.metadata.get("proof"), metadata={})
        for each in found.sources
    ]
    return replace(found, sources=tuple(moved))


def test_salesforce_gets_links_to_the_proofs(past: ThreadAtCursor) -> None:
    text = "😀 You get it back. Lunch is free, sales rose; whales park [4]. In 30 days."

    def entry(url: str, label: str, *claims: str) -> Any:
        uses: list[Any] = []
        for claim in claims:
            start = len(text[: text.index(claim)].encode("utf-16-le")) // 2
            end = start + len(claim.encode("utf-16-le")) // 2
            uses.append(
                {"citedLocationOffset": end, "claim": {"claimStartOffset": start, "claimEndOffset": end}}
            )
        return {
            "citedReference": {"citedReferenceType": "Link", "link": {"url": url}, "label": label},
            "citedDetails": {"citedDetailsType": "InlineMetadata", "inlineMetadata": uses},
        }

    assert write_answer(past, "m", "salesforce").payload == {
        "staticContent": {
            "formatType": "Text",
            "text": text,
            "citationContent": {
                "citations": [
                    entry(proof_of(past, 1), "handbook.pdf", "😀 You get it back", "In 30 days"),
                    entry(proof_of(past, 2), "handbook.pdf", "Lunch is free"),
                    entry("https://example.com/report", "The report", "Lunch is free, sales rose"),
                ]
            },
        }
    }


def test_deepcitation_is_the_record_as_it_stands(past: ThreadAtCursor) -> None:
    record = past.state[KEY]["messages"]["m"]
    names = ("messageId", "citations", "verifications")
    result = write_answer(past, "m", KEY)
    assert result.payload == {"text": SAID, **{name: record[name] for name in names}}
    assert result.losses == ()


FOOTNOTES = "Paris[^a], rain[^b], Paris[^a].\n\n[^a]: https://a.example/x\n[^b]: https://b.example/y"
OWN: list[dict[str, Any]] = [
    {"id": "src", "title": "France", "snippet": "Paris is the capital of France."},
    {"id": "sky", "url": "https://sky.example", "snippet": "It rains."},
]
LISTED = [delta({"op": "add", "path": "/citations", "value": {"m": OWN}})]


@pytest.mark.parametrize(
    ("text", "more", "expected"),
    [
        pytest.param(FOOTNOTES, [], {"a": ["[^a]"], "a.2": ["[^a]"], "b": ["[^b]"]}, id="footnotes"),
        pytest.param("Paris[^src]; rain[^sky].", LISTED, {"src": ["[^src]"], "sky": ["[^sky]"]}, id="agent"),
        pytest.param(
            "Paris [1] [1]." + block("Paris is the capital of France."),
            [],
            {"6447dc4448c21369": ["[1]"], "6447dc4448c21369.2": ["[1]"]},
            id="numbers",
        ),
        pytest.param(
            "See [cite: 1]." + block("It rains."), [], {"f0dcdc5a655680b7": ["[cite: 1]"]}, id="cite"
        ),
        pytest.param("Nothing." + block("It rains."), [], {"f0dcdc5a655680b7": []}, id="unmarked"),
    ],
)
def test_markers_are_found(text: str, more: Iterable[Any], expected: dict[str, list[str]]) -> None:
    found = read_answer(past_of(text, *more), "m")
    shown = {each.id: [found.covered(each.marker)] if each.marker else [] for each in found.citations}
    assert shown == expected
    assert {each.span_origin for each in found.citations} == {"exact" if any(shown.values()) else "unknown"}


@pytest.mark.parametrize("dialect", sorted(citewire.dialects()))
def test_footnotes_go_out_in_every_dialect(dialect: str) -> None:
    past = past_of(FOOTNOTES)
    result = write_answer(past, "m", dialect)
    back = citewire.read(result.payload, dialect)
    assert unnamed(read_answer(past, "m"), back, result.losses) is None
    # Assistants have files only: the address stands for its name.
    urls = {source.file_id if dialect == "openai.assistants" else source.url for source in back.sources}
    assert urls == {"https://a.example/x", "https://b.example/y"}


def undecided(_: QuoteCheck) -> None:
    pass


def test_what_is_undecided_is_pending() -> None:
    found = read_answer(past_of("Rain [1]." + block("It rains."), decide=undecided), "m")
    assert [(each.verification, each.refs[0].quote) for each in found.citations] == [(None, "It rains.")]


def test_content_may_come_in_parts() -> None:
    parts = [
        {"type": "text", "text": "One."},
        {"type": "binary", "data": "x"},
        {"type": "text", "text": "Two."},
    ]
    past = alone(parts, {})
    assert read_answer(past, "m").text == "One.\n\nTwo."


@pytest.mark.parametrize(
    ("message", "dialect", "error", "says"),
    [
        ("x", "ngaf", NotFound, "no such message"),
        ("u", "ngaf", NotFound, "none of an assistant"),
        ("m", "nonsense", UnknownDialect, "no dialect is called 'nonsense'; there are ably"),
    ],
)
def test_what_there_is_not(message: str, dialect: str, error: type[CitewireError], says: str) -> None:
    past = past_of("Hello.", {"type": "TEXT_MESSAGE_START", "messageId": "u", "role": "user"},
                   {"type": "TEXT_MESSAGE_END", "messageId": "u"})  # fmt: skip
    with pytest.raises(error, match=says):
        write_answer(past, message, dialect)


def test_what_cannot_be_read_is_named() -> None:
    state: Any = {KEY: {"messages": {"m": {"citations": {"k": {"pageNumber": []}, "__proto__": {}}}}}}
    past = ThreadAtCursor(
        Cursor("e", 1), "idle", "r", None, [{"id": "m", "role": "assistant", "content": "Hi [1]"}], state
    )
    result = write_answer(past, "m", "salesforce")
    assert result.payload == {"staticContent": {"formatType": "Text", "text": "Hi [1]"}}
    assert [str(each) for each in result.losses if each.field == "citation"] == [
        "citation: cannot be read: $.citations.k.pageNumber: pageNumber is not a page",
        "citation: cannot be read: $.citations.__proto__: the key is unsafe",
    ]


KEYS = st.sampled_from(["k", "6447dc4448c21369", "__proto__", "constructor", "", "a.2"])
NAMES = (
    *("fullPhrase", "citationNumber", "pageNumber", "lineIds", "url", "title", "attachmentId", "type"),
    *("status", "label", "citewire", "citation", "proof", "document", "timestamps", "anchorText"),
)


def mostly(shape: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(shape, shape, shape, json_values)


def under(name: str, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return mostly(st.fixed_dictionaries({}, optional={name: inner}))


values = json_values | st.integers(-1, 9) | st.sampled_from(["https://x.example", "1", "verified", "found"])
records = mostly(st.dictionaries(KEYS, mostly(st.dictionaries(st.sampled_from(NAMES), values)), max_size=3))
of_message = mostly(st.fixed_dictionaries({}, optional={"citations": records, "verifications": records}))
extras = under("citewire", under("key", KEYS))
entries = mostly(st.fixed_dictionaries({}, optional={"id": values | st.just("a"), "extra": extras}))
lists = under("m", mostly(st.lists(entries, max_size=3)))
states = mostly(
    st.fixed_dictionaries({}, optional={KEY: under("messages", under("m", of_message)), "citations": lists})
)
contents = st.sampled_from(["A [1], b [^a] and [c](cite:1) [2, 3].", "[^k][^a]: x", ""]) | json_values


@given(states, contents, st.sampled_from(sorted(citewire.dialects())))
def test_a_hostile_state_is_an_answer_or_an_error(state: Any, content: Any, dialect: str) -> None:
    try:
        result = write_answer(alone(content, state), "m", dialect)
    except CitewireError:
        return
    citewire.read_all(result.payload, dialect)
