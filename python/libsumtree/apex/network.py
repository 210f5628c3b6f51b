"""The protocol through which a Q-network plugs into the agent, and how one is found by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .errors import NetworkError

Array = NDArray[Any]

#: The network that is used when none is named.
DEFAULT_NETWORK = "libsumtree.apex.dueling:make"


@dataclass(frozen=True)
class NetworkSpec:
    """What a network factory is told.

    Attributes
    ----------
    observation_shape : tuple of int
        Shape of one observation.
    observation_dtype : numpy.dtype
        Its type, as the environment gives it.
    actions : int
        Number of discrete actions, A.
    hidden : tuple of int
        Widths of the hidden layers that the user asked for; a factory may ignore them.
    learning_rate : float
        Step size of the optimizer.
    seed : int
        Seed of the initial parameters.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype[Any]
    actions: int
    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 1e-3
    seed: int = 0


@runtime_checkable
class QFunction(Protocol):
    """An action-value function with its optimizer, over NumPy arrays.

    A PyTorch model fits by ``torch.from_numpy`` at the entry and ``.detach().numpy()`` at the
    exit of each method. Arrays handed in are read, never kept or changed; arrays handed out are
    the caller's. Parameters and state are flat dictionaries whose keys, shapes and dtypes stay
    the same for the life of the object, and are the same for every object that one factory makes
    from one `NetworkSpec`: that is how they travel between ranks without being described again.
    """

    def q_values(self, observations: Array) -> NDArray[np.float32]:
        """Return the action values, float32, shape (B, A), of observations, shape (B, ...)."""
        ...

    def fit(
        self, observations: Array, actions: Array, targets: Array, weights: Array
    ) -> NDArray[np.float32]:
        """Make one optimizer step on the weighted Huber loss.

        The loss is the mean over the batch of ``weight * huber(target - Q(observation, action))``
        with the Huber loss's threshold at 1.

        Returns
        -------
        numpy.ndarray
            TD errors ``target - Q(observation, action)`` before the step, float32, shape (B,).
        """
        ...

    def parameters(self) -> dict[str, Array]:
        """Return a copy of what `q_values` depends on."""
        ...

    def load_parameters(self, parameters: Mapping[str, Array]) -> None:
        """Take over what `parameters` of such a network returned."""
        ...

    def state(self) -> dict[str, Array]:
        """Return a copy of the parameters and of the optimizer's state."""
        ...

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Take over what `state` of such a network returned: training goes on as if unbroken."""
        ...


NetworkFactory = Callable[[NetworkSpec], QFunction]
"""Makes a network of a shape: what `ApexOptions.network` names."""


def find_factory(name: str) -> NetworkFactory:
    """Return the factory that ``module:attribute`` names.

    Raises
    ------
    NetworkError
        If the name is not of that form, or the module or the attribute is not there.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise NetworkError(f"the network {name!r} is not of the form module:factory")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever a user's module raises is one clear line
        raise NetworkError(f"the network {name!r} cannot be imported: {_named(error)}") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise NetworkError(f"the module {module_name!r} has no function {attribute!r}")
    return factory  # type: ignore[no-any-return]


def make_network(name: str, spec: NetworkSpec) -> QFunction:
    """Make the network that `name` names and check that it keeps the shape of its values.

    Raises
    ------
    NetworkError
        If there is no such factory, or what it makes is no `QFunction` for these spaces.
    """
    factory = find_factory(name)
    try:
        network = factory(spec)
    except (Exception, SystemExit) as error:
        raise NetworkError(f"the network {name!r} failed: {_named(error)}") from error
    if not isinstance(network, QFunction):
        raise NetworkError(
            f"the network {name!r} made a {type(network).__name__}, which lacks methods of "
            "QFunction: q_values, fit, parameters, load_parameters, state, load_state"
        )
    probe = np.zeros((2, *spec.observation_shape), spec.observation_dtype)
    try:
        values = network.q_values(probe)
    except (Exception, SystemExit) as error:
        raise NetworkError(
            f"the network {name!r} failed for 2 observations: {_named(error)}"
        ) from error
    if not isinstance(values, np.ndarray):
        raise NetworkError(
            f"the network {name!r} gave a {type(values).__name__} for 2 observations, where an "
            "array is right"
        )
    if values.shape != (2, spec.actions) or values.dtype != np.float32:
        raise NetworkError(
            f"the network {name!r} gave values of shape {values.shape} and type {values.dtype} "
            f"for 2 observations, where (2, {spec.actions}) float32 is right"
        )
    return network


def _named(error: BaseException) -> str:
    """Return an error of somebody else's code with its type: its text alone may be ``'x'``."""
    return f"{type(error).__name__}: {error}"
