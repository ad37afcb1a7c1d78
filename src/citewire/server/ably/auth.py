"""Authenticate Ably clients: the caller behind a key or token, its channels and its client id."""

from __future__ import annotations

import re
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from starlette.requests import Request

from citewire import codec
from citewire.channels.channels import Channels
from citewire.channels.message import Action, Publisher
from citewire.server.ably.errors import AblyError
from citewire.server.ably.publish_rates import PublishRates
from citewire.server.access.capability import Capability
from citewire.server.access.errors import BadCredentials, BadToken, Forbidden, NoCredentials
from citewire.server.access.keys import LONGEST_TOKEN, Caller, Keyring
from citewire.server.access.used_names import UsedNames
from citewire.server.http.operations import Authenticate
from citewire.server.http.pagination import SealedCursors

__all__ = ["AblyAuthenticator", "Client", "KeyRealm", "TokenDetails", "TokenRequest", "client_of"]

MS = 1000
_TTL = 60 * 60 * MS
"""Default lifetime of a token, in milliseconds."""
_SKEW = 2 * 60 * MS
"""How far the timestamp of a token request may differ from the server's clock, in milliseconds."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_JUDGED = 1000
# A connection key is valid as long as its channels exist.
_FOREVER = 1 << 40

_T = TypeVar("_T")
_EDITS = {Action.UPDATE: "message-update", Action.APPEND: "message-update", Action.DELETE: "message-delete"}


class Client(Struct, frozen=True):
    """An authenticated caller, the channels its key leads to, and its client id."""

    caller: Caller
    channels: Channels
    client_id: str | None
    _judged: dict[tuple[str, str], bool] = {}

    def may(self, operation: str, channel: str) -> bool:
        """Whether the client may do `operation` on `channel`. Cached, because every frame asks this."""
        found = self._judged.get((operation, channel))
        if found is None:
            if len(self._judged) >= _JUDGED:
                self._judged.clear()
            found = self._judged[operation, channel] = self.caller.may(operation, channel)
        return found

    def require(self, operation: str, channel: str) -> None:
        """Raise `AblyError` unless the client may do `operation` on `channel`."""
        if not self.may(operation, channel):
            raise AblyError(40160, f"this client may not {operation} {channel}", 401)

    def authorize_publish(
        self, channel: str, actions: Iterable[Action], **frame: str | int | None
    ) -> Publisher:
        """Return the publisher for messages with these actions. Raises `AblyError` if one is not allowed."""
        own_only = False
        for action in set(actions):
            if (edit := _EDITS.get(action)) is None:
                self.require("publish", channel)
            elif not self.may(f"{edit}-any", channel):
                self.require(f"{edit}-own", channel)
                own_only = True
        return Publisher(client_id=self.client_id, own_only=own_only, **frame)  # pyright: ignore[reportArgumentType]

    def authorize_annotate(self, channel: str, **frame: str | int | None) -> Publisher:
        """Return the publisher for annotations. Raises `AblyError` if they are not allowed."""
        self.require("annotation-publish", channel)
        return Publisher(client_id=self.client_id, **frame)  # pyright: ignore[reportArgumentType]


def client_of(caller: Caller, channels: Channels, given: str | None) -> Client:
    """Return the client with the id `given`. Raises `AblyError` if its token is for another client id."""
    if given is None or given == caller.client_id:
        return Client(caller, channels, caller.client_id)
    if caller.client_id != "*":
        raise AblyError(40102, "a client id that is not the one of the token", 401)
    Publisher(client_id="*").resolve_client_id(given)
    return Client(caller, channels, given)


class KeyRealm(Struct, frozen=True):
    """A keyring and a function that returns the channels of a key by its name."""

    keyring: Keyring
    channels: Callable[[str], Channels]


class TokenRequest(Struct, frozen=True, rename="camel"):
    """A token request, signed with a key or sent with the key itself. Times are in milliseconds."""

    key_name: str
    timestamp: int | None = None
    nonce: str | None = None
    ttl: int | None = None
    capability: str | None = None
    client_id: str | None = None
    mac: str | None = None

    @property
    def text(self) -> bytes:
        """The text to sign, one field per line. Only a capability may span lines, see `_check_lines`."""
        parts = (self.key_name, self.ttl, self.capability, self.client_id, self.timestamp, self.nonce)
        return "".join(f"{'' if part is None else part}\n" for part in parts).encode("utf-8", "replace")


class TokenDetails(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An issued token and what it allows."""

    token: str
    key_name: str
    issued: int
    expires: int
    capability: str
    client_id: str | None = None


class AblyAuthenticator:
    """Authenticates clients with the first realm that accepts their key or token.

    The first realm is the server's own; over HTTP, `authenticate` finds its caller. Browser sessions are not
    accepted here. `used` stores the nonces of token requests.
    """

    def __init__(
        self,
        doors: Sequence[KeyRealm],
        authenticate: Authenticate,
        used: UsedNames,
        clock: Callable[[], float] = time.time,
        rates: PublishRates | None = None,
    ) -> None:
        self._doors, self._authenticate, self._clock, self._rates = doors, authenticate, clock, rates
        self._used = used
        self.cursors = SealedCursors(doors[0].keyring, "channels")
        """Cursors of the channel list."""

    @property
    def now(self) -> int:
        """The current time in milliseconds since 1970."""
        return int(self._clock() * MS)

    def client_of_request(self, request: Request) -> Client:
        """Authenticate an HTTP request. Raises `AccessRefused` and `AblyError`."""
        given = _given_id(request)
        door, caller = self._caller(request)
        return client_of(caller, door.channels(caller.key), given)

    def client_of_credential(self, text: str | None, given: str | None) -> Client:
        """Authenticate a WebSocket client by its key or token. Raises `AccessRefused` and `AblyError`."""
        door, caller = _through(lambda keyring: keyring.caller(None, text), self._doors)
        return client_of(caller, door.channels(caller.key), given)

    def check_key(self, client: Client) -> None:
        """Raise `AccessRefused` if the key behind the client or its token was revoked."""
        _through(lambda keyring: keyring.check_key(client.caller.key), self._doors)

    def spend(self, client: Client, count: int, connection_id: str | None = None) -> None:
        """Count messages or annotations against the rate limits. Raises `AblyError` if one is exceeded."""
        if self._rates:
            self._rates.spend(client.caller.key, count, connection_id)

    def sign_connection(self, text: str) -> str:
        """Sign a connection's name to make its connection key. Any later process can check the signature."""
        return self._doors[0].keyring.sign("connection", text, _FOREVER)

    def check_connection(self, text: str, signature: str) -> None:
        """Raise `AccessRefused` unless this server signed `text`."""
        self._doors[0].keyring.check("connection", text, signature)

    async def issue_token(self, name: str, asked: TokenRequest, request: Request) -> TokenDetails:
        """Issue a token to the signer or key holder of the request. Raises as `client_of_request` does."""
        if asked.key_name != name:
            raise AblyError(40101, "a request for a token of another key", 401)
        _check_lines(asked)
        door, caller = await self._signer(asked, request)
        ttl = _TTL if asked.ttl is None else asked.ttl
        if not 0 < ttl <= LONGEST_TOKEN * MS:
            raise AblyError(40003, f"a token holds up to {LONGEST_TOKEN * MS} ms")
        capability = caller.capability
        if asked.capability:
            capability &= Capability.of(codec.decode(asked.capability))
        if not capability.grants:
            raise AblyError(40160, "the key has nothing of this capability", 401)
        if not capability.is_readable:
            raise Forbidden("what the key has of this capability is too much for a token")
        who = Publisher(client_id="*").resolve_client_id(asked.client_id) if asked.client_id != "*" else "*"
        issued = self.now
        return TokenDetails(
            token=door.keyring.issue_token(name, capability, ttl / MS, who),
            key_name=name,
            issued=issued,
            expires=issued + ttl,
            capability=codec.encode(capability.plain()).decode(),
            client_id=who,
        )

    async def _signer(self, asked: TokenRequest, request: Request) -> tuple[KeyRealm, Caller]:
        mac = asked.mac
        if mac is None:
            door, caller = self._caller(request)
            if caller.key != asked.key_name or caller.expires is not None:
                raise AblyError(40101, "only the key itself gives tokens", 401)
            return door, caller
        found = _through(
            lambda keyring: keyring.caller_by_signature(asked.key_name, asked.text, mac), self._doors
        )
        await self._once(asked)
        return found

    async def _once(self, asked: TokenRequest) -> None:
        """Refuse a token request that is too old or was used before."""
        if asked.timestamp is None or abs(self.now - asked.timestamp) > _SKEW:
            raise AblyError(40104, "the time of the request is not the time of the server", 401)
        name, expires = f"{asked.key_name} {asked.nonce}", (asked.timestamp + _SKEW) / MS
        if not asked.nonce or not await self._used.use(name, expires):
            raise AblyError(40105, "a request for a token is good for one", 401)

    def _caller(self, request: Request) -> tuple[KeyRealm, Caller]:
        """Return the caller of an HTTP request and the realm that accepted it."""
        try:
            caller = self._authenticate(request)
        except (BadCredentials, BadToken):
            if not self._doors[1:]:
                raise
            header = request.headers.get("authorization")
            return _through(lambda keyring: keyring.caller(header), self._doors[1:])
        if caller.is_session:
            raise NoCredentials
        return self._doors[0], caller


def _through(ask: Callable[[Keyring], _T], doors: Sequence[KeyRealm]) -> tuple[KeyRealm, _T]:
    refused: Exception | None = None
    for door in doors:
        try:
            return door, ask(door.keyring)
        except (BadCredentials, BadToken) as exc:
            refused = refused or exc
    raise refused or BadCredentials()


def _check_lines(asked: TokenRequest) -> None:
    """Raise `AblyError` for line breaks that would let one signature cover two different requests."""
    if asked.client_id and _CONTROL.search(asked.client_id):
        raise AblyError(40012, "a client id with a control character")
    if asked.nonce and _CONTROL.search(asked.nonce):
        raise AblyError(40105, "a nonce with a control character", 401)


def _given_id(request: Request) -> str | None:
    """Return the client id sent in the `X-Ably-ClientId` header."""
    header = request.headers.get("x-ably-clientid")
    if header is None:
        return None
    try:
        return b64decode(header, validate=True).decode()
    except ValueError as exc:
        raise AblyError(40012, "the header X-Ably-ClientId is base64") from exc
