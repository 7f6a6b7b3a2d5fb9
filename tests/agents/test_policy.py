"""A policy without a rule of its own: what it computes, what it remembers, and that nothing in it learns."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compiled import compiled
from support.messages import shown

from shoal.agents.policy import policy
from shoal.core import tree
from shoal.core.errors import BadInput
from shoal.core.spec import Box, Discrete, MultiDiscrete, Spec
from shoal.core.types import Agent, Member, Rollout
from shoal.methods.es import Es, EsHyper
from shoal.rl.independent import independent
from shoal.rl.normalize import Statistics

SPACES = {
    "discrete": Discrete(3),
    "multi_discrete": MultiDiscrete((2, 3)),
    "continuous": Box((-2.0, 0.0), (2.0, 10.0)),
}


def spec_of(kind: str, shape: tuple[int, ...] = (4,), dtype: str = "float32") -> Spec:
    return Spec(shape, dtype, SPACES[kind])


@functools.cache
def made(kind: str, **settings: Any) -> Agent:
    return compiled(policy(spec_of(kind), **settings))


def begun(agent: Agent, seed: int = 0, scale: float = 1.0) -> Any:
    """What a new member has learned; `scale` above 1 makes it sure of itself."""
    learned = agent.init(jax.random.key(seed), agent.hyper).learned
    return learned._replace(params=jax.tree.map(lambda x: scale * x, learned.params))


def observations(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("recurrent", [0, 5])
@pytest.mark.parametrize("kind", SPACES)
def test_shapes(kind, recurrent):
    spec, agent = spec_of(kind), made(kind, layers=(8,), lstm_hidden_size=recurrent)
    learned, obs = begun(agent), observations(7, 4)
    start = agent.carry((7,))
    assert jax.tree.map(np.shape, start) == (((7, 5), (7, 5)) if recurrent else ())
    assert not any(np.any(x) for x in jax.tree.leaves(agent.carry((2, 3))))
    greedy, after = agent.act_deterministic(learned, obs, start)
    sampled, carry, extras = agent.act(learned, agent.hyper, obs, start, jax.random.key(1))
    for action in (greedy, sampled):
        assert action.shape == (7, *spec.action.shape)
        assert action.dtype == spec.action.dtype
    for x in (after, carry):
        assert jax.tree.map(lambda a: (a.shape, a.dtype), x) == jax.tree.map(lambda a: (a.shape, a.dtype), start)
    assert extras == ()


@pytest.mark.slow
def test_images():
    """Convolutions, then the LSTM; numbers of 8 bits are shares of 255."""
    agent = policy(spec_of("discrete", (36, 36, 1), "uint8"), network="nature_cnn", layers=(), lstm_hidden_size=6)
    learned = begun(agent)
    obs = np.random.default_rng(0).integers(0, 256, (2, 36, 36, 1), np.uint8)
    (_, h), action = agent.act_deterministic(learned, obs, agent.carry((2,)))[::-1]
    assert action.shape == (2,) and h.shape == (2, 6)
    assert not jax.tree.leaves(learned.observations), "statistics of pixels that nobody asked for"
    shares = policy(spec_of("discrete", (36, 36, 1)), network="nature_cnn", layers=(), lstm_hidden_size=6)
    np.testing.assert_allclose(
        shares.act_deterministic(learned, obs / np.float32(255), agent.carry((2,)))[1][1], h, rtol=1e-4
    )


def test_the_whole_in_numpy():
    """A hidden layer, two steps of an LSTM (Hochreiter and Schmidhuber 1997, with forget gates), tanh of the output."""
    agent = made("continuous", layers=(8,), activation="relu", lstm_hidden_size=5)
    learned = begun(agent)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), learned.params)
    p = params["params"]
    cell, carry = p["OptimizedLSTMCell_0"], agent.carry((3,))
    c = h = np.zeros((3, 5), np.float32)
    for obs in observations(2, 3, 4):
        x = np.maximum(obs @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"], 0)
        i, f, g, o = (
            x @ cell[f"i{gate}"]["kernel"] + h @ cell[f"h{gate}"]["kernel"] + cell[f"h{gate}"]["bias"]
            for gate in "ifgo"
        )
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        expected = np.tanh(h @ p["Dense_1"]["kernel"] + p["Dense_1"]["bias"])
        action, carry = agent.act_deterministic(learned._replace(params=params), obs, carry)
        np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(carry, (c, h), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", SPACES)
def test_actions_depend_on_what_came_before(kind):
    agent = made(kind, layers=(), lstm_hidden_size=5)
    learned = begun(agent, scale=30)
    first, obs = observations(200, 4, seed=1), observations(200, 4, seed=2)
    fresh, _ = agent.act_deterministic(learned, obs, agent.carry((200,)))
    later, _ = agent.act_deterministic(learned, obs, agent.act_deterministic(learned, first, agent.carry((200,)))[1])
    assert (np.abs(np.asarray(fresh) - np.asarray(later)) > 0.1).mean() > 0.02


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("recurrent", [0, 5])
def test_acting(kind, recurrent):
    """Choices are drawn, and the likeliest is the greedy one; continuous actions have no noise."""
    agent = made(kind, layers=(), lstm_hidden_size=recurrent)
    learned, n = begun(agent, scale=60), 4000
    obs = np.broadcast_to(observations(4), (n, 4))
    greedy, _ = agent.act_deterministic(learned, obs, agent.carry((n,)))
    sampled, _, _ = agent.act(learned, agent.hyper, obs, agent.carry((n,)), jax.random.key(0))
    if kind == "continuous":
        np.testing.assert_array_equal(sampled, greedy)
        assert (np.abs(greedy) <= 1).all()
        return
    for drawn, best in zip(np.asarray(sampled).reshape(n, -1).T, np.asarray(greedy).reshape(n, -1).T, strict=True):
        counts = np.bincount(drawn)
        assert counts.argmax() == best[0] and 0 < counts.max() < n


@pytest.mark.parametrize(
    ("kind", "shape", "settings"),
    [
        *((kind, (4,), {"layers": (8,)}) for kind in SPACES),
        pytest.param("discrete", (1, 36, 36), {"network": "nature_cnn", "layers": ()}, marks=pytest.mark.slow),
    ],
)
def test_a_population_is_its_members(kind, shape, settings):
    agent = policy(spec_of(kind, shape), lstm_hidden_size=5, **settings)
    learner, n, own_greedy, own_act = independent(agent), 3, jax.jit(agent.act_deterministic), jax.jit(agent.act)
    population = jax.jit(learner.init)(jax.random.key(0), jnp.arange(n), agent.hyper)
    carry, alone = agent.carry((n, 2)), [agent.carry((2,))] * n
    keys = jax.random.split(jax.random.key(1), n)
    together = jax.device_get(population.members.learned)
    everything = [tree.take(together, i) for i in range(n)]
    for obs in observations(3, n, 2, *shape):
        greedy, _ = jax.jit(learner.act_deterministic)(population, obs, carry)
        action, carry, _ = jax.jit(learner.act)(population, obs, carry, keys)
        for i, learned in enumerate(everything):
            np.testing.assert_allclose(greedy[i], own_greedy(learned, obs[i], alone[i])[0], rtol=1e-4, atol=1e-6)
            expected, alone[i], _ = own_act(learned, agent.hyper, obs[i], alone[i], keys[i])
            np.testing.assert_allclose(action[i], expected, rtol=1e-4, atol=1e-6)
            for whole, part in zip(carry, alone[i], strict=True):
                np.testing.assert_allclose(whole[i], part, rtol=1e-4, atol=1e-6)


def test_nothing_is_learned():
    agent = policy(spec_of("discrete"), layers=(8,), lstm_hidden_size=5, normalize_observations=True)
    member = agent.init(jax.random.key(0), agent.hyper)
    obs, ends, number = observations(1, 1, 4), np.zeros((1, 1), bool), np.ones((1, 1), np.float32)
    rollout = Rollout(obs, number.astype(np.int32), number, obs, ends, ends, ())
    after, metrics = jax.jit(agent.update)(member, agent.hyper, rollout, jax.random.key(1))
    assert metrics == {} and isinstance(after, Member)
    jax.tree.map(np.testing.assert_array_equal, after, member)
    assert (agent.rollout_length, agent.num_envs, agent.space, agent.hyper._asdict()) == (1, 1, {}, {})


def test_observations_as_far_as_they_are_known():
    """By the statistics that came with the weights, and by nothing as long as there are none."""
    known, plain = (made("continuous", layers=(8,), normalize_observations=x) for x in (True, False))
    learned, obs = begun(known, scale=5), observations(6, 4)
    np.testing.assert_allclose(
        known.act_deterministic(learned, obs, ())[0], plain.act_deterministic(learned, obs, ())[0], rtol=1e-5
    )
    statistics = Statistics(jnp.float32([1, 2, 3, 4]), jnp.float32([4, 4, 9, 1]), jnp.float32(10))
    expected = plain.act_deterministic(learned, (obs - [1, 2, 3, 4]) / np.sqrt([4, 4, 9, 1]), ())[0]
    np.testing.assert_allclose(
        known.act_deterministic(learned._replace(observations=statistics), obs, ())[0], expected, rtol=1e-4, atol=1e-6
    )


@pytest.mark.slow
def test_images_are_normalised_as_shares_of_255():
    """Before anything is known of them, and by what evolution strategies have seen of them since."""
    images = np.random.default_rng(0).integers(0, 256, (6, 2, 3), np.uint8)
    told = []
    for dtype, obs in (("uint8", images), ("float32", np.float32(images) / 255)):
        learner = Es().learner(policy(spec_of("continuous", (2, 3), dtype), normalize_observations=True), 2)
        shared = learner.init(jax.random.key(0), jnp.arange(2), jax.tree.map(lambda x: np.ones(2), EsHyper())).shared
        first = learner.agent.act_deterministic(shared.policy, obs, ())[0]
        step = Rollout(obs[None], *[None] * 6)
        shared = learner.watch(shared, np.zeros(1, np.int32), step, np.ones((1, 6), bool))
        then = shared.policy._replace(observations=shared.seen)
        told.append((first, shared.seen, learner.agent.act_deterministic(then, obs, ())[0]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), *told)


def test_observations_that_are_not_finite_leave_statistics_alone():
    """One NaN would stay in them for ever, and with it every policy that is drawn around this one."""
    learner = Es().learner(policy(spec_of("continuous"), layers=(), normalize_observations=True), 2)
    shared = learner.init(jax.random.key(0), jnp.arange(2), jax.tree.map(lambda x: np.ones(2), EsHyper())).shared
    obs = observations(1, 6, 4)
    step = Rollout(np.where(np.arange(6)[:, None] < 4, obs, np.float32(np.nan)), *[None] * 6)
    shared = learner.watch(shared, np.zeros(1, np.int32), step, np.ones((1, 6), bool))
    statistics = shared.seen
    np.testing.assert_allclose(statistics.mean, obs[0, :4].mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(statistics.variance, obs[0, :4].var(0), rtol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"network": "mpl"},
        {"network": {"name": "mlp", "width": 3}},
        {"network": {"width": 3}},
        {"network": {"name": "shoal.rl.networks:MLP", "width": 3}},
        {"network": "nature_cnn"},
        {"activation": "rely"},
        {"layers": (4, 0)},
        {"lstm_hidden_size": -1},
        {"lstm_hiden_size": 4},
    ],
    ids=shown,
)
def test_bad_settings(settings, said):
    with pytest.raises(BadInput) as error:
        policy(spec_of("discrete"), **settings)
    said(error.value)
