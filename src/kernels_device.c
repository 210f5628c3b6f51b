/* The kernels of trees in device memory: with device_rules.h, every OpenACC directive of the product.
 *
 * No two gangs of a kernel write one node, and none reads what another writes, but through atomics. Within a gang a node
 * may be recomputed by several lanes, each from the same children, which no lane writes in the same loop.
 *
 * Values that are declared inside a gang's loop are the gang's own, shared by its lanes.
 *
 * GCC 12 puts no memory barrier between two vector loops of gangs that are one warp: kernels with such loops have more
 * than 32 lanes, and those with 32 have lanes that go alone. */
#include <openacc.h>

#include "device.h"
#include "device_rules.h"

#if BACKEND_DECLARES_BLOCK
static device_block declared;
#pragma acc declare create(declared)
#define BLOCK_OF(there) (&declared)
device_block *launch_block(void) { return acc_deviceptr(&declared); }
#else
#define BLOCK_OF(there) (there)
device_block *launch_block(void) { return NULL; }
#endif

enum { OWNER_LANES = 512, DRAW_LANES = 32, LANES = 256, FEW_LANES = 64, MANY_LANES = 512, GANGS_MOST = 1 << 20 };

static int gangs_for(int64_t work, int64_t each) {
    const int64_t gangs = (work + each - 1) / each;
    return gangs < 1 ? 1 : (int)(gangs < GANGS_MOST ? gangs : GANGS_MOST);
}

/* ---- opening and making ------------------------------------------------------------------------------------------- */

/* Proves that kernels run on the device: `declared` is written there, and nowhere else. */
void launch_probe(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1, 32) {
        device_call *const call = &BLOCK_OF(there)->call;
        call->on_device = acc_on_device(acc_device_not_host) ? 1 : 0;
    }
}

/* masses[0 .. count-1] = +inf. */
void launch_fill(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1024, LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int64_t i = 0; i < call->count; ++i) call->masses[i] = __builtin_inf();
    }
}

/* ---- short updates: each owner keeps the elements of its own subtree ---------------------------------------------- */

/* Every owner checks the whole batch, so each knows by itself whether it is to be done. */
void launch_owners(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(OWNERS, OWNER_LANES) {
        device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t count = call->count, step = call->step, padded = tree->padded;
        const int64_t *const indices = call->indices;
        const double *const values = call->values;
        int32_t *const tags = call->tags;
        double *const leaf = leaves(tree);
        const int32_t climb = call->height - OWNER_DEPTH;
        const int32_t singles = climb % 3, steps = singles + climb / 3;
        PARALLEL_PRAGMA(acc loop gang)
        for (int32_t owner = 0; owner < OWNERS; ++owner) {
            int32_t *const places = call->places + (int64_t)owner * SHORT;
            int64_t *const owned = call->owned + (int64_t)owner * SHORT;
            double *const given = call->given + (int64_t)owner * SHORT;
            int32_t own;
            int64_t bad_index, bad_value;
            own = 0;
            bad_index = NOWHERE;
            bad_value = NOWHERE;
            PARALLEL_PRAGMA(acc loop vector)
            for (int64_t k = 0; k < count; ++k) {
                const int64_t index = indices[k];
                const double value = values[k * step];
                if (!is_leaf_of(tree, index)) {
                    keep_first(&bad_index, k);
                } else if (!may_store(tree, value)) {
                    keep_first(&bad_value, k);
                } else if (index >> climb == owner) {
                    int32_t place;
                    keep_last(tags + index, (int32_t)k);
                    PARALLEL_PRAGMA(acc atomic capture) {
                        place = own;
                        own = own + 1;
                    }
                    places[place] = (int32_t)k;
                    owned[place] = index;
                    given[place] = stored(tree->kind, value);
                }
            }
            const bool good = bad_index == NOWHERE && bad_value == NOWHERE;
            PARALLEL_PRAGMA(acc loop vector)
            for (int32_t j = 0; j <= own; ++j) {
                if (j == own) {
                    (void)tell(call, &call->reply->outcome, call->ticket, OWNERS, false,
                               outcome_of(call, bad_index, bad_value));
                } else if (good && tags[owned[j]] == places[j]) {
                    leaf[owned[j]] = given[j];
                }
            }
            PARALLEL_PRAGMA(acc loop seq)
            for (int32_t s = 0; s < steps; ++s) {
                const int32_t below = s < singles ? s : singles + 3 * (s - singles);
                PARALLEL_PRAGMA(acc loop vector)
                for (int32_t j = 0; j < own; ++j) {
                    const int64_t node = padded + owned[j];
                    if (s == 0) tags[owned[j]] = -1;
                    if (s < singles) {
                        recompute(tree, tree->kind, below == 0, node >> (below + 1));
                    } else {
                        raise(tree, below == 0, node >> (below + 3));
                    }
                }
            }
        }
    }
}

/* The levels above the owners' subtrees, and the roots. */
void launch_crown(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1, FEW_LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int32_t due = call->crown_due;
        PARALLEL_PRAGMA(acc loop seq)
        for (int32_t depth = due ? 3 : -1; depth >= 0; depth -= 3) {
            PARALLEL_PRAGMA(acc loop vector)
            for (int32_t i = 0; i < 1 << depth; ++i) raise(tree, false, (1 << depth) + i);
        }
        report_roots(call);
    }
}

/* ---- long updates: tags, then passes over all leaves -------------------------------------------------------------- */

/* Checks a batch and, unless tags is NULL, tags the leaves that it names. */
void launch_tags(device_block *there, int64_t count) {
    (void)there, (void)count;
    PARALLEL_KERNEL(gangs_for(count, 128), 128) {
        device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int64_t k = 0; k < call->count; ++k) {
            const int64_t index = call->indices[k];
            if (!is_leaf_of(tree, index)) {
                keep_first(&call->bad_index, call->offset + k);
                call->reply->faulty = 1;
            } else {
                if (!may_store(tree, call->values[k * call->step])) {
                    keep_first(&call->bad_value, call->offset + k);
                    call->reply->faulty = 1;
                }
                if (call->tags != NULL) keep_last(call->tags + index, (int32_t)k);
            }
        }
    }
}

/* A whole tree of less than CROWNED leaves. */
void launch_small(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1, MANY_LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t padded = tree->padded;
        const int32_t height = call->height;
        const bool good = is_good(call);
        PARALLEL_PRAGMA(acc loop vector)
        for (int64_t index = 0; index < padded; ++index) write_leaf(call, good, index);
        PARALLEL_PRAGMA(acc loop seq)
        for (int32_t level = 1; level <= height; ++level) {
            const int64_t width = padded >> level;
            PARALLEL_PRAGMA(acc loop vector)
            for (int64_t i = 0; i < width; ++i) recompute(tree, tree->kind, level == 1, width + i);
        }
        report_roots(call);
    }
}

/* Blocks of PASS leaves, and the PASS_LEVELS levels above them. */
void launch_leaf_pass(device_block *there, int64_t blocks) {
    (void)there, (void)blocks;
    PARALLEL_KERNEL(gangs_for(blocks, 1), FEW_LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t padded = tree->padded, first = call->first_block, end = first + call->blocks;
        const bool good = is_good(call);
        PARALLEL_PRAGMA(acc loop gang)
        for (int64_t block = first; block < end; ++block) {
            PARALLEL_PRAGMA(acc loop vector)
            for (int64_t i = 0; i < PASS; ++i) write_leaf(call, good, block * PASS + i);
            PARALLEL_PRAGMA(acc loop seq)
            for (int32_t level = 3; level <= PASS_LEVELS; level += 3) {
                const int64_t width = PASS >> level;
                PARALLEL_PRAGMA(acc loop vector)
                for (int64_t i = 0; i < width; ++i) raise(tree, level == 3, (padded >> level) + block * width + i);
            }
        }
    }
}

/* The same from nodes: blocks of PASS nodes of the level width .. 2 width - 1. */
void launch_node_pass(device_block *there, int64_t blocks) {
    (void)there, (void)blocks;
    PARALLEL_KERNEL(gangs_for(blocks, 1), FEW_LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t first = call->first_block, end = first + call->blocks;
        PARALLEL_PRAGMA(acc loop gang)
        for (int64_t block = first; block < end; ++block) {
            PARALLEL_PRAGMA(acc loop seq)
            for (int32_t level = 3; level <= PASS_LEVELS; level += 3) {
                const int64_t width = PASS >> level;
                PARALLEL_PRAGMA(acc loop vector)
                for (int64_t i = 0; i < width; ++i) {
                    raise(tree, false, (call->width >> level) + block * width + i);
                }
            }
        }
    }
}

/* All levels above width .. 2 width - 1, and the roots. */
void launch_rest(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1, MANY_LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t top = call->width;
        const int32_t threes = call->levels / 3, steps = threes + call->levels % 3;
        PARALLEL_PRAGMA(acc loop seq)
        for (int32_t s = 0; s < steps; ++s) {
            const int64_t width = s < threes ? top >> (3 * s + 3) : top >> (2 * threes + s + 1);
            PARALLEL_PRAGMA(acc loop vector)
            for (int64_t i = 0; i < width; ++i) {
                if (s < threes) {
                    raise(tree, false, width + i);
                } else {
                    recompute(tree, tree->kind, false, width + i);
                }
            }
        }
        report_roots(call);
    }
}

/* ---- draws -------------------------------------------------------------------------------------------------------- */

/* Lanes of these two kernels go alone: nothing is between a gang and them that would have to be shared. */
void launch_draws(device_block *there, int64_t count) {
    (void)there, (void)count;
    PARALLEL_KERNEL(gangs_for(count + 1, DRAW_LANES), DRAW_LANES) {
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int32_t k = 0; k <= (int32_t)BLOCK_OF(there)->draws.count; ++k)
            draw_one(&BLOCK_OF(there)->draws, false, k);
    }
}

/* Where the crown is due: every lane makes of the owners' roots what it needs, and leaves the tree as it is. */
void launch_draws_under_due_crown(device_block *there, int64_t count) {
    (void)there, (void)count;
    PARALLEL_KERNEL(gangs_for(count + 1, DRAW_LANES), DRAW_LANES) {
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int32_t k = 0; k <= (int32_t)BLOCK_OF(there)->draws.count; ++k) draw_one(&BLOCK_OF(there)->draws, true, k);
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

void launch_get(device_block *there, int64_t count) {
    (void)there, (void)count;
    PARALLEL_KERNEL(gangs_for(count, FEW_LANES), FEW_LANES) {
        device_call *const call = &BLOCK_OF(there)->call;
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int64_t k = 0; k < call->count; ++k) {
            const int64_t index = call->indices[k];
            if (is_leaf_of(&call->tree, index)) {
                call->masses[k] = leaves(&call->tree)[index];
            } else {
                keep_first(&call->bad_index, call->offset + k);
                call->reply->faulty = 1;
            }
        }
    }
}

/* Over count leaves from start on. */
void launch_range(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1, 32) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const int64_t first = call->tree.padded + call->start, last = first + call->count - 1;
        call->reply->value = call->tree.kind == SUMTREE_KIND_MIN ? range_min(&call->tree, first, last)
                                                                 : range_sum(&call->tree, first, last);
    }
}

void launch_unsound_leaf(device_block *there, int64_t nodes) {
    (void)there, (void)nodes;
    PARALLEL_KERNEL(gangs_for(nodes, 8 * LANES), LANES) {
        device_call *const call = &BLOCK_OF(there)->call;
        const int64_t padded = call->tree.padded;
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int64_t node = padded; node < 2 * padded; ++node) {
            if (!leaf_is_sound(&call->tree, node)) {
                keep_first(&call->bad_value, node);
                call->reply->faulty = 1;
            }
        }
    }
}

/* The place of a node is counted from the leaves up. */
void launch_unsound_node(device_block *there, int64_t nodes) {
    (void)there, (void)nodes;
    PARALLEL_KERNEL(gangs_for(nodes, 8 * LANES), LANES) {
        device_call *const call = &BLOCK_OF(there)->call;
        const int64_t padded = call->tree.padded;
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int64_t place = 1; place < padded; ++place) {
            if (!node_is_sound(&call->tree, (sumtree_plane)call->plane, padded - place)) {
                keep_first(&call->bad_value, place);
                call->reply->faulty = 1;
            }
        }
    }
}
