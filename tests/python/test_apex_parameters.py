"""The parameter channel between real ranks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from libsumtree.apex import NetworkError
from libsumtree.apex.parameter_messages import EPISODE_DTYPE, Layout
from libsumtree.errors import ProtocolError

MPIEXEC = Path(sys.executable).with_name("mpiexec")


def run_ranks(count, program, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PRELUDE + program)
    launcher = str(MPIEXEC) if MPIEXEC.exists() else shutil.which("mpiexec")
    command = [launcher, "-n", str(count), sys.executable, "-m", "mpi4py", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


PRELUDE = """
import sys
import time
import numpy as np
from mpi4py import MPI
from libsumtree.apex.parameters import ParameterSink, ParameterSource
from libsumtree.apex import parameter_messages as messages
from libsumtree.errors import ProtocolError, ReplayTimeoutError

comm = MPI.COMM_WORLD.Dup()
rank = comm.Get_rank()


def parameters(version, size=100_000):
    return {"a": np.full((size, 2), version, np.float32), "b": np.array(version, np.int64)}


def check(received, version):
    assert received["a"].dtype == np.float32 and (received["a"] == version).all(), received
    assert received["b"].shape == () and received["b"] == version, received
"""

TRAFFIC = """
if rank == 0:
    source = ParameterSource(comm, range(1, 4), parameters(1))
    episodes = []
    for version in range(2, 300):
        source.publish(parameters(version))
        episodes.append(source.poll())
        assert len(source._sending) <= 3, "more than one answer under way for an actor"
    while source.open:
        episodes.append(source.poll())
        time.sleep(0.001)
    episodes.append(source.close(10.0))
    total = np.concatenate(episodes)
    # Each actor reported 0, 1, 2, ... 999; nothing is lost or repeated.
    assert sorted(total["steps"].tolist()) == sorted(list(range(1000)) * 3), len(total)
    assert (total["episode_return"] == total["steps"] / 2).all()
else:
    sink = ParameterSink(comm, 0, parameters(0))
    last = 0
    deadline = time.monotonic() + 30
    for episode in range(1000):
        sink.report(episode / 2, episode)
        received = sink.poll()
        if received is not None:
            assert sink.version > last, (sink.version, last)
            last = sink.version
            check(received, last)
        if episode % 100 == rank:
            time.sleep(0.01)
    while last < 299 and time.monotonic() < deadline:
        received = sink.poll()
        if received is not None:
            last = sink.version
            check(received, last)
        time.sleep(0.0005)
    assert last == 299, last
    sink.close(10.0)
assert not comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG), "a message was left behind"
comm.Barrier()
"""


def test_actors_get_the_latest_parameters_and_no_episode_is_lost(tmp_path):
    done = run_ranks(4, TRAFFIC, tmp_path)
    assert done.returncode == 0, done.stderr


LEAVING = """
if rank == 0:
    source = ParameterSource(comm, range(1, 3), parameters(1))
    time.sleep(0.3)
    episodes = source.close(10.0)
    assert episodes["steps"].tolist() in ([1, 2], [2, 1]), episodes
else:
    sink = ParameterSink(comm, 0, parameters(0))
    if rank == 1:
        sink.poll()  # a request whose answer it will never read but for leaving
    sink.report(1.0, rank)
    sink.close(10.0)
assert not comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG), "a message was left behind"
comm.Barrier()
"""


def test_leaving_in_the_middle_of_an_answer_leaves_no_message_behind(tmp_path):
    done = run_ranks(3, LEAVING, tmp_path)
    assert done.returncode == 0, done.stderr


MALFORMED = """
def wrong(data):
    return comm.Isend([np.frombuffer(data, np.uint8).copy(), MPI.BYTE], 0, messages.TAG)

header = np.zeros(1, messages.HEADER_DTYPE)
good = (messages.MAGIC, messages.Kind.REQUEST, messages.Layout(parameters(0)).digest, 0, 0)
header[0] = good
cases = [
    (b"short", "a message of 5 bytes"),
    (b"x" * 100_000, "a message of 100000 bytes"),
    (b"\\0" * header.itemsize, "no message of this channel"),
]
for field, value, text in [
    ("kind", 99, "no message of this channel"),
    ("kind", int(messages.Kind.PARAMETERS), "no message of this channel"),
    ("layout", 1, "a network of other parameters"),
    ("length", 16, "sent 0 bytes after a header that says 16"),
]:
    changed = header.copy()
    changed[field] = value
    cases.append((changed.tobytes(), text))
odd = header.copy()
odd["length"] = 17
cases.append((odd.tobytes() + b"y" * 17, "where a multiple of 16"))

for data, text in cases:
    sending = wrong(data) if rank == 1 else MPI.REQUEST_NULL
    comm.Barrier()
    if rank == 0:
        source = ParameterSource(comm, range(1, 2), parameters(0))
        try:
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                source.poll()
            raise AssertionError(f"not refused: {text}")
        except ProtocolError as error:
            assert text in str(error), (text, error)
            assert "rank 1" in str(error)
    sending.Wait()
    comm.Barrier()

if rank == 0:
    source = ParameterSource(comm, range(1, 2), parameters(0))
    try:
        source.close(0.2)
    except ReplayTimeoutError as error:
        assert "ranks [1]" in str(error)
        print("all refused")
"""


def test_messages_that_are_none_of_the_channels_are_refused(tmp_path):
    done = run_ranks(2, MALFORMED, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all refused\n"


def test_a_layout_packs_and_unpacks_bit_for_bit():
    parameters = {
        "weights": np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1],
        "step": np.array(5, np.int64),
        "none": np.empty((0, 4), np.float64),
    }
    layout = Layout(parameters)
    assert layout.nbytes == 24 + 8
    data = np.empty(layout.nbytes, np.uint8)
    layout.pack(parameters, data)
    received = layout.unpack(data)
    for name, array in parameters.items():
        np.testing.assert_array_equal(received[name], array)
        assert received[name].dtype == array.dtype


def test_a_parameter_that_changes_its_shape_is_refused():
    layout = Layout({"weights": np.zeros(3)})
    with pytest.raises(ProtocolError, match=r"'weights' has become float64 \(2,\)"):
        layout.pack({"weights": np.zeros(2)}, np.empty(24, np.uint8))


def test_parameters_that_no_message_can_carry_are_refused():
    huge = np.broadcast_to(np.float32(0), (2**30,))
    with pytest.raises(NetworkError, match="are 4294967296 bytes"):
        Layout({"weights": huge})


def test_the_digest_knows_names_shapes_and_types():
    base = Layout({"a": np.zeros(3, np.float32)}).digest
    for other in (
        {"b": np.zeros(3, np.float32)},
        {"a": np.zeros((3, 1), np.float32)},
        {"a": np.zeros(3, np.int32)},
    ):
        assert Layout(other).digest != base
    assert EPISODE_DTYPE.itemsize == 16
