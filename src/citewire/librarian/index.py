"""The passages of all sources, in SQLite's full-text index.

It can be made anew from the sources at any time: a file of another version, or one that is no index, is
thrown away. All methods may be called from any thread.

What is removed is overwritten in the file at once, but for the words in the full-text index: SQLite only
marks them as deleted, until `purge` rewrites it.
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

# Of the schema, and of how text becomes terms and passages: whoever changes one of them counts on.
_VERSION = 2
# `terms` holds what `terms.words` makes of a text, so the tokenizer has nothing to do but to split it.
_SCHEMA = """
    CREATE TABLE sources (id TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE passages (
        n INTEGER PRIMARY KEY, source_id TEXT NOT NULL, source TEXT NOT NULL, title TEXT NOT NULL, url TEXT,
        heading TEXT NOT NULL, sentences BLOB NOT NULL
    );
    CREATE INDEX passages_of ON passages (source_id);
    CREATE VIRTUAL TABLE terms USING fts5 (title, heading, body, tokenize = 'unicode61 remove_diacritics 0');
"""
# A heading says what its passages are about; a title says it of all of them, and so tells them apart less.
_RANKED = """
    SELECT source_id, source, title, url, heading, sentences
    FROM (SELECT rowid, bm25(terms, 0.5, 2.0, 1.0) AS score FROM terms WHERE terms MATCH ?
          ORDER BY score, rowid LIMIT ?) AS found
    JOIN passages ON n = found.rowid ORDER BY score, n
"""
# Of a question, so that a book that somebody pastes is one like any other.
MOST_QUESTION_CHARACTERS, _MOST_TERMS = 2_000, 32
# Changes that a merge makes at least: one is the statement itself.
_MERGED = 2
# Pages that a step of `purge` writes, before it lets others have the index.
_PAGES = 2_000
# Passages from which on it takes longer to rank all that have a term than it is worth.
_COMMON = 2_000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Sentence, ...]).decode


class TermWeights(NamedTuple):
    """The weight of each term; those that no source has; and those that too many have to be looked up by."""

    weights: Mapping[str, float]
    missing: frozenset[str]
    common: frozenset[str]


class PassageIndex:
    """Sources by their passages, in the file at `path` or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = Lock()
        # Of what was removed before a crash, say.
        self._has_traces = True
        try:
            self._connection = _open(path)
        except sqlite3.DatabaseError as exc:
            # It may be there and right, but locked, or not ours to open.
            if path is None or isinstance(exc, sqlite3.OperationalError):
                raise
            for each in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))):
                each.unlink(missing_ok=True)
            self._connection = _open(path)

    def close(self) -> None:
        """Give the file back."""
        with self._lock:
            self._connection.close()

    def add(self, source_id: str, document: Document) -> None:
        """Take a source in, in place of what it was before. Costs nothing where it is the same."""
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
        """Forget a source, if it is known."""
        with self._lock, self._connection:
            self._forget(source_id)

    def purge(self) -> None:
        """Have nothing left in the file of what was removed. Costs nothing where nothing was.

        The segments of the full-text index are merged into one, which leaves out what was deleted.
        """
        if not self._has_traces:
            return
        self._has_traces = False
        pages = -_PAGES  # the first step is to take all segments
        while self._merge(pages):
            pages = _PAGES
        with self._lock:
            self._connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")

    def _merge(self, pages: int) -> bool:
        """Whether there was anything to merge, as the documentation of FTS5 says how to see it."""
        with self._lock, self._connection as connection:
            before = connection.total_changes
            connection.execute("INSERT INTO terms (terms, rank) VALUES ('merge', ?)", (pages,))
            return connection.total_changes - before >= _MERGED

    def source_ids(self) -> frozenset[str]:
        """The ids of what was added."""
        with self._lock:
            return frozenset(name for (name,) in self._connection.execute("SELECT id FROM sources"))

    def search(self, question: str, limit: int = 8) -> list[Passage]:
        """The passages that have most of what a question is about, the best first."""
        return self.rank_passages(self.weigh_terms(content_terms(question[:MOST_QUESTION_CHARACTERS])), limit)

    def rank_passages(self, terms: TermWeights, limit: int) -> list[Passage]:
        """The passages with any of these terms, the best first. Common ones count if all are."""
        there = terms.weights.keys() - terms.missing
        wanted = sorted(there - terms.common or there)
        if not wanted:
            return []
        with self._lock:
            rows = self._connection.execute(_RANKED, (" OR ".join(map(_quoted, wanted)), limit)).fetchall()
        return [Passage(*about, sentences=_decode(sentences)) for *about, sentences in rows]

    def weigh_terms(self, terms: Iterable[str]) -> TermWeights:
        """How much each of these terms, as `content_terms` gives them, tells by how few passages have it.

        What all have still tells a little: it may be all that is asked about.
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
    """A connection to an index of this version; raises `sqlite3.DatabaseError` for another file."""
    connection = sqlite3.connect(path or ":memory:", check_same_thread=False)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        with closing(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1")) as known:
            is_new = known.fetchone() is None
        if not is_new and version != _VERSION:
            raise sqlite3.DatabaseError("an index of another version")  # noqa: TRY301
        # A crash of the machine may cost the last sources, which are then read again.
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
    """A term as a string of FTS5, in which nothing is syntax."""
    return '"' + term.replace('"', '""') + '"'


def _row_of(passage: Passage) -> tuple[Any, ...]:
    return (*msgspec.structs.astuple(passage)[:5], _encode(passage.sentences))


def _terms_of(passage: Passage) -> tuple[str, str, str]:
    return (
        join_terms(f"{passage.title} {passage.source}"),
        join_terms(passage.heading),
        join_terms(passage.text),
    )
