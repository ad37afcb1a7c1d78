"""Insert many rows into a table with few statements.

With every statement the thread releases the GIL, and waits until the event loop gives it back. So one
statement per row costs a busy server more than the rows themselves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

_AT_ONCE = 16
"""Rows in one statement: most of the gain, and few of them are left over."""


class Inserts:
    """Inserts rows with this many columns into a table; `end` is SQL after the values.

    If a row cannot be inserted, those before it stay until the caller rolls the transaction back: to undo
    only these, SQLite would have to copy every page that it touches.
    """

    def __init__(self, table: str, columns: int, end: str = "") -> None:
        start, row = f"INSERT OR FAIL INTO {table} VALUES", f"({','.join('?' * columns)})"
        self._one, self._many = (f"{start} {','.join([row] * rows)} {end}" for rows in (1, _AT_ONCE))

    def run(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert the rows, in order."""
        whole = len(rows) - len(rows) % _AT_ONCE
        for at in range(0, whole, _AT_ONCE):
            db.execute(self._many, [*chain.from_iterable(rows[at : at + _AT_ONCE])])
        for row in rows[whole:]:
            db.execute(self._one, row)
