"""Registry of HTML views for notebooks: rendering modules register functions, values look them up by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["notebook_html", "register_notebook_view"]

_views: dict[str, Callable[[Any], str]] = {}


def register_notebook_view(name: str, view: Callable[[Any], str]) -> None:
    """Register `view` to render values called `name` as HTML."""
    _views[name] = view


def notebook_html(name: str, value: object) -> str:
    """Render a value as HTML."""
    return _views[name](value)
