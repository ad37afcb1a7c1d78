"""The server's secret, from which all other secrets are derived."""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode

from citewire.server.access.errors import BadToken, TokenExpired
from citewire.server.storage.vault import KeyringError, Vault

__all__ = ["Secret"]

_NAME = "secret"
# In characters. 43 characters of base64 are 256 bits; the entropy of a hand-made secret is unknown.
_SHORTEST = 32
# Size in bytes of the tag of sealed data, and of the padding block that hides its length.
_TAG, _BLOCK = 16, 32


class Secret:
    """Derives keys, signs links and seals texts. The secret itself cannot be read."""

    def __init__(self, text: str) -> None:
        if len(text) < _SHORTEST:
            raise KeyringError(f"the secret of the server needs at least {_SHORTEST} characters")
        self._key = text.encode()

    @classmethod
    def from_vault(cls, vault: Vault) -> Secret:
        """Return the secret in the vault. Creates a random one on first use."""
        if (data := vault.read(_NAME, secret=True)) is None:
            with vault.lock():
                if (data := vault.read(_NAME, secret=True)) is None:
                    data = secrets.token_urlsafe(32).encode()
                    vault.write(_NAME, data)
        try:
            return cls(data.decode("ascii").strip())
        except UnicodeDecodeError as exc:
            raise KeyringError(f"{vault.location(_NAME)} is not a secret of citewire") from exc

    def derive(self, purpose: str, message: bytes) -> str:
        """Derive a 43-character secret for `purpose`. Different purposes give unrelated results."""
        digest = hmac.digest(self._subkey(purpose), message, "sha256")
        return urlsafe_b64encode(digest).decode().rstrip("=")

    def sign(self, purpose: str, text: str, expires: int) -> str:
        """Sign a link to `text` for `purpose`, valid until `expires`, in seconds since 1970."""
        return f"{expires}.{self._signature(purpose, text, str(expires))}"

    def check(self, purpose: str, text: str, signature: str, now: float) -> None:
        """Raise `BadToken` unless `text` was signed for this purpose, `TokenExpired` if it has expired."""
        expires, _, given = signature.partition(".")
        if not hmac.compare_digest(self._signature(purpose, text, expires).encode(), _bytes(given)):
            raise BadToken("this link is not one of ours")
        if now >= int(expires):
            raise TokenExpired("this link has expired")

    def seal(self, purpose: str, data: bytes) -> str:
        """Encrypt and authenticate `data` for one purpose, as URL-safe text. Equal data gives equal text.

        The tag is a MAC of the data and also the IV of the key stream (SIV), so no random number is needed.
        """
        padded = data + b"\x80" + bytes(-(len(data) + 1) % _BLOCK)
        tag = self._tag(purpose, padded)
        return urlsafe_b64encode(tag + self._encrypt(purpose, tag, padded)).decode().rstrip("=")

    def unseal(self, purpose: str, text: str) -> bytes:
        """Decrypt data sealed for this purpose. Raises `BadToken` for anything else."""
        sealed = _decode(text)
        tag, padded = sealed[:_TAG], self._encrypt(purpose, sealed[:_TAG], sealed[_TAG:])
        if not hmac.compare_digest(self._tag(purpose, padded), tag):
            raise BadToken("this was not made by this server")
        return padded.rstrip(b"\0")[:-1]

    def _tag(self, purpose: str, padded: bytes) -> bytes:
        return hmac.digest(self._subkey(f"seal {purpose}"), padded, "sha256")[:_TAG]

    def _encrypt(self, purpose: str, tag: bytes, data: bytes) -> bytes:
        """XOR `data` with a key stream that depends on the tag. The same call decrypts."""
        key = self._subkey(f"stream {purpose}")
        count = -(-len(data) // 32)
        stream = b"".join(hmac.digest(key, tag + at.to_bytes(4), "sha256") for at in range(count))
        return bytes(one ^ other for one, other in zip(data, stream, strict=False))

    def _subkey(self, purpose: str) -> bytes:
        return hmac.digest(self._key, purpose.encode(), "sha256")

    def _signature(self, purpose: str, text: str, expires: str) -> str:
        return self.derive(f"link {purpose}", _bytes(f"{expires}.{text}"))


def _decode(text: str) -> bytes:
    """Decode canonical base64. Raises `BadToken` for anything else."""
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        data = b""
    if not data or urlsafe_b64encode(data).decode().rstrip("=") != text:
        raise BadToken("this was not made by this server")
    return data


def _bytes(text: str) -> bytes:
    """Encode any text, also with lone surrogates, as URLs may contain them."""
    return text.encode("utf-8", "surrogatepass")
