"""A thread: one numbered log of AG-UI events, with two views for front ends."""

from citewire.agui.thread.thread import NotInLog, Thread, ThreadSnapshot

__all__ = ["NotInLog", "Thread", "ThreadSnapshot"]
