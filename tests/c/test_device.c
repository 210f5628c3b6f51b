/* Devices of the gpu backend: which there are, their memory, threads that share one, and a child of fork. Without a
 * device, LIBSUMTREE_GPU_ON_HOST=for-tests runs all of it on the host. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "twins.h"

/* ---- devices ------------------------------------------------------------------------------------------------------ */

static void test_devices(void) {
    const int32_t count = sumtree_device_count();
    CHECK(count >= 1);
    CHECK(strcmp("", sumtree_device_problem()) == 0);
    for (int32_t number = 0; number < count; ++number) {
        sumtree_t *tree = NULL;
        CHECK(strlen(sumtree_device_name(number)) > 0);
        CHECK(sumtree_device_memory_available(number) > 0);
        CHECK_STATUS(OK, sumtree_create_on(number, 5000, SUMTREE_KIND_SUM, &tree));
        CHECK_INT(number, sumtree_get_device(tree));
        CHECK_STATUS(OK, sumtree_validate(tree, NULL, NULL));
        sumtree_free(tree);
    }
    const int32_t outside[] = {-1, count, INT32_MAX, INT32_MIN};
    for (int k = 0; k < 4; ++k) {
        sumtree_t other, *tree = &other;
        void *memory = &other;
        CHECK_STATUS(DEVICE, sumtree_create_on(outside[k], 5000, SUMTREE_KIND_SUM, &tree));
        CHECK(tree == NULL);
        CHECK_STATUS(DEVICE, sumtree_device_allocate(outside[k], 8, &memory));
        CHECK(memory == NULL);
        CHECK(strcmp("", sumtree_device_name(outside[k])) == 0);
        CHECK_INT(0, sumtree_device_memory_available(outside[k]));
    }
}

/* A tree that does not fit is refused, and those that are there go on. */
static void test_no_memory(void) {
    twin t = make_twin(5000, SUMTREE_KIND_SUM);
    sumtree_t *tree = NULL;
    void *memory = NULL;
    CHECK_STATUS(MEMORY, sumtree_create(SUMTREE_MAX_CAPACITY, SUMTREE_KIND_PRIORITY, &tree));
    CHECK(tree == NULL);
    CHECK_STATUS(MEMORY, sumtree_device_allocate(0, (uint64_t)1 << 60, &memory));
    CHECK(memory == NULL);
    CHECK_STATUS(OK, sumtree_update_range(t.tree, 0, 5000, t.leaf, 1, NULL));
    check_nodes(&t);
    free_twin(&t);
}

static void *work(void *argument) {
    twin *t = argument;
    int64_t index = 0;
    for (int round = 0; round < 200; ++round) {
        index = (index * 31 + 7) % t->capacity;
        set_leaf(t, index, (double)round + 0.5);
        if (sumtree_update(t->tree, 1, &index, t->leaf + index, 1, NULL) != SUMTREE_OK) return t;
        double total;
        if (sumtree_root(t->tree, SUMTREE_PLANE_SUM, &total) != SUMTREE_OK) return t;
    }
    return NULL;
}

static void test_threads(void) {
    enum { THREADS = 4 };
    twin twins[THREADS];
    pthread_t threads[THREADS];
    for (int k = 0; k < THREADS; ++k) {
        twins[k] = make_twin(4000 + 600 * k, SUMTREE_KIND_PRIORITY);
        CHECK_INT(0, pthread_create(&threads[k], NULL, work, &twins[k]));
    }
    for (int k = 0; k < THREADS; ++k) {
        void *outcome = &outcome;
        CHECK_INT(0, pthread_join(threads[k], &outcome));
        CHECK(outcome == NULL);
        check_nodes(&twins[k]);
        free_twin(&twins[k]);
    }
}

/* Every call of a child fails, and none of them hangs; the parent goes on. */
static int child(sumtree_t *tree) {
    const int64_t index = 3;
    const double mass = 1.0;
    double value = 0.0;
    int64_t found;
    static const sumtree_philox before = {{1, 2}, {3, 4, 5, 6}, 3};
    sumtree_philox rng = before;
    sumtree_t *other = NULL;
    const bool lost = sumtree_update(tree, 1, &index, &mass, 1, NULL) == SUMTREE_DEVICE &&
                      sumtree_update_range(tree, 0, 1, &mass, 1, NULL) == SUMTREE_DEVICE &&
                      sumtree_get(tree, 1, &index, &value, NULL) == SUMTREE_DEVICE &&
                      sumtree_root(tree, SUMTREE_PLANE_SUM, &value) == SUMTREE_DEVICE &&
                      sumtree_sum(tree, 0, 7, &value) == SUMTREE_DEVICE &&
                      sumtree_find(tree, 1, &mass, SUMTREE_SIDE_RIGHT, &found, NULL) == SUMTREE_DEVICE &&
                      sumtree_sample(tree, &rng, 1, 0.5, 0, &found, &value, &value) == SUMTREE_DEVICE &&
                      sumtree_validate(tree, NULL, NULL) == SUMTREE_DEVICE &&
                      sumtree_create(8, SUMTREE_KIND_SUM, &other) == SUMTREE_DEVICE && sumtree_device_count() == 0 &&
                      strstr(sumtree_device_problem(), "forked") != NULL && same_rng(&rng, &before);
    sumtree_free(tree);
    return lost ? 0 : 1;
}

static void test_fork(void) {
    twin t = make_twin(5000, SUMTREE_KIND_PRIORITY);
    const pid_t pid = fork();
    if (pid == 0) _exit(child(t.tree));
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    const int64_t index = 4;
    set_leaf(&t, index, 2.0);
    CHECK_STATUS(OK, sumtree_update(t.tree, 1, &index, t.leaf + index, 1, NULL));
    check_nodes(&t);
    free_twin(&t);
}

int main(void) {
    RUN(test_devices);
    RUN(test_no_memory);
    RUN(test_threads);
    RUN(test_fork);
    return report();
}
