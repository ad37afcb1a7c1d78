"""Index of the passages of all sources, in SQLite's full-text search.

It can be rebuilt from the sources at any time: a file of another version, or one that is not an index, is
deleted. All methods may be called from any thread.

Removed data is overwritten in the file at once, except for words in the full-text index: SQLite only marks
them as deleted, until `purge` rewrites it.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from citewire.documents.document import Document
from citewire.librarian.passages import Passage, Sentence, split_passages
from citewire.librarian.terms import content_terms, join_terms

__all__ = ["MOST_QUESTION_CHARACTERS", "PassageIndex", "TermWeights"]

# Version of the schema, and of how text becomes terms and passages: increase it if one of them changes.
_VERSION = 2
# `terms` holds the output of `terms.join_terms`, so the tokenizer only has to split it.
_SCHEMA = """
    CREATE TABLE sources (id TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE passages (
        n INTEGER PRIMARY KEY, source_id TEXT NOT NULL, source TEXT NOT NULL, title TEXT NOT NULL, url TEXT,
        heading TEXT NOT NULL, sentences BLOB NOT NULL
    );
    CREATE INDEX passages_of ON passages (source_id);
    CREATE VIRTUAL TABLE terms USING fts5 (title, heading, body, tokenize = 'unicode61 remove_diacritics 0');
"""
# A heading describes its passages; a title describes all of them, and so distinguishes them less.
_RANKED = """
    SELECT source_id, source, title, url, heading, sentences
    FROM (SELECT rowid, bm25(terms, 0.5, 2.0, 1.0) AS score FROM terms WHERE terms MATCH ?
          ORDER BY score, rowid LIMIT ?) AS found
    JOIN passages ON n = found.rowid ORDER BY score, n
"""
# Limits on a question, so that a pasted book costs no more than any other.
MOST_QUESTION_CHARACTERS, _MOST_TERMS = 2_000, 32
# Fewest changes of a real merge: one is the statement itself.
_MERGED = 2
# Pages that a step of `purge` writes before it releases the lock.
_PAGES = 2_000
# A term in more passages takes longer to rank than it is worth.
_COMMON = 2_000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Sentence, ...]).decode


class TermWeights(NamedTuple):
    """The weight of each term; the terms that no source has; and those too common to search by."""

    weights: Mapping[str, float]
    missing: frozenset[str]
    common: frozenset[str]


class PassageIndex:
    """The passages of sources, in the file at `path` or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = Lock()
        # There may be traces of data that was removed before a crash.
        self._has_traces = True
        try:
            self._connection = _open(path)
        except sqlite3.DatabaseError as exc:
            # The file may be valid, but locked or not accessible.
            if path is None or isinstance(exc, sqlite3.OperationalError):
                raise
            for each in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))):
                each.unlink(missing_ok=True)
            self._connection = _open(path)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def add(self, source_id: str, document: Document) -> None:
        """Add a source, or replace its earlier version. A no-op if it is unchanged."""
        content = "\n".join((document.sha256, document.name or "", document.url or "", document.title or ""))
        with self._lock:
            known = self._first("SELECT content FROM sources WHERE id = ?", source_id)
        if known == (content,):
            return
        rows = [(passage, _terms_of(passage)) for passage in split_passages(source_id, document)]
        with self._lock, self._connection as connection:
            self._forget(source_id)
            connection.execute("INSERT INTO sources VALUES (?, ?)", (source_id, content))
            for passage, found in rows:
                cursor = connection.execute(
                    "INSERT INTO passages VALUES (NULL, ?, ?, ?, ?, ?, ?)", _row_of(passage)
                )
                connection.execute(
                    "INSERT INTO terms (rowid, title, heading, body) VALUES (?, ?, ?, ?)",
                    (cursor.lastrowid, *found),
                )

    def remove(self, source_id: str) -> None:
        """Remove a source, if it is known."""
        with self._lock, self._connection:
            self._forget(source_id)

    def purge(self) -> None:
        """Erase all traces of removed sources from the file. A no-op if there are none.

        The segments of the full-text index are merged into one, which drops deleted words.
        """
        if not self._has_traces:
            return
        self._has_traces = False
        pages = -_PAGES  # a negative number includes all segments in the first step
        while self._merge(pages):
            pages = _PAGES
        with self._lock:
            self._connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")

    def _merge(self, pages: int) -> bool:
        """Run one merge step; return whether it merged anything, as the FTS5 documentation describes."""
        with self._lock, self._connection as connection:
            before = connection.total_changes
            connection.execute("INSERT INTO terms (terms, rank) VALUES ('merge', ?)", (pages,))
            return connection.total_changes - before >= _MERGED

    def source_ids(self) -> frozenset[str]:
        """Return the ids of all sources in the index."""
        with self._lock:
            return frozenset(name for (name,) in self._connection.execute("SELECT id FROM sources"))

    def search(self, question: str, limit: int = 8) -> list[Passage]:
        """Return the passages that best match a question, the best first."""
        return self.rank_passages(self.weigh_terms(content_terms(question[:MOST_QUESTION_CHARACTERS])), limit)

    def rank_passages(self, terms: TermWeights, limit: int) -> list[Passage]:
        """Return the passages with any of these terms, best first. Common terms count only if all are."""
        there = terms.weights.keys() - terms.missing
        wanted = sorted(there - terms.common or there)
        if not wanted:
            return []
        with self._lock:
            rows = self._connection.execute(_RANKED, (" OR ".join(map(_quoted, wanted)), limit)).fetchall()
        return [Passage(*about, sentences=_decode(sentences)) for *about, sentences in rows]

    def weigh_terms(self, terms: Iterable[str]) -> TermWeights:
        """Weigh terms from `content_terms`: the fewer passages have a term, the more it weighs.

        A term that all passages have still weighs a little: it may be all that is asked about.
        """
        with self._lock:
            (total,) = self._first("SELECT count(*) FROM passages") or (0,)
            count = "SELECT count(*) FROM terms WHERE terms MATCH ?"
            having = {term: (self._first(count, _quoted(term)) or (0,))[0] for term in [*terms][:_MOST_TERMS]}
        return TermWeights(
            {term: math.log(1 + total / max(n, 1)) for term, n in having.items()},
            frozenset(term for term, n in having.items() if not n),
            frozenset(term for term, n in having.items() if n > _COMMON),
        )

    def _first(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        return self._connection.execute(query, values).fetchone()

    def _forget(self, source_id: str) -> None:
        self._has_traces = True
        for query in (
            "DELETE FROM terms WHERE rowid IN (SELECT n FROM passages WHERE source_id = ?)",
            "DELETE FROM passages WHERE source_id = ?",
            "DELETE FROM sources WHERE id = ?",
        ):
            self._connection.execute(query, (source_id,))


def _open(path: Path | None) -> sqlite3.Connection:
    """Connect to an index of this version. Raises `sqlite3.DatabaseError` for any other file."""
    connection = sqlite3.connect(path or ":memory:", check_same_thread=False)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        with closing(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1")) as known:
            is_new = known.fetchone() is None
        if not is_new and version != _VERSION:
            raise sqlite3.DatabaseError("an index of another version")  # noqa: TRY301
        # If the machine crashes, the last sources may be lost and are read again.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if is_new:
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def _quoted(term: str) -> str:
    """Quote a term as an FTS5 string, in which nothing is syntax."""
    return '"' + term.replace('"', '""') + '"'


def _row_of(passage: Passage) -> tuple[Any, ...]:
    return (*msgspec.structs.astuple(passage)[:5], _encode(passage.sentences))


def _terms_of(passage: Passage) -> tuple[str, str, str]:
    return (
        join_terms(f"{passage.title} {passage.source}"),
        join_terms(passage.heading),
        join_terms(passage.text),
    )
