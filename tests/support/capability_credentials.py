"""Random credentials for the capability fuzzer: keys, tokens and sessions, good and bad."""

from __future__ import annotations

import random
import secrets
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import jwt

from citewire.server.access.capability import Capability
from support.app import HOST, App
from support.capability_model import CHAT, CONSOLE, EVERYTHING, Credential, Granted, Request
from support.capability_requests import RULES, THREADS

PATTERNS = (
    "thread:*", "thread:ann:*", "thread:ann:1", "thread:bob", "thread:bob:*", "thread:*:1", "thread:a/b",
    "source:*", "answer:*", "audit", "rule:*", "rule:chat:*", "verify", "attachments", "metrics",
    "chat:*", "chat:ann", "chat:bob", "chat:bob:*", "news", "ai:*", "*", "[*]*", "[meta]*", "thread",
)  # fmt: skip
OPERATIONS = (
    "add", "annotation-publish", "annotation-subscribe", "audit", "channel-metadata", "count", "delete",
    "export", "extend", "history", "list", "message-delete-any", "message-delete-own", "message-update-any",
    "message-update-own", "presence", "publish", "read", "replace", "review", "run", "set", "stop",
    "subscribe", "trace", "verify",
)  # fmt: skip
CLIENTS = (None, "ann", "bob")
# Keys that are used by turns: each one makes the file of keys longer.
KEYS = 24


class Credentials:
    """Random credentials, good and bad."""

    def __init__(self, app: App, rng: random.Random) -> None:
        self._app, self._rng = app, rng
        self._keys: list[tuple[str, Granted]] = []
        self._hint: tuple[str, str] | None = None
        self._makers = (
            self.nothing, self.key, self.key, self.token, self.token, self.token, self.token, self.session,
            self.session, self.session, self.revoked, self.expired, self.forged, self.session_as_bearer,
            self.widened,
        )  # fmt: skip

    async def random(self, request: Request) -> Credential:
        """Any credential; its capability often has just what the request needs."""
        self._hint = request.needs[0] if request.needs else None
        return await self._rng.choice(self._makers)()

    def capability(self) -> Granted:
        """Often narrow, sometimes nearly everything."""
        rng = self._rng
        if self._hint and rng.random() < 0.5:
            operation, resource = self._hint
            return {resource: [operation], rng.choice(PATTERNS): [rng.choice(OPERATIONS)]}
        if rng.random() < 0.1:
            return EVERYTHING
        patterns = rng.sample(PATTERNS, rng.randint(1, 5))
        return {
            pattern: ["*"] if rng.random() < 0.15 else rng.sample(OPERATIONS, rng.randint(1, 12))
            for pattern in patterns
        }

    def _key(self) -> tuple[str, Granted]:
        """A key with its capability, new or one of those before."""
        if not self._keys or (len(self._keys) < KEYS and self._rng.random() < 0.3):
            self._keys.append(self._new_key())
        return self._rng.choice(self._keys)

    def _new_key(self) -> tuple[str, Granted]:
        granted = self.capability() if self._rng.random() < 0.5 else EVERYTHING
        return self._app.server.keyring.create(Capability.of(granted)), granted

    def _headers(self, text: str) -> dict[str, str]:
        encoded = b64encode(text.encode()).decode()
        forms = [f"Bearer {text}", f"Bearer {encoded}"] + ([f"Basic {encoded}"] if ":" in text else [])
        return {"authorization": self._rng.choice(forms)}

    def _signed(self, key: str, granted: Granted | None, client_id: str | None, **times: float) -> str:
        name, _, secret = key.partition(":")
        now = int(time.time())
        claims: dict[str, Any] = {"iat": now, "exp": now + 600, **times}
        if granted is not None:
            claims["capability"] = granted
        if client_id is not None:
            claims["sub"] = client_id
        return jwt.encode(claims, secret, "HS256", headers={"kid": name})

    async def nothing(self) -> Credential:
        return Credential("nothing", {}, [], is_known=False)

    async def key(self) -> Credential:
        text, granted = self._key()
        return Credential("key", self._headers(text), [granted], client_id="*", text=text)

    def _token(self) -> tuple[str, list[Granted], str | None]:
        text, granted = self._key()
        own = None if self._rng.random() < 0.1 else self.capability()
        client_id = self._rng.choice(CLIENTS)
        return self._signed(text, own, client_id), [granted, *([own] if own else [])], client_id

    async def token(self) -> Credential:
        text, granted, client_id = self._token()
        if self._rng.random() < 0.2:
            return Credential("token in query", {}, granted, client_id=client_id, text=text, in_query=True)
        return Credential("token", self._headers(text), granted, client_id=client_id, text=text)

    async def session(self) -> Credential:
        """A page loaded with a key or a token, then its cookie."""
        page, most = self._rng.choice([("/", CHAT), ("/console", CONSOLE)])
        text, granted, client_id = self._token()
        if self._rng.random() < 0.4:
            text, of_key = self._key()
            granted, client_id = [of_key], None
        loaded = await self._app.ask("GET", page, authorization=f"Bearer {text}")
        found = Credential(f"session of {page}", {}, [*granted, most], client_id=client_id, is_session=True)
        if loaded.status == 403:  # nothing of what it may do is for this page
            assert not any(found.may(*each) for each in self._of_pages()), found
            return await self.nothing()
        assert loaded.status == 200, loaded
        cookie = loaded.headers["set-cookie"].partition(";")[0]
        return found._replace(headers={"cookie": cookie, "origin": f"http://{HOST}"})

    def _of_pages(self) -> Iterator[tuple[str, str]]:
        """Things that pages may do."""
        names = [*(f"thread:{each}" for each in (*THREADS, "*", "x")), "source:x", "source:*", "answer:*"]
        for name in (*names, *(f"rule:{each}" for each in (*RULES, "*", "x")), "audit", "verify"):
            yield from ((operation, name) for operation in OPERATIONS)

    async def revoked(self) -> Credential:
        """A key, a token or a session, after its key was revoked."""
        kept, self._keys = self._keys, [self._new_key()]
        found = await self._rng.choice([self.key, self.token, self.session])()
        for text, _ in self._keys:
            self._app.server.keyring.revoke(text.partition(":")[0])
        self._keys = kept
        return found._replace(label=f"revoked {found.label}", is_known=False)

    async def expired(self) -> Credential:
        text, granted = self._key()
        ended = self._signed(text, None, None, iat=time.time() - 600, exp=time.time() - 60)
        return Credential("expired token", self._headers(ended), [granted], is_known=False, text=ended)

    async def forged(self) -> Credential:
        """Signed with another secret, cut short, or of no key at all."""
        text, granted = self._key()
        name = text.partition(":")[0]
        token = self._signed(text, None, None)
        wrong = self._rng.choice(
            [
                f"{name}:{secrets.token_urlsafe(32)}",
                f"{text}x",
                self._signed(f"{name}:{'x' * 43}", EVERYTHING, None),
                f"{token[:-4]}AAAA",
                jwt.encode({"capability": EVERYTHING}, "", "none", headers={"kid": name}),
            ]
        )
        headers = {"authorization": f"Bearer {wrong}"}
        return Credential("forged", headers, [granted], is_known=False, text=wrong)

    async def session_as_bearer(self) -> Credential:
        """The value of a cookie shown where a token belongs."""
        found = await self.session()
        if not found.is_session:
            return found
        value = found.headers["cookie"].partition("=")[2]
        headers = {"authorization": f"Bearer {value}"}
        return found._replace(label="session as bearer", headers=headers, is_known=False, text=value)

    async def widened(self) -> Credential:
        """A session that loads the other page in the hope of getting a wider or longer one."""
        first = await self.session()
        if not first.is_session:
            return first
        page = self._rng.choice(["/", "/console"])
        again = await self._app.ask("GET", page, key=None, cookie=first.headers["cookie"])
        assert "set-cookie" not in again.headers, again
        return first._replace(label="session after another page")
