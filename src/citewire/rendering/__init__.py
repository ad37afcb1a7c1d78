"""Render an answer with inline markers and a list of sources, for people to read.

`render(answer, to)` writes any of `FORMATS`; `render_html` and `render_terminal` take options of these
formats. In every format untrusted text is escaped, hidden characters are removed, and only absolute http,
https and mailto URLs are links.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from citewire.errors import CitewireError
from citewire.model import Answer
from citewire.rendering import github, html, markdown, slack, terminal, text
from citewire.rendering.layout import Layout, lay_out

__all__ = ["FORMATS", "UnknownFormat", "render", "render_html", "render_terminal"]


def _terminal(layout: Layout) -> str:
    # https://no-color.org: present and not empty.
    return terminal.write(layout, colour=not os.environ.get("NO_COLOR"))


_WRITERS: dict[str, Callable[[Layout], str]] = {
    "text": text.write,
    "markdown": markdown.write,
    "html": html.write,
    "terminal": _terminal,
    "slack": slack.write,
    "github": github.write,
}

FORMATS: tuple[str, ...] = tuple(_WRITERS)


class UnknownFormat(CitewireError):
    """No format has this name."""

    code = "unknown_format"

    def __init__(self, name: str) -> None:
        super().__init__(f"no format is called {name!r}; there are {', '.join(FORMATS)}")
        self.name = name
        self.known = FORMATS


def render(answer: Answer, to: str) -> str:
    """Render `answer` in the format `to`, one of `FORMATS`.

    A terminal gets colours unless NO_COLOR is set. Raises `UnknownFormat`.
    """
    if to not in _WRITERS:
        raise UnknownFormat(to)
    return _WRITERS[to](lay_out(answer))


def render_html(answer: Answer, prefix: str = "cite") -> str:
    """Render `answer` as an HTML fragment; give each answer of a page its own `prefix` for ids."""
    return html.write(lay_out(answer), prefix)


def render_terminal(answer: Answer, *, colour: bool = True) -> str:
    """Render `answer` for a terminal, coloured or without escape sequences."""
    return terminal.write(lay_out(answer), colour=colour)
