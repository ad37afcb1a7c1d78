"""Write an answer in the sources' own words: select the sentences to quote, and phrase the answer.

A sentence scores by the terms of the question it contains, each weighted by how specific it is; terms in its
passage and title count half, and those in its heading more than that. Below half of the question's weight
there is no answer; not far below, the sentence is quoted as the closest match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from citewire.dialects.deepcitation import BLOCK_END, BLOCK_START
from citewire.dialects.deepcitation.block import write_block
from citewire.dialects.deepcitation.entry import EntryFields, type_of
from citewire.extraction import extract
from citewire.librarian.index import MOST_QUESTION_CHARACTERS, PassageIndex
from citewire.librarian.passages import Passage, Sentence
from citewire.librarian.terms import asks_for_number, content_terms, has_number, split_terms
from citewire.model import Lines, Native

__all__ = ["LookupResult", "QuotedSentence", "find_quotes", "write_answer"]

# Passages searched, quotes in an answer, and quotes if there is no answer.
_PASSAGES, _MOST, _MOST_CLOSE = 12, 4, 2
_HEADING, _AROUND = 0.75, 0.5
# Shares of the question's weight: for an answer; and for the closest match, which each sentence needs itself.
_ENOUGH, _CLOSE = 0.5, 0.35
# Share of the best quote's weight that another quote must have.
_AS_GOOD = 0.75
# Terms of the earlier question still count, but for the order only.
_EARLIER = 0.3
# Factors: a number if one is asked for; a sentence that begins with the subject, and one that says what it is
# or was; and an incomplete sentence, such as a caption or a cell.
_HAS_NUMBER, _BEGINS, _DEFINES, _CUT = 1.3, 1.1, 1.15, 0.9
_BEGINNING, _VERBS = (
    3,
    frozenset(("is", "are", "was", "were", "mean", "ist", "sind", "war", "est", "sont", "es")),
)
_WHOLE = re.compile(r"[.!?…:;。！？।؟]\W*(?:\[[^\]]*\]\W*)*$")

# Reference marks and links of the source would be taken for citations of the answer.
_REFERENCE = re.compile(r"\s?\[\^?[\w.,:–-]{1,20}\](?!\()")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_EMPHASIS = re.compile(r"\*\*|__|`+")


class QuotedSentence(Struct, frozen=True):
    """A sentence to quote, and its passage."""

    sentence: Sentence
    passage: Passage


class LookupResult(Struct, frozen=True):
    """The result of a lookup. With `is_answer` the quotes answer the question; else they are the closest.

    `passages` are those searched, `missing` the words of the question that no source has. A question without
    searchable words `is_vague`.
    """

    quotes: tuple[QuotedSentence, ...] = ()
    is_answer: bool = False
    passages: tuple[Passage, ...] = ()
    missing: tuple[str, ...] = ()
    is_vague: bool = False


def find_quotes(index: PassageIndex, question: str, earlier: str = "") -> LookupResult:
    """Find what the sources say on a question that came after an `earlier` one. Blocks for a while."""
    question, earlier = question[:MOST_QUESTION_CHARACTERS], earlier[:MOST_QUESTION_CHARACTERS]
    asked = content_terms(question)
    before = content_terms(earlier)
    if not asked:
        # `And for how long?` has the subject of the earlier question.
        asked, before = before, {}
    if not asked:
        return LookupResult(is_vague=True)
    weighed = index.weigh_terms((*asked, *before))
    passages = index.rank_passages(weighed, _PASSAGES)
    weights = {term: weighed.weights[term] for term in asked if term in weighed.weights}
    earlier_weights = {
        term: _EARLIER * weight for term, weight in weighed.weights.items() if term not in weights
    }
    candidates = _candidates(passages, weights, earlier_weights, asks_for_number(question))
    found = sorted(candidates, key=lambda each: each.order)
    quotes = _choose_quotes(found, _ENOUGH, _MOST)
    there = {word for term, word in asked.items() if term not in weighed.missing}
    missing = dict.fromkeys(_as_asked(word, question) for word in asked.values() if word not in there)
    closest = quotes or _choose_quotes(found, _CLOSE, _MOST_CLOSE)
    return LookupResult(tuple(closest), bool(quotes), tuple(passages), tuple(missing))


def _as_asked(word: str, question: str) -> str:
    found = re.search(re.escape(word), question, re.IGNORECASE)
    return found[0] if found else word


class _Candidate(Struct, frozen=True):
    """A sentence, its score, and its share of the question's weight; `own` is without its surroundings.

    Without `says_it` all of the terms are in its heading.
    """

    score: float
    share: float
    own: float
    says_it: bool
    rank: int
    at: int
    quote: QuotedSentence

    @property
    def order(self) -> tuple[float, int, int]:
        return -self.score, self.rank, self.at


def _choose_quotes(found: Sequence[_Candidate], least: float, most: int) -> list[QuotedSentence]:
    """Select the best sentences without duplicates: the best passage first, each passage's in order."""
    picked: list[_Candidate] = []
    seen: set[str] = set()
    for each in found:
        words = " ".join(split_terms(each.quote.sentence.text))
        if (
            each.share < least
            or each.own < _CLOSE
            or words in seen
            or _shown(each.quote.sentence.text) is None
        ):
            continue
        if len(picked) == most:
            break
        if picked and not _goes_with(picked[0], each, least):
            continue
        seen.add(words)
        picked.append(each)
    ranks = list(dict.fromkeys(each.rank for each in picked))
    return [each.quote for each in sorted(picked, key=lambda each: (ranks.index(each.rank), each.at))]


def _goes_with(best: _Candidate, other: _Candidate, least: float) -> bool:
    """Return whether a sentence fits the best one; if it does not name the subject it must follow it."""
    follows = other.rank == best.rank and other.at > best.at
    is_good = other.own >= least and other.share >= best.share * _AS_GOOD
    return is_good and (other.says_it or follows)


def _candidates(
    passages: Sequence[Passage], asked: Mapping[str, float], before: Mapping[str, float], wants_number: bool
) -> Iterator[_Candidate]:
    mass = sum(asked.values())
    for rank, passage in enumerate(passages):
        own = [split_terms(sentence.text) for sentence in passage.sentences]
        above = split_terms(f"{passage.title} {passage.source} {passage.heading}")
        around = dict.fromkeys((*above, *(term for each in own for term in each)), _AROUND)
        heading = dict.fromkeys(split_terms(passage.heading.rpartition("›")[2]), _HEADING)
        for at, (sentence, said) in enumerate(zip(passage.sentences, own, strict=True)):
            firm = heading | dict.fromkeys(said, 1.0)
            worth = _worth(asked, around | firm)
            score = worth + _worth(before, around | firm)
            score *= _HAS_NUMBER if wants_number and has_number(sentence.text) else 1
            score *= 1 if asked.keys().isdisjoint(said[:_BEGINNING]) else _BEGINS
            score *= _DEFINES if any(one in asked and two in _VERBS for one, two in pairwise(said)) else 1
            score *= 1 if _WHOLE.search(sentence.text) else _CUT
            own_share, says_it = _worth(asked, firm) / mass, not asked.keys().isdisjoint(said)
            yield _Candidate(
                score, worth / mass, own_share, says_it, rank, at, QuotedSentence(sentence, passage)
            )


def _worth(weights: Mapping[str, float], shares: Mapping[str, float]) -> float:
    return sum(weight * shares.get(term, 0.0) for term, weight in weights.items())


def _shown(quote: str) -> str | None:
    """Return a quote as plain words for an answer; None if it would be read as markup or a citation."""
    text = _EMPHASIS.sub("", _LINK.sub(r"\1", _REFERENCE.sub("", quote))).strip()
    read = extract(text)
    is_plain = read.visible_text == text and not read.citations and BLOCK_START[:3] not in text
    return text if text and is_plain else None


def write_answer(found: LookupResult, reading: int, total: int) -> str:
    """Write the answer as a model would: visible text, and the data of its citations.

    `reading` of `total` sources are still being read.
    """
    if not found.quotes:
        return " ".join(_without_quotes(found, reading, total))
    count = len({quote.passage.source_id for quote in found.quotes})
    lead = f"I found this in {_sources(count)}:"
    if not found.is_answer:
        lead = " ".join((*_no_answer(found, total - reading), "This is the closest:"))
    lines = [lead, ""]
    entries: list[tuple[EntryFields, Native | None]] = []
    for number, quote in enumerate(found.quotes, 1):
        lines.append(f"- “{_shown(quote.sentence.text)}” [{number}]")
        entries.append((_entry(number, quote), None))
    lines += ["", _unread(reading)] if reading else []
    return "\n".join([*lines, "", BLOCK_START, write_block(entries, ()), BLOCK_END])


def _entry(number: int, quote: QuotedSentence) -> EntryFields:
    sentence, passage = quote.sentence, quote.passage
    place = Lines((sentence.line,), sentence.page)
    kind = type_of(None, passage.url, place)
    return EntryFields(
        number, sentence.text, None, place, kind, passage.source, passage.url, passage.title, None, ()
    )


def _without_quotes(found: LookupResult, reading: int, total: int) -> Iterator[str]:
    if not total:
        yield "There are no sources to answer from. Add a document, and ask again."
    elif found.is_vague:
        yield "I can only look things up. Ask about something that the sources may say, in a few words."
    else:
        if reading < total:
            yield from _no_answer(found, total - reading)
        if reading:
            yield f"{_unread(reading)} Ask again in a moment."


def _no_answer(found: LookupResult, read: int) -> Iterator[str]:
    yield f"I found no clear answer in {_sources(read)}."
    if found.missing:
        words = ", ".join(f"“{word}”" for word in found.missing[:_MOST])
        yield f"None of them says {words}." if read > 1 else f"It does not say {words}."


def _unread(reading: int) -> str:
    return "One source is still being read." if reading == 1 else f"{reading} sources are still being read."


def _sources(count: int) -> str:
    return "one source" if count == 1 else f"{count} sources"
