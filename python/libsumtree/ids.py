"""Ids: the names of transitions, never issued twice in the life of a buffer.

An id is an epoch in the high bits and a running number in the low 40. The running number goes on
through all epochs; a restore opens a new epoch. So an id that was issued after the checkpoint that
was restored, and lost with it, has a number that belongs to a later epoch by now: it is told apart,
and stale for ever.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import Indices, as_indices, place
from .errors import ArgumentError, IdError, IdsExhaustedError, IndexOutOfRangeError

NUMBER_BITS = 40
MAX_NUMBER = 1 << NUMBER_BITS
MAX_EPOCH = (1 << 63 - NUMBER_BITS) - 1
"""The last epoch that ids have room for."""

# Short batches add to these, for np.arange lets go of the GIL however few it makes: where another
# thread waits for it, as one that writes a checkpoint does, that costs more than all the rest.
_STEPS = np.arange(512, dtype=np.int64)


class Ids:
    """The ids of one buffer: which were issued, and which epoch each number belongs to.

    Parameters
    ----------
    history : array_like of int64, shape (epochs, 2)
        (epoch, its first number), both ascending; the last one is open.
    next_number : int
        The number of the next id, 0 .. 2**40.

    Raises
    ------
    ArgumentError
        If they are no such table and number.
    """

    def __init__(self, history: ArrayLike = ((0, 0),), next_number: int = 0) -> None:
        table = np.array(history)
        if not _is_history(table, next_number):
            raise ArgumentError(
                f"history is {table.tolist()} before number {next_number}: it must be (epoch, its "
                "first number) of each epoch, ascending from epoch 0 and number 0 on"
            )
        self._epochs = table[:, 0].copy()
        self._starts = table[:, 1].copy()
        self.next_number = next_number

    @property
    def epoch(self) -> int:
        """The open epoch."""
        return int(self._epochs[-1])

    @property
    def history(self) -> Indices:
        """(epoch, its first number) of every epoch, int64, shape (epochs, 2)."""
        return np.stack([self._epochs, self._starts], axis=1)

    @property
    def next_id(self) -> int:
        """The id of the next transition."""
        return self.epoch << NUMBER_BITS | self.next_number

    def open_epoch(self, epoch: int) -> None:
        """Give all ids from now on this epoch, which is above every one before."""
        self._epochs = np.append(self._epochs, epoch)
        self._starts = np.append(self._starts, self.next_number)

    def check_room(self, count: int) -> None:
        """Refuse to issue more ids than there are numbers."""
        if self.next_number + count > MAX_NUMBER:
            raise IdsExhaustedError(
                f"{count} ids were asked for where {MAX_NUMBER - self.next_number} of 2^40 are "
                "left: add these transitions to a new buffer"
            )

    def issue(self, count: int) -> Indices:
        """Issue the next `count` ids; `check_room` holds."""
        self.next_number += count
        return self.latest(count)

    def latest(self, count: int) -> Indices:
        """Give the `count` ids that were issued last, all of them in this epoch."""
        first = (self.epoch << NUMBER_BITS) + self.next_number - count
        if count <= len(_STEPS):
            return first + _STEPS[:count]
        return np.arange(first, first + count, dtype=np.int64)

    def of_numbers(self, numbers: Indices) -> Indices:
        """Give the ids of numbers that were issued."""
        if len(self._epochs) == 1:
            return numbers | self.epoch << NUMBER_BITS
        row = np.searchsorted(self._starts, numbers, side="right") - 1
        return numbers | self._epochs[row] << NUMBER_BITS

    def numbers_of_held(self, ids: ArrayLike, oldest: int) -> Indices | None:
        """Give the numbers of ids that all are of this epoch and held; None for any others.

        Parameters
        ----------
        ids, oldest
            As for `resolve`, which does this for all ids.
        """
        if type(ids) is not np.ndarray or ids.dtype != np.int64 or ids.size == 0:
            return None
        epoch = self.epoch << NUMBER_BITS
        first = epoch + max(oldest, int(self._starts[-1]))
        if int(ids.min()) < first or int(ids.max()) >= epoch + self.next_number:
            return None
        return ids - epoch

    def resolve(self, ids: ArrayLike, oldest: int) -> tuple[Indices, NDArray[np.bool_]]:
        """Tell which ids name a transition that is held.

        Parameters
        ----------
        ids : array_like of integers, any shape
        oldest : int
            The number of the oldest transition held.

        Returns
        -------
        numbers : ndarray of int64, the shape of `ids`
        live : ndarray of bool, the shape of `ids`
            False where the id is stale.

        Raises
        ------
        IdError
            If an id was never issued, naming the first.
        """
        array = _as_ids(ids)
        epochs, numbers = array >> NUMBER_BITS, array & MAX_NUMBER - 1
        row = np.searchsorted(self._epochs, epochs, side="right") - 1
        known = self._epochs[row] == epochs
        ends = np.append(self._starts[1:], self.next_number)[row]
        never = (array < 0) | (epochs > self.epoch) | known & (numbers < self._starts[row])
        never |= (epochs == self.epoch) & (numbers >= self.next_number)
        if never.any():
            _refuse(array, int(np.argmax(never)))
        return numbers, known & (numbers < ends) & (numbers >= oldest)


def _is_history(table: NDArray[Any], next_number: int) -> bool:
    if table.dtype != np.int64 or table.ndim != 2 or table.shape[1] != 2 or len(table) == 0:
        return False
    epochs, starts = table[:, 0], table[:, 1]
    ascending = bool((np.diff(epochs) > 0).all() and (np.diff(starts) >= 0).all())
    within = epochs[0] == 0 and epochs[-1] <= MAX_EPOCH and starts[-1] <= next_number <= MAX_NUMBER
    return bool(ascending and within and starts[0] == 0)


def _as_ids(ids: ArrayLike) -> Indices:
    try:
        return as_indices(ids, 1 << 63, "ids")
    except IndexOutOfRangeError as error:
        raise IdError(f"{str(error).split(':')[0]}: this buffer never issued such an id") from None


def _refuse(ids: Indices, position: int) -> NoReturn:
    where, value = place("ids", position, ids.shape), int(ids.ravel()[position])
    raise IdError(f"{where} is {value}: this buffer never issued such an id")
