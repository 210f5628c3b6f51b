"""Prioritized replay in one process, with NumPy alone: Q-learning of a table on a long corridor.

    python examples/single_process.py

The walker starts at one end, and is rewarded at the other; every step goes left or right.
"""

import numpy as np

from libsumtree import BetaSchedule, PrioritizedReplayBuffer

LENGTH, DISCOUNT, STEP_SIZE = 12, 0.9, 0.5
TRANSITION = [("state", "i8"), ("action", "i8"), ("reward", "f8"), ("next_state", "i8")]

rng = np.random.default_rng(0)
buffer = PrioritizedReplayBuffer(
    1000, TRANSITION, alpha=0.6, beta=BetaSchedule(0.4, 1, 500), seed=0
)
values, state = np.zeros((LENGTH + 1, 2)), 0  # the last state ends the episode
for step in range(4000):
    action = int(rng.integers(2))
    next_state = max(state + (1 if action else -1), 0)
    buffer.add((state, action, float(next_state == LENGTH), next_state))
    state = 0 if next_state == LENGTH else next_state
    if step % 4 == 3:
        batch = buffer.sample(16)
        rows = batch.transitions
        targets = rows["reward"] + DISCOUNT * values[rows["next_state"]].max(axis=1)
        errors = targets - values[rows["state"], rows["action"]]
        np.add.at(values, (rows["state"], rows["action"]), STEP_SIZE * batch.weights * errors)
        buffer.update_priorities(batch.ids, np.abs(errors) + 1e-3)

print("to the right, always:", bool((values[:-1, 1] > values[:-1, 0]).all()))
print("values:", values[:-1, 1].round(3).tolist())
print("true values:", (DISCOUNT ** np.arange(LENGTH - 1.0, -1.0, -1.0)).round(3).tolist())
