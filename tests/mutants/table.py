"""All mutants: faults that sum trees, replay buffers and their files have had elsewhere."""

from __future__ import annotations

from faults import (
    compat,
    devices,
    files,
    frames,
    jobs,
    measuring,
    rings,
    sampling,
    service,
    shards,
    trees,
)
from mutant import Mutant

MUTANTS: list[Mutant] = [
    *trees.MUTANTS,
    *rings.MUTANTS,
    *sampling.MUTANTS,
    *frames.MUTANTS,
    *files.MUTANTS,
    *service.MUTANTS,
    *shards.MUTANTS,
    *measuring.MUTANTS,
    *devices.MUTANTS,
    *jobs.MUTANTS,
    *compat.MUTANTS,
]
