"""Which pages may call, and by what."""

from __future__ import annotations

import pytest

from citewire.server.access.origins import (
    cookie_allowed,
    cookie_name,
    is_known_host,
    is_loopback,
    origin_allowed,
    own_scheme,
    session_cookie,
)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.168.1.2", False),
        ("localhost.example.org", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost:8000", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("10.0.0.7", True),
        ("cite.example.org", True),
        ("CITE.example.org:443", True),
        ("evil.example", False),
        ("evil.example:8000", False),
        ("localhost.evil.example", False),
        ("cite.example.org.evil.example", False),
        ("evil.example/cite.example.org", False),
        ("user@localhost", False),
        ("localhost:", False),
        ("127.1", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_a_name_that_somebody_made_lead_here_is_not_ours(host: str, known: bool) -> None:
    assert is_known_host(host, ["cite.example.org"]) is known


@pytest.mark.parametrize(
    ("origin", "allowed", "may"),
    [
        (None, [], True),
        ("http://localhost:8000", [], True),
        ("https://localhost:8000", [], False),
        ("HTTP://LOCALHOST:8000", [], True),
        ("http://localhost:3000", [], False),
        ("http://localhost", [], False),
        ("http://localhost:8000.evil.example", [], False),
        ("http://evil.example", [], False),
        ("null", [], False),
        ("null", ["*", "null"], False),
        ("", [], False),
        ("localhost:8000", [], False),
        ("file://localhost:8000", [], False),
        ("http://localhost:3000", ["http://localhost:3000"], True),
        ("https://App.example.org", ["https://app.example.ORG"], True),
        ("https://app.example.org.evil.example", ["https://app.example.org"], False),
        ("http://app.example.org", ["https://app.example.org"], False),
        ("http://evil.example", ["*"], True),
    ],
)
def test_origins(origin: str | None, allowed: list[str], may: bool) -> None:
    assert origin_allowed(origin, "http", "localhost:8000", allowed) is may


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://cite.example.org", "cite.example.org:443"),
        ("https://cite.example.org:443", "cite.example.org"),
        ("http://cite.example.org", "cite.example.org:80"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_the_port_of_a_scheme_need_not_be_written(origin: str, host: str) -> None:
    scheme = origin.partition(":")[0]
    assert origin_allowed(origin, scheme, host, [])
    assert not origin_allowed(origin, scheme, f"{host}8", [])


@pytest.mark.parametrize(
    ("host", "public_url", "scheme"),
    [
        ("localhost:8000", None, "http"),
        ("cite.example.org", "https://cite.example.org", "https"),
        ("CITE.example.org:443", "https://cite.example.org/", "https"),
        ("cite.example.org", "https://cite.example.org:443", "https"),
        ("localhost:8000", "https://cite.example.org", "http"),
        ("cite.example.org:8000", "https://cite.example.org", "http"),
    ],
)
def test_the_scheme_of_a_request(host: str, public_url: str | None, scheme: str) -> None:
    """A proxy that does TLS may call us without: then the public address says what browsers see."""
    assert own_scheme("http", host, public_url) == scheme
    assert own_scheme("https", host, public_url) == "https"


@pytest.mark.parametrize(
    ("method", "origin", "fetch_site", "may"),
    [
        ("POST", "http://localhost:8000", "same-origin", True),
        ("POST", "http://localhost:8000", None, True),
        ("POST", "https://localhost:8000", None, False),
        ("POST", "http://localhost:8000", "cross-site", False),
        ("POST", "http://localhost:8000", "same-site", False),
        ("POST", "http://localhost:8000", "none", False),
        ("POST", "http://localhost:3000", "same-site", False),
        ("GET", "http://localhost:3000", None, False),
        ("POST", "null", None, False),
        ("POST", None, None, False),
        ("POST", None, "none", False),
        ("POST", None, "cross-site", False),
        ("DELETE", None, "same-origin", True),
        ("GET", None, "same-origin", True),
        ("GET", None, "none", True),
        ("GET", None, None, True),
        ("GET", None, "same-site", False),
        ("GET", None, "cross-site", False),
    ],
)
def test_a_cookie_speaks_only_for_our_own_pages(
    method: str, origin: str | None, fetch_site: str | None, may: bool
) -> None:
    assert cookie_allowed(method, origin, fetch_site, "http", "localhost:8000") is may


def test_the_cookie_of_a_session() -> None:
    cookie = session_cookie("name", "abc", 3600, secure=True)
    assert cookie == "name=abc; Path=/; Max-Age=3600; HttpOnly; SameSite=Strict; Secure"
    assert "Secure" not in session_cookie("name", "abc", 3600, secure=False)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:8787", "citewire_session_8787"),
        ("[::1]:8788", "citewire_session_8788"),
        ("localhost", "citewire_session_80"),
        ("[::1]", "citewire_session_80"),
        ("evil; a=b:1", "citewire_session_80"),
        ("localhost:999999", "citewire_session_80"),
        ("", "citewire_session_80"),
    ],
)
def test_the_name_of_a_cookie_tells_ports_apart(host: str, name: str) -> None:
    """Browsers share cookies among the ports of a host; with TLS they keep them to it."""
    assert cookie_name(host, secure=False) == name
    assert cookie_name(host, secure=True) == "__Host-citewire_session"
