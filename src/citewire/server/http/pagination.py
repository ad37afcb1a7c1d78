"""Pagination of lists in which a caller may see only some entries.

A cursor may point to an entry that its holder may not see. Cursors are therefore sealed: nobody can read one,
or forge one to probe for hidden entries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from citewire.errors import InputError
from citewire.server.access.errors import BadToken
from citewire.server.access.keys import Keyring

__all__ = ["ListPage", "SealedCursors", "list_visible"]

_T = TypeVar("_T")
# How many entries are read at once, and how many one request scans, visible or not.
_BATCH, _MOST = 1000, 10_000


class ListPage(Struct, Generic[_T], frozen=True):
    """The entries of a page, and the name after which the list continues, or None at its end."""

    items: list[_T]
    after: str | None


class SealedCursors:
    """Encrypted cursors of one list."""

    def __init__(self, keyring: Keyring, name: str) -> None:
        self._keyring, self._purpose = keyring, f"cursor {name}"

    def write(self, after: str | None) -> str | None:
        """Return the cursor for a position, or None at the end of the list."""
        return None if after is None else self._keyring.seal(self._purpose, after.encode())

    def read(self, cursor: str | None) -> str:
        """Return the position of a cursor, or the beginning without one. Raises `InputError`."""
        if not cursor:
            return ""
        try:
            return self._keyring.unseal(self._purpose, cursor).decode()
        except BadToken as exc:
            raise InputError("not a cursor of this list") from exc


async def list_visible(
    read: Callable[[str, int], Awaitable[Sequence[tuple[str, _T]]]],
    is_visible: Callable[[_T], bool],
    after: str,
    limit: int,
) -> ListPage[_T]:
    """Return the first `limit` visible entries after a name.

    `read` returns entries with their names, in order, and fewer than asked only at the end of the list. If
    very many entries are hidden, a page may have fewer than `limit` entries and still not be the last.
    """
    found, last, looked = list[tuple[str, _T]](), after, 0
    while looked < _MOST:
        entries = await read(last, _BATCH)
        found += (entry for entry in entries if is_visible(entry[1]))
        if len(found) > limit:
            return ListPage([item for _, item in found[:limit]], found[limit - 1][0])
        if len(entries) < _BATCH:
            return ListPage([item for _, item in found], None)
        last, looked = entries[-1][0], looked + len(entries)
    return ListPage([item for _, item in found], last)
