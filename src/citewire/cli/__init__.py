"""The command line: arguments in, text out; how things are done is known elsewhere.

Exit codes: 0 done, 1 something was lost under `--strict` or rejected under `--check`, 2 the input or the
arguments cannot be used.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_group

import citewire
from citewire.cli.output import say

__all__ = ["app", "main"]

# Which module has a command, in the order of `--help`.
_MODULES = {
    "convert": "convert",
    "render": "convert",
    "reduce": "reduce",
    "check": "verify",
    "verify": "verify",
    "serve": "serve",
    "worker": "worker",
    "keys": "keys",
    "extract": "extract",
    "audit": "audit",
    "store": "store",
}

# Typer keeps its own copy of click to itself and shows only the leaves of its errors.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class _Commands(TyperGroup):
    """Loads only the command that is called, so that none waits for what another one needs.

    Says what is wrong with the arguments in one line, as for everything else: they may be hostile too.
    """

    def __init__(self, **attributes: Any) -> None:
        attributes["commands"] = dict.fromkeys(_MODULES)
        super().__init__(**attributes)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"{__name__}.{_MODULES[cmd_name]}")
        return get_group(module.app).commands[cmd_name]

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        arguments = _repeat_sources_option(sys.argv[1:] if args is None else args) or ["--help"]
        try:
            extra["standalone_mode"] = False
            code = super().main(arguments, **extra)
        except _UsageError as exc:
            say(f"citewire: {exc.format_message()}")  # type: ignore[attr-defined]
            code = 2
        sys.exit(code or 0)


def _repeat_sources_option(arguments: Sequence[str]) -> list[str]:
    """`--sources a b` as `--sources a --sources b`, which is all that the library below knows."""
    made: list[str] = []
    many = False
    for at, argument in enumerate(arguments):
        if argument.startswith("-") and argument != "-":
            many = argument == "--sources"
        elif many and arguments[at - 1] != "--sources":
            made.append("--sources")
        made.append(argument)
    return made


app = typer.Typer(
    cls=_Commands,
    help="Trustworthy citations on AI answers.",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(citewire.__version__)
        raise typer.Exit


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line."""
    return app(arguments, prog_name="citewire")
