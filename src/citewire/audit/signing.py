"""Ed25519 keys that sign statements of the audit log, and the list of public keys that a verifier trusts.

A private key as text is its 32 bytes in base64url, then, after dots, the statements by which earlier keys
introduced it. A public key as text is `ed25519:` and its 32 bytes in base64url.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct
from msgspec.structs import replace

from citewire.errors import CitewireError, InputError

__all__ = [
    "AuditKey",
    "KeyIntroduction",
    "KeyProblem",
    "SignedStatement",
    "TrustedKeys",
    "check_public_key",
    "key_id",
]

_PREFIX = "ed25519:"
_BYTES = 32
# Domain separation: a signature for one purpose is invalid for any other.
_DOMAIN = b"citewire audit statement 1\n"
_MAC_DOMAIN = b"citewire audit slot 1"

_S = TypeVar("_S", bound="SignedStatement")


class KeyProblem(CitewireError):
    """An audit key that cannot be used."""

    code = "bad_audit_key"


class SignedStatement(Struct, frozen=True, kw_only=True):
    """A statement signed by the holder of `key`.

    The signature covers the JSON of the statement with an empty signature: all fields in the order of their
    declaration, without whitespace.
    """

    key: str = ""
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """The bytes that are signed."""
        return _DOMAIN + msgspec.json.encode(replace(self, signature=""))


class KeyIntroduction(SignedStatement, frozen=True, tag="key"):
    """A public key that replaces the key that signs this."""

    public: str
    at: str


class AuditKey:
    """A private key that signs statements. Its `repr` does not reveal it."""

    def __init__(self, seed: bytes, introductions: tuple[KeyIntroduction, ...] = ()) -> None:
        self._seed, self._private = seed, Ed25519PrivateKey.from_private_bytes(seed)
        self.public = _public_text(self._private.public_key().public_bytes_raw())
        self.introductions = introductions
        self._mac_key = hmac.digest(seed, _MAC_DOMAIN, "sha256")
        if introductions and introductions[-1].public != self.public:
            raise KeyProblem("the audit key is not the one that was introduced last")

    @classmethod
    def create(cls) -> AuditKey:
        """Generate a random key."""
        return cls(secrets.token_bytes(_BYTES))

    @classmethod
    def parse(cls, text: str) -> AuditKey:
        """Parse the text form of a key. Raises `KeyProblem`, which reveals nothing of the text."""
        seed, *introduced = text.strip().split(".")
        try:
            statements = (msgspec.json.decode(_decoded(each), type=KeyIntroduction) for each in introduced)
            return cls(_decoded(seed, _BYTES), tuple(statements))
        except (ValueError, msgspec.MsgspecError):
            raise KeyProblem("this is no audit key: `citewire audit key create` makes one") from None

    def write(self) -> str:
        """Return the text form of the key. Store it where nobody else can read it."""
        return ".".join(
            [_encoded(self._seed), *(_encoded(msgspec.json.encode(s)) for s in self.introductions)]
        )

    def rotate(self, at: str) -> AuditKey:
        """Generate a new key, introduced by this one."""
        seed = secrets.token_bytes(_BYTES)
        introduced = self.sign(KeyIntroduction(public=AuditKey(seed).public, at=at))
        return AuditKey(seed, (*self.introductions, introduced))

    def sign(self, statement: _S) -> _S:
        """Return the statement with our signature."""
        named = replace(statement, key=self.public)
        return replace(named, signature=_encoded(self._private.sign(named.signed_bytes())))

    def mac(self, message: bytes) -> str:
        """Return an HMAC of the message that only a holder of the private key can make or verify."""
        return hmac.digest(self._mac_key, message, "sha256").hex()

    def __repr__(self) -> str:
        return f"AuditKey({key_id(self.public)})"


class TrustedKeys:
    """The public keys that a verifier trusts. Without any, every signer is unknown.

    A key introduced by a trusted key is trusted too. Statements covered by a head that was saved elsewhere
    (`is_pinned`) may be signed by any key: the hash in that head vouches for them.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._keys = {check_public_key(key) for key in keys}
        self.is_empty = not self._keys
        self.unknown: set[str] = set()
        """The public keys that have signed something and are not trusted."""
        self.known: set[str] = set()
        """The trusted keys that have signed something."""
        self.pinned: set[str] = set()
        """Other keys, all of whose accepted signatures are covered by a head that was kept elsewhere."""

    def find_problem(self, statement: SignedStatement, *, is_pinned: bool = False) -> str | None:
        """Return what is wrong with the signature of a statement, or None.

        A valid signature by an unknown key is a problem only if some key is trusted. Without trusted keys the
        signer is only added to `unknown`.
        """
        if not _is_signed(statement):
            return "its signature is wrong"
        if statement.key in self._keys:
            self.known.add(statement.key)
            return None
        if is_pinned and not self.is_empty:
            self.pinned.add(statement.key)
            return None
        self.unknown.add(statement.key)
        return None if self.is_empty else f"it is signed by the unknown key {key_id(statement.key)}"

    def introduce(self, statement: KeyIntroduction, *, is_pinned: bool = False) -> str | None:
        """Trust a key that a trusted key introduces. Return what is wrong with the statement, or None.

        Any key may introduce one that is already trusted: that changes nothing.
        """
        if statement.public in self._keys and statement.key not in self._keys and _is_signed(statement):
            return None
        problem = self.find_problem(statement, is_pinned=is_pinned)
        if problem is None and statement.key in self._keys:
            self._keys.add(statement.public)
        return problem


def key_id(public: str) -> str:
    """Return the short name of a public key, for people."""
    return sha256(public.encode()).hexdigest()[:16]


def check_public_key(text: str) -> str:
    """Check that a text is the canonical form of a public key, and return it. Raises `InputError`."""
    text = text.strip()
    try:
        if text.startswith(_PREFIX) and _public_text(_decoded(text[len(_PREFIX) :], _BYTES)) == text:
            return text
    except ValueError:
        pass
    raise InputError("a public audit key is written as `citewire audit key show` prints it: ed25519:…")


def _is_signed(statement: SignedStatement) -> bool:
    try:
        public = Ed25519PublicKey.from_public_bytes(_decoded(check_public_key(statement.key)[8:], _BYTES))
        public.verify(_decoded(statement.signature), statement.signed_bytes())
    except (InputError, InvalidSignature, ValueError):
        return False
    return True


def _public_text(raw: bytes) -> str:
    return _PREFIX + _encoded(raw)


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str, size: int | None = None) -> bytes:
    """Decode base64url. Raises `ValueError`, also for a non-canonical encoding."""
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encoded(data) != text or size not in (None, len(data)):
        raise ValueError("not base64url")
    return data
