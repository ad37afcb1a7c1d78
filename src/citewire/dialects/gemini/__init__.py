"""Gemini `generateContent`, of the Gemini API and of Vertex: `groundingMetadata` of a candidate.

The answer is what the SDKs call `response.text`: all text parts but thoughts, joined. A grounding support
is a claim with the chunks behind it; offsets are UTF-8 bytes, and a zero may be left out. They count from
the start of the joined text, or of the part that `partIndex` names. A chunk that no support names is a
citation without a place; `citationMetadata` (notices of recitation) are claims as well.
"""

from citewire.dialects.gemini.reader import NAME, UNIT, detect, read_all, read_candidate
from citewire.dialects.gemini.writer import ROOM, write

__all__ = ["NAME", "ROOM", "UNIT", "UPSTREAM", "detect", "read_all", "read_candidate", "write"]

UPSTREAM = "google-genai 3.1.0, generateContent v1beta"
