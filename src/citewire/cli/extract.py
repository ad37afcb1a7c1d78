"""`citewire extract`: the citations in a model's output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from msgspec import to_builtins

import citewire
from citewire.cli.input import read_bytes
from citewire.cli.output import pretty_with_escapes, write_out

if TYPE_CHECKING:
    from citewire.extraction import Extraction

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="markdown")


@app.command(
    epilog="""**Examples**

`citewire extract answer.txt`

`llm "..." | citewire extract -`"""
)
def extract(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What a model wrote; `-` reads standard input.")
    ] = "-",
) -> None:
    """Take the citations out of the text of a model, as JSON.

    `visible_text` is what a reader sees, `problems` what could not be read, with its place in the text.
    """
    found = citewire.extract(read_bytes(file).decode("utf-8", "replace"))
    write_out(pretty_with_escapes(_shown(found)) + "\n")


def _shown(found: Extraction) -> dict[str, Any]:
    """Return the extraction without fields that only serve to write it back, and without unknown values."""
    shown = found.answer.bare()
    known = {"citations": shown.citations, "sources": shown.sources, "problems": found.problems}
    return {"visible_text": found.visible_text, **_sparse(to_builtins(known))}


def _sparse(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return {key: _sparse(member) for key, member in members if member is not None and member != {}}
    return [_sparse(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value
