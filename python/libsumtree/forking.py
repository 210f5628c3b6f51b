"""Forks: a child finds every tree and buffer at rest, whatever other threads were doing.

The thread that forks waits for the others to leave, and holds them out until the child is made.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

from . import _core

_locks: WeakSet[threading.RLock] = WeakSet()
_of_this_thread = threading.local()


def hold_across_forks(lock: threading.RLock) -> None:
    """Have every fork wait for this lock, as long as it lives."""
    _locks.add(lock)


def _before() -> None:
    # Buffers before trees, as their own calls take them; in one order, for two threads may fork.
    _of_this_thread.held = _now_living()
    for lock in _of_this_thread.held:
        lock.acquire()
    _core.hold_for_fork()


def _now_living() -> list[threading.RLock]:
    while True:
        try:
            return sorted(_locks, key=id)
        except RuntimeError:  # another thread has made a buffer meanwhile
            continue


def _after_in_parent() -> None:
    _core.release_after_fork(False)
    _release()


def _after_in_child() -> None:
    _core.release_after_fork(True)
    _release()


def _release() -> None:
    for lock in reversed(_of_this_thread.held):
        lock.release()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
