"""Trees and buffers given anything: they do as the plain-Python trees do, or refuse as those."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from arguments import LiarError, argument
from choices import Choices

import libsumtree as st
from libsumtree.errors import DeviceArrayError, SumTreeError

_CAPACITIES = (1, 2, 5, 8, 13)
_RECORD = np.dtype([("x", "<f4"), ("y", ">i2", (2,))])
_MOST_DRAWN = 64
Outcome = tuple[str, Any]


def outcome(call: Callable[[], Any]) -> Outcome:
    """What a call returns or raises. Whatever is not raised on purpose ends the run."""
    try:
        return "returns", call()
    except LiarError:
        return "raises", LiarError
    except SumTreeError as error:
        assert str(error)
        return "raises", type(error)


def same(one: Any, other: Any) -> bool:
    """Whether two results are the same, type and bits."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        a, b = np.asarray(one), np.asarray(other)
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    return type(one) is type(other) and repr(one) == repr(other)


def planes(tree: Any) -> dict[str, bytes]:
    kinds = {"SumTree": ("sum",), "MinTree": ("min",), "PriorityTree": ("sum", "min", "max")}
    return {plane: tree.nodes(plane).tobytes() for plane in kinds[type(tree).__name__]}


def _step(choose: Choices, capacity: int, tree: Any) -> Callable[[Any], Any]:
    """One call, which can be made of a tree and of its oracle."""
    indices = argument(choose, capacity, False)
    masses = argument(choose, capacity, True)
    number, more = choose.integer(), choose.integer()
    side = choose.pick(("right", "left", "right", "left", "up", None, 1))
    what = choose.below(12)
    if what < 3:
        return lambda t: t.update(indices(), masses())
    if what == 3:
        return lambda t: t[indices()]
    if what == 4:
        return lambda t: t.__setitem__(indices(), masses())
    if what == 5:
        low, high = choose.pick((0, 1, -1, None, number)), choose.pick((3, capacity, None, more))
        step = choose.pick((None, 1, 2, -1, 0))
        return lambda t: t.__setitem__(slice(low, high, step), masses())
    if what == 6:
        return lambda t: t[slice(number, more)]
    if what == 7 and not isinstance(tree, st.MinTree):
        return lambda t: t.find(masses(), side)
    if what == 8:
        bounds = choose.pick(((), (0,), (number,), (0, more), (indices(), masses()), (0, capacity)))
        name = "min" if isinstance(tree, st.MinTree) else "sum"
        return lambda t: getattr(t, name)(*bounds)
    if what < 11 and isinstance(tree, st.PriorityTree):
        return _draw(choose, masses)
    return lambda t: t.probabilities(indices()) if isinstance(tree, st.PriorityTree) else len(t)


def _draw(choose: Choices, beta: Callable[[], Any]) -> Callable[[Any], Any]:
    count = choose.below(_MOST_DRAWN)
    exponent = beta if choose.below(3) == 0 else (lambda: 0.5)
    stratified, replace = choose.pick((None, True, False, 1)), choose.below(4) > 0
    return lambda t: t.sample(count, exponent(), stratified, replace=replace)


def trees(choose: Choices) -> None:
    """A tree and its oracle do the same; a refused call changes nothing."""
    capacity, name = choose.pick(_CAPACITIES), choose.pick(("SumTree", "MinTree", "PriorityTree"))
    options = {"seed": 5} if name == "PriorityTree" else {}
    tree = getattr(st, name)(capacity, backend="cpu", **options)
    oracle = getattr(st.reference, name)(capacity, **options)
    for _ in range(1 + choose.below(6)):
        step = _step(choose, capacity, tree)
        before = planes(tree)
        mine = outcome(partial(step, tree))
        if mine[1] is DeviceArrayError:  # what says that it is on a device: nothing for an oracle
            assert planes(tree) == before
            return
        theirs = outcome(partial(step, oracle))
        assert mine[0] == theirs[0], (mine, theirs)
        if mine[0] == "raises":
            assert mine == theirs
            assert planes(tree) == before
        else:
            assert same(mine[1], theirs[1]), (mine, theirs)
        tree.validate()
        assert planes(tree) == planes(oracle)


def states(choose: Choices) -> None:
    """A generator state, a seed or a capacity is taken, or refused by a class of our own."""
    made = argument(choose, 8, False)
    tree = st.PriorityTree(4, seed=1, backend="cpu")
    tree[:] = 1.0
    good = tree.rng_state
    name = choose.pick(("key", "counter", "buffer_pos", "bit_generator", "state", "more"))
    inner = name in ("key", "counter")
    odd = {**good["state"], name: made()} if inner else good["state"]
    state = {**good, "state": odd} if inner else {**good, name: made()}
    if outcome(lambda: setattr(tree, "rng_state", state))[0] == "raises":
        assert repr(tree.rng_state) == repr(good)
    tree.sample(3)
    outcome(lambda: st.PriorityTree(3, seed=made(), backend="cpu"))
    capacity = choose.integer()
    for kind in (st.SumTree, st.MinTree, st.PriorityTree):
        if not 10**5 < capacity <= 2**40:
            outcome(lambda kind=kind: kind(capacity, backend="cpu"))
        outcome(lambda kind=kind: kind(made(), backend="cpu"))
    count = choose.integer() if choose.flip() else made()
    if not isinstance(count, int) or not 10**5 < count <= 2**40:
        outcome(lambda: tree.sample(count, 0.4))
    tree.validate()


def buffers(choose: Choices) -> None:
    """A buffer takes a batch, or refuses it and is as before."""
    capacity = choose.pick(_CAPACITIES)
    buffer = st.PrioritizedReplayBuffer(capacity, _RECORD, seed=1, backend="cpu")
    for _ in range(1 + choose.below(5)):
        before = (
            *planes(buffer.tree).values(),
            len(buffer),
            buffer.inserted,
            repr(buffer.tree.rng_state),
        )
        if outcome(_use(choose, buffer, capacity))[0] == "raises":
            now = planes(buffer.tree).values()
            assert (*now, len(buffer), buffer.inserted, repr(buffer.tree.rng_state)) == before
        buffer.tree.validate()


def _use(choose: Choices, buffer: Any, capacity: int) -> Callable[[], Any]:
    made = argument(choose, max(1, buffer.inserted), choose.below(4) == 0)
    priorities = argument(choose, capacity, True)
    what = choose.below(6)
    if what < 2:
        rows = np.zeros(choose.below(2 * capacity + 2), _RECORD)
        return lambda: buffer.add(rows, None if what == 0 else priorities())
    if what == 2:
        return lambda: buffer.add(made())
    if what == 3:
        return lambda: buffer.update_priorities(made(), priorities())
    if what == 4:
        return lambda: buffer[made()]
    count = choose.below(_MOST_DRAWN)
    return lambda: buffer.sample(count, priorities() if choose.flip() else None)


def one(data: bytes) -> None:
    choose = Choices(data)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        choose.pick((trees, trees, trees, buffers, states))(choose)


def seeds() -> list[bytes]:
    kept = [
        bytes([part, capacity, kind, 5] + [7] * 40)
        for part in (0, 3, 4)
        for capacity in range(5)
        for kind in range(3)
    ]
    kept += [bytes([0, 3, 2, 3, 0, odd, 3, 0, 3, 1, 2, 3]) + bytes(range(60)) for odd in range(50)]
    kept += [
        bytes([part]) + bytes(range(3, 200, step)) * 2 for part in range(5) for step in range(1, 9)
    ]
    return kept
