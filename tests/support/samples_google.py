# pyright: reportUnknownVariableType=false
"""Payloads of the Google group's dialects, and of Cohere, Bedrock and Vercel, with their odd corners."""

from __future__ import annotations

from typing import Any

_CAFE = "Le café ☕ ouvre à 8 h 😀. "

GEMINI: Any = {
    "responseId": "r-1",
    "modelVersion": "m",
    "usageMetadata": {"totalTokenCount": 3},
    "candidates": [
        {
            "index": 0,
            "finishReason": "STOP",
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Let me think of cafés.", "thought": True},
                    {"toolCall": {"id": "t"}, "thoughtSignature": "x"},
                    {"text": _CAFE},
                    {"executableCode": {"code": "1"}},
                    {"text": "Refunds take 30 days.", "thoughtSignature": "logprobs"},
                ],
            },
            "groundingMetadata": {
                "webSearchQueries": ["café"],
                "groundingChunks": [
                    {"web": {"uri": "https://a.example/hours", "title": "a.example", "domain": "a.example"}},
                    {
                        "retrievedContext": {
                            "title": "Terms",
                            "documentName": "d/1",
                            "customMetadata": [{"key": "k", "numericValue": 2}],
                            "ragChunk": {
                                "text": "within 30 days",
                                "chunkId": "ch",
                                "pageSpan": {"firstPage": 3, "lastPage": 4},
                            },
                        }
                    },
                    {
                        "maps": {
                            "uri": "https://m.example",
                            "placeId": "p1",
                            "title": "Café",
                            "text": "A café.",
                        }
                    },
                    {"future": {"uri": "https://f.example"}},
                    {"image": {"sourceUri": "https://i.example", "imageUri": "https://i.example/1.png"}},
                    {"retrievedContext": {"text": "Open at eight.", "uri": "gs://b/f.pdf", "pageNumber": 2}},
                    {"web": {"uri": "https://unused.example", "extra": None}},
                ],
                "groundingSupports": [
                    {
                        "segment": {"endIndex": 31, "text": "Le café ☕ ouvre à 8 h 😀."},
                        "groundingChunkIndices": [0, 2],
                        "confidenceScores": [0.5, 1],
                    },
                    {
                        "segment": {"partIndex": 4, "endIndex": 20, "text": "Refunds take 30 days"},
                        "groundingChunkIndices": [1, 3],
                        "renderedParts": [1],
                    },
                    {"segment": {"startIndex": 2, "endIndex": 5}, "groundingChunkIndices": [5]},
                    {"segment": {"startIndex": 20, "endIndex": 5}, "groundingChunkIndices": [4]},
                    {"segment": {"startIndex": 9}, "groundingChunkIndices": [0, 1], "confidenceScores": [1]},
                    {"segment": {"endIndex": 3}},
                    {"segment": {"endIndex": 3}, "groundingChunkIndices": [4, 7, -1]},
                    7,
                ],
            },
            "citationMetadata": {
                "citationSources": [
                    {"endIndex": 10, "uri": "https://quoted.example", "license": "mit"},
                    {"startIndex": 5, "endIndex": 999},
                ]
            },
        },
        {"index": 1, "finishReason": "SAFETY"},
    ],
}

COHERE: Any = {
    "id": "co-1",
    "finish_reason": "COMPLETE",
    "message": {
        "role": "assistant",
        "tool_plan": "I will look up the refunds.",
        "tool_calls": None,
        "content": [
            {"type": "thinking", "thinking": "Hm, refunds."},
            {"type": "text", "text": "Le café 😀 ouvre à 8 h.", "logprobs": []},
            {"type": "text", "text": "Refunds take 30 days."},
        ],
        "citations": [
            {
                "start": 0,
                "end": 9,
                "text": "Le café 😀",
                "content_index": 1,
                "type": "TEXT_CONTENT",
                "sources": [
                    {
                        "type": "document",
                        "id": "doc:0",
                        "document": {
                            "id": "doc:0",
                            "snippet": "Open at eight.",
                            "title": None,
                            "url": "https://a.example",
                            "year": 2020,
                        },
                    },
                    {"type": "tool", "id": "t:0", "tool_output": {"output": "5", "title": "Sums"}},
                ],
            },
            {
                "start": 13,
                "end": 20,
                "text": "30 days",
                "sources": [{"type": "document", "id": "doc:1", "document": {"text": "30", "future": []}}],
            },
            {
                "start": 2,
                "end": 6,
                "text": "will",
                "type": "PLAN",
                "sources": [{"type": "tool", "id": "t:1"}],
            },
            {"start": 0, "end": 3, "text": "Gone", "content_index": 0, "sources": []},
            {"text": "ouvre", "start": 11, "end": 16, "sources": [{"type": "document"}], "rank": 1},
            None,
        ],
    },
    "usage": {"tokens": {"output_tokens": 3}},
}

_REFUNDS = "Le café 😀 ouvre à 8 h. Refunds take 30 days. Ask us."

BEDROCK_RAG: Any = {
    "sessionId": "ses-1",
    "guardrailAction": "NONE",
    "output": {"text": _REFUNDS, "usage": None},
    "citations": [
        {
            "generatedResponsePart": {
                "textResponsePart": {"text": "Refunds take 30 days.", "span": {"start": 24, "end": 44}}
            },
            "retrievedReferences": [
                {
                    "content": {"type": "TEXT", "text": "within 30 days"},
                    "location": {"type": "CONFLUENCE", "confluenceLocation": {"url": "https://c.example/1"}},
                    "metadata": {"x-amz-bedrock-kb-document-page-number": 3.0, "year": 2020, "title": None},
                },
                {
                    "content": {"type": "ROW", "row": [{"columnName": "a"}]},
                    "location": {"type": "CUSTOM", "customDocumentLocation": {"id": "d-1"}},
                },
            ],
        },
        {
            "generatedResponsePart": {
                "textResponsePart": {"text": "Ask us.", "span": {"start": 45, "end": 52}}
            },
            "retrievedReferences": [],
        },
        {
            "generatedResponsePart": {"textResponsePart": {"span": {"start": 0, "end": 22}}},
            "retrievedReferences": [
                {
                    "content": {"text": "Open at eight."},
                    "location": {"type": "S3", "s3Location": {"uri": "s3://b/hours.pdf"}},
                    "metadata": {"x-amz-bedrock-kb-chunk-id": "ch-1", "title": "Hours"},
                    "logprobs": [],
                }
            ],
        },
        {
            "generatedResponsePart": {
                "textResponsePart": {"text": "Never said.", "span": {"start": 1, "end": 2}}
            },
            "retrievedReferences": [{"content": {"text": "x"}}],
        },
        {
            "generatedResponsePart": None,
            "retrievedReferences": [
                {"location": {"type": "WEB", "webLocation": {"url": "https://w.example"}}}
            ],
        },
        {"retrievedReferences": "zz"},
    ],
}

INTERACTION: Any = {
    "object": "interaction",
    "id": "v1_x",
    "status": "completed",
    "steps": [
        {"type": "thought", "signature": "x"},
        {
            "type": "model_output",
            "content": [
                {
                    "type": "text",
                    "text": "Le café ☕ ouvre à 8 h 😀. Refunds take 30 days.",
                    "logprobs": [],
                    "annotations": [
                        {
                            "type": "url_citation",
                            "end_index": 31,
                            "url": "https://a.example/hours",
                            "title": "a.example",
                        },
                        {
                            "type": "file_citation",
                            "start_index": 32,
                            "end_index": 53,
                            "document_uri": "gs://b/terms.pdf",
                            "file_name": "terms.pdf",
                            "page_number": 3,
                            "custom_metadata": {"k": 1},
                            "media_id": None,
                        },
                        {"type": "future_citation", "start_index": 1},
                        {
                            "type": "place_citation",
                            "start_index": 3,
                            "end_index": 10,
                            "place_id": "p1",
                            "name": "Café",
                            "review_snippets": [],
                        },
                        {
                            "type": "url_citation",
                            "start_index": 50,
                            "end_index": 99,
                            "url": "https://b.example",
                        },
                        {"type": "url_citation", "url": "https://nowhere.example", "rank": 1},
                    ],
                },
                {"type": "image", "data": "x"},
                {"type": "text", "text": "That is all."},
            ],
        },
        {"type": "google_search_call", "id": "t"},
    ],
}

CONVERSE: Any = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Hm."}}},
                {"text": "In short: "},
                {
                    "citationsContent": {
                        "content": [{"text": "refunds take "}, {"text": "30 days"}],
                        "citations": [
                            {
                                "title": "Terms",
                                "sourceContent": [{"text": "within "}, {"text": "30 days"}],
                                "location": {"documentPage": {"documentIndex": 0, "start": 3, "end": 5}},
                                "logprobs": [],
                            },
                            {"location": {"futureLocation": {"start": 1}}},
                            {
                                "title": None,
                                "source": "kb://help",
                                "location": {
                                    "searchResultLocation": {"searchResultIndex": 2, "start": 0, "end": 1}
                                },
                            },
                        ],
                    },
                    "model": "m",
                },
                {"text": " and the café 😀 opens at 8.\u200b"},
                {
                    "citationsContent": {
                        "citations": [
                            {"location": {"web": {"url": "https://a.example/hours", "domain": "a.example"}}}
                        ]
                    }
                },
                {"citationsContent": {"citations": [{"location": {"web": {"url": "https://b.example"}}}]}},
                {"citationsContent": {"citations": [{"location": {"documentChar": {"start": 9, "end": 1}}}]}},
                {"text": ""},
                {"citationsContent": {"content": [{"text": " Ask us."}], "citations": []}},
                {"toolUse": {"toolUseId": "t"}},
                {"citationsContent": {"content": [{"text": "Bye."}], "citations": [{"source": "s"}]}},
            ],
        }
    },
    "stopReason": "end_turn",
    "usage": {"totalTokens": 3},
}

VERCEL: Any = {
    "id": "msg-1",
    "role": "assistant",
    "metadata": {"model": "m"},
    "parts": [
        {"type": "step-start"},
        {"type": "text", "text": "Le café 😀 ouvre à 8 h.", "state": "done"},
        {"type": "source-url", "sourceId": "u1", "url": "https://a.example/hours", "title": "Hours"},
        {"type": "source-url", "sourceId": "u1", "url": "https://a.example/hours"},
        {"type": "text", "text": "Refunds take 30 days."},
        {
            "type": "source-document",
            "sourceId": "d1",
            "mediaType": "application/pdf",
            "title": "Terms",
            "filename": "terms.pdf",
            "providerMetadata": {
                "openai": {"fileId": "f1", "logprobs": []},
                "azure": None,
                "citewire": {
                    "claim": [24, 44],
                    "quote": "within 30 days",
                    "status": "verified",
                    "metadata": {"year": 2020},
                    "proof": "p",
                },
            },
        },
        {"type": "source-url", "sourceId": "u3"},
        {
            "type": "source-url",
            "sourceId": "u4",
            "url": "https://b.example",
            "providerMetadata": {"citewire": {"claim": [20, 30]}},
        },
        {"type": "tool-search", "toolCallId": "t", "state": "output-available"},
    ],
}

VERCEL_CONTENT: Any = {
    "finishReason": "stop",
    "content": [
        {"type": "reasoning", "text": "Hm."},
        {"type": "text", "text": "Refunds take 30 days."},
        {"type": "source", "sourceType": "url", "id": "s-1", "url": "https://a.example", "title": ""},
        {
            "type": "source",
            "sourceType": "document",
            "id": "s-2",
            "mediaType": "text/plain",
            "title": "Terms",
        },
        {"type": "source", "sourceType": "future", "id": "s-3"},
    ],
    "usage": {"totalTokens": 3},
}

PAYLOADS: dict[str, tuple[str, Any]] = {
    "gemini": ("gemini", GEMINI),
    "gemini.interactions": ("gemini.interactions", INTERACTION),
    "cohere": ("cohere", COHERE),
    "bedrock.converse": ("bedrock.converse", CONVERSE),
    "bedrock.rag": ("bedrock.rag", BEDROCK_RAG),
    "vercel": ("vercel", VERCEL),
    "vercel content": ("vercel", VERCEL_CONTENT),
}


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def _gemini_events() -> list[Any]:
    """The sample's candidate: text in halves, and what grounds it with the last."""
    candidate = GEMINI["candidates"][0]
    pieces: list[Any] = []
    for part in candidate["content"]["parts"]:
        pieces += [{**part, "text": half} for half in _halves(part["text"])] if "text" in part else [part]
    events: list[Any] = [{"candidates": [{"index": 0, "content": {"parts": [piece]}}]} for piece in pieces]
    whole = {**candidate, "content": {"role": "model", "parts": [{"text": ""}]}}
    return [*events, {**GEMINI, "candidates": [whole]}, {"usageMetadata": {}}]


def _cohere_events() -> list[Any]:
    def said(kind: str, index: int, **message: Any) -> Any:
        return {"type": kind, "index": index, "delta": {"message": message}}

    message = COHERE["message"]
    events: list[Any] = [
        {"type": "message-start", "id": "co-1", "delta": {"message": {"role": "assistant"}}},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": message["tool_plan"]}}},
    ]
    for index, content in enumerate(message["content"]):
        key = content["type"]
        first, last = _halves(content[key])
        events += [
            said("content-start", index, content={**content, key: ""}),
            said("content-delta", index, content={key: first}),
            said("content-delta", index, content={key: last}),
        ]
        cited = [
            at for at, one in enumerate(message["citations"]) if one and one.get("content_index") == index
        ]
        events += [said("citation-start", at, citations=message["citations"][at]) for at in cited]
        events += [{"type": "citation-end", "index": at} for at in cited]
        events.append({"type": "content-end", "index": index})
    rest = [at for at, one in enumerate(message["citations"]) if not one or one.get("content_index") is None]
    events += [said("citation-start", at, citations=message["citations"][at]) for at in rest]
    return [*events, {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {}}}]


def _rag_events() -> list[Any]:
    first, last = _halves(_REFUNDS)
    citations = [{"citation": citation} for citation in BEDROCK_RAG["citations"]]
    wrapped = {"citation": {"citation": citations[0]["citation"]}}
    said = [{"sessionId": "ses-1", "output": {"text": first}}, {"output": {"text": last}}]
    return [said[0], wrapped, {"guardrail": {}}, said[1], *citations[1:]]


def _converse_events() -> list[Any]:
    """Citations before the text of their block."""
    events: list[Any] = [{"messageStart": {"role": "assistant", "p": "ab"}}]
    for index, block in enumerate(CONVERSE["output"]["message"]["content"]):
        deltas: list[Any] = []
        if "text" in block:
            deltas = [{"text": half} for half in _halves(block["text"])]
        elif "citationsContent" in block:
            cited = block["citationsContent"]
            deltas = [{"citation": one} for one in cited["citations"]]
            deltas += [{"text": one["text"]} for one in cited.get("content", ())]
        elif "reasoningContent" in block:
            deltas = [{"reasoningContent": {"text": "Hm."}}]
        else:
            events.append({"contentBlockStart": {"contentBlockIndex": index, "start": block}})
            deltas = [{"toolUse": {"input": half}} for half in _halves('{"a": 1}')]
        events += [{"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}} for delta in deltas]
        events.append({"contentBlockStop": {"contentBlockIndex": index}})
    return [*events, {"messageStop": {"stopReason": "end_turn"}}, {"metadata": {"usage": {}}}]


def _interaction_events() -> list[Any]:
    def event(kind: str, **fields: Any) -> Any:
        return {"event_type": kind, **fields}

    said = {key: value for key, value in INTERACTION.items() if key != "steps"}
    events: list[Any] = [event("interaction.created", interaction=said)]
    for index, step in enumerate(INTERACTION["steps"]):
        start = {key: value for key, value in step.items() if key != "content"}
        events.append(event("step.start", index=index, step=start))
        for content in step.get("content", ()):
            deltas: list[Any] = [content]
            if content["type"] == "text":
                deltas = [{"type": "text", "text": half} for half in _halves(content["text"])]
            if "annotations" in content:
                deltas.append({"type": "text_annotation_delta", "annotations": content["annotations"]})
            events += [event("step.delta", index=index, delta=delta) for delta in deltas]
        events.append(event("step.stop", index=index))
    return [*events, event("interaction.completed", interaction=said)]


def _vercel_events() -> list[Any]:
    events: list[Any] = [{"type": "start", "messageId": "msg-1"}, {"type": "start-step"}]
    for number, part in enumerate(VERCEL["parts"]):
        if part["type"] == "text":
            halves = [
                {"type": "text-delta", "id": f"t{number}", "delta": half} for half in _halves(part["text"])
            ]
            events += [{"type": "text-start", "id": f"t{number}"}, *halves, {"type": "text-end", "id": "t"}]
        elif part["type"].startswith("source"):
            events.append(part)
    return [*events, {"type": "finish"}]


STREAMS: dict[str, tuple[Any, list[Any]]] = {
    "gemini": (GEMINI, _gemini_events()),
    "gemini.interactions": (INTERACTION, _interaction_events()),
    "cohere": (COHERE, _cohere_events()),
    "bedrock.converse": (CONVERSE, _converse_events()),
    "bedrock.rag": (BEDROCK_RAG, _rag_events()),
    "vercel": (VERCEL, _vercel_events()),
}
"""The samples as streams would bring them, by dialect."""
