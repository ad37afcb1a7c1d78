"""Remove credentials from text that people will read."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

__all__ = ["HIDDEN", "is_secret_name", "redact"]

HIDDEN = "…"
"""Placeholder for a redacted secret."""

_HEADERS = ("authorization", "proxy-authorization", "set-cookie", "cookie", "x-api-key", "agent_headers")
_NAMES = frozenset(
    [
        *_HEADERS,
        *(
            "access_token",
            "accesstoken",
            "api_key",
            "apikey",
            "client_secret",
            "id_token",
            "jwt",
            "key",
            "password",
        ),
        *("recover", "refresh_token", "resume", "secret", "sig", "signature", "token"),
    ]
)
# A header line, redacted to its end, as a value may contain anything.
_HEADER = re.compile(rf"(?i)(?<![\w-])({'|'.join(_HEADERS)})(\s*[:=]\s*).*")
# A pair in a mapping or list, in Python or JSON: `'cookie': 'x'`, `(b"token", b"x")`.
_PAIR = re.compile(
    rf"""(?i)(["'](?:{"|".join(sorted(_NAMES))})\\*["']\s*[:,]\s*)"""
    r"""(?:b?\\*(["'])(?:\\.|(?!\2).)*\2?|[^\s,})\]"']+)"""
)
# Lookbehinds and length limits keep matching fast on any text.
_PARAMETER = re.compile(r"(?<![\w%+.~-])([\w%+.~-]+)=")
_VALUE = re.compile(r"""[^\s&;#"'<>]*""")
_CREDENTIALS = re.compile(r"""(?i)\b(bearer\s+|basic\s+(?=[a-z0-9+/]{8}))[^\s"',]+""")
_KEY = re.compile(r"(?<![\w-])([\w-]{1,64}\.[\w-]{1,64}:)[\w-]{32,}")
_JWT = re.compile(r"(?<![A-Za-z0-9])eyJ[\w-]{5,400}\.[\w-]+(?:\.[\w-]*)?")
_USER = re.compile(r"""(://)[^\s/?#"']*@""")


def redact(text: str) -> str:
    """Return `text` without credentials in headers and URLs, or anything that looks like a key or token."""
    text = _PAIR.sub(rf"\1{HIDDEN}", _HEADER.sub(rf"\1\2{HIDDEN}", text))
    text = _USER.sub(rf"\1{HIDDEN}@", _without_parameters(text))
    return _KEY.sub(rf"\1{HIDDEN}", _JWT.sub(HIDDEN, _CREDENTIALS.sub(rf"\1{HIDDEN}", text)))


def _without_parameters(text: str) -> str:
    kept: list[str] = []
    at = 0
    while match := _PARAMETER.search(text, at):
        kept.append(text[at : match.end()])
        at = match.end()
        # The value of any other parameter may be a URL with its own parameters.
        if is_secret_name(match[1]) and (value := _VALUE.match(text, at)):
            kept.append(HIDDEN)
            at = value.end()
    return "".join(kept) + text[at:]


def is_secret_name(name: str) -> bool:
    """Whether a field or URL parameter of this name holds a secret."""
    # Servers decode %6bey to key.
    return unquote_plus(name).strip().lower() in _NAMES
