"""A ring of buffers that is closed while one of them is lent: no message was waiting for it."""

import time

from mpi4py import MPI

from libsumtree.replay.messages import CONTROL_TAG
from libsumtree.replay.receiving import Malformed, make_receiver

receiver = make_receiver("staged", MPI.COMM_SELF, 0)
request = MPI.COMM_SELF.Isend([b"hello", MPI.BYTE], 0, CONTROL_TAG)
while (received := receiver.next()) is None:
    time.sleep(0.001)
assert not isinstance(received, Malformed)
assert bytes(received[0]) == b"hello"
receiver.close()
request.Wait()
print("closed", flush=True)
