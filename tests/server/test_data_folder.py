"""The data folder: nobody else reads it, and the server says when it is full."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from citewire.channels.store import StoreError
from citewire.server.ops.readiness import Disk, DiskFull, Readiness
from citewire.server.storage.data_folder import keep_private
from support.server_process import Serving

MIB = 1 << 20


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Without a umask, every file is open to others unless its maker closes it."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    paths = [folder, *folder.rglob("*")]
    return [str(path) for path in paths if not path.is_symlink() and path.lstat().st_mode & 0o077]


@pytest.mark.usefixtures("open_umask")
def test_all_that_a_server_makes_is_for_its_user(tmp_path: Path) -> None:
    """Sources, attachments, a run, channels, checks, apps: everything that leaves files."""
    data = tmp_path / "data"
    with Serving(data, "--sandbox") as server, server.client() as client:
        for name, content in (("a.txt", b"Some words of a source."), ("b.html", b"<p>More words</p>")):
            client.post("/sources", params={"name": name}, content=content).raise_for_status()
        while server.get("/sources")["reading"]:
            pass
        client.post("/verify", json={"quotes": [{"quote": "More words"}]}).raise_for_status()
        client.post("/channels/x/messages", json={"data": "hello"}).raise_for_status()
        client.post("/apps", content=b'{"keys": [{}]}').raise_for_status()
        files = {"file": ("c.txt", b"Words of an attachment")}
        client.post("/prepareAttachments", files=files)
        server.ask("t", text="words?")
        assert open_to_others(data) == []
        server.stop()
        assert open_to_others(data) == []
    names = {path.name for path in data.iterdir()}
    assert {"log.sqlite", "search.sqlite", "cache", "sources", "keys.json", "secret"} <= names
    # Every name is known, so that a folder of the server alone is closed as well.
    data.chmod(0o755)
    keep_private(data)
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_what_others_can_read_is_closed_at_the_start(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    elsewhere.write_text("of somebody else")
    elsewhere.chmod(0o644)
    with Serving(data) as server:
        server.get("/healthz")
        server.stop()
        (data / "log.sqlite").chmod(0o644)
        (data / "sources").chmod(0o755)
        (data / "cache" / "link").symlink_to(elsewhere)
        (data / "notes.txt").write_text("of the user")
        (data / "notes.txt").chmod(0o644)
        server.start()
        server.get("/healthz")
        server.stop()
        assert "others could read or write 2 files of the data folder" in server.log.read_text()
    assert stat.S_IMODE((data / "log.sqlite").stat().st_mode) == 0o600
    assert stat.S_IMODE((data / "sources").stat().st_mode) == 0o700
    # Neither what a link leads to, nor what the server has not made.
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
    assert stat.S_IMODE((data / "notes.txt").stat().st_mode) == 0o644


def test_a_folder_with_other_files_is_written_to_by_nobody_else(tmp_path: Path) -> None:
    """What is its user's own there stays readable; no other user may put a file in the place of ours."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "notes.txt").write_text("of the user")
    (data / "notes.txt").chmod(0o644)
    data.chmod(0o777)
    keep_private(data)
    assert stat.S_IMODE(data.stat().st_mode) == 0o755
    assert stat.S_IMODE((data / "notes.txt").stat().st_mode) == 0o644


def test_a_folder_that_is_everybodys_is_refused(tmp_path: Path) -> None:
    """As `/tmp`, which is not to be closed to others either."""
    (tmp_path / "notes.txt").write_text("of anybody")
    tmp_path.chmod(0o1777)
    with pytest.raises(StoreError, match="a data folder of its own"):
        keep_private(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


@pytest.mark.parametrize("name", ["sign-in.html", ".keys.json-abcd1234", ".secret-x_9", ".audit.key-0"])
def test_what_a_server_that_was_killed_has_left_is_its_own(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    (tmp_path / name).chmod(0o644)
    tmp_path.chmod(0o755)
    keep_private(tmp_path)
    assert open_to_others(tmp_path) == []


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with Serving(tmp_path / "data") as server:
        server.get("/healthz")
        server.stop()
        (tmp_path / "data" / "secret").chmod(0o644)
        with pytest.raises(AssertionError, match="others can read"):
            server.start()
    assert stat.S_IMODE((tmp_path / "data" / "secret").stat().st_mode) == 0o644


def test_a_folder_that_is_not_there_is_nothing_to_close(tmp_path: Path) -> None:
    keep_private(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("disk", "error"),
    [
        pytest.param(Disk(65 * MIB, 10), None, id="room"),
        pytest.param(Disk(65 * MIB), None, id="no limit of names"),
        pytest.param(Disk(63 * MIB, 10), DiskFull, id="nearly full"),
        pytest.param(Disk(0, 10), DiskFull, id="full"),
        pytest.param(Disk(65 * MIB, 0), DiskFull, id="no names left"),
        pytest.param(Disk(65 * MIB, 10, is_read_only=True), StoreError, id="read-only"),
    ],
)
def test_what_the_disk_says(tmp_path: Path, disk: Disk, error: type[Exception] | None) -> None:
    readiness = Readiness([tmp_path], 64 * MIB, look=lambda _: disk)
    if error is None:
        asyncio.run(readiness.check())
    else:
        with pytest.raises(error):
            asyncio.run(readiness.check())


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        asyncio.run(Readiness([tmp_path / "gone"], 1).check())


def test_a_failed_write_counts_until_a_probe_or_a_write_goes_well(tmp_path: Path) -> None:
    """A probe a second, no more; a failure after it counts anew."""
    failure: Exception | None = None
    now, folder = 0.0, tmp_path / "full"
    folder.mkdir()
    folder.chmod(0o700)
    disk = Disk(65 * MIB)
    readiness = Readiness([folder], MIB, lambda: failure, lambda _: disk, lambda: now)

    def is_ready() -> bool:
        try:
            asyncio.run(readiness.check())
        except StoreError:
            return False
        return True

    assert is_ready()
    failure = StoreError("no room")
    folder.rmdir()
    assert not is_ready()
    folder.mkdir()
    assert not is_ready(), "the next probe is due in a second"
    now = 1.0
    assert is_ready()
    assert is_ready(), "the same failure is overcome"
    failure = StoreError("again no room")
    folder.rmdir()
    now = 2.0
    assert not is_ready()
    failure = None
    assert is_ready(), "a write went well"


def test_a_full_disk_is_told_and_recovers(tmp_path: Path) -> None:
    with Serving(tmp_path / "data") as server, server.client() as client:
        assert client.get("/readyz").status_code == 200
        with server.full_disk():
            assert client.post("/channels/x/messages", json={"data": "lost"}).status_code == 503
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_failed")
            assert client.get("/healthz").status_code == 200
        while client.get("/readyz").status_code != 200:
            pass
        server.stop()


def test_a_disk_that_is_nearly_full_is_told(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--min-free-disk", str(1 << 40)) as server, server.client() as client:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "disk_full")
        server.stop()
