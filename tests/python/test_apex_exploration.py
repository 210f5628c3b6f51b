from __future__ import annotations

import pytest

from libsumtree.apex.exploration import (
    ActorRandomness,
    epsilon,
    evaluation_seeds,
    validation_seeds,
)


def test_the_ladder_of_four_actors():
    rates = [epsilon(i, 4) for i in range(4)]
    assert rates == pytest.approx([0.4, 0.0471556, 0.00555913, 0.00065536], rel=1e-5)


def test_a_single_actor_has_the_base_rate():
    assert epsilon(0, 1) == pytest.approx(0.4)


def test_two_actors_have_the_ends_of_the_ladder():
    assert [epsilon(0, 2), epsilon(1, 2)] == pytest.approx([0.4, 0.4**8])


@pytest.mark.parametrize(("actor", "actors"), [(4, 4), (-1, 4), (0, 0)])
def test_an_actor_that_is_none(actor, actors):
    with pytest.raises(ValueError, match=f"actor {actor} is not one of"):
        epsilon(actor, actors)


def draws(seed, actor, epoch):
    randomness = ActorRandomness(seed, actor, epoch)
    return (
        [randomness.episode_seed() for _ in range(50)],
        [randomness.explores(0.5) for _ in range(50)],
        [randomness.action(3) for _ in range(50)],
    )


def test_randomness_is_a_function_of_seed_actor_and_epoch():
    assert draws(1, 2, 3) == draws(1, 2, 3)
    different = [draws(1, 2, 3), draws(2, 2, 3), draws(1, 3, 3), draws(1, 2, 4)]
    for kind in range(3):
        assert len({tuple(draw[kind]) for draw in different}) == 4


def test_exploration_does_not_shift_the_episodes():
    quiet, busy = ActorRandomness(0, 0, 0), ActorRandomness(0, 0, 0)
    for _ in range(10):
        busy.action(2)
    assert quiet.episode_seed() == busy.episode_seed()


def test_actions_and_rates():
    randomness = ActorRandomness(0, 0, 0)
    assert {randomness.action(3) for _ in range(100)} == {0, 1, 2}
    assert not any(randomness.explores(0.0) for _ in range(100))
    assert all(randomness.explores(1.0) for _ in range(100))


def test_training_evaluation_and_validation_seeds_never_meet():
    training = draws(0, 0, 0)[0]
    assert max(training) < 2**30 <= min(evaluation_seeds())
    assert len(evaluation_seeds()) == 20
    assert max(evaluation_seeds(2**20)) < min(validation_seeds())
    assert list(validation_seeds(2, start=3)) == list(validation_seeds(5))[3:]
    assert max(validation_seeds(2**20)) < 2**31
