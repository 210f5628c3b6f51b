"""Which GPU a tree is made on."""

from __future__ import annotations

import os
from typing import Any

from . import _core
from .arguments import as_integer
from .errors import DeviceError
from .machine import whole_number

LOCAL_RANK_VARIABLES = (
    "OMPI_COMM_WORLD_LOCAL_RANK",  # Open MPI
    "MPI_LOCALRANKID",  # MPICH and Intel MPI, with Hydra
    "MV2_COMM_WORLD_LOCAL_RANK",  # MVAPICH
    "PALS_LOCAL_RANKID",  # HPE Cray
    "JSM_NAMESPACE_LOCAL_RANK",  # IBM jsrun
    "SLURM_LOCALID",  # Slurm, whatever the MPI
    "PMI_LOCAL_RANK",
)
"""Where launchers of MPI say which of the ranks of its node a process is, the first that is set."""


def local_rank() -> int:
    """Give the number of this process among the ranks of its node; 0 without a launcher of MPI."""
    for variable in LOCAL_RANK_VARIABLES:
        number = whole_number(os.environ.get(variable, ""))
        if number is not None:
            return number
    return 0


def choose_device(library: _core.Backend, requested: Any) -> int | None:
    """Turn the device that was asked for into the one to make a tree on.

    Parameters
    ----------
    library : Backend
        An open backend.
    requested : int or None
        None takes the local rank modulo the number of devices: the ranks of a node are shared out
        among its GPUs, and a process that no launcher of MPI started takes device 0.

    Returns
    -------
    int or None
        None for a backend whose trees are in host memory.

    Raises
    ------
    DeviceError
        If there is no such device, or none that can be used: then saying what is missing.
    ArgumentTypeError
        If it is not an integer.
    """
    device = None if requested is None else as_integer(requested, "device")
    if library.name != "gpu":
        if device is not None:
            raise DeviceError(
                f"device is {device}: backend {library.name!r} keeps its trees in host memory; "
                "only backend 'gpu' takes a device"
            )
        return None
    count = library.device_count
    if count == 0:
        raise DeviceError(f"backend 'gpu' cannot run here: {library.device_problem}")
    if device is None:
        return local_rank() % count
    if not 0 <= device < count:
        raise DeviceError(f"device is {device}: there are {count}, 0 .. {count - 1}")
    return device
