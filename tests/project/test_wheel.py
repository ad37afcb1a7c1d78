"""The wheel, installed where nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import httpx2
import pytest

from support.cases import ROOT, need
from support.server_process import DEADLINE, Serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def _uv(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    found = shutil.which("uv") or ROOT / ".boot/bin/uv"
    need("uv", Path(found).exists(), "install uv, or run `make`, which gets it")
    # The environment that the tests run in is not the one that is meant.
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return subprocess.run(
        [found, "--quiet", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )


def _done(*arguments: str | Path) -> None:
    done = _uv(*arguments)
    assert done.returncode == 0, done.stderr


def _environment(folder: Path, *packages: str | Path) -> Path:
    """The Python of a new environment with these packages, or a skip where they are not to be had."""
    _done("venv", "--python", "3.11", folder)
    python = folder / "bin/python"
    got = _uv("pip", "install", "--python", python, *packages)
    need("packages", got.returncode == 0, f"uv cannot get them: {got.stderr.strip().splitlines()[-1:]}")
    return python


def test_the_wheel_works_by_itself(tmp_path: Path) -> None:
    """What it depends on is installed first, as locked; from there on it has to do without a network."""
    builder = _environment(tmp_path / "build", "hatchling")
    _done("build", "--wheel", "--offline", "--no-build-isolation", "--python", builder, "--out-dir", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    web = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/citewire/web").rglob("*.js")}
    with ZipFile(wheel) as packed:
        assert web <= set(packed.namelist())
    locked = tmp_path / "locked.txt"
    _done("export", "--frozen", "--offline", "--no-dev", "--no-emit-project", "--output-file", locked)
    python = _environment(tmp_path / "empty", "--requirements", locked)
    _done("pip", "install", "--offline", "--python", python, wheel)
    (samples,) = (tmp_path / "empty").glob("lib/*/site-packages/citewire/samples")
    script = python.with_name("citewire")
    with Serving(tmp_path / "data", "--sources", samples, script=script) as server:
        server.read_sources()
        events = server.ask("t", text="What is the refund policy?")
        assert events[-1][1]["type"] == "RUN_FINISHED"
        (message,) = server.get("/threads/t")["state"]["deepcitation"]["messages"].values()
        assert message["summary"]["verified"] == message["summary"]["total"] > 0
        page = httpx2.get(server.url, headers=server.headers, timeout=DEADLINE, trust_env=False)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        server.stop()
