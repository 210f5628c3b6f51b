"""What no server of one core can pass: each record is copied once, into the ring."""

from __future__ import annotations

import time

import numpy as np

from ...ring import take_storage
from .records import BATCH, Record, pool

_SECONDS = 0.3


def copy_rate(record: Record) -> float:
    """Give how many transitions a second one core copies into a ring, a batch at a time.

    The batches lie in the memory of this very process: no system call, no other process.
    """
    ring = take_storage(record.capacity, record.dtype).view(np.uint8)
    batches = [rows.view(np.uint8) for rows, _ in pool(record, 0)]
    nbytes = len(batches[0])
    count, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < _SECONDS:
        place = nbytes * count % (len(ring) - nbytes)
        ring[place : place + nbytes] = batches[count % len(batches)]
        count += 1
    return BATCH * count / passed
