"""SAC against a reference in NumPy."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support import reference
from support.cases import others_slow
from support.compiled import compiled
from support.reference import Adam, B, Past, T, close, gradient, key_of, mlp, plain, polyak_update, shaken
from support.tiny import same

from shoal.agents.sac import sac
from shoal.core.errors import BadInput
from shoal.core.spec import Box, Spec
from shoal.core.types import Agent, Member

SPACE = Box((-2.0, -1.0), (2.0, 3.0))
SPEC = Spec(reference.OBS, "float32", SPACE)
HYPER = {"policy_learning_rate": 0.02, "critic_learning_rate": 0.05, "temperature_learning_rate": 0.1}
HYPER |= {"discount": 0.9, "tau": 0.3, "target_entropy_scale": 0.7, "reward_scale": 1.5}
WEIGHTS = ("policy", "critics", "target_critics")


@functools.cache
def agent(**settings: Any) -> Agent:
    return compiled(sac(SPEC, **reference.SETTINGS | {"initial_temperature": 0.25} | settings))


def hyper(**values: float) -> Any:
    return reference.hyper_of(agent(), **HYPER | values)


def begin(wide: bool = False, temperature: float = 0.4) -> Member:
    """wide: one of the policy's deviations lies beyond what it may be."""
    start = agent().init(jax.random.key(0), agent().hyper)
    learned = {name: shaken(getattr(start.learned, name), i, 0.5) for i, name in enumerate(WEIGHTS)}
    if wide:
        last = learned["policy"]["params"]["Dense_1"]
        last["bias"] = last["bias"].at[2].set(5.0)
    learned["log_temperature"] = jnp.log(jnp.float32(temperature))
    return start._replace(learned=start.learned._replace(**learned))


class Reference:
    """Algorithm 1 of the paper, with the temperature of its section 5."""

    def __init__(self, learned: Any):
        self.policy, self.critics, self.target_critics = (plain(getattr(learned, name)) for name in WEIGHTS)
        self.log_temperature = plain(learned.log_temperature)
        self.adams, self.updates = [Adam() for _ in range(3)], 0
        self.met: set[str] = set()  # what the data gave occasion for

    def act(
        self, params: Any, obs: np.ndarray, noise: np.ndarray, held: Any = lambda log_std: np.clip(log_std, -20, 2)
    ) -> tuple[np.ndarray, np.ndarray]:
        """Actions and their log-densities, by the change of variables as it stands in every book."""
        mean, log_std = np.split(mlp(params, obs), 2, -1)
        self.note(wide=(log_std > 2).any())
        std = np.exp(held(log_std))
        x = mean + std * noise
        slope = 1 / np.cosh(x) ** 2  # of tanh
        density = stats.norm.logpdf(x, mean, std) - np.log(slope)
        return np.tanh(x), density.sum(-1)

    def values(self, critics: Any, obs: np.ndarray, action: np.ndarray) -> list[np.ndarray]:
        x = np.concatenate([obs, action], -1)
        return [mlp(jax.tree.map(lambda leaf, i=i: leaf[i], critics), x)[:, 0] for i in (0, 1)]

    def improve(self, batch: tuple, noise: tuple[np.ndarray, np.ndarray], h: Any) -> dict[str, float]:
        obs, action, reward, next_obs, weight = batch
        h, alpha = plain(h), np.exp(self.log_temperature)
        next_action, next_log_prob = self.act(self.policy, next_obs, noise[0])
        twins = self.values(self.target_critics, next_obs, next_action)
        self.note(twins=0 < (twins[0] < twins[1]).mean() < 1, ends=0 < (weight == 0).mean() < 1)
        target = h.reward_scale * reward + weight * (np.minimum(*twins) - alpha * next_log_prob)
        values = self.values(self.critics, obs, action)

        def critic_loss(critics: Any) -> float:
            return sum(0.5 * ((value - target) ** 2).mean() for value in self.values(critics, obs, action))

        def policy_loss(policy: Any, held: Any = None) -> float:
            mine, log_prob = self.act(policy, obs, noise[1], held or self.held(policy_loss, obs))
            return (alpha * log_prob - np.minimum(*self.values(self.critics, obs, mine))).mean()

        entropy = -self.act(self.policy, obs, noise[1])[1].mean()

        def temperature_loss(log_alpha: np.ndarray) -> float:
            return float(np.exp(log_alpha) * (entropy + h.target_entropy_scale * 2))

        told = {"loss/critic": critic_loss(self.critics), "value/mean": np.mean(values), "value/target": target.mean()}
        told |= {"policy/entropy": entropy, "policy/temperature": alpha}
        slopes = [
            gradient(critic_loss, self.critics),
            gradient(policy_loss, self.policy),
            gradient(temperature_loss, self.log_temperature),
        ]
        self.critics = self.adams[0].step(h.critic_learning_rate, slopes[0], self.critics)
        self.policy = self.adams[1].step(h.policy_learning_rate, slopes[1], self.policy)
        rate = h.temperature_learning_rate
        self.log_temperature = self.adams[2].step(rate, slopes[2], self.log_temperature)
        self.target_critics = polyak_update(self.target_critics, self.critics, h.tau)
        self.updates += 1
        return told

    def held(self, loss: Any, obs: np.ndarray) -> Any:
        """Clipped deviations, of which those beyond the upper bound follow the weights where that leads back."""
        now = np.split(mlp(self.policy, obs), 2, -1)[1]
        clipped, back = np.clip(now, -20, 2), np.zeros(now.shape, bool)
        for at in zip(*np.nonzero(now > 2), strict=True):
            step = np.zeros(now.shape)
            step[at] = 1e-6
            back[at] = loss(self.policy, lambda _, step=step: clipped + step) > loss(self.policy, lambda _: clipped)
        self.note(back=back.any(), stays=(back < (now > 2)).any())
        return lambda log_std: np.where(back, clipped + log_std - now, np.clip(log_std, -20, 2))

    def note(self, **met: Any) -> None:
        self.met |= {name for name, yes in met.items() if yes}

    def check(self, learned: Any) -> None:
        for name in (*WEIGHTS, "log_temperature"):
            close(plain(getattr(learned, name)), getattr(self, name), name)
        assert learned.updates == self.updates


def noises(key: jax.Array, i: int) -> tuple[np.ndarray, ...]:
    """The standard normal noise of the i-th improvement: for the target's actions, and for the policy's."""
    return tuple(np.float64(jax.random.normal(k, (reference.BATCH, 2))) for k in jax.random.split(key_of(key, i)))


@pytest.mark.parametrize("wide", others_slow([False, True], False))
def test_against_the_reference(wide):
    """Five rounds by one program; hyperparameters change on the way, and hold for what was stored before."""
    member = begin(wide)
    expected, past = Reference(member.learned), Past()
    rounds = [{}, {"discount": 0.5, "reward_scale": 0.3}, {"critic_learning_rate": 0.01, "tau": 0.9}]
    rounds += [{"policy_learning_rate": 0.1, "temperature_learning_rate": 0.01, "target_entropy_scale": 2.0}]
    rounds += [{"update_ratio": 3 / (T * B)}]
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
    assert expected.updates == 7
    assert expected.met == {"twins", "ends"} | ({"wide", "back", "stays"} if wide else set())
    assert agent().update._cache_size() == 1  # of jax.jit, which counts its traces nowhere else


@pytest.mark.parametrize(("scale", "sign"), [(-20.0, 1), (20.0, -1)])
def test_temperature_follows_the_entropy(scale, sign):
    """It rises where the entropy is below its target (minus the scale times two components), and falls above."""
    start, changes = begin(), []
    member = start
    for i in range(3):
        member, metrics = agent().update(
            member, hyper(target_entropy_scale=scale), reference.rollout(SPACE, i), jax.random.key(i)
        )
        assert np.sign(-2 * scale - metrics["policy/entropy"]) == sign
        changes.append(float(member.learned.log_temperature))
    # Adam's steps are of the size of the rate where the gradient's sign stays the same.
    np.testing.assert_allclose(np.diff([float(start.learned.log_temperature), *changes]), sign * 0.1, rtol=0.2)


def test_reward_scale_acts_on_what_was_stored_before():
    """Memory is the same whatever the scale and the discount; without bootstrapping, targets are proportional to it."""
    targets, memories = [], []
    for scale in (1.0, 3.0):
        values = hyper(reward_scale=scale, discount=0)
        member, metrics = agent().update(begin(), values, reference.rollout(SPACE, 0), jax.random.key(0))
        targets.append(float(metrics["value/target"]))
        memories.append(member.replay_buffer)
    assert abs(targets[0]) > 0.01
    np.testing.assert_allclose(targets[1], 3 * targets[0], rtol=1e-5)
    assert same(*memories)


def still(batch: Any, distribution: Any) -> jax.Array:
    """Actions are to be small wherever the agent has been."""
    assert batch.obs.shape[0] == distribution.mean.shape[0]
    return 1e4 * jnp.square(distribution.mean).sum(-1)


def test_it_learns_by_an_auxiliary_loss():
    """The means of the policy come nearer to zero by it. The critics do not see it in the first update."""
    sizes, critics, rollout = [], [], reference.rollout(SPACE, 0)
    for settings in ({}, {"auxiliary_loss": still}):
        member = agent().init(jax.random.key(0), agent().hyper)
        last = member.learned.policy["params"]["Dense_1"]
        last["bias"] = last["bias"].at[:2].set(0.5)
        for updates in (1, 40):
            values = reference.hyper_of(agent(), policy_learning_rate=0.02, update_ratio=updates / (T * B))
            member, metrics = agent(**settings).update(member, values, rollout, jax.random.key(1))
            critics.append(member.learned.critics)
        sizes.append(np.abs(agent().act_deterministic(member.learned, rollout.obs, ())[0]).mean())
    assert same(critics[0], critics[2])
    assert metrics["loss/auxiliary"] > 0 and sizes[1] < 0.8 * sizes[0]


def test_actions_are_drawn_from_the_policy():
    start = begin()
    learned = start.learned._replace(updates=np.int32(1))
    obs = np.broadcast_to(np.float32([0.3, -0.2]), (20_000, 2))
    mean, log_std = np.split(mlp(plain(learned.policy), np.float64(obs[:1]))[0], 2)
    action, carry, extras = agent().act(learned, hyper(), obs, (), jax.random.key(0))
    assert (carry, extras) == ((), ())
    x = np.arctanh(np.clip(np.float64(action), -1 + 1e-7, 1 - 1e-7))
    for i in range(2):
        assert stats.kstest(x[:, i], stats.norm(mean[i], np.exp(log_std[i])).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(x.T)[0, 1]) < 0.03
    greedy, carry = agent().act_deterministic(learned, obs[:3], ())
    np.testing.assert_allclose(greedy, np.broadcast_to(np.tanh(mean), (3, 2)), rtol=1e-4)
    assert carry == ()


def test_a_member_begins_as_configured(said):
    learned = agent().init(jax.random.key(0), agent().hyper).learned
    np.testing.assert_allclose(np.exp(learned.log_temperature), 0.25, rtol=1e-6)
    assert same(learned.target_critics, learned.critics)
    kernel = np.asarray(learned.critics["params"]["Dense_0"]["kernel"])
    assert kernel.shape == (2, 4, 4) and not np.allclose(kernel[0], kernel[1])
    for wrong in (0.0, -1.0):
        with pytest.raises(BadInput) as error:
            sac(SPEC, initial_temperature=wrong)
        said(error.value)
