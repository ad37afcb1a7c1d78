"""Load a source of any kind: a file, bytes or a URL in, a `Document` out.

The kind is detected from the bytes; a name and a MIME type decide only between kinds of text. All parsing
happens in a process that can be killed: in this one the bytes are only hashed.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import logging
import os
import re
import stat
import zipfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from citewire.documents.cache import Cache
from citewire.documents.document import Document, DocumentKind
from citewire.documents.errors import DocumentError, EncryptedDocument
from citewire.documents.ocr import MOST_PICTURES, OCR_SECONDS, OcrTurn, ocr_languages
from citewire.documents.ocr_page_cache import OcrPageCache, forget_pages
from citewire.documents.reader import READ_TIMEOUT, read_in_child
from citewire.documents.text import decode
from citewire.error_reports import report_error
from citewire.model import Problem

if TYPE_CHECKING:
    from citewire.documents.fetch import FetchResult

__all__ = ["is_image", "load", "load_with_key", "read", "sniff", "url_name"]

_log = logging.getLogger("citewire.sources")

# Most bytes of a file. Fetched sources have a limit of their own.
FILE_LIMIT = 256 << 20

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:+-]+)", re.IGNORECASE)
_SUFFIX = re.compile(
    r"\.(?:(x?html?|shtml)|(md|markdown|mkd|mdown)|(te?xt|csv|tsv|log|json|xml))$", re.IGNORECASE
)
_TYPE = re.compile(r"(text/html|application/xhtml\+xml)|(text/(?:x-)?markdown)|(text/plain)", re.IGNORECASE)
_HINTS: tuple[DocumentKind, ...] = ("html", "markdown", "text")

# As far as PDF readers look for the header, and as licence comments may precede a page.
_PDF_HEAD, _HTML_HEAD = 1024, 8192
# Possessive: comments have no second match, which would make backtracking endless.
_BEFORE = r"(?>\s+|<!--.*?-->|<\?xml.*?\?>)*+"
_PAGE = re.compile(_BEFORE + r"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_PIECE = re.compile(
    _BEFORE + r"<(?:title|meta|script|div|p|h[1-6]|table|[ou]l|article|main)\b", re.IGNORECASE | re.DOTALL
)
_IMAGE = re.compile(
    rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|II[*+]\0|MM\0[*+]|BM....\0\0\0\0|RIFF....WEBP|\0\0\0\x0cjP  "
    rb"|....ftyp(?:avi[fs]|hei[cx]|mif1|msf1)",
    re.DOTALL,
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# The content type of the main part, which an embedded file of another kind does not have.
_MAIN = re.compile(
    rb"(?:(wordprocessingml|ms-word)|(presentationml|ms-powerpoint)|(spreadsheetml|ms-excel))\.[\w.]+\.main\+xml"
)
_OFFICE: tuple[DocumentKind, ...] = ("docx", "pptx", "xlsx")

_READERS: dict[DocumentKind, str] = {
    "pdf": "pdf", "html": "html", "markdown": "text", "text": "text",
    "docx": "office", "pptx": "office", "xlsx": "office", "image": "image",
}  # fmt: skip


# Problems of pages whose text needs OCR.
_TO_LOOK_AT = frozenset({"no_text_layer", "no_unicode"})


class _SourceBytes(NamedTuple):
    data: bytes
    name: str = ""
    url: str | None = None
    content_type: str = ""


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    cache: Cache | None = None,
    name: str | None = None,
    fetch: Callable[[str], FetchResult] | None = None,
    read_in: Callable[..., Document] = read_in_child,
) -> Document:
    """Load a document from a path, an http(s) URL or bytes. Raises `DocumentError`, such as `FetchError`.

    `fetch` and `read_in` replace `fetch` and `read_in_child`, to set other limits. Pages that are pictures
    are read by tesseract if it is installed, for at most a minute each; in English, or in the languages of
    the environment variable CITEWIRE_OCR_LANGUAGES, such as `eng+deu`.
    """
    return load_with_key(source, cache=cache, name=name, fetch=fetch, read_in=read_in)[1]


def load_with_key(
    source: str | os.PathLike[str] | bytes,
    *,
    cache: Cache | None,
    name: str | None = None,
    content_type: str = "",
    fetch: Callable[[str], FetchResult] | None = None,
    read_in: Callable[..., Document] = read_in_child,
) -> tuple[str, Document]:
    """Like `load`, but also return the document's cache key.

    The cached copy has the name it was first read under. `content_type` is the MIME type that a client sent
    with a file or bytes.
    """
    given = _given(source, fetch)
    content_type = given.content_type or content_type
    if not given.data:
        raise DocumentError("it is empty")
    if len(given.data) > FILE_LIMIT:
        raise DocumentError(f"it has more than {FILE_LIMIT} bytes")
    # A file name may contain bytes that are not valid characters.
    name = (name or given.name).encode("utf-8", "replace").decode()
    sha256, charset = hashlib.sha256(given.data).hexdigest(), _charset(content_type)
    hint = _hint(name, content_type)
    key = "-".join(filter(None, (sha256, hint, charset)))
    options = {"sha256": sha256, "name": name, "url": given.url, "charset": charset, "hint": hint}
    look = partial(read_in, given.data, "citewire.documents.load:read", **options)
    document = _read_once(cache, key, look)
    pictures = sum(problem.code in _TO_LOOK_AT for problem in document.problems)
    if pictures and (ocr := ocr_languages()):
        # Read a second time, now that the time it may take is known.
        seconds = READ_TIMEOUT + OCR_SECONDS * min(pictures, MOST_PICTURES)
        folder = str(cache.folder) if cache else None
        look = partial(look, timeout=seconds, ocr=ocr, ocr_folder=folder)
        seen = f"{key}-ocr-{hashlib.sha256(ocr.encode()).hexdigest()[:8]}"
        try:
            document = _read_once(cache, seen, look)
            key = seen
            if cache:
                forget_pages(cache, sha256)
        except DocumentError as exc:
            report = report_error(exc, _log)
            failed = Problem(report.code, "$", f"its pictures were not read: {report.message}")
            document = replace(document, problems=(*document.problems, failed))
    return key, replace(document, name=name or None, url=given.url)


def _read_once(cache: Cache | None, key: str, look: Callable[[], Document]) -> Document:
    document = cache.get(key) if cache else None
    if document is None:
        document = look()
        if cache:
            cache.put(key, document)
    return document


def _given(
    source: str | os.PathLike[str] | bytes, fetch: Callable[[str], FetchResult] | None
) -> _SourceBytes:
    if isinstance(source, bytes):
        return _SourceBytes(source)
    if not isinstance(source, str) or not _URL.match(source):
        return _SourceBytes(_file(Path(source)), Path(source).name)
    if fetch is None:
        from citewire.documents.fetch import fetch  # noqa: PLC0415  # a sixth of a second, see HttpAgent
    came = fetch(source)
    return _SourceBytes(came.data, url_name(came.url), came.url, came.content_type or "")


def url_name(url: str) -> str:
    """Return the name of a document at a URL."""
    where = urlsplit(url)
    return unquote(where.path.rpartition("/")[2]) or where.netloc


def _file(path: Path) -> bytes:
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise DocumentError("it is a folder")
        # Opening a pipe may block forever, and a device has no end.
        if not stat.S_ISREG(info.st_mode):
            raise DocumentError("it is not a regular file")
        with path.open("rb") as file:
            return file.read(FILE_LIMIT + 1)
    except FileNotFoundError as exc:
        raise DocumentError("there is no such file") from exc
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or "its name cannot be used"
        raise DocumentError(f"it cannot be opened: {why}") from exc


def _charset(content_type: str) -> str | None:
    found = _CHARSET.search(content_type)
    try:
        return codecs.lookup(found[1]).name.lower() if found else None
    except LookupError:
        return None


def _hint(name: str, content_type: str) -> DocumentKind | None:
    found = _SUFFIX.search(name) or _TYPE.match(content_type)
    return _HINTS[found.lastindex - 1] if found and found.lastindex else None


def read(
    data: bytes, *, sha256: str, name: str, url: str | None, charset: str | None, hint: DocumentKind | None,
    ocr: str | None = None, ocr_folder: str | None = None, ocr_seconds: float | None = None,
) -> Document:  # fmt: skip
    """Read bytes; `load` runs this in the child. Pages read by tesseract are stored in the cache in
    `ocr_folder`; after `ocr_seconds` it raises `OcrUnfinished`, and the next call continues from there."""
    kind = sniff(data, hint)
    more = {"url": url, "charset": charset} if kind == "html" else {}
    if kind in {"pdf", "image"}:
        pages = OcrPageCache(ocr_folder, sha256, ocr) if ocr and ocr_folder else None
        more = {"ocr": ocr, "turn": OcrTurn(pages, ocr_seconds)}
    if charset and kind in {"markdown", "text"}:
        data = decode(data, charset).encode("utf-8", "replace")
    module = import_module(f"citewire.documents.{_READERS[kind]}")
    return getattr(module, f"read_{kind}")(data, sha256=sha256, name=name or None, **more)


def sniff(data: bytes, hint: DocumentKind | None = None) -> DocumentKind:
    """Detect the kind of the bytes. `hint` comes from their name, and counts if they could be any text."""
    if data.startswith(b"PK\3\4"):
        return _office(data)
    if is_image(data):
        return "image"
    if data.startswith(_OLE):
        if "EncryptedPackage".encode("utf-16-le") in data:
            raise EncryptedDocument("it needs a password")
        raise DocumentError("it is an Office file of the kind before 2007")
    if data.startswith(b"{\\rtf"):
        raise DocumentError("it is RTF, which is not read")
    head = decode(data[:_HTML_HEAD])
    if _PAGE.match(head):
        return "html"
    # A text may mention PDF; if the header is not at the start, there must be objects as well.
    mark = data.find(b"%PDF-", 0, _PDF_HEAD)
    if mark >= 0 and (not data[:mark].strip() or b" obj" in data):
        return "pdf"
    return hint or ("html" if _PIECE.match(head) else "text")


def is_image(data: bytes) -> bool:
    """Return whether the bytes are a picture."""
    return bool(_IMAGE.match(data))


def _office(data: bytes) -> DocumentKind:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open("[Content_Types].xml") as types:
            main = _MAIN.search(types.read(1 << 20))
    except (KeyError, zipfile.BadZipFile) as exc:
        raise DocumentError("it is a zip archive that is damaged or not an Office file") from exc
    if main is None or not main.lastindex:
        raise DocumentError("it is an Office file of an unknown kind")
    return _OFFICE[main.lastindex - 1]
