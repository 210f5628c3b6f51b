"""Two hosts that share nothing but a network: their transitions cross it, and nothing else does.

A host is a network namespace; a virtual cable joins two of them, and counts the bytes. Hydra starts
its proxies through a stand-in for ssh that enters the namespace.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch import SECONDS, Jobs, need_hydra
from ring import RECORD, assert_same, filled, held

ADDRESSES = ("10.213.77.1", "10.213.77.2")
CABLE = "cable"
ENTER = """#!/bin/sh
# As ssh: [options] HOST COMMAND
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in
{first}) space={spaces[0]} ;;
*) space={spaces[1]} ;;
esac
shift
exec ip netns exec "$space" sh -c "$*"
"""


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


def refusal_of_namespaces() -> str:
    """Say why there can be no namespaces here, as in a chroot or a container; "" if there can."""
    space = f"sumtree-{os.getpid()}-trial"
    words = (["add", space], ["exec", space, "true"], ["del", space])
    trials = [
        subprocess.run(["ip", "netns", *each], capture_output=True, text=True, check=False)
        for each in words
    ]
    return next((trial.stderr.strip() for trial in trials if trial.returncode != 0), "")


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Make two namespaces with a cable between them; they go with the test."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces are root's to make")
    assert shutil.which("ip"), "this test needs ip: apt-get install iproute2"
    refused = refusal_of_namespaces()
    if refused:
        pytest.skip(f"this machine does not let root make network namespaces: {refused}")
    spaces = tuple(f"sumtree-{os.getpid()}-{n}" for n in (1, 2))
    try:
        for space in spaces:
            ip("netns", "add", space)
        ends = ["netns", spaces[0], "type", "veth", "peer", "name", CABLE, "netns", spaces[1]]
        ip("link", "add", CABLE, *ends)
        for space, address in zip(spaces, ADDRESSES, strict=True):
            ip("-n", space, "addr", "add", f"{address}/24", "dev", CABLE)
            for device in ("lo", CABLE):
                ip("-n", space, "link", "set", device, "up")
        for space in spaces:
            wait_until_up(space)
        yield spaces[0], spaces[1]
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def cable_of(space: str) -> dict[str, Any]:
    (link,) = json.loads(ip("-n", space, "-s", "-j", "link", "show", CABLE))
    return dict(link)


def wait_until_up(space: str) -> None:
    """Wait for the kernel to notice that there is a cable: MPI takes no device without."""
    deadline = time.monotonic() + SECONDS
    while cable_of(space)["operstate"] != "UP":
        assert time.monotonic() < deadline, cable_of(space)
        time.sleep(0.01)


def sent_by(space: str) -> int:
    """Return the bytes that this host has sent into the cable."""
    return int(cable_of(space)["stats64"]["tx"]["bytes"])


@pytest.fixture
def stand_in(tmp_path: Path, hosts: tuple[str, str]) -> Path:
    script = tmp_path / "enter.sh"
    script.write_text(ENTER.format(first=ADDRESSES[0], spaces=hosts))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


# What MPICH's two network modules need for speaking TCP over this cable alone.
MODULES = {
    "ucx": {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": CABLE},
    "ofi": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": CABLE},
}
BATCHES, ROWS = 5, 20_000  # of adds_large


@pytest.mark.parametrize("module", MODULES)
def test_transitions_cross_the_network(
    jobs: Jobs, hosts: tuple[str, str], stand_in: Path, module: str
) -> None:
    """The replay rank and a learner on one host, the actor on the other."""
    need_hydra()
    jobs.prefix = ["ip", "netns", "exec", hosts[0]]
    jobs.flags = ["-launcher", "ssh", "-launcher-exec", str(stand_in), "-localhost", ADDRESSES[0]]
    jobs.flags += ["-hosts", f"{ADDRESSES[0]}:2,{ADDRESSES[1]}:1"]
    jobs.options = MODULES[module]
    job = jobs.run("learner_idles", "adds_large_and_stops", capacity=30_000, seed=1)
    buffer = filled(*((seed, ROWS) for seed in range(BATCHES)), capacity=30_000, seed=1)
    assert_same(job.arrays("buffer.npz"), held(buffer))
    payload = BATCHES * ROWS * (RECORD.itemsize + 8)
    assert payload < sent_by(hosts[1]) < 2 * payload + (1 << 20)
    assert sent_by(hosts[0]) < payload / 4
