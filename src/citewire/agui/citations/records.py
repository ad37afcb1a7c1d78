"""Citations and verdicts as they stand in shared state: in DeepCitation's published fields, ours beside them,
and as entries that @ngaf/ag-ui reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, to_builtins

from citewire.agui.events import Json
from citewire.dialects.deepcitation.entry import EntryFields, read_fields, type_of, write_entry
from citewire.dialects.deepcitation.verdict import read_verdict, write_verdict
from citewire.errors import ShapeError
from citewire.model import Source, SourceRef, Status, Verification
from citewire.verification.expected_place import ExpectedPlace

if TYPE_CHECKING:
    from citewire.verification.document_set import CheckResult

__all__ = [
    "MessageCitation",
    "count_statuses",
    "make_entry",
    "make_note",
    "make_record",
    "make_verification",
    "read_record",
]

# What we say of a verdict that others have no words for.
_OURS = (
    "status",
    "reason",
    "source",
    "page",
    "start",
    "end",
    "diff",
    "edits",
    "warnings",
    "boxes",
    "sha256",
    "text_sha256",
    "context",
    "origin",
)


class MessageCitation(Struct, frozen=True, gc=False):
    """One thing that a message cites: the words, where they are said to be, and the number it is cited by.

    `label` is that of its `[^label]`; `entry_id` what the agent calls it where it is the agent's own. `claim`
    is the sentence that cites it, where that quotes nothing.
    """

    ref: SourceRef
    source: Source
    number: int | None = None
    label: str | None = None
    entry_id: str | None = None
    claim: str = ""

    @property
    def expected_place(self) -> ExpectedPlace:
        """Where in its source it is said to stand."""
        return ExpectedPlace.from_reference(self.ref, self.source)

    @property
    def source_names(self) -> tuple[str, ...]:
        """What its source may be called, the most telling first."""
        source = self.source
        given = (source.file_id, source.filename, source.url, source.title, source.record_id, source.id)
        return tuple(dict.fromkeys(name for name in given if name))


class ProofUrls(NamedTuple):
    """Where the proof of a verdict is served: as a page, and as a picture where its source has looks."""

    page: str
    picture: str | None


def make_record(cited: MessageCitation) -> Json:
    """The citation in published fields."""
    ref, source = cited.ref, cited.source
    url = source.url if source.kind == "web" else None
    kind = type_of(source.metadata.get("type"), url, ref.locator)
    fields = EntryFields(
        cited.number, ref.quote, ref.anchor, ref.locator, kind, source.file_id, source.url, source.title,
        source.domain, (),
    )  # fmt: skip
    return write_entry(fields, None)


def read_record(raw: Json) -> MessageCitation | None:
    """A citation that was written before; None where it is one no longer."""
    try:
        fields = read_fields(raw, None)
    except ShapeError:
        return None
    kind = "web" if fields.url is not None else "document"
    source = Source("", kind, fields.url, fields.title, file_id=fields.file_id, domain=fields.domain)
    return MessageCitation(fields.ref(""), source, fields.number)


def make_entry(cited: MessageCitation, key: str, at: int) -> Json:
    """The citation as an entry of `state.citations`, the `at`th of its message."""
    source = cited.source
    title = source.title or source.filename or source.file_id
    shown = {"title": title, "url": source.url, "snippet": cited.ref.quote or source.snippet}
    return {
        "id": cited.label or key,
        "index": at if cited.number is None else cited.number,
        **{name: value for name, value in shown.items() if value},
        "extra": {"citewire": {"own": True, "key": key, "status": "pending"}},
    }


def make_verification(
    checked: CheckResult, cited: MessageCitation, links: ProofUrls | None, date: str
) -> Json:
    """The verdict in published fields. `links` lead to its proof, `date` is when it was reached."""
    said = Verification(checked.status, checked.reason, checked.found, checked.page)
    more = {
        "attachmentId": cited.source.file_id,
        "label": checked.source,
        "verifiedFullPhrase": cited.ref.quote if checked.status == "verified" else None,
        "evidence": {"src": links.picture} if links and links.picture else None,
        "verifiedAt": date,
        "citewire": {**make_note(checked), **({"proof": links.page} if links else {})},
    }
    return {**write_verdict(said), **{name: value for name, value in more.items() if value is not None}}


def make_note(checked: CheckResult) -> Json:
    """What we say of a citation, beside what others have words for."""
    said = to_builtins(checked)
    return {name: said[name] for name in _OURS if said.get(name) not in (None, [], ())}


def count_statuses(verifications: Iterable[Json]) -> Counter[Status]:
    """How many verdicts of a message say what."""
    return Counter[Status](map(_status, verifications))


def _status(raw: Json) -> Status:
    try:
        return read_verdict(raw).status
    except ShapeError:
        return "skipped"
