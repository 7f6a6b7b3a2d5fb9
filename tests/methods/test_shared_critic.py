"""Actors that share critics and a memory, as CEM-RL and DvD train them, against NumPy."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import others_slow
from support.joint import (
    OTHER,
    SETTINGS,
    SPEC,
    UID,
    N,
    Reference,
    batch_of,
    begin,
    hyper_of,
    normal,
    rollout,
    rows,
)
from support.tiny import same

from shoal.agents.td3 import td3
from shoal.core import tree
from shoal.core.types import Population, Rollout, SearchLearner
from shoal.methods.cem_rl import CemRl
from shoal.methods.dvd import HYPER
from shoal.methods.dvd_learner import DvdLearner
from shoal.rl import replay_buffer as ring
from shoal.rl.schedules import scheduled

FINITE = jax.jit(tree.finite)


def test_joint_update_against_the_reference():
    """Members of unequal hyperparameters, so that none can stand for another; those of the critics are the first's. As DvD
    has them: the first climbs its values alone, as all do in CEM-RL, and the others climb the volume too."""
    learner = DvdLearner(td3(SPEC, **SETTINGS), HYPER, N, num_states=5, resample_interval=2)
    made = learner.learner()
    own = {"target_noise": [0.5, 0.1, 1.0], "noise_clip": [0.3, 0.5, 0.2], "tau": [0.3, 0.5, 0.1]}
    own |= {"policy_learning_rate": [0.02, 0.05, 0.01], "critic_learning_rate": [0.05, 9.0, 9.0]}
    own |= {"diversity": (diversity := [0.0, 0.3, 0.9])}
    start = begin(made._replace(init=jax.jit(made.init)), **own, policy_delay=[2.0, 1.0, 1.0])
    update, states = jax.jit(learner.joint), batch_of(9).obs[0, :5]
    actors, critic = start.members.learned, start.shared.critic
    expected = Reference(actors, critic, diversity)
    for i in range(4):
        keys = jax.random.split(jax.random.key(i), N)
        actors, critic, metrics = update(actors, critic, start.hyper, batch_of(i), keys, states)
        told = expected.improve(start.hyper, batch_of(i), normal(keys), np.float64(states))
        expected.check(actors, critic)
        for name, x in metrics.items():
            np.testing.assert_allclose(x, [t[name] for t in told], rtol=1e-3, err_msg=name)
        np.testing.assert_array_equal(actors.updates, np.full(N, i + 1))


# ----------------------------------------------------------------------------------------------- CEM-RL


STORE = jax.jit(ring.store)


@functools.cache
def made_cem_of(trained: int) -> SearchLearner:
    made = CemRl(trained).learner(td3(SPEC, **SETTINGS | {"buffer_size": 20}), N)
    jitted = {name: jax.jit(getattr(made, name)) for name in ("improve", "watch")}
    return made._replace(init=jax.jit(made.init), **jitted)


def made_cem(trained: int = 2) -> SearchLearner:
    return made_cem_of(trained)


def watched(made: SearchLearner, population: Population) -> Population:
    """With a memory that is full."""
    memory = population.shared.replay_buffer
    steps = jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[3:])[:20], rollout(0))
    memory = STORE(memory, steps, np.ones_like(steps.terminated), memory.owner)
    return population._replace(shared=population.shared._replace(replay_buffer=memory))


@pytest.mark.parametrize("trained", others_slow([1, 2, 3], 2))
def test_members_that_are_not_trained_stay_as_they_are(trained):
    made = made_cem(trained=trained)
    start = watched(made, begin(made, policy_delay=1.0))
    end, metrics = made.improve(start, jax.random.key(0))
    split = [
        jax.tree.map(lambda x, s=s: x[s], (start.members, end.members)) for s in (slice(trained), slice(trained, N))
    ]
    for before, after in zip(*[rows(x.learned.policy) for x in split[0]], strict=True):
        assert not same(before, after)
    assert same(*split[1])
    assert same(start.shared.replay_buffer, end.shared.replay_buffer) and same(
        start.shared.distribution, end.shared.distribution
    )
    assert not same(start.shared.critic, end.shared.critic)
    for x in metrics.values():
        assert np.isfinite(x[:trained]).all() and np.isnan(x[trained:]).all() and x.shape == (N,)


def test_an_actor_that_diverges_does_not_take_the_critics_along():
    """Nor the other actors; its own share of the batch is left out of what the critics learn from."""
    made = made_cem()
    start = watched(made, begin(made, policy_delay=1.0))
    actors = start.members.learned
    lost = jax.tree.map(np.array, (actors.policy, actors.target_policy))
    for x in jax.tree.leaves(lost):
        x[1] = np.nan
    actors = actors._replace(policy=lost[0], target_policy=lost[1])
    end, _ = made.improve(start._replace(members=start.members._replace(learned=actors)), jax.random.key(0))
    np.testing.assert_array_equal(FINITE(end.members.learned), [True, False, True])
    np.testing.assert_array_equal(end.members.learned.updates, [1, 1, 0])
    critics = jax.tree.map(lambda x: np.asarray(x)[None], end.shared.critic)
    assert FINITE(critics)[0] and not same(end.shared.critic.critics, start.shared.critic.critics)


def test_half_are_trained_by_default():
    """One of three: by the program for one, and not by that for two."""
    programs = []
    for trained in (None, 1, 2):
        made = CemRl(trained).learner(td3(SPEC, **SETTINGS), N)
        start = jax.eval_shape(made.init, jax.random.key(0), UID, hyper_of(made))
        programs.append(str(jax.make_jaxpr(made.improve)(start, jax.random.key(0))))
    assert programs[0] == programs[1] != programs[2]


def test_the_cross_entropy_method_alone():
    made = CemRl(gradient_members=0).learner(td3(SPEC, **SETTINGS), N)
    start = jax.eval_shape(made.init, jax.random.key(0), UID, hyper_of(made))
    end, metrics = made.improve(start, jax.random.key(0))
    assert end is start and metrics == {} and not made.watches
    assert made.updates(hyper_of(made), 10**6, 100) == 0


@pytest.mark.parametrize("name", [x for x in made_cem().agent.hyper._fields if x != "update_ratio"])
def test_every_hyperparameter_of_cem_rl_takes_effect(name):
    made = made_cem()

    def after(**values: float) -> Any:
        now = watched(made, begin(made, **{"policy_delay": 1.0} | values))
        now = now._replace(hyper=scheduled(now.hyper, jnp.float32(0.5)))
        for i in range(2):
            now, _ = made.improve(now, jax.random.key(i))
        return now.members, now.shared.critic

    usual = float(hyper_of(made, policy_delay=1.0)._asdict()[name][0])
    assert not same(after(), after(**{name: OTHER.get(name, usual / 2)}))


def steps_of(rng: np.random.Generator, *shape: int) -> Rollout:
    obs, next_obs = rng.normal(size=(2, *shape, 2)).astype(np.float32)
    action = rng.uniform(-1, 1, (*shape, 2)).astype(np.float32)
    terminated, truncated = rng.random((2, *shape)) < 0.3
    return Rollout(obs, action, rng.normal(size=shape).astype(np.float32), next_obs, terminated, truncated, ())


def test_members_are_watched_and_the_mean_is_not():
    """Rows below 0 are members; what lives on after its end does not count, and what is not finite neither."""
    made, rng = made_cem(), np.random.default_rng(0)
    start = begin(made)
    steps, alive = steps_of(rng, 4, 2), np.array([[True, False], [True, True], [False, True], [True, True]])
    steps.next_obs[2, 1, 0] = np.nan
    end = made.watch(start.shared, np.array([-3, -1, -2, 0]), steps, alive)
    assert end.replay_buffer.filled.tolist() == [3]
    np.testing.assert_array_equal(end.replay_buffer.steps.reward[:3, 0], [steps.reward[0, 0], *steps.reward[1]])
    assert same(end._replace(replay_buffer=()), start.shared._replace(replay_buffer=()))
