"""A whole run: which rank does what, from the first check to the last line."""

from __future__ import annotations

import signal
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ..errors import CheckpointError, SumTreeError
from . import report
from .agreement import agree
from .curve import save_curve
from .environments import EnvironmentSpec, describe
from .errors import MissingExtraError, require, require_mpi
from .files import prepare_folder
from .learner import DoubleQLearner
from .network import NetworkSpec, QFunction, make_network
from .options import (
    CHECKPOINT_INTERVAL,
    CURVE_FILE,
    FULL_EVERY,
    KEEP,
    METRICS_INTERVAL,
    POLICY_FILE,
    ApexOptions,
)
from .policy import PolicyMetadata, mean_evaluation_return, save_policy
from .progress import Progress

if TYPE_CHECKING:
    from mpi4py import MPI

    from ..replay import ReplayConfig
    from ..replay.signals import StopFlag
    from .training import BestPolicy, Training

PROGRESS_SECONDS = 2.0

BARRIER_POLL_SECONDS = 0.005
# Those of `replay.signals`, which cannot be imported before MPI has started.
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
#: Seconds that the learner has, at the end, for its last step and its last state.
GRACE = 30.0


def run(options: ApexOptions) -> float | None:
    """Train an Ape-X DQN agent; every rank of the job calls this.

    The first ranks, as many as there are shards, are replay ranks; then comes the learner, and the
    others are actors.

    Returns
    -------
    float or None
        In the learner, the mean greedy return over the evaluation seeds; in others None.

    Raises
    ------
    AgreedError
        In every rank, if one of them cannot do what the options ask for.
    SumTreeError, OSError
        In one rank, if something fails later; the job is to be aborted then.
    MissingExtraError
        If mpi4py is not installed, or finds no MPI.
    """
    # MPI takes signals for itself while it starts: they wait until the flag is there.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        require_mpi()
    except MissingExtraError:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        raise
    from mpi4py import MPI

    from ..replay import install_signal_flag

    comm = MPI.COMM_WORLD
    with install_signal_flag() as flag:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        spec = _agreed_spec(options, comm)
        with _Channels(comm) as channels, _one_core():
            if channels.rank < options.shards:
                _serve(options, spec, channels)
                return None
            done = _hear_of_replay_rank(channels)
            network = make_network(options.network, _network_spec(options, spec))
            if channels.rank == options.shards:
                return _learn(options, spec, network, channels, flag, done)
            _act(options, spec, network, channels, flag, done)
            return None


def _agreed_spec(options: ApexOptions, comm: MPI.Intracomm) -> EnvironmentSpec:
    """Return what is played, once every rank has found that it can do its part."""
    spec: EnvironmentSpec | None = None
    problem: Exception | None = None
    try:
        spec = _prepare(options, comm)
    except (SumTreeError, OSError) as error:
        problem = error
    agree(comm, problem)
    assert spec is not None  # agree() raised otherwise
    return spec


def refuse(error: SumTreeError) -> NoReturn:
    """Raise this error as the `AgreedError` of all ranks, each of which calls this.

    Raises
    ------
    AgreedError
        Always, but for
    MissingExtraError
        if mpi4py is not installed, or finds no MPI.
    """
    require_mpi()
    from mpi4py import MPI

    agree(MPI.COMM_WORLD, error)
    raise error


def _one_core() -> AbstractContextManager[object]:
    """Keep NumPy's matrix products to one thread: the ranks of a job share the cores."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(limits=1, user_api="blas")
    return limits


class _Channels:
    """Duplicates of a communicator, one for the replay messages and one for the parameters."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.rank = comm.Get_rank()
        self.replay = comm.Dup()
        self.parameters = comm.Dup()

    def __enter__(self) -> _Channels:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Freeing is collective: after an error the others will not come.
        if kind is None:
            self.replay.Free()
            self.parameters.Free()


def _prepare(options: ApexOptions, comm: MPI.Intracomm) -> EnvironmentSpec:
    """Find out all that can be wrong before a rank begins to wait for another."""
    from ..replay import check_world

    options.check()
    check_world(comm, options.actors + options.shards + 1)
    for module in ("matplotlib", "threadpoolctl", "h5py"):
        require(module)
    spec = describe(options.env)
    make_network(options.network, _network_spec(options, spec))
    _replay_config(options, spec)
    if comm.Get_rank() == options.shards:
        prepare_folder("--output-dir", options.output_dir)
    if comm.Get_rank() == 0 and options.checkpoint_dir is not None:
        prepare_folder("--checkpoint-dir", options.checkpoint_dir)
    return spec


def _network_spec(options: ApexOptions, spec: EnvironmentSpec) -> NetworkSpec:
    return NetworkSpec(
        observation_shape=spec.observation_shape,
        observation_dtype=spec.observation_dtype,
        actions=spec.actions,
        hidden=options.hidden,
        learning_rate=options.learning_rate,
        seed=options.seed,
    )


def _replay_config(options: ApexOptions, spec: EnvironmentSpec) -> ReplayConfig:
    from ..replay import ReplayConfig

    return ReplayConfig(
        capacity=options.capacity,
        shards=options.shards,
        dtype=spec.record_dtype(),
        alpha=options.alpha,
        beta=options.beta,
        seed=options.seed,
        backend=options.backend,
        checkpoint_dir=options.checkpoint_dir,
        checkpoint_interval=options.checkpoint_interval or CHECKPOINT_INTERVAL,
        keep=options.keep or KEEP,
        full_every=options.full_every or FULL_EVERY,
        metrics=options.metrics,
        metrics_interval=options.metrics_interval or METRICS_INTERVAL,
        status_interval=options.status_interval,
        resume=options.resume or "auto",
        min_size_to_sample=options.learning_starts,
        samples_per_insert=options.samples_per_insert,
        grace=GRACE,
    )


def _serve(options: ApexOptions, spec: EnvironmentSpec, channels: _Channels) -> None:
    """Be the replay rank: restore what there is, tell how far it had come, serve until the end."""
    from ..replay import ReplayRank

    problem: Exception | None = None
    try:
        replay = ReplayRank(channels.replay, _replay_config(options, spec))
    except (SumTreeError, OSError) as error:
        problem = error
    agree(channels.parameters, problem)
    assert replay.buffer is not None  # the configuration names the record dtype
    channels.parameters.Allreduce(
        np.array(replay.buffer.inserted, np.int64), np.zeros((), np.int64)
    )
    replay.run()
    _wait_for_all(channels.parameters)


def _hear_of_replay_rank(channels: _Channels) -> int:
    """Return the environment steps made before this run, once the replay ranks have started."""
    agree(channels.parameters, None)
    done = np.zeros((), np.int64)
    channels.parameters.Allreduce(np.zeros((), np.int64), done)
    return int(done)


def _act(
    options: ApexOptions,
    spec: EnvironmentSpec,
    network: QFunction,
    channels: _Channels,
    flag: StopFlag,
    done: int,
) -> None:
    from ..replay import ActorClient, ShardedActor
    from .actor import Actor
    from .parameters import ParameterSink

    sink = ParameterSink(channels.parameters, options.shards, network.parameters())
    dtype, timeout = spec.record_dtype(), options.timeout
    client: ActorClient | ShardedActor
    if options.shards == 1:
        client = ActorClient(channels.replay, dtype, timeout=timeout)
    else:
        client = ShardedActor(channels.replay, dtype, options.shards, timeout)
    with client:
        number = channels.rank - options.shards - 1
        quota = shares(max(options.steps - done, 0), options.actors)[number]
        Actor(options, spec, number, network, client, sink, flag, quota).run()
    sink.close(options.timeout, interrupted=bool(flag))
    _wait_for_all(channels.parameters)


def _learn(
    options: ApexOptions,
    spec: EnvironmentSpec,
    network: QFunction,
    channels: _Channels,
    flag: StopFlag,
    done: int,
) -> float:
    from ..replay import LearnerClient, ShardedLearner
    from .parameters import ParameterSource
    from .training import Training

    target = make_network(options.network, _network_spec(options, spec))
    learner = DoubleQLearner(network, target, options.target_interval)
    progress = Progress(PROGRESS_SECONDS, _say)
    dtype, timeout = spec.record_dtype(), options.timeout
    client: LearnerClient | ShardedLearner
    if options.shards == 1:
        client = LearnerClient(channels.replay, dtype, timeout=timeout)
    else:
        client = ShardedLearner(channels.replay, dtype, options.shards, timeout)
    training = Training(options, spec, learner, client, progress, flag, done)
    _say(report.opening(options, training.resumed, done))
    source = ParameterSource(
        channels.parameters,
        range(options.shards + 1, options.shards + 1 + options.actors),
        network.parameters(),
    )
    training.run(source)
    training.validate_last()
    if not client.stopping:
        client.stop()
    lost: CheckpointError | None = None
    try:
        client.close(training.state())
    except CheckpointError as error:
        lost = error
    progress.add_episodes(source.close(options.timeout))
    result = _finish(options, spec, network, training)
    _say(report.summary(options, training, progress, flag.name, saved=lost is None))
    _wait_for_all(channels.parameters)
    _say(report.last_line(result))
    if lost is not None:
        raise CheckpointError(f"the last checkpoint was not written: {lost}")
    return result


def _finish(
    options: ApexOptions, spec: EnvironmentSpec, network: QFunction, training: Training
) -> float:
    """Save the best policy and the curve; return the best policy's mean evaluation return."""
    best = training.best
    network.load_parameters(best.parameters)
    save_policy(options.output_dir / POLICY_FILE, best.parameters, _metadata(options, spec, best))
    save_curve(
        options.output_dir / CURVE_FILE,
        training.curve,
        f"Ape-X DQN on {options.env}, {options.actors} actors, seed {options.seed}",
    )
    return mean_evaluation_return(network, spec)


def _metadata(options: ApexOptions, spec: EnvironmentSpec, best: BestPolicy) -> PolicyMetadata:
    return PolicyMetadata(
        environment=options.env,
        network=options.network,
        hidden=options.hidden,
        observation_shape=spec.observation_shape,
        observation_dtype=spec.observation_dtype.str,
        actions=spec.actions,
        seed=options.seed,
        environment_steps=best.environment_steps,
        learner_steps=best.learner_steps,
        validation_return=best.validation_return,
    )


def _wait_for_all(comm: MPI.Intracomm) -> None:
    """Return once every rank has called this; sleeps meanwhile, where a barrier would spin."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(BARRIER_POLL_SECONDS)


def _say(text: str) -> None:
    print(text, flush=True)


def shares(total: int, parts: int) -> list[int]:
    """Return ``parts`` whole numbers that sum to ``total`` and differ by at most 1."""
    return [total // parts + (number < total % parts) for number in range(parts)]
