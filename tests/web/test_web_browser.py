"""client.js in a real browser, on a page of another origin: what Node does in another way."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from support.app import in_thread
from support.browser import browser, context, page, url
from support.server_agents import VISIBLE

__all__ = ["browser", "context", "page", "url"]

SCRIPT = """async ([base, key]) => {
    const [{ Client }, { Thread }] = await Promise.all([import("/web/client.js"), import("/web/thread.js")]);
    const [client, thread, shares] = [new Client(base, { key }), new Thread({ id: "t" }), []];
    for await (const _ of client.ask(thread, "How long?"));
    const onProgress = (share) => shares.push(share);
    const failure = (promise) => promise.catch(({ name, code, status }) => ({ name, code, status }));
    const big = new File(["It is so. ".repeat(40_000)], "so.txt", { type: "text/plain" });
    const added = await client.upload(big, { onProgress });
    const refused = await failure(client.upload(big, { name: "" }));
    const left = await failure(client.upload(big, { signal: AbortSignal.abort() }));
    const lost = await failure(new Client("http://127.0.0.1:9").upload(big));
    return { added, shares, refused, left, lost, text: thread.view.messages.at(-1).content };
}"""


def test_ask_and_upload(tmp_path: Path, page: Page, url: str) -> None:
    with in_thread(tmp_path, agent="support.server_agents:held", origins=(url,)) as (base, app):
        page.goto(f"{url}/free")
        seen = page.evaluate(SCRIPT, [base, app.key])
    assert (seen["added"]["name"], seen["added"]["size"]) == ("so.txt", 400_000)
    assert (seen["shares"], seen["shares"][-1]) == (sorted(seen["shares"]), 1)
    assert seen["refused"] == {"name": "WireError", "code": "bad_input", "status": 400}
    assert seen["left"]["name"] == "AbortError"
    assert seen["lost"] == {"name": "WireError", "code": "connect_failed", "status": 0}
    assert seen["text"] == VISIBLE
