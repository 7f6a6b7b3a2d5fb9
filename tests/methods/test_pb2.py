"""PB2: the process against plain linear algebra, what is observed by hand, and a toy whose optimum moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from shoal.core.population import PopulationStats, PureEvolver
from shoal.core.space import Range, SearchSpace
from shoal.methods.explore import Perturb
from shoal.methods.gaussian_process import FORGETTING, LENGTHS, NOISES, Process, fitted, highest_bound
from shoal.methods.pb2 import Pb2, around, gains, resized
from shoal.methods.select import Truncation

NAN, WHOLE = math.nan, (0.0, 1.0)
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
    mean, std = process.predict(np.array([[0.3, 0.0]]), 3.0)
    assert mean[0] == pytest.approx(here @ inverse @ [1, -1])
    assert std[0] == pytest.approx(math.sqrt(2 * (1 - here @ inverse @ here)))


def drawn(n: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x, t = generator.random((n, 2)), np.arange(n) // 5
    y = np.sin(5 * x[:, 0]) + 0.3 * x[:, 1] + 0.05 * generator.normal(size=n)
    return x, t.astype(float), (y - y.mean()) / y.std()


def test_the_likeliest_of_the_grid() -> None:
    """Against the density of SciPy's normal distribution, at every point of the grid."""
    x, t, y = drawn(12)
    found = {}
    for length in np.array(LENGTHS) * math.sqrt(2):
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
    mean, std = process.predict(points, 7.0)
    np.testing.assert_allclose(values, mean + 0.8 * std)
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
    mean, std = process.predict(grid, 6.0)
    best = highest_bound(process, starts, [0, 1], [], 6.0, WHOLE)
    assert process.bound(best[None], 6.0, kappa)[0] >= (mean + kappa * std).max() - 1e-5
    starts[:, 1] = 0.25
    assert highest_bound(process, starts, [0], [], 6.0, WHOLE)[1] == 0.25
    starts = np.random.default_rng(2).uniform([0.1, 0.5], [0.3, 0.9], (10, 2))
    inside = grid[((grid >= [0.1, 0.5]) & (grid <= [0.3, 0.9])).all(1)]
    mean, std = process.predict(inside, 6.0)
    best = highest_bound(process, starts, [0, 1], [], 6.0, (np.array([0.1, 0.5]), np.array([0.3, 0.9])))
    assert (best >= [0.1, 0.5]).all() and (best <= [0.3, 0.9]).all()
    assert process.bound(best[None], 6.0, kappa)[0] >= (mean + kappa * std).max() - 1e-5


def test_every_choice_is_tried() -> None:
    """The fifth of eight pays, which no start has."""
    kinds, generator = np.arange(24) % 8, np.random.default_rng(3)
    x = np.column_stack([generator.random(24), np.eye(8)[kinds] / math.sqrt(2)])
    process = fitted(x, np.zeros(24), (kinds == 4) * 3.0 - 0.375 + 0.1 * x[:, 0])
    starts = x[kinds < 4][:10]
    best = highest_bound(process, starts, [0], [np.arange(1, 9)], 1.0, WHOLE)
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
    assert highest_bound(process, x, [0], [], 30.0, WHOLE)[0] > 0.5


# ------------------------------------------------------------------------------------------ the evolver


def stats(
    fitness: list[float], generation: int, hyper: dict[str, Any], uid: np.ndarray | None = None
) -> PopulationStats:
    n = len(fitness)
    steps = np.full(n, 100 * (generation + 1))
    values = {name: np.array(np.broadcast_to(x, n), np.float32) for name, x in hyper.items()}
    whole, uid = np.zeros(n, np.int64), np.arange(n) if uid is None else uid
    return PopulationStats(uid, whole + generation, steps, np.array(fitness, float), np.full(n, NAN), whole + 1, values)


def pb2(space: dict[str, Range], rows: int) -> PureEvolver:
    return Pb2(select=Truncation(), explore=Perturb(), window=rows).evolver(SearchSpace(space, {}, {}), 8)


def evolver(rows: int = 16) -> PureEvolver:
    return pb2(SPACE, rows)


def test_what_is_observed() -> None:
    """By hand: member 0 copies 3 after the first generation, so that its next row goes on from the fitness of 3."""
    bandit = evolver(5)
    state, hyper = bandit.init((0,), np.arange(4))
    rows = np.arange(4)
    state, decision = bandit.decide((0, 0), state, stats([1, 2, 3, 4], 0, hyper), rows)
    assert decision.parents.tolist() == [3, 1, 2, 3] and np.isnan(state["rows"]).all()
    assert state["before"].tolist() == [4, 2, 3, 4]
    after = {"rate": [1e-4, 1e-2, 1.0, 0.1], "kind": [1, 4, 2, 1], "width": [1, 9, 5, 3]}
    state, _ = bandit.decide((0, 1), state, stats([6, 2, NAN, 3], 1, after), rows)
    diverged = [1, 3, -math.inf, 1, 0.5, 0.5]
    expected = [[1, 4, 0.02, 0, 0, 0], [1, 2, 0, 0.5, 1, 1], diverged, [1, 4, -0.01, 0.75, 0, 0.25]]
    np.testing.assert_allclose(state["rows"], [[NAN] * 6, *expected], atol=1e-6)
    assert state["since"].tolist() == [200] * 4
    again = {name: [x[0]] * 4 for name, x in after.items()}
    state, _ = bandit.decide((0, 2), state, stats([6, 3, 1, 5], 2, again), rows)  # five fit
    assert len(state["rows"]) == 5 and state["rows"][:2, 0].tolist() == [1, 2]


def test_what_the_bandit_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand, of eight members, one of which has diverged: gains beyond their generation's median, standardised and cut;
    places of a child at its parent's fitness and within the box, beside those of members that go on and of children before
    it; the time of the next generation. The box then grows with these children alone."""
    asked: list[tuple[Process, np.ndarray, float, Any]] = []

    def first(process: Process, starts: np.ndarray, free: Any, choices: Any, t: float, box: Any) -> np.ndarray:
        asked.append((process, starts, t, box))
        return starts[0]

    def seen(fitness: np.ndarray, generation: int, hyper: dict[str, Any]) -> PopulationStats:
        shown = stats(fitness.tolist(), generation, hyper)
        return shown._replace(steps=shown.steps + 1000 * everybody)  # some have begun earlier, as in other workers

    monkeypatch.setattr("shoal.methods.pb2.highest_bound", first)
    space = {"rate": Range(0.0, 1.0), "kind": Range(choices=(1.0, 2.0, 4.0))}
    bandit, everybody = pb2(space, 16), np.arange(8)
    state, hyper = bandit.init((0,), everybody)
    before = np.array([1.0, 2, 3, 4, 5, 6, 7, 8])
    state, decision = bandit.decide((0, 6), state, seen(before, 6, hyper), everybody)
    assert not asked and not state["tried"].any(), "nothing was known, and `explore` changed their values"
    before = before[decision.parents]
    rate, kind = np.linspace(0.0, 0.7, 8), np.array([0, 1, 2, 0, 1, 2, 0, 1])
    change = np.array([90.0, 1, -1, 2, -2, 3, -3, NAN])
    now = seen(before + change, 7, {"rate": rate, "kind": np.array([1.0, 2, 4])[kind]})
    state, decision = bandit.decide((0, 7), state, now, everybody)
    children = np.flatnonzero(decision.parents != everybody)
    assert len(children) == len(asked) == 2 and 7 in children and [t for _, _, t, _ in asked] == [8.0, 8.0]
    np.testing.assert_array_equal(np.flatnonzero(state["tried"]), children)

    def standardised(gains: np.ndarray) -> np.ndarray:
        y = np.nan_to_num(gains, nan=np.nanmin(gains))
        return np.clip((y - y.mean()) / y.std(), -2, 2)

    gains = change - np.nanmedian(change)
    known = [*before, *now.fitness[decision.parents]]  # what intervals have begun with, and what the next ones will

    def features(fitness: np.ndarray, members: np.ndarray) -> np.ndarray:
        shares = (fitness - min(known)) / (max(known) - min(known))
        return np.column_stack([shares, rate[members], np.eye(3)[kind[members]] / math.sqrt(2)])

    staying = np.delete(everybody, children)
    within = []
    for child, (process, starts, _, box), siblings in zip(children, asked, ([], asked[0][1][:1]), strict=True):
        expected = [*features(before, everybody), *features(now.fitness[staying], staying), *siblings]
        np.testing.assert_allclose(process.x, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(process.t, [7.0] * 8 + [8.0] * (len(expected) - 8))
        np.testing.assert_allclose(process.y[:8], standardised(gains))
        share = (now.fitness[decision.parents[child]] - min(known)) / (max(known) - min(known))
        np.testing.assert_allclose(starts[:, 0], share)
        centre = rate[decision.parents[child]]
        np.testing.assert_allclose(np.ravel(box), [max(centre - 0.1, 0), centre + 0.1], atol=1e-6)
        within.append((starts[:, 1] - box[0]) / (box[1] - box[0]))
    assert np.abs(within[0] - within[1]).max() > 0.1, "children begin their searches alike"

    change = np.zeros(8)
    change[staying], change[children] = [95, 96, 97, 98, 99, 100], [110, 120]  # the median is 98.5
    fitness = now.fitness[decision.parents] + change
    state, _ = bandit.decide((0, 8), state, seen(fitness, 8, decision.hyper), everybody)
    np.testing.assert_allclose(asked[-1][0].y[:16], standardised(np.append(gains, change - 98.5)))
    assert state["side"] == pytest.approx(0.2 * 1.25**2)


@pytest.mark.parametrize("n", [3, 6])
def test_any_order_any_fitness(n: int) -> None:
    """The same decision in any order of the stats, with valid values, whatever is NaN or equal."""
    generator = np.random.default_rng(n)
    bandit = evolver()
    state, hyper = bandit.init((0,), np.arange(n))
    other, everybody = state, np.arange(n)
    for generation in range(4):
        fitness = generator.integers(0, 4, n).astype(float)
        fitness[generator.random(n) < 0.2] = NAN
        seen = stats(fitness.tolist(), generation, hyper)
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
        state, decision = bandit.decide((0, generation), state, stats(gain, generation, hyper), np.arange(8))
        hyper = decision.hyper
        assert set(decision.metrics) == set(Pb2.metric_descriptions)
        assert all(np.isnan(x) == (generation == 0) for name, x in decision.metrics.items() if name != "pb2/side")
    assert (
        min(LENGTHS) <= decision.metrics["pb2/length"] / 2 <= max(LENGTHS) and decision.metrics["pb2/noise"] in NOISES
    )
    assert (decision.parents[:2] >= 6).all()
    assert any(x[0] != x[1] for x in hyper.values())


def test_what_one_child_will_find_out_leaves_another_elsewhere_to_go() -> None:
    """One hyperparameter, whose best value is known by and by: twins do not both get it."""
    space, distances = {"rate": Range(0.0, 1.0)}, []
    for seed in range(8):
        bandit, everybody = pb2(space, 32), np.arange(8)
        state, hyper = bandit.init((seed,), everybody)
        fitness = np.zeros(8)
        for generation in range(4):
            fitness = fitness + 1 - np.abs(hyper["rate"] - 0.4)
            seen = stats(fitness.tolist(), generation, hyper)
            state, decision = bandit.decide((seed, generation), state, seen, everybody)
            hyper, fitness = decision.hyper, fitness[decision.parents]
        one, other = np.flatnonzero(decision.parents != everybody)
        distances.append(abs(float(hyper["rate"][one] - hyper["rate"][other])))
    assert np.median(distances) > 0.01


@pytest.mark.slow
def test_it_follows_an_optimum_that_moves() -> None:
    """Fitness rises by 1 less the distance from an optimum: (0.2, 0.8, 0.5), which members come near to, then (0.8, 0.2,
    0.5). So it does with few rows, of which none is old. At random they would be 0.85 away, 0.4 is a seventh in each."""
    space = {name: Range(0.0, 1.0) for name in "abc"}
    for rows in (48, 16):
        bandit, everybody = pb2(space, rows), np.arange(8)
        state, hyper = bandit.init((0,), everybody)
        fitness, distances = np.zeros(8), []
        for generation in range(40):
            optimum = np.array([0.2, 0.8, 0.5] if generation < 20 else [0.8, 0.2, 0.5])
            away = np.abs(np.column_stack([hyper[name] for name in "abc"]) - optimum).sum(1)
            distances.append(float(np.median(away)))
            fitness = fitness + 1 - away
            state, decision = bandit.decide(
                (0, generation), state, stats(fitness.tolist(), generation, hyper), everybody
            )
            hyper, fitness = decision.hyper, fitness[decision.parents]
        assert distances[19] < 0.4 and distances[20] > 1 and distances[39] < 0.4, distances


# ---------------------------------------------------------------------------------- what children are given


def lived(
    seed: int, gain: Callable[[np.ndarray, np.random.Generator], np.ndarray], generations: int = 25
) -> np.ndarray:
    """The last rates of eight members in [0, 1], whose fitness changes by `gain` of them, and by what all share."""
    bandit, everybody = pb2({"rate": Range(0.0, 1.0)}, 60), np.arange(8)
    state, hyper = bandit.init((seed,), everybody)
    fitness, chance = np.zeros(8), np.random.default_rng(seed)
    for generation in range(generations):
        fitness = fitness + gain(hyper["rate"].astype(float), chance)
        seen = stats((fitness + 20 * chance.normal()).tolist(), generation, hyper)
        state, decision = bandit.decide((seed, generation), state, seen, everybody)
        hyper, fitness = decision.hyper, fitness[decision.parents]
    return hyper["rate"]


@pytest.mark.slow
def test_where_members_diverge_no_child_goes() -> None:
    """Beyond 0.6 they do, and up to there more is better: without these observations the region would keep its bonus.

    The two children of a generation may be a little beyond."""
    rates = np.concatenate([lived(seed, lambda rate, _: np.where(rate > 0.6, NAN, rate)) for seed in range(4)])
    assert (rates > 0.6).mean() <= 0.25 and np.median(rates) > 0.4


@pytest.mark.slow
def test_what_a_generation_has_in_common_is_no_signal() -> None:
    """Other episodes in each generation move all by 20, and rates by 1 at most."""
    rates = np.concatenate([lived(seed, lambda rate, _: 1 - np.abs(rate - 0.7)) for seed in range(4)])
    assert np.median(np.abs(rates - 0.7)) < 0.15


def test_the_median_of_a_generation_is_taken_out() -> None:
    """By hand: 5, 7 and 12 of one generation; 100 alone in another; and one that diverged."""
    rows = np.array([[0, 1, 5.0], [1, 1, 100], [0, 1, 12], [0, 1, 7], [0, 1, -math.inf]])
    assert gains(rows).tolist() == [-2, 0, 5, 0, -math.inf]


@pytest.mark.parametrize(
    ("gained", "side"),
    [([], 0.4), ([1.0], 0.5), ([-1.0], 0.4 * 2 / 3), ([-math.inf, 2, 2], 0.4 * 2 / 3 * 1.5625), ([0.0], 0.4)],
)
def test_the_box_grows_with_success_and_shrinks_with_failure(gained: list[float], side: float) -> None:
    assert resized(np.array(0.4), np.array(gained)) == pytest.approx(side)


def test_the_box_keeps_its_bounds() -> None:
    assert resized(np.array(0.4), np.full(50, -1.0)) == 0.05 and resized(np.array(0.4), np.ones(50)) == 1.6


def test_the_box_is_around_the_values_of_the_parent() -> None:
    """In the unit scale: 0.01 is halfway between 0.0001 and 1; 5 of 1 to 9 is, and reaches 4 and 6 at least; the third
    choice without an order is as near as any."""
    below, above = around(SPACE, {"rate": 0.01, "kind": 4.0, "width": 5.0}, 0.1)
    np.testing.assert_allclose(below, [0.45, 0, 3 / 8], atol=1e-6)
    np.testing.assert_allclose(above, [0.55, 1, 5 / 8], atol=1e-6)
    below, above = around({"kind": Range(choices=(1.0, 2.0, 4.0), ordered=True)}, {"kind": 4.0}, 0.1)
    assert (below[0], above[0]) == (0.5, 1)
