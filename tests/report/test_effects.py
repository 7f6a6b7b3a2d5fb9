"""Which values went with gains: by hand, where it is planted, and where there is nothing."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
from support.synthetic_run import write_run, write_seeds
from test_report import SECTIONS, report
from test_report_methods import SEEDS

from shoal.report.effects import gains, measure
from shoal.report.lineage import Lineage, tabulate
from shoal.report.run import read_run


def lines(fitness: list[list[float | None]], parents: dict[tuple[int, int], int]) -> Lineage:
    """A lineage of members that keep their own weights but where `parents` says otherwise."""
    return tabulate(
        [
            {"generation": g, "uid": uid, "parent": parents.get((g, uid), uid), "fitness": value}
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


def test_what_is_planted_is_told(tmp_path: Path) -> None:
    """The file's learner has a best learning rate, between 1e-3 and 6e-5, and nothing else that matters."""
    for at, write in enumerate((write_run, write_seeds)):
        run = write(tmp_path / str(at), 48, 20, seed=at)
        _, page = report(run, (SECTIONS, SEEDS)[at])
        assert "More than chance gives: learning_rate. Not told from chance: discount" in page.words
        most = re.search(r"Most around (\S+) .*?: more than chance gives", page.words)
        assert most and 3e-5 < float(most[1]) < 2e-3
        lineage = read_run(run).lineage
        effect = measure(gains(lineage), lineage.hyper["learning_rate"])
        assert effect is not None and (effect.means[-1] < effect.chance[0, -1] or effect.means[0] < effect.chance[0, 0])


def test_chance_tells_nothing_more_often_than_it_says() -> None:
    """Values that stay with a member, gains that do so too, and nothing between them: 5 of 100 by chance, 12 at the most."""
    told = 0
    for seed in range(100):
        draw = np.random.default_rng(seed)
        fitness = np.cumsum(draw.normal(size=(12, 8)) + draw.normal(size=8), axis=0)
        values = np.repeat(draw.random((1, 8)), 12, axis=0)
        effect = measure(gains(lines(fitness.tolist(), {})), values)
        assert effect is not None
        told += effect.p <= 0.05
    assert told <= 12


def test_too_little_to_go_by(tmp_path: Path) -> None:
    _, page = report(write_run(tmp_path / "two", 2, 20))
    assert "This needs 3 members with different values" in page.words
    fitness = np.random.default_rng(0).random((9, 4)).tolist()
    gained = gains(lines(fitness, {}))
    assert measure(gained, np.full((9, 4), 0.5)) is None
    assert measure(gained[:3], np.array([[0.1, 0.2, 0.3, 0.4]] * 3)) is None


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
    assert label == "time at work"
    np.testing.assert_allclose([place for place, _ in ticks], [g / 12 for g in range(1, 13, 2)], rtol=1e-3)
    assert [word for _, word in ticks] == [f"{spent[g - 1]:.3g} s" for g in range(1, 13, 2)]
