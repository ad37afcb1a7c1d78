"""Looks for words in all files of a folder, in every form in which one of ours may have written them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from citewire.channels.postgres_database import Database

_ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le")


def forms(word: str | bytes) -> Iterator[bytes]:
    """Bytes by which a word, or a piece of a file, can be told: encoded, and in base64 at any offset."""
    plain = [word] if isinstance(word, bytes) else [word.encode(each) for each in _ENCODINGS]
    yield from plain
    for skipped in range(3):
        # Whole groups of three bytes, whatever comes before and after them.
        data = plain[0][skipped:]
        yield b64encode(data[: len(data) // 3 * 3])


def traces(folder: Path, *words: str | bytes) -> list[str]:
    """The files with any of these words, in any case, and which word it is."""
    wanted = [(word, [form.lower() for form in forms(word)]) for word in words]
    found: list[str] = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        try:
            data = path.read_bytes().lower()
        except FileNotFoundError:  # it has gone since
            continue
        for word, known in wanted:
            if any(form in data for form in known):
                found.append(f"{path.relative_to(folder)}: {word!r}")
    return found


async def traces_in_tables(db: Database, word: str) -> list[str]:
    """The tables of ours in which a word stands, as text or as bytes."""
    tables = await db.fetch(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables"
        " WHERE schemaname IN ('citewire', 'citewire_jobs')"
    )
    forms = [f"%{word}%", f"%{word.encode().hex()}%"]
    found: list[str] = []
    for (name,) in tables:
        rows = await db.fetch(f"SELECT FROM {name} AS t WHERE t::text ILIKE ANY ($1)", forms)
        found += [name] if rows else []
    return found
