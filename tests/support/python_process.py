"""Python code, run by a fresh interpreter."""

import subprocess
import sys
from pathlib import Path

from support.cases import ROOT


def run_python(code: str, cwd: Path = ROOT) -> str:
    """What `code` prints, run as a fresh interpreter of this environment."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout
