"""Who may do what: every operation with its capability and without, keys, sessions and other origins."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from citewire.server.access.capability import Capability
from citewire.server.access.keys import Keyring
from citewire.server.http.operations import Operation
from support.app import HOST, Answer, App, opened_app

PUBLIC = {
    "/", "/console", "/healthz", "/openapi.json", "/proofs/{name}", "/questions.json", "/readyz", "/sign-in",
    "/sign-in/key", "/web/{file:path}",
}  # fmt: skip
"""What needs no capability. A proof needs a signed link, a page a session, to sign in a link or a key."""

NAMES = {
    "thread": "t", "thread_id": "t", "run": "r", "message": "m", "number": "1", "format": "png",
    "pattern": "x:*", "attachment": "a",
}  # fmt: skip
BODIES: dict[str, Any] = {
    "/agui": {"threadId": "t", "runId": "r2"},
    "/attachments/{attachment}/extend": {"duration": "month"},
    "/convertFile": {"attachmentId": "a"},
    "/getAttachment": {"attachmentId": "a"},
    "/prepareAttachments": {"attachmentId": "a"},
    "/rules/{pattern}": {"mutable": True},
    "/threads/{thread}/reviews": {"messageId": "m", "key": "k", "event": "popover_opened"},
    "/sources?name=more.txt": b"More.",
    "/verify": {"quotes": []},
    "/verifyCitations": {"data": {"attachmentId": "a", "citations": {}}},
}
# Of an operation that needs more than its path.
QUERIES = {"/sources": "?name=more.txt", "/threads/{thread}/messages/{message}/citations": "?dialect=openai"}


def run(folder: Path, main: Callable[[App], Awaitable[None]], **settings: Any) -> None:
    async def opened() -> None:
        async with opened_app(folder, **settings) as app:
            await main(app)

    asyncio.run(opened())


class Asking:
    """Asks for each operation, of a thread and a source that are there."""

    def __init__(self, app: App, source: str) -> None:
        self.app, self.names = app, NAMES | {"source": source}

    @classmethod
    async def of(cls, app: App) -> Asking:
        await app.ask("POST", "/agui", {"threadId": "t", "runId": "r"})
        added = await app.ask("POST", "/sources?name=a.txt", b"Some words.")
        await app.server.catalog.wait_until_read()
        return cls(app, added.json["sources"][0]["id"])

    @property
    def guarded(self) -> list[tuple[Operation, str, str]]:
        """The operations that need something, with what they need."""
        found = [(each, *each.needs) for each in self.app.server.operations if each.needs]
        return [(each, word, of.format_map(self.names)) for each, word, of in found]

    async def ask(self, operation: Operation, **options: Any) -> Answer:
        target = operation.path + (QUERIES.get(operation.path, "") if operation.method != "DELETE" else "")
        body = BODIES[target] if operation.method in ("POST", "PUT") and operation.body else b""
        path = re.sub(r"\{(\w+)\}", lambda found: self.names[found[1]], target)
        return await self.app.ask(operation.method, path, body, leaves=True, **options)

    async def state(self) -> list[Any]:
        """All that a request could change."""
        paths = ["/threads", "/threads/t", "/sources", "/rules"]
        return [(await self.app.ask("GET", path)).json for path in paths]


# --- capabilities -------------------------------------------------------------------------------------------


def test_what_everybody_may_do(tmp_path: Path) -> None:
    """Whoever adds an operation that needs nothing adds it here, and says why."""

    async def main(app: App) -> None:
        public = [each for each in app.server.operations if each.needs is None]
        assert {each.path for each in public} == PUBLIC
        assert {each.method for each in public} == {"GET"}

    run(tmp_path, main)


def test_allowed_with_just_the_capability_it_needs(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        asking = await Asking.of(app)
        for operation, word, of in asking.guarded:
            answer = await asking.ask(operation, key=app.token({of: [word]}))
            assert answer.status not in (401, 403), (operation, answer)
            assert answer.status < 500, (operation, answer)

    run(tmp_path, main)


def test_refused_with_any_other(tmp_path: Path) -> None:
    """All other operations on it, and this one on all else, are not enough; and nothing has happened."""

    async def main(app: App) -> None:
        asking = await Asking.of(app)
        before = await asking.state()
        words = {word for _, word, _ in asking.guarded}
        resources = {of for _, _, of in asking.guarded} | {"thread:other", "source:other", "thread", "t"}
        for operation, word, of in asking.guarded:
            # A name that a pattern covers is no other resource.
            others = {each for each in resources if not Capability.of({each: ["x"]}).allows("x", of)}
            for granted in (
                {of: sorted(words - {word})},
                {other: [word] for other in others},
                {**{other: ["*"] for other in others}, of: sorted(words - {word})},
            ):
                answer = await asking.ask(operation, key=app.token(granted))
                assert (answer.status, answer.code) == (403, "forbidden"), (operation, granted)
        assert await asking.state() == before

    run(tmp_path, main)


def test_refused_without_credentials_that_are_known(tmp_path: Path) -> None:
    """Also before anything of the request is looked at."""

    async def main(app: App) -> None:
        asking = await Asking.of(app)
        before = await asking.state()
        name, _, secret = app.key.partition(":")
        expired = Keyring(tmp_path, clock=lambda: 0).issue_token(name, Capability(), 60)
        other = Keyring(tmp_path, secret="x" * 43).sign("session", name, 2**40)
        revoked = app.server.keyring.create()
        app.server.keyring.revoke(revoked.partition(":")[0])
        wrong = {
            f"{name}:{secret[:-1]}": "bad_credentials",
            f"{name}:": "bad_credentials",
            revoked: "bad_credentials",
            "citewire.nobody:secret": "bad_credentials",
            expired: "token_expired",
            app.token({"thread:t": ["read"]})[:-3] + "AAA": "bad_token",
            other: "bad_token",
            "a.b.c": "bad_token",
        }
        for operation, _, _ in asking.guarded:
            answer = await asking.ask(operation, key=None)
            assert (answer.status, answer.code) == (401, "no_credentials"), operation
            if operation.method == "GET":
                assert (await app.ask("HEAD", operation.path, key=None)).status == 401, operation
            assert answer.headers["www-authenticate"] == 'Bearer realm="citewire"'
            for key, code in wrong.items():
                answer = await asking.ask(operation, key=key)
                assert (answer.status, answer.code) == (401, code), (operation, key)
        for scheme in ("", "Basic", "Bearer", "Bearer ", "Digest x", "Basic ÿ", "Basic Og==", "\x00"):
            answer = await app.ask("GET", "/threads", authorization=scheme)
            assert answer.status == 401, scheme
        assert await asking.state() == before

    run(tmp_path, main)


@pytest.mark.parametrize(
    ("granted", "status"),
    [
        (None, 401),
        ({"thread:t": ["read"]}, 404),
        ({"thread:t": ["run"]}, 403),
        ({"thread:other": ["read"], "proof:*": ["*"]}, 403),
    ],
)
def test_a_proof_without_its_link_is_for_who_may_read_the_thread(
    tmp_path: Path, granted: dict[str, list[str]] | None, status: int
) -> None:
    async def main(app: App) -> None:
        name = f"{b64encode(b't').decode().rstrip('=')}.{'0' * 32}"
        key = app.token(granted) if granted else None
        assert (await app.ask("GET", f"/proofs/{name}", key=key)).status == status
        assert (await app.ask("GET", f"/proofs/{name}?sig=1.{'A' * 43}", key=key)).status == 403

    run(tmp_path, main)


def test_a_name_may_have_a_slash(tmp_path: Path) -> None:
    """It is one name then, also for whoever may read what stands before the slash."""

    async def main(app: App) -> None:
        await app.ask("POST", "/agui", {"threadId": "a/b", "runId": "r/1"})
        for granted, status in (
            ({"thread:a/b": ["read", "stop"]}, 200),
            ({"thread:a": ["read", "stop"]}, 403),
        ):
            key = app.token(granted)
            assert (await app.ask("GET", "/threads/a%2Fb", key=key)).status == status
            assert (await app.ask("GET", "/threads/a%2fb/events", key=key)).status == status
            stopped = await app.ask("POST", "/threads/a%2Fb/runs/r%2F1/stop", key=key)
            assert stopped.status == (204 if status == 200 else 403)
        assert (await app.ask("GET", "/threads/a/b")).status == 404
        # What routes a slash within a name is in no name itself.
        for other in ("%EE%80%80", "%ED%B0%AF", "%252F", "%5C"):
            assert (await app.ask("GET", f"/threads/a{other}b")).status == 404

    run(tmp_path, main)


def test_every_way_to_send_a_key(tmp_path: Path) -> None:
    """A query reaches logs and histories, so it is taken only where a browser can send nothing else."""

    async def main(app: App) -> None:
        basic = b64encode(app.key.encode()).decode()
        for sent in (f"Basic {basic}", f"Bearer {basic}", f"bearer {app.key}"):
            assert (await app.ask("GET", "/threads", authorization=sent)).status == 200
        token = app.token({"thread:*": ["list", "run"]})
        assert (await app.ask("GET", f"/threads?access_token={token}", key=None)).status == 200
        body = {"threadId": "t", "runId": "r"}
        assert (await app.ask("POST", f"/agui?access_token={token}", body, key=None)).status == 401

    run(tmp_path, main)


def test_a_list_has_what_the_caller_may_read(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        sources: list[str] = []
        for name in ("mine", "theirs"):
            await app.ask("POST", "/agui", {"threadId": name, "runId": "r"})
            added = await app.ask("POST", f"/sources?name={name}.txt", name.encode())
            sources.append(added.json["sources"][0]["id"])
        key = app.token(
            {
                "thread:*": ["list"], "thread:mine": ["read"],
                "source:*": ["list"], f"source:{sources[0]}": ["read"],
            }
        )  # fmt: skip
        threads = await app.ask("GET", "/threads", key=key)
        assert [each["threadId"] for each in threads.json["threads"]] == ["mine"]
        listed = await app.ask("GET", "/sources", key=key)
        assert [each["id"] for each in listed.json["sources"]] == sources[:1]
        stream = await app.ask("GET", "/sources/events", key=key, leaves=True)
        assert sources[0].encode() in stream.body
        assert sources[1].encode() not in stream.body

    run(tmp_path, main)


# --- the session of a page ----------------------------------------------------------------------------------


async def session(app: App, key: str | None = "", page: str = "/", **headers: Any) -> str:
    """The cookie that a page comes with, for who has a key."""
    answer = await app.ask("GET", page, key=key, **headers)
    assert answer.status == 200, answer
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly; SameSite=Strict" in cookie
    assert answer.headers["cache-control"] == "no-store"
    return cookie.partition(";")[0]


def test_what_a_page_may_do(tmp_path: Path) -> None:
    """It asks and looks; it neither deletes nor sees how the server does."""

    async def main(app: App) -> None:
        asking = await Asking.of(app)
        cookie = await session(app)
        may = {
            word
            for operation, word, of in asking.guarded
            if (await asking.ask(operation, key=None, cookie=cookie, origin=f"http://{HOST}")).status != 403
            and of != "metrics"
        }
        assert may == {"add", "list", "read", "review", "run", "stop", "verify"}
        for method, path in (("DELETE", "/threads/t"), ("GET", "/metrics")):
            answer = await app.ask(method, path, key=None, cookie=cookie, origin=f"http://{HOST}")
            assert (answer.status, answer.code) == (403, "forbidden")

    run(tmp_path, main)


def test_what_the_console_may_do(tmp_path: Path) -> None:
    """It looks at everything and changes rules; and the chat in the same browser goes on to work."""

    async def main(app: App) -> None:
        asking = await Asking.of(app)
        cookie = await session(app, page="/console")
        may = {
            f"{word} {of.partition(':')[0]}"
            for operation, word, of in asking.guarded
            if (await asking.ask(operation, key=None, cookie=cookie, origin=f"http://{HOST}")).status != 403
        }
        rules = {"delete rule", "list rule", "read rule", "set rule"}
        looks = {"list answer", "count answer", "audit thread", "export audit", "trace source"}
        chats = {f"{word} thread" for word in ("list", "read", "review", "run", "stop")}
        chats |= {"add source", "list source", "read source", "verify verify"}
        assert may == rules | looks | chats

    run(tmp_path, main)


OWN = f"http://{HOST}"
JSON: dict[str, Any] = {"content_type": "application/json"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"origin": OWN}, 204),
        ("POST", {"sec_fetch_site": "same-origin"}, 204),
        ("GET", {}, 200),
        ("GET", {"sec_fetch_site": "none"}, 200),
        ("GET", {"origin": OWN}, 200),
        pytest.param("POST", {}, 401, id="no page made it"),
        pytest.param("POST", {"origin": "https://evil.example"}, 401, id="another site"),
        pytest.param("POST", {"origin": "null"}, 401, id="a sandbox"),
        pytest.param("POST", {"origin": "http://127.0.0.1:9999"}, 401, id="another port"),
        pytest.param("POST", {"origin": f"https://{HOST}"}, 401, id="another scheme"),
        pytest.param("POST", {"origin": OWN, "sec_fetch_site": "cross-site"}, 401, id="two readings"),
        pytest.param("POST", {"sec_fetch_site": "same-site"}, 401, id="a subdomain"),
        pytest.param("POST", {"sec_fetch_site": "cross-site"}, 401, id="a form of another site"),
        pytest.param("GET", {"origin": "https://evil.example"}, 401, id="read by another site"),
        pytest.param("GET", {"sec_fetch_site": "cross-site"}, 401, id="shown by another site"),
        pytest.param("GET", {"host": "evil.example"}, 401, id="rebinding"),
        pytest.param(
            "POST", {"host": "evil.example:8787", "origin": "http://evil.example:8787"}, 401, id="own origin"
        ),
        pytest.param("GET", {"host": "127.0.0.1.evil.example"}, 401, id="looks like an address"),
        pytest.param("GET", {"host": ""}, 401, id="no host"),
        pytest.param("GET", {"host": "localhost:8787"}, 200, id="by name"),
    ],
)
def test_whose_requests_a_session_speaks_for(
    tmp_path: Path, method: str, headers: dict[str, Any], status: int
) -> None:
    async def main(app: App) -> None:
        await app.ask("POST", "/agui", {"threadId": "t", "runId": "r"})
        cookie = await session(app)
        path = "/threads/t/runs/r/stop" if method == "POST" else "/threads/t"
        answer = await app.ask(method, path, key=None, cookie=cookie, **headers)
        assert answer.status == status, answer

    run(tmp_path, main)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8787", "127.0.0.1.evil.example", ""])
def test_no_session_for_a_name_that_leads_here(tmp_path: Path, host: str) -> None:
    """Also not with a key or a link: the cookie would not count there. The link is not used up."""

    async def main(app: App) -> None:
        link = app.server.sign_in_link().removeprefix(app.server.address)
        for key, path in (("", "/"), ("", "/sign-in/key"), (None, link)):
            answer = await app.ask("GET", path, key=key, host=host)
            assert (answer.status, "set-cookie" in answer.headers) == (403, False)
            assert b"--public-url" in answer.body
        assert (await app.ask("GET", link, key=None)).status == 303

    run(tmp_path, main)


@pytest.mark.parametrize(
    "settings",
    [{}, {"public_url": "https://cite.example.com"}, {"host": "0.0.0.0"}, {"host": "192.0.2.7"}],
)
@pytest.mark.parametrize("page", ["/", "/console"])
def test_a_page_is_for_who_has_a_key(tmp_path: Path, settings: dict[str, str], page: str) -> None:
    """From wherever, and however the server is called. At `/sign-in/key` the browser asks for it."""

    async def main(app: App) -> None:
        for host in ("127.0.0.1:8787", "localhost:8787", "[::1]:8787", "cite.example.com"):
            answer = await app.ask("GET", page, key=None, host=host)
            assert (answer.status, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
            assert "set-cookie" not in answer.headers
            assert b"citewire keys link" in answer.body
        # A browser sends a key to all paths beside and below the one that asks for it.
        for path, scheme in (("/sign-in", "Bearer"), ("/sign-in/key", "Basic")):
            asked = await app.ask("GET", path, key=None)
            assert (asked.status, asked.headers["www-authenticate"]) == (401, f'{scheme} realm="citewire"')
            assert b'href="/sign-in/key?page=chat"' in asked.body
        basic = f"Basic {b64encode(app.key.encode()).decode()}"
        cookie = await session(app, page=page, authorization=basic)
        assert (await app.ask("GET", "/threads", key=None, cookie=cookie)).status == 200
        wrong = await app.ask("GET", page, authorization=basic[:-8] + "AAAAAAA=")
        assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)

    run(tmp_path, main, **settings)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 204),
        ({"origin": OWN}, 204),
        ({"origin": "https://app.example.com", "sec_fetch_site": "cross-site"}, 204),
        ({"origin": "https://evil.example"}, 401),
        ({"origin": "null"}, 401),
        ({"sec_fetch_site": "cross-site"}, 401),
        ({"sec_fetch_site": "same-site"}, 401),
    ],
)
def test_a_key_that_a_browser_was_given_is_used_by_no_other_page(
    tmp_path: Path, headers: dict[str, Any], status: int
) -> None:
    """A browser sends name and password by itself, whoever makes it send the request."""

    async def main(app: App) -> None:
        await app.ask("POST", "/agui", {"threadId": "t", "runId": "r"})
        basic = f"Basic {b64encode(app.key.encode()).decode()}"
        answer = await app.ask("POST", "/threads/t/runs/r/stop", authorization=basic, **headers)
        assert answer.status == status, answer

    run(tmp_path, main, public_url="https://cite.example.com", origins=("https://app.example.com",))


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({}, True),
        ({"sec_fetch_site": "none"}, True),
        ({"sec_fetch_site": "same-origin"}, True),
        ({"sec_fetch_site": "cross-site"}, False),
        ({"sec_fetch_site": "same-site"}, False),
        ({"origin": "https://evil.example"}, False),
    ],
)
def test_another_page_starts_no_session_and_gets_no_token_with_a_key_that_a_browser_has(
    tmp_path: Path, headers: dict[str, Any], is_own: bool
) -> None:
    async def main(app: App) -> None:
        basic = f"Basic {b64encode(app.key.encode()).decode()}"
        for path, status in (("/", 200), ("/console", 200), ("/sign-in/key", 303)):
            answer = await app.ask("GET", path, authorization=basic, **headers)
            found = (answer.status, "set-cookie" in answer.headers)
            assert found == ((status, True) if is_own else (401, False)), path
            # The browser is not asked for a key on behalf of another site.
            assert "sec_fetch_site" not in headers or "Basic" not in answer.headers.get(
                "www-authenticate", ""
            )
        name = app.key.partition(":")[0]
        asked = {"keyName": name}
        answer = await app.ask("POST", f"/keys/{name}/requestToken", asked, authorization=basic, **headers)
        assert answer.status == (201 if is_own else 401), answer

    run(tmp_path, main)


def test_a_session_sends_json_as_json(tmp_path: Path) -> None:
    """A page can send a body without a type, or as a form, to any server."""

    async def main(app: App) -> None:
        cookie, body = await session(app), b'{"quotes": []}'
        kinds: list[tuple[dict[str, Any], int]] = [
            ({}, 400),
            ({"content_type": "text/plain"}, 400),
            (JSON, 200),
        ]
        for sent, status in kinds:
            answer = await app.ask("POST", "/verify", body, key=None, cookie=cookie, origin=OWN, **sent)
            assert answer.status == status, answer
        assert (await app.ask("POST", "/verify", body)).status == 200

    run(tmp_path, main)


def test_a_session_has_no_more_than_its_key(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        key = app.server.keyring.create(Capability.of({"thread:mine": ["read"], "metrics": ["read"]}))
        cookie = await session(app, key=key)
        for path, status in (("/threads/mine", 404), ("/threads/t", 403), ("/metrics", 403)):
            assert (await app.ask("GET", path, key=None, cookie=cookie)).status == status
        app.server.keyring.revoke(key.partition(":")[0])
        assert (await app.ask("GET", "/threads/mine", key=None, cookie=cookie)).status == 401

    run(tmp_path, main, public_url="https://cite.example.com")


# --- other origins ------------------------------------------------------------------------------------------


FRIEND = "https://app.example.com"
PREFLIGHT: dict[str, Any] = {
    "access_control_request_method": "POST",
    "access_control_request_headers": "authorization, content-type, last-event-id",
}


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ((FRIEND,), FRIEND, FRIEND),
        ((FRIEND,), "https://evil.example", None),
        ((FRIEND,), "https://app.example.com.evil.example", None),
        ((FRIEND,), "http://app.example.com", None),
        ((FRIEND,), "null", None),
        ((), FRIEND, None),
        (("*",), "https://evil.example", "*"),
    ],
)
def test_which_pages_may_call(
    tmp_path: Path, origins: tuple[str, ...], origin: str, allowed: str | None
) -> None:
    """With a key or a token; nobody is ever allowed to send what the browser has."""

    async def main(app: App) -> None:
        preflight = await app.ask("OPTIONS", "/agui", key=None, origin=origin, **PREFLIGHT)
        answer = await app.ask("GET", "/threads", origin=origin)
        for each in (preflight, answer):
            assert each.headers.get("access-control-allow-origin") == allowed
            assert "access-control-allow-credentials" not in each.headers
        assert preflight.status == 200 if allowed else preflight.code == "forbidden"
        if allowed != "*":
            assert "Origin" in answer.headers["vary"]
        trace: dict[str, Any] = {**PREFLIGHT, "access_control_request_method": "TRACE"}
        other = await app.ask("OPTIONS", "/agui", key=None, origin=origin, **trace)
        assert (other.status, other.code) == (403, "forbidden")

    run(tmp_path, main, origins=origins)


def test_a_page_that_may_call_has_no_session(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        cookie = await session(app)
        for method, path in (("GET", "/threads"), ("POST", "/threads/t/runs/r/stop")):
            answer = await app.ask(method, path, key=None, cookie=cookie, origin=FRIEND)
            assert (answer.status, answer.code) == (401, "no_credentials")

    run(tmp_path, main, origins=(FRIEND,))
