"""What the Markdown surfaces share: a model's Markdown made harmless, and foreign words put into Markdown.

The answer is Markdown and stays so, but for three things: tags are shown and not run, links with a
scheme other than http, https and mailto are no links, and no reference definition of the text takes
over our `[1]`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

from citewire.rendering.code_ranges import find_verbatim
from citewire.rendering.layout import Layout, LayoutRun, MarkRun, TextRun
from citewire.rendering.numbered_sources import NumberedSource

__all__ = ["defuse", "escape_markdown", "write_body", "write_source_item"]

# A `<` that could open a tag, but for an autolink; a definition whose label our markers could match; the
# start of a link's or definition's destination.
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
# A bare `Note:` behind `[^1]:` is no address.
_SCHEME = re.compile(r"(?!https?:|mailto:)[a-z][a-z0-9+.-]*:.", re.IGNORECASE)

_FENCE_LINE = re.compile(r"[ \t>]*(?:`{3,}|~{3,})[ \t]*")
# More than a fence line has, so that a long line need not be kept.
_LINE_START = 80

_SPECIAL = re.compile(r"[\\`*_\[\]~|$#]|(?<=www)\.|:(?=//)", re.IGNORECASE)
_ENTITY = re.compile(r"&(?=#?\w+;)")


def write_body(layout: Layout, fix: Callable[[str], str]) -> str:
    """The running text, `fix` applied to everything but code."""
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
                # Behind a closing fence it would keep the code block open.
                yield "\n"
            yield _markers(run, part[place + 1] if place + 1 < len(part) else None)
            continue
        yield run.text
        _, newline, last = run.text.rpartition("\n")
        line = (last if newline else line + last)[:_LINE_START]


def _markers(run: MarkRun, following: LayoutRun | None) -> str:
    """`[1][2]`, escaped where the next character would make a link of it."""
    text = "".join(map(str, run.marks))
    match following.text[0] if isinstance(following, TextRun) else "":
        case "(":
            return f"{text}\\"
        case "[":
            return f"{text[:-1]}\\]"
        case _:
            return text


def defuse(prose: str) -> str:
    """Markdown outside code, without tags, without links that run code."""
    return _RISK.sub(_defused, prose)


def _defused(match: re.Match[str]) -> str:
    if match["tag"]:
        return "&lt;"
    if match["number"] or _runs_code(match["target"]):
        return f"{match[0]}\\"
    return match[0]


def _runs_code(target: str) -> bool:
    """Whether a link to `target` would leave the schemes that we link, the way a browser reads it."""
    plain = _ESCAPED.sub(r"\1", html.unescape(target))
    return _SCHEME.match(_BLANKS.sub("", plain)) is not None


def escape_markdown(words: str) -> str:
    """One line of foreign words that Markdown shows as they are."""
    return _SPECIAL.sub(r"\\\g<0>", words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def write_source_item(
    source: NumberedSource, escape: Callable[[str], str] = escape_markdown
) -> Iterator[str]:
    """The lines of a source in the list."""
    yield f"- {source.mark} {_title(source, escape)}{f', {source.pages}' if source.pages else ''}"
    # Behind a curly quotation mark nothing starts a block.
    yield from (f"  > “{escape(quote)}”" for quote in source.quotes)


def _title(source: NumberedSource, escape: Callable[[str], str]) -> str:
    if source.href:
        return f"[{escape(source.label)}](<{_ENTITY.sub('&amp;', source.href)}>)"
    if source.url is None:
        return escape(source.label)
    # As code no renderer makes a link of it.
    shown = "`" + source.url.replace("`", "%60") + "`"
    return shown if source.shown_url is None else f"{escape(source.label)}, {shown}"
