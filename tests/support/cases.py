"""What a test may need from outside the checkout: the shared cases, programs, services.

What is missing is skipped with one line that says how to get it. CITEWIRE_REQUIRE=all, as CI sets it,
makes that a failure.
"""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = Path(os.environ.get("CITEWIRE_CASES", ROOT / "../shared/cases")).resolve()


def need(what: str, present: bool, hint: str) -> None:
    """Go on when `what` is present, else skip or fail with `hint`, which says how to get it."""
    if present:
        return
    message = f"no {what}: {hint}"
    if os.environ.get("CITEWIRE_REQUIRE") == "all":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def need_cases() -> Path:
    """The folder of the shared cases, or a skip.

    Not a fixture: pytest folds equal skips into one line by where they are raised, and one raised in a
    fixture counts as raised in each test.
    """
    need("shared cases", CASES.is_dir(), "set CITEWIRE_CASES to the folder that holds them")
    return CASES


def payload_paths(*prefixes: str) -> list[Path]:
    """The captured payloads whose file names start with one of `prefixes` (none: all), for `parametrize`.

    Without the shared cases the list is empty, and tests over it are skipped in the words of `need`.
    A prefix that matches nothing is a mistake in the test and raises LookupError.
    """
    if not CASES.is_dir():
        return []
    found: set[Path] = set()
    for prefix in prefixes or ("",):
        matches = set((CASES / "payloads").glob(f"{prefix}*.json"))
        if not matches:
            raise LookupError(f"no payload starts with {prefix!r}")
        found |= matches
    return sorted(found)
