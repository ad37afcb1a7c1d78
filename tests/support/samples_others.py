# pyright: reportUnknownVariableType=false
"""Payloads of our own making for frameworks, chat surfaces and libraries."""

from __future__ import annotations

from typing import Any

TEAMS: Any = {
    "type": "message",
    "id": "a-1",
    "text": "Refunds take 30 days [2]. Ask us [1, 2]. See `x[1]` and [7].",
    "entities": [
        {"type": "mention", "mentioned": {"id": "29:1"}},
        {
            "type": "https://schema.org/Message",
            "@type": "Message",
            "@context": "https://schema.org",
            "additionalType": ["AIGeneratedContent"],
            "usageInfo": None,
            "citation": [
                {
                    "@type": "Claim",
                    "position": 2,
                    "appearance": {
                        "@type": "DigitalDocument",
                        "name": "Refund policy",
                        "url": "https://example.com/refunds",
                        "abstract": "within 30 days",
                        "image": {"@type": "ImageObject", "name": "PDF"},
                        "keywords": ["refunds"],
                    },
                },
                {"@type": "Claim", "position": "3", "appearance": {}},
                {
                    "@type": "Claim",
                    "position": 1,
                    "appearance": {"@type": "DigitalDocument", "name": "N" * 90, "abstract": ""},
                },
                {"position": 1, "appearance": {"name": "", "url": None}},
            ],
        },
    ],
    "channelData": {"feedbackLoopEnabled": True},
}

TEAMS_STREAM: Any = [
    {"type": "typing", "text": "Searching…", "channelData": {"streamType": "informative"}},
    {
        "type": "typing",
        "text": "Refunds take",
        "entities": [{"type": "streaminfo", "streamType": "streaming"}],
    },
    {
        "type": "typing",
        "text": "Refunds take 30 days [1].",
        "entities": [
            {"type": "streaminfo", "streamType": "streaming", "streamSequence": 2},
            {
                "type": "https://schema.org/Message",
                "citation": [{"position": 1, "appearance": {"name": "Refund policy", "abstract": "30 days"}}],
            },
        ],
    },
    {
        "type": "message",
        "text": "Refunds take 30 days [1]. Ask us [2].",
        "entities": [
            {"type": "streaminfo", "streamType": "final"},
            {
                "type": "https://schema.org/Message",
                "citation": [
                    {"position": 1, "appearance": {"name": "Refund policy", "abstract": "30 days"}},
                    {"position": 2, "appearance": {"name": "Help", "url": "https://example.com/help"}},
                ],
            },
        ],
    },
]

LANGCHAIN: Any = {
    "messages": [
        {"type": "human", "content": "How long?"},
        {
            "type": "ai",
            "id": "run-1",
            "content": [
                {"type": "reasoning", "reasoning": "Let me look."},
                {
                    "type": "text",
                    "text": "Le café 😀 ouvre à 8 h. ([a.example](https://a.example/hours))",
                    "annotations": [
                        {
                            "type": "citation",
                            "id": "lc_1",
                            "url": "https://a.example/hours",
                            "title": "Hours",
                            "start_index": 8,
                            "end_index": 22,
                            "cited_text": "open at eight",
                            "extras": {"rank": 1, "citewire": {"status": "partial", "proof": "p"}},
                        },
                        {"type": "non_standard_annotation", "value": {"odd": True}},
                        {
                            "type": "citation",
                            "url": "https://a.example/hours",
                            "title": None,
                            "start_index": 23,
                            "end_index": 61,
                        },
                        {
                            "type": "url_citation",
                            "url": "https://a.example",
                            "start_index": 0,
                            "end_index": 1,
                        },
                    ],
                },
                {"type": "tool_call", "name": "search", "args": {}, "id": "t"},
                "In short: ",
                {
                    "type": "text",
                    "text": "refunds take 30 days",
                    "index": 3,
                    "annotations": [
                        {
                            "type": "citation",
                            "title": "Terms",
                            "cited_text": "thirty days",
                            "extras": {"document_index": 0, "start_page_number": 3},
                        }
                    ],
                },
                {"type": "text", "text": ".", "annotations": [], "extras": {"cache_control": "x"}},
                {"type": "image", "url": "https://a.example/i.png"},
                {
                    "type": "text",
                    "text": "See there.",
                    "annotations": [{"type": "citation", "url": "https://a.example/more", "extras": None}],
                },
            ],
            "response_metadata": {"model": "m-1"},
            "usage_metadata": {"output_tokens": 12},
        },
        {"type": "ai", "content": "Nothing to cite.", "id": None},
    ]
}

LANGCHAIN_CONSTRUCTOR: Any = {
    "lc": 1,
    "type": "constructor",
    "id": ["langchain", "schema", "messages", "AIMessage"],
    "kwargs": {
        "content": [
            {
                "type": "text",
                "text": "Refunds take 30 days.",
                "annotations": [{"type": "citation", "title": "Terms", "start_index": 0, "end_index": 21}],
            }
        ]
    },
}

LANGCHAIN_STREAM: Any = [
    {"type": "AIMessageChunk", "id": "run-1", "content": [{"type": "text", "text": "Refunds ", "index": 0}]},
    {"type": "AIMessageChunk", "content": [{"type": "text", "text": "take 30 days.", "index": 0}]},
    {
        "type": "AIMessageChunk",
        "content": [
            {
                "type": "text",
                "text": "",
                "index": 0,
                "annotations": [
                    {"type": "citation", "url": "https://example.com/r", "start_index": 0, "end_index": 20}
                ],
            }
        ],
    },
    {"type": "AIMessageChunk", "content": [], "chunk_position": "last"},
]

W3C: Any = {
    "@context": "http://www.w3.org/ns/anno.jsonld",
    "id": "https://a.example/page1",
    "type": "AnnotationPage",
    "citewire": {"text": "Le café ☕ 😀 ouvre à 8 h [1]. Oui.", "odd": 1},
    "items": [
        {
            "id": "https://a.example/anno1",
            "type": "Annotation",
            "motivation": "linking",
            "creator": {"name": "A"},
            "body": [
                {
                    "type": "SpecificResource",
                    "source": {"id": "https://a.example/hours", "dc:title": "Hours", "format": "text/html"},
                    "selector": [
                        {"type": "TextQuoteSelector", "exact": "at eight", "prefix": "open "},
                        {"type": "FragmentSelector", "value": "page=3"},
                        {"type": "XPathSelector", "value": "/p[1]"},
                    ],
                    "citewire": {"score": 0.5, "status": "partial", "metadata": {"rank": 1}, "proof": "p"},
                },
                {"type": "TextualBody", "value": "Check this."},
                "https://a.example/more",
                {"id": "https://a.example/film", "type": "Video", "label": "A film"},
                {
                    "source": "https://a.example/log",
                    "selector": {"type": "TextPositionSelector", "start": 4, "end": 9},
                },
            ],
            "target": {
                "source": "https://chat.example/answers/1",
                "selector": [
                    {"type": "TextPositionSelector", "start": 12, "end": 23},
                    {"type": "TextQuoteSelector", "exact": "ouvre à 8 h", "suffix": " ["},
                ],
            },
            "citewire": {
                "ordinal": 1,
                "marker": [24, 27],
                "insert_at": 23,
                "origin": "derived",
                "more": None,
            },
        },
        {"type": "Annotation", "bodyValue": "no source", "target": "https://chat.example/answers/1"},
        {"type": "Annotation", "body": "https://a.example/x", "target": "https://chat.example/answers/1"},
        {
            "type": ["Annotation"],
            "body": {"source": {"dc:title": "No address"}},
            "target": [
                {
                    "source": {"id": "https://chat.example/answers/1", "type": "Text"},
                    "selector": {"type": "TextQuoteSelector", "exact": "Oui", "prefix": "]. "},
                }
            ],
        },
    ],
}

W3C_LIST: Any = [
    {
        "type": "Annotation",
        "body": "https://a.example/x",
        "target": {
            "source": "urn:citewire:answer:my%20answer",
            "selector": {"type": "TextPositionSelector", "start": 3, "end": 7},
        },
    },
    {"type": "Annotation", "body": "https://a.example/y", "target": "urn:citewire:answer:my%20answer"},
]

SLACK: Any = {
    "ok": True,
    "message": {
        "type": "message",
        "ts": "1700000000.000100",
        "text": "a fallback of their own",
        "blocks": [
            {"type": "divider"},
            {
                "type": "rich_text",
                "block_id": "b1",
                "elements": [
                    {
                        "type": "rich_text_section",
                        "elements": [
                            {"type": "text", "text": "Refunds take "},
                            {"type": "text", "text": "30 days", "style": {"bold": True}},
                            {
                                "type": "citation",
                                "url": "https://example.com/refunds",
                                "text": "Refund policy",
                                "index": 1,
                                "details": {
                                    "citation_type": "web",
                                    "snippet": "within 30 days",
                                    "title": "x",
                                },
                                "from_llm": True,
                            },
                            {"type": "text", "text": ""},
                            {"type": "user", "user_id": "U1"},
                            {"type": "emoji", "name": "smile", "unicode": "1f604"},
                            {"type": "text", "text": "."},
                            {"type": "citation", "url": 7, "text": "bad", "index": 9, "details": {}},
                        ],
                    },
                    {
                        "type": "rich_text_list",
                        "style": "bullet",
                        "elements": [
                            {"type": "rich_text_section", "elements": []},
                            {
                                "type": "rich_text_section",
                                "elements": [
                                    {"type": "link", "url": "https://example.com/help"},
                                    {
                                        "type": "citation",
                                        "url": "https://files.example/F1",
                                        "text": "",
                                        "index": 4,
                                        "details": {"citation_type": "file", "file_id": "F1"},
                                    },
                                    {
                                        "type": "citation",
                                        "url": "https://a.example/m",
                                        "text": "What you said",
                                        "index": 2,
                                        "details": {"citation_type": "memory", "model": "m"},
                                    },
                                ],
                            },
                        ],
                    },
                ],
            },
        ],
    },
}

CSL: Any = {
    "items": [
        {
            "id": "smith2020",
            "type": "article-journal",
            "title": "On refunds",
            "author": [{"family": "Smith", "given": "J."}],
            "issued": {"date-parts": [[2020, 3]]},
            "abstract": "Thirty days.",
            "custom": {"rank": 1},
        },
        {"id": 7, "type": "webpage", "URL": "https://example.com/refunds", "title": None},
        {"type": "book", "title": "Without an id"},
        {"id": "unused", "type": "book", "title": "Not cited"},
        {"id": "twin", "type": "webpage", "URL": "https://example.com/refunds"},
    ],
    "citationClusters": [
        {
            "citationID": "x1",
            "properties": {"noteIndex": 1, "plainCitation": "(Smith)"},
            "citationItems": [
                {"id": "smith2020", "locator": "3–5", "label": "page", "prefix": "see "},
                {"id": "7", "locator": "ch. 2", "label": "chapter"},
            ],
        },
        {"citationItems": [{"id": "gone"}]},
        {"citationItems": [{"id": "smith2020", "locator": 4}], "properties": {"noteIndex": 0}},
        {"citationItems": [{"id": "twin"}], "model": "m"},
    ],
    "style": "apa",
}

CSL_LIST: Any = [
    {
        "id": "a",
        "type": "webpage",
        "URL": "https://example.com/a",
        "title": "A",
        "accessed": {"raw": "today"},
    },
    {"id": "b", "type": "book", "title": "B", "custom": {}},
]

LLAMAINDEX: Any = {
    "response": "Refunds take 30 days [1]. Ask us [3][1]. See x[2].",
    "source_nodes": [
        {
            "node": {
                "id_": "n1",
                "embedding": None,
                "metadata": {"page_label": "3", "file_name": "terms.pdf", "file_size": 120, "title": "Terms"},
                "text": "Source 1:\nRefunds are available within 30 days.\n",
                "start_char_idx": 10,
                "end_char_idx": 47,
                "class_name": "TextNode",
            },
            "score": 0.83,
            "class_name": "NodeWithScore",
        },
        7,
        {
            "node": {
                "id_": "n3",
                "metadata": {"URL": "https://example.com/help", "source": "crawl", "page_label": "iv"},
                "text_resource": {"text": "We help.", "mimetype": None},
                "start_char_idx": 4,
                "end_char_idx": 12,
            },
            "score": None,
        },
        {"node": {"id_": "n4", "text": ""}},
    ],
    "metadata": {"n1": {"model": "m"}},
}

LLAMAINDEX_CHAT: Any = {
    "message": {
        "role": "assistant",
        "additional_kwargs": {"usage": 1},
        "blocks": [
            {"block_type": "thinking", "content": "Let me look."},
            {"block_type": "text", "text": "Refunds take 30 days"},
            {
                "block_type": "citation",
                "cited_content": {"block_type": "text", "text": "within 30 days"},
                "source": "https://example.com/refunds",
                "title": "Refund policy",
                "additional_location_info": {
                    "start_page_number": 3,
                    "end_page_number": 5,
                    "search_result_index": 1,
                },
            },
            {
                "block_type": "citation",
                "cited_content": {"block_type": "image", "url": "https://a.example/i.png"},
                "source": "terms.pdf",
                "title": "",
                "additional_location_info": {"start_char_index": 0, "end_char_index": 9, "document_index": 0},
            },
            {"block_type": "text", "text": ". "},
            {"block_type": "text", "text": ""},
            {"block_type": "text", "text": "Ask us."},
            {"block_type": "citation", "source": None, "title": "bad"},
        ],
    },
    "raw": None,
}

PAYLOADS: dict[str, tuple[str, Any]] = {
    "teams": ("teams", TEAMS),
    "w3c": ("w3c", W3C),
    "w3c list": ("w3c", W3C_LIST),
    "slack": ("slack", SLACK),
    "csl": ("csl", CSL),
    "csl list": ("csl", CSL_LIST),
    "llamaindex": ("llamaindex", LLAMAINDEX),
    "llamaindex chat": ("llamaindex", LLAMAINDEX_CHAT),
    "langchain": ("langchain", LANGCHAIN),
    "langchain constructor": ("langchain", LANGCHAIN_CONSTRUCTOR),
}
