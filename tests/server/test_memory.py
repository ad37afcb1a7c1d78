"""What the server keeps in memory is bounded, however much goes through it."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator

import pytest
from msgspec import json

from citewire.channels.postgres_batch import CachedChannel, ChannelCache
from citewire.channels.sqlite_slots import BYTES_KEPT, OVERHEAD, WriterSlots
from citewire.channels.store import Row
from citewire.channels.store_rules import new_head
from citewire.server.sources.stored_sources import CitedBytes, ForgottenThread, StoredSources

TABLE = "CREATE TABLE slot (channel INTEGER, key TEXT, value BLOB, PRIMARY KEY (channel, key))"


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(TABLE)
    yield connection
    connection.close()


@pytest.mark.parametrize("size", [0, 100, 5000], ids=["empty", "small", "large"])
def test_slots_that_the_writer_has_seen_are_bounded(db: sqlite3.Connection, size: int) -> None:
    """Small values count with what Python takes around them; what goes is still in the table."""
    slots = WriterSlots(db)
    for channel in range(1, 3 * BYTES_KEPT // (OVERHEAD + size + 10)):
        slots.put(channel, {"message": bytes(size)})
        if channel % 50 == 0:
            slots.flush()
            assert slots.size <= BYTES_KEPT
    slots.flush()
    assert slots.values(1, ["message"]) == {"message": bytes(size)}


def test_a_slot_that_grows_counts_once(db: sqlite3.Connection) -> None:
    slots = WriterSlots(db)
    for size in range(1000):
        slots.put(1, {"message": bytes(size)})
        slots.flush()
    assert slots.size == OVERHEAD + len("message") + 999
    slots.forget()
    assert slots.size == 0


def test_the_overhead_of_a_slot_is_no_less_than_python_takes() -> None:
    key = (10_000, "m:01726585978590-001")
    taken = sys.getsizeof(key) + sys.getsizeof(key[0]) + sys.getsizeof(key[1]) + sys.getsizeof(bytes(10))
    per_place = sys.getsizeof(dict.fromkeys(range(10000))) / 10_000
    assert taken + per_place - len(key[1]) - 10 <= OVERHEAD


def test_what_a_node_knows_of_slots_counts_their_overhead() -> None:
    known, head = ChannelCache(), CachedChannel(new_head("channel"))
    counts: list[int] = []
    for n in range(100_000):
        known.record_own_write("channel", head, {f"m{n}": b"x"})
        known.clear_if_full()
        counts.append(len(known.slots.get("channel", {})))
    assert 10_000 < max(counts) <= (16 << 20) / OVERHEAD


def row(n: int, kind: str, data: object) -> Row:
    return Row("e", n, n, str(n), kind, json.encode(data), b"")


def test_threads_that_cite_the_same_sources_share_one_set() -> None:
    holdings, sources = StoredSources(), ("a" * 64, "b" * 64)
    for n in range(1000):
        for sha256 in sources:
            holdings.apply(row(n, "cited", CitedBytes(sha256, f"t{n}")))
    assert len({id(holdings.bytes_cited_by(f"t{n}")) for n in range(1000)}) == 1
    assert holdings.bytes_cited_by("t7") == frozenset(sources)
    for n in range(1000):
        holdings.apply(row(n, "uncited", ForgottenThread(f"t{n}")))
    assert (holdings.threads, holdings.needs(sources[0])) == ([], False)
