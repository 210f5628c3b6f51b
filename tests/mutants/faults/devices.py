"""Faults of devices, and of arrays in their memory."""

from __future__ import annotations

from mutant import Mutant, noticed_by

MUTANTS = [
    Mutant(
        "all ranks on one GPU",
        "python/libsumtree/devices.py",
        "        return local_rank() % count\n",
        "        return 0\n",
        noticed_by("tests/python/test_devices.py", "ranks_of_a_node_share_its_gpus"),
    ),
    Mutant(
        "a rank beyond the GPUs",
        "python/libsumtree/devices.py",
        "        return local_rank() % count\n",
        "        return local_rank()\n",
        noticed_by("tests/python/test_devices.py", "ranks_of_a_node_share_its_gpus"),
    ),
    Mutant(
        "a GPU that is not there",
        "python/libsumtree/devices.py",
        "    if not 0 <= device < count:\n",
        "    if device < 0:\n",
        noticed_by("tests/python/test_devices.py", "a_device_that_is_not_there"),
    ),
    Mutant(
        "no GPU, no word",
        "python/libsumtree/devices.py",
        'cannot run here: {library.device_problem}")',
        'cannot run here")',
        noticed_by("tests/python/test_devices.py", "what_is_missing_is_said"),
    ),
    Mutant(
        "device arrays through the host",
        "python/libsumtree/device_arrays.py",
        "    return None if kind in (CPU, CUDA_HOST) and own[0] != CPU else (kind, number)\n",
        "    return None if own[0] != CPU else (kind, number)\n",
        noticed_by("tests/python/test_devices.py", "a_host_tree_refuses_device_arrays"),
    ),
    Mutant(
        "results that overlap",
        "python/libsumtree/tree.py",
        "        if abs(one - other) < nbytes:\n",
        "        if one == other:\n",
        noticed_by("tests/python/test_devices.py", "out_shares_no_memory"),
    ),
    Mutant(
        "a close that frees nothing",
        "python/libsumtree/leaves.py",
        "        self._close()\n",
        "        self._capacity\n",
        noticed_by(
            "tests/python/test_devices.py",
            "a_closed_tree_says_so",
            "a_closed_tree_still_says_what_it_was",
        ),
    ),
]
