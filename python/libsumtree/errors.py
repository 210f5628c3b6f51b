"""The errors of libsumtree: one class for each thing that can be wrong.

Every class is a `SumTreeError` and the built-in exception that fits, so that code may catch either.
The classes of `STATUS_ERRORS` stand for the status codes of the C library (`SUMTREE_STATUS_TABLE`
in ``sumtree.h``), one for one.
"""

from __future__ import annotations


class SumTreeError(Exception):
    """The base of all errors that libsumtree raises on purpose."""


class ArgumentError(SumTreeError, ValueError):
    """A choice is unknown, or an argument has no meaning here."""


class ArgumentTypeError(SumTreeError, TypeError):
    """An argument has a type or dtype that is not accepted."""


class ShapeError(SumTreeError, ValueError):
    """Two arrays of one call do not have the same shape."""


class CapacityError(SumTreeError, ValueError):
    """A capacity is outside 1 .. 2**40."""


class OutOfMemoryError(SumTreeError, MemoryError):
    """The memory limit, control group included, cannot hold what was asked for."""


class IndexOutOfRangeError(SumTreeError, IndexError):
    """An index is outside 0 .. capacity-1."""


class RangeError(SumTreeError, IndexError):
    """A range does not satisfy 0 <= start <= stop <= capacity."""


class MassError(SumTreeError, ValueError):
    """A mass is not a number in 0 .. 2**960."""


class NotANumberError(MassError):
    """A value of a min tree is NaN."""


class PriorityError(SumTreeError, ValueError):
    """A priority is negative, not finite, or its mass exceeds 2**960."""


class TargetError(SumTreeError, ValueError):
    """A target is not a number in 0 .. total."""


class ExponentError(SumTreeError, ValueError):
    """alpha is negative or not finite, or beta is outside 0 .. 1."""


class EmptyTreeError(SumTreeError, ValueError):
    """Nothing can be drawn: the tree holds no positive mass."""


class TooFewError(EmptyTreeError):
    """Fewer leaves have a positive mass than are to be drawn without replacement."""


class KindError(SumTreeError, TypeError):
    """The operation is not one of this kind of tree."""


class ClosedTreeError(SumTreeError, ValueError):
    """A tree was closed: its memory is freed."""


class CorruptTreeError(SumTreeError, RuntimeError):
    """A tree violates its own invariants: memory was overwritten, or libsumtree has a fault."""


class BackendError(SumTreeError, RuntimeError):
    """A backend is unknown, not installed, of another ABI version, or cannot run here."""


class DeviceError(BackendError):
    """There is no such device, or the gpu backend cannot run on it."""


class DeviceArrayError(ArgumentError):
    """An array is not in the memory of the tree's device, or not laid out as it must be there."""


class VerificationError(SumTreeError, RuntimeError):
    """An installed backend does not do what the contract says."""


class TuningError(SumTreeError, ValueError):
    """A tuning file is damaged, was measured elsewhere, or cannot be written."""


class BenchmarkError(SumTreeError, RuntimeError):
    """A benchmark cannot run here, or what it compares does not give the same bits."""


class BenchmarkUnavailableError(BenchmarkError):
    """What a benchmark would compare with is not on this machine."""


class IdError(SumTreeError, IndexError):
    """An id was never issued by this buffer."""


class IdsExhaustedError(SumTreeError, OverflowError):
    """A buffer has issued all of its 2**40 ids."""


class StaleIdError(SumTreeError, LookupError):
    """An id names a transition that the buffer no longer holds."""


class CheckpointError(SumTreeError, ValueError):
    """A checkpoint cannot be written or read."""


class CheckpointCorruptError(CheckpointError):
    """A file is not a checkpoint, or is not the one that was written: its digest does not match."""


class CheckpointFormatError(CheckpointError):
    """A checkpoint has a newer format than this version of libsumtree reads."""


class CheckpointMismatchError(CheckpointError):
    """A checkpoint does not fit what was asked for, such as its record dtype."""


class MetricsError(SumTreeError, ValueError):
    """A file is no metrics file of a known schema, or cannot be written as one."""


class ReplayError(SumTreeError, RuntimeError):
    """The replay service cannot go on as asked."""


class WorldError(ReplayError):
    """The MPI world does not have the number of ranks that was asked for."""


class ProtocolError(ReplayError):
    """A message that a replay rank or its client received is not one of the protocol."""


class RejectedError(ReplayError):
    """The replay rank refused a batch."""


class ReplayTimeoutError(ReplayError, TimeoutError):
    """No answer came within the time allowed.

    Attributes
    ----------
    waits_for : str
        What the client waited for in vain: ``"rate limiter"``, ``"turn"`` (others are first),
        ``"checkpoint"``, ``"payload"`` or ``"receiver"``, as the replay rank said, or
        ``"answer"`` if it said nothing.
    """

    def __init__(self, message: str, waits_for: str = "answer") -> None:
        super().__init__(message)
        self.waits_for = waits_for


class ReplayStopped(ReplayError):  # noqa: N818 - it is no error
    """The replay rank is ending; no more transitions are taken or given."""


def no_mpi(error: RuntimeError) -> str:
    """Say what to do where mpi4py is installed and finds no MPI library."""
    first = str(error).split("\n")[0]
    return f"mpi4py: {first}: load the MPI of this site, or pip install mpich"


STATUS_ERRORS: dict[str, type[SumTreeError]] = {
    "ARGUMENT": ArgumentError,
    "CAPACITY": CapacityError,
    "MEMORY": OutOfMemoryError,
    "INDEX": IndexOutOfRangeError,
    "RANGE": RangeError,
    "MASS": MassError,
    "VALUE": NotANumberError,
    "PRIORITY": PriorityError,
    "TARGET": TargetError,
    "EXPONENT": ExponentError,
    "EMPTY": EmptyTreeError,
    "KIND": KindError,
    "CORRUPT": CorruptTreeError,
    "DEVICE": DeviceError,
}
