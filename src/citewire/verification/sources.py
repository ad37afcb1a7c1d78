"""The inputs that quotes are checked against: files, folders, URLs, texts, documents."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from citewire.documents.cache import Cache, PackedArrays
from citewire.documents.document import Document
from citewire.documents.load import load_with_key, read, sniff, url_name
from citewire.documents.reader import read_in_child

__all__ = [
    "SourceContent", "SourceInput", "SourceItem", "SourceOrigin", "SourceUrl", "download_source",
    "iter_sources", "load_source", "qualified_name", "read_original", "source_names",
]  # fmt: skip

SourceOrigin: TypeAlias = Literal["posted", "client_tool"]
"""Who brought a source that is neither the verifier's nor the agent's: a client posted it, or a tool that
runs in the client returned it."""
_ORIGIN_WORDS: dict[SourceOrigin, str] = {"posted": "posted", "client_tool": "client tool"}


class SourceContent(Struct, frozen=True):
    """The content of a source, such as a tool's result or a file, and its possible names."""

    content: str | bytes | Path
    name: str = ""
    url: str | None = None
    title: str | None = None
    also: tuple[str, ...] = ()
    """What else a citation may call it."""
    content_type: str = ""
    origin: SourceOrigin | None = None
    """Set where a client brought it. It never takes the name of a source that no client brought."""


class SourceUrl(Struct, frozen=True):
    """The URL of a source to fetch, and how a client supplied it, see `SourceContent.origin`."""

    url: str
    origin: SourceOrigin | None = None


SourceInput: TypeAlias = str | os.PathLike[str] | bytes | SourceContent | SourceUrl | Document
"""A path, a folder, a URL, content, or what was read already."""


class SourceItem(NamedTuple):
    """One source (no folder): its name in a report, and all names a citation may use."""

    source: str | Path | SourceContent | Document
    name: str
    names: frozenset[str]
    origin: SourceOrigin | None = None


def iter_sources(sources: SourceInput | Iterable[SourceInput]) -> Iterator[SourceItem]:
    """Yield the sources one by one. A folder yields its non-hidden files, named by their paths in it."""
    single = isinstance(sources, str | os.PathLike | bytes | SourceContent | SourceUrl | Document)
    for each in [sources] if single else sources:
        source = SourceContent(each) if isinstance(each, bytes) else each
        if isinstance(source, SourceContent | Document):
            name = source.name or source.url or source.title or "unnamed"
            also, origin = (source.also, source.origin) if isinstance(source, SourceContent) else ((), None)
            yield _listed(source, name, (name, source.url, source.title, *also), origin)
        elif isinstance(source, SourceUrl):
            yield _listed(source.url, source.url, (source.url,), source.origin)
        elif isinstance(source, str) and "://" in source:
            yield SourceItem(source, source, source_names(source))
        else:
            yield from _files(Path(source))


def _listed(
    source: str | SourceContent | Document,
    name: str,
    given: tuple[str | None, ...],
    origin: SourceOrigin | None,
) -> SourceItem:
    called = source_names(*given)
    if origin is not None:
        called |= {qualified_name(name, origin).casefold()}
    return SourceItem(source, name, called, origin)


def qualified_name(name: str, origin: SourceOrigin) -> str:
    """Return the name of a client's source if another source has the same name."""
    return f"{name} ({_ORIGIN_WORDS[origin]})"


def _files(given: Path) -> Iterator[SourceItem]:
    found = False
    for home, folders, files in os.walk(given):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(home, name) for name in sorted(files) if not name.startswith(".")):
            name = path.relative_to(given).as_posix()
            yield SourceItem(path, name, source_names(name, str(path)))
            found = True
    if not found:
        # A file, or an empty folder, which fails when it is read.
        yield SourceItem(given, given.name or str(given), source_names(str(given)))


def load_source(
    listed: SourceItem, *, cache: Cache | None = None, read_in: Callable[..., Document] = read_in_child
) -> tuple[str, Document]:
    """Return the document, and its cache key if there is a cache. Raises `DocumentError`."""
    match listed.source:
        case Document() as document:
            packed = PackedArrays.from_document(document)
            key = f"{hashlib.sha256(packed.meta).hexdigest()}-given"
            if cache:
                cache.write(key, packed)
            return key, document
        case SourceContent(content=content):
            given = listed.source
            data = content.encode("utf-8", "replace") if isinstance(content, str) else content
            if isinstance(data, bytes) and isinstance(content, str) and sniff(data) == "text":
                read_in = _read_here  # plain text carries no risk that needs a child process
            key, document = load_with_key(
                data, cache=cache, name=listed.name, content_type=given.content_type, read_in=read_in
            )
            return key, replace(document, url=given.url, title=given.title or document.title)
        case str() as address:
            return load_with_key(address, cache=cache, read_in=read_in)
        case Path() as path:
            return load_with_key(path, cache=cache, name=listed.name, read_in=read_in)


def download_source(listed: SourceItem) -> SourceItem:
    """Download a source at a URL, and return it with its content. Raises `FetchError`."""
    if not isinstance(listed.source, str):
        return listed
    from citewire.documents.fetch import fetch  # noqa: PLC0415  # a sixth of a second, see HttpAgent

    came = fetch(listed.source)
    content = SourceContent(came.data, url=came.url, content_type=came.content_type or "")
    return SourceItem(content, url_name(came.url), listed.names, listed.origin)


def read_original(listed: SourceItem) -> bytes | None:
    """Return the bytes of a source, or None if they are not available locally."""
    source = listed.source
    if isinstance(source, SourceContent):
        source = source.content
    if isinstance(source, bytes):
        return source
    if isinstance(source, Path):
        with suppress(OSError):
            return source.read_bytes()
    return None


def _read_here(data: bytes, _: str, **options: Any) -> Document:
    return read(data, **options)


def source_names(*given: str | None) -> frozenset[str]:
    """Return all names of a source: as given, by file name, and without the extension."""
    found: set[str] = set()
    for name in filter(None, given):
        path = PurePath(urlsplit(name).path if "://" in name else name)
        found |= {name.casefold(), path.name.casefold(), path.stem.casefold()}
    return frozenset(found - {""})
