"""`citewire keys`: the API keys of a server, or of all servers that share a database. They may be running."""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from citewire.channels.actor import Actor
from citewire.cli.output import fail, say, write_out
from citewire.cli.serve import load_settings
from citewire.cli.vault import open_vault
from citewire.codec import decode, encode, pretty
from citewire.errors import CitewireError, InputError
from citewire.server.access.capability import FULL, Capability
from citewire.text import one_line

if TYPE_CHECKING:
    from citewire.server.access.keys import Key, Keyring
    from citewire.server.storage.vault import Vault

__all__ = ["app"]

# Mode bits that let others than the owner write to a file.
_OTHERS_WRITE = 0o022

app = typer.Typer(rich_markup_mode="markdown")
_keys = typer.Typer(help="Make, list and revoke the API keys of a server, and sign browsers in.")
app.add_typer(_keys, name="keys")


class _Format(StrEnum):
    text = "text"
    json = "json"


class _Page(StrEnum):
    chat = "chat"
    console = "console"


_Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="The data folder; else the one that `citewire serve` takes."),
]
_Store = Annotated[
    str | None,
    typer.Option("--store", metavar="DSN", help="The database that servers share, where there is one."),
]


@_keys.command(
    epilog="""**Examples**

`citewire keys create`

`citewire keys create --name shop.reader --capability '{"thread:*": ["read", "run"]}'`"""
)
def create(
    name: Annotated[
        str | None, typer.Option("--name", metavar="APP.KEY", help="Its name; else one at random.")
    ] = None,
    capability: Annotated[
        str | None,
        typer.Option("--capability", metavar="JSON", help="What it may do to what; else everything."),
    ] = None,
    data: _Data = None,
    store: _Store = None,
) -> None:
    """Make a key and print it, this once.

    The key alone goes to standard output, as `app.key:secret`.
    """
    granted = FULL if capability is None else _capability(capability)
    try:
        key = _keyring(_vault(data, store)).create(granted, name, current_operator())
    except CitewireError as exc:
        fail(exc.explanation)
    write_out(f"{key}\n")
    say("note: this key is not shown again")


@_keys.command("list")
def list_keys(
    form: Annotated[_Format, typer.Option("--format", help="How to show them.")] = _Format.text,
    data: _Data = None,
    store: _Store = None,
) -> None:
    """List the keys there are and were, without their secrets."""
    try:
        rows = _require_keyring(data, store).rows()
    except CitewireError as exc:
        fail(exc.explanation)
    match form:
        case _Format.text:
            write_out(_table(rows))
        case _Format.json:
            fields = ("name", "created", "revoked", "capability")
            write_out(pretty([{field: getattr(row, field) for field in fields} for row in rows]) + "\n")


@_keys.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name, without its secret.")],
    data: _Data = None,
    store: _Store = None,
) -> None:
    """Refuse a key, and every token signed with it, from now on."""
    try:
        _require_keyring(data, store).revoke(name, current_operator())
    except CitewireError as exc:
        fail(exc.explanation)
    say(f"{name} is revoked; it and the tokens signed with it are refused")


@_keys.command(
    epilog="""**Examples**

`citewire keys link`

`citewire keys link --page console --data /srv/citewire`"""
)
def link(
    page: Annotated[_Page, typer.Option("--page", help="The page that it leads to.")] = _Page.chat,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="NAME", help="The key whose rights it has; else the one with most."),
    ] = None,
    data: _Data = None,
    store: _Store = None,
) -> None:
    """Print a link that signs a browser in at a running server.

    The link works once, within an hour. The session that it starts may do what the pages may, as far as the
    key may, and ends when the key is revoked.
    """
    from citewire.server.access.sign_in import sign_in_link  # noqa: PLC0415

    try:
        keyring, address = _require_keyring(data, store), _address(data, store)
        made = sign_in_link(keyring, address, key or keyring.widest_key(), page.value)
    except CitewireError as exc:
        fail(exc.explanation)
    write_out(f"{made}\n")


def _address(data: str | None, store: str | None) -> str:
    """Return the address of the server that uses this data folder."""
    from citewire.server.access.sign_in import ADDRESS  # noqa: PLC0415

    settings = load_settings(None, {"data": data, "store": store})
    file = Path(settings.data) / ADDRESS
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as opened:
            found = os.fstat(opened.fileno())
            if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
                fail(
                    f"others could have written {file}: run this as the server's user, or restart the server"
                )
            return opened.read().strip()
    except FileNotFoundError:
        fail(f"no server runs with the data folder {settings.data}")
    except OSError as exc:
        fail(f"{file}: {exc.strerror}")


def current_operator() -> Actor:
    """Return the actor of a command: the system's user."""
    try:
        return Actor(person=getpass.getuser(), via="command")
    except (KeyError, OSError):  # a user without a name, as in some containers
        return Actor(person=f"uid {os.getuid()}", via="command")


def _capability(text: str) -> Capability:
    try:
        return Capability.of(decode(text))
    except InputError as exc:
        fail(f"--capability: {exc}")


def _vault(data: str | None, store: str | None) -> Vault:
    return open_vault(load_settings(None, {"data": data, "store": store}))


def _require_keyring(data: str | None, store: str | None) -> Keyring:
    """Open the keyring; fail if there are no keys."""
    from citewire.server.access.keys import has_no_keys  # noqa: PLC0415

    vault = _vault(data, store)
    if has_no_keys(vault):
        fail(f"there are no keys in {vault.location()}")
    return _keyring(vault)


def _keyring(vault: Vault) -> Keyring:
    from citewire.server.access.keys import Keyring  # noqa: PLC0415  # a tenth of a second, which `--help` need not

    return Keyring.from_vault(vault)


def _table(keys: tuple[Key, ...]) -> str:
    rows = [("name", "created", "revoked", "capability")]
    rows += [(one_line(key.name, 130), _when(key.created), _when(key.revoked), _granted(key)) for key in keys]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows)


def _when(seconds: int | None) -> str:
    """Format a time for people; in a hand-edited file it may be any number."""
    if seconds is None:
        return "-"
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (OSError, OverflowError, ValueError):
        return one_line(seconds, 20)


def _granted(key: Key) -> str:
    return one_line(encode(key.capability).decode(), 200)
