"""The one secret of a server, from which every other one is derived."""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode

from citewire.server.refusals import BadToken, TokenExpired
from citewire.server.vault import KeyringError, Vault

__all__ = ["Secret"]

_NAME = "secret"
# Characters. 43 of base64 are 256 bits; of a secret that somebody made up there is no telling.
_SHORTEST = 32


class Secret:
    """Derives keys and signs links. It never shows itself."""

    def __init__(self, text: str) -> None:
        if len(text) < _SHORTEST:
            raise KeyringError(f"the secret of the server needs at least {_SHORTEST} characters")
        self._key = text.encode()

    @classmethod
    def kept_in(cls, vault: Vault) -> Secret:
        """The secret in the vault, made at random when it is first asked for."""
        if (data := vault.read(_NAME, secret=True)) is None:
            with vault.alone():
                if (data := vault.read(_NAME, secret=True)) is None:
                    data = secrets.token_urlsafe(32).encode()
                    vault.write(_NAME, data)
        try:
            return cls(data.decode("ascii").strip())
        except UnicodeDecodeError as exc:
            raise KeyringError(f"{vault.where(_NAME)} is not a secret of citewire") from exc

    def derive(self, purpose: str, message: bytes) -> str:
        """43 characters that nobody can tell who has not the secret; other purposes give other ones."""
        key = hmac.digest(self._key, purpose.encode(), "sha256")
        return urlsafe_b64encode(hmac.digest(key, message, "sha256")).decode().rstrip("=")

    def sign(self, purpose: str, text: str, expires: int) -> str:
        """A signature for a link, to be shown with `text` until `expires`, in seconds since 1970."""
        return f"{expires}.{self._signature(purpose, text, str(expires))}"

    def check(self, purpose: str, text: str, signature: str, now: float) -> None:
        """Raises `BadToken` unless it was signed for just this, `TokenExpired` if it no longer holds."""
        expires, _, given = signature.partition(".")
        if not hmac.compare_digest(self._signature(purpose, text, expires).encode(), _bytes(given)):
            raise BadToken("this link is not one of ours")
        if now >= int(expires):
            raise TokenExpired("this link has expired")

    def _signature(self, purpose: str, text: str, expires: str) -> str:
        return self.derive(f"link {purpose}", _bytes(f"{expires}.{text}"))


def _bytes(text: str) -> bytes:
    """Of any text, as it may come in a URL."""
    return text.encode("utf-8", "surrogatepass")
