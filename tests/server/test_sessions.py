"""The sessions of pages, and every way to make more of a token, a session or a link than it is."""

from __future__ import annotations

import asyncio
import json
import re
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from citewire.channels.memory import MemoryStore
from citewire.server.ably.codec import FrameAction
from citewire.server.access.capability import FULL, Capability
from citewire.server.access.errors import (
    AccessRefused,
    BadCredentials,
    BadToken,
    Forbidden,
    NoCredentials,
    TokenExpired,
)
from citewire.server.access.keys import Caller, Keyring
from citewire.server.access.secret import Secret
from citewire.server.access.sessions import PageName, Sessions
from citewire.server.access.sign_in import LINK_SECONDS, SignInLinks, sign_in_link
from citewire.server.access.used_names import UsedNames
from citewire.server.ops.settings import Settings
from support.ably_socket import Socket
from support.app import HOST, App, opened_app

OWN = f"http://{HOST}"
HOUR = 3600
ANN = Capability.of({"thread:ann:*": ["read", "run", "audit"], "ai:ann": ["subscribe"], "metrics": ["read"]})


class Clock:
    now = float(int(time.time()))

    def __call__(self) -> float:
        return self.now


class Office:
    """A keyring, sessions and links, and a clock that a test sets."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.clock = Clock()
        self.keyring = Keyring(folder, clock=self.clock)
        self.name = self.keyring.create(name="shop.all").partition(":")[0]
        self.sessions = Sessions(self.keyring, Settings(**settings), self.clock)
        self.store = MemoryStore()
        self.links = self.another()

    def another(self) -> SignInLinks:
        """Links as they are after a restart, or on another server."""
        return SignInLinks(self.keyring, UsedNames(self.store, "sign-in", self.clock), self.clock)

    @property
    def key(self) -> Caller:
        return Caller(self.name, FULL, "*")

    def token(self, seconds: float, client_id: str | None = "ann", capability: Capability = ANN) -> Caller:
        return Caller(self.name, capability, client_id, self.clock.now + seconds)

    def start(self, caller: Caller, page: PageName = "chat", **request: str) -> str:
        """The cookie, as a browser sends it."""
        return self.sessions.start(caller, page, asked(**request)).partition(";")[0]

    def link(self, **more: Any) -> str:
        return sign_in_link(self.keyring, "http://x", self.name, **more).partition("token=")[2]


def asked(scheme: str = "http", **headers: str) -> Request:
    sent = {"host": HOST, **headers}
    raw = [(name.encode(), value.encode()) for name, value in sent.items()]
    return Request({"type": "http", "method": "GET", "scheme": scheme, "path": "/", "headers": raw})


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def run(folder: Path, main: Callable[[App], Awaitable[None]], **settings: Any) -> None:
    async def opened() -> None:
        async with opened_app(folder, **settings) as app:
            await main(app)

    asyncio.run(opened())


# --- what a session is --------------------------------------------------------------------------------------


def test_a_session_has_what_of_a_token_its_page_may(office: Office) -> None:
    """Its client id too, and its end."""
    caller = office.sessions.caller(asked(cookie=office.start(office.token(20))))
    granted = Capability.of({"thread:ann:*": ["read", "run"]})
    assert caller == Caller(office.name, granted, "ann", office.clock.now + 20, is_session=True)
    console = office.sessions.caller(asked(cookie=office.start(office.token(20), "console")))
    assert console.capability == Capability.of({"thread:ann:*": ["audit", "read", "run"]})


@pytest.mark.parametrize(
    ("given", "kept"), [("ann", "ann"), (None, "None"), ("*", r"browser-[0-9a-f]{16}")], ids=str
)
def test_a_session_speaks_for_who_its_token_speaks(office: Office, given: str | None, kept: str) -> None:
    caller = office.sessions.caller(asked(cookie=office.start(office.token(20, given))))
    assert re.fullmatch(kept, str(caller.client_id))


@pytest.mark.parametrize(
    ("seconds", "lasts"), [(20, 20), (20.5, 20), (12 * HOUR, 12 * HOUR), (10**6, 12 * HOUR)]
)
def test_a_session_ends_no_later_than_its_token(office: Office, seconds: float, lasts: int) -> None:
    cookie = office.sessions.start(office.token(seconds), "chat", asked())
    assert f"; Max-Age={lasts};" in cookie
    sent = asked(cookie=cookie.partition(";")[0])
    office.clock.now += min(seconds, 12 * HOUR) - 0.25
    assert office.sessions.caller(sent)
    office.clock.now += 0.25
    with pytest.raises(TokenExpired):
        office.sessions.caller(sent)


@pytest.mark.parametrize("seconds", [0.5, 0, -1, -29])
def test_a_token_in_its_leeway_makes_no_session(office: Office, seconds: float) -> None:
    with pytest.raises(TokenExpired):
        office.start(office.token(seconds))


@pytest.mark.parametrize(
    "capability",
    [
        Capability.of({"ai:ann": ["subscribe"]}),
        Capability.of({"metrics": ["read"]}),
        Capability.of({"thread:ann": ["delete"]}),
        Capability.of({"rule:*": ["set"], "answer:*": ["list"], "audit": ["export"]}),
        Capability(),
    ],
)
def test_what_a_page_may_not_use_makes_no_session(office: Office, capability: Capability) -> None:
    with pytest.raises(Forbidden):
        office.start(office.token(20, "ann", capability))


def test_a_session_makes_no_other_one(office: Office) -> None:
    pages: list[PageName] = ["chat", "console"]
    for page in pages:
        caller = office.sessions.caller(asked(cookie=office.start(office.key, page)))
        with pytest.raises(Forbidden):
            office.start(caller)


def test_the_session_of_the_chat_is_not_for_the_console(office: Office) -> None:
    chat, console = asked(cookie=office.start(office.key)), asked(cookie=office.start(office.key, "console"))
    assert office.sessions.caller(console, "chat").may("list", "answer:*")
    assert office.sessions.caller(console, "console")
    assert not office.sessions.caller(chat, "chat").may("list", "answer:*")
    with pytest.raises(Forbidden):
        office.sessions.caller(chat, "console")


def test_a_session_ends_with_its_key(office: Office) -> None:
    sent = asked(cookie=office.start(office.key))
    office.keyring.revoke(office.name)
    with pytest.raises(BadCredentials):
        office.sessions.caller(sent)


def test_a_session_is_for_one_server(office: Office, tmp_path: Path) -> None:
    """Also where another has the same secret, and a key of the same name."""
    value = office.start(office.key).partition("=")[2]
    secret = (tmp_path / "secret").read_text()
    twin = Keyring(tmp_path / "twin", secret=secret)
    twin.create(name=office.name)
    with pytest.raises(BadToken):
        Sessions(twin, Settings()).caller(asked(cookie=f"citewire_session_8787={value}"))
    port = {"host": "127.0.0.1:8788", "cookie": f"citewire_session_8788={value}"}
    with pytest.raises(BadToken):
        office.sessions.caller(asked(**port))
    public = Sessions(office.keyring, Settings(public_url="http://cite.example.com"), office.clock)
    with pytest.raises(BadToken):
        public.caller(asked(cookie=f"citewire_session_8787={value}"))
    with pytest.raises(NoCredentials):
        office.sessions.caller(asked(host="127.0.0.1:8788", cookie=f"citewire_session_8787={value}"))


@pytest.mark.parametrize(
    ("settings", "request_of", "secure"),
    [
        ({}, {}, False),
        ({"public_url": "http://cite.example.com:8080"}, {"host": "cite.example.com:8080"}, False),
        ({"public_url": "https://cite.example.com:8443"}, {"host": "cite.example.com:8443"}, True),
        ({"public_url": "https://cite.example.com"}, {}, True),
        ({}, {"scheme": "https"}, True),
    ],
)
def test_a_cookie_is_as_secure_as_it_can_be(
    tmp_path: Path, settings: dict[str, str], request_of: dict[str, str], secure: bool
) -> None:
    office = Office(tmp_path, **settings)
    cookie = office.sessions.start(office.key, "chat", asked(**request_of))
    assert cookie.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict" + "; Secure" * secure)
    assert cookie.startswith("__Host-citewire_session=") == secure
    assert office.sessions.caller(asked(cookie=cookie.partition(";")[0], **request_of))


def test_a_capability_that_is_too_long_for_a_cookie_is_told(office: Office) -> None:
    """Browsers drop such a cookie without a word."""
    names = {f"thread:{Secret('s' * 32).derive(str(n), b'')}:{n}": ["read"] for n in range(200)}
    with pytest.raises(Forbidden, match="too long"):
        office.start(office.token(20, "ann", Capability.of(names)))


@pytest.mark.parametrize(
    "granted",
    [
        {f"*:{n}": ["read"] for n in range(200)},
        {f"*:{'x' * 2046}": ["read"]},
    ],
    ids=["many", "long"],
)
def test_what_a_session_could_not_be_read_with_is_told(office: Office, granted: dict[str, list[str]]) -> None:
    """The capability of a token meets each of the page's: together they may be more than either."""
    with pytest.raises(Forbidden):
        office.start(office.token(20, "ann", Capability.of(granted)))


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: b64encode(data).decode()))
def test_whatever_else_is_in_the_cookie_is_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    office = _shared(tmp_path_factory)
    scope = {"type": "http", "method": "GET", "scheme": "http", "path": "/"}
    cookie = f"citewire_session_8787={text}".encode("latin-1", "replace")
    request = Request({**scope, "headers": [(b"host", HOST.encode()), (b"cookie", cookie)]})
    with pytest.raises(AccessRefused):
        office.sessions.caller(request)


_OFFICES: list[Office] = []


def _shared(folders: pytest.TempPathFactory) -> Office:
    """For properties, which do not change it."""
    if not _OFFICES:
        _OFFICES.append(Office(folders.mktemp("office")))
    return _OFFICES[0]


@given(st.binary(max_size=300), st.integers(0), st.integers(1, 255))
def test_what_is_sealed_reads_as_it_was_and_no_changed_one_reads(data: bytes, at: int, other: int) -> None:
    secret = Secret("s" * 32)
    sealed = secret.seal("a", data)
    assert secret.unseal("a", sealed) == data
    assert data[:8] not in sealed.encode() or len(data) < 8
    raw = bytearray(sealed.encode())
    raw[at % len(raw)] ^= other
    with pytest.raises(BadToken):
        secret.unseal("b", sealed)
    for text in (raw.decode("latin-1"), sealed + "A", sealed[:-1]):
        with pytest.raises(BadToken):
            secret.unseal("a", text)


# --- links --------------------------------------------------------------------------------------------------


def test_a_link_works_once(office: Office) -> None:
    """Also after a restart, and on another server with the same store."""

    async def main() -> None:
        token = office.link(page="console")
        assert await office.links.use(token) == (Caller(office.name, FULL, "*"), "console")
        for links in (office.links, office.another()):
            with pytest.raises(TokenExpired, match="used already"):
                await links.use(token)

    asyncio.run(main())


def test_of_many_who_have_a_link_one_gets_in(office: Office) -> None:
    async def main() -> None:
        token = office.link()
        got = await asyncio.gather(*(office.another().use(token) for _ in range(20)), return_exceptions=True)
        assert sum(isinstance(each, tuple) for each in got) == 1
        assert {type(each) for each in got} == {tuple, TokenExpired}

    asyncio.run(main())


def test_a_link_expires_and_ends_with_its_key(office: Office, tmp_path: Path) -> None:
    async def main() -> None:
        late, revoked, other = office.link(), office.link(), Office(tmp_path / "other").link()
        office.clock.now = time.time() + LINK_SECONDS + 1
        with pytest.raises(TokenExpired, match="has expired"):
            await office.links.use(late)
        office.clock.now -= LINK_SECONDS
        for text in (other, "", "x", late[:-1], f"{late}A", office.start(office.key).partition("=")[2]):
            with pytest.raises(BadToken):
                await office.links.use(text)
        office.keyring.revoke(office.name)
        with pytest.raises(BadCredentials):
            await office.links.use(revoked)

    asyncio.run(main())


# --- over HTTP ----------------------------------------------------------------------------------------------


async def signed_in(app: App, path: str) -> str:
    answer = await app.ask("GET", path)
    assert answer.status == 200, answer
    return answer.headers["set-cookie"].partition(";")[0]


def test_a_link_leads_to_a_clean_address(tmp_path: Path) -> None:
    """Once; and it opens both pages."""

    async def main(app: App) -> None:
        pages: list[tuple[PageName, str]] = [("chat", "/"), ("console", "/console")]
        for page, place in pages:
            link = app.server.sign_in_link(page).removeprefix(app.server.address)
            for method, purpose in (("HEAD", ""), ("GET", "prefetch;prerender")):
                looked = await app.ask(method, link, key=None, sec_purpose=purpose)
                assert (looked.status, "set-cookie" in looked.headers) == (401, False)
            answer = await app.ask("GET", link, key=None)
            assert (answer.status, answer.headers["location"]) == (303, place)
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "no-store"
            cookie = answer.headers["set-cookie"].partition(";")[0]
            for each in ("/", "/console"):
                shown = await app.ask("GET", each, key=None, cookie=cookie)
                assert (shown.status, "set-cookie" in shown.headers) == (200, False)
            again = await app.ask("GET", link, key=None)
            assert (again.status, "set-cookie" in again.headers) == (401, False)
            assert b"used already" in again.body
            assert again.headers["content-type"].startswith("text/html")

    run(tmp_path, main)


def test_a_token_does_not_become_more(tmp_path: Path) -> None:
    """Whichever page it is sent to, and whatever its session is then sent to."""

    async def main(app: App) -> None:
        narrow = app.token({"ai:ann": ["subscribe"]}, 20)
        own = app.token({"thread:ann": ["read"], "ai:ann": ["subscribe"]}, 20)
        for path in ("/", "/console", "/sign-in/key", "/sign-in/key?page=console"):
            for query in (f"{path}{'&' if '?' in path else '?'}{name}=" for name in ("access_token", "key")):
                answer = await app.ask("GET", query + own, key=None)
                assert (answer.status, "set-cookie" in answer.headers) == (401, False), query
            refused = await app.ask("GET", path, key=narrow)
            assert (refused.status, "set-cookie" in refused.headers) == (403, False)
            for sent in (f"Bearer {own}", f"Basic {b64encode(own.encode()).decode()}"):
                answer = await app.ask("GET", path, authorization=sent)
                cookie, *attributes = answer.headers["set-cookie"].split("; ")
                assert {"Max-Age=20", "Max-Age=19"} & set(attributes)
                await _check_narrow(app, cookie)

    async def _check_narrow(app: App, cookie: str) -> None:
        for method, path, status in (
            ("GET", "/threads/ann", 404),
            ("GET", "/threads/bob", 403),
            ("GET", "/threads", 403),
            ("GET", "/answers", 403),
            ("GET", "/audit", 403),
            ("GET", "/metrics", 403),
            ("PUT", "/rules/ai:*", 403),
            ("GET", "/channels/ai:ann/messages", 401),
        ):
            body = {"mutable": True} if method == "PUT" else b""
            answer = await app.ask(method, path, body, key=None, cookie=cookie, origin=OWN)
            assert answer.status == status, (path, answer)
        for page in ("/", "/console"):
            again = await app.ask("GET", page, key=None, cookie=cookie)
            assert "set-cookie" not in again.headers

    run(tmp_path, main)


def test_a_session_is_nothing_but_a_cookie(tmp_path: Path) -> None:
    """It is refused wherever a key or a token is taken, and by Ably's endpoints as a cookie too."""

    async def main(app: App) -> None:
        await app.ask("POST", "/agui", {"threadId": "t", "runId": "r"})
        name = app.key.partition(":")[0]
        for page in ("/", "/console"):
            cookie = await signed_in(app, page)
            value = cookie.partition("=")[2]
            wrapped = b64encode(value.encode()).decode()
            for sent in (f"Bearer {value}", f"Bearer {wrapped}", f"Basic {wrapped}", f"Basic {value}"):
                for path in ("/threads", "/", "/console", "/sign-in/key", "/channels/ai:t/messages"):
                    answer = await app.ask("GET", path, authorization=sent)
                    assert (answer.status, "set-cookie" in answer.headers) == (401, False), (sent, path)
            for path in ("/threads", "/", "/channels/ai:t/messages", "/sign-in", "/sign-in/key"):
                for parameter in ("access_token", "key", "token"):
                    answer = await app.ask("GET", f"{path}?{parameter}={value}", key=None)
                    assert answer.status == 401, (path, parameter)
            for method, path, body in (
                ("GET", "/channels", b""),
                ("GET", "/channels/ai:t/messages", b""),
                ("POST", "/channels/ai:t/messages", b'{"data":"x"}'),
                ("GET", "/channels/ai:t/export", b""),
                ("POST", f"/keys/{name}/requestToken", json.dumps({"keyName": name}).encode()),
            ):
                answer = await app.ask(
                    method, path, body, key=None, cookie=cookie, origin=OWN, content_type="application/json"
                )
                assert answer.status == 401, (path, answer)
            for parameter in ("access_token", "accessToken", "key"):
                async with Socket(app.server.realtime, **{parameter: value}) as socket:
                    assert socket.connected["action"] == FrameAction.ERROR

    run(tmp_path, main)


def test_a_token_mints_no_token(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        name = app.key.partition(":")[0]
        asked_for = json.dumps({"keyName": name, "ttl": 86_400_000, "capability": '{"[*]*":["*"]}'}).encode()
        for token in (app.token({"[*]*": ["*"]}), app.token({"ai:ann": ["subscribe"]})):
            answer = await app.ask(
                "POST", f"/keys/{name}/requestToken", asked_for, key=token, content_type="application/json"
            )
            assert (answer.status, answer.json["error"]["code"]) == (401, 40101)

    run(tmp_path, main)


def test_a_token_that_the_server_issued_ends_on_time(tmp_path: Path) -> None:
    """One that others sign has a leeway for their clocks; nobody but the server can sign one as its own."""
    clock = Clock()
    keyring = Keyring(tmp_path, clock=clock)
    keyring.create(name="shop.all")
    token = keyring.issue_token("shop.all", FULL, 10.25, "ann")
    clock.now += 10.249
    assert keyring.caller(None, token).client_id == "ann"
    clock.now += 0.001
    with pytest.raises(TokenExpired):
        keyring.caller(None, token)
    assert keyring.caller(None, keyring.issue_token("shop.all", FULL, 86_400))


@pytest.mark.parametrize(
    ("site", "again"), [("cross-site", True), ("same-site", True), ("same-origin", False), ("none", False)]
)
def test_who_comes_from_another_site_is_asked_to_come_again(tmp_path: Path, site: str, again: bool) -> None:
    """The browser kept the cookie back; with the second request it sends it, and there is no third."""

    async def main(app: App) -> None:
        answer = await app.ask("GET", "/console?thread=t", key=None, sec_fetch_site=site)
        assert answer.status == 401
        assert (b'class="again"' in answer.body) == again

    run(tmp_path, main)
