"""An answer with every verdict, as each dialect carries it, for tests of what people see."""

from __future__ import annotations

from typing import Any

# A pixel is a picture as well.
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJ"
    "RU5ErkJggg=="
)

TEXT = """## Returns and refunds

You may return any lamp within **30 days of delivery** [1]. In 2025 revenue grew by 12.4 percent [2], and \
profit rose as well [^profit]. Each parent has 80 days of leave [3]; lamps are made of cheese [4].

- Shipping is free for orders over £50 [1, 5].
- Returns are free too, we believe.

| Year | Revenue | Source |
|------|--------:|--------|
| 2024 | £5.92 m | [2] |
| 2025 | £6.76 m | [6] |

Use `row[0]` for the first *row*. See [the handbook](https://example.com/handbook) for more.

[^profit]: Annual report, page 4
"""


def citation(number: int, quote: str, source: str, **more: Any) -> dict[str, Any]:
    return {"type": "document", "attachmentId": source, "fullPhrase": quote, "citationNumber": number, **more}


def verdict(
    status: str, source: str, page: int | None = None, found: str = "", **ours: Any
) -> dict[str, Any]:
    word = {"verified": "found", "partial": "partial_text_found"}.get(status, "not_found")
    more = {"verifiedMatchSnippet": found} if found else {}
    place = {"source": source, **({} if page is None else {"page": page})}
    return {"status": word, "label": source, **more, "citewire": {"status": status, **place, **ours}}


CITATIONS: dict[str, Any] = {
    "k1": citation(
        1,
        "you may return any lamp within 30 days of delivery",
        "refund-policy.html",
        url="https://example.com/refunds",
    ),
    "k2": citation(2, "revenue grew by 12.4% in 2025, from £5.92 million", "report.pdf"),
    "k3": citation(3, "Each parent has 80 days of the parental leave at full pay.", "handbook.md"),
    "k4": citation(4, "Lamps are made of cheese", "report.pdf"),
    "k5": citation(5, "free shipping over £50", "shipping.html"),
    "k6": citation(6, "£6.76 million in 2025", "report.pdf"),
    "k7": {**citation(7, "Profit for the year 405 577", "report.pdf"), "citationNumber": None},
}
VERIFICATIONS: dict[str, Any] = {
    "k1": verdict("verified", "refund-policy.html", 1, "you may return any lamp within 30 days of delivery"),
    "k2": {
        **verdict(
            "altered", "report.pdf", 2, "Revenue grew by 14.2% in 2025, from £5.92 million",
            reason="number: 12.4% for 14.2%", proof="/proofs/p2?sig=1",
            diff=[{"quote": "12.4%", "source": "14.2%", "kind": "number", "harmless": False}],
            warnings=["on page 2, not 3"],
        ),
        "evidence": {"src": PIXEL},
    },
    "k3": verdict(
        "partial", "handbook.md", 1, "Each parent has 80 days of parental leave at full pay",
        reason="article: the for nothing",
        diff=[{"quote": "the", "source": "", "kind": "article", "harmless": False}],
    ),
    "k4": verdict("missed", "report.pdf", reason="these words are not in the source"),
    "k5": verdict("skipped", "shipping.html", reason="the source could not be read"),
    "k7": verdict("verified", "report.pdf", 4, "Profit for the year 405 577"),
}  # fmt: skip
ENTRIES = [
    {"id": "profit", "index": 7, "title": "report.pdf", "extra": {"citewire": {"own": True, "key": "k7"}}}
]


def agui(text: str = TEXT, status: str = "complete", **more: Any) -> dict[str, Any]:
    """The properties that give an answer an AG-UI message and its state."""
    record = {
        "messageId": "m",
        "citations": CITATIONS,
        "verifications": VERIFICATIONS,
        "status": status,
        **more,
    }
    state = {"deepcitation": {"messages": {"m": record}}, "citations": {"m": ENTRIES}}
    return {"message": {"id": "m", "role": "assistant", "content": text}, "state": state}


SAID = "Refunds are available within 30 days. Contact support to start one."
CLAIM = SAID.index(".") + 1


def salesforce() -> dict[str, Any]:
    reference = {
        "citedReferenceType": "Link",
        "link": {"url": "https://example.com/refunds"},
        "label": "Refund policy",
    }
    use = {"citedLocationOffset": CLAIM, "claim": {"claimStartOffset": 0, "claimEndOffset": CLAIM}}
    details = {"citedDetailsType": "InlineMetadata", "inlineMetadata": [use]}
    content = {
        "text": SAID,
        "citationContent": {"citations": [{"citedReference": reference, "citedDetails": details}]},
    }
    return {"salesforce": {"message": {"staticContent": content}}}


def ably(*more: dict[str, Any]) -> dict[str, Any]:
    data = {
        "url": "https://example.com/refunds",
        "title": "Refund policy",
        "startOffset": 0,
        "endOffset": CLAIM,
        "key": "k",
    }
    annotation = {
        "action": "annotation.create",
        "type": "citations:multiple.v1",
        "name": "example.com",
        "data": data,
    }
    return {"ably": {"message": {"serial": "s", "data": SAID}, "annotations": [annotation, *more]}}
