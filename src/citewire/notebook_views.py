"""Views of values in notebooks: rooms that draw them register a function, values look it up by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["notebook_html", "register_notebook_view"]

_views: dict[str, Callable[[Any], str]] = {}


def register_notebook_view(name: str, view: Callable[[Any], str]) -> None:
    """Have `view` make the HTML of the values called `name`."""
    _views[name] = view


def notebook_html(name: str, value: object) -> str:
    """The HTML of a value."""
    return _views[name](value)
