"""Verify a store: every row, tombstone, floor and summary, against the signed heads.

The last signed head covers all rows before it. For later rows, only their own chains and dates can be
checked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from citewire.audit.audit_fold import AUDIT_LOG_NAME, AuditFold, date_of_ms, known_audit_log_hashes, name_of
from citewire.audit.chain_check import ChainCheck, KnownHashes
from citewire.audit.findings import Findings
from citewire.audit.record import read_rows
from citewire.audit.statements import (
    AUDIT_CHANNEL,
    ChainPoint,
    SignedHead,
    Statement,
    Tombstone,
    chain_point_of,
    read_statement,
)
from citewire.channels.fold import ANNOTATION, MESSAGE, ChannelEvent, event_of, replay
from citewire.channels.store import PAGE_ROWS, Chain, ChainLink, Log, Row, Slot
from citewire.errors import ShapeError
from citewire.threadlog.names import LOG_PREFIX

__all__ = ["check_store"]

# The slots that are derived from the rows of a channel: see `channels.fold`.
_FOLDED = ("c:", "m:", "s:", "v:", "x:")
_CHANNELS = "channel:"
# Single-use names: the server keeps removing the expired ones, without a statement.
_EXPIRING = "used:"


async def check_store(log: Log, findings: Findings, kept: Sequence[SignedHead] = ()) -> AuditFold:
    """Check a snapshot of a store. Adds to the findings, and returns the folded audit log."""
    fold = await _check_audit_log(log, findings, kept)
    seen = set[str]()
    after = ""
    while extents := await log.extents(after, PAGE_ROWS):
        for extent in extents:
            seen.add(extent.epoch)
            [chain] = await log.chains([extent.channel])
            if extent.channel != AUDIT_CHANNEL:
                await _check_channel(log, chain, fold, findings)
        after = extents[-1].channel
    await _check_tombstones(log, fold, findings, seen)
    for epoch, position in fold.positions.items():
        if epoch not in seen:
            findings.add_break(_name(position.channel), "a signed head has it, and it is gone from the store")
    return fold


async def _check_audit_log(log: Log, findings: Findings, kept: Sequence[SignedHead]) -> AuditFold:
    """Check the audit log itself, also against heads saved elsewhere."""
    fold = AuditFold(findings)
    for head in kept:
        if problem := findings.trust.find_problem(head, is_pinned=True):
            findings.add_break(f"head {head.number}, kept elsewhere", problem)
    found = await log.chains([AUDIT_CHANNEL])
    if not found:
        findings.add_break(AUDIT_LOG_NAME, "there is none")
        return fold
    [chain] = found
    epoch = chain.head.epoch
    for head in kept:
        if head.epoch != epoch:
            findings.add_break(
                AUDIT_LOG_NAME, f"it is not the one that head {head.number}, kept elsewhere, is of"
            )
    fold.pin(head for head in kept if head.epoch == epoch)
    checked = _checked(chain, findings, known_audit_log_hashes(epoch, kept))
    if chain.floor.n:
        checked.fail("its first rows were cut off")
    async for row in read_rows(log, chain):
        findings.rows += 1
        checked.take(row.link)
        fold.take(row.n, row.hash.hex(), _statement(row, findings))
    checked.end()
    if not fold.heads:
        findings.add_break(AUDIT_LOG_NAME, "it has no signed head")
    return fold


def _statement(row: Row, findings: Findings) -> Statement | None:
    try:
        return read_statement(row)
    except ShapeError as exc:
        findings.add_break(AUDIT_LOG_NAME, f"row {row.n} cannot be read: {exc.message}")
        return None


async def _check_channel(log: Log, chain: Chain, fold: AuditFold, findings: Findings) -> None:
    """Check the rows of an existing channel and the slots derived from them."""
    epoch, floor = chain.head.epoch, chain_point_of(chain.floor)
    checked = _checked(chain, findings, fold.known_hashes(epoch))
    noted = fold.positions.get(epoch)
    if noted and noted.channel != chain.head.channel:
        checked.fail(f"a signed head has it as {_name(noted.channel)}")
    is_expiring = chain.head.channel.startswith(_EXPIRING)
    if floor.n and not is_expiring and not fold.is_removal_signed(epoch, floor):
        checked.fail("its first rows were cut off, and no signed statement says so")
    is_folded, events = chain.head.channel.startswith(_CHANNELS), list[ChannelEvent]()
    async for row in read_rows(log, chain):
        findings.rows += 1
        if checked.take(row.link) and is_folded and row.kind in {MESSAGE, ANNOTATION}:
            try:
                events.append(event_of(row))
            except msgspec.MsgspecError:
                checked.fail(f"row {row.n} cannot be read")
    checked.end()
    if is_folded and checked.is_whole:
        await _check_slots(log, chain.head.channel, events, findings)


async def _check_slots(log: Log, channel: str, events: Sequence[ChannelEvent], findings: Findings) -> None:
    """Compare the stored messages and summaries with a replay of the rows."""
    expected = replay(events)
    found = {slot.key: slot.value async for slot in _slots(log, channel)}
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            what = {"m": "the message", "s": "the summary of the message"}.get(key[0], "the slot")
            findings.add_break(_name(channel), f"{what} {key[2:]} is not what its rows add up to")


async def _slots(log: Log, channel: str) -> AsyncIterator[Slot]:
    for prefix in _FOLDED:
        after = prefix
        while found := await log.slots(channel, after, f"{prefix[0]};"):
            for slot in found:
                yield slot
            after = found[-1].key


async def _check_tombstones(log: Log, fold: AuditFold, findings: Findings, seen: set[str]) -> None:
    """Check the remains of dropped channels, and the signed statements of who dropped them."""
    left, after = dict(fold.tombstones), 0
    while found := await log.erased("", after):
        for stone in map(Tombstone.of, found):
            name, noted = _name(stone.channel), left.pop(stone.no, None)
            seen.add(stone.epoch)
            if noted and noted != stone:
                findings.add_break(name, _difference(noted, stone))
            elif noted is None and stone.at < fold.since:
                findings.add_break(
                    name, "its deletion is dated before the last head, which does not know of it"
                )
            await _check_links(log, stone, fold, findings)
        after = found[-1].no
    for stone in left.values():
        findings.add_break(
            _name(stone.channel), "a signed head says that it was deleted, of which nothing is left"
        )


def _difference(noted: Tombstone, stone: Tombstone) -> str:
    if noted.at != stone.at:
        return f"it was deleted at {date_of_ms(noted.at)}; that was changed to {date_of_ms(stone.at)}"
    return "what is left of it after its deletion was changed"


async def _check_links(log: Log, stone: Tombstone, fold: AuditFold, findings: Findings) -> None:
    name, epoch = _name(stone.channel), stone.epoch
    ends, known = (stone.floor, stone.head), fold.known_of_deleted(epoch)
    checked = ChainCheck(name, stone.channel, epoch, ends, findings, known)
    async for link in _links(log, epoch, stone.floor):
        findings.rows += 1
        checked.take(link)
    checked.end()
    removal = fold.deletion(epoch)
    if removal is None:
        if fold.needs_signed_deletion(stone):
            findings.add_break(name, "it was deleted, and no signed statement says by whom")
    elif problem := fold.deletion_problem(epoch, stone.at):
        findings.add_break(name, problem)
    elif stone.channel.startswith(LOG_PREFIX):
        findings.add_note(f"{name} was deleted at {date_of_ms(stone.at)} by {removal.by.name or 'somebody'}")


async def _links(log: Log, epoch: str, floor: ChainPoint) -> AsyncIterator[ChainLink]:
    after = floor.n
    while links := await log.links(epoch, after):
        for link in links:
            yield link
        after = links[-1].n


def _checked(chain: Chain, findings: Findings, known: KnownHashes) -> ChainCheck:
    head = chain.head
    ends = chain_point_of(chain.floor), chain_point_of(head)
    return ChainCheck(_name(head.channel), head.channel, head.epoch, ends, findings, known)


def _name(channel: str) -> str:
    if channel == AUDIT_CHANNEL:
        return AUDIT_LOG_NAME
    return name_of(channel)
