"""Faults of what is measured: metrics and tuning."""

from __future__ import annotations

from mutant import Mutant, noticed_by

MUTANTS = [
    Mutant(
        "results not compared",
        "python/libsumtree/bench/trees.py",
        "    if theirs.tobytes() == ours.tobytes():\n",
        "    if True:\n",
        ["tests/python/test_bench.py::test_a_contestant_that_goes_wrong_is_seen"],
    ),
    Mutant(
        "the same work again",
        "python/libsumtree/bench/racing.py",
        "    for way in (there, reversed(there)):\n        work = draw()\n",
        "    work = draw()\n    for way in (there, reversed(there)):\n",
        ["tests/python/test_bench.py::test_a_round_goes_there_and_back_with_fresh_work"],
    ),
    Mutant(
        "a ratio of medians",
        "python/libsumtree/bench/report.py",
        "np.median(seconds[:, places].min(axis=1) / seconds[:, -1])",
        "np.median(seconds[:, places].min(axis=1)) / np.median(seconds[:, -1])",
        ["tests/python/test_bench.py::test_ratios_are_within_rounds"],
    ),
    Mutant(
        "a server's losses unseen",
        "python/libsumtree/bench/intake/rounds.py",
        "    if held != right:\n",
        "    if held.inserted != right.inserted and held.digest:\n",
        noticed_by("tests/mpi/test_bench_intake.py", "a_server_that_holds_something_else_is_seen"),
    ),
    Mutant(
        "losses unseen in a timed run",
        "python/libsumtree/bench/intake/rounds.py",
        "        if (held.inserted, held.size) != (sent, min(sent, run.task.kind.capacity)):\n",
        "        if held.size > sent:\n",
        noticed_by(
            "tests/mpi/test_bench_intake.py", "a_server_that_loses_something_while_it_is_timed"
        ),
    ),
    Mutant(
        "a ratio of median rates",
        "python/libsumtree/bench/intake/tables.py",
        "float(np.median(over / under))",
        "float(np.median(over) / np.median(under))",
        noticed_by("tests/mpi/test_bench_intake.py", "ratios_are_within_rounds"),
    ),
    Mutant(
        "a tuning of another machine",
        "python/libsumtree/tuning.py",
        "    if tuning.kind != kind:\n",
        "    if False:\n",
        ["tests/python/test_tuning.py::test_a_file_of_another_machine_is_ignored"],
    ),
]
