"""A server that is killed again and again while clients publish, annotate and listen."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from citewire.channels.sqlite import SqliteStore
from support.ably_load import CHANNELS, MOST_STEPS, Kept, Listener, Server, Writer, rest, say_the_end, seed
from support.soak import scaled

KILLS = scaled(12, 54)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(180)  # a third of it, where nothing else goes on
def test_kill_nine(tmp_path: Path) -> None:
    """At random points, see `seed`."""
    with Server(tmp_path / "log", "--data", tmp_path / "data") as server:
        asyncio.run(_killed(server, tmp_path / "data", seed()))


async def _killed(server: Server, folder: Path, number: int) -> None:
    chance = random.Random(number)
    writers = [Writer([server], name, number, is_packed=name < "c", resumes=name < "d") for name in "abcd"]
    listeners = [Listener([server], name, number, is_packed=name == "y") for name in "xy"]
    server.start()
    async with asyncio.TaskGroup() as group:
        listening = [group.create_task(each.run()) for each in listeners]
        for each in listeners:
            await each.attached.wait()
        writing = [group.create_task(each.run()) for each in writers]
        server.kill_after(chance.randrange(MOST_STEPS))
        for _ in range(KILLS - 1):
            await _left(server, folder, writers)
            server.start(chance.randrange(MOST_STEPS))
        await _left(server, folder, writers)
        for each in writers:
            each.ends = True
        server.start()
        await asyncio.gather(*writing)
        await say_the_end(server)
        await asyncio.gather(*listening)
    server.kill_after(0)
    kept = await _left(server, folder, writers)
    kept.check_all(writers, listeners)
    assert sum(len(each.kept) for each in writers) > 20 * KILLS
    server.start()
    async with rest(server) as client:
        for channel in CHANNELS:
            for message in (await client.get(f"/channels/{channel}/messages?limit=1000")).json():
                assert message["data"] == kept.texts[message["serial"]]
                assert message.get("annotations") == _summary(kept, message["serial"])


def _summary(kept: Kept, serial: str) -> dict[str, Any] | None:
    return {"summary": kept.summaries[serial]} if serial in kept.summaries else None


async def _left(server: Server, folder: Path, writers: list[Writer]) -> Kept:
    """What a killed server left."""
    await server.down.wait()
    store = SqliteStore(folder)
    kept = await Kept().read(store)
    await store.close()
    kept.check(writers)
    return kept
