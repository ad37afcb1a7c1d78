import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import Phase, settings

from support.cases import need_cases
from support.postgres import Postgres, need_postgres

# Explaining a failure traces every line, which on Python 3.11 takes longer than finding it.
_PHASES = [phase for phase in Phase if phase is not Phase.explain]
settings.register_profile("default", deadline=None, max_examples=100, print_blob=True, phases=_PHASES)
# The same examples every time: CI must not fail by chance on a change that is not at fault.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


# A shell that starts the tests in the background has SIGINT ignored, and so would every child that a test
# interrupts. A handler is not inherited: children get the default action.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Helpers whose users need a browser, Node, Postgres, or a server in a process of its own.
_EXTERNAL = {
    f"support.{name}"
    for name in (
        *("ably_node", "agents", "agui_node", "browser", "bundle", "chromium", "copilotkit", "nodes"),
        *("postgres", "server_process", "web_node", "web_page", "worker_process"),
    )
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that `make quick` leaves out."""
    if isinstance(item, pytest.Function):
        used = {getattr(value, "__module__", None) for value in vars(item.module).values()}
        if used & _EXTERNAL or {"dsn", "shared_postgres"} & {*item.fixturenames}:
            item.add_marker("external")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say how to get what is missing, where pytest would only say that `payload_paths` gave it nothing."""
    for mark in item.iter_markers("skip"):
        if str(mark.kwargs.get("reason")).startswith("got empty parameter set"):
            need_cases()
    # Not in the fixture: see need_cases.
    if isinstance(item, pytest.Function) and "shared_postgres" in item.fixturenames:
        need_postgres()


@pytest.fixture(scope="session")
def shared_postgres() -> Generator[Postgres]:
    """One server for all tests of a worker: `dsn` is an empty database on it, `database()` makes more."""
    with Postgres() as server:
        yield server


@pytest.fixture
def dsn(shared_postgres: Postgres) -> Generator[str]:
    """The address of an empty database."""
    with shared_postgres.database() as address:
        yield address


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where everything is required, a skip is a failure, whoever asked for it."""
    report = yield
    if report.skipped and os.environ.get("CITEWIRE_REQUIRE") == "all" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
    return report
