"""Open the vault of a server for a command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from citewire.server.ops.settings import Settings
    from citewire.server.storage.vault import Vault

__all__ = ["open_vault"]


def open_vault(settings: Settings) -> Vault:
    """Open the vault with a server's keys: its data folder, or the database that servers share."""
    from citewire.server.storage.backend import open_configured_vault  # noqa: PLC0415  # `--help` need not wait for it
    from citewire.server.storage.vault import FileVault  # noqa: PLC0415

    return (
        FileVault(Path(settings.data))
        if settings.dsn is None
        else asyncio.run(open_configured_vault(settings))
    )
