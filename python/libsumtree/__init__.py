"""Sum, min and priority trees for prioritized replay: exact, fast, deployable."""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    __version__: str

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


def _missing(name: str) -> str:
    """Look up the version once it is asked for: importing what does so takes a while."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    found = globals()[name] = version(__name__)
    return found


# A type checker that saw this name defined would believe in every attribute.
globals()["__getattr__"] = _missing
