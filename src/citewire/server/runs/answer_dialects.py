"""Read an assistant message of a thread with its citations, and write it in any dialect."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from citewire import codec
from citewire.agui.citations.posted_messages import is_posted
from citewire.dialects import dialects, read, write
from citewire.dialects.base import Json, SourceRegistry, is_list, is_object
from citewire.dialects.common.marker_records import UniqueIds
from citewire.errors import NotFound
from citewire.markers import find_markers
from citewire.model import Answer, Citation, Loss, Source, Span, Written
from citewire.threadlog.history import ThreadAtCursor

__all__ = ["read_answer", "write_answer"]

_RECORD = "deepcitation"
_PROOF = "proof"
# A footnote definition `[^label]: text`, with its indented continuation lines.
_DEFINITION = re.compile(r"^ {0,3}\[\^([^\[\]\s]{1,200})\]:.*\n?(?:(?: {4}|\t).*\n?)*", re.MULTILINE)


def write_answer(past: ThreadAtCursor, message_id: str, dialect: str, state_key: str = _RECORD) -> Written:
    """Write the message in `dialect`, and list what that dialect cannot express.

    Raises `NotFound` if the message does not exist or is not an assistant's, and `UnknownDialect`.
    """
    if dialect == _RECORD:  # the state already holds the message in this dialect
        return write(_read(past, message_id, state_key), dialect)
    answer = read_answer(past, message_id, state_key)
    known = dialects().get(dialect)
    if known is not None and (
        "source.file_id" not in known.SUPPORTED_FIELDS or getattr(known, "NEEDS_URL", False)
    ):
        answer = replace(answer, sources=tuple(map(_at_its_proof, answer.sources)))
    result = write(answer, dialect)
    unread = (Loss("citation", f"cannot be read: {each.path}: {each.message}") for each in answer.problems)
    return replace(result, losses=(*result.losses, *unread))


def read_answer(past: ThreadAtCursor, message_id: str, state_key: str = _RECORD) -> Answer:
    """Return the message with its citations from the thread's state, one citation per marker.

    Each source has the URL of its proof page in its metadata, so a file becomes one source per proved place.
    Raises `NotFound` if the message does not exist or is not an assistant's.
    """
    said = _read(past, message_id, state_key)
    known, sources = {source.id: source for source in said.sources}, SourceRegistry()
    citations = [_with_proof(citation, known, sources) for citation in said.citations]
    answer = replace(said, citations=tuple(citations), sources=tuple(sources))
    return replace(answer.bare(), problems=said.problems)


def _read(past: ThreadAtCursor, message_id: str, state_key: str) -> Answer:
    """Read the message's text together with our record of its citations in the state."""
    record = _object(past.state, state_key, "messages", message_id)
    labels = _labels(past.state, message_id)
    payload = {
        "messageId": message_id,
        "text": _remove_definitions(_replace_links(_text(past, message_id)), frozenset(labels.values())),
        **{name: found for name in ("citations", "verifications") if (found := _object(record, name))},
    }
    # Convert the state to plain dicts and lists: it holds other container types.
    said = read(codec.decode(codec.encode(payload)), _RECORD)
    return _with_footnotes(said, labels)


def _text(past: ThreadAtCursor, message_id: str) -> str:
    message = next((each for each in past.messages if _object(each).get("id") == message_id), None)
    if message is None:
        raise NotFound("there is no such message")
    if is_posted(message):
        raise NotFound("this message was posted by a client, and is no answer of this server")
    if message.get("role") != "assistant":
        raise NotFound("this message is none of an assistant, and only those cite")
    content = message.get("content")
    parts = content if is_list(content) else [{"text": content}]
    texts = (_object(part).get("text") for part in parts)
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _replace_links(text: str) -> str:
    """Replace `[words](cite:1)` by `words [1]`, so that the words stay when markers are removed."""
    pieces: list[str] = []
    at = 0
    for start, end, kind, labels in find_markers(text):
        if kind == "link":
            words = text[start + 1 : text.index("](cite:", start)]
            pieces += (text[at:start], words, f" [{labels[0]}]")
            at = end
    return "".join([*pieces, text[at:]])


def _remove_definitions(text: str, labels: Container[str]) -> str:
    """Remove the definitions of cited footnotes: every dialect has its own way to express them."""
    left = _DEFINITION.sub(lambda found: "" if found[1] in labels else found[0], text)
    return text if left == text else left.rstrip()


def _labels(state: Any, message_id: str) -> dict[str, str]:
    """Map citation keys to the labels that front ends show for them in this message."""
    entries = _object(state, "citations").get(message_id)
    return {
        key: label
        for entry in (entries if is_list(entries) else ())
        if isinstance(key := _object(entry, "extra", "citewire").get("key"), str)
        and isinstance(label := _object(entry).get("id"), str)
    }


def _with_footnotes(said: Answer, labels: dict[str, str]) -> Answer:
    """Add the `[^label]` markers, which the record does not contain; the label becomes the citation's id."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for start, end, kind, names in find_markers(said.text):
        if kind == "footnote":
            spans[names[0]].append(Span(0, start, end))
    if spans.keys().isdisjoint(labels.values()):
        return said
    citations: list[Citation] = []
    given = UniqueIds()
    for key, group in groupby(said.citations, _key):
        uses = list(group)
        label = labels.get(key, key)
        found = spans.get(label, [])
        markers = sorted([use.marker for use in uses if use.marker] + found, key=lambda span: span.start)
        whole = replace(uses[0], span_origin="exact" if markers else "unknown")
        citations += [
            replace(whole, id=given.assign(label if found else key), marker=marker)
            for marker in markers or [None]
        ]
    return replace(said, citations=tuple(citations))


def _key(citation: Citation) -> str:
    """Return the key of the record that the citation was read from."""
    return str(citation.native.at) if citation.native else citation.id


def _with_proof(citation: Citation, known: dict[str, Source], sources: SourceRegistry) -> Citation:
    """Add the source details that the citation's verdict contains."""
    verdict = citation.verification and citation.verification.native
    raw = _object(verdict.raw) if verdict else {}
    name, proof = raw.get("label"), _object(raw, "citewire").get(_PROOF)
    refs = tuple(
        replace(ref, source_id=_add(known[ref.source_id], name, proof, sources)) for ref in citation.refs
    )
    return replace(citation, refs=refs)


def _add(source: Source, name: Any, proof: Any, sources: SourceRegistry) -> str:
    is_file = source.url is None
    filename = name if is_file and isinstance(name, str) else None
    return sources.add(
        source.kind,
        source.url,
        source.title or (filename or source.file_id if is_file else None),
        filename=filename,
        file_id=source.file_id,
        domain=source.domain,
        metadata={**source.metadata, _PROOF: proof} if isinstance(proof, str) else source.metadata,
    )


def _at_its_proof(source: Source) -> Source:
    """Set a file's URL to its proof page, for dialects that support URLs but not files."""
    if source.url is not None:
        return source
    rest = {name: value for name, value in source.metadata.items() if name != _PROOF}
    return replace(source, url=source.metadata.get(_PROOF), metadata=rest)


def _object(value: Any, *path: str) -> Json:
    """Return the object at `path` in `value`, or an empty object."""
    for key in path:
        value = value.get(key) if is_object(value) else None
    return value if is_object(value) else {}
