"""The learner's loop: sample, learn, give priorities back, publish, validate, checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError, CheckpointMismatchError, ReplayStopped, ReplayTimeoutError
from .curve import LearningCurve
from .environments import EnvironmentSpec, GreedyEpisodes
from .errors import EpisodesStoppedError
from .exploration import validation_seeds
from .learner import DoubleQLearner, part
from .progress import Counters, Progress

if TYPE_CHECKING:
    from ..replay import LearnerClient, ReplaySample, ShardedLearner
    from ..replay.signals import StopFlag
    from .network import QFunction
    from .options import ApexOptions
    from .parameters import ParameterSource

Array = NDArray[Any]

#: Seconds for which the learner waits for a sample before it looks at the actors again.
_PATIENCE = 0.005
#: Seconds that a sample may take once all environment steps are made.
_LAST_SAMPLE_SECONDS = 1.0


class BestPolicy:
    """The parameters with the highest validation return so far; of equals, the latest.

    Attributes
    ----------
    validation_return : float
        Its mean return; NaN before the first validation.
    environment_steps, learner_steps : int
        When it was validated.
    parameters : dict of str to numpy.ndarray
        What `QFunction.parameters` returned then.
    """

    def __init__(self, parameters: dict[str, Array]) -> None:
        self.parameters = parameters
        self.validation_return = float("nan")
        self.environment_steps = 0
        self.learner_steps = 0

    def offer(
        self, validation_return: float, network: QFunction, environment_steps: int, steps: int
    ) -> None:
        """Keep these parameters unless the ones held are better."""
        if not validation_return < self.validation_return:
            self.parameters = network.parameters()
            self.validation_return = validation_return
            self.environment_steps = environment_steps
            self.learner_steps = steps

    def state(self) -> dict[str, Array]:
        """Return everything as flat arrays."""
        numbers = (self.validation_return, self.environment_steps, self.learner_steps)
        state = {f"best/{name}": array for name, array in self.parameters.items()}
        return state | {"best_numbers": np.array(numbers, np.float64)}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Take over what `state` returned."""
        numbers = state["best_numbers"].tolist()
        self.parameters = part(state, "best/")
        self.validation_return = numbers[0]
        self.environment_steps, self.learner_steps = int(numbers[1]), int(numbers[2])


class Training:
    """The loop of the learner.

    Parameters
    ----------
    options : ApexOptions
        The run's options.
    spec : EnvironmentSpec
        What is played.
    learner : DoubleQLearner
        The arithmetic.
    client : LearnerClient or ShardedLearner
        The replay rank. If it has restored a learner's state, that is taken over.
    progress : Progress
        What is said on screen.
    flag : StopFlag
        Set by a signal.
    done : int
        Environment steps made before this run.

    Attributes
    ----------
    resumed : bool
        Whether the state of a checkpoint was taken over.

    Raises
    ------
    CheckpointMismatchError
        If the restored state does not fit this network.
    """

    def __init__(
        self,
        options: ApexOptions,
        spec: EnvironmentSpec,
        learner: DoubleQLearner,
        client: LearnerClient | ShardedLearner,
        progress: Progress,
        flag: StopFlag,
        done: int,
    ) -> None:
        self._options = options
        self._client = client
        self._progress = progress
        self._flag = flag
        self._done = done
        self._seeds = validation_seeds()
        self._episodes = GreedyEpisodes(spec, len(self._seeds))
        self.learner = learner
        self.curve = LearningCurve()
        self.best = BestPolicy(learner.online.parameters())
        self.resumed = client.state is not None
        self._source: ParameterSource | None = None
        self._validated = 0
        self._drawn = 0
        self._lags: list[int] = []
        if client.state is not None:
            self._load_state(client.state)

    @property
    def validation_episodes(self) -> int:
        """Number of episodes in one validation."""
        return len(self._seeds)

    @property
    def mean_lag(self) -> float:
        """How many of this learner's updates came too late for a sample, on average."""
        return sum(self._lags) / max(1, len(self._lags))

    def run(self, source: ParameterSource) -> None:
        """Learn until all environment steps are made, a signal comes or the replay rank ends."""
        self._source = source
        options, client = self._options, self._client
        try:
            if self._done >= options.steps:
                return
            for _ in range(options.prefetch):
                client.request(options.batch_size)
            while not self._over():
                sample = self._next_sample()
                if sample is None:
                    break
                self._learn(sample)
                if client.checkpoint_due:
                    self._checkpoint()
        except ReplayStopped:
            pass  # a clean end, asked for by a signal to the replay rank

    def validate_last(self) -> None:
        """Validate once more, if the policy has changed since the last time; no run follows."""
        if self.learner.steps > self._validated or not len(self.curve):
            self._validate()
        self._episodes.close()

    def state(self) -> dict[str, Array]:
        """Return all that a later run needs to go on, as flat arrays."""
        return self.learner.state() | self.best.state() | {"curve": self.curve.array()}

    def counters(self) -> Counters:
        """Return what the replay rank has counted, as far as is known here."""
        status = self._client.status
        return Counters(max(status.inserted, self._done), status.sampled, status.stale)

    def _checkpoint(self) -> None:
        with suppress(CheckpointError):  # the replay rank has said it, and serves on
            self._client.checkpoint(self.state())

    def _load_state(self, state: Mapping[str, Array]) -> None:
        try:
            self.learner.load_state(state)
            self.best.load_state(state)
            self.curve.load(state["curve"])
            self._validated = self.best.learner_steps
        except (KeyError, ValueError) as error:
            if isinstance(error, CheckpointMismatchError):
                raise CheckpointMismatchError(f"{error}; {_remedy(state)}") from error
            raise CheckpointMismatchError(
                f"the checkpoint's learner state does not fit this agent: {error}"
            ) from error

    def _interrupted(self) -> bool:
        actors = self._source is not None and self._source.interrupted
        return bool(self._flag) or self._client.stopping or actors

    def _over(self) -> bool:
        """Whether all steps are made and all samples are drawn that they allow."""
        if self._interrupted():
            return True
        options = self._options
        if not self._all_steps_made():
            return False
        if options.samples_per_insert is None:
            return True
        allowed = options.samples_per_insert * (options.steps - options.learning_starts)
        return self._drawn + options.batch_size > allowed

    def _all_steps_made(self) -> bool:
        """Whether no actor makes any more, as far as is known here.

        Counters come with samples alone: where the last steps allow none, the actors' leave tells.
        """
        if self._source is not None and self._source.open == 0:
            return True
        return self.counters().inserted >= self._options.steps

    def _next_sample(self) -> ReplaySample | None:
        """Return a sample and ask for another; serve the actors while there is none.

        None if the run is over. A restored replay rank may grant a few samples less than all steps
        allow; so once all steps are made, the run is also over when no sample comes for a while.
        """
        begin = time.monotonic()
        while not self._over():
            self._serve()
            try:
                sample = self._client.sample(self._options.batch_size, timeout=_PATIENCE)
            except ReplayTimeoutError:
                waited = time.monotonic() - begin
                if waited > _LAST_SAMPLE_SECONDS and self._all_steps_made():
                    return None
                if waited > self._options.timeout:
                    raise ReplayTimeoutError(
                        f"the replay rank has given no sample within {self._options.timeout:g} s"
                    ) from None
                continue
            if self._options.prefetch:
                self._client.request(self._options.batch_size)
            return sample
        return None

    def _learn(self, sample: ReplaySample) -> None:
        options, learner = self._options, self.learner
        self._drawn = sample.status.sampled
        self._lags.append(sample.lag)
        update = learner.update(sample.transitions, sample.weights)
        self._client.update_priorities(sample.ids, update.priorities)
        self._progress.add_loss(update.loss)
        if learner.steps % options.publish_interval == 0 and self._source is not None:
            self._source.publish(learner.online.parameters())
        if learner.steps % options.validation_interval == 0:
            self._validate()

    def _validate(self) -> None:
        learner, progress = self.learner, self._progress
        try:
            returns = self._episodes.play(learner.online.q_values, self._seeds, self._interrupted)
        except EpisodesStoppedError:
            return
        mean = float(returns.mean())
        inserted = self.counters().inserted
        self._validated = learner.steps
        progress.validation_return = mean
        self.curve.append(inserted, progress.training_return, mean)
        self.best.offer(mean, learner.online, inserted, learner.steps)

    def _serve(self) -> None:
        """Take what the actors report, answer them, and say how it goes."""
        if self._source is not None:
            self._progress.add_episodes(self._source.poll())
        if self._client.status.size or not self._done:  # else nothing is known of the counters yet
            self._progress.tick(self.counters())


def _remedy(state: Mapping[str, Array]) -> str:
    """Name the options that would fit a state, with the widths of a built-in network's layers."""
    widths: list[int] = []
    while (bias := state.get(f"online/layer{len(widths)}.bias")) is not None and bias.ndim == 1:
        widths.append(len(bias))
    hidden = f"--hidden {','.join(map(str, widths[:-1]))}" if len(widths) > 1 else "--hidden"
    return f"give {hidden}, --network and --env as in the run that it is from, or --resume never"
