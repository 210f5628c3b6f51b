"""Frames stored once: records of one frame each, from which stacks are put together when drawn.

An Atari transition holds two stacks of 4 frames, s and s', and shares 7 of these 8 frames with the
transition before. Here a record is **one frame and the transition that begins with it**: `frame`,
then `age`, how many of the records just before it hold earlier frames of its episode, `ahead`, how
many records further the newest frame of s' stands, and the fields of the transition. A **bare**
record, `ahead` 0, is a frame that begins no transition, such as the last of an episode; its mass is
0, so it is never drawn.

A batch stands on its own frames: it brings those before its first transition and after its last as
bare records. So it may come from any actor, and batches of several may follow one another in any
order; nobody who passes records on, neither a replay rank nor a checkpoint, looks into them. The
ring of a buffer keeps the last stack - 1 records beyond its capacity, hence a transition that is
held has all its frames, and one that is not held is stale, as ever. Whatever counts transitions,
such as a capacity, a size or a rate limiter, counts bare records as well.

The title of the field `frame` says how frames are stacked: a record dtype is all that a message or
a checkpoint has to carry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .arguments import as_integer, as_real
from .errors import ArgumentError, ArgumentTypeError, PriorityError, ShapeError
from .records import check_record_dtype

MOST_FRAMES = 255
"""The most frames of one stack, and the most steps of one transition: `age` and `ahead` are u1."""

_OWN_FIELDS = ("frame", "age", "ahead", "observation", "next_observation")
_COPIED_BYTES = 1 << 20
_PADDINGS = ("repeat", "zero")
_TITLE = "libsumtree: stacks of {} frames, padding {}"
_TITLE_PATTERN = re.compile(r"libsumtree: stacks of (\d{1,3}) frames, padding (repeat|zero)")


@dataclass(frozen=True)
class FrameLayout:
    """How frames become stacks.

    Parameters
    ----------
    stack : int
        Frames of one observation, 1 .. 255.
    shape : tuple of int
        Of one frame, such as (84, 84).
    fields : dtype_like
        A structured dtype: what a transition holds besides its observations.
    dtype : dtype_like
        Of one frame: a number.
    padding : {"repeat", "zero"}
        What stands in the stack before the first frame of an episode: that frame again, as
        Gymnasium does, or zeros, as Dopamine does.

    Attributes
    ----------
    record : numpy.dtype
        Record dtype of a buffer that stores each frame once.
    stacked : numpy.dtype
        What is drawn: ``observation`` and ``next_observation``, of shape ``(stack, *shape)``,
        oldest frame first, then the fields. The naive record dtype.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        If an argument is out of its domain.
    """

    stack: int
    shape: tuple[int, ...]
    fields: Any
    dtype: Any = "u1"
    padding: str = "repeat"
    record: np.dtype[Any] = field(init=False)
    stacked: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        fields = check_record_dtype(self.fields)
        stack = as_integer(self.stack, "stack")
        if not 1 <= stack <= MOST_FRAMES:
            raise ArgumentError(f"stack is {stack}: 1 .. {MOST_FRAMES} frames")
        if self.padding not in _PADDINGS:
            raise ArgumentError(f"padding is {self.padding!r}: 'repeat' or 'zero'")
        taken = [name for name in fields.names or () if name in _OWN_FIELDS]
        if taken:
            raise ArgumentError(f"field {taken[0]!r}: the layout has one of that name itself")
        shape = tuple(as_integer(length, "shape") for length in self.shape)
        dtype = _number(self.dtype)
        if min(shape, default=1) < 1:
            raise ArgumentError(f"shape is {shape}: every length must be at least 1")
        rest = [(name, fields[name]) for name in fields.names or ()]
        title = _TITLE.format(stack, self.padding)
        own = [((title, "frame"), dtype, shape), ("age", "u1"), ("ahead", "u1")]
        stacks = [(name, dtype, (stack, *shape)) for name in ("observation", "next_observation")]
        values = {"stack": stack, "shape": shape, "fields": np.dtype(rest), "dtype": dtype}
        values |= {"record": np.dtype(own + rest), "stacked": np.dtype(stacks + rest)}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def context(self) -> int:
        """How many records before the oldest transition its stack may reach."""
        return self.stack - 1


def _number(dtype: DTypeLike) -> np.dtype[Any]:
    checked: np.dtype[Any] = np.dtype(dtype)
    if checked.kind not in "biuf":
        raise ArgumentTypeError(f"frames of dtype {checked}: integers, floats or booleans")
    return checked


def layout_of(dtype: np.dtype[Any]) -> FrameLayout | None:
    """Return the layout whose records have this dtype; None if they hold no frames."""
    described = dtype.fields.get("frame") if dtype.fields is not None else None
    title = described[2] if described is not None and len(described) == 3 else None
    parts = _TITLE_PATTERN.fullmatch(title) if isinstance(title, str) else None
    if parts is None:
        return None
    frame, rest = dtype["frame"], dtype.descr[3:]
    try:
        layout = FrameLayout(int(parts[1]), frame.shape, np.dtype(rest), frame.base, parts[2])
    except (ArgumentError, ArgumentTypeError):
        return None
    return layout if layout.record == dtype else None


def sample_dtype_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return what is drawn from a buffer of this record dtype: stacks if records are frames."""
    layout = layout_of(dtype)
    return dtype if layout is None else layout.stacked


# ---- what a buffer does with records ----


def check_runs(age: NDArray[np.uint8], ahead: NDArray[np.uint8], stack: int, whole: bool) -> None:
    """Refuse a batch whose transitions do not stand on frames of the batch itself.

    Parameters
    ----------
    age, ahead : ndarray of uint8, shape (n,)
        These fields of its records.
    stack : int
    whole : bool
        False if records before these were left away: the first ones' frames may be missing, and
        are not asked for.

    Raises
    ------
    ArgumentError
        Naming the first record that is wrong.
    """
    count = len(age)
    if count == 0:
        return
    grown = np.minimum(age[:-1].astype(np.intp) + 1, stack)
    follows = np.concatenate([[not whole or age[0] == 0], (age[1:] == 0) | (age[1:] == grown)])
    if not whole:
        follows[0] = age[0] <= stack
    if not follows.all():
        at = int(np.argmin(follows))
        raise ArgumentError(
            f"transitions[{at}] has age {age[at]}: 0 where frames of an episode begin, else one "
            f"more than the record before, at most {stack}; let a FrameWriter make batches"
        )
    begins = np.flatnonzero(age == 0)
    positions = np.arange(count)
    ends = np.append(begins, count)[np.searchsorted(begins, positions, side="right")]
    reaches = positions + ahead < ends
    if not reaches.all():
        at = int(np.argmin(reaches))
        raise ArgumentError(
            f"transitions[{at}] ends {ahead[at]} records further, where its episode has no frame "
            "in this batch; let a FrameWriter make batches"
        )


def gather(
    layout: FrameLayout,
    storage: NDArray[Any],
    numbers: NDArray[np.int64],
    target: NDArray[Any],
) -> None:
    """Put transitions together.

    Parameters
    ----------
    layout : FrameLayout
    storage : structured ndarray, shape (slots,)
        The ring; number n stands in slot n modulo its length.
    numbers : ndarray of int64, shape (n,)
        Of transitions that are held.
    target : structured ndarray, shape (n,)
        Of dtype `FrameLayout.stacked`, contiguous; filled.

    Notes
    -----
    O(n stack) frames are copied, in one pass of parts that fit in a processor's cache.
    """
    slots = numbers % len(storage)
    for name in layout.fields.names or ():
        target[name] = storage[name][slots]
    ahead = storage["ahead"][slots].astype(np.int64)
    ends = np.stack([np.zeros_like(ahead), ahead], axis=1)[:, :, np.newaxis]
    reach = storage["age"][slots].astype(np.int64)[:, np.newaxis, np.newaxis] + ends
    back = np.arange(layout.stack - 1, -1, -1)
    wanted = numbers[:, np.newaxis, np.newaxis] + ends - np.minimum(back, reach)
    wanted %= len(storage)
    stacks, frames = _stacks_of(layout, target), storage["frame"]
    step = max(1, _COPIED_BYTES // layout.stacked.itemsize)
    for start in range(0, len(target), step):
        stacks[start : start + step] = frames[wanted[start : start + step]]
    if layout.padding == "zero":
        stacks[back > reach] = 0


def _stacks_of(layout: FrameLayout, target: NDArray[Any]) -> NDArray[Any]:
    """Return both stacks of each record as one array, shape (n, 2, stack, *shape): a view."""
    frame = np.empty((2, layout.stack, *layout.shape), layout.dtype)
    strides = (target.dtype.itemsize, *frame.strides)
    memory = target.view(np.uint8)
    return np.ndarray((len(target), *frame.shape), layout.dtype, memory, 0, strides)


class Footprint(NamedTuple):
    """What a buffer holds, and what it takes.

    Attributes
    ----------
    records : int
        Records held, bare ones and those that are kept for their frames included.
    transitions : int
        Those of them that begin a transition that can be drawn, or was given the mass 0.
    held_bytes : int
        Of the records.
    naive_bytes : int
        Of the same transitions where each holds all its frames.
    """

    records: int
    transitions: int
    held_bytes: int
    naive_bytes: int


# ---- who makes records ----


class FrameBatch(NamedTuple):
    """What ``add`` of a buffer or of an `libsumtree.replay.ActorClient` takes.

    Attributes
    ----------
    transitions : structured ndarray, shape (n,)
        Of dtype `FrameLayout.record`.
    priorities : ndarray of float64, shape (n,), or None
        None if no priority was given for any of them.
    """

    transitions: NDArray[np.void]
    priorities: NDArray[np.float64] | None


class FrameWriter:
    """Makes batches of records from the frames of one environment.

    Parameters
    ----------
    layout : FrameLayout
    length : int
        Transitions after which `full` is true. A batch that begins or ends within an episode
        repeats at most stack - 1 + n frames of its neighbours, n the steps of a transition: the
        longer, the less memory.

    Examples
    --------
    >>> layout = FrameLayout(4, (84, 84), [("action", "i8"), ("reward", "f4")])
    >>> writer = FrameWriter(layout)
    >>> writer.reset(np.zeros((84, 84), np.uint8))
    >>> writer.append(np.ones((84, 84), np.uint8))
    >>> writer.transition({"action": 2, "reward": 1.0})
    >>> len(writer.take().transitions)
    2
    """

    def __init__(self, layout: FrameLayout, length: int = 64) -> None:
        self.layout = layout
        self._length = as_integer(length, "length")
        if self._length < 1:
            raise ArgumentError(f"length is {length}: a batch has at least 1 transition")
        self._rows = np.zeros(self._length + layout.stack + 1, layout.record)
        self._priorities = np.zeros(len(self._rows))
        self._count = 0
        self._begin: int | None = None  # of the running episode
        self._stop = 0  # of the frames that a transition needs
        self._free = 0  # the first frame where a transition may begin
        self._transitions = 0
        self._with_priorities = False

    def __len__(self) -> int:
        """Return the number of transitions that the next batch holds."""
        return self._transitions

    @property
    def full(self) -> bool:
        """Whether there are as many transitions as were asked for."""
        return self._transitions >= self._length

    def reset(self, frame: Any) -> None:
        """Begin an episode with this frame; frames before that no transition needs are dropped.

        Raises
        ------
        ArgumentTypeError, ShapeError
            If it is not a frame of the layout; nothing has changed.
        """
        checked = self._frame(frame)
        self._count = self._begin = self._free = self._stop
        self._push(checked)

    def append(self, frame: Any) -> None:
        """Take the frame that followed.

        Raises
        ------
        ArgumentError
            If no episode has begun.
        ArgumentTypeError, ShapeError
            If it is not a frame of the layout; nothing has changed.
        """
        if self._begin is None:
            raise ArgumentError("a frame before any reset: begin an episode with reset")
        self._push(self._frame(frame))

    def transition(
        self, values: Mapping[str, Any], steps: int = 1, priority: float | None = None
    ) -> None:
        """Note that a transition leads from the frame `steps` before to the newest one.

        Parameters
        ----------
        values : mapping of str to value
            The fields of the layout, all of them.
        steps : int
            1 .. 255; more than 1 for n-step returns. Of those that end at one frame, as at the
            end of an episode, the longest comes first.
        priority : float, optional
            Finite, >= 0. Either all transitions of a batch have one, or none.

        Raises
        ------
        ArgumentError, ArgumentTypeError, ShapeError, PriorityError
            If it begins where no frame is, or where a transition has begun before; if the values
            are not those of the fields; nothing has changed.
        """
        start = self._start(as_integer(steps, "steps"))
        given = self._given(priority)
        self._fill(start, values)
        self._rows["ahead"][start] = steps
        self._priorities[start] = 0.0 if given is None else given
        self._with_priorities = given is not None
        self._transitions += 1
        self._free, self._stop = start + 1, self._count

    def take(self) -> FrameBatch:
        """Return what has been noted since the last time, as one batch; it may be empty.

        Frames that the next transitions of the running episode need are kept.
        """
        rows = self._rows[: self._stop].copy()
        priorities = self._priorities[: self._stop].copy() if self._with_priorities else None
        if len(rows):
            self._keep_from(max(self._begin or 0, self._free - self.layout.context))
        return FrameBatch(rows, priorities)

    # ---- inside ----

    def _keep_from(self, first: int) -> None:
        """Make the frames from `first` on, all of one episode, the beginning of the next batch."""
        kept = self._count - first
        self._rows[:kept] = self._rows[first : self._count].copy()
        self._rows["age"][:kept] = np.minimum(np.arange(kept), self.layout.stack)
        self._rows["ahead"][:kept] = 0
        self._priorities[:kept] = 0.0
        self._free -= first
        self._count, self._begin, self._stop = kept, 0, 0
        self._transitions, self._with_priorities = 0, False

    def _frame(self, frame: Any) -> NDArray[Any]:
        array = np.asarray(frame)
        if array.dtype != self.layout.dtype:
            raise ArgumentTypeError(f"a frame is {array.dtype}: {self.layout.dtype} is needed")
        if array.shape != self.layout.shape:
            raise ShapeError(f"a frame has shape {array.shape}: {self.layout.shape} is needed")
        return array

    def _push(self, frame: NDArray[Any]) -> None:
        at = self._count
        if at == len(self._rows):
            grown = np.zeros(2 * at, self.layout.record)
            grown[:at] = self._rows
            self._rows = grown
            self._priorities = np.append(self._priorities, np.zeros(at))
        self._rows[at] = np.zeros((), self.layout.record)
        self._priorities[at] = 0.0
        self._rows["frame"][at] = frame
        self._rows["age"][at] = min(at - (self._begin or 0), self.layout.stack)
        self._count = at + 1

    def _start(self, steps: int) -> int:
        """Return where a transition of so many steps begins."""
        start = self._count - 1 - steps
        if not 1 <= steps <= MOST_FRAMES or self._begin is None or start < self._begin:
            raise ArgumentError(
                f"steps is {steps}: 1 .. {MOST_FRAMES}, and so many frames since the reset are "
                f"needed; {max(0, self._count - 1 - (self._begin or 0))} are there"
            )
        if start < self._free:
            raise ArgumentError(
                f"steps is {steps}: a transition has begun at that frame, or at a later one"
            )
        return start

    def _given(self, priority: float | None) -> float | None:
        if self._transitions and (priority is not None) != self._with_priorities:
            raise ArgumentError("either all transitions of a batch have a priority, or none")
        value = None if priority is None else as_real(priority, "priority")
        if value is not None and not (np.isfinite(value) and value >= 0):
            raise PriorityError(f"priority is {value}: it must be finite and >= 0")
        return value

    def _fill(self, start: int, values: Mapping[str, Any]) -> None:
        names = self.layout.fields.names or ()
        if set(values) != set(names):
            wrong = sorted(set(values) ^ set(names))
            raise ArgumentError(f"values: {wrong[0]!r} is missing or unknown; give {names}")
        made = np.zeros((), self.layout.fields)
        for name in names:
            value = np.asarray(values[name])
            if value.shape != made[name].shape:
                raise ShapeError(f"{name!r} has shape {value.shape}: {made[name].shape} is needed")
            try:
                made[name] = value
            except (TypeError, ValueError, OverflowError) as error:
                raise ArgumentTypeError(f"{name!r} is {values[name]!r}: {error}") from None
        for name in names:
            self._rows[name][start] = made[name]
