"""Determine which elements of a page its stylesheets hide, as far as possible without a browser.

A rule for one element, by its name, id and classes, is applied by its specificity, as in CSS. A rule for an
element in a certain place or state, or for some screens only, hides nothing here; but if it may show what
another rule hides, nothing is hidden either: text counts as hidden only if that is certain.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["Stylesheets"]

_HIDING = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)(?![\w-])", re.IGNORECASE)
_ABOUT = re.compile(r"(?:^|;)\s*(?:display|visibility)\s*:", re.IGNORECASE)
_NOTE = re.compile(r"/\*.*?(?:\*/|$)", re.DOTALL)
_BLOCK = re.compile(r"([^{}]*)([{}])")
_NAMES = re.compile(r"([.#]?)(-?[^\W\d][\w-]*)")
_ONE = re.compile(rf"(?:{_NAMES.pattern})+")
# Combinators between an element and its ancestor or sibling.
_PLACES = re.compile(r"[\s>+~]+")


class _Rule(NamedTuple):
    """`names` are a tag, `#id` and `.class`; `rank` decides between rules."""

    names: frozenset[str]
    sure: bool
    rank: tuple[int, int, int, int]
    hides: bool


_NO_RULE = _Rule(frozenset(), sure=True, rank=(0, 0, 0, 0), hides=False)


class Stylesheets:
    """The rules of all stylesheets of a page that show or hide something."""

    def __init__(self, sheets: Iterable[str]) -> None:
        # Indexed by one of its names, so that an element checks few rules; of equal ones, the last.
        self._rules: defaultdict[str, dict[tuple[frozenset[str], bool], _Rule]] = defaultdict(dict)
        for order, (selector, declared) in enumerate(pair for sheet in sheets for pair in _pairs(sheet)):
            rule = _rule(selector.strip(), order, _hides(declared))
            if rule and (rule.sure or not rule.hides):
                self._rules[max(rule.names)][rule.names, rule.sure] = rule

    def hides_element(self, tag: str, attributes: dict[str, str | None]) -> bool:
        """Return whether an element is hidden by its own style, or by rules."""
        own = attributes.get("style") or ""
        if not self._rules or _ABOUT.search(own):
            return _hides(own)
        names = {tag, *(f".{name}" for name in (attributes.get("class") or "").split())}
        if id_ := attributes.get("id"):
            names.add(f"#{id_}")
        near = (rule for name in names & self._rules.keys() for rule in self._rules[name].values())
        meant = [rule for rule in near if rule.names <= names]
        return all(rule.sure for rule in meant) and max(meant, key=_rank, default=_NO_RULE).hides


def _rank(rule: _Rule) -> tuple[int, ...]:
    return rule.rank


def _hides(declared: str) -> bool:
    return _HIDING.search(declared) is not None


def _pairs(sheet: str) -> Iterator[tuple[str, str]]:
    """Yield each selector with its declarations, if they show or hide it; nested rules are skipped."""
    depth, selectors = 0, ""
    for block in _BLOCK.finditer(_NOTE.sub(" ", sheet)):
        text, brace = block.groups()
        if brace == "{":
            depth += 1
            selectors = text.rpartition(";")[2] if depth == 1 else ""
            continue
        depth = max(0, depth - 1)
        if not depth and "@" not in selectors and _ABOUT.search(text):
            yield from ((selector, text) for selector in selectors.split(",") if selector.strip())
        selectors = ""


def _rule(selector: str, order: int, hiding: bool) -> _Rule | None:
    last = _PLACES.split(selector)[-1]
    found = _ONE.match(last)
    if not found:
        return None
    names = frozenset(sign + (name if sign else name.lower()) for sign, name in _NAMES.findall(found[0]))
    ids, classes = sum(name[0] == "#" for name in names), sum(name[0] == "." for name in names)
    return _Rule(names, found[0] == selector, (ids, classes, len(names) - ids - classes, order), hiding)
