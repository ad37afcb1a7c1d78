"""Converts citations and verdicts for shared state: to DeepCitation's published fields with our additions,
and to entries that @ngaf/ag-ui reads."""

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

# Fields of a verdict that the published format does not have.
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
    """One citation of a message: the quote, its stated place, and the number it is cited by.

    `label` is that of its `[^label]`; `entry_id` is the agent's id for it, if the agent listed it. `claim` is
    the citing sentence, if there is no quote.
    """

    ref: SourceRef
    source: Source
    number: int | None = None
    label: str | None = None
    entry_id: str | None = None
    claim: str = ""

    @property
    def expected_place(self) -> ExpectedPlace:
        """The stated place of the quote in its source."""
        return ExpectedPlace.from_reference(self.ref, self.source)

    @property
    def source_names(self) -> tuple[str, ...]:
        """The possible names of its source, most specific first."""
        source = self.source
        given = (source.file_id, source.filename, source.url, source.title, source.record_id, source.id)
        return tuple(dict.fromkeys(name for name in given if name))


class ProofUrls(NamedTuple):
    """URLs of the proof of a verdict: a page, and a picture if its source can be drawn."""

    page: str
    picture: str | None


def make_record(cited: MessageCitation) -> Json:
    """Convert a citation to the published fields."""
    ref, source = cited.ref, cited.source
    url = source.url if source.kind == "web" else None
    kind = type_of(source.metadata.get("type"), url, ref.locator)
    fields = EntryFields(
        cited.number, ref.quote, ref.anchor, ref.locator, kind, source.file_id, source.url, source.title,
        source.domain, (),
    )  # fmt: skip
    return write_entry(fields, None)


def read_record(raw: Json) -> MessageCitation | None:
    """Read a citation from its published fields; None if they are not valid."""
    try:
        fields = read_fields(raw, None)
    except ShapeError:
        return None
    kind = "web" if fields.url is not None else "document"
    source = Source("", kind, fields.url, fields.title, file_id=fields.file_id, domain=fields.domain)
    return MessageCitation(fields.ref(""), source, fields.number)


def make_entry(cited: MessageCitation, key: str, at: int) -> Json:
    """Convert a citation to an entry of `state.citations`, the `at`th of its message."""
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
    """Convert a verdict to the published fields. `links` lead to its proof, `date` is when it was reached."""
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
    """Return the fields of a verdict that the published format does not have."""
    said = to_builtins(checked)
    return {name: said[name] for name in _OURS if said.get(name) not in (None, [], ())}


def count_statuses(verifications: Iterable[Json]) -> Counter[Status]:
    """Count the verdicts of a message by status."""
    return Counter[Status](map(_status, verifications))


def _status(raw: Json) -> Status:
    try:
        return read_verdict(raw).status
    except ShapeError:
        return "skipped"
