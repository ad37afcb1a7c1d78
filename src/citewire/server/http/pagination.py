"""Pages of a list of which a caller may see a part.

A cursor may stand at an entry that its holder may not see, so it is sealed: nobody can read it, or make up
one to find out what lies where.
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
# Entries that are read at once, and that one request looks at, whether its caller may see them or not.
_BATCH, _MOST = 1000, 10_000


class ListPage(Struct, Generic[_T], frozen=True):
    """The entries of a page, and the name after which the list goes on; None where it has ended."""

    items: list[_T]
    after: str | None


class SealedCursors:
    """The cursors of one list."""

    def __init__(self, keyring: Keyring, name: str) -> None:
        self._keyring, self._purpose = keyring, f"cursor {name}"

    def write(self, after: str | None) -> str | None:
        """The cursor for a place in the list; None where there is no more."""
        return None if after is None else self._keyring.seal(self._purpose, after.encode())

    def read(self, cursor: str | None) -> str:
        """The place that a cursor stands for; without one the beginning. Raises `InputError`."""
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
    """The first `limit` visible entries after a name.

    `read` gives so many entries with their names, in order, and fewer only at the end of the list. Where very
    many entries cannot be seen, a page may have less than `limit` and still not be the last.
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
