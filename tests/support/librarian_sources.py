"""Six small sources that were written for the librarian, and what one may ask of them."""

from __future__ import annotations

from typing import NamedTuple

from support.pdfs import Line, Sheet, make_pdf

_POLICY = (
    (
        "Lantern & Loom: returns and refunds",
        "Refund policy",
        "You may return any unworn item within 30 days of delivery for",
        "a full refund. Refunds go back to the card that was used, and",
        "reach your account within five working days.",
        "Gift cards, personalised items and opened cosmetics are not",
        "refundable.",
        "Return shipping",
        "Return labels are free inside the country. For parcels from",
        "abroad the customer pays the postage.",
    ),
    (
        "Lantern & Loom: returns and refunds",
        "Exchanges",
        "An item can be exchanged once for another size or colour at",
        "no charge. Exchanges are sent out on the day on which the old",
        "item arrives.",
        "Damaged goods",
        "If an item arrives damaged, write to care@lantern.example",
        "within 48 hours and attach a photograph.",
    ),
)

_HANDBOOK = """\
# Employee handbook

## Working hours

The office is open from 7:30 to 19:00. Core hours are 10:00 to 15:00, Monday to Thursday.

## Annual leave

Every employee has 27 days of paid leave a year. Up to **five days** may be carried over, and they lapse on 31
March. Requests go to the line manager at least two weeks ahead.

## Sick leave

Call in before 9:00 on the first day. A doctor's note is needed from the third day on.

## Remote work

Staff may work from home up to three days a week. The following must be agreed in writing:

- work from another country
- work at weekends

## Expenses

Receipts are handed in by the fifth of the next month. Train journeys are booked in second class;
flights need the approval of Priya Nair, the finance director.
"""

_REPORT = """\
<!doctype html><html><head><title>Annual report 2025</title></head><body>
<nav><a href="/">Home</a> <a href="/refund">Refund policy and revenue overview</a></nav>
<h1>Annual report 2025</h1>
<h2>Results</h2>
<p>Revenue rose by 12% to 4.8 million euros. The operating margin fell to 6.1%, as wool became dearer.</p>
<p>The company employed 43 people at the end of the year, seven more than a year before.</p>
<h2>Outlook</h2>
<p>A second workshop in Porto opens in September 2026. The board expects revenue of 5.5 million euros.</p>
<table><tr><th>Region</th><th>Revenue</th></tr><tr><td>Iberia</td><td>2.1 million</td></tr>
<tr><td>Nordics</td><td>1.4 million</td></tr></table>
<p style="display:none">Revenue rose by 80% to 9 million euros.</p>
<footer>Revenue, revenue, revenue: all about our revenue.</footer>
</body></html>"""

_CARE = """\
Care of wool

Wash wool by hand in cold water, never above 20 degrees.
Dry it flat and away from the sun. Moths are kept away by cedar wood,
which should be sanded once a year so that it goes on smelling.

Care of linen

Linen may be washed at 60 degrees. Iron it while it is still damp.
"""

_GERMAN = """\
Gewährleistung

Die Gewährleistung beträgt zwei Jahre ab Übergabe der Ware. Verschleißteile sind ausgenommen.

Öffnungszeiten

Das Geschäft in Köln ist samstags von 10 bis 16 Uhr geöffnet.
"""

_CJK = """\
配送について

ご注文の商品は三営業日以内に東京の倉庫から発送されます。送料は全国一律500円です。

退款政策

自收到商品之日起30天内可以申请全额退款。礼品卡不予退款。

배송 안내

주문하신 상품은 영업일 기준 3일 이내에 발송됩니다. 배송비는 삼천 원입니다.
"""


def _sheet(lines: tuple[str, ...]) -> Sheet:
    return Sheet([Line(text, y=790 if not at else 740 - 16 * at) for at, text in enumerate(lines)])


SOURCES: dict[str, bytes] = {
    "returns.pdf": make_pdf(*map(_sheet, _POLICY)),
    "handbook.md": _HANDBOOK.encode(),
    "report.html": _REPORT.encode(),
    "care.txt": _CARE.encode(),
    "garantie.txt": _GERMAN.encode(),
    "asia.txt": _CJK.encode(),
}


class Case(NamedTuple):
    """A question, and of the sentence that answers it: its source, its page and how it begins."""

    question: str
    source: str
    page: int
    begins: str


CASES = (
    Case("What is the refund policy?", "returns.pdf", 1, "You may return any unworn item within 30 days"),
    Case("How long do refunds take to reach my account?", "returns.pdf", 1, "Refunds go back to the card"),
    Case("Are gift cards refundable?", "returns.pdf", 1, "Gift cards, personalised items"),
    Case("Who pays the postage for a return from abroad?", "returns.pdf", 1, "For parcels from abroad"),
    Case("Can I exchange an item for another size?", "returns.pdf", 2, "An item can be exchanged once"),
    Case("My item arrived damaged, what should I do?", "returns.pdf", 2, "If an item arrives damaged"),
    Case("How many days of leave do employees get?", "handbook.md", 1, "Every employee has 27 days"),
    Case("How many leave days can be carried over?", "handbook.md", 1, "Up to **five days** may be carried"),
    Case("When do I need a doctor's note?", "handbook.md", 1, "A doctor's note is needed"),
    Case("What are the core hours?", "handbook.md", 1, "Core hours are 10:00 to 15:00"),
    Case("How often may staff work from home?", "handbook.md", 1, "Staff may work from home"),
    Case("working from another country", "handbook.md", 1, "The following must be agreed in writing"),
    Case("Who approves flights?", "handbook.md", 1, "Train journeys are booked"),
    Case("Who is the finance director?", "handbook.md", 1, "Train journeys are booked"),
    Case("By how much did revenue rise?", "report.html", 1, "Revenue rose by 12%"),
    Case("What was the operating margin?", "report.html", 1, "The operating margin fell to 6.1%"),
    Case("how many people does the company employ", "report.html", 1, "The company employed 43 people"),
    Case("When does the workshop in Porto open?", "report.html", 1, "A second workshop in Porto"),
    Case("Nordics revenue", "report.html", 1, "Nordics 1.4 million"),
    Case("How do I wash wool?", "care.txt", 1, "Wash wool by hand"),
    Case("At what temperature can linen be washed, in degrees?", "care.txt", 1, "Linen may be washed at 60"),
    Case("What keeps moths away?", "care.txt", 1, "Moths are kept away"),
    Case("Wie lange ist die Gewährleistung?", "garantie.txt", 1, "Die Gewährleistung beträgt"),
    Case("Wann hat das Geschäft in Köln geöffnet?", "garantie.txt", 1, "Das Geschäft in Köln"),
    Case("gewahrleistung verschleissteile", "garantie.txt", 1, "Verschleißteile sind ausgenommen"),
    Case("送料はいくらですか", "asia.txt", 1, "送料は全国一律500円"),
    Case("商品はいつ発送されますか？", "asia.txt", 1, "ご注文の商品は三営業日以内"),
    Case("退款政策是什么？", "asia.txt", 1, "自收到商品之日起30天内"),
    Case("礼品卡可以退款吗", "asia.txt", 1, "礼品卡不予退款"),
    Case("배송비는 얼마입니까?", "asia.txt", 1, "배송비는 삼천 원"),
)

UNANSWERED = (
    "What is the capital of France?",
    "Who won the football championship in 1998?",
    "How do I install the printer driver?",
    "What is the parental leave for adoptive grandparents on Mars?",
    "Does the canteen serve vegetarian lunch?",
    "Wie hoch ist der Eiffelturm?",
    "富士山の高さは何メートルですか",
    "Explain quantum entanglement",
)
