"""The texts that an agent received in one stream, and the lookup of labels among them."""

from __future__ import annotations

from collections.abc import Iterable

from citewire.agui.citations.answer_text import is_web_url
from citewire.agui.citations.retrieval import RetrievedText

__all__ = ["RetrievedTexts"]

# Limits for one stream: characters that are searched, and number of texts.
_MOST_CHARACTERS, _MOST_TEXTS = 32 << 20, 1000


class RetrievedTexts:
    """The texts of one stream; with `fetches_urls`, also the pages whose URLs are among them."""

    def __init__(self, fetches_urls: bool) -> None:
        self._fetches_urls = fetches_urls
        self._texts: list[RetrievedText] = []
        # The first text with each id, title or URL. Those of the agent's tools precede those of clients.
        self._named: dict[str | None, RetrievedText] = {}
        self._room = _MOST_CHARACTERS
        self._fetched: set[str] = set()

    def add(self, texts: Iterable[RetrievedText]) -> list[RetrievedText]:
        """Add texts up to the limits, and return those to search."""
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
        """Return the page to fetch for a citation, unless one of the agent's tools returned it."""
        if not (self._fetches_urls and url and is_web_url(url)):
            return []
        is_known = any(text.url == url and text.origin is None for text in self._texts)
        if is_known or url in self._fetched or len(self._fetched) >= _MOST_TEXTS:
            return []
        self._fetched.add(url)
        return [RetrievedText("", url=url)]

    def find_by_label(self, label: str) -> RetrievedText | None:
        """Return the text that a label refers to: by one of its names, otherwise by its position."""
        place = int(label) if label.isascii() and label.isdecimal() else 0
        nth = self._texts[place - 1] if 0 < place <= len(self._texts) else None
        return self._named.get(label, nth)
