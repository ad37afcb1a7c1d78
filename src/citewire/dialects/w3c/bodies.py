"""Bodies: the sources that an annotation links to, in the many forms that the W3C model allows."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import Json, is_list, is_object, overlay
from citewire.dialects.common.extension_fields import EXTENSION_KEY
from citewire.dialects.w3c.selectors import update_selectors
from citewire.model import Source, SourceKind

_TITLE = "dc:title"
_NO_SOURCES = ("TextualBody", "Choice", "Composite", "List", "Independents")


def has_type(value: Json, name: str) -> bool:
    """Whether a resource has a type, possibly among others."""
    kind = value.get("type")
    return name in kind if is_list(kind) else kind == name


def resource_of(body: Any) -> Json | None:
    """Return the resource of a body: itself, or the one it is a part of; None if it is a comment."""
    if isinstance(body, str):
        return {"id": body}
    if not is_object(body) or any(has_type(body, name) for name in _NO_SOURCES):
        return None
    if "source" not in body:
        return body if "id" in body else None
    source = body["source"]
    return {"id": source} if isinstance(source, str) else source if is_object(source) else None


def title_key(resource: Json) -> str:
    """Return the name of the field that holds a resource's title."""
    return next((key for key in (_TITLE, "title", "label") if isinstance(resource.get(key), str)), _TITLE)


def kind_of(url: str | None) -> SourceKind:
    """Return the kind of a source that does not state it."""
    return "document" if url is None else "web"


def update_body(kept: Any, source: Source, wanted: Json, packed: Json) -> Any:
    """Update an original body; it keeps its short form while that is enough."""
    old = resource_of(kept) or {}
    resource = overlay(old, {"id": source.url, title_key(old): source.title})
    is_specific = is_object(kept) and "source" in kept
    selector = update_selectors(kept.get("selector") if is_object(kept) else None, wanted)
    if is_specific:
        before = kept["source"]
        short = isinstance(before, str) or not before
        named = resource["id"] if short and resource.keys() == {"id"} else resource
        body = overlay(kept, {"source": named, "selector": selector})
    elif selector is not None and not (is_object(kept) and selector == kept.get("selector")):
        bare = {key: value for key, value in resource.items() if key not in ("selector", EXTENSION_KEY)}
        named = bare["id"] if bare.keys() == {"id"} else bare
        body = {"type": "SpecificResource", "source": named, "selector": selector}
    else:
        body = resource
    if packed or (is_object(kept) and is_object(kept.get(EXTENSION_KEY)) and kept[EXTENSION_KEY]):
        body = overlay(body, {EXTENSION_KEY: packed or None})
    return body["id"] if isinstance(kept, str) and body.keys() == {"id"} else body
