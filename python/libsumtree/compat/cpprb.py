"""The prioritized replay buffer of cpprb, over `libsumtree.PrioritizedReplayBuffer`.

>>> buffer = PrioritizedReplayBuffer(8, {"obs": {"shape": 2}, "rew": {}}, alpha=0.6, seed=0)
>>> buffer.add(obs=[1.0, 2.0], rew=0.5)
0
>>> sample = buffer.sample(4, beta=0.4)
>>> buffer.update_priorities(sample["indexes"], [0.5, 0.5, 0.5, 0.5])
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..arguments import Indices, as_count, as_doubles, as_indices, as_real, place
from ..buffer import PrioritizedReplayBuffer as NativeBuffer
from ..errors import (
    ArgumentError,
    ArgumentTypeError,
    CapacityError,
    IndexOutOfRangeError,
    PriorityError,
    ShapeError,
)
from ..philox import Seed
from .conventions import renamed

__all__ = ["MissingFieldError", "PrioritizedReplayBuffer"]

File: TypeAlias = str | os.PathLike[str] | IO[bytes]

DEFAULT_MAX_PRIORITY = 1.0
"""The priority of the first transitions that are added without one."""

_FIELD = "transitions/"


class MissingFieldError(ArgumentError, KeyError):
    """A transition lacks a value that the buffer was made for."""

    __str__ = Exception.__str__


class PrioritizedReplayBuffer:
    """A ring of transitions, drawn in proportion to (priority + eps) ** alpha.

    Parameters
    ----------
    size : int
        How many transitions it holds; further ones replace the oldest.
    env_dict : mapping of str to mapping
        For each value of a transition its ``"shape"``, 1 if not given, and its ``"dtype"``.
    alpha : float
        >= 0.
    eps : float
        >= 0; added to every priority, so that those of 0 are drawn, too.
    check_for_update : bool
        Whether `update_priorities` skips transitions that are newer than the last `sample`.
    next_of, stack_compress : str or iterable of str, optional
        Taken, and no memory is saved: of `next_of`, values ``"next_..."`` are kept.
    default_dtype : dtype_like
        Of values that have none; float32 if not given.
    Nstep, mmap_prefix : None
        Not taken.
    seed : int, sequence of int, SeedSequence or None
        Of the draws; not in cpprb.

    Raises
    ------
    CapacityError, ArgumentError, ArgumentTypeError, ExponentError
        If an argument is not as described.
    OutOfMemoryError
        If the memory limit cannot hold it.

    Notes
    -----
    `buffer` is the `libsumtree.PrioritizedReplayBuffer` that holds the transitions: it has ids, and
    checkpoints that keep priorities.
    """

    def __init__(
        self,
        size: int,
        env_dict: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        alpha: float = 0.6,
        Nstep: None = None,  # noqa: N803 - its name there
        eps: float = 1e-4,
        check_for_update: bool = False,
        next_of: str | Iterable[str] | None = None,
        stack_compress: str | Iterable[str] | None = None,
        default_dtype: DTypeLike | None = None,
        mmap_prefix: None = None,
        seed: Seed = None,
    ) -> None:
        _refuse(Nstep=Nstep, mmap_prefix=mmap_prefix)
        fields = dict(env_dict or {})
        for name in _names(next_of, fields, "next_of"):
            fields.setdefault(f"next_{name}", fields[name])
        _names(stack_compress, fields, "stack_compress")
        self._dtype = _record_dtype(fields, np.dtype(default_dtype or np.float32))
        self._size = _as_size(size)
        self._alpha = alpha
        self._eps = as_real(eps, "eps")
        if not 0.0 <= self._eps < np.inf:
            raise ArgumentError(f"eps is {self._eps}: it must be finite and >= 0")
        self._checks = bool(check_for_update)
        self._begin(seed)

    def _begin(self, seed: Seed) -> None:
        """Make the buffer anew, empty."""
        try:
            self._buffer = NativeBuffer(self._size, self._dtype, self._alpha, seed=seed)
        except CapacityError as error:
            raise CapacityError(renamed(error, "size")) from None
        self._episode_length = 0
        self._known = 0

    @property
    def buffer(self) -> NativeBuffer:
        """The buffer underneath; `clear` makes a new one."""
        return self._buffer

    # ---- adding ----

    def add(self, *, priorities: ArrayLike | None = None, **values: ArrayLike) -> int:
        """Add one transition, or several at once.

        Parameters
        ----------
        priorities : array_like of real numbers, one for each transition, optional
            Finite, >= 0. None gives each the largest mass held before the call.
        **values : array_like
            All that `env_dict` names, with a leading axis for several; others are ignored.

        Returns
        -------
        int
            The index of the first.

        Raises
        ------
        MissingFieldError
            If a value is missing.
        ShapeError, PriorityError, ArgumentTypeError
            If the values do not have the shapes of `env_dict`, or not the same number of
            transitions; or the priorities are not as described. Nothing is added.
        """
        rows = self._as_rows(values)
        raised: ArrayLike | None = None
        if priorities is not None:
            raised = self._raised(np.ravel(as_doubles(priorities, "priorities")), rows.shape)
        elif self._buffer.tree.max == 0.0:
            raised = DEFAULT_MAX_PRIORITY + self._eps
        first = self.get_next_index()
        self._buffer.add(rows, raised)
        self._episode_length += len(rows)
        return first

    def _as_rows(self, values: Mapping[str, ArrayLike]) -> NDArray[np.void]:
        columns = {}
        for name in self._dtype.names or ():
            if name not in values:
                raise MissingFieldError(f"{name} is missing: every value of env_dict is needed")
            columns[name] = _column(values[name], name, self._dtype[name])
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ShapeError(
                "the values are of different numbers of transitions: "
                + ", ".join(f"{name} of {length}" for name, length in lengths.items())
            )
        rows = np.empty(next(iter(lengths.values())), dtype=self._dtype)
        for name, column in columns.items():
            rows[name] = column
        return rows

    def _raised(self, priorities: NDArray[np.float64], shape: tuple[int, ...]) -> ArrayLike:
        """Check priorities by what the caller calls them, and add eps."""
        if priorities.shape != shape:
            raise ShapeError(
                f"priorities has {priorities.size} elements: it must have {shape[0]}, one for each "
                "transition"
            )
        bad = ~((priorities >= 0.0) & (priorities < np.inf))
        if bad.any():
            position = int(np.argmax(bad))
            raise PriorityError(
                f"{place('priorities', position, shape)} is {priorities[position]}: a priority "
                "must be finite and >= 0"
            )
        return priorities + self._eps

    def on_episode_end(self) -> None:
        """Begin to count the transitions of the next episode."""
        self._episode_length = 0

    # ---- drawing ----

    def sample(self, batch_size: int, beta: float = 0.4) -> dict[str, NDArray[Any]]:
        """Draw transitions, each with probability mass / total, stratified, with replacement.

        Parameters
        ----------
        batch_size : int
            >= 0.
        beta : float
            Exponent of the weights, 0 .. 1.

        Returns
        -------
        dict of ndarray
            The values of `env_dict`, ``"weights"`` (float32) and ``"indexes"`` (int64).

        Raises
        ------
        EmptyTreeError
            If the buffer is empty.
        ExponentError
            If beta is outside 0 .. 1.
        """
        drawn = self._buffer.sample(as_count(batch_size, "batch_size"), beta)
        self._known = self._buffer.inserted
        sample = self._as_dict(drawn.transitions)
        sample["weights"] = drawn.weights.astype(np.float32)
        sample["indexes"] = drawn.indices
        return sample

    def update_priorities(self, indexes: ArrayLike, priorities: ArrayLike) -> None:
        """Set the priorities of transitions; of equal indexes the last wins.

        Parameters
        ----------
        indexes : array_like of integers
            0 .. stored size - 1.
        priorities : array_like of real numbers, one for each index
            Finite, >= 0.

        Raises
        ------
        IndexOutOfRangeError
            If an index names no transition, naming the first.
        PriorityError, ShapeError, ArgumentTypeError
            If the priorities are not as described. Nothing is changed.
        """
        ids = self._ids_of(np.ravel(as_indices(indexes, self._size, "indexes")))
        raised = np.asarray(self._raised(np.ravel(as_doubles(priorities, "priorities")), ids.shape))
        if self._checks:
            known = ids < self._known
            ids, raised = ids[known], raised[known]
        self._buffer.update_priorities(ids, raised)

    def _ids_of(self, indexes: Indices) -> Indices:
        """Give the ids of what is stored at indexes now: this buffer's own are running numbers."""
        outside = (indexes < 0) | (indexes >= self.get_stored_size())
        if outside.any():
            position = int(np.argmax(outside))
            where = place("indexes", position, indexes.shape)
            raise IndexOutOfRangeError(
                f"{where} is {indexes[position]}: {self.get_stored_size()} transitions are stored, "
                "from index 0 on"
            )
        newest = self._buffer.next_id - 1
        return newest - (newest - indexes) % self._size

    # ---- what it holds ----

    def get_all_transitions(self, shuffle: bool = False) -> dict[str, NDArray[Any]]:
        """Copy all transitions, by ascending index, or in random order (`numpy.random`)."""
        indexes = np.arange(self.get_stored_size(), dtype=np.int64)
        if shuffle:
            np.random.shuffle(indexes)
        return self._as_dict(self._buffer[self._ids_of(indexes)])

    def get_max_priority(self) -> float:
        """Give the largest priority held now, to the accuracy of float32; 1.0 if there is none."""
        largest = self._buffer.tree.max
        if largest == 0.0 or self._buffer.alpha == 0.0:
            return DEFAULT_MAX_PRIORITY
        return float(np.float32(max(largest ** (1.0 / self._buffer.alpha) - self._eps, 0.0)))

    def get_stored_size(self) -> int:
        """Give the number of transitions held."""
        return len(self._buffer)

    def get_buffer_size(self) -> int:
        """Give the number of transitions it can hold."""
        return self._size

    def get_next_index(self) -> int:
        """Give the index of the next transition."""
        return self._buffer.inserted % self._size

    def get_current_episode_len(self) -> int:
        """Give how many transitions were added since `on_episode_end`."""
        return self._episode_length

    def is_Nstep(self) -> bool:  # noqa: N802 - its name there
        """Tell that it does not compute n-step returns."""
        return False

    def clear(self) -> None:
        """Drop all transitions; the next one has index 0, and the draws go on."""
        state, seed = self._buffer.tree.rng_state, self._buffer.tree.seed
        del self._buffer
        self._begin(seed)
        self._buffer.tree.rng_state = state

    # ---- files ----

    def save_transitions(self, file: File, *, safe: bool = True) -> None:
        """Write the transitions, without priorities, to an .npz of one array for each value.

        Parameters
        ----------
        file : path_like or binary file
        safe : bool
            cpprb's; without effect.
        """
        values = {f"{_FIELD}{k}": v for k, v in self.get_all_transitions().items()}
        np.savez_compressed(file, allow_pickle=False, **values)

    def load_transitions(self, file: File) -> None:
        """Add the transitions of a file that `save_transitions` wrote, as new ones.

        Raises
        ------
        ArgumentError
            If it is no such file: one of cpprb's is pickled, and nothing is unpickled here.
        MissingFieldError, ShapeError, ArgumentTypeError
            If they do not fit this buffer.
        """
        try:
            with np.load(file, allow_pickle=False) as data:
                names = [name for name in data.files if name.startswith(_FIELD)]
                if not names:
                    raise ValueError("it holds no transitions; cpprb's own files are pickled")
                values = {name.removeprefix(_FIELD): data[name] for name in names}
        except (ValueError, EOFError, zipfile.BadZipFile, TypeError, AttributeError) as error:
            raise ArgumentError(
                f"{file} was not written by save_transitions of libsumtree.compat.cpprb: {error}"
            ) from None
        self.add(**values)

    def _as_dict(self, rows: NDArray[np.void]) -> dict[str, NDArray[Any]]:
        return {name: np.ascontiguousarray(rows[name]) for name in self._dtype.names or ()}


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ArgumentError(f"{name} is {value!r}: that is not offered here, leave it out")


def _as_size(size: Any) -> int:
    """Take an integer, and a float without a fraction, such as 1e6."""
    if isinstance(size, float) and size.is_integer():
        return int(size)
    return as_count(size, "size")


def _names(names: str | Iterable[str] | None, fields: Mapping[str, Any], option: str) -> list[str]:
    chosen = [names] if isinstance(names, str) else [str(name) for name in names or ()]
    for name in chosen:
        if name not in fields:
            raise ArgumentError(f"{option} names {name!r}: env_dict has {', '.join(fields)}")
    return chosen


def _record_dtype(
    fields: Mapping[str, Mapping[str, Any]], default: np.dtype[Any]
) -> np.dtype[np.void]:
    if not fields:
        raise ArgumentError("env_dict names no values: a transition has at least one")
    columns: list[tuple[str, Any, tuple[int, ...]]] = []
    for name, options in fields.items():
        shape = np.atleast_1d(np.asarray(options.get("shape", 1)))
        if shape.size and shape.dtype.kind not in "iu":
            raise ArgumentTypeError(f"the shape of {name} is {options['shape']!r}: not integers")
        columns.append((name, options.get("dtype") or default, tuple(shape.tolist())))
    return np.dtype(columns)


def _column(values: ArrayLike, name: str, field: np.dtype[Any]) -> NDArray[Any]:
    """Give the values of one field, one row a transition."""
    array = np.asarray(values)
    try:
        return array.reshape(-1, *field.shape) if array.size else array.reshape(0, *field.shape)
    except ValueError:
        raise ShapeError(
            f"{name} has shape {array.shape}: it must be {field.shape}, with a leading axis for "
            "several transitions"
        ) from None
