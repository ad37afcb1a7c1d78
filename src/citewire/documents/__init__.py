"""Read sources as text, with the place of every character: `load` a path, bytes or a URL."""

from __future__ import annotations

from citewire.documents.cache import Cache
from citewire.documents.document import Aside, Box, Document, Element, Page, TextPlace
from citewire.documents.errors import DocumentError
from citewire.documents.load import load

__all__ = ["Aside", "Box", "Cache", "Document", "DocumentError", "Element", "Page", "TextPlace", "load"]
