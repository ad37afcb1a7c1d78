"""The custom elements in a real browser, on a page of their own, under the policy of the server's pages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from support.browser import browser, complaints, context, page, picture, serious, show, url, watched
from support.verdict_payloads import (
    CITATIONS,
    CLAIM,
    SAID,
    TEXT,
    VERIFICATIONS,
    ably,
    agui,
    citation,
    salesforce,
    verdict,
)

__all__ = ["browser", "context", "page", "url"]
pytestmark = pytest.mark.slow

# The text that stands out under a name, in order.
PAINTED = """(name) =>
    [...(CSS.highlights.get(name) ?? [])].map((range) => range.toString().replace(/\\s+/g, " "))"""
CLAIM_OF_2 = "In 2025 revenue grew by 12.4 percent"


@pytest.fixture
def tab(page: Page, url: str) -> Page:
    page.goto(url)
    return page


def chips(tab: Page) -> list[str]:
    return tab.locator("cite-answer cite-marker button:visible").all_inner_texts()


def painted(tab: Page, name: str) -> list[str]:
    return tab.evaluate(PAINTED, name)


def marker(tab: Page, number: int) -> Locator:
    return tab.locator("cite-answer cite-marker button", has_text=str(number)).first


def watch(tab: Page, name: str) -> None:
    """Keep the details of all events of a name."""
    tab.evaluate(
        "(name) => { window.heard = []; addEventListener(name, ({ detail }) => heard.push(detail)); }", name
    )


def heard(tab: Page) -> list[Any]:
    return tab.evaluate("heard")


def test_an_answer_with_every_verdict(tab: Page, tmp_path: Path) -> None:
    show(tab, agui())
    assert chips(tab) == ["1✓", "2≠", "7✓", "3≈", "4✗", "1✓", "5–", "2≠", "6…"]
    assert tab.locator("cite-summary li").all_inner_texts() == [
        "≠ 1 altered", "✗ 1 not found", "≈ 1 partial", "– 1 not checked", "… 1 being checked", "✓ 2 verified",
    ]  # fmt: skip
    assert tab.locator("cite-answer [aria-busy]").get_attribute("aria-busy") == "false"
    assert (
        tab.locator("cite-answer [role=status]")
        .inner_text()
        .startswith("The answer is complete. 1 altered · 1 not found")
    )
    assert "[^profit]:" not in tab.locator("cite-answer .text").inner_text()
    assert complaints(tab) == []
    picture(tab, tmp_path, "answer")


def test_the_list_has_the_numbers_of_the_markers_and_the_worst_first(tab: Page) -> None:
    show(tab, agui())
    groups = tab.locator("cite-sources .group")
    assert groups.locator(".name").all_inner_texts() == [
        "report.pdf · cited 4 times", "handbook.md · cited once", "shipping.html · cited once",
        "refund-policy.html · cited once",
    ]  # fmt: skip
    assert tab.locator("cite-sources .entry button").all_inner_texts() == [
        "2≠",
        "4✗",
        "6…",
        "7✓",
        "3≈",
        "5–",
        "1✓",
    ]


def test_the_list_stays_in_order_until_all_is_said(tab: Page) -> None:
    show(tab, agui(status="verifying"))
    assert tab.locator("cite-sources .entry button").all_inner_texts()[0] == "1✓"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("status", ["complete", "streaming", "error"])
def test_axe_finds_nothing_serious(
    browser: Browser, url: str, scheme: Any, status: str, tmp_path: Path
) -> None:
    tab = watched(browser.new_page(color_scheme=scheme, reduced_motion="reduce"))
    tab.goto(url)
    show(tab, agui(status=status, error="the verifier failed"), uncited="")
    assert serious(tab) == []
    for number in (2, 1, 3, 4, 5):
        marker(tab, number).click()
        expect(tab.locator("cite-card:popover-open")).to_have_count(1)
        assert serious(tab) == []
        picture(tab, tmp_path, f"card-{number}-{scheme}-{status}")
        tab.keyboard.press("Escape")
    tab.close()


def test_hover_shows_the_card_and_the_claim(tab: Page, tmp_path: Path) -> None:
    show(tab, agui())
    marker(tab, 2).hover()
    card = tab.locator("cite-card:popover-open")
    expect(card).to_contain_text("Altered")
    assert painted(tab, "cite-bad-guess") == [CLAIM_OF_2]
    assert painted(tab, "cite-bad") == []
    picture(tab, tmp_path, "hover")
    tab.mouse.move(5, 5)
    expect(card).to_have_count(0)
    assert painted(tab, "cite-bad-guess") == []


def test_an_altered_quote_shows_what_differs_and_the_place(tab: Page) -> None:
    show(tab, agui())
    marker(tab, 2).click()
    card = tab.locator("cite-card:popover-open")
    assert card.locator("del").text_content() == "(the answer says) 12.4%"
    assert card.locator("ins").text_content() == "(the source says) 14.2%"
    assert card.locator(".source").inner_text() == "report.pdf page 2"
    assert card.locator("img").get_attribute("alt") == "report.pdf, page 2, with the words marked"
    assert card.locator("a.open").inner_text() == "Open at page 2"
    assert card.locator("a.open").get_attribute("href") == f"{tab.url}proofs/p2?sig=1"
    assert card.locator(".reason").inner_text() == "number: 12.4% for 14.2%"
    assert card.locator("li").all_inner_texts() == ["on page 2, not 3"]


def test_what_is_doubted_is_underlined_without_being_touched(tab: Page) -> None:
    show(tab, agui())
    assert painted(tab, "cite-alarm-guess") == [CLAIM_OF_2, "lamps are made of cheese"]
    start = TEXT.index("In 2025")
    claim = {"start": start, "end": start + len(CLAIM_OF_2), "origin": "exact"}
    record = agui(citations={**CITATIONS, "k2": {**CITATIONS["k2"], "citewire": {"claim": claim}}})
    show(tab, record)
    assert painted(tab, "cite-alarm") == [CLAIM_OF_2]


def test_the_claim_that_was_said_is_the_one_that_stands_out(tab: Page) -> None:
    """To the character, with bold words in it."""
    said = "any lamp within **30 days of delivery**"
    claim = {"start": TEXT.index(said), "end": TEXT.index(said) + len(said), "origin": "exact"}
    show(tab, agui(citations={**CITATIONS, "k1": {**CITATIONS["k1"], "citewire": {"claim": claim}}}))
    marker(tab, 1).focus()
    assert painted(tab, "cite-good") == ["any lamp within 30 days of delivery"]
    assert painted(tab, "cite-good-guess") == []


def test_the_keyboard_does_all(tab: Page) -> None:
    show(tab, agui())
    reached: list[str] = []
    for _ in range(40):
        tab.keyboard.press("Tab")
        name = tab.evaluate(
            """() => { let node = document.activeElement;
            while (node.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
            return node === document.body ? "" : node.ariaLabel ?? node.textContent; }"""
        )
        if not name:
            break
        reached.append(name)
    assert [name for name in reached if name.startswith("Citation")] == [
        "Citation 1: Verified, refund-policy.html, page 1", "Citation 2: Altered, report.pdf, page 2",
        "Citation 7: Verified, report.pdf, page 4", "Citation 3: Partial, handbook.md, page 1",
        "Citation 4: Not found, report.pdf", "Citation 1: Verified, refund-policy.html, page 1",
        "Citation 5: Not checked, shipping.html", "Citation 2: Altered, report.pdf, page 2",
        "Citation 6: Being checked, report.pdf",
    ]  # fmt: skip
    assert "the handbook" in reached
    assert {f"Show citation {n} in the answer" for n in range(1, 8)} <= set(reached)


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_card_by_keyboard(tab: Page, key: str) -> None:
    show(tab, agui())
    marker(tab, 2).focus()
    tab.keyboard.press(key)
    card = tab.locator("cite-card:popover-open")
    expect(card).to_be_focused()
    expect(marker(tab, 2)).to_have_attribute("aria-expanded", "true")
    names: list[str] = []
    for _ in range(4):
        tab.keyboard.press("Tab")
        names.append(card.evaluate("card => card.shadowRoot.activeElement?.textContent"))
    assert names == ["✕", "Open at page 2", "Copy quote", "In the list of sources"]
    tab.keyboard.press("Escape")
    expect(card).to_have_count(0)
    expect(marker(tab, 2)).to_be_focused()
    expect(marker(tab, 2)).to_have_attribute("aria-expanded", "false")


def test_from_the_marker_to_its_entry_and_back(tab: Page) -> None:
    show(tab, agui())
    marker(tab, 4).click()
    tab.locator("cite-card:popover-open button.list").click()
    entry = tab.locator("cite-sources .entry", has_text="Lamps are made of cheese")
    expect(entry).to_be_focused()
    expect(tab.locator("cite-card:popover-open")).to_have_count(0)
    entry.locator("button").click()
    expect(marker(tab, 4)).to_be_focused()


def test_touch_opens_and_closes_a_card(browser: Browser, url: str, tmp_path: Path) -> None:
    mobile = browser.new_context(has_touch=True, is_mobile=True, viewport={"width": 390, "height": 800})
    tab = watched(mobile.new_page())
    tab.goto(url)
    show(tab, agui())
    marker(tab, 2).tap()
    card = tab.locator("cite-card:popover-open")
    expect(card).to_contain_text("Altered")
    box = card.bounding_box()
    assert box is not None
    assert (round(box["x"]), round(box["width"])) == (0, 390)
    picture(tab, tmp_path, "phone")
    card.locator("button.close").tap()
    expect(card).to_have_count(0)
    marker(tab, 2).tap()
    tab.touchscreen.tap(200, 60)
    expect(card).to_have_count(0)
    mobile.close()


def test_a_click_pins_the_card_and_another_one_closes_it(tab: Page) -> None:
    show(tab, agui())
    watch(tab, "cite-review")
    marker(tab, 3).click()
    tab.mouse.move(5, 5)
    card = tab.locator("cite-card:popover-open")
    expect(card).to_contain_text("Partial")
    marker(tab, 3).click()
    expect(card).to_have_count(0)
    marker(tab, 3).click()
    marker(tab, 4).click()
    expect(card).to_have_count(1)
    expect(card).to_contain_text("Not found")
    told = [(one["key"], one["event"]) for one in heard(tab)]
    assert told == [
        ("k3", "popover_opened"), ("k3", "popover_closed"), ("k3", "popover_opened"),
        ("k3", "popover_closed"),
        ("k4", "popover_opened"),
    ]  # fmt: skip


def test_copy_gives_the_quote_and_its_source(browser: Browser, url: str) -> None:
    allowed = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    tab = allowed.new_page()
    tab.goto(url)
    show(tab, agui())
    marker(tab, 1).click()
    tab.locator("cite-card:popover-open button.copy").click()
    expect(tab.locator("cite-card:popover-open button.copy")).to_have_text("Copied")
    words = "you may return any lamp within 30 days of delivery"
    assert tab.evaluate("navigator.clipboard.readText()") == (
        f"“{words}”\n— refund-policy.html, page 1\n"
        f"https://example.com/refunds#:~:text={words.replace(' ', '%20')}"
    )
    allowed.close()


def test_copying_where_it_is_not_allowed_is_told(tab: Page) -> None:
    tab.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    show(tab, agui())
    marker(tab, 1).click()
    tab.locator("cite-card:popover-open button.copy").click()
    expect(tab.locator("cite-card:popover-open button.copy")).to_have_text("This page may not copy")


def test_a_picture_that_does_not_load_is_told(tab: Page) -> None:
    judged = {**VERIFICATIONS["k2"], "evidence": {"src": "/gone.png"}}
    show(tab, agui(verifications={"k2": judged}))
    marker(tab, 2).click()
    expect(tab.locator("cite-card:popover-open")).to_contain_text(
        "The picture of this place could not be loaded."
    )


def test_reviews_are_told_once_with_how_long_it_took(browser: Browser, url: str) -> None:
    tab = browser.new_page()
    tab.clock.install(time=datetime(2026, 1, 1, tzinfo=UTC))
    tab.goto(url)
    tab.clock.pause_at(datetime(2026, 1, 1, 1, tzinfo=UTC))
    tab.evaluate("requestAnimationFrame = (act) => setTimeout(act, 0)")
    tab.evaluate("(view) => { Object.assign(document.querySelector('cite-answer'), view); }", agui())
    tab.clock.run_for(100)
    watch(tab, "cite-review")
    for _ in range(2):
        marker(tab, 2).click()
        tab.clock.run_for(2100)
        tab.keyboard.press("Escape")
        expect(tab.locator("cite-card:popover-open")).to_have_count(0)
    told = heard(tab)
    assert [one["event"] for one in told] == [
        "popover_opened", "citation_reviewed", "popover_closed", "popover_opened", "popover_closed",
    ]  # fmt: skip
    assert {(one["messageId"], one["key"]) for one in told} == {("m", "k2")}
    assert [one.get("dwellMs") for one in told] == [None, 2000, 2100, None, 2100]
    assert told[0]["at"].startswith("2026-01-01T01:00:00")
    tab.close()


@pytest.mark.parametrize("view", [salesforce(), ably()], ids=["salesforce", "ably"])
def test_a_span_without_a_marker_gets_one(tab: Page, view: dict[str, Any]) -> None:
    show(tab, view)
    assert (
        tab.locator("cite-answer p").first.evaluate(
            "p => [...p.childNodes].map(n => n.localName === 'cite-marker' ? '#' : n.data).join('')"
        )
        == f"{SAID[:CLAIM]}#{SAID[CLAIM:]}"
    )
    assert chips(tab) == ["1–"]
    marker(tab, 1).hover()
    expect(tab.locator("cite-card:popover-open a.open")).to_have_attribute(
        "href", "https://example.com/refunds"
    )
    assert painted(tab, "cite-none") == [SAID[:CLAIM]]
    assert tab.locator("cite-sources .name").inner_text() == "Refund policy · cited once"


SPANS = "A `code` b [link](https://a.b) **bold** 😀 end"


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (0, "#A code b link bold 😀 end"),
        (1, "A# code b link bold 😀 end"),
        (SPANS.index("de`"), "A code# b link bold 😀 end"),
        (SPANS.index("nk]"), "A code b link# bold 😀 end"),
        (SPANS.index("ld**"), "A code b link bo#ld 😀 end"),
        (SPANS.index(" 😀"), "A code b link bold# 😀 end"),
        (SPANS.index("😀") + 1, "A code b link bold 😀# end"),
        (len(SPANS) + 1, "A code b link bold 😀 end#"),
    ],
)
def test_a_marker_breaks_nothing_that_it_is_put_into(tab: Page, at: int, shown: str) -> None:
    view = ably()
    view["ably"]["message"]["data"] = SPANS
    view["ably"]["annotations"][0]["data"] |= {"startOffset": 0, "endOffset": at or 1}
    if not at:
        view = salesforce()
        content = view["salesforce"]["message"]["staticContent"]
        content["text"] = SPANS
        details = content["citationContent"]["citations"][0]["citedDetails"]
        details["inlineMetadata"] = [{"citedLocationOffset": 0}]
    show(tab, view)
    read = """(paragraph) => {
        const flat = (node) => node.data ?? [...node.childNodes].map(flat).join("");
        paragraph.querySelectorAll("cite-marker").forEach((marker) => marker.replaceWith("#"));
        return flat(paragraph);
    }"""
    assert tab.locator("cite-answer .text p").evaluate(read) == shown


def test_a_verdict_on_an_annotation(tab: Page) -> None:
    """It may come before its citation, and be taken back."""
    judged = {"type": "verdicts:multiple.v1", "name": "altered", "clientId": "citewire", "data": {"key": "k"}}
    taken = {**judged, "action": "annotation.delete"}
    again = {**judged, "name": "verified"}
    view = ably()
    view["ably"]["annotations"] = [judged, *view["ably"]["annotations"]]
    show(tab, view)
    assert chips(tab) == ["1≠"]
    show(tab, ably(judged, taken, again))
    assert chips(tab) == ["1✓"]


def test_the_marker_of_an_agents_own_entry(tab: Page) -> None:
    entry = {
        "id": 'a/"b',
        "title": "Refunds",
        "url": "https://example.com/r",
        "snippet": "30 days",
        "index": 3,
    }
    show(
        tab,
        {"message": {"id": "m", "content": 'It is 30 days [^a/"b].'}, "state": {"citations": {"m": [entry]}}},
    )
    assert chips(tab) == ["3–"]


def test_a_definition_in_the_text_is_a_source(tab: Page) -> None:
    text = "It is 30 days [^r].\n\n[^r]: Refund policy <https://example.com/r> thirty days"
    show(tab, {"message": {"id": "m", "content": text}, "state": None})
    assert chips(tab) == ["1–"]
    assert tab.locator("cite-sources .name a").get_attribute("href") == "https://example.com/r"
    assert tab.locator("cite-sources .name").inner_text() == "Refund policy · cited once"


STREAM = """async ({ message, state, size, at }) => {
    const answer = document.querySelector("cite-answer");
    const { status, ...record } = state.deepcitation.messages.m;
    const given = (content, status) => {
        answer.message = { ...message, content };
        answer.state = { ...state, deepcitation: { messages: { m: { ...record, status } } } };
        return answer.drawn;
    };
    for (let n = 0; n < at; n += size) await given(message.content.slice(0, n), "streaming");
    window.finish = async () => {
        const { length } = message.content;
        for (let n = at; n < length; n += size) await given(message.content.slice(0, n), "streaming");
        await given(message.content, "complete");
    };
}"""


def test_what_streams_in_ends_as_what_came_whole(tab: Page) -> None:
    show(tab, agui())
    whole = tab.locator("cite-answer .text").inner_html()
    tab.reload()
    tab.evaluate(STREAM, {**agui(), "size": 7, "at": 0})
    tab.evaluate("finish()")
    assert tab.locator("cite-answer .text").inner_html() == whole


def test_nothing_that_is_drawn_moves_while_more_comes(tab: Page) -> None:
    """Nodes, selection, focus and an open card stay as they are."""
    tab.evaluate(STREAM, {**agui(), "size": 5, "at": 260})
    assert tab.locator("cite-answer [aria-busy]").get_attribute("aria-busy") == "true"
    marker(tab, 2).focus()
    tab.keyboard.press("Enter")
    tab.evaluate(
        """() => {
            const root = document.querySelector("cite-answer").shadowRoot;
            const text = root.querySelector("strong").firstChild;
            window.kept = { text, nodes: [...root.querySelectorAll(".text > :nth-child(-n+2), .text > p *")],
                card: root.querySelector("cite-marker:nth-of-type(2)") };
            getSelection().setBaseAndExtent(text, 3, text, 7);
            kept.top = root.querySelector("strong").getBoundingClientRect().top;
        }"""
    )
    tab.evaluate("finish()")
    assert tab.evaluate("getSelection().toString()") == "days"
    assert tab.evaluate("kept.nodes.length > 4 && kept.nodes.every((node) => node.isConnected)")
    assert tab.evaluate("kept.text.parentNode.getBoundingClientRect().top === kept.top")
    expect(tab.locator("cite-card:popover-open")).to_contain_text("Altered")
    tab.keyboard.press("Escape")
    expect(marker(tab, 2)).to_be_focused()


def test_a_verdict_changes_an_open_card_and_not_the_line(tab: Page) -> None:
    show(tab, agui(verifications={}, status="verifying"))
    before = tab.locator("cite-answer .text").bounding_box()
    spots = """[...document.querySelector("cite-answer").shadowRoot.querySelectorAll("cite-marker")]
        .map((marker) => marker.getBoundingClientRect().x)"""
    places = tab.evaluate(spots)
    marker(tab, 2).click()
    card = tab.locator("cite-card:popover-open")
    expect(card).to_contain_text("Being checked")
    card.locator("button.copy").focus()
    show(tab, agui(status="verifying"))
    expect(card).to_contain_text("Altered")
    expect(card.locator("button.copy")).to_be_focused()
    assert tab.locator("cite-answer .text").bounding_box() == before
    assert tab.evaluate(spots) == pytest.approx(places, abs=1.5)


def test_a_number_that_nothing_stands_for_is_text_in_the_end(tab: Page) -> None:
    view: dict[str, Any] = {"id": "m", "text": "See [9] and [^x].", "cited": []}
    show(tab, {"view": {**view, "status": "streaming"}})
    assert chips(tab) == ["9…", "…"]
    assert tab.locator("cite-marker button").first.is_disabled()
    show(tab, {"view": {**view, "status": "complete"}})
    assert chips(tab) == []
    assert tab.locator("cite-marker span:visible").all_inner_texts() == ["[9]", "[^x]"]


def test_text_that_changes_is_drawn_anew(tab: Page) -> None:
    show(tab, {"view": {"id": "m", "text": "One *two*", "status": "complete", "cited": []}})
    show(tab, {"view": {"id": "m", "text": "Other words", "status": "streaming", "cited": []}})
    show(tab, {"view": {"id": "n", "text": "Other words too", "status": "complete", "cited": []}})
    assert tab.locator("cite-answer .text").inner_text() == "Other words too"


def test_sentences_without_a_citation(tab: Page) -> None:
    show(tab, agui())
    assert painted(tab, "cite-uncited") == []
    show(tab, agui(), uncited="")
    assert painted(tab, "cite-uncited") == [
        "Returns are free too, we believe.", "Use row[0] for the first row.", "See the handbook for more.",
    ]  # fmt: skip


def test_right_to_left(tab: Page, tmp_path: Path) -> None:
    show(
        tab,
        agui("## כותרת\n\nאפשר להחזיר כל מנורה [1].\n\n- פריט [2]\n- item [3]\n\nEnglish [4].\n\n> ציטוט"),
    )
    assert tab.locator("cite-answer .text").evaluate(
        "text => [...text.children].map(node => `${node.localName} ${getComputedStyle(node).direction}`)"
    ) == ["h2 rtl", "p rtl", "ul rtl", "p ltr", "blockquote rtl"]
    assert tab.locator("cite-answer li").evaluate_all("all => all.map(node => node.dir)") == ["rtl", "ltr"]
    marker(tab, 2).click()
    picture(tab, tmp_path, "right-to-left")


def test_another_language(tab: Page) -> None:
    """With more plural forms than English has."""
    words = {
        "status.altered": "Zmieniony",
        "count.verified": {"one": "{count} zgodny", "few": "{count} zgodne", "many": "{count} zgodnych"},
        "count.altered": {"one": "{count} zmieniony", "few": "{count} zmienione", "many": "{count} zmian"},
        "marker": "Cytat {number}: {status}", "sources": "Źródła",
    }  # fmt: skip
    tab.evaluate("(words) => import('/web/elements.js').then(({ setWords }) => setWords(words, 'pl'))", words)
    cited = {f"k{n}": citation(n, "q", "a") for n in range(1, 9)}
    judged = {
        f"k{n}": verdict("altered" if n == 1 else "verified" if n < 4 else "missed", "a") for n in range(1, 4)
    }
    judged |= {f"k{n}": verdict("partial", "a") for n in range(4, 9)}
    show(tab, agui("Tekst [1].", citations=cited, verifications=judged))
    assert tab.locator("cite-summary li").all_inner_texts() == ["≠ 1 zmieniony", "≈ 5 partial", "✓ 2 zgodne"]
    assert marker(tab, 1).get_attribute("aria-label") == "Cytat 1: Zmieniony"
    assert tab.locator("cite-sources h2").inner_text() == "Źródła"


WRONG: list[Any] = [None, 7, "text", [], {}, {"id": None}, {"id": {"a": 1}, "content": 5}]


@pytest.mark.parametrize("value", WRONG, ids=str)
def test_whatever_it_is_given_nothing_breaks(tab: Page, value: Any) -> None:
    for name in ("message", "state", "salesforce", "ably", "view"):
        show(tab, {name: value})
    message = {"id": "m", "content": "Text [1] [2]."}
    for records in (value, {"k": value}):
        record = {"citations": records, "verifications": records, "status": value, "summary": value}
        state = {"deepcitation": {"messages": {"m": record}}, "citations": {"m": value}}
        show(tab, {"message": message, "state": state})
        assert "Text" in tab.locator("cite-answer .text").inner_text()
        show(
            tab,
            {
                "ably": {
                    "message": {"data": "Text"},
                    "annotations": [value, {"type": "citations:x", "data": value}],
                }
            },
        )
        show(
            tab,
            {
                "salesforce": {
                    "staticContent": {
                        "text": "Text",
                        "citationContent": {"citations": [value, {"citedReference": value}]},
                    }
                }
            },
        )
    assert complaints(tab) == []


@pytest.mark.parametrize("offsets", [(-1, 3), (5, 2), (0, 10**9), (1.5, 3), ("0", "3"), (None, None)])
def test_offsets_that_do_not_fit_are_no_place(tab: Page, offsets: tuple[Any, Any]) -> None:
    view = ably()
    view["ably"]["annotations"][0]["data"] |= {"startOffset": offsets[0], "endOffset": offsets[1]}
    show(tab, view)
    assert tab.locator("cite-answer .text p").evaluate("p => p.textContent") == SAID
    assert tab.locator("cite-sources .entry").count() == 1
    assert complaints(tab) == []


def test_a_verdict_before_its_citation(tab: Page) -> None:
    show(tab, agui(citations={}, status="streaming"))
    assert chips(tab)[1] == "2…"
    show(tab, agui(status="streaming"))
    assert chips(tab)[1] == "2≠"


def test_ids_may_hold_anything(tab: Page) -> None:
    for name in ('a"b', "a'b", "a/b", "a\\b", "<b>", "__proto__", "constructor", "] [", "#:target", "k k"):
        show(
            tab,
            agui(
                "Text [1].",
                citations={name: CITATIONS["k2"] | {"citationNumber": 1}},
                verifications={name: VERIFICATIONS["k2"]},
            ),
        )
        if name == "__proto__":
            continue  # JSON makes it a key; no server of ours sends it
        assert chips(tab) == ["1≠"]
        marker(tab, 1).click()
        tab.locator("cite-card:popover-open button.list").click()
        expect(tab.locator("cite-sources .entry").first).to_be_focused()
    assert complaints(tab) == []


def test_five_hundred_citations(tab: Page) -> None:
    text = "\n\n".join(f"Sentence number {n} says so [{n}]." for n in range(1, 501))
    cited = {f"k{n}": citation(n, f"says so {n}", f"s{n % 7}") for n in range(1, 501)}
    judged = {f"k{n}": verdict("altered" if n == 250 else "verified", f"s{n % 7}", n) for n in range(1, 501)}
    show(tab, agui(text, citations=cited, verifications=judged))
    assert tab.locator("cite-answer cite-marker").count() == 500
    assert tab.locator("cite-sources .entry").count() == 500
    assert tab.locator("cite-sources .entry button").first.inner_text() == "250≠"
    assert painted(tab, "cite-alarm-guess") == ["Sentence number 250 says so"]


def test_an_answer_of_a_megabyte(tab: Page) -> None:
    text = "".join(
        f"Paragraph {n} is *long* enough, {'and **words** ' * 40} cites [1].\n\n" for n in range(1_700)
    )
    assert len(text) > 1_000_000
    show(tab, agui(text))
    assert tab.locator("cite-answer .text").evaluate("text => text.children.length") == 1_700
    assert complaints(tab) == []


def test_an_answer_of_a_megabyte_in_one_paragraph(tab: Page) -> None:
    text = "word " * 200_000 + "[2]"
    show(tab, agui(text))
    assert chips(tab) == ["2≠"]
    assert complaints(tab) == []


def test_the_example_page(page: Page, url: str) -> None:
    page.goto(f"{url}/free/examples/embed.html")
    expect(page.locator("cite-answer cite-marker button")).to_have_text("1–")
    expect(page.locator("cite-sources .name")).to_have_text("Refund policy · cited once")
    assert complaints(page) == []
