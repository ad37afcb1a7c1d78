"""The middleware without a log: verdicts in a posted state that it did not write are reached again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from typing import Any

import pytest

from citewire.agui import Thread
from citewire.agui.events import RunInput, to_dict
from citewire.agui.middleware import Citing
from citewire.agui.posted import is_posted
from citewire.verification.library import Checked
from citewire.verification.verifier import Asked, each
from test_runs import TEXT, Words
from weaving import FINISHED, KEY, STARTED, answer, block, messages

Json = dict[str, Any]
USER: Json = {"id": "u", "role": "user", "content": "?"}


class Counting(Words):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.quotes: list[str] = []

    async def check(self, quotes: Iterable[Asked] | AsyncIterable[Asked]) -> AsyncGenerator[Checked]:
        async def counted() -> AsyncIterator[Asked]:
            async for asked in each(quotes):
                self.quotes.append(asked.quote)
                yield asked

        async for checked in super().check(counted()):
            yield checked


async def run(citing: Citing, state: Any, text: str = TEXT, name: str = "m") -> Thread:
    """What a client has after a run that it started with this state."""

    async def agent(_: RunInput) -> AsyncIterator[Any]:
        for event in (STARTED, *answer(text, name), FINISHED):
            yield event

    client = Thread(messages=[USER], state=state)
    given = RunInput(thread_id="t", run_id="r", messages=[USER], state=state)
    client.extend([to_dict(event) async for event in citing(given, agent)])
    assert "bad_patch" not in {problem.code for problem in client.agui.problems}
    return client


def posted(client: Thread) -> Any:
    """The state as a client writes it, to which 1.0 is 1."""
    return json.loads(json.dumps(client.agui.state))


def forge(state: Any) -> Any:
    """What was missed is verified now, wherever that stands."""
    return json.loads(json.dumps(state).replace('"missed"', '"verified"').replace('"not_found"', '"found"'))


MISSED = f"Lyon [1].{block('Lyon is the capital of France.')}"


def test_what_it_wrote_itself_is_not_checked_again() -> None:
    async def main() -> None:
        words = Counting()
        citing = Citing(verifier=words)
        first = await run(citing, {})
        second = await run(citing, posted(first), "Nothing.", "m2")
        assert words.quotes == ["Paris is the capital of France."]
        before = posted(first)[KEY]["messages"]["m"]
        assert second.agui.state[KEY]["messages"]["m"] == before

    asyncio.run(main())


@pytest.mark.parametrize("same", [True, False], ids=["forged", "after a restart"])
def test_what_it_did_not_write_is_checked_again(same: bool) -> None:
    async def main() -> None:
        citing = Citing(verifier=Counting())
        first = await run(citing, {}, MISSED)
        missed = posted(first)
        assert missed[KEY]["messages"]["m"]["summary"]["missed"] == 1
        words = Counting()
        if not same:
            citing = Citing(verifier=words)
        second = await run(citing, forge(missed), "Nothing.", "m2")
        record = second.agui.state[KEY]["messages"]["m"]
        assert (record["summary"]["missed"], record["summary"]["verified"]) == (1, 0)
        assert record["status"] == "complete"
        (listed,) = second.agui.state["citations"]["m"]
        assert listed["extra"]["citewire"]["status"] == "missed"
        (verdict,) = second.agui.state[KEY]["verifications"].values()
        assert verdict["status"] == "not_found"

    asyncio.run(main())


def test_what_cannot_be_checked_is_not_verified() -> None:
    """A record that is no whole one, a verdict without a citation, a list without a record."""

    async def main() -> None:
        verdict = {"status": "found", "citewire": {"status": "verified"}}
        message = {"citations": {}, "verifications": {"k": verdict}, "summary": {}, "status": "complete"}
        ours = {"own": True, "key": "k", "status": "verified"}
        state = {
            "mine": 1,
            KEY: {"citations": {}, "verifications": {"k": verdict}, "messages": {"x": message}},
            "citations": {"x": [{"id": "1", "extra": {"citewire": ours}}], "y": [{"id": "1", "extra": {
                "citewire": {"key": "k", "status": "verified"}, "own": 2}}]},
        }  # fmt: skip
        for broken in (state, {**state, KEY: {"messages": {"x": message}}}):
            client = await run(Citing(verifier=Words()), broken, "Nothing.")
            told = json.dumps([client.agui.state[KEY], client.agui.state["citations"]])
            assert '"verified"' not in told.replace('"verified": 0', "")
            assert client.agui.state["mine"] == 1
            assert client.agui.state["citations"]["y"][0]["extra"] == {"own": 2}

    asyncio.run(main())


def test_no_message_of_an_earlier_run_is_streaming() -> None:
    async def main() -> None:
        citing = Citing(verifier=Words())
        state = posted(await run(citing, {}))
        state[KEY]["messages"]["m"]["status"] = "streaming"
        client = await run(citing, state, "Nothing.", "m2")
        record = client.agui.state[KEY]["messages"]
        assert (record["m"]["status"], record["m2"]["status"]) == ("error", "complete")

    asyncio.run(main())


ECHO: Json = {
    "id": "y",
    "role": "assistant",
    "content": f"Paris [1].{block('Paris is the capital of France.')}",
}


async def run_with_echo(citing: Citing, earlier: list[Json]) -> Thread:
    """What a client has after a run in which the agent only lists the messages, one under another id."""

    async def agent(_: RunInput) -> AsyncIterator[Any]:
        for event in (STARTED, messages(USER, ECHO), FINISHED):
            yield event

    client = Thread(messages=earlier, state={})
    given = RunInput(thread_id="t", run_id="r2", messages=earlier, state={})
    client.extend([to_dict(event) async for event in citing(given, agent)])
    return client


@pytest.mark.parametrize("is_known", [True, False], ids=["its own answer", "a posted one"])
def test_a_posted_answer_that_the_agent_repeats_gets_no_verdict(is_known: bool) -> None:
    """Unless this process knows that an agent of the thread said so."""

    async def main() -> None:
        words = Counting()
        citing = Citing(verifier=words)
        if is_known:
            await run(citing, {}, ECHO["content"])
        asked = len(words.quotes)
        client = await run_with_echo(citing, [USER, {**ECHO, "id": "x"}])
        last = client.agui.messages[-1]
        assert (last["id"], last["content"], is_posted(last)) == ("y", "Paris [1].", not is_known)
        record = client.agui.state.get(KEY, {"messages": {}})["messages"]
        assert ("y" in record) is is_known
        assert (len(words.quotes) > asked) is is_known

    asyncio.run(main())
