// libsumtree._core: a backend opened at run time, and its trees.
//
// Nothing here checks what the C library checks. A status other than OK leaves as _core.Failure(name, text, position),
// which tree.py turns into an exception with the offending value in its message.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>

#include "sumtree.h"

namespace nb = nanobind;

namespace {

using Indices = nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using IndicesOut = nb::ndarray<int64_t, nb::c_contig, nb::device::cpu>;
using DoublesOut = nb::ndarray<double, nb::c_contig, nb::device::cpu>;

// Batches up to this many elements keep the GIL: handing it over costs more than the work.
constexpr int64_t SHORT_BATCH = 4096;

struct Failure {
    const char *name;
    const char *text;
    int64_t position;
};

// ---- a backend: one shared library, opened by absolute path with its symbols kept to itself ------------------------

#define SUMTREE_FUNCTIONS(ENTRY)                                                                                       \
    ENTRY(backend)                                                                                                     \
    ENTRY(build)                                                                                                       \
    ENTRY(strerror)                                                                                                    \
    ENTRY(status_name)                                                                                                 \
    ENTRY(create)                                                                                                      \
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
    ENTRY(nodes)

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
    }

    decltype(&sumtree_abi_version) abi_version = nullptr;
#define DECLARE(name) decltype(&sumtree_##name) name = nullptr;
    SUMTREE_FUNCTIONS(DECLARE)
#undef DECLARE

    void check(sumtree_status status, int64_t position = -1) const {
        if (status != SUMTREE_OK) throw Failure{status_name(status), strerror(status), position};
    }

  private:
    template <typename Function> static Function symbol(void *library, const char *name) {
        void *address = dlsym(library, name);
        if (address == nullptr) throw std::runtime_error(dlerror());
        return reinterpret_cast<Function>(address);
    }
};

std::vector<std::tuple<int32_t, std::string, std::string>> status_table(const Backend &backend) {
    std::vector<std::tuple<int32_t, std::string, std::string>> table;
    table.reserve(SUMTREE_STATUS_COUNT);
    for (int32_t status = 0; status < SUMTREE_STATUS_COUNT; ++status) {
        table.emplace_back(status, backend.status_name(status), backend.strerror(status));
    }
    return table;
}

void masses_of(const Backend &backend, const Doubles &priorities, double alpha, const DoublesOut &masses) {
    int64_t position = -1;
    const auto count = static_cast<int64_t>(priorities.size());
    const auto compute = [&] { return backend.masses(count, priorities.data(), alpha, masses.data(), &position); };
    const auto status = count <= SHORT_BATCH ? compute() : (nb::gil_scoped_release(), compute());
    backend.check(status, position);
}

// ---- forks: a child may use what no thread was in the middle of -----------------------------------------------------

// Shared by every thread that is inside a library without the GIL; a fork takes it alone. Threads that hold the GIL need
// none: the one that forks holds it.
std::shared_mutex outside_the_gil;

void hold_for_fork() {
    nb::gil_scoped_release released;
    outside_the_gil.lock();
}

// In the child, the thread that holds it is another one than the mutex knows.
void release_after_fork(bool in_child) {
    if (in_child) {
        new (&outside_the_gil) std::shared_mutex;
    } else {
        outside_the_gil.unlock();
    }
}

// ---- a tree: any number of readers or one writer -------------------------------------------------------------------

// The elements of an argument, which stay what they were checked to be: a long batch runs without the GIL, while other
// threads may write to the caller's array, so it is copied.
template <typename Element> class Steady {
  public:
    Steady(const Element *elements, size_t count) : elements_(elements) {
        if (count <= static_cast<size_t>(SHORT_BATCH)) return;
        copy_.assign(elements, elements + count);
        elements_ = copy_.data();
    }
    const Element *data() const { return elements_; }

  private:
    std::vector<Element> copy_;
    const Element *elements_;
};

using Reader = std::shared_lock<std::shared_mutex>;
using Writer = std::unique_lock<std::shared_mutex>;

// (key, counter, buffer_pos) of NumPy's Philox.
using PhiloxState = std::tuple<std::vector<uint64_t>, std::vector<uint64_t>, int32_t>;

class Tree {
  public:
    Tree(const Backend &backend, int64_t capacity, int kind) : backend_(backend) {
        nb::gil_scoped_release released;
        const auto status = backend.create(capacity, static_cast<sumtree_kind>(kind), &tree_);
        backend.check(status);
    }
    ~Tree() { backend_.free(tree_); }
    Tree(const Tree &) = delete;
    Tree &operator=(const Tree &) = delete;

    int64_t padded_capacity() const { return backend_.padded_capacity(tree_); }

    // masses is one number for all (no axes) or one for each index.
    void update(const Indices &indices, const Doubles &masses) {
        const auto count = static_cast<int64_t>(indices.size());
        int64_t position = -1;
        const Steady<int64_t> where(indices.data(), indices.size());
        const Steady<double> what(masses.data(), masses.size());
        const auto status = locked<Writer>(
            count, [&] { return backend_.update(tree_, count, where.data(), what.data(), step(masses), &position); });
        backend_.check(status, position);
    }

    void update_range(int64_t start, int64_t count, const Doubles &masses) {
        int64_t position = -1;
        const Steady<double> what(masses.data(), masses.size());
        const auto status = locked<Writer>(
            count, [&] { return backend_.update_range(tree_, start, count, what.data(), step(masses), &position); });
        backend_.check(status, position);
    }

    void get(const Indices &indices, const DoublesOut &masses) const {
        const auto count = static_cast<int64_t>(indices.size());
        int64_t position = -1;
        const Steady<int64_t> where(indices.data(), indices.size());
        const auto status =
            locked<Reader>(count, [&] { return backend_.get(tree_, count, where.data(), masses.data(), &position); });
        backend_.check(status, position);
    }

    void get_range(int64_t start, const DoublesOut &masses) const {
        const auto count = static_cast<int64_t>(masses.size());
        backend_.check(locked<Reader>(count, [&] { return backend_.get_range(tree_, start, count, masses.data()); }));
    }

    double sum(int64_t start, int64_t stop) const {
        double value = 0.0;
        backend_.check(locked<Reader>(1, [&] { return backend_.sum(tree_, start, stop, &value); }));
        return value;
    }

    double min(int64_t start, int64_t stop) const {
        double value = 0.0;
        backend_.check(locked<Reader>(1, [&] { return backend_.min(tree_, start, stop, &value); }));
        return value;
    }

    double root(int plane) const {
        double value = 0.0;
        backend_.check(
            locked<Reader>(1, [&] { return backend_.root(tree_, static_cast<sumtree_plane>(plane), &value); }));
        return value;
    }

    void find(const Doubles &targets, int side, const IndicesOut &indices) const {
        const auto count = static_cast<int64_t>(targets.size());
        int64_t position = -1;
        const auto status = locked<Reader>(count, [&] {
            return backend_.find(tree_, count, targets.data(), static_cast<sumtree_side>(side), indices.data(),
                                 &position);
        });
        backend_.check(status, position);
    }

    void sample(double beta, bool stratified, const IndicesOut &indices, const DoublesOut &masses,
                const DoublesOut &weights) {
        const auto count = static_cast<int64_t>(indices.size());
        backend_.check(locked<Writer>(count, [&] {
            return backend_.sample(tree_, &rng_, count, beta, stratified, indices.data(), masses.data(),
                                   weights.data());
        }));
    }

    PhiloxState rng() const {
        sumtree_philox rng;
        (void)locked<Reader>(1, [&] { return rng = rng_, SUMTREE_OK; });
        return {
            {std::begin(rng.key), std::end(rng.key)}, {std::begin(rng.counter), std::end(rng.counter)}, rng.buffer_pos};
    }

    void set_rng(const PhiloxState &state) {
        const auto &[key, counter, buffer_pos] = state;
        if (key.size() != 2 || counter.size() != 4 || buffer_pos < 0 || buffer_pos > 4) {
            backend_.check(SUMTREE_ARGUMENT);
        }
        sumtree_philox rng;
        std::copy(key.begin(), key.end(), rng.key);
        std::copy(counter.begin(), counter.end(), rng.counter);
        rng.buffer_pos = buffer_pos;
        (void)locked<Writer>(1, [&] { return rng_ = rng, SUMTREE_OK; });
    }

    // The plane and node of the first fault, or (-1, -1).
    std::pair<int, int64_t> validate() const {
        sumtree_plane plane{};
        int64_t node = -1;
        const auto status = locked<Reader>(padded_capacity(), [&] { return backend_.validate(tree_, &plane, &node); });
        return status == SUMTREE_OK ? std::pair<int, int64_t>(-1, -1) : std::pair<int, int64_t>(plane, node);
    }

    // nodes holds 2 * padded_capacity doubles.
    void nodes(int plane, const DoublesOut &nodes) const {
        backend_.check(locked<Reader>(
            padded_capacity(), [&] { return backend_.nodes(tree_, static_cast<sumtree_plane>(plane), nodes.data()); }));
    }

  private:
    static int64_t step(const Doubles &masses) { return masses.ndim() == 0 ? 0 : 1; }

    // A short batch that finds the tree free runs with the GIL. Whoever must wait waits without it, and gives the lock up
    // before the GIL is taken again: so nobody waits for the GIL while holding a tree, and nobody for a tree while
    // holding the GIL. A writer that waits holds the turnstile: readers that come after it wait behind it, so that they
    // cannot keep it out for ever.
    template <typename Lock, typename Work> sumtree_status locked(int64_t count, Work &&work) const {
        if (count <= SHORT_BATCH) {
            const std::unique_lock<std::mutex> turn(turnstile_, std::try_to_lock);
            Lock lock(mutex_, std::defer_lock);
            if (turn.owns_lock() && lock.try_lock()) return work();
        }
        const nb::gil_scoped_release released;
        const Reader no_fork(outside_the_gil);
        std::unique_lock<std::mutex> turn(turnstile_);
        const Lock lock(mutex_);
        turn.unlock();
        return work();
    }

    const Backend &backend_;
    sumtree_t *tree_ = nullptr;
    sumtree_philox rng_{};
    mutable std::mutex turnstile_;
    mutable std::shared_mutex mutex_;
};

PyObject *failure_type = nullptr;

void translate_failure(const std::exception_ptr &thrown, void *) {
    try {
        std::rethrow_exception(thrown);
    } catch (const Failure &failure) {
        const nb::tuple arguments = nb::make_tuple(failure.name, failure.text, failure.position);
        PyErr_SetObject(failure_type, arguments.ptr());
    }
}

} // namespace

NB_MODULE(_core, module) {
    nb::set_leak_warnings(false); // a backend stays open until the process ends
    failure_type = PyErr_NewException("libsumtree._core.Failure", nullptr, nullptr);
    module.attr("Failure") = nb::handle(failure_type);
    nb::register_exception_translator(translate_failure);
    module.def("nothing", [](nb::handle, nb::handle) {}); // what a call with two arguments costs
    module.def("hold_for_fork", &hold_for_fork);
    module.def("release_after_fork", &release_after_fork);
    module.attr("ABI_VERSION") = SUMTREE_ABI_VERSION;
    module.attr("MAX_CAPACITY") = SUMTREE_MAX_CAPACITY;
    module.attr("MAX_MASS") = SUMTREE_MAX_MASS;

    nb::class_<Backend>(module, "Backend")
        .def(nb::init<const std::string &>(), nb::arg("path"))
        .def_prop_ro("abi_version", [](const Backend &self) { return self.abi_version(); })
        .def_prop_ro("name", [](const Backend &self) { return self.backend(); })
        .def_prop_ro("build", [](const Backend &self) { return self.build(); })
        .def("memory_available", [](const Backend &self) { return self.memory_available(); })
        .def("bytes", [](const Backend &self, int64_t capacity,
                         int kind) { return self.bytes(capacity, static_cast<sumtree_kind>(kind)); })
        .def("masses", &masses_of)
        .def("status_table", &status_table);

    nb::class_<Tree>(module, "Tree")
        .def(nb::init<const Backend &, int64_t, int>(), nb::arg("backend"), nb::arg("capacity"), nb::arg("kind"),
             nb::keep_alive<1, 2>())
        .def_prop_ro("padded_capacity", &Tree::padded_capacity)
        .def("update", &Tree::update)
        .def("update_range", &Tree::update_range)
        .def("get", &Tree::get)
        .def("get_range", &Tree::get_range)
        .def("sum", &Tree::sum)
        .def("min", &Tree::min)
        .def("root", &Tree::root)
        .def("find", &Tree::find)
        .def("sample", &Tree::sample)
        .def_prop_rw("rng", &Tree::rng, &Tree::set_rng)
        .def("validate", &Tree::validate)
        .def("nodes", &Tree::nodes);
}
