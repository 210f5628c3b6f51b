"""Faults of a buffer that is shared out among replay ranks."""

from __future__ import annotations

from mutant import Mutant, noticed_by

CHECKPOINT = "python/libsumtree/checkpoint"

MUTANTS = [
    Mutant(
        "targets fall to an empty shard",
        "python/libsumtree/replay/routing.py",
        "goes_right = (left <= rest) & (right != 0.0)",
        "goes_right = left <= rest",
        noticed_by("tests/python/test_replay_routing.py", "no_target_falls_to_an_empty_shard"),
    ),
    Mutant(
        "a running sum over the shards",
        "python/libsumtree/replay/routing.py",
        "self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]",
        "self._nodes[node] = sum(self._totals)",
        noticed_by("tests/python/test_replay_routing.py", "shards_are_the_blocks_of_one_tree"),
    ),
    Mutant(
        "targets of a total that has moved",
        "python/libsumtree/replay/routing.py",
        "return np.minimum(rests / told * total, np.nextafter(total, 0.0))",
        "return np.minimum(rests, total)",
        noticed_by("tests/python/test_replay_routing.py", "targets_stretch_with_the_total"),
    ),
    Mutant(
        "draws that do not wait for the learner's own updates",
        "python/libsumtree/replay/sharded_learner.py",
        'self._wait(self._without_answer, "answer to an update", timeout, stop=True)',
        "pass",
        noticed_by("tests/mpi/test_replay_shards.py", "shards_draw_as_one_big_buffer[2]"),
    ),
    Mutant(
        "the default mass of one shard alone",
        "python/libsumtree/replay/adds.py",
        "elsewhere = 0.0 if masses is not None else message.real",
        "elsewhere = 0.0",
        noticed_by("tests/mpi/test_replay_shards.py", "edges"),
    ),
    Mutant(
        "a manifest though a shard has failed",
        "python/libsumtree/replay/shard_folders.py",
        "        if failures:\n",
        "        if False:\n",
        noticed_by(
            "tests/mpi/test_replay_shards.py", "a_shard_that_cannot_write_makes_no_manifest"
        ),
    ),
    Mutant(
        "streams that start anew",
        "python/libsumtree/replay/restored.py",
        "    if progress.streams:\n",
        "    if False:\n",
        noticed_by(
            "tests/mpi/test_replay_shards.py",
            "learners_have_streams_of_their_own_that_survive_a_restart[2]",
        ),
    ),
    Mutant(
        "quiet before all changes are told",
        "python/libsumtree/replay/rank.py",
        "        self._note_if_changed()  # once shard 0",
        "        # once shard 0",
        noticed_by(
            "tests/mpi/test_replay_shard_faults.py",
            "what_comes_while_the_last_file_is_written_is_in_the_next",
        ),
    ),
    Mutant(
        "a round that begins while one runs",
        "python/libsumtree/replay/rank.py",
        "        self._settle_shards()\n        self._finish_saving()\n",
        "        self._settle_shards()\n",
        noticed_by("tests/mpi/test_replay_shard_faults.py", "one_round_of_checkpoints_at_a_time"),
    ),
    Mutant(
        "nobody told that no round can begin",
        "python/libsumtree/replay/shard_folders.py",
        "            self._shards.give_up()\n",
        "",
        noticed_by("tests/mpi/test_replay_shard_faults.py", "an_end_whose_checkpoint_cannot_begin"),
    ),
    Mutant(
        "a failed write told as a change",
        "python/libsumtree/replay/rank.py",
        " and time.monotonic() >= self._retry_at:",
        ":",
        noticed_by(
            "tests/mpi/test_replay_shard_faults.py",
            "a_shard_that_cannot_write_tries_again_at_leisure",
        ),
    ),
    Mutant(
        "requests that refuse",
        "python/libsumtree/replay/messages.py",
        "    if refusal and message.kind not in _REFUSING:\n",
        "    if False:\n",
        ["tests/python/test_replay_messages.py::test_only_answers_refuse"],
    ),
    Mutant(
        "half an update",
        "python/libsumtree/replay/sharded_learner.py",
        "            lambda: [s for s in parts if not self._clients[s].has_update_credit()],\n",
        "            lambda: [],\n",
        noticed_by(
            "tests/mpi/test_replay_shard_clients.py",
            "an_update_is_sent_to_all_its_shards_or_to_none",
        ),
    ),
    Mutant(
        "handles of former shards unknown",
        "python/libsumtree/replay/routing.py",
        "    return np.where(former, held, ids)\n",
        "    return ids\n",
        noticed_by(
            "tests/python/test_replay_routing.py", "handles_of_before_become_the_ids_that_they_held"
        ),
    ),
    Mutant(
        "a kept state loses what it goes on from",
        f"{CHECKPOINT}/folder.py",
        "for chain in state.chains for file in chain}",
        "for chain in state.chains for file in chain[:1]}",
        noticed_by("tests/python/test_checkpoint_states.py", "what_kept_states_go_on_from_stays"),
    ),
]
