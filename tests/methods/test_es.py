"""Evolution strategies: ranks, the gradient and the steps of both optimisers against NumPy by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny import same

from shoal.agents.policy import policy
from shoal.core.population import PopulationStats
from shoal.core.space import SearchSpace
from shoal.core.spec import Discrete, Spec
from shoal.core.types import Agent, Member, Population, Rollout, SearchLearner
from shoal.members import mean as of_the_mean
from shoal.members.mean import OfMean
from shoal.methods.es import Es, EsHyper, centred_ranks

M, SIZE = 8, 6
UID = np.arange(M, dtype=np.uint32)
KEY = jax.random.key(3)
START = np.linspace(-1, 1, SIZE, dtype=np.float32)


class Learned(NamedTuple):
    params: Any


def point(size: int = SIZE) -> Agent:
    """A policy whose parameters are two vectors; it is never asked to act."""

    def init(key: Any, hyper: Any) -> Member:
        start = jnp.linspace(-1, 1, size)
        return Member(Learned({"a": start[:2], "b": start[2:].reshape(-1, 2)}), (), ())

    def nothing(*arguments: Any) -> Any:
        raise AssertionError

    return Agent(init, nothing, nothing, nothing, lambda shape: (), (), 1, 1)


def begin(learner: SearchLearner, members: int = M, **values: float) -> Population:
    hyper = jax.tree.map(lambda x: np.full(members, x, np.float32), EsHyper()._replace(**values))
    return jax.jit(learner.init)(KEY, np.arange(members, dtype=np.uint32), hyper)


def flat(params: Any) -> np.ndarray:
    return np.concatenate([np.asarray(params["a"]), np.asarray(params["b"]).reshape(-1)])


def rows_of(learner: SearchLearner, population: Population, rows: Any, uid: Any, key: Any = KEY) -> np.ndarray:
    """The parameters of members, [R, P]."""
    found = jax.jit(learner.actors)(population, np.asarray(rows), np.asarray(uid, np.uint32), key).params
    found = jax.device_get(found)
    return np.stack([flat(jax.tree.map(lambda x, i=i: x[i], found)) for i in range(len(rows))])


def mean_of(learner: SearchLearner, population: Population) -> np.ndarray:
    return flat(learner.mean(population).params)


# ----------------------------------------------------------------------------------------------- ranks


def test_centred_ranks() -> None:
    """By hand: 4 members at ranks 0 to 3, shared out evenly from -1/2 to 1/2."""
    np.testing.assert_allclose(centred_ranks(np.array([3.0, -1.0, 7.0, 0.0])), [1 / 6, -0.5, 0.5, -1 / 6], rtol=1e-6)


def test_ties_share_the_mean_of_their_ranks() -> None:
    """Ranks 1, 2 and 3 of 0 to 4 are tied: each counts as 2, the middle."""
    np.testing.assert_allclose(centred_ranks(np.array([5.0, 5.0, 9.0, 5.0, 1.0])), [0, 0, 0.5, 0, -0.5], atol=1e-7)
    assert (centred_ranks(np.full(6, 2.5)) == 0).all()


def test_what_is_not_finite_ranks_last() -> None:
    weights = centred_ranks(np.array([np.nan, 1.0, np.inf, 2.0, -np.inf]))
    np.testing.assert_allclose(weights, [-0.25, 0.25, -0.25, 0.5, -0.25])


@pytest.mark.parametrize("count", [2, 3, 7, 100])
def test_ranks_sum_up_to_nothing(count: int) -> None:
    fitness = np.random.default_rng(count).integers(0, 5, count).astype(np.float64)
    assert abs(centred_ranks(fitness).sum(dtype=np.float64)) < 1e-5


# ------------------------------------------------------------------------------------------ members


def test_members_are_mirrored_perturbations_of_the_mean() -> None:
    learner = Es("adam", chunk=4).learner(point(), M)
    population = begin(learner, sigma=0.1)
    members = rows_of(learner, population, np.arange(M + 2), [*UID, M - 1, M - 1])
    np.testing.assert_allclose(members[0:M:2] + members[1:M:2], np.tile(2 * START, (M // 2, 1)), atol=1e-6)
    assert len(np.unique(members[:M], axis=0)) == M
    np.testing.assert_allclose(members[M:], np.tile(START, (2, 1)), rtol=1e-6)  # the mean, and what fills up


def test_perturbations_have_the_deviation_sigma() -> None:
    learner = Es("adam", chunk=4).learner(point(400), M)
    population = begin(learner, 100, sigma=0.2)
    members = rows_of(learner, population, np.arange(100), np.arange(100))
    steps = members[::2] - np.linspace(-1, 1, 400)
    count = steps.size
    assert abs(steps.mean()) < 4 * 0.2 / count**0.5
    assert abs(steps.std() / 0.2 - 1) < 4 / (2 * count) ** 0.5
    correlations = np.corrcoef(steps)[np.triu_indices(50, 1)]
    assert np.abs(correlations).max() < 5 / 400**0.5


def test_a_member_is_the_same_wherever_it_is_measured() -> None:
    """Its key and uid say all of it, not its row, nor who is beside it."""
    learner = Es("adam", chunk=4).learner(point(), M)
    whole = rows_of(learner, begin(learner), np.arange(M), UID)
    part = rows_of(learner, begin(learner, 2), [0, 1], [4, 5])
    np.testing.assert_array_equal(part, whole[4:6])
    assert not np.isclose(rows_of(learner, begin(learner), np.arange(M), UID, jax.random.key(4)), whole).any()


# ----------------------------------------------------------------------------------------- steps


def gradient(members: np.ndarray, mean: np.ndarray, weights: np.ndarray, sigma: float, decay: float) -> np.ndarray:
    """Algorithm 2: the weighted mean of perturbations over sigma, less the decay of weights. All in float64."""
    noise = (members - mean) / sigma
    return (weights[:, None] * noise).mean(0) / sigma - decay * mean


@pytest.mark.parametrize(("chunk", "members"), [(3, M), (32, M), (1, 40)])
def test_sgd_with_momentum(chunk: int, members: int) -> None:
    learner = Es("sgd", chunk=chunk).learner(point(), M)
    population = begin(learner, members, sigma=0.1, learning_rate=0.03, momentum=0.8, weight_decay=0.01)
    uid, mean, velocity = np.arange(members), START.astype(np.float64), np.zeros(SIZE)
    for generation in range(3):
        key, weights = jax.random.key(generation), np.random.default_rng(generation).normal(size=members)
        drawn = rows_of(learner, population, uid, uid, key).astype(np.float64)
        g = gradient(drawn, mean, weights, 0.1, 0.01)
        velocity = 0.8 * velocity + g
        mean = mean + 0.03 * velocity
        step = jax.jit(learner.tell)
        population, metrics = step(population, jnp.asarray(uid, jnp.uint32), jnp.asarray(weights, jnp.float32), key)
        np.testing.assert_allclose(mean_of(learner, population), mean, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(metrics["gradient/norm"], np.linalg.norm(g), rtol=1e-3)
        np.testing.assert_allclose(metrics["step/norm"], 0.03 * np.linalg.norm(velocity), rtol=1e-3)


def test_adam() -> None:
    """Kingma & Ba 2015, algorithm 1."""
    learner = Es("adam", chunk=4).learner(point(), M)
    population = begin(learner, sigma=0.1, learning_rate=0.03, momentum=0.7, weight_decay=0.01)
    mean, first, second = START.astype(np.float64), np.zeros(SIZE), np.zeros(SIZE)
    for generation in range(4):
        key, weights = jax.random.key(generation), np.random.default_rng(generation).normal(size=M)
        g = gradient(rows_of(learner, population, UID, UID, key).astype(np.float64), mean, weights, 0.1, 0.01)
        first, second = 0.7 * first + 0.3 * g, 0.999 * second + 0.001 * g**2
        t = generation + 1
        mean = mean + 0.03 * (first / (1 - 0.7**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        weights = jnp.asarray(weights, jnp.float32)
        population, _ = jax.jit(learner.tell)(population, jnp.asarray(UID), weights, key)
        np.testing.assert_allclose(mean_of(learner, population), mean, rtol=1e-3, atol=1e-4)


def test_the_gradient_of_a_quadratic() -> None:
    """Of f(x) = -|x - c|^2 / 2, whose smoothed gradient is c - x, the mean of many estimates is that, within its error."""
    learner, sigma, runs = Es("sgd", chunk=8).learner(point(), M), 0.3, 400
    start = begin(learner, sigma=sigma, learning_rate=1.0, momentum=0.0, weight_decay=0.0)
    c = np.array([0.5, -1, 2, 0, 1, -2])

    @jax.jit
    def estimate(key: jax.Array) -> jax.Array:
        found = learner.actors(start, jnp.arange(M), jnp.asarray(UID), key).params
        x = jnp.concatenate([found["a"], found["b"].reshape(M, -1)], 1)
        fitness = -0.5 * jnp.square(x - jnp.asarray(c, jnp.float32)[None]).sum(1)
        after = learner.tell(start, jnp.asarray(UID), fitness, key)[0].shared.policy.params
        return jnp.concatenate([after["a"], after["b"].reshape(-1)]) - jnp.asarray(START)

    estimates = np.stack([estimate(key) for key in jax.random.split(KEY, runs)])
    error = estimates.std(0, ddof=1) / runs**0.5
    assert (np.abs(estimates.mean(0) - (c - START)) < 4 * error).all()
    assert (error < 0.2).all()  # or it would say nothing


def test_observations_without_a_shape_are_normalised_as_any() -> None:
    """A single number is as good as a vector of one."""
    obs = np.random.default_rng(0).normal(3, 2, (M, 2)).astype(np.float32)
    rows, alive, seen = np.arange(M) - 4, np.ones((M, 2), bool), []
    for shape in ((), (1,)):
        for known in (False, True):
            agent = policy(Spec(shape, "float32", Discrete(2)), layers=(4,), normalize_observations=known)
            learner = Es("adam", chunk=4).learner(agent, M)
            assert learner.watches == known
        step = Rollout(obs.reshape(M, 2, *shape), *[()] * 6)
        found = jax.jit(learner.watch)(begin(learner).shared, rows, step, alive)
        seen.append([np.ravel(x) for x in jax.tree.leaves(found)])
    for one, other in zip(*seen, strict=True):
        np.testing.assert_array_equal(one, other)
    assert any(len(x) == 1 and np.isclose(x[0], obs[4].mean()) for x in seen[0])


def test_the_mean_goes_on_with_the_observations_of_its_own_episodes() -> None:
    """Only of these, while they last, and from the next generation on; against NumPy."""
    agent = policy(Spec((2,), "float32", Discrete(2)), layers=(), normalize_observations=True)
    learner, obs = Es("sgd").learner(agent, M), np.random.default_rng(0).normal(3, 2, (3, M, 2, 2)).astype(np.float32)
    population, watch = begin(learner), jax.jit(learner.watch)
    first, alive = learner.mean(population).observations, np.ones((M, 2), bool)
    shared = watch(population.shared, np.arange(M) - 4, Rollout(obs[0], *[()] * 6), alive)  # row 4 is the mean
    alive[4, 1] = False
    shared = watch(shared, np.arange(M) - 4, Rollout(obs[1], *[()] * 6), alive)
    shared = watch(shared, np.arange(M) - 2 * M, Rollout(obs[2], *[()] * 6), alive)  # a chunk without it
    population = population._replace(shared=shared)
    assert same(learner.mean(population).observations, first), "statistics change amid a generation"
    after = learner.mean(jax.jit(learner.tell)(population, UID, np.ones(M, np.float32), KEY)[0]).observations
    seen = np.stack([obs[0, 4, 0], obs[0, 4, 1], obs[1, 4, 0]]).astype(np.float64)
    np.testing.assert_allclose(after.mean, seen.mean(0), rtol=1e-5)
    np.testing.assert_allclose(after.variance, seen.var(0), rtol=1e-4)


def test_a_mean_that_is_given_has_no_momentum_of_another() -> None:
    learner = Es("sgd", chunk=4).learner(point(), M)
    start = begin(learner)
    moved, _ = jax.jit(learner.tell)(start, jnp.asarray(UID), jnp.arange(M, dtype=jnp.float32), KEY)
    given = jax.tree.map(lambda x: x + np.float32(1), learner.mean(start))
    after = learner.with_mean(moved, given)
    assert same(learner.mean(after), given)
    assert same(after.shared.optimizer, start.shared.optimizer) and not same(
        moved.shared.optimizer, start.shared.optimizer
    )


def test_no_weights_no_step() -> None:
    learner = Es("adam", chunk=4).learner(point(), M)
    population = begin(learner, weight_decay=0.0)
    after, _ = jax.jit(learner.tell)(population, jnp.asarray(UID), jnp.zeros(M), KEY)
    np.testing.assert_allclose(mean_of(learner, after), START, rtol=1e-6)


# ------------------------------------------------------------------------------------------- the evolver


def stats(fitness: list[float], steps: int, hyper: dict[str, Any], episodes: int = 2) -> PopulationStats:
    n = len(fitness)
    zeros, x = np.zeros(n, np.int64), np.array(fitness, np.float64)
    return PopulationStats(np.arange(n), zeros, np.full(n, steps), x, zeros + np.nan, np.full(n, episodes), hyper)


def test_decays_end_where_they_are_told() -> None:
    evolver = Es(sigma_decay=0.5, sigma_end=0.15).evolver(SearchSpace({}, {}, {"sigma": 0.4, "learning_rate": 0.1}), 8)
    state, hyper = evolver.init((0,), np.arange(2))
    seen = []
    for _ in range(4):
        state, decision = evolver.decide((0,), state, stats([1, 2], 10, hyper), np.arange(2))
        hyper = decision.hyper
        seen.append(hyper["sigma"].tolist())
        assert hyper["learning_rate"].tolist() == [np.float32(0.1)] * 2
    np.testing.assert_allclose(seen, [[0.2] * 2, [0.15] * 2, [0.15] * 2, [0.15] * 2])
    np.testing.assert_allclose(decision.weights, [-0.5, 0.5])


def test_the_cap_follows_the_length_of_episodes() -> None:
    """Twice the mean length of the generation's own episodes: steps are counted since the run began."""
    start = EsHyper(episode_cap=1000.0)._asdict()
    evolver = Es(adaptive_cap=True).evolver(SearchSpace({}, {}, start), 8)
    state, hyper = evolver.init((0,), np.arange(3))
    state, decision = evolver.decide((0,), state, stats([1, 2, 3], 20, hyper), np.arange(3))
    assert decision.hyper["episode_cap"].tolist() == [20] * 3  # 60 steps in 6 episodes
    state, decision = evolver.decide((0,), state, stats([1, 2, 3], 51, hyper), np.arange(3))
    assert decision.hyper["episode_cap"].tolist() == [31] * 3  # 93 in 6: 15.5


def test_what_is_told_of_members_and_mean() -> None:
    hyper = {"sigma": np.full(4, 0.1, np.float32)}
    members = stats([3, 9, np.nan, 6], 25, hyper)
    mean, metrics = of_the_mean.mean_of(members, {"loss": np.array([1, np.nan, 3, np.nan])}, OfMean(5.0, 0.5, 2, 5.0))
    told = {name: float(x[0]) for name, x in metrics.items()}
    expected = {"loss": 2, "returns/mean": 6, "returns/variance": 6, "returns/max": 9, "returns/min": 3, "mean/rank": 3}
    assert told == expected
    assert (mean.uid.tolist(), mean.steps.tolist(), mean.fitness.tolist()) == ([0], [100], [5])
    assert (mean.std.tolist(), mean.episodes.tolist(), mean.hyper["sigma"].tolist()) == (
        [0.5],
        [2],
        [np.float32(0.1)],
    )
