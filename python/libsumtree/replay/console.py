"""What a replay rank says on standard error: lines, and on a terminal one line that stands."""

from __future__ import annotations

import contextlib
import select
import sys

_CLEAR = "\r\x1b[K"
_name = "libsumtree replay"
_standing = False  # whether the cursor is at the end of a status line


def speak_as(shard: int) -> None:
    """Name the shard in all that is said from now on."""
    global _name
    _name = f"libsumtree replay, shard {shard}"


def say(text: str) -> None:
    """Tell whoever watches the job, on standard error."""
    global _standing
    clear, _standing = _CLEAR if _standing else "", False
    print(f"{clear}{_name}: {text}", file=sys.stderr, flush=True)


def show_status(text: str) -> None:
    """Show a status line; on a terminal it takes the place of the one before.

    A status is dropped where nobody takes it: this neither waits nor fails.
    """
    global _standing
    with contextlib.suppress(OSError, ValueError):
        if not select.select([], [sys.stderr], [], 0)[1]:
            return
        if sys.stderr.isatty():
            _standing = True
            print(f"{_CLEAR}{text}", end="", file=sys.stderr, flush=True)
        else:
            print(f"{_name}: {text}", file=sys.stderr, flush=True)


def end_status() -> None:
    """Leave the status line, if one stands, where it is."""
    global _standing
    if _standing:
        _standing = False
        with contextlib.suppress(OSError, ValueError):
            print(file=sys.stderr, flush=True)
