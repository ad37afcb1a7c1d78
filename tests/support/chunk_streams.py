"""Chat completions cut into streamed chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from support.samples_openai import AZURE, CHAT, MISTRAL, OPENROUTER, PERPLEXITY

CHATS = {
    "openai.chat": CHAT,
    "openrouter": OPENROUTER,
    "perplexity": PERPLEXITY,
    "azure.oyd": AZURE,
    "mistral": MISTRAL,
}


def pieces(text: str, sizes: list[int]) -> Iterator[str]:
    at = 0
    for size in [*sizes, len(text)]:
        yield text[at : at + size]
        at += size


def chunk(whole: Any, delta: Any, **choice: Any) -> dict[str, Any]:
    top = {key: value for key, value in whole.items() if key not in ("choices", "object")}
    return {**top, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, **choice}]}


def streamed(whole: Any, sizes: list[int], *, late: bool = False) -> list[Any]:
    """The first choice of a completion as chunks; what is not text comes first, or at the end."""
    message = whole["choices"][0]["message"]
    content = message["content"]
    other = {key: value for key, value in message.items() if key != "content"}
    texts: list[Any] = (
        list(pieces(content, sizes)) if isinstance(content, str) else [[one] for one in content]
    )
    deltas = [{"content": text} for text in texts]
    told = [{"role": "assistant"}, *deltas, other] if late else [other, *deltas]
    finish = {"finish_reason": "stop"} | {
        key: value for key, value in whole["choices"][0].items() if key.startswith("native_")
    }
    return [*(chunk(whole, delta) for delta in told), chunk(whole, {}, **finish)]


sizes = st.lists(st.integers(0, 9), max_size=12)


CITED = {
    "index": 0,
    "type": "file_citation",
    "text": "【4:0†source】",
    "start_index": 20,
    "end_index": 32,
    "file_citation": {"file_id": "f1", "quote": "30 days"},
}


def thread(*contents: Any, name: str = "m1") -> dict[str, Any]:
    return {"id": name, "object": "thread.message.delta", "delta": {"content": list(contents)}}


def piece(value: str, *annotations: Any, index: int = 0) -> dict[str, Any]:
    return {"index": index, "type": "text", "text": {"value": value, "annotations": list(annotations)}}


RUN: list[Any] = [
    {"id": "run_1", "object": "thread.run"},
    {"id": "m1", "object": "thread.message", "role": "assistant", "content": []},
    thread(piece("Refunds take 30 days")),
    thread(piece("【4:0†")),
    thread(piece("source】", CITED)),
    thread(piece(".")),
    thread({"index": 1, "type": "image_file", "image_file": {"file_id": "i"}}),
    thread(piece("More.", index=2)),
]
