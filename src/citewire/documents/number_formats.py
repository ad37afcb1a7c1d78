"""Format numbers as a workbook shows them: 0.12 as 12%, 45356 as 2024-03-05, by ECMA-376 18.8.30.

People quote what they see. If that depends on the viewer's locale, a date is in ISO 8601. Unsupported formats
(fractions, conditions, literals between digits) leave the number as it is stored.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import NamedTuple

__all__ = ["NumberFormat", "format_number"]

_ACCOUNTING = "_(* #,##0{0}_);_(* \\(#,##0{0}\\);_(* \\-_);_(@_)"
_BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 5: "$#,##0;-$#,##0", 6: "$#,##0;-$#,##0",
    7: "$#,##0.00;-$#,##0.00", 8: "$#,##0.00;-$#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00",
    15: "d-mmm-yy", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm AM/PM", 19: "h:mm:ss AM/PM", 20: "h:mm",
    21: "h:mm:ss", 37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)", 39: "#,##0.00;(#,##0.00)",
    40: "#,##0.00;(#,##0.00)", 41: _ACCOUNTING.format(""), 43: _ACCOUNTING.format(".00"), 45: "mm:ss",
    46: "[h]:mm:ss", 48: "##0.0E+0",
}  # fmt: skip
# Dates and times in a locale's order, including East Asian ones.
_LOCAL_DATES = {14, 22, *range(27, 37), 47, *range(50, 59)}
_LAST_DAY = 2958465  # 9999-12-31
_LARGEST = 308  # powers of ten of the largest number in a workbook
_LONGEST = 255  # characters of a code
# Digits: enough for the largest number, and for all percent signs or decimals that a code can have.
_EXACT = Context(prec=2000)
# As many digits as a workbook stores; later ones are artefacts of binary fractions.
_DIGITS = 15

_TOKEN = re.compile(
    r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]|AM/PM|A/P|General|y+|m+|d+|h+|s+|(?:[0#?](?:[0#?,.]*[0#?])?|\.[0#?]+)'
    r"(?:,+(?![0#?]))?(?:E[+-][0#?]+)?|.",
    re.IGNORECASE | re.DOTALL,
)
_DATE_PART = re.compile(r"[ymdhs]+$|\[(?:h+|m+|s+)\]$|AM/PM$|A/P$", re.IGNORECASE)
_NOT_READ = re.compile(r"\[[<>=]|General|@", re.IGNORECASE)
_CURRENCY = re.compile(r"\[\$([^-\]]*)(?:-[^\]]*)?\]")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class NumberFormat(NamedTuple):
    """A number format: its id, and its code, if it is not a built-in one."""

    number: int = 0
    code: str | None = None


class _Time(NamedTuple):
    """A number of days as a date and a time, and in seconds."""

    at: datetime
    seconds: int


def format_number(stored: str, format_: NumberFormat, from_1904: bool) -> str:
    """Return a number as the workbook shows it."""
    try:
        value = Decimal(stored)
    except InvalidOperation:
        return stored
    # Numbers this large are not meant to be rounded, and cannot be.
    if not value.is_finite() or abs(value.adjusted()) > _LARGEST:
        return stored
    sections = _sections(format_)
    if format_.number in _LOCAL_DATES or any(map(_DATE_PART.match, sections[0])):
        time = _time(value, from_1904)
        return stored if time is None else _date(time, sections[0]) or _iso(time)
    which = 0 if len(sections) == 1 else 1 if value < 0 else 2 if not value and len(sections) > 2 else 0
    shown = _number(abs(value), sections[which])
    if shown is None:
        return _general(stored, value)
    return f"-{shown}" if value < 0 and which == 0 and re.search("[1-9]", shown) else shown


@lru_cache
def _sections(format_: NumberFormat) -> list[list[str]]:
    """Return the tokens for positive numbers, and for negative ones, zero and text if they have their own."""
    number, code = format_
    code = _BUILT_IN.get(number, "") if code is None else code
    sections: list[list[str]] = [[]]
    for piece in _TOKEN.findall(code if len(code) <= _LONGEST else ""):
        if piece == ";":
            sections.append([])
        else:
            sections[-1].append(piece)
    return sections


def _general(stored: str, value: Decimal) -> str:
    return f"{float(value):.{_DIGITS}g}" if len(value.as_tuple().digits) > _DIGITS else stored


def _literal(token: str) -> str:
    """Return the text of a token that is neither a digit nor a part of a date."""
    if currency := _CURRENCY.fullmatch(token):
        return currency[1]
    if token[0] == '"':
        return token[1:-1]
    return {"\\": token[1:], "_": "", "*": "", "[": ""}.get(token[0], token)


def _number(value: Decimal, tokens: list[str]) -> str | None:
    """Format a number by one section; None if it has digits in two places, or a condition."""
    digits = [token for token in tokens if token[0] in "0#?" or (token[0] == "." and len(token) > 1)]
    if not tokens or len(digits) > 1 or any(map(_NOT_READ.match, tokens)):
        return None
    value *= Decimal(100) ** tokens.count("%")
    shown = [_digits(value, token) if token in digits else _literal(token) for token in tokens]
    return "".join(shown).strip()


def _digits(value: Decimal, pattern: str) -> str:
    pattern, e, exponent = pattern.partition("E" if "E" in pattern else "e")
    bare = pattern.rstrip(",")
    value /= Decimal(1000) ** (len(pattern) - len(bare))
    whole, _, part = bare.partition(".")
    step = Decimal(1).scaleb(-len(part))
    power = 0
    if e and value:
        power = value.adjusted()
        value = value.scaleb(-power)
    value = value.quantize(step, ROUND_HALF_UP, _EXACT)
    if e and value >= 10:
        value, power = value / 10, power + 1
        value = value.quantize(step, ROUND_HALF_UP, _EXACT)
    left, _, right = f"{value:f}".partition(".")
    left = left.lstrip("0").rjust(whole.count("0"), "0")
    fixed = len(part.rstrip("#?"))
    right = right[:fixed] + right[fixed:].rstrip("0")
    if "," in whole:
        left = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", ",", left)
    sign = "-" if power < 0 else "+" if "+" in exponent else ""
    return f"{left}{'.' if right else ''}{right}" + (
        f"E{sign}{abs(power):0{exponent.count('0')}}" if e else ""
    )


def _time(value: Decimal, from_1904: bool) -> _Time | None:
    seconds = int((value * 86400).to_integral_value(ROUND_HALF_UP))
    days = seconds // 86400
    if not 0 <= days <= _LAST_DAY:
        return None
    # Excel has a 29 February 1900, as day 60, because Lotus 1-2-3 had it.
    first = datetime(1904, 1, 1) if from_1904 else datetime(1899, 12, 31 if days < 60 else 30)  # noqa: DTZ001  # as seen
    try:
        return _Time(first + timedelta(seconds=seconds), seconds)
    except OverflowError:
        return None


def _iso(time: _Time) -> str:
    day, clock = time.at.date().isoformat(), time.at.time().isoformat()
    if time.at.year < 1900:
        return clock
    return f"{day} {clock}" if time.seconds % 86400 else day


def _date(time: _Time, tokens: list[str]) -> str | None:
    """Format a date; None if it has no day, or its order or language is unknown."""
    parts = [token.lower() for token in tokens]
    named = any(re.fullmatch("m{3,5}|d{3,4}", part) for part in parts)
    foreign = any(re.match(r"\[\$[^-\]]*-(?!\w*09\])", part) for part in parts)
    if not parts or (named and foreign) or (time.at.year < 1900 and any(part[0] in "yd" for part in parts)):
        return None
    half = any(part in {"am/pm", "a/p"} for part in parts)
    clocked = [part.strip("[]")[:1] for part in parts if _DATE_PART.match(part)]
    out: list[str] = []
    nth = -1
    for token, part in zip(tokens, parts, strict=True):
        if not _DATE_PART.match(part):
            out.append(_literal(token))
            continue
        nth += 1
        # After hours or before seconds, m means minutes.
        minutes = "h" in clocked[max(0, nth - 1) : nth] or "s" in clocked[nth + 1 : nth + 2]
        out.append(_part(time, part, half, minutes))
    return "".join(out).strip()


def _part(time: _Time, part: str, half: bool, minutes: bool) -> str:
    at = time.at
    if part[0] == "[":
        return f"{time.seconds // {'h': 3600, 'm': 60, 's': 1}[part[1]]:0{len(part) - 2}}"
    if part in {"am/pm", "a/p"}:
        return ("AM", "PM")[at.hour > 11][: len(part) // 2]
    width = min(len(part), 2)
    match part[0]:
        case "y":
            return f"{at.year:04}" if len(part) > 2 else f"{at.year % 100:02}"
        case "m" if minutes and len(part) < 3:
            return f"{at.minute:0{width}}"
        case "m" | "d" if len(part) < 3:
            return f"{at.month if part[0] == 'm' else at.day:0{width}}"
        case "m":
            return _MONTHS[at.month - 1][: {3: 3, 5: 1}.get(len(part))]
        case "d":
            return _DAYS[at.weekday()][: {3: 3}.get(len(part))]
        case "h":
            return f"{(at.hour % 12 or 12) if half else at.hour:0{width}}"
        case _:
            return f"{at.second:0{width}}"
