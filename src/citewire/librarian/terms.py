"""Split text into search terms: words without endings and accents; in scripts without spaces between
words, pairs of characters.

Of a source every term is indexed; of a question only those that say what it is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from unicodedata import normalize

__all__ = ["asks_for_number", "content_terms", "has_number", "join_terms", "split_terms"]

# Thai to Myanmar, Khmer, and all Chinese, Japanese and Korean.
_SOLID = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3041-\u31ff"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# Vowel signs and the like, which are not letters but part of words.
_MARKS = "\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_TERM = re.compile(rf"([{_SOLID}]+)|\d+(?:[.,]\d+)*|(?:[^\W\d_{_SOLID}]|[{_MARKS}]|(?<=\w)\d)+")
# The same for ASCII, which most text is, several times as fast.
_PLAIN_TERM = re.compile(r"\d+(?:[.,]\d+)*|[a-z][a-z0-9]*")
_ACCENTS = re.compile("[\u0300-\u036f]")
# Longer ones are not words, and a row of the index must not outgrow the text.
_LONGEST = 40

# Words that occur in any question, in English, German, French, Spanish, Italian, Portuguese and Dutch.
_COMMON = (
    """
    a about after again all also am an and any are as at be been before being but by can could did do
    does done else every for from get gets got had has have he her here him his how i if in into is it
    its just may me might more most must my need no not of off on only or other our out over please
    shall she should so some such tell than that the their them then there these they this those through
    to too under up us use very was we were what when where whether which while who whom whose why will
    with within without would you your explain describe according happens happen says say said mean
    means exactly let lets want wants much many take takes took taken give gives given make makes go goes
    come comes know find see look like last next current currently now today ever still
    """,
    """
    aber als am an auch auf aus bei bin bis da das dass dein dem den der des die dies diese dieser du
    ein eine einem einen einer eines er es fur gibt hat haben hatte ich ihr im in ist ja kann kein keine
    konnen man mein mit muss mussen nach nicht noch nur ob oder sein sich sie sind soll uber um und uns
    unter von vor wann war warum was welche welchen welcher welches wenn wer werden wie wieso wird wo zu
    zum zur viel viele
    """,
    """
    au aux avec ce ces cette combien comment dans de des du elle elles en est et etre fait il ils je la
    le les leur lui mais mes mon ne nos notre nous ou par pas peut pour pourquoi qu quand que quel
    quelle quelles quels qui quoi sa se ses son sont sur tu un une va vos votre vous y
    """,
    """
    al como con cual cuales cuando cuanto cuanta cuantos cuantas de del donde el ella ellos en es esta
    este esto estos fue ha hay la las lo los me mi muy o para pero por porque puede puedo que quien se
    ser si sin sobre son su sus un una y ya
    """,
    """
    alla che chi ci come con cosa cui da dal dalla dei del della delle di dove e gli ha ho i il io la le
    li lo ma mi ne nel nella non o per perche piu puo quale quali quando quanta quante quanti quanto
    sono su sul un una uno
    """,
    """
    ao aos as com como da das de do dos e em essa esse esta este eu foi ha isso isto ja mais mas me meu
    na nas nao no nos o onde ou para pela pelo por porque posso pode qual quais quando quanta quantas
    quanto quantos que quem se sem ser seu sua um uma
    """,
    """
    aan bij dat de deze die dit door een en er het hij hoe hoeveel ik in is kan krijg mag me met mijn
    naar niet nog of om onder ons ook op over te tot uit van veel voor waar waarom wanneer wat welk
    welke wie wij word wordt zijn zo
    """,
)
_COMMON_WORDS = tuple(frozenset(words.split()) for words in _COMMON)
# Question words and particles of scripts without spaces. Hiragana, alone, is mostly endings.
_ASKING = re.compile(
    "什么|什麼|怎么|怎麼|怎样|怎樣|如何|为什么|為什麼|多少|多久|多长|多長|时间|時間|几天|幾天|哪些|哪个|哪個|哪里|哪裡|是否|可以|需要"
    "|能否|请问|請問|有没有|有沒有|[是的了吗嗎呢在我你您们們和与與及或]|[\u3041-\u309f]+|何[日時円年人]?|教えて"
    "|무엇|입니까|인가요|있나요|합니까|하나요|어떻게|얼마나|얼마|언제|어디|(?:에서|으로|에게|은|는|이|가|을|를|의|에|로|도)(?=$|[^가-힣])"
)
_ASKS_NUMBER = re.compile(
    r"\bhow (?:long|many|much|often|old|big|far|soon|fast|late|large|early|high|tall)\b|\bwhen\b"
    r"|\b(?:wat|what|which) (?:time|date|day|year|percent(?:age)?|share|price|cost|number|rate|amount)\b"
    r"|\bwie (?:lange?|viele?|oft|hoch|gro(?:ß|ss)|alt)\b|\bwann\b|\bcombien\b|\bquand\b"
    r"|\bcu[aá]nt[oa]s?\b|\bcu[aá]ndo\b|\bquant[oaie]s?\b|\bquando\b|\bhoe(?:veel| lang| vaak)\b|\bwanneer\b"
    "|多少|多久|几|幾|何时|何時|多长|多長|いつ|いくら|何[日円年人]|얼마|언제|몇",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d|[一二三四五六七八九十百千]|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty"
    r"|thirty|forty|fifty|sixty|ninety|hundred|thousand|million|daily|weekly|monthly|yearly|once|twice)\b",
    re.IGNORECASE,
)
_HOW = re.compile(
    r"\bhow (?:long|often|old|big|far|soon|fast|late|large|early|high|tall)\b"
    r"|\bwie (?:lange?|oft|hoch|gro(?:ß|ss)|alt)\b|\bhoe (?:lang|vaak|groot|hoog)\b",
    re.IGNORECASE,
)


def split_terms(text: str) -> list[str]:
    """Return the terms of a text, in order."""
    if text.isascii():
        return [_stem(word) for word in _PLAIN_TERM.findall(text.lower())]
    return [term for found in _TERM.finditer(_folded(text)) for term in _of(found, singles=True)]


def content_terms(question: str) -> dict[str, str]:
    """Map the terms that say what a question is about, in order, to their words."""
    text = _ASKING.sub(" ", _folded(_HOW.sub(" ", question)))
    said = [*_TERM.finditer(text)]
    # The stop words of the language with most matches: a hat is not a verb in an English question.
    common = max(_COMMON_WORDS, key=lambda some: sum(word[0] in some for word in said))
    found: dict[str, str] = {}
    for word in said:
        is_letter = len(word[0]) == 1 and "a" <= word[0] <= "z"
        if word[0] not in common and not is_letter:
            for term in _of(word, singles=len(word[0]) == 1):
                found.setdefault(term, word[0])
    return found


def join_terms(text: str) -> str:
    """Return the terms of a text joined by spaces, for the index."""
    return " ".join(split_terms(text))


def asks_for_number(question: str) -> bool:
    """Return whether the answer would be a number, a date or a time."""
    return _ASKS_NUMBER.search(question) is not None


def has_number(text: str) -> bool:
    """Return whether a text contains a number, in figures or in words."""
    return _NUMBER.search(text) is not None


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return normalize("NFC", _ACCENTS.sub("", normalize("NFKD", text.casefold()))).casefold()


def _of(found: re.Match[str], *, singles: bool) -> Iterator[str]:
    word = found[0]
    if found[1]:
        yield from (word[at : at + 2] for at in range(len(word) - 1))
        yield from word if singles else ()
    else:
        yield _stem(word)


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    """Remove the ending of an English word. Other languages suffer little: both sides are cut alike."""
    word = _without_plural(word[:_LONGEST])
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) > 2 and any(letter in "aeiouy" for letter in rest):
            doubled = rest[-1] == rest[-2] and rest[-1] not in "lsz"
            word = rest[:-1] if doubled else rest
            break
    # So that `use` matches `using`, and `carry` matches `carried`.
    if len(word) > 3 and word[-1] == "e":
        return word[:-1]
    return word[:-1] + "i" if len(word) > 2 and word[-1] == "y" else word


def _without_plural(word: str) -> str:
    if len(word) < 4 or word[-1] != "s" or word[-2] in "sui":
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "xes", "ches", "shes", "zes")) else word[:-1]
