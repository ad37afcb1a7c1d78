"""All exceptions that citewire raises on purpose.

    CitewireError
    ├── InputError            the caller's payload or text is invalid; has a path
    │   ├── DecodeError       the bytes are not JSON that we accept
    │   └── ShapeError        JSON, but a field is missing, of the wrong type or out of range
    ├── DialectError          the dialect is the problem, not the payload
    │   ├── UnknownDialect
    │   ├── UndetectedDialect no dialect fits the payload
    │   └── AmbiguousDialect  more than one does; has the candidates
    └── OutputError           a value that cannot be written as JSON

`message` never holds text from other programs. That is in `detail`, which is not sent to clients.
Rooms add subclasses: `patch.PatchError` is an InputError, `rendering.UnknownFormat` a CitewireError.
Every class has a stable `code`, which is sent on the wire and which scripts may test for.
"""

from __future__ import annotations

from typing import ClassVar


class CitewireError(Exception):
    """Base class of all citewire exceptions.

    `message` is our own sentence and may be shown to anybody. `detail` is text from another program, such as
    a response body or a library's exception. It is for logs and terminals only.
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, detail: object = "") -> None:
        super().__init__(message)
        self.message, self.detail = message, str(detail)
        if self.detail:
            self.add_note(self.detail)  # shows it in tracebacks

    @property
    def explanation(self) -> str:
        """The message with its detail, for the operator of the program."""
        return f"{self}: {self.detail}" if self.detail else str(self)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class InputError(CitewireError):
    """Input that cannot be used. `path` says where, such as `$.output[0].text`; `$` is the whole input."""

    code = "bad_input"

    def __init__(self, message: str, path: str = "$", *, detail: object = "") -> None:
        super().__init__(message, detail=detail)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {super().__str__()}"


class DecodeError(InputError):
    """Bytes that are not JSON, or JSON that no other program could read back."""

    code = "bad_json"


class ShapeError(InputError):
    """A field that is missing, of the wrong type or out of range."""

    code = "bad_shape"


class DialectError(CitewireError):
    """The dialect is wrong, not the payload."""

    code = "bad_dialect"


class UnknownDialect(DialectError):
    """No dialect has this name."""

    code = "unknown_dialect"

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no dialect is called {name!r}; there are {', '.join(known)}")
        self.name = name
        self.known = known


class UndetectedDialect(DialectError):
    """No dialect recognises the payload."""

    code = "undetected_dialect"

    def __init__(self) -> None:
        super().__init__("no dialect recognises this payload; name one")


class AmbiguousDialect(DialectError):
    """More than one dialect recognises the payload."""

    code = "ambiguous_dialect"

    def __init__(self, candidates: tuple[str, ...]) -> None:
        super().__init__(f"the payload fits {' and '.join(candidates)}; name one")
        self.candidates = candidates


class WrongDialect(DialectError):
    """The payload belongs to another dialect than the one named."""

    code = "wrong_dialect"

    def __init__(self, name: str, candidates: tuple[str, ...]) -> None:
        super().__init__(f"the payload is not of {name}: it fits {' and '.join(candidates)}")
        self.name = name
        self.candidates = candidates


class OutputError(CitewireError):
    """A value that has no JSON form: a lone surrogate, an unsupported object, endless nesting."""

    code = "unwritable"


class NotFound(CitewireError):
    """Nothing with this name exists."""

    code = "not_found"


class Conflict(CitewireError):
    """The request conflicts with something else in progress."""

    code = "conflict"


class ServerBusy(CitewireError):
    """The server is at a limit and cannot take the request now."""

    code = "busy"


class ServerOverloaded(ServerBusy):
    """The server is at its limit for this kind of work."""

    code = "overloaded"
