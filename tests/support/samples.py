# pyright: reportUnknownVariableType=false
"""Payloads of our own making, one or more per dialect, with the odd corners that real ones have."""

from __future__ import annotations

from typing import Any

from support import samples_google, samples_openai, samples_others

TEXT = "Refunds are available within 30 days. Contact support to start one."

SALESFORCE: Any = {
    "entryType": "Message",
    "abstractMessage": {
        "id": "m-1",
        "staticContent": {
            "formatType": "Text",
            "text": "Le café ☕ ouvre à 8 h 😀. Refunds: 30 days.",
            "citationContent": {
                "extra": None,
                "citations": [
                    {
                        "citedReference": {
                            "citedReferenceType": "Link",
                            "link": {"url": "https://a.example/hours", "target": "new"},
                            "label": None,
                        },
                        "citedDetails": {
                            "citedDetailsType": "InlineMetadata",
                            "inlineMetadata": [
                                {
                                    "citedLocationOffset": 24,
                                    "claim": {"claimStartOffset": 0, "claimEndOffset": 24},
                                },
                                {"citedLocationOffset": 43, "claim": None, "rank": 2},
                            ],
                        },
                    },
                    {
                        "citedReference": {
                            "citedReferenceType": "Article",
                            "articleId": 7,
                            "label": "An article",
                        },
                        "citedDetails": {"citedDetailsType": "Footnote", "number": 3},
                    },
                    {
                        "citedReference": {
                            "citedReferenceType": "Link",
                            "link": {"url": "https://a.example/refunds"},
                            "recordId": "ka01",
                        }
                    },
                ],
            },
        },
    },
}

AGENT_API: Any = {
    "messages": [
        {"type": "Text", "message": "no citations in this one"},
        {
            "type": "Inform",
            "id": "inform-1",
            "message": TEXT,
            "result": [],
            "citedReferences": [
                {
                    "type": "link",
                    "value": "https://example.com/refunds",
                    "recordId": "ka01",
                    "label": None,
                    "inlineMetadata": [{"claim": "Refunds are available within 30 days.", "location": 41}],
                },
                {"type": "link", "value": "https://example.com/help", "inlineMetadata": []},
            ],
        },
    ],
    "_links": {},
}

ANTHROPIC: Any = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "Let me look.", "signature": "x"},
        {"type": "text", "text": "Let me look that up.", "citations": None},
        {"type": "server_tool_use", "id": "t", "name": "web_search", "input": {}},
        {"type": "text", "text": "In short: "},
        {
            "type": "text",
            "text": "refunds take 30 days",
            "citations": [
                {
                    "type": "web_search_result_location",
                    "url": "https://example.com/refunds",
                    "title": None,
                    "cited_text": "Refunds are available within 30 days.",
                    "encrypted_index": "Eo8B",
                },
                {
                    "type": "page_location",
                    "document_index": 0,
                    "document_title": "Terms",
                    "start_page_number": 3,
                    "end_page_number": 5,
                    "cited_text": "thirty days",
                    "file_id": None,
                },
                {"type": "future_location", "cited_text": "?", "where": [1, 2]},
            ],
            "cache_control": {"type": "ephemeral"},
        },
        {"type": "text", "text": " and "},
        {"type": "text", "text": ""},
        {
            "type": "text",
            "text": "support helps",
            "citations": [
                {
                    "type": "char_location",
                    "document_index": 1,
                    "document_title": None,
                    "start_char_index": 10,
                    "end_char_index": 42,
                    "cited_text": "Contact support",
                },
                {
                    "type": "content_block_location",
                    "document_index": 1,
                    "document_title": None,
                    "start_block_index": 0,
                    "end_block_index": 2,
                    "cited_text": "Contact support to start one.",
                },
                {
                    "type": "search_result_location",
                    "source": "kb://help",
                    "title": "Help",
                    "search_result_index": 0,
                    "start_block_index": 0,
                    "end_block_index": 1,
                    "cited_text": "We help.",
                },
            ],
        },
        {"type": "text", "text": ".", "citations": []},
    ],
    "usage": {"output_tokens": 12},
}

_LINK = "([example.com](https://example.com/refunds?a=1))"

OPENAI: Any = {
    "object": "response",
    "id": "resp_1",
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": f"Refunds take 30 days. {_LINK} See the file. "
                    "Made [a chart](sandbox:/mnt/data/c.png).",
                    "logprobs": [],
                    "annotations": [
                        {
                            "type": "url_citation",
                            "start_index": 22,
                            "end_index": 22 + len(_LINK),
                            "title": "Refund policy",
                            "url": "https://example.com/refunds?a=1",
                        },
                        {"type": "file_citation", "index": 83, "file_id": "f1", "filename": "terms.pdf"},
                        {
                            "type": "container_file_citation",
                            "container_id": "ct",
                            "file_id": "f2",
                            "filename": "c.png",
                            "start_index": 100,
                            "end_index": 123,
                        },
                        {
                            "type": "container_file_citation",
                            "container_id": "ct",
                            "file_id": "f3",
                            "filename": "d.png",
                            "start_index": 0,
                            "end_index": 0,
                        },
                        {"type": "file_path", "file_id": "f4", "index": 2},
                        None,
                    ],
                },
                {"type": "refusal", "refusal": "no"},
                {"type": "output_text", "text": "That is all."},
            ],
        },
    ],
}

NGAF: Any = {
    "threadId": "t1",
    "messages": [
        {"id": "u1", "role": "user", "content": "How long?"},
        {
            "id": "m1",
            "role": "assistant",
            "content": "Refunds take 30 days.[^policy] Ask us.[2] Yes.[^policy]",
        },
        {"id": "m2", "role": "assistant", "content": "Nothing to cite."},
    ],
    "state": {
        "theme": "dark",
        "citations": {
            "m1": [
                {
                    "refId": "policy",
                    "name": "Refund policy",
                    "href": "https://example.com/refunds",
                    "excerpt": "30 days",
                    "extra": {
                        "rank": 1,
                        "citewire": {"status": "altered", "reason": "a number differs", "proof": "p"},
                    },
                    "unknown": [],
                },
                "https://example.com/help",
                7,
                {"id": "policy", "index": 9.5, "title": ""},
            ],
            "gone": [{"title": "Of a message that is not here", "source": "https://example.com/x"}],
        },
    },
}

NGAF_EVENTS: Any = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Refunds take "},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "30 days.[^a]"},
    {"type": "STATE_SNAPSHOT", "snapshot": {"citations": {}}},
    {
        "type": "STATE_DELTA",
        "delta": [
            {"op": "add", "path": "/citations/m1", "value": [{"id": "a", "url": "https://example.com/r"}]}
        ],
    },
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]

MARKDOWN = (
    "# Refunds\n\nThey take 30 days.[^1] Ask us.[2] Use `x[1]` and [^note].\n\n"
    '[^1]: [Refund policy](https://example.com/refunds), p. 3: "Refunds are \\"available\\"\n'
    '    within 30 days."\n'
    '[2]: https://example.com/help "Help"\n'
    "[^note]: Smith, J. (2020). On refunds. https://example.com/smith\n\n"
    "A last line.\n"
)

ABLY: Any = {
    "message": {
        "serial": "01-000@node:000",
        "name": "response",
        "data": "Le café ☕ 😀 ouvre à 8 h.",
        "extras": None,
    },
    "annotations": [
        {
            "type": "citations:multiple.v1",
            "messageSerial": "01-000@node:000",
            "name": "www.a.example",
            "action": 0,
            "clientId": "cite-bot",
            "data": {
                "url": "https://www.a.example/hours",
                "startIndex": 10,
                "endIndex": 24,
                "page": 3,
                "rank": 1,
                "citewire": {"status": "partial", "anchor": "8 h", "proof": "p"},
            },
        },
        {"type": "reactions:flag.v1", "messageSerial": "01-000@node:000", "clientId": "someone"},
        {
            "type": "citations:multiple.v1",
            "messageSerial": "01-000@node:000",
            "name": "Opening hours",
            "encoding": "json",
            "data": '{"snippet": "open at eight", "startOffset": 10, "endOffset": 11}',
        },
        {
            "type": "citations:multiple.v1",
            "messageSerial": "01-000@node:000",
            "name": "withdrawn",
            "data": None,
        },
        {
            "type": "citations:multiple.v1",
            "messageSerial": "01-000@node:000",
            "name": "withdrawn",
            "action": 1,
        },
        {"type": "citations:multiple.v1", "messageSerial": "01-000@node:000", "data": {"startOffset": 3}},
    ],
}

ABLY_SUMMARY: Any = {
    "serial": "01-000@node:000",
    "action": "message.summary",
    "annotations": {
        "summary": {
            "citations:multiple.v1": {"a.example": {"total": 2, "clientIds": {"cite-bot": 2}}, "odd": 3},
            "reactions:flag.v1": {"total": 1},
        }
    },
}

_KEY, _OTHER_KEY = "92296a0e8c688c3b", "afbd48aae90fa6fa"

DEEPCITATION: Any = {
    "text": "Revenue grew [1], they say [2]. It grew [1].",
    "citations": {
        _KEY: {
            "type": "document",
            "attachmentId": "att_1",
            "pageNumber": 2,
            "lineIds": [12, 13],
            "fullPhrase": "Revenue grew 45%",
            "anchorText": "45%",
            "citationNumber": 1,
            "reasoning": "says so",
        },
        _OTHER_KEY: {
            "type": "url",
            "url": "https://example.com",
            "title": "T",
            "domain": "example.com",
            "fullPhrase": "Revenue grew 45%",
            "anchorText": "45%",
            "citationNumber": 2,
            "faviconUrl": None,
        },
    },
    "verifications": {
        _KEY: {
            "status": "found_on_other_page",
            "document": {"verifiedPageNumber": 3, "mimeType": "application/pdf"},
            "verifiedMatchSnippet": "Revenue grew 45%",
        },
        _OTHER_KEY: {"status": "not_found", "citewire": {"status": "altered", "reason": "a number differs"}},
    },
    "model": "m-1",
}

DEEPCITATION_BLOCK: Any = {
    "text": "Revenue grew [1] and costs fell [2].\n\n<<<CITATION_DATA>>>\n"
    '{"att_1": [{"id": 1, "reasoning": "r", "full_phrase": "Revenue grew 45%", "anchor_text": "45%", '
    '"page_id": "page_number_2_index_1", "line_ids": [12, 13]}, '
    '{"n": 2, "f": "Costs fell", "k": "fell", "p": "3_2", "l": [5]}]}\n<<<END_CITATION_DATA>>>\n'
}

PAYLOADS: dict[str, tuple[str, Any]] = {
    "salesforce": ("salesforce", SALESFORCE),
    "salesforce.agent-api": ("salesforce.agent-api", AGENT_API),
    "anthropic": ("anthropic", ANTHROPIC),
    "openai.responses": ("openai.responses", OPENAI),
    "ngaf": ("ngaf", NGAF),
    "ngaf events": ("ngaf", NGAF_EVENTS),
    "markdown": ("markdown", MARKDOWN),
    "ably": ("ably", ABLY),
    "ably summary": ("ably", ABLY_SUMMARY),
    "deepcitation": ("deepcitation", DEEPCITATION),
    "deepcitation block": ("deepcitation", DEEPCITATION_BLOCK),
    **samples_google.PAYLOADS,
    **samples_openai.PAYLOADS,
    **samples_others.PAYLOADS,
}
