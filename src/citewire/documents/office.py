"""Office files: the text of DOCX, PPTX and XLSX, and the paragraph, shape or cell each piece of it stands in.

Elements are told apart by their local names, so that files in the strict and in the transitional namespaces
of ECMA-376 read alike. A part that is missing or damaged is a problem of the document, not the end of it,
unless it is the main one.
"""

from __future__ import annotations

import importlib
import posixpath
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from io import BytesIO
from typing import Any, NamedTuple, Protocol
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from citewire.documents.document import AsideKind, Document, Element, Kind, Page
from citewire.documents.errors import DocumentError
from citewire.documents.text import CELL, LINE, LOWERED, RAISED, ROW, Draft, line_starts
from citewire.model import Problem

__all__ = ["read_docx", "read_pptx", "read_xlsx"]

# Of all XML together: a tree takes some ten times as much memory.
_LARGEST = 256 << 20
# As Apache POI has it: XML that packs better than this is a bomb, unless it is small.
_HIGHEST_RATIO = 100
_SMALL = 100 << 10

_POINT = 12700  # EMU
_UNREADABLE = "\ufffd"  # a sign by its place in a font
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_RUNNING: tuple[AsideKind, ...] = ("header", "footer")
_SHAPES = {"sp", "graphicFrame", "pic", "cxnSp"}
# The slide itself and what stands on all pages of notes.
_NO_NOTES = {"sldImg", "sldNum", "dt", "hdr", "ftr"}


class _Xml(Protocol):
    """What we use of an lxml element."""

    @property
    def tag(self) -> str: ...
    @property
    def text(self) -> str | None: ...
    @property
    def attrib(self) -> Mapping[str, str]: ...
    def __iter__(self) -> Iterator[_Xml]: ...
    def __len__(self) -> int: ...
    def iter(self, tag: str) -> Iterator[_Xml]: ...
    def find(self, path: str) -> _Xml | None: ...
    def findtext(self, path: str) -> str | None: ...


class _Relation(NamedTuple):
    id: str
    kind: str
    part: str


class _Package:
    """The parts of a file, and how they are related."""

    def __init__(self, data: bytes, root: str) -> None:
        """Raises DocumentError where it is damaged, a bomb, or its main part is not a `root`."""
        self.problems: list[Problem] = []
        self._parser = _parser()
        if data.startswith(_OLE):
            raise DocumentError("this Office file is encrypted, or of a format older than 2007")
        try:
            self._zip = ZipFile(BytesIO(data))
        except (BadZipFile, ValueError, OSError, NotImplementedError) as exc:
            raise DocumentError(f"this Office file is damaged: {exc}") from exc
        # Names of parts differ in case from one writer to the next. Pictures and the like are never read.
        parts = [info for info in self._zip.infolist() if info.filename.lower().endswith((".xml", ".rels"))]
        _check(parts)
        self._parts = {info.filename.lower(): info for info in parts}
        self.main = next((found.part for found in self.related("", "officeDocument")), "")
        self.root = self.read(self.main)
        if _name(self.root) != root:
            raise DocumentError(f"this Office file is a {_name(self.root)}, not a {root}")

    def read(self, part: str) -> _Xml:
        info = self._parts.get(part.lower())
        if info is None:
            raise DocumentError("this part of the Office file is missing", part or "$")
        try:
            return self._parser(self._zip.read(info))
        except (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, SyntaxError) as exc:
            raise DocumentError(f"this part of the Office file is damaged: {exc}", part) from exc

    def try_read(self, part: str) -> _Xml | None:
        try:
            return self.read(part)
        except DocumentError as exc:
            self.problems.append(Problem(exc.code, part, exc.message))
            return None

    def related(self, part: str, *kinds: str) -> list[_Relation]:
        """The parts that `part` names and that are one of `kinds`, in the order of their names."""
        folder, base = posixpath.split(part)
        listed = posixpath.join(folder, "_rels", base + ".rels")
        relations = self.try_read(listed) if listed.lower() in self._parts else None
        found: list[_Relation] = []
        for node in () if relations is None else relations:
            kind = node.attrib.get("Type", "").rpartition("/")[2]
            target = posixpath.normpath(posixpath.join("/", folder, node.attrib.get("Target", "")))
            if kind in kinds and node.attrib.get("TargetMode") != "External":
                found.append(_Relation(node.attrib.get("Id", ""), kind, target.lstrip("/")))
        return sorted(found, key=lambda relation: (len(relation.part), relation.part))

    def related_roots(self, part: str, *kinds: str) -> list[_Xml]:
        roots = [self.try_read(relation.part) for relation in self.related(part, *kinds)]
        return [root for root in roots if root is not None]

    def document(self, draft: Draft, kind: Kind, sha256: str, name: str | None) -> Document:
        text = "".join(draft.parts)
        titles = (root.findtext("{*}title") for root in self.related_roots("", "core-properties"))
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
            problems=tuple(dict.fromkeys(self.problems)),
        )


def _parser() -> Callable[[bytes], _Xml]:
    """A function from bytes to a tree. No entities: Office files have none, and they are how XML attacks."""
    try:
        etree: Any = importlib.import_module("lxml.etree")
    except ImportError as exc:
        raise DocumentError("Office files need lxml: install citewire[office]") from exc
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, huge_tree=False, remove_comments=True, remove_pis=True
    )

    def parse(data: bytes) -> _Xml:
        root = etree.fromstring(data, parser)
        if root.getroottree().docinfo.doctype:
            raise ValueError("it has a document type")
        return root

    return parse


def _check(parts: list[ZipInfo]) -> None:
    for info in parts:
        if info.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
            raise DocumentError(
                "this part of the Office file is packed in a way that no part should be", info.filename
            )
        if info.file_size > max(_SMALL, _HIGHEST_RATIO * info.compress_size):
            raise DocumentError(
                "this part of the Office file is a bomb: it unpacks to far more", info.filename
            )
    if sum(info.file_size for info in parts) > _LARGEST:
        raise DocumentError(f"this Office file unpacks to more than {_LARGEST >> 20} MiB of XML")


def _name(node: _Xml) -> str:
    return node.tag.rpartition("}")[2]


def _get(node: _Xml, name: str) -> str | None:
    """An attribute by its local name."""
    return next((value for key, value in node.attrib.items() if key.rpartition("}")[2] == name), None)


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else default


def _relation_id(node: _Xml) -> str | None:
    """`r:id`: there is an `id` beside it."""
    return next((value for key, value in node.attrib.items() if key.endswith("/relationships}id")), None)


def _alternative(node: _Xml) -> _Xml | None:
    """The one of several forms of the same content to take: the newest that has text."""
    return next((form for form in node if next(form.iter("{*}t"), None) is not None), None)


_DIGITS: dict[str | None, dict[int, int]] = {"superscript": RAISED, "subscript": LOWERED}


class _Words:
    """Writes what is in WordprocessingML and DrawingML, which share their names for text."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.notes: dict[str, list[str | None]] = {"footnote": [], "endnote": []}
        self._paragraphs = self._tables = self._text_boxes = 0
        self._place = [0, 0, 0]
        self._boxes: list[_Xml] = []
        self._digits: dict[int, int] = {}

    def _run(self, node: _Xml) -> None:
        align = node.find("{*}rPr/{*}vertAlign")
        outer, self._digits = self._digits, _DIGITS.get(_get(align, "val") if align is not None else None, {})
        self.walk_all(node)
        self._digits = outer

    def walk(self, node: _Xml) -> None:
        """Recursive: the parser refuses trees deeper than 256."""
        match _name(node):
            case "t" | "delText" | "text" if not len(node):
                if node.text:
                    self.draft.write(node.text.translate(self._digits))
            case "tab" | "ptab":
                self.draft.write("\t")
            case "br" | "cr":
                self.draft.break_line()
            case "noBreakHyphen" | "softHyphen" | "sym" as name:
                self.draft.write({"noBreakHyphen": "\u2011", "softHyphen": "\u00ad"}.get(name, _UNREADABLE))
            # Of formulas: without a sign, ½ would read 12, and 10² 102.
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
                self.notes[name.removesuffix("Reference")].append(_get(node, "id"))
            # Moved text is where it was moved to. The text of a field is its result, not its code.
            case "moveFrom" | "instrText" | "delInstrText":
                pass
            case name if not name.endswith("Pr"):
                self.walk_all(node)
            case _:
                pass

    def walk_all(self, nodes: _Xml | tuple[()]) -> None:
        for node in nodes:
            self.walk(node)

    def block(self, nodes: _Xml, path: str, kind: AsideKind | None = None) -> None:
        """Write something that stands by itself."""
        with self.draft.aside(kind), self.draft.element(path):
            self.walk_all(nodes)
        self.draft.separate(ROW)

    def _paragraph(self, node: _Xml) -> None:
        """A paragraph, and after it the text boxes anchored in it, which would cut its text in two."""
        outer, self._boxes = self._boxes, []
        self._paragraphs += not self.draft.named
        with self.draft.element(f"paragraph {self._paragraphs}"):
            self.walk_all(node)
        self.draft.separate(LINE)
        boxes, self._boxes = self._boxes, outer
        for box in boxes:
            self._text_boxes += 1
            self.block(box, f"text box {self._text_boxes}")

    def _table(self, node: _Xml, name: str) -> None:
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
            self.draft.separate(ROW)
        else:
            outer[2] = cell + 1
            with self.draft.element(f"table {table} row {row} cell {cell + 1}"):
                self.walk_all(node)
            self.draft.separate(CELL)


def _is_on(node: _Xml | None) -> bool:
    return node is not None and _get(node, "val") not in {"0", "false", "off"}


def read_docx(data: bytes, *, sha256: str, name: str | None = None) -> Document:
    """A text document: the body, then its notes, headers, footers and comments. Raises DocumentError."""
    package, draft = _Package(data, "document"), Draft()
    words = _Words(draft)
    words.walk(package.root)
    for kind, order in words.notes.items():
        for root in package.related_roots(package.main, f"{kind}s"):
            notes = {_get(note, "id"): note for note in root if _get(note, "type") in {None, "normal"}}
            # The number that is shown counts the references in the text.
            shown = dict.fromkeys([*(id_ for id_ in order if id_ in notes), *notes])
            for number, id_ in enumerate(shown, 1):
                words.block(notes[id_], f"{kind} {number}", "note")
    for kind in _RUNNING:
        for number, root in enumerate(package.related_roots(package.main, kind), 1):
            words.block(root, f"{kind} {number}", kind)
    for root in package.related_roots(package.main, "comments"):
        for number, comment in enumerate(root, 1):
            words.block(comment, f"comment {number}", "comment")
    return package.document(draft, "docx", sha256, name)


def _shapes(node: _Xml) -> Iterator[_Xml]:
    """The shapes of a drawing, those in groups too."""
    for child in node:
        if (name := _name(child)) in _SHAPES:
            yield child
        elif name != "AlternateContent":
            yield from _shapes(child)
        elif (form := _alternative(child)) is not None:
            yield from _shapes(form)


def _placeholder(shape: _Xml) -> str | None:
    """What a shape is for: `title`, `body`, `sldNum`."""
    found = next(shape.iter("{*}ph"), None)
    return None if found is None else _get(found, "type")


def read_pptx(data: bytes, *, sha256: str, name: str | None = None) -> Document:
    """A presentation, a page for each slide, with its notes and comments. Raises DocumentError."""
    package, draft = _Package(data, "presentation"), Draft()
    parts = {relation.id: relation.part for relation in package.related(package.main, "slide")}
    size = package.root.find("{*}sldSz")
    width, height = (0.0, 0.0) if size is None else (_points(size, "cx"), _points(size, "cy"))
    for number, listed in enumerate(package.root.iter("{*}sldId"), 1):
        part = parts.get(_relation_id(listed) or "", f"slide {number}")
        slide = package.try_read(part)
        label = None if slide is None else _slide(package, draft, part, slide, f"slide {number}")
        draft.end_page(label, width, height)
    return package.document(draft, "pptx", sha256, name)


def _points(node: _Xml, name: str) -> float:
    return _whole(_get(node, name), 0) / _POINT


def _slide(package: _Package, draft: Draft, part: str, slide: _Xml, path: str) -> str | None:
    """Write a slide; its title."""
    words, title = _Words(draft), None
    with draft.aside("hidden" if _get(slide, "show") in {"0", "false"} else None):
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


def _plain(node: _Xml) -> str:
    """The text in `node`, without the pronunciation that Japanese workbooks add to it."""
    texts = (text.text or "" for child in node if _name(child) != "rPh" for text in child.iter("{*}t"))
    return "".join(texts)


# The formats of ECMA-376 18.8.30 that are dates or times, those of East Asia too; 46 is a duration.
_DATE_FORMATS = {*range(14, 23), *range(27, 37), 45, 47, *range(50, 59)}
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)
_LAST_DAY = 2958465  # 9999-12-31


class _Workbook:
    """What the cells of all sheets share: strings, and which styles are dates."""

    def __init__(self, package: _Package) -> None:
        main, root = package.main, package.root
        self.strings = [_plain(si) for part in package.related_roots(main, "sharedStrings") for si in part]
        settings = root.find("{*}workbookPr")
        self._from_1904 = settings is not None and _get(settings, "date1904") in {"1", "true"}
        self._dates: set[str] = set()
        for styles in package.related_roots(main, "styles"):
            codes = {
                _get(code, "numFmtId"): _get(code, "formatCode") or "" for code in styles.iter("{*}numFmt")
            }
            formats = styles.find("{*}cellXfs")
            for at, used in enumerate(() if formats is None else formats):
                if _is_date(_get(used, "numFmtId") or "", codes):
                    self._dates.add(str(at))

    def value(self, cell: _Xml) -> str:
        """A cell as text: numbers as they are stored, dates in ISO 8601."""
        stored = cell.findtext("{*}v") or ""
        match cell.attrib.get("t", "n"):
            case "s":
                at = _whole(stored, len(self.strings))
                text = self.strings[at] if at < len(self.strings) else ""
            case "inlineStr":
                inline = cell.find("{*}is")
                text = "" if inline is None else _plain(inline)
            case "b":
                text = "TRUE" if stored == "1" else "FALSE"
            case "n" if cell.attrib.get("s") in self._dates:
                text = self._date(stored)
            case _:
                text = stored
        # How a workbook writes the carriage return that Windows puts before each line feed.
        return text.replace("_x000D_", "")

    def _date(self, stored: str) -> str:
        try:
            seconds = round(float(stored) * 86400)
        except (ValueError, OverflowError):
            return stored
        days, seconds = divmod(seconds, 86400)
        if not 0 <= days <= _LAST_DAY:
            return stored
        time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        if days == 0 and not self._from_1904:
            return time
        # Excel has a 29 February 1900, as day 60, because Lotus 1-2-3 had.
        first = date(1904, 1, 1) if self._from_1904 else date(1899, 12, 31 if days < 60 else 30)
        try:
            day = (first + timedelta(days)).isoformat()
        except OverflowError:
            return stored
        return f"{day}T{time}" if seconds else day


def _is_date(format_id: str, codes: dict[str | None, str]) -> bool:
    if format_id in codes:
        shown = _LITERAL.sub("", codes[format_id].partition(";")[0])
        return "[" not in shown and re.search("[ymdhs]", shown, re.IGNORECASE) is not None
    return _whole(format_id, 0) in _DATE_FORMATS


def read_xlsx(data: bytes, *, sha256: str, name: str | None = None) -> Document:
    """A workbook, a page for each sheet, with its shapes and comments. Raises DocumentError."""
    package, draft = _Package(data, "workbook"), Draft()
    book = _Workbook(package)
    kinds = ("worksheet", "chartsheet", "dialogsheet")
    parts = {relation.id: relation.part for relation in package.related(package.main, *kinds)}
    for number, listed in enumerate(package.root.iter("{*}sheet"), 1):
        label = _get(listed, "name") or f"Sheet{number}"
        path = label if re.fullmatch(r"[^\W\d]\w*", label) else "'" + label.replace("'", "''") + "'"
        part = parts.get(_relation_id(listed) or "", f"sheet {number}")
        sheet = package.try_read(part)
        with draft.aside("hidden" if _get(listed, "state") in {"hidden", "veryHidden"} else None):
            if sheet is not None:
                _sheet(package, draft, book, part, sheet, path)
        draft.end_page(label)
    return package.document(draft, "xlsx", sha256, name)


def _sheet(package: _Package, draft: Draft, book: _Workbook, part: str, sheet: _Xml, path: str) -> None:
    row_number = 0
    for row in sheet.iter("{*}row"):
        row_number = _whole(row.attrib.get("r"), row_number + 1)
        for column, cell in enumerate(row, 1):
            if text := book.value(cell):
                draft.write(text)
                at = cell.attrib.get("r") or f"{_letters(column)}{row_number}"
                draft.elements.append(Element(draft.at - len(text), draft.at, f"{path}!{at}"))
                draft.separate(CELL)
        draft.separate(ROW)
        # A string is stored once however many cells show it.
        if draft.at > _LARGEST:
            raise DocumentError(f"this workbook has more than {_LARGEST >> 20} million characters", part)
    words = _Words(draft)
    for root in package.related_roots(part, "drawing"):
        for number, shape in enumerate(_shapes(root), 1):
            words.block(shape, f"{path} shape {number}")
    for root in package.related_roots(part, "comments"):
        for comment in root.iter("{*}comment"):
            words.block(comment, f"{path}!{_get(comment, 'ref')} comment", "comment")


def _letters(column: int) -> str:
    """The name of a column: A, …, Z, AA."""
    letters = ""
    while column:
        column, last = divmod(column - 1, 26)
        letters = chr(ord("A") + last) + letters
    return letters
