"""Ape-X DQN (Horgan et al., 2018) on Gymnasium environments with discrete actions.

One replay rank, one learner and any number of actors learn together over MPI. A network of one's
own plugs in through `QFunction`; without one, a small network in plain NumPy is used.
"""

from __future__ import annotations

from .dueling import DuelingMLP
from .errors import (
    MissingExtraError,
    NetworkError,
    OptionError,
    PolicyFileError,
    UnsuitableEnvironmentError,
)
from .network import NetworkFactory, NetworkSpec, QFunction
from .options import ApexOptions
from .policy import evaluate_policy, load_policy, save_policy
from .run import run

__all__ = [
    "ApexOptions",
    "DuelingMLP",
    "MissingExtraError",
    "NetworkError",
    "NetworkFactory",
    "NetworkSpec",
    "OptionError",
    "PolicyFileError",
    "QFunction",
    "UnsuitableEnvironmentError",
    "evaluate_policy",
    "load_policy",
    "run",
    "save_policy",
]
