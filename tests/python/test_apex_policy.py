from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import pickle

import numpy as np
import pytest

from libsumtree import files as files_module
from libsumtree.apex import DuelingMLP, PolicyFileError, load_policy, save_policy
from libsumtree.apex.curve import LearningCurve, save_curve
from libsumtree.apex.network import DEFAULT_NETWORK
from libsumtree.apex.policy import PolicyMetadata, evaluate_policy, load_network
from libsumtree.cli import main

METADATA = PolicyMetadata(
    environment="CartPole-v1",
    network=DEFAULT_NETWORK,
    hidden=(8, 8),
    observation_shape=(4,),
    observation_dtype="<f4",
    actions=2,
    seed=3,
    environment_steps=1000,
    learner_steps=10,
    validation_return=123.5,
)


@pytest.fixture
def saved(tmp_path):
    network = DuelingMLP(4, 2, hidden=(8, 8), seed=1)
    path = tmp_path / "policy.npz"
    save_policy(path, network.parameters(), METADATA)
    return path, network


def test_a_policy_comes_back_bit_for_bit(saved):
    path, network = saved
    parameters, metadata = load_policy(path)
    assert metadata == METADATA
    assert list(parameters) == list(network.parameters())
    for name, array in network.parameters().items():
        np.testing.assert_array_equal(parameters[name], array)
        assert parameters[name].dtype == array.dtype
    assert [entry.name for entry in path.parent.iterdir()] == ["policy.npz"]


def test_plain_numpy_reads_it_without_pickle(saved):
    with np.load(saved[0], allow_pickle=False) as archive:
        assert json.loads(bytes(archive["metadata"]))["environment"] == "CartPole-v1"
        assert archive["parameters/layer0.weight"].shape == (4, 8)


def test_a_loaded_network_plays_like_the_saved_one(saved):
    path, network = saved
    loaded, _ = load_network(path, None)
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_array_equal(loaded.q_values(observations), network.q_values(observations))
    assert evaluate_policy(path) == evaluate_policy(path)
    assert 1 <= evaluate_policy(path) <= 500


def test_a_failed_write_leaves_the_old_file(saved, monkeypatch):
    path, _ = saved
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files_module.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_policy(path, {}, METADATA)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["policy.npz"]


def test_objects_are_never_written(tmp_path):
    path = tmp_path / "policy.npz"
    with pytest.raises(ValueError, match="allow_pickle=False"):
        save_policy(path, {"x": np.array([object()])}, METADATA)
    assert list(tmp_path.iterdir()) == []


class Bomb:
    def __reduce__(self):
        return os.abort, ()


def test_a_pickle_in_a_file_is_never_loaded(tmp_path):
    path = tmp_path / "policy.npz"
    for content in (pickle.dumps(Bomb()), npz_with_objects()):
        path.write_bytes(content)
        with pytest.raises(PolicyFileError, match="is not a readable policy file"):
            load_policy(path)


def npz_with_objects():
    buffer = io.BytesIO()
    np.savez(buffer, metadata=np.array([Bomb()], dtype=object))
    return buffer.getvalue()


def test_truncated_and_flipped_files_are_refused(saved):
    path, _ = saved
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(PolicyFileError):
            load_policy(path)
    path.write_bytes(content[:200] + bytes([content[200] ^ 16]) + content[201:])
    with pytest.raises(PolicyFileError):
        load_policy(path)


def rewrite(path, **changes):
    parameters, metadata = load_policy(path)
    save_policy(path, parameters, dataclasses.replace(metadata, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "of format 2; this version reads 1"),
        ({"network": "theirs:make"}, "made by the network 'theirs:make'.*--network theirs:make"),
        ({"hidden": (8, 9)}, "does not fit its network"),
        ({"environment": "Acrobot-v1"}, r"observations and actions \(\(4,\), '<f4', 2\)"),
    ],
)
def test_policies_that_cannot_be_played(saved, changes, message):
    path, _ = saved
    rewrite(path, **changes)
    with pytest.raises(PolicyFileError, match=message):
        evaluate_policy(path)


def test_a_policy_decides_not_which_modules_are_imported(saved, tmp_path, monkeypatch):
    """Gymnasium imports what stands before a colon in the id of an environment."""
    path, _ = saved
    (tmp_path / "theirs.py").write_text("raise SystemExit('theirs was imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    rewrite(path, environment="theirs:CartPole-v1")
    with pytest.raises(PolicyFileError, match="--env theirs:CartPole-v1"):
        evaluate_policy(path)
    with pytest.raises(PolicyFileError, match="not 'CartPole-v1'"):
        evaluate_policy(path, environment="CartPole-v1")


def test_a_policy_of_a_module_plays_where_its_environment_is_named(saved, tmp_path, monkeypatch):
    path, _ = saved
    (tmp_path / "ours.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    score = evaluate_policy(path, environment="CartPole-v1")
    rewrite(path, environment="ours:CartPole-v1")
    assert main(["apex", "--evaluate", str(path), "--env", "ours:CartPole-v1"]) == 0
    assert evaluate_policy(path, environment="ours:CartPole-v1") == score


def test_a_policy_of_things_that_are_no_names(saved):
    path, _ = saved
    for name in ("environment", "network", "observation_dtype"):
        rewrite(path, **{name: ["CartPole-v1"]})
        with pytest.raises(PolicyFileError, match="is not a readable policy file"):
            evaluate_policy(path)
        save_policy(path, saved[1].parameters(), METADATA)


def test_a_policy_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_policy(tmp_path / "nothing.npz")


def test_the_curve_is_a_picture_whatever_is_in_it(tmp_path):
    curve = LearningCurve()
    curve.append(1000, math.nan, 20.0)
    curve.append(2000, 15.5, 80.0)
    path = tmp_path / "curve.png"
    save_curve(path, curve, "a title")
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(content) > 5000
    again = LearningCurve()
    again.load(curve.array())
    np.testing.assert_array_equal(again.array(), curve.array())
    save_curve(path, LearningCurve(), "empty")
    assert path.read_bytes().startswith(b"\x89PNG")
