"""The terminal, TensorBoard and the page of runs whose members copy nobody agree with their files."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import others_slow
from support.runs import ended, rows, shoal, tiny
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from shoal.core.population import PopulationStats
from shoal.experiment.plan import make_closed_plan
from shoal.members.mean import OfMean, mean_of
from shoal.records.callback import Start
from shoal.records.console import Display
from shoal.records.screen import Screen

OWN = "support.own_method:Nearby"
SMALL = {"layers": [8], "learning_starts": 64, "batch_size": 8, "buffer_size": 2000}
RUNS: dict[str, dict[str, Any]] = {
    "es": {"env": "CartPole-v1", "population": 8, "config.layers": [8], "method.sigma_decay": 0.9},
    "cem_rl": {"env": "Pendulum-v1", "population": 4, "config": SMALL, "hyper.update_ratio": 0.01},
    "dvd": {"env": "Pendulum-v1", "population": 3, "config": SMALL, "hyper.update_ratio": 0.1, "interval": 64},
    OWN: {"env": "CartPole-v1", "population": 4, "config.layers": [8]},
    "independent": {
        "env": "CartPole-v1",
        "population": 3,
        "interval": 64,
        "config": {"layers": [8], "rollout_length": 16},
    },
}
SAMPLED = ("es", "cem_rl", OWN)


@pytest.fixture(scope="module", params=others_slow(RUNS, "es"))
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, list[str]]:
    """A method, a run by it of three generations, and what the terminal said."""
    name: str = request.param
    run = tmp_path_factory.mktemp(name.split(":")[-1]) / "run"
    settings = {"method.name": name, "generations": 3, "final_episodes": 2, "fitness.episodes": 1} | RUNS[name]
    given = [part for field, value in settings.items() for part in ("--set", f"{field}={json.dumps(value)}")]
    outcome = shoal("train", "--run-dir", run, *given)
    assert outcome.code == 0, outcome.err
    return name, run, outcome.out.splitlines()


def test_plain_lines(shown: tuple[str, Path, list[str]]) -> None:
    name, run, said = shown
    assert f" by {name} on " in said[0]
    assert ("mean: fitness of the mean policy" in "".join(said[:2])) == (name in SAMPLED)
    lines = [line for line in said if line.startswith("generation ")]
    metrics = rows(run / "metrics.jsonl")
    for line, row in zip(lines, metrics, strict=True):
        words = line.split()
        told = dict(zip(words[::2], words[1::2], strict=True))
        members = row["members"]
        expected = {kind: row["fitness"][kind] for kind in ("best", "median", "worst")}
        if name in SAMPLED:
            expected = {"mean": row["fitness"]["best"], "rank": members["mean/rank"][0]}
            expected |= {"lowest": members["returns/min"][0], "highest": members["returns/max"][0]}
            expected["average"] = members["returns/mean"][0]
        if name == "dvd":
            hyper = [r["hyper"] for r in rows(run / "lineage.jsonl") if r["generation"] == row["generation"]]
            expected |= {"diversity": hyper[0]["diversity"], "determinant": members["diversity/determinant"][0]}
        assert set(told) == {"generation", *expected, "steps/s", "left"}
        for kind, value in expected.items():
            assert float(told[kind]) == pytest.approx(value, rel=1e-3), kind


def test_scalars(shown: tuple[str, Path, list[str]]) -> None:
    """Each number once; those of members only where members live on, and no matrix."""
    name, run, _ = shown
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert all(len(events.Scalars(tag)) == 3 for tag in tags)
    metrics, lineage = rows(run / "metrics.jsonl")[-1]["members"], rows(run / "lineage.jsonl")
    hyper = {f"hyper/{kind}" for kind in lineage[-1]["hyper"]}
    if name in SAMPLED:
        assert tags == {"population/steps_per_second", "champion/smoothed_fitness", "mean/fitness", *metrics, *hyper}
        return
    assert not [tag for tag in tags if "diversity/to" in tag or tag == "population/copies"]
    assert {f"population/{tag}" for tag in hyper} <= tags
    assert {f"fitness/member{uid}" for uid in range(3)} <= tags
    assert ("hyper/learning_rate/member0" in tags) == (name == "independent")
    common = {"diversity/determinant", "diversity/log_determinant"}
    assert tags & {*common, *(f"{tag}/member0" for tag in common)} == (common if name == "dvd" else set())
    assert ("diversity/distance/member2" in tags) == (name == "dvd")


def test_the_page(shown: tuple[str, Path, list[str]]) -> None:
    name, run, _ = shown
    page = (run / "report.html").read_text()
    assert f"Training run · {name} " in page
    heading = {
        "es": "Gradient",
        "cem_rl": "Standard deviation of the distribution",
        "dvd": "Diversity of the population",
    }
    heading[OWN] = "learned by a search nearby"
    assert heading.get(name, "This is the control") in page
    assert ("hyper" in page) and "Family tree" not in page
    assert ("Rank of the mean" in page) == (name in SAMPLED)
    assert ("The best of the members becomes the next mean." in page) == (name == OWN)


def displayed(method: str, metrics: dict[str, float], generation: int = 0) -> str:
    """The display of one generation in a terminal."""
    console = Screen(file=StringIO(), force_terminal=True, width=100, color_system=None)
    display = Display(console)
    own = {"env": RUNS[method]["env"], "config": RUNS[method].get("config", {})}
    experiment = tiny(method=method, generations=3, **own)
    values = {name: np.array([value]) for name, value in metrics.items()}
    display.on_training_start(Start(make_closed_plan(experiment), 1, Path("somewhere"), 0))
    display.on_generation_end(ended(generation, np.array([7.0]), values, {"diversity": np.array([0.5])}))
    display.on_training_end(None)
    return re.sub(r"\x1b\[[?\d;]*\w", "", console.file.getvalue())  # type: ignore[attr-defined]


def drawn(lowest: float) -> dict[str, float]:
    """Metrics of members that are sampled around a mean, the highest of which returned 9."""
    return {"mean/rank": 2.0, "returns/min": lowest, "returns/mean": 5.0, "returns/max": 9.0}


@pytest.mark.parametrize("method", RUNS)
def test_live_view(method: str) -> None:
    metrics = {"diversity/determinant": 0.25} if method == "dvd" else drawn(1.0) if method in SAMPLED else {}
    lines = displayed(method, metrics).splitlines()
    columns = {"independent": "best median worst", "dvd": "best median worst diversity determinant"}
    values = {"independent": "7 7 7", "dvd": "7 7 7 0.5 0.25"}
    heads = ["generation", *columns.get(method, "mean rank lowest average highest").split(), "steps/s"]
    assert any(line.split() == heads for line in lines)
    row = [line for line in lines if line.strip().startswith("1/3")][-1].split()
    assert row[1:-1] == values.get(method, "7 2 1 5 9").split()


def test_members_that_cannot_be_told_apart() -> None:
    """At the start this is told, because nothing is learned; later everybody may be as good as can be."""
    for lowest, generation, told in ((9.0, 0, True), (1.0, 0, False), (9.0, 1, False)):
        text = displayed("es", drawn(lowest), generation)
        assert ("all members of the first generation have the same return" in text) == told


def test_a_mean_that_cannot_be_measured_has_no_rank() -> None:
    stats = PopulationStats(*(np.zeros(4, np.int64) for _ in range(3)), np.arange(4.0), *(np.zeros(4),) * 2, {})
    for fitness, rank in ((1.5, 3), (9.0, 1), (np.nan, np.nan)):
        told = mean_of(stats, {}, OfMean(fitness, 0.0, 1, fitness))[1]["mean/rank"]
        assert told == pytest.approx([rank], nan_ok=True)
