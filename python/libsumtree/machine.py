"""The machine that this process runs on: what names it, and what it lets the process use."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

_NVIDIA = "driver/nvidia/gpus"


def processor(proc: Path = Path("/proc")) -> str:
    """Name the processor, such as ``"AMD EPYC 9654 96-Core Processor (family 25, model 17)"``.

    Parameters
    ----------
    proc : Path
        Where ``/proc`` is mounted.

    Returns
    -------
    str
        What ``cpuinfo`` says of the first one; the architecture where it says nothing.
    """
    facts = _first_processor(proc / "cpuinfo")
    if "CPU implementer" in facts:  # aarch64 has numbers for names
        made = f"implementer {facts['CPU implementer']}, part {facts.get('CPU part', '?')}"
        return f"{platform.machine()} ({made})"
    name = facts.get("model name", platform.machine())
    kind = [f"{word} {facts[key]}" for word, key in _KIND.items() if key in facts]
    return f"{name} ({', '.join(kind)})" if kind else name


_KIND = {"family": "cpu family", "model": "model"}


def _first_processor(cpuinfo: Path) -> dict[str, str]:
    facts: dict[str, str] = {}
    try:
        with cpuinfo.open() as lines:
            for line in lines:
                if not line.strip():
                    break
                key, _, value = line.partition(":")
                facts[key.strip()] = value.strip()
    except OSError:
        return {}
    return facts


def cores() -> int:
    """Count the processors that this process may use: its affinity mask."""
    return len(os.sched_getaffinity(0))


def threads() -> int:
    """Give the threads that multicore uses: OMP_NUM_THREADS, else one for each usable core."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return whole_number(first) or cores()


def whole_number(text: str) -> int | None:
    """Read a whole number of at most 9 digits, as variables of the environment hold; else None."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def gpus(proc: Path = Path("/proc")) -> list[str]:
    """Name the NVIDIA GPUs that the driver of this machine knows; empty without a driver.

    Parameters
    ----------
    proc : Path
        Where ``/proc`` is mounted.
    """
    models = []
    for information in sorted((proc / _NVIDIA).glob("*/information")):
        lines = information.read_text(errors="replace").splitlines()
        models += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return models
