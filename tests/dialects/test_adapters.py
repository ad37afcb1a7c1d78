"""An answer as the objects of a framework, and those as an answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note
from langchain_core.messages import AIMessage, HumanMessage, messages_from_dict, messages_to_dict
from langchain_core.messages.content import (
    create_citation,
    create_reasoning_block,
    create_text_block,
    create_tool_call,
)
from msgspec.structs import replace
from pydantic_ai.messages import (
    Citation,
    ContentCitationAnchor,
    DocumentCitationSource,
    MarkerCitationAnchor,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    WebCitationSource,
)

import citewire
from citewire.adapters import langchain, pydantic_ai
from citewire.errors import ShapeError
from citewire.model import Answer, Part, Point, Source, SourceRef, Span
from support.cases import payload_paths
from support.oracle import unjustified, unnamed
from support.strategies import answers

PAGE = WebCitationSource(
    "https://example.com/refunds", title="Refunds", excerpts=["within 30 days", "in full"]
)
FILE = DocumentCitationSource(document_id="file_1", title="Terms")
SEE = Citation([FILE], anchor=MarkerCitationAnchor(start=4, end=7))
CAPTURED = payload_paths("anthropic-0", "openai-responses-0", "gemini-0")


def response() -> ModelResponse:
    """Thinking, a text in two parts, a tool call, and a text with a marker."""
    return ModelResponse(
        parts=[
            ThinkingPart("Let me see."),
            TextPart("We refund 😀 "),
            TextPart(
                "within 30 days.",
                citations=[Citation([PAGE, FILE], anchor=ContentCitationAnchor(start=0, end=14))],
                provider_name="anthropic",
                provider_details={"citations": [{"type": "web_search_result_location"}], "k": 1},
            ),
            ToolCallPart("search", {"q": "refunds"}),
            TextPart("See [1].", citations=[SEE]),
            TextPart("Bye.", citations=[Citation([PAGE])]),
        ],
        model_name="m",
    )


def test_a_response_is_an_answer() -> None:
    answer = pydantic_ai.read(response())
    first, second, third = answer.citations

    assert [part.text for part in answer.parts] == ["We refund 😀 within 30 days.", "See [1].Bye."]
    assert answer.text == response().text
    assert first.claim
    assert answer.covered(first.claim) == "within 30 days"
    assert [ref.quote for ref in first.refs] == ["within 30 days", "in full", None]
    assert (second.marker, second.claim) == (Span(1, 4, 7), None)
    assert (third.marker, third.claim, third.span_origin) == (None, None, "unknown")
    assert [(source.kind, source.url, source.file_id) for source in answer.sources] == [
        ("web", PAGE.url, None),
        ("document", None, "file_1"),
    ]


def test_a_response_comes_back_equal() -> None:
    came = response()
    written = pydantic_ai.write(pydantic_ai.read(came))

    assert written.payload == came
    assert written.losses == ()


def test_what_was_not_changed_stays_as_it_came() -> None:
    came = response()
    answer = pydantic_ai.read(came)
    written = pydantic_ai.write(replace(answer, citations=answer.citations[:2]))

    assert written.payload.parts[:4] == came.parts[:4]
    assert written.payload.parts[4:] == [TextPart("See [1].Bye.", citations=[SEE])]
    assert [loss.field for loss in written.losses] == ["parts"]


def test_what_the_provider_said_of_other_citations_goes_with_them() -> None:
    came = ModelResponse(parts=response().parts[2:3])
    written = pydantic_ai.write(replace(pydantic_ai.read(came), citations=()))

    assert written.payload.parts[0].provider_details == {"k": 1}
    assert written.payload.parts[0].citations is None


@given(answer=answers())
def test_losses_name_exactly_what_pydantic_ai_does_not_give_back(answer: Answer) -> None:
    written = pydantic_ai.write(answer)
    for loss in written.losses:
        note(str(loss))
    # As an agent stores its messages.
    stored = ModelMessagesTypeAdapter.dump_json([written.payload])
    (message,) = ModelMessagesTypeAdapter.validate_json(stored)
    back = pydantic_ai.read(message)  # pyright: ignore[reportArgumentType]

    assert unnamed(answer, back, written.losses) is None
    assert unjustified(answer, back, written.losses) == []
    assert back.problems == ()


def test_an_anchor_outside_its_text_is_a_problem() -> None:
    bad = Citation([PAGE], anchor=ContentCitationAnchor(start=0, end=9))
    good = Citation([FILE], anchor=ContentCitationAnchor(start=0, end=2))
    answer = pydantic_ai.read(
        ModelResponse(parts=[ThinkingPart("?"), TextPart("No.", citations=[bad, good])])
    )

    assert [problem.path for problem in answer.problems] == ["$.parts[1].citations[0].anchor"]
    assert [citation.id for citation in answer.citations] == ["c1"]
    assert [source.kind for source in answer.sources] == ["document"]


@pytest.mark.parametrize("what", [None, {"parts": []}, TextPart("x"), [response()]])
def test_only_a_response_is_read(what: object) -> None:
    with pytest.raises(ShapeError, match="no ModelResponse"):
        pydantic_ai.read(what)  # pyright: ignore[reportArgumentType]


def test_an_answer_that_contradicts_itself_is_refused() -> None:
    astray = citewire.Citation("c1", (SourceRef("nowhere"),))
    with pytest.raises(ShapeError, match="no source"):
        pydantic_ai.write(Answer((Part("x"),), (astray,)))


def test_a_point_becomes_the_sentence_before_it() -> None:
    point = citewire.Citation("c1", (SourceRef("s1"),), insert_at=Point(0, 9), span_origin="exact")
    answer = Answer((Part("We agree. Or not."),), (point,), (Source("s1", "web", "https://example.com"),))
    written = pydantic_ai.write(answer)

    (cited,) = written.payload.parts[0].citations
    assert cited.anchor == ContentCitationAnchor(start=0, end=9)
    assert {loss.field for loss in written.losses} == {"claim", "insert_at"}


def cited_message() -> AIMessage:
    citation = create_citation(
        url="https://example.com/refunds", title="Refunds", start_index=12, end_index=26, cited_text="30 days"
    )
    text = create_text_block("We refund 😀 within 30 days.", annotations=[citation])
    call = create_tool_call("search", {}, id="t1")
    return AIMessage(
        content_blocks=[create_reasoning_block("?"), text, call],
        id="m1",
        response_metadata={"output_version": "v1", "model_name": "m"},
    )


def test_a_message_is_an_answer() -> None:
    answer = langchain.read(cited_message())
    (citation,) = answer.citations

    assert (answer.id, answer.text) == ("m1", "We refund 😀 within 30 days.")
    assert citation.claim
    assert answer.covered(citation.claim) == "within 30 days"
    assert citation.refs[0].quote == "30 days"
    assert answer.source(citation.refs[0]).url == "https://example.com/refunds"


@pytest.mark.parametrize(
    "message",
    [
        cited_message(),
        AIMessage("Plain.", usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}),
        AIMessage(""),
        AIMessage(
            [{"type": "text", "text": "So.", "citations": [{"type": "char_location", "cited_text": "so"}]}],
            response_metadata={"model_provider": "anthropic"},
        ),
    ],
    ids=["cited", "plain", "empty", "anthropic"],
)
def test_an_unchanged_message_comes_back_itself(message: AIMessage) -> None:
    written = langchain.write(langchain.read(message))

    assert written.payload is message
    assert written.losses == ()


def test_of_a_changed_message_all_but_the_citations_stays() -> None:
    came = cited_message()
    written = langchain.write(replace(langchain.read(came), citations=(), sources=()))

    assert written.payload.text == came.text
    assert written.payload.tool_calls == came.tool_calls
    assert [block["type"] for block in written.payload.content_blocks] == ["reasoning", "text", "tool_call"]
    assert langchain.read(written.payload).citations == ()
    assert len(langchain.read(came).citations) == 1, "what was read is not touched"


def test_citations_can_be_put_on_a_plain_message() -> None:
    """LangChain must find them, whatever the provider of the message was."""
    plain = AIMessage("We agree.", id="m1", response_metadata={"model_provider": "anthropic"})
    cited = citewire.Citation(
        "c1", (SourceRef("s1", quote="agreed"),), claim=Span(0, 0, 9), span_origin="exact"
    )
    source = Source("s1", "web", "https://example.com", "Minutes")
    answer = replace(langchain.read(plain), citations=(cited,), sources=(source,))
    written = langchain.write(answer)

    (block,) = written.payload.content_blocks
    assert block["annotations"] == [
        {
            "type": "citation",
            "url": "https://example.com",
            "title": "Minutes",
            "cited_text": "agreed",
            "start_index": 0,
            "end_index": 9,
        }
    ]
    assert langchain.read(written.payload).bare() == answer.bare()


@given(answer=answers())
def test_losses_name_exactly_what_langchain_does_not_give_back(answer: Answer) -> None:
    written = langchain.write(answer)
    for loss in written.losses:
        note(str(loss))
    (message,) = messages_from_dict(messages_to_dict([written.payload]))
    assert isinstance(message, AIMessage)
    back = langchain.read(message)

    assert unnamed(answer, back, written.losses) is None
    assert unjustified(answer, back, written.losses) == []
    assert back.problems == ()


def test_what_langchain_copies_from_google_is_read_as_google_meant_it() -> None:
    """Bytes, a zero left out, and the words of the answer in the place of those of the source."""
    text = "Café ouvert à huit heures. Fermé lundi."
    first, second = "Café ouvert à huit heures.", "Fermé lundi."
    start = len(text.partition(second)[0].encode())
    message = AIMessage(
        [{"type": "text", "text": text}],
        response_metadata={
            "model_provider": "google_genai",
            "grounding_metadata": {
                "grounding_chunks": [{"web": {"uri": "https://example.com/cafe", "title": "Café"}}],
                "grounding_supports": [
                    {
                        "segment": {"end_index": len(first.encode()), "text": first},
                        "grounding_chunk_indices": [0],
                    },
                    {
                        "segment": {"start_index": start, "end_index": len(text.encode()), "text": second},
                        "grounding_chunk_indices": [0],
                    },
                ],
            },
        },
    )
    answer = langchain.read(message)

    assert answer.problems == ()
    assert [answer.covered(one.claim) for one in answer.citations if one.claim] == [first, second]
    assert [ref.quote for one in answer.citations for ref in one.refs] == [None, None]
    assert langchain.write(answer).payload is message


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: path.stem)
@pytest.mark.parametrize("adapter", [pydantic_ai, langchain], ids=["pydantic-ai", "langchain"])
def test_what_providers_said_goes_through(adapter: Any, path: Path) -> None:
    answer = citewire.read(path.read_bytes())
    written = adapter.write(answer)
    back = adapter.read(written.payload)

    assert answer.citations
    assert unnamed(answer.bare(), back, written.losses) is None
    assert adapter.write(back).payload == written.payload


@pytest.mark.parametrize("what", [None, {"type": "ai", "content": ""}, HumanMessage("x")])
def test_only_a_message_of_a_model_is_read(what: object) -> None:
    with pytest.raises(ShapeError, match="no AIMessage"):
        langchain.read(what)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("adapter", "package", "told"),
    [
        ("pydantic_ai", "pydantic_ai", "pip install 'citewire[llm]'"),
        ("langchain", "langchain_core", "pip install langchain-core"),
    ],
)
def test_without_the_framework_it_is_said_what_to_install(adapter: str, package: str, told: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import citewire.adapters.{adapter}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1].startswith("ImportError: ")
    assert told in done.stderr
