"""A prioritized replay buffer as cpprb has it, on the buffer of libsumtree.

The import is all that is different from a program for cpprb:
    from cpprb import PrioritizedReplayBuffer
"""

import numpy as np

from libsumtree.compat.cpprb import PrioritizedReplayBuffer

env_dict = {"obs": {"shape": 3}, "act": {"dtype": np.int32}, "rew": {}, "next_obs": {"shape": 3}}
buffer = PrioritizedReplayBuffer(16, {**env_dict, "done": {}}, alpha=0.6, eps=1e-3)
for step in range(20):
    obs = np.full(3, step, dtype=np.float32)
    buffer.add(obs=obs, act=step % 4, rew=step / 10, next_obs=obs + 1, done=step % 5 == 4)
    if step % 5 == 4:
        buffer.on_episode_end()
buffer.update_priorities(np.arange(16), np.arange(16) / 4)
batch = buffer.sample(4000, beta=0.4)
indexes, first = np.unique(batch["indexes"], return_index=True)
print(indexes.tolist(), batch["weights"][first].round(4).tolist())
print(batch["obs"].shape, batch["obs"].dtype, batch["act"].shape, batch["act"].dtype)
print(batch["next_obs"][first, 0].tolist(), batch["rew"][first].ravel().round(6).tolist())
print(buffer.get_stored_size(), buffer.get_buffer_size(), buffer.get_next_index())
print(round(buffer.get_max_priority(), 6), buffer.get_current_episode_len())
print(buffer.get_all_transitions()["act"].ravel().tolist())
buffer.clear()
print(buffer.get_stored_size(), buffer.add(obs=[0, 0, 0], act=1, rew=0, next_obs=[1, 1, 1], done=0))
