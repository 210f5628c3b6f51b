"""Routing over shards is the top of one big tree, bit for bit; streams are those of NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator, Philox, SeedSequence
from numpy.testing import assert_array_equal

from libsumtree import PriorityTree, reference
from libsumtree.errors import IdError, IdsExhaustedError, ProtocolError
from libsumtree.ids import NUMBER_BITS
from libsumtree.replay.routing import (
    Handles,
    Routing,
    find_rests,
    fit_targets,
    fractions_of,
    of_former_shards,
    targets_of,
    weights_of,
)
from libsumtree.replay.streams import Stream, position_of, seed_of, seed_text

MASS = st.one_of(
    st.just(0.0),
    st.integers(0, 5).map(float),
    st.floats(0.0, 1e6),
    st.sampled_from([5e-324, 2.0**-60, 0.1, 1.0, 2.0**53, 2.0**960]),
)
FRACTIONS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20)


def blocks(masses: list[float], shards: int) -> list[reference.SumTree]:
    """Give one tree for each of as many equal blocks."""
    size = len(masses) // shards
    trees = [reference.SumTree(size) for _ in range(shards)]
    for shard, tree in enumerate(trees):
        tree[:] = masses[shard * size : (shard + 1) * size]
    return trees


def find(trees: list[reference.SumTree], targets: np.ndarray) -> list[int]:
    """Give the leaf of the whole that each target ends at."""
    routed = Routing([tree.total for tree in trees]).route(targets)
    return [
        int(shard) * trees[0].capacity + int(find_rests(trees[shard], np.array([rest]))[0])
        for shard, rest in zip(routed.shards, routed.rests, strict=True)
    ]


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.lists(MASS, min_size=32, max_size=32),
    FRACTIONS,
    st.integers(0, 31),
)
def test_shards_are_the_blocks_of_one_tree(
    shards: int, masses: list[float], fractions: list[float], leaf: int
) -> None:
    """Any targets, and those beside the edge between two leaves, which may be two shards."""
    tree = reference.SumTree(32)
    tree[:] = masses
    trees = blocks(masses, shards)
    routing = Routing([part.total for part in trees])
    assert routing.total == tree.total
    if tree.total == 0.0:
        return
    edge = tree.sum(0, leaf)
    near = [math.nextafter(edge, 0.0), edge, math.nextafter(edge, math.inf)]
    targets = np.array([f * tree.total for f in fractions] + near)
    targets = np.minimum(targets, np.nextafter(tree.total, 0.0))
    found = find(trees, targets)
    assert found == tree.find(targets).tolist()
    assert all(masses[i] > 0.0 for i in found)


@given(st.integers(1, 9), st.data())
def test_no_target_falls_to_an_empty_shard(shards: int, data: st.DataObject) -> None:
    totals = data.draw(st.lists(MASS, min_size=shards, max_size=shards))
    routing = Routing(totals)
    if routing.total == 0.0:
        return
    fractions = np.array(data.draw(FRACTIONS))
    for targets in (targets_of(fractions, routing.total), fractions * routing.total):
        routed = routing.route(targets)
        assert (np.array(totals)[routed.shards] > 0.0).all()
        assert (routed.rests >= 0.0).all()


def test_all_mass_in_one_shard() -> None:
    routed = Routing([0.0, 0.0, 7.0, 0.0]).route(np.array([0.0, 3.5, 7.0]))
    assert routed.shards.tolist() == [2, 2, 2]
    assert routed.rests.tolist() == [0.0, 3.5, 7.0]


def test_a_target_on_the_edge_belongs_to_the_next_shard() -> None:
    routed = Routing([2.0, 3.0]).route(np.array([math.nextafter(2.0, 0.0), 2.0]))
    assert routed.shards.tolist() == [0, 1]
    assert routed.rests[1] == 0.0


def test_a_rest_that_rounding_carries_beyond_its_shard_descends_on() -> None:
    """1 and 1.5 ulp make 1 + 2 ulp, of which the first shard takes 1: 2 ulp are left."""
    ulp = 2.0**-53
    masses = [1.0, 0.0, 0.0, 0.0, 0.0, 0.5 * ulp, 0.9 * ulp, 0.1 * ulp]
    tree = PriorityTree(8)
    tree[:] = masses
    assert tree.total == 1.0 + 2 * ulp
    routed = Routing([1.0, 1.5 * ulp]).route(np.array([tree.total]))
    assert routed.rests.tolist() == [2 * ulp]
    assert find(blocks(masses, 2), np.array([tree.total])) == [tree.find(tree.total)] == [7]


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 8, 13])
def test_beyond_the_total_the_rule_holds_for_any_capacity(capacity: int) -> None:
    tree = PriorityTree(capacity)
    tree[:] = np.arange(capacity) % 3 + 0.5
    tree[capacity - 1] = 0.0 if capacity > 1 else 1.0
    found = find_rests(tree, np.array([tree.total + 1.0, 0.25]))
    assert found.tolist() == [max(0, capacity - 2), 0]


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("n", [0, 1, 7, 512])
def test_targets_are_those_of_a_tree(n: int, stratified: bool) -> None:
    tree = PriorityTree(64, seed=3)
    tree[:] = np.arange(64.0)
    uniforms = Stream(SeedSequence(3)).random(n)
    targets = targets_of(fractions_of(uniforms, stratified), tree.total)
    found = tree.find(targets)
    drawn = tree.sample(n, 0.7, stratified)
    assert_array_equal(found, drawn.indices)
    weights = weights_of(drawn.masses, tree.min, 0.7)
    assert weights.tobytes() == drawn.weights.tobytes()


def test_weights_without_an_exponent_are_one() -> None:
    assert weights_of(np.array([5e-324, 2.0**960]), 5e-324, 0.0).tolist() == [1.0, 1.0]
    assert weights_of(np.zeros(0), math.inf, 0.4).shape == (0,)


@given(st.floats(5e-324, 2.0**960), st.floats(5e-324, 2.0**960), FRACTIONS)
def test_targets_stretch_with_the_total(told: float, total: float, fractions: list[float]) -> None:
    rests = np.array(fractions) * told
    fitted = fit_targets(rests, told, total)
    assert (fitted >= 0.0).all()
    assert (fitted <= total).all()
    if told == total:
        assert_array_equal(fitted, rests)
    else:
        assert (fitted < total).all()


@given(st.integers(1, 300), st.data())
def test_handles_name_shard_and_id(shards: int, data: st.DataObject) -> None:
    handles = Handles(shards)
    most = (1 << 63 - (shards - 1).bit_length()) - 1
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, shards - 1), st.integers(0, most)), max_size=9)
    )
    shard, ids = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    joined = handles.join(shard, ids)
    assert (joined >= 0).all()
    assert len(set(joined.tolist())) == len(set(pairs))
    for found, expected in zip(handles.split(joined), (shard, ids), strict=True):
        assert_array_equal(found, expected)


def test_handles_of_no_shard_are_refused() -> None:
    with pytest.raises(IdError, match=r"ids\[1\] is -1"):
        Handles(2).split(np.array([0, -1]))


def test_handles_of_more_shards_than_there_are_go_to_shard_0() -> None:
    shards, ids = Handles(3).split(np.array([2 << 61 | 5, 3 << 61 | 7]))
    assert_array_equal(shards, [2, 0])
    assert_array_equal(ids, [5, 3 << 61 | 7])


@pytest.mark.parametrize("before", [2, 3, 4, 8])
@pytest.mark.parametrize("after", [1, 2, 3, 5, 8])
def test_handles_of_before_become_the_ids_that_they_held(before: int, after: int) -> None:
    """Whatever shard they are sent to now; what is of no earlier epoch stays what it is."""
    held, epoch = np.array([0, 5 << NUMBER_BITS | 3]), 7
    for shard in range(before):
        handles = Handles(before).join(np.full(2, shard), held)
        shards, ids = Handles(after).split(handles)
        assert (shards < after).all()
        assert_array_equal(of_former_shards(ids, max(before, after), epoch), held)
    now = np.array([7 << NUMBER_BITS, 9 << NUMBER_BITS | 1, 1 << 62 | 7 << NUMBER_BITS])
    assert_array_equal(of_former_shards(now, max(before, after), epoch), now)


def test_epochs_leave_room_for_the_shard() -> None:
    Handles(1).check_epoch((1 << 23) - 1)
    Handles(4).check_epoch((1 << 21) - 1)
    with pytest.raises(IdsExhaustedError, match=r"epochs up to 2097151"):
        Handles(4).check_epoch(1 << 21)


@pytest.mark.parametrize("learner", [None, 0, 3])
def test_a_stream_goes_on_where_it_was(learner: int | None) -> None:
    key = () if learner is None else (learner,)
    oracle = Generator(Philox(SeedSequence(11, spawn_key=key)))
    number = -1 if learner is None else learner
    stream = Stream(SeedSequence(11), number)
    for n in (1, 2, 5, 64, 3):
        assert_array_equal(stream.random(n), oracle.random(n))
        assert position_of(oracle.bit_generator.state) == stream.position
        stream = Stream(SeedSequence(11), number, stream.position)
    tree = PriorityTree(1, seed=stream.seed)
    tree.rng_state = stream.state
    tree[0] = 1.0
    tree.sample(3)
    assert position_of(tree.rng_state) == stream.position + 3


@pytest.mark.parametrize("entropy", [0, 2**127 + 1, [1, 2, 3], None])
def test_seeds_as_text(entropy: object) -> None:
    seed = SeedSequence(entropy)
    again = seed_of(seed_text(seed))
    assert_array_equal(again.generate_state(8), seed.generate_state(8))
    for text in ("", "3", "[]", "[[], 0, 4]", '["x", 0, 4]', "[[-1], 0, 4]"):
        with pytest.raises(ProtocolError, match="not a seed"):
            seed_of(text)
