"""Faults of a ring of transitions: ids, slots, masses and what an exception leaves."""

from __future__ import annotations

from mutant import Mutant, noticed_by

BUFFER = "python/libsumtree/buffer.py"
IDS = "python/libsumtree/ids.py"
RINGS = "python/libsumtree/ring.py"
INTAKE = "python/libsumtree/intake.py"
ANNEALING = "python/libsumtree/annealing.py"
SUMTREE = "src/sumtree.c"

MUTANTS = [
    Mutant(
        "stale applied",
        IDS,
        "return numbers, known & (numbers < ends) & (numbers >= oldest)",
        "return numbers, known & (numbers < ends)",
        noticed_by(
            "tests/python/test_buffer_sample.py",
            "a_priority_for_a_transition_that_was_overwritten_is_skipped_and_counted",
        ),
    ),
    Mutant(
        "lost ids applied",
        IDS,
        "return numbers, known & (numbers < ends) & (numbers >= oldest)",
        "return numbers, numbers >= oldest",
        noticed_by(
            "tests/python/test_buffer_save.py", "ids_issued_after_the_checkpoint_are_stale_for_ever"
        ),
    ),
    Mutant(
        "ids never issued are stale",
        IDS,
        "if never.any():",
        "if False:",
        noticed_by(
            "tests/python/test_buffer_sample.py", "a_batch_with_an_id_never_issued_changes_nothing"
        ),
    ),
    Mutant(
        "a priority for a stale id is not validated",
        BUFFER,
        '            masses = self.check_priorities(priorities, numbers.shape, "ids")\n',
        "            masses = self.check_priorities(\n"
        '                np.where(live, priorities, 1.0), numbers.shape, "ids"\n'
        "            )\n",
        noticed_by("tests/python/test_buffer_sample.py", "priorities_for_stale_ids_are_validated"),
    ),
    Mutant(
        "capacity doubled",
        RINGS,
        "self._tree = PriorityTree(capacity, ",
        "self._tree = PriorityTree(2 * capacity, ",
        noticed_by(
            "tests/python/test_buffer_add.py", "the_oldest_are_replaced_and_their_ids_are_stale"
        ),
    ),
    Mutant(
        "alpha applied twice",
        RINGS,
        "        return masses_of(values, self._alpha)\n",
        "        return masses_of(masses_of(values, self._alpha), self._alpha)\n",
        noticed_by("tests/python/test_buffer_add.py", "alpha_is_applied_once"),
    ),
    Mutant(
        "the largest mass taken for a priority",
        "python/libsumtree/intake.py",
        "np.array(max(tree.max, elsewhere) or 1.0)",
        "np.array(tree.max**ring._alpha or 1.0)",
        noticed_by("tests/python/test_buffer_add.py", "alpha_is_applied_once"),
    ),
    Mutant(
        "historic max",
        "python/libsumtree/intake.py",
        "masses = np.array(max(tree.max, elsewhere) or 1.0)",
        "ring._most = max(getattr(ring, '_most', 0.0), tree.max)\n"
        "        masses = np.array(ring._most or 1.0)",
        noticed_by(
            "tests/python/test_buffer_add.py", "new_transitions_take_the_largest_mass_held_now"
        ),
    ),
    Mutant(
        "max after the oldest are gone",
        INTAKE,
        "                intake.retire(self)\n",
        "                intake.retire(self)\n"
        "                intake._mass = self._tree.max or 1.0\n",
        noticed_by("tests/python/test_buffer_add.py", "the_largest_mass_is_that_before_the_call"),
    ),
    Mutant(
        "retired slots are drawn",
        INTAKE,
        "            buffer._tree._set_range(slots.start, slots.stop - slots.start, _EMPTY)\n",
        "            pass\n",
        noticed_by("tests/python/test_buffer_add.py", "a_sample_never_gives_a_retired_slot"),
    ),
    Mutant(
        "abandoned rows are not zeroed",
        INTAKE,
        "            segment.view(np.uint8)[...] = 0\n",
        "            pass\n",
        noticed_by("tests/python/test_buffer_add.py", "an_abandoned_intake_leaves_empty_slots"),
    ),
    Mutant(
        "the first rows of a long batch are kept",
        INTAKE,
        "rows = transitions[self.count - self._placed :]",
        "rows = transitions[: self._placed]",
        noticed_by(
            "tests/python/test_buffer_add.py", "a_batch_longer_than_the_ring_keeps_its_last_rows"
        ),
    ),
    Mutant(
        "priorities shifted where the ring wraps",
        INTAKE,
        "            kept = kept[length:] if kept.ndim else kept\n",
        "",
        noticed_by(
            "tests/python/test_buffer_add.py",
            "priorities_go_with_their_transitions_where_the_ring_wraps",
        ),
    ),
    Mutant(
        "fields matched by their place",
        "python/libsumtree/records.py",
        "    if given.names != own.names:\n",
        "    if len(given.names or ()) != len(own.names or ()):\n",
        noticed_by("tests/python/test_buffer_add.py", "records_of_another_dtype_change_nothing"),
    ),
    Mutant(
        "beta not clamped",
        ANNEALING,
        "return min(max(self.start * (1.0 - progress) + self.stop * progress, 0.0), 1.0)",
        "return self.start * (1.0 - progress) + self.stop * progress",
        noticed_by("tests/python/test_buffer_sample.py", "a_schedule_is_clamped_to_0_to_1"),
    ),
    Mutant(
        "beta stands still",
        BUFFER,
        "self._sampled += counts",
        "self._sampled += 0",
        noticed_by("tests/python/test_buffer_sample.py", "a_schedule_moves_beta_with_every_sample"),
    ),
    Mutant(
        "beta above 1 accepted",
        SUMTREE,
        "if (!(beta >= 0.0 && beta <= 1.0))",
        "if (!(beta >= 0.0))",
        noticed_by("tests/python/test_buffer_sample.py", "a_failing_sample_takes_no_random_number"),
    ),
]
