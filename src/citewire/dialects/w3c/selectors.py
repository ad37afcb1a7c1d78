"""Selectors of a target or a body: offsets, words and pages."""

from __future__ import annotations

import re
from typing import Any

from citewire.dialects.base import Json, is_list, is_object, require
from citewire.errors import ShapeError
from citewire.model import Chars, Locator, Pages

POSITION, QUOTE, FRAGMENT = "TextPositionSelector", "TextQuoteSelector", "FragmentSelector"

_PDF_FRAGMENT = "http://tools.ietf.org/rfc/rfc3778"
_PAGE = re.compile(r"page=([1-9]\d{0,8})")


def selectors_of(resource: Json) -> dict[str, Json]:
    """Return the first selector of each type."""
    found: dict[str, Json] = {}
    for selector in as_list(resource.get("selector")):
        if is_object(selector) and isinstance(kind := selector.get("type"), str):
            found.setdefault(kind, selector)
    return found


def as_list(value: Any) -> list[Any]:
    """Return a JSON-LD value, which is one item or many, as a list."""
    return value if is_list(value) else [] if value is None else [value]


def read_locator(selectors: dict[str, Json], where: str) -> Locator | None:
    """Return the location in a source. Raises `ShapeError` for invalid offsets."""
    if (position := selectors.get(POSITION)) is not None:
        start, end = (require(position, key, int, where) for key in ("start", "end"))
        if not 0 <= start <= end:
            raise ShapeError(f"{start} to {end} is negative or reversed", f"{where}.end")
        return Chars(start, end)
    value = selectors.get(FRAGMENT, {}).get("value")
    page = _PAGE.fullmatch(value) if isinstance(value, str) else None
    return Pages(int(page[1]), int(page[1])) if page else None


def is_one_page(locator: Locator | None) -> bool:
    """Whether a fragment selector can express the locator."""
    return isinstance(locator, Pages) and locator.first == locator.last and 0 < locator.first < 10**9


def locator_selectors(locator: Locator | None) -> Json:
    """Return the selectors for a locator by type; None means that the selector must be removed."""
    wanted: Json = {POSITION: None}
    if isinstance(locator, Chars):
        wanted[POSITION] = {"start": locator.start, "end": locator.end}
    page = locator.first if isinstance(locator, Pages) and is_one_page(locator) else None
    wanted[FRAGMENT] = page and {"conformsTo": _PDF_FRAGMENT, "value": f"page={page}"}
    return wanted


def update_selectors(old: Any, wanted: Json) -> Any:
    """Change, add or remove the selectors of the `wanted` types."""
    left = dict(wanted)
    out: list[Any] = []
    for selector in as_list(old):
        kind = selector.get("type") if is_object(selector) else None
        if not isinstance(kind, str) or kind not in left:
            out.append(selector)
            continue
        fields = left.pop(kind)
        if _says(selector, kind, fields):
            out.append(selector)
        elif fields is not None:
            out.append({"type": kind, **fields})
    out += [{"type": kind, **fields} for kind, fields in left.items() if fields is not None]
    return old if out == as_list(old) else out[0] if is_object(old) and len(out) == 1 else out or None


def _says(selector: Json, kind: str, fields: Json | None) -> bool:
    """Whether a selector can stay; fragments other than pages are not ours to change."""
    if kind == FRAGMENT and fields is None:
        return not (isinstance(value := selector.get("value"), str) and _PAGE.fullmatch(value))
    if fields is None:
        return False
    keys = ("exact",) if kind == QUOTE else ("value",) if kind == FRAGMENT else ("start", "end")
    return all(selector.get(key) == fields[key] for key in keys)
