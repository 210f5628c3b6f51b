"""A capacity that memory cannot hold is a MemoryError at once: no crash, and no kill later."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import libsumtree as st
from libsumtree.backends import open_backend
from libsumtree.errors import OutOfMemoryError

KINDS = [st.SumTree, st.MinTree, st.PriorityTree]


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_capacity_is_refused_at_once(kind: type[st.SumTree]) -> None:
    named = (
        rf"a {kind.__name__} of capacity {2**40} takes \d{{14}} bytes: more than the memory limit"
    )
    with pytest.raises(OutOfMemoryError, match=named):
        kind(2**40)
    with pytest.raises(MemoryError):
        kind(2**39 + 1)


def test_what_is_left_is_known(backend: str) -> None:
    library = open_backend(backend)
    assert 2**26 < library.memory_available() < 2**60
    assert library.bytes(2**40, 0) > 2**44
    assert library.bytes(0, 0) == library.bytes(2**40 + 1, 0) == 0


LIMITED = """
import resource
import libsumtree as st

used = 4096 * int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
kept = st.SumTree(1000)
kept[:] = 1.0
for kind, capacity in [(st.SumTree, 2**24), (st.MinTree, 2**24), (st.PriorityTree, 2**23)]:
    for _ in range(20):
        try:
            kind(capacity + 1)
        except MemoryError as error:
            assert isinstance(error, st.SumTreeError), type(error)
        else:
            raise SystemExit("a tree beyond the limit was made")
    small = kind(2**20)
    small[5] = 1.0
    small.validate()
assert kept.total == 1000.0
print("refused")
"""


def test_an_address_space_limit_is_an_error_and_nothing_leaks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "refused\n", "")


# ---- a real control group, where this process may make one -----------------------------


@dataclass(frozen=True)
class Group:
    """A control group hierarchy with a memory controller."""

    folder: Path
    limit: str
    usage: str


def hierarchies() -> Iterator[Group]:
    top = Path("/sys/fs/cgroup")
    yield Group(top / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
    yield Group(top, "memory.max", "memory.current")


def writable() -> list[Group]:
    """Find the hierarchies in which a group with a memory limit can be made."""
    found = []
    for group in hierarchies():
        probe = group.folder / f"libsumtree-probe-{os.getpid()}"
        with contextlib.suppress(OSError):
            probe.mkdir()
            if (probe / group.limit).exists() and os.access(probe / "cgroup.procs", os.W_OK):
                found.append(group)
            probe.rmdir()
    return found


WITHIN = """
import os, sys
from pathlib import Path
import libsumtree as st
from libsumtree.backends import open_backend

group, limit, usage, slack = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
(group / "cgroup.procs").write_text(str(os.getpid()))
st.PriorityTree(8)[0] = 1.0
need = open_backend("cpu").bytes(2**22, 2)
(group / limit).write_text(str(int((group / usage).read_text()) + need + slack))
try:
    tree = st.PriorityTree(2**22)
except MemoryError:
    print("refused")
else:
    tree[:] = 1.0
    tree.validate()
    print("made")
"""
KIB, MIB = 2**10, 2**20
SLACKS = [-64 * MIB, -MIB, 0, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 64 * MIB]
GROUPS = writable()


def in_group(group: Group, slack: int) -> str:
    """Make a tree where its own bytes and `slack` are left; killed is an empty string."""
    folder = group.folder / f"libsumtree-test-{os.getpid()}"
    folder.mkdir()
    try:
        arguments = [str(folder), group.limit, group.usage, str(slack)]
        done = subprocess.run(
            [sys.executable, "-c", WITHIN, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, -9), done.stderr
        return done.stdout.strip()
    finally:
        folder.rmdir()


if GROUPS:

    @pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.limit)
    def test_a_control_group_is_never_overdrawn(group: Group) -> None:
        outcomes = {slack: in_group(group, slack) for slack in SLACKS}
        assert "" not in outcomes.values(), f"killed: {outcomes}"
        assert outcomes[-64 * MIB] == outcomes[-MIB] == "refused"
        assert outcomes[64 * MIB] == "made"
