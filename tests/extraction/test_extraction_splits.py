"""However a text is split into deltas, the same comes out: visible text, citations, problems."""

import json
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from citewire.dialects.deepcitation import BLOCK_END, BLOCK_START
from citewire.extraction import Extraction, Scanner, extract

FIRST = '{"id":1,"full_phrase":"Revenue grew 45%","anchor_text":"45%","page_id":"2_1","line_ids":[12,13]}'
PIECES = [
    *(BLOCK_START, BLOCK_END, BLOCK_START.lower(), "    "),
    *("\\<\\<\\<CITATION_DATA\\>\\>\\>", "&lt;&lt;&lt;END_CITATION_DATA&gt;&gt;&gt;"),
    *("<<<", "<<", ">>>", "<<<CITATION", "&lt;", "\\<", "```json\n", "```", "\n```\n", "\n", "\n\n", " "),
    *("\r\n", "\r", "**", "_", "<<< ", " >>>", "<<</CITATION_DATA>>>", " [1-3]"),
    *("Revenue grew [1].", " [2]", "[text](cite:1)", "cite ", "cite attachment_id='a'", "excite"),
    *("<cite attachment_id='a' full_phrase='p' />", "<cite attachment_id='a' full_phrase='p'>"),
    *("</cite>", "<cite ", "/>", '"quoted words"', "\x00", "\ud800", "é"),
    *(FIRST, '{"id":2,"full_phrase":"He said "go", and left"}', "{'id':3,'full_phrase':'It's so'}"),
    *("{", "}", "[", "]", ",", ":", '"', "'", "“", "”", "\\", "//", "/*", "*/", "#", "<", ">", "&", "`"),
    *('"id":', '"full_phrase":"', '"anchor_text":', "id:", "None", "12", "-0", "1e999", '{"att":['),
    *('"t":{"s":"00:01"}', "\n[^1]: [Report](https://example.com)\n", "\n## Sources\n1. https://example.com\n"),
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=25).map("".join)
blocks = texts.map(lambda body: f"Hi [1].\n{BLOCK_START}\n[{FIRST},{body}]\n{BLOCK_END}\nBye.")


def in_deltas(text: str, cuts: list[int]) -> tuple[str, Extraction]:
    scanner = Scanner()
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    deltas = [text[start:end] for start, end in pairwise(edges)]
    shown = "".join([*map(scanner.feed, deltas), scanner.close()])
    return shown, scanner.extraction()


@settings(max_examples=400)
@given(texts | blocks, st.lists(st.integers(0, 10_000), max_size=12))
@example(f"A.\n{BLOCK_START}\n{{", [1])
def test_any_split_gives_the_same(text: str, cuts: list[int]) -> None:
    whole = extract(text)
    assert in_deltas(text, cuts) == (whole.visible_text, whole)


@settings(max_examples=150)
@given(texts | blocks)
@example("\\cite attachment_id='a'")
@example("\\&lt;&lt;&lt;END_CITATION_DATA&gt;&gt;&gt;")
@example(f'{BLOCK_START}\n[{FIRST},"id":x{BLOCK_END}"y”\n\n"words"]\n{BLOCK_END}')
@example("\\<cite attachment_id='a' full_phrase='p' />")
@example(f"{BLOCK_START}[{{id:" + "9" * 5000 + "}]")
def test_one_character_at_a_time_gives_the_same(text: str) -> None:
    whole = extract(text)
    assert in_deltas(text, list(range(len(text)))) == (whole.visible_text, whole)


numbers = st.integers() | st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=20) | st.sampled_from(PIECES)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=6), scalars, max_size=2)
names = st.sampled_from(["id", "full_phrase", "anchor_text", "page_id", "line_ids", "url", "x"])
entries = st.dictionaries(names | st.text(max_size=8), values, max_size=5)


@settings(max_examples=300)
@given(st.lists(entries, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_plain_json_reads_the_same_by_either_reader(
    made: list[dict[str, object]], ascii_only: bool, indent: int | None
) -> None:
    """Given whole, plain entries go through the C decoder; a character at a time, through ours."""
    body = json.dumps({"att": made}, ensure_ascii=ascii_only, indent=indent)
    text = f"Hi [1].\n{BLOCK_START}\n{body}\n{BLOCK_END}"
    whole = extract(text)
    assert in_deltas(text, list(range(len(text)))) == (whole.visible_text, whole)
    said = [entry["full_phrase"] for entry in made if isinstance(entry.get("full_phrase"), str)]
    quoted = [citation.refs[0].quote for citation in whole.citations if citation.refs[0].quote]
    if all(BLOCK_END not in phrase and BLOCK_START not in phrase for phrase in map(str, said)):
        assert set(quoted) >= {phrase for phrase in said if str(phrase).strip()}


@settings(max_examples=100)
@given(st.text(max_size=300), st.lists(st.integers(0, 10_000), max_size=5))
def test_text_without_citations_is_shown_as_it_is(text: str, cuts: list[int]) -> None:
    shown, _ = in_deltas(text, cuts)
    assert shown == text
