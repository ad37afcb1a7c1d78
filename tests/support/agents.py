"""Agents that nobody here wrote, run offline and served over HTTP: what others really send as AG-UI.

Each builder gives an ASGI app that takes a RunAgentInput at PATH. It imports its frameworks itself, as
they take seconds to load. A test asks `need_agents` first.
"""

import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from support.cases import need
from support.pdfs import Line, Sheet, make_pdf

if TYPE_CHECKING:
    from pydantic_ai import ToolReturn
    from pydantic_ai.models import Model
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/agui"
# What every agent says, piece by piece, and the one document that its tool finds.
PIECES = ("Paris ", "is the ", "capital ", "[1].")
ANSWER = "".join(PIECES)
DOCUMENT = {"id": "doc1", "title": "France", "text": "Paris is the capital of France."}
# What an agent says that cites it: once what it says, once what it does not.
VISIBLE = "Paris is the capital [1], and Rome is older [2]."
CITING = (
    f"{VISIBLE}\n\n<<<CITATION_DATA>>>\n"
    '{"doc1": [{"id": 1, "full_phrase": "Paris is the capital of France.", "anchor_text": "capital"},'
    ' {"id": 2, "full_phrase": "Rome was founded by two brothers and a wolf."}]}\n<<<END_CITATION_DATA>>>'
)

_PACKAGES = ("ag_ui", "ag_ui_langgraph", "agno", "fastapi", "langgraph", "pydantic_ai", "uvicorn")
# Seconds. A server starts and stops in a fraction of one; what takes this long hangs.
_DEADLINE = 20

# Somebody's environment may turn these on, over what the agent is told, and the suite keeps to loopback.
os.environ.update(AGNO_TELEMETRY="false", LANGSMITH_TRACING="false", LANGSMITH_TRACING_V2="false")


def need_agents() -> None:
    """Go on when the frameworks are installed, else skip."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    need(f"agents ({', '.join(missing)})", not missing, "run `uv sync`, which installs the group `agents`")


@contextmanager
def serve(app: "ASGIApp") -> Generator[str]:
    """The base URL of `app`, which answers there as long as the block runs.

    At the end streams that are still open are cut after a second. Raises RuntimeError for an app that does
    not start, TimeoutError for one that does not stop.
    """
    import uvicorn

    running = threading.Event()

    async def notify() -> None:
        running.set()

    def run() -> None:
        try:
            # To an app that does not start uvicorn's answer is to exit.
            with suppress(SystemExit):
                server.run(sockets=[listener])
        finally:
            running.set()

    # Uvicorn notifies in the first turn of its loop, once it accepts, and then every thirty seconds.
    config = uvicorn.Config(app, log_config=None, callback_notify=notify, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=run, name=f"serve {url}", daemon=True)
        thread.start()
        try:
            if not running.wait(_DEADLINE) or not server.started:
                raise RuntimeError("the app did not start: see its log")
            yield url
        finally:
            server.should_exit = True
            thread.join(_DEADLINE)
            if thread.is_alive():
                raise TimeoutError(f"{thread.name} does not stop")


def _pydantic_ai(model: "Model", lookup: "Callable[[str], Awaitable[ToolReturn]]") -> "ASGIApp":
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.ui import StateDeps
    from pydantic_ai.ui.ag_ui import AGUIAdapter
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    # Without a place for it, posted state is a warning.
    class State(BaseModel, extra="allow"):
        pass

    agent = Agent(model, tools=[lookup], deps_type=StateDeps[State])

    async def endpoint(request: Request) -> Response:
        return await AGUIAdapter.dispatch_request(request, agent=agent, deps=StateDeps(State()))

    return Starlette(routes=[Route(PATH, endpoint, methods=["POST"])])


def pydantic_ai_test_model() -> "ASGIApp":
    """Calls its tool with made-up arguments, then says ANSWER word by word."""
    from pydantic_ai import ToolReturn
    from pydantic_ai.models.test import TestModel

    async def lookup(query: str) -> ToolReturn:
        """Find documents."""
        return ToolReturn([DOCUMENT])

    return _pydantic_ai(TestModel(custom_output_text=ANSWER), lookup)


def in_pieces(text: str, size: int = 9) -> tuple[str, ...]:
    """A text as a model streams it."""
    return tuple(text[at : at + size] for at in range(0, len(text), size))


def pydantic_ai_function_model(pieces: Sequence[str] = PIECES) -> "ASGIApp":
    """Thinks, calls its tool in two fragments, then says `pieces`.

    With its result the tool gives a STATE_DELTA, which applies to any object, and a CUSTOM event.
    """
    from ag_ui.core import CustomEvent, StateDeltaEvent
    from pydantic_ai import ModelMessage, ToolReturn
    from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

    async def script(
        messages: list[ModelMessage], _info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaThinkingPart] | dict[int, DeltaToolCall]]:
        if any(part.part_kind == "tool-return" for part in messages[-1].parts):
            for piece in pieces:
                yield piece
        else:
            yield {0: DeltaThinkingPart(content="Look it up.")}
            call = f"call_{len(messages)}"
            yield {1: DeltaToolCall(name="lookup", json_args='{"query":', tool_call_id=call)}
            yield {1: DeltaToolCall(json_args='"capital"}')}

    async def lookup(query: str) -> ToolReturn:
        """Find documents."""
        add = {"op": "add", "path": "/found", "value": {"doc1": DOCUMENT}}
        events = [StateDeltaEvent.model_validate({"delta": [add]}), CustomEvent(name="found", value=["doc1"])]
        return ToolReturn([DOCUMENT], metadata=events)

    return _pydantic_ai(FunctionModel(stream_function=script), lookup)


def langgraph_scripted(pieces: Sequence[str] = PIECES) -> "ASGIApp":
    """A graph of a model and a tool: calls the tool in two fragments, then says `pieces`.

    Most events are RAW, or carry the same as `rawEvent`.
    """
    from ag_ui_langgraph import (  # pyright: ignore[reportMissingTypeStubs]
        LangGraphAgent,
        add_langgraph_fastapi_endpoint,
    )
    from fastapi import FastAPI
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk, BaseMessage
    from langchain_core.messages.tool import tool_call_chunk
    from langchain_core.outputs import ChatGenerationChunk, ChatResult
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import MemorySaver
    from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
    from langgraph.prebuilt import ToolNode, tools_condition

    def call(message: str, args: str, **start: str) -> AIMessageChunk:
        chunk = tool_call_chunk(args=args, index=0, **start)
        return AIMessageChunk(content="", id=message, tool_call_chunks=[chunk])

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def _script(self, messages: list[BaseMessage]) -> list[AIMessageChunk]:
            # A message whose id the thread has already would take the place of the old one.
            new = f"ai{len(messages)}"
            if messages[-1].type == "tool":
                return [AIMessageChunk(content=piece, id=new) for piece in pieces]
            start = call(new, "", name="lookup", id=f"call_{len(messages)}")
            return [start, call(new, '{"query":'), call(new, '"capital"}')]

        def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            raise NotImplementedError("AG-UI streams")

        async def _astream(
            self, messages: list[BaseMessage], *_: Any, **__: Any
        ) -> AsyncIterator[ChatGenerationChunk]:
            for chunk in self._script(messages):
                yield ChatGenerationChunk(message=chunk)

    @tool
    async def lookup(query: str) -> list[dict[str, str]]:
        """Find documents."""
        return [DOCUMENT]

    model = Scripted()

    async def chat(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    # Its own types are in part unknown.
    graph = cast("Any", StateGraph(MessagesState))
    graph.add_node("chat", chat)
    graph.add_node("tools", ToolNode([lookup]))
    graph.add_edge(START, "chat")
    graph.add_conditional_edges("chat", tools_condition)
    graph.add_edge("tools", "chat")
    app = FastAPI()
    # Without a checkpointer every run ends in RUN_ERROR.
    agent = LangGraphAgent(name="scripted", graph=graph.compile(checkpointer=MemorySaver()))
    add_langgraph_fastapi_endpoint(app, agent, PATH)
    return app


def agno_scripted(pieces: Sequence[str] = PIECES) -> "ASGIApp":
    """Says `pieces`, between a STATE_SNAPSHOT before and one after. It has no tool."""
    from agno.agent import Agent
    from agno.models.base import Model
    from agno.models.response import ModelResponse
    from agno.os import AgentOS
    from agno.os.interfaces.agui import AGUI

    class Scripted(Model):
        def invoke(self, *_: Any, **__: Any) -> ModelResponse:
            return ModelResponse(role="assistant", content="".join(pieces))

        async def ainvoke(self, *_: Any, **__: Any) -> ModelResponse:
            return self.invoke()

        def invoke_stream(self, *_: Any, **__: Any) -> Iterator[ModelResponse]:
            for piece in pieces:
                yield ModelResponse(role="assistant", content=piece)

        async def ainvoke_stream(self, *_: Any, **__: Any) -> AsyncIterator[ModelResponse]:
            for response in self.invoke_stream():
                yield response

        def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
            return response

        def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
            return response

    model = Scripted(id="scripted", name="scripted", provider="offline")
    agent = Agent(name="scripted", model=model, telemetry=False)
    return AgentOS(agents=[agent], interfaces=[AGUI(agent=agent)], telemetry=False).get_app()


def scripted(events: Iterable[dict[str, Any] | bytes]) -> "ASGIApp":
    """Streams these events, whatever it is asked; bytes as they are, each in a write of its own."""

    async def app(scope: "Scope", receive: "Receive", send: "Send") -> None:
        assert scope["type"] == "http"
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in events:
            body = event if isinstance(event, bytes) else b"data: %b\n\n" % json.dumps(event).encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def said(text: str, name: str = "m", size: int = 9) -> list[dict[str, Any]]:
    """A whole run with one answer."""
    run = {"threadId": "t", "runId": "r"}
    deltas = [
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": piece} for piece in in_pieces(text, size)
    ]
    return [
        {"type": "RUN_STARTED", **run},
        {"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"},
        *deltas,
        {"type": "TEXT_MESSAGE_END", "messageId": name},
        {"type": "RUN_FINISHED", **run},
    ]


def fifty() -> tuple[dict[str, bytes], str, str]:
    """Three PDFs by name, an answer with fifty citations of them, and the same without its block.

    Every fifth citation says another number than its source.
    """
    facts = [f"Station {n} recorded {n * 7 + 100} millimetres of rain in spring." for n in range(1, 51)]
    sheets = [
        [Line(fact, y=760 - 40 * at) for at, fact in enumerate(facts[low : low + 9])]
        for low in range(0, 50, 9)
    ]
    names = ("north.pdf", "middle.pdf", "south.pdf")
    files = {name: make_pdf(*map(Sheet, sheets[2 * at : 2 * at + 2])) for at, name in enumerate(names)}
    entries: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for n, fact in enumerate(facts, 1):
        words = fact.replace(" millimetres", "9 millimetres") if n % 5 == 0 else fact
        page = (n - 1) // 9 % 2 + 1
        entry = {
            "id": n,
            "full_phrase": words,
            "anchor_text": f"Station {n}",
            "page_id": f"{page}_{page - 1}",
        }
        entries[names[(n - 1) // 18]].append(entry)
    visible = "\n".join(f"- Station {n} had rain [{n}]." for n in range(1, 51))
    block = f"<<<CITATION_DATA>>>\n{json.dumps(entries)}\n<<<END_CITATION_DATA>>>"
    return files, f"{visible}\n\n{block}", visible
