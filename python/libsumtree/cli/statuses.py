"""How a command ends: its exit status, for scripts to tell ends apart."""

from __future__ import annotations

DONE = 0
DIFFERENT = 1
UNREAD = 1
REFUSED = 2
FAULT = 3
INTERRUPTED = 130

TABLE: dict[int, str] = {
    DONE: "what was asked for is done",
    DIFFERENT: "`checkpoint diff` found a difference; or nobody reads the output any more",
    REFUSED: "it cannot be done, or something was found wrong; one line on stderr says what",
    FAULT: "a fault of libsumtree, or of code of yours that it runs; --debug shows where",
    INTERRUPTED: "ended by Ctrl-C",
}


def lines() -> str:
    """Return the table as the text of a help."""
    return "\n".join(f"  {status:<4} {meaning}" for status, meaning in TABLE.items())
