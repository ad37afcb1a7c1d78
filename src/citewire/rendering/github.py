"""Write an answer for a GitHub comment: Markdown without mentions and references to issues."""

from __future__ import annotations

import re

from citewire.rendering import commonmark
from citewire.rendering.layout import Layout

__all__ = ["write"]

# A longer list is collapsed: the answer matters most.
_MOST_OPEN = 6

# GitHub looks for mentions after Markdown is rendered, so escapes do not stop it and entities do not hide
# them; a zero-width space does. Letters and digits before the @ make it an email address.
_BREAK = "\u200b"
_AT = r"(?<![A-Za-z0-9])@(?=[A-Za-z0-9&])|&(?:\#0*64|\#x0*40|commat);"
_MENTION = re.compile(rf"(?P<url>https?://[^\s<>()\[\]]*)|{_AT}", re.IGNORECASE)
_AT_IN_URL = re.compile(_AT, re.IGNORECASE)
_REFERENCE = re.compile(r"(?:\\#|(?<![A-Za-z0-9])GH(?=-))(?=-?\d)", re.IGNORECASE)


def write(layout: Layout) -> str:
    """Write the answer in GitHub's Markdown."""
    text = commonmark.write_body(layout, lambda prose: _unmention(commonmark.defuse(prose)))
    return "\n\n".join(section for section in (text, _sources(layout)) if section)


def _sources(layout: Layout) -> str:
    items = "\n".join(
        line for source in layout.sources for line in commonmark.write_source_item(source, _escape)
    )
    if len(layout.sources) > _MOST_OPEN:
        return f"<details>\n<summary>Sources ({len(layout.sources)})</summary>\n\n{items}\n\n</details>"
    return f"**Sources**\n\n{items}" if items else ""


def _unmention(prose: str) -> str:
    return _MENTION.sub(_broken, prose)


def _broken(match: re.Match[str]) -> str:
    if match["url"]:
        # The URL must stay valid.
        return _AT_IN_URL.sub("%40", match["url"])
    return f"@{_BREAK}"


def _escape(words: str) -> str:
    escaped = _AT_IN_URL.sub(f"@{_BREAK}", commonmark.escape_markdown(words))
    return _REFERENCE.sub(rf"\g<0>{_BREAK}", escaped)
