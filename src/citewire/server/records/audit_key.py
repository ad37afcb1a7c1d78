"""Where the audit key of a server comes from: the environment, a file, or the vault, where one is made."""

from __future__ import annotations

import os
from pathlib import Path

from citewire.audit.signing import AuditKey, KeyProblem
from citewire.server.storage.vault import FileVault, Vault

__all__ = ["NAME", "VARIABLE", "create_key", "load_key", "locate_key"]

VARIABLE = "CITEWIRE_AUDIT_KEY"
NAME = "audit.key"
"""What the key is called in the vault."""


def load_key(vault: Vault, file: str | None = None) -> AuditKey:
    """The key of the environment, else that in the file, else that of the vault, which is made if need be.

    Raises `KeyProblem` and `KeyringError`, also where others could read the key.
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
    """A new key, kept under this name; if another process was faster, that one's."""
    with place.lock():
        if (data := place.read(name, secret=True)) is None:
            key = AuditKey.create()
            place.write(name, key.write().encode() + b"\n")
            return key
    return AuditKey.parse(data.decode("ascii", "replace"))


def locate_key(vault: Vault, file: str | None) -> tuple[Vault, str]:
    """Where the key is kept, and under which name."""
    return (vault, NAME) if file is None else (FileVault(Path(file).parent), Path(file).name)
