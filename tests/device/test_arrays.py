"""Arrays of PyTorch, CuPy and JAX on real GPUs: in and out with no copy, as exact as on the host.

    python -m pytest -ra tests/device/test_arrays.py

with the package installed, its gpu backend in it. A library that is not there, and a second GPU
that is not, are named at the end.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np
import pytest

import libsumtree as st
from libsumtree import device_arrays
from libsumtree.backends import open_backend
from libsumtree.errors import (
    ArgumentTypeError,
    ClosedTreeError,
    DeviceArrayError,
    DeviceError,
    EmptyTreeError,
    IndexOutOfRangeError,
    MassError,
    OutOfMemoryError,
    ShapeError,
    TargetError,
)

LEAVES = 2**21
BATCHES = [0, 1, 8, 512, 4096, 5000, 32768, 2**20]
WEIGHT_ULPS = 4


@dataclass(frozen=True)
class Library:
    """An array library: how arrays are put on a GPU, brought back, and where they lie there."""

    xp: Any
    put: Callable[..., Any]
    get: Callable[[Any], np.ndarray]
    address: Callable[[Any], int]


def torch_library() -> Library:
    torch = importlib.import_module("torch")
    return Library(
        torch,
        lambda array, device=0: torch.from_numpy(np.array(array)).to(f"cuda:{device}"),
        lambda tensor: tensor.cpu().numpy(),
        lambda tensor: int(tensor.data_ptr()),
    )


def cupy_library() -> Library:
    cupy = importlib.import_module("cupy")

    def put(array: Any, device: int = 0) -> Any:
        with cupy.cuda.Device(device):
            return cupy.asarray(array)

    return Library(cupy, put, cupy.asnumpy, lambda array: int(array.data.ptr))


def jax_library() -> Library:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    return Library(
        importlib.import_module("jax.numpy"),
        lambda array, device=0: jax.device_put(np.asarray(array), jax.devices()[device]),
        np.asarray,
        lambda array: int(array.unsafe_buffer_pointer()),
    )


LIBRARIES = {"torch": torch_library, "cupy": cupy_library, "jax": jax_library}


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    pytest.importorskip(request.param)
    return LIBRARIES[request.param]()


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def two_devices() -> None:
    if open_backend("gpu").device_count < 2:
        pytest.skip("there is no second GPU")


def pair(kind: Any = st.PriorityTree, leaves: int = LEAVES, device: int = 0) -> tuple[Any, Any]:
    """Make a tree on a GPU and one on the host, alike."""
    seed = {"seed": 5} if kind is st.PriorityTree else {}
    trees = kind(leaves, backend="gpu", device=device, **seed), kind(leaves, backend="cpu", **seed)
    masses = np.random.default_rng(1).random(leaves)
    for tree in trees:
        tree[:] = masses
    return trees


def same(tree: Any, other: Any) -> None:
    planes = {st.SumTree: ["sum"], st.MinTree: ["min"], st.PriorityTree: ["sum", "min", "max"]}
    for plane in planes[type(tree)]:
        assert tree.nodes(plane).tobytes() == other.nodes(plane).tobytes()


def same_draw(library: Library, drawn: Any, expected: Any) -> None:
    assert library.get(drawn.indices).tobytes() == expected.indices.tobytes()
    assert library.get(drawn.masses).tobytes() == expected.masses.tobytes()
    weights = library.get(drawn.weights)
    assert np.all(np.abs(weights - expected.weights) <= WEIGHT_ULPS * np.spacing(expected.weights))


# ---- bit for bit -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [st.SumTree, st.MinTree, st.PriorityTree])
@pytest.mark.parametrize("count", BATCHES)
def test_the_same_bits_as_on_the_host(library: Library, kind: Any, count: int) -> None:
    tree, other = pair(kind)
    rng = np.random.default_rng(count)
    for _ in range(3):
        indices, masses = rng.integers(0, LEAVES, count), rng.random(count)
        indices[count // 2 :] = indices[: count - count // 2]
        tree.update(library.put(indices), library.put(masses))
        other.update(indices, masses)
        assert library.get(tree[library.put(indices)]).tobytes() == other[indices].tobytes()
        if kind is not st.MinTree:
            targets = masses * other.total
            for side in ("right", "left"):
                found = library.get(tree.find(library.put(targets), side))
                assert found.dtype == np.int64
                assert found.tobytes() == other.find(targets, side).tobytes()
    same(tree, other)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 4), (4, 1), (0, 3)])
def test_results_have_the_shape_that_was_asked_for(library: Library, shape: Any) -> None:
    tree, other = pair(leaves=100)
    indices = np.arange(math.prod(shape)).reshape(shape)
    read, found = tree[library.put(indices)], tree.find(library.put(indices * 0.5))
    for array, expected in ((read, other[indices]), (found, other.find(indices * 0.5))):
        assert type(array) is type(library.put(indices))
        assert tuple(array.shape) == shape
        assert library.get(array).tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("n", [0, 1, 512, 10_000])
def test_draws_stay_on_the_device(library: Library, n: int, stratified: bool) -> None:
    tree, other = pair()
    for _ in range(5):
        drawn = tree.sample(n, 0.7, stratified, xp=library.xp)
        same_draw(library, drawn, other.sample(n, 0.7, stratified))
    assert str(tree.rng_state) == str(other.rng_state)


def test_a_learner_of_many_steps(library: Library) -> None:
    """Memory of results that were dropped is used again and again, never too early."""
    tree, other = pair(leaves=50_000)
    rng = np.random.default_rng(0)
    for _ in range(300):
        drawn, expected = tree.sample(512, 0.5, xp=library.xp), other.sample(512, 0.5)
        factor = rng.random()
        tree.update(drawn.indices, drawn.masses * factor)
        other.update(expected.indices, expected.masses * factor)
        same_draw(library, drawn, expected)
    same(tree, other)


def test_one_mass_for_all(library: Library) -> None:
    tree, other = pair(leaves=100)
    indices = np.array([[1, 2], [3, 1]])
    for mass in (2.5, library.put(np.array(0.25))):
        tree[library.put(indices)] = mass
        other[indices] = float(mass)
        same(tree, other)


# ---- no copies -------------------------------------------------------------------------


def test_arrays_go_in_where_they_are(library: Library) -> None:
    tree, _ = pair(leaves=100)
    indices = library.put(np.arange(50))
    assert tree._view(indices, "indices", "int64").address == library.address(indices)


def test_results_come_out_where_they_are(library: Library) -> None:
    tree, _ = pair(leaves=100)
    view = tree._view(library.put(np.arange(50)), "indices", "int64")
    result = tree._device_get(view)
    handed = device_arrays.hand_to(device_arrays.library_of(library.put(np.arange(5))), result)
    assert library.address(handed) == result.address


def test_draws_fill_arrays_in_place(library: Library) -> None:
    tree, other = pair()
    out = st.TreeSample(*(library.put(np.zeros(512, dtype)) for dtype in ("i8", "f8", "f8")))
    if type(out.indices).__module__.startswith("jax"):
        with pytest.raises(DeviceArrayError, match="out.indices cannot be written to"):
            tree.sample(512, out=out)
        return
    addresses = [library.address(array) for array in out]
    assert tree.sample(512, out=out) is out
    assert [library.address(array) for array in out] == addresses
    same_draw(library, out, other.sample(512))


def test_arrays_outlive_their_tree(library: Library) -> None:
    tree, other = pair(leaves=1000)
    indices = np.arange(1000)
    kept = [tree[library.put(np.roll(indices, k))] for k in range(10)]
    assert len({library.address(array) for array in kept}) == 10
    tree.close()
    del tree
    gc.collect()
    another, _ = pair(leaves=1000)
    another.sample(1000, xp=library.xp)
    for k, array in enumerate(kept):
        assert library.get(array).tobytes() == other[np.roll(indices, k)].tobytes()


# ---- streams ---------------------------------------------------------------------------


def test_what_another_stream_still_makes_is_waited_for(torch: Any) -> None:
    tree, other = pair()
    rng = np.random.default_rng(0)
    stream = torch.cuda.Stream()
    for _ in range(20):
        indices, masses = rng.integers(0, LEAVES, 512), rng.random(512)
        ready = [torch.from_numpy(array).cuda() for array in (indices, masses)]
        late = [torch.zeros_like(array) for array in ready]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            for array, values in zip(late, ready, strict=True):
                array.copy_(values)
            tree.update(*late)
        other.update(indices, masses)
    same(tree, other)


def test_what_the_default_stream_still_makes_is_waited_for(torch: Any) -> None:
    tree, other = pair()
    rng = np.random.default_rng(0)
    for _ in range(20):
        indices, masses = rng.integers(0, LEAVES, 512), rng.random(512)
        ready = [torch.from_numpy(array).cuda() for array in (indices, masses)]
        torch.cuda._sleep(20_000_000)
        tree.update(*[array.clone() for array in ready])
        other.update(indices, masses)
    same(tree, other)


def test_results_that_another_stream_reads_late_stay(torch: Any) -> None:
    tree, other = pair()
    stream = torch.cuda.Stream()
    sums, expected = [], []
    for _ in range(20):
        with torch.cuda.stream(stream):
            drawn = tree.sample(512, xp=torch)
            torch.cuda._sleep(20_000_000)
            sums.append(drawn.indices.clone())
            del drawn
        expected.append(other.sample(512).indices)
    torch.cuda.synchronize()
    for got, right in zip(sums, expected, strict=True):
        assert got.cpu().numpy().tobytes() == right.tobytes()


# ---- what is wrong ---------------------------------------------------------------------

GOOD = {"indices": np.array([1, 2, 3, 4]), "masses": np.ones(4), "targets": np.ones(4)}


def refused(library: Library, name: str, array: Any, error: type[Exception], said: str) -> None:
    tree, other = pair(leaves=100)
    calls: dict[str, Callable[[], Any]] = {
        "indices": lambda: tree.update(array, library.put(GOOD["masses"])),
        "masses": lambda: tree.update(library.put(GOOD["indices"]), array),
        "targets": lambda: tree.find(array),
    }
    with pytest.raises(error, match=said):
        calls[name]()
    same(tree, other)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8", "bool"])
def test_another_dtype_is_named(library: Library, name: str, dtype: str) -> None:
    right = "int64" if name == "indices" else "float64"
    said = f"{name} has dtype {dtype}: a device array must have dtype {right}"
    array = library.put(GOOD[name].astype(dtype))
    refused(library, name, array, ArgumentTypeError, said)


@pytest.mark.parametrize("name", GOOD)
def test_what_is_not_contiguous(library: Library, name: str) -> None:
    array = library.put(np.repeat(GOOD[name], 2))[::2]
    if type(array).__module__.startswith("jax"):
        refused(library, name, array.astype("int16"), ArgumentTypeError, "dtype int16")
        return  # its arrays are always contiguous
    refused(library, name, array, DeviceArrayError, f"{name} is not contiguous")


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.usefixtures("two_devices")
def test_another_device_is_named(library: Library, name: str) -> None:
    said = f"{name} is on CUDA device 1: the tree is on CUDA device 0"
    refused(library, name, library.put(GOOD[name], 1), DeviceArrayError, said)


def test_host_and_device_arrays_do_not_mix(library: Library) -> None:
    refused(library, "masses", np.ones(4), DeviceArrayError, "masses is in host memory beside")
    refused(library, "indices", [1, 2, 3, 4], DeviceArrayError, "indices is in host memory beside")


def test_a_host_tree_refuses_device_arrays(library: Library) -> None:
    tree = st.SumTree(10, backend="cpu")
    for name, use in {
        "indices": lambda: tree.update(library.put(np.arange(4)), 1.0),
        "masses": lambda: tree.update(np.arange(4), library.put(np.ones(4))),
        "targets": lambda: tree.find(library.put(np.ones(4))),
    }.items():
        with pytest.raises(DeviceArrayError, match=f"{name} is in the memory of a device.*'cpu'"):
            use()


def test_shapes_must_be_equal(library: Library) -> None:
    said = r"masses has shape \(2, 2\)"
    refused(library, "masses", library.put(np.ones((2, 2))), ShapeError, said)


def test_bad_elements_are_named(library: Library) -> None:
    for value in (-1.0, math.nan, math.inf):
        array = library.put(np.array([1.0, 1.0, value, -1.0]))
        refused(library, "masses", array, MassError, rf"masses\[2\] is {value}: a mass must")
    for value in (-1, 100, 2**62):
        array = library.put(np.array([1, value, 2, -1]))
        refused(library, "indices", array, IndexOutOfRangeError, rf"indices\[1\] is {value}: an ")
    for value in (-1.0, math.nan, 1e9):
        array = library.put(np.array([1.0, value]))
        refused(library, "targets", array, TargetError, rf"targets\[1\] is {value}: a target must")
    with pytest.raises(EmptyTreeError):
        st.SumTree(4, backend="gpu").find(library.put(np.zeros(1)))


def test_an_array_that_its_library_does_not_export(torch: Any) -> None:
    """Whether PyTorch lets an array that requires a gradient be read depends on its version."""
    tree, other = pair(leaves=100)
    masses = torch.ones(4, dtype=torch.float64, device="cuda", requires_grad=True)
    said = ""
    try:
        tree.update(torch.arange(4, device="cuda"), masses)
    except DeviceArrayError as error:
        said = str(error)
        same(tree, other)
    assert said == "" or said.startswith("masses cannot be exported by DLPack: ")
    tree.update(torch.arange(4, device="cuda"), masses.detach())
    other.update(np.arange(4), np.ones(4))
    same(tree, other)


def test_a_closed_tree_says_so(library: Library) -> None:
    tree, _ = pair(leaves=100)
    with tree:
        tree.update(library.put(np.arange(4)), library.put(np.ones(4)))
    for use in (
        lambda: tree.update(library.put(np.arange(4)), library.put(np.ones(4))),
        lambda: tree[library.put(np.arange(4))],
        lambda: tree.find(library.put(np.ones(4))),
        lambda: tree.sample(4, xp=library.xp),
    ):
        with pytest.raises(ClosedTreeError):
            use()


def test_memory_that_runs_out_leaves_all_trees_usable(library: Library) -> None:
    tree, other = pair()
    free = open_backend("gpu").device_memory_available(0)
    for use in (
        lambda: tree.sample(free // 8, xp=library.xp),
        lambda: tree.sample(2**62, xp=library.xp),
        lambda: st.PriorityTree(free // 8, backend="gpu", device=0),
        lambda: st.SumTree(2**40, backend="gpu", device=0),
    ):
        with pytest.raises(OutOfMemoryError):
            use()
    same(tree, other)
    same_draw(library, tree.sample(512, xp=library.xp), other.sample(512))
    with pair(leaves=1000)[0] as another:
        assert another.total > 0


def test_a_device_that_is_not_there() -> None:
    count = open_backend("gpu").device_count
    with pytest.raises(DeviceError, match=f"device is {count}: there are {count}, 0"):
        st.SumTree(4, backend="gpu", device=count)


# ---- two devices -----------------------------------------------------------------------


@pytest.mark.usefixtures("two_devices")
def test_trees_on_two_devices_at_once(library: Library) -> None:
    def learn(device: int) -> None:
        tree, other = pair(device=device)
        rng = np.random.default_rng(device)
        for count in [8, 512, 5000, 32768] * 5:
            indices, masses = rng.integers(0, LEAVES, count), rng.random(count)
            tree.update(library.put(indices, device), library.put(masses, device))
            other.update(indices, masses)
            drawn, expected = tree.sample(512, xp=library.xp), other.sample(512)
            same_draw(library, drawn, expected)
        same(tree, other)
        assert tree.device == device

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(learn, [0, 1]))


@pytest.mark.usefixtures("two_devices")
def test_ranks_of_a_node_share_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(4):
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", str(rank))
        tree = st.SumTree(4, backend="gpu")
        assert tree.device == rank % open_backend("gpu").device_count


# ---- who is imported first -------------------------------------------------------------

USE_TORCH = "import torch; ones = torch.ones(4, dtype=torch.float64, device='cuda')"
USE_CUPY = "import cupy; also = cupy.ones(4)"
USE_JAX = "import jax.numpy; also = jax.numpy.ones(4).block_until_ready()"
USE_OURS = """
import sys, libsumtree as st
try: tree = st.SumTree(4, backend='gpu')
except st.errors.DeviceError as error: print('refused:', error); sys.exit()
"""
CHECK = """
import torch
ones = torch.ones(4, dtype=torch.float64, device='cuda')
for _ in range(3):
    tree.update(torch.arange(4, device='cuda'), ones)
    assert float((ones @ ones).item()) == 4.0
assert tree.total == 4.0
found = tree.find(torch.tensor([0.0, 3.5], dtype=torch.float64, device='cuda'))
assert found.tolist() == [0, 3]
print('both work')
"""


ORDERS = [
    [USE_TORCH, USE_OURS],
    [USE_OURS, USE_TORCH],
    *([USE_TORCH, other, USE_OURS] for other in (USE_CUPY, USE_JAX)),
    *([USE_OURS, other, USE_TORCH] for other in (USE_CUPY, USE_JAX)),
    *([other, USE_OURS, USE_TORCH] for other in (USE_CUPY, USE_JAX)),
]


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: " ".join(p.split()[1] for p in order))
def test_any_order_of_imports_works_or_is_refused_at_once(order: list[str]) -> None:
    for name in ("cupy", "jax"):
        if any(f"import {name}" in part for part in order):
            pytest.importorskip(name)
    program = "\n".join([*order, CHECK])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    refused = "refused: backend 'gpu' cannot run here: "
    assert done.stdout == "both work\n" or done.stdout.startswith(refused)
