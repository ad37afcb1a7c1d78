"""API keys, `app.key:secret`, and who calls with one, or with a token that was signed with one.

`keys.json` in the data folder has a row for each key, and no secret. That of a key is derived from its row
and the secret of the server, so what others sign with it can be checked, and a row that somebody changed no
longer fits the hash that it has of its key's secret. A plain hash does, and no slow one is needed: nobody
guesses 256 random bits.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from citewire import codec
from citewire.errors import InputError
from citewire.server import private, tokens
from citewire.server.capability import FULL, Capability
from citewire.server.origins import is_loopback
from citewire.server.private import KeyringError
from citewire.server.refusals import BadCredentials, BadToken, Forbidden, NoCredentials
from citewire.server.secret import Secret

__all__ = ["Caller", "Key", "Keyring", "NoKeys", "check_binding"]

LONGEST_TOKEN = 24 * 3600

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{1,64}")


class NoKeys(KeyringError):
    """Others could reach the server, and nobody has a key."""

    code = "no_keys"


class Caller(Struct, frozen=True):
    """Who makes a request. `client_id` is None for an anonymous one, `*` for who may speak for anybody."""

    key: str
    capability: Capability
    client_id: str | None = None
    expires: float | None = None

    def may(self, operation: str, resource: str) -> bool:
        """Whether the caller is allowed to do this."""
        return self.capability.allows(operation, resource)

    def require(self, operation: str, resource: str) -> None:
        """Raises `Forbidden` unless the caller is allowed to do this."""
        if not self.may(operation, resource):
            raise Forbidden(f"this caller may not {operation} {resource}")


class Key(Struct, frozen=True, omit_defaults=True):
    """A row of `keys.json`. Times are seconds since 1970."""

    name: str
    capability: dict[str, list[str]]
    created: int
    salt: str
    hash: str = ""
    revoked: int | None = None


class _Known(NamedTuple):
    """A key as it is in memory."""

    capability: Capability
    hash: str
    secret: str

    def __repr__(self) -> str:
        return "_Known(…)"


class Keyring:
    """The keys in a data folder. Any number of threads and processes may use and change it together."""

    def __init__(
        self,
        folder: Path,
        *,
        secret: str | None = None,
        longest_token: float = LONGEST_TOKEN,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._file = folder, folder / "keys.json"
        self._secret = Secret.kept_in(folder) if secret is None else Secret(secret)
        self._longest, self._clock = longest_token, clock
        self._seen: tuple[private.Mark, Mapping[str, _Known]] = (None, {})
        # What no caller can be, so that an unknown name takes as long as a wrong secret.
        self._nobody = _Known(Capability(), _hash(secrets.token_urlsafe()), secrets.token_urlsafe(32))

    @classmethod
    def kept_in(cls, folder: Path) -> Keyring:
        """The keys of a data folder, with the secret of the environment (`CITEWIRE_SECRET`) if it has one."""
        return cls(folder, secret=os.environ.get("CITEWIRE_SECRET") or None)

    def create(self, capability: Capability = FULL, name: str | None = None) -> str:
        """A new key as text, which is not to be had again. A name is given only once, even if revoked."""
        name = f"citewire.{secrets.token_hex(4)}" if name is None else name
        if not _NAME.fullmatch(name):
            raise KeyringError("a key is named app.key, in letters, digits, - and _")
        with private.alone(self._folder):
            return self._add(name, capability)

    def development(self) -> str | None:
        """A key that may do everything, if there is no key yet; else None."""
        with private.alone(self._folder):
            return None if self.has_keys() else self._add(f"citewire.{secrets.token_hex(4)}", FULL)

    def revoke(self, name: str) -> None:
        """From now on the key, and every token signed with it, is refused."""
        with private.alone(self._folder):
            keys = {key.name: key for key in self.rows()}
            if name not in keys:
                raise KeyringError(f"there is no key {name!r}")
            keys[name] = replace(keys[name], revoked=keys[name].revoked or int(self._clock()))
            self._write(*keys.values())

    def rows(self) -> tuple[Key, ...]:
        """Every key there is or was, oldest first."""
        if (data := private.read(self._file)) is None:
            return ()
        try:
            return msgspec.convert(codec.decode(data), tuple[Key, ...])
        except (InputError, msgspec.ValidationError) as exc:
            raise KeyringError(f"{self._file} is damaged: {exc}") from exc

    def has_keys(self) -> bool:
        """Whether there is a key that is not revoked."""
        return bool(self._known())

    def check_key(self, name: str) -> None:
        """Raises `BadCredentials` unless there is a key of this name that is not revoked."""
        if name not in self._known():
            raise BadCredentials

    def caller(self, authorization: str | None, query: str | None = None) -> Caller:
        """Who calls with this `Authorization` header, or without one with the key or token in `query`.

        Basic is a key, Bearer a token or a key, as it is or in base64, as Ably's clients send it. `query` is
        for those who cannot send a header, and for the session cookie.
        Raises `NoCredentials`, `BadCredentials`, `BadToken` and `TokenExpired`.
        """
        text = _credential(authorization) if authorization else query
        if not text:
            raise NoCredentials
        return self._by_key(text) if ":" in text else self._by_token(text)

    def signer(self, name: str, text: bytes, mac: str) -> Caller:
        """Who signed `text` with the secret of this key, as Ably's clients sign requests for a token.

        Raises `BadCredentials`.
        """
        known = self._known().get(name, self._nobody)
        expected = b64encode(hmac.digest(known.secret.encode(), text, "sha256"))
        if not hmac.compare_digest(expected, mac.encode("utf-8", "surrogatepass")):
            raise BadCredentials
        return Caller(name, known.capability, "*")

    def token(self, key: str, capability: Capability, seconds: int, client_id: str | None = None) -> str:
        """A token of the key for what of `capability` the key has: the session of a page, say."""
        known = self._known().get(key)
        if known is None:
            raise KeyringError(f"there is no key {key!r}")
        now = int(self._clock())
        return tokens.mint(
            key, known.secret, issued=now, expires=now + seconds, capability=capability, client_id=client_id
        )

    def sign(self, purpose: str, text: str, expires: int) -> str:
        """What makes a link to `text` good until `expires`, for nothing but this purpose."""
        return self._secret.sign(purpose, text, expires)

    def check(self, purpose: str, text: str, signature: str) -> None:
        """Raises `BadToken` or `TokenExpired` unless the link was signed for just this and still holds."""
        self._secret.check(purpose, text, signature, self._clock())

    def _by_key(self, text: str) -> Caller:
        name, _, secret = text.partition(":")
        known = self._known().get(name, self._nobody)
        if not hmac.compare_digest(_hash(secret), known.hash):
            raise BadCredentials
        return Caller(name, known.capability, "*")

    def _by_token(self, text: str) -> Caller:
        name = tokens.key_name(text)
        known = self._known().get(name, self._nobody)
        token = tokens.read(text, known.secret, now=self._clock(), longest=self._longest)
        capability = known.capability if token.capability is None else token.capability & known.capability
        return Caller(name, capability, token.client_id, token.expires)

    def _add(self, name: str, capability: Capability) -> str:
        keys = self.rows()
        if any(key.name == name for key in keys):
            raise KeyringError(f"there is, or was, a key {name!r} already")
        key = Key(name, capability.plain(), int(self._clock()), secrets.token_hex(16))
        secret = self._secret_of(key)
        self._write(*keys, replace(key, hash=_hash(secret)))
        return f"{name}:{secret}"

    def _write(self, *keys: Key) -> None:
        private.write(self._file, codec.pretty(keys).encode() + b"\n")

    def _known(self) -> Mapping[str, _Known]:
        """The keys that are not revoked, read again whenever the file is another one."""
        mark = private.mark(self._file)
        if self._seen[0] != mark:
            self._seen = (mark, {key.name: self._intact(key) for key in self.rows() if key.revoked is None})
        return self._seen[1]

    def _intact(self, key: Key) -> _Known:
        secret = self._secret_of(key)
        if _hash(secret) != key.hash:
            raise KeyringError(
                f"the key {key.name} in {self._file} was changed there, or made with another secret of the "
                "server; put that back, or revoke the key"
            )
        return _Known(Capability.of(key.capability), key.hash, secret)

    def _secret_of(self, key: Key) -> str:
        row = [key.name, key.capability, key.created, key.salt]
        return self._secret.derive("key", codec.encode(row))


def check_binding(host: str, keyring: Keyring) -> None:
    """Raises `NoKeys` where others can reach the server and there is no key to keep them out.

    Wherever it is bound, a key that is not intact is told of now and not with the first request.
    """
    if not keyring.has_keys() and not is_loopback(host):
        raise NoKeys(f"others can reach {host}: `citewire keys create` makes a key, or bind to 127.0.0.1")


def _credential(authorization: str) -> str:
    scheme, _, value = authorization.strip().partition(" ")
    value = value.strip()
    match scheme.lower():
        case "basic":
            return _unwrapped(value, BadCredentials())
        case "bearer":
            # A key and a token have dots, base64 has none.
            return value if "." in value else _unwrapped(value, BadToken("this is no token"))
        case _:
            raise BadCredentials


def _unwrapped(value: str, refusal: Exception) -> str:
    """Base64 that is written in the one way there is."""
    try:
        data = b64decode(value, validate=True)
        if b64encode(data).decode() == value:
            return data.decode("ascii")
    except ValueError:
        pass
    raise refusal


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
