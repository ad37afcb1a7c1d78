"""Citations out of model text: every published shape, every way in which models break it, and bad input."""

import re
from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import citewire
from citewire import answer_edits
from citewire.cli import app
from citewire.codec import decode
from citewire.dialects.deepcitation import BLOCK_END, BLOCK_START
from citewire.documents import load
from citewire.extraction import Extraction, Scanner, extract, prompt
from citewire.extraction.delimiters import DELIMITER
from citewire.keys import CitationKeys
from citewire.model import Lines, Pages, Span, Times
from citewire.verification.document_set import DocumentSet
from citewire.verification.report import verify_answer

TEXT = "Revenue grew [1]. Costs fell [2]."
FIRST = (
    '{"id":1,"reasoning":"why","full_phrase":"Revenue grew 45%","anchor_text":"45%",'
    '"page_id":"page_number_2_index_1","line_ids":[12,13]}'
)
SECOND = '{"id":2,"full_phrase":"Costs fell"}'
KEY = "92296a0e8c688c3b"


def block(body: str, text: str = TEXT, behind: str = "\n") -> str:
    return f"{text}\n\n{BLOCK_START}\n{body}\n{BLOCK_END}{behind}"


def first(entry: str) -> str:
    """A block whose first entry is `entry`, with a good one behind it."""
    return block(f'{{"att":[{entry},{SECOND}]}}')


def quotes(found: Extraction) -> list[str | None]:
    return [ref.quote for citation in found.citations for ref in citation.refs]


def codes(found: Extraction) -> list[str]:
    return [problem.code for problem in found.problems]


class Shape(NamedTuple):
    body: str
    files: list[str | None]


SHAPES = {
    "grouped": Shape(f'{{"A":[{FIRST}],"B":[{SECOND}]}}', ["A", "B"]),
    "flat": Shape(f"[{FIRST},{SECOND}]", [None]),
    "single": Shape(FIRST, [None]),
    "in a wrapper": Shape(f'{{"citations":[{FIRST},{SECOND}]}}', [None]),
    "grouped in a wrapper": Shape(f'{{"citations":{{"A":[{FIRST},{SECOND}]}}}}', ["A"]),
    "one list for each file": Shape(f'[{{"A":[{FIRST}]}},{{"B":[{SECOND}]}}]', ["A", "B"]),
    "an object for each file": Shape(f'{{"A":{FIRST},"B":{SECOND}}}', ["A", "B"]),
    "lines of JSON": Shape(f"{FIRST}\n{SECOND}", [None]),
    "attachment named 0": Shape(f'{{"0":[{FIRST}]}}', ["0"]),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_of_a_block(shape: Shape) -> None:
    found = extract(block(shape.body))
    assert found.visible_text == TEXT
    assert found.citations[0].id == KEY
    assert found.citations[0].marker == Span(0, 13, 16)
    assert quotes(found)[0] == "Revenue grew 45%"
    assert [source.file_id for source in found.sources if source.kind == "document"] == shape.files
    assert found.problems == ()


SPELLINGS = {
    "compact": '{"n":1,"a":"att","r":"why","f":"Revenue grew 45%","k":"45%","p":"2_1","l":[12,13]}',
    "camel": '{"id":1,"attachmentId":"att","fullPhrase":"Revenue grew 45%","anchorText":"45%",'
    '"pageId":"page_number_2_index_1","lineIds":[12,13]}',
    "later": '{"id":1,"attachment_id":"att","source_context":"Revenue grew 45%","source_match":"45%",'
    '"page_id":"2_1","line_ids":[12,13],"claim_text":"growth"}',
    "strings": '{"id":"1","file_id":"att","phrase":"Revenue grew 45%","keySpan":"45%","page":2,'
    '"lines":["12","13"]}',
    "drift": '{"id":1.0,"fileId":"att","full_phrase":"Revenue grew 45%","anchor":"45%","page_id":2,'
    '"line_ids":"12-13"}',
    "marker for an id": '{"id":"[1]","file_id":"att","full":"Revenue grew 45%","anchor":"45%",'
    '"page_number":2,"l":[12,13]}',
}


@pytest.mark.parametrize("entry", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_every_spelling_says_the_same(entry: str) -> None:
    (citation, _) = extract(block(entry)).citations
    ref = citation.refs[0]
    assert (citation.id, citation.ordinal, citation.marker) == (KEY, 1, Span(0, 13, 16))
    assert (ref.quote, ref.anchor, ref.locator) == ("Revenue grew 45%", "45%", Lines((12, 13), 2))


SALVAGED = {
    "string id": ('{"id":"1","full_phrase":"He left"}', "He left"),
    "missing id": ('{"full_phrase":"He left"}', "He left"),
    "single quotes": ("{'id':1,'full_phrase':'He left','line_ids':[1]}", "He left"),
    "apostrophe in single quotes": (
        "{'id':1,'full_phrase':'It's Tom's, isn't it?'}",
        "It's Tom's, isn't it?",
    ),
    "smart quotes": ("{“id”:1,“full_phrase”:“He “really” left”}", "He “really” left"),
    "single smart quotes": ("{‘id’:1,‘full_phrase’:‘He left’}", "He left"),
    "unquoted keys": ('{id:1,full_phrase:"He left",page_id:page_number_2_index_1}', "He left"),
    "raw line breaks": ('{"id":1,"full_phrase":"He\n  left\tnow"}', "He\n  left\tnow"),
    "inner quotes": ('{"id":1,"full_phrase":"He said "go" and left"}', 'He said "go" and left'),
    "inner quotes and commas": (
        '{"id":1,"full_phrase":"He said "go", "run" and, "well", left","anchor_text":"go"}',
        'He said "go", "run" and, "well", left',
    ),
    "an inch mark": ('{"id":1,"full_phrase":"a 5" pipe","anchor_text":"5" pipe"}', 'a 5" pipe'),
    "brackets in inner quotes": (
        '{"id":1,"full_phrase":"see ["x"] or {"y"} there"}',
        'see ["x"] or {"y"} there',
    ),
    "line comment": ('{"id":1, // the first\n"full_phrase":"He left // now"}', "He left // now"),
    "block comment": ('{"id":1, /* "x": [ */ "full_phrase":"He left"}', "He left"),
    "hash comment": ('{"id":1, # first\n"full_phrase":"He left #1"}', "He left #1"),
    "None": ('{"id":1,"full_phrase":"He left","anchor_text":None,"page_id":undefined}', "He left"),
    "trailing commas": ('{"id":1,"full_phrase":"set [1,2,] done","line_ids":[1,2,],}', "set [1,2,] done"),
    "no comma": ('{"id":1 "full_phrase":"He left"\n"anchor_text":"left"}', "He left"),
    "equals sign": ('{"id"=1,"full_phrase"="He left"}', "He left"),
    "no value": ('{"id":1,"full_phrase":"He left","anchor_text":,"line_ids":}', "He left"),
    "unclosed object": ('{"id":1,"full_phrase":"He left"', "He left"),
    "unclosed list": ('{"id":1,"full_phrase":"He left","line_ids":[1,2}', "He left"),
    "unclosed string": ('{"id":1,"full_phrase":"He left\n}', "He left"),
    "unclosed string before a key": ('{"id":1,"full_phrase":"He left,\n"anchor_text":"left"}', "He left"),
    "unknown escapes": (r'{"id":1,"full_phrase":"\~100/hr \~test\xvalue\! \'s"}', "~100/hr ~testxvalue! 's"),
    "half of an escape": (r'{"id":1,"full_phrase":"a\u0020b \utest \u00Fvalue"}', "a b utest u00Fvalue"),
    "known escapes": (r'{"id":1,"full_phrase":"He said \"hi\"\nand \\left"}', 'He said "hi"\nand \\left'),
    "surrogates": (r'{"id":1,"full_phrase":"\ud83d\ude00 and \ud800"}', "😀 and \ud800"),
    "symbols": (
        '{"id":1,"full_phrase":"↑ HTN Na+ 138 98.6°F • E=mc² 01/15"}',
        "↑ HTN Na+ 138 98.6°F • E=mc² 01/15",
    ),
    "delimiter in a phrase": (f'{{"id":1,"full_phrase":"the {BLOCK_END} tag"}}', f"the {BLOCK_END} tag"),
    "page as a number": ('{"id":1,"full_phrase":"He left","page_id":3}', "He left"),
    "a field of the wrong kind": ('{"id":1,"full_phrase":"He left","page_id":{"x":[1]}}', "He left"),
    "url type without a url": ('{"id":1,"full_phrase":"He left","type":"url"}', "He left"),
    "fields of other things": ('{"id":1,"x":{"y":[{"z":1}]},"full_phrase":"He left"}', "He left"),
}


@pytest.mark.parametrize(("entry", "quote"), SALVAGED.values(), ids=SALVAGED.keys())
def test_one_broken_entry_costs_no_other(entry: str, quote: str) -> None:
    found = extract(first(entry))
    assert found.visible_text == TEXT
    assert quotes(found) == [quote, "Costs fell"]
    assert [citation.marker for citation in found.citations] == [Span(0, 13, 16), Span(0, 29, 32)]
    assert {source.file_id for source in found.sources} == {"att"}


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ('"just text"', "no_citation"),
        ("42", "no_citation"),
        ('{"x":1,"y":"z"}', "no_citation"),
        ("nonsense here", "no_citation"),
    ],
)
def test_what_cannot_be_read_is_reported_with_its_place(entry: str, code: str) -> None:
    text = first(entry)
    found = extract(text)
    assert quotes(found) == ["Costs fell", None]
    assert [(problem.code, problem.path) for problem in found.problems] == [(code, f"$[{text.index(entry)}]")]


def test_a_repair_is_reported_with_its_place() -> None:
    text = block(f"[{FIRST},{{'id':2,'full_phrase':'Costs fell'}}]")
    (problem,) = extract(text).problems
    at = text.index("{'id'")
    assert (problem.code, problem.path) == ("repaired", f"$[{at}]")


def test_truncation_anywhere_costs_one_entry_at_most() -> None:
    """However much of the block is there: whole entries are, and half a quote never is."""
    whole = f'{TEXT}\n{BLOCK_START}\n{{"att":[{FIRST},{SECOND}]}}'
    for end in range(len(TEXT) + 1 + len(BLOCK_START), len(whole) + 1):
        for tail in ("", f"\n{BLOCK_END}\n"):
            found = extract(whole[:end] + tail)
            assert found.visible_text == TEXT
            said = [quote for quote in quotes(found) if quote is not None]
            assert said in ([], ["Revenue grew 45%"], ["Revenue grew 45%", "Costs fell"])
            complete = (whole[:end].count(FIRST), whole[:end].count(SECOND))
            assert len(said) >= sum(complete)


class Around(NamedTuple):
    text: str
    visible: str
    quotes: list[str | None]


ONE: list[str | None] = ["Revenue grew 45%"]
AROUND = {
    "text without a block": Around("Just text.\n", "Just text.\n", []),
    "nothing": Around("", "", []),
    "no end": Around(f"Hi [1].\n{BLOCK_START}\n[{FIRST}]", "Hi [1].", ONE),
    "cut behind the start": Around(f"Hi.\n{BLOCK_START}", "Hi.", []),
    "empty": Around(f"Hi.\n{BLOCK_START}\n{BLOCK_END}", "Hi.", []),
    "malformed": Around(f"Hi.\n{BLOCK_START}\n{{not json\n{BLOCK_END}", "Hi.", []),
    "fence within": Around(f"Hi [1].\n{BLOCK_START}\n```json\n[{FIRST}]\n```\n{BLOCK_END}", "Hi [1].", ONE),
    "fence around": Around(
        f"Hi [1].\n\n```json\n{BLOCK_START}\n[{FIRST}]\n{BLOCK_END}\n```\nBye.", "Hi [1].\nBye.", ONE
    ),
    "fence around, at the start": Around(
        f"```\n{BLOCK_START}\n[{FIRST}]\n{BLOCK_END}\n```\nHi [1].", "Hi [1].", ONE
    ),
    "prose before the JSON": Around(
        f"Hi [1].\n{BLOCK_START}\nHere is the data, see [1]:\n[{FIRST}]\n{BLOCK_END}", "Hi [1].", ONE
    ),
    "prose behind the JSON": Around(
        f"Hi [1].\n{BLOCK_START}\n[{FIRST}]\nThat is all.\n{BLOCK_END}\nBye.", "Hi [1].\nBye.", ONE
    ),
    "no end, and text goes on": Around(
        f"Hi [1].\n{BLOCK_START}\n[{FIRST}]\n\nHope it helps [1].", "Hi [1].\n\nHope it helps [1].", ONE * 2
    ),
    "delimiter in prose": Around(
        f"I write it after {BLOCK_START} as asked. Hi [1].\n{BLOCK_START}\n[{FIRST}]\n{BLOCK_END}",
        f"I write it after {BLOCK_START} as asked. Hi [1].",
        ONE,
    ),
    "delimiter in code": Around(
        f"See `{BLOCK_START}`. Hi [1].\n{BLOCK_START}\n[{FIRST}]\n{BLOCK_END}",
        f"See `{BLOCK_START}`. Hi [1].",
        ONE,
    ),
    "delimiter that starts a line": Around(
        f"{BLOCK_START} is what I write.\nHi [1].\n{BLOCK_START}\n[{FIRST}]\n{BLOCK_END}",
        f"{BLOCK_START} is what I write.\nHi [1].",
        ONE,
    ),
    "two blocks": Around(
        f"A [1].\n{BLOCK_START}\n[{FIRST}]\n{BLOCK_END}\nB [2].\n{BLOCK_START}\n[{SECOND}]\n{BLOCK_END}",
        "A [1].\nB [2].",
        [*ONE, "Costs fell"],
    ),
    "a block that starts anew": Around(
        f"A [1].\n{BLOCK_START}\n[{FIRST},{{\n{BLOCK_START}\n[{SECOND}]\n{BLOCK_END}",
        "A [1].",
        [*ONE, "Costs fell"],
    ),
    "text behind": Around(
        f"A [1].\n{BLOCK_START}\n[{FIRST}]\n{BLOCK_END}\n\nMore text.\n", "A [1].\n\nMore text.\n", ONE
    ),
    "the end alone": Around(f"A.\n{BLOCK_END}\nB.", "A.\nB.", []),
    "lower case": Around(f"A [1].\n{BLOCK_START.lower()}\n[{FIRST}]\n{BLOCK_END.lower()}", "A [1].", ONE),
    "escaped": Around(
        f"A [1].\n\\<\\<\\<CITATION\\_DATA\\>\\>\\>\n[{FIRST}]\n\\<\\<\\<END\\_CITATION\\_DATA\\>\\>\\>",
        "A [1].",
        ONE,
    ),
    "entities": Around(
        f"A [1].\n{escape(BLOCK_START)}\n[{FIRST}]\n{escape(BLOCK_END)}",
        "A [1].",
        ONE,
    ),
    "on one line": Around(f"A [1].{BLOCK_START}[{FIRST}]{BLOCK_END}", "A [1].", ONE),
    "emphasis": Around(f"A [1].\n**{BLOCK_START}**\n[{FIRST}]\n**{BLOCK_END}**\nBye.", "A [1].\nBye.", ONE),
    "CRLF": Around(f"A [1].\r\n\r\n{BLOCK_START}\r\n[{FIRST}]\r\n{BLOCK_END}\r\nBye.", "A [1].\r\nBye.", ONE),
    "spaces in the delimiters": Around(
        f"A [1].\n<<< CITATION_DATA >>>\n[{FIRST}]\n<<< END_CITATION_DATA >>>\nBye.", "A [1].\nBye.", ONE
    ),
    "a slash for the end": Around(
        f"A [1].\n{BLOCK_START}\n[{FIRST}]\n<<</CITATION_DATA>>>\nBye.", "A [1].\nBye.", ONE
    ),
    "fence of only the start": Around(
        f"```\n{BLOCK_START}\n```\nA [1].\n{BLOCK_START}\n[{FIRST}]\n{BLOCK_END}",
        f"```\n{BLOCK_START}\n```\nA [1].",
        ONE,
    ),
}


@pytest.mark.parametrize("case", AROUND.values(), ids=AROUND.keys())
def test_what_stands_around_a_block(case: Around) -> None:
    found = extract(case.text)
    assert found.visible_text == case.visible
    assert quotes(found) == case.quotes


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("See [1, 5] here.", {1: [(4, 10)], 5: [(4, 10)]}),
        ("See [9][10][11].", {9: [(4, 7)], 10: [(7, 11)], 11: [(11, 15)]}),
        ("The [45% growth](cite:1) is.", {1: [(4, 24)]}),
        ("The [45% growth](cite:1 'grew 45%') is.", {1: [(4, 35)]}),
        ("The [growth](cite:1 'Tom's (net) growth') is.", {1: [(4, 41)]}),
        ("See [1-3] and [2–3].", {1: [(4, 9)], 2: [(4, 9), (14, 19)], 3: [(4, 9), (14, 19)]}),
        ("See [1, 4-5], [0-9] and [7-8].", {1: [(4, 12)], 4: [(4, 12)], 5: [(4, 12)]}),
        ("arr[0], `x[1]`, [2024], [1](https://x.y) and [1].", {1: [(45, 48)]}),
        ("A [1]. B [1].", {1: [(2, 5), (9, 12)]}),
        ("A [^1].", {1: [(2, 6)]}),
    ],
)
def test_markers_find_their_entries(text: str, labels: dict[int, list[tuple[int, int]]]) -> None:
    entries = [f'{{"id":{label},"full_phrase":"phrase {label}"}}' for label in labels]
    found = extract(block(f"[{','.join(entries)}]", text))
    seen: dict[int, list[tuple[int, int]]] = {}
    for citation in found.citations:
        assert citation.marker is not None
        assert citation.refs[0].quote == f"phrase {citation.ordinal}"
        seen.setdefault(citation.ordinal or 0, []).append((citation.marker.start, citation.marker.end))
    assert seen == labels


def test_the_words_of_a_link_are_the_claim() -> None:
    found = extract(block(f"[{FIRST}]", "The [45% growth](cite:1) is."))
    (citation,) = found.citations
    assert citation.claim is not None
    assert found.answer.covered(citation.claim) == "45% growth"


def test_a_number_may_stand_for_several_entries() -> None:
    entries = [f'{{"id":1,"full_phrase":"phrase {n}"}}' for n in range(3)]
    found = extract(block(f"[{','.join(entries)}]", "A [1]."))
    assert quotes(found) == ["phrase 0", "phrase 1", "phrase 2"]
    assert {citation.marker for citation in found.citations} == {Span(0, 2, 5)}


@pytest.mark.parametrize(
    ("entry", "media", "locator"),
    [
        (
            '{"id":1,"f":"x","t":{"s":"00:00:01.000","e":"00:00:02.000"}}',
            "audio",
            ("00:00:01.000", "00:00:02.000"),
        ),
        (
            '{"id":1,"f":"x","type":"video","timestamps":{"startTime":"00:01","endTime":"00:02"}}',
            "video",
            ("00:01", "00:02"),
        ),
        (
            '{"id":1,"f":"x","timestamps":"00:00:01.000-00:00:02.000"}',
            "audio",
            ("00:00:01.000", "00:00:02.000"),
        ),
        ('{"id":1,"f":"x","timestamps":[1,62.5]}', "audio", ("00:00:01.000", "00:01:02.500")),
    ],
)
def test_audio_and_video(entry: str, media: str, locator: tuple[str, str]) -> None:
    found = extract(block(entry, "A [1]."))
    assert found.citations[0].refs[0].locator == Times(*locator)
    assert found.sources[0].metadata == {"type": media}


def test_a_time_that_is_none_is_left_out() -> None:
    found = extract(block('{"id":1,"f":"x","t":{"s":"soon","e":"later"}}', "A [1]."))
    assert found.citations[0].refs[0].locator is None
    assert codes(found) == ["bad_shape"]


def test_citations_of_the_web() -> None:
    entry = '"url":"https://example.com","title":"T","domain":"example.com"'
    quote = '"full_phrase":"Revenue grew 45%","anchor_text":"45%"'
    found = extract(block(f'{{"id":1,{entry},{quote}}}', "A [1]."))
    (source,) = found.sources
    assert (source.kind, source.url, source.title) == ("web", "https://example.com", "T")
    assert found.citations[0].id == "afbd48aae90fa6fa"


def test_the_same_quote_in_two_files_has_two_keys() -> None:
    again = FIRST.replace('"id":1', '"id":2')
    found = extract(block(f'{{"A":[{FIRST}],"B":[{again}]}}'))
    one, other = found.citations
    assert one.id == KEY
    assert other.id not in (KEY, f"{KEY}.2")


class Tagged(NamedTuple):
    text: str
    visible: str
    quote: str
    locator: Any = None


TAGS = {
    "document": Tagged(
        "Up <cite attachment_id='abc' reasoning='r' full_phrase='It\\'s up' anchor_text='up' "
        "start_page_id='page_number_2_index_1' line_ids='5, 43-45' /> now.",
        "Up now.",
        "It's up",
        Lines((5, 43, 44, 45), 2),
    ),
    "no bracket": Tagged(
        "by 25cite attachment_id='a' full_phrase='by 25' /> excited to recite",
        "by 25 excited to recite",
        "by 25",
    ),
    "inner double quotes": Tagged(
        '<cite attachment_id="a" full_phrase="He said "hello" to me" anchor_text="hello" />',
        "",
        'He said "hello" to me',
    ),
    "inner single quotes": Tagged(
        "<cite attachment_id='a' full_phrase='It's Tom's' line_ids='1' />", "", "It's Tom's", Lines((1,))
    ),
    "escaped quotes": Tagged(
        '<cite attachment_id="a" full_phrase="the \\"Declarant\\" is" />', "", 'the "Declarant" is'
    ),
    "escaped name": Tagged("<cite attachment\\_id='a' full\\_phrase='p q' />", "", "p q"),
    "order": Tagged("<cite full_phrase='p q' attachment_id='a' />", "", "p q"),
    "camel case": Tagged(
        "<cite fileId='a' fullPhrase='p q' startPageKey='page_number_3_index_2' />", "", "p q", Pages(3, 3)
    ),
    "entities": Tagged(
        "<cite url='https://a.b' full_phrase='&lt;100 Tom &amp; Jerry &quot;x&quot;' />",
        "",
        '<100 Tom & Jerry "x"',
    ),
    "line breaks": Tagged("<cite attachment_id='a' full_phrase='one\ntwo\\nthree' />", "", "one two three"),
    "greater than": Tagged("<cite attachment_id='a' full_phrase='x > y' />", "", "x > y"),
    "list of lines": Tagged(
        "<cite attachment_id='a' full_phrase='p' line_ids='[1,2,3]' />", "", "p", Lines((1, 2, 3))
    ),
    "named lines": Tagged(
        "<cite attachment_id='a' full_phrase='p' line_ids='line1,line2' />", "", "p", Lines((1, 2))
    ),
    "unquoted lines": Tagged(
        "<cite attachment_id='a' full_phrase='p' line_ids=1,2,3 />", "", "p", Lines((1, 2, 3))
    ),
    "lines backwards": Tagged(
        "<cite attachment_id='a' full_phrase='p' line_ids='10-5' />", "", "p", Lines((10,))
    ),
    "recording": Tagged(
        "<cite attachment_id='a' full_phrase='p' timestamps='00:00:01.000-00:00:02.000' />",
        "",
        "p",
        Times("00:00:01.000", "00:00:02.000"),
    ),
    "pair": Tagged(
        "<cite attachment_id='a' full_phrase='John'>- Name: John\n</cite>.", "- Name: John\n.", "John"
    ),
    "left open": Tagged("<cite attachment_id='a' full_phrase='John'>\n- a\n- b", "\n- a\n- b", "John"),
    "never closed": Tagged("A <cite attachment_id='a' full_phrase='John'\n\nB", "A \n\nB", "John"),
}


@pytest.mark.parametrize("case", TAGS.values(), ids=TAGS.keys())
def test_tags(case: Tagged) -> None:
    found = extract(case.text)
    (citation,) = found.citations
    assert found.visible_text == case.visible
    assert (citation.refs[0].quote, citation.refs[0].locator) == (case.quote, case.locator)
    assert citation.insert_at is not None


def test_what_a_pair_of_tags_holds_is_the_claim() -> None:
    found = extract("So <cite attachment_id='a' full_phrase='p'>it rose</cite>.")
    assert found.visible_text == "So it rose."
    assert found.citations[0].claim == Span(0, 3, 10)


@pytest.mark.parametrize(
    "text",
    [
        "See <cite>Moby Dick</cite> there.",
        "```\n<cite attachment_id='a' full_phrase='p' />\n```\n",
        "Write `<cite attachment_id='a' full_phrase='p' />`.",
        "We cite attachments, and recite.",
        "a < b, <b>bold</b>, x <<< y, &lt;&lt; and \\< too",
    ],
)
def test_what_only_looks_like_a_tag_is_text(text: str) -> None:
    found = extract(text)
    assert (found.visible_text, found.citations, found.problems) == (text, (), ())


def test_tags_and_a_block_in_one_answer() -> None:
    found = extract(block(f"[{FIRST}]", "A <cite attachment_id='a' full_phrase='p' /> b [1]."))
    assert quotes(found) == ["p", "Revenue grew 45%"]


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (decode(FIRST), 1),
        ([decode(FIRST), decode(SECOND)], 2),
        ({"citations": [decode(FIRST)]}, 1),
        ({"answer": {"text": "x", "citation": decode(FIRST)}}, 1),
        ({"steps": [{"citations": [decode(FIRST)]}, {"citations": [decode(SECOND)]}]}, 2),
        ({"att": [{"fullPhrase": "p", "timestamps": {"startTime": "00:01", "endTime": "00:02"}}]}, 1),
        ({"message": "nothing"}, 0),
        ([], 0),
    ],
)
def test_structured_objects(value: Any, count: int) -> None:
    assert len(extract(value).citations) == count


class Listed(NamedTuple):
    text: str
    sources: dict[int, tuple[str | None, str | None]]


URL = "https://example.com/a"
LISTS = {
    "footnote": Listed(f"A [^1].\n\n[^1]: [Report]({URL}), p. 3\n", {1: (URL, "Report")}),
    "link definition": Listed(f'A [1].\n\n[1]: {URL} "Report"\n', {1: (URL, "Report")}),
    "numbered": Listed(
        f"A [1] b [2].\n\n## Sources\n1. [Report]({URL})\n2. Paper - {URL}2\n",
        {1: (URL, "Report"), 2: (f"{URL}2", "Paper")},
    ),
    "bracketed": Listed(f"A [2].\n\n**References:**\n\n[1] No\n[2] Report, {URL}\n", {2: (URL, "Report")}),
    "bulleted": Listed(f"A [2].\n\nSources:\n- {URL}\n* [Report]({URL}2)\n", {2: (f"{URL}2", "Report")}),
    "bulleted with numbers": Listed(f"A [7].\n\n### References\n- [7] Report {URL}\n", {7: (URL, "Report")}),
    "no heading": Listed(f"A [1].\n\n[1] Report {URL}\n[2] Other\n", {1: (URL, "Report")}),
    "no heading, but a rule": Listed(f"A [1].\n\n---\n[1] {URL}\n", {1: (URL, None)}),
    "no heading, but addresses": Listed(
        f"A [2].\n\n1. {URL}\n2. Report {URL}2\n", {2: (f"{URL}2", "Report")}
    ),
    "on one line": Listed(f"A [2].\n\nSources: [1] {URL}, [2] {URL}2", {2: (f"{URL}2", None)}),
    "emphasis": Listed(f"A [1].\n\n### Sources:\n* **[1]** [Report]({URL})\n", {1: (URL, "Report")}),
    "sign before the heading": Listed(f"A [1].\n\n📚 Sources used:\n1) {URL}\n", {1: (URL, None)}),
    "German": Listed(f"A [1].\n\n**Quellen:**\n1. **Bericht** – {URL}\n", {1: (URL, "Bericht")}),
    "French": Listed(f"A [1].\n\n## Références\n1. Rapport : {URL}\n", {1: (URL, "Rapport")}),
    "Chinese": Listed(f"A [1]。\n\n参考文献：\n[1] 报告 {URL}\n", {1: (URL, "报告")}),
    "range": Listed(f"A [1-2].\n\nSources:\n1. {URL}\n2. {URL}2\n", {1: (URL, None), 2: (f"{URL}2", None)}),
    "no address": Listed("A [1].\n\nReferences\n1. Report of 2023\n", {1: (None, "Report of 2023")}),
}


@pytest.mark.parametrize("case", LISTS.values(), ids=LISTS.keys())
def test_markers_without_a_block_point_to_what_the_text_lists(case: Listed) -> None:
    found = extract(case.text)
    sources = {source.id: source for source in found.sources}
    cited = {c.ordinal: sources[c.refs[0].source_id] for c in found.citations}
    assert {number: (source.url, source.title) for number, source in cited.items()} == case.sources
    assert found.visible_text == case.text


def test_markers_that_nothing_explains_are_given_as_such() -> None:
    found = extract("A [1] b 【4:0†source】.")
    assert [(source.kind, source.record_id) for source in found.sources] == [
        ("unknown", "1"),
        ("unknown", "4:0"),
    ]
    assert [citation.refs[0].quote for citation in found.citations] == [None, None]
    assert len({citation.id for citation in found.citations}) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('He said "costs fell sharply" [1].', [["costs fell sharply"]]),
        ('"Revenue rose" [1] and “costs fell” [2].', [["Revenue rose"], ["costs fell"]]),
        ('"Revenue rose" and "costs fell" [1][2].', [["Revenue rose", "costs fell"]] * 2),
        ('"Not this." Revenue rose [1].', [[None]]),
        ('It says "Revenue rose. Costs fell." [1]', [["Revenue rose. Costs fell."]]),
        ("Revenue rose [1].", [[None]]),
    ],
)
def test_what_the_cited_sentence_quotes_is_checked(text: str, expected: list[list[str | None]]) -> None:
    found = extract(text)
    assert [[ref.quote for ref in citation.refs] for citation in found.citations] == expected


def test_an_own_quote_outranks_the_sentence() -> None:
    assert quotes(extract(block(f"[{FIRST}]", 'He said "costs fell" [1].'))) == ["Revenue grew 45%"]


def test_what_was_extracted_can_be_verified_and_written() -> None:
    document = load(b"Revenue grew 45% in the year. Costs fell by 3%.")
    found = extract(block(f"[{FIRST},{SECOND}]"))
    report = verify_answer(found.answer, DocumentSet([document]))
    assert report.counts == {"verified": 2}
    payload = citewire.write(found.answer, "deepcitation").payload
    assert payload["citations"][KEY]["reasoning"] == "why"


def test_nothing_quoted_is_skipped() -> None:
    report = verify_answer(extract("Revenue rose [1].").answer, DocumentSet([load(b"Revenue rose.")]))
    assert report.counts == {"skipped": 1}


EVERYTHING = [
    *(block(shape.body) for shape in SHAPES.values()),
    *(first(entry) for entry, _ in SALVAGED.values()),
    *(case.text for case in (*AROUND.values(), *TAGS.values(), *LISTS.values())),
]


@pytest.mark.parametrize("text", EVERYTHING)
def test_a_cut_anywhere_changes_nothing(text: str) -> None:
    whole = extract(text)
    for cut in range(1, len(text)):
        scanner = Scanner()
        shown = scanner.feed(text[:cut]) + scanner.feed(text[cut:]) + scanner.close()
        assert (shown, scanner.extraction()) == (whole.visible_text, whole)


def test_citations_are_there_before_the_block_ends() -> None:
    scanner = Scanner()
    scanner.feed(f"Hi [1].\n{BLOCK_START}\n[{FIRST}")
    assert [citation.id for citation in scanner.citations] == [KEY]
    assert scanner.feed(',{"id":2,"full_phrase":"Costs fell"') == ""
    assert len(scanner.citations) == 1
    scanner.feed("}")
    assert len(scanner.citations) == 2
    scanner.feed(f"]\n{BLOCK_END}")
    assert scanner.close() == ""
    assert scanner.extraction().visible_text == "Hi [1]."


@pytest.mark.parametrize(
    "delta",
    ["Hello ", "world", " [1]", ".", "R&D", "a < b ", "x <b>", "citation", "excite", "`code`", "…", " - "],
)
def test_text_does_not_wait(delta: str) -> None:
    scanner = Scanner()
    scanner.feed("Text ")
    assert scanner.feed(delta) == delta


@pytest.mark.parametrize(
    ("delta", "shown"),
    [
        ("a\n", "a"),
        ("a<", "a"),
        ("a <<<CITATION_DA", "a "),
        ("a &lt;&l", "a "),
        ("a <ci", "a "),
        ("a\n```json\n", "a"),
        ("a\\<", "a"),
    ],
)
def test_only_what_may_start_a_delimiter_is_held_back(delta: str, shown: str) -> None:
    scanner = Scanner()
    assert scanner.feed(delta) == shown
    assert scanner.feed("z") == delta[len(shown) :] + "z"


def test_keys_are_shared_within_a_thread() -> None:
    keys = CitationKeys()
    found: list[Extraction] = []
    for group in ("A", "B", "A"):
        scanner = Scanner(keys)
        scanner.feed(block(f'{{"{group}":[{FIRST}]}}', "Hi [1]."))
        scanner.close()
        found.append(scanner.extraction())
    first_key, second_key, third_key = (extraction.citations[0].id for extraction in found)
    assert first_key == third_key == KEY
    assert second_key != KEY


def test_past_the_limit_text_goes_on_without_its_blocks() -> None:
    text = "Hi [1]. "
    scanner = Scanner(limit=len(text))
    shown = scanner.feed(block(f"[{FIRST}]", text)) + scanner.close()
    assert scanner.is_cut
    assert shown == text
    assert [source.kind for source in scanner.extraction().sources] == ["unknown"]


HOSTILE = {
    "brackets": "[" * 100_000,
    "brackets in a block": f"{BLOCK_START}\n" + "[" * 100_000,
    "objects in a block": f"{BLOCK_START}\n" + '{"a":' * 50_000,
    "spaces in a broken block": f'Hi.\n{BLOCK_START}\n[{{"id":1 x' + " " * 40_000 + BLOCK_END,
    "unclosed tags": "<cite attachment_id='a' full_phrase='p' " * 2_000,
    "open strings": f"{BLOCK_START}\n" + '[{"a":"x, ' * 20_000,
    "starts": BLOCK_START * 5_000,
    "starts with brackets": (BLOCK_START + "{") * 5_000,
    "NUL": f'\x00{BLOCK_START}[{{"id":1,"f":"a\x00b"}}]{BLOCK_END}\x00',
    "lone surrogates": f'\ud800 [1] {BLOCK_START}[{{"id":1,"f":"\udfff"}}]{BLOCK_END}\udc00',
    "escapes": "\\" * 100_000,
    "quotes": f'{BLOCK_START}[{{"f":"' + '"' * 100_000,
    "long numbers": f'{BLOCK_START}[{{"id":' + "9" * 100_000 + "}]",
    "infinite": f'{BLOCK_START}[{{"id":1e999,"f":"x","l":[1e999,-1],"p":NaN,"t":[Infinity,1]}}]{BLOCK_END}',
    "unsafe keys": f'{BLOCK_START}{{"__proto__":[{FIRST}],"constructor":[{SECOND}]}}{BLOCK_END}',
    "escape sequences": f'{BLOCK_START}[{{"id":1,"f":5,"\x1b[31m":"\x1b]0;x\x07","page_id":{{"\x1b[2J":1}}}}]'
    + BLOCK_END,
    "path tricks": f'{BLOCK_START}{{"../../etc":[{{"id":1,"f":"x","a":"..\\\\..\\\\x"}}]}}{BLOCK_END}',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    """The clock that fails this is the one of the test run; bench/extract.py has the figures."""
    found = extract(text)
    assert not any("\x1b" in problem.message for problem in found.problems)
    citewire.render(found.answer, "text")


class Counted:
    """A pattern that notes where it was started, and how much text it was given to search."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.starts, self.searched = 0, 0

    def match(self, text: str, at: int = 0) -> re.Match[str] | None:
        self.starts += 1
        return self._pattern.match(text, at)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        self.searched += len(text)
        return self._pattern.finditer(text)


def test_sentences_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not once more for each marker, as far back as a sentence goes."""
    counted = Counted(answer_edits._SENTENCE_END)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(answer_edits, "_SENTENCE_END", counted)
    text = "word [7] " * 1000
    assert len(extract(text).citations) == 1000
    assert counted.searched == len(text)


def test_a_delimiter_that_opens_nothing_is_passed_over_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried once, and maybe once more as what follows the one before; its brackets are not tried."""
    counted = Counted(DELIMITER)
    monkeypatch.setattr("citewire.extraction.scanner.DELIMITER", counted)
    extract((BLOCK_START + "{") * 1000)
    assert 1000 <= counted.starts <= 2000


def test_no_delimiter_is_ever_shown() -> None:
    found = extract(HOSTILE["spaces in a broken block"])
    assert found.visible_text == "Hi."


def test_ten_megabytes() -> None:
    sentence = "Revenue grew by 45% in the third quarter [1]. "
    found = extract(block(f"[{FIRST}]", sentence * (10_000_000 // len(sentence))))
    assert len(found.citations) == 10_000_000 // len(sentence)


def test_the_prompt_has_the_text_of_the_sources_and_is_answered_by_what_we_read() -> None:
    lines = [f"Line {number} says so." for number in range(1, 13)]
    document = load("\n".join(lines).encode())
    text = prompt([document])
    assert "<page_number_1_index_0>\n" in text
    assert '<line id="1">Line 1 says so.</line>\nLine 2 says so.\n' in text
    assert '<line id="11">Line 11 says so.</line>' in text
    assert BLOCK_START in text
    answer = block(
        '{"x":[{"id":1,"full_phrase":"Line 11 says so.","page_id":"page_number_1_index_0","line_ids":[11]}]}',
        "It does [1].",
    )
    report = citewire.verify(extract(answer).answer, [document])
    assert report.counts == {"verified": 1}


def test_command_line() -> None:
    done = CliRunner().invoke(app, ["extract", "-"], input=block(f"[{FIRST},5]"))
    assert done.exit_code == 0
    shown = decode(done.stdout)
    assert shown["visible_text"] == TEXT
    assert shown["citations"][0]["refs"][0]["quote"] == "Revenue grew 45%"
    assert [problem["code"] for problem in shown["problems"]] == ["no_citation"]


BLOCK_ENTRY = '{"id": 1, "attachment_id": "a.pdf", "full_phrase": "The fee is 40 dollars."}'
WHOLE_BLOCK = f"Forty [1].\n\n<<<CITATION_DATA>>>\n[{BLOCK_ENTRY}, {BLOCK_ENTRY.replace('1', '2', 1)}]\n"


def test_a_block_that_is_cut_anywhere_says_so() -> None:
    """At every character: a problem, no data in the text, and the citations that were whole until then."""
    begins = WHOLE_BLOCK.index("<<<")
    ends = WHOLE_BLOCK.rindex("]")
    for at in range(begins + len("<<<CI"), ends + 1):
        found = extract(WHOLE_BLOCK[:at])
        assert found.is_cut, WHOLE_BLOCK[:at]
        assert [problem.path for problem in found.problems if problem.code == "cut_block"] == [f"$[{begins}]"]
        assert found.visible_text == "Forty [1]."
        whole = WHOLE_BLOCK[:at].count('dollars."')
        assert sum(ref.quote is not None for each in found.citations for ref in each.refs) >= min(whole, 1)


@pytest.mark.parametrize(
    "text",
    [
        WHOLE_BLOCK,
        WHOLE_BLOCK + "<<<END_CITATION_DATA>>>",
        WHOLE_BLOCK + "<<<END_CIT",
        WHOLE_BLOCK + "<<<",
        "Forty.\n\n<<<CITATION_DATA>>>\n[]\n<<<END_CITATION_DATA>>>",
        "Models write <<<CITATION_DATA>>> before their data.",
        "if a <<< b",
        "a <<<",
    ],
)
def test_a_block_that_is_whole_is_not_cut(text: str) -> None:
    found = extract(text)
    assert not found.is_cut
    assert "END" not in found.visible_text
