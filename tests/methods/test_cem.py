"""CEM: the weights of ranks, and what a generation leaves behind, against NumPy."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from support.messages import shown
from support.reference import plain
from support.tiny import close, same

from shoal.agents.ppo import ppo
from shoal.agents.td3 import td3
from shoal.core.errors import BadInput
from shoal.core.population import PopulationStats
from shoal.core.space import SearchSpace
from shoal.core.spec import Box, Spec
from shoal.core.types import Population, SearchLearner
from shoal.methods.cem_rl import CemRl, log_ranks

N = 6
UID = np.arange(N, dtype=np.uint32)
SPEC = Spec((2,), "float32", Box((-1.0,) * 2, (1.0,) * 2))
SETTINGS: dict[str, Any] = {
    "layers": (4,),
    "activation": "tanh",
    "buffer_size": 32,
    "learning_starts": 8,
    "batch_size": 8,
}


# ------------------------------------------------------------------------------------------ the evolver


def test_weights_by_hand():
    """log(4) - log(1, 2, 3) for the best three of six, in sum 1."""
    raw = np.log(4) - np.log([1, 2, 3])
    expected = np.zeros(6)
    expected[[4, 0, 2]] = raw / raw.sum()
    np.testing.assert_allclose(log_ranks(np.array([5.0, -1, 3, 2, 9, 0]), 3), expected, rtol=1e-6)


def test_ties_share():
    """Ranks 2 and 3 are worth the same to both; so is the last elite's to all who are as good."""
    raw = np.log(4) - np.log([1, 2, 3])
    raw /= raw.sum()
    weights = log_ranks(np.array([1.0, 7, 1, 0, 0, 0]), 3)
    np.testing.assert_allclose(weights, [(raw[1] + raw[2]) / 2, raw[0], (raw[1] + raw[2]) / 2, 0, 0, 0], rtol=1e-6)
    weights = log_ranks(np.array([4.0, 3, 2, 2, 2, 1]), 3)
    np.testing.assert_allclose(weights, [raw[0], raw[1], *[raw[2] / 3] * 3, 0], rtol=1e-6)
    np.testing.assert_allclose(log_ranks(np.full(5, 2.0), 2), np.full(5, 0.2), rtol=1e-6)


def test_whoever_diverged_counts_nothing():
    weights = log_ranks(np.array([np.nan, 1.0, np.inf, 2.0, -np.inf, np.nan]), 4)
    raw = np.log(5) - np.log([1, 2])
    np.testing.assert_allclose(weights, [0, raw[1] / raw.sum(), 0, raw[0] / raw.sum(), 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(log_ranks(np.full(4, np.nan), 2), np.zeros(4))


@pytest.mark.parametrize(
    ("members", "elites", "count"), [(5, None, 2), (1, None, 1), (7, 3, 3), (4, 10, 4), (2, None, 1)]
)
def test_decisions(members, elites, count):
    evolver = CemRl(elites=elites).evolver(SearchSpace({}, {}, {"discount": 0.9}), 8)
    uid = np.arange(members)
    state, hyper = evolver.init((0,), uid)
    fitness = np.random.default_rng(0).normal(size=members)
    zeros = np.zeros(members, np.int64)
    stats = PopulationStats(uid, zeros, zeros, fitness, np.zeros(members), zeros, hyper)
    state, decision = evolver.decide((0, 1), state, stats, uid[::2])
    np.testing.assert_array_equal(decision.hyper["discount"], np.full(len(uid[::2]), 0.9, np.float32))
    assert decision.weights.shape == (members,) and decision.weights.dtype == np.float32
    np.testing.assert_allclose(decision.weights.sum(), 1, rtol=1e-6)
    assert (decision.weights > 0).sum() == count
    best = np.argsort(-fitness)[:count]
    assert (np.argsort(-decision.weights)[:count] == best).all()
    raw = np.log((elites or count) + 1) - np.log(1 + np.arange(count))
    np.testing.assert_allclose(decision.metrics["elites/return"], (raw * fitness[best]).sum() / raw.sum(), rtol=1e-5)


def test_elites_of_nobody(said):
    with pytest.raises(BadInput) as error:
        CemRl(elites=0).validate(td3(SPEC, **SETTINGS), N)
    said(error.value)


# ------------------------------------------------------------------------------------------ the learner


@functools.cache
def learner(mirrored: bool = False) -> SearchLearner:
    made = CemRl(noise_end=1e-4, noise_decay=0.5, mirrored=mirrored).learner(td3(SPEC, **SETTINGS), N)
    jitted = {name: jax.jit(getattr(made, name)) for name in ("init", "draw", "tell", "actors", "mean")}
    return made._replace(**jitted)


@functools.cache
def population() -> Population:
    made = learner()
    hyper = jax.tree.map(lambda x: np.full(N, x, np.float32), made.agent.hyper)
    return made.init(jax.random.key(0), UID, hyper)


def flat(tree: Any) -> np.ndarray:
    """All parameters of each member, float64 [N, P]."""
    leaves = jax.tree.leaves(plain(tree))
    return np.concatenate([x.reshape(len(x), -1) for x in leaves], 1)


def one(tree: Any) -> np.ndarray:
    return flat(jax.tree.map(lambda x: x[None], tree))[0]


@pytest.mark.parametrize("weights", [[0.5, 0.3, 0.2, 0, 0, 0], [0, 0, 1.0, 0, 0, 0], [1 / 6] * 6])
def test_mean_and_variance(weights):
    """Of the actors as they are when they have been measured; around the mean that they were drawn from."""
    made, weights = learner(), np.array(weights, np.float32)
    start = population()
    policy = jax.device_get(start.members.learned.policy)
    trained = jax.tree.map(lambda x: x + np.float32(0.1) * np.sign(x), policy)
    learned = start.members.learned._replace(policy=trained, updates=np.array([5, 5, 0, 0, 0, 0], np.int32))
    start = start._replace(members=start.members._replace(learned=learned))
    old, x, w = one(start.shared.distribution.mean), flat(trained), weights.astype(np.float64)[:, None]
    end, metrics = made.tell(start, UID, weights, jax.random.key(0))
    new = end.shared.distribution
    np.testing.assert_allclose(one(new.mean), (w * x).sum(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(one(new.variance), (w * (x - old) ** 2).sum(0) + 1e-3, rtol=1e-4)
    np.testing.assert_allclose(new.noise, 0.5 * 1e-3 + 0.5 * 1e-4, rtol=1e-5)
    np.testing.assert_allclose(metrics["step/norm"], np.linalg.norm((w * x).sum(0) - old), rtol=1e-3)
    np.testing.assert_allclose(metrics["elites/trained"], weights[:2].sum(), atol=1e-6)
    std = np.sqrt(((w * (x - old) ** 2).sum(0) + 1e-3).mean())
    np.testing.assert_allclose(metrics["distribution/std"], std, rtol=1e-3)
    assert same(end.members, start.members) and same(end.shared.critic, start.shared.critic)


def test_noise_decays_to_its_end():
    made, weights = learner(), np.eye(N, dtype=np.float32)[0]
    now, expected = population(), 1e-3
    for _ in range(5):
        before = now.shared.distribution
        now, metrics = made.tell(now, UID, weights, jax.random.key(0))
        shift = flat(now.members.learned.policy)[0] - one(before.mean)
        np.testing.assert_allclose(one(now.shared.distribution.variance), shift**2 + expected, rtol=1e-3)
        expected = 0.5 * expected + 0.5 * 1e-4
        for noise in (now.shared.distribution.noise, metrics["distribution/noise"]):
            np.testing.assert_allclose(noise, expected, rtol=1e-4)


def test_diverged_actors_leave_no_trace():
    made, weights = learner(), np.array([0, 0.4, 0.6, 0, 0, 0], np.float32)
    start = population()
    broken = jax.tree.map(np.array, start.members.learned.policy)
    for x in jax.tree.leaves(broken):
        x[0], x[5] = np.nan, np.inf
    ill = start._replace(members=start.members._replace(learned=start.members.learned._replace(policy=broken)))
    a, b = (made.tell(x, UID, weights, jax.random.key(0))[0].shared for x in (start, ill))
    assert same(a, b)


def test_members_are_sampled_around_the_policy_that_the_mean_is_given():
    """As widely as before."""
    made, start = learner(), population()
    actor = made.mean(start)
    policy = jax.tree.map(lambda x: x + np.float32(1), actor.policy)
    after = made.with_mean(start, actor._replace(policy=policy)).shared.distribution
    assert same(after.mean, policy) and same(after[1:], start.shared.distribution[1:])


def test_where_nobody_was_measured_nothing_moves():
    made = learner()
    start = population()
    end, metrics = made.tell(start, UID, np.zeros(N, np.float32), jax.random.key(0))
    assert same(end, start) and float(metrics["step/norm"]) == 0


def widened() -> Population:
    """A population whose distribution is different in every parameter."""
    start, rng = population(), np.random.default_rng(0)
    variance = jax.tree.map(
        lambda x: rng.uniform(0.1, 1.0, x.shape).astype(np.float32), start.shared.distribution.variance
    )
    distribution = start.shared.distribution._replace(variance=variance)
    return start._replace(shared=start.shared._replace(distribution=distribution))


def test_draws():
    """Normal around the mean with the variance of each parameter; optimisers, targets and counts begin anew."""
    made = learner()
    start = widened()
    mean, scale = one(start.shared.distribution.mean), np.sqrt(one(start.shared.distribution.variance))
    drawn = [made.draw(start, UID, jax.random.key(i)) for i in range(300)]
    normal = np.concatenate([(flat(p.members.learned.policy) - mean) / scale for p in drawn])
    count = len(normal)
    assert np.abs(normal.mean(0)).max() < 5 / count**0.5
    assert np.abs(normal.var(0) - 1).max() < 5 * (2 / count) ** 0.5
    assert np.abs(np.corrcoef(normal.T) - np.eye(normal.shape[1])).max() < 6 / count**0.5
    learned = drawn[0].members.learned
    assert same(learned.policy, learned.target_policy)

    def new(policy: Any) -> Any:
        return made.agent.init(jax.random.key(0), ()).learned._replace(policy=policy, target_policy=policy)

    assert same(learned, jax.jit(jax.vmap(new))(learned.policy))
    assert same(drawn[0].shared, start.shared)
    assert not same(drawn[0].members, drawn[1].members)


def test_a_member_depends_on_key_and_uid_alone():
    made = learner()
    start = widened()
    a = made.draw(start, UID, jax.random.key(1))
    b = made.draw(start, UID[::-1].copy(), jax.random.key(1))
    assert same(a.members, jax.tree.map(lambda x: x[::-1], b.members))


def test_mirrored_pairs():
    made = learner(mirrored=True)
    start = widened()
    steps = flat(made.draw(start, UID, jax.random.key(1)).members.learned.policy) - one(start.shared.distribution.mean)
    np.testing.assert_allclose(steps[: N // 2], -steps[N // 2 :], rtol=1e-3, atol=1e-5)
    for i in range(N // 2):
        for j in range(i):
            assert np.abs(steps[i] - steps[j]).max() > 0.1 < np.abs(steps[i] + steps[j]).max()


def test_actors_of_rows():
    """Members at their rows, as they are now; the mean above them."""
    made = learner()
    start = widened()
    rows = np.arange(N + 2)
    found = jax.device_get(made.actors(start, rows, UID[np.minimum(rows, N - 1)], jax.random.key(0)))
    assert same(jax.tree.map(lambda x: x[:N], found), start.members.learned)
    for row in (N, N + 1):
        assert same(jax.tree.map(lambda x, row=row: x[row], found), made.mean(start))
    assert same(made.mean(start).policy, start.shared.distribution.mean)


def test_agents_act_with_what_members_and_mean_have():
    made, obs = learner(), np.random.default_rng(0).normal(size=(N, 3, 2)).astype(np.float32)
    start = widened()
    shape = jax.eval_shape(lambda: made.agent.init(jax.random.key(0), made.agent.hyper)).learned
    assert jax.tree.structure(made.mean(start)) == jax.tree.structure(shape)
    together, members = np.asarray(made.act_deterministic(start, obs, ())[0]), jax.device_get(start.members.learned)
    alone = jax.jit(made.agent.act_deterministic)
    for i in range(N):
        learned = jax.tree.map(lambda x, i=i: x[i], members)
        close(together[i], alone(learned, obs[i], ())[0])
    assert same(made.act(start, obs, (), jax.random.split(jax.random.key(0), N))[0], together)


@pytest.mark.parametrize(
    ("steps", "last", "ratio", "count"),
    [(7, 5, 1, 0), (8, 5, 1, 5), (100, 1000, 0.5, 500), (100, 3, 0.5, 1), (9, 0, 1, 0)],
)
def test_number_of_updates(steps, last, ratio, count):
    made = learner()
    hyper = jax.tree.map(lambda x: np.full(N, x, np.float32), made.agent.hyper._replace(update_ratio=ratio))
    assert made.updates(hyper, steps, last) == count


@pytest.mark.parametrize(
    ("members", "options"),
    [
        (5, {"mirrored": True}),
        (6, {"gradient_members": 7}),
        (6, {"gradient_members": -1}),
        (6, {"variance": 0.0}),
        (6, {"noise_end": -1e-5}),
        (6, {"noise_decay": 1.5}),
        (1, {}),
    ],
    ids=shown,
)
def test_bad_settings(members, options, said):
    with pytest.raises(BadInput) as error:
        CemRl(**options).validate(td3(SPEC, **SETTINGS), members)
    said(error.value)


def test_agents_that_it_does_not_train(said):
    with pytest.raises(BadInput) as error:
        CemRl().learner(ppo(SPEC), N)
    said(error.value)
