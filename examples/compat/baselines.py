"""Prioritized sampling as Baselines, RLlib and DI-engine write it, on the trees of libsumtree.

The import is all that is different from a program for Baselines:
    from baselines.common.segment_tree import MinSegmentTree, SumSegmentTree
"""

import random

from libsumtree.compat.baselines import MinSegmentTree, SumSegmentTree

random.seed(0)
size, alpha, beta, batch_size = 100, 0.6, 0.4, 8
it_capacity = 1
while it_capacity < size:
    it_capacity *= 2
it_sum, it_min = SumSegmentTree(it_capacity), MinSegmentTree(it_capacity)
max_priority = 1.0
for idx in range(size):
    it_sum[idx] = max_priority**alpha
    it_min[idx] = max_priority**alpha
for _ in range(3):
    every_range_len = it_sum.sum(0, size - 1) / batch_size
    masses = [random.random() * every_range_len + i * every_range_len for i in range(batch_size)]
    idxes = [it_sum.find_prefixsum_idx(mass) for mass in masses]
    p_min = it_min.min() / it_sum.sum()
    max_weight = (p_min * size) ** (-beta)
    weights = [(it_sum[idx] / it_sum.sum() * size) ** (-beta) / max_weight for idx in idxes]
    print(idxes, [round(weight, 9) for weight in weights])
    for idx in idxes:
        priority = 0.1 + abs(idx - 50) / 10
        it_sum[idx] = it_min[idx] = priority**alpha
        max_priority = max(max_priority, priority)
print(round(it_sum.sum(), 9), round(it_sum.sum(10, -28), 9), round(it_min.min(0, 50), 9))
