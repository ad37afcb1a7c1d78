"""Bodies: the sources that an annotation links to, in the many shapes that the model allows."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import Json, is_list, is_object, overlay
from citewire.dialects.common.extension_fields import EXTENSION_KEY
from citewire.dialects.w3c.selectors import update_selectors
from citewire.model import Source, SourceKind

_TITLE = "dc:title"
_NO_SOURCES = ("TextualBody", "Choice", "Composite", "List", "Independents")


def has_type(value: Json, name: str) -> bool:
    """Whether a resource is of a type, which may be one of many."""
    kind = value.get("type")
    return name in kind if is_list(kind) else kind == name


def resource_of(body: Any) -> Json | None:
    """What a body is about: itself, or what it is a part of; None where it is no source, but a comment."""
    if isinstance(body, str):
        return {"id": body}
    if not is_object(body) or any(has_type(body, name) for name in _NO_SOURCES):
        return None
    if "source" not in body:
        return body if "id" in body else None
    source = body["source"]
    return {"id": source} if isinstance(source, str) else source if is_object(source) else None


def title_key(resource: Json) -> str:
    """Under which name a resource has its title."""
    return next((key for key in (_TITLE, "title", "label") if isinstance(resource.get(key), str)), _TITLE)


def kind_of(url: str | None) -> SourceKind:
    """What a source is taken for that does not say it."""
    return "document" if url is None else "web"


def update_body(kept: Any, source: Source, wanted: Json, packed: Json) -> Any:
    """A body over what was kept of it; as short as it was while nothing asks for more."""
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
