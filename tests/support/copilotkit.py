"""The packages of CopilotKit, as its example has them installed."""

from __future__ import annotations

from pathlib import Path

from support.bundle import run
from support.cases import ROOT, need

EXAMPLE = ROOT / "examples/copilotkit"


def need_copilotkit() -> None:
    """Go on when the packages are installed, else skip."""
    installed = (EXAMPLE / "node_modules/@copilotkit").is_dir()
    need("CopilotKit", installed, "npm ci --prefix examples/copilotkit")


def bundle_with_copilotkit(script: Path, folder: Path) -> None:
    """Bundle a script with all that it imports, as JavaScript and CSS of the same name in a folder."""
    fonts = (f"--loader:.{each}=empty" for each in ("ttf", "woff", "woff2"))
    run(
        EXAMPLE / "node_modules/.bin/esbuild",
        *("--bundle", "--minify", "--format=esm", "--preserve-symlinks", "--loader=jsx", "--jsx=automatic"),
        *(*fonts, f"--outfile={folder / script.stem}.js"),
        folder=EXAMPLE, given=script.read_text("utf-8"),
    )  # fmt: skip
