"""Proofs over HTTP: who sees one and for how long, what it shows, and that no text in it becomes markup."""

from __future__ import annotations

import asyncio
import io
import string
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from PIL import Image
from selectolax.lexbor import LexborHTMLParser
from starlette.applications import Starlette
from starlette.requests import Request

from citewire import codec
from citewire.agui.citations import records
from citewire.agui.citations.message_state import AuditRecord, CitationSeen, VerdictReached
from citewire.agui.citations.records import MessageCitation, ProofUrls
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.store import Row
from citewire.dialects import dialects, write
from citewire.documents.document import Box, Document
from citewire.documents.draw import Crop, draw_all_in_child
from citewire.documents.errors import DocumentError
from citewire.documents.load import load
from citewire.errors import NotFound
from citewire.model import Answer, Citation, Part, Point, Source, SourceRef
from citewire.server.access.capability import Capability
from citewire.server.access.keys import Caller, Keyring
from citewire.server.answers.proof_api import ProofApi
from citewire.server.answers.proof_links import ProofLinks
from citewire.server.http.operations import openapi, routes
from citewire.server.sources.versions import CheckedVersion, VersionState
from citewire.threadlog.journal import RunJournal, encode_frame
from citewire.threadlog.names import channel_of, proof_id
from citewire.verification.document_set import CheckResult, DocumentSet
from support.app import opened_app
from support.cases import ROOT

SAMPLES = ROOT / "src/citewire/samples"
ADDRESS = "https://cite.example"
DAY = 86400
THREAD = "thread/1 ü"
IN_PDF = "We saw revenue grow by 14.2% in 2025, from £5.92 million to £6.76 million."
IN_HTML = "you may return any lamp within 30 days of delivery"
EVIL = "</q></title><script>x()</script><img src=x onerror=x()> &amp; \"'$quote\x1b\u202e"
INTACT = ("unchanged", "changed", "removed", "unavailable")
FORMATS = {"png": "PNG", "jpg": "JPEG", "webp": "WEBP", "avif": "AVIF"}


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Shelf:
    """Some sources, and how often one of them was drawn."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[Document, bytes]] = {}
        self.state: VersionState = "unchanged"
        self.draws = 0

    def add(self, data: bytes, name: str, url: str | None = None) -> Document:
        document = replace(load(data, name=name), url=url)
        self.known[document.sha256] = document, data
        return document

    async def find(self, sha256: str, name: str | None, text_sha256: str | None) -> CheckedVersion:
        if sha256 not in self.known:
            return CheckedVersion("gone")
        return CheckedVersion(self.state, self.known[sha256][0] if self.state in INTACT else None)

    async def draw(self, sha256: str, crop: Crop) -> bytes:
        if sha256 not in self.known:
            raise NotFound("the source is gone")
        self.draws += 1
        [image] = await asyncio.to_thread(draw_all_in_child, self.known[sha256][1], [crop])
        if isinstance(image, DocumentError):
            raise image
        return image


def _anybody(request: Request) -> Caller:
    del request
    return Caller("", Capability())


class Desk:
    """A server of proofs, and of nothing else."""

    def __init__(self, folder: Path, lifetime: float = DAY) -> None:
        self.clock = Clock()
        self.keyring = Keyring(folder, clock=self.clock)
        self.store, self.shelf = MemoryStore(), Shelf()
        self.links = ProofLinks(self.keyring, f"{ADDRESS}/", lifetime, self.clock)
        self.proofs = ProofApi(self.links, self.store, self.shelf, self.clock)
        self.operations = self.proofs.operations(self.authenticate)
        self.app = Starlette(routes=routes(self.operations, _anybody))

    def authenticate(self, request: Request) -> Caller:
        return self.keyring.caller(request.headers.get("authorization"))

    def get(
        self, url: str, key: str | None = None, accept: str = "*/*", method: str = "GET"
    ) -> httpx2.Response:
        async def main() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self.app)
            headers = {"accept": accept} | ({"authorization": f"Bearer {key}"} if key else {})
            async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS) as client:
                return await client.request(method, url, headers=headers)

        return asyncio.run(main())

    def page(self, url: str) -> LexborHTMLParser:
        response = self.get(url)
        assert response.status_code == 200, response.text
        return LexborHTMLParser(response.text)

    def code(self, url: str, key: str | None = None) -> tuple[int, str]:
        response = self.get(url, key)
        return response.status_code, response.json()["error"]["code"]

    def key(self, **granted: list[str]) -> str:
        return self.keyring.create(Capability.of({f"thread:{name}": [*ops] for name, ops in granted.items()}))

    def prove(self, document: Document, quote: str, thread: str = THREAD) -> ProofUrls:
        return self.keep(DocumentSet([document]).check(quote), thread)

    def keep(self, checked: CheckResult, thread: str = THREAD) -> ProofUrls:
        """A verdict in the log, as a run writes it."""
        links = self.links.make(thread, "m1", "key1", checked)
        source = Source("s", file_id=checked.source)
        cited = MessageCitation(SourceRef("s", quote=checked.quote), source)
        verdict = records.make_verification(checked, cited, links, "2026-11-16T05:00:00Z")
        self.write(
            thread, CitationSeen("m1", "key1", {}), VerdictReached("m1", "key1", checked.quote, verdict)
        )
        return links

    def write(self, thread: str, *items: AuditRecord) -> None:
        async def reached(_: Sequence[VerdictReached]) -> None:
            pass

        async def write() -> None:
            async with RunJournal(Hub(self.store), channel_of(thread), reached) as journal:
                await journal.put(thread, "run1", items)

        asyncio.run(write())

    def rows(self, thread: str = THREAD) -> tuple[Row, ...]:
        return asyncio.run(self.store.read(channel_of(thread)))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """One with proofs that no test changes; the clock stands."""
    return Desk(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def pdf(desk: Desk) -> Document:
    return desk.shelf.add((SAMPLES / "report.pdf").read_bytes(), "report.pdf", "https://a.example/report.pdf")


@pytest.fixture(scope="module")
def policy(desk: Desk) -> Document:
    return desk.shelf.add((SAMPLES / "refund-policy.html").read_bytes(), "policy.html", "https://a.example/p")


@pytest.fixture(scope="module")
def links(desk: Desk, pdf: Document) -> ProofUrls:
    return desk.prove(pdf, IN_PDF)


# --- links ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ending", "form"), FORMATS.items())
def test_a_picture_shows_in_an_img(desk: Desk, links: ProofUrls, ending: str, form: str) -> None:
    """Whoever has the link needs no header."""
    assert links.picture is not None
    response = desk.get(links.picture.replace(".avif?", f".{ending}?"))
    image = Image.open(io.BytesIO(response.content))
    darkest, lightest = image.convert("L").getextrema()
    # Yellow, where the words are, has little blue in it.
    yellow = sum(image.convert("RGB").getchannel("B").histogram()[90:130])

    assert response.headers["content-type"] == f"image/{form.lower()}"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert image.format == form
    assert (darkest, lightest) < (60, 250)
    assert yellow > 1000


def test_a_picture_is_drawn_once_and_may_be_of_the_whole_page(desk: Desk, links: ProofUrls) -> None:
    url = (links.picture or "").replace(".avif", ".png")
    small, before = Image.open(io.BytesIO(desk.get(url).content)), desk.shelf.draws
    again = desk.get(url)
    whole = Image.open(io.BytesIO(desk.get(f"{url}&whole=true").content))

    assert again.status_code == 200
    assert desk.shelf.draws == before + 1  # the whole page
    assert whole.height > 3 * small.height


@pytest.mark.parametrize("lifetime", [1, 90, DAY, 30 * DAY])
def test_a_link_works_for_its_lifetime_and_not_much_longer(tmp_path: Path, lifetime: int) -> None:
    desk = Desk(tmp_path, lifetime)
    page = desk.keep(CheckResult(None, "verified", start=0, end=3, quote="abc")).page
    desk.clock.now += lifetime - 0.5
    assert desk.get(page).status_code == 200
    desk.clock.now += lifetime / 24 + 1.5
    assert desk.code(page) == (410, "link_expired")


@given(data=st.data())
def test_a_link_that_was_changed_is_refused(desk: Desk, links: ProofUrls, data: st.DataObject) -> None:
    page = links.page
    at = data.draw(st.integers(page.index("/proofs/") + len("/proofs/"), len(page) - 1))
    char = data.draw(st.sampled_from([*string.ascii_letters, *string.digits, *"-_."]))
    if char != page[at] and not page[at - 1 :].startswith("?sig="):
        response = desk.get(page[:at] + char + page[at + 1 :])
        assert response.status_code in (401, 403, 404), response.text


def test_a_link_is_for_one_proof(desk: Desk, pdf: Document, links: ProofUrls) -> None:
    other = desk.prove(pdf, "A lamp is a simple thing: a base, an arm, a light.").page
    assert other.partition("?")[0] != links.page.partition("?")[0]
    assert desk.code(other.partition("?")[0] + "?" + links.page.partition("?")[2]) == (403, "bad_link")


def end_of(url: str) -> int:
    return int(url.partition("?sig=")[2].partition(".")[0])


def links_on(page: LexborHTMLParser) -> set[str]:
    """The addresses of proofs that a page has anywhere."""
    values = [value or "" for node in page.css("*") for value in node.attributes.values()]
    return {value for value in values if "/proofs/" in value}


@pytest.mark.parametrize("lifetime", [1, 90, DAY, 30 * DAY])
def test_no_link_on_a_page_outlives_the_link_that_opened_it(tmp_path: Path, lifetime: int) -> None:
    """However often somebody goes from link to link, all end when the first one does."""
    desk = Desk(tmp_path, lifetime)
    links = desk.prove(desk.shelf.add((SAMPLES / "report.pdf").read_bytes(), "report.pdf"), IN_PDF)
    end = end_of(links.page)
    desk.clock.now = end - 0.5
    found = links_on(desk.page(links.page))
    assert found
    for each in found:
        bare, _, query = each.partition("?")
        page = f"{bare.rpartition('.')[0]}?{query.partition('&')[0]}"
        assert end_of(each.replace("&whole=true", "")) == end
        assert desk.get(each).headers["content-type"] == "image/avif"
        assert desk.get(each).headers["cache-control"] == "private, max-age=0, must-revalidate"
        assert desk.code(page) == (403, "bad_link")
    desk.clock.now = end
    for each in (links.page, links.picture or "", *found):
        for method in ("GET", "HEAD"):
            assert desk.get(each, method=method).status_code == 410


def test_a_picture_opens_no_page(desk: Desk, links: ProofUrls) -> None:
    """Its signature is for pictures, in any format; that of the page is for both."""
    picture = links.picture or ""
    query = picture.partition("?")[2]
    assert desk.code(links.page.partition("?")[0] + "?" + query) == (403, "bad_link")
    assert desk.get(picture.replace(".avif", ".png")).status_code == 200
    assert desk.get(links.page.replace("?", ".png?")).status_code == 200


def test_a_picture_is_cached_no_longer_than_its_link_works(desk: Desk, links: ProofUrls) -> None:
    now, picture = desk.clock.now, links.picture or ""
    ages: list[int] = []
    for left in (DAY, 3601, 100, 1):
        desk.clock.now = end_of(picture) - left
        caching = desk.get(picture).headers["cache-control"]
        assert caching.startswith("private, max-age=")
        ages.append(int(caching.removeprefix("private, max-age=").partition(",")[0]))
    desk.clock.now = now
    assert ages == [3600, 3600, 100, 1]


def test_a_token_gets_no_picture_that_outlives_it(desk: Desk, links: ProofUrls) -> None:
    """Whoever opens the page with a token of a minute gets a picture for a minute."""
    name = desk.key(**{THREAD: ["read"]}).partition(":")[0]
    token = desk.keyring.issue_token(name, Capability.of({f"thread:{THREAD}": ["read"]}), 60)
    response = desk.get(links.page.partition("?")[0], token)
    [picture] = {each.partition("&")[0] for each in links_on(LexborHTMLParser(response.text))}
    assert end_of(picture) == desk.clock.now + 60


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
IMAGE = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        (BROWSER, "text/html"), ("text/html", "text/html"), ("application/xhtml+xml", "text/html"),
        ("TEXT/HTML;q=0.5, application/json;q=0.1", "text/html"), ("*/*", "application/json"),
        ("", "application/json"), ("application/json", "application/json"), (IMAGE, "application/json"),
        ("application/json, text/html;q=0.9", "application/json"), ("text/html;q=0", "application/json"),
        ("text/html;q=x,,;;", "application/json"), ("text/*", "application/json"),
    ],
)  # fmt: skip
def test_people_see_a_page_and_programs_json(desk: Desk, links: ProofUrls, accept: str, media: str) -> None:
    now = desk.clock.now
    desk.clock.now = end_of(links.page)
    response = desk.get(links.page, accept=accept)
    desk.clock.now = now
    assert (response.status_code, response.headers["content-type"].partition(";")[0]) == (410, media)
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["vary"] == "accept"


def test_a_page_says_why_there_is_no_proof_and_what_to_do(desk: Desk, links: ProofUrls) -> None:
    bare, now = links.page.partition("?")[0], desk.clock.now
    gone = desk.keep(CheckResult(None, "verified", start=0, end=3, quote="abc"), "gone").page
    asyncio.run(desk.store.drop(channel_of("gone")))
    other = desk.key(other=["*"])
    cases = [
        (bare, None, 401, "needs a link", "Ask the person who sent it"),
        (f"{links.page}x", None, 403, "does not work", "Copy all of it"),
        (bare, other, 403, "cannot be shown", "may not read"),
        (gone, None, 404, "no such proof", "deleted with its conversation"),
        (f"{ADDRESS}/proofs/x", None, 404, "no such proof", "deleted with its conversation"),
    ]
    for url, key, status, title, advice in cases:
        response = desk.get(url, key, BROWSER)
        page = LexborHTMLParser(response.text)
        assert response.status_code == status
        assert title in text_of(page, "h1")
        assert advice in text_of(page, "p")
        assert "default-src 'self'" in response.headers["content-security-policy"]
    desk.clock.now = end_of(links.page)
    page = LexborHTMLParser(desk.get(links.page, accept=BROWSER).text)
    desk.clock.now = now
    assert "It worked until 2027-01-16 09:00 UTC" in text_of(page, "p")
    assert not links_on(page)


@pytest.mark.parametrize(("accept", "media"), [(BROWSER, "text/plain"), (IMAGE, "application/json")])
def test_where_there_is_no_picture_there_is_no_page(
    desk: Desk, links: ProofUrls, accept: str, media: str
) -> None:
    """An `<img>` gets nothing that a browser takes for a page; whoever opens its address reads a sentence."""
    now, picture = desk.clock.now, links.picture or ""
    desk.clock.now = end_of(picture)
    response = desk.get(picture, accept=accept)
    desk.clock.now = now
    assert (response.status_code, response.headers["content-type"].partition(";")[0]) == (410, media)
    assert "expired" in response.text
    assert "<" not in response.text


# --- renewed links ----------------------------------------------------------------------------------------


def signed(desk: Desk, thread: str = THREAD) -> str:
    return desk.links.make(thread, "m", "k", CheckResult(None, "verified", start=0, end=1)).page


def later(desk: Desk, make: Callable[[], str]) -> tuple[str, str]:
    """A link that has expired by now, and the same made now."""
    now = desk.clock.now
    desk.clock.now = now - 3 * DAY
    old = make()
    desk.clock.now = now
    return old, make()


def test_a_link_in_a_thread_works_again(desk: Desk, pdf: Document) -> None:
    old, new = later(desk, lambda: desk.prove(pdf, "In 2025 more people than ever agreed with us.").page)
    assert desk.code(old) == (410, "link_expired")
    renewed = desk.links.renew(THREAD, old.encode()).decode()
    assert renewed == new
    assert desk.get(renewed).status_code == 200


@given(data=st.data())
def test_nothing_else_is_touched(desk: Desk, data: st.DataObject) -> None:
    """Links that were made up, and those of other threads, are bytes like all others."""
    old, new = later(desk, lambda: signed(desk))
    theirs, _ = later(desk, lambda: signed(desk, f"{THREAD}2"))
    flipped = old[:-1] + ("A" if old[-1] != "A" else "B")
    lasting = old.replace("?sig=1", "?sig=9")
    kept = st.sampled_from([theirs, flipped, lasting, "/proofs/", "?sig=", '"', "&", "."]).map(str.encode)
    pieces = data.draw(st.lists(st.one_of(st.just(old.encode()), kept, st.binary(max_size=8)), max_size=8))

    expected = b"".join(new.encode() if piece == old.encode() else piece for piece in pieces)
    assert desk.links.renew(THREAD, b"".join(pieces)) == expected


@pytest.mark.parametrize("dialect", dialects())
def test_links_are_found_in_every_dialect(desk: Desk, dialect: str) -> None:
    old, new = later(desk, lambda: signed(desk))
    source = Source("s1", "web", old, "A (very) [good] source", metadata={"proof": old})
    ref = SourceRef("s1", quote="It is so.")
    citation = Citation("c1", (ref,), ordinal=1, insert_at=Point(0, 9))
    payload = codec.encode(write(Answer((Part("It is so."),), (citation,), (source,)), dialect).payload)

    assert old.encode() in payload
    assert desk.links.renew(THREAD, payload) == payload.replace(old.encode(), new.encode())


@pytest.mark.parametrize(
    "before", ["http://127.0.0.1:8787", "http://[::1]:80", "https://a.example/cite/wire"]
)
@pytest.mark.parametrize("around", ['{"a":"%s"}', "https://b.example/?to=%s#x", "(%s).", "http://%s"])
def test_links_follow_the_server_to_another_address(desk: Desk, before: str, around: str) -> None:
    old, new = later(desk, lambda: signed(desk))
    moved = old.replace(ADDRESS, before)
    assert desk.links.renew(THREAD, (around % moved).encode()) == (around % new).encode()


def test_links_are_found_in_frames(desk: Desk) -> None:
    old, new = later(desk, lambda: signed(desk))
    sent = [codec.encode({"a": link, "b": f'<a href="{link}&x=1">'}) for link in (old, new)]
    stored, fresh = (encode_frame(Row("e", 1, 1, "i", "event", data, b"")) for data in sent)
    assert desk.links.renew(THREAD, stored) == fresh


# --- who may see one --------------------------------------------------------------------------------------


def test_without_a_link_it_takes_a_key_that_may_read_the_thread(desk: Desk, links: ProofUrls) -> None:
    bare = links.page.partition("?")[0]
    may, must_not = desk.key(**{THREAD: ["read"]}), desk.key(**{THREAD: ["run"], "other": ["*"]})

    assert desk.get(bare, may).status_code == 200
    assert desk.code(bare, must_not) == (403, "forbidden")
    assert desk.code(bare) == (401, "no_credentials")
    assert desk.code(bare, f"{may}x") == (401, "bad_credentials")


@pytest.mark.parametrize(
    "name",
    [
        "..%2f..%2fsecret", "%2e%2e", "x", "a.b", "a.b.png", "%00", "-", ".", "é." + "0" * 32,
        "a." + "0" * 32,
        "AA." + "0" * 31, "AA." + "G" * 32, "AA." + "0" * 32 + ".svg", "AA." + "0" * 32 + ".png.png",
        "AA." + "0" * 32 + "%0a", "_w." + "0" * 32, "QUFB" * 200 + "." + "0" * 32, "7aCA." + "0" * 32,
    ],
)  # fmt: skip
@pytest.mark.parametrize("query", ["", "?sig=", "?sig=1.x", "?whole=true"])
def test_what_is_no_name_is_not_found(desk: Desk, name: str, query: str) -> None:
    """What has a slash in it is not even a name."""
    assert desk.get(f"/proofs/{name}{query}").status_code == 404


def test_a_proof_goes_with_its_thread(desk: Desk, pdf: Document) -> None:
    links = desk.prove(pdf, IN_PDF, "short")
    assert desk.get(links.page).status_code == 200
    asyncio.run(desk.store.drop(channel_of("short")))

    for url in (links.page, links.picture or ""):
        assert desk.code(url) == (404, "not_found")


def test_every_answer_is_documented(desk: Desk) -> None:
    answers = openapi(desk.operations, "1")["paths"]["/proofs/{name}"]["get"]["responses"]
    assert {"200", "400", "401", "403", "404", "422"} <= answers.keys()


# --- what it shows ----------------------------------------------------------------------------------------


def text_of(page: LexborHTMLParser, selector: str) -> str:
    [node] = page.css(selector)
    return node.text()


def test_the_page_shows_the_words_where_they_stand(desk: Desk, policy: Document) -> None:
    links = desk.prove(policy, IN_HTML)
    page, headers = desk.page(links.page), desk.get(links.page).headers

    assert links.picture is None
    assert text_of(page, "mark") == IN_HTML
    assert "Under our refund policy" in text_of(page, ".cite-snippet")
    assert text_of(page, "title") == "Verified: policy.html"
    assert page.css("dd a")[0].attributes["href"] == (
        "https://a.example/p#:~:text=you%20may%20return%20any%20lamp%20within%2030%20days%20of%20delivery"
    )
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert "private" in headers["cache-control"]


def test_what_was_altered_is_said(desk: Desk, pdf: Document) -> None:
    page = desk.page(desk.prove(pdf, IN_PDF.replace("14.2%", "41.2%")).page)
    assert text_of(page, ".chip") == "≠ Altered"
    assert text_of(page, "mark") == IN_PDF.rstrip(".")
    assert "41.2%" in text_of(page, "q")


def rows_of(page: LexborHTMLParser) -> dict[str, str]:
    """What a page says, by what it is about."""
    pairs = zip(page.css("dt"), page.css("dd"), strict=True)
    return {name.text(): text for name, value in pairs if (text := value.text().strip())}


def test_a_source_that_is_gone_leaves_the_words(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    document = desk.shelf.add(b"Lamps are <b>made</b> to be mended, by anybody.", "a.txt")
    links = desk.prove(document, "made</b> to be mended")
    desk.shelf.known.clear()

    page = desk.page(links.page)
    assert not page.css("mark")
    assert rows_of(page)["The source says"] == "made</b> to be mended"
    assert "is gone" in rows_of(page)["Version"]


DATE = "2026-11-16T05:00:00Z"


@pytest.mark.parametrize(
    ("state", "chip", "says", "is_shown"),
    [
        ("unchanged", "✓ Verified", "The source is the same today.", True),
        ("changed", "✓ Verified", f"The source has changed since it was checked on {DATE}.", True),
        ("removed", "✓ Verified", f"The source was removed since it was checked on {DATE}.", True),
        ("unavailable", "✓ Verified", f"can no longer be had from where it was on {DATE}.", True),
        ("damaged", "! Cannot be proved", "nothing is shown here as proved", False),
        ("reads_differently", "! Cannot be proved", "nothing is shown here as proved", False),
    ],
)  # fmt: skip
def test_the_page_says_what_became_of_the_source(
    tmp_path: Path, state: VersionState, chip: str, says: str, is_shown: bool
) -> None:
    """Words and picture are those of the version that was checked, or there are none."""
    desk = Desk(tmp_path)
    document = desk.shelf.add((SAMPLES / "report.pdf").read_bytes(), "report.pdf")
    links = desk.prove(document, IN_PDF)
    desk.shelf.state = state
    page = desk.page(links.page)
    rows = rows_of(page)

    assert text_of(page, ".chip") == chip
    assert says in rows["Version"]
    assert ("This is the version that was checked." in rows["Version"]) is (is_shown and state != "unchanged")
    assert [node.text() for node in page.css("mark")] == ([IN_PDF.rstrip(".")] if is_shown else [])
    assert ("The source says" in rows) is is_shown
    assert bool(page.css("figure")[0].attributes["data-picture"]) is is_shown
    assert rows.get("Verdict on record") == (None if is_shown else f"Verified, on {DATE}")
    assert rows["SHA-256 of the source"] == document.sha256


def test_a_picture_of_a_source_that_is_gone_or_has_no_looks(desk: Desk, policy: Document) -> None:
    page = desk.prove(policy, IN_HTML).page
    assert desk.code(page.replace("?", ".png?")) == (404, "not_found")
    lost = replace(DocumentSet([policy]).check(IN_HTML), sha256="0" * 64, boxes=())
    boxes = (Box(1, 1.0, 1.0, 9.0, 9.0),)
    for sha256, refusal in (("0" * 64, (404, "not_found")), (policy.sha256, (422, "bad_document"))):
        links = desk.keep(replace(lost, boxes=boxes, sha256=sha256))
        assert desk.code(links.picture or "") == refusal
        assert desk.page(links.page).css("figure")[0].attributes["data-picture"] == ""


def tags(page: LexborHTMLParser) -> Counter[str | None]:
    return Counter(node.tag for node in page.css("*"))


hostile = st.one_of(st.just(EVIL), st.text(max_size=20), st.text("<>&\"'/=$ abq\ud800\u202e\0", max_size=20))


@given(source=hostile, quote=hostile, reason=hostile, warning=hostile)
def test_no_text_becomes_an_element(desk: Desk, source: str, quote: str, reason: str, warning: str) -> None:
    """Lone surrogates, as cut streams have them, and controls included."""

    def made(source: str, quote: str, reason: str, warning: str) -> LexborHTMLParser:
        checked = CheckResult(
            None, "partial", reason, source, 1, 0, 3, "found", warnings=(warning,), quote=quote
        )
        return desk.page(desk.keep(checked, "hostile").page)

    page, plain = made(source, quote, reason, warning), made("a", "b", "c", "d")
    assert tags(page) == tags(plain)
    assert not set("\x1b\u202e\ud800") & set(page.html or "")
    if quote.isascii() and quote.isprintable():
        assert text_of(page, "q") == quote


def test_a_hostile_source_is_shown_as_it_is(desk: Desk) -> None:
    text = f"Lamps are {EVIL} to be mended by anybody."
    document = desk.shelf.add(text.encode(), "evil.txt", "javascript:x()")
    checked = DocumentSet([document]).check("to be mended by anybody")
    page = desk.page(desk.keep(checked).page)

    assert "<script>x()</script><img src=x onerror=x()>" in text_of(page, ".cite-snippet")
    assert not page.css("script, dd img, dd a")


# --- how it gets into the log -----------------------------------------------------------------------------


def test_a_verdict_with_a_proof_is_found_by_its_name(desk: Desk, policy: Document) -> None:
    links = desk.prove(policy, IN_HTML, "logged")
    seen, verdict = desk.rows("logged")
    name = links.page.rpartition("/")[2].partition("?")[0].rpartition(".")[2]
    data: dict[str, Any] = codec.decode(verdict.data)

    assert verdict.id == proof_id(name) == f"proof:{name}"
    assert not seen.id.startswith("proof:")
    assert data["type"] == "verdict"
    assert (data["quote"], data["verification"]["citewire"]["proof"]) == (IN_HTML, links.page)


def test_a_verdict_without_a_proof_is_a_row_like_any_other(desk: Desk) -> None:
    """Whatever it says: only what the server itself calls a proof is one."""
    claimed = '"proof":"/proofs/AA.' + "0" * 32
    verdict = {"label": claimed, "citewire": {"status": "missed", "reason": claimed}}
    desk.write("plain", VerdictReached("m", "k", claimed, verdict))
    [row] = desk.rows("plain")
    assert not row.id.startswith("proof:")


def test_a_verdict_that_is_written_twice_is_one_proof(desk: Desk, policy: Document) -> None:
    assert desk.prove(policy, IN_HTML, "twice") == desk.prove(policy, IN_HTML, "twice")
    assert sum(row.id.startswith("proof:") for row in desk.rows("twice")) == 1


def test_who_may_only_run_a_thread_gets_no_new_links(tmp_path: Path) -> None:
    """To join a run of the past needs `run`; that it has working links again takes `read`."""
    asked = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "Refunds?"}]}
    more: dict[str, Any] = {"tools": [], "context": [], "state": {}, "forwardedProps": {}}

    async def run(address: str, *granted: str) -> bytes:
        async with opened_app(tmp_path, key=key, public_url=address, sources=(str(SAMPLES),)) as app:
            await app.server.catalog.wait_until_read()
            answer = await app.ask("POST", "/agui", asked | more, key=app.token({"thread:t": [*granted]}))
            assert answer.status == 200, answer
            return answer.body

    key = Keyring(tmp_path).create()
    before = asyncio.run(run("https://old.example", "run", "read"))
    assert b"https://old.example/proofs/" in before
    assert asyncio.run(run("https://new.example", "run")) == before
    renewed = asyncio.run(run("https://new.example", "run", "read"))
    assert b"https://new.example/proofs/" in renewed
    assert b"https://old.example/proofs/" not in renewed
