"""An actor: plays one environment and gives what it sees to the replay rank."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ReplayStopped, ReplayTimeoutError
from .environments import EnvironmentSpec, make_environment
from .exploration import ActorRandomness, epsilon
from .learner import initial_priorities
from .nstep import NStepAccumulator, TransitionBatch
from .parameters import POLL_SECONDS

if TYPE_CHECKING:
    from ..replay import ActorClient, ShardedActor
    from ..replay.signals import StopFlag
    from .network import QFunction
    from .options import ApexOptions
    from .parameters import ParameterSink


class Player:
    """Plays one environment epsilon-greedily and makes n-step transitions of it.

    Parameters
    ----------
    spec : EnvironmentSpec
        What to play.
    network : QFunction
        What to play by; parameters loaded into it count from the next step on.
    randomness : ActorRandomness
        Episode seeds and exploration.
    rate : float
        Probability of a random action.
    n_step, gamma, batch :
        Rewards in one return, discount of one step, transitions in one batch.

    Attributes
    ----------
    finished : list of (float, int)
        Return and length of each episode that has ended; the caller takes them out.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        network: QFunction,
        randomness: ActorRandomness,
        rate: float,
        n_step: int,
        gamma: float,
        batch: int,
    ) -> None:
        self._spec = spec
        self._network = network
        self._randomness = randomness
        self._rate = rate
        self._environment = make_environment(spec.name)
        self._accumulator = NStepAccumulator(n_step, gamma)
        self._batch_size = batch
        # The end of an episode completes up to n_step transitions at once.
        self._batch = TransitionBatch(spec.record_dtype(), batch + n_step)
        self._observation: Any = None
        self._return = 0.0
        self._length = 0
        self.finished: list[tuple[float, int]] = []
        self._reset()

    @property
    def ready(self) -> bool:
        """Whether a batch is full."""
        return len(self._batch) >= self._batch_size

    @property
    def waiting(self) -> int:
        """Transitions that have not been taken."""
        return len(self._batch)

    def step(self) -> None:
        """Make one environment step."""
        action = self._choose()
        outcome = self._environment.step(action + self._spec.first_action)
        following, reward, terminated, truncated, _ = outcome
        self._return += float(reward)
        self._length += 1
        for transition in self._accumulator.step(
            self._observation, action, float(reward), following, terminated, truncated
        ):
            self._batch.append(transition)
        self._observation = following
        if terminated or truncated:
            self.finished.append((self._return, self._length))
            self._reset()

    def cut(self) -> None:
        """Complete the transitions that are under way: no further step will be made."""
        for transition in self._accumulator.cut(self._observation):
            self._batch.append(transition)

    def take(self) -> tuple[NDArray[np.void], NDArray[np.float64]]:
        """Return the transitions made since the last call, and their initial priorities."""
        transitions = self._batch.take()
        return transitions, initial_priorities(self._network, transitions)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _choose(self) -> int:
        if self._randomness.explores(self._rate):
            return self._randomness.action(self._spec.actions)
        observation = np.asarray(self._observation)[np.newaxis]
        return int(self._network.q_values(observation)[0].argmax())

    def _reset(self) -> None:
        seed = self._randomness.episode_seed()
        self._observation, _ = self._environment.reset(seed=seed)
        self._return, self._length = 0.0, 0


class Actor:
    """The loop of one actor.

    Parameters
    ----------
    options : ApexOptions
        The run's options.
    spec : EnvironmentSpec
        What to play.
    number : int
        This actor's number, 0 .. actors - 1.
    network : QFunction
        A network of its own, whose parameters the learner sends.
    client : ActorClient or ShardedActor
        Where transitions go.
    sink : ParameterSink
        Where parameters come from.
    flag : StopFlag
        Set by a signal.
    quota : int
        Environment steps to make.
    """

    def __init__(
        self,
        options: ApexOptions,
        spec: EnvironmentSpec,
        number: int,
        network: QFunction,
        client: ActorClient | ShardedActor,
        sink: ParameterSink,
        flag: StopFlag,
        quota: int,
    ) -> None:
        self._network = network
        self._client = client
        self._sink = sink
        self._flag = flag
        self._quota = quota
        self._timeout = options.timeout
        self._player = Player(
            spec,
            network,
            ActorRandomness(options.seed, number, client.epoch),
            epsilon(number, options.actors),
            options.n_step,
            options.gamma,
            options.actor_batch,
        )

    def run(self) -> int:
        """Play until the quota is made, a signal comes or the replay rank ends.

        Returns
        -------
        int
            Environment steps made.
        """
        made = 0
        try:
            self._await_parameters()
            while made < self._quota and not self._stopping():
                self._player.step()
                made += 1
                if self._player.ready:
                    self._send()
            self._player.cut()
            if self._player.waiting and not self._client.stopping:
                self._send()
        except ReplayStopped:
            pass  # what is left cannot be taken any more
        finally:
            self._player.close()
        return made

    def _stopping(self) -> bool:
        return bool(self._flag) or bool(self._client.stopping)

    def _send(self) -> None:
        """Give a batch to the replay rank and take new parameters if there are some."""
        self._client.add(*self._player.take())
        for episode in self._player.finished:
            self._sink.report(*episode)
        self._player.finished.clear()
        parameters = self._sink.poll()
        if parameters is not None:
            self._network.load_parameters(parameters)

    def _await_parameters(self) -> None:
        """Wait for the learner's first parameters, so that all actors begin with its network."""
        deadline = time.monotonic() + self._timeout
        while self._sink.version == 0 and not self._stopping():
            parameters = self._sink.poll()
            if parameters is not None:
                self._network.load_parameters(parameters)
                return
            if time.monotonic() > deadline:
                raise ReplayTimeoutError(
                    f"the learner has sent no parameters within {self._timeout:g} s"
                )
            self._client.poll()
            time.sleep(POLL_SECONDS)
