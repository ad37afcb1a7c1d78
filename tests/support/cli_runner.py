"""The command line, called in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from citewire import cli


def run(*arguments: str, stdin: str | bytes = "") -> Result:
    """Colour is on: what would reach a terminal must show here."""
    env = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner(env=env).invoke(cli.app, arguments, input=stdin, color=True, prog_name="citewire")
