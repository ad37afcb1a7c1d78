"""Split text into the tokens that matter: words, quantities, names, signs. Other punctuation is dropped.

A token has a key, which is compared, and its offsets. Quantities are compared by value with their sign,
currency and percent sign, whatever the spelling: `1,204` is `1204`, and `$3.4 million` is `$3,400,000`.
Decimal digits stay as written, except in money and percent: version 3.10 is not 3.1. Superscript digits are a
power after a number or a unit and a footnote after a word; subscript digits belong to a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal, getcontext
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["ARTICLE", "NEGATION", "TextToken", "TokenKind", "tokenize", "word_set"]

TokenKind = Literal[
    "word", "number", "negation", "quantifier", "direction", "month", "identifier", "sign", "mark", "article"
]


class TextToken(Struct, frozen=True, gc=False):
    """A token of a text. `start` and `end` are offsets in that text."""

    key: str
    kind: TokenKind
    start: int
    end: int


def word_set(words: str) -> frozenset[str]:
    """Return the whitespace-separated words as a set."""
    return frozenset(words.split())


NEGATION = word_set(
    """
    not no never none nor neither without nobody nothing nowhere hardly scarcely barely unless except
    lack lacks lacked lacking fail fails failed failing deny denies denied refuse refuses refused cannot
    nicht kein keine keiner keinen keinem keines nie niemals ohne weder außer ausser
    ne pas jamais aucun aucune sans rien sauf ni no ningún ninguna ninguno nunca jamás sin nada salvo excepto
    tampoco non mai nessun nessuno nessuna senza niente nulla não nem nenhum nenhuma sem exceto
    niet geen nooit zonder niets inte ikke ei ingen inga aldrig nie bez nikdy není без не нет ни никогда кроме
    لا لم لن ليس ليست غير بدون دون إلا לא אין בלי אל नहीं न मत बिना 안 못 없이 不 没 沒 未 無 无 非 别 莫 勿
    """
)
QUANTIFIER = word_set(
    """
    all some most many few little several any every each only always often sometimes rarely usually both half
    may might must shall should can could will would need ought approximately about nearly almost exactly
    alle einige viele wenige manche nur immer oft selten muss kann soll darf
    tous toutes quelques plusieurs peu seulement toujours souvent doit peut
    todos todas algunos muchos pocos solo siempre debe puede tutti alcuni molti
     pochi sempre deve può alguns muitos poucos pode alleen altijd moet mag все некоторые только всегда
    может должен
    """
)
DIRECTION = word_set(
    """
    more less fewer greater smaller higher lower above below over under before after since until up down
    rise rises rose risen rising fall falls fell fallen falling increase increases increased increasing
    decrease decreases decreased decreasing grow grew grown decline declined gain gained lose lost best
    worst better worse larger longer shorter earlier later first last maximum minimum least than between
    within outside left right north south east west import export buy sell buyer seller lend borrow true
    false open closed allowed prohibited mehr weniger vor nach über unter höher niedriger plus moins
    avant après más menos antes después più meno prima dopo mais depois meer minder voor na
    больше меньше до после
    """
)
ARTICLE = word_set("the a an")
_MONTHS = """
    january february march april may june july august september october november december
"""
_MONTH = {form: month for month in _MONTHS.split() for form in (month, month[:3])} | {"sept": "september"}
_SCALE = {
    "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "mn": 6, "mln": 6, "bn": 9, "bln": 9, "tn": 12,
}  # fmt: skip
_SHORT_SCALE = {"k": 3, "m": 6, "b": 9, "t": 12}
_UP_TO_TWENTY = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty
"""
_TENS = "thirty forty fifty sixty seventy eighty ninety"
_NUMBER_WORDS = {word: number for number, word in enumerate(_UP_TO_TWENTY.split())} | {
    word: 10 * ten for ten, word in enumerate(_TENS.split(), 3)
}
_CURRENCY_WORDS = {
    "dollar": "$", "dollars": "$", "usd": "$", "euro": "€", "euros": "€", "eur": "€", "pound": "£",
    "pounds": "£", "gbp": "£", "yen": "¥", "jpy": "¥", "rupees": "₹", "inr": "₹", "chf": "chf",
    "francs": "chf",
}  # fmt: skip
_PERCENT = word_set("% ٪ percent prozent procent процент процента процентов")
_PERCENT_IN_TWO = frozenset(
    {("per", "cent"), ("pour", "cent"), ("por", "ciento"), ("por", "cento"), ("per", "cento")}
)
_CONTRACTIONS = {"can't": "can not", "cannot": "can not", "won't": "will not", "shan't": "shall not"}
# Units that a superscript digit is a power of; after any other word it is a footnote.
_POWERED = word_set("mm cm dm km ft yd mi nm μm in sec kg")
# Insignificant characters between words: spaces and footnote signs.
_REFERENCE = " \t\n†‡*"
_YEAR = re.compile(r"1[89]\d\d|20\d\d")

# Addresses and code names, in which every character counts. No match starts inside another: that would take a
# second for a long run of letters and points.
_ADDRESS = re.compile(
    r"(?:https?://|www\.)\S*[\w/]|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b\w[^\W_]*_+\w+"
    r"|(?<![a-z0-9-])(?<!\w\.)(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov)\b(?:/\S*[\w/])?"
)
# Letters with two spellings, and variation selectors.
_SPELLED = str.maketrans({"œ": "oe", "æ": "ae", "ё": "е"} | dict.fromkeys(map(chr, range(0xFE00, 0xFE10))))
# Replaces each character of an address; no canonical text contains it.
_OF_ADDRESS = "\0"

# The tokenizer maps each character to one of these.
_SHAPE = re.compile(
    r"(?P<address>u+)"
    r"|(?P<clock>d+(?::d+)+)"
    r"|(?P<number>d{1,3}(?:[_']ddd)+(?!d)(?:[.,]d+)?|(?:(?<![^_$s\-])(?<!\._)\.)?d+(?:[.,]d+)*)"
    r"|(?P<identifier>a+[dv][adv]*)"
    r"|(?P<initials>(?<![a.])a(?:\.a)+(?!a))"
    r"|(?P<dollar>a{1,3}(?=\$d))"
    r"|(?P<word>a+(?:'a+)*)"
    r"|(?P<cjk>c)"
    r"|(?P<fraction>f)"
    r"|(?P<power>p-?d+)"
    r"|(?P<mark>-?\^+)"
    r"|(?P<sign>[$%s/?@#+&-])"
)
_OWN_SHAPE = dict.fromkeys(".,:'/?@#+&-", "") | {
    _OF_ADDRESS: "u",
    "٫": ".",
    "٬": ",",
    "؟": "?",
    "^": "p",
    "⁄": "/",
    "∕": "/",
}
# Symbols that only decorate the start of a line.
_DECORATION = frozenset("|∙⋅∗⋆■□▪▫▬●○◦◉◆◇◊★☆✦✧❖➢➤➔►▶▷◁◀◄¦�")
# Thai and Lao, Burmese, Khmer, Kana and Han.
_UNSPACED = (
    "\u0e00\u0eff",
    "\u1000\u109f",
    "\u1780\u17ff",
    "\u3040\u9fff",
    "\uf900\ufaff",
    "\U00020000\U0003ffff",
)
_BY_CATEGORY = {"Sc": "$", "Sm": "s", "So": "s", "Nl": "c"}
_BY_DECOMPOSITION = {"<super>": "^", "<sub>": "v", "<fraction>": "f"}


@lru_cache(maxsize=4096)
def _shape(char: str) -> str:
    if char in _OWN_SHAPE:
        return _OWN_SHAPE[char] or char
    if char.isdecimal():
        return "d"
    if char.isspace():
        return "_"
    if char in _DECORATION or "\ufe00" <= char <= "\ufe0f":
        return " "
    if char in "%‰٪":
        return "%"
    category = unicodedata.category(char)
    if category == "No":
        return _BY_DECOMPOSITION.get(unicodedata.decomposition(char).partition(" ")[0], "c")
    if category[0] in "LM":
        return "c" if _is_unspaced(char) else "a"
    return _BY_CATEGORY.get(category, " ")


def _is_unspaced(char: str) -> bool:
    """Return whether a character's script has no spaces between words; each such character is a token."""
    return any(first <= char <= last for first, last in _UNSPACED)


def tokenize(text: str) -> list[TextToken]:
    """Return the tokens of `text`, which must be canonical, in order."""
    marked = text
    if "_" in text or "." in text:
        marked = _ADDRESS.sub(lambda found: _OF_ADDRESS * len(found[0]), text)
    shapes = "".join(map(_shape, marked))
    raw = (token for match in _SHAPE.finditer(shapes) for token in _raw_tokens(text, shapes, match))
    return _combined(text, list(raw))


def _raw_tokens(text: str, shapes: str, match: re.Match[str]) -> Iterator[TextToken]:
    start, end = match.span()
    word = text[start:end]
    match match.lastgroup:
        case "number":
            yield TextToken(word, "number", start, end)
        case "address" | "clock" | "identifier":
            yield TextToken(_in_ascii(word), "identifier", start, end)
        case "mark" | "power":
            yield TextToken(_in_ascii(word.strip("^")), "mark", start, end)
        case "fraction":
            above, _, below = unicodedata.normalize("NFKC", word).partition("⁄")
            yield TextToken(above, "number", start, end)
            yield TextToken("/", "sign", start, end)
            yield TextToken(below, "number", start, end)
        case "dollar":
            yield TextToken(word, "sign", start, end)
        case "sign":
            if _means_something(text, shapes, start):
                yield TextToken({"×": "x", "&": "and"}.get(word, word), "sign", start, end)
        case _:
            key = word.translate(_SPELLED)
            if match.lastgroup == "initials":
                key = key.replace(".", "")
            if key:
                yield TextToken(key, _word_kind(key), start, end)


def _in_ascii(word: str) -> str:
    return "".join(str(unicodedata.digit(char, char)) for char in word)


def _means_something(text: str, shapes: str, at: int) -> bool:
    """Return whether a symbol is significant here: a hyphen only before a number or between two."""
    if text[at] == "#":
        return shapes[at - 1 : at] == "a"
    if shapes[at] != "-":
        return True
    if _is_prefix(shapes, at):
        return True
    before, after = shapes[max(0, at - 2) : at].rstrip("_")[-1:], shapes[at + 1 : at + 3].lstrip("_")[:1]
    return before in ("d", "%") and after in ("d", "$")


def _is_prefix(shapes: str, at: int) -> bool:
    """Return whether a sign belongs to the number just after it."""
    before, after = shapes[at - 1 : at] if at else "", shapes[at + 1 : at + 3]
    return before in ("", "_", " ", "$", "s") and (after[:1] == "d" or after in ("$d", ".d"))


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


def _combined(text: str, found: list[TextToken]) -> list[TextToken]:
    """Join signs, currencies, scales and percent signs with their number, and expand contractions."""
    made: list[TextToken] = []
    at = 0
    while at < len(found):
        token = found[at]
        if token.kind in ("number", "sign") or token.key in _NUMBER_WORDS or token.key in _CURRENCY_WORDS:
            at, quantity = _quantity(text, found, at)
            made.append(quantity)
        elif at + 1 < len(found) and _is_raised(text, token, found[at + 1]):
            after = found[at + 1]
            made.append(TextToken(f"{token.key}^{after.key}", "identifier", token.start, after.end))
            at += 2
        else:
            # A superscript digit that is not a power is a footnote mark.
            made.extend(_written_out(token) if token.kind != "mark" else ())
            at += 1
    return made


def _written_out(token: TextToken) -> list[TextToken]:
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


def _is_raised(text: str, token: TextToken, after: TextToken) -> bool:
    """Return whether two tokens are a word and its power, like m², an ion, or an isotope, like ¹⁴C."""
    if token.end != after.start:
        return False
    if token.kind == "mark":
        return len(token.key) > 1 and len(after.key) <= 2 and after.key.isalpha() and after.key.isascii()
    if after.kind != "mark":
        return False
    if text[after.start] in "^-" or text[after.end : after.end + 1] in ("+", "-"):
        return True
    return after.key != "1" and (len(token.key) == 1 or token.key in _POWERED)


def _quantity(text: str, found: list[TextToken], at: int) -> tuple[int, TextToken]:
    """Return the index after the quantity that starts at `at`, and its token."""
    first, start = at, found[at].start
    sign, currency, at = _prefix(text, found, at)
    if not _is_number(found, at):
        return first + 1, found[first]
    number = found[at]
    at += 1
    if at < len(found) and _is_power(text, number, found[at]):
        key = f"{sign}{currency}{_in_ascii(number.key)}^{found[at].key}"
        return at + 1, TextToken(key, "identifier", start, found[at].end)
    value = Decimal(_NUMBER_WORDS[number.key]) if number.key in _NUMBER_WORDS else _value(number.key)
    if value is None:
        return at, TextToken(f"{sign}{currency}{_in_ascii(number.key)}", "identifier", start, number.end)
    scale, at = _scale(text, found, at, bool(currency))
    unit, at = _unit(found, at)
    name = _behind_footnote(found, at)
    if not currency and _is_currency_after(text, found, name):
        currency, at = _CURRENCY_WORDS.get(found[name].key, found[name].key), name + 1
    amount = value.scaleb(scale)
    amount = f"{amount.normalize() if currency or unit else amount:f}"
    end = found[at - 1].end
    enclosed = text[start - 1 : start] == "(" and ")" in text[number.end : end + 1]
    if enclosed and re.search(r"\W", text[start:end]):  # in accounts, an amount in parentheses is a loss
        amount = f"({amount})"
    return at, TextToken(f"{sign}{currency}{amount}{unit}", "number", start, end)


def _prefix(text: str, found: list[TextToken], at: int) -> tuple[str, str, int]:
    """Return the sign and the currency before a number, and the index of the number."""
    sign = currency = ""
    while at + 1 < len(found):
        token, after = found[at], found[at + 1]
        if (
            not sign
            and token.key in ("+", "-")
            and token.end == after.start
            and not _continues(text, token.start)
        ):
            sign = token.key.strip("+")
        elif not currency and _is_currency(token) and not text[token.end : after.start].strip():
            currency = _CURRENCY_WORDS.get(token.key, token.key)
        else:
            break
        at += 1
    return sign, currency, at


def _continues(text: str, at: int) -> bool:
    """Return whether a value ends just before this offset, so that a sign here is a range, as in 5-10."""
    return at > 0 and (text[at - 1].isalnum() or text[at - 1] in "%)")


def _is_currency(token: TextToken) -> bool:
    return token.key in _CURRENCY_WORDS or (len(token.key) == 1 and unicodedata.category(token.key) == "Sc")


def _is_power(text: str, number: TextToken, after: TextToken) -> bool:
    """Return whether a superscript follows as a power. After a year, or if it is 1, it is a footnote."""
    if after.kind != "mark" or after.start != number.end:
        return False
    return text[after.start] in "^-" or (after.key != "1" and _YEAR.fullmatch(number.key) is None)


def _is_currency_after(text: str, found: list[TextToken], at: int) -> bool:
    """Return whether the token at `at` names the currency of the previous number, not of the next one."""
    if at >= len(found) or not _is_currency(found[at]):
        return False
    if text[found[at - 1].end : found[at].start].strip(_REFERENCE):
        return False
    touches_next = at + 1 < len(found) and found[at].end == found[at + 1].start
    return found[at].key in _CURRENCY_WORDS or not touches_next


def _is_number(found: list[TextToken], at: int) -> bool:
    return at < len(found) and (found[at].kind == "number" or found[at].key in _NUMBER_WORDS)


def _scale(text: str, found: list[TextToken], at: int, has_currency: bool) -> tuple[int, int]:
    """Return the power of ten of a word like million, or of a letter if the number has a currency."""
    name = _behind_footnote(found, at)
    if name < len(found) and (word := found[name].key) in _SCALE:
        return _SCALE[word], name + 1
    if at < len(found):
        word = found[at].key
        touches = not text[found[at - 1].end : found[at].start]
        if has_currency and touches and word in _SHORT_SCALE:
            return _SHORT_SCALE[word], at + 1
    return 0, at


def _behind_footnote(found: list[TextToken], at: int) -> int:
    """Return the index after a superscript number that is not a power."""
    return at + 1 if at < len(found) and found[at].kind == "mark" else at


def _unit(found: list[TextToken], at: int) -> tuple[str, int]:
    words = tuple(token.key for token in found[at : at + 2])
    if words and words[0] in _PERCENT:
        return "%", at + 1
    if words in _PERCENT_IN_TWO:
        return "%", at + 2
    if words in (("percentage", "point"), ("percentage", "points")):
        return "pp", at + 2
    return "", at


def _value(digits: str) -> Decimal | None:
    """Return the value of `digits`; None if they are an identifier, like 1.2.3 or 007."""
    if len(digits) > getcontext().prec:
        return None
    plain = re.sub(r"[\s']", "", "".join(_OWN_SHAPE.get(char) or char for char in digits))
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
    return None if re.fullmatch(r"0\d{2,}", plain) else Decimal(plain)
