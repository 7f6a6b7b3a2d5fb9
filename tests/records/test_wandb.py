"""Weights & Biases, by a package of the same name that keeps what it is given."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from support.messages import Said
from support.runs import Signals, curves, flags, rows, shoal, tiny

from shoal.core.errors import BadInput
from shoal.core.extras import install
from shoal.experiment.experiment import WeightsAndBiases
from shoal.records.screen import Output
from shoal.records.tensorboard import TensorBoard
from shoal.run.train import resume, train
from shoal.study.scheduler import run_study


class Run:
    """A run of W&B."""

    def __init__(self, **options: Any):
        self.options, self.finished = options, 0
        self.url = f"https://wandb.ai/lab/{options['project']}/runs/{options['id']}"
        self.points: dict[int, dict[str, float]] = {}
        self.summary: dict[str, float] = {}
        self.axes: dict[str, str] = {}

    def log(self, values: dict[str, float], step: int) -> None:
        assert step not in self.points and not any(math.isnan(x) for x in values.values())
        self.points[step] = values

    def define_metric(self, name: str, step_metric: str) -> None:
        assert not self.points
        self.axes[name] = step_metric

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs that are opened, in order."""
    found: list[Run] = []

    def init(**options: Any) -> Run:
        found.append(Run(**options))
        return found[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    return found


def test_one_run_has_the_curves_of_tensorboard(tmp_path: Path, opened: list[Run]) -> None:
    run_dir = tmp_path / "run"
    result = train(tiny(run_dir, wandb=WeightsAndBiases(project="robots")), [TensorBoard()])
    (run,) = opened
    for name, value in (("project", "robots"), ("group", "run"), ("name", "run"), ("mode", "online"), ("resume", None)):
        assert run.options[name] == value
    assert run.options["config"]["population"] == 4
    assert run.options["config"]["provenance"] == result.summary["provenance"]
    found: dict[str, list[float]] = {}
    for generation in sorted(run.points):
        for name, value in run.points[generation].items():
            found.setdefault(name, []).append(value)
    assert run.axes == {"*": "steps"}
    assert found.pop("steps") == [row["steps"] for row in rows(run_dir / "lineage.jsonl") if row["uid"] == 0]
    shown = {tag: [x for _, x in points if not math.isnan(x)] for tag, points in curves(run_dir).items()}
    assert found.keys() == {tag for tag, values in shown.items() if values}
    for name, values in found.items():
        if name != "population/steps_per_second":
            assert values == pytest.approx(shown[name], rel=1e-6), name
    assert run.summary["champion/evaluation"] == result.summary["champion"]["evaluation"]["mean"]
    assert run.finished == 1
    assert json.loads((run_dir / "wandb.json").read_text()) == {
        "ids": {"population": run.options["id"]},
        "url": run.url,
    }


def test_runs_are_called_as_is_asked(tmp_path: Path, opened: list[Run]) -> None:
    asked = WeightsAndBiases(runs="member", name="walk", entity="lab", tags=("a", "b"))
    train(tiny(tmp_path / "run", generations=1, wandb=asked))
    assert [run.options["name"] for run in opened] == ["walk", *(f"walk member{uid}" for uid in range(4))]
    assert {(run.options["entity"], *run.options["tags"]) for run in opened} == {("lab", "a", "b")}


def test_runs_of_a_study_are_called_by_arm_and_seed(tmp_path: Path, opened: list[Run]) -> None:
    """Their folders are numbers. A replay is not called as the run that found its schedule; done, all of them stay."""
    ask = {"optimizer": "support.optimizers:Ladder", "trials": 2}
    arms = {"pbt": {"method": "pbt"}, "again": {"replay": "pbt"}, "asked": {"tune": ask}}
    base = {"env": "none", "agent": "support.trainers:Sound", "population": 2, "generations": 2, "interval": 40}
    base |= {"space": {"rate": [1e-4, 1.0, "log"]}, "fitness": {"episodes": 4}, "final_episodes": 4}
    base |= {"processes": {"count": 1}, "wandb": {"mode": "offline"}}
    tasks = {"pole": {"scale": [0, 500]}}
    study = {"base": base, "arms": arms, "tasks": tasks, "seeds": 1}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    for _ in range(2):
        run_study(tmp_path / "s.yaml", tmp_path / "out", Output(), quiet=True)
    names = ["pole, pbt, seed 0", "pole, again, seed 0", "pole, asked, seed 0, run 0", "pole, asked, seed 0, run 1"]
    assert [run.options["name"] for run in opened] == names
    assert [run.options["group"] for run in opened] == [name.partition(", run")[0] for name in names]


def test_each_member_has_a_run_that_goes_on_when_resumed(tmp_path: Path, opened: list[Run]) -> None:
    run_dir, asked = tmp_path / "run", WeightsAndBiases(runs="member", group="mine")
    train(tiny(run_dir, generations=1, wandb=asked))
    ids = {run.options["name"]: run.options["id"] for run in opened}
    assert list(ids) == ["run", *(f"run member{uid}" for uid in range(4))] and len(set(ids.values())) == 5
    assert {run.options["group"] for run in opened} == {"mine"}
    first = list(opened)
    opened.clear()
    resume(run_dir, generations=2)
    assert {run.options["name"]: run.options["id"] for run in opened} == ids
    assert {run.options["resume"] for run in opened} == {"allow"}
    fitness = {(row["generation"], row["uid"]): row["fitness"] for row in rows(run_dir / "lineage.jsonl")}
    for generation, runs in enumerate((first, opened)):
        for uid, run in enumerate(runs[1:]):
            assert list(run.points) == [generation]
            assert run.points[generation]["fitness"] == fitness[generation, uid]
            assert "hyper/learning_rate" in run.points[generation]


@pytest.mark.parametrize("damaged", ['{"population": "ab', "[]", "3"])
def test_ids_that_cannot_be_read_begin_new_runs(tmp_path: Path, opened: list[Run], damaged: str) -> None:
    train(tiny(tmp_path / "run", generations=1, wandb=WeightsAndBiases()))
    (tmp_path / "run/wandb.json").write_text(damaged)
    resume(tmp_path / "run", generations=2, callbacks=[heard := Signals(9, "never")])
    assert any("wandb.json is damaged" in note for note in heard.notes)
    before, after = (run.options["id"] for run in opened)
    assert before != after


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    done = shoal(*flags(tmp_path / "run", "--set", "wandb={}"))
    assert done.code == 2 and install("wandb") in done.err and len(done.err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_what_keeps_it_out_is_told(
    tmp_path: Path, opened: list[Run], monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    def refuse(**options: Any) -> None:
        raise RuntimeError("No API key configured")

    monkeypatch.setattr(sys.modules["wandb"], "init", refuse)
    with pytest.raises(BadInput) as error:
        train(tiny(tmp_path / "run", wandb=WeightsAndBiases()))
    said(error.value)
    assert not (tmp_path / "run").exists()
