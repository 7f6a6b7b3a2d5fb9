"""Members that begin with a model which the library of their trainer has saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.messages import Said
from support.runs import rows, shoal, tiny

from shoal.commands.doctor.checks import warm_start
from shoal.core.errors import BadInput
from shoal.experiment.experiment import Experiment, Fitness
from shoal.experiment.plan import make_closed_plan
from shoal.run.train import resume, train
from shoal.run.warm_start import read_warm_start
from shoal.trainers.trainers import TrainerProcesses

SAVING = "support.trainers:Saving"
USUAL: dict[str, Any] = {"env": "none", "agent": SAVING, "population": 3, "generations": 1, "interval": 40}
USUAL |= {"final_episodes": 4, "fitness": Fitness(episodes=4), "processes": TrainerProcesses(count=2)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As its library saves it, after a hundred updates that were fast."""
    path = tmp_path_factory.mktemp("model") / "model.npz"
    w = np.arange(6.0).reshape(2, 3)
    np.savez(path, w=w, velocity=np.ones((2, 3)), updates=np.array(100), rate=np.array(99.0))
    return path


def test_members_begin_with_a_file(model: Path, tmp_path: Path) -> None:
    """All of it but its hyperparameters, which differ as those of new members do."""
    run = tmp_path / "run"
    train(Experiment(**USUAL, init_from=str(model), run_dir=str(run)))
    assert rows(run / "metrics.jsonl")[0]["members"]["updates"] == [110] * 3
    assert len({row["hyper"]["rate"] for row in rows(run / "lineage.jsonl")}) == 3
    told = json.loads((run / "init_from.json").read_text())
    members = [{"uid": uid, "parent": None} for uid in range(3)]
    assert told == {"run": str(model), "generation": None, "members": members}
    resume(run, generations=2, trust_code=True)
    assert rows(run / "metrics.jsonl")[1]["members"]["updates"] == [120] * 3
    assert shoal("report", run).code == 0


def test_what_a_member_begins_with_is_the_file_alone(model: Path) -> None:
    plan = make_closed_plan(Experiment(**USUAL, init_from=str(model)))
    start = read_warm_start(plan)
    assert start is not None and len(start.learned) == 3
    np.testing.assert_array_equal(start.learned[2]["w"], np.arange(6.0).reshape(2, 3))
    (told,) = warm_start(plan)
    assert told.text == f"members start from the weights of {model}"


def test_a_file_that_a_run_names_is_not_loaded_unasked(model: Path, said: Said) -> None:
    """Libraries pickle; a run may come from anybody."""
    plan = make_closed_plan(Experiment(**USUAL, init_from=str(model)))
    with pytest.raises(BadInput) as error:
        read_warm_start(plan, trusted=False)
    said(error.value)


@pytest.mark.parametrize(
    "change",
    [{"config": {"arms": 4}}, {"agent": "support.trainers:Sound"}, {"init_from": "nowhere.npz"}],
    ids=["does not fit", "no load", "nowhere"],
)
def test_what_cannot_be_begun_with_is_refused_in_one_line(
    model: Path, said: Said, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    plan = make_closed_plan(Experiment(**USUAL | {"init_from": str(model)} | change))
    with pytest.raises(BadInput) as error:
        read_warm_start(plan)
    said(error.value)


def test_an_agent_of_shoal_begins_with_runs_alone(model: Path, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        read_warm_start(make_closed_plan(tiny(init_from=str(model))))
    said(error.value)
