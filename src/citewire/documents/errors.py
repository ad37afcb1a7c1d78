"""Errors for a source as a whole. A problem with a part of a source is a `Problem` of the document."""

from __future__ import annotations

from citewire.errors import InputError

__all__ = ["DocumentError", "EncryptedDocument"]


class DocumentError(InputError):
    """A source cannot be read at all."""

    code = "bad_document"


class EncryptedDocument(DocumentError):
    """A source needs a password."""

    code = "encrypted"
