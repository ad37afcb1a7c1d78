"""Any answer, through any dialect and back: it differs in what `losses` names, and in nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings

from citewire.codec import decode, encode
from citewire.dialects import dialects, read, write
from citewire.model import Answer
from support.oracle import unjustified, unnamed
from support.strategies import answers


@pytest.mark.slow
@settings(max_examples=200)
@given(answer=answers())
def test_losses_name_exactly_what_does_not_come_back(answer: Answer) -> None:
    """In all dialects at once: an answer takes longer to think of than to convert."""
    for name in dialects():
        written = write(answer, name)
        note(f"{name}: {written.payload!r}")
        for loss in written.losses:
            note(str(loss))
        payload = written.payload if isinstance(written.payload, str) else decode(encode(written.payload))
        back = read(payload, name)

        assert unnamed(answer, back, written.losses) is None
        assert unjustified(answer, back, written.losses) == []
        assert back.problems == ()
