"""Text as what can differ: words, quantities, names, signs. Punctuation that changes nothing is not there.

A token has a key, which is what is compared, and knows its place. Quantities are compared by value with
their sign, currency and percent sign, whatever the spelling: `1,204` is `1204`, and `$3.4 million` is
`$3,400,000`. What is an identifier stays as it is written: version 3.10 is not 3.1.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["Token", "TokenKind", "tokens"]

TokenKind = Literal[
    "word", "number", "negation", "quantifier", "direction", "month", "identifier", "sign", "mark", "article"
]


class Token(Struct, frozen=True, gc=False):
    """A piece of text that can differ. `start` and `end` are offsets in the text it was found in."""

    key: str
    kind: TokenKind
    start: int
    end: int


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


NEGATION = _set(
    """
    not no never none nor neither without nobody nothing nowhere hardly scarcely barely unless except
    lack lacks lacked lacking fail fails failed failing deny denies denied refuse refuses refused cannot
    nicht kein keine keiner keinen keinem nie niemals ohne weder außer ne pas jamais aucun aucune sans
    rien sauf ningún ninguna nunca jamás sin nada salvo excepto non mai nessun nessuna senza niente não
    nem nunca sem niet geen nooit zonder inte ikke ei nie bez без не нет ни никогда
    """
)
QUANTIFIER = _set(
    """
    all some most many few several any every each only always often sometimes rarely usually both half
    may might must shall should can could will would need ought approximately about nearly almost
    exactly alle einige viele wenige nur immer oft muss kann soll darf tous quelques plusieurs peu
    seulement toujours souvent doit peut todos algunos muchos pocos solo siempre debe puede
    """
)
DIRECTION = _set(
    """
    more less fewer greater smaller higher lower above below over under before after since until up down
    rise rises rose risen rising fall falls fell fallen falling increase increases increased increasing
    decrease decreases decreased decreasing grow grew grown decline declined gain gained lose lost best
    worst better worse larger longer shorter earlier later first last maximum minimum least than between
    within outside left right north south east west import export buy sell buyer seller lend borrow true
    false open closed allowed prohibited mehr weniger vor nach über unter höher niedriger plus moins
    avant après más menos antes después
    """
)
ARTICLE = _set("the a an that")
_MONTHS = """
    january february march april may june july august september october november december
"""
_MONTH = {form: month for month in _MONTHS.split() for form in (month, month[:3])} | {"sept": "september"}
_SCALE = {
    "thousand": 3,
    "million": 6,
    "billion": 9,
    "trillion": 12,
    "mn": 6,
    "mln": 6,
    "bn": 9,
    "bln": 9,
    "tn": 12,
}
_SHORT_SCALE = {"k": 3, "m": 6, "b": 9, "t": 12}
_UP_TO_TWENTY = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty
"""
_TENS = "thirty forty fifty sixty seventy eighty ninety"
_NUMBER_WORDS = {word: number for number, word in enumerate(_UP_TO_TWENTY.split())} | {
    word: 10 * ten for ten, word in enumerate(_TENS.split(), 3)
}
# What comes after these is a name, even where it looks like a number.
_NAMING = _set(
    """
    version v release section sections chapter article articles clause rule rules figure fig table
    appendix part no paragraph § ios android python java level build revision rev update patch
    """
)
_CURRENCY_WORDS = {
    "dollar": "$", "dollars": "$", "usd": "$", "euro": "€", "euros": "€", "eur": "€", "pound": "£",
    "pounds": "£", "gbp": "£", "yen": "¥", "jpy": "¥", "rupees": "₹", "inr": "₹", "chf": "chf",
    "francs": "chf",
}  # fmt: skip
_CONTRACTIONS = {"can't": "can not", "cannot": "can not", "won't": "will not", "shan't": "shall not"}

# Each character is one of these to the tokeniser.
_SHAPE = re.compile(
    r"(?P<time>d{1,2}(?::dd)+)"
    r"|(?P<number>d{1,3}(?:_ddd)+(?!d)|d+(?:[.,]d+)*)"
    r"|(?P<identifier>a+d[ad]*)"
    r"|(?P<word>a+(?:'a+)*)"
    r"|(?P<cjk>c)"
    r"|(?P<mark>\^+)"
    r"|(?P<sign>[$%s])"
)


@lru_cache(maxsize=4096)
def _shape(char: str) -> str:
    if char.isdecimal():
        return "d"
    category = unicodedata.category(char)
    if category == "No":
        return "^"
    if category[0] in "LM":
        return "c" if _is_cjk(char) else "a"
    if category == "Sc":
        return "$"
    if char in "%‰":
        return "%"
    if char in "+-±<>=≤≥≈~°×÷/":
        return "s"
    if char in ".,:'":
        return char
    return "_" if char.isspace() else " "


def _is_cjk(char: str) -> bool:
    code = ord(char)
    return 0x3040 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF


def tokens(text: str) -> list[Token]:
    """The tokens of `text`, which is canonical, in order."""
    shapes = "".join(map(_shape, text))
    found = [_raw_token(text, shapes, match) for match in _SHAPE.finditer(shapes)]
    return _combined(text, [token for token in found if token is not None])


def _raw_token(text: str, shapes: str, match: re.Match[str]) -> Token | None:
    start, end = match.span()
    word = text[start:end]
    match match.lastgroup:
        case "number":
            return Token(word, "number", start, end)
        case "time" | "identifier":
            return Token(word, "identifier", start, end)
        case "mark":
            return Token(word, "mark", start, end)
        case "sign":
            return _sign(text, shapes, start, end)
        case _:
            return Token(word, _word_kind(word), start, end)


def _sign(text: str, shapes: str, start: int, end: int) -> Token | None:
    """A symbol that means something where it stands: a hyphen only right before a number."""
    char = text[start]
    if char not in "-/+":
        return Token(char, "sign", start, end)
    before, after = shapes[start - 1 : start], shapes[end : end + 2]
    if char in "-+" and before in ("", "_", " ") and (after[:1] == "d" or after == "$d"):
        return Token(char, "sign", start, end)
    return None


def _word_kind(word: str) -> TokenKind:
    if word in NEGATION or word.endswith("n't"):
        return "negation"
    if word in _MONTH and word != "may":
        return "month"
    if word in QUANTIFIER:
        return "quantifier"
    if word in DIRECTION:
        return "direction"
    return "article" if word in ARTICLE else "word"


def _combined(text: str, found: list[Token]) -> list[Token]:
    """Signs, currencies, scales and percent signs joined with their number; contractions written out."""
    made: list[Token] = []
    at = 0
    while at < len(found):
        token = found[at]
        if token.kind in ("number", "sign") or token.key in _NUMBER_WORDS or token.key in _CURRENCY_WORDS:
            end, quantity = _quantity(text, found, at, made)
            made.append(quantity)
            at = end
            continue
        made.extend(_written_out(token))
        at += 1
    return made


def _written_out(token: Token) -> list[Token]:
    word = token.key
    if word in _MONTH:
        return [replace(token, key=_MONTH[word])]
    if word in _CONTRACTIONS or word.endswith("n't"):
        first, second = _CONTRACTIONS.get(word, f"{word[:-3]} not").split()
        return [
            replace(token, key=first, kind=_word_kind(first)),
            replace(token, key=second, kind="negation"),
        ]
    return [token]


def _quantity(text: str, found: list[Token], at: int, before: list[Token]) -> tuple[int, Token]:
    """The quantity that starts at `at`, and where the tokens after it start."""
    first = at
    sign = currency = ""
    while at < len(found) and found[at].kind == "sign" and found[at].key in "+-$€£¥₹" + currency:
        if found[at].key in "+-":
            sign = found[at].key.strip("+")
        else:
            currency = found[at].key
        at += 1
    if at < len(found) and found[at].key in _CURRENCY_WORDS and _is_number(found, at + 1):
        currency, at = _CURRENCY_WORDS[found[at].key], at + 1
    if not _is_number(found, at) or (at > first and text[found[at - 1].end : found[at].start].strip()):
        return first + 1, found[first]
    number = found[at]
    if _has_exponent(found, at):
        power = found[at + 1]
        return at + 2, Token(text[number.start : power.end], "identifier", found[first].start, power.end)
    if before and before[-1].key in _NAMING and number.kind == "number" and not currency:
        return at + 1, replace(number, kind="identifier", start=found[first].start)
    value = Decimal(_NUMBER_WORDS[number.key]) if number.key in _NUMBER_WORDS else _value(number.key)
    if value is None:
        return at + 1, replace(number, kind="identifier")
    at += 1
    scale, at = _scale(text, found, at, bool(currency))
    unit, at = _unit(found, at)
    if not currency and _is_currency_after(text, found, at):
        currency, at = _CURRENCY_WORDS.get(found[at].key, found[at].key), at + 1
    amount = (value.scaleb(scale)).normalize()
    return at, Token(f"{sign}{currency}{amount:f}{unit}", "number", found[first].start, found[at - 1].end)


_YEAR = re.compile(r"1[89]\d\d|20\d\d")


def _has_exponent(found: list[Token], at: int) -> bool:
    """Whether a raised number is right behind this one; behind a year it is rather a footnote."""
    if at + 1 >= len(found) or found[at + 1].kind != "mark" or found[at + 1].start != found[at].end:
        return False
    return _YEAR.fullmatch(found[at].key) is None


def _is_currency_after(text: str, found: list[Token], at: int) -> bool:
    """Whether the token at `at` names the currency of the number before it, rather than of the next one."""
    if at >= len(found) or text[found[at - 1].end : found[at].start].strip():
        return False
    if found[at].key in _CURRENCY_WORDS:
        return True
    touches_next = at + 1 < len(found) and found[at].end == found[at + 1].start
    return found[at].kind == "sign" and found[at].key in "$€£¥₹" and not touches_next


def _is_number(found: list[Token], at: int) -> bool:
    return at < len(found) and (found[at].kind == "number" or found[at].key in _NUMBER_WORDS)


def _scale(text: str, found: list[Token], at: int, has_currency: bool) -> tuple[int, int]:
    """The power of ten of a word like million; of a letter only where money is meant."""
    if at < len(found):
        word = found[at].key
        if word in _SCALE:
            return _SCALE[word], at + 1
        touches = not text[found[at - 1].end : found[at].start]
        if has_currency and touches and word in _SHORT_SCALE:
            return _SHORT_SCALE[word], at + 1
    return 0, at


def _unit(found: list[Token], at: int) -> tuple[str, int]:
    words = [token.key for token in found[at : at + 2]]
    if words[:1] == ["%"] or words[:1] == ["percent"]:
        return "%", at + 1
    if words == ["per", "cent"]:
        return "%", at + 2
    if words[:1] == ["percentage"] and words[1:] in (["point"], ["points"]):
        return "pp", at + 2
    return "", at


def _value(digits: str) -> Decimal | None:
    """The number that `digits` write; None where they are rather a name, like 1.2.3."""
    plain = "".join(char for char in digits if not char.isspace())
    plain = "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in plain)
    commas, dots = plain.count(","), plain.count(".")
    if commas and dots:
        decimal = max(",.", key=plain.rfind)
        grouping = "," if decimal == "." else "."
        return (
            Decimal(plain.replace(grouping, "").replace(decimal, ".")) if plain.count(decimal) == 1 else None
        )
    if dots > 1:
        return Decimal(plain.replace(".", "")) if re.fullmatch(r"\d{1,3}(\.\d{3})+", plain) else None
    if commas:
        grouped = re.fullmatch(r"\d{1,3}(,\d{2,3})*,\d{3}", plain)
        if not grouped and commas > 1:
            return None
        return Decimal(plain.replace(",", "" if grouped else "."))
    return Decimal(plain)
