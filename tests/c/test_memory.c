/* What memory is left, read from a made-up root folder, and taking it. */
#define _GNU_SOURCE
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"
#include "tree.h"

enum { PATH_SIZE = 4096 };
static const uint64_t KIB = 1024, MIB = 1024 * 1024;

/* ---- a made-up root ---------------------------------------------------------------------------------------------- */

static char root[PATH_SIZE];

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk) {
    (void)status, (void)type, (void)walk;
    return remove(path);
}

static void begin_root(void) {
    const char *folder = getenv("TMPDIR");
    (void)snprintf(root, sizeof root, "%s/sumtree-XXXXXX", folder != NULL ? folder : "/tmp");
    if (mkdtemp(root) == NULL) {
        perror(root);
        exit(2);
    }
}

static void end_root(void) { CHECK_INT(0, nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS)); }

/* Writes root/path, making the folders that it needs. */
static void put(const char *path, const char *text) {
    char full[2 * PATH_SIZE];
    const int length = snprintf(full, sizeof full, "%s%s", root, path);
    for (int k = (int)strlen(root) + 1; k < length; ++k) {
        if (full[k] != '/') continue;
        full[k] = '\0';
        if (mkdir(full, 0777) != 0 && errno != EEXIST) perror(full);
        full[k] = '/';
    }
    FILE *file = fopen(full, "w");
    CHECK(file != NULL);
    if (file == NULL) return;
    (void)fputs(text, file);
    CHECK_INT(0, fclose(file));
}

#define CHECK_AVAILABLE(expected) CHECK_INT((expected), memory_available(root))

/* ---- physical memory --------------------------------------------------------------------------------------------- */

static void test_nothing_known(void) {
    begin_root();
    CHECK_AVAILABLE(UINT64_MAX);
    put("/proc/meminfo", "");
    put("/proc/self/cgroup", "");
    CHECK_AVAILABLE(UINT64_MAX);
    end_root();
}

static void test_physical(void) {
    begin_root();
    put("/proc/meminfo", "MemTotal:  16000000 kB\nMemFree:  1 kB\nMemAvailable:    5000 kB\nBuffers: 7 kB\n");
    CHECK_AVAILABLE(5000 * KIB);
    put("/proc/meminfo", "MemTotal:  16000000 kB\nMemFree:  1 kB\n");
    CHECK_AVAILABLE(UINT64_MAX);
    end_root();
}

static void test_tightest_of_both(void) {
    begin_root();
    put("/proc/meminfo", "MemAvailable: 5000 kB\n");
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "6144000\n");
    put("/sys/fs/cgroup/memory.current", "0\n");
    CHECK_AVAILABLE(5000 * KIB);
    put("/sys/fs/cgroup/memory.current", "4144000\n");
    CHECK_AVAILABLE(2000000);
    end_root();
}

/* ---- control groups, version 2 ----------------------------------------------------------------------------------- */

static void put_group_2(const char *folder, const char *max, const char *current, const char *stat) {
    char path[PATH_SIZE];
    const char *names[] = {"memory.max", "memory.current", "memory.stat"};
    const char *texts[] = {max, current, stat};
    for (int k = 0; k < 3; ++k) {
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", folder, names[k]);
        if (texts[k] != NULL) put(path, texts[k]);
    }
}

static void test_group_2(void) {
    begin_root();
    put("/proc/self/cgroup", "0::/job\n");
    put_group_2("/job", "max\n", "1000\n", NULL);
    CHECK_AVAILABLE(UINT64_MAX);
    put_group_2("/job", "1000000\n", "400000\n", NULL);
    CHECK_AVAILABLE(600000);
    /* Page cache that is dropped first does not stand in the way. */
    put_group_2("/job", "1000000\n", "400000\n", "anon 1\nfile 9\ninactive_anon 5\ninactive_file 300000\n");
    CHECK_AVAILABLE(900000);
    put_group_2("/job", "1000000\n", "400000\n", "inactive_file 500000\n");
    CHECK_AVAILABLE(1000000);
    /* A limit that was lowered below the use leaves nothing; it does not wrap round. */
    put_group_2("/job", "1000000\n", "1000001\n", "inactive_file 0\n");
    CHECK_AVAILABLE(0);
    put_group_2("/job", "1000000\n", "1000000\n", "inactive_file 0\n");
    CHECK_AVAILABLE(0);
    end_root();
}

static void test_nested_groups_2(void) {
    begin_root();
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put_group_2("/a/b/c", "max\n", "10\n", NULL);
    put_group_2("/a/b", "900\n", "100\n", NULL);
    put_group_2("/a", "800\n", "300\n", NULL);
    CHECK_AVAILABLE(500);
    put_group_2("/a/b/c", "400\n", "10\n", NULL);
    CHECK_AVAILABLE(390);
    put_group_2("", "200\n", "0\n", NULL);
    CHECK_AVAILABLE(200);
    end_root();
}

/* A container sees its group's path on the host, but its own group at the mount. */
static void test_container(void) {
    begin_root();
    put("/proc/self/cgroup", "0::/host/slice/container\n");
    put_group_2("", "7000\n", "1000\n", NULL);
    CHECK_AVAILABLE(6000);
    put("/proc/self/cgroup", "0::/");
    CHECK_AVAILABLE(6000);
    end_root();
}

static void test_incomplete_groups(void) {
    begin_root();
    put("/proc/self/cgroup", "0::/job\n");
    put_group_2("/job", NULL, "1000\n", NULL);
    CHECK_AVAILABLE(UINT64_MAX);
    put_group_2("/job", "5000\n", "not a number\n", NULL);
    CHECK_AVAILABLE(5000);
    put_group_2("/job", "", "1000\n", NULL);
    CHECK_AVAILABLE(UINT64_MAX);
    put_group_2("/job", "5000", "1000", "nothing that is known 3\n");
    CHECK_AVAILABLE(4000);
    put("/proc/self/cgroup", "no group at all\n\n0::/job\n");
    CHECK_AVAILABLE(4000);
    end_root();
}

/* ---- control groups, version 1 ----------------------------------------------------------------------------------- */

static void put_group_1(const char *folder, const char *limit, const char *usage, const char *stat) {
    char path[PATH_SIZE];
    const char *names[] = {"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"};
    const char *texts[] = {limit, usage, stat};
    for (int k = 0; k < 3; ++k) {
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/%s", folder, names[k]);
        if (texts[k] != NULL) put(path, texts[k]);
    }
}

static void test_group_1(void) {
    begin_root();
    put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/job/step\n1:cpu,cpuacct:/other\n0::/\n");
    put_group_1("", "9223372036854771712\n", "900\n", NULL);
    CHECK_AVAILABLE(9223372036854771712 - 900);
    put_group_1("/job", "5000\n", "1000\n", "inactive_file 1\ntotal_inactive_file 600\n");
    CHECK_AVAILABLE(4600);
    put_group_1("/job/step", "2000\n", "500\n", NULL);
    CHECK_AVAILABLE(1500);
    end_root();
}

/* Version 1 may mount the memory controller together with others. */
static void test_joint_controllers_1(void) {
    static const char *const lines[] = {"4:cpuset,memory:/job\n", "4:memory,hugetlb:/job\n", "4:a,memory,b:/job\n"};
    begin_root();
    put_group_1("/job", "5000\n", "1000\n", NULL);
    for (int k = 0; k < 3; ++k) {
        put("/proc/self/cgroup", lines[k]);
        CHECK_AVAILABLE(4000);
    }
    put("/proc/self/cgroup", "4:nomemory:/job\n5:name=memory:/job\n");
    CHECK_AVAILABLE(UINT64_MAX);
    end_root();
}

static void test_both_versions(void) {
    begin_root();
    put("/proc/self/cgroup", "4:memory:/one\n0::/two\n");
    put_group_1("/one", "5000\n", "1000\n", NULL);
    put_group_2("/two", "3000\n", "500\n", NULL);
    CHECK_AVAILABLE(2500);
    put_group_2("/two", "max\n", "500\n", NULL);
    CHECK_AVAILABLE(4000);
    end_root();
}

/* ---- paths ------------------------------------------------------------------------------------------------------- */

static void test_long_paths(void) {
    begin_root();
    char line[2 * PATH_SIZE] = "0::";
    for (size_t length = strlen(line); length < sizeof line - 2; length += 2) memcpy(line + length, "/g", 3);
    put("/proc/self/cgroup", line);
    put_group_2("", "7000\n", "1000\n", NULL);
    CHECK(memory_available(root) >= 6000);
    end_root();
    memset(root, 'r', sizeof root - 1);
    CHECK_AVAILABLE(UINT64_MAX);
}

static void test_this_machine(void) {
    const uint64_t available = sumtree_memory_available();
    CHECK(available > 64 * MIB && available < UINT64_MAX);
}

/* ---- taking it --------------------------------------------------------------------------------------------------- */

static void test_zeroed(void) {
    static const int64_t counts[] = {1, 2, 7, 1000, 1 << 19, (1 << 19) + 1, 1 << 20};
    for (int k = 0; k < 7; ++k) {
        double *doubles = memory_take_zeroed(counts[k]);
        CHECK(doubles != NULL);
        if (doubles == NULL) return;
        CHECK_INT(0, (uintptr_t)doubles % 64);
        bool zero = true;
        for (int64_t i = 0; i < counts[k]; ++i) zero &= equal_bits(doubles[i], 0.0);
        CHECK(zero);
        free(doubles);
    }
}

int main(void) {
    RUN(test_nothing_known);
    RUN(test_physical);
    RUN(test_tightest_of_both);
    RUN(test_group_2);
    RUN(test_nested_groups_2);
    RUN(test_container);
    RUN(test_incomplete_groups);
    RUN(test_group_1);
    RUN(test_joint_controllers_1);
    RUN(test_both_versions);
    RUN(test_long_paths);
    RUN(test_this_machine);
    RUN(test_zeroed);
    return report();
}
