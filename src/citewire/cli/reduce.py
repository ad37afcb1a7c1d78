"""`citewire reduce`: the result of a log of AG-UI events."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer

from citewire.cli.input import read_lines
from citewire.cli.output import fail, pretty_with_escapes, say, write_out
from citewire.errors import CitewireError

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="markdown")


class _View(StrEnum):
    contract = "contract"
    agui = "agui"


@app.command(
    epilog="""**Examples**

`citewire reduce events.jsonl`

`citewire reduce run.sse --view agui --check`

`curl -N ... | citewire reduce - --at 12`"""
)
def reduce(
    file: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS", help="AG-UI events as JSON lines, SSE or a JSON list; `-` reads standard input."
        ),
    ] = "-",
    view: Annotated[
        _View,
        typer.Option("--view", help="What a citation front end shows, or what the AG-UI client holds."),
    ] = _View.contract,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 where the AG-UI client would reject the stream.")
    ] = False,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", min=0, help="After the first N events only.")
    ] = None,
    seed_args: Annotated[
        bool, typer.Option("--seed-args", help="Take each fragment of tool arguments for the whole.")
    ] = False,
) -> None:
    """Show what a log of AG-UI events comes to.

    The view goes to standard output as JSON; what was wrong on the way is in its `problems`.
    """
    from citewire.agui.sse import split_event_log  # noqa: PLC0415  # `--help` does not need it
    from citewire.agui.thread.thread import Thread  # noqa: PLC0415

    clock, failure = _EventClock(), None
    thread = Thread(seed_args=seed_args, clock=clock)
    try:
        for record in islice(split_event_log(read_lines(file)), at):
            event = _event(record)
            clock.tick(event)
            thread.apply(event)
    except CitewireError as exc:
        failure = exc
        thread.fail(exc)
    shown = thread.contract.to_json() if view is _View.contract else thread.agui.to_json()
    if failure is None or thread.number > 1:  # the result of the events before it is still shown
        write_out(pretty_with_escapes(shown) + "\n")
    if failure is not None:
        fail(failure.explanation)
    if check and thread.agui.outcome == "failed":
        say(f"rejected: {thread.agui.error}")
        raise typer.Exit(1)


class _EventClock:
    """A clock that follows the events' timestamps: a log is not read at the speed at which it was written."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def tick(self, event: object) -> None:
        stamp = getattr(event, "timestamp", None)
        self._seconds = stamp / 1000 if isinstance(stamp, int) else self._seconds

    def __call__(self) -> float:
        return self._seconds


def _event(record: bytes) -> object:
    """Decode the event; return invalid bytes unchanged, so that the thread reports the problem."""
    from citewire.agui.events import decode  # noqa: PLC0415  # as above

    try:
        return decode(record)
    except CitewireError:
        return record
