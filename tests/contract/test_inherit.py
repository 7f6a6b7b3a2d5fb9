"""What a copy copies and what it leaves, in an island; for every agent."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from tiny import hyper_of, kinds, make_agent, member, same, walk

from shoal.islands.vector import VectorIsland
from shoal.learners.independent import independent
from shoal.types import Decision

N = 4
UID = np.array([10, 11, 12, 13])
SETTINGS = {"ppo": {"normalise_rewards": True}}  # so that a member has something of its own


class Case:
    """An island after its first generation, again and again; its programs are compiled once."""

    def __init__(self, name: str, actions: str):
        agent = make_agent(name, actions, **SETTINGS.get(name, {}))
        self.hyper = {k: np.asarray(v) for k, v in hyper_of(name, agent, N)._asdict().items()}
        self.island = VectorIsland(walk(actions), independent(agent), UID, seed=0, episodes=3)

    def begin(self, **changed: Any) -> VectorIsland:
        self.island.begin(self.hyper | {k: np.float32(v) for k, v in changed.items()})
        self.island.train(0, iterations=2, chunk=2)
        return self.island

    def adopt(self, *parents: int, **changed: Any) -> None:
        self.island.adopt(Decision(np.array(parents), self.hyper | {k: np.float32(v) for k, v in changed.items()}))


@pytest.fixture(scope="module", params=dict(kinds()).items(), ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(*request.param)


def learned(island: VectorIsland) -> Any:
    return jax.tree.map(np.asarray, island.population.members.learned)


def test_a_child_has_what_its_parent_learned_and_nothing_else_of_it(case):
    island = case.begin()
    members, world, cards = jax.tree.map(
        np.asarray, (island.population.members, island.arena.world.obs, island.cards())
    )
    state = jax.tree.map(np.asarray, island.arena.world.state)
    total = np.asarray(island.arena.world.progress.total)
    assert not same(member(members, 0), member(members, 1))
    case.adopt(0, 0, 2, 2)
    after = learned(island)
    for child, parent in enumerate((0, 0, 2, 2)):
        assert same(member(after, child), member(members.learned, parent))
    assert same(island.population.members.own, members.own) and same(island.population.members.memory, members.memory)
    assert same((island.arena.world.obs, island.arena.world.state), (world, state))
    assert same(island.arena.world.progress.total, total)
    assert same((island.cards().uid, island.cards().steps), (UID, cards.steps))


def test_a_chain_moves_old_states(case):
    """0 -> 1 -> 2 -> 3 -> 0 in one decision: everyone gets what its parent was before."""
    island = case.begin()
    before = learned(island)
    case.adopt(3, 0, 1, 2)
    for child, parent in enumerate((3, 0, 1, 2)):
        assert same(member(learned(island), child), member(before, parent))


def test_nobody_copies(case):
    island = case.begin()
    before = jax.tree.map(np.asarray, island.state())
    case.adopt(0, 1, 2, 3)
    assert same(island.state(), before)


def test_children_of_one_parent_go_their_own_ways(case):
    """Equal weights and equal hyperparameters, but keys and environments of their own."""
    island = case.begin()
    case.adopt(0, 0, 0, 3)
    island.train(1, iterations=1, chunk=1)
    after = learned(island)
    assert not any(same(member(after, i), member(after, j)) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_a_child_learns_with_its_own_rate(case):
    """The rate that comes with a decision is used at once: with a rate of zero the copied weights stay as they are."""
    island = case.begin()
    parent = member(learned(island), 0)
    rates = {name: [1e-3, 0, 1e-3, 1e-3] for name in case.hyper if "learning_rate" in name}
    assert rates
    case.adopt(0, 0, 2, 3, **rates)
    np.testing.assert_array_equal(island.cards().hyper[next(iter(rates))], np.float32([1e-3, 0, 1e-3, 1e-3]))
    island.train(1, iterations=1, chunk=1)
    assert same(member(learned(island).params, 1), parent.params)
    assert not same(member(learned(island).params, 0), parent.params)


def test_evaluations_are_the_same_for_all_fresh_in_each_generation_and_leave_members_alone(case):
    island = case.begin()
    case.adopt(0, 0, 0, 0)
    before = jax.tree.map(np.asarray, island.state()["population"])
    fitness = []
    for generation in (1, 2, 1):
        island.evaluate(generation)
        fitness.append(island.cards().fitness)
        assert len(set(fitness[-1])) == 1 and np.isfinite(fitness[-1]).all()
    assert fitness[0][0] == fitness[2][0] != fitness[1][0]
    assert same(island.state()["population"], before)


def test_a_diverged_member_has_no_fitness(case):
    """Whatever of it is not finite, though its returns may be."""
    island = case.begin()
    sound = island.population
    leaves, structure = jax.tree.flatten(sound.members.learned)
    for i, leaf in enumerate(leaves):
        if leaf.dtype == np.float32:
            wrong = [*leaves[:i], leaf.at[2].set(np.inf), *leaves[i + 1 :]]
            members = sound.members._replace(learned=jax.tree.unflatten(structure, wrong))
            island.population = sound._replace(members=members)
            island.evaluate(0)
            np.testing.assert_array_equal(np.isnan(island.cards().fitness), [False, False, True, False])


def test_a_snapshot_is_what_a_child_would_get(case):
    island = case.begin()
    snapshot = island.snapshot(2)
    case.adopt(2, 1, 2, 3)
    assert same(snapshot, member(learned(island), 0))
