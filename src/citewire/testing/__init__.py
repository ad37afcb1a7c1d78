"""Helpers for the tests of agents and of stores.

`assert_citations_verified` checks an agent's answer. `StoreContract` and `SlotsContract` are test suites that
every `Store` and `Slots` must pass: subclass them, implement `open`, and run pytest. A store that outlives
its process sets `durable`; it is then closed and reopened during the tests.
`pytest.register_assert_rewrite("citewire.testing")` in a conftest.py makes failures show the compared values.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from citewire.testing.citations import assert_citations_verified

if TYPE_CHECKING:
    from citewire.testing.slots import SlotsContract
    from citewire.testing.store import StoreContract, check_erased, check_log, entries, everything

__all__ = [
    "SlotsContract",
    "StoreContract",
    "assert_citations_verified",
    "check_erased",
    "check_log",
    "entries",
    "everything",
]


def __getattr__(name: str) -> Any:
    """Import the contracts on first use: they need pytest and hypothesis."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "slots" if name == "SlotsContract" else "store"
    try:
        return getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} is for tests of a store: it needs pytest and hypothesis") from error
