"""What TorchRL's prioritized sampler does with its segment trees, on the trees of libsumtree.

The import is all that is different from a program for TorchRL:
    from torchrl._torchrl import MinSegmentTreeFp64, SumSegmentTreeFp64
"""

import pickle

import numpy as np

from libsumtree.compat.torchrl import MinSegmentTreeFp64, SumSegmentTreeFp64

rng = np.random.default_rng(0)
size, alpha, beta, eps = 100, 0.6, 0.4, 1e-8
sum_tree, min_tree = SumSegmentTreeFp64(size), MinSegmentTreeFp64(size)
index = np.arange(size)
sum_tree[index] = (1.0 + eps) ** alpha
min_tree[index] = (1.0 + eps) ** alpha
for _ in range(3):
    p_sum, p_min = sum_tree.query(0, size), min_tree.query(0, size)
    mass = rng.uniform(0.0, p_sum, size=(2, 4))
    index = np.minimum(sum_tree.scan_lower_bound(mass), size - 1)
    weight = (sum_tree[index] / p_min) ** (-beta)
    print(index.tolist(), weight.round(9).tolist())
    priority = 0.1 + np.abs(index - 50) / 10
    sum_tree.update(index, (priority + eps) ** alpha)
    min_tree.update(index, (priority + eps) ** alpha)
copy = pickle.loads(pickle.dumps(sum_tree))
print(len(copy), copy.size, copy.capacity, round(copy.query(10, 97), 9), round(copy.at(7), 9))
