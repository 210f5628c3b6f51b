"""The example of frames stored once, on frames of Atari games."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_atari_frames_take_a_seventh() -> None:
    """Real frames of two environments; the example ends with 1 if any drawn stack differs."""
    program = [sys.executable, EXAMPLES / "atari_frames.py", "--steps", "2000", "--capacity", "500"]
    done = subprocess.run(
        [*program, "--environments", "2"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "every draw was the naive buffer's, to the last bit" in done.stdout
    assert float(re.search(r"ratio: ([\d.]+)", done.stdout)[1]) > 7.0
