"""DeepCitation: `[N]` in the text, and beside it what each number stands for.

Entries come as a record under 16-character keys, with verdicts under the same keys; as the request or
response of /verifyCitations; as shared state with one such record per message; or as a data block within
the text. Every spelling of a field is read on every path. A number may stand for several entries, and an
entry for several markers: each marker is a citation, `key`, `key.2`, …. `reasoning` and `claimText` have
no place in the model and are only kept.
"""

from citewire.dialects.deepcitation.entry import (
    ALIASES,
    BLOCK_END,
    BLOCK_START,
    NAME,
    ROOM,
    UPSTREAM,
    canonicalize,
)
from citewire.dialects.deepcitation.reader import detect, read_all
from citewire.dialects.deepcitation.writer import write

__all__ = [
    "ALIASES",
    "BLOCK_END",
    "BLOCK_START",
    "NAME",
    "ROOM",
    "UPSTREAM",
    "canonicalize",
    "detect",
    "read_all",
    "write",
]
