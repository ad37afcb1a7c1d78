"""What publishers do in the benches of Postgres: each annotates one message after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from statistics import quantiles
from time import perf_counter
from typing import NamedTuple

from citewire.channels.annotation import AnnotationDraft
from citewire.channels.channels import Channels
from citewire.channels.message import MessageDraft, Publisher

TYPE = "citations:multiple.v1"
NAMES = [f"{name}.example" for name in "abcde"]
TEXT = "The Danube rises in Germany and ends in the Black Sea. " * 20
DATA = (
    '{"url":"https://rivers.example/danube","title":"Danube facts","startOffset":40,"endOffset":53,'
    '"snippet":"empties into the Black Sea"}'
)

Write = Callable[[int, int], Awaitable[object]]
"""What a publisher does, by its number and how often it did."""
Annotate = Callable[[int, int], Awaitable[str]]
"""The same, where it gives the serial of an annotation."""


class Timed(NamedTuple):
    """What was acknowledged per second, and the 99th percentile of milliseconds it took."""

    rate: float
    p99: float


def p99(seconds: Sequence[float]) -> float:
    """In milliseconds."""
    return quantiles(seconds, n=100)[98] * 1000


async def timed(write: Write, publishers: int, seconds: float) -> Timed:
    """Each publisher waits for one to be acknowledged before it sends the next."""
    took, start = list[float](), perf_counter()

    async def publish(publisher: int) -> None:
        at, now = 0, perf_counter()
        while now - start < seconds:
            await write(publisher, at)
            before, now, at = now, perf_counter(), at + 1
            took.append(now - before)

    await asyncio.gather(*map(publish, range(publishers)))
    return Timed(len(took) / (perf_counter() - start), p99(took))


async def answers(channels: Channels, names: Sequence[str]) -> list[str]:
    """The serials of messages, one in each of these channels."""
    posted = (
        channels.publish(name, Publisher(), [MessageDraft(name="response", data=TEXT)]) for name in names
    )
    return [serial for [serial] in await asyncio.gather(*posted)]


def annotator(channels: Channels, names: Sequence[str], serials: Sequence[str]) -> Annotate:
    """Who annotates one of these messages after the other."""

    async def annotate(publisher: int, at: int) -> str:
        channel = (publisher + at) % len(names)
        note = AnnotationDraft(
            message_serial=serials[channel], type=TYPE, name=NAMES[at % 5], data=DATA, encoding="json"
        )
        [serial] = await channels.annotate(names[channel], Publisher(client_id=f"client {publisher}"), [note])
        return serial

    return annotate
