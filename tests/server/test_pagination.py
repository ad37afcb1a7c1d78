"""Lists of which a caller sees a part: all of that part, in order, and nothing of the rest."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.errors import InputError
from citewire.server.access.keys import Keyring
from citewire.server.http.pagination import SealedCursors, list_visible
from support.app import App, opened_app

OWN = {f"mine-{at}" for at in range(7)}
# Before, between and behind those of the caller.
FOREIGN = {f"{start}-secret-{at}" for start in ("aaa", "mine-3", "mine-5", "zzz") for at in range(4)}


def run(folder: Path, main: Callable[[App], Awaitable[None]]) -> None:
    async def opened() -> None:
        async with opened_app(folder) as app:
            await main(app)

    asyncio.run(opened())


def reader(names: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[tuple[str, str]]]]:
    ordered = sorted(names)

    async def read(after: str, limit: int) -> Sequence[tuple[str, str]]:
        return [(name, name) for name in ordered if name > after][:limit]

    return read


NAMES = st.sets(st.text("abc", min_size=1, max_size=4))


@given(NAMES, NAMES, st.integers(1, 5))
def test_the_pages_have_every_visible_entry_once(names: set[str], visible: set[str], limit: int) -> None:
    """None is empty but the only one, and the last says that it is."""

    async def main() -> list[list[str]]:
        pages, after = list[list[str]](), ""
        while True:
            page = await list_visible(reader([*names]), visible.__contains__, after, limit)
            pages.append(page.items)
            if page.after is None:
                return pages
            after = page.after

    pages = asyncio.run(main())
    assert [name for page in pages for name in page] == sorted(names & visible)
    assert all(len(page) == limit for page in pages[:-1])
    assert len(pages) == 1 or pages[-1]


def test_one_request_does_not_look_at_everything() -> None:
    names = [f"{at:06}" for at in range(25_000)]
    asked = list[int]()

    async def main() -> None:
        read = reader(names)

        async def counted(after: str, limit: int) -> Sequence[tuple[str, str]]:
            found = await read(after, limit)
            asked.append(len(found))
            return found

        first = await list_visible(counted, "024999".__eq__, "", 10)
        assert (first.items, first.after, sum(asked)) == ([], "009999", 10_000)
        second = await list_visible(counted, "024999".__eq__, "009999", 10)
        assert (second.items, second.after) == ([], "019999")
        third = await list_visible(counted, "024999".__eq__, "019999", 10)
        assert (third.items, third.after) == (["024999"], None)

    asyncio.run(main())


def test_a_cursor_tells_nothing_and_cannot_be_made_up(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    cursors = SealedCursors(keyring, "threads")
    short, long = cursors.write("run:a"), cursors.write("run:some-secret-thread")
    assert short
    assert long
    assert len(short) == len(long)
    assert cursors.read(long) == "run:some-secret-thread"
    assert (cursors.write(None), cursors.read(None), cursors.read("")) == (None, "", "")
    for text in (
        "run:a",
        "a",
        long[:-1],
        f"{long}A",
        "é",
        "\0",
        SealedCursors(keyring, "channels").write("run:a"),
    ):
        with pytest.raises(InputError):
            cursors.read(text)


def test_no_list_of_threads_tells_of_others(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        for name in OWN | FOREIGN:
            await app.ask("POST", "/agui", {"threadId": name, "runId": "r"})
        granted = {"thread:*": ["list"], **{f"thread:{name}": ["read"] for name in OWN}}
        key = app.token(granted)
        for limit in (1, 2, 3, 100):
            seen, after = list[str](), ""
            while True:
                answer = await app.ask("GET", f"/threads?limit={limit}&after={quote(after)}", key=key)
                assert b"secret" not in answer.body
                page: Any = answer.json
                seen += [each["threadId"] for each in page["threads"]]
                assert page["threads"], "an empty page"
                if (after := page["next"]) is None:
                    break
            assert seen == sorted(OWN)
        for place in ("mine-3", "aaa-secret-1", "run:mine-3"):
            answer = await app.ask("GET", f"/threads?after={place}", key=key)
            assert answer.status == 400
        nothing = await app.ask("GET", "/threads", key=app.token({"thread:*": ["list"]}))
        assert nothing.json == {"threads": [], "next": None}

    run(tmp_path, main)


def test_no_list_of_channels_tells_of_others(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        for name in OWN | FOREIGN:
            posted = await app.ask(
                "POST", f"/channels/{name}/messages", b'{"data":"x"}', content_type="application/json"
            )
            assert posted.status == 201
        key = app.token({name: ["channel-metadata"] for name in OWN})
        for limit in (1, 2, 100):
            seen, query = list[str](), f"by=id&limit={limit}"
            while True:
                answer = await app.ask("GET", f"/channels?{query}", key=key)
                assert b"secret" not in answer.body
                seen += answer.json
                # `ask` keeps the last header of a name, which is the link to the next page.
                link = answer.headers["link"]
                assert "secret" not in link
                if not (found := re.fullmatch(r'<\./channels\?(.*)>; rel="next"', link)):
                    break
                query = found[1]
            assert seen == sorted(OWN)
        refused = await app.ask("GET", "/channels?cursor=mine-3", key=key)
        assert (refused.status, refused.json["error"]["code"]) == (400, 40000)

    run(tmp_path, main)
