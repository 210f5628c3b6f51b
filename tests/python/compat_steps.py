"""Steps through the classes that `libsumtree.compat` stands in for, and what the real ones answer.

    python tests/python/compat_steps.py FAMILY MODULE > tests/data/compat/NAME.json

makes steps for a family, performs them with the real MODULE, and writes both. Steps stay where the
real one is right: docs/compat.md lists what is different. Numbers are multiples of 1/4 where they
are added up, for each package adds in another order.
"""

from __future__ import annotations

import builtins
import importlib
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

Step = list[Any]
CAPACITY = 16


def array(values: Any) -> dict[str, Any]:
    """Write an array so that JSON holds it."""
    made = np.asarray(values)
    return {"dtype": str(made.dtype), "values": made.tolist()}


def tensor(values: Any) -> dict[str, Any]:
    return {**array(values), "tensor": True}


def quarters(rng: np.random.Generator, *shape: int) -> Any:
    return rng.integers(1, 40, size=shape) / 4.0


def indices(rng: np.random.Generator, *shape: int, below: int = CAPACITY) -> Any:
    return rng.integers(0, below, size=shape)


def baselines_steps(rng: np.random.Generator, in_arrays: bool = False) -> Iterator[Step]:
    yield ["sum", "SumSegmentTree", [CAPACITY]]
    yield ["min", "MinSegmentTree", [CAPACITY]]
    for i in range(CAPACITY):
        for tree in ("sum", "min"):
            yield [tree, "__setitem__", [i, float(quarters(rng))]]
    for _ in range(12):
        if in_arrays:
            where = np.unique(indices(rng, 5))
            masses = quarters(rng, len(where))
            yield ["sum", "__setitem__", [array(where), array(masses)]]
            yield ["sum", "__getitem__", [array(where)]]
            yield ["sum", "find_prefixsum_idx", [array(quarters(rng, 6))]]
        for tree in ("sum", "min"):
            yield [tree, "__setitem__", [int(indices(rng)), float(quarters(rng))]]
            yield [tree, "__getitem__", [int(indices(rng))]]
            start = int(indices(rng))
            yield [tree, "reduce", [start, int(rng.integers(start + 1, CAPACITY + 1))]]
        if not in_arrays:
            yield ["sum", "find_prefixsum_idx", [float(quarters(rng))]]
    yield ["sum", "reduce", []]
    yield ["min", "reduce", []]


def negative_ends(rng: np.random.Generator) -> Iterator[Step]:
    """Go on where `sum` and `min` have names of their own, as in Baselines and RLlib."""
    yield from baselines_steps(rng)
    for end in range(-CAPACITY + 3, 0):
        yield ["sum", "sum", [2, end]]
        yield ["min", "min", [2, end]]
    for index in (CAPACITY, -1):
        yield ["sum", "__getitem__", [index]]
    for prefix_sum in (-0.25, 1e6):
        yield ["sum", "find_prefixsum_idx", [prefix_sum]]
    yield ["none", "SumSegmentTree", [0]]


def tianshou_steps(rng: np.random.Generator) -> Iterator[Step]:
    yield ["tree", "SegmentTree", [13]]
    yield ["tree", "__setitem__", [array(np.arange(13)), array(quarters(rng, 13))]]
    yield ["tree", "__len__", []]
    for _ in range(12):
        where = indices(rng, 4, below=13)
        yield ["tree", "__setitem__", [array(where), array(quarters(rng, 4))]]
        yield ["tree", "__setitem__", [int(indices(rng, below=13)), float(quarters(rng))]]
        yield ["tree", "__getitem__", [array(where)]]
        yield ["tree", "__getitem__", [int(where[0])]]
        yield ["tree", "reduce", [int(indices(rng, below=5)), int(rng.integers(5, 14))]]
        yield ["tree", "reduce", [2, -int(rng.integers(1, 10))]]
        yield ["tree", "get_prefix_sum_idx", [array(rng.random(7) * 3.0)]]
        yield ["tree", "get_prefix_sum_idx", [array(quarters(rng, 6))]]
        yield ["tree", "get_prefix_sum_idx", [float(quarters(rng))]]
    yield ["tree", "reduce", []]
    yield ["tree", "reduce", [4, 4]]
    for value in (-0.25, 1e6):
        yield ["tree", "get_prefix_sum_idx", [value]]
    yield ["tree", "__setitem__", [array([13]), array([1.0])]]
    yield ["tree", "__setitem__", [array([-1]), array([1.0])]]


def torchrl_steps(rng: np.random.Generator) -> Iterator[Step]:
    for name in (f"{kind}SegmentTreeFp{bits}" for kind in ("Sum", "Min") for bits in (32, 64)):
        yield from _torchrl_steps(rng, name, name, array)
        yield from _torchrl_steps(rng, name, f"{name} with tensors", tensor)


def _torchrl_steps(
    rng: np.random.Generator, kind: str, tree: str, argument: Callable[[Any], Any]
) -> Iterator[Step]:
    dtype, is_sum = (np.float32 if kind.endswith("32") else np.float64), kind.startswith("Sum")
    yield [tree, kind, [13]]
    for name in ("size", "capacity"):
        yield [tree, name, None]
    yield [tree, "__len__", []]
    yield [tree, "update", [array(np.arange(13)), array(quarters(rng, 13))]]
    for _ in range(3):
        where = indices(rng, 2, 3, below=13)
        yield [tree, "update", [argument(where), argument(quarters(rng, 2, 3).astype(dtype))]]
        yield [tree, "__setitem__", [argument(indices(rng, 4, below=13)), 1.75]]
        yield [tree, "at", [argument(where)]]
        yield [tree, "__getitem__", [argument(where.T)]]
        yield [tree, "query", [argument(where), argument(where + 1)]]
        if is_sum:
            yield [tree, "scan_lower_bound", [argument(quarters(rng, 3, 5).astype(dtype))]]
            yield [tree, "scan_lower_bound", [argument(np.array([1e6, 0.5], dtype=dtype))]]
    yield [tree, "__setitem__", [3, 0.1]]
    yield [tree, "__getitem__", [3]]
    yield [tree, "__setitem__", [3, 0.25]]
    for start, stop in ((0, 13), (2, 7), (0, 1), (-3, 20)):
        yield [tree, "query", [start, stop]]
    if is_sum:
        yield [tree, "identity_element", None]
        yield [tree, "query", [5, 5]]
        yield [tree, "scan_lower_bound", [1.25]]
        yield [tree, "scan_lower_bound", [1e6]]
    yield [tree, "pickled", []]


def cpprb_steps(rng: np.random.Generator) -> Iterator[Step]:
    env = {
        "obs": {"shape": 2},
        "act": {"dtype": "int64"},
        "image": {"shape": [2, 2], "dtype": "u1"},
    }
    sizes = ("get_stored_size", "get_buffer_size", "get_next_index", "get_current_episode_len")
    yield ["buffer", "PrioritizedReplayBuffer", [6, {**env, "rew": {}}], {"next_of": "obs"}]
    yield ["buffer", "get_max_priority", []]
    for count in (None, 1, 3, 2, 3):
        shape = () if count is None else (count,)
        values = {
            "obs": array(rng.random((*shape, 2)).round(3)),
            "next_obs": array(rng.random((*shape, 2)).round(3)),
            "act": array(indices(rng, *shape)),
            "image": array(rng.integers(0, 256, size=(*shape, 2, 2))),
            "rew": array(rng.random(shape).round(3)),
        }
        priorities = array(1.0 + quarters(rng, count or 1)) if count != 2 else None
        yield ["buffer", "add", [], {"priorities": priorities, **values}]
        for name in sizes:
            yield ["buffer", name, []]
        yield ["buffer", "get_max_priority", []]
        yield ["buffer", "on_episode_end", []]
    yield ["buffer", "weights", [0.4]]
    yield ["buffer", "update_priorities", [array(np.arange(6)), array(quarters(rng, 6))]]
    yield ["buffer", "update_priorities", [array([2, 2]), array([3.0, 5.0])]]
    yield ["buffer", "weights", [0.7]]
    yield ["buffer", "weights", [0.0]]
    yield ["buffer", "add", [], {"obs": array([1.0, 2.0])}]
    yield ["buffer", "clear", []]
    for name in sizes:
        yield ["buffer", name, []]
    yield ["buffer", "get_max_priority", []]
    yield ["buffer", "is_Nstep", []]


FAMILIES = {
    "baselines": negative_ends,
    "stable_baselines": lambda rng: baselines_steps(rng, in_arrays=True),
    "di_engine": baselines_steps,
    "tianshou": tianshou_steps,
    "torchrl": torchrl_steps,
    "cpprb": cpprb_steps,
}


def decoded(value: Any) -> Any:
    """Make the argument that a step's JSON stands for."""
    if isinstance(value, dict) and "values" in value:
        made = np.array(value["values"], dtype=value["dtype"])
        return importlib.import_module("torch").from_numpy(made) if "tensor" in value else made
    return deepcopy(value)  # cpprb writes to its env_dict


def encoded(value: Any) -> Any:
    """Write an answer so that JSON holds it."""
    if isinstance(value, np.ndarray):
        return array(value)
    if type(value).__module__ == "torch":
        return tensor(value.numpy())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {name: encoded(part) for name, part in value.items()}
    return value


def weights(buffer: Any, beta: float) -> dict[str, float]:
    """Give the weight of each transition of a buffer of cpprb; every one is drawn."""
    drawn = buffer.sample(2000, beta)
    pairs = zip(drawn["indexes"].tolist(), drawn["weights"].tolist(), strict=True)
    return {str(index): weight for index, weight in sorted(dict(pairs).items())}


def pickled(tree: Any) -> Any:
    """Give what comes out of a pickle of a tree."""
    return encoded(pickle.loads(pickle.dumps(tree))[np.arange(tree.size)])


def perform(module: Any, steps: list[Step]) -> list[Any]:
    """Go through the steps with the classes of a module; give what each one answered."""
    objects: dict[str, Any] = {}
    return [_perform_one(module, objects, *step) for step in steps]


def _perform_one(
    module: Any,
    objects: dict[str, Any],
    name: str,
    what: str,
    arguments: list[Any] | None,
    named: dict[str, Any] | None = None,
) -> Any:
    given = [decoded(argument) for argument in arguments or []]
    keywords = {key: decoded(value) for key, value in (named or {}).items()}
    try:
        if hasattr(module, what):
            objects[name] = getattr(module, what)(*given, **keywords)
            return None
        if what in ("weights", "pickled"):
            return globals()[what](objects[name], *given)
        member = getattr(objects[name], what)
        return encoded(member if arguments is None else member(*given, **keywords))
    except Exception as error:  # what a package raises is its answer
        return {"raises": [base.__name__ for base in type(error).__mro__ if _is_built_in(base)]}


def _is_built_in(base: type) -> bool:
    return base is getattr(builtins, base.__name__, None) and base not in (
        Exception,
        BaseException,
        object,
    )


def same(ours: Any, theirs: Any, accuracy: float = 0.0) -> bool:
    """Tell whether an answer stands for theirs: to the bit, and exceptions by their class."""
    if isinstance(theirs, dict) and "raises" in theirs:
        return isinstance(ours, dict) and theirs["raises"][0] in ours.get("raises", [])
    if isinstance(theirs, dict) and "values" in theirs:
        kind = np.dtype(theirs["dtype"]).kind
        return (
            isinstance(ours, dict)
            and ours.get("tensor") == theirs.get("tensor")
            and (kind == "u" or ours["dtype"] == theirs["dtype"])
            and same(ours["values"], theirs["values"], accuracy)
        )
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(
            same(ours[k], theirs[k], accuracy) for k in theirs
        )
    if isinstance(theirs, float) and isinstance(ours, float):
        return ours == theirs or abs(ours - theirs) <= accuracy * abs(theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(
            same(one, other, accuracy) for one, other in zip(ours, theirs, strict=True)
        )
    return type(ours) is type(theirs) and ours == theirs


def main() -> None:
    family, name = sys.argv[1:]
    steps = list(FAMILIES[family](np.random.default_rng(0)))
    top = name.partition(".")[0]
    try:
        made_by = f"{top} {version(top)}"
    except PackageNotFoundError:
        made_by = name
    answers = perform(importlib.import_module(name), steps)
    lines = [json.dumps([step, answer]) for step, answer in zip(steps, answers, strict=True)]
    head = json.dumps({"family": family, "module": name, "made_by": made_by})
    print("[" + ",\n".join([head, *lines]) + "]")


if __name__ == "__main__":
    main()
