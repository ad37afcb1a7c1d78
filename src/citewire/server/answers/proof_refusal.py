"""Error responses for proofs: a page for people, JSON for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template

from starlette.responses import Response

from citewire.errors import CitewireError, NotFound
from citewire.rendering.safety import clean_text
from citewire.server.access.errors import BadLink, LinkExpired, NoCredentials
from citewire.server.http.operations import ApiCall, error_response
from citewire.server.pages.site import SECURITY_HEADERS

__all__ = ["refuse"]

_PAGE = Template((files("citewire.server") / "pages" / "proof_refused.html").read_text("utf-8"))
_ASK = "Ask the person who sent it for a new link. Anyone who may read the conversation can create one."


def refuse(error: CitewireError, call: ApiCall) -> Response:
    """Return the error response to a request for a proof or its picture.

    A client that accepts HTML gets a page, or a line of plain text for a picture. All others get JSON.
    """
    response = error_response(error)
    response.headers.update({"cache-control": "no-store", "vary": "accept"})
    if not _wants_html(call.request.headers.get("accept", "")):
        return response
    title, advice = _words(error)
    if call.path["name"].count(".") > 1:
        body, media = f"{title}. {advice}\n", "text/plain"
    else:
        body, media = _PAGE.substitute(title=_text(title), advice=_text(advice)), "text/html"
    kept = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
    return Response(body, response.status_code, kept | SECURITY_HEADERS, media)


def _words(error: CitewireError) -> tuple[str, str]:
    """Return the title of the problem, and advice."""
    match error:
        case LinkExpired():
            end = datetime.fromtimestamp(error.end, UTC).strftime("%Y-%m-%d %H:%M UTC")
            return "This link has expired", f"It worked until {end}. {_ASK}"
        case BadLink():
            return "This link does not work", f"It is incomplete, or was changed. Copy all of it. {_ASK}"
        case NoCredentials():
            return "This page needs a link that works", f"The address alone does not open it. {_ASK}"
        case NotFound():
            return "There is no such proof", "It was deleted with its conversation, or the address is wrong."
        case _:
            return "This proof cannot be shown", f"The server says: {error.message}"


def _wants_html(accept: str) -> bool:
    """Return whether the client accepts HTML explicitly, with at least the quality of JSON."""
    wanted: dict[str, float] = {}
    for part in accept.split(","):
        media, *options = (piece.strip().lower() for piece in part.split(";"))
        wanted[media] = _quality(options)
    html = max(wanted.get("text/html", 0.0), wanted.get("application/xhtml+xml", 0.0))
    return html > 0 and html >= wanted.get("application/json", 0.0)


def _quality(options: list[str]) -> float:
    given = next((option.removeprefix("q=") for option in options if option.startswith("q=")), "1")
    try:
        return float(given)
    except ValueError:
        return 0.0


def _text(text: str) -> str:
    return escape(clean_text(text))
