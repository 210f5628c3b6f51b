"""What all the tests share: signals as a terminal has them."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # Shells and nohup start what is in the background with SIGINT ignored, and children inherit it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
