"""Encode and decode JSON. Raises only citewire's own errors."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from citewire.errors import DecodeError, OutputError, ShapeError

__all__ = ["decode", "decode_as", "decode_with_surrogates", "encode", "prepare_types", "pretty"]

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()
_AT = re.compile(r" - at `([^`]*)`$")


def decode(data: bytes | str) -> Any:
    """Decode JSON. Raises `DecodeError` for any invalid input."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    try:
        return _decoder.decode(data)
    except RecursionError as exc:
        raise DecodeError("nested too deeply") from exc
    except UnicodeDecodeError as exc:
        raise DecodeError(f"not UTF-8, or a lone surrogate{_at(data)}") from exc
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise _decode_error(str(exc)) from exc


def decode_as(data: bytes, kind: type[Any]) -> Any:
    """Decode JSON as a value of type `kind`. Raises `InputError`."""
    value = decode(data)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        message, _, path = str(exc).partition(" - at `")
        raise ShapeError(message, path.rstrip("`") or "$") from exc


def decode_with_surrogates(data: bytes) -> Any:
    """Like `decode`, for JSON whose text may be cut within a surrogate pair, as streamed text can be."""
    try:
        return decode(data)
    except DecodeError:
        try:
            # Pass text: json would take bytes that look like UTF-16 for UTF-16.
            return json.loads(data.decode("utf-8", "surrogatepass"), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            pass
        raise


def _no_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _at(data: bytes) -> str:
    """Return where the bytes stop being UTF-8. The decoder only counts from the start of a string."""
    try:
        data.decode()
    except UnicodeDecodeError as exc:
        return f" at byte {exc.start}"
    return ""


def _decode_error(message: str) -> DecodeError:
    where = _AT.search(message)
    if where is None:
        return DecodeError(message)
    return DecodeError(message[: where.start()], where.group(1))


def encode(value: Any) -> bytes:
    """Encode `value` as compact JSON. Raises `OutputError` if it has no JSON form.

    NaN and the infinities, which JSON does not have, become null.
    """
    try:
        return _encoder.encode(value)
    except RecursionError as exc:
        raise OutputError("nested too deeply") from exc
    except UnicodeEncodeError as exc:
        raise OutputError(f"a string holds a lone surrogate at {exc.start}") from exc
    except (TypeError, ValueError, OverflowError) as exc:
        raise OutputError("a value in it has no JSON form", detail=exc) from exc


def prepare_types(*kinds: Any) -> None:
    """Register types before threads decode them: msgspec 0.22 crashes the process on concurrent first use."""
    for kind in kinds:
        msgspec.json.Decoder(kind)


def pretty(value: Any) -> str:
    """Encode `value` as readable JSON, indented by two spaces."""
    return msgspec.json.format(encode(value), indent=2).decode()
