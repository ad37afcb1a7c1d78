"""A report whose every text is hostile."""

from __future__ import annotations

from msgspec.structs import replace

from citewire.documents import Document
from citewire.documents.text import read_markdown
from citewire.model import Answer, Citation, Part, Source, SourceRef, Span, Verification
from citewire.verification.document_set import CheckResult
from citewire.verification.policy import Difference
from citewire.verification.report import Report

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'></style></title>&amp;\x1b[31m\u202e\ud800"


def hostile_report() -> tuple[Report, Document]:
    """The same in every place that a payload or a source can fill."""
    url = "javascript:alert(1)//" + HOSTILE
    document = replace(
        read_markdown(b"x " + HOSTILE.encode("utf-8", "replace"), sha256="0" * 64, name=HOSTILE),
        url=url, title=HOSTILE,
    )  # fmt: skip
    document = replace(document, elements=(), pages=(replace(document.pages[0], label=HOSTILE),) * 2)
    check = CheckResult(
        HOSTILE, "altered", HOSTILE, HOSTILE, 1, 0, 20, HOSTILE, (Difference(HOSTILE, HOSTILE, "word"),), (),
        (HOSTILE,), (HOSTILE,), HOSTILE, "0" * 64,
    )  # fmt: skip
    verdict = Verification("altered", HOSTILE)
    citation = Citation(
        HOSTILE, (SourceRef(HOSTILE, quote=HOSTILE),), claim=Span(0, 0, 9), verification=verdict
    )
    second = replace(citation, id="other", claim=None, marker=Span(0, 2, 5))
    answer = Answer((Part(HOSTILE),), (citation, second), (Source(HOSTILE, url=url, title=HOSTILE),))
    checks = (check, replace(check, id="other", diff=()))
    return Report(answer, checks, (Span(0, 9, len(HOSTILE)),)), document
