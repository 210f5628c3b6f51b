"""SIGTERM, SIGUSR1 and SIGINT as a flag that a service looks at between two messages."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopFlag:
    """Set by the first of `SIGNALS`; true once it is set.

    A context manager: leaving it puts back the handlers that were there before. Where those were
    another flag's, the two are set together, and a signal that came earlier counts.
    """

    def __init__(self) -> None:
        self._name: str | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._outer: StopFlag | None = None

    @property
    def name(self) -> str | None:
        """The name of the signal that came first, such as ``"SIGTERM"``; None if none came."""
        return self._name

    def __bool__(self) -> bool:
        return self._name is not None

    def install(self) -> None:
        """Take over the three signals; only the main thread may.

        A signal that the process was told to ignore (as ``nohup`` and shells do) stays ignored.
        """
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._set)
                outer = getattr(self._before[number], "__self__", None)
                if isinstance(outer, StopFlag):
                    self._outer = outer
                    self._name = self._name or outer.name

    def restore(self) -> None:
        """Put back the handlers that were there before."""
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _set(self, number: int, frame: FrameType | None) -> None:
        if self._name is None:
            self._name = signal.Signals(number).name
        if self._outer is not None:
            self._outer._set(number, frame)

    def __enter__(self) -> StopFlag:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.restore()


def install_signal_flag() -> StopFlag:
    """Take over SIGTERM, SIGUSR1 and SIGINT and return the flag that they set.

    Raises
    ------
    ValueError
        If called from another thread than the main one.
    """
    flag = StopFlag()
    flag.install()
    return flag
