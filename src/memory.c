/* How much memory this process may still take, and taking it: all pages at once, so that no later call runs out. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tree.h"

enum { PATH_SIZE = 4096, LINE_SIZE = 4096 };
static const size_t HUGE_PAGE = (size_t)2 << 20;
static const size_t CACHE_LINE = 64;

static bool join(char *path, const char *root, const char *folder, const char *file) {
    const int length = snprintf(path, PATH_SIZE, "%s%s/%s", root, folder, file);
    return length > 0 && length < PATH_SIZE;
}

/* Reads a decimal number; false for anything else, such as "max". */
static bool parse_number(const char *text, uint64_t *number) {
    char *end = NULL;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return end != text && errno == 0;
}

/* The number after `name` in a file of "name number" lines; an empty name takes the file's first line. */
static bool read_number(const char *path, const char *name, uint64_t *number) {
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    char line[LINE_SIZE];
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        found = strncmp(line, name, strlen(name)) == 0 && parse_number(line + strlen(name), number);
    }
    (void)fclose(file);
    return found;
}

static uint64_t physical_available(const char *root) {
    char path[PATH_SIZE];
    uint64_t kibibytes;
    if (join(path, root, "/proc", "meminfo") && read_number(path, "MemAvailable:", &kibibytes)) return kibibytes * 1024;
    return UINT64_MAX;
}

typedef struct cgroup_files {
    const char *mount;
    const char *limit;
    const char *usage;
    const char *reclaimable; /* page cache that the kernel drops first: not a use that stands in the way */
} cgroup_files;

static const cgroup_files CGROUP_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};
static const cgroup_files CGROUP_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                      "total_inactive_file "};

/* What one control group leaves. "max" is no number, so an unlimited group reads as UINT64_MAX. */
static uint64_t group_available(const char *root, const char *folder, const cgroup_files *files) {
    char path[PATH_SIZE];
    uint64_t limit, usage, reclaimable = 0;
    if (!join(path, root, folder, files->limit) || !read_number(path, "", &limit)) return UINT64_MAX;
    if (!join(path, root, folder, files->usage) || !read_number(path, "", &usage)) return limit;
    if (join(path, root, folder, "memory.stat")) (void)read_number(path, files->reclaimable, &reclaimable);
    usage -= reclaimable < usage ? reclaimable : usage;
    return usage < limit ? limit - usage : 0;
}

/* The tightest of a group and all its ancestors; inside a container the mount itself is the group. */
static uint64_t hierarchy_available(const char *root, const char *group, const cgroup_files *files) {
    char folder[PATH_SIZE];
    const int length = snprintf(folder, sizeof folder, "%s%s", files->mount, group);
    if (length < 0 || length >= (int)sizeof folder) return UINT64_MAX;
    uint64_t available = UINT64_MAX;
    for (;;) {
        const uint64_t here = group_available(root, folder, files);
        if (here < available) available = here;
        if (strlen(folder) <= strlen(files->mount)) return available;
        *strrchr(folder, '/') = '\0';
    }
}

/* Tells whether "memory" is one of the controllers in a list such as "cpu,memory". */
static bool lists_memory(const char *controllers) {
    for (const char *at = controllers; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, "memory", 6) == 0 && (at[6] == ',' || at[6] == '\0')) return true;
    }
    return false;
}

/* What one line of /proc/self/cgroup, "hierarchy:controllers:group", leaves. Writes to the line. */
static uint64_t membership_available(const char *root, char *line) {
    char *rest = line;
    const char *hierarchy = strsep(&rest, ":");
    const char *controllers = strsep(&rest, ":");
    const char *group = strsep(&rest, "\n");
    if (group == NULL || *group != '/') return UINT64_MAX;
    if (lists_memory(controllers)) return hierarchy_available(root, group, &CGROUP_1);
    const bool unified = strcmp(hierarchy, "0") == 0 && *controllers == '\0';
    return unified ? hierarchy_available(root, group, &CGROUP_2) : UINT64_MAX;
}

static uint64_t cgroup_available(const char *root) {
    char path[PATH_SIZE], line[LINE_SIZE];
    uint64_t available = UINT64_MAX;
    FILE *file = join(path, root, "/proc", "self/cgroup") ? fopen(path, "re") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const uint64_t here = membership_available(root, line);
        if (here < available) available = here;
    }
    if (file != NULL) (void)fclose(file);
    return available;
}

uint64_t memory_available(const char *root) {
    const uint64_t physical = physical_available(root);
    const uint64_t group = cgroup_available(root);
    return physical < group ? physical : group;
}

/* Page tables take 8 bytes for each page of 4 KiB, and the allocator a little: without this reserve a tree that just
 * fits is killed while its pages are taken. */
uint64_t memory_to_spare(void) {
    const uint64_t available = memory_available("");
    if (available == UINT64_MAX) return available;
    const uint64_t reserve = available / 256 + ((uint64_t)1 << 20);
    return reserve < available ? available - reserve : 0;
}

double *memory_take_zeroed(int64_t doubles) {
    const size_t bytes = (size_t)doubles * sizeof(double);
    const bool large = bytes >= 2 * HUGE_PAGE;
    void *block = NULL;
    if (posix_memalign(&block, large ? HUGE_PAGE : CACHE_LINE, bytes) != 0) return NULL;
    /* Descents touch one line of many pages; a refusal only costs speed. */
    if (large) (void)madvise(block, bytes, MADV_HUGEPAGE);
    memset(block, 0, bytes);
    return block;
}
