"""The librarian over the sample documents, at the pace of a model, so that there is time to kill its node."""

import asyncio
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

from citewire.agui.events import AnyEvent, RunInput, TextMessageContent
from citewire.documents import load
from citewire.librarian import Librarian, PassageIndex

SAMPLES = Path(str(files("citewire") / "samples"))
# Seconds from one piece of text to the next.
PACE = 0.15

_index = PassageIndex()
for _sample in sorted(SAMPLES.iterdir()):
    _index.add(_sample.name, load(_sample))


async def answer(run_input: RunInput) -> AsyncIterator[AnyEvent]:
    """The same events for the same run, whichever node asks: so a run that was cut can be asked for again."""
    async for event in Librarian(_index).run(run_input):
        if isinstance(event, TextMessageContent):
            await asyncio.sleep(PACE)
        yield event
