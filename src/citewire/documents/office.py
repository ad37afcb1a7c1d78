"""Office reader: the text of DOCX, PPTX and XLSX, and the paragraph, shape or cell of each piece."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from citewire.documents.document import AsideKind, Document, DocumentKind, Element, Page
from citewire.documents.errors import DocumentError
from citewire.documents.number_formats import NumberFormat, format_number
from citewire.documents.office_package import (
    LARGEST_XML,
    OfficePackage,
    XmlElement,
    attribute,
    local_name,
    parse_int,
    relation_id,
)
from citewire.documents.text import (
    GAP_CELL,
    GAP_LINE,
    GAP_ROW,
    SUBSCRIPTS,
    SUPERSCRIPTS,
    TextBuilder,
    line_starts,
)
from citewire.documents.word_numbering import WordNumbering

__all__ = ["read_docx", "read_pptx", "read_xlsx"]

_POINT = 12700  # EMU
_UNREADABLE = "\ufffd"  # a symbol given only by its position in a font
_RUNNING: tuple[AsideKind, ...] = ("header", "footer")
_SHAPES = {"sp", "graphicFrame", "pic", "cxnSp"}
# The slide itself and what is repeated on all pages of notes.
_NO_NOTES = {"sldImg", "sldNum", "dt", "hdr", "ftr"}
# Most characters of a sheet's name in the path of its cells; Excel allows 31.
_LONGEST_NAME = 64
_CELL_ADDRESS = re.compile(r"[A-Z]{1,3}[0-9]{1,7}")


def _document(
    package: OfficePackage, draft: TextBuilder, kind: DocumentKind, sha256: str, name: str | None
) -> Document:
    text = "".join(draft.parts)
    titles = (root.findtext("{*}title") for root in package.related_roots("", "core-properties"))
    return Document(
        sha256,
        kind,
        text,
        tuple(draft.pages) or (Page(1, 0, len(text)),),
        line_starts(text),
        elements=tuple(draft.elements),
        asides=tuple(sorted(draft.asides, key=lambda aside: (aside.start, aside.end))),
        title=next((title.strip() for title in titles if title and title.strip()), None),
        name=name,
        problems=tuple(dict.fromkeys(package.problems)),
    )


def _alternative(node: XmlElement) -> XmlElement | None:
    """Return the alternative to use of several forms of the same content: the newest that has text."""
    return next((form for form in node if next(form.iter("{*}t"), None) is not None), None)


def _moved(style: XmlElement | None) -> dict[int, int]:
    """Return the translation of digits that Word or PowerPoint sets as superscript or subscript."""
    if style is None:
        return {}
    align, base = style.find("{*}vertAlign"), attribute(style, "baseline") or "0"
    how = base if align is None else attribute(align, "val")
    if how == "superscript" or parse_int(how, 0):
        return SUPERSCRIPTS
    return SUBSCRIPTS if how == "subscript" or (how or "").startswith("-") else {}


class _OfficeTextWriter:
    """Writes the text of WordprocessingML and DrawingML, which share their element names for text."""

    def __init__(self, draft: TextBuilder, label: Callable[[XmlElement], str] = lambda _: "") -> None:
        self.draft = draft
        self._label = label
        self.notes: dict[str, list[str | None]] = {"footnote": [], "endnote": []}
        self._paragraphs = self._tables = self._text_boxes = 0
        self._place = [0, 0, 0]
        self._boxes: list[XmlElement] = []
        self._digits: dict[int, int] = {}

    def _run(self, node: XmlElement) -> None:
        outer, self._digits = self._digits, _moved(node.find("{*}rPr"))
        self.walk_all(node)
        self._digits = outer

    def walk(self, node: XmlElement) -> None:
        """Write a node. Recursive: the parser refuses trees deeper than 256."""
        match local_name(node):
            case "t" | "delText" | "text" if not len(node):
                if node.text:
                    self.draft.write(node.text.translate(self._digits))
            case "tab" | "ptab":
                self.draft.write("\t")
            case "br" | "cr":
                self.draft.break_line()
            case "noBreakHyphen" | "softHyphen" | "sym" as name:
                self.draft.write({"noBreakHyphen": "\u2011", "softHyphen": "\u00ad"}.get(name, _UNREADABLE))
            # In formulas: without a sign, ½ would read 12, and 10² 102.
            case "den" | "sub" | "sup" as name if next(node.iter("{*}t"), None) is not None:
                self.draft.write({"den": "/", "sub": "_"}.get(name, "^"))
                self.walk_all(node)
            case "p":
                self._paragraph(node)
            case "tbl" | "tr" | "tc" as name:
                self._table(node, name)
            case "txbxContent":
                self._boxes.append(node)
            case "del":
                with self.draft.aside("deleted"):
                    self.walk_all(node)
            case "r":
                with self.draft.aside("hidden" if _is_on(node.find("{*}rPr/{*}vanish")) else None):
                    self._run(node)
            case "AlternateContent":
                self.walk_all(() if (form := _alternative(node)) is None else form)
            case "footnoteReference" | "endnoteReference" as name:
                self.notes[name.removesuffix("Reference")].append(attribute(node, "id"))
            # Moved text is at its new place. The text of a field is its result, not its code.
            case "moveFrom" | "instrText" | "delInstrText":
                pass
            case name if not name.endswith("Pr"):
                self.walk_all(node)
            case _:
                pass

    def walk_all(self, nodes: XmlElement | tuple[()]) -> None:
        for node in nodes:
            self.walk(node)

    def block(self, nodes: XmlElement, path: str, kind: AsideKind | None = None) -> None:
        """Write a separate block of text."""
        with self.draft.aside(kind), self.draft.element(path):
            self.walk_all(nodes)
        self.draft.separate(GAP_ROW)

    def _paragraph(self, node: XmlElement) -> None:
        """Write a paragraph, and after it the text boxes anchored in it, which would split its text."""
        outer, self._boxes = self._boxes, []
        self._paragraphs += not self.draft.named
        label = self._label(node)
        with self.draft.element(f"paragraph {self._paragraphs}"):
            if label and next(node.iter("{*}t"), None) is not None:
                # Like a running header, a quote may leave it out.
                with self.draft.aside("header"):
                    self.draft.write(f"{label}\t")
            self.walk_all(node)
        self.draft.separate(GAP_LINE)
        boxes, self._boxes = self._boxes, outer
        for box in boxes:
            self._text_boxes += 1
            self.block(box, f"text box {self._text_boxes}")

    def _table(self, node: XmlElement, name: str) -> None:
        outer = self._place
        table, row, cell = outer
        if name == "tbl":
            self._tables += not self.draft.named
            self._place = [self._tables, 0, 0]
            self.walk_all(node)
            self._place = outer
        elif name == "tr":
            outer[1:] = row + 1, 0
            self.walk_all(node)
            self.draft.separate(GAP_ROW)
        else:
            outer[2] = cell + 1
            with self.draft.element(f"table {table} row {row} cell {cell + 1}"):
                self.walk_all(node)
            self.draft.separate(GAP_CELL)


def _is_on(node: XmlElement | None) -> bool:
    return node is not None and attribute(node, "val") not in {"0", "false", "off"}


def read_docx(data: bytes, *, sha256: str, name: str | None = None) -> Document:
    """Read a text document: the body, then notes, headers, footers and comments. Raises `DocumentError`."""
    package, draft = OfficePackage(data, "document"), TextBuilder()
    words = _OfficeTextWriter(draft, WordNumbering(package).next_label)
    words.walk(package.root)
    for kind, order in words.notes.items():
        for root in package.related_roots(package.main, f"{kind}s"):
            notes = {
                attribute(note, "id"): note for note in root if attribute(note, "type") in {None, "normal"}
            }
            # The displayed number counts the references in the text.
            ordered = dict.fromkeys([*(id_ for id_ in order if id_ in notes), *notes])
            for number, id_ in enumerate(ordered, 1):
                words.block(notes[id_], f"{kind} {number}", "note")
    for kind in _RUNNING:
        for number, root in enumerate(package.related_roots(package.main, kind), 1):
            words.block(root, f"{kind} {number}", kind)
    for root in package.related_roots(package.main, "comments"):
        for number, comment in enumerate(root, 1):
            words.block(comment, f"comment {number}", "comment")
    return _document(package, draft, "docx", sha256, name)


def _shapes(node: XmlElement) -> Iterator[XmlElement]:
    """Yield the shapes of a drawing, including those in groups."""
    for child in node:
        if (name := local_name(child)) in _SHAPES:
            yield child
        elif name != "AlternateContent":
            yield from _shapes(child)
        elif (form := _alternative(child)) is not None:
            yield from _shapes(form)


def _placeholder(shape: XmlElement) -> str | None:
    """Return the purpose of a shape: `title`, `body`, `sldNum`."""
    found = next(shape.iter("{*}ph"), None)
    return None if found is None else attribute(found, "type")


def read_pptx(data: bytes, *, sha256: str, name: str | None = None) -> Document:
    """Read a presentation, one page per slide, with its notes and comments. Raises `DocumentError`."""
    package, draft = OfficePackage(data, "presentation"), TextBuilder()
    parts = {relation.id: relation.part for relation in package.related(package.main, "slide")}
    size = package.root.find("{*}sldSz")
    width, height = (0.0, 0.0) if size is None else (_points(size, "cx"), _points(size, "cy"))
    for number, listed in enumerate(package.root.iter("{*}sldId"), 1):
        part = parts.get(relation_id(listed) or "", f"slide {number}")
        slide = package.try_read(part)
        label = None if slide is None else _slide(package, draft, part, slide, f"slide {number}")
        draft.end_page(label, width, height)
    return _document(package, draft, "pptx", sha256, name)


def _points(node: XmlElement, name: str) -> float:
    return parse_int(attribute(node, name), 0) / _POINT


def _slide(package: OfficePackage, draft: TextBuilder, part: str, slide: XmlElement, path: str) -> str | None:
    """Write a slide, and return its title."""
    words, title = _OfficeTextWriter(draft), None
    with draft.aside("hidden" if attribute(slide, "show") in {"0", "false"} else None):
        for number, shape in enumerate(_shapes(slide), 1):
            words.block(shape, f"{path} shape {number}")
            if title is None and _placeholder(shape) in {"title", "ctrTitle"}:
                title = " ".join(_plain(line) for line in shape.iter("{*}p")).strip() or None
        for number, root in enumerate(package.related_roots(part, "diagramData"), 1):
            words.block(root, f"{path} diagram {number}")
    for root in package.related_roots(part, "notesSlide"):
        for number, shape in enumerate(_shapes(root), 1):
            if _placeholder(shape) not in _NO_NOTES:
                words.block(shape, f"{path} notes {number}", "note")
    for root in package.related_roots(part, "comments"):
        for number, comment in enumerate(root, 1):
            words.block(comment, f"{path} comment {number}", "comment")
    return title


def _plain(node: XmlElement) -> str:
    """Return the text in `node`, without the phonetic guides of Japanese workbooks."""
    texts = (text.text or "" for child in node if local_name(child) != "rPh" for text in child.iter("{*}t"))
    return "".join(texts)


class _Workbook:
    """What the cells of all sheets share: strings and number formats."""

    def __init__(self, package: OfficePackage) -> None:
        main, root = package.main, package.root
        self.strings = [_plain(si) for part in package.related_roots(main, "sharedStrings") for si in part]
        settings = root.find("{*}workbookPr")
        self._from_1904 = settings is not None and attribute(settings, "date1904") in {"1", "true"}
        self._formats: dict[str, NumberFormat] = {}
        for styles in package.related_roots(main, "styles"):
            codes = {
                attribute(code, "numFmtId"): attribute(code, "formatCode")
                for code in styles.iter("{*}numFmt")
            }
            formats = styles.find("{*}cellXfs")
            for at, used in enumerate(() if formats is None else formats):
                number = attribute(used, "numFmtId")
                self._formats[str(at)] = NumberFormat(parse_int(number, 0), codes.get(number))

    def value(self, cell: XmlElement) -> str:
        """Return the displayed text of a cell."""
        stored = cell.findtext("{*}v") or ""
        match cell.attrib.get("t", "n"):
            case "s":
                at = parse_int(stored, len(self.strings))
                text = self.strings[at] if at < len(self.strings) else ""
            case "inlineStr":
                inline = cell.find("{*}is")
                text = "" if inline is None else _plain(inline)
            case "b":
                text = "TRUE" if stored == "1" else "FALSE"
            case "n":
                text = format_number(
                    stored, self._formats.get(cell.attrib.get("s", ""), NumberFormat()), self._from_1904
                )
            case _:
                text = stored
        # The escape for the carriage return that Windows puts before each line feed.
        return text.replace("_x000D_", "")


def read_xlsx(data: bytes, *, sha256: str, name: str | None = None) -> Document:
    """Read a workbook, one page per sheet, with its shapes and comments. Raises `DocumentError`."""
    package, draft = OfficePackage(data, "workbook"), TextBuilder()
    book = _Workbook(package)
    kinds = ("worksheet", "chartsheet", "dialogsheet")
    parts = {relation.id: relation.part for relation in package.related(package.main, *kinds)}
    for number, listed in enumerate(package.root.iter("{*}sheet"), 1):
        label = attribute(listed, "name") or f"Sheet{number}"
        short = label[:_LONGEST_NAME]
        path = short if re.fullmatch(r"[^\W\d]\w*", short) else "'" + short.replace("'", "''") + "'"
        part = parts.get(relation_id(listed) or "", f"sheet {number}")
        sheet = package.try_read(part)
        with draft.aside("hidden" if attribute(listed, "state") in {"hidden", "veryHidden"} else None):
            if sheet is not None:
                _sheet(package, draft, book, part, sheet, path)
        draft.end_page(label)
    return _document(package, draft, "xlsx", sha256, name)


def _sheet(
    package: OfficePackage, draft: TextBuilder, book: _Workbook, part: str, sheet: XmlElement, path: str
) -> None:
    row_number = 0
    for row in sheet.iter("{*}row"):
        row_number = parse_int(row.attrib.get("r"), row_number + 1)
        for column, cell in enumerate(row, 1):
            if text := book.value(cell):
                draft.write(text)
                at = cell.attrib.get("r", "")
                if not _CELL_ADDRESS.fullmatch(at):
                    at = f"{_letters(column)}{row_number}"
                draft.elements.append(Element(draft.at - len(text), draft.at, f"{path}!{at}"))
                draft.separate(GAP_CELL)
        draft.separate(GAP_ROW)
        # A string is stored once, however many cells show it.
        if draft.at > LARGEST_XML:
            raise DocumentError(f"this workbook has more than {LARGEST_XML >> 20} million characters", part)
    words = _OfficeTextWriter(draft)
    for root in package.related_roots(part, "drawing"):
        for number, shape in enumerate(_shapes(root), 1):
            words.block(shape, f"{path} shape {number}")
    for root in package.related_roots(part, "comments"):
        for comment in root.iter("{*}comment"):
            words.block(comment, f"{path}!{attribute(comment, 'ref')} comment", "comment")


def _letters(column: int) -> str:
    """Return the name of a column: A, …, Z, AA."""
    letters = ""
    while column:
        column, last = divmod(column - 1, 26)
        letters = chr(ord("A") + last) + letters
    return letters
