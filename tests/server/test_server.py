"""The server as people run it: a process, real clients, real agents, and what may happen to each of them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import jwt
import pytest
from PIL import Image

from citewire.agui import Thread
from citewire.server.ops.settings import SettingError
from citewire.server.runs.agents import local_agent
from support import server_agents as served
from support.agents import ANSWER, PATH, need_agents, pydantic_ai_function_model, said, scripted
from support.agents import serve as serve_agent
from support.agui_node import NODE, RealClient, need_node
from support.cases import ROOT
from support.server_process import DEADLINE, Event, Json, Serving, asked, command, environment

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

pytestmark = pytest.mark.slow

SAMPLES = ROOT / "src/citewire/samples"
HERE = str(ROOT / "tests")
KEY = "deepcitation"
HELD = (
    "--agent",
    "support.server_agents:held",
    "--sources",
    SAMPLES / "refund-policy.html",
    "--workers",
    "1",
)


class Pipe:
    """Where the agent `served.held` waits in the middle of its answer."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        os.mkfifo(path)

    def open(self) -> None:
        """Let it go on, once it is there."""
        with Path(self.name).open("wb") as end:
            end.write(b"go")


@pytest.fixture(scope="module")
def real() -> Generator[RealClient]:
    with RealClient() as client:
        yield client


@pytest.fixture(scope="module")
def librarian(tmp_path_factory: pytest.TempPathFactory) -> Generator[Serving]:
    with Serving(tmp_path_factory.mktemp("librarian") / "data", "--sources", SAMPLES) as server:
        server.read_sources()
        yield server
        server.stop()


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Generator[Serving]:
    """A server whose agent waits where it is told to."""
    with Serving(tmp_path_factory.mktemp("held") / "data", *HELD, PYTHONPATH=HERE) as server:
        server.read_sources()
        yield server
        server.stop()


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    return Pipe(tmp_path / "pipe")


def half(events: Iterator[Event]) -> list[Event]:
    """What `served.held` says before it waits."""
    seen: list[Event] = []
    while sum(event["type"] == "TEXT_MESSAGE_CONTENT" for _, event in seen) < 2:
        seen.append(next(events))
    return seen


def plain(*values: Any) -> str:
    """Without what differs from one run to the next: addresses of proofs, and when and how fast it was."""
    changing = r'http://[^"]*/proofs/[^"]*|\d{4}-\d\d-\d\dT[^"]*|"ms": [\d.]+'
    return re.sub(changing, "…", json.dumps(values, sort_keys=True))


def loaded(server: Serving, thread: str) -> str:
    view = server.get(f"/threads/{thread}")
    return plain(view["messages"], view["state"])


def folded(events: list[Event], question: str) -> Thread:
    """What a client makes of them."""
    thread = Thread(messages=asked("", text=question)["messages"], state={})
    thread.extend(event for _, event in events)
    return thread


def uninterrupted(server: Serving, thread: str, pipe: Pipe) -> str:
    """The thread after a run that nothing happened to."""
    with server.watch("/agui", asked(thread, text=pipe.name)) as events:
        half(events)
        pipe.open()
        assert list(events)[-1][1]["type"] == "RUN_FINISHED"
    whole = loaded(server, thread)
    assert '"verified": 1' in whole
    assert served.VISIBLE in whole
    return whole


def logged(server: Serving, thread: str) -> list[Event]:
    page = server.get(f"/threads/{thread}/events")
    assert page["next"] is None
    return [(each["id"], each["event"]) for each in page["events"]]


# --- who answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0.0", "0.0.59"])
def test_the_librarian_answers_the_real_client(librarian: Serving, real: RealClient, version: str) -> None:
    thread = f"t{version}"
    question = asked(thread, text="What is the refund policy?")["messages"]
    answer = real.run_at(
        f"{librarian.url}/agui", version, headers=librarian.headers, threadId=thread, messages=question
    )
    assert (answer["outcome"], answer["warnings"]) == ("completed", [])
    (message,) = answer["state"][KEY]["messages"].values()
    summary = message["summary"]
    assert summary["verified"] == summary["total"] > 0
    verdicts = [verdict["citewire"] for verdict in message["verifications"].values()]
    assert all(verdict["page"] >= 1 for verdict in verdicts)
    with httpx2.Client(trust_env=False) as anybody:
        for verdict in verdicts:
            page = anybody.get(verdict["proof"])
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert "Verified" in page.text
    shown = librarian.get(
        f"/threads/{thread}/messages/{message['messageId']}/citations", dialect="salesforce"
    )
    cited = shown["payload"]["staticContent"]["citationContent"]["citations"]
    assert [each["citedReference"]["link"]["url"] for each in cited] == [
        verdict["proof"] for verdict in _in_order(message)
    ]
    again = real.run_at(f"{librarian.url}/threads/{thread}", version, headers=librarian.headers, get=True)
    assert (again["messages"], again["state"]) == (answer["messages"], answer["state"])


def _in_order(message: Json) -> list[Json]:
    keys = sorted(message["citations"], key=lambda key: message["citations"][key]["citationNumber"])
    return [message["verifications"][key]["citewire"] for key in keys]


def test_a_place_is_shown_in_a_picture(librarian: Serving) -> None:
    librarian.ask("picture", text="How many lamps did customers of the online shop send back in 2025?")
    (message,) = librarian.get("/threads/picture")["state"][KEY]["messages"].values()
    found = [each["evidence"]["src"] for each in message["verifications"].values() if "evidence" in each]
    assert found
    with httpx2.Client(trust_env=False) as anybody:
        for form in ("avif", "png", "jpg", "webp"):
            answer = anybody.get(found[0].replace(".avif?", f".{form}?"))
            assert answer.status_code == 200, answer.text
            with Image.open(BytesIO(answer.content)) as image:
                assert answer.headers["content-type"] == f"image/{(image.format or '').lower()}"
                assert min(image.size) > 10
        stranger = anybody.get(re.sub(r"sig=\d+", "sig=9999999999", found[0]))
        assert (stranger.status_code, "error" in stranger.json()) == (403, True)


class Noting:
    """An agent's app, and the headers that it was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self.headers = app, list[dict[str, str]]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await self._app(scope, receive, send)


def test_an_agent_elsewhere(tmp_path: Path, real: RealClient) -> None:
    need_agents()
    agent = Noting(pydantic_ai_function_model())
    with serve_agent(agent) as url:
        given = ("--agent", url + PATH, "--agent-header", "X-Tenant: acme")
        with Serving(tmp_path / "data", *given) as server:
            name, _, secret = server.key.partition(":")
            now = int(time.time())
            claims = {"iat": now, "exp": now + 60, "x-ably-clientId": "zoë"}
            token = jwt.encode(claims, secret, headers={"kid": name})
            answer = real.run_at(
                f"{server.url}/agui", headers={"authorization": f"Bearer {token}"}, threadId="t",
                messages=asked("t", text="Which?")["messages"],
            )  # fmt: skip
            server.stop()
    assert (answer["outcome"], answer["messages"][-1]["content"]) == ("completed", ANSWER)
    sent = agent.headers[-1]
    assert (sent["x-tenant"], sent["x-citewire-client-id"]) == ("acme", "zo%C3%AB")
    assert "authorization" not in sent


MODULE = """
from citewire.agui.agents import BaseAgent

class Agent(BaseAgent):
    async def run(self, run_input):
        yield {"type": "RUN_STARTED", "threadId": run_input.thread_id, "runId": run_input.run_id}
        who = run_input.forwarded_props["citewire"]["key"]
        yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": who}
        yield {"type": "RUN_FINISHED", "threadId": run_input.thread_id, "runId": run_input.run_id}

class house:
    agent = Agent()
"""


def test_an_agent_of_this_python(tmp_path: Path, real: RealClient) -> None:
    (tmp_path / "my_agent.py").write_text(MODULE)
    with Serving(tmp_path / "data", "--agent", "my_agent:house.agent", PYTHONPATH=str(tmp_path)) as server:
        answer = real.run_at(f"{server.url}/agui", headers=server.headers, threadId="t", messages=[])
        server.stop()
    assert answer["messages"][-1]["content"] == server.key.partition(":")[0]


async def unruly(scope: Scope, receive: Receive, send: Send) -> None:
    """An agent that does what it is asked to, however wrong that is."""
    assert scope["type"] == "http"
    body, more = b"", True
    while more:
        piece = await receive()
        body, more = body + piece.get("body", b""), piece.get("more_body", False)
    wish = json.loads(body)["messages"][-1]["content"]
    if wish == "silence":
        await receive()
    elif wish in ("page", "refuse"):
        headers = [(b"content-type", b"text/html")]
        await send(
            {"type": "http.response.start", "status": 200 if wish == "page" else 500, "headers": headers}
        )
        await send({"type": "http.response.body", "body": b"<h1>Welcome</h1>"})
    else:
        await scripted(WISHES[wish])(scope, _nothing_more, send)


async def _nothing_more() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


WHOLE = said("Hello.")
WISHES: dict[str, list[Any]] = {
    "answer": WHOLE,
    "order": [WHOLE[0], WHOLE[2]],
    "cut": WHOLE[:3],
    "nothing": [],
    "no JSON": [WHOLE[0], b"data: {\n\n"],
    "no event": [WHOLE[0], {"type": 5}],
}


@pytest.mark.timeout(120)
def test_agents_that_fail(tmp_path: Path, real: RealClient) -> None:
    """Whoever asked is told with a code, can load the thread, and others are answered as before."""
    codes = {
        "page": "not_an_event_stream", "refuse": "bad_status", "order": "out_of_order", "cut": "stream_ended",
        "nothing": "stream_ended", "no JSON": "bad_json", "no event": "bad_event",
    }  # fmt: skip
    with serve_agent(unruly) as url, Serving(tmp_path / "data", "--agent", url) as server:
        for wish, code in codes.items():
            events = [event for _, event in server.ask(wish, text=wish)]
            assert (events[-1]["type"], events[-1].get("code")) == ("RUN_ERROR", code), events
            view = server.get(f"/threads/{wish}")
            assert (view["status"], bool(view["error"])) == ("error", True)
            taken = real.run_at(f"{server.url}/threads/{wish}", headers=server.headers, get=True)
            assert (taken["outcome"], taken["messages"]) == ("completed", view["messages"])
        with server.watch("/agui", asked("silence", text="silence")) as events, server.client() as client:
            assert client.post("/threads/silence/runs/r/stop").status_code == 204
            assert [event["code"] for _, event in events] == ["stopped"]
        assert server.ask("answer", text="answer")[-1][1]["type"] == "RUN_FINISHED"
        server.stop()


def test_an_agent_that_is_down(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}/agui"
    with Serving(tmp_path / "data", "--agent", nobody) as server:
        last = server.ask("t")[-1][1]
        assert (last["type"], last["code"]) == ("RUN_ERROR", "connect_failed")
        server.stop()


# --- clients that come and go -------------------------------------------------------------------------------


def test_a_client_that_is_killed(holding: Serving, pipe: Pipe) -> None:
    """Another one gets what it would have got."""
    need_node()
    whole = uninterrupted(holding, "kept", pipe)
    with subprocess.Popen(
        ["node", NODE / "client.mjs"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as node:
        assert node.stdin
        request = asked("killed", text=pipe.name)
        line = {"id": 0, "url": f"{holding.url}/agui", "headers": holding.headers, **request}
        node.stdin.write(json.dumps(line).encode() + b"\n")
        node.stdin.flush()
        _wait_for(holding, "killed")
        with holding.watch("/threads/killed/events") as events:
            half(events)
            node.kill()
    with RealClient() as another:
        where: dict[str, Any] = {"headers": holding.headers, "threadId": "killed"}
        joined = another.run_at(f"{holding.url}/threads/killed", get=True, leaveAfter=4, **where)
        assert [event["type"] for event in joined["events"]][:4] == [
            "RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "STATE_DELTA",
        ]  # fmt: skip
        pipe.open()
        again = another.run_at(f"{holding.url}/agui", runId="r", messages=request["messages"], **where)
        assert again["outcome"] == "completed"
        assert plain(again["messages"], again["state"]) == whole
        later = another.run_at(f"{holding.url}/threads/killed", get=True, **where)
        assert plain(later["messages"], later["state"]) == whole


def _wait_for(server: Serving, thread: str, also: Callable[[], bool] = lambda: True) -> None:
    """Wait until there is this thread, and something else holds."""
    deadline = time.monotonic() + DEADLINE
    with server.client() as client:
        while client.get(f"/threads/{thread}").status_code == 404 or not also():
            assert time.monotonic() < deadline


def test_a_client_that_leaves(holding: Serving, pipe: Pipe, real: RealClient) -> None:
    whole = uninterrupted(holding, "stayed", pipe)
    where: dict[str, Any] = {"headers": holding.headers, "threadId": "left"}
    question = asked("left", text=pipe.name)["messages"]
    left = real.run_at(f"{holding.url}/agui", runId="r", messages=question, leaveAfter=3, **where)
    assert len(left["events"]) < 10
    pipe.open()
    again = real.run_at(f"{holding.url}/agui", runId="r", messages=question, **where)
    assert plain(again["messages"], again["state"]) == whole


def test_a_client_goes_on_after_any_event(holding: Serving) -> None:
    whole = holding.ask("boundaries")
    for at, (cursor, _) in enumerate(whole, 1):
        with holding.watch("/threads/boundaries/events", after=str(cursor)) as events:
            rest = list(events)
        assert (at, plain(rest)) == (at, plain(whole[at:]))
    for cursor, status in (("nonsense", 400), ("0123456789abcdef:3", 410)):
        with holding.client() as client:
            headers = {"accept": "text/event-stream", "last-event-id": cursor}
            answer = client.get("/threads/boundaries/events", headers=headers)
            assert (answer.status_code, "code" in answer.json()["error"]) == (status, True)


def test_a_run_is_stopped(holding: Serving, pipe: Pipe, real: RealClient) -> None:
    with holding.watch("/agui", asked("stopped", text=pipe.name)) as events, holding.client() as client:
        half(events)
        assert client.post("/threads/stopped/runs/r/stop").status_code == 204
        assert list(events)[-1][1]["code"] == "stopped"
        assert client.post("/threads/stopped/runs/other/stop").status_code == 404
    where: dict[str, Any] = {"headers": holding.headers, "threadId": "stopped"}
    again = real.run_at(f"{holding.url}/agui", runId="r", messages=[], **where)
    assert again["events"][-1]["type"] == "RUN_ERROR"
    taken = real.run_at(f"{holding.url}/threads/stopped", get=True, **where)
    assert (taken["outcome"], taken["messages"][-1]["content"]) == ("completed", served.VISIBLE[:20])


def test_a_client_that_never_reads(tmp_path: Path) -> None:
    """Others are answered, its run goes on, and after a while it is left."""
    given = ("--agent", "support.server_agents:flood", "--write-timeout", "1")
    with Serving(tmp_path / "data", *given, PYTHONPATH=HERE) as server, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(DEADLINE)
        deaf.connect(("127.0.0.1", server.port))
        body = json.dumps(asked("deaf", text="much")).encode()
        head = (
            f"POST /agui HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {server.key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        deaf.sendall(head.encode() + body)
        _wait_for(server, "deaf")
        assert len(server.ask("other", text="little")) == 3
        with server.watch("/threads/deaf/events") as events:
            seen = list(events)
        assert (len(seen), seen[-1][1]["type"]) == (258, "RUN_FINISHED")
        # Its request is over when it is logged. The kernel still has some of the answer.
        _wait_for(server, "other", lambda: server.log.read_text().count("POST /agui") == 2)
        assert _received(deaf) < 256 * 65536
        server.stop()


def _received(deaf: socket.socket) -> int:
    """How much there is until the other side has closed."""
    count = 0
    with suppress(ConnectionResetError):
        while piece := deaf.recv(1 << 20):
            count += len(piece)
    return count


def test_a_slow_client_gets_its_run_and_no_more(tmp_path: Path) -> None:
    """Whatever has been added to the thread until it comes to the end of the run."""
    with Serving(tmp_path / "data", "--agent", "support.server_agents:flood", PYTHONPATH=HERE) as server:
        with server.watch("/agui", asked("t", text="much")) as slow, server.client() as client:
            with server.watch("/threads/t/events") as events:
                whole = list(events)
            review = {"messageId": "m", "key": "k", "event": "popover_opened"}
            assert client.post("/threads/t/reviews", json=review).status_code == 204
            assert len(server.ask("t", "r2", "little")) == 3
            assert list(slow) == whole
        page = server.get("/threads/t/events")
        assert 0 < len(page["events"]) < len(whole)  # a page has so many bytes, too
        rest = server.get("/threads/t/events", after=page["next"])
        seen = [(each["id"], each["event"]) for each in [*page["events"], *rest["events"]]]
        assert seen[: len(whole)] == whole[: len(seen)]
        server.stop()


# --- a server that ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("resumes", ["always", "never"])
@pytest.mark.parametrize("end", [Serving.stop, Serving.kill])
def test_a_restart_in_the_middle(
    tmp_path: Path, pipe: Pipe, real: RealClient, resumes: str, end: Callable[[Serving], None]
) -> None:
    """Nothing that a client has seen is lost, and it ends as it would have, or knows that it did not."""
    given = (*HELD, "--resume-runs", resumes)
    with Serving(tmp_path / "data", *given, PYTHONPATH=HERE) as server:
        server.read_sources()
        whole = uninterrupted(server, "whole", pipe)
        with server.watch("/agui", asked("cut", text=pipe.name)) as events, server.watch("/sources/events"):
            seen = half(events)
            end(server)
            seen += _to_the_break(events)
        server.start()
        server.read_sources()
        with server.watch("/threads/cut/events", after=str(seen[-1][0])) as events:
            if resumes == "always":
                pipe.open()
            rest = list(events)
        after = logged(server, "cut")
        assert plain(after) == plain([*seen, *rest])
        last = after[-1][1]
        thread = folded(after, pipe.name)
        assert plain(list(thread.agui.messages), thread.agui.state) == loaded(server, "cut")
        taken = real.run_at(f"{server.url}/threads/cut", headers=server.headers, get=True)
        assert (taken["outcome"], plain(taken["messages"], taken["state"])) == (
            "completed", loaded(server, "cut"),
        )  # fmt: skip
        if resumes == "always":
            assert last["type"] == "RUN_FINISHED"
            assert loaded(server, "cut") == whole
        else:
            assert (last["type"], last["code"]) == ("RUN_ERROR", "interrupted")
        assert loaded(server, "whole") == whole
        server.stop()


def _to_the_break(events: Iterator[Event]) -> list[Event]:
    seen: list[Event] = []
    with suppress(httpx2.TransportError):
        seen.extend(events)
    return seen


def test_a_full_disk(tmp_path: Path, pipe: Pipe) -> None:
    """Who asks is told, at once, and all is well when there is room again."""
    with Serving(tmp_path / "data", *HELD, PYTHONPATH=HERE) as server, server.client() as client:
        with server.watch("/agui", asked("t", text=pipe.name)) as events:
            seen = half(events)
            with server.full_disk():
                pipe.open()
                ((cursor, last),) = events
                assert (cursor, last["type"], last["code"]) == (None, "RUN_ERROR", "store_failed")
                answer = client.post("/agui", json=asked("other"))
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_failed")
        again = server.ask("t", text=pipe.name)
        assert again[: len(seen)] == seen
        assert again[-1][1]["code"] == "interrupted"
        assert server.ask("other")[-1][1]["type"] == "RUN_FINISHED"
        server.stop()


# --- a server that cannot begin -----------------------------------------------------------------------------


def refused(*arguments: str | Path, cwd: Path) -> str:
    """What it says instead of serving, in one line."""
    done = subprocess.run(
        command(*arguments), cwd=cwd, env=environment(), capture_output=True, text=True, timeout=DEADLINE,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


def test_two_servers(librarian: Serving, tmp_path: Path) -> None:
    said = refused("--data", librarian.folder, "--port", "0", cwd=tmp_path)
    assert re.search(r"data folder .* is used by process \d+", said)
    port = str(librarian.port)
    said = refused("--data", tmp_path / "data", "--port", port, cwd=tmp_path)
    assert said == f"citewire: cannot listen on 127.0.0.1 port {port}: Address already in use [bad_setting]"
    # The key of a server that did not begin was never shown: the next one makes it.
    with Serving(tmp_path / "data") as server:
        assert server.key


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "data", Path("/proc"), Path("/proc/none")):
        assert str(folder) in refused("--data", folder, "--port", "0", cwd=tmp_path)


def test_others_can_reach_it_only_with_keys(tmp_path: Path) -> None:
    said = refused("--data", tmp_path / "data", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)
    assert "key" in said


def test_agents_that_are_not_there(tmp_path: Path) -> None:
    said = refused("--data", tmp_path / "data", "--agent", "nowhere:agent", "--port", "0", cwd=tmp_path)
    assert said == "citewire: the agent nowhere:agent is not there: No module named 'nowhere' [bad_setting]"
    for name in ("json:nothing", "json:dumps.nothing", "json:__name__"):
        with pytest.raises(SettingError):
            local_agent(name)


# --- threads ------------------------------------------------------------------------------------------------


def test_a_thread_at_any_time(holding: Serving) -> None:
    events = holding.ask("times", text="Now?")
    head = int(holding.get("/threads/times")["cursor"].partition(":")[2])
    for n in range(1, head + 1):
        view = holding.get("/threads/times", at=n)
        then = [(cursor, event) for cursor, event in events if int(str(cursor).partition(":")[2]) <= n]
        thread = folded(then, "Now?")
        assert plain(view["messages"], view["state"]) == plain(
            list(thread.agui.messages), thread.agui.state
        ), n
        assert view["status"] == ("idle" if n == head else "running")
    with holding.client() as client:
        assert client.get("/threads/times", params={"at": head + 1}).status_code == 400


def test_bad_messages_are_refused_before_anything_starts(holding: Serving) -> None:
    with holding.client() as client:
        bad = {"threadId": "bad", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "?"}, 5]}
        refused = client.post("/agui", json=bad)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_shape")
        assert refused.json()["error"]["message"].startswith("$.messages[1]: ")
        for name, entry, path in (
            ("messages", {"id": "", "role": "user", "content": "?"}, "[0].id"),
            ("tools", 5, "[0]"),
            ("context", {"description": "a"}, "[0].value"),
            ("resume", {"interruptId": 5}, "[0].interruptId"),
        ):
            refused = client.post("/agui", json={"threadId": "bad", "runId": "r", name: [entry]})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_shape")
            assert refused.json()["error"]["message"].startswith(f"$.{name}{path}: ")
        assert client.get("/threads/bad").status_code == 404


def test_reviews(holding: Serving) -> None:
    holding.ask("reviewed")
    (key,) = holding.get("/threads/reviewed")["state"][KEY]["citations"]
    review = {"messageId": "answer", "key": key, "event": "citation_reviewed", "dwellMs": 5}
    with holding.client() as client:
        for _ in range(2):
            assert client.post("/threads/reviewed/reviews", json=review).status_code == 204
        assert client.post("/threads/none/reviews", json=review).status_code == 404
        assert client.post("/threads/reviewed/reviews", json={**review, "event": "x"}).status_code == 400
    noted = holding.get("/threads/reviewed")["state"][KEY]["reviews"]["answer"][key]
    assert [(each["event"], each["dwellMs"]) for each in noted] == [("citation_reviewed", 5)] * 2


def test_a_thread_is_forgotten(holding: Serving) -> None:
    holding.ask("gone")
    (message,) = holding.get("/threads/gone")["state"][KEY]["messages"].values()
    (verdict,) = message["verifications"].values()
    with holding.client() as client:
        assert client.get(verdict["citewire"]["proof"]).status_code == 200
        assert client.delete("/threads/gone").status_code == 204
        for path in ("/threads/gone", "/threads/gone/events", verdict["citewire"]["proof"]):
            assert client.get(path).status_code == 404
        assert client.delete("/threads/gone").status_code == 404
    assert holding.ask("gone")[-1][1]["type"] == "RUN_FINISHED"


@pytest.mark.slow
def test_figures_of_what_there_is(librarian: Serving) -> None:
    with librarian.client() as client:
        told = client.get("/metrics").text
    assert 'citewire_sources{state="ready"} 4.0' in told
    assert 'citewire_sources{state="failed"} 0.0' in told
    assert "citewire_runs_active 0.0" in told


def test_threads_are_listed(holding: Serving) -> None:
    names = [f"page/{n}" for n in range(5)]
    for name in names:
        holding.ask(name)
    listed: list[str] = []
    after = ""
    while True:
        page = holding.get("/threads", after=after, limit=2)
        listed += [each["threadId"] for each in page["threads"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert listed == list(dict.fromkeys(listed))
    assert [name for name in listed if name.startswith("page/")] == names
    assert holding.get("/threads/page%2F3")["threadId"] == "page/3"
