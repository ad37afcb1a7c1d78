"""Memory of the server over thousands of runs: does it settle, and what is in it?

An agent in the server's own process answers with a quote that is verified; each run has a thread of its own.
After every few hundred runs the bench notes the memory that the server alone holds (`Private_Dirty`), and a
census of the objects that Python's collector knows, which the agent takes when it is asked for one.

`python -m bench.memory 7000 8` does 7,000 runs, 8 at a time. With `PYTHONTRACEMALLOC=1` it lists the lines of
code whose memory has grown instead of kinds of objects; it is slower then, and its megabytes mean nothing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2

from bench.table import show
from bench.verify import ROOT
from citewire.agui.events import RunInput

sys.path.append(str(ROOT / "tests"))
from support.server_process import Serving, asked  # the server as people run it

RUNS, AT_ONCE, SAMPLES = 6000, 8, 12
CENSUS = "census"
FACT = "you may return any lamp within 30 days of delivery and get the full price back"
# Kinds of objects that a census lists, the most frequent first.
_LISTED = 400


async def answer(run_input: RunInput) -> AsyncIterator[dict[str, Any]]:
    """The agent: one verified citation, or the census of the process where that is asked for."""
    ids, said = {"threadId": run_input.thread_id, "runId": run_input.run_id}, {"messageId": "answer"}
    yield {"type": "RUN_STARTED", **ids}
    if run_input.messages[-1]["content"] == CENSUS:
        yield {"type": "CUSTOM", "name": CENSUS, "value": _census()}
    cited = f"<cite attachment_id='policy.txt' full_phrase='{FACT}'/>"
    yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **said}
    for piece in (*(f"word {n} " for n in range(20)), cited):
        yield {"type": "TEXT_MESSAGE_CONTENT", "delta": piece, **said}
    yield {"type": "TEXT_MESSAGE_END", **said}
    yield {"type": "RUN_FINISHED", **ids}


def _census() -> dict[str, int]:
    gc.collect()
    if tracemalloc.is_tracing():
        lines = tracemalloc.take_snapshot().statistics("lineno")[:_LISTED]
        return {f"{line.traceback[0].filename}:{line.traceback[0].lineno}": line.size for line in lines}
    kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    return dict(kinds.most_common(_LISTED))


def private(pid: int) -> float:
    """Megabytes that this process shares with no other and with no file."""
    found = re.search(r"Private_Dirty:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text())
    return int(found[1]) / 1024 if found else 0.0


async def one_run(client: httpx2.AsyncClient, number: int, text: str = "What was returned?") -> bytes:
    body = asked(f"memory-{number}", text=text, state={}, tools=[], context=[])
    reply = await client.post("/agui", json=body)
    reply.raise_for_status()
    return reply.content


async def drive(client: httpx2.AsyncClient, first: int, count: int, at_once: int) -> None:
    numbers = iter(range(first, first + count))

    async def work() -> None:
        for number in numbers:
            await one_run(client, number)

    await asyncio.gather(*(work() for _ in range(at_once)))


async def census(client: httpx2.AsyncClient, number: int) -> Counter[str]:
    content = await one_run(client, -number, CENSUS)
    found = next(line for line in content.split(b"\n") if b'"name":"census"' in line)
    return Counter(json.loads(found.removeprefix(b"data: "))["value"])


async def measure(serving: Serving, runs: int, at_once: int) -> None:
    pid, step = serving.pid, max(1, runs // SAMPLES)
    rows: list[tuple[str, ...]] = []
    async with httpx2.AsyncClient(
        base_url=serving.url, headers=serving.headers, timeout=120, trust_env=False
    ) as client:
        before = Counter[str]()
        for done in range(0, runs + 1, step):
            now = await census(client, done + 1)
            grown = (
                ", ".join(f"{kind} +{count}" for kind, count in (now - before).most_common(6))
                if before
                else ""
            )
            rows.append((str(done), f"{private(pid):.0f}", str(now.total()), grown))
            print(*rows[-1], flush=True)
            before = now
            await drive(client, done, step, at_once)
    show("Memory of the server", ("runs", "MB", "objects", "most new since the last row"), rows)


def main() -> None:
    runs, at_once = (*map(int, sys.argv[1:3]), RUNS, AT_ONCE)[:2] if len(sys.argv) > 2 else (RUNS, AT_ONCE)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "policy.txt")
        source.write_text(f"From the day it comes, {FACT}, whatever the reason.\n")
        arguments = (
            "--sources",
            source,
            "--agent",
            "bench.memory:answer",
            "--rate",
            "100000",
            "--burst",
            "100000",
        )
        with Serving(
            Path(folder, "data"), *arguments, PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "src")])
        ) as serving:
            asyncio.run(measure(serving, runs, at_once))


if __name__ == "__main__":
    main()
