"""A thread: one numbered log of AG-UI events, and the two views that front ends have of it."""

from citewire.agui.thread.thread import NotInLog, Thread, ThreadSnapshot

__all__ = ["NotInLog", "Thread", "ThreadSnapshot"]
