// The same work in CUDA C++, written by hand for one stream: what the gpu backend is measured against.
//
// A priority tree of 2^12 leaves or more: updates that are checked whole before a leaf is written, sums, minima and maxima
// in one pass, Philox draws with weights. As in the backend, a batch of up to 4096 is shared out among the owners of 64
// subtrees, a longer one is tagged and all leaves are passed over; here with arguments, shared memory, atomicMax and
// 16-byte loads.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sumtree.h"

namespace hand {

#define HAND_CHECK(call)                                                                                               \
    do {                                                                                                               \
        const cudaError_t code = (call);                                                                               \
        if (code != cudaSuccess) {                                                                                     \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(code));                         \
            std::exit(2);                                                                                              \
        }                                                                                                              \
    } while (0)

constexpr int OWNERS = 64, OWNED = 4096, PASS = 2048;

struct Reply {
    int bad_index, bad_mass;
    double roots[3];
};

struct Tree {
    double *sum, *min, *max;
    int *tags;
    int64_t capacity, padded;
    int height;
    Reply *reply; // host memory
    int *bad;     // device memory: the first bad index and the first bad mass of a long batch
};

__device__ inline double smaller(double l, double r) { return r < l ? r : l; }
__device__ inline double larger(double l, double r) { return r > l ? r : l; }
__device__ inline double positive(double m) { return m > 0.0 ? m : __longlong_as_double(0x7ff0000000000000ll); }
__device__ inline bool is_mass(double m) { return m >= 0.0 && m <= 0x1p960; }

struct Eight {
    double2 a, b, c, d;
};

__device__ inline Eight eight_at(const double *nodes) {
    const double2 *v = reinterpret_cast<const double2 *>(nodes);
    return {v[0], v[1], v[2], v[3]};
}

template <class Combine> __device__ inline void raise_plane(double *nodes, int64_t p, const Eight &v, Combine combine) {
    const double a = combine(v.a.x, v.a.y), b = combine(v.b.x, v.b.y), c = combine(v.c.x, v.c.y),
                 d = combine(v.d.x, v.d.y), left = combine(a, b), right = combine(c, d);
    reinterpret_cast<double2 *>(nodes + 4 * p)[0] = make_double2(a, b);
    reinterpret_cast<double2 *>(nodes + 4 * p)[1] = make_double2(c, d);
    reinterpret_cast<double2 *>(nodes + 2 * p)[0] = make_double2(left, right);
    nodes[p] = combine(left, right);
}

__device__ inline void raise(double *sum, double *min, double *max, const double *from_sum, const double *from_min,
                             const double *from_max, bool of_leaves, int64_t p) {
    const Eight s = eight_at(from_sum + 8 * p);
    Eight low, high;
    if (of_leaves) {
        low = {make_double2(positive(s.a.x), positive(s.a.y)), make_double2(positive(s.b.x), positive(s.b.y)),
               make_double2(positive(s.c.x), positive(s.c.y)), make_double2(positive(s.d.x), positive(s.d.y))};
        high = s;
    } else {
        low = eight_at(from_min + 8 * p);
        high = eight_at(from_max + 8 * p);
    }
    raise_plane(sum, p, s, [](double l, double r) { return l + r; });
    raise_plane(min, p, low, smaller);
    raise_plane(max, p, high, larger);
}

__device__ inline void raise(const Tree &t, bool of_leaves, int64_t p) {
    raise(t.sum, t.min, t.max, t.sum, t.min, t.max, of_leaves, p);
}

__device__ inline void recompute(const Tree &t, bool of_leaves, int64_t i) {
    const double l = t.sum[2 * i], r = t.sum[2 * i + 1];
    t.sum[i] = l + r;
    t.min[i] = of_leaves ? smaller(positive(l), positive(r)) : smaller(t.min[2 * i], t.min[2 * i + 1]);
    t.max[i] = of_leaves ? larger(l, r) : larger(t.max[2 * i], t.max[2 * i + 1]);
}

__global__ void __launch_bounds__(128) owners(Tree t, const int64_t *indices, const double *masses, int count) {
    __shared__ int list[OWNED];
    __shared__ int own, bad_index, bad_mass;
    const int climb = t.height - 6, singles = climb % 3;
    if (threadIdx.x == 0) {
        own = 0;
        bad_index = bad_mass = INT32_MAX;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < count; k += 128) {
        const int64_t x = indices[k];
        if (static_cast<uint64_t>(x) >= static_cast<uint64_t>(t.capacity)) {
            atomicMin(&bad_index, k);
        } else if (!is_mass(masses[k])) {
            atomicMin(&bad_mass, k);
        } else if (x >> climb == blockIdx.x) {
            atomicMax(t.tags + x, k);
            list[atomicAdd(&own, 1)] = k;
        }
    }
    __syncthreads();
    const bool good = bad_index == INT32_MAX && bad_mass == INT32_MAX;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        t.reply->bad_index = bad_index;
        t.reply->bad_mass = bad_mass;
        *t.bad = !good;
    }
    for (int j = threadIdx.x; j < own; j += 128) {
        const int64_t x = indices[list[j]];
        if (good && t.tags[x] == list[j]) t.sum[t.padded + x] = masses[list[j]] + 0.0;
    }
    __syncthreads();
    for (int j = threadIdx.x; j < own; j += 128) t.tags[indices[list[j]]] = -1;
    for (int below = 0; below < climb; below += below < singles ? 1 : 3) {
        for (int j = threadIdx.x; j < own; j += 128) {
            const int64_t node = t.padded + indices[list[j]];
            if (below < singles) {
                recompute(t, below == 0, node >> (below + 1));
            } else {
                raise(t, below == 0, node >> (below + 3));
            }
        }
        __syncthreads();
    }
}

__device__ inline void philox(const uint64_t *counter, const uint64_t *key, uint64_t *w) {
    uint64_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64_t h0 = __umul64hi(0xD2E7470EE14C6C93ull, c0), l0 = 0xD2E7470EE14C6C93ull * c0;
        const uint64_t h1 = __umul64hi(0xCA5A826395121157ull, c2), l1 = 0xCA5A826395121157ull * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B97F4A7C15ull;
        k1 += 0xBB67AE8584CAA73Bull;
    }
    w[0] = c0, w[1] = c1, w[2] = c2, w[3] = c3;
}

__device__ inline double uniform(const sumtree_philox &rng, int64_t k) {
    const uint64_t at = static_cast<uint64_t>(k) + static_cast<uint64_t>(rng.buffer_pos);
    uint64_t counter[4] = {rng.counter[0], rng.counter[1], rng.counter[2], rng.counter[3]}, w[4], carry = at / 4;
    for (int i = 0; i < 4 && carry != 0; ++i) {
        counter[i] += carry;
        carry = counter[i] < carry;
    }
    philox(counter, rng.key, w);
    const uint64_t low = at & 1 ? w[1] : w[0], high = at & 1 ? w[3] : w[2];
    return static_cast<double>((at & 2 ? high : low) >> 11) * 0x1p-53;
}

__device__ inline int64_t three_steps(const double *sum, int64_t n, double &rest) {
    const double a = sum[2 * n], b0 = sum[4 * n], b1 = sum[4 * n + 2], c0 = sum[8 * n], c1 = sum[8 * n + 2],
                 c2 = sum[8 * n + 4], c3 = sum[8 * n + 6];
    const bool ra = a <= rest;
    double m = ra ? __dsub_rn(rest, a) : rest;
    const double b = ra ? b1 : b0, cl = ra ? c2 : c0, cr = ra ? c3 : c1;
    const bool rb = b <= m;
    m = rb ? __dsub_rn(m, b) : m;
    const double c = rb ? cr : cl;
    const bool rc = c <= m;
    rest = rc ? __dsub_rn(m, c) : m;
    return 8 * n + 4 * ra + 2 * rb + rc;
}

__device__ inline int64_t by_the_rule(const Tree &t, const double *crown, double target) {
    int64_t n = 1;
    while (n < t.padded) {
        const double l = 2 * n < 128 ? crown[2 * n] : t.sum[2 * n],
                     r = 2 * n < 128 ? crown[2 * n + 1] : t.sum[2 * n + 1];
        const bool left = l > target || r == 0.0;
        target = left ? target : __dsub_rn(target, l);
        n = 2 * n + !left;
    }
    return n - t.padded;
}

__global__ void __launch_bounds__(64) draws(Tree t, bool due, sumtree_philox rng, int count, double beta,
                                            bool stratified, int64_t *indices, double *masses, double *weights) {
    __shared__ __align__(16) double sums[128], mins[64], maxs[64];
    if (!due || threadIdx.x > 0) sums[threadIdx.x] = t.sum[threadIdx.x];
    sums[64 + threadIdx.x] = t.sum[64 + threadIdx.x];
    if (!due && threadIdx.x < 2) mins[threadIdx.x] = t.min[threadIdx.x];
    if (due) {
        __syncthreads();
        if (threadIdx.x < 8) raise(sums, mins, maxs, t.sum, t.min, t.max, false, 8 + threadIdx.x);
        __syncthreads();
        if (threadIdx.x == 0) raise(sums, mins, maxs, sums, mins, maxs, false, 1);
    }
    __syncthreads();
    if (due && blockIdx.x == 0 && threadIdx.x > 0) {
        t.sum[threadIdx.x] = sums[threadIdx.x];
        t.min[threadIdx.x] = mins[threadIdx.x];
        t.max[threadIdx.x] = maxs[threadIdx.x];
    }
    const double total = sums[1], smallest = mins[1], below = __longlong_as_double(__double_as_longlong(total) - 1);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        t.reply->roots[0] = total;
        t.reply->roots[1] = smallest;
        t.reply->roots[2] = due ? maxs[1] : t.max[1];
    }
    const int k = blockIdx.x * 64 + threadIdx.x;
    if (k >= count || total == 0.0 || *t.bad) return;
    const double u = uniform(rng, k), part = stratified ? (k + u) / count : u;
    double target = __dmul_rn(part, total);
    target = target < below ? target : below;
    double rest = target;
    int64_t n = three_steps(sums, three_steps(sums, 1, rest), rest);
    while (8 * n <= t.padded) n = three_steps(t.sum, n, rest);
    while (n < t.padded) {
        const double l = t.sum[2 * n];
        const bool right = l <= rest;
        rest = right ? __dsub_rn(rest, l) : rest;
        n = 2 * n + right;
    }
    const int64_t index = t.sum[n] == 0.0 ? by_the_rule(t, sums, target) : n - t.padded;
    const double mass = t.sum[t.padded + index];
    indices[k] = index;
    masses[k] = mass;
    weights[k] = pow(smallest / mass, beta);
}

__global__ void __launch_bounds__(128) tag(Tree t, const int64_t *indices, const double *masses, int64_t count) {
    const int64_t k = blockIdx.x * int64_t{128} + threadIdx.x;
    if (k >= count) return;
    const int64_t x = indices[k];
    if (static_cast<uint64_t>(x) >= static_cast<uint64_t>(t.capacity)) {
        atomicMin(t.bad, static_cast<int>(k));
        return;
    }
    if (!is_mass(masses[k])) atomicMin(t.bad + 1, static_cast<int>(k));
    atomicMax(t.tags + x, static_cast<int>(k));
}

// Blocks of PASS leaves and the eleven levels above them, in shared memory.
__global__ void __launch_bounds__(256) pass(Tree t, const double *masses) {
    __shared__ double s[2][PASS / 2], m[2][PASS / 2], x[2][PASS / 2];
    const int64_t first = t.padded + int64_t{blockIdx.x} * PASS;
    const bool good = t.bad[0] == INT32_MAX && t.bad[1] == INT32_MAX;
    for (int i = threadIdx.x; i < PASS / 2; i += 256) {
        int2 *tags = reinterpret_cast<int2 *>(t.tags + int64_t{blockIdx.x} * PASS) + i;
        double2 *leaves = reinterpret_cast<double2 *>(t.sum + first) + i, v = *leaves;
        const int2 k = *tags;
        if (k.x >= 0 || k.y >= 0) {
            if (good && k.x >= 0) v.x = masses[k.x] + 0.0;
            if (good && k.y >= 0) v.y = masses[k.y] + 0.0;
            *leaves = v;
            *tags = make_int2(-1, -1);
        }
        s[0][i] = t.sum[first / 2 + i] = v.x + v.y;
        m[0][i] = t.min[first / 2 + i] = smaller(positive(v.x), positive(v.y));
        x[0][i] = t.max[first / 2 + i] = larger(v.x, v.y);
    }
    __syncthreads();
    int64_t level = first / 2;
    for (int width = PASS / 4, from = 0; width >= 1; width /= 2, from ^= 1) {
        level /= 2;
        for (int i = threadIdx.x; i < width; i += 256) {
            s[from ^ 1][i] = t.sum[level + i] = s[from][2 * i] + s[from][2 * i + 1];
            m[from ^ 1][i] = t.min[level + i] = smaller(m[from][2 * i], m[from][2 * i + 1]);
            x[from ^ 1][i] = t.max[level + i] = larger(x[from][2 * i], x[from][2 * i + 1]);
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(1024) rest(Tree t, int depth) {
    for (int d = depth - 1; d >= 0; --d) {
        for (int i = threadIdx.x; i < 1 << d; i += 1024) recompute(t, false, (1 << d) + i);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        t.reply->bad_index = t.bad[0];
        t.reply->bad_mass = t.bad[1];
    }
}

class PriorityTree {
  public:
    explicit PriorityTree(int64_t capacity) {
        tree_.capacity = capacity;
        tree_.padded = 1;
        tree_.height = 0;
        for (; tree_.padded < capacity; tree_.padded *= 2) ++tree_.height;
        const size_t half = static_cast<size_t>(tree_.padded) * sizeof(double);
        HAND_CHECK(cudaMalloc(&tree_.sum, 2 * half));
        HAND_CHECK(cudaMalloc(&tree_.min, half));
        HAND_CHECK(cudaMalloc(&tree_.max, half));
        HAND_CHECK(cudaMalloc(&tree_.tags, half / 2));
        HAND_CHECK(cudaMalloc(&tree_.bad, 2 * sizeof(int)));
        HAND_CHECK(cudaMemset(tree_.sum, 0, 2 * half));
        HAND_CHECK(cudaMemset(tree_.max, 0, half));
        HAND_CHECK(cudaMemset(tree_.tags, 0xff, half / 2));
        HAND_CHECK(cudaMemset(tree_.bad, 0, 2 * sizeof(int)));
        HAND_CHECK(cudaMemset(tree_.min, 0x7f, half)); // overwritten by the first long update
        HAND_CHECK(cudaHostAlloc(&tree_.reply, sizeof(Reply), cudaHostAllocMapped));
        HAND_CHECK(cudaHostAlloc(&pinned_, 8 * OWNED * sizeof(double), cudaHostAllocMapped));
        HAND_CHECK(cudaMalloc(&staged_, 2 * OWNED * sizeof(double)));
        HAND_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    }

    const Tree &tree() const { return tree_; }
    void wait() { HAND_CHECK(cudaStreamSynchronize(stream_)); }
    bool good() const { return tree_.reply->bad_index == INT32_MAX && tree_.reply->bad_mass == INT32_MAX; }

    void start_update(const int64_t *indices, const double *masses, int64_t count) {
        if (count <= OWNED) {
            owners<<<OWNERS, 128, 0, stream_>>>(tree_, indices, masses, static_cast<int>(count));
            due_ = true;
            return;
        }
        static const int none[2] = {INT32_MAX, INT32_MAX};
        HAND_CHECK(cudaMemcpyAsync(tree_.bad, none, sizeof none, cudaMemcpyHostToDevice, stream_));
        tag<<<static_cast<unsigned>((count + 127) / 128), 128, 0, stream_>>>(tree_, indices, masses, count);
        pass<<<static_cast<unsigned>(tree_.padded / PASS), 256, 0, stream_>>>(tree_, masses);
        rest<<<1, 1024, 0, stream_>>>(tree_, tree_.height - 11);
        HAND_CHECK(cudaMemsetAsync(tree_.bad, 0, 2 * sizeof(int), stream_));
        due_ = false;
    }

    bool update(const int64_t *indices, const double *masses, int64_t count) {
        start_update(indices, masses, count);
        wait();
        return good();
    }

    // From host memory: the arguments are checked on the device, too, and are free on return.
    void start_update_from_host(const int64_t *indices, const double *masses, int count) {
        std::memcpy(pinned_, indices, count * sizeof *indices);
        std::memcpy(pinned_ + count, masses, count * sizeof *masses);
        HAND_CHECK(cudaMemcpyAsync(staged_, pinned_, 2 * count * sizeof(double), cudaMemcpyHostToDevice, stream_));
        start_update(reinterpret_cast<const int64_t *>(staged_), staged_ + count, count);
    }

    void start_sample(const sumtree_philox &rng, int count, double beta, bool stratified, int64_t *indices,
                      double *masses, double *weights) {
        draws<<<(count + 63) / 64, 64, 0, stream_>>>(tree_, due_, rng, count, beta, stratified, indices, masses,
                                                     weights);
        due_ = false;
    }

    void sample(const sumtree_philox &rng, int count, double beta, bool stratified, int64_t *indices, double *masses,
                double *weights) {
        start_sample(rng, count, beta, stratified, indices, masses, weights);
        wait();
    }

    void sample_to_host(const sumtree_philox &rng, int count, double beta, bool stratified, int64_t *indices,
                        double *masses, double *weights) {
        double *out = pinned_ + 4 * OWNED;
        sample(rng, count, beta, stratified, reinterpret_cast<int64_t *>(out), out + count, out + 2 * count);
        std::memcpy(indices, out, count * sizeof(double));
        std::memcpy(masses, out + count, count * sizeof(double));
        std::memcpy(weights, out + 2 * count, count * sizeof(double));
    }

  private:
    Tree tree_;
    double *pinned_, *staged_;
    cudaStream_t stream_;
    bool due_ = false;
};

} // namespace hand
