"""DvD against NumPy."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.joint import (
    BATCH,
    SETTINGS,
    SPEC,
    UID,
    B,
    N,
    Reference,
    T,
    act,
    begin,
    hyper_of,
    normal,
    rollout,
    volume,
)
from support.messages import shown
from support.reference import plain
from support.tiny import member, same

from shoal.agents.sac import sac
from shoal.agents.td3 import td3
from shoal.core import tree
from shoal.core.errors import BadInput
from shoal.core.types import Learner
from shoal.methods import shared_critic
from shoal.methods.dvd import HYPER, Dvd
from shoal.methods.dvd_learner import DvdLearner
from shoal.rl import replay_buffer as ring


@functools.cache
def made_dvd(**options: Any) -> Learner:
    made = Dvd(**options).learner(td3(SPEC, **SETTINGS), N)
    return made._replace(init=jax.jit(made.init), update=jax.jit(made.update))


def test_joint_updates_learn_from_the_steps_of_all():
    """Each of them here only counts itself, and tells the sum of its probes and the largest weight of a next value: new
    probes for every second one, each actor with its own discount. Fractions of updates are kept."""
    learner = DvdLearner(td3(SPEC, **SETTINGS), HYPER, N, num_states=5, resample_interval=2)

    def joint(actors: Any, critic: Any, hyper: Any, batch: Any, noise: Any, states: Any) -> Any:
        told = jnp.zeros(N), jnp.broadcast_to(states.sum(), N), batch.bootstrap.max(-1)
        critic = critic._replace(updates=critic.updates + 1)
        return actors, critic, dict(zip(shared_critic.METRICS, told, strict=True))

    learner.joint = joint
    update, discounts = jax.jit(learner.update), [0.5, 0.9, 0.99]

    def after(population: Any, seed: int, ratio: float) -> Any:
        hyper = population.hyper._replace(update_ratio=np.full(N, ratio, np.float32))
        return update(population._replace(hyper=hyper), rollout(seed), jax.random.split(jax.random.key(seed), N))

    start = begin(made_dvd(), discount=discounts)
    probes = {count: float(after(start, 0, count / (T * B))[1]["value/mean"][0]) for count in (1, 2, 4)}
    assert probes[1] == probes[2] != probes[4]
    now, counts, rewards = start, [], []
    for seed in range(3):
        now, metrics = after(now, seed, 0.3)
        counts.append(int(now.shared.critic.updates))
        np.testing.assert_allclose(metrics["value/target"], discounts, rtol=1e-6)
        rewards.append(np.concatenate(rollout(seed).reward, 1))  # [T, N * B]
    assert counts == [2, 4, 7]  # of 2.4, 4.8 and 7.2
    np.testing.assert_array_equal(now.shared.replay_buffer.steps.reward, np.concatenate([rewards[2], rewards[1]]))


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_dvd_against_the_reference(weight):
    """(1 - w) times the values and w times the volume, with probes, new ones for every second of four updates, and batches
    out of the one memory."""
    made = made_dvd(num_states=5, resample_interval=2)
    start = begin(made, diversity=weight, update_ratio=4 / (T * B), policy_delay=1.0)
    expected = Reference(start.members.learned, start.shared.critic, weight)
    key = jax.random.split(jax.random.key(5), N)
    end, metrics = made.update(start, rollout(0), key)
    batch_keys, noise_keys, probe_keys = (
        jnp.stack(x) for x in zip(*[jax.random.split(k, 3) for k in key], strict=True)
    )
    draws = [ring.sample(end.shared.replay_buffer, k, (T * B, BATCH), 1, jnp.float32(0.9)) for k in batch_keys]
    states = plain(ring.sample(end.shared.replay_buffer, probe_keys[0], (T * B // 2, 5), 1, jnp.float32(0.9)).obs)
    told = []
    for i in range(4):
        batch = jax.tree.map(lambda *x, i=i: np.stack([y[i] for y in x]), *draws)
        noise = normal([jax.random.fold_in(k, i) for k in noise_keys])
        told.append(expected.improve(start.hyper, batch, noise, states[i // 2]))
    expected.check(end.members.learned, end.shared.critic)
    for name in shared_critic.METRICS:
        each = np.mean([[member[name] for member in step] for step in told], 0)
        np.testing.assert_allclose(metrics[name], each, rtol=1e-3, err_msg=name)
    last = volume(expected.policies, states[0])
    np.testing.assert_allclose(metrics["diversity/log_determinant"], np.full(N, last), rtol=1e-3)
    np.testing.assert_allclose(metrics["diversity/determinant"], np.full(N, np.exp(last)), rtol=1e-2)
    behaviour = [act(policy, states[0]).reshape(-1) for policy in expected.policies]
    matrix = np.array([[np.sqrt(np.mean((a - b) ** 2)) for a in behaviour] for b in behaviour])
    for i in range(N):
        np.testing.assert_allclose(metrics[f"diversity/to {i}"], matrix[:, i], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(metrics["diversity/distance"], matrix.sum(1) / (N - 1), rtol=1e-3)


@pytest.mark.slow
def test_one_that_diverges_does_not_take_the_others_along():
    """Its actions are NaN, and so are rewards of another; the rest learns on, from what is finite, and stays different."""
    made = made_dvd(num_states=5, resample_interval=2)
    start = begin(made, diversity=0.4, update_ratio=2 / (T * B), policy_delay=1.0)
    actors, steps = start.members.learned, rollout(0)
    lost = jax.tree.map(lambda x: x.at[0].set(jnp.nan), (actors.policy, actors.target_policy))
    actors = actors._replace(policy=lost[0], target_policy=lost[1])
    steps.action[0], steps.reward[1, ::2] = np.nan, np.nan
    key = jax.random.split(jax.random.key(5), N)
    end, metrics = made.update(start._replace(members=start.members._replace(learned=actors)), steps, key)
    np.testing.assert_array_equal(tree.finite(end.members.learned), np.arange(N) > 0)
    assert tree.finite(jax.tree.map(lambda x: x[None], (end.shared.critic, end.shared.replay_buffer)))[0]
    assert not any(same(member(end.members.learned.policy, i), member(actors.policy, i)) for i in range(1, N))
    assert end.shared.replay_buffer.filled.tolist() == [0] * B + [T // 2] * B + [T] * B * (N - 2)
    assert np.isfinite(metrics["diversity/determinant"]).all()


@pytest.mark.slow
def test_all_members_fill_the_memory():
    """Every step of every member, and the oldest are overwritten."""
    made = made_dvd()
    now = begin(made, update_ratio=0.0)
    for seed in range(3):
        now, metrics = made.update(now, rollout(seed), jax.random.split(jax.random.key(seed), N))
        assert np.isnan(metrics["loss/critic"]).all() and np.isfinite(metrics["diversity/distance"]).all()
    assert (now.shared.replay_buffer.filled == 2 * T).all() and int(now.shared.critic.updates) == 0
    kept = now.shared.replay_buffer.steps.reward.reshape(-1)
    np.testing.assert_array_equal(np.sort(kept), np.sort(np.stack([rollout(1).reward, rollout(2).reward]).reshape(-1)))
    drawn = ring.sample(now.shared.replay_buffer, jax.random.key(0), (200,), 1, jnp.float32(0.9))
    pairs = {(float(o[0]), float(r)) for o, r in zip(drawn.obs, drawn.reward, strict=True)}
    past = [rollout(1), rollout(2)]
    assert len(pairs) > 20 and pairs <= {
        (float(o[0]), float(r)) for p in past for o, r in zip(p.obs.reshape(-1, 2), p.reward.reshape(-1), strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "counts"), [(1.0, [8, 16, 24]), (0.3, [2, 4, 7]), (0.0, [0, 0, 0])])
def test_dvd_number_of_updates(ratio, counts):
    """T x B x ratio joint updates per rollout; what is left over is owed."""
    made, found = made_dvd(), []
    now = begin(made, update_ratio=ratio)
    for seed in range(3):
        now, _ = made.update(now, rollout(seed), jax.random.split(jax.random.key(seed), N))
        found.append(int(now.shared.critic.updates))
        assert (np.asarray(now.members.learned.updates) == found[-1]).all()
    assert found == counts


@pytest.mark.slow
def test_dvd_waits_until_it_is_warm():
    made = Dvd().learner(td3(SPEC, **SETTINGS | {"learning_starts": N * T * B + 1}), N)
    now, counts = made.init(jax.random.key(0), UID, hyper_of(made)), []
    obs = np.zeros((N, 100, 2), np.float32)
    for seed in range(2):
        keys = jax.random.split(jax.random.key(seed), N)
        wild = np.abs(made.act(now, obs, (), keys)[0] - made.act_deterministic(now, obs, ())[0]).mean()
        assert (wild > 0.3) == (not counts or counts[-1] == 0), "random actions before the first update"
        now, _ = jax.jit(made.update)(now, rollout(seed), keys)
        counts.append(int(now.shared.critic.updates))
    assert counts == [0, T * B]


def test_members_begin_apart():
    policy = made_dvd().init(jax.random.key(0), UID, hyper_of(made_dvd())).members.learned.policy
    assert not same(*[jax.tree.map(lambda x, i=i: x[i], policy) for i in (0, 1)])


@pytest.mark.parametrize(("options", "members"), [({}, 1), ({"num_states": 0}, 3)], ids=shown)
def test_bad_settings_of_dvd(options, members, said):
    with pytest.raises(BadInput) as error:
        Dvd(**options).validate(td3(SPEC, **SETTINGS), members)
    said(error.value)


def test_dvd_of_other_agents(said):
    with pytest.raises(BadInput) as error:
        Dvd().learner(sac(SPEC, **SETTINGS), 3)
    said(error.value)
