"""The mutants: faults that sum trees, replay buffers and their files have had elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A fault: `old`, which stands once in `file`, becomes `new`; `targets` must notice.

    Attributes
    ----------
    name : str
    file : str
        Below the checkout: of src/, of python/libsumtree/ or of python/bindings/.
    old, new : str
    targets : list of str
        What pytest is given.
    level : str
        The vector level that the mutated code is for: without it, nothing can notice.
    """

    name: str
    file: str
    old: str
    new: str
    targets: list[str]
    level: str = "baseline"


BUFFER, IDS = "python/libsumtree/buffer.py", "python/libsumtree/ids.py"
RINGS, INTAKE = "python/libsumtree/ring.py", "python/libsumtree/intake.py"
DISTINCT = "python/bindings/distinct.h"
TREE, WITHDRAWAL = "python/libsumtree/tree.py", "python/libsumtree/withdrawal.py"
PERSISTENCE, ANNEALING = "python/libsumtree/persistence.py", "python/libsumtree/annealing.py"
FRAMES, MASSES = "python/libsumtree/frames.py", "python/libsumtree/masses.py"
CHECKPOINT, SNAPSHOT = "python/libsumtree/checkpoint", "python/libsumtree/snapshot.py"
UPDATES, DESCENTS, X86 = "src/updates_host.c", "src/descents_host.c", "src/descents_x86.c"
CHECKS, PHILOX, RULES, SUMTREE = (
    "src/checks.c",
    "src/philox.c",
    "src/rules.h",
    "src/sumtree.c",
)
WEIGH = """        masses[k] = leaf[indices[k]];
        weights[k] = weight_of(smallest, masses[k], beta);
"""
GOES_RIGHT = "side == SUMTREE_SIDE_RIGHT ? left_sum <= rest : left_sum < rest"


def buffer_tests(topic: str, *names: str) -> list[str]:
    return [f"tests/python/test_buffer_{topic}.py::test_{name}" for name in names]


def distinct_tests(*names: str) -> list[str]:
    return [f"tests/python/test_tree_distinct.py::test_{name}" for name in names]


def frame_tests(*names: str) -> list[str]:
    return [f"tests/python/test_frames.py::test_{name}" for name in names]


def intake_tests(*names: str) -> list[str]:
    return [f"tests/mpi/test_bench_intake.py::test_{name}" for name in names]


def tree_tests(*names: str) -> list[str]:
    return [f"tests/python/test_tree_contract.py::test_{name}" for name in names]


def file_tests(*names: str) -> list[str]:
    return [f"tests/python/test_checkpoint_file.py::test_{name}" for name in names]


def writer_tests(*names: str) -> list[str]:
    return [f"tests/python/test_checkpoint_writers.py::test_{name}" for name in names]


def state_tests(*names: str) -> list[str]:
    return [f"tests/python/test_checkpoint_states.py::test_{name}" for name in names]


def snapshot_tests(*names: str) -> list[str]:
    return [f"tests/python/test_snapshot.py::test_{name}" for name in names]


def folder_tests(*names: str) -> list[str]:
    return [f"tests/python/test_checkpoint_folder.py::test_{name}" for name in names]


def shard_tests(*names: str) -> list[str]:
    return [f"tests/mpi/test_replay_shards.py::test_{name}" for name in names]


def fault_tests(*names: str) -> list[str]:
    return [f"tests/mpi/test_replay_shard_faults.py::test_{name}" for name in names]


def client_tests(*names: str) -> list[str]:
    return [f"tests/mpi/test_replay_shard_clients.py::test_{name}" for name in names]


def routing_tests(*names: str) -> list[str]:
    return [f"tests/python/test_replay_routing.py::test_{name}" for name in names]


def service_tests(*names: str) -> list[str]:
    return [f"tests/mpi/test_replay_service.py::test_{name}" for name in names]


def waiting_tests(*names: str) -> list[str]:
    return [f"tests/mpi/test_replay_waiting.py::test_{name}" for name in names]


def compat_tests(topic: str, *names: str) -> list[str]:
    return [f"tests/python/test_compat_{topic}.py::test_{name}" for name in names]


TREES = [
    Mutant(
        "delta update",
        UPDATES,
        "        update_kind_below(tree, SUMTREE_KIND_PRIORITY, height, first, end, count, "
        "indices, masses, mass_step);\n",
        """        write_leaves(tree, SUMTREE_KIND_PRIORITY, count, indices, masses, mass_step);
        for (int64_t k = 0; k < count; ++k) {
            int64_t i = (tree->padded + indices[k]) >> 1;
            double delta = -tree->sum[i];
            if (i > 0) delta += tree->sum[2 * i] + tree->sum[2 * i + 1];
            for (; i > 0; i >>= 1) {
                const double sum = tree->sum[i] + delta;
                recompute(tree, SUMTREE_KIND_PRIORITY, 2 * i >= tree->padded, i);
                tree->sum[i] = sum;
            }
        }
""",
        tree_tests("updates_do_not_drift"),
    ),
    Mutant(
        "> for >= (side right)",
        RULES,
        GOES_RIGHT,
        "side == SUMTREE_SIDE_RIGHT ? left_sum < rest : left_sum < rest",
        tree_tests("which_side_takes_a_boundary"),
    ),
    Mutant(
        "> for >= (side left)",
        RULES,
        GOES_RIGHT,
        "side == SUMTREE_SIDE_RIGHT ? left_sum <= rest : left_sum <= rest",
        tree_tests("which_side_takes_a_boundary"),
    ),
    Mutant(
        "left and right swapped in ties",
        RULES,
        GOES_RIGHT,
        "side != SUMTREE_SIDE_RIGHT ? left_sum <= rest : left_sum < rest",
        tree_tests("which_side_takes_a_boundary"),
    ),
    Mutant(
        "a descent enters an empty child",
        RULES,
        "return tree->sum[node] == 0.0 ? descend_by_the_rule",
        "return tree->sum[node] < 0.0 ? descend_by_the_rule",
        tree_tests("a_target_at_the_total_lands_on_the_last_positive_leaf"),
    ),
    Mutant(
        "first duplicate wins",
        UPDATES,
        "for (int64_t k = 0; k < count; ++k) leaf[indices[k]] =",
        "for (int64_t k = count; k-- > 0;) leaf[indices[k]] =",
        buffer_tests("sample", "of_equal_ids_the_last_wins"),
    ),
    Mutant(
        "zero leaf in min",
        RULES,
        "return mass > 0.0 ? mass : __builtin_inf();",
        "return mass >= 0.0 ? mass : __builtin_inf();",
        buffer_tests("sample", "weights_see_only_positive_masses_that_are_held_now"),
    ),
    Mutant(
        "last leaf lost",
        UPDATES,
        "int64_t last = (tree->padded + start + count - 1) >> 1;",
        "int64_t last = (tree->padded + start + count - 2) >> 1;",
        buffer_tests("add", "an_intake_retires_fills_and_commits"),
    ),
    Mutant(
        "a sweep loses its last node",
        UPDATES,
        "for (int64_t i = first; i < end; ++i) recompute(",
        "for (int64_t i = first; i < end - 1; ++i) recompute(",
        buffer_tests("sample", "new_priorities_are_drawn_from_at_once"),
    ),
    Mutant(
        "NaN is a mass",
        RULES,
        "return mass >= 0.0 && mass <= SUMTREE_MAX_MASS;",
        "return !(mass < 0.0 || mass > SUMTREE_MAX_MASS);",
        tree_tests("domain_of_masses"),
    ),
    Mutant(
        "NaN is a priority",
        SUMTREE,
        "return priority >= 0.0 && isfinite(priority) && is_mass(mass);",
        "return !(priority < 0.0) && is_mass(mass);",
        buffer_tests("add", "bad_priorities_change_nothing"),
    ),
    Mutant(
        "negative index accepted",
        CHECKS,
        "bad |= beyond((uint64_t)indices[k], most);",
        "bad |= indices[k] < 0 ? 0 : beyond((uint64_t)indices[k], most);",
        tree_tests("a_negative_index_never_writes"),
    ),
    Mutant(
        "-0.0 stored",
        RULES,
        "return kind == SUMTREE_KIND_MIN ? mass : mass + 0.0;",
        "return mass;",
        tree_tests("domain_of_masses"),
    ),
    Mutant(
        "priority 0 has mass 1 at alpha 0",
        SUMTREE,
        "return priority > 0.0 ? pow(priority, alpha) : 0.0;",
        "return pow(priority, alpha);",
        buffer_tests("add", "alpha_zero_makes_all_alike_but_priority_zero"),
    ),
    Mutant(
        "weights by batch max",
        DESCENTS,
        WEIGH,
        """        masses[k] = leaf[indices[k]];
        double least = smallest * 0.0 + masses[0];
        for (int64_t j = 0; j < count; ++j) least = fmin(least, leaf[indices[j]]);
        weights[k] = weight_of(least, masses[k], beta);
""",
        buffer_tests("sample", "the_largest_weight_over_the_whole_buffer_is_1"),
    ),
    Mutant(
        "random numbers used again",
        PHILOX,
        "            philox_advance(rng->counter, 1);\n",
        "",
        buffer_tests("sample", "draws_are_those_of_numpys_philox"),
    ),
    Mutant(
        "strata forgotten",
        RULES,
        "stratified ? ((double)k + u) / (double)count : u",
        "u",
        buffer_tests("sample", "draws_are_those_of_numpys_philox"),
    ),
    Mutant(
        "a level is skipped between climbs and sweeps",
        UPDATES,
        "sweep_below(tree, kind, climbed + 1, height, first, end);",
        "sweep_below(tree, kind, climbed + 2, height, first, end);",
        tree_tests("every_node_is_the_sum_of_its_children"),
    ),
    Mutant(
        "a lane climbs with the mass of another",
        UPDATES,
        "lane.total[j] = lane.most[j] = leaf[indices[j]];",
        "lane.total[j] = lane.most[j] = leaf[indices[j & ~1]];",
        tree_tests("every_node_is_the_sum_of_its_children"),
    ),
    Mutant(
        "the leaves fetched together are not those that climb",
        UPDATES,
        "        masses += now * mass_step;\n",
        "        masses += next * mass_step;\n",
        tree_tests("every_node_is_the_sum_of_its_children"),
    ),
    Mutant(
        "> for >= in AVX2",
        X86,
        "_mm256_cmp_pd(left_sum, *rest, _CMP_LE_OQ)",
        "_mm256_cmp_pd(left_sum, *rest, _CMP_LT_OQ)",
        tree_tests("which_side_takes_a_boundary"),
        "avx2",
    ),
    Mutant(
        "> for >= in AVX-512, side left",
        X86,
        "_mm512_cmp_pd_mask(left_sum, *rest, _CMP_LT_OQ)",
        "_mm512_cmp_pd_mask(left_sum, *rest, _CMP_LE_OQ)",
        tree_tests("which_side_takes_a_boundary"),
        "avx512",
    ),
    Mutant(
        "a short block of vectors loses its last lane",
        X86,
        "k < count ? targets[k] : 0.0;",
        "k < count - 1 ? targets[k] : 0.0;",
        tree_tests("which_side_takes_a_boundary"),
        "avx2",
    ),
]

RING = [
    Mutant(
        "stale applied",
        IDS,
        "return numbers, known & (numbers < ends) & (numbers >= oldest)",
        "return numbers, known & (numbers < ends)",
        buffer_tests(
            "sample", "a_priority_for_a_transition_that_was_overwritten_is_skipped_and_counted"
        ),
    ),
    Mutant(
        "lost ids applied",
        IDS,
        "return numbers, known & (numbers < ends) & (numbers >= oldest)",
        "return numbers, numbers >= oldest",
        buffer_tests("save", "ids_issued_after_the_checkpoint_are_stale_for_ever"),
    ),
    Mutant(
        "ids never issued are stale",
        IDS,
        "if never.any():",
        "if False:",
        buffer_tests("sample", "a_batch_with_an_id_never_issued_changes_nothing"),
    ),
    Mutant(
        "a priority for a stale id is not validated",
        BUFFER,
        "            masses = self._masses_for(priorities, numbers)\n",
        "            masses = self._masses_for(np.where(live, priorities, 1.0), numbers)\n",
        buffer_tests("sample", "priorities_for_stale_ids_are_validated"),
    ),
    Mutant(
        "capacity doubled",
        RINGS,
        "self._tree = PriorityTree(capacity, ",
        "self._tree = PriorityTree(2 * capacity, ",
        buffer_tests("add", "the_oldest_are_replaced_and_their_ids_are_stale"),
    ),
    Mutant(
        "alpha applied twice",
        BUFFER,
        "        return masses_of(values, self._alpha)\n",
        "        return masses_of(masses_of(values, self._alpha), self._alpha)\n",
        buffer_tests("add", "alpha_is_applied_once"),
    ),
    Mutant(
        "the largest mass taken for a priority",
        "python/libsumtree/intake.py",
        "np.array(max(tree.max, elsewhere) or 1.0)",
        "np.array(tree.max**ring._alpha or 1.0)",
        buffer_tests("add", "alpha_is_applied_once"),
    ),
    Mutant(
        "historic max",
        "python/libsumtree/intake.py",
        "masses = np.array(max(tree.max, elsewhere) or 1.0)",
        "ring._most = max(getattr(ring, '_most', 0.0), tree.max)\n"
        "        masses = np.array(ring._most or 1.0)",
        buffer_tests("add", "new_transitions_take_the_largest_mass_held_now"),
    ),
    Mutant(
        "max after the oldest are gone",
        BUFFER,
        "                intake.retire(self)\n",
        "                intake.retire(self)\n"
        "                intake._mass = self._tree.max or 1.0\n",
        buffer_tests("add", "the_largest_mass_is_that_before_the_call"),
    ),
    Mutant(
        "retired slots are drawn",
        INTAKE,
        "            buffer._tree._set_range(slots.start, slots.stop - slots.start, _EMPTY)\n",
        "            pass\n",
        buffer_tests("add", "a_sample_never_gives_a_retired_slot"),
    ),
    Mutant(
        "abandoned rows are not zeroed",
        INTAKE,
        "            segment.view(np.uint8)[...] = 0\n",
        "            pass\n",
        buffer_tests("add", "an_abandoned_intake_leaves_empty_slots"),
    ),
    Mutant(
        "the first rows of a long batch are kept",
        INTAKE,
        "rows = transitions[self.count - self._placed :]",
        "rows = transitions[: self._placed]",
        buffer_tests("add", "a_batch_longer_than_the_ring_keeps_its_last_rows"),
    ),
    Mutant(
        "priorities shifted where the ring wraps",
        INTAKE,
        "            kept = kept[length:] if kept.ndim else kept\n",
        "",
        buffer_tests("add", "priorities_go_with_their_transitions_where_the_ring_wraps"),
    ),
    Mutant(
        "fields matched by their place",
        RINGS,
        "    if given.names != own.names:\n",
        "    if len(given.names or ()) != len(own.names or ()):\n",
        buffer_tests("add", "records_of_another_dtype_change_nothing"),
    ),
    Mutant(
        "beta not clamped",
        ANNEALING,
        "return min(max(self.start * (1.0 - progress) + self.stop * progress, 0.0), 1.0)",
        "return self.start * (1.0 - progress) + self.stop * progress",
        buffer_tests("sample", "a_schedule_is_clamped_to_0_to_1"),
    ),
    Mutant(
        "beta stands still",
        BUFFER,
        "self._sampled += counts",
        "self._sampled += 0",
        buffer_tests("sample", "a_schedule_moves_beta_with_every_sample"),
    ),
    Mutant(
        "beta above 1 accepted",
        SUMTREE,
        "if (!(beta >= 0.0 && beta <= 1.0))",
        "if (!(beta >= 0.0))",
        buffer_tests("sample", "a_failing_sample_takes_no_random_number"),
    ),
]

SAMPLING = [
    Mutant(
        "repetitions without replacement",
        DISTINCT,
        "if (!is_new(indices_[k])) continue;",
        "(void)is_new(indices_[k]);",
        distinct_tests("draws_are_the_references_to_the_last_bit"),
    ),
    Mutant(
        "masses that were drawn are not put back",
        DISTINCT,
        "const auto restored = set(0, results_.masses, 1);",
        "const auto restored = SUMTREE_OK;",
        distinct_tests("more_than_there_are_changes_nothing"),
    ),
    Mutant(
        "doubles of a draw that failed are gone",
        DISTINCT,
        "sumtree_philox next = *rng;",
        "sumtree_philox &next = *rng;",
        distinct_tests("more_than_there_are_changes_nothing"),
    ),
    Mutant(
        "long rounds beside an overwhelming leaf",
        DISTINCT,
        "wanted = std::min(count_ - taken_, 2 * (taken_ - before));",
        "wanted = count_ - taken_;",
        distinct_tests("overwhelming_leaves_cost_no_long_rounds"),
    ),
    Mutant(
        "expansions as if each were drawn from all",
        DISTINCT,
        "            rest = rest + results_.masses[k];\n",
        "            if (k == count_ - 1) {\n"
        "                for (int64_t j = 0; j < count_; ++j) rest = rest + results_.masses[j];\n"
        "            }\n",
        distinct_tests("expansions_are_unbiased_where_weights_are_not"),
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
        buffer_tests("withdrawal", "the_default_mass_is_the_largest_before_any_grows_too_old"),
    ),
    Mutant(
        "counts of those that were replaced",
        WITHDRAWAL,
        "            counts[: fresh - first] = 0\n",
        "",
        buffer_tests("withdrawal", "counts_begin_anew_where_a_slot_is_taken"),
    ),
    Mutant(
        "twice in one batch counts once",
        WITHDRAWAL,
        "counts[drawn] += times",
        "counts[drawn] += 1",
        buffer_tests("withdrawal", "twice_in_one_batch_counts_twice"),
    ),
    Mutant(
        "withdrawn one draw late",
        WITHDRAWAL,
        "return drawn[counts[drawn] >= limit]",
        "return drawn[counts[drawn] > limit]",
        buffer_tests("withdrawal", "a_transition_is_withdrawn_when_it_was_drawn_so_many_times"),
    ),
    Mutant(
        "an age of one more",
        WITHDRAWAL,
        "start, stop = max(self._aged, oldest), next_number - self.max_age",
        "start, stop = max(self._aged, oldest), next_number - self.max_age - 1",
        buffer_tests("withdrawal", "only_the_newest_are_drawn"),
    ),
    Mutant(
        "those drawn often enough are drawn on",
        BUFFER,
        "            if len(spent):\n",
        "            if False:\n",
        buffer_tests("withdrawal", "a_transition_is_withdrawn_when_it_was_drawn_so_many_times"),
    ),
    Mutant(
        "a priority brings a withdrawn transition back",
        BUFFER,
        "            live &= ~self._withdrawal.holds(numbers, self.inserted)\n",
        "",
        buffer_tests(
            "withdrawal",
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
        buffer_tests("withdrawal", "only_the_newest_are_drawn"),
    ),
    Mutant(
        "the old are withdrawn at the next draw only",
        INTAKE,
        "            buffer._withdraw_old()\n",
        "",
        buffer_tests("withdrawal", "only_the_newest_are_drawn"),
    ),
    Mutant(
        "counts of the newest alone are saved",
        SNAPSHOT,
        "datasets[state.TIMES_SAMPLED] = [self._times]",
        "datasets[state.TIMES_SAMPLED] = [np.zeros_like(self._times)]",
        buffer_tests("withdrawal", "a_loaded_buffer_goes_on_with_its_limits"),
    ),
    Mutant(
        "a withdrawn transition with a mass is loaded",
        PERSISTENCE,
        "        if drawn.any():\n",
        "        if False:\n",
        buffer_tests("withdrawal", "counts_and_limits_that_do_not_fit_are_refused"),
    ),
    Mutant(
        "counts left behind by redistribution",
        "python/libsumtree/redistribution.py",
        "        buffer.set_times_sampled(ids, times)\n",
        "",
        buffer_tests("withdrawal", "redistribution_carries_counts_and_limits"),
    ),
    Mutant(
        "an incremental checkpoint across two alphas",
        PERSISTENCE,
        "    own &= base.alpha == buffer.alpha\n",
        "",
        buffer_tests("alpha", "a_checkpoint_after_another_alpha_is_a_full_one"),
    ),
    Mutant(
        "alpha set, masses left",
        BUFFER,
        "                self._set_held_masses(masses)\n",
        "",
        buffer_tests("alpha", "new_priorities_are_taken_to_the_new_alpha"),
    ),
    Mutant(
        "alpha 0 left without priorities",
        MASSES,
        "        if masses.any():\n",
        "        if False:\n",
        buffer_tests("alpha", "alpha_0_cannot_be_left_without_priorities"),
    ),
    Mutant(
        "the quotient of two alphas as a double",
        MASSES,
        "power = np.longdouble(alpha) / np.longdouble(old)",
        "power = alpha / old",
        buffer_tests("alpha", "the_power_itself_is_rounded_once"),
    ),
    Mutant(
        "a mass above 2^960 from another alpha",
        MASSES,
        "bad = ~(new <= MAX_MASS)",
        "bad = np.isnan(new)",
        buffer_tests("alpha", "a_mass_that_would_be_too_large_is_named"),
    ),
    Mutant(
        "bare frames get a mass by alpha",
        RINGS,
        "            drawable &= self._storage",
        "            drawable |= self._storage",
        buffer_tests("alpha", "bare_frames_stay_without_mass"),
    ),
    Mutant(
        "squares in another order than the tree's",
        TREE,
        "values = values[0::2] + values[1::2]",
        "values = values[: len(values) // 2] + values[len(values) // 2 :]",
        ["tests/python/test_tree_distinct.py::test_the_effective_sample_size_is_the_references"],
    ),
]

FILES = [
    Mutant(
        "RNG not saved",
        PERSISTENCE,
        "        self._tree.rng_state = {\n",
        "        _ = {\n",
        buffer_tests("save", "a_loaded_buffer_goes_on_as_the_one_that_was_saved"),
    ),
    Mutant(
        "cursor not saved",
        PERSISTENCE,
        'cursor = int(saved["cursor"])',
        'cursor = int(saved["size"])',
        buffer_tests("save", "a_loaded_buffer_goes_on_as_the_one_that_was_saved"),
    ),
    Mutant(
        "priorities not loaded",
        PERSISTENCE,
        "self._set_held_masses(masses[len(masses) - kept :])",
        "self._set_held_masses(np.ones(kept))",
        buffer_tests("save", "a_loaded_buffer_goes_on_as_the_one_that_was_saved"),
    ),
    Mutant(
        "sample count not loaded",
        PERSISTENCE,
        'self._sampled = as_count(saved["sampled"], "sampled")',
        "self._sampled = 0",
        buffer_tests("save", "a_loaded_buffer_goes_on_as_the_one_that_was_saved"),
    ),
    Mutant(
        "epoch not advanced on load",
        PERSISTENCE,
        "        buffer.open_epoch(checkpoint.open_epoch(path, buffer.epoch))\n",
        "",
        buffer_tests("save", "ids_that_were_saved_stay_and_new_ones_open_an_epoch"),
    ),
    Mutant(
        "one epoch for all who load a file",
        PERSISTENCE,
        "buffer.open_epoch(checkpoint.open_epoch(path, buffer.epoch))",
        "buffer.open_epoch(buffer.epoch + 1)",
        buffer_tests("save", "ids_that_were_saved_stay_and_new_ones_open_an_epoch"),
    ),
    Mutant(
        "sums not compared on load",
        PERSISTENCE,
        "if saved[name] != value:",
        "if False:",
        buffer_tests("save", "a_checkpoint_that_holds_no_buffer_is_refused"),
    ),
    Mutant(
        "a smaller capacity keeps the oldest",
        PERSISTENCE,
        "self._set_held_masses(masses[len(masses) - kept :])",
        "self._set_held_masses(masses[:kept])",
        snapshot_tests("a_smaller_capacity_keeps_the_newest_and_says_so"),
    ),
    Mutant(
        "in-place save",
        "python/libsumtree/files.py",
        """        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL |""",
        """        temporary = destination
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC |""",
        file_tests("a_full_disk_keeps_the_old_file", "sigkill_leaves_the_old_file_or_the_new_one"),
    ),
    Mutant(
        "digest unchecked",
        f"{CHECKPOINT}/reader.py",
        "    if digest != header.digest:",
        "    if length != header.length:",
        buffer_tests("save", "any_changed_byte_is_noticed"),
    ),
    Mutant(
        "filters from anywhere",
        f"{CHECKPOINT}/reader.py",
        "most *= _EXPANSION.get(number, 0)",
        "most *= _EXPANSION.get(number, 1 << 40)",
        file_tests("anything_but_plain_arrays_is_refused"),
    ),
    Mutant(
        "shapes without bound",
        f"{CHECKPOINT}/reader.py",
        "and nbytes <= stored * _expansion(properties)",
        "and _expansion(properties) > 0",
        file_tests("anything_but_plain_arrays_is_refused"),
    ),
    Mutant(
        "any file for the one that was meant",
        f"{CHECKPOINT}/chain.py",
        "if header.digest == digest:",
        "if path != child:",
        snapshot_tests("a_missing_or_damaged_link_is_detected"),
    ),
    Mutant(
        "only grown masses are saved",
        SNAPSHOT,
        "np.flatnonzero(old != before)",
        "np.flatnonzero(old > before)",
        snapshot_tests("every_link_of_a_chain_is_the_buffer_of_its_moment"),
    ),
    Mutant(
        "a save of many instants",
        SNAPSHOT,
        "        if doomed <= self._aside_stop and doomed <= self._next:\n",
        "        if True:\n",
        snapshot_tests("the_rows_of_an_instant_outlive_what_is_added_while_they_are_read"),
    ),
    Mutant(
        "no bound on what stands aside",
        SNAPSHOT,
        "room = min(room, self._aside_most - (start - self._next))",
        "pass",
        snapshot_tests("what_stands_aside_is_bounded_while_a_thread_writes"),
    ),
    Mutant(
        "a living writer's file taken for a leftover",
        "python/libsumtree/files.py",
        "    return is_file_at(file.fileno(), path)\n",
        "    return True\n",
        writer_tests("a_file_taken_for_a_leftover_is_made_anew"),
    ),
    Mutant(
        "the lock of a folder that is gone",
        f"{CHECKPOINT}/lock.py",
        "while self._descriptor is None or not is_file_at(self._descriptor, self._path):",
        "while self._descriptor is None:",
        writer_tests("a_folder_made_again_has_one_writer", "a_lock_of_a_file_that_is_gone_is_none"),
    ),
    Mutant(
        "chains without an end",
        PERSISTENCE,
        "    own &= base.files < checkpoint.MOST_FILES\n",
        "",
        writer_tests("no_chain_needs_more_files_than_a_process_may_open"),
    ),
    Mutant(
        "a file cut short counts as a state",
        f"{CHECKPOINT}/states.py",
        "if path.stat().st_size == header.length:",
        "if header.length:",
        state_tests("files_that_were_cut_short_do_not_count"),
    ),
    Mutant(
        "a child keeps its parent's lock",
        f"{CHECKPOINT}/lock.py",
        "os.register_at_fork(after_in_child=_close_in_child)\n",
        "",
        folder_tests("a_killed_holder_lets_go_even_if_its_children_live"),
    ),
]

SERVICE = [
    Mutant(
        "unchecked length of a control message",
        "python/libsumtree/replay/messages.py",
        "    elif length != expected:\n",
        "    elif False:\n",
        ["tests/python/test_replay_messages.py::test_every_wrong_length_is_refused"],
    ),
    Mutant(
        "unchecked length of a payload",
        "python/libsumtree/replay/intake.py",
        "if probe.nbytes != announced.nbytes:",
        "if False:",
        service_tests("bad_batches_leave_their_neighbours_unchanged"),
    ),
    Mutant(
        "a dead actor told of the end",
        "python/libsumtree/replay/service.py",
        " and not self._intake.backlog(peer.rank)\n        )",
        "\n        )",
        ["tests/mpi/test_replay_faults.py::test_a_job_that_lives_on_never_shows_a_torn_batch[0.0]"],
    ),
    Mutant(
        "unchecked length in a header",
        "python/libsumtree/replay/adds.py",
        "if message.payload != message.count * itemsize:",
        "if False:",
        service_tests("bad_batches_leave_their_neighbours_unchanged"),
    ),
    Mutant(
        "credits given ahead of the learner",
        "python/libsumtree/replay/adds.py",
        "if not held or not (peers.stopping or peers.limiter.may_insert(len(peers.ring()))):",
        "if not held:",
        service_tests("actor_waits_while_it_has_no_credit"),
    ),
    Mutant(
        "credits not counted",
        "python/libsumtree/replay/adds.py",
        "if peer.unacked >= credits:",
        "if False:",
        service_tests("hostile_client_is_answered[hostile_credits]"),
    ),
    Mutant(
        "updates beyond the credits",
        "python/libsumtree/replay/samples.py",
        "        if channel.unsent(peer.rank) > most:\n            channel.reap()\n",
        "        if False:\n            channel.reap()\n",
        [
            "tests/python/test_replay_updates.py::"
            "test_updates_beyond_the_credits_are_refused_until_answers_are_taken"
        ],
    ),
    Mutant(
        "credits not counted of batches in control messages",
        "python/libsumtree/replay/adds.py",
        "            and peer.unacked < self._peers.config.actor_credits\n",
        "",
        service_tests("credits_bind_batches_in_control_messages"),
    ),
    Mutant(
        "unchecked length of a batch in a control message",
        "python/libsumtree/replay/messages.py",
        "    if len(data) != HEADER_SIZE + 8 * count + payload:\n        return None\n",
        "",
        ["tests/python/test_replay_messages.py::test_usual_batches_are_what_decode_reads"],
    ),
    Mutant(
        "records written before their priorities are checked",
        "python/bindings/tree.h",
        "        if (powers.masses(count",
        "        std::memcpy(to.data() + start * itemsize, from.data(), itemsize);\n"
        "        if (powers.masses(count",
        ["tests/python/test_buffer_packed.py::test_a_bad_priority_changes_nothing"],
    ),
    Mutant(
        "a learner's updates take no time",
        "python/libsumtree/replay/share.py",
        "self._pause * (self._used + now - begin)",
        "self._pause * (now - begin)",
        ["tests/python/test_replay_share.py::test_updates_count"],
    ),
    Mutant(
        "a payload that is long under way takes the ring",
        "python/libsumtree/replay/intake.py",
        "return announced.nbytes <= self._prompt.get(announced.peer.rank, IN_PLACE_BYTES)",
        "return True",
        ["tests/python/test_replay_payloads.py::test_nobody_waits_for_a_payload_that_is_under_way"],
    ),
    Mutant(
        "a message that cannot be received ends the service",
        "python/libsumtree/replay/receiving.py",
        "        except MPI.Exception as error:\n"
        "            return _unreceived(source, error)\n"
        "        if borrowed:",
        "        except MPI.Exception:\n            raise\n        if borrowed:",
        ["tests/mpi/test_replay_faults.py::test_a_message_whose_memory_is_gone"],
    ),
    Mutant(
        "memory of a transfer that was given up is freed at once",
        "python/libsumtree/replay/receiving.py",
        "        return bool(request.Test())\n    except",
        "        return bool(request.Test()) or True\n    except",
        [
            "tests/python/test_replay_payloads.py::"
            "test_what_was_given_up_stays_though_another_transfer_fails"
        ],
    ),
    Mutant(
        "requests that wait for their share refused at the end",
        "python/libsumtree/replay/service.py",
        "        self._samples.serve(at_once=True)\n",
        "",
        service_tests("requests_that_wait_for_their_share_are_served_before_the_end"),
    ),
    Mutant(
        "a wait given up forgets the payload on its way",
        "python/libsumtree/replay/client.py",
        "                raise self._timed_out(what, seconds)\n",
        "                self._arrivals.clear()\n"
        "                raise self._timed_out(what, seconds)\n",
        waiting_tests("wait_that_is_given_up_before_a_payload_mixes_no_answers"),
    ),
    Mutant(
        "a late answer taken for another's",
        "python/libsumtree/replay/learner.py",
        "            if message.sequence in self._answers:\n"
        "                self._answers[message.sequence] = message\n",
        "            for sequence in self._answers:\n"
        "                self._answers[sequence] = message\n",
        waiting_tests("silence_of_the_replay_rank_is_said_and_overcome"),
    ),
    Mutant(
        "a changed limit not in the checkpoint",
        "python/libsumtree/replay/server.py",
        "        peers.progress.rate_limit = peers.limiter.saved()\n",
        "",
        waiting_tests("learner_changes_the_limit_and_checkpoints_keep_it"),
    ),
    Mutant(
        "a limit changed past a request that waits",
        "python/libsumtree/replay/pacing.py",
        "if limit.error_buffer is not None and largest > 2 * limit.error_buffer:",
        "if False:",
        waiting_tests("learner_changes_the_limit_and_checkpoints_keep_it"),
    ),
    Mutant(
        "a bucket one too far",
        "python/libsumtree/metrics/histogram.py",
        "    low = bucket - STEPS * exponent\n",
        "    low = bucket - STEPS * exponent + 1\n",
        ["tests/python/test_metrics.py::test_a_time_lies_within_the_bounds_of_its_bucket"],
    ),
    Mutant(
        "a torn line goes on in the next",
        "python/libsumtree/metrics/sink.py",
        'rest = memoryview(b"\\n" + line if self._torn else line)',
        "rest = memoryview(line)",
        ["tests/python/test_metrics.py::test_lines_are_appended_after_a_torn_one"],
    ),
]

SHARDS = [
    Mutant(
        "targets fall to an empty shard",
        "python/libsumtree/replay/routing.py",
        "goes_right = (left <= rest) & (right != 0.0)",
        "goes_right = left <= rest",
        routing_tests("no_target_falls_to_an_empty_shard"),
    ),
    Mutant(
        "a running sum over the shards",
        "python/libsumtree/replay/routing.py",
        "self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]",
        "self._nodes[node] = sum(self._totals)",
        routing_tests("shards_are_the_blocks_of_one_tree"),
    ),
    Mutant(
        "targets of a total that has moved",
        "python/libsumtree/replay/routing.py",
        "return np.minimum(rests / told * total, np.nextafter(total, 0.0))",
        "return np.minimum(rests, total)",
        routing_tests("targets_stretch_with_the_total"),
    ),
    Mutant(
        "draws that do not wait for the learner's own updates",
        "python/libsumtree/replay/sharded_learner.py",
        'self._wait(self._without_answer, "answer to an update", timeout, stop=True)',
        "pass",
        shard_tests("shards_draw_as_one_big_buffer[2]"),
    ),
    Mutant(
        "the default mass of one shard alone",
        "python/libsumtree/replay/adds.py",
        "elsewhere = 0.0 if masses is not None else message.real",
        "elsewhere = 0.0",
        shard_tests("edges"),
    ),
    Mutant(
        "a manifest though a shard has failed",
        "python/libsumtree/replay/shard_folders.py",
        "        if failures:\n",
        "        if False:\n",
        shard_tests("a_shard_that_cannot_write_makes_no_manifest"),
    ),
    Mutant(
        "streams that start anew",
        "python/libsumtree/replay/restored.py",
        "    if progress.streams:\n",
        "    if False:\n",
        shard_tests("learners_have_streams_of_their_own_that_survive_a_restart[2]"),
    ),
    Mutant(
        "quiet before all changes are told",
        "python/libsumtree/replay/server.py",
        "        self._note_if_changed()  # once shard 0",
        "        # once shard 0",
        fault_tests("what_comes_while_the_last_file_is_written_is_in_the_next"),
    ),
    Mutant(
        "a round that begins while one runs",
        "python/libsumtree/replay/server.py",
        "        self._settle_shards()\n        self._finish_saving()\n",
        "        self._settle_shards()\n",
        fault_tests("one_round_of_checkpoints_at_a_time"),
    ),
    Mutant(
        "nobody told that no round can begin",
        "python/libsumtree/replay/shard_folders.py",
        "            self._shards.give_up()\n",
        "",
        fault_tests("an_end_whose_checkpoint_cannot_begin"),
    ),
    Mutant(
        "a failed write told as a change",
        "python/libsumtree/replay/server.py",
        " and time.monotonic() >= self._retry_at:",
        ":",
        fault_tests("a_shard_that_cannot_write_tries_again_at_leisure"),
    ),
    Mutant(
        "requests that refuse",
        "python/libsumtree/replay/messages.py",
        "    if refusal and message.kind not in _REFUSING:\n",
        "    if False:\n",
        ["tests/python/test_replay_messages.py::test_only_answers_refuse"],
    ),
    Mutant(
        "half an update",
        "python/libsumtree/replay/sharded_learner.py",
        "            lambda: [s for s in parts if not self._clients[s].has_update_credit()],\n",
        "            lambda: [],\n",
        client_tests("an_update_is_sent_to_all_its_shards_or_to_none"),
    ),
    Mutant(
        "handles of former shards unknown",
        "python/libsumtree/replay/routing.py",
        "    return np.where(former, held, ids)\n",
        "    return ids\n",
        routing_tests("handles_of_before_become_the_ids_that_they_held"),
    ),
    Mutant(
        "a kept state loses what it goes on from",
        f"{CHECKPOINT}/states.py",
        "for chain in state.chains for file in chain}",
        "for chain in state.chains for file in chain[:1]}",
        state_tests("what_kept_states_go_on_from_stays"),
    ),
]

MEASURING = [
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
        intake_tests("a_server_that_holds_something_else_is_seen"),
    ),
    Mutant(
        "losses unseen in a timed run",
        "python/libsumtree/bench/intake/rounds.py",
        "        if (held.inserted, held.size) != (sent, min(sent, run.task.kind.capacity)):\n",
        "        if held.size > sent:\n",
        intake_tests("a_server_that_loses_something_while_it_is_timed"),
    ),
    Mutant(
        "a ratio of median rates",
        "python/libsumtree/bench/intake/tables.py",
        "float(np.median(over / under))",
        "float(np.median(over) / np.median(under))",
        intake_tests("ratios_are_within_rounds"),
    ),
    Mutant(
        "a tuning of another machine",
        "python/libsumtree/tuning.py",
        "    if tuning.kind != kind:\n",
        "    if False:\n",
        ["tests/python/test_tuning.py::test_a_file_of_another_machine_is_ignored"],
    ),
]


def device_tests(*names: str) -> list[str]:
    return [f"tests/python/test_devices.py::test_{name}" for name in names]


DEVICES = [
    Mutant(
        "all ranks on one GPU",
        "python/libsumtree/devices.py",
        "        return local_rank() % count\n",
        "        return 0\n",
        device_tests("ranks_of_a_node_share_its_gpus"),
    ),
    Mutant(
        "a rank beyond the GPUs",
        "python/libsumtree/devices.py",
        "        return local_rank() % count\n",
        "        return local_rank()\n",
        device_tests("ranks_of_a_node_share_its_gpus"),
    ),
    Mutant(
        "a GPU that is not there",
        "python/libsumtree/devices.py",
        "    if not 0 <= device < count:\n",
        "    if device < 0:\n",
        device_tests("a_device_that_is_not_there"),
    ),
    Mutant(
        "no GPU, no word",
        "python/libsumtree/devices.py",
        'cannot run here: {library.device_problem}")',
        'cannot run here")',
        device_tests("what_is_missing_is_said"),
    ),
    Mutant(
        "device arrays through the host",
        "python/libsumtree/device_arrays.py",
        "    return None if kind in (CPU, CUDA_HOST) and own[0] != CPU else (kind, number)\n",
        "    return None if own[0] != CPU else (kind, number)\n",
        device_tests("a_host_tree_refuses_device_arrays"),
    ),
    Mutant(
        "results that overlap",
        "python/libsumtree/tree.py",
        "        if abs(one - other) < nbytes:\n",
        "        if one == other:\n",
        device_tests("out_shares_no_memory"),
    ),
    Mutant(
        "a close that frees nothing",
        "python/libsumtree/leaves.py",
        "        self._close()\n",
        "        self._capacity\n",
        device_tests("a_closed_tree_says_so", "a_closed_tree_still_says_what_it_was"),
    ),
]

JOBS = [
    Mutant(
        "a site that the group may write",
        "python/libsumtree/jobs/places.py",
        "    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):\n",
        "    if facts.st_mode & stat.S_IWOTH:\n",
        ["tests/python/test_jobs_render.py::test_a_site_that_others_may_write_is_refused"],
    ),
    Mutant(
        "newlines in rendered values",
        "python/libsumtree/jobs/request.py",
        "    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):\n",
        '    if "\\0" in text:\n',
        ["tests/python/test_jobs_render.py::test_a_newline_in_a_value_is_an_error"],
    ),
    Mutant(
        "singletons unseen",
        "python/libsumtree/jobs/check.py",
        "    if len(sights) > 1 and sizes == {1}:\n",
        "    if len(sights) > asked and sizes == {1}:\n",
        ["tests/python/test_jobs_render.py::test_what_ranks_see"],
    ),
    Mutant(
        "a status of 0 taken for an end",
        "python/libsumtree/jobs/templates/body.sh",
        '    if [ "$job_status" -eq 0 ] && [ "$word" = finished ]; then\n',
        '    if [ "$job_status" -eq 0 ]; then\n',
        ["tests/python/test_jobs_body.py::test_a_launcher_that_starts_nothing_is_no_success"],
    ),
    Mutant(
        "marks without the restart",
        "python/libsumtree/jobs/templates/body.sh",
        "    job_mark=$run/mark.$job_id.$job_restarts\n",
        "    job_mark=$run/mark.$job_id\n",
        ["tests/python/test_jobs_body.py::test_signalled_before_the_end_of_the_walltime"],
    ),
    Mutant(
        "a cancelled job requeued",
        "python/libsumtree/jobs/templates/body.sh",
        "    if job_cancelled; then\n",
        "    if false; then\n",
        ["tests/python/test_jobs_body.py::test_cancelled"],
    ),
]

STACKS = [
    Mutant(
        "no record kept beyond the capacity",
        RINGS,
        "take_storage(self._tree.capacity + self._context, self._dtype)",
        "take_storage(self._tree.capacity, self._dtype)",
        frame_tests("a_transition_goes_when_its_record_does_and_never_before"),
    ),
    Mutant(
        "a bare record gets a mass",
        INTAKE,
        "np.where(ahead[self._placed - self._kept :] > 0, masses, 0.0)",
        "np.broadcast_to(masses, self._kept)",
        frame_tests("bare_records_are_no_transitions"),
    ),
    Mutant(
        "a bare record updated",
        RINGS,
        "        if bare.any():\n",
        "        if bare.all():\n",
        frame_tests("bare_records_are_no_transitions"),
    ),
    Mutant(
        "a stack reaches into the episode before",
        FRAMES,
        "ends - np.minimum(back, reach)",
        "ends - back",
        frame_tests("every_transition_is_there_once"),
    ),
    Mutant(
        "frames of another episode are padding",
        FRAMES,
        "        stacks[back > reach] = 0\n",
        "        stacks[back >= reach] = 0\n",
        frame_tests("draws_are_those_of_the_naive_buffer"),
    ),
    Mutant(
        "a transition may end in another episode",
        FRAMES,
        "reaches = positions + ahead < ends",
        "reaches = positions + ahead < count",
        frame_tests("an_episode_is_not_reached_across_another"),
    ),
    Mutant(
        "too few frames of the batch before",
        FRAMES,
        "self._free - self.layout.context)",
        "self._free - self.layout.context + 1)",
        frame_tests("every_transition_is_there_once"),
    ),
    Mutant(
        "frames before the oldest transition not saved",
        PERSISTENCE,
        "            first = self._oldest_record\n",
        "            first = self._oldest\n",
        frame_tests("loaded_with_another_capacity"),
    ),
    Mutant(
        "a filled intake is not checked for its frames",
        INTAKE,
        "        check_runs(age, ahead, layout.stack, self._placed == self.count)\n",
        "",
        frame_tests("batches_that_do_not_stand_by_themselves"),
    ),
    Mutant(
        "frames are checked once others were retired for them",
        BUFFER,
        "            if self._layout is not None:\n                check_runs(",
        "            if False:\n                check_runs(",
        frame_tests("batches_that_do_not_stand_by_themselves"),
    ),
]

COMPAT = [
    Mutant(
        "Tianshou's targets by the other side",
        "python/libsumtree/compat/tianshou.py",
        'self._tree.find(value, side="left")',
        "self._tree.find(value)",
        compat_tests("golden", "same_answers_as_the_real_one"),
    ),
    Mutant(
        "TorchRL's targets by the other side",
        "python/libsumtree/compat/torchrl.py",
        'return self._tree.find(within, side="left")',
        "return self._tree.find(within)",
        compat_tests("golden", "same_answers_as_the_real_one"),
    ),
    Mutant(
        "a range that includes its end",
        "python/libsumtree/compat/conventions.py",
        "stop = last + capacity if last < 0 else last\n",
        "stop = last + capacity + 1 if last < 0 else last\n",
        compat_tests("golden", "same_answers_as_the_real_one"),
    ),
    Mutant(
        "float32 that is not rounded",
        "python/libsumtree/compat/torchrl.py",
        "return exact.astype(self._DTYPE).astype(np.float64)",
        "return exact.astype(np.float64)",
        compat_tests("trees", "torchrl_fp32_rounds_what_goes_in_and_out_and_adds_exactly"),
    ),
    Mutant(
        "eps left out of updates",
        "python/libsumtree/compat/cpprb.py",
        "return priorities + self._eps\n",
        "return priorities + 0.0\n",
        compat_tests("golden", "same_answers_as_the_real_one"),
    ),
    Mutant(
        "overwritten transitions updated",
        "python/libsumtree/compat/cpprb.py",
        "known = ids < self._known\n",
        "known = ids <= ids\n",
        compat_tests("cpprb", "what_was_overwritten_is_skipped_where_that_was_asked_for"),
    ),
]

MUTANTS = [
    *TREES,
    *RING,
    *SAMPLING,
    *STACKS,
    *FILES,
    *SERVICE,
    *SHARDS,
    *MEASURING,
    *DEVICES,
    *JOBS,
    *COMPAT,
]
