"""DeepCitation's contract, as its client uses it; and what a hostile or unlucky one meets."""

from __future__ import annotations

import asyncio
import io
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from starlette.applications import Starlette

from citewire import codec
from citewire.channels.hub import Hub
from citewire.channels.sqlite import SqliteStore
from citewire.documents.cache import Cache
from citewire.documents.fetch import AddressRefused, FetchError, FetchResult
from citewire.errors import NotFound
from citewire.server.access.capability import FULL, Capability
from citewire.server.access.keys import Caller
from citewire.server.deepcitation.attachments import DAY, LIFETIME, Attachments
from citewire.server.deepcitation.rest import DeepCitation as Contract
from citewire.server.http.operations import routes
from citewire.server.storage.blobs import Blobs
from citewire.verification.engine import Engine
from support.app import App, ask, in_thread, opened_app
from support.deepcitation_client import (
    AuthenticationError,
    DeepCitation,
    DeepCitationError,
    RateLimitError,
    ValidationError,
    citation_key,
)
from support.pdfs import Line, Sheet, make_pdf

Json = dict[str, Any]

ITEMS = [f"Item {n} costs {7 * n} euros and is kept in room {n + 100}." for n in range(1, 21)]
PDF = make_pdf(
    *(
        Sheet([Line(text, y=760 - 20 * at) for at, text in enumerate(ITEMS[first : first + 10])])
        for first in (0, 10)
    )
)
BROKEN = b"%PDF-1.7\nnothing of a PDF but its name"
VERIFY, GET = "/verifyCitations", "/getAttachment"
SMALL = {"max_body": 1 << 20, "max_upload": 2 << 20}


class Served(NamedTuple):
    url: str
    app: App

    def client(self, granted: dict[str, list[str]] | None = None) -> DeepCitation:
        """Somebody with a key of their own, for their attachments or for what is granted."""
        key = self.app.server.keyring.create(Capability.of(granted or {"attachments": ["*"]}))
        return DeepCitation(key, self.url)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with in_thread(tmp_path_factory.mktemp("data"), **SMALL) as (url, app):
        yield Served(url, app)


@pytest.fixture(scope="module")
def client(served: Served) -> Generator[DeepCitation]:
    with served.client() as client:
        yield client


@pytest.fixture(scope="module")
def prepared(client: DeepCitation) -> Json:
    return client.upload_file(PDF, "stock.pdf")


def cite(prepared: Json, quote: str, page: int | None = None, **more: Any) -> Json:
    where = {} if page is None else {"pageNumber": page}
    said = {"type": "document", "attachmentId": prepared["attachmentId"], "fullPhrase": quote}
    return {**said, **where, **more}


def picture(record: Json, form: str) -> Image.Image:
    head, _, data = record["evidence"]["src"].partition(",")
    assert head == f"data:image/{form};base64"
    image = Image.open(io.BytesIO(b64decode(data)))
    image.load()
    return image


# --- the way that works -------------------------------------------------------------------------------------


def test_a_file_is_prepared(client: DeepCitation, prepared: Json) -> None:
    assert prepared["status"] == "ready"
    assert prepared["metadata"] == {
        "filename": "stock.pdf",
        "mimeType": "application/pdf",
        "pageCount": 2,
        "textByteSize": len("\n".join(ITEMS)) + 1,
    }
    portion = prepared["deepTextPromptPortion"]
    assert f'<document id="{prepared["attachmentId"]}">' in portion
    assert f'<page_number_2_index_1>\n<line id="1">{ITEMS[10]}</line>\n{ITEMS[11]}' in portion
    assert not {"error", "urlSource", "urlCache"} & set(prepared)
    shown = client.get_attachment(prepared["attachmentId"])
    assert shown["deepTextPromptPortion"] == portion
    assert [text.strip().splitlines() for text in shown["pageTexts"]] == [ITEMS[:10], ITEMS[10:]]
    assert (shown["id"], shown["status"], shown["source"]) == (prepared["attachmentId"], "ready", "upload")
    assert (shown["fileSize"], shown["expiresAt"]) == (len(PDF), prepared["expiresAt"])


def test_twenty_citations(client: DeepCitation, prepared: Json) -> None:
    """Sixteen that are there, two with another number, one that is nowhere, one of the other page."""
    quotes = [cite(prepared, text, 1 + at // 10) for at, text in enumerate(ITEMS[:16])]
    altered = [cite(prepared, ITEMS[at].replace("costs ", "costs 9"), 2) for at in (16, 17)]
    nowhere = cite(prepared, "The cellar is flooded every spring and nobody minds.")
    elsewhere = cite(prepared, ITEMS[19], 1)
    verdicts = client.verify([*quotes, *altered, nowhere, elsewhere])
    assert len(verdicts) == 20
    for at, each in enumerate(quotes):
        record = verdicts[citation_key(each)]
        assert (record["status"], record["citewire"]["status"]) == ("found", "verified"), record
        assert record["citation"] == each
        assert record["document"]["verifiedPageNumber"] == 1 + at // 10
        assert record["document"]["verifiedLineIds"] == [1 + at % 10]
        assert record["verifiedMatchSnippet"] == ITEMS[at].removesuffix(".")
        assert (record["attachmentId"], record["label"]) == (prepared["attachmentId"], "stock.pdf")
    for each in altered:
        record = verdicts[citation_key(each)]
        assert (record["status"], record["citewire"]["status"]) == ("not_found", "altered")
        assert record["citewire"]["diff"]
    missed = verdicts[citation_key(nowhere)]
    assert (missed["status"], "evidence" in missed) == ("not_found", False)
    assert verdicts[citation_key(elsewhere)]["status"] == "found_on_other_page"
    for each in (*quotes, *altered, elsewhere):
        record = verdicts[citation_key(each)]
        assert (
            dict(zip(("width", "height"), picture(record, "avif").size, strict=True))
            == (record["evidence"]["dimensions"])
        )


@pytest.mark.parametrize("form", ["png", "jpeg", "webp"])
def test_the_picture_is_of_the_form_that_was_asked_for(
    client: DeepCitation, prepared: Json, form: str
) -> None:
    [record] = client.verify([cite(prepared, ITEMS[3])], form).values()
    assert (picture(record, form).format or "").lower() == form


@pytest.mark.parametrize(
    ("citation", "status"),
    [
        ({"fullPhrase": ITEMS[12], "pageNumber": 2, "lineIds": [3]}, "found"),
        ({"full_phrase": ITEMS[12], "page_id": "page_number_2_index_1"}, "found"),
        ({"fullPhrase": ITEMS[12], "pageNumber": 2, "lineIds": [10]}, "found_on_other_line"),
        ({"fullPhrase": ITEMS[12], "pageNumber": 1}, "found_on_other_page"),
        ({"fullPhrase": ITEMS[12], "anchorText": "room 113"}, "found"),
        ({"fullPhrase": ITEMS[12], "anchorText": "cellar"}, "found_phrase_missed_anchor_text"),
        ({"anchorText": "room 113"}, "found_anchor_text_only"),
        ({"fullPhrase": "", "anchorText": "room 999"}, "not_found"),
        ({}, "skipped"),
        ({"fullPhrase": 7}, "skipped"),
        ({"fullPhrase": ITEMS[12], "type": "url"}, "skipped"),
    ],
)
def test_the_words_for_what_became_of_it(
    client: DeepCitation, prepared: Json, citation: Json, status: str
) -> None:
    body = {"data": {"attachmentId": prepared["attachmentId"], "citations": {"a": citation}}}
    record = client.send("POST", VERIFY, json=body)["verifications"]["a"]
    assert record["status"] == status, record
    assert record["citewire"].get("reason") or status.startswith("found"), record


def test_by_its_bytes(client: DeepCitation, served: Served, prepared: Json) -> None:
    [record] = client.verify([cite(prepared, ITEMS[0])]).values()
    body = {"data": {"sha256": record["citewire"]["sha256"], "citations": {"a": {"fullPhrase": ITEMS[0]}}}}
    with served.client() as other:
        assert client.send("POST", "/verifyCitations", json=body)["verifications"]["a"]["status"] == "found"
        with pytest.raises(ValidationError) as caught:
            other.send("POST", "/verifyCitations", json=body)
    assert caught.value.status == 404


def test_a_file_is_converted_and_then_prepared(client: DeepCitation) -> None:
    page = b"<!doctype html><p>Lamps are kept for ten years.</p>"
    converted = client.convert_to_pdf(page, "lamps.html")
    assert converted["status"] == "converted"
    assert converted["metadata"]["originalFilename"] == "lamps.html"
    assert converted["metadata"]["convertedMimeType"] == "text/html"
    ready = client.prepare_converted_file(converted["attachmentId"])
    assert (ready["status"], ready["attachmentId"]) == ("ready", converted["attachmentId"])
    [record] = client.verify([cite(ready, "Lamps are kept for ten years")]).values()
    assert (record["status"], "evidence" in record) == ("found", False)


def test_an_id_of_ones_own_is_replaced_and_deleted(client: DeepCitation) -> None:
    """Bytes that another attachment has as well stay there for it."""
    twin = client.upload_file(PDF, "twin.pdf")
    own = client.upload_file(PDF, "first.pdf", attachmentId="my-own_1")
    assert own["attachmentId"] == "my-own_1"
    second = client.upload_file(b"Only these words are left.", "second.txt", attachmentId="my-own_1")
    assert second["metadata"]["filename"] == "second.txt"
    quotes = [cite(own, ITEMS[0]), cite(own, "Only these words are left"), cite(twin, ITEMS[1])]
    assert [each["status"] for each in client.verify(quotes).values()] == ["not_found", "found", "found"]
    assert client.delete_attachment("my-own_1") == {"attachmentId": "my-own_1", "deleted": True}
    for call in (client.get_attachment, client.delete_attachment):
        with pytest.raises(ValidationError) as caught:
            call("my-own_1")
        assert caught.value.status == 404
    [record] = client.verify([cite(twin, ITEMS[2])], "png").values()
    assert picture(record, "png").width > 100


# --- what fails ---------------------------------------------------------------------------------------------


def test_a_failed_attachment_does_not_lose_the_others(client: DeepCitation) -> None:
    """Though the client gives up all when one is refused."""
    made = client.prepare_attachments([(PDF, "good.pdf"), (BROKEN, "bad.pdf"), (b"", "empty.txt")])
    good, bad, empty = made["attachments"]
    assert [each["status"] for each in (good, bad, empty)] == ["ready", "error", "error"]
    assert bad["error"]
    assert empty["error"]
    assert (bad["deepTextPromptPortion"], bad["metadata"]["filename"]) == ("", "bad.pdf")
    verdicts = client.verify([cite(bad, ITEMS[0]), cite(good, ITEMS[1]), cite(empty, ITEMS[2])])
    assert [each["status"] for each in verdicts.values()] == ["skipped", "found", "skipped"]
    assert next(iter(verdicts.values()))["citewire"]["reason"] == bad["error"]
    assert client.get_attachment(bad["attachmentId"])["status"] == "error"


NOBODY = {"attachmentId": "nobody"}
MANY = {str(number): dict[str, Any]() for number in range(501)}
REFUSED: list[tuple[str, dict[str, Any], int]] = [
    ("/prepareAttachments", {"json": {}}, 400),
    ("/prepareAttachments", {"json": []}, 400),
    ("/prepareAttachments", {"json": {"url": 1}}, 400),
    ("/prepareAttachments", {"json": {"url": "file:///etc/passwd"}}, 400),
    ("/prepareAttachments", {"json": {"url": "http://127.0.0.1/"}}, 400),
    ("/prepareAttachments", {"json": {"url": "http://169.254.169.254/latest"}}, 400),
    ("/prepareAttachments", {"json": {"attachmentId": "nobody"}}, 404),
    ("/prepareAttachments", {"content": b"x", "headers": {"content-type": "text/plain"}}, 400),
    ("/prepareAttachments", {"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400),
    ("/prepareAttachments", {"files": {"a": b"a", "b": b"b"}}, 400),
    ("/prepareAttachments", {"files": {"file": ("..", b"a")}}, 400),
    ("/prepareAttachments", {"files": {"file": b"a"}, "data": {"attachmentId": "../../x"}}, 400),
    ("/prepareAttachments", {"files": {"file": b"a"}, "data": {"attachmentId": "__proto__"}}, 400),
    ("/prepareAttachments", {"files": {"file": bytes(3 << 20)}}, 413),
    ("/convertFile", {"json": {"url": "gopher://x"}}, 400),
    (VERIFY, {"content": b"{"}, 400),
    (VERIFY, {"json": {}}, 400),
    (VERIFY, {"json": {"data": {**NOBODY, "citations": {}}}}, 404),
    (VERIFY, {"json": {"data": {**NOBODY, "citations": []}}}, 400),
    (VERIFY, {"json": {"data": {**NOBODY, "citations": {"__proto__": {}}}}}, 400),
    (
        VERIFY,
        {"json": {"data": {**NOBODY, "citations": MANY}}},
        400,
    ),
    (VERIFY, {"json": {"data": {**NOBODY, "citations": {}, "outputImageFormat": "svg"}}}, 400),
    (VERIFY, {"content": b" " * (1 << 20 | 1)}, 413),
    (GET, {"json": {"attachmentId": "nobody"}}, 404),
    (GET, {"json": {}}, 400),
    ("/attachments/nobody/extend", {"json": {"duration": "month"}}, 404),
    ("/attachments/nobody/extend", {"json": {"duration": "week"}}, 400),
]


@pytest.mark.parametrize(("path", "body", "status"), REFUSED)
def test_errors_have_the_documented_codes(
    client: DeepCitation, path: str, body: dict[str, Any], status: int
) -> None:
    body.setdefault("headers", {"content-type": "application/json"} if "content" in body else {})
    with pytest.raises(ValidationError) as caught:
        client.send("POST", path, **body)
    assert caught.value.status == status, caught.value
    assert str(caught.value)


def test_who_may_not(served: Served, client: DeepCitation, prepared: Json) -> None:
    with DeepCitation("nobody.x:secret", served.url) as nobody, pytest.raises(AuthenticationError) as caught:
        nobody.upload_file(PDF)
    assert caught.value.status == 401
    with served.client({"attachments": ["add"]}) as some:
        own = some.upload_file(b"Some words.", "words.txt")
        for call in (some.get_attachment, some.delete_attachment):
            with pytest.raises(AuthenticationError) as caught:
                call(own["attachmentId"])
            assert caught.value.status == 403
    response = httpx2.get(f"{served.url}/verifyCitations", trust_env=False)
    assert response.status_code == 405
    assert client.get_attachment(prepared["attachmentId"])["status"] == "ready"


def test_what_another_key_has_cannot_be_seen(served: Served, prepared: Json) -> None:
    """Nor is it a source of the server, in which anybody's quotes are looked for."""
    name = prepared["attachmentId"]
    with served.client({"attachments": ["*"], "verify": ["verify"], "source:*": ["*"]}) as other:
        calls: list[Callable[[], Json]] = [
            lambda: other.get_attachment(name),
            lambda: other.delete_attachment(name),
            lambda: other.extend_expiration(name, "year"),
            lambda: other.prepare_converted_file(name),
            lambda: other.verify([cite(prepared, ITEMS[0])]),
        ]
        for call in calls:
            with pytest.raises(ValidationError) as caught:
                call()
            assert caught.value.status == 404
        anywhere = {"data": {"citations": {"a": {"fullPhrase": ITEMS[0]}}}}
        found = other.send("POST", VERIFY, json=anywhere)["verifications"]["a"]
        assert found["status"] in ("skipped", "not_found"), found
        assert other.send("GET", "/sources")["sources"] == []
        own = other.upload_file(b"Words of their own.", "own.txt", attachmentId=name)
        [record] = other.verify([cite(own, "Words of their own")]).values()
        assert record["status"] == "found"
        other.delete_attachment(name)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(max_size=20).filter(lambda key: key not in ("__proto__", "constructor", "prototype")),
        st.recursive(
            # What JSON can say.
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=20),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["fullPhrase", "anchorText", "pageNumber", "lineIds", "type", "claimText"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=6,
        ),
        max_size=5,
    )
)
def test_whatever_is_sent_each_citation_has_a_record(
    client: DeepCitation, prepared: Json, citations: Json
) -> None:
    sent = {**citations, "good": {"fullPhrase": ITEMS[0]}}
    body = {"data": {"attachmentId": prepared["attachmentId"], "citations": sent}}
    records = client.send("POST", VERIFY, json=body)["verifications"]
    assert set(records) == set(sent)
    assert records["good"]["status"] == "found"


def test_too_many_requests(tmp_path: Path) -> None:
    with (
        in_thread(tmp_path, rate=0.001, burst=1) as (url, app),
        DeepCitation(app.key, url) as client,
    ):
        with pytest.raises(ValidationError):
            client.get_attachment("nobody")
        with pytest.raises(RateLimitError) as caught:
            client.get_attachment("nobody")
    assert (caught.value.status, caught.value.is_retryable) == (429, True)


# --- sources of the server ----------------------------------------------------------------------------------


def test_sources_of_the_server_can_be_cited_too(served: Served) -> None:
    """By who may look in them: by their names, by their ids, and without any."""
    quote = {"fullPhrase": "Returns are free for a month"}
    with served.client({"source:*": ["*"], "attachments": ["*"], "verify": ["verify"]}) as friend:
        text = b"Returns are free for a month."
        [source] = friend.send("POST", "/sources?name=returns.txt", content=text)["sources"]
        for named in ({"attachmentId": "returns.txt"}, {"attachmentId": source["id"]}, {}):
            said = friend.send("POST", VERIFY, json={"data": {**named, "citations": {"a": quote}}})
            assert said["verifications"]["a"]["status"] == "found", said
    with served.client() as stranger:
        for named, kind in (({"attachmentId": "returns.txt"}, ValidationError), ({}, AuthenticationError)):
            with pytest.raises(DeepCitationError) as caught:
                stranger.send("POST", VERIFY, json={"data": {**named, "citations": {"a": quote}}})
            assert type(caught.value) is kind


# --- time ---------------------------------------------------------------------------------------------------


def test_it_survives_a_restart(tmp_path: Path) -> None:
    """What was acknowledged, as it was; and bytes that belong to nothing do not stay."""
    form = (
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="words.txt"\r\n\r\n'
        b"Words that stay.\r\n--x--\r\n"
    )
    loose = tmp_path / "attachments" / "ab" / ("ab" * 32)

    async def first() -> tuple[str, Json]:
        async with opened_app(tmp_path) as app:
            sent = await app.ask(
                "POST", "/prepareAttachments", form, content_type="multipart/form-data; boundary=x"
            )
            name = sent.json["attachmentId"]
            await app.ask("POST", f"/attachments/{name}/extend", {"duration": "year"})
            return app.key, (await app.ask("POST", GET, {"attachmentId": name})).json

    async def second(key: str, before: Json) -> None:
        async with opened_app(tmp_path) as app:
            found = await app.ask("POST", GET, {"attachmentId": before["id"]}, key=key)
            assert found.json == before
            data = {"attachmentId": before["id"], "citations": {"a": {"fullPhrase": "Words that stay"}}}
            said = await app.ask("POST", VERIFY, {"data": data}, key=key)
            assert said.json["verifications"]["a"]["status"] == "found"
            assert not loose.exists()

    key, before = asyncio.run(first())
    loose.parent.mkdir(exist_ok=True)
    loose.write_bytes(b"left by a crash")
    asyncio.run(second(key, before))


class Desk(NamedTuple):
    """The contract alone, with a clock and a web of its own."""

    attachments: Attachments
    time: list[float]
    folder: Path
    asgi: Starlette

    async def prepare(self, path: str = "/prepareAttachments", **body: Any) -> Any:
        headers = [("content-type", "application/json")]
        return await ask(self.asgi, "POST", path, codec.encode(body), headers)

    async def upload(self, data: bytes) -> str:
        async with self.attachments.draft() as draft:
            await draft.write(data)
            return (await self.attachments.upload("k", None, draft, "a.txt", "")).id

    @property
    def files(self) -> int:
        return sum(path.is_file() for path in (self.folder / "attachments").glob("??/*"))


@asynccontextmanager
async def desk(folder: Path, fetch: Callable[[str], FetchResult] | None = None) -> AsyncGenerator[Desk]:
    time = [1_800_000_000.0]
    store = SqliteStore(folder)
    hub = Hub(store)
    try:
        async with Engine(cache=Cache(folder / "cache"), workers=1) as engine:
            attachments = Attachments(hub, Blobs(folder / "attachments"), engine, fetch, lambda: time[0])
            await attachments.open()
            operations = Contract(attachments, engine, 30).operations()
            asgi = Starlette(routes=routes(operations, lambda request: Caller("k", FULL)))
            yield Desk(attachments, time, folder, asgi)
    finally:
        hub.close()
        await store.close()


def at_desk(folder: Path, main: Callable[[Desk], Awaitable[None]], fetch: Any = None) -> None:
    async def opened() -> None:
        async with desk(folder, fetch) as here:
            await main(here)

    asyncio.run(opened())


def test_it_expires_unless_it_is_extended(tmp_path: Path) -> None:
    async def main(here: Desk) -> None:
        short, long = await here.upload(b"Gone in a month."), await here.upload(b"Gone in a year.")
        for seconds in (365 * DAY, 365 * DAY, 30 * DAY):
            extended = await here.attachments.extend("k", long, seconds)
            assert extended.expires == here.time[0] + 365 * DAY
        here.time[0] += LIFETIME - 1
        assert here.attachments.find("k", short).id == short
        here.time[0] += 1
        with pytest.raises(NotFound):
            here.attachments.find("k", short)
        assert here.files == 2
        await here.attachments.sweep()
        assert here.files == 1
        assert here.attachments.find("k", long).id == long
        here.time[0] += 365 * DAY
        await here.attachments.sweep()
        assert here.files == 0

    at_desk(tmp_path, main)


def test_what_expired_is_gone_after_a_restart(tmp_path: Path) -> None:
    async def first(here: Desk) -> None:
        await here.upload(b"Here today.")
        here.time[0] += LIFETIME
        await here.attachments.sweep()

    async def second(here: Desk) -> None:
        assert here.files == 0
        assert (await here.prepare("/getAttachment", attachmentId="x")).status == 404

    at_desk(tmp_path, first)
    at_desk(tmp_path, second)


# --- the web ------------------------------------------------------------------------------------------------


def test_a_url(tmp_path: Path) -> None:
    """It is fetched once a day, unless somebody wants it fresh; where it fails, that is told and kept."""
    asked: list[str] = []

    def fetch(url: str) -> FetchResult:
        asked.append(url)
        if "away" in url:
            raise FetchError("nobody answers there")
        if "inside" in url:
            raise AddressRefused("not a public address")
        return FetchResult(b"<!doctype html><p>Opening hours are from 9 to 5.</p>", url, "text/html")

    async def main(here: Desk) -> None:
        url = "https://www.shop.example/hours.html"
        first = (await here.prepare(url=url, unsafeFastUrlOutput=True)).json
        assert first["status"] == "ready"
        assert first["urlSource"] == {"url": url, "domain": "shop.example"}
        assert first["metadata"]["filename"] == "hours.html"
        assert first["urlCache"]["cached"] is False
        again = (await here.prepare(url=url)).json
        assert again["urlCache"] == {**first["urlCache"], "cached": True}
        assert again["attachmentId"] == first["attachmentId"]
        named = (await here.prepare(url=url, attachmentId="mine")).json
        assert (named["attachmentId"], named["urlCache"]["cached"]) == ("mine", True)
        assert named["deepTextPromptPortion"] != ""
        assert len(asked) == 1
        fresh = (await here.prepare(url=url, skipCache=True)).json
        assert fresh["urlCache"]["cached"] is False
        here.time[0] += DAY
        assert (await here.prepare(url=url)).json["urlCache"]["cached"] is False
        assert len(asked) == 3
        away = (await here.prepare(url="https://away.example/")).json
        assert (away["status"], away["error"]) == ("error", "nobody answers there")
        shown = (await here.prepare("/getAttachment", attachmentId=away["attachmentId"])).json
        assert (shown["status"], shown["source"]) == ("error", "url")
        data = {"attachmentId": away["attachmentId"], "citations": {"a": {"fullPhrase": "9 to 5"}}}
        said = (await here.prepare("/verifyCitations", data=data)).json["verifications"]["a"]
        assert (said["status"], said["citewire"]["reason"]) == ("skipped", "nobody answers there")
        refused = await here.prepare(url="https://inside.example/")
        assert (refused.status, refused.code) == (400, "bad_shape")

    at_desk(tmp_path, main, fetch)
