"""The way in as people have it: what `citewire serve` prints and opens, and `citewire keys link`."""

from __future__ import annotations

import os
import pty
import re
import select
import stat
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from citewire.server.ops.browser import has_browser
from support.server_process import DEADLINE, SCRIPT, Serving, command, environment

# They start many processes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BROWSER = """#!/usr/bin/env python3
import os, stat, sys, urllib.parse
path = urllib.parse.unquote(urllib.parse.urlsplit(sys.argv[1]).path)
with open(path) as file, open(os.environ["OPENED"], "w") as out:
    out.write(f"{sys.argv[1]} {stat.S_IMODE(os.fstat(file.fileno()).st_mode):o} {file.read()}")
"""


def linked(said: str) -> str:
    found = re.search(r"^Open (http://\S+/sign-in\?token=\S+) in a browser\.$", said, re.MULTILINE)
    assert found, said
    return found[1]


def keys_link(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    given = [SCRIPT, "keys", "link", "--data", folder, *options]
    env = environment()
    return subprocess.run(given, capture_output=True, text=True, check=False, timeout=DEADLINE, env=env)


def test_the_link_that_is_printed_signs_in_once(tmp_path: Path) -> None:
    """It is in no log, and works neither again nor after a restart; `citewire keys link` gives another."""
    with Serving(tmp_path / "data") as server:
        link = linked(server.said)
        with httpx2.Client(base_url=server.url, timeout=DEADLINE, trust_env=False) as client:
            assert client.get("/console").status_code == 401
            shown = client.get(link, follow_redirects=True)
            assert (shown.status_code, str(shown.url)) == (200, f"{server.url}/")
            assert client.get("/answers").status_code == 200
        assert httpx2.get(link, trust_env=False).status_code == 401
        server.stop()
        assert not (tmp_path / "data" / "address").exists()
        assert keys_link(tmp_path / "data").stderr.startswith("citewire: no server runs")
        server.start()
        assert linked(server.said) != link
        assert httpx2.get(link, trust_env=False).status_code == 401
        made = keys_link(tmp_path / "data", "--page", "console")
        assert (made.returncode, made.stderr) == (0, "")
        shown = httpx2.get(made.stdout.strip(), follow_redirects=False, trust_env=False)
        assert (shown.status_code, shown.headers["location"]) == (303, "/console")
        log = server.log.read_text()
    assert "sign-in" in log
    assert not [text for text in (link, made.stdout) if text.strip().partition("token=")[2] in log]


def test_where_others_reach_it_the_link_is_not_printed_into_a_file(tmp_path: Path) -> None:
    """What a service prints may be kept where others read it."""
    with Serving(tmp_path / "data", "--public-url", "http://127.0.0.1:1") as server:
        assert "token=" not in server.said
        assert "citewire keys link" in server.said


def test_a_link_has_the_rights_of_the_key_that_is_named(tmp_path: Path) -> None:
    with Serving(tmp_path / "data") as server:
        given = [SCRIPT, "keys", "create", "--name", "shop.some", "--data", tmp_path / "data"]
        granted = ["--capability", '{"thread:mine": ["read"]}']
        subprocess.run([*given, *granted], check=True, capture_output=True, env=environment())
        link = keys_link(tmp_path / "data", "--key", "shop.some").stdout.strip()
        with httpx2.Client(base_url=server.url, timeout=DEADLINE, trust_env=False) as client:
            assert client.get(link, follow_redirects=True).status_code == 200
            assert client.get("/threads/mine").status_code == 404
            assert client.get("/threads/other").status_code == 403
        unknown = keys_link(tmp_path / "data", "--key", "shop.none")
        assert (unknown.returncode, unknown.stdout) == (2, "")


@pytest.mark.parametrize(
    ("environ", "is_terminal", "has"),
    [
        ({"DISPLAY": ":0"}, True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True, True),
        ({}, True, False),
        ({"DISPLAY": ":0"}, False, False),
        ({"DISPLAY": ":0", "CI": "true"}, True, False),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there always is a display")
def test_where_there_is_a_browser(environ: dict[str, str], is_terminal: bool, has: bool) -> None:
    assert has_browser(environ, is_terminal=is_terminal) == has


@pytest.mark.parametrize("option", ["--open-browser", "--no-open-browser"])
def test_a_browser_is_opened_at_a_terminal(tmp_path: Path, option: str) -> None:
    """With a file that only its owner can read: in the list of processes everybody would see the link."""
    browser, out, folder = tmp_path / "browser", tmp_path / "opened", tmp_path / "data"
    browser.write_text(BROWSER)
    browser.chmod(0o700)
    env = {name: value for name, value in environment().items() if name != "CI"}
    env |= {"BROWSER": f"{browser} %s", "DISPLAY": ":99", "OPENED": str(out)}
    if option == "--open-browser":
        os.mkfifo(out)
    terminal, end = pty.openpty()
    given = command("--data", folder, "--port", "0", option)
    with subprocess.Popen(given, env=env, stdout=end, stderr=end, stdin=subprocess.DEVNULL) as server:
        os.close(end)
        try:
            printed = linked(_until(terminal, "Ctrl-C").replace("\r", ""))
            opened = out.read_text() if option == "--open-browser" else ""
            # Once it answers, it also listens to signals.
            assert httpx2.get(printed, timeout=DEADLINE, trust_env=False).status_code == 303
        finally:
            server.terminate()
            _until(terminal, "\0")
            assert server.wait(DEADLINE) == 0
            os.close(terminal)
    assert not (folder / "sign-in.html").exists()
    assert out.exists() == bool(opened)
    if opened:
        uri, mode, html = opened.split(" ", 2)
        assert (uri, mode) == ((folder / "sign-in.html").as_uri(), "600")
        link = re.search(r"url=(http://\S+/sign-in\?token=[\w-]+)", html)
        assert link
        assert link[1] != printed


def _until(terminal: int, words: str) -> str:
    """What is printed up to these words, or to the end."""
    said = ""
    while words not in said and select.select([terminal], [], [], DEADLINE)[0]:
        try:
            said += os.read(terminal, 1 << 16).decode()
        except OSError:  # how a terminal says that nobody writes to it any more
            break
    return said


def test_what_is_kept_of_the_address_is_for_the_owner(tmp_path: Path) -> None:
    with Serving(tmp_path / "data") as server:
        file = tmp_path / "data" / "address"
        assert file.read_text() == f"{server.url}\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_address_that_others_could_have_written_is_refused(tmp_path: Path) -> None:
    """A link with the secret in it would lead to their server."""
    data = tmp_path / "data"
    with Serving(data):
        file = data / "address"
        file.chmod(0o666)
        refused = keys_link(data)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "others could have written" in refused.stderr
        file.unlink()
        (tmp_path / "elsewhere").write_text("http://evil.example\n")
        file.symlink_to(tmp_path / "elsewhere")
        assert (keys_link(data).returncode, keys_link(data).stdout) == (2, "")


def test_an_address_that_is_there_already_is_replaced(tmp_path: Path) -> None:
    """Nothing is written to where it leads."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    data.mkdir()
    elsewhere.write_text("of somebody else")
    (data / "address").symlink_to(elsewhere)
    with Serving(data) as server:
        assert not (data / "address").is_symlink()
        assert (data / "address").read_text() == f"{server.url}\n"
    assert elsewhere.read_text() == "of somebody else"
