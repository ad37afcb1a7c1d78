"""Write an answer in Slack's mrkdwn."""

from __future__ import annotations

import re

from citewire.rendering.layout import Layout, join_runs
from citewire.rendering.numbered_sources import NumberedSource

__all__ = ["write"]

# mrkdwn has no escapes, so formatting characters in untrusted words are replaced by look-alikes where Slack
# would interpret them: not within a word. A pipe would end the URL of a link.
_FORMAT = re.compile(r"(?<!\w)[*_~]|[*_~](?!\w)|[`|]")
_LOOK_ALIKE = {"*": "∗", "_": "＿", "~": "∼", "`": "ˋ", "|": "¦"}

# If the sender asks Slack to resolve names, these would alert everyone.
_EVERYONE = re.compile(r"@(?=(?:channel|everyone|here)\b)", re.IGNORECASE)
_BREAK = "\u200b"


def write(layout: Layout) -> str:
    """Write the answer in mrkdwn."""
    text = _escape(join_runs(layout))
    if text.count("```") % 2:
        # An unclosed code block would include the sources.
        text += "\n```"
    lines = [_line(source) for source in layout.sources]
    sections = [text, "\n".join(["*Sources*", *lines]) if lines else ""]
    return "\n\n".join(section for section in sections if section)


def _escape(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _EVERYONE.sub(f"@{_BREAK}", escaped)


def _words(words: str) -> str:
    """Escape untrusted words, without formatting."""
    return _escape(_FORMAT.sub(lambda match: _LOOK_ALIKE[match[0]], words))


def _line(source: NumberedSource) -> str:
    return f"{source.mark} {_title(source)}{f', {source.pages}' if source.pages else ''}"


def _title(source: NumberedSource) -> str:
    if source.href:
        return f"<{_escape(source.href)}|{_words(source.label)}>"
    if source.url is None:
        return _words(source.label)
    # Slack links nothing within code.
    shown = "`" + _escape(source.url.replace("`", "%60")) + "`"
    return shown if source.shown_url is None else f"{_words(source.label)}, {shown}"
