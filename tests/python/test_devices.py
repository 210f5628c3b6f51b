"""Which device a tree is on, and the end of its memory."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import libsumtree as st
from libsumtree.backends import open_backend
from libsumtree.devices import LOCAL_RANK_VARIABLES, choose_device, local_rank
from libsumtree.errors import (
    ArgumentError,
    ArgumentTypeError,
    ClosedTreeError,
    DeviceArrayError,
    DeviceError,
)

KINDS = [st.SumTree, st.MinTree, st.PriorityTree]


class Gpus:
    """A backend as `choose_device` sees it, with any number of GPUs."""

    name = "gpu"

    def __init__(self, device_count: int, device_problem: str = "") -> None:
        self.device_count = device_count
        self.device_problem = device_problem


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in LOCAL_RANK_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


# ---- the choice of a device ------------------------------------------------------------


def test_without_a_launcher_it_is_device_0() -> None:
    assert local_rank() == 0
    assert choose_device(Gpus(3), None) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("variable", LOCAL_RANK_VARIABLES)
def test_ranks_of_a_node_share_its_gpus(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    chosen = []
    for rank in range(5):
        monkeypatch.setenv(variable, str(rank))
        assert local_rank() == rank
        chosen.append(choose_device(Gpus(2), None))  # type: ignore[arg-type]
    assert chosen == [0, 1, 0, 1, 0]
    assert choose_device(Gpus(8), 6) == 6  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "-1", "one", "1.0"])
def test_what_is_no_rank_is_passed_over(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", text)
    monkeypatch.setenv("SLURM_LOCALID", "3")
    assert local_rank() == 3


@pytest.mark.parametrize("device", [-1, 2, 2**70])
def test_a_device_that_is_not_there(device: int) -> None:
    with pytest.raises(DeviceError, match=rf"device is {device}: there are 2, 0 \.\. 1"):
        choose_device(Gpus(2), device)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", [0.0, True, "0", [0], np.array([0])])
def test_what_is_no_device(device: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="device is .*: it must be an integer"):
        choose_device(Gpus(2), device)  # type: ignore[arg-type]


def test_what_is_missing_is_said() -> None:
    without = Gpus(0, "no NVIDIA driver: libcuda.so.1 cannot be loaded")
    for device in (None, 0, 1):
        with pytest.raises(DeviceError, match=r"'gpu' cannot run here: no NVIDIA driver: libcuda"):
            choose_device(without, device)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_host_backends_have_no_device(kind: Any) -> None:
    assert kind(3, backend="cpu").device is None
    assert repr(kind(3, backend="cpu")) == f"{kind.__name__}(3, backend='cpu')"
    for device in (0, 1, -1):
        with pytest.raises(DeviceError, match=f"device is {device}: backend 'cpu' keeps its trees"):
            kind(3, backend="cpu", device=device)
    with pytest.raises(DeviceError, match="only backend 'gpu' takes a device"):
        st.PrioritizedReplayBuffer(3, [("x", "f4")], backend="cpu", device=0)


def test_a_host_backend_says_that_it_has_none() -> None:
    library = open_backend("cpu")
    assert library.device_count == 0
    assert "host memory" in library.device_problem
    assert (library.device_name(0), library.device_memory_available(0)) == ("", 0)


def test_vector_levels_are_selected_by_name(backend: str) -> None:
    library = open_backend(backend)
    levels = library.vector_levels.split()
    chosen = library.vector_level
    assert chosen in levels
    for level in levels:
        library.select_vector_level(level)
        assert library.vector_level == level
    library.select_vector_level(chosen)


@pytest.mark.gpu_on_host
def test_a_tree_says_where_it_is() -> None:
    tree = st.PriorityTree(3, device=0)
    assert (tree.backend, tree.device) == ("gpu", 0)
    assert repr(tree) == "PriorityTree(3, backend='gpu', device=0)"
    assert st.PrioritizedReplayBuffer(3, [("x", "f4")], device=0).tree.device == 0
    library = open_backend("gpu")
    assert library.device_count == 1
    assert library.device_problem == ""
    assert library.device_memory_available(0) > 0
    with pytest.raises(DeviceError, match=r"device is 1: there are 1, 0 \.\. 0"):
        st.SumTree(3, device=1)


@pytest.mark.gpu_on_host
def test_a_pickle_keeps_a_device_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for device, requested in [(None, None), (0, 0)]:
        tree = st.PriorityTree(5, seed=1, backend="gpu", device=device)
        tree[:] = 2.0
        again = pickle.loads(pickle.dumps(tree))
        assert again._requested == ("gpu", requested)
        assert again.sample(9).indices.tolist() == tree.sample(9).indices.tolist()


# ---- closing ---------------------------------------------------------------------------

USES: dict[str, Callable[[Any], Any]] = {
    "update": lambda tree: tree.update([0], [1.0]),
    "update, fast": lambda tree: tree.update(np.array([0]), np.array([1.0])),
    "update one": lambda tree: tree.update(0, 1.0),
    "get": lambda tree: tree[[0]],
    "get, fast": lambda tree: tree[np.array([0])],
    "get one": lambda tree: tree[0],
    "get a slice": lambda tree: tree[:],
    "set a slice": lambda tree: tree.__setitem__(slice(None), 1.0),
    "total": lambda tree: tree.total,
    "sum": lambda tree: tree.sum(0, 2),
    "find": lambda tree: tree.find([0.0]),
    "find, fast": lambda tree: tree.find(np.array([0.0])),
    "min": lambda tree: tree.min,
    "max": lambda tree: tree.max,
    "sample": lambda tree: tree.sample(3),
    "rng_state": lambda tree: tree.rng_state,
    "set rng_state": lambda tree: setattr(tree, "rng_state", st.PriorityTree(1).rng_state),
    "nodes": lambda tree: tree.nodes("sum"),
    "validate": lambda tree: tree.validate(),
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("use", USES)
def test_a_closed_tree_says_so(use: str) -> None:
    tree = st.PriorityTree(4, seed=1)
    tree[:] = 1.0
    tree.close()
    with pytest.raises(ClosedTreeError, match="this tree was closed") as caught:
        USES[use](tree)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_closed_min_tree_says_so() -> None:
    tree = st.MinTree(4)
    tree.close()
    with pytest.raises(ClosedTreeError):
        tree.min()


def test_a_closed_tree_still_says_what_it_was(backend: str) -> None:
    with st.SumTree(5) as tree:
        assert not tree.closed
        tree.update(0, 1.0)
    assert tree.closed
    tree.close()
    assert (tree.capacity, tree.padded_capacity, len(tree), tree.backend) == (5, 8, 5, backend)
    assert repr(tree).endswith(", closed)")


def test_what_a_tree_gave_outlives_it() -> None:
    tree = st.PriorityTree(4, seed=1)
    tree[:] = [1.0, 2.0, 3.0, 4.0]
    masses, drawn = tree[:], tree.sample(100)
    tree.close()
    assert masses.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert np.array_equal(drawn.masses, drawn.indices + 1.0)


def test_a_buffer_over_a_closed_tree_says_so() -> None:
    buffer = st.PrioritizedReplayBuffer(4, [("x", "f4")], seed=0)
    buffer.add(np.zeros(2, buffer.dtype))
    buffer.tree.close()
    for use in (lambda: buffer.sample(2), lambda: buffer.add(np.zeros(2, buffer.dtype))):
        with pytest.raises(ClosedTreeError):
            use()


@pytest.mark.parametrize("round_", range(20))
def test_a_close_waits_for_the_calls_of_other_threads(round_: int) -> None:
    """Each call of another thread is whole, or is told that the tree is closed."""
    tree = st.SumTree(2**15)
    indices = np.arange(2**15)
    seen: list[Exception] = []
    entered = threading.Event()

    def work() -> None:
        try:
            while True:
                tree.update(indices, 1.0 + round_)
                entered.set()
        except Exception as error:
            seen.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait()
    tree.close()
    for thread in threads:
        thread.join()
    assert [type(error) for error in seen] == [ClosedTreeError] * 2


# ---- where the results of a draw go ----------------------------------------------------


def room(n: int) -> st.TreeSample:
    return st.TreeSample(np.full(n, -1), np.full(n, -1.0), np.full(n, -1.0))


def pair_of_trees() -> tuple[st.PriorityTree, st.PriorityTree]:
    trees = st.PriorityTree(50, seed=3), st.PriorityTree(50, seed=3)
    for tree in trees:
        tree[:] = np.arange(50.0)
    return trees


@pytest.mark.parametrize("stratified", [True, False])
def test_a_draw_fills_arrays_that_are_given(stratified: bool) -> None:
    tree, other = pair_of_trees()
    out = room(30)
    drawn = tree.sample(30, 0.7, stratified, out=out)
    assert drawn is out
    for got, right in zip(out, other.sample(30, 0.7, stratified), strict=True):
        assert got.tobytes() == right.tobytes()


@pytest.mark.parametrize(
    ("field", "array", "error", "said"),
    [
        (0, np.zeros(4, np.int32), ArgumentError, "out.indices must be a NumPy array of int64"),
        (1, np.zeros(4, np.int64), ArgumentError, "out.masses must be a NumPy array of float64"),
        (2, np.zeros(8)[::2], ArgumentError, "out.weights must be .* contiguous and writable"),
        (1, np.zeros(3), st.SumTreeError, r"out.masses has shape \(3,\): it must be \(4,\)"),
        (1, np.zeros((4, 1)), st.SumTreeError, r"out.masses has shape \(4, 1\)"),
        (0, [0, 0, 0, 0], ArgumentError, "out.indices must be a NumPy array"),
        (0, None, ArgumentError, "out.indices must be a NumPy array"),
        (2, np.zeros(4).astype(">f8"), ArgumentError, "out.weights must be"),
        (2, np.broadcast_to(np.zeros(4), 4), ArgumentError, "out.weights must be .* writable"),
    ],
)
def test_what_a_draw_cannot_fill(field: int, array: Any, error: type[Exception], said: str) -> None:
    tree, other = pair_of_trees()
    out = list(room(4))
    out[field] = array
    with pytest.raises(error, match=said):
        tree.sample(4, out=st.TreeSample(*out))
    assert tree.sample(5).indices.tolist() == other.sample(5).indices.tolist()


def test_out_is_three_arrays() -> None:
    tree, _ = pair_of_trees()
    for out in ((np.zeros(4),), np.zeros(4), 3, [*room(4)]):
        with pytest.raises(ArgumentError, match="out must be a TreeSample"):
            tree.sample(4, out=out)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="out and xp are both given"):
        tree.sample(4, out=room(4), xp=np)
    with pytest.raises(ArgumentError, match="out.masses and out.weights share memory"):
        tree.sample(4, out=st.TreeSample(np.zeros(4, int), *[np.zeros(4)] * 2))


def test_out_shares_no_memory() -> None:
    """The kernel works in the arrays of a draw: one may not be another, shifted."""
    tree, other = pair_of_trees()
    block = np.zeros(9)
    for out in (
        (block[:-1].view(np.int64), block[1:], np.empty(8)),
        (np.empty(8, np.int64), block[1:], block[:-1]),
        (block[1:].view(np.int64), np.empty(8), block[1:]),
    ):
        with pytest.raises(ArgumentError, match=r"out\.\w+ and out\.\w+ share memory"):
            tree.sample(8, out=st.TreeSample(*out))
    assert tree.sample(5).indices.tolist() == other.sample(5).indices.tolist()


def test_a_library_is_one_that_takes_dlpack() -> None:
    tree, _ = pair_of_trees()
    for xp in (3, pickle, [np]):
        with pytest.raises(ArgumentError, match="xp is .*: it must be an array library"):
            tree.sample(4, xp=xp)
    cpu = st.PriorityTree(4, backend="cpu")
    with pytest.raises(ArgumentError, match="xp is given, .*'cpu' .* backend='gpu'"):
        cpu.sample(4, xp=np)


# ---- arrays of a GPU where there is none -----------------------------------------------


class OnGpu:
    """An array of a GPU, as far as it is looked at before its memory is."""

    def __init__(self, kind: int = 2) -> None:
        self.kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, **_: object) -> Any:
        raise AssertionError("its memory was asked for")


class OnHost:
    """A host array of another library, such as PyTorch's are."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        return self.values


def test_host_arrays_of_other_libraries_are_host_arrays() -> None:
    tree = st.SumTree(4, backend="cpu")
    tree.update(OnHost([1, 2]), OnHost([1.0, 2.0]))
    tree[:2] = OnHost([3.0, 4.0])
    assert tree[OnHost([0, 1, 2])].tolist() == [3.0, 4.0, 2.0]
    assert tree.find(OnHost([0.0, 9.0])).tolist() == [0, 2]


@pytest.mark.parametrize("kind", [2, 8, 10, 13, 14])
def test_a_host_tree_refuses_device_arrays(kind: int) -> None:
    tree = st.SumTree(4, backend="cpu")
    array: Any = OnGpu(kind)
    for name, use in {
        "indices": lambda: tree.update(array, array),
        "masses": lambda: tree.update([0], array),
        "targets": lambda: tree.find(array),
    }.items():
        with pytest.raises(DeviceArrayError, match=f"{name} is in the memory of a device, .*'cpu'"):
            use()
    with pytest.raises(DeviceArrayError, match="pass a host array, or make the tree with backend"):
        tree[array]
    with pytest.raises(DeviceArrayError, match="masses is in the memory of a device"):
        tree[:] = array
    with pytest.raises(DeviceArrayError, match="masses is in the memory of a device"):
        tree[1:3] = array
