"""Faults of checkpoints: their bytes, their folders and their locks."""

from __future__ import annotations

from mutant import Mutant, noticed_by

PERSISTENCE = "python/libsumtree/persistence.py"
CHECKPOINT = "python/libsumtree/checkpoint"
SNAPSHOT = "python/libsumtree/snapshot.py"

MUTANTS = [
    Mutant(
        "RNG not saved",
        PERSISTENCE,
        "        self._tree.rng_state = {\n",
        "        _ = {\n",
        noticed_by(
            "tests/python/test_buffer_save.py", "a_loaded_buffer_goes_on_as_the_one_that_was_saved"
        ),
    ),
    Mutant(
        "cursor not saved",
        PERSISTENCE,
        'cursor = int(saved["cursor"])',
        'cursor = int(saved["size"])',
        noticed_by(
            "tests/python/test_buffer_save.py", "a_loaded_buffer_goes_on_as_the_one_that_was_saved"
        ),
    ),
    Mutant(
        "priorities not loaded",
        PERSISTENCE,
        "self._set_held_masses(masses[len(masses) - kept :])",
        "self._set_held_masses(np.ones(kept))",
        noticed_by(
            "tests/python/test_buffer_save.py", "a_loaded_buffer_goes_on_as_the_one_that_was_saved"
        ),
    ),
    Mutant(
        "sample count not loaded",
        PERSISTENCE,
        'self._sampled = as_count(saved["sampled"], "sampled")',
        "self._sampled = 0",
        noticed_by(
            "tests/python/test_buffer_save.py", "a_loaded_buffer_goes_on_as_the_one_that_was_saved"
        ),
    ),
    Mutant(
        "epoch not advanced on load",
        PERSISTENCE,
        "        buffer.open_epoch(checkpoint.open_epoch(path, buffer.epoch))\n",
        "",
        noticed_by(
            "tests/python/test_buffer_save.py",
            "ids_that_were_saved_stay_and_new_ones_open_an_epoch",
        ),
    ),
    Mutant(
        "one epoch for all who load a file",
        PERSISTENCE,
        "buffer.open_epoch(checkpoint.open_epoch(path, buffer.epoch))",
        "buffer.open_epoch(buffer.epoch + 1)",
        noticed_by(
            "tests/python/test_buffer_save.py",
            "ids_that_were_saved_stay_and_new_ones_open_an_epoch",
        ),
    ),
    Mutant(
        "sums not compared on load",
        f"{CHECKPOINT}/state.py",
        "if link.attributes[name] != value:",
        "if False:",
        noticed_by(
            "tests/python/test_buffer_save.py", "a_checkpoint_that_holds_no_buffer_is_refused"
        ),
    ),
    Mutant(
        "a smaller capacity keeps the oldest",
        PERSISTENCE,
        "self._set_held_masses(masses[len(masses) - kept :])",
        "self._set_held_masses(masses[:kept])",
        noticed_by(
            "tests/python/test_snapshot.py", "a_smaller_capacity_keeps_the_newest_and_says_so"
        ),
    ),
    Mutant(
        "in-place save",
        "python/libsumtree/files.py",
        """        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with io.FileIO(os.open(temporary, flags, mode), "w+") as file:
            try:
                if _own(file, temporary):
                    yield file, temporary
                    return
            finally:
                temporary.unlink(missing_ok=True)
""",
        """        temporary = destination
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with io.FileIO(os.open(temporary, flags, mode), "w+") as file:
            _own(file, temporary)
            yield file, temporary
            return
""",
        noticed_by(
            "tests/python/test_checkpoint_failures.py",
            "a_full_disk_keeps_the_old_file",
            "sigkill_leaves_the_old_file_or_the_new_one",
        ),
    ),
    Mutant(
        "digest unchecked",
        f"{CHECKPOINT}/reader.py",
        "    if digest != header.digest:",
        "    if length != header.length:",
        noticed_by("tests/python/test_buffer_save.py", "any_changed_byte_is_noticed"),
    ),
    Mutant(
        "filters from anywhere",
        f"{CHECKPOINT}/reader.py",
        "most *= _EXPANSION.get(number, 0)",
        "most *= _EXPANSION.get(number, 1 << 40)",
        noticed_by(
            "tests/python/test_checkpoint_damage.py", "anything_but_plain_arrays_is_refused"
        ),
    ),
    Mutant(
        "shapes without bound",
        f"{CHECKPOINT}/reader.py",
        "and nbytes <= stored * _expansion(properties)",
        "and _expansion(properties) > 0",
        noticed_by(
            "tests/python/test_checkpoint_damage.py", "anything_but_plain_arrays_is_refused"
        ),
    ),
    Mutant(
        "any file for the one that was meant",
        f"{CHECKPOINT}/chain.py",
        "if header.digest == digest:",
        "if path != child:",
        noticed_by("tests/python/test_snapshot.py", "a_missing_or_damaged_link_is_detected"),
    ),
    Mutant(
        "only grown masses are saved",
        SNAPSHOT,
        "np.flatnonzero(old != before)",
        "np.flatnonzero(old > before)",
        noticed_by(
            "tests/python/test_snapshot.py", "every_link_of_a_chain_is_the_buffer_of_its_moment"
        ),
    ),
    Mutant(
        "a save of many instants",
        SNAPSHOT,
        "        if doomed <= self._aside_stop and doomed <= self._next:\n",
        "        if True:\n",
        noticed_by(
            "tests/python/test_snapshot.py",
            "the_rows_of_an_instant_outlive_what_is_added_while_they_are_read",
        ),
    ),
    Mutant(
        "no bound on what stands aside",
        SNAPSHOT,
        "room = min(room, self._aside_most - (start - self._next))",
        "pass",
        noticed_by(
            "tests/python/test_snapshot.py", "what_stands_aside_is_bounded_while_a_thread_writes"
        ),
    ),
    Mutant(
        "a living writer's file taken for a leftover",
        "python/libsumtree/files.py",
        "    return is_file_at(file.fileno(), path)\n",
        "    return True\n",
        noticed_by(
            "tests/python/test_checkpoint_writers.py", "a_file_taken_for_a_leftover_is_made_anew"
        ),
    ),
    Mutant(
        "the lock of a folder that is gone",
        f"{CHECKPOINT}/lock.py",
        "while self._descriptor is None or not is_file_at(self._descriptor, self._path):",
        "while self._descriptor is None:",
        noticed_by(
            "tests/python/test_checkpoint_writers.py",
            "a_folder_made_again_has_one_writer",
            "a_lock_of_a_file_that_is_gone_is_none",
        ),
    ),
    Mutant(
        "chains without an end",
        PERSISTENCE,
        "    own &= base.files < checkpoint.MOST_FILES\n",
        "",
        noticed_by(
            "tests/python/test_checkpoint_writers.py",
            "no_chain_needs_more_files_than_a_process_may_open",
        ),
    ),
    Mutant(
        "a file cut short counts as a state",
        f"{CHECKPOINT}/folder.py",
        "if path.stat().st_size == header.length:",
        "if header.length:",
        noticed_by(
            "tests/python/test_checkpoint_states.py", "files_that_were_cut_short_do_not_count"
        ),
    ),
    Mutant(
        "a child keeps its parent's lock",
        f"{CHECKPOINT}/lock.py",
        "os.register_at_fork(after_in_child=_close_in_child)\n",
        "",
        noticed_by(
            "tests/python/test_checkpoint_folder.py",
            "a_killed_holder_lets_go_even_if_its_children_live",
        ),
    ),
]
