from __future__ import annotations

import importlib
import sys
import types

import numpy as np
import pytest

from libsumtree.apex import DuelingMLP, NetworkError, NetworkSpec, QFunction
from libsumtree.apex.network import DEFAULT_NETWORK, make_network
from libsumtree.errors import CheckpointMismatchError

TAKES_NOTHING = """
from libsumtree.apex.dueling import DuelingMLP
class Network(DuelingMLP):
    def q_values(self, observations):
        raise ZeroDivisionError('not now')
def make(spec):
    return Network(4, 3)
"""

SPEC = NetworkSpec((4,), np.dtype(np.float32), 3, hidden=(16, 8), seed=5)


def batch(size=32, inputs=4, actions=3, seed=0):
    generator = np.random.default_rng(seed)
    return (
        generator.normal(size=(size, inputs)).astype(np.float32),
        generator.integers(actions, size=size),
        3.0 * generator.normal(size=size),
        generator.uniform(0.1, 1.0, size),
    )


def double_precision_q(parameters, observations):
    """The network written down again, plainly and in float64."""
    x = observations.astype(np.float64)
    layers = len(parameters) // 2
    for number in range(layers):
        weight = parameters[f"layer{number}.weight"].astype(np.float64)
        x = x @ weight + parameters[f"layer{number}.bias"].astype(np.float64)
        if number < layers - 1:
            x = np.maximum(x, 0)
    value, advantages = x[:, :1], x[:, 1:]
    return value + advantages - advantages.mean(axis=1, keepdims=True)


def double_precision_loss(parameters, observations, actions, targets, weights):
    q = double_precision_q(parameters, observations)[np.arange(len(actions)), actions]
    error = np.abs(targets - q)
    huber = np.where(error <= 1, 0.5 * error**2, error - 0.5)
    return float(np.mean(weights * huber))


def numeric_gradient(parameters, data, step=1e-5):
    gradient = {}
    exact = {name: array.astype(np.float64) for name, array in parameters.items()}
    for name, array in exact.items():
        slopes = np.zeros(array.size)
        flat = array.reshape(-1)
        for k in range(array.size):
            middle = flat[k]
            flat[k] = middle + step
            above = double_precision_loss(exact, *data)
            flat[k] = middle - step
            slopes[k] = (above - double_precision_loss(exact, *data)) / (2 * step)
            flat[k] = middle
        gradient[name] = slopes.reshape(array.shape)
    return gradient


def test_values_are_those_of_the_plain_formula():
    network = DuelingMLP(4, 3, hidden=(16, 8), seed=1)
    observations, *_ = batch()
    values = network.q_values(observations)
    assert values.dtype == np.float32
    expected = double_precision_q(network.parameters(), observations)
    np.testing.assert_allclose(values, expected, atol=2e-6)


def test_the_first_adam_step_follows_the_sign_of_the_numeric_gradient():
    network = DuelingMLP(4, 3, hidden=(6, 5), learning_rate=1e-3, seed=2)
    data = batch(size=16)
    before = network.parameters()
    gradient = numeric_gradient(before, data)
    network.fit(*data)
    for name, slopes in gradient.items():
        # Adam's first step is rate * g / (|g| + 1e-8), whatever the size of g.
        expected = -1e-3 * slopes / (np.abs(slopes) + 1e-8)
        clear = np.abs(slopes) > 1e-4
        moved = network.parameters()[name].astype(np.float64) - before[name]
        np.testing.assert_allclose(moved[clear], expected[clear], atol=2e-6)


def test_the_gradient_is_the_numeric_one():
    network = DuelingMLP(4, 3, hidden=(6, 5), gradient_norm=1e9, seed=3)
    data = batch(size=16)
    gradient = numeric_gradient(network.parameters(), data)
    network.fit(*data)
    first = network.state()["adam.first"] / np.float32(0.1)  # (1 - 0.9) * gradient
    expected = np.concatenate([slopes.reshape(-1) for slopes in gradient.values()])
    np.testing.assert_allclose(first, expected, atol=2e-5)
    assert np.abs(expected).max() > 0.05


def test_long_gradients_are_clipped_to_the_norm():
    data = batch(size=16)
    network = DuelingMLP(4, 3, gradient_norm=0.01, seed=3)
    network.fit(*data)
    first = network.state()["adam.first"].astype(np.float64) / 0.1
    assert np.linalg.norm(first) == pytest.approx(0.01, rel=1e-4)


def test_fit_returns_the_errors_before_the_step():
    network = DuelingMLP(4, 3, seed=4)
    observations, actions, targets, weights = batch()
    q = network.q_values(observations)[np.arange(32), actions]
    errors = network.fit(observations, actions, targets, weights)
    assert errors.dtype == np.float32
    np.testing.assert_allclose(errors, targets - q, atol=1e-5)


def test_fit_comes_closer_to_fixed_targets():
    network = DuelingMLP(4, 3, seed=0)
    data = batch(size=64)
    first = np.abs(network.fit(*data)).mean()
    for _ in range(500):
        last = np.abs(network.fit(*data)).mean()
    assert last < 0.1 * first


def test_a_row_of_weight_zero_teaches_nothing():
    observations, actions, targets, weights = batch()
    weights[:16] = 0
    one = DuelingMLP(4, 3, seed=6)
    other = DuelingMLP(4, 3, seed=6)
    one.fit(observations, actions, targets, weights)
    targets[:16] = 100.0
    other.fit(observations, actions, targets, weights)
    for name, array in one.parameters().items():
        np.testing.assert_array_equal(array, other.parameters()[name])


def test_inputs_are_not_changed_and_results_are_the_callers():
    network = DuelingMLP(4, 3, seed=0)
    data = batch()
    for array in data:
        array.flags.writeable = False
    values = network.q_values(data[0])
    kept = values.copy()
    network.fit(*data)
    network.q_values(2 * data[0])
    np.testing.assert_array_equal(values, kept)


def test_strided_observations_of_any_shape_and_type():
    network = DuelingMLP(6, 2, seed=0)
    records = np.zeros(5, [("observation", np.uint8, (2, 3)), ("other", np.int8)])
    records["observation"] = np.arange(30).reshape(5, 2, 3)
    flat = np.arange(30, dtype=np.float32).reshape(5, 6)
    np.testing.assert_array_equal(network.q_values(records["observation"]), network.q_values(flat))


def test_the_same_seed_gives_the_same_network():
    one, same, other = (DuelingMLP(4, 3, seed=seed).parameters() for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["layer0.weight"], other["layer0.weight"])


def test_training_goes_on_bit_for_bit_from_a_state():
    network = DuelingMLP(4, 3, seed=0)
    for seed in range(5):
        network.fit(*batch(seed=seed))
    copy = DuelingMLP(4, 3, seed=9)
    copy.load_state(network.state())
    for seed in range(5, 10):
        network.fit(*batch(seed=seed))
        copy.fit(*batch(seed=seed))
    for name, array in network.state().items():
        np.testing.assert_array_equal(array, copy.state()[name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("layer1.bias"), r"no array 'layer1\.bias'"),
        (lambda state: state.pop("adam.second"), r"no array 'adam\.second'"),
        (lambda state: state.update({"layer2.bias": np.zeros(7)}), r"shape \(7,\).*has \(4,\)"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, message):
    network = DuelingMLP(4, 3, seed=0)
    state = DuelingMLP(4, 3, seed=1).state()
    change(state)
    before = network.state()
    with pytest.raises(CheckpointMismatchError, match=message):
        network.load_state(state)
    for name, array in network.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_the_default_network_is_made_from_its_name():
    network = make_network(DEFAULT_NETWORK, SPEC)
    assert isinstance(network, QFunction)
    assert network.q_values(np.zeros((2, 4), np.float32)).shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "not of the form module:factory"),
        (":make", "not of the form module:factory"),
        (
            "no_such_module_here:make",
            "cannot be imported: ModuleNotFoundError: No module named 'no_such_module_here'",
        ),
        ("libsumtree.apex.dueling:nothing", "has no function 'nothing'"),
        ("builtins:len", "failed"),
        ("builtins:repr", "made a str, which lacks methods of QFunction"),
    ],
)
def test_a_network_that_cannot_be_made(name, message):
    with pytest.raises(NetworkError, match=message):
        make_network(name, SPEC)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def make(spec:\n", "cannot be imported: SyntaxError: "),
        ("raise RuntimeError('no luck')", "cannot be imported: RuntimeError: no luck"),
        ("raise SystemExit(7)", "cannot be imported: SystemExit: 7"),
        ("def make(spec): return {}['x']", "failed: KeyError: 'x'"),
        ("def make(spec): raise SystemExit('enough')", "failed: SystemExit: enough"),
        ("def make(spec): return None", "made a NoneType, which lacks methods"),
        (TAKES_NOTHING, "failed for 2 observations: ZeroDivisionError: not now"),
        (TAKES_NOTHING.replace("raise ZeroDivisionError('not now')", "return 3"), "gave a int"),
    ],
)
def test_whatever_code_of_a_users_raises_is_a_clear_error(source, message, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users_network", raising=False)
    (tmp_path / "users_network.py").write_text(source)
    importlib.invalidate_caches()
    with pytest.raises(NetworkError) as caught:
        make_network("users_network:make", SPEC)
    assert message in str(caught.value)
    sys.modules.pop("users_network", None)


def test_a_network_of_the_wrong_shape(monkeypatch):
    module = types.ModuleType("apex_wrong_network")
    module.make = lambda spec: DuelingMLP(4, 2)
    monkeypatch.setitem(sys.modules, "apex_wrong_network", module)
    with pytest.raises(NetworkError, match=r"shape \(2, 2\).*where \(2, 3\) float32 is right"):
        make_network("apex_wrong_network:make", SPEC)
