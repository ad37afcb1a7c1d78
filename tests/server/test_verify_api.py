"""`POST /verify`: what may be sent, what comes back, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Message
from typer.testing import CliRunner

from citewire import cli
from citewire.server.access.capability import Capability
from citewire.server.access.keys import Caller, Keyring
from citewire.server.answers.verify_api import MOST_QUOTES, VerifyApi
from citewire.server.http.operations import openapi, routes
from citewire.server.ops.settings import Settings
from citewire.verification.engine import Engine
from citewire.verification.sources import SourceInput
from support.cases import ROOT

SAMPLES = ROOT / "src/citewire/samples"
HANDBOOK = "Everyone has 28 days of paid holiday a year"
REPORT = "We saw revenue grow by 14.2% in 2025"
NOTE = {"name": "note.txt", "text": "Parcels are delivered within 3 days.\nNobody is at home on Mondays."}
PDF = {"name": "report.pdf", "base64": b64encode((SAMPLES / "report.pdf").read_bytes()).decode()}
ENTRIES = {
    "handbook.md": [{"id": 1, "full_phrase": HANDBOOK}],
    "note.txt": [{"id": 2, "full_phrase": "Parcels are delivered within 5 days."}],
}
ANSWER = (
    "There are 28 days of holiday [1]. Parcels take 5 days [2]. The moon is made of cheese.\n\n"
    f"<<<CITATION_DATA>>>\n{json.dumps(ENTRIES)}\n<<<END_CITATION_DATA>>>"
)


class Watched(Engine):
    """Says which scopes it was given, and which it was told to forget."""

    def __init__(self, *sources: SourceInput) -> None:
        super().__init__(sources, workers=1)
        self.scopes: list[str] = []
        self.forgotten: list[str] = []
        self.added = asyncio.Event()

    async def add(self, *sources: SourceInput, scope: str | None = None, is_kept: bool = False) -> None:
        self.scopes.append(str(scope))
        await super().add(*sources, scope=scope, is_kept=is_kept)
        self.added.set()

    async def forget(self, scope: str) -> None:
        await super().forget(scope)
        self.forgotten.append(scope)


class Desk:
    """A server of checks that knows the handbook."""

    def __init__(self, folder: Path) -> None:
        self.keyring = Keyring(folder)
        self.key = self.keyring.create(Capability.of({"verify": ["verify"]}))
        self.engine = Watched(SAMPLES / "handbook.md")
        self.operations = VerifyApi(self.engine, Settings()).operations()
        self.app = Starlette(routes=routes(self.operations, self.authenticate))
        self.runner = asyncio.Runner()
        self.runner.run(self.engine.__aenter__())

    def authenticate(self, request: Request) -> Caller:
        return self.keyring.caller(request.headers.get("authorization"))

    def close(self) -> None:
        self.runner.run(self.engine.aclose())
        self.runner.close()

    def post_all(self, *bodies: Any, key: str | None = None) -> list[httpx2.Response]:
        """What becomes of requests that are made at once."""
        headers = {"authorization": f"Bearer {key or self.key}"} if key != "" else {}

        async def main() -> list[httpx2.Response]:
            transport = httpx2.ASGITransport(app=self.app)
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://cite.example", headers=headers
            ) as client:
                return await asyncio.gather(*(client.post("/verify", json=body) for body in bodies))

        return self.runner.run(main())

    def post(self, body: Any) -> dict[str, Any]:
        [response] = self.post_all(body)
        assert response.status_code == 200, response.text
        return response.json()

    def statuses(self, body: Any) -> list[str]:
        return [check["status"] for check in self.post(body)["checks"]]

    def error(self, body: Any, key: str | None = None) -> tuple[int, str, str]:
        [response] = self.post_all(body, key=key)
        error = response.json()["error"]
        return response.status_code, error["code"], error["message"]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Generator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("keys"))
    yield desk
    desk.close()
    assert sorted(desk.engine.scopes) == sorted(desk.engine.forgotten)


def quotes(*texts: str, **more: Any) -> dict[str, Any]:
    return {"quotes": [{"quote": text} for text in texts], **more}


# --- what is checked --------------------------------------------------------------------------------------


def test_quotes_in_the_sources_of_the_server(desk: Desk) -> None:
    asked = [
        {"id": "a", "quote": HANDBOOK, "source": "handbook.md", "page": 1, "line": 3},
        {"id": 7, "quote": HANDBOOK.replace("28", "82")},
        {"quote": "The moon is made of cheese, as everybody knows."},
        {"id": "b", "quote": HANDBOOK, "source": "elsewhere.pdf"},
    ]
    told = desk.post({"quotes": asked})
    first, altered, *_ = told["checks"]

    assert [check["id"] for check in told["checks"]] == ["a", "7", None, "b"]
    assert [check["status"] for check in told["checks"]] == ["verified", "altered", "missed", "skipped"]
    assert told["counts"] == {"verified": 1, "altered": 1, "missed": 1, "skipped": 1}
    assert (first["source"], first["page"], first["quote_found"]) == ("handbook.md", 1, HANDBOOK)
    assert first["warnings"] == ["on line 18, not 3"]
    assert (altered["diff"][0]["quote"], altered["diff"][0]["source"]) == ("82", "28")
    assert (told["uncited"], told["problems"]) == ([], [])


def test_an_answer_with_sources_of_its_own(desk: Desk) -> None:
    told = desk.post({"answer": ANSWER, "sources": [NOTE]})
    assert [check["status"] for check in told["checks"]] == ["verified", "altered"]
    assert [check["source"] for check in told["checks"]] == ["handbook.md", "note.txt"]
    assert [sentence["text"] for sentence in told["uncited"]] == ["The moon is made of cheese."]


def test_a_file_of_any_kind(desk: Desk) -> None:
    [check] = desk.post(quotes(REPORT, sources=[PDF]))["checks"]
    assert (check["status"], check["source"], check["page"]) == ("verified", "report.pdf", 2)
    assert check["boxes"][0].keys() == {"page", "left", "top", "right", "bottom"}
    assert len(check["sha256"]) == 64


MESSAGE = {"id": "m1", "role": "assistant", "content": "28 days [^a]. Nothing else [^b]."}
NGAF = {
    "messages": [MESSAGE, {**MESSAGE, "id": "m2"}],
    "state": {
        "citations": {
            "m1": [{"id": "a", "title": "handbook.md", "snippet": HANDBOOK}, {"id": "b", "title": "T"}, 7],
            "m2": [{"id": "a", "title": "handbook.md", "snippet": "Nobody has holidays, ever and ever."}],
        }
    },
}


@pytest.mark.parametrize("dialect", [None, "ngaf"])
@pytest.mark.parametrize("as_text", [True, False])
def test_every_answer_of_a_payload(desk: Desk, dialect: str | None, as_text: bool) -> None:
    payload = json.dumps(NGAF) if as_text else NGAF
    told = desk.post({"payload": payload, **({"dialect": dialect} if dialect else {})})
    checks = [(check["answer"], check["id"], check["status"]) for check in told["checks"]]

    assert checks == [("m1", "a", "verified"), ("m1", "b", "skipped"), ("m2", "a", "missed")]
    assert told["counts"] == {"missed": 1, "skipped": 1, "verified": 1}
    assert {sentence["answer"] for sentence in told["uncited"]} <= {"m1", "m2"}
    assert told["problems"][0]["path"].startswith("$")


def test_it_says_what_the_command_line_says(desk: Desk, tmp_path: Path) -> None:
    """Under the same names, and of the same quote the same."""
    (tmp_path / "note.txt").write_text(NOTE["text"])
    (tmp_path / "answer.json").write_text(json.dumps(NGAF))
    arguments = ["verify", str(tmp_path / "answer.json"), "--sources", str(SAMPLES / "handbook.md")]
    result = CliRunner().invoke(cli.app, [*arguments, "--format", "json"], prog_name="citewire")
    assert result.exit_code == 0, result.output
    first = json.JSONDecoder().raw_decode(result.stdout)[0]
    told = desk.post({"payload": NGAF})

    def bare(check: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in check.items() if name not in ("proof", "answer")}

    assert first.keys() - {"answer"} == told.keys() - {"problems"}
    assert [bare(check) for check in told["checks"] if check["answer"] == "m1"] == [
        *map(bare, first["checks"])
    ]


# --- sources that come with a request ---------------------------------------------------------------------


def test_they_are_gone_with_it(desk: Desk) -> None:
    assert desk.statuses(quotes("Parcels are delivered within 3 days", sources=[NOTE])) == ["verified"]
    assert desk.statuses(quotes("Parcels are delivered within 3 days")) == ["missed"]


def test_no_other_request_sees_them(desk: Desk) -> None:
    days = ["Monday", "Tuesday", "Friday"]
    asked = [{"quote": f"We are closed on every {day}.", "source": "days.txt"} for day in days]
    bodies = [
        {"quotes": asked, "sources": [{"name": "days.txt", "text": f"We are closed on every {day}."}]}
        for day in days
    ]
    for at, response in enumerate(desk.post_all(*bodies)):
        statuses = [check["status"] for check in response.json()["checks"]]
        assert statuses == ["verified" if at == number else "altered" for number in range(3)]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"sources": [NOTE]}, "verified"),
        ({"sources": [NOTE], "only": "given"}, "missed"),
        ({"only": "given"}, "skipped"),
        ({}, "verified"),
    ],
)
def test_those_of_the_server_count_unless_it_is_said(desk: Desk, more: Any, expected: str) -> None:
    assert desk.statuses(quotes(HANDBOOK, **more)) == [expected]


def test_one_that_cannot_be_read_is_said(desk: Desk) -> None:
    broken = {"name": "broken.pdf", "base64": b64encode(b"%PDF-1.7 and no more").decode()}
    told = desk.post(quotes(HANDBOOK, "The moon is made of cheese.", sources=[broken, NOTE]))

    assert [check["status"] for check in told["checks"]] == ["verified", "missed"]
    assert told["checks"][1]["warnings"] == ["not looked for in broken.pdf"]
    assert [(problem["code"], problem["path"]) for problem in told["problems"]] == [
        ("bad_document", "broken.pdf")
    ]


def test_a_name_may_be_an_address_or_a_title(desk: Desk) -> None:
    source = {**NOTE, "url": "https://a.example/parcels", "title": "On parcels"}
    asked = [
        {"quote": "delivered within 3 days", "source": name}
        for name in ("https://a.example/parcels", "on parcels", "NOTE", "../../note.txt")
    ]
    told = desk.post({"quotes": asked, "sources": [source]})
    assert [check["status"] for check in told["checks"]] == ["verified"] * 3 + ["skipped"]


# --- when it takes too long, or nobody waits --------------------------------------------------------------


def test_what_takes_too_long_is_pending(desk: Desk) -> None:
    told = desk.post({"answer": ANSWER, "sources": [NOTE], "deadline": 1e-9})
    assert [(check["status"], check["reason"]) for check in told["checks"]] == [("pending", "deadline")] * 2
    assert [check["id"] for check in told["checks"]] == [
        check["id"] for check in desk.post({"answer": ANSWER})["checks"]
    ]
    assert told["counts"] == {"pending": 2}


def scope_of(desk: Desk) -> dict[str, Any]:
    headers = [(b"authorization", f"Bearer {desk.key}".encode()), (b"content-type", b"application/json")]
    return {
        "type": "http", "method": "POST", "path": "/verify", "query_string": b"", "headers": headers,
        "root_path": "", "http_version": "1.1", "scheme": "http",
    }  # fmt: skip


@pytest.mark.parametrize("how", ["leaves", "is cancelled"])
def test_a_request_that_ends_early_leaves_nothing(desk: Desk, how: str) -> None:
    """A source that is still to be read, and a client that is gone once it was taken in."""
    body = json.dumps(quotes(REPORT, sources=[PDF])).encode()
    messages: list[Message] = [{"type": "http.request", "body": body}]
    sent: list[Message] = []

    async def main() -> None:
        engine = desk.engine
        engine.added = asyncio.Event()

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await engine.added.wait()
            if how == "leaves":
                return {"type": "http.disconnect"}
            return await asyncio.Future[Message]()

        async def send(message: Message) -> None:
            sent.append(message)

        task = asyncio.create_task(desk.app(scope_of(desk), receive, send))  # type: ignore[arg-type]
        await engine.added.wait()
        if how == "is cancelled":
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    before = len(desk.engine.forgotten)
    desk.runner.run(main())
    assert sent == []
    assert len(desk.engine.forgotten) == before + 1
    assert desk.engine.scope_sources(desk.engine.scopes[-1]) == ()


# --- what is refused --------------------------------------------------------------------------------------


ONE_OF = "send exactly one of `answer`, `payload` and `quotes`"
BAD: list[tuple[Any, str]] = [
    ({}, ONE_OF),
    ({"sources": [NOTE]}, ONE_OF),
    ({"answer": "x", "quotes": []}, ONE_OF),
    ({"answer": "x", "payload": {}}, ONE_OF),
    ({"payload": None}, ONE_OF),
    ({"answer": "x", "dialect": "ngaf"}, "$.dialect: only a payload has a dialect"),
    (quotes("x", sources=[{"name": "a"}]), "$.sources[0]: a source has either `text` or `base64`"),
    (quotes("x", sources=[NOTE, {**NOTE, "base64": ""}]), "$.sources[1]: a source has either"),
    (quotes("x", sources=[{"name": "a", "base64": "?"}]), "$.sources[0].base64: Invalid base64"),
    (quotes("x", sources=[{"name": "", "text": "a"}]), "$.sources[0].name: "),
    (quotes("x", sources=[NOTE] * 101), "$.sources: "),
    (quotes("x", source=[NOTE]), "unknown field `source`"),
    (quotes("x", only="mine"), "$.only: "),
    (quotes("x", deadline=0), "$.deadline: "),
    ({"quotes": [{"quote": "x", "page": 0}]}, "$.quotes[0].page: "),
    ({"quotes": [{"id": "a"}]}, "$.quotes[0]: Object missing required field `quote`"),
    ({"quotes": ["x"]}, "$.quotes[0]: "),
    (quotes(*["x"] * (MOST_QUOTES + 1)), "$.quotes: "),
    ({"answer": "x" * (1 << 20) + "x"}, "$.answer: "),
    ([], "Expected `object`"),
]


@pytest.mark.parametrize(("body", "message"), BAD)
def test_what_cannot_be_asked(desk: Desk, body: Any, message: str) -> None:
    status, code, said = desk.error(body)
    assert (status, code) == (400, "bad_shape")
    assert message in said


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"payload": {}, "dialect": "latin"}, "unknown_dialect"),
        ({"payload": {"a": 1}}, "undetected_dialect"),
        ({"payload": 7}, "undetected_dialect"),
        ({"payload": "{", "dialect": "ngaf"}, "bad_json"),
        ({"payload": [], "dialect": "salesforce"}, "bad_shape"),
    ],
)
def test_a_payload_that_cannot_be_read(desk: Desk, body: Any, code: str) -> None:
    assert desk.error(body)[:2] == (400, code)


def test_more_quotes_than_are_checked_at_once(desk: Desk) -> None:
    entries = {"a": [{"id": n, "full_phrase": f"quote {n}"} for n in range(MOST_QUOTES + 1)]}
    block = f"<<<CITATION_DATA>>>\n{json.dumps(entries)}\n<<<END_CITATION_DATA>>>"
    assert f"{MOST_QUOTES + 1} quotes" in desk.error({"answer": block})[2]


def test_it_takes_the_capability(desk: Desk) -> None:
    other = desk.keyring.create(Capability.of({"thread:*": ["*"], "verify": ["read"]}))
    assert desk.error(quotes("x"), other)[:2] == (403, "forbidden")
    assert desk.error(quotes("x"), "")[:2] == (401, "no_credentials")


def test_it_is_documented(desk: Desk) -> None:
    document = openapi(desk.operations, "1")
    schemas = document["components"]["schemas"]
    assert document["paths"]["/verify"]["post"]["x-capability"] == {"verify": ["verify"]}
    assert {"counts", "checks", "uncited", "problems"} == schemas["CheckReport"]["properties"].keys()
    assert {"id", "status", "quote_found", "boxes", "answer"} <= schemas["Check"]["properties"].keys()


anything = st.text(max_size=30)
entries = st.fixed_dictionaries(
    {"quote": anything},
    optional={
        "id": anything | st.integers(-(10**20), 10**20), "source": anything, "prefix": anything,
        "suffix": anything, "page": st.integers(1, 10**20), "line": st.integers(1, 10**20),
    },
)  # fmt: skip


@settings(max_examples=30)
@given(
    st.one_of(
        st.fixed_dictionaries({"quotes": st.lists(entries, max_size=3)}),
        st.fixed_dictionaries({"answer": st.text("<>cite=\"'[]^0 abc\n", max_size=40)}),
    ),
    st.lists(st.fixed_dictionaries({"name": st.text(min_size=1, max_size=9), "text": anything}), max_size=2),
)
def test_whatever_it_is_it_is_answered(desk: Desk, body: dict[str, Any], sources: list[Any]) -> None:
    checks = desk.post({**body, "sources": sources})["checks"]
    assert "quotes" not in body or len(checks) == len(body["quotes"])


@pytest.mark.parametrize("piece", [" ", "It is so, they say [1]. ", "a b c\n", "<cite id='1'>a b c</cite> "])
def test_an_answer_as_long_as_may_be_is_answered(desk: Desk, piece: str) -> None:
    """Within the seconds for a test: what cost more with every citation or blank would take hours."""
    assert desk.post({"answer": (piece * (1 << 20))[: 1 << 20]})["problems"] == []
