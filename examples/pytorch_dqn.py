"""A PyTorch DQN whose transitions go through a replay rank: one learner, any number of actors.

    mpiexec -n 4 python -m mpi4py examples/pytorch_dqn.py --updates 6000

Rank 0 owns the buffer, rank 1 learns with PyTorch, the others act. Needs PyTorch besides the extra
``apex``. Transitions and priorities go by `libsumtree.replay`; the network's parameters go from the
learner to the actors on a communicator of their own, and an empty message ends them.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from libsumtree.errors import ReplayStopped

try:
    import gymnasium
    import torch
    from mpi4py import MPI

    from libsumtree.replay import ActorClient, LearnerClient, ReplayConfig, ReplayRank
except ImportError as error:
    sys.exit(f"this example needs PyTorch and more ({error}): pip install 'libsumtree[apex]' torch")

ENVIRONMENT, DISCOUNT, BATCH = "CartPole-v1", 0.99, 64
TRANSITION = np.dtype(
    [
        ("observation", "f4", (4,)),
        ("action", "i8"),
        ("reward", "f4"),
        ("discount", "f4"),
        ("next_observation", "f4", (4,)),
    ]
)


def network() -> torch.nn.Module:
    layers = [torch.nn.Linear(4, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 2)]
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])


def greedy(net: torch.nn.Module, observation: np.ndarray) -> int:
    with torch.no_grad():
        return int(net(torch.as_tensor(observation, dtype=torch.float32)).argmax())


def td_errors(
    net: torch.nn.Module, target: torch.nn.Module, transitions: np.ndarray
) -> torch.Tensor:
    """Return the errors of double Q-learning, shape (n,); gradients go through `net` alone."""
    rows = {name: torch.from_numpy(transitions[name].copy()) for name in TRANSITION.names}
    with torch.no_grad():
        best = net(rows["next_observation"]).argmax(1, keepdim=True)
        following = target(rows["next_observation"]).gather(1, best).squeeze(1)
        targets = rows["reward"] + rows["discount"] * following
    taken = net(rows["observation"]).gather(1, rows["action"].unsqueeze(1)).squeeze(1)
    return targets - taken


class Parameters:
    """Carries a network from the learner, rank 0 of `comm`, to its other ranks."""

    def __init__(self, comm: MPI.Intracomm, net: torch.nn.Module) -> None:
        self.comm = comm
        self.net = net
        self.sent: list[MPI.Request] = []

    def send(self, last: bool = False) -> None:
        """Send the network as it is now, or that nothing more will come."""
        with torch.no_grad():
            flat = torch.nn.utils.parameters_to_vector(self.net.parameters()).numpy().copy()
        for actor in range(1, self.comm.size):
            self.sent.append(self.comm.Isend(flat[:0] if last else flat, actor))
        if last:
            MPI.Request.Waitall(self.sent)

    def receive(self, until_last: bool = False) -> None:
        """Take over what has come; with `until_last`, everything that ever will."""
        status = MPI.Status()
        while until_last or self.comm.Iprobe(0):
            self.comm.Probe(0, status=status)
            flat = np.empty(status.Get_count(MPI.FLOAT), np.float32)
            self.comm.Recv(flat, 0)
            if not len(flat):
                return
            torch.nn.utils.vector_to_parameters(torch.from_numpy(flat), self.net.parameters())


def learn(comm: MPI.Intracomm, others: MPI.Intracomm, updates: int, seed: int) -> None:
    torch.manual_seed(seed)
    net, target = network(), network()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    parameters = Parameters(others, net)
    with LearnerClient(comm, TRANSITION) as replay:
        for update in range(updates):
            if update % 200 == 0:
                target.load_state_dict(net.state_dict())
            if update % 20 == 0:
                parameters.send()
            drawn = replay.sample(BATCH)
            errors = td_errors(net, target, drawn.transitions)
            huber = torch.nn.functional.huber_loss(
                errors, torch.zeros_like(errors), reduction="none"
            )
            loss = (torch.from_numpy(drawn.weights.astype(np.float32)) * huber).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            priorities = errors.detach().abs().double().numpy() + 1e-6
            replay.update_priorities(drawn.ids, priorities)
        replay.stop()
    parameters.send(last=True)
    returns = evaluate(net, seed)
    print(
        f"{updates} updates, {replay.status.inserted} transitions, {replay.status.stale} stale "
        f"priorities; mean return of 20 episodes: {returns:.1f}",
        flush=True,
    )


def act(comm: MPI.Intracomm, others: MPI.Intracomm, seed: int) -> None:
    torch.manual_seed(seed)
    net, rng = network(), np.random.default_rng([seed, comm.rank])
    parameters = Parameters(others, net)
    explore = (
        0.4 ** (1 + 7 * (others.rank - 1) / max(others.size - 2, 1)) if others.size > 2 else 0.1
    )
    env = gymnasium.make(ENVIRONMENT)
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    batch = np.empty(16, TRANSITION)
    try:
        with ActorClient(comm, TRANSITION) as replay:
            while True:
                parameters.receive()
                for row in range(len(batch)):
                    action = greedy(net, observation)
                    if rng.random() < explore:
                        action = int(rng.integers(2))
                    following, reward, ended, cut, _ = env.step(action)
                    discount = DISCOUNT * (not ended)
                    batch[row] = (observation, action, reward, discount, following)
                    observation = env.reset()[0] if ended or cut else following
                with torch.no_grad():
                    errors = td_errors(net, net, batch).abs().double().numpy()
                replay.add(batch, errors + 1e-6)
    except ReplayStopped:
        parameters.receive(until_last=True)


def evaluate(net: torch.nn.Module, seed: int) -> float:
    env, total = gymnasium.make(ENVIRONMENT), 0.0
    for episode in range(20):
        observation, _ = env.reset(seed=seed + episode)
        over = False
        while not over:
            observation, reward, ended, cut, _ = env.step(greedy(net, observation))
            total += float(reward)
            over = ended or cut
    return total / 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    if comm.size < 3:
        sys.exit("pytorch_dqn needs 3 ranks or more: a replay rank, a learner and actors")
    torch.set_num_threads(1)
    others = comm.Split(min(comm.rank, 1))
    if comm.rank == 0:
        config = ReplayConfig(
            50_000, TRANSITION, seed=options.seed, min_size_to_sample=1000, samples_per_insert=16
        )
        ReplayRank(comm, config).run()
    elif comm.rank == 1:
        learn(comm, others, options.updates, options.seed)
    else:
        act(comm, others, options.seed)


if __name__ == "__main__":
    main()
