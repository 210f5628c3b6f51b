"""Other packages, where they are installed beside us: equal work, called from Python.

Tianshou's and TorchRL's trees must have our bits afterwards. cpprb's holds float32 and cannot be
read: there the weights of what it drew are compared with what they should be.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from .. import reference, tree
from ..arguments import Doubles
from ..buffer import PrioritizedReplayBuffer
from ..errors import BenchmarkError
from .racing import Called, Limits, Updates, race, random_updates, split_updates
from .report import Aim, Row, Table, row_of
from .trees import OURS, PYTHON, Setting, same_bits

BATCH = 512
BATCHES = 16  # of a round
PYTHON_LEAVES = 2**16  # that are not zero, where plain Python takes part
ALPHA, BETA = 0.6, 0.4
RECORD = np.dtype(
    [("obs", "f4", (4,)), ("act", "i8"), ("rew", "f4"), ("next_obs", "f4", (4,)), ("done", "f4")]
)
_CHUNK = 2**15
_FLOAT32_WEIGHTS = 1e-4

PEER = "peer"


def peer_rows(setting: Setting, missing: dict[str, str]) -> list[Row]:
    """Measure the peers that are installed.

    Parameters
    ----------
    setting : Setting
    missing : dict of str to str
        Is given the others, and why they are not measured.

    Raises
    ------
    BenchmarkError
        If a result is not ours.
    """
    rows: list[Row] = []
    for name, measure in MEASURES.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                modules = [import_module(module) for module in MODULES[name]]
        except (ImportError, OSError, AttributeError) as error:
            missing[name] = f"cannot be imported ({_line(error)}): pip install 'libsumtree[bench]'"
        else:
            rows += measure(setting, *modules)
    return rows


def peers_table(setting: Setting, missing: dict[str, str]) -> Table:
    """Compare with the peers that are installed, and with plain Python."""
    return Table(
        "peers",
        f"Peers, from Python, {setting.leaves:,} leaves",
        "Arrays in and out, both sides as users call them; both check their input as they always "
        "do. TorchRL's sum and min trees are two calls; against them stand our SumTree and "
        "MinTree, two calls as well, and our PriorityTree, which does sum, min and max in one. "
        "cpprb's trees hold float32, ours float64; both buffers draw stratified, with weights and "
        "the transitions. Plain Python is libsumtree.reference, in trees of which "
        f"{PYTHON_LEAVES:,} leaves are not zero. Equal results were checked: nodes and leaves "
        "found bit for bit, cpprb's weights within the precision of float32.",
        peer_rows(setting, missing) + _python_rows(setting),
    )


def _tianshou_rows(setting: Setting, tianshou: Any) -> list[Row]:
    rng = setting.rng("tianshou")
    theirs, ours = tianshou.SegmentTree(setting.leaves), _tree(tree.SumTree, setting.leaves)
    _fill(rng, setting.leaves, theirs, ours)
    peer = f"Tianshou {version('tianshou')}"
    rows = [
        _update_row(peer, theirs.__setitem__, ours.update, setting, rng),
        _find_row(peer, theirs.get_prefix_sum_idx, ours, setting, rng, Aim(2.2)),
    ]
    everything = np.arange(setting.leaves)
    same_bits(peer, np.asarray(theirs[everything]), ours[:])
    same_bits(peer, np.array([theirs.reduce()]), np.array([ours.total]))
    return rows


def _torchrl_rows(setting: Setting, torchrl: Any) -> list[Row]:
    rng = setting.rng("torchrl")
    theirs = [getattr(torchrl, f"{kind}SegmentTreeFp64")(setting.leaves) for kind in ("Sum", "Min")]
    pair = _tree(tree.SumTree, setting.leaves), _tree(tree.MinTree, setting.leaves)
    one = _tree(tree.PriorityTree, setting.leaves)
    peer = f"TorchRL {version('torchrl')}"

    def update(indices: Any, masses: Any) -> None:
        for each in theirs:
            each[indices] = masses

    def update_pair(indices: Any, masses: Any) -> None:
        for each in pair:
            each.update(indices, masses)

    def same(ours: Any, least: float) -> None:
        same_bits(peer, np.asarray(theirs[0][np.arange(setting.leaves)]), ours[:])
        roots = [each.query(0, setting.leaves) for each in theirs]
        same_bits(peer, np.array(roots), np.array([ours.total, least]))

    _fill(rng, setting.leaves, *theirs, *pair)
    works = "sum and min, two trees each"
    rows = [_update_row(peer, update, update_pair, setting, rng, works, Aim(4.0))]
    same(pair[0], pair[1].min())
    _fill(rng, setting.leaves, *theirs, one)
    works = "sum and min; and max, ours in one tree"
    rows += [
        _update_row(peer, update, one.update, setting, rng, works, Aim(4.0)),
        _find_row(peer, theirs[0].scan_lower_bound, one, setting, rng, Aim(6.0)),
    ]
    same(one, one.min)
    return rows


def _cpprb_rows(setting: Setting, cpprb: Any) -> list[Row]:
    rng = setting.rng("cpprb")
    fields: Mapping[str, Mapping[str, Any]] = {
        name: {"shape": dtype.shape or 1, "dtype": dtype.base}
        for name, (dtype, *_) in (RECORD.fields or {}).items()
    }
    theirs = cpprb.PrioritizedReplayBuffer(setting.leaves, fields, alpha=ALPHA, eps=0.0)
    ours = PrioritizedReplayBuffer(setting.leaves, RECORD, alpha=ALPHA, seed=0, backend="cpu")
    for start in range(0, setting.leaves, _CHUNK):
        records, priorities = _transitions(rng, min(_CHUNK, setting.leaves - start))
        theirs.add(priorities=priorities, **{name: records[name] for name in fields})
        ours.add(records, priorities)
    peer = f"cpprb {version('cpprb')}"
    _check_weights(peer, theirs.sample(BATCH, beta=BETA), ours)
    row = _race_row(
        f"{peer}: sample of the buffer",
        lambda n: theirs.sample(n, beta=BETA),
        lambda n: ours.sample(n, beta=BETA),
        lambda: [(BATCH,)] * BATCHES,
        lambda work: work,
        setting.limits,
        Aim(8.0),
    )
    return [row]


def _python_rows(setting: Setting) -> list[Row]:
    rng = setting.rng("python")
    plain = reference.PriorityTree(setting.leaves, seed=0)
    ours = tree.PriorityTree(setting.leaves, seed=0, backend="cpu")
    some = random_updates(rng, setting.leaves, 1, min(PYTHON_LEAVES, setting.leaves))
    for one in (plain, ours):
        one.update(some.indices[0], some.masses[0])
    short = replace(setting, limits=replace(setting.limits, rounds=min(setting.limits.rounds, 7)))
    aim = Aim(100.0)
    rows = [
        _update_row(PYTHON, plain.update, ours.update, short, rng, "sum, min and max", aim),
        _find_row(PYTHON, lambda t: plain.find(t, "left"), ours, short, rng, aim),
        _race_row(
            f"{PYTHON}: sample",
            lambda n: plain.sample(n, BETA),
            lambda n: ours.sample(n, BETA),
            lambda: [(BATCH,)] * BATCHES,
            lambda work: work,
            short.limits,
            aim,
        ),
    ]
    planes: tuple[tree.Plane, ...] = ("sum", "min", "max")
    for plane in planes:
        same_bits(PYTHON, plain.nodes(plane), ours.nodes(plane))
    same_bits(PYTHON, plain.sample(BATCH).indices, ours.sample(BATCH).indices)
    return rows


def _tree(kind: Callable[..., Any], leaves: int) -> Any:
    return kind(leaves, backend="cpu")


def _fill(rng: np.random.Generator, leaves: int, *trees: Any) -> None:
    everything, masses = np.arange(leaves), 1.0 - rng.random(leaves)
    for one in trees:
        one[everything] = masses


def _update_row(
    peer: str,
    theirs: Callable[..., object],
    ours: Callable[..., object],
    setting: Setting,
    rng: np.random.Generator,
    of: str = "sum",
    aim: Aim | None = None,
) -> Row:
    def draw() -> Updates:
        return random_updates(rng, setting.leaves, BATCHES, min(BATCH, setting.leaves))

    operation = f"{peer}: update of {of}"
    return _race_row(operation, theirs, ours, draw, split_updates, setting.limits, aim)


def _find_row(
    peer: str,
    theirs: Callable[[Doubles], Any],
    ours: Any,
    setting: Setting,
    rng: np.random.Generator,
    aim: Aim,
) -> Row:
    total: float = ours.total

    def draw() -> Doubles:
        return total * rng.random((BATCHES, BATCH))

    def check(work: Doubles) -> None:
        found = np.asarray(theirs(work[0].copy())).astype(np.int64)
        same_bits(peer, found, ours.find(work[0], "left"))

    return _race_row(
        f"{peer}: find",
        theirs,
        lambda targets: ours.find(targets, "left"),
        draw,
        lambda work: [(targets,) for targets in work],
        setting.limits,
        aim,
        check,
    )


def _race_row(
    operation: str,
    theirs: Callable[..., object],
    ours: Callable[..., object],
    draw: Callable[[], Any],
    split: Callable[[Any], Sequence[tuple[object, ...]]],
    limits: Limits,
    aim: Aim | None,
    check: Callable[[Any], None] = lambda work: None,
) -> Row:
    names = [PEER, OURS]
    pair = [Called(PEER, theirs, split), Called(OURS, ours, split)]
    seconds = race(pair, draw, limits, check)
    row = row_of(operation, BATCH, names, seconds, names[:1], aim)
    return replace(row, against=operation.partition(":")[0])


def _transitions(rng: np.random.Generator, count: int) -> tuple[Any, Doubles]:
    records = np.zeros(count, RECORD)
    for name in ("obs", "next_obs", "rew"):
        records[name] = rng.standard_normal(records[name].shape)
    return records, 0.1 + rng.random(count)


def _check_weights(peer: str, drawn: Mapping[str, Any], ours: PrioritizedReplayBuffer) -> None:
    masses = ours.tree[np.asarray(drawn["indexes"]).astype(np.int64)]
    right = (ours.tree.min / masses) ** BETA
    apart = np.abs(np.asarray(drawn["weights"], np.float64).ravel() - right) / right
    if not (apart < _FLOAT32_WEIGHTS).all():
        raise BenchmarkError(
            f"the weights of {peer} are up to {apart.max():.1e} from ours, relatively: it does not "
            "do the same work"
        )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


MODULES: Mapping[str, Sequence[str]] = {
    "Tianshou": ["tianshou.data"],
    "TorchRL": ["torchrl._torchrl"],
    "cpprb": ["cpprb"],
}
MEASURES: Mapping[str, Callable[..., list[Row]]] = {
    "Tianshou": _tianshou_rows,
    "TorchRL": _torchrl_rows,
    "cpprb": _cpprb_rows,
}
