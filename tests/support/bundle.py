"""The npm package as it would be published, installed beside React, and bundled by esbuild."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from support.agents import serve
from support.agui_node import NODE, need_node
from support.cases import ROOT, need

WEB = ROOT / "src/citewire/web"
_MODULES = NODE / "node_modules"


def run(*command: str | Path, folder: Path, given: str | None = None) -> str:
    """What a command prints that finds the programs of tests/node. It has to end well."""
    env = {**os.environ, "PATH": f"{_MODULES / '.bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=env, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Package:
    """The package as npm makes it: the file, and the names of what is in it."""

    file: Path
    held: frozenset[str]


def packed(folder: Path) -> Package:
    """The package, made of a copy: what npm does to it beforehand it does in place."""
    need("npm", shutil.which("npm") is not None, "install npm")
    need_node()
    copy = shutil.copytree(WEB, folder / "web")
    (said,) = json.loads(run("npm", "pack", "--json", "--silent", "--pack-destination", folder, folder=copy))
    return Package(folder / said["filename"], frozenset(each["path"] for each in said["files"]))


def project(folder: Path, package: Package, react: str = "") -> Path:
    """A project that has the package, the React of this version (none: the newest) and all of tests/node."""
    need("react", (_MODULES / "react-dom").is_dir(), "npm ci --prefix tests/node")
    modules = folder / "node_modules"
    modules.mkdir()
    with tarfile.open(package.file) as tar:
        tar.extractall(folder, filter="data")
    (folder / "package").rename(modules / "citewire")
    # Copied, not linked: what they require has to be found here, not where they come from.
    for name in ("react", "react-dom"):
        shutil.copytree(_MODULES / f"{name}{react}", modules / name)
    for each in _MODULES.iterdir():
        if not (modules / each.name).exists() and each.name[0] != ".":
            (modules / each.name).symlink_to(each)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def bundle(folder: Path, source: str, *options: str) -> str:
    """A module of a project with everything that it imports, as one text."""
    return run(
        "esbuild",
        *("--bundle", "--format=esm", "--preserve-symlinks", "--loader=jsx", "--jsx=automatic"),
        *("--define:process.env.NODE_ENV=\"development\"", "--log-level=warning"),
        *options, folder=folder, given=source,
    )  # fmt: skip


def check_types(folder: Path, *arguments: str | Path) -> None:
    """See that TypeScript has nothing to say of these files, with these options."""
    strict = ("--noEmit", "--strict", "--target", "esnext", "--lib", "esnext,dom,dom.iterable")
    run("tsc", *strict, *arguments, folder=folder)


@contextmanager
def served(folder: Path) -> Generator[str]:
    """Where the files of a folder are, on a server of their own."""
    with serve(Starlette(routes=[Mount("/", StaticFiles(directory=folder, html=True))])) as url:
        yield url
