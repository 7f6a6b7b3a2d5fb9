"""TD3 against a reference in NumPy."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from support import reference
from support.compiled import compiled
from support.reference import Adam, B, Past, T, close, gradient, key_of, mlp, plain, polyak_update, shaken
from support.tiny import same

from shoal.agents.td3 import td3
from shoal.core.spec import Box, Spec
from shoal.core.types import Agent, Member

SPACE = Box((-2.0, -1.0), (2.0, 3.0))
HYPER = {"policy_learning_rate": 0.02, "critic_learning_rate": 0.05, "discount": 0.9, "tau": 0.3}
HYPER |= {"target_noise": 0.5, "noise_clip": 0.3, "policy_delay": 2}
TARGETS = ("target_policy", "target_critics")
POLICY = ("policy", "policy_optimizer", *TARGETS)  # what moves only every `policy_delay` updates


@functools.cache
def agent() -> Agent:
    return compiled(td3(Spec(reference.OBS, "float32", SPACE), **reference.SETTINGS))


def hyper(**values: float) -> Any:
    return reference.hyper_of(agent(), **HYPER | values)


def begin() -> Member:
    start = agent().init(jax.random.key(0), agent().hyper)
    names = ("policy", "critics", *TARGETS)
    learned = {name: shaken(getattr(start.learned, name), i) for i, name in enumerate(names)}
    return start._replace(learned=start.learned._replace(**learned))


class Reference:
    """Algorithm 1 of the paper."""

    def __init__(self, learned: Any):
        self.policy, self.critics = plain(learned.policy), plain(learned.critics)
        self.target_policy, self.target_critics = plain(learned.target_policy), plain(learned.target_critics)
        self.actor_adam, self.critic_adam, self.updates = Adam(), Adam(), 0
        self.met: set[str] = set()  # what the data gave occasion for

    def act(self, params: Any, obs: np.ndarray) -> np.ndarray:
        return np.tanh(mlp(params, obs))

    def value(self, critics: Any, i: int, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        return mlp(jax.tree.map(lambda x: x[i], critics), np.concatenate([obs, action], -1))[:, 0]

    def improve(self, batch: tuple, noise: np.ndarray, h: Any) -> dict[str, float]:
        obs, action, reward, next_obs, weight = batch
        h = plain(h)
        noise = h.target_noise * noise.astype(np.float64)
        clipped = np.clip(noise, -h.noise_clip, h.noise_clip)
        next_action = self.act(self.target_policy, next_obs) + clipped
        self.note(noise=(clipped != noise).any() and (clipped == noise).any(), action=(abs(next_action) > 1).any())
        next_action = np.clip(next_action, -1, 1)
        twins = [self.value(self.target_critics, i, next_obs, next_action) for i in (0, 1)]
        self.note(twins=0 < (twins[0] < twins[1]).mean() < 1, ends=0 < (weight == 0).mean() < 1)
        target = reward + weight * np.minimum(*twins)
        values = [self.value(self.critics, i, obs, action) for i in (0, 1)]

        def loss(critics: Any) -> float:
            return sum(((self.value(critics, i, obs, action) - target) ** 2).mean() for i in (0, 1))

        metrics = {"loss/critic": loss(self.critics), "value/mean": np.mean(values), "value/target": target.mean()}
        slope = gradient(loss, self.critics)
        self.critics = self.critic_adam.step(h.critic_learning_rate, slope, self.critics)
        self.updates += 1
        if self.updates % int(h.policy_delay) == 0:
            slope = gradient(lambda p: -self.value(self.critics, 0, obs, self.act(p, obs)).mean(), self.policy)
            self.policy = self.actor_adam.step(h.policy_learning_rate, slope, self.policy)
            self.target_policy = polyak_update(self.target_policy, self.policy, h.tau)
            self.target_critics = polyak_update(self.target_critics, self.critics, h.tau)
        return metrics

    def note(self, **met: Any) -> None:
        self.met |= {name for name, yes in met.items() if yes}

    def check(self, learned: Any) -> None:
        for name in ("policy", "critics", *TARGETS):
            close(plain(getattr(learned, name)), getattr(self, name), name)
        assert learned.updates == self.updates


def noises(key: jax.Array, i: int) -> np.ndarray:
    """The standard normal noise of the i-th improvement."""
    return np.asarray(jax.random.normal(key_of(key, i), (reference.BATCH, 2)))


def test_against_the_reference():
    """Six rounds by one program; hyperparameters change on the way, and hold for what was stored before."""
    member = begin()
    expected, past = Reference(member.learned), Past()
    rounds = [{}, {"discount": 0.5}, {"critic_learning_rate": 0.01, "tau": 0.9}, {"policy_learning_rate": 0.1}]
    rounds += [{"update_ratio": 3 / (T * B)}, {"policy_delay": 1, "noise_clip": 0.1, "target_noise": 2.0}]
    for i, changes in enumerate(rounds):
        now, key = hyper(**changes), jax.random.key(i)
        past.rollouts.append(reference.rollout(SPACE, i))
        member, metrics = agent().update(member, now, past.rollouts[-1], key)
        count = round(float(now.update_ratio) * T * B)
        batches = list(past.batches(member, now, key, count))
        told = [expected.improve(batch, noises(key, j), now) for j, batch in enumerate(batches)]
        assert len(told) == count
        expected.check(member.learned)
        reference.same_metrics(metrics, told)
    assert expected.updates == 8
    assert expected.met == {"noise", "action", "twins", "ends"}
    assert agent().update._cache_size() == 1  # of jax.jit, which counts its traces nowhere else


def moved(before: Any, after: Any) -> set[str]:
    return {name for name in before._fields if not same(getattr(before, name), getattr(after, name))}


def test_policy_and_targets_wait_for_their_turn():
    """With a delay of 2, then of 3 from the very next update on, then of 1: the count of updates decides."""
    member, turns = begin(), []
    for i, delay in enumerate([2, 2, 2, 3, 3, 3, 3, 3, 3, 1, 1]):
        end, _ = agent().update(member, hyper(policy_delay=delay), reference.rollout(SPACE, i), jax.random.key(i))
        now = moved(member.learned, end.learned)
        assert now >= {"critics", "critic_optimizer", "updates"}
        assert now & set(POLICY) in (set(), set(POLICY)), "the policy and all targets move together"
        if "policy" in now:
            turns.append(int(end.learned.updates))
        member = end
    assert turns == [2, 6, 9, 10, 11]


@pytest.mark.parametrize(("given", "used"), [(1.4, 1), (1.6, 2), (2.5, 2)])
def test_a_delay_is_a_whole_number(given, used):
    """As explorers may leave it between two of them."""
    turns, member = [], begin()
    for i in range(4):
        end, _ = agent().update(member, hyper(policy_delay=given), reference.rollout(SPACE, i), jax.random.key(i))
        turns.append("policy" in moved(member.learned, end.learned))
        member = end
    assert turns == [(i + 1) % used == 0 for i in range(4)]


def test_the_policy_climbs_the_first_critic_alone():
    """Another second critic changes its own loss and, but for the target, nothing."""
    start, ends = begin(), []
    still = {"target_noise": 0, "discount": 0, "policy_delay": 1}
    for seed in (5, 6):
        other = jax.tree.map(
            lambda x, y: np.stack([x[0], y[1]]), start.learned.critics, shaken(start.learned.critics, seed)
        )
        member = start._replace(learned=start.learned._replace(critics=other))
        ends.append(agent().update(member, hyper(**still), reference.rollout(SPACE, 0), jax.random.key(0))[0].learned)
    assert same(ends[0].policy, ends[1].policy)
    assert not same(ends[0].critics, ends[1].critics)


def test_noise_of_actions():
    """Of the deviation asked for around the policy's own action, then clipped; without it they are the greedy ones."""
    start = begin()
    learned = start.learned._replace(updates=np.int32(1))
    obs = np.broadcast_to(np.float32([0.1, -0.1]), (20_000, 2))
    mean = np.tanh(mlp(plain(learned.policy), np.float64(obs[:1])))[0]
    action, carry, extras = agent().act(learned, hyper(exploration_noise=0.2), obs, (), jax.random.key(0))
    action = np.asarray(action, np.float64)
    assert (carry, extras) == ((), ()) and np.abs(action).max() == 1
    for x, centre in zip(action.T, mean, strict=True):
        assert np.isclose((x == 1).mean(), stats.norm.sf(1, centre, 0.2), atol=0.01)
        assert np.isclose((x == -1).mean(), stats.norm.cdf(-1, centre, 0.2), atol=0.01)
        inside = x[np.abs(x) < 1]
        low, high = (end - centre for end in (-1, 1))
        assert stats.kstest(inside, stats.truncnorm(low / 0.2, high / 0.2, centre, 0.2).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.03
    still, _, _ = agent().act(learned, hyper(exploration_noise=0), obs[:3], (), jax.random.key(0))
    greedy, carry = agent().act_deterministic(learned, obs[:3], ())
    np.testing.assert_allclose(still, greedy, rtol=1e-6)  # compiled apart: the last bit may differ
    np.testing.assert_allclose(greedy, np.broadcast_to(mean, (3, 2)), rtol=1e-4)
    assert carry == ()


def test_a_member_begins_with_two_critics_and_targets_like_them():
    learned = agent().init(jax.random.key(0), agent().hyper).learned
    assert same(learned.target_policy, learned.policy) and same(learned.target_critics, learned.critics)
    kernel = np.asarray(learned.critics["params"]["Dense_0"]["kernel"])
    assert kernel.shape == (2, 4, 4) and not np.allclose(kernel[0], kernel[1])
    assert learned.updates == 0
