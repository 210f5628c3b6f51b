"""The example programs that need nothing but the package."""

from __future__ import annotations

import subprocess
import sys

import pytest
from compat_theirs import TOP, printed_by

EXTRAS = {
    "atari_frames.py": "pip install 'libsumtree[atari]'",
    "blind_cliffwalk.py": "pip install 'libsumtree[cli]'",
    "gpu_torch.py": "pip install torch",
    "pytorch_dqn.py": "pip install 'libsumtree[apex]' torch",
}
WITHOUT = """
import runpy, sys
for name in ("ale_py", "gymnasium", "matplotlib", "mpi4py", "torch"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_one_process() -> None:
    lines = printed_by((TOP / "examples" / "single_process.py").read_text()).splitlines()
    assert lines[0] == "to the right, always: True"
    found, true = (line.partition(": ")[2] for line in lines[1:])
    assert found == true


@pytest.mark.parametrize("name", EXTRAS)
def test_what_is_missing_is_said_at_once(name: str) -> None:
    options = ["--output", "x.png"] if name == "blind_cliffwalk.py" else []
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(TOP / "examples" / name), *options],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert EXTRAS[name] in done.stderr
    assert done.stderr.count("\n") == 1
