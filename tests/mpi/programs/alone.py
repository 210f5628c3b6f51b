"""An actor of the tests, beside `libsumtree replay`."""

import roles
from mpi4py import MPI

roles.adds_some(MPI.COMM_WORLD, MPI.COMM_WORLD)
