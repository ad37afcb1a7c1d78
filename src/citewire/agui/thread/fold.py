"""Base class of the two thread views: folds log entries one by one and records problems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from citewire.agui.thread.log_entries import LogEntry, group_deltas
from citewire.agui.thread.persistent_list import JsonDraft, ListSnapshot, PersistentList
from citewire.model import Problem

__all__ = ["Fold", "ThreadProblems", "problems_to_json"]

# Problems that are stored individually; a peer can cause any number.
_MOST_PROBLEMS = 1000


class ThreadProblems:
    """Stores the first problems of a thread, and counts later ones by code."""

    def __init__(self) -> None:
        self._rows = PersistentList[Problem]()
        self._more = Counter[str]()

    def add(self, problem: Problem) -> None:
        if len(self._rows) < _MOST_PROBLEMS:
            self._rows.append(problem)
            return
        self._more[problem.code] += 1
        kinds = ", ".join(f"{code} {count}" for code, count in self._more.most_common())
        last = Problem("too_many_problems", problem.path, f"and {self._more.total()} more: {kinds}")
        if len(self._rows) == _MOST_PROBLEMS:
            self._rows.append(last)
        else:
            self._rows[_MOST_PROBLEMS] = last

    def snapshot(self) -> ListSnapshot:
        return self._rows.snapshot()

    def copy(self) -> ThreadProblems:
        twin = ThreadProblems()
        twin._rows, twin._more = self._rows.copy(), self._more.copy()
        return twin


def problems_to_json(problems: Iterable[Problem]) -> list[dict[str, str]]:
    """Convert problems to JSON values."""
    return [{"code": each.code, "path": each.path, "message": each.message} for each in problems]


class Fold(ABC):
    """Folds log entries. `number` is that of the last one, `born` that of the entry that added a message."""

    def __init__(self) -> None:
        self.number = 0
        self.born: dict[str, int] = {}
        self._problems = ThreadProblems()

    def fold(self, entries: Sequence[LogEntry], times: Mapping[int, float]) -> None:
        """Apply the next entries; `times` has the arrival times of some of them."""
        for entry, more in group_deltas(entries):
            self.number += 1
            self._take(entry, times.get(self.number))
            if more and self._go_on(entry, more):
                self.number += len(more)
                continue
            for other in more:
                self.number += 1
                self._take(other, None)

    def _take(self, entry: LogEntry, time: float | None) -> None:
        try:
            self._apply(entry, time)
        except RecursionError:
            self._report("bad_json", "nested too deeply")

    @abstractmethod
    def _apply(self, entry: LogEntry, time: float | None) -> None:
        """Apply one entry, received at `time` if that is known."""

    @abstractmethod
    def _go_on(self, event: Any, more: Sequence[Any]) -> bool:
        """Apply deltas that continue `event` at once; False if they must be applied one by one."""

    def _report(self, code: str, message: str) -> None:
        self._problems.add(Problem(code, f"#{self.number}", message))

    def _note_message_added(self, message: JsonDraft) -> None:
        """Record the entry number of a new message, if the message has an id."""
        if isinstance(message.key, str):
            self.born.setdefault(message.key, self.number)

    def _copy_to(self, twin: Fold) -> None:
        twin.number, twin.born, twin._problems = self.number, self.born.copy(), self._problems.copy()
