/* What a C test needs: checks that say where and what, and a report.
 *
 *     static void test_thing(void) { CHECK(1 + 1 == 2); }
 *     int main(void) { RUN(test_thing); return report(); }
 */
#ifndef SUMTREE_TEST_H
#define SUMTREE_TEST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sumtree.h"

static const char *current_test = "";
static int64_t checks = 0;
static int64_t failures = 0;

static inline bool record(bool passed, const char *file, int line) {
    ++checks;
    if (passed) return true;
    ++failures;
    printf("%s:%d: %s: ", file, line, current_test);
    return false;
}

static inline void check(bool passed, const char *text, const char *file, int line) {
    if (!record(passed, file, line)) printf("not true: %s\n", text);
}

static inline void check_int(int64_t expected, int64_t actual, const char *text, const char *file, int line) {
    if (!record(expected == actual, file, line)) {
        printf("%s is %" PRId64 ", expected %" PRId64 "\n", text, actual, expected);
    }
}

static inline void check_status(int32_t expected, int32_t actual, const char *text, const char *file, int line) {
    if (!record(expected == actual, file, line)) {
        printf("%s is %s, expected %s\n", text, sumtree_status_name(actual), sumtree_status_name(expected));
    }
}

static inline bool equal_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static inline bool same_rng(const sumtree_philox *a, const sumtree_philox *b) {
    return memcmp(a->key, b->key, sizeof a->key) == 0 && memcmp(a->counter, b->counter, sizeof a->counter) == 0 &&
           a->buffer_pos == b->buffer_pos;
}

static inline void check_double(double expected, double actual, const char *text, const char *file, int line) {
    if (!record(equal_bits(expected, actual), file, line)) {
        printf("%s is %a, expected %a\n", text, actual, expected);
    }
}

#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)
#define CHECK_INT(expected, actual) check_int((int64_t)(expected), (int64_t)(actual), #actual, __FILE__, __LINE__)
#define CHECK_STATUS(expected, actual) check_status(SUMTREE_##expected, (actual), #actual, __FILE__, __LINE__)
#define CHECK_DOUBLE(expected, actual) check_double((expected), (actual), #actual, __FILE__, __LINE__)

#define RUN(test)                                                                                                      \
    do {                                                                                                               \
        current_test = #test;                                                                                          \
        test();                                                                                                        \
    } while (0)

/* The exit status of the program. */
static inline int report(void) {
    printf("%" PRId64 " checks, %" PRId64 " failed\n", checks, failures);
    return failures == 0 && checks > 0 ? 0 : 1;
}

#endif
