"""The Gemini Interactions stream: steps start, grow and stop. Annotations follow their text."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_list, is_object, optional, require
from citewire.dialects.common.incremental import IncrementalReader
from citewire.dialects.gemini.interactions import NAME, UNIT, read_interaction
from citewire.errors import ShapeError
from citewire.model import Answer, Citation
from citewire.text import Unit

__all__ = ["InteractionsStream", "NAME", "STREAM", "detect"]


def detect(payload: Any) -> bool:
    """Whether these are events, some of them unique to this stream."""
    return is_list(payload) and all(map(is_object, payload)) and any(map(_is_ours, payload))


def _is_ours(event: Json) -> bool:
    return isinstance(kind := event.get("event_type"), str) and kind.startswith(("interaction.", "step."))


class _Text:
    """A text whose stream has started."""

    def __init__(self, raw: Json) -> None:
        self._raw = raw
        self.pieces: list[str] = [optional(raw, "text", str, "$.step.content") or ""]
        self.annotations: list[Any] = list(optional(raw, "annotations", list, "$.step.content") or ())

    def content(self) -> Json:
        content: Json = {**self._raw, "text": "".join(self.pieces)}
        return content | {"annotations": list(self.annotations)} if self.annotations else content


class InteractionsStream:
    """Reads the events. A citation is returned when its annotation arrives, or when the step with its text
    stops."""

    def __init__(self, options: DialectOptions) -> None:
        self._unit: Unit = options.unit or UNIT
        self._interaction: Json = {"object": "interaction"}
        self._steps: dict[int, Json] = {}
        self._contents: dict[int, list[_Text | Json]] = {}
        self._looks = IncrementalReader(self.answer)

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("a stream event is not an object")
        is_news = False
        match kind := event.get("event_type"):
            case "interaction.created" | "interaction.completed":
                self._interaction |= require(event, "interaction", dict, "$")
            case "step.start":
                self._start(require(event, "index", int, "$"), require(event, "step", dict, "$"))
            case "step.delta":
                delta = require(event, "delta", dict, "$")
                self._add(require(event, "index", int, "$"), delta)
                is_news = "annotations" in delta
            case _:
                is_news = kind == "step.stop"
        return self._looks.read_new(news=is_news, done=kind == "interaction.completed")

    def _start(self, index: int, step: Json) -> None:
        self._steps[index] = dict(step)
        contents = optional(step, "content", list, "$.step") or []
        self._contents[index] = [
            _Text(one) if is_object(one) and one.get("type") == "text" else one for one in contents
        ]

    def _add(self, index: int, delta: Json) -> None:
        if index not in self._steps:
            raise ShapeError(f"step {index} was never started", "$.index")
        if self._steps[index].get("type") != "model_output":
            self._steps[index] |= {key: value for key, value in delta.items() if key != "type"}
        elif "annotations" in delta:
            text = self._text(index)
            text.annotations.extend(require(delta, "annotations", list, "$.delta"))
        elif delta.get("type") == "text":
            self._text(index).pieces.append(require(delta, "text", str, "$.delta"))
        else:
            self._contents[index].append(delta)

    def _text(self, index: int) -> _Text:
        """Return the last text of a step, or start a new one if the step ends with something else."""
        contents = self._contents[index]
        last = contents[-1] if contents else None
        if isinstance(last, _Text):
            return last
        text = _Text({"type": "text"})
        contents.append(text)
        return text

    def answer(self) -> Answer:
        steps = [self._step(index) for index in sorted(self._steps)]
        return read_interaction({**self._interaction, "steps": steps}, self._unit)

    def _step(self, index: int) -> Json:
        step, contents = self._steps[index], self._contents[index]
        if step.get("type") != "model_output":
            return dict(step)
        return {**step, "content": [one.content() if isinstance(one, _Text) else one for one in contents]}


STREAM = InteractionsStream
