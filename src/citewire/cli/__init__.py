"""The command line: it parses arguments and prints results; the work is done elsewhere.

Exit codes: 0 done, 1 something was lost under `--strict` or rejected under `--check`, 2 the input or the
arguments are invalid.
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

# The module of each command, in the order of `--help`.
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

# Typer vendors a private copy of click and exports only the leaves of its error classes.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class _Commands(TyperGroup):
    """Loads only the module of the called command, so that no command waits for another's imports.

    Reports invalid arguments in one sanitized line, like all errors: they may be hostile too.
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
    """Turn `--sources a b` into `--sources a --sources b`, the only form that click supports."""
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
