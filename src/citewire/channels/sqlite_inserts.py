"""Many rows into a table with few statements.

With every statement a thread gives the interpreter away, and waits until the event loop gives it back. So a
statement for each row costs a busy server more than the rows do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

_AT_ONCE = 16
"""Rows in one statement: most of the gain, and few of them are left over."""


class Inserts:
    """The insertion of rows with so many columns into a table; `end` follows the values.

    Where one cannot be inserted, those before it stay until the transaction is rolled back, which is up to
    the caller: to undo these alone SQLite would keep a copy of every page that it touches.
    """

    def __init__(self, table: str, columns: int, end: str = "") -> None:
        start, row = f"INSERT OR FAIL INTO {table} VALUES", f"({','.join('?' * columns)})"
        self._one, self._many = (f"{start} {','.join([row] * rows)} {end}" for rows in (1, _AT_ONCE))

    def run(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert them, in order."""
        whole = len(rows) - len(rows) % _AT_ONCE
        for at in range(0, whole, _AT_ONCE):
            db.execute(self._many, [*chain.from_iterable(rows[at : at + _AT_ONCE])])
        for row in rows[whole:]:
            db.execute(self._one, row)
