"""Rules of the house that no linter knows: what the package, its README and its papers promise."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any, NamedTuple

import pytest

import citewire
from support.cases import ROOT
from support.python_process import run_python

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
README_LINES = 150


@pytest.mark.parametrize("name", ["citewire", "citewire.agui"])
def test_import_loads_only_msgspec(name: str) -> None:
    """Compared with what was loaded before: an environment, and msgspec, may load modules of their own."""
    loaded = run_python(
        f"import sys, msgspec; before = set(sys.modules); import {name}; print(*(set(sys.modules) - before))"
    ).split()
    packages = {name.partition(".")[0] for name in loaded}
    assert "citewire" in packages
    assert packages - sys.stdlib_module_names <= {"citewire", "msgspec"}


def test_children_can_be_interrupted() -> None:
    """Also where the tests themselves were started in the background, with SIGINT ignored."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert run_python(code) == "True\n"


def test_public_names_are_sorted() -> None:
    assert list(citewire.__all__) == sorted(set(citewire.__all__))
    assert set(citewire.__all__) <= set(dir(citewire))


def test_every_public_name_loads_by_itself() -> None:
    """Each name is asked of a package that was just imported, so none leans on what another one loaded."""
    run_python(
        "import importlib, sys\n"
        f"for name in {list(citewire.__all__)!r}:\n"
        "    for module in [m for m in sys.modules if m.partition('.')[0] == 'citewire']:\n"
        "        del sys.modules[module]\n"
        "    getattr(importlib.import_module('citewire'), name)\n"
    )


class Block(NamedTuple):
    line: int
    language: str
    text: str


class Command(NamedTuple):
    line: str
    output: str


def blocks(markdown: str) -> Iterator[Block]:
    """The fenced blocks with a language, in reading order."""
    for fence in re.finditer(r"^```(\w+)\n(.*?)^```$", markdown, re.DOTALL | re.MULTILINE):
        yield Block(markdown.count("\n", 0, fence.start()) + 1, fence[1], fence[2])


def commands(console: str) -> Iterator[Command]:
    """The `$ ` lines that call citewire, each with the lines up to the next `$ `."""
    for entry in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        line, _, output = entry.partition("\n")
        if line.startswith("citewire "):
            yield Command(line, output.strip())


def run_command(command: Command, cwd: Path) -> None:
    """Run it as typed. Where output is shown, that is the promise (and the exit code may be 1 by design)."""
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
        "COLUMNS": "100",
        # Keeps stdout and stderr in the order a terminal shows.
        "PYTHONUNBUFFERED": "1",
    }
    done = subprocess.run(
        command.line, shell=True, cwd=cwd, env=env, text=True, check=False, timeout=50,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if command.output:
        assert done.stdout.strip() == command.output
    else:
        assert done.returncode == 0, done.stdout


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= README_LINES


def test_readme_snippets_run(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """In reading order and in one folder, as a reader pastes them, with `examples/` as in the checkout."""
    copytree(ROOT / "examples", tmp_path / "examples", ignore=ignore_patterns("node_modules"))
    for block in blocks((ROOT / "README.md").read_text("utf-8")):
        with subtests.test(f"README.md line {block.line}"):
            if block.language == "python":
                run_python(block.text, cwd=tmp_path)
            elif block.language in {"bash", "console"}:
                for command in commands(block.text):
                    run_command(command, cwd=tmp_path)


def test_changelog_is_at_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions: list[str] = re.findall(r"^## \[?([^\]\s]+)", changelog, re.MULTILINE)
    released = versions[1:] if versions[0] == "Unreleased" else versions
    assert released[0] == citewire.__version__


def test_the_version_is_declared_once() -> None:
    """In `citewire.__version__`. The package for browsers has the same one."""
    assert "version" in PROJECT["dynamic"]
    package = json.loads((ROOT / "src/citewire/web/package.json").read_text("utf-8"))
    assert package["version"] == citewire.__version__


def test_every_dependency_has_its_reason() -> None:
    decisions = (ROOT / "docs/decisions.md").read_text("utf-8")
    extras: dict[str, list[str]] = PROJECT.get("optional-dependencies", {})
    wanted: list[str] = PROJECT["dependencies"] + [name for extra in extras.values() for name in extra]
    names = {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in wanted}
    named = {name for name in names if re.search(rf"\b{re.escape(name)}\b", decisions, re.IGNORECASE)}
    assert names - named == set()


def test_no_file_names_a_path_of_this_machine() -> None:
    """`example.org/work/` is fine; the same at the start of a path is somebody's machine."""
    needle = re.compile(rb"(?<![\w.~-])/(?:work|root)/")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert files
    assert [str(file) for file in files if file.is_file() and needle.search(file.read_bytes())] == []


# Protocols that describe objects of another library instead of a port of ours.
_FOREIGN = {"XmlElement"}


def test_a_port_has_at_most_six_methods() -> None:
    """A larger one is several ports: a caller names the one that it needs."""
    trees = (ast.parse(path.read_text("utf-8")) for path in (ROOT / "src").rglob("*.py"))
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    ports = [
        node
        for node in classes
        if any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases)
    ]
    methods = {
        port.name: sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in port.body)
        for port in ports
    }
    assert methods
    assert {name for name, count in methods.items() if count > 6} <= _FOREIGN
