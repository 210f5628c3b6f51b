"""The example programs that need nothing but the package."""

from __future__ import annotations

from compat_theirs import TOP, printed_by


def test_one_process() -> None:
    lines = printed_by((TOP / "examples" / "single_process.py").read_text()).splitlines()
    assert lines[0] == "to the right, always: True"
    found, true = (line.partition(": ")[2] for line in lines[1:])
    assert found == true
