"""The papers say what the code does."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import msgspec
import pytest

import citewire
from citewire import agui, codec
from citewire.channels import errors
from citewire.dialects.common.extension_fields import ExtensionFields
from citewire.errors import CitewireError
from citewire.model import Answer
from citewire.server.runs.live_run import END_MESSAGES
from support.cases import ROOT

PROTOCOL = (ROOT / "PROTOCOL.md").read_text("utf-8")
PAGES = sorted((ROOT / "docs").glob("*.md"))


# Errors are known once their modules are loaded.
for module in walk_packages(citewire.__path__, "citewire."):
    import_module(module.name)


def error_codes(root: type[CitewireError] = CitewireError) -> set[str]:
    return {root.code}.union(*(error_codes(error) for error in root.__subclasses__()))


def literal_codes() -> Iterator[str]:
    """Codes that no error class has: of requests refused early, and of reports about foreign errors."""
    yield "internal"
    yield from END_MESSAGES
    for path in (ROOT / "src/citewire").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Refusal"), args=[_, ast.Constant(value=str(code)), *_]):
                    yield code
                case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                    yield code
                case _:
                    pass


def test_the_protocol_lists_every_error_code() -> None:
    table = PROTOCOL.partition("## 4.")[2].partition("## 5.")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
    listed = [code for row in rows for code in re.findall(r"`(\w+)`", row)]
    assert len(listed) == len(set(listed))
    assert set(listed) == error_codes() | set(literal_codes())


def test_no_error_code_has_two_meanings() -> None:
    """A code belongs to one class, or to requests that are refused before they reach an operation."""
    classes = Counter(
        each.code for each in {CitewireError, *descendants(CitewireError)} if "code" in vars(each)
    )
    assert {code: count for code, count in classes.items() if count > 1} == {}
    refused = {
        "bad_request",
        "headers_too_large",
        "too_large",
        "too_many_requests",
        "too_slow",
        "url_too_long",
    }
    assert refused & classes.keys() == set()


def descendants(kind: type[CitewireError]) -> Iterator[type[CitewireError]]:
    for each in kind.__subclasses__():
        yield each
        yield from descendants(each)


def test_the_protocol_lists_every_code_of_channels() -> None:
    table = PROTOCOL.partition("## 9.")[2]
    codes = re.findall(r"^\| (\d{5}) \| (\d{3}) \|", table, re.MULTILINE)
    assert {int(code): int(status) for code, status in codes} == errors.STATUS


def test_the_protocol_lists_every_field_of_the_citewire_object() -> None:
    table = PROTOCOL.partition("## 2.")[2].partition("## 3.")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(
        ExtensionFields.__struct_fields__
    )


def test_the_example_is_an_answer() -> None:
    example = re.search(r"```json\n(.*?)```", PROTOCOL, re.DOTALL)
    assert example is not None
    answer = msgspec.json.decode(example[1], type=Answer)

    assert answer.citations[0].claim is not None
    assert answer.covered(answer.citations[0].claim) == answer.text
    assert msgspec.json.decode(codec.encode(answer.bare()), type=Answer) == answer


def test_the_table_of_dialects_is_the_code() -> None:
    """`python tests/project/test_docs.py` prints the table to paste."""
    assert rooms_table() in (ROOT / "docs" / "dialects.md").read_text("utf-8")


def rooms_table() -> str:
    """What each dialect has a place for, as Markdown."""
    rooms = {name: module.SUPPORTED_FIELDS for name, module in citewire.dialects().items()}
    lines = [f"| | {' | '.join(rooms)} |", "|---" * (len(rooms) + 1) + "|"]
    for field in sorted({field for room in rooms.values() for field in room}):
        cells = " | ".join("●" if field in room else "" for room in rooms.values())
        lines.append(f"| `{field}` | {cells} |")
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_snippets_of_a_page_run(page: Path) -> None:
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        exec(compile(snippet, page.name, "exec"), {})


if __name__ == "__main__":
    print(rooms_table())  # noqa: T201  for a person who pastes it


def test_the_options_of_the_middleware_are_in_its_table() -> None:
    page = (ROOT / "docs/middleware.md").read_text("utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page, re.MULTILINE))
    options = agui.Options()
    assert table == {name: str(getattr(options, name)) for name in agui.Options.__struct_fields__}


def test_every_threat_names_a_test_that_is_there() -> None:
    page = (ROOT / "docs/security.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+) \|$", page.partition("## Threats")[2], re.MULTILINE)[2:]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", row)
        assert named, row
        for file, name in named:
            [found] = (ROOT / "tests").rglob(file)
            assert f"def {name}(" in found.read_text("utf-8"), name
