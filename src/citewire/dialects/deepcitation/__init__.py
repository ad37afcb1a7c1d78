"""DeepCitation: `[N]` markers in the text, and an entry for each number.

Entries come as a record under 16-character keys, with verdicts under the same keys; as the request or
response of /verifyCitations; as shared state with one such record per message; or as a data block in the
text. Every form accepts every spelling of a field. A number can mean several entries, and an entry can have
several markers: each marker is a citation, `key`, `key.2`, …. The model has no fields for `reasoning` and
`claimText`; they are only preserved.
"""

from citewire.dialects.deepcitation.entry import (
    ALIASES,
    BLOCK_END,
    BLOCK_START,
    NAME,
    SUPPORTED_FIELDS,
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
    "SUPPORTED_FIELDS",
    "UPSTREAM",
    "canonicalize",
    "detect",
    "read_all",
    "write",
]
