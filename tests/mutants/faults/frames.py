"""Faults of frames that are stored once."""

from __future__ import annotations

from mutant import Mutant, noticed_by

RINGS = "python/libsumtree/ring.py"
INTAKE = "python/libsumtree/intake.py"
PERSISTENCE = "python/libsumtree/persistence.py"
FRAMES = "python/libsumtree/frames.py"

MUTANTS = [
    Mutant(
        "no record kept beyond the capacity",
        RINGS,
        "take_storage(self._tree.capacity + self._context, self._dtype)",
        "take_storage(self._tree.capacity, self._dtype)",
        noticed_by(
            "tests/python/test_frames.py", "a_transition_goes_when_its_record_does_and_never_before"
        ),
    ),
    Mutant(
        "a bare record gets a mass",
        INTAKE,
        "np.where(ahead[self._placed - self._kept :] > 0, masses, 0.0)",
        "np.broadcast_to(masses, self._kept)",
        noticed_by("tests/python/test_frames.py", "bare_records_are_no_transitions"),
    ),
    Mutant(
        "a bare record updated",
        RINGS,
        "        if bare.any():\n",
        "        if bare.all():\n",
        noticed_by("tests/python/test_frames.py", "bare_records_are_no_transitions"),
    ),
    Mutant(
        "a stack reaches into the episode before",
        FRAMES,
        "ends - np.minimum(back, reach)",
        "ends - back",
        noticed_by("tests/python/test_frames.py", "every_transition_is_there_once"),
    ),
    Mutant(
        "frames of another episode are padding",
        FRAMES,
        "        stacks[back > reach] = 0\n",
        "        stacks[back >= reach] = 0\n",
        noticed_by("tests/python/test_frames.py", "draws_are_those_of_the_naive_buffer"),
    ),
    Mutant(
        "a transition may end in another episode",
        FRAMES,
        "reaches = positions + ahead < ends",
        "reaches = positions + ahead < count",
        noticed_by("tests/python/test_frames.py", "an_episode_is_not_reached_across_another"),
    ),
    Mutant(
        "too few frames of the batch before",
        FRAMES,
        "self._free - self.layout.context)",
        "self._free - self.layout.context + 1)",
        noticed_by("tests/python/test_frames.py", "every_transition_is_there_once"),
    ),
    Mutant(
        "frames before the oldest transition not saved",
        PERSISTENCE,
        "            first = self._oldest_record\n",
        "            first = self._oldest\n",
        noticed_by("tests/python/test_frames.py", "loaded_with_another_capacity"),
    ),
    Mutant(
        "a filled intake is not checked for its frames",
        INTAKE,
        "        check_runs(age, ahead, layout.stack, self._placed == self.count)\n",
        "",
        noticed_by("tests/python/test_frames.py", "batches_that_do_not_stand_by_themselves"),
    ),
    Mutant(
        "frames are checked once others were retired for them",
        INTAKE,
        "            if self._layout is not None:\n                check_runs(",
        "            if False:\n                check_runs(",
        noticed_by("tests/python/test_frames.py", "batches_that_do_not_stand_by_themselves"),
    ),
]
