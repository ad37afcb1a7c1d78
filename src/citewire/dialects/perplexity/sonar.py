"""Perplexity Sonar: a list of URLs next to the choices; `[1]` in the text means the first one.

`search_results` describes the same pages. Newer responses have only that list, and markers count its entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    ProblemList,
    SourceRegistry,
    get_at,
    interleave,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    path_text,
)
from citewire.dialects.common.annotations import require_web_sources
from citewire.dialects.common.completions import find_completion_dialect, list_messages, put_message, read_id
from citewire.dialects.common.reference_lists import (
    ListedReference,
    cite_list,
    fit_to_list,
    origin_of,
    snapshot_list,
)
from citewire.errors import InputError, ShapeError
from citewire.model import Answer, Citation, Native, Part, Source, SourceRef, Written

NAME = "perplexity"
UPSTREAM = "perplexityai 0.46.1, Sonar Chat Completions API"
READS_TOO = ("openai.chat",)
SUPPORTED_FIELDS = frozenset(
    {
        "answer.id",
        "marker",
        "ordinal",
        "source.metadata",
        "source.snippet",
        "source.title",
        "source.url",
    }
)

_MORE = ("date", "last_updated", "source")
# Limit for choices times pages: far more than in real responses, and few enough to read.
_MOST = 1_000_000


def detect(payload: Any) -> bool:
    return is_object(payload) and find_completion_dialect(payload) == NAME


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    found = list_messages(payload)
    if len(found) > 1 and len(found) * sum(map(len, _lists(payload))) > _MOST:
        raise ShapeError(
            "too many choices for so many pages, each of which is cited in every one", "$.choices"
        )
    return tuple(_read(payload, path_text(path), path, message) for path, message in found)


def _read(payload: Json, where: str, path: tuple[str | int, ...], message: Json) -> Answer:
    text = optional(message, "content", str, where)
    urls, results = _lists(payload)
    sources, problems = SourceRegistry(), ProblemList()
    listed: list[ListedReference] = []
    kept: list[tuple[int, Any]] = []
    for at, (url, result) in enumerate(zip(urls, _matched(urls, results), strict=True)):
        try:
            ref = SourceRef(_read_source(url, result, sources))
            listed.append(ListedReference(at, ref, Native(NAME, result, at)))
        except InputError as exc:
            problems.add(f"$.citations[{at}]", exc)
            kept.append((at, url))
    citations, used = cite_list(text or "", listed, sources)
    return Answer(
        parts=() if text is None else (Part(text),),
        citations=citations,
        sources=used,
        id=read_id(payload),
        problems=tuple(problems),
        native=Native(NAME, payload, path, tuple(kept), snapshot_list(text or "", citations)),
    )


def _lists(payload: Json) -> tuple[list[Any], list[Any]]:
    """Return the list of URLs that markers count, and the search results that describe its pages."""
    urls, results = optional(payload, "citations", list, "$"), optional(payload, "search_results", list, "$")
    if urls is None:
        urls = [result.get("url") if is_object(result) else result for result in results or ()]
    return urls, results or []


def _matched(urls: list[Any], results: list[Any]) -> list[Json | None]:
    """Return the result for each URL: at the same index if all match there, else the first match."""
    known = [
        result if is_object(result) and isinstance(result.get("url"), str) else None for result in results
    ]
    same_place = [known[at] if at < len(known) else None for at in range(len(urls))]
    pairs = zip(urls, same_place, strict=True)
    if all(not isinstance(url, str) or (result and result["url"] == url) for url, result in pairs):
        return same_place
    by_url = {result["url"]: result for result in reversed(known) if result}
    return [by_url.get(url) if isinstance(url, str) else None for url in urls]


def _read_source(url: Any, result: Json | None, sources: SourceRegistry) -> str:
    if not isinstance(url, str):
        raise ShapeError("a citation is not a URL", "")
    title, snippet, more = _about(result or {})
    return sources.add("web", url, title, snippet=snippet, metadata=more)


def _about(result: Json) -> tuple[str | None, str | None, Json]:
    more = {key: value for key in _MORE if isinstance(value := result.get(key), str)}
    return optional(result, "title", str), optional(result, "snippet", str), more


def write(answer: Answer, options: DialectOptions) -> Written:
    del options  # this dialect has no offsets
    fitting = require_web_sources(answer, NAME)
    fitting.join_parts()
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting)
    native = native_for(answer.native, NAME)
    kept: Iterable[tuple[int, Any]] = native.kept if native else ()
    entries = fit_to_list(fitting, lambda citation: citation.refs[0].source_id, kept, "[{}]")
    fit = fitting.finish(SUPPORTED_FIELDS, kind=lambda source: "web", origin=origin_of)
    sources = {source.id: source for source in fit.sources}
    before: Json = native.raw if native else {"citations": []}
    listed = [(at, _listed(fit.citations[number], sources)) for at, number in entries]
    items = interleave(_kept(kept, before) if kept else (), listed)
    raw: Json = get_at(native.raw, native.at) if native else {}
    text = fit.parts[0].text if fit.parts else None
    message = overlay(raw, {"content": text}) if text or raw.get("content") is not None or not raw else raw
    return Written(put_message(native, fit.id, message, _envelope(before, items)), tuple(fitting.losses))


def _fit_source(source: Source, fitting: Adaptation) -> Source:
    if not source.metadata:
        return source
    kept = {key: value for key in _MORE if isinstance(value := source.metadata.get(key), str)}
    if kept == source.metadata:
        return source
    fitting.record_loss("source.metadata", f"{NAME} has no place for all of it", source=source.id)
    return replace(source, metadata=kept)


class _Item(NamedTuple):
    """An entry to write: its URL, its source if it could be read, and its original result."""

    url: Any
    source: Source | None
    result: Any


def _listed(citation: Citation, sources: dict[str, Source]) -> _Item:
    source, native = sources[citation.refs[0].source_id], native_for(citation.native, NAME)
    return _Item(source.url, source, native.raw if native else None)


def _kept(kept: Iterable[tuple[int, Any]], before: Json) -> list[tuple[int, _Item]]:
    urls, results = _lists(before)
    said = results if _is_results_only(before) else _matched(urls, results)
    return [(at, _Item(urls[at], None, said[at])) for at, _ in kept]


def _is_results_only(payload: Json) -> bool:
    return not is_list(payload.get("citations")) and is_list(payload.get("search_results"))


def _envelope(before: Json, items: list[_Item]) -> Json:
    """Return both lists; results stay if they still describe the pages, else they follow the URLs."""
    urls = [item.url for item in items]
    old_urls, old = _lists(before)
    is_only = _is_results_only(before)
    says_so = all(map(_says, items, _matched(urls, old))) and (not is_only or urls == old_urls)
    fields: Json = {"citations": urls} if not is_only and (urls or "citations" in before) else {}
    if not says_so:
        used = {id(result) for result in _matched(old_urls, old)}
        others = [] if is_only else [result for result in old if id(result) not in used]
        fields["search_results"] = [*map(_result, items), *others]
    return fields


def _says(item: _Item, result: Json | None) -> bool:
    source, found = item.source, result or {}
    if source is None:
        return True
    more = {key: value for key in _MORE if isinstance(value := found.get(key), str)}
    return (found.get("title"), found.get("snippet"), more) == (source.title, source.snippet, source.metadata)


def _result(item: _Item) -> Any:
    if (source := item.source) is None:
        return item.result
    more = {key: source.metadata.get(key) for key in _MORE}
    fields = {"title": source.title, "url": source.url, "snippet": source.snippet, **more}
    return overlay(item.result, fields)
