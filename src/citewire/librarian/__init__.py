"""The embedded agent: it answers from the sources, in their own words, and cites the page of each."""

from __future__ import annotations

from citewire.librarian.index import PassageIndex
from citewire.librarian.librarian import Librarian
from citewire.librarian.passages import Passage, Sentence

__all__ = ["Librarian", "Passage", "PassageIndex", "Sentence"]
