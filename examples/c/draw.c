/* Draws 8 of 1000 leaves whose masses are 0, 1, 2, ... 999, and prints how likely each was. */
#include <stdio.h>
#include <stdlib.h>
#include <sumtree.h>

enum { CAPACITY = 1000, DRAWS = 8 };

static void check(sumtree_status status) {
    if (status == SUMTREE_OK) return;
    fprintf(stderr, "draw: %s\n", sumtree_strerror(status));
    exit(EXIT_FAILURE);
}

int main(void) {
    if (sumtree_abi_version() != SUMTREE_ABI_VERSION) {
        fprintf(stderr, "draw: compiled for ABI version %d, and the library has %d\n", SUMTREE_ABI_VERSION,
                (int)sumtree_abi_version());
        return EXIT_FAILURE;
    }
    double masses[CAPACITY];
    for (int leaf = 0; leaf < CAPACITY; ++leaf) masses[leaf] = leaf;

    sumtree_t *tree = NULL;
    check(sumtree_create(CAPACITY, SUMTREE_KIND_PRIORITY, &tree));
    check(sumtree_update_range(tree, 0, CAPACITY, masses, 1, NULL));

    double total = 0.0, drawn[DRAWS], weights[DRAWS];
    int64_t indices[DRAWS];
    sumtree_philox rng = {.key = {2026, 0}, .buffer_pos = 4};
    check(sumtree_root(tree, SUMTREE_PLANE_SUM, &total));
    check(sumtree_sample(tree, &rng, DRAWS, 0.4, 1, indices, drawn, weights));
    printf("backend %s, total %.0f\n", sumtree_backend(), total);
    for (int k = 0; k < DRAWS; ++k) {
        printf("leaf %3d  probability %.6f  weight %.6f\n", (int)indices[k], drawn[k] / total, weights[k]);
    }
    sumtree_free(tree);
    return EXIT_SUCCESS;
}
