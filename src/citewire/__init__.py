"""Trustworthy citations on AI answers.

    answer = citewire.read(payload)                 # whatever the provider or front end speaks
    written = citewire.write(answer, "salesforce")  # what another one speaks, and what that lost
    print(citewire.render(answer, "markdown"))
    report = citewire.verify(answer, ["report.pdf"])  # are the quoted words there?

Importing the package loads nothing beyond the standard library and msgspec.
"""

from citewire.dialects import detect, dialects, open_stream, read, read_all, write
from citewire.errors import CitewireError
from citewire.model import (
    Answer,
    Citation,
    Loss,
    Part,
    Point,
    Problem,
    Source,
    SourceRef,
    Span,
    Verification,
    Written,
    citation_status,
)
from citewire.rendering import render
from citewire.verification import verify

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Citation",
    "CitewireError",
    "Loss",
    "Part",
    "Point",
    "Problem",
    "Source",
    "SourceRef",
    "Span",
    "Verification",
    "Written",
    "citation_status",
    "detect",
    "dialects",
    "open_stream",
    "read",
    "read_all",
    "render",
    "verify",
    "write",
]
