"""Assemble the server: open its parts in the order of their dependencies, and build the ASGI app."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
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
from citewire.agui.citations.annotator import VerdictReached
from citewire.agui.middleware import Citing
from citewire.channels.hub import Hub
from citewire.channels.lease import Leases, SingleProcessLeases
from citewire.channels.rules import seconds_of
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import ChannelStore
from citewire.documents.cache import Cache
from citewire.errors import CitewireError, NotFound, ServerOverloaded
from citewire.librarian import Librarian, PassageIndex
from citewire.server.ably.auth import AblyAuthenticator, KeyRealm
from citewire.server.ably.publish_rates import PublishRates
from citewire.server.ably.realtime import Realtime
from citewire.server.ably.routes import routes as ably_routes
from citewire.server.ably.sandbox import Sandbox
from citewire.server.access.errors import Forbidden, NoCredentials
from citewire.server.access.keys import Caller, Keyring
from citewire.server.access.origins import cookie_allowed, origin_allowed, own_scheme
from citewire.server.access.sessions import PageName, Sessions
from citewire.server.access.sign_in import SignInLinks, sign_in_link
from citewire.server.access.used_names import UsedNames
from citewire.server.answers.answer_api import AnswerApi
from citewire.server.answers.answer_index import AnswerIndex
from citewire.server.answers.proof_api import ProofApi
from citewire.server.answers.proof_links import ProofLinks
from citewire.server.answers.record_api import RecordApi
from citewire.server.answers.verify_api import VerifyApi
from citewire.server.bridge.bridge import Bridge
from citewire.server.bridge.rule_api import RuleApi
from citewire.server.bridge.thread_channels import ThreadChannels
from citewire.server.deepcitation.attachments import Attachments
from citewire.server.deepcitation.rest import UPLOADS, DeepCitation
from citewire.server.http.access_log import AccessLog
from citewire.server.http.operations import (
    CALLER,
    CHECK_KEY,
    ApiCall,
    NoSuchMethod,
    Operation,
    error_response,
    keep_escaped_slashes,
    openapi,
    routes,
)
from citewire.server.http.pagination import SealedCursors
from citewire.server.ops.limits import RequestLimits, client_address
from citewire.server.ops.metrics import CONTENT_TYPE, Metrics
from citewire.server.ops.proxies import TrustedProxies
from citewire.server.ops.readiness import Readiness
from citewire.server.ops.settings import SettingError, Settings
from citewire.server.pages.site import Site
from citewire.server.records.audit_key import load_key
from citewire.server.records.audit_trail import AuditTrail
from citewire.server.runs import agents
from citewire.server.runs.driver import Agent, RunDriver
from citewire.server.runs.retention import Retention
from citewire.server.runs.run_manager import RunManager
from citewire.server.runs.thread_api import ThreadApi
from citewire.server.sources.cache_sweep import CacheSweep
from citewire.server.sources.catalog import Catalog
from citewire.server.sources.source import SourceState
from citewire.server.sources.source_api import SourceApi
from citewire.server.sources.versions import CheckedVersions
from citewire.server.storage import backend
from citewire.server.storage.blobs import Blobs
from citewire.threadlog.history import ThreadHistory
from citewire.threadlog.rows import IgnoredPart, Outcome
from citewire.verification.engine import Engine, EngineLimits
from citewire.verification.remote import RemoteVerifier
from citewire.verification.verifier import Verifier

__all__ = ["Server", "open_server"]


# Seconds for which a run retries an unreachable database.
_PATIENCE = 30.0
# Headers that Ably's clients send.
_ABLY = ("ably-agent", "x-ably-clientid", "x-ably-version")


class Health(Struct, frozen=True):
    """Whether the server is working."""

    status: str


class Server:
    """The parts of a running server, and its operations."""

    def __init__(self, settings: Settings, keyring: Keyring, address: str) -> None:
        self.settings, self.keyring, self.address = settings, keyring, address
        self.metrics = Metrics()
        self.sessions = Sessions(keyring, settings)
        self.is_ready = False
        self.operations: list[Operation] = []
        """All operations, once the server is open."""

    async def open(self, stack: AsyncExitStack, questions: tuple[str, ...] = ()) -> None:
        """Start all parts. `stack` closes them in reverse order."""
        settings, data = self.settings, Path(self.settings.data)
        store, leases, blobs = await self._open_store(stack)
        hub = self.hub = Hub(store, self.metrics.append)
        stack.callback(hub.close)
        key = await asyncio.to_thread(load_key, self.keyring.vault, settings.audit_key_file)
        heads = Path(settings.audit_heads) if settings.audit_heads else None
        self.trail = AuditTrail(
            store, key, self.keyring.vault, leases, interval=settings.audit_interval, heads=heads
        )
        hub.record_removal = self.trail.record_removal
        stack.push_async_callback(self._write_last_head)
        readers = _given(readers=settings.readers, reader_memory=settings.reader_memory)
        limits = EngineLimits(memory=settings.worker_memory, unread=settings.max_client_unread, **readers)
        cache = Cache(data / "cache")
        await asyncio.to_thread(cache.remove_unfinished)
        engine = Engine(cache=cache, deadline=settings.deadline, workers=settings.workers, limits=limits)
        await stack.enter_async_context(engine)
        index = PassageIndex(data / "search.sqlite")
        stack.callback(index.close)
        held = blobs("sources")
        catalog = self.catalog = Catalog(hub, held, engine, index, settings, leases=leases)
        await stack.enter_async_context(catalog)
        self.versions = CheckedVersions(catalog, held, engine)
        attachments = self.attachments = Attachments(hub, blobs("attachments"), engine, leases=leases)
        await attachments.open()
        _own_task(stack, attachments.run())
        self.caches = CacheSweep(engine, index, [catalog.needs, attachments.needs])
        await self.caches.sweep()
        _own_task(stack, self.caches.run())
        citing = Citing(verifier=await self._verifier(stack, engine), deadline=settings.deadline)
        history = ThreadHistory(store, citing.options.state_key)
        links = ProofLinks(self.keyring, self.address, settings.link_lifetime)
        proofs = ProofApi(links, store, self.versions)
        catalog.deleted = proofs.forget
        agent, is_librarian = await self._agent(stack, index, catalog)
        resumes = "always", "librarian" if is_librarian else "always"
        patience = _PATIENCE if settings.dsn else 0.0
        driver = RunDriver(
            hub,
            history,
            agent,
            citing,
            links.make,
            self,
            patience=patience,
            timeout=settings.run_timeout,
            has_jobs=settings.verify_jobs,
        )
        self.runs = RunManager(
            hub, driver, self, linger=settings.linger, most=settings.max_runs,
            resumes=settings.resume_runs in resumes, leases=leases,
        )  # fmt: skip
        name = settings.agent_name or ("librarian" if is_librarian else "agent")
        rules = await self._open_channels(stack, store, leases, name)
        sign_in_links = SignInLinks(self.keyring, UsedNames(store, "sign-in"))
        cursors = SealedCursors(self.keyring, "threads")
        self.operations = [
            *ThreadApi(hub, self.runs, history, links.renew, cursors).operations(),
            *SourceApi(catalog).operations(),
            *proofs.operations(self.authenticate),
            *VerifyApi(engine, settings).operations(),
            *DeepCitation(attachments, engine, settings.deadline).operations(),
            *rules.operations(),
            *self.overview.operations(),
            *RecordApi(store, catalog, name, self.trail).operations(),
            *Site(self.authenticate, self.sessions, sign_in_links, questions).operations(),
            *self._own(),
        ]
        _own_task(stack, self.trail.run())
        self.is_ready = True

    async def _open_store(self, stack: AsyncExitStack) -> backend.StorageBackend:
        """Open the storage: a folder, or a database that other servers share."""
        settings, data = self.settings, Path(self.settings.data)
        if settings.dsn is None:
            store = SqliteStore(settings.store_folder)
            stack.push_async_callback(store.close)
            folders = list(dict.fromkeys([data, settings.store_folder]))
            self.readiness = Readiness(folders, settings.min_free_disk, lambda: store.write_failure)

            def files(room: str) -> Blobs:
                return Blobs(data / room)

            return backend.StorageBackend(store, SingleProcessLeases(), files)
        if settings.sandbox:
            raise SettingError("--sandbox: its apps are of one server, which shares no database")
        stack.enter_context(backend.lock_folder(data))
        self.readiness = Readiness([data], settings.min_free_disk)
        shared = await backend.open_store(settings.dsn)
        stack.push_async_callback(shared.close)
        from citewire.server.storage.blobs_postgres import PostgresBlobs  # noqa: PLC0415  # needs the extra `postgres`
        from citewire.server.storage.vault_postgres import PostgresVault  # noqa: PLC0415

        if isinstance(self.keyring.vault, PostgresVault):
            _own_task(stack, self.keyring.vault.follow(shared.db))

        def blobs(room: str) -> Blobs:
            return PostgresBlobs(data / room, shared.db, room)

        return backend.StorageBackend(shared, shared, blobs)

    async def _open_channels(
        self, stack: AsyncExitStack, store: ChannelStore, leases: Leases, agent: str
    ) -> RuleApi:
        """Start the bridge between threads and channels, and the Ably API. Returns the rules of channels."""
        settings, hub = self.settings, self.hub
        channels = ThreadChannels(store, hub)
        rules = RuleApi(hub, channels, settings.rules)
        await rules.catch_up()
        _own_task(stack, rules.run())
        self.bridge = Bridge(store, hub, channels, self.runs, agent)
        stack.push_async_callback(self.bridge.aclose)
        stack.push_async_callback(self.runs.aclose)
        _own_task(stack, self._recover())
        _own_task(stack, self.runs.watch_other_nodes())
        self.overview = AnswerApi(AnswerIndex(store, channels))
        hub.on_channel_changed = self._heard
        keeps = seconds_of(settings.keep_threads) if settings.keep_threads else None
        _own_task(stack, Retention(store, channels, self.runs, keeps, leases=leases).run())
        sandbox = Sandbox(Path(settings.data) / "sandbox", store, hub) if settings.sandbox else None
        doors = [KeyRealm(self.keyring, lambda _: channels), *([sandbox.realm] if sandbox else [])]
        rates = PublishRates(settings.publish_rate, settings.key_publish_rate)
        gate = AblyAuthenticator(doors, self.authenticate, UsedNames(store, "token-request"), rates=rates)
        self.realtime = Realtime(gate, write_timeout=settings.write_timeout)
        self._ably = ably_routes(gate, self.realtime, sandbox)
        return rules

    async def _write_last_head(self) -> None:
        """Sign the final audit head once all other parts have ended, unless the server failed to start."""
        if self.operations:
            await self.trail.close()

    def _heard(self, channel: str) -> None:
        """Handle activity in a channel, on this or another node."""
        self.overview.notify_channel_changed(channel)
        self.runs.note_activity(channel)

    async def _recover(self) -> None:
        """Recover runs and channels after a crash."""
        await self.runs.recover()
        await self.bridge.recover()

    async def on_verdicts(self, thread_id: str, verdicts: Sequence[VerdictReached]) -> None:
        """See `RunObserver`: the bytes that a verdict refers to are retained as long as the verdict."""
        notes = [verdict.verification["citewire"] for verdict in verdicts]
        for note in notes:
            self.metrics.verdicts.labels(note["status"]).inc()
        await self.catalog.mark_cited({note["sha256"] for note in notes if note.get("sha256")}, thread_id)

    def on_log_written(self, channel: str) -> None:
        """See `RunObserver`."""
        self.bridge.notify_log_written(channel)

    def on_input_ignored(self, what: Sequence[IgnoredPart]) -> None:
        """See `RunObserver`."""
        for each in what:
            self.metrics.ignored.labels(each).inc()

    def on_run_ended(self, outcome: Outcome) -> None:
        """See `RunObserver`."""
        self.metrics.runs_ended.labels(outcome).inc()

    async def on_thread_deleted(self, thread_id: str) -> None:
        """See `RunObserver`."""
        await self.bridge.forget_thread(thread_id)
        await self.catalog.forget_thread(thread_id)

    async def drain(self) -> None:
        """End all streams and runs. Clients can resume at another server with their last event id."""
        self.is_ready = False
        await self.runs.aclose()
        self.catalog.end_events()
        self.overview.end_events()
        self.realtime.close()
        self.hub.close()

    async def _agent(
        self, stack: AsyncExitStack, index: PassageIndex, catalog: Catalog
    ) -> tuple[Agent, bool]:
        settings = self.settings
        if settings.agent is None and settings.model is not None:
            from citewire.librarian.model_agent import model_agent  # noqa: PLC0415  # needs the extra `llm`

            return agents.wrap_agent(model_agent(index, settings.model)), False
        if settings.agent is None:
            return agents.wrap_agent(Librarian(index, catalog.status, catalog.wait_until_read).run), True
        if "://" not in settings.agent:
            return agents.local_agent(settings.agent), False
        import httpx2  # noqa: PLC0415  # only who has an agent elsewhere waits for it

        client = await stack.enter_async_context(
            httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None))
        )
        return agents.remote_agent(settings.agent, settings.agent_headers, client), False

    async def _verifier(self, stack: AsyncExitStack, engine: Engine) -> Verifier:
        """Return the verifier for the quotes of answers."""
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
        from citewire.server.jobs.queue import JobQueue  # noqa: PLC0415  # needs the extra `postgres`
        from citewire.server.jobs.verifier import JobVerifier  # noqa: PLC0415

        queue = await stack.enter_async_context(JobQueue.open(self.settings.dsn))
        verifier = JobVerifier(queue, engine, lambda: self.catalog.position, self.metrics.backlog)
        return await stack.enter_async_context(verifier)

    @property
    def app(self) -> ASGIApp:
        """The ASGI app with all routes and middleware."""
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
        limited = RequestLimits(
            keep_escaped_slashes(app), self.settings, client=self._account, uploads=["/sources", *UPLOADS]
        )
        return TrustedProxies(AccessLog(limited, self.metrics.request), self.settings.trusted_proxies)

    def authenticate(self, request: Request) -> Caller:
        """Return the caller of a request, by its header, its token, or the session of our own pages."""
        if (known := request.scope.get(CALLER)) is not None:
            return known
        if header := request.headers.get("authorization"):
            if header.lower().startswith("basic") and not self._is_deliberate(request):
                raise NoCredentials
            return self.keyring.caller(header)
        if request.method == "GET" and (token := request.query_params.get("access_token")):
            return self.keyring.caller(None, token)
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if cookie_allowed(request.method, origin, site, *self._called_by(request)):
            return self.sessions.caller(request)
        raise NoCredentials

    def sign_in_link(self, page: PageName = "chat", **more: float) -> str:
        """Return a link that signs one browser in, with the rights of the server's operator."""
        return sign_in_link(self.keyring, self.address, self.keyring.widest_key(), page, **more)

    def _is_deliberate(self, request: Request) -> bool:
        """Check that no foreign page made the browser send credentials that it has stored for ours."""
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if origin in self.settings.origins:
            return True
        is_own = origin_allowed(origin, *self._called_by(request), ())
        return is_own and site in (None, "none", "same-origin")

    def _called_by(self, request: Request) -> tuple[str, str]:
        """Return the scheme and host under which the server was called."""
        host = request.headers.get("host", "")
        return own_scheme(request.url.scheme, host, self.settings.public_url), host

    def _account(self, scope: Scope) -> str:
        """Return the account to charge a request to: its key, or else the client's address."""
        if scope["type"] != "http":
            return client_address(scope)
        scope[CHECK_KEY] = self.keyring.check_key
        try:
            scope[CALLER] = caller = self.authenticate(Request(scope))
        except CitewireError:  # reported when the request is handled
            return client_address(scope)
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
                needs=("read", "metrics"), gives=MetricsText,
            ),
            Operation(
                method="GET", path="/openapi.json", summary="This document", handle=self._described,
                gives=dict[str, Any],
            ),
        ]  # fmt: skip

    async def _healthy(self, _: ApiCall) -> Health:
        return Health("ok")

    async def _ready(self, _: ApiCall) -> Health:
        if not self.is_ready:
            raise ServerOverloaded("the server is going down")
        await self.readiness.check()
        await self.hub.store.head("run:")
        return Health("ok")

    async def _figures(self, _: ApiCall) -> Response:
        self.metrics.runs.set(self.runs.active_count)
        self.metrics.streams.set(self.runs.watcher_count)
        states = Counter(record.state for record in self.catalog.records())
        for state in get_args(SourceState):
            self.metrics.sources.labels(state).set(states[state])
        return Response(self.metrics.render(), headers={"content-type": CONTENT_TYPE})

    async def _described(self, _: ApiCall) -> dict[str, Any]:
        return openapi(self.operations, __version__)


class MetricsText:
    """The response of `/metrics`."""

    media = "text/plain"


@asynccontextmanager
async def open_server(
    settings: Settings, keyring: Keyring, port: int, questions: tuple[str, ...] = ()
) -> AsyncGenerator[Server]:
    """Open a server with all its parts, until the end of the block."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    async with AsyncExitStack() as stack:
        server = Server(settings, keyring, settings.public_url or f"http://{host}:{port}")
        await server.open(stack, questions)
        yield server


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _own_task(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Run a background task until the stack closes."""
    stack.push_async_callback(_cancelled, asyncio.create_task(work))


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class _Cors(CORSMiddleware):
    """Rejects preflight requests with our error format."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        return error_response(Forbidden("no page of this origin may ask for this"))


async def _unrouted(_: Request, exc: Exception) -> Response:
    """Return the error response for requests that match no route."""
    status = exc.status_code if isinstance(exc, HTTPException) else 404
    if status == 405:
        response = error_response(NoSuchMethod("this path has no such method"))
        response.headers.update(getattr(exc, "headers", None) or {})
        return response
    return error_response(NotFound("there is nothing at this path"))
