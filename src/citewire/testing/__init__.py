"""For the tests of those who write agents, and of those who write stores.

`assert_citations_verified` checks what an agent answered. `StoreContract` and `SlotsContract` are what every
`Store` and `Slots` must do: subclass them, say how a store is opened, and pytest does the rest. A store that
outlives its process sets `durable`; it is then closed and opened again in the middle of things.
`pytest.register_assert_rewrite("citewire.testing")` in a conftest.py makes failures say what was compared.
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
    """The contracts, once asked for: they need pytest and hypothesis."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "slots" if name == "SlotsContract" else "store"
    try:
        return getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} is for tests of a store: it needs pytest and hypothesis") from error
