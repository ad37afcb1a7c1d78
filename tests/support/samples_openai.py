# pyright: reportUnknownVariableType=false
"""Payloads of our own making for OpenAI's shapes and those of its relatives."""

from __future__ import annotations

from typing import Any

_A, _B = "https://a.example/refunds", "https://b.example/help"
_XAI = f"Le café 😀 ouvre.[[1]]({_A}) Ask us.[[2]]({_B})"

XAI: Any = {
    "object": "response",
    "id": "r-1",
    "model": "grok-4-fast-reasoning",
    "output": [
        {"type": "x_search_call", "id": "x", "status": "completed"},
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": _XAI,
                    "logprobs": [],
                    "annotations": [
                        {"type": "url_citation", "url": "https://c.example/seen"},
                        {
                            "type": "url_citation",
                            "url": _A,
                            "title": "1",
                            "start_index": 16,
                            "end_index": 16 + len(f"[[1]]({_A})"),
                        },
                        # Counted in UTF-16 units: found all the same.
                        {
                            "type": "url_citation",
                            "url": _B,
                            "title": "2",
                            "start_index": _XAI.index("[[2]]") + 1,
                            "end_index": len(_XAI) + 1,
                            "rank": 3,
                        },
                        {"type": "url_citation", "url": _A, "title": "", "start_index": 0, "end_index": 0},
                        {"type": "url_citation", "url": _B, "title": None, "start_index": None},
                        {"type": "collections_citation", "file_id": "f"},
                        7,
                    ],
                }
            ],
        },
    ],
    "usage": {"output_tokens": 12, "num_sources_used": 0},
}

_LINK = f"([a.example]({_A}))"


def _nested(url: str, title: str | None, start: int, end: int, **more: Any) -> dict[str, Any]:
    cited = {"url": url, "title": title, "start_index": start, "end_index": end, **more}
    return {"type": "url_citation", "url_citation": cited}


CHAT: Any = {
    "object": "chat.completion",
    "id": "chatcmpl-1",
    "model": "gpt-5-search",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": f"Le café 😀 ouvre. {_LINK} Ask us.",
                "refusal": None,
                "annotations": [
                    _nested(_A, "Refunds", 17, 17 + len(_LINK), content="kept, though nobody said why"),
                    _nested(_B, "", 0, 0) | {"rank": 1},
                    # The words themselves, which are no link.
                    _nested(_B, "Help", 0, 7),
                    {"type": "file_citation", "file_citation": {"file_id": "f"}},
                    {"type": "url_citation", "url_citation": None},
                ],
            },
        },
        {"index": 1, "message": {"role": "assistant", "content": "Another.", "annotations": []}},
        {"index": 2, "message": {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]}},
    ],
    "usage": {"total_tokens": 9},
}

OPENROUTER: Any = {
    "object": "chat.completion",
    "id": "gen-1",
    "provider": "OpenAI",
    "choices": [
        {
            "index": 0,
            "native_finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": f"Refunds take 30 days. {_LINK}",
                "reasoning": None,
                "annotations": [
                    _nested(_A, "Refunds", 0, 0, content="Refunds are available."),
                    _nested(_A, "Refunds", 22, 22 + len(_LINK), content=None),
                    _nested(_B, None, 0, 0, content=""),
                ],
            },
        }
    ],
}

PERPLEXITY: Any = {
    "object": "chat.completion",
    "id": "p-1",
    "model": "sonar",
    "citations": [_A, _B, 7, "https://c.example/", _A],
    "search_results": [
        {"title": "Help", "url": _B, "date": None, "last_updated": "2026-01-02", "snippet": "We help."},
        {"title": "Another page", "url": "https://d.example/"},
        {"title": "Refunds", "url": _A, "date": "2025-10-11", "source": "web", "rank": 3},
        None,
    ],
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Ask us.[2] Refunds take 30 days[1][2], see `x[1]`, [3] and [9]; so it is.[1, 2]",
            },
            "delta": {"role": "assistant", "content": ""},
        }
    ],
    "usage": {"total_tokens": 9},
}

PERPLEXITY_RESULTS: Any = {
    "object": "chat.completion",
    "search_results": [
        {"title": "Refunds", "url": _A, "snippet": ""},
        "odd",
        {"title": "Refunds", "url": _A, "snippet": "30 days"},
    ],
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "30 days[3]."}}],
}

AZURE: Any = {
    "object": "extensions.chat.completion",
    "id": "az-1",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Refunds take 30 days [doc2][doc1]. Ask us [doc2], not [doc9].",
                "context": {
                    "citations": [
                        {
                            "content": "Refunds are available.",
                            "title": None,
                            "url": _A,
                            "filepath": "refunds.pdf",
                            "chunk_id": "0",
                            "rerank_score": 3,
                        },
                        {"content": "", "title": "Help", "url": _B, "rank": 7},
                        "odd",
                        {"content": "Nobody points here."},
                    ],
                    "intent": "[]",
                    "all_retrieved_documents": [{"content": "x"}],
                },
            },
        },
        {"index": 1, "message": {"role": "assistant", "content": "Nothing.", "context": None}},
    ],
}

AZURE_STRING: Any = {
    "role": "assistant",
    "content": "Refunds take 30 days [doc1].",
    "context": '{"citations": [{"content": "30 days", "url": "https://a.example/refunds"}], "intent": ""}',
}

AZURE_TOOL: Any = {
    "object": "chat.completion",
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": "30 days [doc1].",
                "context": {
                    "messages": [
                        {"role": "user", "content": "?"},
                        {
                            "role": "tool",
                            "content": '{"citations": [{"content": "30 days", "id": null}], "intent": "i"}',
                            "end_turn": False,
                        },
                    ]
                },
            }
        }
    ],
}


def _file(kind: str, text: str | None, start: int, end: int, **file: Any) -> dict[str, Any]:
    return {"type": kind, "text": text, "start_index": start, "end_index": end, kind: file}


ASSISTANTS: Any = {
    "object": "thread.message",
    "id": "msg_1",
    "role": "assistant",
    "thread_id": "t1",
    "content": [
        {"type": "image_file", "image_file": {"file_id": "i"}},
        {
            "type": "text",
            "text": {
                "value": "Le café 😀 ouvre【4:0†source】. See [it](sandbox:/mnt/data/a.csv).",
                "annotations": [
                    # Counted in UTF-16 units: found all the same.
                    _file("file_citation", "【4:0†source】", 17, 29, file_id="f1", quote="open", rank=1),
                    _file("file_path", "sandbox:/mnt/data/a.csv", 39, 62, file_id="f2"),
                    _file("file_citation", "【4:1†source】", 0, 0, file_id="f1"),
                    {"type": "url_citation", "url_citation": {}},
                    None,
                ],
                "more": 1,
            },
            "logprobs": [],
        },
        {"type": "text", "text": {"value": "That is all.", "annotations": []}},
    ],
    "metadata": {},
}

ASSISTANTS_LIST: Any = {
    "object": "list",
    "data": [
        ASSISTANTS | {"id": "msg_2", "content": ASSISTANTS["content"][1:]},
        {"object": "thread.message", "id": "msg_0", "role": "user", "content": []},
    ],
    "has_more": False,
}

MISTRAL: Any = {
    "object": "chat.completion",
    "id": "m-1",
    "model": "mistral-large",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                    {
                        "type": "tool_reference",
                        "tool": "web_search_premium",
                        "title": "Refunds",
                        "url": _A,
                        "favicon": None,
                        "description": "30 days",
                        "rank": 1,
                    },
                    {"type": "text", "text": "Refunds take 30 days", "cache": True},
                    {"type": "reference", "reference_ids": [1, "kb-2", 1]},
                    {"type": "text", "text": "."},
                    {"type": "text", "text": " Ask us."},
                    {"type": "reference", "reference_ids": []},
                    {"type": "tool_reference", "tool": "web_search", "title": "Help"},
                    {"type": "reference", "reference_ids": [0], "note": "n"},
                ],
            },
        },
        {"index": 1, "message": {"role": "assistant", "content": "As text."}},
        {"index": 2, "message": {"role": "assistant", "content": None, "tool_calls": []}},
    ],
}

MISTRAL_CONVERSATION: Any = {
    "object": "conversation.response",
    "conversation_id": "conv_1",
    "outputs": [
        {"type": "tool.execution", "name": "web_search"},
        {
            "type": "message.output",
            "id": "o1",
            "content": [
                {"type": "text", "text": "Le café 😀 ouvre"},
                {"type": "tool_reference", "tool": "web_search", "title": "Hours", "url": _B},
                {"type": "text", "text": "."},
            ],
        },
        {"type": "message.output", "id": "o2", "content": "That is all."},
    ],
    "usage": {"total_tokens": 3},
}

_CITE, _FILECITE = (
    "\ue200cite\ue202turn0search0\ue202turn0search3\ue201",
    "\ue200filecite\ue202turn1file0\ue201",
)
_NAMED = "\ue200url\ue202the help page\ue202"
_SAID = f"Le café 😀 ouvre {_CITE}. Read {_NAMED} or the plan {_FILECITE}."


def _reference(kind: str, words: str, start: int, **more: Any) -> dict[str, Any]:
    return {"matched_text": words, "start_idx": start, "end_idx": start + len(words), "type": kind, **more}


CHATGPT: Any = {
    "id": "m-1",
    "author": {"role": "assistant", "metadata": {}},
    "create_time": 1775931953.4,
    "content": {
        "content_type": "multimodal_text",
        "parts": [{"content_type": "image_asset_pointer"}, _SAID, f"Once more {_CITE}"],
    },
    "metadata": {
        "citations": [],
        "content_references": [
            _reference(
                "grouped_webpages",
                _CITE,
                _SAID.index(_CITE),
                items=[
                    {
                        "title": "Refunds",
                        "url": _A,
                        "snippet": "",
                        "attribution": "a.example",
                        "supporting_websites": [{"title": "Help", "url": _B, "snippet": "We help."}],
                    },
                    {"title": "", "url": "https://c.example/seen"},
                ],
                alt=f"([a.example]({_A}))",
            ),
            _reference("entity", "café", 3, name="café"),
            # Counted in UTF-16 units: found all the same.
            _reference("webpage", _NAMED, _SAID.index(_NAMED) + 1, title="Help", safe_urls=[_B]),
            _reference(
                "file", _FILECITE, _SAID.index(_FILECITE), id="file-1", name="plan.pdf", source="my_files"
            ),
            # Of the second text; and without a place.
            _reference("grouped_webpages", _CITE, 10, items=[{"title": "Refunds", "url": _A}]),
            {"type": "webpage_extended", "url": _B, "title": "Help", "matched_text": ""},
            {"type": "grouped_webpages", "matched_text": _CITE, "items": []},
            {"type": "webpage", "matched_text": _NAMED, "title": "No address"},
            7,
            _reference("sources_footnote", " ", len(_SAID), sources=[{"title": "Refunds", "url": _A}]),
        ],
        "model_slug": "m",
    },
}

PAYLOADS: dict[str, tuple[str, Any]] = {
    "chatgpt": ("openai.chat", CHATGPT),
    "xai": ("xai", XAI),
    "openai.chat": ("openai.chat", CHAT),
    "openrouter": ("openrouter", OPENROUTER),
    "azure.oyd": ("azure.oyd", AZURE),
    "azure.oyd string": ("azure.oyd", AZURE_STRING),
    "azure.oyd tool": ("azure.oyd", AZURE_TOOL),
    "openai.assistants": ("openai.assistants", ASSISTANTS),
    "openai.assistants list": ("openai.assistants", ASSISTANTS_LIST),
    "mistral": ("mistral", MISTRAL),
    "mistral conversation": ("mistral", MISTRAL_CONVERSATION),
    "perplexity": ("perplexity", PERPLEXITY),
    "perplexity results": ("perplexity", PERPLEXITY_RESULTS),
}
