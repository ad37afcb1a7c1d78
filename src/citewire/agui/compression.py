"""Compressed event streams, decoded as they come.

Each piece that is handed out is small, and a stream that expands out of all proportion is refused: a short
response must not fill the memory or keep the processor busy for hours.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from citewire.agui.transport import UnsupportedEncoding

__all__ = ["Decompressor", "coding_of"]

_IDENTITY = "identity"
_KNOWN = frozenset({"gzip", "x-gzip", "deflate"})
# Bytes of a piece that is handed out.
_PIECE = 64 * 1024
# What a stream may always expand to, and how many times its size: events compress to a tenth, the same event
# again and again to a thousandth, which is the most that deflate can do.
_ALWAYS, _RATIO = 16 << 20, 200
# Either format by its header, and deflate without one, which some servers send.
_WITH_HEADER, _RAW = 32 + zlib.MAX_WBITS, -zlib.MAX_WBITS


def coding_of(header: str) -> str | None:
    """The one coding that a Content-Encoding names: empty for none, None for what cannot be decoded here."""
    codings = [each for word in header.lower().split(",") if (each := word.strip()) not in ("", _IDENTITY)]
    if not codings:
        return ""
    return codings[0] if len(codings) == 1 and codings[0] in _KNOWN else None


class Decompressor:
    """Decodes one stream of gzip or deflate. Raises `UnsupportedEncoding` where it is none, or a bomb."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_WITH_HEADER)
        self._came = self._made = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What `data` completes, in pieces."""
        self._came += len(data)
        while data:
            made, data = self._next(data)
            self._made += len(made)
            if self._made > _ALWAYS + _RATIO * self._came:
                raise UnsupportedEncoding("the compressed events of the agent expand too much")
            if made:
                yield made

    def _next(self, data: bytes) -> tuple[bytes, bytes]:
        """The next piece, and what of `data` is left for the one after it."""
        try:
            made = self._inflated(data)
        except zlib.error as exc:
            raise UnsupportedEncoding("the compressed events of the agent are damaged") from exc
        if not self._inflate.eof:
            return made, self._inflate.unconsumed_tail
        # Another member follows, which is the same stream.
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
