"""Events of providers that carry citations."""

from __future__ import annotations

from typing import Any

FRANCE, ITALY, COSTS = (
    "Paris is the capital of France.",
    "Paris is the capital of Italy.",
    "Costs fell by a third.",
)


ANTHROPIC: list[Any] = [
    {
        "type": "message_start",
        "message": {"id": "x", "type": "message", "role": "assistant", "model": "c", "content": []},
    },
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": "", "citations": []},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {
            "type": "citations_delta",
            "citation": {
                "type": "char_location",
                "cited_text": FRANCE,
                "document_index": 0,
                "document_title": "Guide",
                "start_char_index": 0,
                "end_char_index": len(FRANCE),
            },
        },
    },
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Paris."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_stop"},
]


OPENAI: list[Any] = [
    {"type": "response.created", "response": {"id": "r", "object": "response", "output": []}},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"id": "m", "type": "message", "role": "assistant", "content": []},
    },
    {
        "type": "response.content_part.added",
        "item_id": "m",
        "output_index": 0,
        "content_index": 0,
        "part": {"type": "output_text", "text": "", "annotations": []},
    },
    {
        "type": "response.output_text.delta",
        "item_id": "m",
        "output_index": 0,
        "content_index": 0,
        "delta": "Paris.",
    },
    {
        "type": "response.output_text.annotation.added",
        "item_id": "m",
        "output_index": 0,
        "content_index": 0,
        "annotation_index": 0,
        "annotation": {
            "type": "url_citation",
            "url": "https://e.org",
            "title": "Guide",
            "start_index": 0,
            "end_index": 6,
        },
    },
]
