"""Cache of pages read by tesseract, until all pages of their source are read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from citewire.documents.cache import Cache, PackedArrays
from citewire.documents.ocr import OcrText

__all__ = ["OcrPageCache", "forget_pages"]

_PAGES = "-ocrpage-"


class OcrPageCache:
    """The pages of the source with this sha256, read in these languages."""

    def __init__(self, folder: str, sha256: str, languages: str) -> None:
        # If the folder is gone, the pages are no longer needed.
        self._cache, self._sha256 = Cache(Path(folder), make=False), sha256
        self._languages = languages

    def get(self, where: str) -> OcrText | None:
        """See `OcrPageStore`."""
        packed = self._cache.read(self._key(where))
        if packed is None or len(packed.arrays) != 2:
            return None
        boxes, confidence = packed.arrays
        return OcrText(packed.meta.decode(), boxes, confidence)

    def put(self, where: str, reading: OcrText) -> bool:
        """See `OcrPageStore`."""
        key = self._key(where)
        self._cache.write(key, PackedArrays(reading.text.encode(), [reading.boxes, reading.confidence]))
        return self._cache.read(key) is not None

    def _key(self, where: str) -> str:
        name = hashlib.sha256(f"{self._languages}|{where}".encode()).hexdigest()[:16]
        return f"{self._sha256}{_PAGES}{name}"


def forget_pages(cache: Cache, sha256: str) -> None:
    """Delete the cached pages of a source, after all of it was read."""
    cache.discard(f"{sha256}{_PAGES}")
