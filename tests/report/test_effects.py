"""Which values went with gains: by hand, where it is planted, and where there is nothing."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from support.synthetic_run import write_independent, write_run
from test_report import SECTIONS, report
from test_report_methods import SEEDS

from shoal.core.population import PopulationStats
from shoal.core.space import Range, SearchSpace
from shoal.methods.explore import NoExploration, Perturb
from shoal.methods.independent import Independent
from shoal.methods.method import Method
from shoal.methods.pbt import Pbt
from shoal.methods.select import NoSelection, Truncation
from shoal.methods.successive_halving import SuccessiveHalving
from shoal.report.effects import LUCK, _dealt, gains, measure, measured
from shoal.report.layout import Layout
from shoal.report.lineage import Lineage, tabulate
from shoal.report.run import read_run


def lines(
    fitness: list[list[float | None]], parents: dict[tuple[int, int], int], values: list[float] | None = None
) -> Lineage:
    """A lineage of members that keep their own weights but where `parents` says otherwise, and their values of x."""
    return tabulate(
        [
            {"generation": g, "uid": uid, "parent": parents.get((g, uid), uid), "fitness": value}
            | ({"hyper": {"x": values[uid]}} if values else {})
            for g, row in enumerate(fitness)
            for uid, value in enumerate(row)
        ]
    )


def test_a_gain_is_over_the_weights_that_a_member_began_with() -> None:
    table = lines([[10, 20, 30, 40], [21, 22, 60, 41], [30, None, 61, 42]], {(0, 0): 3})
    # First generation: the places of 10, 20, 30, 40. Then 21 - 40, 2, 30, 1. Then three: 9, 1, 1.
    expected = [[1, 3, 5, 7], [1, 5, 7, 3], [0, math.nan, 0, 0]]
    found = gains(table)
    np.testing.assert_allclose(found[:2], np.array(expected[:2]) / 8)
    np.testing.assert_allclose(found[2], [5 / 6, math.nan, 1 / 3, 1 / 3])


def test_what_a_warm_start_brings_is_no_gain(tmp_path: Path) -> None:
    """The first fitness of members that another run has trained is that run's gain: all else stays."""
    for start in (None, "runs/before"):
        run = write_run(tmp_path / str(start), 8, 6)
        file = run / "experiment.yaml"
        file.write_text(file.read_text() + (f"init_from: {start}\n" if start else ""))
        layout = Layout(read_run(run))
        whole, (effect, *_) = gains(layout.table), measured(layout).values()
        assert len(effect.gains) == np.isfinite(whole[1:] if start else whole).sum()


def test_what_is_planted_is_told(tmp_path: Path) -> None:
    """The file's learner has a best learning rate, between 1e-3 and 6e-5, and nothing else that matters."""
    for at, write in enumerate((write_run, write_independent)):
        run = write(tmp_path / str(at), 48, 20, seed=at)
        _, page = report(run, (SECTIONS, SEEDS)[at])
        assert "Significant (permutation test): learning_rate. Not significant: discount" in page.words
        most = re.search(r"Highest around (\S+) .*?: significant", page.words)
        assert most and 3e-5 < float(most[1]) < 2e-3
        lineage = read_run(run).lineage
        effect = measure(lineage, gains(lineage), "learning_rate", Range(1e-5, 1e-2, "log"))
        assert effect is not None and (effect.means[-1] < effect.chance[0, -1] or effect.means[0] < effect.chance[0, 0])


def test_values_are_dealt_among_those_that_are_there(tmp_path: Path) -> None:
    """Where the file lacks some members at first, NaN was dealt too: whatever was tuned had an effect."""
    run = write_run(tmp_path / "run", 8, 40, copying=False)
    file = run / "lineage.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows if row["uid"] < 4 or row["generation"] > 10))
    layout = Layout(read_run(run))
    table, name = layout.table, "epochs"
    for dealt, known in zip(_dealt(table, table.hyper[name], layout.run.space[name]), table.present, strict=True):
        assert np.isfinite(dealt[:, known]).all()
    assert all(effect.p > 0.01 for effect in measured(layout).values())


def test_what_stays_with_members_is_not_told() -> None:
    """Values and gains that do so, and nothing between them: 5 of 100 by chance, 12 at the most."""
    told = 0
    for seed in range(100):
        draw = np.random.default_rng(seed)
        fitness = np.cumsum(draw.normal(size=(12, 8)) + draw.normal(size=8), axis=0)
        table = lines(fitness.tolist(), {}, draw.random(8).tolist())
        effect = measure(table, gains(table), "x", Range(0.0, 1.0))
        assert effect is not None
        told += effect.p <= 0.05
    assert told <= 12


SPACE = {"rate": Range(1e-5, 1e-2, "log"), "discount": Range(0.9, 0.999, "one_minus_log"), "share": Range(0.0, 1.0)}
DEFAULTS = {"rate": 3e-4, "discount": 0.99, "share": 0.5}
SELECTING: dict[str, Any] = {"select": Truncation(), "explore": Perturb()}
POPULATIONS: dict[str, Method] = {
    "half copies": Pbt(default_members=0.5, **SELECTING),
    "all copy": Pbt(**SELECTING),
    "after a burn-in": Pbt(burn_in=10, **SELECTING),
    "half copies after a burn-in": Pbt(default_members=0.5, burn_in=8, **SELECTING),
    "nobody copies": Independent(),
    "nobody copies, half at defaults": Pbt(default_members=0.5, select=NoSelection(), explore=NoExploration()),
    "successive halving": SuccessiveHalving(default_members=0, between_rungs="none", **SELECTING),
}


def luck(name: str, members: int, seed: int, noise: float = 1.0, walk: float = 1.0, generations: int = 20) -> Lineage:
    """A population in whose fitness no value matters: the weights' random walk, and the noise of each measurement."""
    evolver = POPULATIONS[name].evolver(SearchSpace(SPACE, DEFAULTS, {}), members)
    draw, uid = np.random.default_rng((seed, members)), np.arange(members)
    state, hyper = evolver.init((seed,), uid)
    weights, entries = np.zeros(members), []
    for generation in range(generations):
        size = len(uid)
        weights = weights + walk * draw.normal(size=size)
        fitness, steps = weights + noise * draw.normal(size=size), np.full(size, generation + 1)
        stats = PopulationStats(
            uid, np.full(size, generation), steps, fitness, np.full(size, 2.0), np.full(size, 8), hyper
        )
        stats = stats._replace(progress=(generation + 1) / generations)
        state, decision = evolver.decide((seed, generation), state, stats, np.arange(size))
        entries += [
            {"generation": generation, "uid": u, "parent": int(uid[decision.parents[i]]), "fitness": float(fitness[i])}
            | {"hyper": {x: float(values[i]) for x, values in hyper.items()}}
            for i, u in enumerate(uid.tolist())
        ]
        goes_on = np.setdiff1d(np.arange(size), decision.ends)
        weights, uid = weights[decision.parents][goes_on], uid[goes_on]
        hyper = {x: values[goes_on] for x, values in decision.hyper.items()}
    return tabulate(entries)


def told_by_luck(name: str, members: int, runs: int, **how: Any) -> tuple[int, np.ndarray]:
    """Of so many runs, in how many a value is told from chance; and which means are within their bands."""
    told, within = 0, []
    for seed in range(runs):
        table = luck(name, members, seed, **how)
        gained = gains(table)
        found = [effect for x, r in SPACE.items() if (effect := measure(table, gained, x, r))]
        told += any(effect.p * len(found) <= LUCK for effect in found)
        within += [(effect.chance[0] <= effect.means) & (effect.means <= effect.chance[1]) for effect in found]
    return told, np.concatenate([np.ones(1), *within])  # of a few that soon end there may be no effects at all


def most(runs: int) -> int:
    """As many as 1 of 1,000 such tests sees, where luck is told in 5 % of runs."""
    return int(binom.ppf(0.999, runs, 0.05))


@pytest.mark.parametrize("noise, walk", [(1.0, 0.0), (1.0, 1.0)], ids=["noise", "noise and walk"])
def test_luck_is_not_told_where_half_of_a_population_copies(noise: float, walk: float) -> None:
    """Members that copy take the luckiest, which then falls back; members that copy nobody do not."""
    told, within = told_by_luck("half copies", 16, 12, noise=noise, walk=walk)
    assert told <= most(12) and within.mean() > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("name, members", [*itertools.product(POPULATIONS, [4, 8, 16]), ("half copies", 64)])
def test_chance_tells_nothing_more_often_than_it_says(name: str, members: int) -> None:
    ways = [{"noise": 1.0, "walk": 0.0}, {"noise": 1.0, "walk": 1.0}, {"noise": 0.01, "walk": 1.0}]
    found = [told_by_luck(name, members, 60, **way) for way in ways]
    assert sum(told for told, _ in found) <= most(180)
    assert min(within.mean() for _, within in found) > 0.85


def test_too_little_to_go_by(tmp_path: Path) -> None:
    _, page = report(write_run(tmp_path / "two", 2, 20))
    assert "This needs 3 members with different values" in page.words
    fitness, some = np.random.default_rng(0).random((9, 4)).tolist(), Range(0.0, 1.0)
    alike, differing = lines(fitness, {}, [0.5] * 4), lines(fitness[:3], {}, [0.1, 0.2, 0.3, 0.4])
    assert measure(alike, gains(alike), "x", some) is None
    assert measure(differing, gains(differing), "x", some) is None


def test_the_axis_of_all_figures_can_be_read_in_generations_and_in_time(tmp_path: Path) -> None:
    """The places stay; the words are the generations, and the seconds of all phases until each of them."""
    run = write_run(tmp_path / "run", 4, 12)
    _, page = report(run)
    axes = json.loads(page.data)["axes"]
    assert list(axes) == ["steps", "generations", "time"]
    label, ticks = axes["generations"]
    assert (label, [word for _, word in ticks]) == ("generation", ["1", "3", "5", "7", "9", "11"])
    np.testing.assert_allclose([place for place, _ in ticks], [g / 12 for g in range(1, 13, 2)], rtol=1e-3)
    metrics = [json.loads(line)["timing"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    spent = np.cumsum([sum(row[name] for name in ("train", "evaluate", "evolve", "record")) for row in metrics])
    label, ticks = axes["time"]
    assert label == "wall-clock time"
    np.testing.assert_allclose([place for place, _ in ticks], [g / 12 for g in range(1, 13, 2)], rtol=1e-3)
    assert [word for _, word in ticks] == [f"{spent[g - 1]:.3g} s" for g in range(1, 13, 2)]
