"""What every `Store` and `Slots` must do, for those who write one.

Subclass `StoreContract` and `SlotsContract`, say how a store is opened, and pytest does the rest. A store
that outlives its process sets `durable`; it is then closed and opened again in the middle of things.
`pytest.register_assert_rewrite("citewire.testing")` in a conftest.py makes failures say what was compared.
"""

try:
    from citewire.testing.slots import SlotsContract
    from citewire.testing.store import StoreContract, check_log, entries, everything
except ModuleNotFoundError as error:
    raise ImportError("citewire.testing is for tests: it needs pytest and hypothesis") from error

__all__ = ["SlotsContract", "StoreContract", "check_log", "entries", "everything"]
