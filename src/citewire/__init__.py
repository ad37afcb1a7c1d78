"""Trustworthy citations on AI answers.

    answer = citewire.read(payload)                 # in any provider's or front end's format
    written = citewire.write(answer, "salesforce")  # in another format, with what that lost
    print(citewire.render(answer, "markdown"))
    found = citewire.extract(text)                  # the citations in a model's text
    report = citewire.verify(answer, ["report.pdf"])  # are the quoted words there?

Importing the package loads nothing beyond the standard library and msgspec.
"""

from typing import TYPE_CHECKING, Any

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
from citewire.notebook_views import register_notebook_view
from citewire.rendering import render
from citewire.verification import verify

if TYPE_CHECKING:
    from citewire.extraction import extract, prompt

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
    "extract",
    "open_stream",
    "prompt",
    "read",
    "read_all",
    "render",
    "verify",
    "write",
]


def __getattr__(name: str) -> Any:
    """Import `extract` and `prompt` on first use: compiling their patterns takes as long as all the rest."""
    if name not in ("extract", "prompt"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from citewire import extraction  # noqa: PLC0415

    return getattr(extraction, name)


def _answer_view(answer: Answer) -> str:
    from citewire.evidence.notebook import answer_html  # noqa: PLC0415  # of use in notebooks alone

    return answer_html(answer)


def _report_view(report: Any) -> str:
    from citewire.evidence.notebook import report_html  # noqa: PLC0415  # of use in notebooks alone

    return report_html(report)


register_notebook_view("answer", _answer_view)
register_notebook_view("report", _report_view)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
