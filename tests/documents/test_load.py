"""Loading: what a source is, sources that are none, readers that die, and the cache."""

import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from citewire.documents import Cache, Document, DocumentError, Page, load
from citewire.documents.cache import READER_VERSION, PackedArrays, default_folder
from citewire.documents.document import Aside, DocumentKind, Element
from citewire.documents.fetch import FetchResult
from citewire.documents.load import FILE_LIMIT, read, sniff
from citewire.documents.reader import ReaderFailed, read_in_child
from citewire.model import Problem
from support.cases import need, need_cases

# Long enough for a child to start on a machine that is slow today.
LATE = 30.0
HTML = b"<!DOCTYPE html><title>T</title><p>One two</p>"
KEY = "0" * 64


def archive(**parts: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name, text in parts.items():
            file.writestr({"types": "[Content_Types].xml"}.get(name, name), text)
    return data.getvalue()


def office(main: str, embedded: str = "") -> bytes:
    return archive(
        types=f'<Types><Default ContentType="{embedded}"/><Override ContentType="{main}"/></Types>'
    )


def picture(kind: str) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (8, 8)).save(data, kind)
    return data.getvalue()


def here(data: bytes, _reader: str, **options: Any) -> Document:
    """For what is no matter of processes, and of no reader that may crash."""
    return read(data, **options)


def reason(source: Any, **options: Any) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        load(source, **options)
    return caught.value


OOXML = "application/vnd.openxmlformats-officedocument."
SHEET = OOXML + "spreadsheetml.sheet"


@pytest.mark.parametrize(
    ("data", "hint", "kind"),
    [
        (b"%PDF-1.7\n...", "html", "pdf"),
        (b"\r\n %PDF-1.4\n", None, "pdf"),
        (b"HTTP/1.1 200 OK\r\n\r\n%PDF-1.4\n1 0 obj\n", "text", "pdf"),
        (b"A PDF begins with %PDF-1.4, as everybody knows.", None, "text"),
        (b"A PDF begins with %PDF-1.4, as everybody knows.", "markdown", "markdown"),
        (b"<!doctype html><p>%PDF-1.4 1 0 obj", "pdf", "html"),
        (b"\xef\xbb\xbf\n<HTML>", "text", "html"),
        (b'<?xml version="1.0"?>\n<!-- a -->\n<!-- <b> -->\n<html xmlns="x">', "markdown", "html"),
        ("<!DOCTYPE html>".encode("utf-16"), "text", "html"),
        ("<html>".encode("utf-16-be") * 40, None, "html"),
        (b"<div class='a'>x</div>", None, "html"),
        (b"<div class='a'>x</div>", "markdown", "markdown"),
        (b"<div class='a'>x</div>", "text", "text"),
        (b"<!-- " * 100_000, None, "text"),
        (b"<!-- a -->" * 100_000, None, "text"),
        (b"<rss><p>x</p></rss>", None, "text"),
        (b"BMW sells cars", None, "text"),
        (b"plain", None, "text"),
        (b"plain", "html", "html"),
        (office(OOXML + "wordprocessingml.document.main+xml", SHEET), "pdf", "docx"),
        (office("application/vnd.ms-word.document.macroEnabled.main+xml"), None, "docx"),
        (office(OOXML + "presentationml.slideshow.main+xml", SHEET), None, "pptx"),
        (office(OOXML + "spreadsheetml.sheet.main+xml"), "html", "xlsx"),
        *((picture(kind), "text", "image") for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "AVIF")),
    ],
)
def test_the_bytes_say_what_they_are(data: bytes, hint: DocumentKind | None, kind: DocumentKind) -> None:
    assert sniff(data, hint) == kind


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (archive(mimetype="application/epub+zip"), "bad_document"),
        (archive(types="<Types/>"), "bad_document"),
        (office(OOXML + "wordprocessingml.document.main+xml")[:-30], "bad_document"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "bad_document"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"), "encrypted"),
        (rb"{\rtf1 text}", "bad_document"),
    ],
)
def test_bytes_that_nothing_reads(data: bytes, code: str) -> None:
    with pytest.raises(DocumentError) as caught:
        sniff(data, "pdf")
    assert caught.value.code == code


def test_load_bytes() -> None:
    document = load(HTML, name="report.pdf")
    assert (document.kind, document.text.strip()) == ("html", "One two")
    assert (document.name, document.url, document.title) == ("report.pdf", None, "T")
    assert document.sha256 == sha256(HTML).hexdigest()


@pytest.mark.parametrize("form", [str, Path, partial(os.path.join, "")])
def test_load_a_path(tmp_path: Path, form: Callable[[Path], Any]) -> None:
    (tmp_path / "a.md").write_bytes("# Zwölf\n".encode())
    document = load(form(tmp_path / "a.md"), read_in=here)
    assert (document.kind, document.text, document.name) == ("markdown", "# Zwölf\n", "a.md")


def test_load_a_url() -> None:
    """What the server says decides where the bytes do not; its charset counts."""
    asked: list[str] = []

    def fetch(url: str) -> FetchResult:
        asked.append(url)
        return FetchResult(
            "Ω 12%".encode("cp1253"), "https://a.test/b/c%20d?e", 'text/plain; charset="Windows-1253"'
        )

    document = load("HTTPS://a.test/old", fetch=fetch, read_in=here)
    assert asked == ["HTTPS://a.test/old"]
    assert (document.kind, document.text) == ("text", "Ω 12%")
    assert (document.name, document.url) == ("c d", "https://a.test/b/c%20d?e")


@pytest.mark.parametrize(
    "content_type",
    ["application/pdf", "text/plain; charset=nonsense", "text/html; charset=hex", "", None, ";;="],
)
def test_a_wrong_type_does_not_matter(content_type: str | None) -> None:
    document = load("http://a.test", fetch=lambda url: FetchResult(HTML, url, content_type), read_in=here)
    assert (document.kind, document.text.strip(), document.name) == ("html", "One two", "a.test")


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a.test/b", "http://127.0.0.1/", "http://[::1]/"]
)
def test_a_url_that_is_refused(url: str) -> None:
    assert reason(url).code in {"bad_url", "address_refused"}


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(FILE_LIMIT + 1)
    said = {
        name: reason(tmp_path / name).message
        for name in (
            "empty",
            "gone",
            "circle",
            "pipe",
            "large",
            "missing",
            "empty/below",
            "nul\0",
            "a" * 300,
            "",
        )
    }
    assert len(set(said.values())) >= 7
    assert said["missing"] == said["gone"] == "there is no such file"
    assert said[""] == "it is a folder"
    assert said["empty"] == reason(b"").message == "it is empty"
    assert "regular" in said["pipe"]
    assert str(FILE_LIMIT) in said["large"]


def test_a_name_that_is_not_characters(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.txt")
    path.write_text("x")
    assert load(path, read_in=here).name == "?.txt"


READERS = """
import os, signal, subprocess, sys, time
import numpy as np
from citewire.documents.document import Document, Page
from citewire.documents.errors import DocumentError, EncryptedDocument

def made(text):
    return Document("0", "text", text, (Page(1, 0, len(text)),), np.zeros(0, np.int32))

def limits(data, **options):
    import resource
    limits = [resource.getrlimit(getattr(resource, "RLIMIT_" + name))[0] for name in ("AS", "CPU", "CORE")]
    return made(repr((limits, os.nice(0), options)))

def chatter(data, **options):
    print("on stdout"); sys.stdout.flush(); os.write(1, b"raw")
    return made(data.decode())

def crash(data, **options):
    os.kill(os.getpid(), signal.SIGSEGV)

def leave(data, **options):
    os._exit(0)

def stop(data, **options):
    sys.exit(3)

def fail(data, **options):
    raise ZeroDivisionError("of this file")

def refuse(data, **options):
    raise EncryptedDocument("it needs a password")

def stray(data, **options):
    return made(str(subprocess.Popen(["sleep", "60"]).pid))

def hang(data, **options):
    time.sleep(60)

def eat(data, **options):
    return made(str(len(bytearray(1 << 40))))

def eat_slowly(data, **options):
    kept = []
    while True: kept.append(bytearray(1 << 24))

def other(data, **options):
    return Document("0", "text", "four", (), np.zeros(0, np.int32), np.zeros((3, 4), np.float32))

def surrogate(data, **options):
    return made(chr(0xD800))

def large(data, **options):
    return made("x" * (1 << 20))
"""


@pytest.fixture
def readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Readers that misbehave, where children find them."""
    (tmp_path / "bad_readers.py").write_text(READERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def alive(pid: int) -> bool:
    """Whether it runs; one that is dead and not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("readers")
@pytest.mark.parametrize(
    ("reader", "code", "said"),
    [
        ("crash", "reader_failed", "SIGSEGV"),
        ("leave", "reader_failed", "status 0"),
        ("stop", "reader_failed", "status 3"),
        ("fail", "reader_failed", "ZeroDivisionError: of this file"),
        ("eat", "reader_failed", "memory"),
        ("eat_slowly", "reader_failed", "memory"),
        ("other", "reader_failed", ""),
        ("surrogate", "reader_failed", "surrogate"),
        ("missing", "reader_failed", "missing"),
        ("refuse", "encrypted", "password"),
    ],
)
def test_a_reader_that_dies(reader: str, code: str, said: str) -> None:
    """It costs its file, and says what happened. Large data that nobody reads is no trouble."""
    started: list[subprocess.Popen[bytes]] = []
    with pytest.raises(DocumentError) as caught:
        read_in_child(
            bytes(1 << 20), f"bad_readers:{reader}", timeout=LATE, memory=1 << 30, started=started.append
        )
    assert (caught.value.code, said in caught.value.explanation) == (code, True), caught.value
    assert started[0].returncode is not None


@pytest.mark.usefixtures("readers")
def test_a_reader_that_hangs() -> None:
    """It is killed in time, and reaped."""
    started: list[subprocess.Popen[bytes]] = []
    with pytest.raises(DocumentError) as caught:
        read_in_child(b"", "bad_readers:hang", timeout=1, started=started.append)
    assert caught.value.code == "reader_timeout"
    assert started[0].returncode == -signal.SIGKILL


@pytest.mark.usefixtures("readers")
def test_what_a_reader_has_started_ends_with_it() -> None:
    stray = int(read_in_child(b"", "bad_readers:stray", timeout=LATE).text)
    until = time.monotonic() + LATE
    # A signal takes a moment to arrive.
    while alive(stray):
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.mark.usefixtures("readers")
def test_a_reader_is_ended_from_outside() -> None:
    """By whoever was given its process; nobody waits for the deadline."""
    with pytest.raises(DocumentError) as caught:
        read_in_child(b"", "bad_readers:hang", timeout=LATE, started=lambda child: child.kill())
    assert (caught.value.code, "SIGKILL" in caught.value.message) == ("reader_failed", True)


@pytest.mark.usefixtures("readers")
def test_no_reader_is_left_when_the_caller_is_interrupted() -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupt(child: subprocess.Popen[bytes]) -> None:
        started.append(child)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_in_child(b"", "bad_readers:hang", started=interrupt)
    assert started[0].returncode is not None


@pytest.mark.usefixtures("readers")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other limits")
def test_a_reader_is_limited() -> None:
    document = read_in_child(b"", "bad_readers:limits", timeout=12.5, memory=1 << 30, a="b", c=None)
    assert document.text == repr(([1 << 30, 13, 0], os.nice(0) + 10, {"a": "b", "c": None}))


@pytest.mark.usefixtures("readers")
def test_a_reader_that_makes_too_much() -> None:
    """The reader says so itself, and its result is not sent."""
    with pytest.raises(ReaderFailed, match="what was read takes more than 100,000 bytes"):
        read_in_child(b"", "bad_readers:large", most_result=100_000)
    assert len(read_in_child(b"", "bad_readers:large").text) == 1 << 20


def test_a_reader_that_writes_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended when it has written too much, whatever that is."""
    program = "import os\nwhile True: os.write(1, bytes(1 << 16))"
    monkeypatch.setattr("citewire.documents.reader._COMMAND", ("-c", program))
    started: list[subprocess.Popen[bytes]] = []
    with pytest.raises(ReaderFailed, match="what was read takes more than 1,000,000 bytes"):
        read_in_child(bytes(1 << 20), "", most_result=1_000_000, timeout=LATE, started=started.append)
    assert started[0].returncode == -signal.SIGKILL


@pytest.mark.usefixtures("readers")
def test_what_a_reader_prints_is_not_its_result() -> None:
    assert read_in_child(b"result", "bad_readers:chatter").text == "result"


def full(text: str = "a\nb\n") -> Document:
    """A document with something in every field."""
    count = len(text)
    return Document(
        KEY, "pdf", text, (Page(1, 0, count, 595.0, 842.0, ocr=True, label="i"),), np.array([0, 2], np.int32),
        np.arange(4 * count, dtype=np.float32).reshape(count, 4), np.full(count, 90, np.uint8),
        (Element(0, 1, "p"),), (Aside(0, 1, "header"),), "title", "name.pdf", "https://a.test/",
        (Problem("code", "$", "message"),),
    )  # fmt: skip


def same(one: Document, two: Document | None) -> bool:
    return two is not None and repr(PackedArrays.from_document(one)) == repr(PackedArrays.from_document(two))


@pytest.mark.parametrize("document", [full(), full("")])
def test_the_cache_gives_back_what_was_put(tmp_path: Path, document: Document) -> None:
    cache = Cache(tmp_path / "deep" / "cache")
    assert cache.get(KEY) is None
    cache.put(KEY, document)
    found = Cache(tmp_path / "deep" / "cache").get(KEY)
    assert same(document, found)
    assert found
    assert isinstance(found.lines, np.memmap)
    assert not found.lines.flags.writeable


def test_a_document_is_read_once(tmp_path: Path) -> None:
    """Under any name; but as another kind of text, or in another charset, it is another document."""
    count = 0

    def counted(*arguments: Any, **options: Any) -> Document:
        nonlocal count
        count += 1
        return here(*arguments, **options)

    once = partial(load, cache=Cache(tmp_path), read_in=counted)
    first, again = once(b"text", name="a.txt"), once(b"text", name="b.txt")
    assert (count, first.name, again.name) == (1, "a.txt", "b.txt")
    assert once(b"text", name="a.md").kind == "markdown"
    once("http://a.test/a.txt", fetch=lambda url: FetchResult(b"text", url, "text/plain; charset=utf-16"))
    assert count == 3


@pytest.mark.parametrize(
    "key", ["", "..", "a", "0" * 63, "A" * 64, "0" * 64 + "/..", "0" * 64 + "-", "0" * 64 + "\n"]
)
def test_a_key_is_hexadecimal(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        Cache(tmp_path).get(key)


def damage(file: Path, data: bytes | None) -> None:
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)


@pytest.mark.parametrize(
    "data", [None, b"", b"\x93NUMPY", b"\xc1" * 64, b"\x92\x00\xc4\x01\x80", bytes(4096)]
)
@pytest.mark.parametrize("which", ["meta.msgpack", "0.npy", "1.npy", "2.npy"])
def test_a_damaged_entry_is_missing(tmp_path: Path, which: str, data: bytes | None) -> None:
    """And the next one to be put there is found."""
    cache = Cache(tmp_path)
    cache.put(KEY, full())
    damage(tmp_path / f"v{READER_VERSION}" / KEY / which, data)
    assert cache.get(KEY) is None
    cache.put(KEY, full())
    assert same(full(), cache.get(KEY))


def test_arrays_of_another_document_are_not_taken(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, full())
    cache.put("1" * 64, full("longer"))
    home = tmp_path / f"v{READER_VERSION}"
    damage(home / KEY / "1.npy", (home / ("1" * 64) / "1.npy").read_bytes())
    assert cache.get(KEY) is None


def test_many_writers(tmp_path: Path) -> None:
    """Nobody sees half of an entry, and nothing is left aside."""

    def turn(number: int) -> bool:
        cache = Cache(tmp_path)
        cache.put(KEY, full())
        found = cache.get(KEY)
        if number % 5 == 0:
            # Somebody else may have found it damaged already.
            with suppress(FileNotFoundError):
                damage(tmp_path / f"v{READER_VERSION}" / KEY / "meta.msgpack", b"")
        return found is None or same(full(), found)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(turn, range(200)))
    assert [entry.name for entry in (tmp_path / f"v{READER_VERSION}").iterdir()] in ([], [KEY])


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=40_000)
    keys = [f"{number:064x}" for number in range(4)]
    for age, key in zip((40, 30, 20), keys, strict=False):
        cache.put(key, full("x" * 500))
        os.utime(tmp_path / f"v{READER_VERSION}" / key, (age, 1_000_000 - age))
    cache.read(keys[0])
    for key in keys[3:]:
        Cache(tmp_path, limit=25_000).put(key, full("x" * 500))
    assert [key for key in keys if cache.get(key)] == [keys[0], keys[3]]


def test_leftovers_are_cleared_away(tmp_path: Path) -> None:
    """Those of old versions when there is no room, those of writers that were killed after a while."""
    home = tmp_path / f"v{READER_VERSION}"
    old, left, busy = tmp_path / "v0" / KEY, home / ".aside-left", home / ".aside-busy"
    for folder in (old, left, busy):
        folder.mkdir(parents=True)
        (folder / "0.npy").write_bytes(bytes(20_000))
    for folder in (old, left):
        os.utime(folder, (0, 0))
    Cache(tmp_path, limit=50_000).put(KEY, full())
    assert [folder.exists() for folder in (old, left, busy, home / KEY)] == [False, False, True, True]


def test_more_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=1000)
    cache.put(KEY, full("x" * 1000))
    assert cache.get(KEY) is None


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file")
    cache.put(KEY, full())
    assert cache.get(KEY) is None
    assert load(HTML, cache=cache, read_in=here).kind == "html"


@pytest.mark.parametrize(
    ("given", "folder"), [("/x/cache", "/x/cache"), ("", "/home/me/.cache"), ("relative", "/home/me/.cache")]
)
def test_the_usual_folder(monkeypatch: pytest.MonkeyPatch, given: str, folder: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert default_folder() == Path(folder) / "citewire"


@pytest.mark.slow
def test_the_corpus(tmp_path: Path) -> None:
    """Each file is what its folder says, under a name that says nothing; or there is a reason."""
    corpus = need_cases() / "corpus"
    need("corpus", corpus.is_dir(), "it is part of the shared cases")
    cache = Cache(tmp_path)
    kinds: dict[str, set[str]] = {}
    for folder in ("pdf", "html", "docx", "pptx", "xlsx"):
        for path in sorted((corpus / folder).glob("*"))[:3]:
            try:
                kinds.setdefault(folder, set()).add(load(path, cache=cache, name="source").kind)
            except DocumentError as exc:
                kinds.setdefault(folder, set()).add(exc.code)
    assert {folder for folder in kinds if kinds[folder] - {folder, "encrypted", "bad_document"}} == set()
