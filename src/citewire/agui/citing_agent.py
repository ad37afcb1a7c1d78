"""`CitingAgent`: base class for your own agents whose answers are checked for citations."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from citewire.agui import events as ev
from citewire.agui.agents import BaseAgent
from citewire.agui.citations.annotator import Options
from citewire.agui.events import AnyEvent, RunInput, coerce, to_run_error
from citewire.agui.middleware import Citing, RunSink
from citewire.error_reports import report_error
from citewire.verification.sources import SourceInput
from citewire.verification.verifier import Verifier

__all__ = ["CitingAgent"]

_log = logging.getLogger("citewire.agents")


class CitingAgent(BaseAgent):
    """An agent that only has to implement `answer`. `aclose` ends the processes that check its citations.

    `options` are the fields of `Options` and the arguments of `BaseAgent`.
    """

    def __init__(
        self,
        sources: SourceInput | Iterable[SourceInput] = (),
        *,
        verifier: Verifier | None = None,
        sink: RunSink | None = None,
        **options: Any,
    ) -> None:
        mine = {name: options.pop(name) for name in Options.__struct_fields__ if name in options}
        super().__init__(**options)
        self._citing = Citing(sources, verifier=verifier, sink=sink, **mine)
        self.use(self._citing)

    @abstractmethod
    def answer(self, run_input: RunInput) -> AsyncIterator[str | Any]:
        """Yield the answer's text as strings, and any other events in between. An exception fails the run."""

    async def aclose(self) -> None:
        """End the verification processes."""
        await self._citing.aclose()

    async def run(self, run_input: RunInput) -> AsyncGenerator[AnyEvent]:
        """Run `answer` and yield its events. All text goes into one message, also around other events."""
        yield ev.RunStarted(run_input.thread_id, run_input.run_id, RunInput.PROTOCOL)
        message: str | None = None
        try:
            async with aclosing(_closable(self.answer(run_input))) as said:
                async for each in said:
                    if not isinstance(each, str):
                        yield coerce(each)
                        continue
                    if message is None:
                        message = str(uuid4())
                        yield ev.TextMessageStart(message, "assistant")
                    yield ev.TextMessageContent(message, each)
        except Exception as exc:  # noqa: BLE001  # whatever an agent raises, its client is told
            yield to_run_error(report_error(exc, _log, code="agent_failed", message="the agent failed"))
            return
        if message is not None:
            yield ev.TextMessageEnd(message)
        yield ev.RunFinished(run_input.thread_id, run_input.run_id)


async def _closable(events: AsyncIterator[Any]) -> AsyncGenerator[Any]:
    try:
        async for event in events:
            yield event
    finally:
        if aclose := getattr(events, "aclose", None):
            await aclose()
