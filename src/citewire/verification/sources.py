"""What quotes are checked against, as it is given: files, folders, addresses, texts, documents."""

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

from citewire.documents.cache import Cache, Packed
from citewire.documents.document import Document
from citewire.documents.load import load_kept, read, sniff, url_name
from citewire.documents.reader import read_in_child

__all__ = [
    "Address", "Given", "Listed", "Origin", "Source", "download", "each_source", "load_source", "names",
    "original", "posted_name",
]  # fmt: skip

Origin: TypeAlias = Literal["posted", "client_tool"]
"""Who brought a source that is neither the verifier's nor the agent's: a client posted it, or a tool that
runs in the client returned it."""
_ORIGIN_WORDS: dict[Origin, str] = {"posted": "posted", "client_tool": "client tool"}


class Given(Struct, frozen=True):
    """The content of a source, such as the result of a tool, or a file with it, and what it may be called."""

    content: str | bytes | Path
    name: str = ""
    url: str | None = None
    title: str | None = None
    also: tuple[str, ...] = ()
    """What else a citation may call it."""
    content_type: str = ""
    origin: Origin | None = None
    """Set where a client brought it. It never takes the name of a source that no client brought."""


class Address(Struct, frozen=True):
    """The URL of a source that is to be fetched, and who named it, see `Given.origin`."""

    url: str
    origin: Origin | None = None


Source: TypeAlias = str | os.PathLike[str] | bytes | Given | Address | Document
"""A path, a folder, a URL, content, or what was read already."""


class Listed(NamedTuple):
    """One source, no folder: what it is called in a report, and all that a citation may call it."""

    source: str | Path | Given | Document
    name: str
    names: frozenset[str]
    origin: Origin | None = None


def each_source(sources: Source | Iterable[Source]) -> Iterator[Listed]:
    """The sources, one by one. Of a folder, the files that are not hidden, called by their paths in it."""
    single = isinstance(sources, str | os.PathLike | bytes | Given | Address | Document)
    for each in [sources] if single else sources:
        source = Given(each) if isinstance(each, bytes) else each
        if isinstance(source, Given | Document):
            name = source.name or source.url or source.title or "unnamed"
            also, origin = (source.also, source.origin) if isinstance(source, Given) else ((), None)
            yield _listed(source, name, (name, source.url, source.title, *also), origin)
        elif isinstance(source, Address):
            yield _listed(source.url, source.url, (source.url,), source.origin)
        elif isinstance(source, str) and "://" in source:
            yield Listed(source, source, names(source))
        else:
            yield from _files(Path(source))


def _listed(
    source: str | Given | Document, name: str, given: tuple[str | None, ...], origin: Origin | None
) -> Listed:
    called = names(*given)
    if origin is not None:
        called |= {posted_name(name, origin).casefold()}
    return Listed(source, name, called, origin)


def posted_name(name: str, origin: Origin) -> str:
    """What a source that a client brought is called where another source has the same name."""
    return f"{name} ({_ORIGIN_WORDS[origin]})"


def _files(given: Path) -> Iterator[Listed]:
    found = False
    for home, folders, files in os.walk(given):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(home, name) for name in sorted(files) if not name.startswith(".")):
            name = path.relative_to(given).as_posix()
            yield Listed(path, name, names(name, str(path)))
            found = True
    if not found:
        # A file, or a folder without any, which whoever reads it will say.
        yield Listed(given, given.name or str(given), names(str(given)))


def load_source(
    listed: Listed, *, cache: Cache | None = None, read_in: Callable[..., Document] = read_in_child
) -> tuple[str, Document]:
    """The document, and its key in the cache, if there is one. Raises `DocumentError`."""
    match listed.source:
        case Document() as document:
            packed = Packed.of(document)
            key = f"{hashlib.sha256(packed.meta).hexdigest()}-given"
            if cache:
                cache.write(key, packed)
            return key, document
        case Given(content=content):
            given = listed.source
            data = content.encode("utf-8", "replace") if isinstance(content, str) else content
            if isinstance(data, bytes) and isinstance(content, str) and sniff(data) == "text":
                read_in = _read_here  # there is nothing in it that a process would have to be risked for
            key, document = load_kept(
                data, cache=cache, name=listed.name, content_type=given.content_type, read_in=read_in
            )
            return key, replace(document, url=given.url, title=given.title or document.title)
        case str() as address:
            return load_kept(address, cache=cache, read_in=read_in)
        case Path() as path:
            return load_kept(path, cache=cache, name=listed.name, read_in=read_in)


def download(listed: Listed) -> Listed:
    """A source at a URL with what is there. Raises `FetchError`."""
    if not isinstance(listed.source, str):
        return listed
    from citewire.documents.fetch import fetch  # noqa: PLC0415  # a sixth of a second, see HttpAgent

    came = fetch(listed.source)
    content = Given(came.data, url=came.url, content_type=came.content_type or "")
    return Listed(content, url_name(came.url), listed.names, listed.origin)


def original(listed: Listed) -> bytes | None:
    """The bytes of a source, where they are at hand."""
    source = listed.source
    if isinstance(source, Given):
        source = source.content
    if isinstance(source, bytes):
        return source
    if isinstance(source, Path):
        with suppress(OSError):
            return source.read_bytes()
    return None


def _read_here(data: bytes, _: str, **options: Any) -> Document:
    return read(data, **options)


def names(*given: str | None) -> frozenset[str]:
    """All that something may be called: as it is, by its file name, and without the ending."""
    found: set[str] = set()
    for name in filter(None, given):
        path = PurePath(urlsplit(name).path if "://" in name else name)
        found |= {name.casefold(), path.name.casefold(), path.stem.casefold()}
    return frozenset(found - {""})
