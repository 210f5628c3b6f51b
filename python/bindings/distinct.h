// Draws without replacement: successive sampling by draws with replacement whose repetitions are passed over.
#ifndef SUMTREE_BINDINGS_DISTINCT_H
#define SUMTREE_BINDINGS_DISTINCT_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <vector>

#include "backend.h"

namespace bindings {

// Where the results of a draw go, each of `count` elements.
struct DistinctResults {
    int64_t *indices;
    double *masses;
    double *weights;
    double *expansions;
};

// One draw. It takes all memory before it changes anything, and leaves the tree with the masses that it found: the bits
// of a tree are a function of its leaves. Nobody else may use the tree meanwhile.
class DistinctDraw {
  public:
    DistinctDraw(const Backend &backend, sumtree_t *tree, int64_t count, DistinctResults results)
        : backend_(backend), tree_(tree), count_(count), results_(results), indices_(count), masses_(count),
          weights_(count) {
        int bits = 1;
        while (int64_t{1} << bits < 2 * count) ++bits;
        shift_ = 64 - bits;
        seen_.assign(size_t{1} << bits, -1);
    }

    // *taken: how many leaves had a positive mass, after SUMTREE_EMPTY; *rng is unchanged after an error.
    sumtree_status draw(sumtree_philox *rng, double beta, int64_t *taken) {
        double smallest = 0.0, rest = 0.0;
        auto status = backend_.root(tree_, SUMTREE_PLANE_MIN, &smallest);
        if (status != SUMTREE_OK) return status;
        sumtree_philox next = *rng;
        status = backend_.sample(tree_, &next, 0, beta, 0, nullptr, nullptr, nullptr); // checks beta
        if (status != SUMTREE_OK) return status;
        status = draw_rounds(&next);
        if (status == SUMTREE_OK) status = backend_.root(tree_, SUMTREE_PLANE_SUM, &rest);
        const auto restored = set(0, results_.masses, 1);
        *taken = taken_;
        if (status != SUMTREE_OK || restored != SUMTREE_OK) return status != SUMTREE_OK ? status : restored;
        *rng = next;
        for (int64_t k = 0; k < count_; ++k) results_.weights[k] = std::pow(smallest / results_.masses[k], beta);
        expand(rest);
        return SUMTREE_OK;
    }

  private:
    // A round draws as many leaves as are missing, but no more than twice what the one before it gave: where few leaves
    // hold nearly all of the mass, most of a long round would be repetitions.
    sumtree_status draw_rounds(sumtree_philox *rng) {
        int64_t wanted = count_;
        do {
            const auto status =
                backend_.sample(tree_, rng, wanted, 0.0, 0, indices_.data(), masses_.data(), weights_.data());
            if (status != SUMTREE_OK) return status;
            const int64_t before = taken_;
            for (int64_t k = 0; k < wanted; ++k) {
                if (!is_new(indices_[k])) continue;
                results_.indices[taken_] = indices_[k];
                results_.masses[taken_++] = masses_[k];
            }
            const double none = 0.0;
            const auto emptied = set(before, &none, 0);
            if (emptied != SUMTREE_OK) return emptied;
            wanted = std::min(count_ - taken_, 2 * (taken_ - before));
        } while (taken_ < count_);
        return SUMTREE_OK;
    }

    sumtree_status set(int64_t first, const double *masses, int64_t step) {
        int64_t position = -1;
        return backend_.update(tree_, taken_ - first, results_.indices + first, masses, step, &position);
    }

    bool is_new(int64_t index) {
        auto place = static_cast<size_t>(static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15U >> shift_);
        while (seen_[place] != -1) {
            if (seen_[place] == index) return false;
            place = (place + 1) & (seen_.size() - 1);
        }
        seen_[place] = index;
        return true;
    }

    // Des Raj (1956). The mass that was left at each draw is added up from the end: a difference would cancel.
    void expand(double rest) {
        const auto count = static_cast<double>(count_);
        for (int64_t k = count_ - 1; k >= 0; --k) {
            rest = rest + results_.masses[k];
            results_.expansions[k] = (rest / results_.masses[k] + static_cast<double>(count_ - 1 - k)) / count;
        }
    }

    const Backend &backend_;
    sumtree_t *tree_;
    const int64_t count_;
    const DistinctResults results_;
    int64_t taken_ = 0;
    std::vector<int64_t> indices_;
    std::vector<double> masses_, weights_;
    std::vector<int64_t> seen_;
    int shift_ = 0;
};

} // namespace bindings

#endif
