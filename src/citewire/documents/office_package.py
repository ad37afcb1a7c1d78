"""The parts of an Office file: XML in a zip, and their relationships (ECMA-376, part 2).

Elements are identified by their local names, so files in the strict and in the transitional namespaces read
alike. A missing or damaged part is a problem of the document, but does not make it fail, unless it is the
main part.
"""

from __future__ import annotations

import importlib
import posixpath
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any, NamedTuple, Protocol
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from citewire.documents.errors import DocumentError
from citewire.model import Problem

__all__ = [
    "LARGEST_XML",
    "OfficePackage",
    "Relation",
    "XmlElement",
    "attribute",
    "local_name",
    "parse_int",
    "relation_id",
]

# Most bytes of all XML together: a tree takes some ten times as much memory.
LARGEST_XML = 256 << 20
# As in Apache POI: XML with a higher compression ratio is a bomb, unless it is small.
_HIGHEST_RATIO = 100
_SMALL = 100 << 10

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


class XmlElement(Protocol):
    """The methods we use of an lxml element."""

    @property
    def tag(self) -> str: ...
    @property
    def text(self) -> str | None: ...
    @property
    def attrib(self) -> Mapping[str, str]: ...
    def __iter__(self) -> Iterator[XmlElement]: ...
    def __len__(self) -> int: ...
    def iter(self, tag: str) -> Iterator[XmlElement]: ...
    def find(self, path: str) -> XmlElement | None: ...
    def findtext(self, path: str) -> str | None: ...


class Relation(NamedTuple):
    id: str
    kind: str
    part: str


class OfficePackage:
    """The parts of an Office file, and their relationships."""

    def __init__(self, data: bytes, root: str) -> None:
        """Open a file. Raises `DocumentError` if it is damaged, a bomb, or its main part is not a `root`."""
        self.problems: list[Problem] = []
        self._parser = _parser()
        if data.startswith(_OLE):
            raise DocumentError("this Office file is encrypted, or of a format older than 2007")
        try:
            self._zip = ZipFile(BytesIO(data))
        except (BadZipFile, ValueError, OSError, NotImplementedError) as exc:
            raise DocumentError("this Office file is damaged", detail=exc) from exc
        # The case of part names varies between writers. Pictures and the like are never read.
        parts = [info for info in self._zip.infolist() if info.filename.lower().endswith((".xml", ".rels"))]
        _check(parts)
        self._parts = {info.filename.lower(): info for info in parts}
        self.main = next((found.part for found in self.related("", "officeDocument")), "")
        self.root = self.read(self.main)
        if local_name(self.root) != root:
            raise DocumentError(f"this Office file is a {local_name(self.root)}, not a {root}")

    def read(self, part: str) -> XmlElement:
        info = self._parts.get(part.lower())
        if info is None:
            raise DocumentError("this part of the Office file is missing", part or "$")
        try:
            return self._parser(self._zip.read(info))
        except (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, SyntaxError) as exc:
            raise DocumentError("this part of the Office file is damaged", part, detail=exc) from exc

    def try_read(self, part: str) -> XmlElement | None:
        try:
            return self.read(part)
        except DocumentError as exc:
            self.problems.append(Problem(exc.code, part, exc.message))
            return None

    def related(self, part: str, *kinds: str) -> list[Relation]:
        """Return the parts of one of `kinds` that `part` refers to, in the order of their names."""
        folder, base = posixpath.split(part)
        listed = posixpath.join(folder, "_rels", base + ".rels")
        relations = self.try_read(listed) if listed.lower() in self._parts else None
        found: list[Relation] = []
        for node in () if relations is None else relations:
            kind = node.attrib.get("Type", "").rpartition("/")[2]
            target = posixpath.normpath(posixpath.join("/", folder, node.attrib.get("Target", "")))
            if kind in kinds and node.attrib.get("TargetMode") != "External":
                found.append(Relation(node.attrib.get("Id", ""), kind, target.lstrip("/")))
        return sorted(found, key=lambda relation: (len(relation.part), relation.part))

    def related_roots(self, part: str, *kinds: str) -> list[XmlElement]:
        roots = [self.try_read(relation.part) for relation in self.related(part, *kinds)]
        return [root for root in roots if root is not None]


def _parser() -> Callable[[bytes], XmlElement]:
    """Return a parser from bytes to a tree. No entities: Office files have none, and XML attacks use them."""
    try:
        etree: Any = importlib.import_module("lxml.etree")
    except ImportError as exc:
        raise DocumentError("Office files need lxml: install citewire[office]") from exc
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, huge_tree=False, remove_comments=True, remove_pis=True
    )

    def parse(data: bytes) -> XmlElement:
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
    if sum(info.file_size for info in parts) > LARGEST_XML:
        raise DocumentError(f"this Office file unpacks to more than {LARGEST_XML >> 20} MiB of XML")


def local_name(node: XmlElement) -> str:
    return node.tag.rpartition("}")[2]


def attribute(node: XmlElement, name: str) -> str | None:
    """Return an attribute by its local name."""
    return next((value for key, value in node.attrib.items() if key.rpartition("}")[2] == name), None)


def parse_int(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else default


def relation_id(node: XmlElement) -> str | None:
    """Return `r:id`, which is not the plain `id`."""
    return next((value for key, value in node.attrib.items() if key.endswith("/relationships}id")), None)
