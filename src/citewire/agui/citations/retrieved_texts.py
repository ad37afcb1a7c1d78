"""The texts that an agent was given in one stream, and which of them a label in its answer means."""

from __future__ import annotations

from collections.abc import Iterable

from citewire.agui.citations.answer_text import is_web_url
from citewire.agui.citations.retrieval import RetrievedText

__all__ = ["RetrievedTexts"]

# Characters that are searched, for one stream, and how many texts.
_MOST_CHARACTERS, _MOST_TEXTS = 32 << 20, 1000


class RetrievedTexts:
    """The texts of one stream; where `fetches_urls`, also the pages whose addresses are among them."""

    def __init__(self, fetches_urls: bool) -> None:
        self._fetches_urls = fetches_urls
        self._texts: list[RetrievedText] = []
        # The first of them that goes by an id, a title or an address. What a client brought comes last.
        self._named: dict[str | None, RetrievedText] = {}
        self._room = _MOST_CHARACTERS
        self._fetched: set[str] = set()

    def add(self, texts: Iterable[RetrievedText]) -> list[RetrievedText]:
        """Take in texts, as long as there is room; those that are to be searched."""
        return [text for text in texts if self._add(text)]

    def _add(self, text: RetrievedText) -> bool:
        size = len(text.text) + len(text.data or b"")
        if size > self._room or len(self._texts) >= _MOST_TEXTS:
            return False
        is_address = not text.text and text.data is None
        if is_address and not (self._fetches_urls and text.url and is_web_url(text.url)):
            return False
        self._room -= size
        self._texts.append(text)
        for name in (text.id, text.title, text.url):
            known = self._named.setdefault(name, text)
            if known.origin is not None and text.origin is None:
                self._named[name] = text
        return True

    def pages_to_fetch(self, url: str | None) -> list[RetrievedText]:
        """The page that is to be fetched for a citation, unless a tool of the agent returned it."""
        if not (self._fetches_urls and url and is_web_url(url)):
            return []
        is_known = any(text.url == url and text.origin is None for text in self._texts)
        if is_known or url in self._fetched or len(self._fetched) >= _MOST_TEXTS:
            return []
        self._fetched.add(url)
        return [RetrievedText("", url=url)]

    def find_by_label(self, label: str) -> RetrievedText | None:
        """The text that a label means: by a name of it, else by its place."""
        place = int(label) if label.isascii() and label.isdecimal() else 0
        nth = self._texts[place - 1] if 0 < place <= len(self._texts) else None
        return self._named.get(label, nth)
