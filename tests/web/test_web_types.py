"""The modules of the web room are what their JSDoc says, and nobody writes markup in them."""

from __future__ import annotations

import re
import subprocess

from support.cases import need
from support.web_node import NODE, WEB, need_node

TSC = NODE / "node_modules/.bin/tsc"


def test_types() -> None:
    need_node()
    need("tsc", TSC.exists(), "npm ci --prefix tests/node")
    done = subprocess.run(
        [TSC, "-p", WEB / "tsconfig.json"], capture_output=True, text=True, check=False, timeout=55
    )
    assert done.returncode == 0, done.stdout


def test_text_is_never_taken_for_markup() -> None:
    """Nodes are made one by one, whatever the policy of a page on which the elements stand."""
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser"
    )
    modules = sorted(WEB.rglob("*.js"))
    assert len(modules) > 5
    assert [path.name for path in modules if sinks.search(path.read_text("utf-8"))] == []
