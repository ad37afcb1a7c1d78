"""Differences in spelling between two texts that say the same.

Spaces and hyphens within a word, superscript and subscript digits, capitals: each only if nothing else could
be meant.
"""

from __future__ import annotations

import re

from citewire.verification.tokens import TextToken, TokenKind, word_set

__all__ = [
    "case_matters",
    "differs_in_spacing",
    "differs_in_superscript",
    "is_all_caps",
    "typographic_edits",
    "with_superscript",
]

_PLAIN: frozenset[TokenKind] = frozenset({"word", "article", "identifier"})
# Optional between two letters: a space, a hyphen, other punctuation, the point of an initial.
_BLANK = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")
_JOINT = re.compile(r"(?<=[^\W\d_])[^\w'.]+(?=[^\W\d_])|(?<=\b[^\W\d_])\. ?(?=[^\W\d_]\b)")
# Superscript and subscript digits, their plain forms, and powers of a number: 10² is not 102.
_RAISED = re.compile("[⁰¹²³⁴-⁹₀-₉]+")
_LEVEL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "0123456789" * 2)
_POWER = re.compile(r"[\d₀-₉]-?[⁰¹²³⁴-⁹]|[\d⁰¹²³⁴-⁹]-?[₀-₉]")
# Units whose meaning depends on case: mW and MW, Mb and MB, 5 m and 5 M.
_UNITS = word_set("m g k b s t mm mw mwh mb gb kb tb mbps gbps kbps mhz mv ma mj mpa mg ms pa")
# Words that mean something else in capitals.
_WORDS_AND_ACRONYMS = word_set("us it who is in or aids may nice care un led ram gap era dot sad pet fed")
# Joined with the next word, these make another one: in sufficient detail, a part.
_TURNING = word_set("a an in im il ir un non dis re anti mis")


def differs_in_spacing(quote: str, there: str, both: list[TextToken]) -> bool:
    """Return whether two texts have the same letters, with or without spaces and hyphens between them."""
    if "://" in quote or "www." in quote or "@" in quote:
        return "".join(quote.split()) == "".join(there.split())
    joint = _BLANK if any(token.kind == "identifier" for token in both) else _JOINT
    if any(token.kind not in _PLAIN for token in both) or joint.sub("", quote) != joint.sub("", there):
        return False
    return not any(_changes_meaning(one, other) for one, other in ((quote, there), (there, quote)))


def _changes_meaning(text: str, joined: str) -> bool:
    """Return whether a word of `text` is the prefix of another word in `joined`."""
    words, others = re.split(r"([ -]+)", text), set(re.split(r"[ -]+", joined))
    for word, joint, after in zip(words[::2], words[1::2], words[2::2], strict=False):
        if word not in _TURNING or word in others or after in ("the", "a", "an", "this", "which"):
            continue
        if " " in joint or (word == "re" and after[:1] not in "aeiou"):
            return True
    return False


def with_superscript(text: str, some: list[TextToken]) -> str:
    """Return the text of tokens with the superscript digits just after them, which may not be tokens."""
    end = some[-1].end
    raised = _RAISED.match(text, end)
    return text[some[0].start : raised.end() if raised else end]


def differs_in_superscript(quote: str, there: str) -> bool:
    """Return whether digits after letters are raised or lowered on one side only: m² and m2."""
    return (
        bool(_RAISED.search(quote)) != bool(_RAISED.search(there))
        and quote.translate(_LEVEL) == there.translate(_LEVEL)
        and not any(_POWER.search(text) for text in (quote, there))
    )


def is_all_caps(text: str) -> bool:
    """Return whether a text is in capitals, as headings are: case means nothing there."""
    letters = [char for char in text if char.isalpha()]
    return sum(map(str.isupper, letters)) > len(letters) * 0.7


def case_matters(quote: str, source: str, after_number: bool) -> bool:
    """Return whether two spellings that differ in case mean different things: US and us, 5 MW and 5 mW."""
    quote, source = quote.replace(".", ""), source.replace(".", "")
    folded = quote.casefold()
    if quote == source or folded != source.casefold():
        return False
    if after_number and folded in _UNITS:
        return True
    return quote[1:] != source[1:] and quote.isupper() != source.isupper() and folded in _WORDS_AND_ACRONYMS


# A found range ends with its last word, whatever follows that in the source.
_AROUND = " \t\n\r.,;:!?\"'“”‘’«»()[]"


def typographic_edits(quote: str, source: str) -> list[str]:
    """Return the kinds of harmless change between two spellings, ignoring punctuation around them."""
    quote, source = quote.strip(_AROUND), source.strip(_AROUND)
    if quote.split() == source.split():
        return []
    if quote.casefold().split() == source.casefold().split():
        return ["case"]
    return ["typography"]
