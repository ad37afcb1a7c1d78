"""The map of the code, and the guide for contributors, name what is there."""

import re
from collections.abc import Iterator

import pytest

from support.cases import ROOT

PACKAGE = ROOT / "src/citewire"
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md"]

# `path/to/file.py`: `Name.method`, `other`
_NAMED = re.compile(r"`((?:[\w-]+/)*[\w-]+\.py)`: ((?:`[\w.]+`(?:, | and )?)+)")
_PATH = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|js|html|md))`")


def named(text: str) -> Iterator[tuple[str, str]]:
    """The files and the names in them that a text speaks of."""
    for found in _NAMED.finditer(text):
        for name in re.findall(r"`([\w.]+)`", found[2]):
            yield found[1], name


def source_of(path: str) -> str:
    base = ROOT if path.startswith(("tests/", "docs/", "examples/")) else PACKAGE
    return (base / path).read_text("utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_every_name_on_the_page_is_in_its_file(page: str) -> None:
    found = list(named((ROOT / page).read_text("utf-8").replace("\n", " ")))
    assert len(found) > 15
    for path, name in found:
        source = source_of(path)
        for part in name.split("."):
            assert re.search(rf"^\s*(?:(?:async )?def |class )?{part}\b", source, re.MULTILINE), (path, name)


@pytest.mark.parametrize("page", PAGES)
def test_every_path_on_the_page_is_there(page: str) -> None:
    for path in _PATH.findall((ROOT / page).read_text("utf-8")):
        assert (ROOT / path).exists() or (PACKAGE / path).exists(), path


def test_the_map_lists_every_room() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rooms = {
        path.name
        for path in [*PACKAGE.iterdir(), *(PACKAGE / "server").iterdir()]
        if (path / "__init__.py").exists()
    }
    assert {room for room in rooms if f"`{room}/`" not in page} == set()
