"""Shared by the Markdown formats: defuse a model's Markdown, and escape untrusted words for Markdown.

The answer is Markdown and stays Markdown, except that tags are shown and not run, links with a scheme other
than http, https and mailto are not links, and no reference definition of the text captures our `[1]`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

from citewire.rendering.code_ranges import find_verbatim
from citewire.rendering.layout import Layout, LayoutRun, MarkRun, TextRun
from citewire.rendering.numbered_sources import NumberedSource

__all__ = ["defuse", "escape_markdown", "write_body", "write_source_item"]

# A `<` that could open a tag, except an autolink; a definition whose label our markers could match; the start
# of a link's or definition's destination.
_RISK = re.compile(
    r"""
      (?P<tag><(?=[A-Za-z/!?])(?!(?:https?://|mailto:)[^\s<>`"']*>))
    | (?P<number>\[\s*[\d?][^\[\]<]*\])(?=:)
    | \](?=[(:](?P<target>\s*<?[^\s<>()\[\]]*\S?))
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_BLANKS = re.compile(r"[\x00-\x20\x7f-\xa0<]+")
# A bare `Note:` after `[^1]:` is not an address.
_SCHEME = re.compile(r"(?!https?:|mailto:)[a-z][a-z0-9+.-]*:.", re.IGNORECASE)

_FENCE_LINE = re.compile(r"[ \t>]*(?:`{3,}|~{3,})[ \t]*")
# More than a fence line has, so that a long line need not be stored.
_LINE_START = 80

_SPECIAL = re.compile(r"[\\`*_\[\]~|$#]|(?<=www)\.|:(?=//)", re.IGNORECASE)
_ENTITY = re.compile(r"&(?=#?\w+;)")


def write_body(layout: Layout, fix: Callable[[str], str]) -> str:
    """Write the running text, with `fix` applied to everything except code."""
    text = "\n\n".join("".join(_strings(part)) for part in layout.parts)
    pieces: list[str] = []
    at = 0
    for kept in find_verbatim(text):
        pieces += fix(text[at : kept.start]), kept.text
        at = kept.end
    pieces.append(fix(text[at:]))
    return "".join(pieces)


def _strings(part: tuple[LayoutRun, ...]) -> Iterator[str]:
    line = ""
    for place, run in enumerate(part):
        if isinstance(run, MarkRun):
            if _FENCE_LINE.fullmatch(line):
                # After a closing fence it would keep the code block open.
                yield "\n"
            yield _markers(run, part[place + 1] if place + 1 < len(part) else None)
            continue
        yield run.text
        _, newline, last = run.text.rpartition("\n")
        line = (last if newline else line + last)[:_LINE_START]


def _markers(run: MarkRun, following: LayoutRun | None) -> str:
    """Write `[1][2]`, escaped if the next character would make it a link."""
    text = "".join(map(str, run.marks))
    match following.text[0] if isinstance(following, TextRun) else "":
        case "(":
            return f"{text}\\"
        case "[":
            return f"{text[:-1]}\\]"
        case _:
            return text


def defuse(prose: str) -> str:
    """Return Markdown outside code without tags and without links that run code."""
    return _RISK.sub(_defused, prose)


def _defused(match: re.Match[str]) -> str:
    if match["tag"]:
        return "&lt;"
    if match["number"] or _runs_code(match["target"]):
        return f"{match[0]}\\"
    return match[0]


def _runs_code(target: str) -> bool:
    """Return whether a browser would read `target` as a scheme that we do not link."""
    plain = _ESCAPED.sub(r"\1", html.unescape(target))
    return _SCHEME.match(_BLANKS.sub("", plain)) is not None


def escape_markdown(words: str) -> str:
    """Escape untrusted words, on one line, so that Markdown shows them unchanged."""
    return _SPECIAL.sub(r"\\\g<0>", words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def write_source_item(
    source: NumberedSource, escape: Callable[[str], str] = escape_markdown
) -> Iterator[str]:
    """Yield the lines of a source in the list."""
    yield f"- {source.mark} {_title(source, escape)}{f', {source.pages}' if source.pages else ''}"
    # After a curly quotation mark nothing starts a block.
    yield from (f"  > “{escape(quote)}”" for quote in source.quotes)


def _title(source: NumberedSource, escape: Callable[[str], str]) -> str:
    if source.href:
        return f"[{escape(source.label)}](<{_ENTITY.sub('&amp;', source.href)}>)"
    if source.url is None:
        return escape(source.label)
    # As code no renderer makes it a link.
    shown = "`" + source.url.replace("`", "%60") + "`"
    return shown if source.shown_url is None else f"{escape(source.label)}, {shown}"
