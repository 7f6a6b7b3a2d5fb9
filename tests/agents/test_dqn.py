"""DQN against a reference in NumPy."""

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
from support.reference import Adam, B, Past, T, close, gradient, mlp, plain, polyak_update, shaken
from support.tiny import same

from shoal.agents.dqn import dqn
from shoal.core.errors import BadInput
from shoal.core.spec import Discrete, Spec
from shoal.core.types import Agent, Member

SPACE = Discrete(3)
HYPER = {"learning_rate": 0.05, "discount": 0.9, "tau": 0.4, "target_update_interval": 2, "max_gradient_norm": 0.5}


@functools.cache
def agent(**settings: Any) -> Agent:
    return compiled(dqn(Spec(reference.OBS, "float32", SPACE), **reference.SETTINGS | settings))


def hyper(**values: float) -> Any:
    return reference.hyper_of(agent(), **HYPER | values)


def begin(made: Agent) -> Member:
    start = made.init(jax.random.key(0), made.hyper)
    learned = {name: shaken(getattr(start.learned, name), i) for i, name in enumerate(("params", "target"))}
    return start._replace(learned=start.learned._replace(**learned))


class Reference:
    """Algorithm 1 of Mnih et al. 2015; targets as in van Hasselt et al. 2016 where they are double."""

    def __init__(self, learned: Any, double: bool):
        self.params, self.target = plain(learned.params), plain(learned.target)
        self.adam, self.updates, self.double = Adam(), 0, double
        self.met: set[str] = set()  # what the data gave occasion for

    def values(self, params: Any, obs: np.ndarray) -> np.ndarray:
        return mlp(params["head"], obs)

    def improve(self, batch: tuple, h: Any) -> dict[str, float]:
        obs, action, reward, next_obs, weight = batch
        h, every = plain(h), np.arange(len(obs))
        after, online = self.values(self.target, next_obs), self.values(self.params, next_obs)
        self.note(choices=(after.argmax(-1) != online.argmax(-1)).any(), ends=0 < (weight == 0).mean() < 1)
        target = reward + weight * after[every, (online if self.double else after).argmax(-1)]

        def loss(params: Any) -> float:
            error = np.abs(self.values(params, obs)[every, action] - target)
            self.note(huber=0 < (error > 1).mean() < 1)
            return np.where(error <= 1, error**2 / 2, error - 0.5).mean()

        told = {"loss/critic": loss(self.params), "value/target": target.mean()}
        told["value/mean"] = self.values(self.params, obs)[every, action].mean()
        slope = gradient(loss, self.params)
        norm = np.sqrt(sum((x**2).sum() for x in jax.tree.leaves(slope)))
        self.note(clipped=norm > h.max_gradient_norm, free=norm < h.max_gradient_norm)
        slope = jax.tree.map(lambda x: x * min(1, h.max_gradient_norm / norm), slope)
        self.params = self.adam.step(h.learning_rate, slope, self.params)
        self.updates += 1
        if self.updates % int(h.target_update_interval) == 0:
            self.target = polyak_update(self.target, self.params, h.tau)
        return told

    def note(self, **met: Any) -> None:
        self.met |= {name for name, yes in met.items() if yes}

    def check(self, learned: Any) -> None:
        for name in ("params", "target"):
            close(plain(getattr(learned, name)), getattr(self, name), name)
        assert learned.updates == self.updates


@pytest.mark.parametrize(("double", "n"), others_slow([(True, 1), (False, 1), (True, 3)], (True, 3)))
def test_against_the_reference(double, n):
    """Six rounds by one program; hyperparameters change on the way, and hold for what was stored before."""
    made = agent(double=double, n_step=n)
    member = begin(made)
    expected, past = Reference(member.learned, double), Past()
    rounds = [{}, {"discount": 0.5}, {"learning_rate": 0.01, "tau": 1.0}, {"max_gradient_norm": 1e6}]
    rounds += [{"update_ratio": 3 / (T * B), "target_update_interval": 3}, {}]
    for i, changes in enumerate(rounds):
        now, key = hyper(**changes), jax.random.key(i)
        past.rollouts.append(reference.rollout(SPACE, i))
        member, metrics = made.update(member, now, past.rollouts[-1], key)
        count = round(float(now.update_ratio) * T * B)
        told = [expected.improve(batch, now) for batch in past.batches(member, now, key, count, n)]
        assert len(told) == count
        expected.check(member.learned)
        reference.same_metrics(metrics, told)
    assert expected.updates == 8
    assert expected.met == {"choices", "ends", "huber", "clipped", "free"}
    assert made.update._cache_size() == 1  # of jax.jit, which counts its traces nowhere else


def test_the_target_moves_when_its_period_is_over():
    """Every second update, then from the very next one on every third; with tau of 1 it becomes the online network. Periods
    between two whole numbers are rounded."""
    made = agent(double=True, n_step=3)
    member, turns = begin(made), []
    for i, period in enumerate([2, 2.4, 1.6, 3, 3, 3, 3, 3, 1]):
        end, _ = made.update(
            member, hyper(target_update_interval=period, tau=1), reference.rollout(SPACE, i), jax.random.key(i)
        )
        assert not same(end.learned.params, member.learned.params)
        if not same(end.learned.target, member.learned.target):
            turns.append(int(end.learned.updates))
            close(end.learned.target, end.learned.params, rtol=0, atol=1e-6)
        member = end
    assert turns == [2, 6, 9]


# ------------------------------------------------------------------------------------------- exploration

OBS = np.broadcast_to(np.float32([0.3, -0.2]), (30_000, 2))


def acted(updates: int, **values: float) -> np.ndarray:
    """How often each action is taken after so many updates, with the best one first."""
    learned = begin(agent()).learned._replace(updates=jnp.int32(updates))
    action, carry, extras = agent().act(learned, hyper(**values), OBS, (), jax.random.key(updates))
    assert action.dtype == np.int32 and (carry, extras) == ((), ())
    best = int(mlp(plain(learned.params)["head"], np.float64(OBS[:1])).argmax())
    assert best == agent().act_deterministic(learned, OBS[:1], ())[0][0]
    return np.roll(np.bincount(action, minlength=3), -best)


@pytest.mark.parametrize(
    ("updates", "final", "over", "epsilon"),
    [
        (0, 0.1, 100, 1.0),
        (25, 0.1, 100, 0.775),
        (50, 0.1, 100, 0.55),
        (100, 0.1, 100, 0.1),
        (100_000, 0.1, 100, 0.1),
        (50, 0.4, 200, 0.85),
        (0, 0.1, 0, 1.0),  # no fall at all: random until the first update, then never more than in the end
        (1, 0.1, 0, 0.1),
        (7, 1.0, 100, 1.0),
    ],
)
def test_random_actions(updates, final, over, epsilon):
    """Their share falls from 1 in a straight line; each choice is as likely, the best one included."""
    counts = acted(updates, final_epsilon=final, epsilon_decay_updates=over)
    expected = np.array([1 - epsilon + epsilon / 3, epsilon / 3, epsilon / 3])
    assert stats.chisquare(counts, expected * counts.sum()).pvalue > 1e-3


def test_no_random_actions():
    np.testing.assert_array_equal(acted(10, final_epsilon=0, epsilon_decay_updates=10), [len(OBS), 0, 0])


def test_a_member_begins_with_its_target():
    learned = agent().init(jax.random.key(0), agent().hyper).learned
    assert same(learned.target, learned.params) and learned.updates == 0


@pytest.mark.parametrize("n", [0, T + 1])
def test_unfitting_steps(n, said):
    with pytest.raises(BadInput) as error:
        agent(n_step=n)
    said(error.value)


# ------------------------------------------------------------------------------------------------ images


@pytest.mark.slow
def test_images():
    """Bytes from the environment to the network; every layer learns."""
    spec = Spec(shape := (36, 40, 2), "uint8", SPACE)
    made = dqn(spec, **reference.SETTINGS | {"network": "nature_cnn", "batch_size": 4, "buffer_size": T * B})
    member = jax.jit(made.init)(jax.random.key(0), made.hyper)
    assert member.replay_buffer.obs.dtype == np.uint8 and member.replay_buffer.obs.shape == (T + 1, B, *shape)
    obs, next_obs = np.random.default_rng(0).integers(256, size=(2, T, B, *shape), dtype=np.uint8)
    next_obs[:-1] = obs[1:]
    rollout = reference.rollout(SPACE, 0)._replace(obs=obs, next_obs=next_obs)
    end, metrics = jax.jit(made.update)(member, hyper(), rollout, jax.random.key(0))
    assert same(end.replay_buffer.obs[:-1], obs) and np.isfinite(metrics["loss/critic"])
    for before, after in zip(jax.tree.leaves(member.learned.params), jax.tree.leaves(end.learned.params), strict=True):
        assert not same(before, after)
    action, _, _ = made.act(end.learned, hyper(), obs[0], (), jax.random.key(0))
    assert action.shape == (B,) and action.dtype == np.int32
