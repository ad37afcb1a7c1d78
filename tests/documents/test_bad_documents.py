"""Sources that are broken, hostile or not what they are called: a clear reason, or what can be read of them.

Each is read as it is in earnest, in a process that has a limit of time and memory.
"""

from __future__ import annotations

import gzip
import os
import random
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest

from citewire.documents.document import Document
from citewire.documents.errors import DocumentError
from citewire.documents.load import load
from citewire.documents.reader import read_in_child
from support.pdfs import Line, Sheet, make_pdf

pytestmark = pytest.mark.slow

TEXT = (Line("The first line,"), Line("and the second.", y=680))
PDF = make_pdf(Sheet(TEXT))
MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
PARTS: dict[str, str | bytes] = {
    "[Content_Types].xml": f'<Types><Override PartName="/d.xml" ContentType="{MAIN}"/></Types>',
    "_rels/.rels": '<Relationships><Relationship Type="x/officeDocument" Target="d.xml"/></Relationships>',
    "d.xml": "<document><p><t>Some words.</t></p></document>",
}
LAUGHS = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))
NULLS = bytes(20_000_000)


def packed(**parts: str | bytes) -> bytes:
    """A docx with these parts, a dot in a name written as two underscores."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (
            PARTS | {name.replace("__", "."): text for name, text in parts.items()}
        ).items():
            archive.writestr(name, content)
    return out.getvalue()


def pdf_of(content: bytes, filters: int) -> bytes:
    for _ in range(filters):
        content = zlib.compress(content, 9)
    return (
        b"%%PDF-1.7\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n"
        b"2 0 obj << /Type /Pages /Kids [3 0 R] /Count 1 >> endobj\n"
        b"3 0 obj << /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >> endobj\n"
        b"4 0 obj << /Length %d /Filter [%s] >> stream\n%s\nendstream endobj\ntrailer << /Root 1 0 R >>\n"
    ) % (len(content), b"/FlateDecode " * filters, content)


def tree(kids: bytes, count: int) -> bytes:
    return (
        b"%%PDF-1.7\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n"
        b"2 0 obj << /Type /Pages /Kids [%s] /Count %d >> endobj\ntrailer << /Root 1 0 R >>\n"
    ) % (kids, count)


REFUSED = {
    "nothing": (b"", "empty"),
    "a PDF cut short": (PDF[: len(PDF) // 2], "damaged"),
    "a PDF without pages": (make_pdf(), "no pages|damaged"),
    "a PDF that says it has two billion": (tree(b"", 2_000_000_000), "damaged|no pages"),
    "a PDF with a password": (make_pdf(Sheet(TEXT), locked=True), "password"),
    "a zip in a zip": (packed()[:4] + gzip.compress(NULLS), "zip"),
    "a huge part": (packed(d__xml=b"<document>" + NULLS), "bomb"),
    "a huge part that nobody asks for": (packed(e__xml=NULLS), "bomb"),
    "a list of parts that is huge": (
        packed(**{"[Content_Types]__xml": PARTS["[Content_Types].xml"] + str(NULLS)}),  # type: ignore[operator]
        "bomb",
    ),
    "a billion laughs": (
        packed(d__xml=f'<!DOCTYPE d [<!ENTITY e0 "ha">{LAUGHS}]><document>&e9;</document>'),
        "amplification|document type|entit",
    ),
    "a file from outside": (
        packed(d__xml='<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/hosts">]><document><t>&e;</t></document>'),
        "document type",
    ),
    "XML that ends too soon": (packed(d__xml="<document><p>"), "damaged"),
    "a compressed file": (gzip.compress(b"words " * 1000), "not text"),
    "noise": (random.Random(0).randbytes(50_000), "not text"),
    "noise without NUL": (random.Random(0).randbytes(50_000).replace(b"\0", b""), "not text"),
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        load(data)


READ = {
    "a PDF called text": (PDF, "a.txt", "pdf", "The first line,"),
    "a PDF without its table": (PDF.replace(b"startxref\n", b"startxref\n9"), "", "pdf", "and the second."),
    "a PDF with a table of nonsense": (
        PDF[: PDF.index(b"xref\n")] + b"xref\n0 3\nx\ntrailer << /Root 1 0 R >>\n", "", "pdf", "The first",
    ),
    "a page called PDF": (b"<!doctype html><p>Some words", "a.pdf", "html", "Some words"),
    "words called PDF": (b"Some words", "a.pdf", "text", "Some words"),
    "a docx called page": (packed(), "a.html", "docx", "Some words."),
    "a docx with a bomb that nothing reads": (packed(media__bin=NULLS), "", "docx", "Some words."),
    "JSON": (b'{"a": ["b", 1.5]}', "a.json", "text", '["b", 1.5]'),
    "a table": (b"name;share\nA;12,5 %\n", "a.csv", "text", "A;12,5 %"),
    "deep nesting": (b"<!doctype html>" + b"<div>" * 100_000 + b"deep", "", "html", "deep"),
    "a line of megabytes": (b"<html><p>" + b"word and more " * 500_000 + b"last", "", "html", "more last"),
    "an attribute of megabytes": (b'<html><p title="' + b"x" * 9_000_000 + b'">seen', "", "html", "seen"),
    "nothing but brackets": (b"<html>" + b"<" * 5_000_000 + b" end", "", "html", " end"),
    "a rule for each of many elements": (
        b"<html><style>"
        + b"".join(b".a%d{display:none}" % n for n in range(30_000)) + b"</style>"
        + b"".join(b'<p class="a%d">x' % n for n in range(30_000)) + b"<p>end", "", "html", "end",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "name", "kind", "words"), READ.values(), ids=READ)
def test_what_can_be_read_is_whatever_it_is_called(data: bytes, name: str, kind: str, words: str) -> None:
    document = load(data, name=name)
    assert document.kind == kind
    assert words in document.text


def problems(document: Document) -> set[str]:
    return {problem.code for problem in document.problems}


def test_pages_that_are_their_own_ancestors_are_left_out() -> None:
    document = load(tree(b"2 0 R 2 0 R", 4))
    assert not document.text.strip()
    assert problems(document) == {"bad_page"}


def test_a_damaged_part_is_a_problem_and_the_rest_is_read() -> None:
    relation = '<Relationships><Relationship Type="x/footnotes" Target="f.xml"/></Relationships>'
    entity = '<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/hosts">]><footnotes>&e;</footnotes>'
    document = load(packed(**{"_rels/d__xml__rels": relation, "f__xml": entity}))
    assert document.text == "Some words."
    assert [(problem.code, problem.path) for problem in document.problems] == [("bad_document", "f.xml")]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_pages_are_read_and_more_are_reported() -> None:
    document = load(
        make_pdf(*[Sheet((Line("Words."),))] * 10_002), read_in=partial(read_in_child, timeout=240)
    )
    assert len(document.pages) == 10_000
    assert [(problem.code, problem.path) for problem in document.problems] == [
        ("too_many_pages", "page 10001")
    ]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pdf_of(b"BT (spam) Tj ET\n" * 4_000_000, 1), id="text without end"),
        pytest.param(pdf_of(bytes(200_000_000), 2), id="packed twice"),
        pytest.param(b"<html><p " + b"".join(b"a%d " % n for n in range(1_000_000)) + b">x", id="attributes"),
    ],
)
def test_a_bomb_costs_a_bounded_time(data: bytes) -> None:
    """It is read, or refused: with an error of its own, when its time or memory is over."""
    try:
        document = load(data, read_in=partial(read_in_child, timeout=10))
    except DocumentError as exc:
        assert exc.code in {"reader_timeout", "reader_failed", "bad_document"}  # noqa: PT017  # either is right
    else:
        assert len(document.text) < 20_000_000


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero"), tmp_path / "none", tmp_path / ("x" * 300)):
        with pytest.raises(DocumentError):
            load(path)


@pytest.fixture
def nobody() -> Iterator[None]:
    """Not root, who may read everything."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    yield
    os.seteuid(me)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("words")
    path.chmod(0)
    return path


def test_a_file_that_may_not_be_read_is_refused(secret: Path, nobody: None) -> None:
    with pytest.raises(DocumentError, match="ermission"):
        load(secret)


def test_a_file_that_grows_is_read_as_far_as_it_was(tmp_path: Path) -> None:
    """What is written while it is read is in it or not, but what it is called by is what was read."""
    path = tmp_path / "log.txt"
    path.write_bytes(b"line\n" * 1000)

    def read_in(data: bytes, *arguments: object, **options: object) -> Document:
        with path.open("ab") as file:
            file.write(b"more\n")
        return read_in_child(data, *arguments, **options)  # type: ignore[arg-type]

    document = load(path, read_in=read_in)
    assert document.text == "line\n" * 1000
    assert load(path).sha256 != document.sha256
