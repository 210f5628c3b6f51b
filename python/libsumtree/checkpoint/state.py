"""What the files of a chain say together: which transitions are held, their masses, their records.

A transition is named by its running number. A file tells of the numbers ``cursor - size`` ..
``cursor``, its state. Its ``transitions`` are the newest of them: all in a full file, those added
since in an incremental one. Where records are frames (`libsumtree.frames`), a full file begins with
those before the oldest transition whose frames it may need. Its ``tree/masses`` are the masses of
the newest transitions, and in an incremental file of no fewer than there are ``transitions``;
``changed/numbers`` and ``changed/masses`` name older ones that have another mass than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointCorruptError
from ..frames import layout_of
from ..ids import MAX_EPOCH, MAX_NUMBER
from ..records import dtype_from_text
from .chain import Chain
from .reader import Checkpoint, StoredArray
from .storable import storable_record
from .writer import Attribute

TRANSITIONS, MASSES, EPOCHS = "transitions", "tree/masses", "ids/epochs"
TIMES_SAMPLED = "times_sampled"
CHANGED_NUMBERS, CHANGED_MASSES = "changed/numbers", "changed/masses"

_KINDS: dict[str, type] = {
    **dict.fromkeys(("capacity", "cursor", "size", "epoch", "sampled", "beta_samples"), int),
    **dict.fromkeys(("alpha", "total", "min", "max"), float),
    **dict.fromkeys(("dtype", "seed"), str),
}
_SAME_IN_A_CHAIN = ("capacity", "dtype", "alpha")
LIMITS = ("max_times_sampled", "max_age")  # absent where there is no such limit


@dataclass(frozen=True)
class Extent:
    """Which numbers one file tells of.

    Attributes
    ----------
    oldest, cursor : int
        Of the transitions held; `cursor` is the next number.
    oldest_record : int
        Of the records held: before `oldest`, what is kept for its frames.
    rows, masses : int
        The first number of ``transitions``, and of ``tree/masses``.
    """

    oldest: int
    cursor: int
    oldest_record: int
    rows: int
    masses: int


def extent_of(link: Checkpoint) -> Extent:
    """Return which numbers a file tells of.

    Raises
    ------
    CheckpointCorruptError
        Its attributes and datasets do not fit each other.
    """
    _check_attributes(link)
    cursor, size = int(link.attributes["cursor"]), int(link.attributes["size"])
    capacity = int(link.attributes["capacity"])
    try:
        rows, masses = len_of(link, TRANSITIONS), len_of(link, MASSES)
        record = dtype_from_text(str(link.attributes["dtype"]))
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise no_buffer(link, error) from error
    layout = layout_of(record)
    context = 0 if layout is None else min(layout.context, cursor - size)
    full = link.header.parent is None
    fits = 0 <= masses <= size <= min(cursor, capacity) and cursor <= MAX_NUMBER
    if not fits or not (rows == size + context and masses == size if full else rows <= masses):
        raise no_buffer(
            link,
            f"{rows} transitions and {masses} masses do not fit size {size}, cursor {cursor} and "
            f"capacity {capacity}",
        )
    _check_dtypes(link, record)
    oldest = cursor - size
    return Extent(oldest, cursor, oldest - context, cursor - rows, cursor - masses)


def _check_attributes(link: Checkpoint) -> None:
    """Check the types of what a buffer is made from, and ranges that no other check covers."""
    said: dict[str, Any] = dict(link.attributes)
    wrong = [name for name, kind in _KINDS.items() if type(said.get(name)) is not kind]
    if not wrong:
        limits = [said.get(name, 1) for name in LIMITS]
        wrong += [n for n, v in zip(LIMITS, limits, strict=True) if type(v) is not int or v < 1]
        wrong += ["alpha"] * (not 0.0 <= said["alpha"] < np.inf)
        wrong += ["epoch"] * (not 0 <= said["epoch"] <= MAX_EPOCH)
        wrong += ["sampled"] * (said["sampled"] < 0) + ["beta_samples"] * (said["beta_samples"] < 1)
        beta = np.asarray(said.get("beta"))
        is_beta = beta.dtype == np.float64 and beta.shape == (2,) and np.isfinite(beta).all()
        wrong += [] if is_beta else ["beta"]
    if wrong:
        raise no_buffer(link, f"{wrong[0]} is {said.get(wrong[0])!r:.80}")


def len_of(link: Checkpoint, name: str) -> int:
    """Return the number of rows of a dataset; KeyError or IndexError if it has none."""
    return link.datasets[name].shape[0]


def _check_dtypes(link: Checkpoint, record: np.dtype[Any]) -> None:
    stored, masses = link.datasets[TRANSITIONS], link.datasets[MASSES]
    expected = storable_record(record)
    if (stored.dtype, stored.shape[1:]) != (expected.base, expected.shape):
        raise no_buffer(
            link, f"records are stored as {stored.dtype} {stored.shape} where {expected} is needed"
        )
    if masses.dtype != np.float64 or len(masses.shape) != 1:
        raise no_buffer(link, f"masses are {masses.dtype} {masses.shape}")


def extents_of(chain: Chain) -> list[Extent]:
    """Return which numbers each file tells of, having checked that they fit.

    Raises
    ------
    CheckpointCorruptError
        They do not fit each other.
    """
    extents = [extent_of(link) for link in chain.links]
    for at in range(1, len(extents)):
        before, after, link = extents[at - 1], extents[at], chain.links[at]
        first = chain.links[0].attributes
        same = all(
            _same(link.attributes.get(name), first.get(name)) for name in _SAME_IN_A_CHAIN + LIMITS
        )
        goes_on = before.oldest <= after.oldest and after.rows == max(
            before.cursor, after.oldest_record
        )
        if not same or not goes_on or after.cursor < before.cursor:
            raise no_buffer(link, f"it does not go on from {chain.links[at - 1].path.name}")
    return extents


def _same(one: Attribute | None, other: Attribute | None) -> bool:
    return type(one) is type(other) and np.array_equal(one, other)  # type: ignore[arg-type]


def masses_of(chain: Chain) -> NDArray[np.float64]:
    """Return the masses of the transitions held, oldest first, shape (size,).

    Raises
    ------
    CheckpointCorruptError
        The files do not fit each other. Whether the masses are any, is not looked at.
    """
    extents = extents_of(chain)
    oldest, cursor = extents[-1].oldest, extents[-1].cursor
    masses = np.zeros(cursor - oldest)
    for link, extent in zip(chain.links, extents, strict=True):
        first = max(extent.masses, oldest)
        if first < extent.cursor:
            part = masses[first - oldest : extent.cursor - oldest]
            link.datasets[MASSES].read_rows(first - extent.masses, part)
        numbers, changed = _changes(link, extent)
        held = numbers >= oldest
        masses[numbers[held] - oldest] = changed[held]
    return masses


def times_of(chain: Chain) -> NDArray[np.int64]:
    """Return how often each transition held was drawn, oldest first, shape (size,).

    Raises
    ------
    CheckpointCorruptError
        The newest file holds no such counts.
    """
    newest = chain.newest
    stored = newest.datasets.get(TIMES_SAMPLED)
    size = int(newest.attributes["size"])
    if stored is None or stored.dtype != np.int64 or stored.shape != (size,):
        found = "no" if stored is None else f"{stored.dtype} {stored.shape}"
        raise no_buffer(newest, f"{found} {TIMES_SAMPLED} where int64 ({size},) is needed")
    times: NDArray[np.int64] = stored.read()
    if (times < 0).any():
        raise no_buffer(newest, f"{TIMES_SAMPLED} holds a negative count")
    return times


def _changes(link: Checkpoint, extent: Extent) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the numbers of older transitions, and the masses that they have got."""
    datasets = link.datasets
    if CHANGED_NUMBERS not in datasets and CHANGED_MASSES not in datasets:
        return np.empty(0, np.int64), np.empty(0)
    try:
        numbers, masses = datasets[CHANGED_NUMBERS], datasets[CHANGED_MASSES]
        shape = (numbers.shape[0],)
        most = extent.masses - extent.oldest
        if numbers.shape != shape or masses.shape != shape or shape[0] > most:
            raise ValueError(f"{numbers.shape} numbers and {masses.shape} masses have changed")
        if numbers.dtype != np.int64 or masses.dtype != np.float64:
            raise ValueError(f"numbers are {numbers.dtype}, masses {masses.dtype}")
        found = numbers.read()
        if found.size and not (
            extent.oldest <= found[0] and found[-1] < extent.masses and (np.diff(found) > 0).all()
        ):
            raise ValueError("numbers are not ascending and held")
    except (KeyError, IndexError, ValueError) as error:
        raise no_buffer(link, str(error)) from error
    return found, masses.read()


def read_transitions(chain: Chain, storage: NDArray[Any], first: int) -> None:
    """Fill a ring with the transitions from number `first` on, each in the slot of its number.

    Parameters
    ----------
    chain : Chain
    storage : structured ndarray, shape (capacity,)
        Of the record dtype; ``cursor - first`` is at most its length, which may exceed the
        capacity.
    first : int
        A number whose record is held, or the cursor.

    Raises
    ------
    CheckpointCorruptError
        The files do not fit each other.
    """
    for link, extent in zip(chain.links, extents_of(chain), strict=True):
        stored = link.datasets[TRANSITIONS]
        ring = as_stored(storage, stored)
        number = max(extent.rows, first)
        while number < extent.cursor:
            slot = number % len(ring)
            count = min(extent.cursor - number, len(ring) - slot)
            stored.read_rows(number - extent.rows, ring[slot : slot + count])
            number += count


def as_stored(storage: NDArray[Any], stored: StoredArray) -> NDArray[Any]:
    """Return the same memory as records of the dtype that a dataset of them has."""
    if stored.dtype.names is None:
        return storage.view(np.uint8).reshape(len(storage), storage.dtype.itemsize)
    return storage.view(stored.dtype)


def check_sums(link: Checkpoint, found: Mapping[str, float]) -> None:
    """Raise `ValueError` unless a file says of its masses what they are: min, max or total."""
    for name, value in found.items():
        if link.attributes[name] != value:
            said = link.attributes[name]
            raise ValueError(f"{name} is {said}, but {value} that of the masses")


def no_buffer(link: Checkpoint, why: str | Exception) -> CheckpointCorruptError:
    """Make the error for a file that is whole, and holds no buffer."""
    reason = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
    return CheckpointCorruptError(f"checkpoint {link.path} does not hold a buffer: {reason}")
