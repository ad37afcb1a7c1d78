"""Build the agent that answers runs: an agent at a URL, or a Python object such as the librarian."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from msgspec.structs import replace

from citewire.agui.agents import BaseAgent, LocalAgent
from citewire.agui.client import HttpAgent
from citewire.agui.events import AnyEvent, RunInput
from citewire.agui.transport import Timeouts
from citewire.server.ops.settings import SettingError
from citewire.server.runs.driver import Agent
from citewire.threadlog.rows import StartedRun

if TYPE_CHECKING:
    from httpx2 import AsyncClient

__all__ = ["local_agent", "remote_agent"]

_CLIENT = "x-citewire-client-id"
# The server itself enforces the total timeout of a run.
_TIMEOUTS = Timeouts(total=None)


def remote_agent(url: str, headers: tuple[str, ...], client: AsyncClient) -> Agent:
    """Return the agent at `url`. Each request carries the end user's client id in a header."""
    given = dict(_header(each) for each in headers)

    def run(run_input: RunInput, started: StartedRun) -> AsyncIterator[AnyEvent]:
        user = _user(started)
        known = given if user is None else {**given, _CLIENT: quote(user, safe="@.:+ ")}
        return HttpAgent(url, headers=known, client=client, timeouts=_TIMEOUTS).run(
            _with_caller(run_input, started)
        )

    return run


def local_agent(name: str) -> Agent:
    """Import the agent `module:object`: a `BaseAgent`, or a function that maps the input to events."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as exc:
        raise SettingError(f"the agent {name} is not there: {exc}") from exc
    return wrap_agent(found)


def wrap_agent(found: object) -> Agent:
    """Wrap a `BaseAgent` or a function as an agent. Raises `SettingError` for anything else."""
    if not isinstance(found, BaseAgent) and not callable(found):
        raise SettingError("an agent is a function of the input of a run, or an object with `run`")
    agent = found if isinstance(found, BaseAgent) else LocalAgent(cast("Callable[[RunInput], Any]", found))

    def run(run_input: RunInput, started: StartedRun) -> AsyncIterator[AnyEvent]:
        return agent.run(_with_caller(run_input, started))

    return run


def _with_caller(run_input: RunInput, started: StartedRun) -> RunInput:
    """Add the authenticated caller to the input's forwarded props, overriding what the client claims."""
    props: Any = run_input.forwarded_props
    known = cast("dict[str, Any]", props) if isinstance(props, dict) else {}
    user = {"clientId": _user(started), "key": started.key}
    return replace(run_input, forwarded_props={**known, "citewire": user})


def _user(started: StartedRun) -> str | None:
    return None if started.client_id == "*" else started.client_id


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
