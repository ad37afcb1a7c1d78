"""Everything citewire raises on purpose.

    CitewireError
    ├── InputError            the caller's payload or text is not what it should be; has a path
    │   ├── DecodeError       the bytes are not JSON that we accept
    │   └── ShapeError        JSON, but a field is missing, of the wrong type or out of range
    ├── DialectError          the dialect is the problem, not the payload
    │   ├── UnknownDialect
    │   ├── UndetectedDialect no dialect fits the payload
    │   └── AmbiguousDialect  more than one does; has the candidates
    └── OutputError           a value that cannot be written as JSON

`message` never holds text of other programs; that is the `detail`, which clients are not sent.
Rooms add leaves of their own: `patch.PatchError` is an InputError, `rendering.UnknownFormat` a CitewireError.
Every class has a stable `code`, which is what travels on the wire and what scripts may test for.
"""

from __future__ import annotations

from typing import ClassVar


class CitewireError(Exception):
    """The root: catch this one to catch them all.

    `message` is our own sentence and may be shown to anybody. `detail` is what another program said, such as
    the body of a response or the text of a library's exception: it is for logs and terminals only.
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, detail: object = "") -> None:
        super().__init__(message)
        self.message, self.detail = message, str(detail)
        if self.detail:
            self.add_note(self.detail)  # so that a traceback has it

    @property
    def explanation(self) -> str:
        """The whole error with its detail, for whoever runs the program."""
        return f"{self}: {self.detail}" if self.detail else str(self)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class InputError(CitewireError):
    """Input that cannot be used. `path` is where, as `$.output[0].text`; `$` is the whole."""

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
    """The dialect, not the payload, is what is wrong."""

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
    """The payload is of another dialect than the one that was named."""

    code = "wrong_dialect"

    def __init__(self, name: str, candidates: tuple[str, ...]) -> None:
        super().__init__(f"the payload is not of {name}: it fits {' and '.join(candidates)}")
        self.name = name
        self.candidates = candidates


class OutputError(CitewireError):
    """A value that has no JSON form: a lone surrogate, a foreign object, nesting without end."""

    code = "unwritable"


class NotFound(CitewireError):
    """There is nothing of this name."""

    code = "not_found"


class Conflict(CitewireError):
    """It cannot be done now, because of something else that is going on."""

    code = "conflict"


class ServerBusy(CitewireError):
    """Too much is going on already."""

    code = "busy"


class ServerOverloaded(ServerBusy):
    """The server has no room for more of this."""

    code = "overloaded"
