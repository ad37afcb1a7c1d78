# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# The library leaves types open.
"""The OpenAPI document: it is one, it tells of every operation, and the server does what it says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from citewire import codec
from support.app import in_thread, opened_app
from support.librarian_sources import SOURCES

# It never ends, which this client would wait for: `test_a_stream_of_sources` begins it, and `test_overview`
# follows the other one.
ENDLESS = "/sources/events"
# What a schema cannot say (exactly one of three fields, an id of 500 bytes) is refused with a 400, which is
# documented; and what is ignored (a field nobody knows) is accepted.
UNTOLD = [positive_data_acceptance, negative_data_rejection]


class Known(NamedTuple):
    """A server with something in it, and the names of that."""

    url: str
    key: str
    names: dict[str, str]
    document: dict[str, Any]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Generator[Known]:
    with in_thread(tmp_path_factory.mktemp("data")) as (url, app):
        headers = {"authorization": f"Bearer {app.key}"}
        with httpx2.Client(base_url=url, headers=headers, trust_env=False) as client:
            yield Known(url, app.key, _filled(client), client.get("/openapi.json").json())


def _filled(client: httpx2.Client) -> dict[str, str]:
    """A source and an answer that cites it, by the names that paths have for them."""
    with client.stream("GET", ENDLESS) as changes:
        added = client.post("/sources?name=returns.pdf", content=SOURCES["returns.pdf"]).json()
        next(line for line in changes.iter_lines() if '"state":"ready"' in line)
    asked = {"id": "u", "role": "user", "content": "What is the refund policy?"}
    client.post("/agui", json={"threadId": "t", "runId": "r", "messages": [asked]}).raise_for_status()
    thread = client.get("/threads/t")
    proof = re.search(r"/proofs/([^?.]+\.\w+)", thread.text)
    assert proof, thread.text
    prepared = client.post("/prepareAttachments", files={"file": ("a.txt", b"Some words.")}).json()
    return {
        "attachment": prepared["attachmentId"],
        "file": "chat/chat.js",
        "pattern": "x:*",
        "thread": "t",
        "run": "r",
        "message": thread.json()["messages"][-1]["id"],
        "source": added["sources"][0]["id"],
        "number": "1",
        "format": "png",
        "name": proof[1],
    }


def _tested(document: dict[str, Any]) -> Iterator[Any]:
    schema: Any = schemathesis.openapi.from_dict(document)
    schema.validate()
    for found in schema.exclude(path=[ENDLESS, "/answers/events"]).get_all_operations():
        yield found.ok()


def _cases(operation: Any) -> st.SearchStrategy[Any]:
    """What fits the document, and where there is something to get wrong, what does not."""
    fits = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    if not (operation.definition.raw.get("parameters") or operation.body):
        return fits
    return fits | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_server_does_what_it_says(known: Known) -> None:
    """Whatever is asked, of what is there or not: no answer that is not documented, and no failure."""
    for operation in _tested(known.document):
        # What is deleted would be gone for all that come later.
        there = st.booleans() if operation.method != "delete" else st.just(False)

        @settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
        @given(case=_cases(operation), there=there)
        def conforms(case: Any, there: bool) -> None:
            if there:
                case.path_parameters.update((name, known.names[name]) for name in case.path_parameters)
            # A key with all rights; `ignored_auth` sees that the same is refused without it.
            headers = {"Authorization": f"Bearer {known.key}"}
            case.call_and_validate(base_url=known.url, headers=headers, excluded_checks=UNTOLD)

        conforms()


def test_it_tells_of_every_operation(tmp_path: Path) -> None:
    """And of nothing else; each says how it ends, what it needs and what its path names."""

    async def main() -> None:
        async with opened_app(tmp_path) as app:
            document = (await app.ask("GET", "/openapi.json", key=None)).json
            told = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
            paths = {each: each.path.replace(":path}", "}") for each in app.server.operations}
            assert told == {(each.method, path) for each, path in paths.items()}
            ids = [one["operationId"] for item in document["paths"].values() for one in item.values()]
            assert len({*ids}) == len(ids)
            for each, path in paths.items():
                one = document["paths"][path][each.method.lower()]
                assert {"400", "413", "414", "429", "431", "503"} <= set(one["responses"]), each
                assert ({"401", "403"} <= set(one["responses"])) or each.needs is None, each
                assert ("security" in one) == (each.needs is not None), each
                named = {each["name"] for each in one["parameters"] if each["in"] == "path"}
                assert named == set(re.findall(r"\{(\w+)\}", path)), each

    asyncio.run(main())


def test_a_stream_of_sources(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened_app(tmp_path) as app:
            answer = await app.ask("GET", ENDLESS, leaves=True)
            assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (
                200,
                "text/event-stream",
            )
            assert codec.decode(answer.body.partition(b"data: ")[2])["sources"] == []
            assert (await app.ask("GET", ENDLESS, key=None)).status == 401

    asyncio.run(main())
