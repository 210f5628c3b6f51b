"""Forks: a child finds every tree and buffer at rest, whatever other threads were doing.

The thread that forks waits for the others to leave, and holds them out until the child is made.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

from . import _core

_locks: WeakSet[threading.RLock] = WeakSet()
_held: list[threading.RLock] = []


def hold_across_forks(lock: threading.RLock) -> None:
    """Have every fork wait for this lock, as long as it lives."""
    _locks.add(lock)


def _before() -> None:
    # Buffers before trees, as their own calls take them; in one order, for two threads may fork.
    for lock in sorted(_locks, key=id):
        lock.acquire()
        _held.append(lock)
    _core.hold_for_fork()


def _after_in_parent() -> None:
    _core.release_after_fork(False)
    _release()


def _after_in_child() -> None:
    _core.release_after_fork(True)
    _release()


def _release() -> None:
    while _held:
        _held.pop().release()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
