"""Office files: made by hand, one thing at a time, and real ones."""

from __future__ import annotations

import random
import sys
import zipfile
from contextlib import suppress
from io import BytesIO

import pytest

from citewire.documents.document import Document
from citewire.documents.errors import DocumentError
from citewire.documents.office import read_docx, read_pptx, read_xlsx
from support.cases import need_cases

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
SPACES = (
    'xmlns:w="w" xmlns:a="a" xmlns:p="p" xmlns:m="m" xmlns:mc="mc" xmlns:wps="wps" xmlns:v="v" xmlns:dc="dc"'
    f' xmlns:xdr="xdr" xmlns:r="{OFFICE}"'
)

Parts = dict[str, str | bytes]


def xml(tag: str, inner: str) -> str:
    """A part whose root is `tag`, with every prefix that the tests use."""
    return f'<?xml version="1.0" encoding="UTF-8"?><{tag} {SPACES}>{inner}</{tag.partition(" ")[0]}>'


def rels(*relations: tuple[str, str, str]) -> str:
    """(id, kind, target) each."""
    return xml(
        "Relationships",
        "".join(f'<Relationship Id="{i}" Type="{OFFICE}/{k}" Target="{t}"/>' for i, k, t in relations),
    )


def pack(main: str, parts: Parts) -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {"_rels/.rels": rels(("r", "officeDocument", main)), **parts}.items():
            archive.writestr(name, content)
    return packed.getvalue()


def docx(body: str, relations: tuple[tuple[str, str, str], ...] = (), **parts: str) -> bytes:
    """A document with `body`, and `parts` by the name of their file in the folder of the document."""
    named: Parts = {f"word/{name}.xml": content for name, content in parts.items()}
    main = xml("w:document", f"<w:body>{body}</w:body>")
    listed = {"word/_rels/document.xml.rels": rels(*relations)}
    return pack("word/document.xml", {"word/document.xml": main, **listed, **named})


def p(*runs: str) -> str:
    """A paragraph; a run that is not markup is text."""
    return "<w:p>" + "".join(run if run.startswith("<") else r(run) for run in runs) + "</w:p>"


def r(text: str, tag: str = "w:t") -> str:
    return f'<w:r><{tag} xml:space="preserve">{text}</{tag}></w:r>'


def box(text: str) -> str:
    return f"<w:txbxContent>{p(text)}</w:txbxContent>"


def check(document: Document) -> None:
    """What every document promises of its ranges."""
    end = 0
    for element in document.elements:
        assert end <= element.start < element.end <= len(document.text)
        end = element.end
    assert list(document.asides) == sorted(document.asides, key=lambda aside: aside.start)
    assert all(aside.start < aside.end <= len(document.text) for aside in document.asides)
    assert [page.start for page in document.pages] == [0, *(page.end for page in document.pages[:-1])]
    assert document.pages[-1].end == len(document.text)


def by_path(document: Document) -> dict[str, str]:
    check(document)
    return {element.path: document.text[element.start : element.end] for element in document.elements}


def by_kind(document: Document) -> list[tuple[str, str]]:
    return [(aside.kind, document.text[aside.start : aside.end]) for aside in document.asides]


TABLE = (
    "<w:tbl><w:tblPr/><w:tr><w:tc><w:tcPr/>{}</w:tc><w:tc>{}</w:tc></w:tr>"
    "<w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr></w:tbl>"
)

BODIES = {
    "paragraphs": (p("One ", "two.") + p() + p("Three."), "One two.\nThree."),
    "table": (p("a") + TABLE.format(p("1"), p("2"), p("3"), p("4")) + p("b"), "a\n1\t2\n3\t4\nb"),
    "paragraphs in a cell": (TABLE.format(p("1") + p("2"), p("3"), p(), p("4")), "1\n2\t3\n4"),
    "tab, breaks and hyphens": (
        p("a", "<w:r><w:tab/></w:r>", "b", "<w:r><w:br/></w:r>", "c", "<w:r><w:noBreakHyphen/></w:r>", "d"),
        "a\tb\nc\u2011d",
    ),
    "tab stops are no text": (p("<w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>", "a"), "a"),
    "insertion": (p("a", f"<w:ins>{r('b')}</w:ins>", "c"), "abc"),
    "moved text": (
        p(f"<w:moveFrom>{r('x')}</w:moveFrom>", "a") + p(f"<w:moveTo>{r('x')}</w:moveTo>"),
        "a\nx",
    ),
    "complex field": (
        p('<w:r><w:fldChar w:fldCharType="begin"/></w:r>', r("PAGE", "w:instrText"), "7", "."),
        "7.",
    ),
    "simple field": (p(f'<w:fldSimple w:instr="DATE">{r("today")}</w:fldSimple>'), "today"),
    "content controls": (
        f"<w:sdt><w:sdtPr><w:text/></w:sdtPr><w:sdtContent>{p('a')}</w:sdtContent></w:sdt>"
        + p(f"<w:sdt><w:sdtContent>{r('b')}</w:sdtContent></w:sdt>", f"<w:hyperlink>{r('c')}</w:hyperlink>"),
        "a\nbc",
    ),
    "formula": (
        p(
            "x=",
            "<m:oMath><m:f><m:num><m:t>1</m:t></m:num><m:den><m:t>2</m:t></m:den></m:f>"
            "<m:sSup><m:e><m:t>y</m:t></m:e><m:sup><m:t>3</m:t></m:sup></m:sSup></m:oMath>",
        ),
        "x=1/2y^3",
    ),
    "text box, written twice": (
        p(
            "before ",
            f"<w:r><mc:AlternateContent><mc:Choice><wps:txbx>{box('boxed')}</wps:txbx></mc:Choice>"
            f"<mc:Fallback><w:pict><v:textbox>{box('boxed')}</v:textbox></w:pict></mc:Fallback>"
            "</mc:AlternateContent></w:r>",
            "after",
        ),
        "before after\nboxed",
    ),
    "text box in the old form only": (p(f"<w:r><w:pict>{box('old')}</w:pict></w:r>", "a"), "a\nold"),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("body", "text"), BODIES.values(), ids=BODIES)
def test_docx_text(body: str, text: str) -> None:
    document = read_docx(docx(body), sha256="0", name="a.docx")

    assert document.text == text
    assert (document.kind, document.sha256, document.name) == ("docx", "0", "a.docx")
    assert document.problems == ()
    check(document)


def test_docx_elements() -> None:
    nested = TABLE.format(p("i"), p("j"), p("k"), p("l"))
    body = (
        p("a") + p() + TABLE.format(p("1"), p("2"), nested + p(), p("4")) + p("b", f"<w:r>{box('c')}</w:r>")
    )
    assert by_path(read_docx(docx(body), sha256="")) == {
        "paragraph 1": "a",
        "table 1 row 1 cell 1": "1",
        "table 1 row 1 cell 2": "2",
        "table 1 row 2 cell 1": "i\tj\nk\tl",
        "table 1 row 2 cell 2": "4",
        "paragraph 3": "b",
        "text box 1": "c",
    }


def test_docx_deleted_and_hidden_text_is_marked() -> None:
    deleted = f"<w:del>{r('not ', 'w:delText')}</w:del>"
    vanished = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r>"
    shown = '<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>open</w:t></w:r>'
    document = read_docx(docx(p("is ", deleted, "so", vanished, shown)), sha256="")

    assert document.text == "is not sosecretopen"
    assert by_kind(document) == [("deleted", "not "), ("hidden", "secret")]


LEVELS = "".join(
    f'<w:lvl w:ilvl="{n}"><w:numFmt w:val="{kind}"/><w:lvlText w:val="{text}"/>{style}</w:lvl>'
    for n, (kind, text, style) in enumerate([
        ("decimal", "%1.", '<w:pStyle w:val="Heading1"/>'), ("decimal", "%1.%2", ""),
        ("lowerLetter", "(%3)", ""), ("upperRoman", "%4", ""), ("bullet", "•", ""),
    ])
)  # fmt: skip
NUMBERING = xml(
    "w:numbering",
    f'<w:abstractNum w:abstractNumId="7">{LEVELS}</w:abstractNum>'
    '<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>'
    '<w:num w:numId="2"><w:abstractNumId w:val="7"/>'
    '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="4"/></w:lvlOverride></w:num>',
)
HEADINGS = xml(
    "w:styles",
    '<w:style w:styleId="Heading1"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>'
    '<w:style w:styleId="Mine"><w:basedOn w:val="Heading1"/></w:style>'
    '<w:style w:styleId="Loop"><w:basedOn w:val="Loop"/></w:style>',
)


def item(text: str, level: int, list_: int = 1) -> str:
    return p(f'<w:pPr><w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{list_}"/></w:numPr></w:pPr>', text)


def styled(text: str, style: str) -> str:
    return p(f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>', text)


def test_docx_numbers_are_those_that_are_shown() -> None:
    body = (
        styled("Scope", "Heading1") + item("first", 1) + item("second", 1) + item("a", 2) + item("b", 2)
        + item("point", 4) + styled("Terms", "Mine") + item("again", 1) + item("deep", 3) + p("plain")
        + item("own start", 0, 2) + item("goes on", 0, 2) + item("none", 0, 0) + styled("loop", "Loop")
    )  # fmt: skip
    document = read_docx(
        docx(body, (("n", "numbering", "n.xml"), ("s", "styles", "s.xml")), n=NUMBERING, s=HEADINGS),
        sha256="",
    )
    assert document.text.split("\n") == [
        "1.\tScope", "1.1\tfirst", "1.2\tsecond", "(a)\ta", "(b)\tb", "point", "2.\tTerms", "2.1\tagain",
        "I\tdeep", "plain", "4.\town start", "5.\tgoes on", "none", "loop",
    ]  # fmt: skip
    # They stand apart: a quote of two items need not have them.
    assert ("header", "1.2\t") in by_kind(document)
    check(document)


def test_docx_notes_headers_and_comments_come_last() -> None:
    references = '<w:r><w:footnoteReference w:id="9"/></w:r>', '<w:r><w:footnoteReference w:id="3"/></w:r>'
    separator = f'<w:footnote w:type="separator" w:id="0">{p("-")}</w:footnote>'
    notes = "".join(f'<w:footnote w:id="{n}">{p(f"note {n}")}</w:footnote>' for n in (3, 9, 11))
    document = read_docx(
        docx(
            p("Text", *references, "."),
            (
                ("a", "footnotes", "footnotes.xml"),
                ("b", "header", "/word/head.xml"),
                ("c", "footer", "foot.xml"),
                ("d", "comments", "comments.xml"),
            ),
            footnotes=xml("w:footnotes", separator + notes),
            head=xml("w:hdr", p("Head")),
            foot=xml("w:ftr", p("Foot")),
            comments=xml(
                "w:comments", f'<w:comment w:id="0" w:author="A">{p("Why?") + p("Yes")}</w:comment>'
            ),
        ),
        sha256="",
    )
    assert by_path(document) == {
        "paragraph 1": "Text.",
        "footnote 1": "note 9",
        "footnote 2": "note 3",
        "footnote 3": "note 11",
        "header 1": "Head",
        "footer 1": "Foot",
        "comment 1": "Why?\nYes",
    }
    assert [kind for kind, _ in by_kind(document)] == ["note", "note", "note", "header", "footer", "comment"]


@pytest.mark.parametrize("part", [None, "<w:footnotes"], ids=["missing", "damaged"])
def test_a_part_that_fails_is_a_problem_and_the_rest_is_read(part: str | None) -> None:
    parts = {} if part is None else {"footnotes": part}
    document = read_docx(docx(p("Text"), (("a", "footnotes", "footnotes.xml"),), **parts), sha256="")

    assert document.text == "Text"
    assert [(problem.code, problem.path) for problem in document.problems] == [
        ("bad_document", "word/footnotes.xml")
    ]


def test_title_is_of_the_properties() -> None:
    package = pack(
        "document.xml",
        {
            "_rels/.rels": rels(
                ("a", "officeDocument", "document.xml"), ("b", "core-properties", "core.xml")
            ),
            "document.xml": xml("w:document", ""),
            "core.xml": xml("coreProperties", "<dc:title> Report </dc:title>"),
        },
    )
    assert read_docx(package, sha256="").title == "Report"


def shape(*lines: str, kind: str = "") -> str:
    placeholder = f'<p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>' if kind else ""
    body = "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in lines)
    return f"<p:sp>{placeholder}<p:txBody><a:bodyPr/>{body}</p:txBody></p:sp>"


def slide(*shapes: str) -> str:
    return f"<p:cSld><p:spTree>{''.join(shapes)}</p:spTree></p:cSld>"


def pptx() -> bytes:
    table = (
        "<p:graphicFrame><a:graphic><a:graphicData><a:tbl><a:tr><a:tc><a:txBody><a:p><a:r><a:t>1</a:t></a:r></a:p>"
        "</a:txBody></a:tc><a:tc><a:txBody><a:p><a:r><a:t>2</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl>"
        "</a:graphicData></a:graphic></p:graphicFrame>"
    )
    group = f"<p:grpSp>{shape('grouped')}{table}</p:grpSp>"
    order = "".join(f'<p:sldId id="{256 + n}" r:id="s{n}"/>' for n in (2, 1, 3))
    return pack(
        "ppt/presentation.xml",
        {
            "ppt/presentation.xml": xml(
                "p:presentation", f'<p:sldIdLst>{order}</p:sldIdLst><p:sldSz cx="9144000" cy="6858000"/>'
            ),
            "ppt/_rels/presentation.xml.rels": rels(
                *((f"s{n}", "slide", f"slides/slide{n}.xml") for n in (1, 2, 3))
            ),
            "ppt/slides/slide1.xml": xml('p:sld show="0"', slide(shape("secret"))),
            "ppt/slides/slide2.xml": xml(
                "p:sld", slide(shape("The", "title", kind="title"), "<p:pic/>", shape("one", "two"), group)
            ),
            "ppt/slides/_rels/slide2.xml.rels": rels(
                ("n", "notesSlide", "../notesSlides/notes.xml"), ("c", "comments", "../comments.xml")
            ),
            "ppt/notesSlides/notes.xml": xml(
                "p:notes", slide(shape("Say this.", kind="body"), shape("2", kind="sldNum"))
            ),
            "ppt/comments.xml": xml("p:cmLst", "<p:cm><p:text>Really?</p:text></p:cm>"),
        },
    )


def test_pptx_is_a_page_for_each_slide_in_the_order_shown() -> None:
    document = read_pptx(pptx(), sha256="")

    assert by_path(document) == {
        "slide 1 shape 1": "The\ntitle",
        "slide 1 shape 3": "one\ntwo",
        "slide 1 shape 4": "grouped",
        "slide 1 shape 5": "1\t2",
        "slide 1 notes 1": "Say this.",
        "slide 1 comment 1": "Really?",
        "slide 2 shape 1": "secret",
    }
    assert by_kind(document) == [("note", "Say this."), ("comment", "Really?"), ("hidden", "secret")]
    assert [(page.label, page.width, page.height) for page in document.pages] == [
        ("The title", 720, 540),
        (None, 720, 540),
        (None, 720, 540),
    ]
    assert [document.text[page.start : page.end][-1] for page in document.pages] == ["\n"] * 3
    assert [problem.path for problem in document.problems] == ["ppt/slides/slide3.xml"]
    assert document.page_at(document.text.index("secret")).number == 2


def test_pptx_raised_digits_are_kept_apart() -> None:
    runs = "<a:r><a:t>10</a:t></a:r>" + "".join(
        f'<a:r><a:rPr baseline="{base}"/><a:t>{text}</a:t></a:r>'
        for base, text in ((30000, "2"), (0, " H"), (-25000, "2"))
    )
    data = pack(
        "p.xml",
        {
            "p.xml": xml("p:presentation", '<p:sldIdLst><p:sldId r:id="s"/></p:sldIdLst>'),
            "_rels/p.xml.rels": rels(("s", "slide", "s.xml")),
            "s.xml": xml("p:sld", slide(f"<p:sp><p:txBody><a:p>{runs}</a:p></p:txBody></p:sp>")),
        },
    )
    assert read_pptx(data, sha256="").text == "10² H₂\n"


CELLS = {
    '<c t="s"><v>0</v></c>': "shared",
    '<c t="s"><v>1</v></c>': "rich text",
    '<c t="s"><v>99</v></c>': None,
    '<c t="inlineStr"><is><t>in</t></is></c>': "in",
    '<c t="str"><f>A1</f><v>formula</v></c>': "formula",
    '<c t="b"><v>1</v></c>': "TRUE",
    '<c t="b"><v>0</v></c>': "FALSE",
    '<c t="e"><v>#N/A</v></c>': "#N/A",
    "<c><v>0.1</v></c>": "0.1",
    "<c><v>-12.50</v></c>": "-12.50",
    '<c s="0"><v>45356</v></c>': "45356",
    '<c s="1"><v>45356</v></c>': "2024-03-05",
    '<c s="2"><v>45356.604166666664</v></c>': "2024-03-05 14:30",
    '<c s="2"><v>0.5</v></c>': "12:00:00",
    '<c s="1"><v>1</v></c>': "1900-01-01",
    '<c s="1"><v>61</v></c>': "1900-03-01",
    '<c s="1"><v>2958465</v></c>': "9999-12-31",
    '<c s="1"><v>1E+300</v></c>': "1E+300",
    '<c s="1"><v>-1</v></c>': "-1",
    '<c s="3"><v>7</v></c>': "7 days",
    '<c s="4"><v>1.5</v></c>': "36:00",
    '<c s="5"><v>0.12</v></c>': "12%",
    '<c s="99"><v>0.12</v></c>': "0.12",
    "<c/>": None,
}
STYLES = (
    '<numFmts><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd hh:mm;@"/>'
    '<numFmt numFmtId="165" formatCode="[Red]0&quot; days&quot;_d"/>'
    '<numFmt numFmtId="166" formatCode="[h]:mm"/></numFmts><cellXfs>'
    + "".join(f'<xf numFmtId="{n}"/>' for n in (0, 14, 164, 165, 166, 9))
    + "</cellXfs>"
)
STRINGS = "<si><t>shared</t></si><si><r><t>rich </t></r><r><t>text</t></r><rPh><t>no</t></rPh></si>"


def xlsx(rows: str, settings: str = "", state: str = "visible", name: str = "Data") -> bytes:
    drawing = f"<xdr:twoCellAnchor>{shape('boxed')}</xdr:twoCellAnchor>"
    return pack(
        "xl/workbook.xml",
        {
            "xl/workbook.xml": xml(
                "workbook",
                f'{settings}<sheets><sheet name="{name}" r:id="a"/>'
                f'<sheet name="It\'s 2" r:id="b" state="{state}"/></sheets>',
            ),
            "xl/_rels/workbook.xml.rels": rels(
                ("a", "worksheet", "sheets/one.xml"),
                ("b", "worksheet", "sheets/two.xml"),
                ("c", "sharedStrings", "sharedStrings.xml"),
                ("d", "styles", "styles.xml"),
            ),
            "xl/sharedStrings.xml": xml("sst", STRINGS),
            "xl/styles.xml": xml("styleSheet", STYLES),
            "xl/sheets/one.xml": xml("worksheet", f"<sheetData>{rows}</sheetData>"),
            "xl/sheets/two.xml": xml("worksheet", '<row r="4"><c r="D4"><v>9</v></c></row>'),
            "xl/sheets/_rels/two.xml.rels": rels(
                ("a", "comments", "/xl/com.xml"), ("b", "drawing", "../d.xml")
            ),
            "xl/com.xml": xml(
                "comments", '<commentList><comment ref="D4"><text><t>Sure?</t></text></comment></commentList>'
            ),
            "xl/d.xml": xml("xdr:wsDr", drawing),
        },
    )


@pytest.mark.parametrize(("cell", "text"), CELLS.items())
def test_xlsx_cell(cell: str, text: str | None) -> None:
    document = read_xlsx(xlsx(f"<row>{cell}</row>"), sha256="")
    assert by_path(document).get("Data!A1") == text
    assert document.problems == ()


def test_xlsx_dates_from_1904() -> None:
    document = read_xlsx(
        xlsx('<row><c s="1"><v>0</v></c></row>', settings='<workbookPr date1904="1"/>'), sha256=""
    )
    assert by_path(document)["Data!A1"] == "1904-01-01"


def test_xlsx_is_a_page_for_each_sheet() -> None:
    rows = '<row r="3"><c r="B3"><v>1</v></c><c r="AA3"><v>2</v></c></row><row><c/><c><v>3</v></c></row>'
    document = read_xlsx(xlsx(rows, state="hidden"), sha256="")

    assert document.text == "1\t2\n3\n9\nboxed\nSure?\n"
    assert by_path(document) == {
        "Data!B3": "1",
        "Data!AA3": "2",
        "Data!B4": "3",
        "'It''s 2'!D4": "9",
        "'It''s 2' shape 1": "boxed",
        "'It''s 2'!D4 comment": "Sure?",
    }
    assert [page.label for page in document.pages] == ["Data", "It's 2"]
    assert by_kind(document) == [("hidden", "9\nboxed\nSure?"), ("comment", "Sure?")]


def test_xlsx_names_that_are_far_too_long() -> None:
    """Excel has 31 characters for a sheet. What is no address of a cell is not taken for one."""
    cells = "".join(f'<c r="{at}"><v>1</v></c>' for at in ("A" * 9000, "b7", "XFD1048576"))
    data = xlsx(f'<row r="3">{cells}</row>', name="Data" * 100)
    paths = [element.path for element in read_xlsx(data, sha256="").elements]
    label = ("Data" * 100)[:64]
    assert paths[:3] == [f"{label}!A3", f"{label}!B3", f"{label}!XFD1048576"]


GOOD = docx(p("Text " * 50))
BAD = {
    "nothing": b"",
    "no zip": b"Hello",
    "half a zip": GOOD[: len(GOOD) // 2],
    "old or encrypted": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
    "an empty zip": b"PK\5\6" + bytes(18),
    "no main part": pack("word/document.xml", {}),
    "a workbook": xlsx(""),
    "no XML": pack("d.xml", {"d.xml": "<a><b></a>"}),
    "entities": pack("d.xml", {"d.xml": '<!DOCTYPE d [<!ENTITY e "x">]><document>&e;</document>'}),
    "a bomb": pack("d.xml", {"d.xml": xml("document", " " * 5_000_000)}),
    "a bomb beside it": pack("d.xml", {"d.xml": xml("document", ""), "e.xml": bytes(5_000_000)}),
    "a bomb by another name": pack("d.bin", {"d.bin": xml("document", " " * 5_000_000)}),
    "too deep": pack("d.xml", {"d.xml": xml("document", "<a>" * 5000 + "</a>" * 5000)}),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(DocumentError) as caught:
        read_docx(data, sha256="")
    assert caught.value.code == "bad_document"


def test_many_copies_of_a_string_are_refused() -> None:
    """A cell costs a few bytes however long the string that it shows."""
    words = " ".join(str(n) for n in range(1_000_000))
    package = pack(
        "w.xml",
        {
            "w.xml": xml("workbook", '<sheets><sheet name="A" r:id="a"/></sheets>'),
            "_rels/w.xml.rels": rels(("a", "worksheet", "s.xml"), ("b", "sharedStrings", "t.xml")),
            "t.xml": xml("sst", f"<si><t>{words}</t></si>"),
            "s.xml": xml("worksheet", '<row><c t="s"><v>0</v></c></row>' * 60),
        },
    )
    with pytest.raises(DocumentError, match="characters"):
        read_xlsx(package, sha256="")


def test_as_deep_as_the_parser_allows() -> None:
    depth = 60
    body = "<w:tbl><w:tr><w:tc>" * depth + p("deep") + "</w:tc></w:tr></w:tbl>" * depth
    assert read_docx(docx(body), sha256="").text == "deep"


def damage(data: bytes, choose: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(choose.randint(1, 8)):
        damaged[choose.randrange(len(damaged))] = choose.choice(b'\0<>/"&9a\xff')
    return bytes(damaged)


def damage_part(data: bytes, choose: random.Random) -> bytes:
    """The same in one of the parts, in a package that is whole."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = choose.choice(list(parts))
    return pack("", {**parts, name: damage(parts[name], choose)})


@pytest.mark.parametrize("seed", range(50))
def test_damage_is_survived_or_refused(seed: int) -> None:
    choose = random.Random(seed)
    for read, data in (
        (read_docx, GOOD),
        (read_pptx, pptx()),
        (read_xlsx, xlsx(f"<row>{''.join(CELLS)}</row>")),
    ):
        for damaged in (damage(data, choose), damage_part(data, choose)):
            with suppress(DocumentError):
                check(read(damaged, sha256=""))


def test_without_lxml_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lxml.etree", None)
    with pytest.raises(DocumentError, match=r"citewire\[office\]"):
        read_docx(GOOD, sha256="")


PHRASES = {
    "docling__docx_comments.docx": "Another comment by a different reviewer.",
    "docling__equations.docx": "is the Pythagorean theorem.",
    "docling__word_tables.docx": "Cell 1.0\tMerged Cell 1.1 1.2\nCell 2.0",
    "markitdown__test.docx": "open-source framework that allows developers to build LLM applications",
    "pandoc__german_styled_lists.docx": "Massgebend sind die Allgemeinen Geschäftsbedingungen",
    "pandoc__sdt_in_footnote.docx": "Dissonance in the food traceability regulatory environment",
    "pandoc__tables.docx": "Lebron James\tBasketball\tVery High",
}


def test_corpus(subtests: pytest.Subtests) -> None:
    for path in sorted((need_cases() / "corpus/docx").glob("*.docx")):
        with subtests.test(path.name):
            document = read_docx(path.read_bytes(), sha256="")
            check(document)
            assert document.text.strip()
            assert document.problems == ()
            assert PHRASES.get(path.name, "") in document.text
            if "move" in path.name:
                assert document.text.count("the text to be moved") == 1
