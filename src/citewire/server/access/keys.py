"""API keys, `app.key:secret`, and authentication with a key or with a token signed by one.

`keys.json` in the vault has a row for each key, without its secret. A key's secret is derived from its row
and the server's secret, so the server can check signatures made with it. A row that was tampered with no
longer matches the stored hash of its secret. A plain hash is enough, because nobody can guess 256 random
bits.
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
from citewire.channels.actor import SERVER, Actor
from citewire.errors import InputError
from citewire.server.access import tokens
from citewire.server.access.capability import FULL, Capability
from citewire.server.access.errors import BadCredentials, BadToken, Forbidden, NoCredentials
from citewire.server.access.origins import is_loopback
from citewire.server.access.secret import Secret
from citewire.server.storage.vault import FileVault, KeyringError, Vault, VaultVersion

__all__ = ["Caller", "Key", "KeyGrant", "Keyring", "NoKeys", "check_binding", "has_no_keys", "read_keys"]

LONGEST_TOKEN = 24 * 3600

_KEYS = "keys.json"
# How many characters of a key secret's hash identify the key.
_MARK = 16
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{1,64}")


class NoKeys(KeyringError):
    """The server is reachable from other machines, but has no keys."""

    code = "no_keys"


class Caller(Struct, frozen=True):
    """An authenticated caller. `client_id` is None if anonymous, and `*` if it may use any client id.

    A key has no `expires`. `is_session` marks a browser session, which is valid only for its page. `person`
    is the person that a token names, for the audit log only.
    """

    key: str
    capability: Capability
    client_id: str | None = None
    expires: float | None = None
    is_session: bool = False
    person: str | None = None

    @property
    def actor(self) -> Actor:
        """The caller as recorded in log rows."""
        return Actor(self.key, self.client_id, self.person)

    def may(self, operation: str, resource: str) -> bool:
        """Whether the caller is allowed to do `operation` on `resource`."""
        return self.capability.allows(operation, resource)

    def require(self, operation: str, resource: str) -> None:
        """Raise `Forbidden` unless the caller is allowed to do `operation` on `resource`."""
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
    created_by: Actor = SERVER
    revoked_by: Actor | None = None


class _LoadedKey(NamedTuple):
    """A key in memory. `issuing` is the secret that signs tokens issued by the server itself."""

    capability: Capability
    hash: str
    secret: str
    issuing: str

    def __repr__(self) -> str:
        return "_LoadedKey(…)"


class KeyGrant(NamedTuple):
    """A key's capability, and a mark unique to it, even among keys of the same name on other servers."""

    capability: Capability
    mark: str


class Keyring:
    """The keys in a vault or data folder. Safe for any number of threads and processes."""

    def __init__(
        self,
        kept: Vault | Path,
        *,
        secret: str | None = None,
        longest_token: float = LONGEST_TOKEN,
        clock: Callable[[], float] = time.time,
    ) -> None:
        vault = self.vault = FileVault(kept) if isinstance(kept, Path) else kept
        self._secret = Secret.from_vault(vault) if secret is None else Secret(secret)
        self._longest, self._clock = longest_token, clock
        self._seen: tuple[VaultVersion, Mapping[str, _LoadedKey]] = (None, {})
        # Stands in for unknown keys, so that an unknown name takes as long to refuse as a wrong secret.
        nothing = secrets.token_urlsafe(32)
        self._nobody = _LoadedKey(Capability(), _hash(nothing), nothing, nothing)

    @classmethod
    def from_vault(cls, vault: Vault) -> Keyring:
        """Return a vault's keyring, with the secret from `CITEWIRE_SECRET` if that is set."""
        return cls(vault, secret=os.environ.get("CITEWIRE_SECRET") or None)

    def create(self, capability: Capability = FULL, name: str | None = None, by: Actor = SERVER) -> str:
        """Create a key and return its text, which is never shown again. A name is never used twice."""
        name = f"citewire.{secrets.token_hex(4)}" if name is None else name
        if not _NAME.fullmatch(name):
            raise KeyringError("a key is named app.key, in letters, digits, - and _")
        with self.vault.lock():
            return self._add(name, capability, by)

    def create_development_key(self) -> str | None:
        """Create a key with full access if there are no keys yet. Otherwise return None."""
        with self.vault.lock():
            return None if self.has_keys() else self._add(f"citewire.{secrets.token_hex(4)}", FULL, SERVER)

    def revoke(self, name: str, by: Actor = SERVER) -> None:
        """Revoke a key. It and every token signed with it are refused from now on."""
        with self.vault.lock():
            keys = {key.name: key for key in self.rows()}
            if name not in keys:
                raise KeyringError(f"there is no key {name!r}")
            if keys[name].revoked is None:
                keys[name] = replace(keys[name], revoked=int(self._clock()), revoked_by=by)
            self._write(*keys.values())

    def rows(self) -> tuple[Key, ...]:
        """Return all keys, including revoked ones, oldest first."""
        return read_keys(self.vault)

    def has_keys(self) -> bool:
        """Whether there is a key that is not revoked."""
        return bool(self._known())

    def check_key(self, name: str) -> None:
        """Raise `BadCredentials` unless a key of this name exists and is not revoked."""
        self.grant_of(name)

    def grant_of(self, name: str) -> KeyGrant:
        """Return a key's grant, without its secret. Raises `BadCredentials` if it is unknown or revoked."""
        if (known := self._known().get(name)) is None:
            raise BadCredentials
        return KeyGrant(known.capability, known.hash[:_MARK])

    def widest_key(self) -> str:
        """Return the oldest key with full access, else the oldest one. Raises `KeyringError` without keys."""
        known = self._known()
        if not known:
            raise KeyringError("there is no key: `citewire keys create` makes one")
        return next((name for name, each in known.items() if each.capability == FULL), next(iter(known)))

    def caller(self, authorization: str | None, query: str | None = None) -> Caller:
        """Authenticate an `Authorization` header or, without one, the key or token in `query`.

        Basic carries a key. Bearer carries a token or a key, plain or in base64, as Ably's clients send it.
        `query` is for clients that cannot send a header. Raises `NoCredentials`, `BadCredentials`, `BadToken`
        and `TokenExpired`.
        """
        text = _credential(authorization) if authorization else query
        if not text:
            raise NoCredentials
        return self._by_key(text) if ":" in text else self._by_token(text)

    def caller_by_signature(self, name: str, text: bytes, mac: str) -> Caller:
        """Authenticate a `text` signed with a key's secret, as Ably's clients sign token requests.

        Raises `BadCredentials`.
        """
        known = self._known().get(name, self._nobody)
        expected = b64encode(hmac.digest(known.secret.encode(), text, "sha256"))
        if not hmac.compare_digest(expected, mac.encode("utf-8", "surrogatepass")):
            raise BadCredentials
        return Caller(name, known.capability, "*")

    def issue_token(
        self, key: str, capability: Capability, seconds: float, client_id: str | None = None
    ) -> str:
        """Issue a token for a key. Its capability is the intersection of `capability` and the key's.

        It is signed with a secret that the key's holder does not have, which distinguishes it from tokens
        that others sign, and it expires without leeway.
        """
        known = self._known().get(key)
        if known is None:
            raise KeyringError(f"there is no key {key!r}")
        now = self._clock()
        return tokens.mint(
            key, known.issuing, issued=int(now), expires=round(now + seconds, 3), capability=capability,
            client_id=client_id,
        )  # fmt: skip

    def seal(self, purpose: str, data: bytes) -> str:
        """See `Secret.seal`."""
        return self._secret.seal(purpose, data)

    def unseal(self, purpose: str, text: str) -> bytes:
        """See `Secret.unseal`."""
        return self._secret.unseal(purpose, text)

    def sign(self, purpose: str, text: str, expires: int) -> str:
        """Sign a link to `text`, valid for this purpose only, until `expires`."""
        return self._secret.sign(purpose, text, expires)

    def check(self, purpose: str, text: str, signature: str) -> None:
        """Raise `BadToken` or `TokenExpired` unless the link was signed for this purpose and is valid."""
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
        now, longest = self._clock(), self._longest
        if tokens.is_signed(text, known.issuing):
            # The time of issue is in whole seconds, so the lifetime may be up to a second longer.
            token = tokens.read(text, known.issuing, now=now, longest=longest + 1, leeway=0)
        else:
            token = tokens.read(text, known.secret, now=now, longest=longest)
        capability = known.capability if token.capability is None else token.capability & known.capability
        return Caller(name, capability, token.client_id, token.expires, person=token.person)

    def _add(self, name: str, capability: Capability, by: Actor) -> str:
        keys = self.rows()
        if any(key.name == name for key in keys):
            raise KeyringError(f"there is, or was, a key {name!r} already")
        key = Key(name, capability.plain(), int(self._clock()), secrets.token_hex(16))
        secret = self._secret_of(key)
        self._write(*keys, replace(key, hash=_hash(secret), created_by=by))
        return f"{name}:{secret}"

    def _write(self, *keys: Key) -> None:
        self.vault.write(_KEYS, codec.pretty(keys).encode() + b"\n")

    def _known(self) -> Mapping[str, _LoadedKey]:
        """Return the keys that are not revoked. Reloads them whenever the vault's version changes."""
        mark = self.vault.version(_KEYS)
        if self._seen[0] != mark:
            self._seen = (mark, {key.name: self._intact(key) for key in self.rows() if key.revoked is None})
        return self._seen[1]

    def _intact(self, key: Key) -> _LoadedKey:
        secret = self._secret_of(key)
        if _hash(secret) != key.hash:
            raise KeyringError(
                f"the key {key.name} in {self.vault.location(_KEYS)} was changed there, or made with another "
                "secret of the server; put that back, or revoke the key"
            )
        issuing = self._secret.derive("issued token", secret.encode())
        return _LoadedKey(Capability.of(key.capability), key.hash, secret, issuing)

    def _secret_of(self, key: Key) -> str:
        row = [key.name, key.capability, key.created, key.salt]
        return self._secret.derive("key", codec.encode(row))


def read_keys(vault: Vault) -> tuple[Key, ...]:
    """Return all keys in a vault, oldest first. Writes nothing. Raises `KeyringError`."""
    if (data := vault.read(_KEYS)) is None:
        return ()
    try:
        return msgspec.convert(codec.decode(data), tuple[Key, ...])
    except (InputError, msgspec.ValidationError) as exc:
        raise KeyringError(f"{vault.location(_KEYS)} is damaged: {exc}") from exc


def has_no_keys(vault: Vault) -> bool:
    """Whether a vault never had a key. Checks without creating a secret there."""
    return vault.version(_KEYS) is None


def check_binding(host: str, keyring: Keyring) -> None:
    """Raise `NoKeys` if the server is reachable from other machines and has no keys.

    On any host, a corrupt key is reported now and not with the first request.
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
            # Keys and tokens contain dots; base64 does not.
            return value if "." in value else _unwrapped(value, BadToken("this is no token"))
        case _:
            raise BadCredentials


def _unwrapped(value: str, refusal: Exception) -> str:
    """Decode canonical base64, or raise `refusal`."""
    try:
        data = b64decode(value, validate=True)
        if b64encode(data).decode() == value:
            return data.decode("ascii")
    except ValueError:
        pass
    raise refusal


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
