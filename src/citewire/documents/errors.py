"""What is wrong with a source as a whole. What is wrong with a part of it is a `Problem` of the document."""

from __future__ import annotations

from citewire.errors import InputError

__all__ = ["DocumentError", "EncryptedDocument"]


class DocumentError(InputError):
    """A source that cannot be read at all."""

    code = "bad_document"


class EncryptedDocument(DocumentError):
    """A source that needs a password."""

    code = "encrypted"
