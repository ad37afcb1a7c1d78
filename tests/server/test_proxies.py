"""Proxies in front of the server: whom it believes, and a real nginx with its default settings."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from citewire.server.ops.proxies import TrustedProxies, is_network
from support.app import ask, in_thread, opened_app
from support.cases import ROOT, need
from support.server_process import DEADLINE, Serving, asked

PROXY = "127.0.0.1"


def seen(
    trusted: tuple[str, ...], client: Any, *headers: tuple[str, str], kind: str = "http"
) -> tuple[str, str]:
    """The address and the scheme that the app sees."""
    found: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(scope)

    async def nothing(*_: Any) -> Any: ...

    scope: Scope = {
        "type": "websocket" if kind == "ws" else "http", "scheme": kind, "client": client,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
    }  # fmt: skip
    asyncio.run(TrustedProxies(app, trusted)(scope, nothing, nothing))
    return (found[0]["client"] or ("",))[0], found[0]["scheme"]


FOR, PROTO = "x-forwarded-for", "x-forwarded-proto"


@pytest.mark.parametrize(
    ("trusted", "client", "hops", "address"),
    [
        ((), "127.0.0.1", ["1.2.3.4"], "127.0.0.1"),
        (("10.0.0.0/8",), "127.0.0.1", ["1.2.3.4"], "127.0.0.1"),
        (("127.0.0.1",), "127.0.0.1", ["1.2.3.4"], "1.2.3.4"),
        (("127.0.0.1",), "127.0.0.1", [], "127.0.0.1"),
        (("127.0.0.1",), "127.0.0.1", [""], "127.0.0.1"),
        (("127.0.0.1",), "127.0.0.1", ["9.9.9.9, 1.2.3.4"], "1.2.3.4"),
        (("127.0.0.1",), "127.0.0.1", ["9.9.9.9", "1.2.3.4"], "1.2.3.4"),
        (("127.0.0.1",), "127.0.0.1", ["9.9.9.9, 127.0.0.1"], "9.9.9.9"),
        (("127.0.0.1", "10.0.0.0/8"), "127.0.0.1", ["9.9.9.9, 1.2.3.4, 10.1.1.1"], "1.2.3.4"),
        (("10.0.0.0/8",), "10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (("127.0.0.1",), "127.0.0.1", ["1.2.3.4, unknown"], "127.0.0.1"),
        (("127.0.0.1",), "127.0.0.1", ["1.2.3.4, <script>"], "127.0.0.1"),
        (("127.0.0.1",), "127.0.0.1", ["1.2.3.4:5678"], "1.2.3.4"),
        (("::1",), "::1", ["[2001:db8::7]:5678"], "2001:db8::7"),
        (("::1",), "::1", ["2001:db8::7"], "2001:db8::7"),
        (("127.0.0.1",), "::ffff:127.0.0.1", ["::ffff:1.2.3.4"], "1.2.3.4"),
        (("2001:db8::/32",), "2001:db8::1", ["1.2.3.4"], "1.2.3.4"),
        (("0.0.0.0/0",), None, ["1.2.3.4"], ""),
        (("0.0.0.0/0",), "/run/socket", ["1.2.3.4"], "/run/socket"),
    ],
)
def test_whose_word_counts(
    trusted: tuple[str, ...], client: str | None, hops: list[str], address: str
) -> None:
    """The hop before our own proxies is the client: what stands before it, anybody may have made up."""
    sent = [(FOR, hop) for hop in hops]
    assert seen(trusted, client and (client, 5), *sent)[0] == address


@pytest.mark.parametrize(
    ("trusted", "kind", "protos", "scheme"),
    [
        ((), "http", ["https"], "http"),
        (("127.0.0.1",), "http", ["https"], "https"),
        (("127.0.0.1",), "http", ["HTTPS"], "https"),
        (("127.0.0.1",), "ws", ["https"], "wss"),
        (("127.0.0.1",), "http", ["http"], "http"),
        (("127.0.0.1",), "http", ["https, http"], "http"),
        (("127.0.0.1",), "http", ["http", "https"], "https"),
        (("127.0.0.1",), "http", ["javascript"], "http"),
        (("127.0.0.1",), "https", ["http"], "https"),
        (("10.0.0.0/8",), "http", ["https"], "http"),
    ],
)
def test_whose_word_on_tls_counts(
    trusted: tuple[str, ...], kind: str, protos: list[str], scheme: str
) -> None:
    sent = [(PROTO, proto) for proto in protos]
    assert seen(trusted, (PROXY, 5), *sent, kind=kind)[1] == scheme


@pytest.mark.parametrize(
    ("text", "good"),
    [("127.0.0.1", True), ("10.0.0.0/8", True), ("::1", True), ("fd00::/8", True), ("10.0.0.1/8", False),
     ("localhost", False), ("*", False), ("", False), ("10.0.0.0/33", False)],
)  # fmt: skip
def test_what_a_proxy_is_named_by(text: str, good: bool) -> None:
    assert is_network(text) == good


@pytest.mark.parametrize(("trusted", "served"), [((), 5), (("127.0.0.1",), 40)])
def test_invented_addresses_dodge_no_limit(tmp_path: Path, trusted: tuple[str, ...], served: int) -> None:
    """Of whoever is not a proxy of ours. Also over a socket, where uvicorn would believe this machine."""
    with in_thread(tmp_path, rate=0.001, burst=5, trusted_proxies=trusted) as (url, _):
        with httpx2.Client(base_url=url, trust_env=False) as client:
            got = [
                client.get("/questions.json", headers={FOR: f"10.{at}.0.1", "x-real-ip": f"10.{at}.0.1"})
                for at in range(40)
            ]
        assert sum(each.status_code == 200 for each in got) == served
        assert {each.status_code for each in got} <= {200, 429}


@pytest.mark.parametrize(("trusted", "secure"), [((), False), (("10.0.0.0/8",), False), ((PROXY,), True)])
def test_a_cookie_is_secure_where_a_proxy_of_ours_says_so(
    tmp_path: Path, trusted: tuple[str, ...], secure: bool
) -> None:
    async def main() -> None:
        async with opened_app(tmp_path, trusted_proxies=trusted) as app:
            headers = {"host": "127.0.0.1", "authorization": f"Bearer {app.key}", PROTO: "https"}
            cookie = (await ask(app.asgi, "GET", "/", headers=headers.items())).headers["set-cookie"]
            assert cookie.startswith("__Host-citewire_session=") == secure
            assert cookie.endswith("; Secure") == secure

    asyncio.run(main())


# --- nginx --------------------------------------------------------------------------------------------------

DEFAULT = "location / { proxy_pass http://127.0.0.1:PORT; }"


def documented() -> str:
    """The snippet of docs/operations.md."""
    text = (ROOT / "docs/operations.md").read_text("utf-8")
    (block,) = re.findall(r"^```nginx\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return block


@contextmanager
def nginx(folder: Path, snippet: str, port: int) -> Generator[str]:
    """A real nginx in front of a server, with this in its configuration; its address."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    need("nginx", program is not None, "install the package nginx")
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        front = free.getsockname()[1]
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log {folder}/access.log;\n{paths}"
        f"server {{ listen 127.0.0.1:{front};\n{snippet.replace('PORT', str(port))}\n}} }}\n"
    )
    options = ("-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log")
    process = subprocess.Popen([str(program), *options])
    try:
        _until_open(front, process)
        yield f"http://127.0.0.1:{front}"
    finally:
        process.terminate()
        process.wait(DEADLINE)


def _until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), DEADLINE).close()
        except ConnectionRefusedError:
            continue
        return
    pytest.fail("nginx did not start")


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def client_of(url: str, **headers: str) -> httpx2.Client:
    return httpx2.Client(base_url=url, headers=headers, timeout=DEADLINE, trust_env=False)


def test_nginx_with_its_default_settings_opens_nothing(tmp_path: Path) -> None:
    """It sends a loopback `Host` from a loopback address, for whoever asks."""
    with in_thread(tmp_path / "data") as (url, app), nginx(tmp_path / "nginx", DEFAULT, _port(url)) as front:
        with client_of(front) as client:
            for path in ("/", "/console", "/sign-in", "/sign-in/key"):
                answer = client.get(path)
                assert (answer.status_code, "set-cookie" in answer.headers) == (401, False), path
                assert "Sign in" in answer.text
            for path in ("/threads", "/answers", "/audit", "/metrics", "/rules"):
                assert client.get(path).status_code == 401, path
        # Whoever has a key or the link gets in, through it too.
        with client_of(front, authorization=f"Bearer {app.key}") as client:
            assert client.get("/console").status_code == 200
        with client_of(front) as client:
            link = app.server.sign_in_link("console").removeprefix(url)
            shown = client.get(link, follow_redirects=True)
            assert shown.status_code == 200
            assert client.get("/answers").status_code == 200


def test_nginx_as_documented(tmp_path: Path) -> None:
    """A client has a limit that no header changes, TLS is told, and streams come as they are sent."""
    options = (
        "--trusted-proxies",
        "127.0.0.1",
        "--agent",
        "support.server_agents:held",
        "--rate",
        "0.001",
        "--burst",
        "30",
    )
    with Serving(tmp_path / "data", *options, PYTHONPATH=str(ROOT / "tests")) as server:
        snippet = documented().replace("8787", "PORT")
        with nginx(tmp_path / "nginx", snippet, server.port) as front:
            _check_stream(server, front, tmp_path / "pipe")
            for own in ("127.0.0.2", "127.0.0.3"):
                got = _invented(front, own)
                assert (sum(status == 200 for status in got), got[-1]) == (30, 429)
            with client_of(front, **server.headers) as client:
                # This nginx has no TLS, and says so, whatever the client says.
                cookie = client.get("/", headers={PROTO: "https"}).headers["set-cookie"]
                assert re.match(rf"citewire_session_{front.rpartition(':')[2]}=", cookie)


def _invented(front: str, own: str) -> list[int]:
    """What a client at an address of its own is answered that invents another one for each request."""
    transport = httpx2.HTTPTransport(local_address=own)
    with httpx2.Client(base_url=front, transport=transport, timeout=DEADLINE) as client:
        sent = [{FOR: f"10.0.0.{at}"} for at in range(40)]
        return [client.get("/questions.json", headers=headers).status_code for headers in sent]


def _check_stream(server: Serving, front: str, pipe: Path) -> None:
    """Frames come while the run goes on, which it does until the pipe is written to."""
    os.mkfifo(pipe)
    with (
        client_of(front, **server.headers) as client,
        client.stream("POST", "/agui", json=asked("t", text=str(pipe))) as response,
    ):
        lines = response.iter_lines()
        assert any("TEXT_MESSAGE_CONTENT" in line for line in lines)
        pipe.write_text("go on")
        assert any("RUN_FINISHED" in line for line in lines)
