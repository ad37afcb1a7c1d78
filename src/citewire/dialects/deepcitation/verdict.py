"""Reads and writes verdicts in both published forms, and maps their status words to ours."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import Json, is_object, native_for, optional, overlay
from citewire.dialects.deepcitation.entry import NAME, is_page
from citewire.errors import ShapeError
from citewire.model import Native, Status, Verification

_STATUS: dict[str, tuple[Status, str | None]] = {
    "found": ("verified", None),
    "found_phrase_missed_anchor_text": ("verified", "found_phrase_missed_anchor_text"),
    "partial_text_found": ("partial", None),
    "found_anchor_text_only": ("partial", "found_anchor_text_only"),
    "found_on_other_page": ("partial", "found_on_other_page"),
    "found_on_other_line": ("partial", "found_on_other_line"),
    "first_word_found": ("partial", "first_word_found"),
    "not_found": ("missed", None),
    "pending": ("pending", None),
    "loading": ("pending", "loading"),
    "skipped": ("skipped", "skipped"),
    "timestamp_wip": ("skipped", "timestamp_wip"),
}
_EXACT_WORD = {verdict: word for word, verdict in _STATUS.items()}
STATUS_WORDS: dict[Status, str] = {
    "verified": "found",
    "partial": "partial_text_found",
    "altered": "not_found",
    "missed": "not_found",
    "pending": "pending",
    "skipped": "skipped",
}


def verdict_fields(verdict: Verification | None) -> tuple[Any, ...] | None:
    return verdict and (verdict.status, verdict.reason, verdict.quote, verdict.page)


def read_verdict(raw: Any) -> Verification:
    if not is_object(raw):
        raise ShapeError("a verification is not an object", "")
    status, reason = _read_status(raw)
    quote = optional(raw, "verifiedMatchSnippet", str)
    if quote is None:
        quote = optional(raw, "matchSnippet", str)
    page = _verified_page(raw)
    return Verification(status, reason, quote, page, Native(NAME, raw, was=(status, reason, quote, page)))


def _read_status(raw: Json) -> tuple[Status, str | None]:
    """Return the status from the `citewire` object, else the meaning of the published word."""
    ours = raw.get("citewire")
    if is_object(ours) and ours.get("status") is not None:
        status = optional(ours, "status", str, ".citewire")
        if status not in STATUS_WORDS:
            raise ShapeError("status is none of ours", ".citewire.status")
        return status, optional(ours, "reason", str, ".citewire")
    word = optional(raw, "status", str)
    if word is None and is_object(search := raw.get("searchState")):
        word = optional(search, "status", str, ".searchState")
    return ("pending", None) if word is None else _STATUS.get(word, ("skipped", word))


def _verified_page(raw: Json) -> int | None:
    document = optional(raw, "document", dict)
    page = optional(document, "verifiedPageNumber", int, ".document") if document else None
    if page is None:
        page = optional(raw, "pageNumber", int)
    # The older form uses -1 for "nowhere".
    return page if is_page(page) else None


def write_verdict(verdict: Verification) -> Json:
    native = native_for(verdict.native, NAME)
    was: tuple[Any, ...] = native.was if native else (None,) * 4
    if native and verdict_fields(verdict) == was:
        return native.raw
    out: Json = dict(native.raw) if native else {}
    if (verdict.status, verdict.reason) != was[:2]:
        _put_status(out, verdict.status, verdict.reason)
    if verdict.quote != was[2]:
        names = ["verifiedMatchSnippet", "matchSnippet"]
        if out.get(names[0]) is None and out.get(names[1]) is not None:
            names.reverse()
        out = overlay(out, {names[0]: verdict.quote, names[1]: None})
    if verdict.page != was[3]:
        older = "pageNumber" in out and not is_object(out.get("document"))
        document = overlay(out.get("document"), {"verifiedPageNumber": None if older else verdict.page})
        out = overlay(out, {"pageNumber": verdict.page if older else None, "document": document or None})
    return out


def _put_status(out: Json, status: Status, reason: str | None) -> None:
    """Write the closest published word, and add our status if reading that word would not restore it."""
    word = _EXACT_WORD.get((status, reason), STATUS_WORDS[status])
    search = out.get("searchState")
    if is_object(search) and out.get("status") is None:
        out["searchState"] = overlay(search, {"status": word})
    else:
        out["status"] = word
    kept = out.pop("citewire", None)
    is_exact = _STATUS[word] == (status, reason)
    ours = {"status": None, "reason": None} if is_exact else {"status": status, "reason": reason}
    if beside := overlay(kept if is_object(kept) else None, ours):
        out["citewire"] = beside
