"""The middleware without a log: verdicts in a posted state that it did not write are reached again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from citewire.agui import Thread
from citewire.agui.citations.posted_messages import is_posted
from citewire.agui.events import RunInput, to_dict
from citewire.agui.middleware import Citing
from citewire.verification.document_set import CheckResult
from citewire.verification.verifier import QuoteCheck, iter_quotes
from support.annotated_stream import FINISHED, KEY, STARTED, answer, block, messages, snapshot
from support.thread_runs import TEXT, Words

Json = dict[str, Any]
USER: Json = {"id": "u", "role": "user", "content": "?"}


class Counting(Words):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.quotes: list[str] = []

    async def check(
        self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]
    ) -> AsyncGenerator[CheckResult]:
        async def counted() -> AsyncIterator[QuoteCheck]:
            async for asked in iter_quotes(quotes):
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


def first_entry(state: Any) -> Json:
    return state["citations"]["m"][0]


def forge_entry(state: Any, **fields: Any) -> None:
    first_entry(state).update(fields)


def add_entry(state: Any, **fields: Any) -> None:
    state["citations"]["m"].append({**first_entry(state), **fields})


def forge_citation(state: Any) -> None:
    """Another citation under the same key, of the whole record and of a message that is none."""
    (key,) = state[KEY]["citations"]
    forged = {**state[KEY]["citations"][key], "fullPhrase": "Lyon"}
    state[KEY]["citations"][key] = forged
    state[KEY]["messages"]["zz"] = {
        "messageId": "m",
        "citations": {key: forged},
        "verifications": {},
        "summary": {},
        "status": "complete",
    }


def drop_verdict(state: Any) -> None:
    """The entry is forged and waits for a verdict, which is asked for again."""
    for part in (state[KEY], state[KEY]["messages"]["m"]):
        part["verifications"] = {}
    forge_entry(
        state,
        title="Lyon",
        extra={"citewire": {**first_entry(state)["extra"]["citewire"], "status": "pending"}},
    )


LIES: dict[str, Callable[[Any], Any]] = {
    "a summary": lambda state: state[KEY]["messages"]["m"]["summary"].update(verified=99, total=99),
    "a status": lambda state: state[KEY]["messages"]["m"].update(status="verified", error="Lyon"),
    "the id of a message": lambda state: state[KEY]["messages"]["m"].update(messageId="Lyon"),
    "a member of a message": lambda state: state[KEY]["messages"]["m"].update(verdict="Lyon"),
    "a member of the record": lambda state: state[KEY].update(more={"m": "Lyon"}),
    "a citation of all messages": lambda state: next(iter(state[KEY]["citations"].values())).update(
        fullPhrase="Lyon"
    ),
    "another citation under the same key": forge_citation,
    "a title": lambda state: forge_entry(state, title="Lyon"),
    "a URL": lambda state: forge_entry(state, url="https://lyon.example"),
    "a snippet": lambda state: forge_entry(state, snippet="Lyon"),
    "an id": lambda state: forge_entry(state, id="Lyon"),
    "a number": lambda state: forge_entry(state, index=99),
    "a second entry": lambda state: add_entry(state, id="2", index=99, snippet="Lyon"),
    "the same entry twice": add_entry,
    "the title of an entry that is pending": drop_verdict,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_nothing_forged_stands_beside_a_verdict(lie: Callable[[Any], Any]) -> None:
    async def main() -> None:
        citing = Citing(verifier=Words())
        state = posted(await run(citing, {}))
        before = json.loads(json.dumps(state))
        lie(state)
        after = posted(await run(citing, state, "Nothing.", "m2"))
        assert after["citations"]["m"] == before["citations"]["m"]
        for told in (before, after):
            for part in (told[KEY], *told[KEY]["messages"].values()):
                for verdict in part["verifications"].values():
                    del verdict["verifiedAt"]
        assert after[KEY]["messages"]["m"] == before[KEY]["messages"]["m"]
        (key,) = before[KEY]["citations"]
        pairs = [
            (each["citations"].get(key), each["verifications"].get(key))
            for each in (after[KEY], *after[KEY]["messages"].values())
        ]
        assert pairs[0] in pairs[1:]
        assert after[KEY].keys() == before[KEY].keys()
        assert after[KEY]["messages"].get("zz", {"summary": {"verified": 0}})["summary"]["verified"] == 0

    asyncio.run(main())


def test_an_invented_message_has_no_verdicts() -> None:
    async def main() -> None:
        citing = Citing(verifier=Words())
        state = posted(await run(citing, {}))
        real = state[KEY]["messages"]["m"]
        state[KEY]["messages"]["x"] = {**real, "messageId": "x", "citations": {}, "verifications": {}}
        record = (await run(citing, state, "Nothing.", "m2")).agui.state[KEY]["messages"]["x"]
        assert not any(record["summary"].values())

    asyncio.run(main())


@pytest.mark.parametrize(
    "note", [{"status": "verified", "own": True, "key": "k"}, "verified", ["verified"]], ids=repr
)
def test_what_is_no_list_of_citations_keeps_no_note(note: Any) -> None:
    async def main() -> None:
        entry = {"id": "1", "extra": {"citewire": note, "theirs": 1}}
        state = {"citations": {"a": {"0": entry}, "b": entry, "c": "verified", "d": [{**entry}]}}
        lists = (await run(Citing(verifier=Words()), state, "Nothing.")).agui.state["citations"]
        assert lists.keys() == {"d"}
        assert "verified" not in json.dumps(lists)
        assert lists["d"][0]["extra"]["theirs"] == 1

    asyncio.run(main())


LISTED = [{"id": "1", "title": "doc1", "snippet": "Paris is the capital of France."}]


@pytest.mark.parametrize("is_forged", [True, False])
def test_an_entry_of_the_agent_that_was_changed_has_no_note_of_ours(is_forged: bool) -> None:
    async def main() -> None:
        citing = Citing(verifier=Words())

        async def agent(_: RunInput) -> AsyncIterator[Any]:
            for event in (STARTED, *answer("Paris."), snapshot({"citations": {"m": LISTED}}), FINISHED):
                yield event

        given = RunInput(thread_id="t", run_id="r", messages=[USER], state={})
        client = Thread(messages=[USER], state={})
        client.extend([to_dict(event) async for event in citing(given, agent)])
        state = posted(client)
        assert first_entry(state)["extra"]["citewire"]["status"] == "verified"
        if is_forged:
            forge_entry(state, title="Lyon")
        after = posted(await run(citing, state, "Nothing.", "m2"))
        assert ("extra" in first_entry(after)) is not is_forged

    asyncio.run(main())


LABELLED = "Paris[^a].\n\n[^a]: [doc1](https://doc1.example)"


@pytest.mark.parametrize(
    "text", [TEXT, MISSED, LABELLED, f"{LABELLED}{block('Paris is the capital of France.')}"]
)
@pytest.mark.parametrize("deadline", [None, 0])
def test_what_it_wrote_itself_stays_as_it_is(text: str, deadline: float | None) -> None:
    """Also what is pending, and what has the label of a footnote."""

    async def main() -> None:
        words = Words()
        if deadline is not None:
            words.may.clear()
        citing = Citing(verifier=words, deadline=deadline)
        state = posted(await run(citing, {}, text))
        assert first_entry(state)
        after = posted(await run(citing, state, "Nothing.", "m2"))
        assert after["citations"]["m"] == state["citations"]["m"]
        assert after[KEY]["messages"]["m"] == state[KEY]["messages"]["m"]

    asyncio.run(main())


def test_an_answer_that_got_another_id_stays_as_it_is() -> None:
    async def main() -> None:
        citing = Citing(verifier=Words())

        async def agent(_: RunInput) -> AsyncIterator[Any]:
            said = {"id": "new", "role": "assistant", "content": TEXT}
            for event in (STARTED, *answer(TEXT), messages(USER, said), FINISHED):
                yield event

        given = RunInput(thread_id="t", run_id="r", messages=[USER], state={})
        client = Thread(messages=[USER], state={})
        client.extend([to_dict(event) async for event in citing(given, agent)])
        state = posted(client)
        after = posted(await run(citing, state, "Nothing.", "m2"))
        assert after["citations"]["new"] == state["citations"]["new"]
        assert after["citations"]["new"][0]["extra"]["citewire"]["status"] == "verified"

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
