"""JSON Web Tokens as Ably's clients sign them: HS256 with a key's secret, and the key's name as `kid`.

A token has a time of issue and an expiry. It may have a client id and a subset of the key's capability, in
Ably's claims `x-ably-clientId` and `x-ably-capability` (JSON in a string), or in `sub` and `capability` (an
object). It may name the `person` behind it, which the audit log records.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias, TypeVar

import jwt
import msgspec
from msgspec import Meta, Struct, field

from citewire import codec
from citewire.errors import InputError
from citewire.server.access.capability import Capability
from citewire.server.access.errors import BadToken, TokenExpired

__all__ = ["AccessToken", "is_signed", "key_name", "mint", "read"]

_ALGORITHM = "HS256"
# Seconds by which the signer's clock may differ from ours.
LEEWAY = 30

# The last character of a signature has two unused bits, which must be zero, so each token has one spelling.
_FORM = re.compile(r"[\w-]+\.[\w-]+\.[\w-]{42}[AEIMQUYcgkosw048]", re.ASCII)
_jws = jwt.PyJWS(algorithms=[_ALGORITHM])

_T = TypeVar("_T")
_Time: TypeAlias = Annotated[float, Meta(ge=0, le=2**53)]
_Client: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]


class AccessToken(Struct, frozen=True):
    """The claims of a token. Without a capability it has its key's; without a client id it is anonymous.

    `person` names the person behind it, for the audit log only.
    """

    expires: float
    capability: Capability | None
    client_id: str | None
    person: str | None = None


class _Claims(Struct, frozen=True):
    exp: _Time
    iat: _Time
    nbf: _Time = 0
    aud: Any = None
    sub: _Client | None = None
    capability: dict[str, Any] | None = None
    person: _Client | None = None
    ably_client: _Client | None = field(default=None, name="x-ably-clientId")
    ably_capability: str | None = field(default=None, name="x-ably-capability")


def mint(
    name: str, secret: str, *, issued: int, expires: float, capability: Capability, client_id: str | None
) -> str:
    """Sign a token with the key called `name`."""
    claims = {
        "iat": issued,
        "exp": expires,
        "x-ably-capability": codec.encode(capability.plain()).decode(),
        **({} if client_id is None else {"x-ably-clientId": client_id}),
    }
    return _jws.encode(codec.encode(claims), secret, _ALGORITHM, headers={"kid": name})


def key_name(text: str) -> str:
    """Return the name of the key that a token claims to be signed with. Raises `BadToken`."""
    if not _FORM.fullmatch(text):
        raise BadToken("this is no token")
    try:
        name = _jws.get_unverified_header(text).get("kid")
    except jwt.PyJWTError as exc:
        raise BadToken("this is no token") from exc
    if not isinstance(name, str):
        raise BadToken("the header of a token has the name of its key, `kid`")
    return name


def is_signed(text: str, secret: str) -> bool:
    """Whether the token was signed with this secret."""
    try:
        _jws.decode(text, secret, algorithms=[_ALGORITHM])
    except jwt.PyJWTError:
        return False
    return True


def read(text: str, secret: str, *, now: float, longest: float, leeway: float = LEEWAY) -> AccessToken:
    """Verify a token's signature and expiry and return its claims. Raises `BadToken` and `TokenExpired`.

    A token is accepted for `leeway` seconds after it expires.
    """
    try:
        payload = _jws.decode(text, secret, algorithms=[_ALGORITHM])
    except jwt.PyJWTError as exc:
        raise BadToken("the signature of the token is wrong") from exc
    try:
        claims = msgspec.convert(codec.decode(payload), _Claims)
        return _token(claims, now, longest, leeway)
    except (InputError, msgspec.ValidationError) as exc:
        raise BadToken(f"the token says what it may not: {exc}") from exc


def _token(claims: _Claims, now: float, longest: float, leeway: float) -> AccessToken:
    if claims.aud is not None:
        raise BadToken("the token is for another audience, `aud`")
    if not 0 < claims.exp - claims.iat <= longest:
        raise BadToken(f"a token ends after it was made, and within {longest:.0f} s")
    if max(claims.iat, claims.nbf) > now + LEEWAY:
        raise BadToken("the token is dated in the future; check the clock of the machine that signed it")
    if claims.exp <= now - leeway:
        raise TokenExpired("the token has expired")
    ours = None if claims.capability is None else Capability.of(claims.capability)
    ablys = None if claims.ably_capability is None else Capability.of(codec.decode(claims.ably_capability))
    client = _one(claims.sub, claims.ably_client, "client")
    return AccessToken(claims.exp, _one(ours, ablys, "capability"), client, claims.person)


def _one(ours: _T | None, ablys: _T | None, what: str) -> _T | None:
    """Return the claim that is present. If both are, they must be equal."""
    if None not in (ours, ablys) and ours != ablys:
        raise BadToken(f"the token names its {what} twice, and not alike")
    return ablys if ours is None else ours
