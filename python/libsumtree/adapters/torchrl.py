"""A prioritized sampler for TorchRL's replay buffers, over `libsumtree.PriorityTree`.

>>> import torch
>>> from tensordict import TensorDict
>>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
>>> buffer = TensorDictReplayBuffer(
...     storage=LazyTensorStorage(1000),
...     sampler=PrioritizedSampler(1000, alpha=0.6, beta=0.4),
...     priority_key="td_error",
...     batch_size=32,
... )
>>> index = buffer.extend(TensorDict({"reward": torch.arange(10.0)}, [10]))
>>> batch = buffer.sample()
>>> batch["td_error"] = torch.rand(32)
>>> buffer.update_tensordict_priority(batch)
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import philox
from ..arguments import as_count, as_real
from ..errors import ArgumentError, IndexOutOfRangeError, ShapeError
from ..philox import Seed
from ..tree import PriorityTree, masses_of

try:
    import torch
    from torchrl.data.replay_buffers import samplers as theirs
except ImportError as error:
    raise ImportError(
        f"{__name__} needs TorchRL ({error}): pip install 'libsumtree[torchrl]'"
    ) from error

__all__ = ["PrioritizedSampler"]

_MASSES, _REST = "masses.npy", "sampler.json"


class PrioritizedSampler(theirs.PrioritizedSampler):
    """A sampler for TorchRL's buffers: draws go by (priority + eps) ** alpha.

    It is a ``PrioritizedSampler`` of TorchRL's to ``TensorDictReplayBuffer``, ``ReplayBuffer`` and
    ``ParameterScheduler``.

    Parameters
    ----------
    max_capacity : int
        How many elements the storage holds, over all of its dimensions.
    alpha : float
        Finite, >= 0. Set later, masses change with it.
    beta : float
        Exponent of the weights, in 0 .. 1.
    eps : float
        Finite, >= 0; added to every priority.
    dtype : torch.dtype
        Of the weights.
    reduction : {"max", "min", "median", "mean"}
        As there.
    max_priority_within_buffer : bool
        Must be True: new elements get the largest mass held now, 1 if there is none.
    device : torch.device or str, optional
        Where the tree is: ``"cuda:0"`` takes the backend "gpu", and draws stay there. The host if
        not given.
    seed : int, sequence of int, SeedSequence or None
        Of the draws; the generator of the replay buffer is not used.

    Raises
    ------
    CapacityError, ArgumentError, ExponentError, BackendError, DeviceError
        If an argument is not as described.
    """

    _alpha: float
    _beta: float
    _eps: float

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float,
        reduction: str = "max",
        max_priority_within_buffer: bool = True,
        device: torch.device | str | None = None,
        *,
        seed: Seed = None,
    ) -> None:
        if not max_priority_within_buffer:
            raise ArgumentError(
                "max_priority_within_buffer is False: the largest priority is always that of what "
                "is held now"
            )
        masses_of(np.array(as_real(eps, "eps")), as_real(alpha, "alpha"))
        self._seed = seed
        super().__init__(
            max_capacity, float(alpha), float(beta), float(eps), dtype, reduction, True, device
        )

    def _init(self) -> None:
        """Make the tree; the constructor of TorchRL's sampler calls it."""
        where = self._device or torch.device("cpu")
        if where.type not in ("cpu", "cuda"):
            raise ArgumentError(f"device is {where}: it must be cpu or cuda")
        on_gpu = where.type == "cuda"
        self._tree = PriorityTree(
            self._max_capacity,
            seed=self._seed,
            backend="gpu" if on_gpu else "cpu",
            device=where.index if on_gpu else None,
        )

    @property
    def tree(self) -> PriorityTree:
        """The masses, one leaf for each element of the storage."""
        return self._tree

    @property
    def device(self) -> torch.device:
        """Where the tree is, and what is drawn."""
        number = self._tree.device
        return torch.device("cpu") if number is None else torch.device("cuda", number)

    # ---- drawing ----

    def sample(self, storage: Any, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Draw indices of a storage, each with probability mass / total, stratified.

        Parameters
        ----------
        storage : Storage
        batch_size : int
            >= 0.

        Returns
        -------
        index : Tensor of int64, shape (batch_size,), or a tuple of them, one for each dimension
        info : dict
            ``"priority_weight"``: (min positive mass / mass) ** beta, of the sampler's dtype.

        Raises
        ------
        EmptyTreeError
            If no element has a positive mass.
        ExponentError
            If beta is outside 0 .. 1.
        """
        on_gpu = self._tree.device is not None
        drawn = self._tree.sample(
            as_count(batch_size, "batch_size"), self._beta, xp=torch if on_gpu else None
        )
        index, weights = torch.as_tensor(drawn.indices), torch.as_tensor(drawn.weights)
        if storage.ndim > 1:
            index = torch.unravel_index(index, tuple(storage.shape))
        return index, {"priority_weight": weights.to(self.dtype)}

    # ---- priorities ----

    @property
    def default_priority(self) -> float:
        """The largest priority held now; 1.0 if there is none."""
        largest = self._tree.max
        if largest == 0.0 or self._alpha == 0.0:
            return 1.0
        return max(float(largest ** (1.0 / self._alpha)) - self._eps, 0.0)

    def add(self, index: Any) -> None:
        """Do nothing: the storage's writer calls `mark_update`."""

    def extend(self, index: Any) -> None:
        """Do nothing: the storage's writer calls `mark_update`."""

    def mark_update(self, index: Any, *, storage: Any = None) -> None:
        """Give new elements the largest mass held now."""
        fallback = masses_of(np.array(1.0 + self._eps), self._alpha)
        leaves = self._leaves_of(index, storage)
        mass = self._tree.max or float(fallback)
        self._tree.update(_for_tree(leaves[leaves >= 0], self._tree), mass)

    def update_priority(self, index: Any, priority: Any, *, storage: Any = None) -> None:
        """Set priorities; of equal indices the last wins.

        Parameters
        ----------
        index : int, Tensor of integers, or tuple of Tensors
            Elements of the storage; those below 0, of what a writer left out, are skipped.
        priority : float, or Tensor with one number for each index
            Finite, >= 0.
        storage : Storage, optional
            Needed where it has more dimensions than one.

        Raises
        ------
        PriorityError, MassError, IndexOutOfRangeError, ShapeError
            Naming the first bad position and its value; nothing is changed.
        """
        leaves = self._leaves_of(index, storage)
        values = torch.as_tensor(priority, device=leaves.device).detach().to(torch.float64).ravel()
        if values.numel() not in (1, leaves.numel()):
            raise ShapeError(
                f"priority has shape {tuple(torch.as_tensor(priority).shape)}: it must have one "
                f"number for each of {leaves.numel()} indices"
            )
        live = leaves >= 0
        values = values.expand(leaves.shape)[live]
        self._tree.update(_for_tree(leaves[live], self._tree), self._masses_of(values))

    def _masses_of(self, priorities: torch.Tensor) -> Any:
        if self._tree.device is not None:
            return (priorities + self._eps) ** self._alpha
        values = np.ascontiguousarray(priorities.cpu().numpy())
        masses_of(values, self._alpha)  # names what the caller gave
        return masses_of(values + self._eps, self._alpha)

    def _leaves_of(self, index: Any, storage: Any) -> torch.Tensor:
        """Give the leaves of what a buffer calls index, shape (n,), on the tree's device."""
        if isinstance(index, tuple):
            index = torch.stack([torch.as_tensor(part) for part in index], -1)
        where = torch.as_tensor(index, device=self.device).to(torch.int64)
        shape = tuple(getattr(storage, "shape", ())) if getattr(storage, "ndim", 1) > 1 else ()
        if not shape:
            return where.reshape(-1)
        if where.shape[-1:] != (len(shape),):
            raise IndexOutOfRangeError(
                f"index has shape {tuple(where.shape)}: a storage of {len(shape)} dimensions takes "
                f"{len(shape)} coordinates in the last axis"
            )
        strides = np.cumprod((1, *shape[:0:-1]))[::-1].tolist()
        return (where * torch.tensor(strides, device=where.device)).sum(-1).reshape(-1)

    @property
    def alpha(self) -> float:
        """The exponent of priorities; what is held changes with it, O(capacity).

        From 0 on nothing is known of the priorities held: they stay alike, with a warning.
        """
        return self._alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        before, exponent = self._alpha, as_real(value, "alpha")
        masses = self._tree[:]
        held = masses > 0.0
        if before > 0.0:
            masses[held] = masses_of(masses[held], exponent / before)
        elif exponent > 0.0 and held.any():
            warnings.warn(
                "alpha was 0: what is held stays alike until its priorities are updated",
                stacklevel=2,
            )
        masses_of(np.empty(0), exponent)
        self._tree[:] = masses
        self._alpha = exponent

    # ---- its state ----

    def _empty(self) -> None:
        """Drop all priorities; the draws go on."""
        self._tree[:] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Give priorities, exponents and the state of the draws, for `load_state_dict`."""
        return {**self._rest(), "masses": torch.from_numpy(self._tree[:])}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on as the sampler that gave this.

        Raises
        ------
        ArgumentError
            If it is of another capacity, or of TorchRL's own sampler.
        """
        if "masses" not in state_dict or "rng" not in state_dict:
            raise ArgumentError(f"the state is not that of a {__name__}.PrioritizedSampler")
        masses = np.asarray(state_dict["masses"], dtype=np.float64)
        if masses.shape != (self._max_capacity,):
            raise ArgumentError(
                f"the state is of capacity {masses.size}: this sampler has {self._max_capacity}"
            )
        key, counter, position = state_dict["rng"]
        self._tree[:] = masses
        self._tree.rng_state = philox.state_of((tuple(key), tuple(counter), position))
        self._alpha, self._beta = state_dict["alpha"], state_dict["beta"]
        self._eps = state_dict["eps"]

    def dumps(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a folder."""
        folder = Path(path).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / _MASSES, self._tree[:], allow_pickle=False)
        (folder / _REST).write_text(json.dumps(self._rest()))

    def loads(self, path: str | os.PathLike[str]) -> None:
        """Go on as the sampler that wrote this folder.

        Raises
        ------
        ArgumentError
            As `load_state_dict`.
        """
        folder = Path(path).absolute()
        masses = np.load(folder / _MASSES, allow_pickle=False)
        self.load_state_dict({**json.loads((folder / _REST).read_text()), "masses": masses})

    def _rest(self) -> dict[str, Any]:
        key, counter, position = philox.words_of(self._tree.rng_state)
        return {
            "alpha": self._alpha,
            "beta": self._beta,
            "eps": self._eps,
            "rng": [list(map(int, key)), list(map(int, counter)), int(position)],
        }


def _for_tree(leaves: torch.Tensor, tree: PriorityTree) -> Any:
    """Give leaves as the tree takes them: from the host, or where it is."""
    return leaves.cpu().numpy() if tree.device is None else leaves.contiguous()
