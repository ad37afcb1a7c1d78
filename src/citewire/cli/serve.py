"""`citewire serve`, whose options are the server's settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from citewire.cli.output import fail, say
from citewire.errors import CitewireError
from citewire.server.ops.settings import Option, Settings, options, read_toml, unknown_names

__all__ = ["app", "load_settings"]

app = typer.Typer(rich_markup_mode="markdown")


def serve(config: Path | None, **flags: Any) -> None:
    """Serve verified answers over HTTP.

    What is not given here is looked for in the environment (`CITEWIRE_PORT` for `--port`), and then in a TOML
    file (`port = 8787`).
    """
    try:
        settings = load_settings(config, flags)
        from citewire.server.serve import run  # noqa: PLC0415  # it brings all the rest along

        run(settings)
    except CitewireError as exc:
        fail(exc.explanation)


def load_settings(config: Path | None, flags: Mapping[str, Any]) -> Settings:
    """Combine the settings of the command line, the environment and the file. Raises `SettingError`."""
    file = config or Path("citewire.toml")
    toml = read_toml(file) if config or file.exists() else {}
    given = {name: value for name, value in flags.items() if value not in (None, [])}
    settings = Settings.load(given, os.environ, toml)
    for name in unknown_names(os.environ):
        say(f"note: {name} is no setting")
    return settings


def _parameter(option: Option) -> Parameter:
    """Make a command-line parameter of type text: `Settings` validates it together with the other places."""
    is_switch = isinstance(option.default, bool)
    kind = bool if is_switch else list[str] if option.many else str
    shown = typer.Option(
        f"{option.flag}/--no-{option.flag.removeprefix('--')}" if is_switch else option.flag,
        metavar=None if is_switch else option.kind,
        help=f"{option.help} [default: {option.shown_default}]" if option.shown_default else option.help,
    )
    annotation = Annotated[kind | None, shown]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


_CONFIG = typer.Option(metavar="FILE", help="The TOML file; ./citewire.toml where there is one.")
# Typer reads the options from the signature.
serve.__signature__ = Signature(  # type: ignore[attr-defined]
    [
        *(_parameter(option) for option in options()),
        Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, _CONFIG]),
    ]
)
app.command(
    epilog="""**Examples**

`citewire serve --sources docs/`

`citewire serve --agent https://agent.example.com/agui --sources docs/ https://example.com/report.html`

`citewire serve --agent my_agent:app --port 0`"""
)(serve)
