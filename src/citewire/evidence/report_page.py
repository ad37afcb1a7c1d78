"""Write reports as one self-contained HTML page: no script, no network, embedded pictures.

All text on it is untrusted: answers, quotes, names, sources. All of it is escaped, only http and https URLs
become links, and a content security policy in the page blocks anything that would get past that.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import islice

from msgspec import Struct, to_builtins

import citewire
from citewire.documents.document import Document
from citewire.documents.errors import DocumentError
from citewire.evidence.citation_html import (
    VERDICT_LABELS,
    CitationLink,
    claim_text,
    compare_wordings,
    escape_text,
    find_marker_place,
    mark_citations,
    truncate,
    web_href,
)
from citewire.evidence.pictures import (
    PICTURE_FORMAT,
    PictureRequest,
    ReadBytes,
    draw_pictures,
    limit_pixels,
    plan_pictures,
)
from citewire.evidence.proof import Proof, make_snippet, prove_all
from citewire.model import Citation, Status
from citewire.verification.document_set import CheckResult
from citewire.verification.policy import Difference
from citewire.verification.report import Report

__all__ = ["write_page"]

_RANK = {status: rank for rank, status in enumerate(VERDICT_LABELS)}
_LIMITS = (
    "This check is textual. It says whether the quoted words stand in the source, "
    "never whether they support the sentence they are cited for."
)
_POLICY = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
# Limits of a page that a browser can still open: cards of a few kB, 20 MB of crops and whole pages.
_MOST_CARDS = 2_000
_CROP_PIXELS, _PAGE_PIXELS = 80_000_000, 20_000_000
# Characters of a claim or a difference, and of a record; differences and notes per card.
_SHORT, _RECORD, _MOST_LISTED = 300, 4_000, 20
# Points on paper to pixels on screen.
_PIXELS = 96 / 72

PictureResults = Mapping[PictureRequest, bytes | DocumentError]


class _Card(Struct, frozen=True, gc=False):
    """A check on the page. `of` is the verdict on its citation, `back` the citation's anchor in the text."""

    anchor: str
    label: str
    of: Status
    back: str | None
    claim: str
    check: CheckResult


class _FoundQuote(Struct, frozen=True):
    """The place of a card's quote, and its pictures, unless the card `same` has them."""

    document: Document
    proof: Proof
    crops: tuple[PictureRequest, ...]
    pages: tuple[PictureRequest, ...]
    same: _Card | None = None


class _Section(Struct, frozen=True):
    """An answer, and the cards of each of its citations, in reading order."""

    number: int
    name: str
    report: Report
    cited: tuple[tuple[Citation, tuple[_Card, ...]], ...]


def write_page(reports: Sequence[tuple[str, Report]], documents: Iterable[Document], read: ReadBytes) -> str:
    """Write the reports, each under its name, on one page. `documents` are the sources of the checks.

    `read` returns the bytes of a document, for pictures, or raises `DocumentError`. A picture that cannot be
    drawn is mentioned on its card, and so is anything left out to limit the page's size.
    """
    known = {document.sha256: document for document in documents}
    sections = [_section(number, *each) for number, each in enumerate(reports, 1)]
    every = [card for section in sections for _, cards in section.cited for card in cards]
    # If there are too many, verified ones are left out.
    cards = sorted(every, key=lambda card: (_RANK[card.of], _RANK[card.check.status]))[:_MOST_CARDS]
    found = _found(cards, known)
    crops = limit_pixels(_CROP_PIXELS, (picture for one in found.values() for picture in one.crops))
    pages = limit_pixels(_PAGE_PIXELS, (picture for one in found.values() for picture in one.pages))
    images = draw_pictures([*crops, *pages], known.values(), read)
    kept = {card.anchor for card in cards}
    body = [
        *_head(sections, len(every) - len(cards)),
        *(piece for section in sections for piece in _answer(section, kept, found, images)),
        *_sources(found.values(), len(known)),
    ]
    return _document(_counted(sections), "".join(body))


def _section(number: int, name: str, report: Report) -> _Section:
    answer = report.answer
    checks: dict[str | None, list[CheckResult]] = {}
    for check in report.checks:
        checks.setdefault(check.id, []).append(check)
    remaining = {name: iter(own) for name, own in checks.items()}
    unplaced = (len(answer.parts), 0)
    in_order = sorted(answer.citations, key=lambda citation: find_marker_place(answer, citation) or unplaced)
    cited: list[tuple[Citation, tuple[_Card, ...]]] = []
    for position, citation in enumerate(in_order, 1):
        # One check per quote: ids need not be unique.
        quotes = sum(bool(ref.quote) for ref in citation.refs) or 1
        own = list(islice(remaining.get(citation.id, iter(())), quotes))
        back = f"a{number}-t{position}" if find_marker_place(answer, citation) else None
        claim = claim_text(answer, citation)
        labels = [f"{position}.{at}" if len(own) > 1 else str(position) for at in range(1, len(own) + 1)]
        cards = (
            _Card(f"a{number}-c{label}", label, _verdict(citation), back, claim, check)
            for label, check in zip(labels, own, strict=True)
        )
        cited.append((citation, tuple(cards)))
    return _Section(number, name, report, tuple(cited))


def _verdict(citation: Citation) -> Status:
    return citation.verification.status if citation.verification else "pending"


def _found(cards: Sequence[_Card], known: Mapping[str, Document]) -> dict[str, _FoundQuote]:
    """Return the found quotes by the anchor of their card."""
    proofs = prove_all((card.check for card in cards), known.values())
    found: dict[str, _FoundQuote] = {}
    first: dict[tuple[PictureRequest, ...], _Card] = {}
    for card, proof in zip(cards, proofs, strict=True):
        if proof is None:
            continue
        document = known[proof.sha256]
        crops, pages = (tuple(plan_pictures(document, proof, whole=whole)) for whole in (False, True))
        if crops and first.setdefault(crops, card) is not card:
            found[card.anchor] = _FoundQuote(document, proof, (), (), first[crops])
        else:
            found[card.anchor] = _FoundQuote(document, proof, crops, pages)
    return found


def _counted(sections: Iterable[_Section]) -> Counter[Status]:
    return Counter(_verdict(citation) for section in sections for citation, _ in section.cited)


def _tally(counts: Counter[Status]) -> str:
    words = {status: words.split(" ", 1)[1].lower() for status, words in VERDICT_LABELS.items()}
    return (
        ", ".join(f"{counts[status]} {words[status]}" for status in VERDICT_LABELS if counts[status])
        or "none"
    )


def _document(counts: Counter[Status], body: str) -> str:
    style = files("citewire.evidence").joinpath("report_page.css").read_text("utf-8")
    allowed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"{_POLICY}; style-src 'sha256-{allowed}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>Citations: {_tally(counts)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}"
        f"<footer>Checked by citewire {citewire.__version__}.</footer>\n</body>\n</html>\n"
    )


def _head(sections: Sequence[_Section], left_out: int) -> Iterator[str]:
    counts = _counted(sections)
    yield '<a class="skip" href="#answers">Skip to the answers</a>\n<header>\n<h1>Citations checked</h1>\n'
    yield f'<p class="limits">{_LIMITS}</p>\n'
    yield '<fieldset class="counts"><legend>Show the citations that are</legend>\n'
    yield f'<label><input type="radio" name="show" id="show-all" checked> all {counts.total()}</label>\n'
    for status, words in VERDICT_LABELS.items():
        if counts[status]:
            control = f'<input type="radio" name="show" id="show-{status}">'
            yield f'<label class="{status}">{control} {words} {counts[status]}</label>\n'
    yield "</fieldset>\n"
    if left_out:
        yield (
            f'<p class="left-out">{left_out} of the quotes are counted here but not shown, so that the page '
            "stays small enough to open: <code>--format json</code> has them all.</p>\n"
        )
    if len(sections) > 1:
        links = "".join(f'<li><a href="#a{each.number}">{_name(each)}</a></li>' for each in sections)
        yield f'<nav aria-label="Answers"><ol>{links}</ol></nav>\n'
    yield '</header>\n<main id="answers">\n'


def _name(section: _Section) -> str:
    return f"<bdi>{escape_text(truncate(section.name, _SHORT))}</bdi>"


def _answer(
    section: _Section, kept: set[str], found: Mapping[str, _FoundQuote], images: PictureResults
) -> Iterator[str]:
    report, number = section.report, section.number
    uncited = len(report.uncited)
    sentences = f"; {uncited} sentence{'s' * (uncited != 1)} without a citation" if uncited else ""
    yield f'<section aria-labelledby="a{number}">\n<h2 id="a{number}">{_name(section)}</h2>\n'
    yield f'<p class="soft">{_tally(_counted([section]))}{sentences}</p>\n<h3>The answer</h3>\n'
    if not report.answer.parts:
        yield "<p>The payload does not have the text of the answer.</p>\n"
    links = [
        (
            citation,
            CitationLink(f"a{number}-t{position}", str(position), _verdict(citation), _target(cards, kept)),
        )
        for position, (citation, cards) in enumerate(section.cited, 1)
    ]
    for part in mark_citations(report.answer, links, report.uncited):
        yield f'<div class="text" dir="auto" lang="">{part}</div>\n'
    if section.cited:
        yield "<h3>Its citations</h3>\n"
    for _, cards in section.cited:
        for card in cards:
            if card.anchor in kept:
                yield from _card(card, found.get(card.anchor), images)
    yield "</section>\n"


def _target(cards: Sequence[_Card], kept: set[str]) -> str | None:
    """Return the card that a citation in the text links to: the worst of its own."""
    worst = sorted((card for card in cards if card.anchor in kept), key=lambda card: _RANK[card.check.status])
    return worst[0].anchor if worst else None


def _card(card: _Card, found: _FoundQuote | None, images: PictureResults) -> Iterator[str]:
    check, anchor = card.check, card.anchor
    back = f'<a href="#{card.back}" aria-label="Citation {card.label} in the text">↑ in the text</a>'
    yield (
        f'<article class="card {check.status}" data-of="{card.of}" id="{anchor}" '
        f'aria-labelledby="{anchor}-h">\n'
        f'<h4 id="{anchor}-h"><span class="heard">Citation </span>{card.label} '
        f'<span class="verdict">{VERDICT_LABELS[check.status]}</span>'
        f'<span class="soft">{_place(check, found)}</span>{back if card.back else ""}</h4>\n'
        '<dl class="said">\n'
    )
    if card.claim.strip():
        yield _row("Cited for", escape_text(truncate(card.claim, _SHORT)))
    yield from _words(check)
    if check.reason and not check.diff:
        yield _row("Why", escape_text(truncate(check.reason, _SHORT)))
    yield from _list("Differences", [_difference(each) for each in check.diff])
    yield from _list("Harmless edits", list(map(escape_text, check.edits)))
    yield from _list("Notes", [escape_text(truncate(warning, _SHORT)) for warning in check.warnings])
    yield "</dl>\n"
    if found is not None:
        yield from _evidence(check, found, images)
    yield "</article>\n"


def _place(check: CheckResult, found: _FoundQuote | None) -> str:
    """Return the place of a quote, as far as it is known."""
    if found is None:
        return f"<bdi>{escape_text(truncate(check.source, _SHORT))}</bdi>" if check.source else ""
    document, start = found.document, found.proof.start
    page, element = document.page_at(start), document.element_at(start)
    where = [f"<bdi>{escape_text(truncate(check.source or '', _SHORT))}</bdi>"]
    if len(document.pages) > 1 or document.kind == "pdf":
        where.append(
            f"page {page.number}" + (f" ({escape_text(truncate(page.label, 40))})" if page.label else "")
        )
    where.append(
        f"<code>{escape_text(truncate(element.path, 120))}</code>"
        if element
        else f"line {document.line_at(start)}"
    )
    return ", ".join(where)


def _words(check: CheckResult) -> Iterator[str]:
    quote, source = compare_wordings(check.quote, check.found or "", marked=bool(check.diff))
    if check.quote:
        yield _row("Quote", f'<span class="words" dir="auto" lang="">{quote}</span>')
    if check.status in {"altered", "partial"}:
        yield _row("Source", f'<span class="words" dir="auto" lang="">{source}</span>')


def _difference(each: Difference) -> str:
    quote, source = (escape_text(truncate(words, _SHORT)) for words in (each.quote, each.source))
    if not quote or not source:
        said = f"puts in <del>{quote}</del>" if quote else f"leaves out <ins>{source}</ins>"
    else:
        said = f"says <del>{quote}</del>, the source says <ins>{source}</ins>"
    return f"<strong>{each.kind}</strong>: the quote {said}"


def _row(name: str, value: str) -> str:
    return f"<dt>{name}</dt><dd>{value}</dd>\n"


def _list(name: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        more = [f"and {len(items) - _MOST_LISTED} more"] if len(items) > _MOST_LISTED else []
        yield _row(name, f"<ul>{''.join(f'<li>{item}</li>' for item in [*items[:_MOST_LISTED], *more])}</ul>")


def _evidence(check: CheckResult, found: _FoundQuote, images: PictureResults) -> Iterator[str]:
    document, proof = found.document, found.proof
    drawn = [(picture, images.get(picture)) for picture in found.crops]
    figures = [_image(picture, image, check) for picture, image in drawn if isinstance(image, bytes)]
    yield from figures
    if len(figures) < max(1, len(drawn)):
        words = make_snippet(document, proof.start, proof.end)
        yield f'<figure><p class="snippet" lang="">{words}</p></figure>\n'
    if found.same:
        yield f'<p class="soft">Pictured at <a href="#{found.same.anchor}">{found.same.label}</a>.</p>\n'
    for picture, image in drawn:
        if not isinstance(image, bytes):
            why = (
                "there are enough on this page already"
                if image is None
                else escape_text(truncate(image.message, _SHORT))
            )
            yield f'<p class="soft">No picture of page {picture.crop.page}: {why}.</p>\n'
    whole = [(picture, image) for picture in found.pages if isinstance(image := images.get(picture), bytes)]
    if whole:
        pages = "".join(_image(picture, image, check) for picture, image in whole)
        yield f"<details><summary>The whole page</summary>{pages}</details>\n"
    yield from (
        f"<p>{_link(url, _link_words(url))}</p>\n" for url in filter(None, map(web_href, proof.links))
    )
    # The package's encoder refuses lone surrogates, which untrusted text may contain.
    record = escape_text(truncate(json.dumps(to_builtins(proof), ensure_ascii=False, indent=2), _RECORD))
    yield f"<details><summary>Proof record</summary><pre>{record}</pre></details>\n"


def _link_words(url: str) -> str:
    fragment = url.partition("#")[2]
    if ":~:text=" in fragment:
        return "These words, on the web page"
    return "This page, on the web" if fragment.startswith("page=") else "The source, on the web"


def _link(url: str, words: str) -> str:
    return f'<a href="{escape_text(url)}" target="_blank" rel="noopener noreferrer nofollow">{words}</a>'


def _image(picture: PictureRequest, image: bytes, check: CheckResult) -> str:
    width, height = (round(points * _PIXELS) for points in (picture.width, picture.height))
    page = f"page {picture.crop.page} of {escape_text(truncate(check.source or 'the source', _SHORT))}"
    part = "The whole of" if picture.crop.whole else "Part of"
    return (
        f'<figure><img src="data:image/{PICTURE_FORMAT};base64,{base64.b64encode(image).decode()}" '
        f'width="{width}" height="{height}" alt="{part} {page}, the words highlighted">'
        f"<figcaption>{part} {page}</figcaption></figure>\n"
    )


def _sources(found: Collection[_FoundQuote], known: int) -> Iterator[str]:
    counts = Counter(one.document.sha256 for one in found)
    documents = {one.document.sha256: one.document for one in found}
    yield '<section aria-labelledby="sources">\n<h2 id="sources">Sources</h2>\n'
    if documents:
        yield "<table><thead><tr><th>Name</th><th>Quotes</th><th>SHA-256</th></tr></thead><tbody>\n"
    for sha256, document in documents.items():
        name = (
            f"<bdi>{escape_text(truncate(document.name or document.url or 'without a name', _SHORT))}</bdi>"
        )
        if address := web_href(document.url or ""):
            name = _link(address, name)
        yield f"<tr><td>{name}</td><td>{counts[sha256]}</td><td><code>{sha256}</code></td></tr>\n"
    if documents:
        yield "</tbody></table>\n"
    if others := known - len(documents):
        yield f'<p class="soft">In {others} {"others" if documents else "sources"} nothing was found.</p>\n'
    yield "</section>\n</main>\n"
