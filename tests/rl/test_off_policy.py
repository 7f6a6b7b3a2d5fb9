"""When agents with a memory act at random, when they learn, and how often."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from support.tiny import make_agent, same

from shoal.core.types import Agent, Member, Rollout

KINDS = {"td3": "continuous", "sac": "continuous", "dqn": "discrete"}
SMALL = {"layers": (4,), "batch_size": 4, "rollout_length": 1, "num_envs": 2, "buffer_size": 64, "learning_starts": 0}


class Life:
    """A member in a made-up world."""

    def __init__(self, agent: Agent):
        self.agent, self.member = agent, agent.init(jax.random.key(0), agent.hyper)
        self.rounds, self.metrics = 0, {}

    def round(self, **hyper: float) -> Member:
        """One rollout and what it is worth; the state after it."""
        values = jax.tree.map(np.float32, self.agent.hyper._replace(**hyper))
        rng, shape = np.random.default_rng(self.rounds), (self.agent.rollout_length, self.agent.num_envs)
        action = self.member.replay_buffer.steps.action
        obs, next_obs = rng.normal(size=(2, *shape, 2)).astype(np.float32)
        action, no = np.zeros((*shape, *action.shape[2:]), action.dtype), np.zeros(shape, bool)
        rollout = Rollout(obs, action, rng.normal(size=shape).astype(np.float32), next_obs, no, no, ())
        self.member, self.metrics = self.agent.update(self.member, values, rollout, jax.random.key(self.rounds))
        self.rounds += 1
        return self.member

    def counts(self, rounds: int, **hyper: float) -> list[int]:
        """Updates in each of the next rounds."""
        updates = [int(self.member.learned.updates)]
        updates += [int(self.round(**hyper).learned.updates) for _ in range(rounds)]
        return np.diff(updates).tolist()


@functools.cache
def compiled(name: str, **settings: Any) -> Agent:
    agent = make_agent(name, KINDS[name], **SMALL | settings)
    return agent._replace(init=jax.jit(agent.init), act=jax.jit(agent.act), update=jax.jit(agent.update))


def life(name: str = "dqn", **settings: Any) -> Life:
    return Life(compiled(name, **settings))


# ---------------------------------------------------------------------------------------------- warming up


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_learned_before_the_warm_up_is_over(name):
    """Weights, targets, temperature, optimisers: all as they began. Then all the updates of a round, and none before."""
    warming = life(name, learning_starts=10, rollout_length=2)
    start = warming.member
    for _ in range(2):
        end = warming.round(update_ratio=0.5)
        assert same(end.learned, start.learned) and end.own.pending_updates == 0
        assert all(np.isnan(value) for value in warming.metrics.values())  # nothing was measured
    assert end.replay_buffer.filled.tolist() == [4, 4]
    assert warming.counts(3, update_ratio=0.5) == [2, 2, 2]  # 12 steps of at least 10: from the third round on
    assert not same(warming.member.learned, start.learned)


def test_the_first_update_of_a_warm_up_that_takes_all_of_the_memory():
    """It follows the rollout with which the memory is full."""
    assert life(learning_starts=64).counts(33, update_ratio=0.5) == [0] * 31 + [1] * 2


@pytest.mark.parametrize("name", KINDS)
def test_actions_are_uniform_until_the_first_update(name):
    """Whatever the weights and hyperparameters say; afterwards they follow the policy."""
    warming = life(name, learning_starts=10, rollout_length=2)
    obs, act = np.ones((20_000, 2), np.float32), warming.agent.act
    quiet = {"td3": {"exploration_noise": 0}, "dqn": {"final_epsilon": 0, "epsilon_decay_updates": 1}}.get(name, {})
    hyper = jax.tree.map(np.float32, warming.agent.hyper._replace(**quiet))
    for rounds in range(3):
        action = np.asarray(act(warming.member.learned, hyper, obs, (), jax.random.key(rounds))[0])
        if name == "dqn":
            assert stats.chisquare(np.bincount(action, minlength=2)).pvalue > 1e-3
        else:
            assert action.shape == (20_000, 1)
            assert stats.kstest(action[:, 0], "uniform", (-1, 2)).pvalue > 1e-3
        warming.round()
    action = np.asarray(act(warming.member.learned, hyper, obs, (), jax.random.key(0))[0])
    if name == "sac":
        assert stats.kstest(action[:, 0], "uniform", (-1, 2)).pvalue < 1e-6
    else:
        np.testing.assert_array_equal(action, np.broadcast_to(action[:1], action.shape))


# ------------------------------------------------------------------------------------------ how many updates


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.25, [0, 1, 0, 1, 0, 1]),
        (0.125, [0, 0, 0, 1, 0, 0]),
        (0.75, [1, 2, 1, 2, 1, 2]),
        (0.5, [1, 1, 1, 1, 1, 1]),
        (1.0, [2, 2, 2, 2, 2, 2]),
        (0.0, [0, 0, 0, 0, 0, 0]),
    ],
)
def test_fractions_of_updates_add_up(name, ratio, expected):
    """A round has two steps. What is owed stays with the member, below one update."""
    living = life(name)
    start = living.member.learned
    assert living.counts(6, update_ratio=ratio) == expected
    assert living.member.own.pending_updates == (6 * 2 * ratio) % 1
    assert same(living.member.learned, start) == (not sum(expected))


def test_fractions_do_not_drift():
    """A ratio that no float holds exactly."""
    assert sum(life().counts(500, update_ratio=0.1)) in (99, 100)


def test_a_new_ratio_holds_from_the_next_round_on():
    living = life()
    assert living.counts(1, update_ratio=0.25) == [0]
    assert living.counts(2, update_ratio=0.75) == [2, 1]  # 0.5 + 1.5, then 1.5
    assert living.counts(2, update_ratio=0) == [0, 0]
    assert living.counts(2, update_ratio=1) == [2, 2]


@pytest.mark.parametrize(("settings", "most"), [({}, 1), ({"max_update_ratio": 3}, 3)], ids=["usual", "three"])
def test_never_more_than_the_structure_allows(settings, most):
    """Whatever the ratio, which an experiment refuses; and there is a limit that says so."""
    living = life(**settings)
    assert living.agent.limits["update_ratio"] == (0, most)
    assert living.counts(3, update_ratio=most) == [2 * most] * 3
    assert living.counts(3, update_ratio=10) == [2 * most] * 3


def test_every_update_has_a_batch_and_noise_of_its_own():
    """Two updates in one round are not one of them twice: targets of an untouched network differ."""
    frozen = {"update_ratio": 1.0, "learning_rate": 0.0}
    means = []
    for ratio in (0.5, 1.0):
        living = life()
        for _ in range(3):
            living.round(**frozen | {"update_ratio": ratio})
        means.append(float(living.metrics["value/target"]))
    assert means[0] != means[1]


# ----------------------------------------------------------------------------------------------- memory


def test_episodes_that_a_resumed_run_does_not_go_on_with_end_where_it_was_stopped():
    """No transition leads from the last step before to the first one of other episodes."""
    living = life()
    living.round(), living.round()
    living.member = living.agent.end_episodes(living.member)
    living.round()
    assert living.round().replay_buffer.steps.truncated[:4, 0].tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("capacity", "rollout", "environments", "slots"), [(64, 1, 2, 32), (65, 1, 2, 33), (7, 3, 2, 6), (1, 4, 2, 4)]
)
def test_capacity_is_rounded_up_to_whole_rollouts(capacity, rollout, environments, slots):
    agent = make_agent("dqn", **SMALL | {"buffer_size": capacity, "rollout_length": rollout, "num_envs": environments})
    memory = jax.eval_shape(agent.init, jax.random.key(0), agent.hyper).replay_buffer
    assert memory.steps.reward.shape == (slots, environments)
    assert memory.obs.shape == (slots + 1, environments, 2)
