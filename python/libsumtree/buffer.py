"""The prioritized replay buffer (Schaul et al., 2016): a ring of transitions over a tree."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from .arguments import Doubles, Indices, as_alpha, as_count, as_doubles, check_same_shape
from .errors import TooFewError
from .masses import masses_of, raised
from .persistence import SavedRing
from .records import Records
from .ring import take_rows


class Sample(NamedTuple):
    """A draw from a `PrioritizedReplayBuffer`.

    Attributes
    ----------
    ids : ndarray of int64, shape (n,)
        The names of the transitions, for `update_priorities`.
    indices : ndarray of int64, shape (n,)
        The leaves, which are also the slots of the ring.
    masses : ndarray of float64, shape (n,)
    weights : ndarray of float64, shape (n,)
        Importance-sampling weights, (min positive mass / mass) ** beta, in 0 .. 1.
    transitions : structured ndarray, shape (n,)
        Copies of the records; of dtype `PrioritizedReplayBuffer.sample_dtype`.
    """

    ids: Indices
    indices: Indices
    masses: Doubles
    weights: Doubles
    transitions: Records


class DistinctSample(NamedTuple):
    """A draw from a `PrioritizedReplayBuffer` without replacement, in the order of the draws.

    Attributes
    ----------
    ids, indices, masses, weights, transitions : ndarray, shape (n,)
        As those of a `Sample`; no two are the same transition.
    expansions : ndarray of float64, shape (n,)
        For how many transitions of the buffer each stands, see `DistinctTreeSample`: the unbiased
        weights of these draws.
    """

    ids: Indices
    indices: Indices
    masses: Doubles
    weights: Doubles
    transitions: Records
    expansions: Doubles


class Taken(NamedTuple):
    """Transitions at leaves of a `PrioritizedReplayBuffer`; the names are those of `Sample`."""

    ids: Indices
    masses: Doubles
    transitions: Records


class PrioritizedReplayBuffer(SavedRing):
    """A ring of transitions, drawn in proportion to priority ** alpha.

    Parameters
    ----------
    capacity : int
        How many transitions it holds, 1 .. 2**40; further ones replace the oldest.
    dtype : dtype_like
        A NumPy structured dtype, one record a transition, without object fields.
    alpha : float
        mass = priority ** alpha; finite, >= 0. Nothing is added to a priority.
    beta : float or BetaSchedule
        What `sample` takes if it is given none; in 0 .. 1.
    seed : int, sequence of int, SeedSequence or None
        Of the draws, see `PriorityTree`.
    backend : {"auto", "cpu", "multicore", "gpu"}
    device : int, optional
        Of the tree, see `SumTree`; transitions are in host memory whatever they are.
    max_times_sampled : int, optional
        A transition that was drawn so many times is **withdrawn**: it is held and can be read as
        before, but its mass is 0, and priorities for it are checked and skipped. What a batch draws
        twice counts twice, and is withdrawn after the batch, which may thus draw it more often than
        that; with ``replace=False`` none is. Takes 8 bytes for each of `capacity`.
    max_age : int, optional
        Only the newest so many transitions are drawn; older ones are withdrawn as they come of age.
        Records of frames that begin no transition count.

    Raises
    ------
    CapacityError, ArgumentTypeError, ArgumentError, ExponentError, BackendError, DeviceError
        If an argument is out of its domain.
    OutOfMemoryError
        If the memory limit cannot hold the tree and the transitions: at once, never later.

    Notes
    -----
    Methods may be called from several threads; each waits for the one before.

    Examples
    --------
    >>> buffer = PrioritizedReplayBuffer(1000, [("observation", "f4", 4), ("reward", "f4")], seed=0)
    >>> ids = buffer.add(np.zeros(10, buffer.dtype))
    >>> drawn = buffer.sample(4)
    >>> buffer.update_priorities(drawn.ids, np.ones(4))
    0
    """

    def __getitem__(self, ids: ArrayLike) -> Any:
        """Copy the transitions that ids name.

        Raises
        ------
        StaleIdError
            If one is no longer held, naming the first.
        IdError, ArgumentTypeError
            If one was never issued, or is no integer.
        """
        with self._lock:
            numbers = self._held_numbers(ids)
            flat = np.atleast_1d(numbers).ravel()
            records = take_rows(flat.size, self._sample_dtype)
            self._copy_out(flat, flat % self.capacity, records)
        return records.reshape(numbers.shape) if numbers.ndim else records[0].copy()

    @overload
    def sample(
        self,
        n: int,
        beta: float | None = ...,
        stratified: bool | None = ...,
        *,
        replace: Literal[True] = ...,
    ) -> Sample: ...

    @overload
    def sample(
        self,
        n: int,
        beta: float | None = ...,
        stratified: bool | None = ...,
        *,
        replace: Literal[False],
    ) -> DistinctSample: ...

    def sample(
        self,
        n: int,
        beta: float | None = None,
        stratified: bool | None = None,
        *,
        replace: bool = True,
    ) -> Sample | DistinctSample:
        """Draw n transitions, each with probability mass / total.

        Parameters
        ----------
        n : int
            How many, >= 0.
        beta : float, optional
            Exponent of the weights, in 0 .. 1; the buffer's own if not given.
        stratified : bool, optional
            See `PriorityTree.sample`.
        replace : bool
            Whether a transition may be drawn more than once, see `PriorityTree.sample`.

        Returns
        -------
        Sample
            ids, indices, masses, weights and transitions, each of shape (n,).
        DistinctSample
            Without replacement: expansions as well.

        Raises
        ------
        EmptyTreeError
            If n > 0 and no transition has a positive mass.
        TooFewError
            If fewer than n transitions have one, without replacement.
        ExponentError
            If beta is outside 0 .. 1.
        OutOfMemoryError
            If the memory cannot hold n transitions.
        ArgumentError, ArgumentTypeError
            If n is not a number of draws, or stratified true without replacement.

        Notes
        -----
        O(n log capacity) and one copy of each record.
        """
        count = as_count(n, "n")
        if not replace and count > self.capacity:
            raise TooFewError(f"n is {count}, without replacement: the capacity is {self.capacity}")
        transitions = take_rows(count, self._sample_dtype)
        with self._lock:
            self._withdraw_old()
            exponent = self.beta if beta is None else beta
            if replace:
                drawn = self._tree.sample(count, exponent, stratified is None or stratified)
                return Sample(self._drawn(drawn.indices, transitions), *drawn, transitions)
            distinct = self._tree.sample(count, exponent, stratified, replace=False)
            ids = self._drawn(distinct.indices, transitions)
            return DistinctSample(ids, *distinct[:3], transitions, distinct.expansions)

    def _drawn(self, indices: Indices, transitions: Records, counts: bool = True) -> Indices:
        """Note a draw, and copy its transitions; return their ids."""
        self._sampled += counts
        if counts:
            self._note(indices)
        numbers = self._numbers_of(indices)
        self._copy_out(numbers, indices, transitions)
        return self._ids.of_numbers(numbers)

    def _note(self, indices: Indices) -> None:
        """Count a draw; whatever exception strikes, what is withdrawn by it has the mass 0."""
        try:
            spent = self._withdrawal.note(indices, self.inserted)
            if len(spent):
                self._tree.update(spent, 0.0)
        except BaseException:
            self._set_held_masses(np.where(self._drawable(), self._held_masses(), 0.0))
            raise

    def take(self, indices: Indices, counts: bool = True) -> Taken:
        """Copy the transitions at leaves that descents of `tree` have found.

        For those who draw the targets themselves, as learners of several shards do.

        Parameters
        ----------
        indices : ndarray of int64, shape (n,)
            Leaves of positive mass.
        counts : bool
            Whether this is a draw, which moves beta on.

        Returns
        -------
        Taken

        Notes
        -----
        O(n) and one copy of each record.
        """
        transitions = take_rows(len(indices), self._sample_dtype)
        with self._lock:
            masses = self._tree[indices]
            return Taken(self._drawn(indices, transitions, counts), masses, transitions)

    def update_priorities(self, ids: ArrayLike, priorities: ArrayLike) -> int:
        """Set the priorities of transitions that are still held.

        Parameters
        ----------
        ids : array_like of integers, any shape
        priorities : array_like of real numbers, the shape of `ids`, or one number
            Finite, >= 0. Of equal ids the last wins.

        Returns
        -------
        int
            How many ids were stale: they are skipped. So are those of withdrawn transitions, which
            do not count.

        Raises
        ------
        IdError, PriorityError, ShapeError, ArgumentTypeError
            Naming the first bad position and its value; nothing is changed.

        Notes
        -----
        O(k log capacity).
        """
        with self._lock:
            held = self._ids.numbers_of_held(ids, self._oldest) if self._is_plain else None
            if held is not None:
                self._tree.update(
                    held % self._capacity, self.check_priorities(priorities, held.shape, "ids")
                )
                return 0
            numbers, live = self._ids.resolve(ids, self._oldest)
            masses = self.check_priorities(priorities, numbers.shape, "ids")
            self._check_not_bare(numbers, live)
            slots = numbers % self.capacity
            stale = int(live.size - np.count_nonzero(live))
            live &= ~self._withdrawal.holds(numbers, self.inserted)
            if not live.all():
                slots, masses = slots[live], masses[live] if masses.ndim else masses
            self._tree.update(slots, masses)
            return stale

    def set_alpha(self, alpha: float, priorities: ArrayLike | None = None) -> None:
        """Set the exponent of priorities, and give all transitions held the masses that it makes.

        Parameters
        ----------
        alpha : float
            Finite, >= 0.
        priorities : array_like of real numbers, shape (len(buffer),), or one number, optional
            Of the transitions held, oldest first: their masses are priority ** alpha, as ever. By
            default, for the buffer holds masses alone, mass ** (alpha / the old alpha): with r that
            quotient, within a relative (4 r + 1) * 2**-52 of what the priorities would make.

        Raises
        ------
        ExponentError
            If alpha is negative or not finite.
        ArgumentError
            If the old alpha is 0, which makes every positive priority the mass 1: what they were is
            lost, so that `priorities` must be given. Or if an intake is open.
        PriorityError, ShapeError, ArgumentTypeError
            If a priority or a mass cannot be raised to that power, naming the first; nothing is
            changed by any error.

        Notes
        -----
        O(capacity). Masses that have become 0, as that of priority 1e-200 does with alpha 2, stay 0
        unless priorities are given. So do those of withdrawn transitions, even then.
        """
        exponent = as_alpha(alpha)
        with self._lock:
            self._check_no_intake()
            before = self._held_masses()
            if priorities is None:
                masses = raised(before, self._alpha, exponent)
            else:
                values = as_doubles(priorities, "priorities")
                check_same_shape(before.shape, values.shape, ("the transitions held", "priorities"))
                masses = np.where(self._drawable(), masses_of(values, exponent), 0.0)
            old = self._alpha
            try:
                self._set_held_masses(masses)
                self._alpha = exponent
            except BaseException:
                self._set_held_masses(before)
                self._alpha = old
                raise

    def set_times_sampled(self, ids: Indices, times: Indices) -> None:
        """Take over counts of another buffer, with masses that fit them; stale ids are skipped."""
        with self._lock:
            numbers, live = self._ids.resolve(ids, self._oldest)
            self._withdrawal.set_times(numbers[live], times[live], self.inserted)

    def clear(self) -> None:
        """Drop all transitions; their ids are stale, and no id is issued again. O(capacity)."""
        with self._lock:
            self._tree[:] = 0.0
            self._floor = self._ids.next_number
