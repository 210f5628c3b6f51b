"""An actor of the tests, beside `libsumtree replay`: `alone.py [role]`."""

import sys

import roles
import waiting
from mpi4py import MPI

name = (sys.argv[1:] or ["adds_some"])[0]
role = getattr(waiting if name.startswith("waiting") else roles, name)
role(MPI.COMM_WORLD, MPI.COMM_WORLD)
