"""What Tianshou's prioritized buffer does with its segment tree, on the tree of libsumtree.

The import is all that is different from a program for Tianshou:
    from tianshou.data import SegmentTree
"""

import numpy as np

from libsumtree.compat.tianshou import SegmentTree

rng = np.random.default_rng(0)
size, alpha, beta = 100, 0.6, 0.4
weight = SegmentTree(size)
max_prio = min_prio = 1.0
for index in range(size):
    weight[index] = max_prio**alpha
for _ in range(3):
    scalar = rng.random(8) * weight.reduce()
    indices = weight.get_prefix_sum_idx(scalar)
    importance = (weight[indices] / min_prio) ** (-beta)
    print(indices.tolist(), (importance / np.max(importance)).round(9).tolist())
    priority = 0.1 + np.abs(indices - 50) / 10
    weight[indices] = priority**alpha
    max_prio, min_prio = max(max_prio, priority.max()), min(min_prio, priority.min())
print(len(weight), round(float(weight.reduce()), 9), round(float(weight.reduce(10, -3)), 9))
print(weight.get_prefix_sum_idx(0.5), round(float(weight[7]), 9))
