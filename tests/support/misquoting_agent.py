"""An agent that quotes the sources of `shelf`, and not always right: `support.misquoting_agent:answer`.

To a question that it does not know it says the question, and quotes it from a source of that name.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from citewire.agui.events import RunInput


class Said(NamedTuple):
    """What is asked, what is said to that, and what is quoted for it, by source."""

    question: str
    text: str
    quotes: tuple[tuple[str, str], ...]


ANSWERS = (
    Said(
        "How long do I have to return a jumper?",
        "You have **30 days** from delivery, and get the full price back [1]. The money is there within five "
        "working days [2].",
        (
            ("returns.pdf", "You may return any unworn item within 30 days of delivery for a full refund."),
            ("returns.pdf", "reach your account within five working days"),
        ),
    ),
    Said(
        "How many days of leave do I have?",
        "27 days a year [1]; up to five of them can be carried over, until 31 March [2].",
        (
            ("handbook.md", "Every employee has 27 days of paid leave a year."),
            ("handbook.md", "Up to five days may be carried over, and they lapse on 31 March."),
        ),
    ),
    Said(
        "How did the year go?",
        "Revenue rose by 21% to 4.8 million euros [1], and the company employed 43 people at the end [2].",
        (
            ("report.html", "Revenue rose by 21% to 4.8 million euros."),
            ("report.html", "The company employed 43 people at the end of the year"),
        ),
    ),
    Said(
        "Who pays for sending it back?",
        "Labels are free inside the country [1]. From abroad we pay the postage as well [2].",
        (
            ("returns.pdf", "Return labels are free inside the country."),
            ("returns.pdf", "For parcels from abroad the shop pays the postage."),
        ),
    ),
    Said(
        "How do I wash wool?",
        "By hand and cold [1]. Moths dislike lavender, which keeps for a year [2].",
        (
            ("care.txt", "Wash wool by hand in cold water, never above 20 degrees."),
            ("care.txt", "Lavender bags keep moths away for a whole year."),
        ),
    ),
    Said(
        "What if something arrives damaged?",
        "Write within 48 hours and attach a photograph [1]. It is exchanged at no charge [2], and "
        "on the same day [3].",
        (
            ("returns.pdf", "within 48 hours and attach a photograph"),
            ("returns.pdf", "An item can be exchanged once for another size or colour at no charge."),
            ("returns.pdf", "Exchanges are sent out on the day on which the old item arrives."),
        ),
    ),
)


async def answer(run_input: RunInput) -> AsyncIterator[dict[str, Any]]:
    """Says one of them, or what it was asked."""
    question: str = run_input.messages[-1]["content"]
    echo = Said(question, f"{question} [1]", ((question, question),))
    said = next((each for each in ANSWERS if each.question == question), echo)
    ids = {"threadId": run_input.thread_id, "runId": run_input.run_id}
    cited: dict[str, list[dict[str, Any]]] = {}
    for number, (source, quote) in enumerate(said.quotes, 1):
        cited.setdefault(source, []).append({"id": number, "full_phrase": quote})
    text = f"{said.text}\n\n<<<CITATION_DATA>>>\n{json.dumps(cited)}\n<<<END_CITATION_DATA>>>"
    message = {"messageId": f"a-{run_input.run_id}"}
    yield {"type": "RUN_STARTED", **ids}
    yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **message}
    for at in range(0, len(text), 24):
        yield {"type": "TEXT_MESSAGE_CONTENT", "delta": text[at : at + 24], **message}
    yield {"type": "TEXT_MESSAGE_END", **message}
    yield {"type": "RUN_FINISHED", **ids}
