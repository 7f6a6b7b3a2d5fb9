"""Members train on some levels, others measure them, and yet others only the champion; in an environment that tells."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import COMMAND, flags, mpiexec, record, rows, same_run, shoal, tiny

from shoal.environments.levels import Levels
from shoal.experiment.experiment import Fitness
from shoal.run.evaluation import evaluate
from shoal.run.train import resume, train
from shoal.study.replay import replay

ON_DEVICE, ON_HOST = "support.numbered:on_device", "support.numbered:on_host"
TRAIN, VALIDATION, TEST = (10, 14), (1000, 2000), (5000, 6000)
IDLE = {"agent": "support.clocked:clocked", "config": {}}  # whoever learns has the levels of whoever does not
ES = {"agent": "policy", "method": "es", "config": {"layers": [8]}}


def experiment(run: Path, test: tuple[int, int] = TEST, **changes: Any) -> Any:
    return tiny(run, **IDLE | {"env": ON_DEVICE, "levels": Levels(TRAIN, VALIDATION, test)} | changes)


def within(values: Any, span: tuple[int, int]) -> bool:
    values = np.asarray(values, np.float64)
    return bool(values.size and (values >= span[0]).all() and (values <= span[1] - 1).all())


CASES = [
    pytest.param({}, id="device"),
    pytest.param({"env": ON_HOST}, id="host", marks=pytest.mark.slow),
    pytest.param({"shards": 2}, id="shards", marks=pytest.mark.slow),
    pytest.param(ES, id="es", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("changes", CASES)
def test_every_number_is_of_its_own_levels(tmp_path: Path, changes: dict[str, Any]) -> None:
    result = train(experiment(tmp_path, **changes))
    lineage, metrics = rows(tmp_path / "lineage.jsonl"), rows(tmp_path / "metrics.jsonl")
    of_train, of_validation = ([row["levels"][name] for row in lineage] for name in ("train", "validation"))
    assert within(of_train, TRAIN) and within(of_validation, VALIDATION)
    np.testing.assert_allclose([row["fitness"] for row in lineage], of_validation)
    np.testing.assert_allclose([row["levels"]["gap"] for row in lineage], np.subtract(of_train, of_validation))
    for name, values in (("train", of_train), ("validation", of_validation)):
        generations = np.reshape(values, (2, -1))
        assert (generations == generations[:, :1]).all(), f"{name}: not the same levels for all members"
        np.testing.assert_allclose([row["members"][f"levels/{name}"] for row in metrics], generations)
    assert of_validation[0] != of_validation[-1], "the levels of a generation are not new"
    for row in metrics:
        learned = row["members"].get("episode/return") or row["members"]["returns/mean"]
        assert within(learned, TRAIN)
    champion = result.summary["champion"]
    for name, span in (("train", TRAIN), ("validation", VALIDATION), ("test", TEST)):
        told = champion["levels"][name]
        low, high = told["interval"]
        assert within(told["mean"], span) and told["episodes"] == 8
        np.testing.assert_allclose([low, high], told["mean"] + np.array([-1.96, 1.96]) * told["standard_error"])
    assert champion["evaluation"] == champion["levels"]["test"]
    # Two measurements in each generation, the final selection, and three of the champion, which do not count; every episode
    # is one step, as the final selection has to know for its share.
    individuals, selection = len(lineage) // 2, champion.get("final_selection", {"steps": 0, "episodes": 0})
    assert selection["steps"] == selection["episodes"]
    assert result.summary["evaluation_steps"] == 2 * 2 * 2 * individuals + selection["steps"]
    (newest,) = (tmp_path / "checkpoints").glob("*1/manifest.json")
    assert json.loads(newest.read_text())["episode_length"] == 1


def test_test_levels_change_nothing_before_the_end(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    train(experiment(one))
    train(experiment(other, test=(10**9, 2 * 10**9)))
    a, b = record(one), record(other)
    assert all(np.array_equal(x, b["arrays"][name], equal_nan=True) for name, x in a["arrays"].items())
    assert (a["lineage"], a["metrics"]) == (b["lineage"], b["metrics"])
    champions = [told["result"]["champion"] for told in (a, b)]
    assert [champion.pop("evaluation")["mean"] > 1e6 for champion in champions] == [False, True]
    assert [champion["levels"].pop("test")["mean"] > 1e6 for champion in champions] == [False, True]
    assert [max(champion.pop("returns")) > 1e6 for champion in champions] == [False, True]
    assert champions[0] == champions[1]


def test_fitness_on_the_levels_of_training_is_a_choice(tmp_path: Path) -> None:
    fitness = Fitness(episodes=2, step_limit=60, levels="train")
    train(experiment(tmp_path, fitness=fitness))
    for row in rows(tmp_path / "lineage.jsonl"):
        assert within(row["fitness"], TRAIN) and within(row["levels"]["validation"], VALIDATION)


def test_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(experiment(whole))
    train(experiment(stopped, generations=1))
    (stopped / "result.json").unlink()
    resume(stopped, generations=2, trust_code=True)
    same_run(whole, stopped)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mpi", "directory"])
def test_they_are_the_same_in_every_process(tmp_path: Path, how: str) -> None:
    """Over two ranks; and for a worker that is alone in its directory, whose fitness is of the same levels."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(experiment(whole, shards=2))
    if how == "mpi":
        levels = {"train": list(TRAIN), "validation": list(VALIDATION), "test": list(TEST)}
        command = flags(run, "--exchange", "mpi", env=ON_DEVICE, levels=levels, shards=2, **IDLE)
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        subprocess.run(mpiexec(2, *COMMAND, *command), check=True, env=env, capture_output=True, timeout=240)
        same_run(whole, run)
    else:
        space = tmp_path / "space"
        run = Path(
            train(experiment(None, exchange={"name": "directory", "workspace": str(space), "worker": "a"})).run_dir
        )
        one, other = (rows(path / "lineage.jsonl") for path in (whole, run))
        assert [row["levels"] for row in one] == [row["levels"] for row in other]


def test_the_report_tells_of_levels(tmp_path: Path) -> None:
    train(experiment(tmp_path))
    assert shoal("report", tmp_path).code == 0
    page = (tmp_path / "report.html").read_text()
    assert 'id="generalisation"' in page and "on training levels" in page and "Generalisation gap" in page


@pytest.mark.slow
def test_evaluate_and_replay(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(experiment(run))
    told = shoal("evaluate", run, "--episodes", 8, "--levels", "train", "--trust-code")
    assert told.code == 0 and within(float(told.out.split()[0]), TRAIN), told
    told = shoal("evaluate", run, "--levels", "tst", "--trust-code")
    assert told.code == 2 and told.err.strip() == "shoal: levels: 'tst' does not exist; did you mean test?"
    assert within(evaluate(run, 8, trust_code=True)["mean"], TEST)
    again = replay(run, run_dir=str(tmp_path / "again"), trust_code=True).summary["champion"]["levels"]
    assert within(again["train"]["mean"], TRAIN) and within(again["test"]["mean"], TEST)


def test_a_run_without_levels_has_none(tmp_path: Path) -> None:
    train(tiny(tmp_path))
    assert "levels" not in rows(tmp_path / "lineage.jsonl")[0]
    assert "levels" not in json.loads((tmp_path / "result.json").read_text())["champion"]
    told = shoal("evaluate", tmp_path, "--levels", "train")
    assert told.code == 2 and told.err.strip() == f"shoal: levels = train: {tmp_path} was trained without levels"
    shoal("report", tmp_path)
    assert 'id="generalisation"' not in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"levels": {"train": [0, 10], "test": [9, 20]}}, "levels.train = [0, 10]: has levels of test"),
        ({"levels": {"train": [5, 5]}}, "levels.train = [5, 5]: are no levels"),
        ({"levels": {"train": 2**31}}, "levels.validation: ends at 2147583648"),
        ({"levels": {}, "env": "support.probes:one_step_value"}, "levels: every episode of"),
        (
            {"levels": {}, "env": "gym:CliffWalking-v1"},
            "levels: every episode of gym:CliffWalking-v1 has the same initial state",
        ),
        ({"levels": {}, "agent": "sb3:PPO", "config": {}}, "levels: trainers have environments of their own"),
        (
            {"levels": {}, "fitness": {"source": "training"}},
            "fitness.source = training: training is on the levels of",
        ),
        ({"fitness": {"levels": "train"}}, "fitness.levels = train: goes with levels"),
    ],
)
def test_what_is_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    outcome = shoal(*flags(tmp_path / "run", **changes))
    assert outcome.code == 2 and outcome.err.startswith(f"shoal: {told}"), outcome
    assert len(outcome.err.splitlines()) == 1 and not (tmp_path / "run").exists()
