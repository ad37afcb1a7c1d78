"""Spellings of the same: what may differ between two texts that say one thing.

Blanks and hyphens within a word, digits above or below the line, capitals: each only where nothing else could
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
# What may stand between two letters or not: a blank, a hyphen, other punctuation, the point of an initial.
_BLANK = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")
_JOINT = re.compile(r"(?<=[^\W\d_])[^\w'.]+(?=[^\W\d_])|(?<=\b[^\W\d_])\. ?(?=[^\W\d_]\b)")
# Digits above or below the line, on it, and as a power of a number: 10² is not 102.
_RAISED = re.compile("[⁰¹²³⁴-⁹₀-₉]+")
_LEVEL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "0123456789" * 2)
_POWER = re.compile(r"[\d₀-₉]-?[⁰¹²³⁴-⁹]|[\d⁰¹²³⁴-⁹]-?[₀-₉]")
# Units that are another one in other letters: mW and MW, Mb and MB, 5 m and 5 M.
_UNITS = word_set("m g k b s t mm mw mwh mb gb kb tb mbps gbps kbps mhz mv ma mj mpa mg ms pa")
# Words that are something else in capitals.
_WORDS_AND_ACRONYMS = word_set("us it who is in or aids may nice care un led ram gap era dot sad pet fed")
# Joined with the word behind them, these make another one: in sufficient detail, a part.
_TURNING = word_set("a an in im il ir un non dis re anti mis")


def differs_in_spacing(quote: str, there: str, both: list[TextToken]) -> bool:
    """Whether two texts are the same letters, with or without blanks and hyphens between them."""
    if "://" in quote or "www." in quote or "@" in quote:
        return "".join(quote.split()) == "".join(there.split())
    joint = _BLANK if any(token.kind == "identifier" for token in both) else _JOINT
    if any(token.kind not in _PLAIN for token in both) or joint.sub("", quote) != joint.sub("", there):
        return False
    return not any(_turns(one, other) for one, other in ((quote, there), (there, quote)))


def _turns(text: str, joined: str) -> bool:
    """Whether a word of `text` is the start of another one in `joined`."""
    words, others = re.split(r"([ -]+)", text), set(re.split(r"[ -]+", joined))
    for word, joint, after in zip(words[::2], words[1::2], words[2::2], strict=False):
        if word not in _TURNING or word in others or after in ("the", "a", "an", "this", "which"):
            continue
        if " " in joint or (word == "re" and after[:1] not in "aeiou"):
            return True
    return False


def with_superscript(text: str, some: list[TextToken]) -> str:
    """What tokens stand for, and the raised digits right behind them, which may be no token."""
    end = some[-1].end
    raised = _RAISED.match(text, end)
    return text[some[0].start : raised.end() if raised else end]


def differs_in_superscript(quote: str, there: str) -> bool:
    """Whether digits behind letters are raised or lowered on one side and plain on the other: m² and m2."""
    return (
        bool(_RAISED.search(quote)) != bool(_RAISED.search(there))
        and quote.translate(_LEVEL) == there.translate(_LEVEL)
        and not any(_POWER.search(text) for text in (quote, there))
    )


def is_all_caps(text: str) -> bool:
    """Whether a text is in capitals throughout, as headings are: case says nothing there."""
    letters = [char for char in text if char.isalpha()]
    return sum(map(str.isupper, letters)) > len(letters) * 0.7


def case_matters(quote: str, source: str, after_number: bool) -> bool:
    """Whether two spellings that differ in case are two things: US and us, 5 MW and 5 mW."""
    quote, source = quote.replace(".", ""), source.replace(".", "")
    folded = quote.casefold()
    if quote == source or folded != source.casefold():
        return False
    if after_number and folded in _UNITS:
        return True
    return quote[1:] != source[1:] and quote.isupper() != source.isupper() and folded in _WORDS_AND_ACRONYMS


# What is found ends with its last word, whatever stands behind that in the source.
_AROUND = " \t\n\r.,;:!?\"'“”‘’«»()[]"


def typographic_edits(quote: str, source: str) -> list[str]:
    """The kinds of harmless change between two spellings of the same words, marks around them aside."""
    quote, source = quote.strip(_AROUND), source.strip(_AROUND)
    if quote.split() == source.split():
        return []
    if quote.casefold().split() == source.casefold().split():
        return ["case"]
    return ["typography"]
