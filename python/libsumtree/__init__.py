"""Sum, min and priority trees for prioritized replay: exact, fast, deployable."""

from importlib.metadata import version as _version

from . import compat, errors, frames, reference
from .annealing import BetaSchedule
from .buffer import DistinctSample, PrioritizedReplayBuffer, Sample
from .errors import EmptyTreeError, SumTreeError
from .tree import (
    MAX_CAPACITY,
    MAX_MASS,
    DistinctTreeSample,
    MinTree,
    PriorityTree,
    SumTree,
    TreeSample,
)

__version__ = _version("libsumtree")

__all__ = [
    "MAX_CAPACITY",
    "MAX_MASS",
    "BetaSchedule",
    "DistinctSample",
    "DistinctTreeSample",
    "EmptyTreeError",
    "MinTree",
    "PrioritizedReplayBuffer",
    "PriorityTree",
    "Sample",
    "SumTree",
    "SumTreeError",
    "TreeSample",
    "compat",
    "errors",
    "frames",
    "reference",
]
