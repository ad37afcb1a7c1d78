"""The numbers that Word generates for headings, clauses and lists: visible and quoted, but not text."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

from citewire.documents.office_package import OfficePackage, XmlElement, attribute, parse_int

__all__ = ["WordNumbering"]

_LEVELS = 9
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"),
    (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip


class _Level(NamedTuple):
    start: int
    kind: str
    text: str


class _Style(NamedTuple):
    based_on: str | None
    list_: str | None
    level: int | None


class WordNumbering:
    """Counts the numbered paragraphs of one document, in order."""

    def __init__(self, package: OfficePackage) -> None:
        self._levels: dict[tuple[str | None, int], _Level] = {}
        # For each list, its abstract definition, and the start values it overrides.
        self._lists: dict[str | None, tuple[str | None, dict[int, int]]] = {}
        self._by_style: dict[tuple[str | None, str | None], int] = {}
        self._counts: defaultdict[str | None, list[int]] = defaultdict(list)
        self._begun: set[tuple[str, int]] = set()
        for root in package.related_roots(package.main, "numbering"):
            for kind in root.iter("{*}abstractNum"):
                self._learn(kind)
            for list_ in root.iter("{*}num"):
                starts = {
                    parse_int(attribute(own, "ilvl"), 0): parse_int(_value(own, "startOverride"), 1)
                    for own in list_.iter("{*}lvlOverride")
                }
                self._lists[attribute(list_, "numId")] = _value(list_, "abstractNumId"), starts
        roots = package.related_roots(package.main, "styles")
        self._styles = {attribute(style, "styleId"): _style(style) for root in roots for style in root}

    def _learn(self, kind: XmlElement) -> None:
        id_ = attribute(kind, "abstractNumId")
        for node in kind.iter("{*}lvl"):
            level = parse_int(attribute(node, "ilvl"), 0)
            start, text = parse_int(_value(node, "start"), 1), _value(node, "lvlText") or ""
            self._levels[id_, level] = _Level(start, _value(node, "numFmt") or "decimal", text)
            self._by_style[id_, _value(node, "pStyle")] = level

    def next_label(self, paragraph: XmlElement) -> str:
        """Return the displayed number of the next paragraph; empty for most, and for bullets."""
        style = _value(paragraph, "pPr/{*}pStyle")
        list_, level = _value(paragraph, "pPr/{*}numPr/{*}numId"), _value(paragraph, "pPr/{*}numPr/{*}ilvl")
        inherited = self._inherited(style)
        list_ = inherited.list_ if list_ is None else list_
        kind, starts = self._lists.get(list_, (None, {}))
        own = (
            self._by_style.get((kind, style), inherited.level or 0) if level is None else parse_int(level, 0)
        )
        if list_ is None or (kind, own) not in self._levels or own >= _LEVELS:
            return ""
        self._count(kind, own, None if (list_, own) in self._begun else starts.get(own))
        self._begun.add((list_, own))
        return self._shown(kind, own)

    def _inherited(self, style: str | None) -> _Style:
        seen: set[str | None] = set()
        while style in self._styles and style not in seen:
            seen.add(style)
            found = self._styles[style]
            if found.list_ is not None:
                return found
            style = found.based_on
        return _Style(None, None, None)

    def _count(self, kind: str | None, level: int, restart: int | None) -> None:
        counts = self._counts[kind]
        # Deeper levels restart; a skipped level counts as begun.
        for upper in range(len(counts), level):
            counts.append(self._start(kind, upper))
        del counts[level + 1 :]
        if len(counts) == level:
            counts.append(self._start(kind, level) - 1)
        counts[level] = counts[level] + 1 if restart is None else restart

    def _start(self, kind: str | None, level: int) -> int:
        found = self._levels.get((kind, level))
        return found.start if found else 1

    def _shown(self, kind: str | None, level: int) -> str:
        if self._levels[kind, level].kind in {"bullet", "none"}:
            return ""

        def number(found: re.Match[str]) -> str:
            at = int(found[1]) - 1
            used = self._levels.get((kind, at))
            return _written(self._counts[kind][at], used.kind) if used and at <= level else ""

        return re.sub(r"%([1-9])", number, self._levels[kind, level].text).strip()


def _style(node: XmlElement) -> _Style:
    level = _value(node, "pPr/{*}numPr/{*}ilvl")
    return _Style(
        _value(node, "basedOn"),
        _value(node, "pPr/{*}numPr/{*}numId"),
        None if level is None else parse_int(level, 0),
    )


def _value(node: XmlElement, path: str) -> str | None:
    found = node.find("{*}" + path)
    return None if found is None else attribute(found, "val")


def _written(number: int, kind: str) -> str:
    match kind:
        case "lowerLetter" | "upperLetter" if 0 < number < 27 * 26:
            # After z comes aa, then bb.
            letters = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
            return letters.upper() if kind[0] == "u" else letters
        case "lowerRoman" | "upperRoman" if 0 < number < 4000:
            roman = ""
            for value, sign in _ROMAN:
                times, number = divmod(number, value)
                roman += sign * times
            return roman.upper() if kind[0] == "u" else roman
        case "decimalZero":
            return f"{number:02}"
        case _:
            return str(number)
