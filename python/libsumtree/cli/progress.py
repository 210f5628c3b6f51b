"""How far a command is: a bar on standard error, if that is a terminal and it takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

PATIENCE_SECONDS = 2.0


class Bar:
    """A bar that appears once its work has taken `PATIENCE_SECONDS`.

    Without the package rich, which draws it, or without a terminal there is none. Nothing is drawn
    between two calls: no thread disturbs what is being measured.

    Parameters
    ----------
    total : float, optional
        What `advance` adds up to; None if that is not known.
    in_bytes : bool
        Whether what is counted are bytes.
    """

    def __init__(self, total: float | None = None, in_bytes: bool = False) -> None:
        self._total = total
        self._in_bytes = in_bytes
        self._done = 0.0
        self._text = ""
        self._shown: Any = None
        self._possible = sys.stderr.isatty() and find_spec("rich") is not None
        self._due = time.monotonic() + PATIENCE_SECONDS

    def say(self, text: str) -> None:
        """Say what is being done now."""
        self._text = text
        self._show()

    def advance(self, amount: float = 1) -> None:
        """Count what is done."""
        self._done += amount
        self._show()

    def close(self) -> None:
        """Take the bar away."""
        if self._shown is not None:
            self._shown.stop()

    def _show(self) -> None:
        if not self._possible or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + 0.1
        if self._shown is None:
            self._shown = self._make()
            self._shown.start()
        done = self._done if self._total is None else min(self._done, self._total)
        task = self._shown.task_ids[0]
        self._shown.update(task, description=self._text, completed=done, refresh=True)

    def _make(self) -> Any:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        counted = DownloadColumn() if self._in_bytes else MofNCompleteColumn()
        made = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            counted,
            TimeElapsedColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=True,
        )
        made.add_task(self._text, total=self._total)
        return made


@contextmanager
def bar(total: float | None = None, in_bytes: bool = False) -> Iterator[Bar]:
    """Make a bar for the work of a block, see `Bar`."""
    made = Bar(total, in_bytes)
    try:
        yield made
    finally:
        made.close()
