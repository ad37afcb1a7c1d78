"""What the two views of a thread have in common: they take a log entry by entry, and note what is wrong."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from citewire.agui.thread.log_entries import LogEntry, group_deltas
from citewire.agui.thread.persistent_list import JsonDraft, ListSnapshot, PersistentList
from citewire.model import Problem

__all__ = ["Fold", "ThreadProblems", "problems_to_json"]

# Problems that are kept one by one; a peer can make as many as it likes.
_MOST_PROBLEMS = 1000


class ThreadProblems:
    """The first problems of a thread, and how many of which kind came after them."""

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
    """Problems as JSON values."""
    return [{"code": each.code, "path": each.path, "message": each.message} for each in problems]


class Fold(ABC):
    """Folds the entries of a log. `number` is that of the last one, `born` when each message came."""

    def __init__(self) -> None:
        self.number = 0
        self.born: dict[str, int] = {}
        self._problems = ThreadProblems()

    def fold(self, entries: Sequence[LogEntry], times: Mapping[int, float]) -> None:
        """Take the next entries; `times` says when some of them came."""
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
        """Take one entry, which came at `time` where that is known."""

    @abstractmethod
    def _go_on(self, event: Any, more: Sequence[Any]) -> bool:
        """Take events that only go on where `event` did; False where they must be taken one by one."""

    def _report(self, code: str, message: str) -> None:
        self._problems.add(Problem(code, f"#{self.number}", message))

    def _note_message_added(self, message: JsonDraft) -> None:
        """Remember when a message came that somebody can name."""
        if isinstance(message.key, str):
            self.born.setdefault(message.key, self.number)

    def _copy_to(self, twin: Fold) -> None:
        twin.number, twin.born, twin._problems = self.number, self.born.copy(), self._problems.copy()
