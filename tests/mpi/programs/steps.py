"""What the programs have in common: a whole file, a refusal that is due, all answers taken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def note(name: str, text: str = "") -> None:
    """Write a file that is whole as soon as it is there."""
    temporary = Path(f"{name}.tmp.{os.getpid()}")
    temporary.write_text(text)
    temporary.rename(name)


def expect(kind: type[Exception], call: Any, text: str) -> None:
    """Fail unless a call raises this, with this in its text."""
    try:
        call()
    except kind as error:
        found = str(error)
    else:
        found = f"no {kind.__name__}"
    assert text in found, f"{text!r} is not in {found!r}"


def settle(client: Any) -> None:
    """Take answers until there is one to all that was sent; raise what was refused."""
    while client.unacknowledged:
        client.poll()
