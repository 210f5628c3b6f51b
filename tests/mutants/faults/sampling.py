"""Faults of draws: limits, ages, exponents, and draws without replacement."""

from __future__ import annotations

from mutant import Mutant, noticed_by

BUFFER = "python/libsumtree/buffer.py"
RINGS = "python/libsumtree/ring.py"
INTAKE = "python/libsumtree/intake.py"
DISTINCT = "python/bindings/distinct.h"
TREE = "python/libsumtree/tree.py"
WITHDRAWAL = "python/libsumtree/withdrawal.py"
PERSISTENCE = "python/libsumtree/persistence.py"
MASSES = "python/libsumtree/masses.py"
SNAPSHOT = "python/libsumtree/snapshot.py"

MUTANTS = [
    Mutant(
        "repetitions without replacement",
        DISTINCT,
        "if (!is_new(indices_[k])) continue;",
        "(void)is_new(indices_[k]);",
        noticed_by(
            "tests/python/test_tree_distinct.py", "draws_are_the_references_to_the_last_bit"
        ),
    ),
    Mutant(
        "masses that were drawn are not put back",
        DISTINCT,
        "const auto restored = set(0, results_.masses, 1);",
        "const auto restored = SUMTREE_OK;",
        noticed_by("tests/python/test_tree_distinct.py", "more_than_there_are_changes_nothing"),
    ),
    Mutant(
        "doubles of a draw that failed are gone",
        DISTINCT,
        "sumtree_philox next = *rng;",
        "sumtree_philox &next = *rng;",
        noticed_by("tests/python/test_tree_distinct.py", "more_than_there_are_changes_nothing"),
    ),
    Mutant(
        "long rounds beside an overwhelming leaf",
        DISTINCT,
        "wanted = std::min(count_ - taken_, 2 * (taken_ - before));",
        "wanted = count_ - taken_;",
        noticed_by("tests/python/test_tree_distinct.py", "overwhelming_leaves_cost_no_long_rounds"),
    ),
    Mutant(
        "expansions as if each were drawn from all",
        DISTINCT,
        "            rest = rest + results_.masses[k];\n",
        "            if (k == count_ - 1) {\n"
        "                for (int64_t j = 0; j < count_; ++j) rest = rest + results_.masses[j];\n"
        "            }\n",
        noticed_by(
            "tests/python/test_tree_distinct.py", "expansions_are_unbiased_where_weights_are_not"
        ),
    ),
    Mutant(
        "a draw that was struck is drawn on",
        BUFFER,
        "            self._set_held_masses(np.where(self._drawable(), self._held_masses(), 0.0))\n",
        "",
        ["tests/python/test_buffer_exceptions.py"],
    ),
    Mutant(
        "the old are not withdrawn by what is added in one piece",
        INTAKE,
        "        ring._withdraw_old()\n",
        "        pass\n",
        noticed_by(
            "tests/python/test_buffer_withdrawal.py",
            "the_default_mass_is_the_largest_before_any_grows_too_old",
        ),
    ),
    Mutant(
        "counts of those that were replaced",
        WITHDRAWAL,
        "            counts[: fresh - first] = 0\n",
        "",
        noticed_by(
            "tests/python/test_buffer_withdrawal.py", "counts_begin_anew_where_a_slot_is_taken"
        ),
    ),
    Mutant(
        "twice in one batch counts once",
        WITHDRAWAL,
        "counts[drawn] += times",
        "counts[drawn] += 1",
        noticed_by("tests/python/test_buffer_withdrawal.py", "twice_in_one_batch_counts_twice"),
    ),
    Mutant(
        "withdrawn one draw late",
        WITHDRAWAL,
        "return drawn[counts[drawn] >= limit]",
        "return drawn[counts[drawn] > limit]",
        noticed_by(
            "tests/python/test_buffer_withdrawal.py",
            "a_transition_is_withdrawn_when_it_was_drawn_so_many_times",
        ),
    ),
    Mutant(
        "an age of one more",
        WITHDRAWAL,
        "start, stop = max(self._aged, oldest), next_number - self.max_age",
        "start, stop = max(self._aged, oldest), next_number - self.max_age - 1",
        noticed_by("tests/python/test_buffer_withdrawal.py", "only_the_newest_are_drawn"),
    ),
    Mutant(
        "those drawn often enough are drawn on",
        BUFFER,
        "            if len(spent):\n",
        "            if False:\n",
        noticed_by(
            "tests/python/test_buffer_withdrawal.py",
            "a_transition_is_withdrawn_when_it_was_drawn_so_many_times",
        ),
    ),
    Mutant(
        "a priority brings a withdrawn transition back",
        BUFFER,
        "            live &= ~self._withdrawal.holds(numbers, self.inserted)\n",
        "",
        noticed_by(
            "tests/python/test_buffer_withdrawal.py",
            "a_priority_for_a_withdrawn_transition_is_checked_and_skipped",
            "only_the_newest_are_drawn",
        ),
    ),
    Mutant(
        "withdrawn counted as stale",
        BUFFER,
        """            stale = int(live.size - np.count_nonzero(live))
            live &= ~self._withdrawal.holds(numbers, self.inserted)
""",
        """            live &= ~self._withdrawal.holds(numbers, self.inserted)
            stale = int(live.size - np.count_nonzero(live))
""",
        noticed_by("tests/python/test_buffer_withdrawal.py", "only_the_newest_are_drawn"),
    ),
    Mutant(
        "the old are withdrawn at the next draw only",
        INTAKE,
        "            buffer._withdraw_old()\n",
        "",
        noticed_by("tests/python/test_buffer_withdrawal.py", "only_the_newest_are_drawn"),
    ),
    Mutant(
        "counts of the newest alone are saved",
        SNAPSHOT,
        "datasets[state.TIMES_SAMPLED] = [self._times]",
        "datasets[state.TIMES_SAMPLED] = [np.zeros_like(self._times)]",
        noticed_by(
            "tests/python/test_buffer_withdrawal.py", "a_loaded_buffer_goes_on_with_its_limits"
        ),
    ),
    Mutant(
        "a withdrawn transition with a mass is loaded",
        PERSISTENCE,
        "        if drawn.any():\n",
        "        if False:\n",
        noticed_by(
            "tests/python/test_buffer_withdrawal.py",
            "counts_and_limits_that_do_not_fit_are_refused",
        ),
    ),
    Mutant(
        "counts left behind by redistribution",
        "python/libsumtree/redistribution.py",
        "        buffer.set_times_sampled(ids, times)\n",
        "",
        noticed_by(
            "tests/python/test_buffer_withdrawal.py", "redistribution_carries_counts_and_limits"
        ),
    ),
    Mutant(
        "an incremental checkpoint across two alphas",
        PERSISTENCE,
        "    own &= base.alpha == buffer.alpha\n",
        "",
        noticed_by(
            "tests/python/test_buffer_alpha.py", "a_checkpoint_after_another_alpha_is_a_full_one"
        ),
    ),
    Mutant(
        "alpha set, masses left",
        BUFFER,
        "                self._set_held_masses(masses)\n",
        "",
        noticed_by(
            "tests/python/test_buffer_alpha.py", "new_priorities_are_taken_to_the_new_alpha"
        ),
    ),
    Mutant(
        "alpha 0 left without priorities",
        MASSES,
        "        if masses.any():\n",
        "        if False:\n",
        noticed_by(
            "tests/python/test_buffer_alpha.py", "alpha_0_cannot_be_left_without_priorities"
        ),
    ),
    Mutant(
        "the quotient of two alphas as a double",
        MASSES,
        "power = np.longdouble(alpha) / np.longdouble(old)",
        "power = alpha / old",
        noticed_by("tests/python/test_buffer_alpha.py", "the_power_itself_is_rounded_once"),
    ),
    Mutant(
        "a mass above 2^960 from another alpha",
        MASSES,
        "bad = ~(new <= MAX_MASS)",
        "bad = np.isnan(new)",
        noticed_by("tests/python/test_buffer_alpha.py", "a_mass_that_would_be_too_large_is_named"),
    ),
    Mutant(
        "bare frames get a mass by alpha",
        RINGS,
        "            drawable &= self._storage",
        "            drawable |= self._storage",
        noticed_by("tests/python/test_buffer_alpha.py", "bare_frames_stay_without_mass"),
    ),
    Mutant(
        "squares in another order than the tree's",
        TREE,
        "values = values[0::2] + values[1::2]",
        "values = values[: len(values) // 2] + values[len(values) // 2 :]",
        ["tests/python/test_tree_distinct.py::test_the_effective_sample_size_is_the_references"],
    ),
]
