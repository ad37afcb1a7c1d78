"""Gemini `generateContent`, of the Gemini API and of Vertex: `groundingMetadata` of a candidate.

The answer is what the SDKs call `response.text`: all text parts except thoughts, joined. A grounding support
is a claim with the chunks that support it. Offsets are UTF-8 bytes, and a zero may be omitted. They count
from the start of the joined text, or of the part in `partIndex`. A chunk without a support is a citation
without a position; `citationMetadata` (recitation notices) are claims as well.
"""

from citewire.dialects.gemini.reader import NAME, UNIT, detect, read_all, read_candidate
from citewire.dialects.gemini.writer import SUPPORTED_FIELDS, write

__all__ = ["NAME", "SUPPORTED_FIELDS", "UNIT", "UPSTREAM", "detect", "read_all", "read_candidate", "write"]

UPSTREAM = "google-genai 3.1.0, generateContent v1beta"
