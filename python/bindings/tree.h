// A tree: any number of readers or one writer.
#ifndef SUMTREE_BINDINGS_TREE_H
#define SUMTREE_BINDINGS_TREE_H

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "backend.h"
#include "devices.h"
#include "distinct.h"
#include "threads.h"

namespace bindings {

// (key, counter, buffer_pos) of NumPy's Philox.
using PhiloxState = std::tuple<std::vector<uint64_t>, std::vector<uint64_t>, int32_t>;

// The longest batch that `Tree::append_packed` takes.
constexpr int64_t MOST_PACKED = 1024;

// What a call says, and the first bad position of its batch.
struct Outcome {
    sumtree_status status = SUMTREE_OK;
    int64_t position = -1;
};

class Tree {
  public:
    // device: -1 for backends whose trees are in host memory.
    Tree(const Backend &backend, int64_t capacity, int kind, int32_t device) : backend_(backend), device_(device) {
        backend.enter();
        const auto create = [&] {
            const auto chosen = static_cast<sumtree_kind>(kind);
            return device < 0 ? backend.create(capacity, chosen, &tree_)
                              : backend.create_on(device, capacity, chosen, &tree_);
        };
        auto status = without_the_gil(create);
        if (status == SUMTREE_MEMORY && device >= 0) {
            Pool &pool = pool_of(backend, device);
            status = without_the_gil([&] {
                pool.release_all();
                return create();
            });
        }
        backend.check(status);
        padded_capacity_ = backend.padded_capacity(tree_);
    }
    ~Tree() {
        if (backend_.usable()) backend_.free(tree_);
    }
    Tree(const Tree &) = delete;
    Tree &operator=(const Tree &) = delete;

    int64_t padded_capacity() const { return padded_capacity_; }
    int32_t device() const { return device_; }
    bool is_closed() const { return tree_ == nullptr; }

    // (0, 0), which is no device of DLPack's, for trees in host memory.
    std::pair<int, int> dlpack_device() const {
        if (device_ < 0) return {0, 0};
        return {backend_.device_is_host ? DLPACK_CPU : DLPACK_CUDA, device_};
    }

    // Frees the memory now, after the calls of other threads have ended; twice is no harm.
    void close() {
        if (is_closed()) return;
        if (!backend_.usable()) {
            tree_ = nullptr;
            return;
        }
        const Outside counted(outside_);
        without_the_gil([this] {
            const std::lock_guard<std::mutex> turn(turnstile_);
            const Writer lock(mutex_);
            backend_.free(tree_);
            tree_ = nullptr;
        });
    }

    // masses is one number for all (step 0) or one for each index.
    Outcome try_update(int64_t count, const int64_t *indices, const double *masses, int64_t step) {
        if (!keeps_the_gil(count)) return update_outside(count, indices, masses, step);
        check_open();
        Outcome outcome;
        outcome.status = backend_.update(tree_, count, indices, masses, step, &outcome.position);
        return outcome;
    }

    Outcome try_get(int64_t count, const int64_t *indices, double *masses) const {
        if (!keeps_the_gil(count)) return get_outside(count, indices, masses);
        check_open();
        Outcome outcome;
        outcome.status = backend_.get(tree_, count, indices, masses, &outcome.position);
        return outcome;
    }

    Outcome try_find(int64_t count, const double *targets, int side, int64_t *indices) const {
        Outcome outcome;
        outcome.status = locked<Reader>(count, [&] {
            return backend_.find(tree_, count, targets, static_cast<sumtree_side>(side), indices, &outcome.position);
        });
        return outcome;
    }

    Outcome try_sample(int64_t count, double beta, bool stratified, int64_t *indices, double *masses, double *weights) {
        return {locked<Writer>(
            count, [&] { return backend_.sample(tree_, &rng_, count, beta, stratified, indices, masses, weights); })};
    }

    void update(nb::handle indices, nb::handle masses) {
        const Plain<int64_t> where(indices);
        const Plain<double> what(masses);
        check(try_update(where.size(), where.data(), what.data(), what.axes() == 0 ? 0 : 1));
    }

    void update_range(int64_t start, int64_t count, nb::handle masses) {
        const Plain<double> given(masses);
        int64_t position = -1;
        const auto update = [&](const double *what) {
            return backend_.update_range(tree_, start, count, what, given.axes() == 0 ? 0 : 1, &position);
        };
        auto status = SUMTREE_OK;
        if (keeps_the_gil(count)) {
            check_open();
            status = update(given.data());
        } else {
            const std::vector<double> what(given.data(), given.data() + given.size());
            status = outside<Writer>([&] { return update(what.data()); });
        }
        backend_.check(status, position);
    }

    // Takes a batch as a message holds it: `count` priorities, then the bytes of as many records, from `offset` on. The
    // records go to their slots in `storage`, and the leaves get priority ** alpha. False, and nothing has changed,
    // where a priority is bad, or the call would have to give up the GIL.
    bool append_packed(int64_t start, int64_t count, nb::handle message, int64_t offset, int64_t itemsize,
                       const Backend &powers, double alpha, nb::handle storage) {
        const Plain<uint8_t> from(message), to(storage);
        if (count < 1 || count > MOST_PACKED || !keeps_the_gil(count)) return false;
        const int64_t head = static_cast<int64_t>(sizeof(double)) * count;
        const bool fits = start >= 0 && offset >= 0 && itemsize > 0 && itemsize <= to.size() / count &&
                          start <= to.size() / itemsize - count && offset <= from.size() - head - count * itemsize;
        if (!fits || !to.is_writable()) backend_.check(SUMTREE_RANGE);
        check_open();
        double priorities[MOST_PACKED], masses[MOST_PACKED];
        std::memcpy(priorities, from.data() + offset, sizeof(double) * count); // a message need not be aligned
        int64_t position = -1;
        if (powers.masses(count, priorities, alpha, masses, &position) != SUMTREE_OK) return false;
        backend_.check(backend_.update_range(tree_, start, count, masses, 1, &position), position);
        std::memcpy(to.data() + start * itemsize, from.data() + offset + head, count * itemsize);
        return true;
    }

    void get(nb::handle indices, nb::handle masses) const {
        const Plain<int64_t> where(indices);
        check(try_get(where.size(), where.data(), Plain<double>(masses).data()));
    }

    void get_range(int64_t start, nb::handle masses) const {
        const Plain<double> out(masses);
        const int64_t count = out.size();
        backend_.check(locked<Reader>(count, [&] { return backend_.get_range(tree_, start, count, out.data()); }));
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

    void find(nb::handle targets, int side, nb::handle indices) const {
        const Plain<double> what(targets);
        check(try_find(what.size(), what.data(), side, Plain<int64_t>(indices).data()));
    }

    void sample(double beta, bool stratified, nb::handle indices, nb::handle masses, nb::handle weights) {
        const Plain<int64_t> where(indices);
        check(try_sample(where.size(), beta, stratified, where.data(), Plain<double>(masses).data(),
                         Plain<double>(weights).data()));
    }

    // Without replacement; the position of a failure EMPTY: how many leaves there were to draw.
    void sample_distinct(double beta, nb::handle indices, nb::handle masses, nb::handle weights,
                         nb::handle expansions) {
        const Plain<int64_t> where(indices);
        const DistinctResults results{where.data(), Plain<double>(masses).data(), Plain<double>(weights).data(),
                                      Plain<double>(expansions).data()};
        Outcome outcome;
        outcome.status = locked<Writer>(where.size(), [&] {
            try {
                return DistinctDraw(backend_, tree_, where.size(), results).draw(&rng_, beta, &outcome.position);
            } catch (const std::bad_alloc &) {
                return SUMTREE_MEMORY;
            }
        });
        check(outcome);
    }

    // ---- in the memory of the tree's device ----

    DeviceArray new_array(std::vector<size_t> shape, bool holds_indices) const {
        return {backend_, device_, std::move(shape), holds_indices};
    }

    Outcome try_device_update(Span indices, Span masses) {
        Outcome outcome;
        outcome.status = outside<Writer>([&] {
            return backend_.device_update(tree_, indices.size, indices.as<int64_t>(), masses.as<double>(),
                                          masses.axes == 0 ? 0 : 1, &outcome.position);
        });
        return outcome;
    }

    Outcome try_device_get(Span indices, Span masses) const {
        Outcome outcome;
        outcome.status = outside<Reader>([&] {
            return backend_.device_get(tree_, indices.size, indices.as<int64_t>(), masses.as<double>(),
                                       &outcome.position);
        });
        return outcome;
    }

    Outcome try_device_find(Span targets, int side, Span indices) const {
        Outcome outcome;
        outcome.status = outside<Reader>([&] {
            return backend_.device_find(tree_, targets.size, targets.as<double>(), static_cast<sumtree_side>(side),
                                        indices.as<int64_t>(), &outcome.position);
        });
        return outcome;
    }

    Outcome try_device_sample(double beta, bool stratified, Span indices, Span masses, Span weights) {
        return {outside<Writer>([&] {
            return backend_.device_sample(tree_, &rng_, indices.size, beta, stratified, indices.as<int64_t>(),
                                          masses.as<double>(), weights.as<double>());
        })};
    }

    void device_update(const DeviceView &indices, const DeviceView &masses) {
        check(try_device_update(Span(indices), Span(masses)));
    }

    DeviceArray device_get(const DeviceView &indices) const {
        auto masses = new_array(indices.shape(), false);
        check(try_device_get(Span(indices), Span(masses)));
        return masses;
    }

    DeviceArray device_find(const DeviceView &targets, int side) const {
        auto indices = new_array(targets.shape(), true);
        check(try_device_find(Span(targets), side, Span(indices)));
        return indices;
    }

    // The arrays are DeviceViews or DeviceArrays.
    void device_sample(double beta, bool stratified, nb::handle indices, nb::handle masses, nb::handle weights) {
        check(try_device_sample(beta, stratified, span_of(indices), span_of(masses), span_of(weights)));
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
        const auto status = locked<Reader>(padded_capacity_, [&] { return backend_.validate(tree_, &plane, &node); });
        if (status == SUMTREE_CORRUPT) return {plane, node};
        backend_.check(status);
        return {-1, -1};
    }

    // nodes holds 2 * padded_capacity doubles.
    void nodes(int plane, nb::handle nodes) const {
        const Plain<double> out(nodes);
        backend_.check(locked<Reader>(
            padded_capacity_, [&] { return backend_.nodes(tree_, static_cast<sumtree_plane>(plane), out.data()); }));
    }

  private:
    void check(const Outcome &outcome) const { backend_.check(outcome.status, outcome.position); }

    // A short batch that finds nobody inside without the GIL runs with it: nobody can come in meanwhile. Calls of a
    // device always give it up.
    bool keeps_the_gil(int64_t count) const { return count <= SHORT_BATCH && outside_ == 0 && !backend_.is_gpu; }

    template <typename Lock, typename Work> sumtree_status locked(int64_t count, Work &&work) const {
        if (!keeps_the_gil(count)) return outside<Lock>(work);
        check_open();
        return work();
    }

    // What was checked is read again: a call without the GIL, while other threads may write to the caller's arrays, gets
    // copies. Out of line, so that a short call is short.
    [[gnu::noinline]] Outcome update_outside(int64_t count, const int64_t *indices, const double *masses,
                                             int64_t step) {
        const std::vector<int64_t> where(indices, indices + count);
        const std::vector<double> what(masses, masses + (step == 0 ? 1 : count));
        Outcome outcome;
        outcome.status = outside<Writer>(
            [&] { return backend_.update(tree_, count, where.data(), what.data(), step, &outcome.position); });
        return outcome;
    }

    [[gnu::noinline]] Outcome get_outside(int64_t count, const int64_t *indices, double *masses) const {
        const std::vector<int64_t> where(indices, indices + count);
        Outcome outcome;
        outcome.status =
            outside<Reader>([&] { return backend_.get(tree_, count, where.data(), masses, &outcome.position); });
        return outcome;
    }

    // Waits and runs without the GIL, and gives the lock up before the GIL is taken again: so nobody waits for the GIL
    // while holding a tree, and nobody for a tree while holding the GIL. A writer that waits holds the turnstile: readers
    // that come after it wait behind it, so that they cannot keep it out for ever.
    template <typename Lock, typename Work> sumtree_status outside(Work &&work) const {
        backend_.enter();
        const Outside counted(outside_);
        return without_the_gil([&] {
            std::unique_lock<std::mutex> turn(turnstile_);
            const Lock lock(mutex_);
            turn.unlock();
            check_open();
            return work();
        });
    }

    void check_open() const {
        if (is_closed()) refuse();
    }

    [[noreturn, gnu::noinline]] static void refuse() {
        throw Failure{"CLOSED", "this tree was closed, its memory is freed: make another", -1};
    }

    // Changes with the GIL held alone: before it is given up, and after it is taken again.
    class Outside {
      public:
        explicit Outside(int &count) : count_(count) { ++count_; }
        ~Outside() { --count_; }
        Outside(const Outside &) = delete;
        Outside &operator=(const Outside &) = delete;

      private:
        int &count_;
    };

    const Backend &backend_;
    const int32_t device_;
    int64_t padded_capacity_ = 0;
    sumtree_t *tree_ = nullptr;
    sumtree_philox rng_{};
    mutable int outside_ = 0;
    mutable std::mutex turnstile_;
    mutable std::shared_mutex mutex_;
};

} // namespace bindings

#endif
