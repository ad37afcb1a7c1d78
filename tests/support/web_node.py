"""The modules of src/citewire/web in Node: what they make of what Python is given too."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from typing import Any

from support.cases import ROOT, need

WEB = ROOT / "src/citewire/web"
NODE = ROOT / "tests/node"


def need_node() -> None:
    """Go on where Node is installed, else skip."""
    need("node", shutil.which("node") is not None, "install Node.js 20+")


def asked(requests: Iterable[dict[str, Any]]) -> list[Any]:
    """The answers of web.mjs, in their order, from one process."""
    need_node()
    lines = "\n".join(json.dumps(request) for request in requests)
    done = subprocess.run(
        ["node", NODE / "web.mjs"], input=lines.encode("ascii"), capture_output=True, check=False, timeout=50
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]
