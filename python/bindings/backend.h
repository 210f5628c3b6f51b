// A backend: one shared library, opened by absolute path with its symbols kept to itself.
#ifndef SUMTREE_BINDINGS_BACKEND_H
#define SUMTREE_BINDINGS_BACKEND_H

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "sumtree.h"

namespace bindings {

// A status other than OK, on its way to its exception.
struct Failure {
    const char *name;
    const char *text;
    int64_t position;
};

// How many forks this process is away from the one that the interpreter started in.
inline int forks = 0;

#define SUMTREE_FUNCTIONS(ENTRY)                                                                                       \
    ENTRY(backend)                                                                                                     \
    ENTRY(build)                                                                                                       \
    ENTRY(vector_level)                                                                                                \
    ENTRY(vector_levels)                                                                                               \
    ENTRY(select_vector_level)                                                                                         \
    ENTRY(strerror)                                                                                                    \
    ENTRY(status_name)                                                                                                 \
    ENTRY(create)                                                                                                      \
    ENTRY(create_on)                                                                                                   \
    ENTRY(free)                                                                                                        \
    ENTRY(padded_capacity)                                                                                             \
    ENTRY(memory_available)                                                                                            \
    ENTRY(bytes)                                                                                                       \
    ENTRY(update)                                                                                                      \
    ENTRY(update_range)                                                                                                \
    ENTRY(get)                                                                                                         \
    ENTRY(get_range)                                                                                                   \
    ENTRY(sum)                                                                                                         \
    ENTRY(min)                                                                                                         \
    ENTRY(root)                                                                                                        \
    ENTRY(find)                                                                                                        \
    ENTRY(sample)                                                                                                      \
    ENTRY(masses)                                                                                                      \
    ENTRY(validate)                                                                                                    \
    ENTRY(nodes)                                                                                                       \
    ENTRY(device_count)                                                                                                \
    ENTRY(device_problem)                                                                                              \
    ENTRY(device_name)                                                                                                 \
    ENTRY(device_memory_available)                                                                                     \
    ENTRY(device_allocate)                                                                                             \
    ENTRY(device_release)                                                                                              \
    ENTRY(device_update)                                                                                               \
    ENTRY(device_get)                                                                                                  \
    ENTRY(device_find)                                                                                                 \
    ENTRY(device_sample)

// Never closed: trees may outlive any handle, and OpenMP or OpenACC runtimes do not survive dlclose.
class Backend {
  public:
    explicit Backend(const std::string &path) {
        void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) throw std::runtime_error(dlerror());
        abi_version = symbol<decltype(abi_version)>(library, "sumtree_abi_version");
        if (abi_version() != SUMTREE_ABI_VERSION) return; // the caller looks at it before anything else
#define LOAD(name) name = symbol<decltype(name)>(library, "sumtree_" #name);
        SUMTREE_FUNCTIONS(LOAD)
#undef LOAD
        is_gpu = std::strcmp(backend(), "gpu") == 0;
        const char *on_host = std::getenv("LIBSUMTREE_GPU_ON_HOST");
        device_is_host = is_gpu && on_host != nullptr && std::strcmp(on_host, "for-tests") == 0;
    }

    decltype(&sumtree_abi_version) abi_version = nullptr;
#define DECLARE(name) decltype(&sumtree_##name) name = nullptr;
    SUMTREE_FUNCTIONS(DECLARE)
#undef DECLARE
    bool is_gpu = false;
    bool device_is_host = false; // in tests

    void check(sumtree_status status, int64_t position = -1) const {
        if (status != SUMTREE_OK) throw Failure{status_name(status), strerror(status), position};
    }

    // Comes before every call that may use a device: what a process began with one ends in a child of fork.
    void enter() const {
        if (!is_gpu) return;
        if (entered_ < 0) entered_ = forks;
        if (!usable()) throw Failure{"DEVICE", FORKED, -1};
    }

    // Tells whether what was made before a possible fork may be freed.
    bool usable() const { return !is_gpu || entered_ == forks; }

    int32_t count_devices() const {
        enter();
        return device_count();
    }

    std::string problem_of_devices() const { return count_devices() > 0 ? "" : device_problem(); }

    std::string name_of_device(int32_t device) const {
        enter();
        return device_name(device);
    }

    uint64_t memory_of_device(int32_t device) const {
        enter();
        return device_memory_available(device);
    }

    void choose_vector_level(const std::string &level) const { check(select_vector_level(level.c_str())); }

    std::vector<std::tuple<int32_t, std::string, std::string>> status_table() const {
        std::vector<std::tuple<int32_t, std::string, std::string>> table;
        table.reserve(SUMTREE_STATUS_COUNT);
        for (int32_t status = 0; status < SUMTREE_STATUS_COUNT; ++status) {
            table.emplace_back(status, status_name(status), strerror(status));
        }
        return table;
    }

  private:
    static constexpr const char *FORKED =
        "this process was forked from one that uses the GPU, which does not survive that: start it with the "
        "multiprocessing method 'spawn', or make its trees on the cpu backend";

    template <typename Function> static Function symbol(void *library, const char *name) {
        void *address = dlsym(library, name);
        if (address == nullptr) throw std::runtime_error(dlerror());
        return reinterpret_cast<Function>(address);
    }

    mutable int entered_ = -1; // `forks` when a device was first used
};

} // namespace bindings

#endif
