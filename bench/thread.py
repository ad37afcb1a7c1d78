"""Threads: against the AG-UI client in Node on the same logs, and against the models of ag-ui-protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from bench.table import Work, interleaved, ratio, show
from citewire.agui.events import coerce, encode
from citewire.agui.thread.thread import Thread

Json = dict[str, Any]
ROOT = Path(__file__).parents[1]
ROUNDS = 5
# Seconds that the client may take for one log.
PATIENCE = 600
RUN: Json = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}


class Log(NamedTuple):
    """Events, and the messages and the state that the thread has before them."""

    name: str
    events: list[Json]
    messages: Sequence[Json] = ()
    state: Json | None = None


def text(messages: int, deltas: int) -> Log:
    """`deltas` on the last of many messages."""
    old = [
        {"id": f"m{at}", "role": "assistant", "content": "An answer of some length."}
        for at in range(messages - 1)
    ]
    say = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "last"}
    events = [RUN, {"type": "TEXT_MESSAGE_START", "messageId": "last"}]
    events += [{**say, "delta": f"word {at} "} for at in range(deltas)]
    return Log(f"{deltas:,} deltas, {messages:,} messages", events, old)


def citations(messages: int, deltas: int) -> Log:
    """`deltas` on the citations of one message after another, the same two hundred however many there are."""
    ids = [f"m{at}" for at in range(messages)]
    entry = {
        "title": "Refund policy",
        "url": "https://example.com/refunds",
        "snippet": "Refunds take 30 days.",
    }
    cited = {name: [{"id": f"{name}-{at}", **entry} for at in range(5)] for name in ids}
    events = [RUN] + [
        {
            "type": "STATE_DELTA",
            "delta": [
                {
                    "op": "replace",
                    "path": f"/citations/{ids[at % 200]}/{at % 5}/title",
                    "value": f"T{at}",
                }
            ],
        }
        for at in range(deltas)
    ]
    held = [{"id": name, "role": "assistant", "content": "An answer.[^1]"} for name in ids]
    return Log(
        f"{deltas:,} state deltas, {messages:,} messages × 5 citations", events, held, {"citations": cited}
    )


def arguments(fragments: int, size: int) -> Log:
    """One tool call with arguments in many fragments."""
    whole = json.dumps({"rows": [{"id": at, "name": "x" * 20} for at in range(size // 42)]})
    step = -(-len(whole) // fragments)
    pieces = [whole[at : at + step] for at in range(0, len(whole), step)]
    events: list[Json] = [RUN, {"type": "TOOL_CALL_START", "toolCallId": "t", "toolCallName": "save"}]
    events += [{"type": "TOOL_CALL_ARGS", "toolCallId": "t", "delta": piece} for piece in pieces]
    return Log(f"{len(pieces):,} fragments of {len(whole) // 1000} KB arguments", events)


def reduced(log: Log, view: str) -> Work:
    """Ours, from events to a view that was read."""
    events = [coerce(event) for event in log.events]

    def work() -> object:
        thread = Thread(messages=log.messages, state=log.state)
        thread.extend(events)
        shown = getattr(thread, view)
        last = shown.messages[-1] if len(shown.messages) else None
        return shown.state, last, shown.tool_calls[-1:] if view == "contract" else None

    return work


def in_node(log: Log) -> float:
    """Seconds that the client takes, as it says itself."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(log._asdict(), file)
        file.flush()
        command = ["node", str(ROOT / "bench/node/thread.mjs"), file.name]
        done = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE)
    return json.loads(done.stdout)["seconds"]


def against_the_client() -> None:
    logs = {
        "A": text(1, 100_000),
        "B": text(2_000, 10_000),
        "C": citations(200, 1_000),
        "D": arguments(20_000, 200_000),
    }
    rows: list[tuple[str, ...]] = []
    for letter, log in logs.items():
        theirs = in_node(log)
        views = interleaved({view: reduced(log, view) for view in ("agui", "contract")}, ROUNDS)
        for view, times in views.items():
            ours = median(times)
            per_event = f"{ours / len(log.events) * 1e6:.2f} µs"
            rows.append(
                (
                    f"{letter} {log.name}, {view}",
                    f"{ours * 1e3:.1f}",
                    f"{theirs * 1e3:,.0f}",
                    per_event,
                    f"{theirs / ours:,.0f}×",
                )
            )
    show(
        "Threads against @ag-ui/client 1.0.0 in Node", ("log", "ms", "client ms", "per event", "faster"), rows
    )


def cost(log: Log, view: str) -> float:
    """Seconds for the events alone: the thread has its messages, took a state event and was read before."""
    events = [coerce(event) for event in log.events[1:]]
    thread = Thread(messages=log.messages, state=log.state)
    thread.extend([log.events[0], {"type": "STATE_DELTA", "delta": []}])
    getattr(thread, view)
    start = perf_counter()
    thread.extend(events)
    getattr(thread, view)
    return perf_counter() - start


def by_size() -> None:
    """What an event costs when the thread is ten times as long."""
    rows: list[tuple[str, ...]] = []
    for letter, small, large in (
        ("B", text(2_000, 10_000), text(20_000, 10_000)),
        ("C", citations(200, 1_000), citations(2_000, 1_000)),
    ):
        for view in ("agui", "contract"):
            pairs = [(cost(small, view), cost(large, view)) for _ in range(ROUNDS * 3)]
            each = [f"{median(times) / len(small.events) * 1e6:.2f} µs" for times in zip(*pairs, strict=True)]
            rows.append((f"{letter} {view}", *each, f"{median(large / small for small, large in pairs):.2f}"))
    show("What an event costs in a thread ten times as long", ("log", "as is", "ten times", "ratio"), rows)


def against_the_models() -> None:
    """From JSON to a view that was read, against ag-ui-protocol from JSON to its models and back."""
    from ag_ui.core import Event  # noqa: PLC0415  # a peer of this bench only
    from ag_ui.encoder import EventEncoder  # noqa: PLC0415
    from pydantic import TypeAdapter  # noqa: PLC0415

    frames = [encode(coerce(event)) for event in text(1, 20_000).events]
    adapter, encoder = TypeAdapter[Any](Event), EventEncoder()

    def ours(view: str) -> Callable[[], object]:
        def work() -> object:
            thread = Thread()
            thread.extend(frames)
            return getattr(thread, view).messages[0]["content"]

        return work

    times = interleaved(
        {
            "agui": ours("agui"),
            "contract": ours("contract"),
            "parse": lambda: [adapter.validate_json(frame) for frame in frames],
            "round trip": lambda: [encoder.encode(adapter.validate_json(frame)) for frame in frames],
        },
        ROUNDS * 3,
    )
    each = {name: f"{median(seconds) / len(frames) * 1e6:.2f} µs" for name, seconds in times.items()}
    rows = [
        (
            f"decode + reduce, {view}",
            each[view],
            f"{ratio(times, 'parse', view):.2f}×",
            f"{ratio(times, 'round trip', view):.1f}×",
        )
        for view in ("agui", "contract")
    ]
    rows += [(f"ag-ui-protocol 1.0.0, {name}", each[name], "", "") for name in ("parse", "round trip")]
    show("From JSON, per event", ("", "median", "faster than parse", "than round trip"), rows)


def main() -> None:
    if shutil.which("node") and (ROOT / "tests/node/node_modules/@ag-ui/client").is_dir():
        against_the_client()
    else:
        print("\nno @ag-ui/client: install Node.js 20+, then npm ci --prefix tests/node")
    by_size()
    against_the_models()
