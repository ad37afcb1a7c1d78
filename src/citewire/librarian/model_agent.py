"""The agent with a model: pydantic-ai, instructed to cite, and the same index. Needs `citewire[llm]`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from itertools import groupby
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from msgspec.structs import replace

from citewire.agui.events import RunInput, to_run_error, write_json
from citewire.error_reports import report_detail
from citewire.errors import CitewireError, InputError
from citewire.extraction import prompt
from citewire.librarian.index import PassageIndex
from citewire.librarian.passages import Passage

if TYPE_CHECKING:
    from pydantic_ai.models import Model

__all__ = ["ModelUnavailable", "model_agent"]

_log = logging.getLogger("citewire.agents")

_PASSAGES = 8
_TASK = """
You do not have the documents yet. Call search_sources with words that the passages you need would have: \
it returns such passages as documents. Search again, in other words, where it found nothing that helps. \
Answer only from what it returned, in the language of the question, and say so where that does not answer it.
"""


class ModelUnavailable(CitewireError):
    """No model can answer: pydantic-ai is not installed, does not know the model, or has no key for it."""

    code = "no_model"


def model_agent(index: PassageIndex, model: str | Model) -> Callable[[RunInput], AsyncIterator[Any]]:
    """Return a function for `LocalAgent` that runs `model`, such as `openai:gpt-5`, and yields its events.

    The API key is read from the provider's environment variable. Raises `ModelUnavailable`.
    """
    try:
        from pydantic_ai import Agent  # noqa: PLC0415  # an extra, which takes a second to load
        from pydantic_ai.exceptions import UserError  # noqa: PLC0415
        from pydantic_ai.ui.ag_ui import AGUIAdapter  # noqa: PLC0415
    except ImportError as exc:
        raise ModelUnavailable(f"a model needs pydantic-ai: pip install 'citewire[llm]' ({exc})") from exc

    async def search_sources(query: str) -> str:
        """Search the documents: the passages that have most of the words of the query."""
        found = await asyncio.to_thread(index.search, query, _PASSAGES)
        return "\n".join(map(_document, found)) or "No passage has any of these words."

    try:
        agent = Agent(model, instructions=prompt(()) + _TASK, tools=[search_sources])
    except (UserError, ImportError, ValueError) as exc:
        raise ModelUnavailable("pydantic-ai cannot use this model", detail=exc) from exc

    async def run(run_input: RunInput) -> AsyncGenerator[Any]:
        # pydantic-ai has no use for state, and would warn about it.
        posted = write_json(replace(run_input, state={}))
        try:
            given = AGUIAdapter.build_run_input(posted)
        except ValueError as exc:
            raise InputError("ag-ui-protocol takes no such input", detail=exc) from exc
        async with aclosing(_closable(AGUIAdapter(agent, given).run_stream())) as events:
            async for event in events:
                yield _without_provider_text(event)

    return run


async def _closable(events: AsyncIterator[Any]) -> AsyncGenerator[Any]:
    async for event in events:
        yield event


def _without_provider_text(event: Any) -> Any:
    """Return the event; of an error, the provider's message goes to the log only."""
    if event.type != "RUN_ERROR":
        return event
    return to_run_error(report_detail(event.message, _log, code="model_failed", message="the model failed"))


def _document(passage: Passage) -> str:
    """Return a passage in the form the prompt describes, so that it can be cited by page and line."""
    return f"<document id={quoteattr(passage.source)}>\n" + "\n".join(_pages(passage)) + "\n</document>"


def _pages(passage: Passage) -> Iterator[str]:
    pages: Iterable[tuple[int, Any]] = groupby(passage.sentences, key=lambda sentence: sentence.page)
    for page, sentences in pages:
        tag = f"page_number_{page}_index_{page - 1}"
        yield f"<{tag}>"
        yield from (f'<line id="{sentence.line}">{sentence.text}</line>' for sentence in sentences)
        yield f"</{tag}>"
