"""The gpu backend beside PyTorch, in one process: with_torch.py GPU.so first|second [time].

"first" loads libsumtree before torch, "second" after it. With "time", the learner step (update 512,
sample 512 of 2^21 leaves) is measured against PyTorch's scatter, cumsum and searchsorted
in float64.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable

LEAVES, K, ROUNDS, WARM = 1 << 21, 512, 300, 20


class Philox(ctypes.Structure):
    _fields_ = (
        ("key", ctypes.c_uint64 * 2),
        ("counter", ctypes.c_uint64 * 4),
        ("buffer_pos", ctypes.c_int32),
    )


def load(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.sumtree_device_problem.restype = ctypes.c_char_p
    library.sumtree_status_name.restype = ctypes.c_char_p
    return library


path, order = sys.argv[1], sys.argv[2]
if order == "first":
    library = load(path)
    print("devices:", library.sumtree_device_count())
import torch  # noqa: E402

torch.zeros(1, device="cuda")
if order == "second":
    library = load(path)
    print("devices:", library.sumtree_device_count())
if library.sumtree_device_count() == 0:
    print("problem:", library.sumtree_device_problem().decode())
    sys.exit(3)

pointer, int64 = ctypes.c_void_p, ctypes.c_int64


def ok(status: int) -> None:
    if status != 0:
        raise SystemExit(f"{library.sumtree_status_name(status).decode()}")


def address(tensor: torch.Tensor) -> pointer:
    return pointer(tensor.data_ptr())


tree = pointer()
ok(library.sumtree_create(int64(LEAVES), 2, ctypes.byref(tree)))
rng = Philox((1, 2), (0, 0, 0, 0), 4)
generator = torch.Generator(device="cuda").manual_seed(1)
masses = torch.rand((ROUNDS + WARM, K), dtype=torch.float64, device="cuda", generator=generator)
indices = torch.randint(0, LEAVES, (ROUNDS + WARM, K), device="cuda", generator=generator)
everything = torch.arange(LEAVES, device="cuda")
leaves = torch.rand(LEAVES, dtype=torch.float64, device="cuda", generator=generator)
found = torch.empty(K, dtype=torch.int64, device="cuda")
drawn = torch.empty(K, dtype=torch.float64, device="cuda")
weights = torch.empty(K, dtype=torch.float64, device="cuda")
ok(
    library.sumtree_device_update(
        tree, int64(LEAVES), address(everything), address(leaves), int64(1), None
    )
)


def ours(i: int) -> None:
    ok(
        library.sumtree_device_update(
            tree, int64(K), address(indices[i]), address(masses[i]), int64(1), None
        )
    )
    ok(
        library.sumtree_device_sample(
            tree,
            ctypes.byref(rng),
            int64(K),
            ctypes.c_double(0.4),
            1,
            address(found),
            address(drawn),
            address(weights),
        )
    )


steps = torch.arange(K, dtype=torch.float64, device="cuda")


def theirs(i: int) -> None:
    """No minimum over all leaves, no check of the batch, no exact sums: less work."""
    leaves[indices[i]] = masses[i]
    sums = torch.cumsum(leaves, 0)
    uniforms = torch.rand(K, dtype=torch.float64, device="cuda", generator=generator)
    targets = (steps + uniforms) / K * sums[-1]
    at = torch.searchsorted(sums, targets, right=True)
    mass = leaves[at]
    relative = mass ** (-0.4)
    relative /= relative.max()
    torch.cuda.synchronize()


def median(step: Callable[[int], None], other: Callable[[int], None]) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(ROUNDS + WARM):
        for which, run in enumerate((step, other)):
            torch.cuda.synchronize()
            began = time.perf_counter()
            run(i)
            took = time.perf_counter() - began
            if i >= WARM:
                times[which].append(took * 1e6)
    return statistics.median(times[0]), statistics.median(times[1])


leaf = leaves.clone()
for i in range(5):
    ours(i)
    for j, mass in zip(indices[i].tolist(), masses[i].tolist(), strict=True):
        leaf[j] = mass
    if not torch.equal(drawn, leaf[found]):
        raise SystemExit("drawn masses are not those of the leaves")
library.sumtree_free.argtypes = [pointer]
print("torch", torch.__version__, "and libsumtree work side by side, libsumtree loaded", order)
if len(sys.argv) > 3:
    a, b = median(ours, theirs)
    print("| learner step, 2^21 leaves, from Python | us | ratio |\n|---|---|---|")
    print(f"| libsumtree, device tensors, ctypes | {a:.1f} | 1 |")
    print(f"| torch scatter + cumsum + searchsorted, float64, eager | {b:.1f} | {b / a:.2f} |")
library.sumtree_free(tree)
