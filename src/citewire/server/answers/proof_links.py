"""Make, check and renew signed links to proofs.

The signature of a page also opens its pictures. The signature of a picture opens pictures only, so a
picture's link does not lead to the page, which contains new links. Each signature contains its expiry time.
"""

from __future__ import annotations

import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256

import msgspec

from citewire.agui.citations.records import ProofUrls
from citewire.agui.events import write_json
from citewire.server.access.errors import AccessRefused, BadLink, BadToken, LinkExpired, TokenExpired
from citewire.server.access.keys import Keyring
from citewire.verification.document_set import CheckResult

__all__ = ["ProofLinks"]

_LINK = re.compile(
    rb"https?://(?:[\w.-]+|\[[\da-f:]+\])(?::\d+)?(?:/[\w./~-]*?)?"
    rb"/proofs/([\w-]+\.[0-9a-f]{32})(\.\w+)?\?sig=(\d+\.[\w-]{43})"
)
_PAGE, _PICTURE = "proof", "proof picture"
# A link stays the same for a part of its lifetime, so that a browser can cache its picture.
_PARTS, _LONGEST_PART = 24, 3600


class ProofLinks:
    """The links to the proofs of a server at `address`.

    A link works for `lifetime` seconds, or up to `part` seconds longer.
    """

    def __init__(
        self, keyring: Keyring, address: str, lifetime: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._keyring, self._address, self._clock = keyring, address.rstrip("/"), clock
        self._lifetime = int(lifetime)
        self.part = max(1, min(self._lifetime // _PARTS, _LONGEST_PART))

    def make(self, thread_id: str, message_id: str, key: str, checked: CheckResult) -> ProofUrls:
        """Make the links to the proof of a verdict that is about to be recorded."""
        about = write_json([message_id, key, msgspec.structs.replace(checked, id=None)])
        name = f"{_token(thread_id)}.{sha256(about).hexdigest()[:32]}"
        picture = self._address + self.sign(name, ".avif") if checked.boxes else None
        return ProofUrls(self._address + self.sign(name), picture)

    def sign(self, name: str, ending: str = "", latest: float | None = None) -> str:
        """Return the signed path of a proof, or of its picture if there is an `ending`. Valid for a lifetime.

        The link expires at `latest` at the latest.
        """
        end = self._end() if latest is None else min(self._end(), int(latest))
        return f"/proofs/{name}{ending}?sig={self._keyring.sign(_purpose(ending), name, end)}"

    def check(self, name: str, ending: str, signature: str) -> int:
        """Return when the link expires, in seconds since 1970. Raises `BadLink` and `LinkExpired`."""
        end = signature.partition(".")[0]
        for purpose in {_PAGE, _purpose(ending)}:
            try:
                self._keyring.check(purpose, name, signature)
            except BadToken:
                continue
            except TokenExpired:
                raise LinkExpired(int(end)) from None
            return int(end)
        raise BadLink

    def renew(self, thread_id: str, data: bytes) -> bytes:
        """Replace every link in `data` to a proof of this thread by a new one, with this server's address.

        Call it only for callers who may read the thread. Links to other threads are left as they are, since
        anyone can get an old link echoed back.
        """
        token = f"{_token(thread_id)}."

        def renewed(found: re.Match[bytes]) -> bytes:
            name, ending, signature = (part.decode() if part else "" for part in found.groups())
            ours = name.startswith(token) and self._was_signed(name, ending, signature)
            return f"{self._address}{self.sign(name, ending)}".encode() if ours else found[0]

        return _LINK.sub(renewed, data)

    def _was_signed(self, name: str, ending: str, signature: str) -> bool:
        try:
            self.check(name, ending, signature)
        except LinkExpired:
            return True
        except AccessRefused:
            return False
        return True

    def _end(self) -> int:
        return (int(self._clock()) + self._lifetime) // self.part * self.part + self.part


def _purpose(ending: str) -> str:
    return _PICTURE if ending else _PAGE


def _token(thread_id: str) -> str:
    return urlsafe_b64encode(thread_id.encode()).decode().rstrip("=")
