"""Faults of trees: updates, descents, checks and draws."""

from __future__ import annotations

from mutant import Mutant, noticed_by

UPDATES = "src/updates_host.c"
DESCENTS = "src/descents_host.c"
X86 = "src/descents_x86.c"
CHECKS = "src/checks.c"
PHILOX = "src/philox.c"
RULES = "src/rules.h"
SUMTREE = "src/sumtree.c"
WEIGH = """        masses[k] = leaf[indices[k]];
        weights[k] = weight_of(smallest, masses[k], beta);
"""
GOES_RIGHT = "side == SUMTREE_SIDE_RIGHT ? left_sum <= rest : left_sum < rest"

MUTANTS = [
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
        noticed_by("tests/python/test_tree_contract.py", "updates_do_not_drift"),
    ),
    Mutant(
        "> for >= (side right)",
        RULES,
        GOES_RIGHT,
        "side == SUMTREE_SIDE_RIGHT ? left_sum < rest : left_sum < rest",
        noticed_by("tests/python/test_tree_contract.py", "which_side_takes_a_boundary"),
    ),
    Mutant(
        "> for >= (side left)",
        RULES,
        GOES_RIGHT,
        "side == SUMTREE_SIDE_RIGHT ? left_sum <= rest : left_sum <= rest",
        noticed_by("tests/python/test_tree_contract.py", "which_side_takes_a_boundary"),
    ),
    Mutant(
        "left and right swapped in ties",
        RULES,
        GOES_RIGHT,
        "side != SUMTREE_SIDE_RIGHT ? left_sum <= rest : left_sum < rest",
        noticed_by("tests/python/test_tree_contract.py", "which_side_takes_a_boundary"),
    ),
    Mutant(
        "a descent enters an empty child",
        RULES,
        "return tree->sum[node] == 0.0 ? descend_by_the_rule",
        "return tree->sum[node] < 0.0 ? descend_by_the_rule",
        noticed_by(
            "tests/python/test_tree_contract.py",
            "a_target_at_the_total_lands_on_the_last_positive_leaf",
        ),
    ),
    Mutant(
        "first duplicate wins",
        UPDATES,
        "for (int64_t k = 0; k < count; ++k) leaf[indices[k]] =",
        "for (int64_t k = count; k-- > 0;) leaf[indices[k]] =",
        noticed_by("tests/python/test_buffer_sample.py", "of_equal_ids_the_last_wins"),
    ),
    Mutant(
        "zero leaf in min",
        RULES,
        "return mass > 0.0 ? mass : __builtin_inf();",
        "return mass >= 0.0 ? mass : __builtin_inf();",
        noticed_by(
            "tests/python/test_buffer_sample.py",
            "weights_see_only_positive_masses_that_are_held_now",
        ),
    ),
    Mutant(
        "last leaf lost",
        UPDATES,
        "int64_t last = (tree->padded + start + count - 1) >> 1;",
        "int64_t last = (tree->padded + start + count - 2) >> 1;",
        noticed_by("tests/python/test_buffer_add.py", "an_intake_retires_fills_and_commits"),
    ),
    Mutant(
        "a sweep loses its last node",
        UPDATES,
        "for (int64_t i = first; i < end; ++i) recompute(",
        "for (int64_t i = first; i < end - 1; ++i) recompute(",
        noticed_by("tests/python/test_buffer_sample.py", "new_priorities_are_drawn_from_at_once"),
    ),
    Mutant(
        "NaN is a mass",
        RULES,
        "return mass >= 0.0 && mass <= SUMTREE_MAX_MASS;",
        "return !(mass < 0.0 || mass > SUMTREE_MAX_MASS);",
        noticed_by("tests/python/test_tree_contract.py", "domain_of_masses"),
    ),
    Mutant(
        "NaN is a priority",
        SUMTREE,
        "return priority >= 0.0 && isfinite(priority) && is_mass(mass);",
        "return !(priority < 0.0) && is_mass(mass);",
        noticed_by("tests/python/test_buffer_add.py", "bad_priorities_change_nothing"),
    ),
    Mutant(
        "negative index accepted",
        CHECKS,
        "bad |= beyond((uint64_t)indices[k], most);",
        "bad |= indices[k] < 0 ? 0 : beyond((uint64_t)indices[k], most);",
        noticed_by("tests/python/test_tree_contract.py", "a_negative_index_never_writes"),
    ),
    Mutant(
        "-0.0 stored",
        RULES,
        "return kind == SUMTREE_KIND_MIN ? mass : mass + 0.0;",
        "return mass;",
        noticed_by("tests/python/test_tree_contract.py", "domain_of_masses"),
    ),
    Mutant(
        "priority 0 has mass 1 at alpha 0",
        SUMTREE,
        "return priority > 0.0 ? pow(priority, alpha) : 0.0;",
        "return pow(priority, alpha);",
        noticed_by(
            "tests/python/test_buffer_add.py", "alpha_zero_makes_all_alike_but_priority_zero"
        ),
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
        noticed_by(
            "tests/python/test_buffer_sample.py", "the_largest_weight_over_the_whole_buffer_is_1"
        ),
    ),
    Mutant(
        "random numbers used again",
        PHILOX,
        "            philox_advance(rng->counter, 1);\n",
        "",
        noticed_by("tests/python/test_buffer_sample.py", "draws_are_those_of_numpys_philox"),
    ),
    Mutant(
        "strata forgotten",
        RULES,
        "stratified ? ((double)k + u) / (double)count : u",
        "u",
        noticed_by("tests/python/test_buffer_sample.py", "draws_are_those_of_numpys_philox"),
    ),
    Mutant(
        "a level is skipped between climbs and sweeps",
        UPDATES,
        "sweep_below(tree, kind, climbed + 1, height, first, end);",
        "sweep_below(tree, kind, climbed + 2, height, first, end);",
        noticed_by("tests/python/test_tree_contract.py", "every_node_is_the_sum_of_its_children"),
    ),
    Mutant(
        "a lane climbs with the mass of another",
        UPDATES,
        "lane.total[j] = lane.most[j] = leaf[indices[j]];",
        "lane.total[j] = lane.most[j] = leaf[indices[j & ~1]];",
        noticed_by("tests/python/test_tree_contract.py", "every_node_is_the_sum_of_its_children"),
    ),
    Mutant(
        "the leaves fetched together are not those that climb",
        UPDATES,
        "        masses += now * mass_step;\n",
        "        masses += next * mass_step;\n",
        noticed_by("tests/python/test_tree_contract.py", "every_node_is_the_sum_of_its_children"),
    ),
    Mutant(
        "> for >= in AVX2",
        X86,
        "_mm256_cmp_pd(left_sum, *rest, _CMP_LE_OQ)",
        "_mm256_cmp_pd(left_sum, *rest, _CMP_LT_OQ)",
        noticed_by("tests/python/test_tree_contract.py", "which_side_takes_a_boundary"),
        "avx2",
    ),
    Mutant(
        "> for >= in AVX-512, side left",
        X86,
        "_mm512_cmp_pd_mask(left_sum, *rest, _CMP_LT_OQ)",
        "_mm512_cmp_pd_mask(left_sum, *rest, _CMP_LE_OQ)",
        noticed_by("tests/python/test_tree_contract.py", "which_side_takes_a_boundary"),
        "avx512",
    ),
    Mutant(
        "a short block of vectors loses its last lane",
        X86,
        "k < count ? targets[k] : 0.0;",
        "k < count - 1 ? targets[k] : 0.0;",
        noticed_by("tests/python/test_tree_contract.py", "which_side_takes_a_boundary"),
        "avx2",
    ),
]
