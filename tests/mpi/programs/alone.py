"""An actor of the tests, beside `libsumtree replay`: `alone.py [role]`."""

import sys

import roles
from mpi4py import MPI

role = getattr(roles, (sys.argv[1:] or ["adds_some"])[0])
role(MPI.COMM_WORLD, MPI.COMM_WORLD)
