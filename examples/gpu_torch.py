"""Prioritized sampling that stays on a GPU: PyTorch's tensors go in and out by DLPack, uncopied.

    python examples/gpu_torch.py            # on the GPU that libsumtree chooses

A small regression learns from 2**20 examples of which few are hard. Priorities, draws, weights and
the gradient step never leave the GPU. At the end the tree is compared with one on the host, bit for
bit. Needs PyTorch with CUDA, and libsumtree with the backend "gpu" (docs/gpu.md).
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

import libsumtree as st

try:
    import torch
except ImportError as error:
    sys.exit(f"this example needs PyTorch with CUDA ({error}): pip install torch")

EXAMPLES, BATCH, STEPS = 1 << 20, 512, 400


def masses_of(errors: torch.Tensor) -> torch.Tensor:
    return (errors.abs().double() + 1e-3) ** 0.6


def main(where: str | None) -> None:
    tree = st.PriorityTree(EXAMPLES, seed=0, backend="gpu")
    device = torch.device(where or f"cuda:{tree.device}")
    generator = torch.Generator(device).manual_seed(0)
    inputs = torch.randn(EXAMPLES, 8, device=device, generator=generator)
    inputs[torch.arange(EXAMPLES, device=device) % 100 == 0] *= 10.0  # the hard ones
    truth = torch.arange(8.0, device=device)
    outputs = inputs @ truth
    guess = torch.zeros(8, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([guess], 3e-2)

    everything = torch.arange(EXAMPLES, device=device)
    tree.update(everything, masses_of(outputs))  # the errors of a guess of zeros
    hard, began = 0, time.perf_counter()
    for step in range(STEPS):
        drawn = tree.sample(BATCH, beta=0.4, xp=torch)
        for tensor in drawn:
            assert tensor.device == device, f"{tensor.device} instead of {device}"
        indices = drawn.indices
        errors = outputs[indices] - inputs[indices] @ guess
        loss = (drawn.weights.float() * errors.square()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tree.update(indices, masses_of(errors.detach()))
        if step < STEPS // 8:
            hard += int((indices % 100 == 0).sum())
    seconds = time.perf_counter() - began

    far = float((guess.detach() - truth).abs().max())
    share = hard / (BATCH * (STEPS // 8))
    assert far < 0.05, f"the guess is {far} from the truth"
    assert share > 0.025, f"the hard hundredth was drawn {share:.1%} of the time"
    compare_with_host(tree, device)
    print(
        f"gpu_torch: {STEPS} steps of {BATCH} on {device}, {1e6 * seconds / STEPS:.0f} us each; "
        f"{far:.1e} from the truth; the hard hundredth was {share:.1%} of early draws; "
        "tree and draws are those of the host, bit for bit"
    )


def compare_with_host(tree: st.PriorityTree, device: torch.device) -> None:
    """Hold masses, nodes and draws to those of the same tree in host memory."""
    masses = tree[torch.arange(EXAMPLES, device=device)]
    assert masses.device == device
    host = st.PriorityTree(EXAMPLES, backend="cpu")
    host[:] = masses.cpu().numpy()
    host.rng_state = tree.rng_state
    for plane in ("sum", "min", "max"):
        np.testing.assert_array_equal(tree.nodes(plane), host.nodes(plane))
    ours, theirs = tree.sample(BATCH, xp=torch), host.sample(BATCH)
    np.testing.assert_array_equal(ours.indices.cpu().numpy(), theirs.indices)
    np.testing.assert_array_equal(ours.masses.cpu().numpy(), theirs.masses)
    np.testing.assert_allclose(ours.weights.cpu().numpy(), theirs.weights, rtol=1e-15)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", nargs="?", help="such as cuda:1 (default: the tree's own choice)")
    main(parser.parse_args().device)
