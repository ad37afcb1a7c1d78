"""Script and markup in every field that a stream can carry run nothing, with our policy and without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Dialog, Page, Request

from support.browser import browser, complaints, context, page, show, url
from support.verdict_payloads import ably, agui, salesforce

__all__ = ["browser", "context", "page", "url"]
pytestmark = pytest.mark.slow

CANARY = "http://canary.invalid"
RUN = f"(window.ran=1,alert(1),fetch('{CANARY}/r'))"
PAYLOADS = [
    f"<script>{RUN}</script>",
    f"<SCRIPT SRC={CANARY}/x.js></SCRIPT>",
    f"<script type=module>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    f'<img src=x onerror="{RUN}">',
    f"<img src={CANARY}/i.png>",
    f"<IMG SRC=x OnErRoR={RUN}>",
    f"<img/src=x/onerror={RUN}>",
    f'"><img src=x onerror="{RUN}">',
    f'\'><img src=x onerror="{RUN}">',
    f"`><img src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s>",
    f"<svg><a xlink:href='javascript:{RUN}'><text>x</text></a></svg>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}>",
    f"<iframe src='javascript:{RUN}'></iframe>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"<object data='{CANARY}/o'></object>",
    f"<embed src='{CANARY}/e'>",
    f"<link rel=stylesheet href={CANARY}/s.css>",
    f"<style>@import '{CANARY}/s.css'</style>",
    f"<style>*{{background:url({CANARY}/b)}}</style>",
    f"<base href={CANARY}/>",
    f"<meta http-equiv=refresh content='0;url={CANARY}/m'>",
    f"<form action='javascript:{RUN}'><button autofocus>x</button></form>",
    f"<input autofocus onfocus={RUN}>",
    f"<select autofocus onfocus={RUN}><option>x</select>",
    f"<textarea autofocus onfocus={RUN}></textarea>",
    f"<details open ontoggle={RUN}>x</details>",
    f"<video><source onerror={RUN}></video>",
    f"<audio src={CANARY}/a autoplay onerror={RUN}></audio>",
    f"<marquee onstart={RUN}>x</marquee>",
    f"<body onload={RUN}>",
    f"<div style='background:url({CANARY}/d)'>x</div>",
    f"<div popover id=p onbeforetoggle={RUN}>x</div><button popovertarget=p>y</button>",
    f"<template shadowrootmode=open><script>{RUN}</script></template>",
    f"<cite-answer onclick={RUN}></cite-answer>",
    f"<x onclick={RUN} tabindex=1 autofocus onfocus={RUN}>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    f"<!--><img src=x onerror={RUN}>-->",
    f"<![CDATA[<img src=x onerror={RUN}>]]>",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"&#60;img src=x onerror={RUN}&#62;",
    f"\u003cscript\u003e{RUN}\u003c/script\u003e",
    f"javascript:{RUN}",
    f"JaVaScRiPt:{RUN}",
    f" javascript:{RUN}",
    f"java\tscript:{RUN}",
    f"java\nscript:{RUN}",
    f"\x01javascript:{RUN}",
    f"javascript://example.com/%0A{RUN}",
    f"javascript&colon;{RUN}",
    f"vbscript:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
    f"data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='{RUN}'/>",
    "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+",
    f"data:application/xhtml+xml,<script xmlns='http://www.w3.org/1999/xhtml'>{RUN}</script>",
    f"blob:http://x/{RUN}",
    f"filesystem:http://x/{RUN}",
    f"[x](javascript:{RUN})",
    f"[x](<javascript:{RUN}>)",
    f"![x](javascript:{RUN})",
    f"[x](data:text/html,<script>{RUN}</script>)",
    f"[x]( java\nscript:{RUN})",
    f"<javascript:{RUN}>",
    f"[^<img src=x onerror={RUN}>]",
    f"```<img src=x onerror={RUN}>\n<script>{RUN}</script>\n```",
    f"| <img src=x onerror={RUN}> |\n|---|\n| <script>{RUN}</script> |",
    f"# <img src=x onerror={RUN}>",
    f'https://example.com/"onmouseover={RUN}//',
    f"http://x/'><img src=x onerror={RUN}>",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    f"${{{RUN}}}",
    "__proto__",
    "\u202e\u2066<script>\u2069",
    f"\ud83d\ude00<img src=x onerror={RUN}>",
]
# As many tests as keep each short on a busy machine.
SHARES = 6
ADDRESSES = [each for each in PAYLOADS if not each.startswith(("http", "<", "&", "#"))]


def fields(payload: str) -> Iterator[dict[str, Any]]:
    """The payload in every field, in each shape that the element takes."""
    anything: Any = {
        "type": payload, "attachmentId": payload, "fullPhrase": payload, "anchorText": payload,
        "title": payload,
        "url": payload, "domain": payload, "citationNumber": 1, payload: payload, "faviconUrl": payload,
        "citewire": {"claim": {"start": 0, "end": 4, "origin": payload}},
    }  # fmt: skip
    named = {**anything, "citationNumber": payload}
    judged: Any = {
        "status": payload, "label": payload, "verifiedMatchSnippet": payload, "attachmentId": payload,
        "evidence": {"src": payload}, "document": {"verifiedPageNumber": payload},
        "citewire": {
            "status": "altered", "reason": payload, "source": payload, "page": payload, "proof": payload,
            "warnings": [payload], "diff": [{"quote": payload, "source": payload, "kind": payload}],
            "context": {"text": payload}, "edits": [payload], payload: payload,
        },
    }  # fmt: skip
    entry = {
        "id": payload, "index": payload, "title": payload, "url": payload, "snippet": payload,
        "iconUrl": payload,
        "extra": {"citewire": {"status": payload, "proof": payload, "reason": payload, "source": payload}},
    }  # fmt: skip
    text = f"{payload}\n\nText [1] and **{payload}** [^{payload}]\n\n- {payload} [1]\n\n"
    text += f"[^{payload}]: {payload}\n\n[l]({payload})"
    verdicts = {"k": judged, payload: judged}
    records: Any = {"citations": {"k": anything, payload: named}, "verifications": verdicts}
    view = agui(text, error=payload, **records)
    view["state"]["citations"]["m"] = [entry, payload, {**entry, "id": "x", "extra": payload}]
    yield view
    yield {**view, "message": {"id": payload, "content": [{"type": "text", "text": text}]}}
    failed = agui(text, "error", error=payload, **records)
    yield failed
    sold = salesforce()
    content = sold["salesforce"]["message"]["staticContent"]
    content["text"] = f"{content['text']} {payload}"
    reference = content["citationContent"]["citations"][0]["citedReference"]
    reference |= {
        "label": payload,
        "recordId": payload,
        "citedReferenceType": payload,
        "link": {"url": payload},
    }
    yield sold
    noted = ably({"type": "verdicts:multiple.v1", "name": payload, "data": {"key": "k"}})
    annotation = noted["ably"]["annotations"][0]
    annotation |= {"name": payload, "serial": payload, "clientId": payload}
    annotation["data"] |= {
        "url": payload,
        "title": payload,
        "snippet": payload,
        "unit": payload,
        "page": payload,
    }
    noted["ably"]["message"] |= {
        "serial": payload,
        "data": f"Refunds are available within 30 days. {payload}",
    }
    yield noted
    yield {"view": {"id": payload, "text": payload, "status": payload, "error": payload, "cited": []}}


# Everything in every shadow root that could run or load something.
FOUND = """() => {
    const active = ("script iframe object embed link style base meta form svg math video audio source "
        + "template input select textarea").split(" ");
    const found = [];
    const look = (root) => {
        for (const node of root.querySelectorAll("*")) {
            const name = node.localName;
            if (active.includes(name)) found.push(name);
            for (const { name: attribute, value } of node.attributes) {
                if (/^on|^style$|^srcdoc$/i.test(attribute)) found.push(`${name} ${attribute}`);
                const isSafe = /^https?:\\/\\/|^data:image\\/(avif|jpeg|png|webp);base64,/.test(value);
                if (/^(href|src|action|xlink:href)$/i.test(attribute) && !isSafe)
                    found.push(`${name} ${attribute}=${value}`);
            }
            if (node.shadowRoot) look(node.shadowRoot);
        }
    };
    for (const { shadowRoot } of document.querySelectorAll("cite-answer, cite-sources, cite-summary"))
        look(shadowRoot);
    return [...found, ...("ran" in window ? ["ran"] : []), ...("polluted" in {} ? ["polluted"] : [])];
}"""
OPEN = """async () => {
    const root = document.querySelector("cite-answer").shadowRoot;
    for (const marker of root.querySelectorAll("cite-marker")) {
        marker.open();
        const card = marker.shadowRoot.querySelector("cite-card");
        card?.shadowRoot.querySelectorAll("button:not(.close)").forEach((button) => button.click());
        marker.close();
    }
    await new Promise(requestAnimationFrame);
}"""


def test_there_are_enough() -> None:
    assert len(set(PAYLOADS)) >= 60


@pytest.mark.parametrize("path", ["/", "/free"], ids=["our policy", "no policy"])
@pytest.mark.parametrize("share", range(SHARES))
def test_nothing_runs(page: Page, url: str, path: str, share: int) -> None:
    dialogs: list[str] = []
    asked: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    def note(request: Request) -> None:
        if not request.url.startswith((url, "data:")):
            asked.append(request.url)

    page.on("dialog", dismiss)
    page.on("request", note)
    page.goto(f"{url}{path}")
    for payload in PAYLOADS[share::SHARES]:
        for view in fields(payload):
            show(page, view, uncited="")
            page.evaluate(OPEN)
            assert page.evaluate(FOUND) == [], payload
    # An address of the web may be asked for its picture; none here is one.
    assert (dialogs, [each for each in asked if each.startswith(CANARY)]) == ([], [])
    assert [
        each
        for each in complaints(page)
        if "404" not in each and "img-src" not in each and "ERR_" not in each
    ] == []
    assert page.url == f"{url}{path}"


def test_no_such_address_is_a_link(page: Page, url: str) -> None:
    page.goto(url)
    code = """(values) => import("/web/dom.js").then(({ webAddress, address, pictureAddress }) =>
        values.map((value) => [webAddress(value), address(value), pictureAddress(value)]))"""
    for address, (in_text, link, src) in zip(ADDRESSES, page.evaluate(code, ADDRESSES), strict=True):
        assert in_text is None, address
        assert all(each is None or each.startswith(url) for each in (link, src)), address
