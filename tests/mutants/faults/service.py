"""Faults of the replay rank and its clients."""

from __future__ import annotations

from mutant import Mutant, noticed_by

MUTANTS = [
    Mutant(
        "unchecked length of a control message",
        "python/libsumtree/replay/messages.py",
        "    elif length != expected:\n",
        "    elif False:\n",
        ["tests/python/test_replay_messages.py::test_every_wrong_length_is_refused"],
    ),
    Mutant(
        "unchecked length of a payload",
        "python/libsumtree/replay/intake.py",
        "if probe.nbytes != announced.nbytes:",
        "if False:",
        noticed_by(
            "tests/mpi/test_replay_service.py", "bad_batches_leave_their_neighbours_unchanged"
        ),
    ),
    Mutant(
        "a dead actor told of the end",
        "python/libsumtree/replay/service.py",
        " and not self._intake.backlog(peer.rank)\n        )",
        "\n        )",
        ["tests/mpi/test_replay_faults.py::test_a_job_that_lives_on_never_shows_a_torn_batch[0.0]"],
    ),
    Mutant(
        "unchecked length in a header",
        "python/libsumtree/replay/adds.py",
        "if message.payload != message.count * itemsize:",
        "if False:",
        noticed_by(
            "tests/mpi/test_replay_service.py", "bad_batches_leave_their_neighbours_unchanged"
        ),
    ),
    Mutant(
        "credits given ahead of the learner",
        "python/libsumtree/replay/adds.py",
        "if not held or not (peers.stopping or peers.limiter.may_insert(len(peers.ring()))):",
        "if not held:",
        noticed_by("tests/mpi/test_replay_service.py", "actor_waits_while_it_has_no_credit"),
    ),
    Mutant(
        "credits not counted",
        "python/libsumtree/replay/adds.py",
        "if peer.unacked >= credits:",
        "if False:",
        noticed_by(
            "tests/mpi/test_replay_service.py", "hostile_client_is_answered[hostile_credits]"
        ),
    ),
    Mutant(
        "who waits for a long message takes the processor",
        "python/libsumtree/replay/channel.py",
        "if now < self._asleep_from:",
        "if True:",
        noticed_by(
            "tests/python/test_replay_backoff.py",
            "who_waits_long_for_a_long_message_lets_others_run",
        ),
    ),
    Mutant(
        "records that only some shards hold",
        "python/libsumtree/replay/restoring.py",
        "            _check_alike(path, restored, shards)\n",
        "",
        noticed_by(
            "tests/mpi/test_replay_shard_faults.py", "a_state_whose_shards_hold_different_records"
        ),
    ),
    Mutant(
        "updates beyond the credits",
        "python/libsumtree/replay/samples.py",
        "        if channel.unsent(peer.rank) > most:\n            channel.reap()\n",
        "        if False:\n            channel.reap()\n",
        noticed_by(
            "tests/python/test_replay_updates.py",
            "updates_beyond_the_credits_are_refused_until_answers_are_taken",
        ),
    ),
    Mutant(
        "credits not counted of batches in control messages",
        "python/libsumtree/replay/adds.py",
        "            and peer.unacked < self._peers.config.actor_credits\n",
        "",
        noticed_by("tests/mpi/test_replay_service.py", "credits_bind_batches_in_control_messages"),
    ),
    Mutant(
        "unchecked length of a batch in a control message",
        "python/libsumtree/replay/messages.py",
        "    if len(data) != HEADER_SIZE + 8 * count + payload:\n        return None\n",
        "",
        ["tests/python/test_replay_messages.py::test_usual_batches_are_what_decode_reads"],
    ),
    Mutant(
        "records written before their priorities are checked",
        "python/bindings/tree.h",
        "        if (powers.masses(count",
        "        std::memcpy(to.data() + start * itemsize, from.data(), itemsize);\n"
        "        if (powers.masses(count",
        ["tests/python/test_buffer_packed.py::test_a_bad_priority_changes_nothing"],
    ),
    Mutant(
        "a learner's updates take no time",
        "python/libsumtree/replay/share.py",
        "self._pause * (self._used + now - begin)",
        "self._pause * (now - begin)",
        ["tests/python/test_replay_share.py::test_updates_count"],
    ),
    Mutant(
        "a payload that is long under way takes the ring",
        "python/libsumtree/replay/intake.py",
        "return announced.nbytes <= self._prompt.get(announced.peer.rank, IN_PLACE_BYTES)",
        "return True",
        ["tests/python/test_replay_payloads.py::test_nobody_waits_for_a_payload_that_is_under_way"],
    ),
    Mutant(
        "a message that cannot be received ends the service",
        "python/libsumtree/replay/receiving.py",
        "        except MPI.Exception as error:\n"
        "            return _unreceived(source, error)\n"
        "        if borrowed:",
        "        except MPI.Exception:\n            raise\n        if borrowed:",
        ["tests/mpi/test_replay_faults.py::test_a_message_whose_memory_is_gone"],
    ),
    Mutant(
        "memory of a transfer that was given up is freed at once",
        "python/libsumtree/replay/receiving.py",
        "        return bool(request.Test())\n    except",
        "        return bool(request.Test()) or True\n    except",
        [
            "tests/python/test_replay_payloads.py::"
            "test_what_was_given_up_stays_though_another_transfer_fails"
        ],
    ),
    Mutant(
        "requests that wait for their share refused at the end",
        "python/libsumtree/replay/service.py",
        "        self._samples.serve(at_once=True)\n",
        "",
        noticed_by(
            "tests/mpi/test_replay_service.py",
            "requests_that_wait_for_their_share_are_served_before_the_end",
        ),
    ),
    Mutant(
        "a wait given up forgets the payload on its way",
        "python/libsumtree/replay/client.py",
        "                raise self._timed_out(what, seconds)\n",
        "                self._arrivals.clear()\n"
        "                raise self._timed_out(what, seconds)\n",
        noticed_by(
            "tests/mpi/test_replay_waiting.py",
            "wait_that_is_given_up_before_a_payload_mixes_no_answers",
        ),
    ),
    Mutant(
        "a late answer taken for another's",
        "python/libsumtree/replay/learner.py",
        "            if message.sequence in self._answers:\n"
        "                self._answers[message.sequence] = message\n",
        "            for sequence in self._answers:\n"
        "                self._answers[sequence] = message\n",
        noticed_by(
            "tests/mpi/test_replay_waiting.py", "silence_of_the_replay_rank_is_said_and_overcome"
        ),
    ),
    Mutant(
        "a changed limit not in the checkpoint",
        "python/libsumtree/replay/rank.py",
        "        peers.progress.rate_limit = peers.limiter.saved()\n",
        "",
        noticed_by(
            "tests/mpi/test_replay_waiting.py", "learner_changes_the_limit_and_checkpoints_keep_it"
        ),
    ),
    Mutant(
        "a limit changed past a request that waits",
        "python/libsumtree/replay/pacing.py",
        "if limit.error_buffer is not None and largest > 2 * limit.error_buffer:",
        "if False:",
        noticed_by(
            "tests/mpi/test_replay_waiting.py", "learner_changes_the_limit_and_checkpoints_keep_it"
        ),
    ),
    Mutant(
        "a bucket one too far",
        "python/libsumtree/metrics/histogram.py",
        "    low = bucket - STEPS * exponent\n",
        "    low = bucket - STEPS * exponent + 1\n",
        ["tests/python/test_metrics.py::test_a_time_lies_within_the_bounds_of_its_bucket"],
    ),
    Mutant(
        "a torn line goes on in the next",
        "python/libsumtree/metrics/sink.py",
        'rest = memoryview(b"\\n" + line if self._torn else line)',
        "rest = memoryview(line)",
        ["tests/python/test_metrics.py::test_lines_are_appended_after_a_torn_one"],
    ),
]
