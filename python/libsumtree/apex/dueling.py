"""A dueling multilayer perceptron with Adam, in plain NumPy.

The head computes ``Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a')`` (Wang et al., "Dueling
Network Architectures for Deep Reinforcement Learning", 2016). All parameters live in one float32
vector, of which every layer's weight and bias is a view; so do their gradients. Hence the
optimizer and the clipping are a few operations over one vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointMismatchError
from .network import NetworkSpec

Float32 = NDArray[np.float32]

_ADAM_FIRST_DECAY = 0.9
_ADAM_SECOND_DECAY = 0.999
_ADAM_EPSILON = 1e-8


def make(spec: NetworkSpec) -> DuelingMLP:
    """Make the network for `spec`; observations of any shape are flattened."""
    return DuelingMLP(
        math.prod(spec.observation_shape),
        spec.actions,
        hidden=spec.hidden,
        learning_rate=spec.learning_rate,
        seed=spec.seed,
    )


class _Activations:
    """Arrays for one batch size: each layer's output, and the gradient that flows back into it.

    ``outputs[0]`` is the input in float32, ``outputs[i]`` the output of layer i - 1.
    """

    def __init__(self, batch: int, widths: Sequence[int]) -> None:
        self.outputs = [np.empty((batch, width), np.float32) for width in widths]
        self.gradients = [np.empty((batch, width), np.float32) for width in widths]
        self.rows = np.arange(batch)


class DuelingMLP:
    """A `QFunction`: dense layers with ReLU, a dueling head, Huber loss, Adam.

    Parameters
    ----------
    inputs : int
        Numbers in one observation.
    actions : int
        Number of actions, A.
    hidden : sequence of int
        Widths of the hidden layers.
    learning_rate : float
        Adam's step size.
    gradient_norm : float
        Gradients longer than this (Euclidean norm over all parameters) are scaled to it.
    seed : int
        Seed of the initial parameters.

    Notes
    -----
    A step costs O(B * P) for P parameters. Scratch arrays are kept for each batch size seen.
    """

    def __init__(
        self,
        inputs: int,
        actions: int,
        *,
        hidden: Sequence[int] = (128, 128),
        learning_rate: float = 1e-3,
        gradient_norm: float = 10.0,
        seed: int = 0,
    ) -> None:
        self.learning_rate = learning_rate
        self.gradient_norm = gradient_norm
        self._widths = (inputs, *hidden, 1 + actions)
        shapes = list(zip(self._widths[:-1], self._widths[1:], strict=True))
        count = sum((rows + 1) * columns for rows, columns in shapes)
        self._parameters = np.empty(count, np.float32)
        self._gradient = np.zeros(count, np.float32)
        self._first = np.zeros(count, np.float32)
        self._second = np.zeros(count, np.float32)
        self._scratch = np.empty(count, np.float32)
        self._steps = 0
        self._layers = _split(self._parameters, shapes)
        self._layer_gradients = _split(self._gradient, shapes)
        self._activations: dict[int, _Activations] = {}
        generator = np.random.default_rng(seed)
        for weight, bias in self._layers:
            bound = 1.0 / math.sqrt(weight.shape[0])
            weight[...] = generator.uniform(-bound, bound, weight.shape)
            bias[...] = generator.uniform(-bound, bound, bias.shape)

    def q_values(self, observations: NDArray[Any]) -> Float32:
        """Return the action values, float32, shape (B, A), of observations, shape (B, ...)."""
        return _dueling(self._forward(observations).outputs[-1])

    def fit(
        self,
        observations: NDArray[Any],
        actions: NDArray[Any],
        targets: NDArray[Any],
        weights: NDArray[Any],
    ) -> Float32:
        """Make one Adam step on the weighted Huber loss; see `QFunction.fit`."""
        activations = self._forward(observations)
        rows = activations.rows
        values = _dueling(activations.outputs[-1])[rows, actions]
        errors: Float32 = targets.astype(np.float32) - values
        scale = weights.astype(np.float32) * np.float32(-1.0 / rows.size)
        slopes = np.clip(errors, -1.0, 1.0) * scale
        head = activations.gradients[-1]
        head[:, 0] = slopes
        head[:, 1:] = slopes[:, np.newaxis] * np.float32(-1.0 / (head.shape[1] - 1))
        head[rows, 1 + actions] += slopes
        self._backward(activations)
        self._adam()
        return errors

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Return a copy of every layer's weight and bias."""
        return {name: view.copy() for name, view in self._named().items()}

    def load_parameters(self, parameters: Mapping[str, NDArray[Any]]) -> None:
        """Take over weights and biases.

        Raises
        ------
        CheckpointMismatchError
            If a name or a shape differs from this network's; nothing is changed then.
        """
        named = self._named()
        for name, view in named.items():
            _check_entry(parameters, name, view.shape)
        for name, view in named.items():
            view[...] = parameters[name]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the parameters, Adam's two moments and its step."""
        return self.parameters() | {
            "adam.first": self._first.copy(),
            "adam.second": self._second.copy(),
            "adam.steps": np.array(self._steps, np.int64),
        }

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `state` returned; errors as in `load_parameters`."""
        _check_entry(state, "adam.first", self._first.shape)
        _check_entry(state, "adam.second", self._second.shape)
        _check_entry(state, "adam.steps", ())
        self.load_parameters(state)
        self._first[...] = state["adam.first"]
        self._second[...] = state["adam.second"]
        self._steps = int(state["adam.steps"])

    def _named(self) -> dict[str, Float32]:
        named = {}
        for number, (weight, bias) in enumerate(self._layers):
            named[f"layer{number}.weight"] = weight
            named[f"layer{number}.bias"] = bias
        return named

    def _forward(self, observations: NDArray[Any]) -> _Activations:
        batch = len(observations)
        activations = self._activations.get(batch)
        if activations is None:
            activations = self._activations[batch] = _Activations(batch, self._widths)
        outputs = activations.outputs
        outputs[0][...] = observations.reshape(batch, -1)
        last = len(self._layers) - 1
        for number, (weight, bias) in enumerate(self._layers):
            output = np.matmul(outputs[number], weight, out=outputs[number + 1])
            output += bias
            if number < last:
                np.maximum(output, 0.0, out=output)
        return activations

    def _backward(self, activations: _Activations) -> None:
        """Fill the gradient from the head's; an output of 0 passed ReLU's flat side."""
        for number in range(len(self._layers) - 1, -1, -1):
            gradient = activations.gradients[number + 1]
            inputs = activations.outputs[number]
            weight_gradient, bias_gradient = self._layer_gradients[number]
            np.matmul(inputs.T, gradient, out=weight_gradient)
            np.sum(gradient, axis=0, out=bias_gradient)
            if number:
                below = activations.gradients[number]
                np.matmul(gradient, self._layers[number][0].T, out=below)
                below *= inputs > 0.0

    def _adam(self) -> None:
        """Clip the gradient and step (Kingma and Ba, 2015)."""
        gradient, scratch = self._gradient, self._scratch
        norm = math.sqrt(float(np.dot(gradient, gradient)))
        if norm > self.gradient_norm:
            gradient *= np.float32(self.gradient_norm / norm)
        self._steps += 1
        self._first *= np.float32(_ADAM_FIRST_DECAY)
        np.multiply(gradient, np.float32(1 - _ADAM_FIRST_DECAY), out=scratch)
        self._first += scratch
        self._second *= np.float32(_ADAM_SECOND_DECAY)
        np.multiply(gradient, gradient, out=scratch)
        scratch *= np.float32(1 - _ADAM_SECOND_DECAY)
        self._second += scratch
        second_correction = math.sqrt(1 - _ADAM_SECOND_DECAY**self._steps)
        step = self.learning_rate * second_correction / (1 - _ADAM_FIRST_DECAY**self._steps)
        np.sqrt(self._second, out=scratch)
        scratch += np.float32(_ADAM_EPSILON * second_correction)
        np.divide(self._first, scratch, out=scratch)
        scratch *= np.float32(step)
        self._parameters -= scratch


def _split(vector: Float32, shapes: Sequence[tuple[int, int]]) -> list[tuple[Float32, Float32]]:
    """Return (weight, bias) views of `vector`, one pair for each layer, in order."""
    layers = []
    start = 0
    for rows, columns in shapes:
        middle = start + rows * columns
        stop = middle + columns
        layers.append((vector[start:middle].reshape(rows, columns), vector[middle:stop]))
        start = stop
    return layers


def _dueling(head: Float32) -> Float32:
    """Return Q, shape (B, A), from the head's columns: V, then A advantages."""
    advantages = head[:, 1:]
    baseline = head[:, 0] - advantages.mean(axis=1)
    values: Float32 = advantages + baseline[:, np.newaxis]
    return values


def _check_entry(arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> None:
    if name not in arrays:
        raise CheckpointMismatchError(
            f"the stored network has no array {name!r}, which this network needs; "
            "it was made with other hidden layers or another network"
        )
    if arrays[name].shape != shape:
        raise CheckpointMismatchError(
            f"the stored network's array {name!r} has shape {arrays[name].shape}, this network's "
            f"has {shape}; it was made with other hidden layers or for another environment"
        )
