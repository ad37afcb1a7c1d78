"""The rows of the channel `audit:`: statements about the whole store, signed from time to time.

| kind | data |
|---|---|
| `position` | a `Position`: how far a channel had come at the last check of the store |
| `tombstone` | a `Tombstone`: a channel that was dropped |
| `removal` | a `Removal`, signed: rows are about to be removed, and by whom |
| `key` | a `KeyIntroduction`, signed by the previous key |
| `api-key` | an `ApiKey`: a key of the server that was created or revoked |
| `head` | a `SignedHead`: the hash of all rows before it, and so of all positions |
"""

from __future__ import annotations

from hashlib import sha256
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from citewire.audit.signing import KeyIntroduction, SignedStatement
from citewire.channels.actor import Actor
from citewire.channels.store import Chain, ErasedChannel, Extent, Head, Row
from citewire.errors import ShapeError

__all__ = [
    "AUDIT_CHANNEL", "ApiKey", "ChainPoint", "Position", "Removal", "SignedHead", "Statement", "Tombstone",
    "chain_point_of", "read_head", "read_statement",
]  # fmt: skip

AUDIT_CHANNEL = "audit:"
_T = TypeVar("_T")


class ChainPoint(Struct, frozen=True):
    """A place in a chain: the number, tick and hash of a row."""

    n: int
    tick: int
    hash: str


class Position(Struct, frozen=True):
    """The floor and head of a channel's chain."""

    channel: str
    epoch: str
    floor: ChainPoint
    head: ChainPoint

    @classmethod
    def of(cls, chain: Chain) -> Position:
        """Return the current position of a channel."""
        return cls(
            chain.head.channel, chain.head.epoch, chain_point_of(chain.floor), chain_point_of(chain.head)
        )

    @property
    def extent(self) -> Extent:
        """The rows that the channel had."""
        return Extent(self.channel, self.epoch, self.floor.n, self.head.n)


class Tombstone(Struct, frozen=True):
    """The `no`th channel that was dropped; `at` is in milliseconds."""

    no: int
    at: int
    channel: str
    epoch: str
    floor: ChainPoint
    head: ChainPoint

    @classmethod
    def of(cls, erased: ErasedChannel) -> Tombstone:
        """Make the tombstone of a dropped channel."""
        floor, head = erased.floor, erased.head
        return cls(
            erased.no, erased.at, head.channel, head.epoch, chain_point_of(floor), chain_point_of(head)
        )


class Removal(SignedStatement, frozen=True, tag="removal"):
    """The removal of a channel's rows up to row `n`, which has this hash: all rows, or the oldest."""

    what: Literal["deleted", "trimmed"]
    channel: str
    epoch: str
    n: int
    hash: str
    at: str
    by: Actor


class ApiKey(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The new state of a key of the server. Times are seconds since 1970."""

    name: str
    capability: dict[str, list[str]]
    created: int
    created_by: Actor = Actor()
    revoked: int | None = None
    revoked_by: Actor | None = None

    def may_become(self, later: ApiKey) -> bool:
        """Tell whether `later` is a valid next state of the key: unchanged, or only revoked."""
        is_revoked = self.revoked is None and later.revoked is not None
        return later == self or (is_revoked and replace(later, revoked=None, revoked_by=None) == self)


class SignedHead(SignedStatement, frozen=True, tag="head"):
    """The `number`th head: the channel `audit:` had the hash `hash` after row `n`, at this time.

    `previous` is the SHA-256 of the previous head, empty for the first. All positions of the store are in
    these rows, so anyone who saves one head can detect a change to any row before it.
    """

    number: int
    at: str
    epoch: str
    n: int
    hash: str
    previous: str

    @property
    def digest(self) -> str:
        """The SHA-256 by which the next head refers to this one."""
        return sha256(msgspec.json.encode(self)).hexdigest()


Statement = Position | Tombstone | Removal | KeyIntroduction | ApiKey | SignedHead
_KINDS: dict[str, type[Statement]] = {
    "position": Position,
    "tombstone": Tombstone,
    "removal": Removal,
    "key": KeyIntroduction,
    "api-key": ApiKey,
    "head": SignedHead,
}


def chain_point_of(head: Head) -> ChainPoint:
    """Convert a head to a chain point, with its hash as hex."""
    return ChainPoint(head.n, head.tick, head.hash.hex())


def read_statement(row: Row) -> Statement | None:
    """Decode a row of the audit log; None if its kind is of a later version. Raises `ShapeError`."""
    kind = _KINDS.get(row.kind)
    return None if kind is None else _read(row.data, kind)


def read_head(text: bytes) -> SignedHead:
    """Decode a head saved elsewhere: JSON, or the last line of a file of heads. Raises `ShapeError`."""
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        return _read(text, SignedHead)
    except ShapeError:
        if not lines:
            raise
    return _read(lines[-1], SignedHead)


def _read(data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ShapeError(f"not a statement of the audit log: {exc}") from exc
