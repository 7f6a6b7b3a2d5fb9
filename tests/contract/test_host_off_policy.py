"""Off-policy agents among host environments: they act one update behind, so that environments step while they learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.shards import gradient_trained
from support.tiny import hyper_of, make_agent, member, same

from shoal.core.population import Decision
from shoal.core.types import Agent, Member, Rollout
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.gymnasium import gymnasium_environment
from shoal.environments.host import HostEnvironment
from shoal.members.gradient_trained import GradientTrainedShard
from shoal.rl.independent import independent

N, T, B = 2, 3, 2


class HostWalk(gymnasium.Env):
    """A point that actions push. Episodes end beyond 1.5, or are cut off after 5 steps."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)

    def __init__(self, continuous: bool):
        box = gymnasium.spaces.Box(np.float32([-1]), np.float32([1]))
        self.action_space: Any = box if continuous else gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x, self.t = self.np_random.uniform(-1, 1), 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        push = float(np.sum(action)) if isinstance(self.action_space, gymnasium.spaces.Box) else action - 0.5
        self.x, self.t = self.x + 0.5 * push + 0.1 * self.np_random.normal(), self.t + 1
        return self._obs(), -abs(self.x), abs(self.x) > 1.5, self.t == 5, {}

    def _obs(self) -> Any:
        return np.float32([self.x, self.t / 5])


@pytest.fixture
def walk() -> Iterator[Callable[[bool], HostEnvironment]]:
    gymnasium.register("shoal-test/Walk-v0", HostWalk)
    yield lambda continuous: gymnasium_environment("shoal-test/Walk-v0", {"continuous": continuous})
    del gymnasium.registry["shoal-test/Walk-v0"]


# ------------------------------------------------------------------------------------------ whose weights act


class Nothing(NamedTuple):
    unused: Any = 0.0


def counter(off_policy: bool) -> Agent:
    """Its weights are the number of its updates, and so are its actions; its memory is what it did, by round."""

    def init(key: jax.Array, hyper: Nothing) -> Member:
        return Member(jnp.float32(0), (jnp.full(10, -1, jnp.float32), jnp.int32(0)), ())

    def act(learned: jax.Array, hyper: Nothing, obs: jax.Array, carry: Any, key: jax.Array) -> Any:
        return jnp.broadcast_to(learned / 100, (*obs.shape[:-1], 1)), carry, ()

    def update(member: Member, hyper: Nothing, rollout: Rollout, key: jax.Array) -> Any:
        done, i = member.replay_buffer
        who = jnp.where((rollout.action == rollout.action[0, 0, 0]).all(), rollout.action[0, 0, 0] * 100, jnp.nan)
        updates = member.learned + 1
        return Member(updates, (done.at[i].set(who), i + 1), ()), {"updates": updates}

    def act_deterministic(learned: jax.Array, obs: jax.Array, carry: Any) -> Any:
        return act(learned, Nothing(), obs, carry, jax.random.key(0))[:2]

    return Agent(init, act, act_deterministic, update, lambda shape: (), Nothing(), T, B, off_policy=off_policy)


def open_counter(environment: HostEnvironment, off_policy: bool, pauses: list[Any]) -> GradientTrainedShard:
    def pause(result: Any, done: int) -> None:
        pauses.append((done, result and np.asarray(result["updates"]).tolist()))

    shard = gradient_trained(
        environment, independent(counter(off_policy)), np.arange(N), 0, EvaluationConfig(episodes=1), pause
    )
    shard.begin({"unused": np.zeros(N, np.float32)})
    return shard


@pytest.mark.parametrize("off_policy", [True, False])
def test_which_weights_act(walk, off_policy):
    """In each interval the first two rollouts are those of the first weights; later ones are one update behind."""
    shard = open_counter(walk(True), off_policy, pauses := [])
    expected, updates = [], 0
    for generation, iterations in enumerate((4, 1, 2)):
        pauses.clear()
        metrics = shard.train(generation, iterations, chunk=1)
        behind = 1 if off_policy else 0
        expected += [updates + max(i - behind, 0) for i in range(iterations)]
        turns = [updates + i + 1 for i in range(iterations)]
        updates += iterations
        done = np.asarray(shard.population.members.replay_buffer[0])
        np.testing.assert_allclose(done, [expected + [-1] * (10 - len(expected))] * N, rtol=1e-5)
        np.testing.assert_array_equal(shard.population.members.learned, [updates] * N)
        np.testing.assert_allclose(metrics["updates"], [np.mean(turns)] * N, rtol=1e-6)
        told = [i for i, _ in pauses]
        assert told == sorted(told) and told[-1] == iterations, "progress never goes back, and ends at the end"
        assert all(result == [updates - iterations + i] * N for i, result in pauses if i)
    np.testing.assert_array_equal(shard.stats().steps, [7 * T * B] * N)
    shard.close()


# ---------------------------------------------------------------------------------------- agents of the package


def lived(environment: HostEnvironment, name: str, actions: str, seed: int = 0) -> tuple[GradientTrainedShard, Any]:
    agent = make_agent(name, actions, rollout_length=4)
    shard = gradient_trained(environment, independent(agent), np.arange(N), seed, EvaluationConfig(episodes=2))
    shard.begin({k: np.asarray(v) for k, v in hyper_of(name, agent, N)._asdict().items()})
    told = []
    for generation in range(2):
        metrics = shard.train(generation, iterations=3, chunk=1)
        shard.evaluate(generation)
        told.append((metrics, shard.stats()))
    return shard, told


@pytest.mark.slow
@pytest.mark.parametrize(("name", "actions"), [("td3", "continuous"), ("sac", "continuous"), ("dqn", "discrete")])
def test_training_among_host_environments(walk, name, actions):
    """The same seed gives the same run; memory holds what happened, in order; and all can be evaluated and copied."""
    environment = walk(actions == "continuous")
    shard, told = lived(environment, name, actions)
    again, told_again = lived(environment, name, actions)
    other, told_other = lived(environment, name, actions, seed=1)
    assert same((shard.population, told), (again.population, told_again))
    assert not same(told, told_other)
    again.close(), other.close()

    memory = jax.tree.map(np.asarray, shard.population.members.replay_buffer)
    steps, ends = memory.steps, memory.steps.terminated | memory.steps.truncated
    np.testing.assert_array_equal(memory.filled, 24)
    np.testing.assert_array_equal(memory.position, 24)
    assert np.isfinite(memory.obs).all() and ends[:, :24].any(), "no episode ended, so that an end has nothing to tell"
    rows = np.arange(N)[:, None, None], steps.number[:, :24], np.arange(ends.shape[2])
    obs, after = memory.obs[rows], memory.obs[rows[0], rows[1] + 1, rows[2]]
    follows = (after[:, :-1] == obs[:, 1:]).all(-1)
    np.testing.assert_array_equal(follows, ~(steps.truncated & ~steps.terminated)[:, :23])
    terminated, truncated, reward = (x[:, :24] for x in (steps.terminated, steps.truncated, steps.reward))
    np.testing.assert_array_equal(truncated[~terminated], after[~terminated][:, 1] == 1)
    assert (np.abs(after[~terminated][:, 0]) <= 1.5).all()
    np.testing.assert_allclose(reward[~terminated], -np.abs(after[~terminated][:, 0]), rtol=1e-5)
    np.testing.assert_array_equal(np.diff(steps.number[:, :24], axis=1), 1 + (truncated & ~terminated)[:, :23])

    before = jax.tree.map(np.asarray, shard.population.members)
    assert (before.learned.updates > 0).all()
    shard.evaluate(5)
    fitness = shard.stats().fitness
    shard.evaluate(5)
    np.testing.assert_array_equal(shard.stats().fitness, fitness)
    assert same(shard.population.members, before)
    hyper = shard.stats().hyper
    shard.apply(Decision(np.array([1, 1]), hyper), {})
    after = jax.tree.map(np.asarray, shard.population.members)
    assert same(member(after.learned, 0), member(before.learned, 1)) and same(after.replay_buffer, before.replay_buffer)
    shard.train(2, iterations=1, chunk=1)
    np.testing.assert_array_equal(shard.population.members.replay_buffer.filled, 28)
    shard.close()
