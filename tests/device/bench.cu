// The gpu backend beside hand-written CUDA, in one process:  bench GPU.so [DEVICE]
//
// Medians of wall-clock microseconds over fresh random batches, the two taking turns; the tree has 2^21 leaves and holds
// sums, minima and maxima. Both trees must agree in every bit before anything is timed, and after.
#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <vector>

#include "hand_written.cuh"
#include "library.h"

namespace {

constexpr int64_t LEAVES = int64_t{1} << 21;
constexpr int ROUNDS = 400, WARM = 20;

library ours;

double now() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

void must(bool done, const char *what) {
    if (done) return;
    std::printf("FAILED: %s\n", what);
    std::exit(1);
}

// Random batches in host memory and on the device.
struct Batches {
    int64_t count;
    int rounds;
    std::vector<int64_t> indices;
    std::vector<double> masses;
    int64_t *there_indices;
    double *there_masses;

    Batches(int64_t length, int many, uint64_t seed) : count(length), rounds(many) {
        std::mt19937_64 words(seed);
        std::uniform_int_distribution<int64_t> index(0, LEAVES - 1);
        std::lognormal_distribution<double> mass;
        indices.resize(static_cast<size_t>(count * rounds));
        masses.resize(indices.size());
        for (auto &i : indices) i = index(words);
        for (auto &m : masses) m = mass(words);
        HAND_CHECK(cudaMalloc(&there_indices, indices.size() * sizeof(int64_t)));
        HAND_CHECK(cudaMalloc(&there_masses, masses.size() * sizeof(double)));
        HAND_CHECK(cudaMemcpy(there_indices, indices.data(), indices.size() * sizeof(int64_t), cudaMemcpyHostToDevice));
        HAND_CHECK(cudaMemcpy(there_masses, masses.data(), masses.size() * sizeof(double), cudaMemcpyHostToDevice));
        HAND_CHECK(cudaDeviceSynchronize());
    }
    ~Batches() {
        cudaFree(there_indices);
        cudaFree(there_masses);
    }
    int64_t at(int round) const { return count * (round % rounds); }
};

// Rows of the table: what, then medians.
void row(const char *what, const std::vector<std::function<void(int)>> &ways, int rounds) {
    std::vector<std::vector<double>> times(ways.size());
    for (int round = 0; round < rounds + WARM; ++round) {
        for (size_t w = 0; w < ways.size(); ++w) {
            const double began = now();
            ways[w](round);
            const double took = now() - began;
            if (round >= WARM) times[w].push_back(took);
        }
    }
    std::printf("| %s |", what);
    for (auto &t : times) std::printf(" %.1f |", median(t));
    for (size_t w = 1; w < ways.size(); ++w) std::printf(" %.2f |", median(times[0]) / median(times[w]));
    std::printf("\n");
    std::fflush(stdout);
}

void compare(sumtree_t *tree, const hand::PriorityTree &other, const char *when) {
    std::vector<double> a(2 * LEAVES), b(2 * LEAVES);
    const double *planes[] = {other.tree().sum, other.tree().min, other.tree().max};
    for (int plane = 0; plane < 3; ++plane) {
        must(ours.nodes(tree, static_cast<sumtree_plane>(plane), a.data()) == SUMTREE_OK, "nodes");
        const size_t nodes = plane == 0 ? 2 * LEAVES : LEAVES;
        HAND_CHECK(cudaMemcpy(b.data(), planes[plane], nodes * sizeof(double), cudaMemcpyDeviceToHost));
        must(std::memcmp(a.data() + 1, b.data() + 1, (nodes - 1) * sizeof(double)) == 0, when);
    }
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    ours = library_open(argv[1]);
    const int device = argc > 2 ? std::atoi(argv[2]) : 0;
    if (ours.device_count() <= device) {
        std::printf("no device: %s\n", ours.device_problem());
        return 2;
    }
    sumtree_t *tree = nullptr;
    must(ours.create_on(device, LEAVES, SUMTREE_KIND_PRIORITY, &tree) == SUMTREE_OK, "create");
    HAND_CHECK(cudaSetDevice(device));
    hand::PriorityTree other(LEAVES);

    // Every leaf gets a mass, so that every node of both trees is written.
    Batches all(LEAVES, 1, 1);
    for (int64_t j = 0; j < LEAVES; ++j) all.indices[static_cast<size_t>(j)] = j;
    HAND_CHECK(cudaMemcpy(all.there_indices, all.indices.data(), LEAVES * sizeof(int64_t), cudaMemcpyHostToDevice));
    must(ours.device_update(tree, LEAVES, all.there_indices, all.there_masses, 1, nullptr) == SUMTREE_OK, "fill");
    must(other.update(all.there_indices, all.there_masses, LEAVES), "fill by hand");
    compare(tree, other, "trees differ after filling");

    std::printf("Microseconds (medians), %s, %s, 2^21 leaves, sum + min + max.\n\n", ours.device_name(device),
                ours.build());
    std::printf("| what | gpu backend | CUDA by hand | ratio |\n|---|---|---|---|\n");
    for (int64_t count :
         {int64_t{8}, int64_t{64}, int64_t{512}, int64_t{2048}, int64_t{4096}, int64_t{32768}, int64_t{1} << 20}) {
        Batches b(count, count > 4096 ? 16 : ROUNDS, 7 + static_cast<uint64_t>(count));
        char name[80];
        std::snprintf(name, sizeof name, "update of %lld, device arrays", static_cast<long long>(count));
        row(name,
            {[&](int r) {
                 must(ours.device_update(tree, count, b.there_indices + b.at(r), b.there_masses + b.at(r), 1,
                                         nullptr) == SUMTREE_OK,
                      "update");
             },
             [&](int r) { must(other.update(b.there_indices + b.at(r), b.there_masses + b.at(r), count), "by hand"); }},
            count > 4096 ? 100 : ROUNDS);
        if (count <= 4096) {
            double total;
            std::snprintf(name, sizeof name, "update of %lld, host arrays, then the total",
                          static_cast<long long>(count));
            row(name, {[&](int r) {
                    must(ours.update(tree, count, b.indices.data() + b.at(r), b.masses.data() + b.at(r), 1, nullptr) ==
                             SUMTREE_OK,
                         "update");
                    must(ours.root(tree, SUMTREE_PLANE_SUM, &total) == SUMTREE_OK, "root");
                }},
                ROUNDS);
        } else {
            std::snprintf(name, sizeof name, "update of %lld, host arrays, then the total",
                          static_cast<long long>(count));
            double total;
            row(name, {[&](int r) {
                    must(ours.update(tree, count, b.indices.data() + b.at(r), b.masses.data() + b.at(r), 1, nullptr) ==
                             SUMTREE_OK,
                         "update");
                    must(ours.root(tree, SUMTREE_PLANE_SUM, &total) == SUMTREE_OK, "root");
                }},
                20);
        }
        // The rows with host arrays went to one tree only: bring the other to the same leaves.
        must(ours.device_update(tree, LEAVES, all.there_indices, all.there_masses, 1, nullptr) == SUMTREE_OK, "refill");
        must(other.update(all.there_indices, all.there_masses, LEAVES), "refill by hand");
    }
    compare(tree, other, "trees differ after updates");

    constexpr int K = 512;
    Batches b(K, ROUNDS, 99);
    sumtree_philox rng = {{1, 2}, {3, 4, 5, 6}, 4}, same = rng;
    int64_t *found[2];
    double *masses[2], *weights[2];
    for (int w = 0; w < 2; ++w) {
        HAND_CHECK(cudaMalloc(&found[w], K * sizeof(int64_t)));
        HAND_CHECK(cudaMalloc(&masses[w], K * sizeof(double)));
        HAND_CHECK(cudaMalloc(&weights[w], K * sizeof(double)));
    }
    auto sampled_by_hand = [&] { same = rng; };
    row("sample of 512, device arrays",
        {[&](int) {
             must(ours.device_sample(tree, &rng, K, 0.4, 1, found[0], masses[0], weights[0]) == SUMTREE_OK, "sample");
         },
         [&](int) {
             other.sample(same, K, 0.4, true, found[1], masses[1], weights[1]);
             sampled_by_hand();
         }},
        ROUNDS);
    std::vector<int64_t> host_found(K);
    std::vector<double> host_masses(K), host_weights(K);
    row("learner step (update 512, sample 512), device arrays, each call complete",
        {[&](int r) {
             must(ours.device_update(tree, K, b.there_indices + b.at(r), b.there_masses + b.at(r), 1, nullptr) ==
                      SUMTREE_OK,
                  "update");
             must(ours.device_sample(tree, &rng, K, 0.4, 1, found[0], masses[0], weights[0]) == SUMTREE_OK, "sample");
         },
         [&](int r) {
             must(other.update(b.there_indices + b.at(r), b.there_masses + b.at(r), K), "by hand");
             other.sample(same, K, 0.4, true, found[1], masses[1], weights[1]);
             sampled_by_hand();
         }},
        ROUNDS);
    row("learner step, device arrays, against one wait by hand (its status known late)",
        {[&](int r) {
             must(ours.device_update(tree, K, b.there_indices + b.at(r), b.there_masses + b.at(r), 1, nullptr) ==
                      SUMTREE_OK,
                  "update");
             must(ours.device_sample(tree, &rng, K, 0.4, 1, found[0], masses[0], weights[0]) == SUMTREE_OK, "sample");
         },
         [&](int r) {
             other.start_update(b.there_indices + b.at(r), b.there_masses + b.at(r), K);
             other.sample(same, K, 0.4, true, found[1], masses[1], weights[1]);
             must(other.good(), "by hand");
             sampled_by_hand();
         }},
        ROUNDS);
    row("learner step, host arrays, one wait in both",
        {[&](int r) {
             must(ours.update(tree, K, b.indices.data() + b.at(r), b.masses.data() + b.at(r), 1, nullptr) == SUMTREE_OK,
                  "update");
             must(ours.sample(tree, &rng, K, 0.4, 1, host_found.data(), host_masses.data(), host_weights.data()) ==
                      SUMTREE_OK,
                  "sample");
         },
         [&](int r) {
             other.start_update_from_host(b.indices.data() + b.at(r), b.masses.data() + b.at(r), K);
             other.sample_to_host(same, K, 0.4, true, host_found.data(), host_masses.data(), host_weights.data());
             must(other.good(), "by hand");
             sampled_by_hand();
         }},
        ROUNDS);
    compare(tree, other, "trees differ after learner steps");

    // The draws themselves, from one generator.
    same = rng;
    must(ours.device_sample(tree, &rng, K, 0.4, 1, found[0], masses[0], weights[0]) == SUMTREE_OK, "sample");
    other.sample(same, K, 0.4, true, found[1], masses[1], weights[1]);
    std::vector<int64_t> a(K), c(K);
    HAND_CHECK(cudaMemcpy(a.data(), found[0], K * sizeof(int64_t), cudaMemcpyDeviceToHost));
    HAND_CHECK(cudaMemcpy(c.data(), found[1], K * sizeof(int64_t), cudaMemcpyDeviceToHost));
    must(a == c, "draws differ");
    std::printf("\nAll nodes and draws of both agree bit for bit.\n");
    ours.free(tree);
    return 0;
}
