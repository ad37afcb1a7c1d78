"""The server put together: its parts in the order in which they need each other, and the app over them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, get_args

from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from citewire import __version__
from citewire.agui.middleware import Citing
from citewire.agui.weaving import VerdictReached
from citewire.channels.hub import Hub
from citewire.channels.lease import Alone, Leases
from citewire.channels.rules import seconds_of
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import ChannelStore
from citewire.documents.cache import Cache
from citewire.errors import CitewireError
from citewire.librarian import Index, Librarian
from citewire.server import agents, nodes
from citewire.server.ably.auth import Door, Gate
from citewire.server.ably.rates import Rates
from citewire.server.ably.realtime import Realtime
from citewire.server.ably.routes import routes as ably_routes
from citewire.server.ably.sandbox import Sandbox
from citewire.server.blobs import Blobs
from citewire.server.bridge import Bridge
from citewire.server.catalog import Catalog
from citewire.server.checks import Checks
from citewire.server.deepcitation.attachments import Attachments
from citewire.server.deepcitation.rest import UPLOADS, DeepCitation
from citewire.server.driver import Agent, Driver
from citewire.server.history import History
from citewire.server.http import (
    CALLER,
    Call,
    NoSuchMethod,
    NotFound,
    Operation,
    Overloaded,
    openapi,
    refusal,
    routes,
    slashes,
)
from citewire.server.journal import Outcome
from citewire.server.keys import Caller, Keyring
from citewire.server.limits import Limits, address
from citewire.server.logs import AccessLog
from citewire.server.looking_back import LookingBack
from citewire.server.metrics import CONTENT_TYPE, Metrics
from citewire.server.origins import CONSOLE, SESSION, cookie_allowed, host_known, origin_allowed
from citewire.server.overview import Overview
from citewire.server.proofs import Proofs
from citewire.server.refusals import Forbidden, NoCredentials, Refused
from citewire.server.retention import Retention
from citewire.server.rules import RuleBook
from citewire.server.runs import Runs
from citewire.server.settings import SettingError, Settings
from citewire.server.site import Site
from citewire.server.source import State
from citewire.server.sources import Sources
from citewire.server.threads import Threads
from citewire.server.tied import TiedChannels
from citewire.server.told import Told
from citewire.verification.engine import Engine
from citewire.verification.engine import Limits as EngineLimits
from citewire.verification.remote import RemoteVerifier
from citewire.verification.verifier import Verifier

__all__ = ["Server", "opened"]


# Seconds for which a run waits for a database that is away.
_PATIENCE = 30.0
# What Ably's clients send along.
_ABLY = ("ably-agent", "x-ably-clientid", "x-ably-version")


class Health(Struct, frozen=True):
    """Whether the server does its work."""

    status: str


class Server:
    """The parts of a running server, and what can be asked of them."""

    def __init__(self, settings: Settings, keyring: Keyring, address: str) -> None:
        self.settings, self.keyring, self.address = settings, keyring, address
        self.metrics = Metrics()
        self.is_ready = False
        self.operations: list[Operation] = []
        """All that can be asked, once the server is open."""

    async def open(self, stack: AsyncExitStack, questions: tuple[str, ...] = ()) -> None:
        """Start everything; `stack` ends it, in the order in which it can be done without."""
        settings, data = self.settings, Path(self.settings.data)
        store, leases, blobs = await self._open_store(stack)
        hub = self.hub = Hub(store, self.metrics.append)
        stack.callback(hub.close)
        limits = EngineLimits(memory=settings.worker_memory, **_given(readers=settings.readers))
        engine = Engine(
            cache=Cache(data / "cache"), deadline=settings.deadline, workers=settings.workers, limits=limits
        )
        await stack.enter_async_context(engine)
        index = Index(data / "search.sqlite")
        stack.callback(index.close)
        catalog = self.catalog = Catalog(hub, blobs("sources"), engine, index, settings, leases=leases)
        await stack.enter_async_context(catalog)
        attachments = self.attachments = Attachments(hub, blobs("attachments"), engine, leases=leases)
        await attachments.open()
        _own_task(stack, attachments.run())
        citing = Citing(verifier=await self._verifier(stack, engine), deadline=settings.deadline)
        history = History(store, citing.options.state_key)
        self.proofs = Proofs(self.keyring, store, catalog, self.address, settings.link_lifetime)
        agent, is_librarian = await self._agent(stack, index, catalog)
        resumes = "always", "librarian" if is_librarian else "always"
        patience = _PATIENCE if settings.dsn else 0.0
        driver = Driver(
            hub,
            history,
            agent,
            citing,
            self.proofs.links,
            self,
            patience=patience,
            has_jobs=settings.verify_jobs,
        )
        self.runs = Runs(
            hub, driver, self, linger=settings.linger, most=settings.max_runs,
            resumes=settings.resume_runs in resumes, leases=leases,
        )  # fmt: skip
        name = settings.agent_name or ("librarian" if is_librarian else "agent")
        rules = await self._open_channels(stack, store, leases, name)
        self.operations = [
            *Threads(hub, self.runs, history, self.proofs.renew).operations(),
            *Sources(catalog).operations(),
            *self.proofs.operations(self.authenticate),
            *Checks(engine, settings).operations(),
            *DeepCitation(attachments, engine, settings.deadline).operations(),
            *rules.operations(),
            *self.overview.operations(),
            *LookingBack(store, catalog, name).operations(),
            *Site(self.keyring, settings, questions).operations(),
            *self._own(),
        ]
        self.is_ready = True

    async def _open_store(self, stack: AsyncExitStack) -> nodes.Home:
        """Where everything is kept: in a folder, or in a database that other servers have as well."""
        settings, data = self.settings, Path(self.settings.data)
        if settings.dsn is None:
            store = SqliteStore(settings.store_folder)
            stack.push_async_callback(store.close)

            def files(room: str) -> Blobs:
                return Blobs(data / room)

            return nodes.Home(store, Alone(), files)
        if settings.sandbox:
            raise SettingError("--sandbox: its apps are of one server, which shares no database")
        stack.enter_context(nodes.own_folder(data))
        shared = await nodes.open_store(settings.dsn)
        stack.push_async_callback(shared.close)
        from citewire.server.blobs_postgres import PostgresBlobs  # noqa: PLC0415  # needs the extra `postgres`
        from citewire.server.vault_postgres import PostgresVault  # noqa: PLC0415

        if isinstance(self.keyring.vault, PostgresVault):
            _own_task(stack, self.keyring.vault.follow(shared.db))

        def blobs(room: str) -> Blobs:
            return PostgresBlobs(data / room, shared.db, room)

        return nodes.Home(shared, shared, blobs)

    async def _open_channels(
        self, stack: AsyncExitStack, store: ChannelStore, leases: Leases, agent: str
    ) -> RuleBook:
        """Start what ties threads to channels, and what Ably's clients speak to; the rules of channels."""
        settings, hub = self.settings, self.hub
        channels = TiedChannels(store, hub)
        rules = RuleBook(hub, channels, settings.rules)
        await rules.catch_up()
        _own_task(stack, rules.run())
        self.bridge = Bridge(store, hub, channels, self.runs, agent)
        stack.push_async_callback(self.bridge.aclose)
        stack.push_async_callback(self.runs.aclose)
        _own_task(stack, self._recover())
        _own_task(stack, self.runs.look_after())
        self.overview = Overview(Told(store, channels))
        hub.heard = self._heard
        keeps = seconds_of(settings.keep_threads) if settings.keep_threads else None
        _own_task(stack, Retention(store, channels, self.runs, keeps, leases=leases).run())
        sandbox = Sandbox(Path(settings.data) / "sandbox", store, hub) if settings.sandbox else None
        doors = [Door(self.keyring, lambda _: channels), *([sandbox.door] if sandbox else [])]
        rates = Rates(settings.publish_rate, settings.key_publish_rate)
        gate = Gate(doors, self.authenticate, rates=rates)
        self.realtime = Realtime(gate, write_timeout=settings.write_timeout)
        self._ably = ably_routes(gate, self.realtime, sandbox)
        return rules

    def _heard(self, channel: str) -> None:
        """Something has happened in a channel, here or on another node."""
        self.overview.heard(channel)
        self.runs.heard(channel)

    async def _recover(self) -> None:
        """Deal with what a crash left behind."""
        await self.runs.recover()
        await self.bridge.recover()

    async def reached(self, thread_id: str, verdicts: Sequence[VerdictReached]) -> None:
        """See `runs.Observer`: what a verdict refers to is kept as long as the verdict is."""
        notes = [verdict.verification["citewire"] for verdict in verdicts]
        for note in notes:
            self.metrics.verdicts.labels(note["status"]).inc()
        await self.catalog.cited({note["sha256"] for note in notes if note.get("sha256")}, thread_id)

    def written(self, channel: str) -> None:
        """See `runs.Observer`."""
        self.bridge.written(channel)

    def ended(self, outcome: Outcome) -> None:
        """See `runs.Observer`."""
        self.metrics.runs_ended.labels(outcome).inc()

    async def forgotten(self, thread_id: str) -> None:
        """See `runs.Observer`."""
        await self.bridge.forget(thread_id)
        await self.catalog.forget_thread(thread_id)

    async def drain(self) -> None:
        """End what lasts: whoever reads a stream may come back to another server with its last id."""
        self.is_ready = False
        await self.runs.aclose()
        self.catalog.end_events()
        self.overview.end_events()
        self.realtime.close()
        self.hub.close()

    async def _agent(self, stack: AsyncExitStack, index: Index, catalog: Catalog) -> tuple[Agent, bool]:
        settings = self.settings
        if settings.agent is None and settings.model is not None:
            from citewire.librarian.model import model_agent  # noqa: PLC0415  # needs the extra `llm`

            return agents.in_process(model_agent(index, settings.model)), False
        if settings.agent is None:
            return agents.in_process(Librarian(index, catalog.status, catalog.read).run), True
        if "://" not in settings.agent:
            return agents.local_agent(settings.agent), False
        import httpx2  # noqa: PLC0415  # only who has an agent elsewhere waits for it

        client = await stack.enter_async_context(
            httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None))
        )
        return agents.remote_agent(settings.agent, settings.agent_headers, client), False

    async def _verifier(self, stack: AsyncExitStack, engine: Engine) -> Verifier:
        """Who checks the quotes of answers."""
        settings = self.settings
        if settings.verify_jobs:
            return await self._job_verifier(stack, engine)
        if settings.verifier is None:
            return engine
        if settings.verifier_key is None:
            raise SettingError("a verifier needs a key: CITEWIRE_VERIFIER_KEY")
        remote = RemoteVerifier(settings.verifier, settings.verifier_key, deadline=settings.deadline)
        return await stack.enter_async_context(remote)

    async def _job_verifier(self, stack: AsyncExitStack, engine: Engine) -> Verifier:
        if self.settings.dsn is None or self.settings.verifier is not None:
            raise SettingError("--verify-jobs: workers need --store postgresql://…, and no --verifier")
        from citewire.server.jobs.queue import Queue  # noqa: PLC0415  # needs the extra `postgres`
        from citewire.server.jobs.verifier import JobVerifier  # noqa: PLC0415

        queue = await stack.enter_async_context(Queue.open(self.settings.dsn))
        verifier = JobVerifier(queue, engine, lambda: self.catalog.position, self.metrics.backlog)
        return await stack.enter_async_context(verifier)

    @property
    def app(self) -> ASGIApp:
        """Everything, with its guards around it."""
        app = Starlette(
            routes=[*routes(self.operations, self.authenticate), *self._ably],
            exception_handlers={HTTPException: _unrouted},
            middleware=[
                Middleware(
                    _Cors,
                    allow_origins=self.settings.origins,
                    allow_methods=["DELETE", "GET", "PATCH", "POST", "PUT"],
                    allow_headers=["authorization", "content-type", "last-event-id", *_ABLY],
                    expose_headers=["link", "x-ably-errorcode", "x-ably-errormessage"],
                )
            ],
        )
        app.router.redirect_slashes = False
        limited = Limits(slashes(app), self.settings, client=self._account, uploads=["/sources", *UPLOADS])
        return AccessLog(limited, self.metrics.request)

    def authenticate(self, request: Request) -> Caller:
        """Who makes a request: by a header, or by the session of our own page."""
        if (known := request.scope.get(CALLER)) is not None:
            return known
        if header := request.headers.get("authorization"):
            if header.lower().startswith("basic") and not self._is_deliberate(request):
                raise NoCredentials
            return self.keyring.caller(header)
        if request.method == "GET" and (token := request.query_params.get("access_token")):
            return self.keyring.caller(None, token)
        headers, host = request.headers, request.headers.get("host", "")
        tokens = [request.cookies[name] for name in (CONSOLE, SESSION) if name in request.cookies]
        if tokens and self._is_ours(host):
            origin, site = headers.get("origin"), headers.get("sec-fetch-site")
            if cookie_allowed(request.method, origin, site, host):
                return self._session(tokens)
        raise NoCredentials

    def _session(self, tokens: list[str]) -> Caller:
        """Who the first of these that holds speaks for."""
        *first, last = tokens
        for token in first:
            with suppress(Refused):
                return self.keyring.caller(None, token)
        return self.keyring.caller(None, last)

    def _is_deliberate(self, request: Request) -> bool:
        """Whether no other page made a browser send the key that it was given for ours."""
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if origin in self.settings.origins:
            return True
        own = origin_allowed(origin, request.headers.get("host", ""), ())
        return own and site in (None, "none", "same-origin")

    def _is_ours(self, host: str) -> bool:
        public = self.settings.public_url
        return host_known(host, [part for part in (public or "").split("/")[2:3] if part])

    def _account(self, scope: Scope) -> str:
        """On whose account a request goes: that of its key, if it is one."""
        if scope["type"] != "http":
            return address(scope)
        try:
            scope[CALLER] = caller = self.authenticate(Request(scope))
        except CitewireError:  # whoever is asked next says so
            return address(scope)
        return caller.key

    def _own(self) -> list[Operation]:
        return [
            Operation(
                method="GET", path="/healthz", summary="Whether the process runs", handle=self._healthy,
                gives=Health,
            ),
            Operation(
                method="GET", path="/readyz", summary="Whether it can take requests", handle=self._ready,
                gives=Health,
            ),
            Operation(
                method="GET", path="/metrics", summary="Figures for Prometheus", handle=self._figures,
                needs=("read", "metrics"), gives=Figures,
            ),
            Operation(
                method="GET", path="/openapi.json", summary="This document", handle=self._described,
                gives=dict[str, Any],
            ),
        ]  # fmt: skip

    async def _healthy(self, _: Call) -> Health:
        return Health("ok")

    async def _ready(self, _: Call) -> Health:
        if not self.is_ready:
            raise Overloaded("the server is going down")
        await self.hub.store.head("run:")
        return Health("ok")

    async def _figures(self, _: Call) -> Response:
        self.metrics.runs.set(self.runs.active)
        self.metrics.streams.set(self.runs.watched)
        states = Counter(record.state for record in self.catalog.records())
        for state in get_args(State):
            self.metrics.sources.labels(state).set(states[state])
        return Response(self.metrics.render(), headers={"content-type": CONTENT_TYPE})

    async def _described(self, _: Call) -> dict[str, Any]:
        return openapi(self.operations, __version__)


class Figures:
    """The answer of `/metrics`."""

    media = "text/plain"


@asynccontextmanager
async def opened(
    settings: Settings, keyring: Keyring, port: int, questions: tuple[str, ...] = ()
) -> AsyncGenerator[Server]:
    """A server with all its parts, until the end of the block."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    async with AsyncExitStack() as stack:
        server = Server(settings, keyring, settings.public_url or f"http://{host}:{port}")
        await server.open(stack, questions)
        yield server


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _own_task(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Have this done until the end of the stack."""
    stack.push_async_callback(_cancelled, asyncio.create_task(work))


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class _Cors(CORSMiddleware):
    """Refuses in our one shape."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        return refusal(Forbidden("no page of this origin may ask for this"))


async def _unrouted(_: Request, exc: Exception) -> Response:
    """What fits no route, in our shape."""
    status = exc.status_code if isinstance(exc, HTTPException) else 404
    if status == 405:
        response = refusal(NoSuchMethod("this path has no such method"))
        response.headers.update(getattr(exc, "headers", None) or {})
        return response
    return refusal(NotFound("there is nothing at this path"))
