"""A replay rank that cannot be made, and another in the same process: `again.py FOLDER`."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from libsumtree.errors import SumTreeError
from libsumtree.replay import ReplayConfig, ReplayRank

folder = Path(sys.argv[1])
dtype = np.dtype([("x", "<f8")])
if MPI.COMM_WORLD.Get_rank() == 0:
    for bad in ({"resume": str(folder / "none.h5")}, {"metrics": folder / "none" / "m.jsonl"}):
        try:
            ReplayRank(MPI.COMM_WORLD, ReplayConfig(8, dtype, checkpoint_dir=folder, **bad))
        except SumTreeError as error:
            print(error)
    made = ReplayRank(MPI.COMM_WORLD, ReplayConfig(8, dtype, checkpoint_dir=folder))
    print(made.buffer)
