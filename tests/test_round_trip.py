"""Any answer, through any dialect and back: it differs in what `losses` names, and in nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, note

from citewire.codec import decode, encode
from citewire.dialects import dialects, read, write
from citewire.model import Answer
from oracle import unjustified, unnamed
from strategies import answers

NAMES = list(dialects())


@pytest.mark.parametrize("name", NAMES)
@given(answer=answers())
def test_losses_name_exactly_what_does_not_come_back(name: str, answer: Answer) -> None:
    written = write(answer, name)
    note(f"{written.payload!r}")
    for loss in written.losses:
        note(str(loss))
    payload = written.payload if isinstance(written.payload, str) else decode(encode(written.payload))
    back = read(payload, name)

    assert unnamed(answer, back, written.losses) is None
    assert unjustified(answer, back, written.losses) == []
    assert back.problems == ()
