"""What docs/channels.md shows, as it is typed, with the real clients."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path

from citewire.channels.channel_citations import SourceCitations
from citewire.channels.channels import ResultPage
from support.ably_server import Parts, listening
from support.agui_node import NODE
from support.cases import ROOT, need

PAGE = (ROOT / "docs/channels.md").read_text("utf-8")


def snippet(language: str, key: str, port: int) -> str:
    """The one of a language, with this key and port."""
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return found.replace("KEY", key).replace("8787", str(port))


async def typed(*command: str, text: str, cwd: Path) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=cwd)
    assert process.stdin
    process.stdin.write(text.encode())
    process.stdin.close()
    return process


def names(cited: ResultPage[SourceCitations]) -> list[str | None]:
    return [each.annotation.name for source in cited.items for each in source.citations]


def test_npm(tmp_path: Path) -> None:
    need("node", shutil.which("node") is not None, "install Node.js 20+, then npm ci --prefix tests/node")
    need("npm's ably", (NODE / "node_modules/ably").is_dir(), "npm ci --prefix tests/node")

    async def main() -> None:
        parts = Parts(tmp_path)
        async with listening(parts.app) as port:
            text = snippet("js", parts.key, port)
            process = await typed("node", "--input-type=module", text=text, cwd=NODE)
            assert process.stdout
            told = json.loads(await process.stdout.readline())
            assert told["citations:multiple.v1"]["rivers.example"]["clientIds"] == {"cite-bot": 1}
            process.kill()
            await process.wait()

    asyncio.run(asyncio.wait_for(main(), 50))


def test_pypi(tmp_path: Path) -> None:
    async def main() -> None:
        parts = Parts(tmp_path)
        async with listening(parts.app) as port:
            process = await typed(sys.executable, "-", text=snippet("py", parts.key, port), cwd=tmp_path)
            assert await process.wait() == 0
            assert names(await parts.channels.citations("ai:rivers")) == ["rivers.example"]

    asyncio.run(asyncio.wait_for(main(), 50))
