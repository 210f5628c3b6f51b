"""Policies in files: NumPy's ``.npz`` without pickle, whole or not at all."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointMismatchError
from ..files import write_atomically
from .environments import EnvironmentSpec, GreedyEpisodes, describe
from .errors import PolicyFileError
from .exploration import evaluation_seeds
from .network import DEFAULT_NETWORK, NetworkSpec, QFunction, make_network

FORMAT = 1
_METADATA = "metadata"
_PREFIX = "parameters/"


@dataclass(frozen=True)
class PolicyMetadata:
    """What a policy file says about its parameters, stored as JSON.

    Attributes
    ----------
    environment : str
        Gymnasium's id of the environment that it was trained on.
    network : str
        ``module:factory`` of its network.
    hidden : tuple of int
        Widths of the hidden layers that the factory was told.
    observation_shape : tuple of int
        Shape of one observation.
    observation_dtype : str
        Type of one observation, as `numpy.dtype.str`.
    actions : int
        Number of actions.
    seed : int
        Seed of the run.
    environment_steps, learner_steps : int
        How far training had come.
    validation_return : float
        Mean greedy return over the validation seeds; NaN if it was never validated.
    format : int
        Version of this file format.
    """

    environment: str
    network: str
    hidden: tuple[int, ...]
    observation_shape: tuple[int, ...]
    observation_dtype: str
    actions: int
    seed: int
    environment_steps: int
    learner_steps: int
    validation_return: float
    format: int = FORMAT

    def network_spec(self) -> NetworkSpec:
        """Return what the network's factory was told."""
        return NetworkSpec(
            observation_shape=self.observation_shape,
            observation_dtype=np.dtype(self.observation_dtype),
            actions=self.actions,
            hidden=self.hidden,
        )


def save_policy(path: Path, parameters: dict[str, NDArray[Any]], metadata: PolicyMetadata) -> None:
    """Write a policy file.

    Parameters
    ----------
    path : pathlib.Path
        Where to; an existing file is replaced once the new one is complete.
    parameters : dict of str to numpy.ndarray
        What `QFunction.parameters` returned; no object arrays.
    metadata : PolicyMetadata
        What to say about them.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If an array holds Python objects.
    """
    text = json.dumps(asdict(metadata), indent=1)
    members = {_METADATA: np.frombuffer(text.encode(), np.uint8)}
    members |= {_PREFIX + name: np.asarray(array) for name, array in parameters.items()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    write_atomically(path, buffer.getvalue())


def load_policy(path: Path) -> tuple[dict[str, NDArray[Any]], PolicyMetadata]:
    """Read a policy file. Nothing in it is unpickled, imported or evaluated.

    Raises
    ------
    PolicyFileError
        If the file is damaged, no policy, or of a newer format.
    OSError
        If it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            members = {name: archive[name] for name in archive.files}
        text = bytes(members.pop(_METADATA)).decode()
        metadata = _parse_metadata(json.loads(text))
    except OSError:
        raise
    except Exception as error:  # a damaged file fails in more ways than NumPy lists
        raise PolicyFileError(
            f"{path} is not a readable policy file: give one that `libsumtree apex` saved"
        ) from error
    if metadata.format > FORMAT:
        raise PolicyFileError(
            f"{path} is a policy file of format {metadata.format}; this version reads {FORMAT}"
        )
    return {name.removeprefix(_PREFIX): array for name, array in members.items()}, metadata


def load_network(path: Path, network: str | None) -> tuple[QFunction, PolicyMetadata]:
    """Make the network of a policy file and give it the file's parameters.

    Parameters
    ----------
    path : pathlib.Path
        The policy file.
    network : str or None
        ``module:factory``. A network other than the built-in one must be named here again, since
        a file does not decide which code is imported.

    Raises
    ------
    PolicyFileError
        If the file was made by another network, or does not fit it; or as `load_policy`.
    """
    parameters, metadata = load_policy(path)
    name = network or DEFAULT_NETWORK
    if name != metadata.network:
        raise PolicyFileError(
            f"{path} was made by the network {metadata.network!r}, not {name!r}; "
            f"give: --network {metadata.network}"
        )
    made = make_network(name, metadata.network_spec())
    try:
        made.load_parameters(parameters)
    except CheckpointMismatchError as error:
        raise PolicyFileError(f"{path} does not fit its network: {error}") from error
    return made, metadata


def evaluate_policy(
    path: Path, network: str | None = None, environment: str | None = None
) -> float:
    """Play the policy of a file greedily on the evaluation seeds and return the mean return.

    Parameters
    ----------
    path : pathlib.Path
        The policy file.
    network : str or None
        See `load_network`.
    environment : str or None
        The id of the file's environment. One that names a module, as in ``module:id-v0``, must be
        named here again, since Gymnasium imports the module.

    Raises
    ------
    PolicyFileError, UnsuitableEnvironmentError, OSError
        If the file, or its environment, cannot be used.
    """
    made, metadata = load_network(path, network)
    _check_environment(path, metadata.environment, environment)
    spec = describe(metadata.environment)
    _check_spaces(path, metadata, spec)
    return mean_evaluation_return(made, spec)


def mean_evaluation_return(network: QFunction, spec: EnvironmentSpec) -> float:
    """Return the mean greedy return over the 20 evaluation seeds."""
    seeds = evaluation_seeds()
    episodes = GreedyEpisodes(spec, len(seeds))
    try:
        return float(episodes.play(network.q_values, seeds).mean())
    finally:
        episodes.close()


def _parse_metadata(fields: Any) -> PolicyMetadata:
    for name in ("hidden", "observation_shape"):
        fields[name] = tuple(int(number) for number in fields[name])
    for name in ("environment", "network", "observation_dtype"):
        if not isinstance(fields[name], str):
            raise TypeError(f"{name} is no text")
    known = {name: fields[name] for name in PolicyMetadata.__dataclass_fields__}
    return PolicyMetadata(**known)


def _check_environment(path: Path, name: str, named: str | None) -> None:
    if named is None and ":" in name:
        raise PolicyFileError(
            f"{path} was made in the environment {name!r}, for which code is imported; if that is "
            f"what you want, give: --env {name}"
        )
    if named not in (None, name):
        raise PolicyFileError(f"{path} was made in the environment {name!r}, not {named!r}")


def _check_spaces(path: Path, metadata: PolicyMetadata, spec: EnvironmentSpec) -> None:
    expected = (metadata.observation_shape, metadata.observation_dtype, metadata.actions)
    found = (spec.observation_shape, spec.observation_dtype.str, spec.actions)
    if expected != found:
        raise PolicyFileError(
            f"{path} is a policy for observations and actions {expected}; "
            f"{metadata.environment!r} has {found} here"
        )
