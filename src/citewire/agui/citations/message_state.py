"""Tracks the citations of a stream's messages and their verdicts, and writes them to shared state.

`MessageTracker` awaits nothing. Quotes to check, pictures to draw and audit records collect in its lists;
`flush` returns the changes to send to the client.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, Literal, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui.citations import records, shared_state
from citewire.agui.citations.echoes import fingerprint, fingerprints
from citewire.agui.citations.posted_messages import id_of
from citewire.agui.citations.records import MessageCitation, ProofUrls
from citewire.agui.citations.shared_state import MessageStatus, SharedState, is_safe_key
from citewire.agui.citations.written_verdicts import WrittenVerdicts
from citewire.agui.events import AnyEvent, Event, Json
from citewire.errors import InputError
from citewire.extraction import Scanner
from citewire.keys import CitationKeys, key_v2
from citewire.model import Lines, Status
from citewire.text import one_line
from citewire.verification.document_set import CheckResult
from citewire.verification.sources import SourceOrigin
from citewire.verification.verifier import QuoteCheck

__all__ = [
    "AuditRecord", "CitationSeen", "Clock", "CropRequest", "LogKnowledge", "MessageState", "MessageTracker",
    "Options", "ReviewGiven", "ThreadVerdicts", "VerdictReached",
]  # fmt: skip

_log = logging.getLogger("citewire.agui")

# Citations of one message that are processed; a message with more is not an answer.
_MOST_CITED = 10_000
_UNSAFE_ID = "its citations are not checked: the message has an id under which no state can be kept"
ImageFormat = Literal["avif", "webp", "jpeg", "png"]


class Options(Struct, frozen=True, kw_only=True):
    """Options of citation checking; the table in docs/reference describes each.

    `deadline` is in seconds, and None waits for every verdict; `max_text` counts characters of a message.
    """

    state_key: str = "deepcitation"
    emit_deepcitation: bool = True
    emit_ngaf: bool = True
    incremental: bool = True
    strip_block: bool = True
    custom_events: bool = True
    max_text: int = 1 << 20
    deadline: float | None = 30.0
    keep_last: int | None = None
    image_format: ImageFormat | None = "avif"
    proofs: Callable[[str, str, CheckResult], ProofUrls] | None = None
    fetch_urls: bool = False

    def __post_init__(self) -> None:
        """Raise `InputError` for a `state_key` under which clients cannot store our state."""
        if not shared_state.is_state_key(self.state_key):
            message = "a state key has 1 to 128 printable characters, and no name that JavaScript reserves"
            raise InputError(message, "state_key")


class CitationSeen(Struct, frozen=True, gc=False, omit_defaults=True):
    """Audit record: a message cites something.

    If the citation is not the agent's, `annotation` is its id, and `by` its author if known.
    """

    message_id: str
    key: str
    citation: Json
    by: str | None = None
    annotation: str | None = None


class VerdictReached(Struct, frozen=True, gc=False):
    """Audit record: the verdict on a citation."""

    message_id: str
    key: str
    quote: str
    verification: Json


class ReviewGiven(Struct, frozen=True, gc=False):
    """Audit record: a person's review of a citation, as reported by a client."""

    message_id: str
    key: str
    review: Json


AuditRecord = CitationSeen | VerdictReached | ReviewGiven


class LogKnowledge(Struct, frozen=True):
    """Facts from a thread's log, given by a caller whose run input can be trusted.

    `posted` are the ids of messages that only clients posted, in this run or before. `news` are events that
    follow RUN_STARTED, to bring the client's copy up to date. `open_calls` are the agent's tool calls without
    a result in the log: the client answers them. `echoes` are the fingerprints of posted messages that the
    server never sent, see `echoes.fingerprint`.
    """

    posted: Set[str] = frozenset()
    news: tuple[AnyEvent, ...] = ()
    open_calls: Set[str] = frozenset()
    echoes: Set[bytes] = frozenset()

    def result_origin(self, message: Json) -> SourceOrigin | None:
        """Return the origin of a tool result; None if the log has it from the agent."""
        name = id_of(message)
        if name and name not in self.posted:
            return None
        call = message.get("toolCallId")
        return "client_tool" if isinstance(call, str) and call in self.open_calls else "posted"


class ThreadVerdicts(NamedTuple):
    """The verdicts of one thread that this process wrote, for callers without a log."""

    written: WrittenVerdicts
    thread_id: str

    def drop_foreign_verdicts(self, client: Any, state_key: str) -> Any:
        """Return the client's state without verdicts that were written elsewhere."""
        return self.written.drop_foreign_verdicts(client, state_key, self.thread_id)

    def add(self, message_id: str, key: str, *values: Any) -> None:
        """Remember the values that are written for a citation."""
        self.written.add(self.thread_id, message_id, key, *values)

    def add_entry(self, message_id: str, entry: Json) -> None:
        """Remember an entry of a citation list that is written, or our note in it."""
        self.written.add_entry(self.thread_id, message_id, entry)

    def add_answer(self, text: str) -> None:
        """Remember an answer that an agent gave in the thread."""
        self.written.add(self.thread_id, "", "", _fingerprint_answer(text))

    def find_echo_fingerprints(self, messages: Iterable[Any]) -> frozenset[bytes]:
        """Return the fingerprints of posted messages that no agent is known to have sent here."""
        posted = fingerprints(messages)
        return frozenset(each for each in posted if not self.written.has(self.thread_id, "", "", each.hex()))


def _fingerprint_answer(text: str) -> str:
    found = fingerprint({"role": "assistant", "content": text})
    return "" if found is None else found.hex()


class CropRequest(NamedTuple):
    """A request to draw a picture of the place of a quote."""

    id: str
    checked: CheckResult


class Clock(NamedTuple):
    """Two clocks: monotonic seconds, and the current date as text."""

    seconds: Callable[[], float]
    date: Callable[[], str]


class MessageState:
    """The citations of one answer; `scanner` is set while its text is streamed.

    `taken` counts the scanner's citations that were already added; `digest` is the hash of the final text.
    """

    def __init__(self, name: str, began: float) -> None:
        self.id, self.began = name, began
        self.scanner: Scanner | None = None
        self.taken = 0
        self.digest: int | None = None
        self.cited: dict[str, MessageCitation] = {}
        self.seen: dict[str, float] = {}
        self.pending: set[str] = set()
        self.counts: Counter[Status] = Counter()
        self.error: str | None = None


class MessageTracker:
    """Tracks the messages of one stream by id.

    `last` is the message that started last. `earlier` are the ids of closed messages: those of earlier runs,
    those that only clients posted, and evicted ones. A caller with a log records reviews itself.
    """

    def __init__(
        self,
        client: Any,
        earlier: Iterable[str],
        options: Options,
        time: Clock,
        known: LogKnowledge | None = None,
        trust: ThreadVerdicts | None = None,
    ) -> None:
        self._options, self._time, self._key = options, time, options.state_key
        self.state = SharedState(
            client, options.state_key, deepcitation=options.emit_deepcitation, ngaf=options.emit_ngaf,
            trusted=trust and trust.drop_foreign_verdicts(client, options.state_key),
            on_entry=trust.add_entry if trust else None,
        )  # fmt: skip
        self._trust = trust
        self._keys = CitationKeys()
        self.messages: dict[str, MessageState] = {}
        self.last: MessageState | None = None
        listed = {*earlier}
        # Recorded messages that are missing from the input: one that starts with such an id is a new message.
        self._left_out = self.state.own_record["messages"].keys() - listed
        self.closed_ids = {*listed, *self.state.own_record["messages"], *(known.posted if known else ())}
        self._undecided: dict[str, tuple[MessageState, str]] = {}
        self._undrawn: dict[str, tuple[MessageState, str]] = {}
        self._customs: list[Event] = []
        self._repeated: list[str] = []
        self.checks: list[QuoteCheck] = []
        self.crops: list[CropRequest] = []
        self.records: list[AuditRecord] = [] if known else list(_reviews(self.state.own_record))
        self._recheck_undecided()

    @property
    def is_waiting(self) -> bool:
        """Whether a verdict or a picture is still pending."""
        return bool(self._undecided or self._undrawn)

    @property
    def has_unsent_changes(self) -> bool:
        """Whether there are changes to send to the client."""
        return bool(self._customs or self._repeated or self.state.is_dirty)

    def flush(self) -> list[Event]:
        """Return the events to send for all changes since the last call."""
        operations = self.state.flush()
        if self._repeated:
            operations += self.state.resend_lists(self._repeated)
            self._repeated = []
        customs, self._customs = self._customs, []
        return [ev.StateDelta(operations), *customs] if operations else customs

    def resend(self, names: Iterable[str]) -> None:
        """Send the citation lists of these messages once more."""
        self._repeated = [*names]

    def _emit_custom(self, name: str, message: MessageState, since: float, **value: Any) -> None:
        if self._options.custom_events:
            passed = round((self._time.seconds() - since) * 1000, 1)
            said = {"messageId": message.id, **value, "ms": passed}
            self._customs.append(ev.Custom(f"citewire.{name}", said))

    # --- messages -----------------------------------------------------------------------------------------

    def begin_message(self, name: str) -> MessageState:
        """Start a message, or continue one that had ended, maybe in an earlier run."""
        if name in self._left_out:
            self._forget_message(name)
        message = self.find_message(name)
        if message is None:
            message = self.add_message(name)
        elif message.scanner is None:
            self.set_status(message, "streaming")
        if message.scanner is None:
            message.scanner, message.taken = Scanner(limit=self._options.max_text), 0
        return message

    def _forget_message(self, name: str) -> None:
        """Forget an answer that is missing from the input, because a new one takes its id."""
        self._left_out.discard(name)
        self.messages.pop(name, None)
        self._undecided = {each: it for each, it in self._undecided.items() if it[0].id != name}
        self.state.evict([name])

    def find_message(self, name: str) -> MessageState | None:
        """Return a message of this stream, or one of an earlier stream from the state; None if unknown."""
        told = self.state.own_record["messages"].get(name)
        return self.messages.get(name) or (None if told is None else self._restore_message(name, told))

    def add_message(self, name: str) -> MessageState:
        """Add a message that is not known yet."""
        message = self.messages[name] = MessageState(name, self._time.seconds())
        if is_safe_key(name):
            self._evict()
            self.state.patch(shared_state.message_patches(name, self._key))
        return message

    def set_status(self, message: MessageState, status: MessageStatus) -> None:
        """Write the status of a message to the state."""
        if is_safe_key(message.id):
            error = message.error if status in ("error", "verifying") else None
            self.state.patch(shared_state.status_patches(message.id, status, error, self._key))

    def record_text(self, message: MessageState, text: str) -> None:
        """Record the complete text of a message."""
        message.digest = hash(text)
        if self._trust is not None:
            self._trust.add_answer(text)

    def complete_if_done(self, message: MessageState) -> None:
        """Mark a message as complete, or as failed, if nothing is pending for it."""
        if message.scanner is None and not message.pending:
            self.set_status(message, "error" if message.error else "complete")
            error = {"error": message.error} if message.error else {}
            summary = shared_state.summary_of(message.counts)
            self._emit_custom("message_complete", message, message.began, summary=summary, **error)

    def follow_renamed_messages(self, answers: Mapping[str, str]) -> None:
        """Rename streamed messages whose text is in `answers`, a map from id to text, under another id."""
        unknown = {
            hash(text): name
            for name, text in answers.items()
            if name and name not in self.messages and name not in self.closed_ids
        }
        for old, message in list(self.messages.items()):
            new = None if old in answers or message.digest is None else unknown.pop(message.digest, None)
            if new is not None:
                self.state.rename_message(old, new)
                message.id = new
                self.messages[new] = self.messages.pop(old)
                for key in message.cited:
                    self._remember_verdict(new, key)

    def _evict(self) -> None:
        most, known = self._options.keep_last, self.state.known_messages
        if most is None or len(known) < most:
            return
        busy = {message.id for message in self.messages.values() if message.scanner or message.pending}
        busy |= {message.id for message, _ in self._undrawn.values()}
        gone = {name for name in known[: len(known) - most + 1] if name not in busy}
        self.state.evict(gone)
        self.closed_ids |= gone
        for name in gone:
            if self.messages.pop(name, None) is self.last:
                self.last = None

    def _recheck_undecided(self) -> None:
        """Request the checks that an earlier run did not finish in time."""
        for name, message in self.state.own_record["messages"].items():
            left = [key for key in message["citations"] if key not in message["verifications"]]
            if not left:
                continue
            known = self._restore_message(name, message)
            for key in left:
                if (cited := known.cited.get(key)) is not None:
                    known.pending.add(key)
                    self._request_check(known, key, cited)

    def _restore_message(self, name: str, raw: Json) -> MessageState:
        """Restore a message of an earlier run from the client's state."""
        message = self.messages[name] = MessageState(name, self._time.seconds())
        citations, verdicts = raw["citations"], raw["verifications"]
        if raw["status"] == "verifying":
            message.error = raw.get("error")
        for key, each in citations.items():
            if (cited := records.read_record(each)) is not None:
                message.cited[key], message.seen[key] = cited, message.began
        undecided = len(citations.keys() - verdicts)
        message.counts.update(records.count_statuses(verdicts.values()), pending=undecided)
        return message

    # --- citations and verdicts ---------------------------------------------------------------------------

    def add_foreign_citation(
        self, message: MessageState, cited: MessageCitation, by: str | None, annotation: str
    ) -> None:
        """Add another client's citation of a message, once for each `annotation`."""
        # A separate key: another client's citation never gets the verdict on the agent's.
        key = key_v2(cited.ref, replace(cited.source, file_id=None, id=annotation))
        if key not in message.cited and len(message.cited) < _MOST_CITED:
            message.cited[key] = cited
            self._add(message, {key: cited}, by, annotation)

    def add_citations(self, message: MessageState, found: Iterable[MessageCitation]) -> list[MessageCitation]:
        """Add citations to a message, and return those that are new."""
        new: dict[str, MessageCitation] = {}
        for cited in found:
            key = self._key_of(cited)
            if key not in message.cited and len(message.cited) < _MOST_CITED:
                message.cited[key] = new[key] = cited
            elif cited.label is not None:
                self.state.set_label(message.id, key, cited.label)
        return self._add(message, new)

    def _add(
        self,
        message: MessageState,
        new: dict[str, MessageCitation],
        by: str | None = None,
        annotation: str | None = None,
    ) -> list[MessageCitation]:
        if not new:
            return []
        if not is_safe_key(message.id):
            self._refuse_citations(message, len(new))
            return []
        made = {key: records.make_record(cited) for key, cited in new.items()}
        message.counts["pending"] += len(new)
        message.pending.update(new)
        together = not self._options.incremental and len(message.cited) == len(new)
        self.state.patch(shared_state.citation_patches(message.id, made, self._key, together=together))
        self.state.patch(shared_state.summary_patches(message.id, message.counts, self._key))
        for key, cited in new.items():
            if cited.entry_id is None:
                entry = records.make_entry(cited, key, len(self.state.own_citations(message.id)) + 1)
                self.state.list_citation(message.id, entry)
            message.seen[key] = self._time.seconds()
            self._emit_custom("citation_seen", message, message.began, key=key)
            self.records.append(CitationSeen(message.id, key, made[key], by, annotation))
            self._request_check(message, key, cited)
        return [*new.values()]

    def _refuse_citations(self, message: MessageState, count: int) -> None:
        """Log once that a message's citations are not checked: no state can be stored under its id."""
        if message.error != _UNSAFE_ID:
            _log.warning("message %s: %s", one_line(message.id, 80), _UNSAFE_ID)
        message.error = _UNSAFE_ID
        message.counts["skipped"] += count

    def _key_of(self, cited: MessageCitation) -> str:
        """Return the published key, which needs line ids in order."""
        ref, source = cited.ref, cited.source
        if isinstance(ref.locator, Lines):
            ref = replace(ref, locator=Lines(tuple(sorted(ref.locator.ids)), ref.locator.page))
        return self._keys.assign(ref, replace(source, id=source.record_id or ""))

    def _request_check(self, message: MessageState, key: str, cited: MessageCitation) -> None:
        name = f"{message.id}\n{key}"
        self._undecided[name] = message, key
        quote = cited.ref.quote or ""
        self.checks.append(
            QuoteCheck(name, quote, None, cited.expected_place, cited.source_names, claim=cited.claim)
        )

    def apply_verdict(self, checked: CheckResult) -> None:
        """Apply a verdict. A check that did not finish in time stays pending."""
        message, key = self._undecided.pop(checked.id or "", (None, ""))
        if message is None or checked.status == "pending":
            return
        cited = message.cited[key]
        links = self._links(message.id, key, checked)
        verdict = records.make_verification(checked, cited, links, self._time.date())
        message.pending.discard(key)
        message.counts["pending"] -= 1
        message.counts[checked.status] += 1
        self._put_beside(message.id, key)
        self.state.patch(shared_state.verification_patches(message.id, key, verdict, self._key))
        self.state.patch(shared_state.summary_patches(message.id, message.counts, self._key))
        note = {"key": key, **records.make_note(checked)}
        self.state.annotate(message.id, key, cited.entry_id, note)
        self._remember_verdict(message.id, key)
        self.records.append(VerdictReached(message.id, key, cited.ref.quote or "", verdict))
        if links is None and self._options.image_format and checked.boxes and checked.id:
            self._undrawn[checked.id] = message, key
            self.crops.append(CropRequest(checked.id, checked))
        else:
            self._emit_custom("evidence_ready", message, message.seen[key], key=key, status=checked.status)
        self.complete_if_done(message)

    def _put_beside(self, message_id: str, key: str) -> None:
        """Put the citation of a verdict among those of all messages, where another may share its key."""
        told = self.state.own_record["messages"].get(message_id)
        if told and self.state.own_record["citations"].get(key) != (cited := told["citations"].get(key)):
            self.state.patch(shared_state.shared_citation_patches(key, cited, self._key))

    def _remember_verdict(self, message_id: str, key: str) -> None:
        """Remember that the recorded verdict on a citation was written here."""
        if self._trust is None:
            return
        if (told := self.state.own_record["messages"].get(message_id)) and key in told["verifications"]:
            self._trust.add(message_id, key, told["citations"].get(key), told["verifications"][key])

    def _links(self, message_id: str, key: str, checked: CheckResult) -> ProofUrls | None:
        """Return the URLs of the proof, if proofs are served and the quote was found."""
        if self._options.proofs is None or checked.start is None:
            return None
        return self._options.proofs(message_id, key, checked)

    def add_picture(self, name: str, address: str | None) -> None:
        """Add a picture; `address` is None if it could not be drawn."""
        message, key = self._undrawn.pop(name, (None, ""))
        if message is None:
            return
        if address is not None:
            self.state.patch(shared_state.evidence_patches(message.id, key, {"src": address}, self._key))
            self._remember_verdict(message.id, key)
        self._emit_custom("evidence_ready", message, message.seen[key], key=key)

    def fail_pending(self, reason: str) -> None:
        """Fail all messages with pending checks, since no more will run."""
        waiting = {message.id: message for message, _ in self._undecided.values()}
        self._undecided.clear()
        self._undrawn.clear()
        for message in waiting.values():
            message.error = reason
            message.pending.clear()
            self.complete_if_done(message)


def _reviews(record: Json) -> Iterator[ReviewGiven]:
    """Yield the reviews of citations in the client's record."""
    reviews = record.get("reviews")
    for name, by_key in cast("Json", reviews).items() if isinstance(reviews, dict) else ():
        for key, given_reviews in cast("Json", by_key).items() if isinstance(by_key, dict) else ():
            for review in cast("list[Any]", given_reviews) if isinstance(given_reviews, list) else ():
                if isinstance(review, dict):
                    yield ReviewGiven(one_line(name, 200), one_line(key, 64), cast("Json", review))
