"""Guess the encoding of a text that does not declare it, by decoding it with each common one.

Valid UTF-8 is proof enough. The others are tried on a sample: letters of one script must be adjacent, and
East Asian text must consist of frequent characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

__all__ = ["guess_charset"]

# As far as git looks for a NUL to detect a binary file; even, for UTF-16.
_HEAD = 8000
_SAMPLE = 1 << 16
# In the right encoding, almost all non-ASCII characters are frequent ones; by chance, a fifth.
_ENOUGH = 0.6
# Characters, or non-ASCII bytes: fewer prove nothing.
_FEW = 6
_WIDE = ("utf-16-be", "utf-16-le")

_SIGNS = "\xa0§©«®°±²³·»½–—‘’‚“”„•…€№"
# If several fit equally well the first is taken: it has fewer letters, or more users.
_LETTERS = {
    "cp1252": "À-ÖØ-öø-ÿŒœŠšŽžŸ",
    "cp1255": "א-ת",
    "cp1251": "А-яЁёІіЇїЄєҐґЎў",
    "cp1253": "Ά-ώ",
    "koi8-r": "А-яЁё",
    "cp1256": "ء-يپچڤگ",
}
# Two bytes each: the lead bytes of kana, hangul and frequent ideographs, and of their punctuation.
_LEADS: dict[str, Iterable[int]] = {
    "cp932": (0x81, 0x82, 0x83, *range(0x88, 0x98)),
    "cp949": (0xA1, 0xA3, *range(0xB0, 0xC9)),
    "gb18030": (0xA1, 0xA3, *range(0xB0, 0xD8)),
    "big5": (0xA1, *range(0xA4, 0xC7)),
    "euc_jp": (0xA1, 0xA3, 0xA4, 0xA5, *range(0xB0, 0xD0)),
}


def guess_charset(data: bytes) -> str:
    """Return the codec that fits best; that of Western Europe if none does."""
    head = data[:_HEAD]
    high, low = head[::2].count(0), head[1::2].count(0)
    # Spaces and line ends, which have one NUL byte each, are this frequent in languages that use them.
    if max(high, low) * 32 > len(head) // 2 and min(high, low) * 16 < max(high, low):
        likely, other = _WIDE if high > low else _WIDE[::-1]
        # With its bytes swapped, the most frequent ideograph, U+4E00, looks like a letter.
        return other if _score(head, other) >= _ENOUGH else likely
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as exc:
        return "utf-8" if _is_damaged(data) else _best(data, exc.start)
    return "utf-8"


def _is_damaged(data: bytes) -> bool:
    """Return whether most non-ASCII is valid UTF-8, which other encodings hardly ever form by chance."""
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    return len(text) - len(text.encode("ascii", "ignore")) - broken > broken


def _best(data: bytes, at: int) -> str:
    # Start at a line, where a character starts, and at an even offset, where one of UTF-16 does.
    start = (data.rfind(b"\n", 0, at) + 1) & ~1
    sample = data[start : start + _SAMPLE]
    few = len(sample) - len(sample.translate(None, bytes(range(0x80, 0x100)))) < _FEW
    wide = _WIDE if len(sample) >= 2 * _FEW else ()
    scores = {
        codec: _score(sample, codec) for codec in (*(() if few else (*_LETTERS, *_LEADS)), *wide, "cp1252")
    }
    best = max(scores, key=lambda codec: scores[codec])
    return best if scores[best] >= _ENOUGH else "cp1252"


def _score(sample: bytes, codec: str) -> float:
    """Return the share of non-ASCII characters that make sense."""
    text = sample.decode(codec, "replace")
    foreign = len(text) - len(text.encode("ascii", "ignore"))
    if codec not in _LETTERS:
        return sum(map(text.count, set(text) & _frequent(codec))) / max(1, foreign)
    letter = f"[{_LETTERS[codec]}]"
    # Next to letters of the same script; in Western text, a few between ASCII letters.
    runs = "{1,2}" if codec == "cp1252" else "{2,}"
    good = re.findall(rf"(?<!{letter}){letter}{runs}(?!{letter})|[{_SIGNS}]", text)
    odd = [pair for pair in re.findall(rf"[^\W\d_]{letter}", text) if pair[0].islower() and pair[1].isupper()]
    return (sum(map(len, good)) - len(odd)) / max(1, foreign)


@cache
def _frequent(codec: str) -> frozenset[str]:
    if codec.startswith("utf-16"):
        return frozenset[str]().union(*map(_frequent, _LEADS))
    trails = range(0x40, 0x100)
    pairs = (bytes((lead, trail)).decode(codec, "replace") for lead in _LEADS[codec] for trail in trails)
    return frozenset(pair for pair in pairs if len(pair) == 1 and pair != "\ufffd")
