"""Plain text and Markdown: encodings, lines and pages."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.documents.document import Page
from citewire.documents.errors import DocumentError
from citewire.documents.text import (
    GAP_LINE,
    GAP_ROW,
    GAP_SPACE,
    TextBuilder,
    decode,
    read_markdown,
    read_text,
)

SENTENCE = "Größe: 5 % – „naïve“ 中文 😀.\nZweite Zeile.\n"
LATIN = "Der Preis beträgt 5 € – „naïve“ Käufer.\n"

ENCODINGS = {
    "utf-8": SENTENCE.encode(),
    "utf-8 with a mark": SENTENCE.encode("utf-8-sig"),
    "utf-16 with a mark": SENTENCE.encode("utf-16"),
    "utf-16-be with a mark": codecs.BOM_UTF16_BE + SENTENCE.encode("utf-16-be"),
    "utf-32 with a mark": SENTENCE.encode("utf-32"),
    "utf-32-be with a mark": codecs.BOM_UTF32_BE + SENTENCE.encode("utf-32-be"),
    "utf-16-le": SENTENCE.encode("utf-16-le"),
    "utf-16-be": SENTENCE.encode("utf-16-be"),
}


@pytest.mark.parametrize("data", ENCODINGS.values(), ids=ENCODINGS)
def test_encoding_is_found(data: bytes) -> None:
    assert read_text(data, sha256="").text == SENTENCE


# Of each language a sentence or two, in the encodings that it is found in.
OLDER = {
    "cp1252": (
        "L’été dernier, les élèves ont étudié l’œuvre complète à la bibliothèque; où êtes-vous allés ?",
    ),
    "cp1251": (
        "Министерство сообщило, что уровень безработицы снизился до 3,2 процента.",
        "Міністерство повідомило, що рівень безробіття знизився. Її частка є найнижчою.",
    ),
    "koi8-r": ("Министерство сообщило, что уровень безработицы снизился до 3,2 процента.",),
    "cp1253": ("Η κυβέρνηση ανακοίνωσε ότι η ανεργία μειώθηκε στο 10 τοις εκατό.",),
    "cp1255": ("הממשלה הודיעה כי שיעור האבטלה ירד לשלושה אחוזים בשנה שעברה.",),
    "cp1256": ("أعلنت الحكومة أن معدل البطالة انخفض إلى ثلاثة في المئة في العام الماضي.",),
    "shift_jis": ("政府は昨年の失業率が3.2%に低下したと発表した。カタカナもあります。",),
    "euc_jp": ("政府は昨年の失業率が3.2%に低下したと発表した。カタカナもあります。",),
    "gb18030": ("政府宣布去年失业率下降到百分之三点二，这是有史以来的最低水平。",),
    "big5": ("政府宣布去年失業率下降到百分之三點二，這是有史以來的最低水準。",),
    "euc_kr": ("정부는 지난해 실업률이 3.2%로 하락했다고 발표했다.",),
    "utf-16-le": ("政府宣布去年失业率下降到百分之三点二，这是有史以来的最低水平。", "Уровень снизился."),
    "utf-16-be": ("政府は昨年の失業率が低下したと発表した。", "정부는 지난해 실업률이"),
}
AROUND = ("{}", "{0}\n{0}\n", "Page 12 of the report says:\n{}\nand so on, in English, for a while.\n")


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(
    ("codec", "text"), [(codec, text) for codec, texts in OLDER.items() for text in texts]
)
def test_older_encodings_are_found(codec: str, text: str, around: str) -> None:
    text = around.format(text)
    assert read_text(text.encode(codec), sha256="").text == text


@pytest.mark.parametrize(
    "text", ["caf\xe9", "\xc4", "\xa35", "FR\xdcHST\xdcCK IN Z\xdcRICH", "20 \xb0C \xb1 3", "na\xefve"]
)
def test_a_few_bytes_are_of_western_europe(text: str) -> None:
    assert read_text(text.encode("cp1252"), sha256="").text == text


def test_what_is_not_utf_8_is_cp1252() -> None:
    assert read_text(LATIN.encode("cp1252"), sha256="").text == LATIN


def test_one_damaged_byte_does_not_change_the_encoding() -> None:
    damaged = SENTENCE.encode() + b"\xff"
    assert read_text(damaged, sha256="").text == SENTENCE + "\ufffd"


def test_a_charset_is_believed_when_there_is_one() -> None:
    assert decode("Привет".encode("cp1251"), "windows-1251") == "Привет"
    assert decode("é".encode(), "no-such-charset") == "é"
    assert decode("é".encode(), "rot13") == "é"


@pytest.mark.parametrize(
    "data",
    [b"%PDF-1.7\n\x00\x01\x00\x00\x02", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0", bytes(range(1, 256)) * 9],
)
def test_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(DocumentError, match="NUL"):
        read_text(data, sha256="")


@pytest.mark.parametrize(
    ("data", "text", "pages", "lines"),
    [
        (b"", "", [(0, 0)], [0]),
        (b"a", "a", [(0, 1)], [0]),
        (b"a\r\nb\rc\n", "a\nb\nc\n", [(0, 6)], [0, 2, 4]),
        (b"a\n\x0cb", "a\n\x0cb", [(0, 3), (3, 4)], [0, 2, 3]),
        (b"a\x0c", "a\x0c", [(0, 2)], [0]),
        (b"\x0c\x0c", "\x0c\x0c", [(0, 1), (1, 2)], [0, 1]),
    ],
)
def test_lines_and_pages(data: bytes, text: str, pages: list[tuple[int, int]], lines: list[int]) -> None:
    document = read_text(data, sha256="0", name="a.txt")

    assert (document.kind, document.sha256, document.name) == ("text", "0", "a.txt")
    assert document.text == text
    assert document.pages == tuple(Page(n, *edges) for n, edges in enumerate(pages, 1))
    assert document.lines.tolist() == lines


def test_markdown_stays_as_it_is_written() -> None:
    document = read_markdown(b"# Title\r\n\r\n*One* [two](x)", sha256="")
    assert (document.kind, document.text) == ("markdown", "# Title\n\n*One* [two](x)")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff")))
def test_utf_8_comes_back_and_pages_cover_it(text: str) -> None:
    document = read_text(text.encode(), sha256="")

    assert document.text == text
    assert [page.end for page in document.pages][-1] == len(text)
    assert all(
        before.end == after.start for before, after in zip(document.pages, document.pages[1:], strict=False)
    )
    assert all(at == 0 or text[at - 1] in "\n\f" for at in document.lines.tolist())


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        document = read_text(data, sha256="")
    except DocumentError:
        return
    document.text.encode()


def test_a_draft_writes_the_strongest_gap_and_only_between_texts() -> None:
    draft = TextBuilder()
    draft.separate(GAP_ROW)
    with draft.aside("note"), draft.element("outer"), draft.element("inner"):
        draft.write("a")
        draft.separate(GAP_LINE)
        draft.separate(GAP_SPACE)
    with draft.element("nothing"):
        draft.separate(GAP_ROW)
    with draft.element("last"):
        draft.write("b")
    draft.end_page("one")
    draft.end_page("two")

    text = "".join(draft.parts)
    assert text == "a\nb\n\n"
    assert [(text[e.start : e.end], e.path) for e in draft.elements] == [("a", "outer"), ("b", "last")]
    assert [(a.start, a.end, a.kind) for a in draft.asides] == [(0, 1, "note")]
    assert [(page.start, page.end, page.label) for page in draft.pages] == [(0, 4, "one"), (4, 5, "two")]
