"""`citewire audit key`: create, show and replace the key that signs heads and exports."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from citewire.cli.output import fail, say, write_out
from citewire.cli.serve import load_settings
from citewire.cli.vault import open_vault
from citewire.errors import CitewireError

if TYPE_CHECKING:
    from citewire.audit.signing import AuditKey
    from citewire.server.storage.vault import Vault

__all__ = ["KeyFileOption", "find_key", "find_key_or_fail", "keys_app"]

keys_app = typer.Typer(help="The key that signs the audit log. Its public part is what verifiers trust.")

DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="The data folder; else the one that `citewire serve` takes."),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="DSN", help="The database that servers share, where there is one."),
]
KeyFileOption = Annotated[
    str | None,
    typer.Option("--audit-key-file", metavar="FILE", help="Where the key is, when not in the data folder."),
]


@keys_app.command()
def create(data: DataOption = None, store: StoreOption = None, key_file: KeyFileOption = None) -> None:
    """Make a key, unless there is one, and print its public part."""
    from citewire.server.records.audit_key import create_key  # noqa: PLC0415

    try:
        place, name = _key_location(data, store, key_file)
        if place.read(name, secret=True) is not None:
            fail(f"there is a key in {place.location(name)} already: `citewire audit key rotate` replaces it")
        key = create_key(place, name)
    except CitewireError as exc:
        fail(exc.explanation)
    write_out(f"{key.public}\n")


@keys_app.command()
def show(data: DataOption = None, store: StoreOption = None, key_file: KeyFileOption = None) -> None:
    """Print the public key, for `citewire audit verify --public-key`."""
    from citewire.audit.signing import key_id  # noqa: PLC0415

    key = _require_key(data, store, key_file)
    write_out(f"{key.public}\n")
    say(f"note: it is called {key_id(key.public)}; {len(key.introductions)} before it")


@keys_app.command()
def rotate(data: DataOption = None, store: StoreOption = None, key_file: KeyFileOption = None) -> None:
    """Replace the key by a new one, which the old one introduces, and print the new public key.

    A server takes the new key when it is started again. Where the key is in the environment
    (`CITEWIRE_AUDIT_KEY`), the new private key is printed, to be put there.
    """
    from citewire.server.records.audit_key import VARIABLE  # noqa: PLC0415

    new = _require_key(data, store, key_file).rotate(datetime.now(UTC).isoformat(timespec="milliseconds"))
    if os.environ.get(VARIABLE):
        write_out(f"{new.write()}\n")
        say(f"note: this private key is not shown again; its public key is {new.public}")
        return
    try:
        place, name = _key_location(data, store, key_file)
        with place.lock():
            place.write(name, new.write().encode() + b"\n")
    except CitewireError as exc:
        fail(exc.explanation)
    write_out(f"{new.public}\n")
    say("note: a server that runs goes on with the old key until it is started again")


def find_key_or_fail(data: str | None, store: str | None, key_file: str | None) -> AuditKey | None:
    """Find the key like `find_key`; end the command if it cannot be read."""
    try:
        return find_key(data, store, key_file)
    except CitewireError as exc:
        fail(exc.explanation)


def find_key(data: str | None, store: str | None, key_file: str | None) -> AuditKey | None:
    """Return the key from the environment, the file or the vault; None if there is none. Creates none.

    Raises `KeyProblem` and `KeyringError`.
    """
    from citewire.audit.signing import AuditKey  # noqa: PLC0415
    from citewire.server.records.audit_key import VARIABLE  # noqa: PLC0415

    if text := os.environ.get(VARIABLE):
        return AuditKey.parse(text)
    place, name = _key_location(data, store, key_file)
    found = place.read(name, secret=True)
    return AuditKey.parse(found.decode("ascii", "replace")) if found else None


def _require_key(data: str | None, store: str | None, key_file: str | None) -> AuditKey:
    key = find_key_or_fail(data, store, key_file)
    if key is None:
        fail("there is no audit key: `citewire audit key create` makes one")
    return key


def _key_location(data: str | None, store: str | None, file: str | None) -> tuple[Vault, str]:
    from citewire.server.records.audit_key import locate_key  # noqa: PLC0415

    settings = load_settings(None, {"data": data, "store": store, "audit_key_file": file})
    return locate_key(open_vault(settings), settings.audit_key_file)
