"""PB2: the process against plain linear algebra, what is observed by hand, and a toy whose optimum moves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from shoal.core.evolution import Cards, Evolver, Range
from shoal.methods.evolving import Pb2
from shoal.methods.pb2.evolver import pb2
from shoal.methods.pb2.process import FORGETTING, LENGTHS, NOISES, Process, fitted, highest_bound
from shoal.methods.pbt.explore import Perturb
from shoal.methods.pbt.select import Truncation

NAN = math.nan
SPACE = {"rate": Range(1e-4, 1.0, "log"), "kind": Range(choices=(1.0, 2.0, 4.0)), "width": Range(1, 9, integer=True)}


# ----------------------------------------------------------------------------------------- the process


def test_the_posterior_of_two_observations() -> None:
    """By hand: distances 0.3, 0.4 and 0.5, two generations apart, as correlations of a 2 x 2 matrix."""
    process = Process(
        np.array([[0.0, 0.0], [0.3, 0.4]]), np.array([1.0, 3.0]), np.array([1.0, -1.0]), 0.5, 0.19, 0.1, 2.0
    )
    between, here = (
        math.exp(-0.5) * 0.81,
        np.array([math.exp(-0.18) * 0.81, math.exp(-0.32)]),
    )  # 0.9 to the power of 2, 2, 0
    inverse = np.array([[1.1, -between], [-between, 1.1]]) / (1.1**2 - between**2)
    mean, deviation = process.predict(np.array([[0.3, 0.0]]), 3.0)
    assert mean[0] == pytest.approx(here @ inverse @ [1, -1])
    assert deviation[0] == pytest.approx(math.sqrt(2 * (1 - here @ inverse @ here)))


def drawn(n: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x, t = generator.random((n, 2)), np.arange(n) // 5
    y = np.sin(5 * x[:, 0]) + 0.3 * x[:, 1] + 0.05 * generator.normal(size=n)
    return x, t.astype(float), (y - y.mean()) / y.std()


def test_the_likeliest_of_the_grid() -> None:
    """Against the density of SciPy's normal distribution, at every point of the grid."""
    x, t, y = drawn(12)
    found = {}
    for length in LENGTHS:
        for forgetting in FORGETTING:
            for noise in NOISES:
                squares = ((x[:, None] - x[None]) ** 2).sum(-1)
                a = np.exp(-squares / (2 * length**2)) * (1 - forgetting) ** (abs(t[:, None] - t[None]) / 2)
                a += noise * np.eye(12)
                variance = y @ np.linalg.solve(a, y) / 12
                density = multivariate_normal(np.zeros(12), variance * a, allow_singular=True).logpdf(y)
                found[length, forgetting, noise] = density, variance
    best = max(found, key=lambda key: found[key][0])
    process = fitted(x, t, y)
    assert (process.length, process.forgetting, process.noise) == best
    assert process.variance == pytest.approx(found[best][1])


def test_the_gradient_of_the_bound() -> None:
    process, points = fitted(*drawn()), np.array([[0.3, 0.6], [0.9, 0.1]])
    values, gradients = process.bound(points, 7.0, 0.8)
    mean, deviation = process.predict(points, 7.0)
    np.testing.assert_allclose(values, mean + 0.8 * deviation)
    for i in range(2):
        step = np.eye(2)[i] * 1e-6
        slopes = (process.bound(points + step, 7.0, 0.8)[0] - process.bound(points - step, 7.0, 0.8)[0]) / 2e-6
        np.testing.assert_allclose(gradients[:, i], slopes, rtol=1e-4)


def test_what_is_expected_is_explored_no_more() -> None:
    """A pending point moves no mean, and leaves less to learn near it."""
    process, points = fitted(*drawn()), np.random.default_rng(1).random((20, 2))
    after = process.expecting(points[0], 6.0)
    before, now = process.predict(points, 6.0), after.predict(points, 6.0)
    np.testing.assert_allclose(now[0], before[0], atol=1e-8)
    assert (now[1] <= before[1] + 1e-9).all() and now[1][0] < before[1][0]


def test_the_highest_bound_is_found() -> None:
    """No point of a fine grid has a higher one; a coordinate that is not free stays."""
    process, starts = fitted(*drawn()), np.random.default_rng(2).random((10, 2))
    kappa = math.sqrt(0.2 * math.log(0.4 * 30))
    side = np.linspace(0, 1, 60)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    mean, deviation = process.predict(grid, 6.0)
    best = highest_bound(process, starts, [0, 1], [], 6.0)
    assert process.bound(best[None], 6.0, kappa)[0] >= (mean + kappa * deviation).max() - 1e-5
    starts[:, 1] = 0.25
    assert highest_bound(process, starts, [0], [], 6.0)[1] == 0.25


def test_every_choice_is_tried() -> None:
    """The fifth of eight pays, which no start has."""
    kinds, generator = np.arange(24) % 8, np.random.default_rng(3)
    x = np.column_stack([generator.random(24), np.eye(8)[kinds] / math.sqrt(2)])
    process = fitted(x, np.zeros(24), (kinds == 4) * 3.0 - 0.375 + 0.1 * x[:, 0])
    starts = x[kinds < 4][:10]
    best = highest_bound(process, starts, [0], [np.arange(1, 9)], 1.0)
    assert best[1:].argmax() == 4 and np.count_nonzero(best[1:]) == 1
    side = np.linspace(0, 1, 60)
    grid = np.column_stack([np.repeat(side, 8), np.tile(np.eye(8) / math.sqrt(2), (60, 1))])
    kappa = math.sqrt(0.2 * math.log(0.4 * 24))
    assert process.bound(best[None], 1.0, kappa)[0] >= process.bound(grid, 1.0, kappa)[0].max() - 1e-5


def test_what_no_longer_holds_is_forgotten() -> None:
    """The same points with the opposite values: those of today count."""
    x = np.linspace(0, 1, 8)[:, None]
    y = np.where(x[:, 0] > 0.5, 1.0, -1.0)
    process = fitted(np.vstack([x, x]), np.repeat([0.0, 30.0], 8), np.append(-y, y))
    assert process.forgetting > 0
    assert (process.predict(x, 30.0)[0] * y > 0.3).all()
    assert highest_bound(process, x, [0], [], 30.0)[0] > 0.5


# ------------------------------------------------------------------------------------------ the evolver


def cards(fitness: list[float], generation: int, hyper: dict[str, Any], uid: np.ndarray | None = None) -> Cards:
    n = len(fitness)
    steps = np.full(n, 100 * (generation + 1))
    values = {name: np.array(np.broadcast_to(x, n), np.float32) for name, x in hyper.items()}
    whole, uid = np.zeros(n, np.int64), np.arange(n) if uid is None else uid
    return Cards(uid, whole + generation, steps, np.array(fitness, float), np.full(n, NAN), whole + 1, values, whole)


def evolver(rows: int = 16) -> Evolver:
    return pb2(Truncation(), Perturb(), SPACE, {}, 0, rows)


def test_what_is_observed() -> None:
    """By hand: member 0 copies 3 after the first generation, so that its next row goes on from the fitness of 3."""
    bandit = evolver(5)
    state, hyper = bandit.init((0,), np.arange(4))
    mine = np.arange(4)
    state, decision = bandit.decide((0, 0), state, cards([1, 2, 3, 4], 0, hyper), mine)
    assert decision.parents.tolist() == [3, 1, 2, 3] and np.isnan(state["rows"]).all()
    assert state["before"].tolist() == [4, 2, 3, 4]
    after = {"rate": [1e-4, 1e-2, 1.0, 0.1], "kind": [1, 4, 2, 1], "width": [1, 9, 5, 3]}
    state, _ = bandit.decide((0, 1), state, cards([6, 2, NAN, 3], 1, after), mine)
    expected = [[1, 4, 0.02, 0, 0, 0], [1, 2, 0, 0.5, 1, 1], [1, 4, -0.01, 0.75, 0, 0.25]]
    np.testing.assert_allclose(state["rows"], [[NAN] * 6] * 2 + expected, atol=1e-6)
    assert state["since"].tolist() == [200] * 4
    again = {name: [x[0]] * 4 for name, x in after.items()}
    state, _ = bandit.decide((0, 2), state, cards([6, 3, 1, 5], 2, again), mine)  # five fit
    assert len(state["rows"]) == 5 and state["rows"][:2, 0].tolist() == [1, 2]


@pytest.mark.parametrize("n", [3, 6])
def test_any_order_any_fitness(n: int) -> None:
    """The same decision in any order of the cards, with valid values, whatever is NaN or equal."""
    generator = np.random.default_rng(n)
    bandit = evolver()
    state, hyper = bandit.init((0,), np.arange(n))
    other, everybody = state, np.arange(n)
    for generation in range(4):
        fitness = generator.integers(0, 4, n).astype(float)
        fitness[generator.random(n) < 0.2] = NAN
        seen = cards(fitness.tolist(), generation, hyper)
        order = generator.permutation(n)
        state, decision = bandit.decide((0, generation), state, seen, everybody)
        other, shuffled = bandit.decide((0, generation), other, seen.take(order), everybody)
        assert order[shuffled.parents].tolist() == decision.parents[order].tolist()
        hyper = decision.hyper
        for name, x in hyper.items():
            np.testing.assert_array_equal(shuffled.hyper[name], x[order])
        np.testing.assert_array_equal(state["rows"], other["rows"])
        assert ((hyper["rate"] >= 1e-4) & (hyper["rate"] <= 1)).all() and set(hyper["kind"]) <= {1, 2, 4}
        assert set(hyper["width"]) <= set(range(1, 10))
        if np.isfinite(fitness).any():
            assert np.isfinite(fitness[decision.parents]).all()


def test_children_of_one_parent_differ() -> None:
    bandit = evolver()
    state, hyper = bandit.init((0,), np.arange(8))
    for generation in range(5):
        gain = [float(generation * i) for i in range(8)]
        state, decision = bandit.decide((0, generation), state, cards(gain, generation, hyper), np.arange(8))
        hyper = decision.hyper
        assert set(decision.metrics) == set(Pb2.tells)
        assert all(np.isnan(x) == (generation == 0) for x in decision.metrics.values())
    assert decision.metrics["pb2/length"] in LENGTHS and decision.metrics["pb2/noise"] in NOISES
    assert (decision.parents[:2] >= 6).all()
    assert any(x[0] != x[1] for x in hyper.values())


def test_what_one_child_will_find_out_leaves_another_elsewhere_to_go() -> None:
    """One hyperparameter, whose best value is known by and by: twins do not both get it."""
    space, distances = {"rate": Range(0.0, 1.0)}, []
    for seed in range(8):
        bandit, everybody = pb2(Truncation(), Perturb(), space, {}, 0, 32), np.arange(8)
        state, hyper = bandit.init((seed,), everybody)
        fitness = np.zeros(8)
        for generation in range(4):
            fitness = fitness + 1 - np.abs(hyper["rate"] - 0.4)
            seen = cards(fitness.tolist(), generation, hyper)
            state, decision = bandit.decide((seed, generation), state, seen, everybody)
            hyper, fitness = decision.hyper, fitness[decision.parents]
        one, other = np.flatnonzero(decision.parents != everybody)
        distances.append(abs(float(hyper["rate"][one] - hyper["rate"][other])))
    assert np.median(distances) > 0.01


def test_it_follows_an_optimum_that_moves() -> None:
    """Fitness rises by 1 less the distance from an optimum: at first (0.2, 0.8, 0.5), later (0.8, 0.2, 0.5). The last child
    gets what is good now, and so it does with half of the rows, of which none is old."""
    space = {name: Range(0.0, 1.0) for name in "abc"}
    for rows in (48, 24):
        bandit = pb2(Truncation(1 / 8, 1 / 8), Perturb(), space, {}, 0, rows)
        generator, everybody = np.random.default_rng(0), np.arange(8)
        state, _ = bandit.init((0,), everybody)
        fitness = np.zeros(8)
        for generation in range(7):
            at = generator.random((8, 3))
            optimum = [0.2, 0.8, 0.5] if generation < 4 else [0.8, 0.2, 0.5]
            fitness = fitness + 1 - np.abs(at - optimum).sum(1)
            seen = cards(fitness.tolist(), generation, dict(zip("abc", at.T, strict=True)))
            state, decision = bandit.decide((0, generation), state, seen, everybody)
            fitness = fitness[decision.parents]
        (child,) = np.flatnonzero(decision.parents != everybody)
        found = np.array([decision.hyper[name][child] for name in "abc"])
        assert np.abs(found - [0.8, 0.2, 0.5]).sum() < 0.5, found
