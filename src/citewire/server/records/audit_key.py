"""Load the server's audit key from the environment, a file or the vault, which creates one if needed."""

from __future__ import annotations

import os
from pathlib import Path

from citewire.audit.signing import AuditKey, KeyProblem
from citewire.server.storage.vault import FileVault, Vault

__all__ = ["NAME", "VARIABLE", "create_key", "load_key", "locate_key"]

VARIABLE = "CITEWIRE_AUDIT_KEY"
NAME = "audit.key"
"""Name of the key in the vault."""


def load_key(vault: Vault, file: str | None = None) -> AuditKey:
    """Return the key from the environment, else from the file, else from the vault, created if needed.

    Raises `KeyProblem` and `KeyringError`, also if other users could read the key.
    """
    if text := os.environ.get(VARIABLE):
        return AuditKey.parse(text)
    place, name = locate_key(vault, file)
    if (data := place.read(name, secret=True)) is None:
        if file is not None:
            raise KeyProblem(f"there is no audit key in {file}: `citewire audit key create` makes one")
        return create_key(place, name)
    return AuditKey.parse(data.decode("ascii", "replace"))


def create_key(place: Vault, name: str) -> AuditKey:
    """Create a key under this name, or return the one that another process created first."""
    with place.lock():
        if (data := place.read(name, secret=True)) is None:
            key = AuditKey.create()
            place.write(name, key.write().encode() + b"\n")
            return key
    return AuditKey.parse(data.decode("ascii", "replace"))


def locate_key(vault: Vault, file: str | None) -> tuple[Vault, str]:
    """Return the vault that holds the key, and its name there."""
    return (vault, NAME) if file is None else (FileVault(Path(file).parent), Path(file).name)
