"""Streaming decompression of event streams.

Output comes in small pieces, and a stream that expands too much is refused: a short response must not fill
the memory or keep the processor busy for hours.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from citewire.agui.transport import UnsupportedEncoding

__all__ = ["Decompressor", "coding_of"]

_IDENTITY = "identity"
_KNOWN = frozenset({"gzip", "x-gzip", "deflate"})
# Bytes of an output piece.
_PIECE = 64 * 1024
# Bytes a stream may always expand to, and the allowed ratio beyond that: events compress to a tenth, one
# event repeated many times to a thousandth, which is the maximum of deflate.
_ALWAYS, _RATIO = 16 << 20, 200
# zlib detects either format by its header; some servers send raw deflate without one.
_WITH_HEADER, _RAW = 32 + zlib.MAX_WBITS, -zlib.MAX_WBITS


def coding_of(header: str) -> str | None:
    """Return the coding of a Content-Encoding header: empty for none, None for one that cannot be decoded."""
    codings = [each for word in header.lower().split(",") if (each := word.strip()) not in ("", _IDENTITY)]
    if not codings:
        return ""
    return codings[0] if len(codings) == 1 and codings[0] in _KNOWN else None


class Decompressor:
    """Decompresses one gzip or deflate stream. Raises `UnsupportedEncoding` for bad data or a bomb."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_WITH_HEADER)
        self._came = self._made = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress `data` and yield the output in pieces."""
        self._came += len(data)
        while data:
            made, data = self._next(data)
            self._made += len(made)
            if self._made > _ALWAYS + _RATIO * self._came:
                raise UnsupportedEncoding("the compressed events of the agent expand too much")
            if made:
                yield made

    def _next(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the next output piece and the input that remains."""
        try:
            made = self._inflated(data)
        except zlib.error as exc:
            raise UnsupportedEncoding("the compressed events of the agent are damaged") from exc
        if not self._inflate.eof:
            return made, self._inflate.unconsumed_tail
        # Another gzip member may follow; it continues the same stream.
        left = self._inflate.unused_data
        self._inflate = zlib.decompressobj(_WITH_HEADER)
        return made, left

    def _inflated(self, data: bytes) -> bytes:
        try:
            return self._inflate.decompress(data, _PIECE)
        except zlib.error:
            if self._made or self._came > len(data):
                raise
            self._inflate = zlib.decompressobj(_RAW)
            return self._inflate.decompress(data, _PIECE)
