"""The examples run: each app, with the real client in front of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from support.agents import need_agents, serve
from support.agui_node import RealClient
from support.cases import ROOT


@pytest.fixture(scope="module")
def client() -> Iterator[RealClient]:
    with RealClient() as client:
        yield client


def app(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


@pytest.mark.parametrize(
    ("name", "verified"), [("fastapi_app", 2), ("langgraph_app", 1), ("pydantic_ai_app", 0)]
)
def test_an_app_answers_with_its_citations_checked(client: RealClient, name: str, verified: int) -> None:
    need_agents()
    with serve(app(name)) as url:
        asked = [{"id": "u", "role": "user", "content": "Can I have my money back?"}]
        answer = client.run_at(f"{url}/agui", messages=asked)
    assert (answer["outcome"], answer["warnings"]) == ("completed", [])
    assert "CITATION_DATA" not in answer["messages"][-1]["content"]
    [message] = answer["state"]["deepcitation"]["messages"].values()
    assert (message["status"], message["summary"]["total"], message["summary"]["verified"]) == (
        "complete",
        verified,
        verified,
    )
