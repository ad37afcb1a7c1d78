"""What is particular to ChatGPT's own messages, a shape of `openai.chat`."""

from __future__ import annotations

from typing import Any

import pytest

import citewire
from citewire.errors import ShapeError, WrongDialect
from support.samples_openai import CHATGPT


def test_the_marker_is_what_a_reference_says_it_matched() -> None:
    """In the first text that has it just there; offsets in another unit are repaired."""
    answer = citewire.read(CHATGPT)
    markers = [(c.marker.part, answer.covered(c.marker)) for c in answer.citations if c.marker]
    texts = [entry["matched_text"] for entry in CHATGPT["metadata"]["content_references"][:5]]
    assert markers == [(0, texts[0]), (0, texts[2]), (0, texts[3]), (1, texts[4])]
    assert [c.span_origin for c in answer.citations] == ["exact", "repaired", "exact", "exact", "unknown"]


def test_all_pages_of_a_group_are_cited() -> None:
    """Those that support another as well; who only has an address in a list of safe ones has that."""
    answer = citewire.read(CHATGPT)
    cited = [[answer.source(ref) for ref in citation.refs] for citation in answer.citations]
    urls = [[source.url or source.file_id for source in sources] for sources in cited]
    a, b, c = "https://a.example/refunds", "https://b.example/help", "https://c.example/seen"
    assert urls == [[a, b, c], [b], ["file-1"], [a], [b]]


def test_what_names_no_source_is_told_and_what_cites_nothing_is_not() -> None:
    paths = [
        problem.path.removeprefix("$.metadata.content_references")
        for problem in citewire.read(CHATGPT).problems
    ]
    assert paths == ["[6].items", "[7].url", "[8]"]


def test_a_node_of_a_conversation_is_read_as_its_message() -> None:
    node: Any = {"id": "n", "parent": "p", "children": [], "message": CHATGPT}
    answer = citewire.read(node)
    assert answer.bare() == citewire.read(CHATGPT).bare()
    assert citewire.write(answer, "openai.chat").payload == node


def test_what_a_person_asked_is_no_answer() -> None:
    with pytest.raises(ShapeError, match="no answer"):
        citewire.read({**CHATGPT, "author": {"role": "user"}})


def test_citations_of_older_messages_are_not_lost_in_silence() -> None:
    old: Any = {**CHATGPT, "metadata": {"citations": [{"start_ix": 0, "end_ix": 4}]}}
    assert [problem.path for problem in citewire.read(old).problems] == ["$.metadata.citations"]


def test_other_dialects_refuse_the_message() -> None:
    with pytest.raises(WrongDialect) as error:
        citewire.read(CHATGPT, "openai.assistants")
    assert error.value.candidates == ("openai.chat",)
