"""The log and the figures: one line for each record, whatever is in it, and nothing that is secret."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import unicodedata
from collections.abc import Generator
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from citewire.redaction import redact
from citewire.server.access.capability import FULL
from citewire.server.access.keys import Caller
from citewire.server.http.access_log import AccessLog
from citewire.server.ops.logs import AccessRecord, Formatter, configure
from citewire.server.ops.metrics import Metrics

SECRET = "s3cr3t-Zq9_xWv8uT7rS6pO5nM4lK3jI2hG1fE0dC"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.Zm9vYmFyYmF6"
Form = Literal["text", "json"]


def record(
    message: object, *args: object, fields: dict[str, Any] | None = None, **more: Any
) -> logging.LogRecord:
    made = logging.LogRecord("citewire.test", logging.INFO, "x.py", 1, message, args, None)  # type: ignore[arg-type]
    made.__dict__ |= {"fields": fields or {}} | more
    return made


def is_one_clean_line(text: str) -> bool:
    return all(unicodedata.category(letter) not in ("Cc", "Zl", "Zp", "Cs") for letter in text)


@pytest.mark.parametrize(
    "text",
    [
        f"authorization: Bearer {SECRET}",
        f"Authorization: Digest a={SECRET}, b='{SECRET}'",
        f"Cookie: a=b; citewire_session={SECRET}",
        f"{{'authorization': 'Bearer {SECRET}'}}",
        f"[(b'host', b'x'), (b'authorization', b'Bearer {SECRET}')]",
        f'{{"access_token": "{SECRET}"}}',
        f'"{{\\"token\\": \\"{SECRET}\\"}}"',
        f"{{'key': 'it\\'s {SECRET}'}}",
        f"GET /proofs/p.png?sig={SECRET}&w=10",
        f"https://example.com/?x=1&%61ccess_token={SECRET}#y",
        f"/sources?KEY={SECRET}",
        f"x=/y?url=https://example.com/?key={SECRET}",
        f"https://user:{SECRET}@example.com/x",
        f"got bearer {SECRET}, which is wrong",
        f"agent_headers=('X: {SECRET}',)",
        f"the key app.main:{SECRET} is unknown",
        JWT,
        f"au\x1b[0mthorization: {SECRET}",
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets(text: str, form: Form) -> None:
    """Wherever the text comes from: the message, its arguments, a field, an error."""
    failed = record("failed", exc_info=(ValueError, ValueError(text), None))
    for each in (record(text), record("%s", text), record("x", fields={"url": text}), failed):
        line = Formatter(form).format(each)
        assert SECRET not in line
        assert JWT not in line


@pytest.mark.parametrize(
    "text",
    [
        "the key: it opens the door",
        "GET /threads/t?at=5&dialect=salesforce",
        "https://example.com/a@b?x=monkey",
        "Basic plans cost 5 dollars",
        "module.name:object",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


hostile = (
    st.text(st.sampled_from("\x00\x07\x1b[31m\r\n\t\x85\x9b\u2028\u202e\ud800 \"'=&?:%{}sé😀")) | st.text()
)


@pytest.mark.parametrize("form", ["text", "json"])
@given(before=hostile, after=hostile, name=st.sampled_from(["key", "access_token", "sig", "k%65y"]))
def test_hostile_text_is_one_line_without_the_secret(form: Form, before: str, after: str, name: str) -> None:
    text = f"{before} /x?{name}={SECRET}&y={after}"
    line = Formatter(form).format(record(text, fields={"a": after, "b": [before]}))
    assert is_one_clean_line(line)
    assert SECRET not in line
    if form == "json":
        assert json.loads(line)["level"] == "info"


@given(error=hostile, args=st.lists(hostile | st.integers() | st.none(), max_size=3), message=hostile)
def test_a_record_that_cannot_be_formatted_is_logged(error: str, args: list[Any], message: str) -> None:
    """Also where the arguments do not fit, or fail when they are shown."""

    class Bad:
        def __repr__(self) -> str:
            raise ValueError(error)

    exc = RuntimeError(error)
    made = record(message + "%d", *args, Bad(), exc_info=(RuntimeError, exc, None))
    assert is_one_clean_line(Formatter("json").format(made))
    first, *rest = Formatter("text").format(made).split("\n")
    assert all(map(is_one_clean_line, [first, *rest]))
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_the_two_forms() -> None:
    made = record("asked %s", "twice", fields={"status": 200, "who": "a b", "none": None}, created=0.0)
    text = '1970-01-01T00:00:00.000+00:00 info citewire.test: asked twice status=200 who="a b"'
    assert Formatter("text").format(made) == text
    assert json.loads(Formatter("json").format(made)) == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "level": "info",
        "logger": "citewire.test",
        "message": "asked twice",
        "status": 200,
        "who": "a b",
        "none": None,
    }


@pytest.fixture
def log() -> Generator[io.StringIO]:
    """What is logged, as JSON lines, while the test runs."""
    names = ("", "citewire", "uvicorn", "uvicorn.error", "uvicorn.access")
    before = [
        (logger := logging.getLogger(name), logger.handlers, logger.level, logger.propagate) for name in names
    ]
    stream = io.StringIO()
    configure("info", "json", stream)
    yield stream
    for logger, handlers, level, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def test_everybody_logs_through_one_formatter(log: io.StringIO) -> None:
    """And libraries only when it matters: at info they tell of every URL."""
    logging.getLogger("uvicorn.error").info("started at ?key=%s", SECRET)
    logging.getLogger("httpx2").info("GET ?key=%s", SECRET)
    logging.getLogger("asyncio").error("lost")
    logging.getLogger("citewire.server").debug("detail")
    assert [line["logger"] for line in lines(log)] == ["uvicorn.error", "asyncio"]
    assert SECRET not in log.getvalue()


async def thread(request: Request) -> Response:
    request.scope["citewire.caller"] = Caller("app.main", FULL, "ann")
    logging.getLogger("citewire.server").info("at work")
    return Response("12345", 201)


async def fail(_: Request) -> Response:
    raise ZeroDivisionError


async def health(_: Request) -> Response:
    return Response()


APP = Starlette(routes=[Route("/threads/{id}", thread), Route("/fail", fail), Route("/healthz", health)])


def ask(app: ASGIApp, path: str, query: bytes = b"", method: str = "GET", **headers: str) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "root_path": "",
        "query_string": query,
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    return sent


def test_access(log: io.StringIO) -> None:
    done: list[AccessRecord] = []
    sent = ask(
        AccessLog(APP, done.append),
        "/threads/a b",
        f"at=5&access_token={SECRET}&k%65y={SECRET}".encode(),
        x_request_id="from-the-proxy",
        authorization=f"Bearer {SECRET}",
    )
    work, access = lines(log)
    assert work["request_id"] == access["request_id"] == "from-the-proxy"
    assert dict(sent[0]["headers"])[b"x-request-id"] == b"from-the-proxy"
    assert access["message"] == "GET /threads/a b?at=5"
    assert [access[name] for name in ("status", "bytes", "caller", "client_id")] == [
        201,
        5,
        "app.main",
        "ann",
    ]
    assert access["ms"] >= 0
    assert SECRET not in log.getvalue()
    assert [(each.route, each.status) for each in done] == [("/threads/{id}", 201)]


@pytest.mark.parametrize("given_id", ["", "a\x1b[31mb", "a b", "x" * 65, "é"])
def test_an_id_that_is_none_is_replaced(log: io.StringIO, given_id: str) -> None:
    seen = {
        dict(ask(AccessLog(APP, lambda _: None), "/threads/x", x_request_id=given_id)[0]["headers"])[
            b"x-request-id"
        ]
        for _ in range(2)
    }
    assert len(seen) == 2
    assert {line["request_id"].encode() for line in lines(log)} == seen


def test_a_failure_is_logged_as_one(log: io.StringIO) -> None:
    with pytest.raises(ZeroDivisionError):
        ask(AccessLog(APP, lambda _: None), "/fail")
    assert lines(log)[-1]["status"] == 500


def test_health_is_not_logged(log: io.StringIO) -> None:
    ask(AccessLog(APP, lambda _: None), "/healthz")
    assert lines(log) == []


def test_a_client_that_left_is_told_from_an_answer(log: io.StringIO) -> None:
    async def silent(_: Scope, __: Receive, ___: Send) -> None:
        return

    ask(AccessLog(silent, lambda _: None), "/x")
    assert lines(log)[-1]["status"] == 499


@given(path=hostile, query=st.binary(max_size=50))
def test_hostile_requests_are_one_line(path: str, query: bytes) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Formatter("text"))
    logger = logging.getLogger("citewire.access")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # What pytest keeps of it must have a UTF-8 form.
    logger.propagate = False
    try:
        ask(AccessLog(APP, lambda _: None), f"/{path}", query + f"&sig={SECRET}".encode())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
    text = stream.getvalue()
    assert text.endswith("\n")
    assert is_one_clean_line(text[:-1])
    assert SECRET not in text


# Figures


def figures(metrics: Metrics) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_requests_are_counted_by_route() -> None:
    """However many paths and methods there are."""
    metrics = Metrics()
    app = AccessLog(APP, metrics.request)
    for n in range(50):
        ask(app, f"/threads/{n}")
        ask(app, f"/nothing/{n}", method=f"M{n}")
    counted = {
        key[1:]: value for key, value in figures(metrics).items() if key[0] == "citewire_requests_total"
    }
    assert counted == {("GET", "/threads/{id}", "201"): 50, ("OTHER", "", "404"): 50}


def test_all_figures_are_told() -> None:
    metrics = Metrics()
    metrics.streams.inc()
    metrics.runs.inc(2)
    metrics.runs_ended.labels("finished").inc()
    metrics.verdicts.labels("verified").inc(3)
    metrics.append(4, 0.002)
    metrics.sources.labels("ready").set(5)
    assert figures(metrics).items() >= {
        ("citewire_streams_open",): 1,
        ("citewire_runs_active",): 2,
        ("citewire_runs_total", "finished"): 1,
        ("citewire_verdicts_total", "verified"): 3,
        ("citewire_appends_total",): 4,
        ("citewire_append_seconds_count",): 1,
        ("citewire_append_seconds_bucket", "0.0025"): 1,
        ("citewire_sources", "ready"): 5,
    }.items()  # fmt: skip


def test_two_servers_count_for_themselves() -> None:
    one, other = Metrics(), Metrics()
    one.append(1, 0.1)
    assert figures(other)["citewire_appends_total",] == 0
