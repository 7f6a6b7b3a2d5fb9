"""Study files: what is read, what is refused, and which runs they amount to."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.runs import SETTINGS

from shoal.core.errors import BadInput
from shoal.study.study import budgets, read, scale_of, trials

ARMS = {"pbt": {}, "control": {"method": "seeds"}}


def file(folder: Path, **fields: object) -> Path:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({"base": SETTINGS, "arms": ARMS, "seeds": 2} | fields, sort_keys=False))
    return path


def test_runs_of_the_first_seed_come_first(tmp_path: Path) -> None:
    tasks = {"easy": {"scale": [0, 1]}, "hard": {"env": "Acrobot-v1", "scale": [-500, -100]}}
    arms = ARMS | {"single": {"population": 1, "generations": 8, "config": {"layers": [4]}}, "again": {"replay": "pbt"}}
    planned = trials(read(file(tmp_path, tasks=tasks, arms=arms)))
    assert len(planned) == 2 * 2 * 4 and [t.seed for t in planned] == [0] * 8 + [1] * 8
    assert str(planned[5].place) == "runs/hard/control/0"
    single = next(t for t in planned if t.key == ("hard", "single", 1)).experiment
    assert (single.env, single.population, single.generations, single.seed) == ("Acrobot-v1", 1, 8, 1)
    assert single.config == SETTINGS["config"] | {"layers": [4]}  # field by field
    again = next(t for t in planned if t.arm == "again")
    assert again.replays == "pbt" and again.experiment.population == SETTINGS["population"]
    assert scale_of(read(file(tmp_path, tasks=tasks)), "hard") == (-500, -100)


def test_equal_budgets(tmp_path: Path) -> None:
    arms = ARMS | {"single": {"population": 1, "generations": 8, "method": "seeds"}, "again": {"replay": "pbt"}}
    assert set(budgets(read(file(tmp_path, arms=arms))).values()) == {4 * 2 * 64}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arms": {}}, "arms: a study compares arms: name some"),
        ({"seeds": 0}, "seeds = 0: must be at least 1"),
        ({"arms": ARMS | {"a/b": {}}}, "arms: 'a/b' is a folder's name"),
        ({"arms": ARMS | {"x": {"seed": 3}}}, "arms.x.seed: the study sets it for each run"),
        ({"arms": ARMS | {"x": {"replay": "nobody"}}}, "arms.x.replay = 'nobody': must name another arm"),
        ({"arms": ARMS | {"x": {"replay": "pbt", "method": "es"}}}, "arms.x: an arm that replays is trained as"),
        ({"tasks": {"a": {}, "b": {}}}, r"tasks.a.scale: write scale: \[LOW, HIGH\]"),
        ({"tasks": {"a": {"scale": [1, 0]}}}, r"tasks.a.scale = \[1, 0\]: write scale"),
        ({"arm": {}}, "'arm' does not exist; did you mean arms"),
    ],
)
def test_what_is_refused_when_it_is_read(tmp_path: Path, fields: dict, message: str) -> None:
    path = file(tmp_path, **fields)
    with pytest.raises(BadInput, match=f"^{path}.*{message}"):
        read(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arms": ARMS | {"x": {"populaton": 3}}}, "arms.x: 'populaton' does not exist; did you mean population"),
        ({"arms": ARMS | {"x": {"agent": "pppo"}}}, "arms.x.agent: 'pppo' does not exist; did you mean ppo"),
        (
            {"arms": ARMS | {"x": {"generations": 3}}},
            "equally many steps .*pbt 512, .*x 768.* unequal: true",
        ),
        ({"arms": ARMS | {"x": {"method": "es", "config": {}, "fitness": {}}}}, "arms"),
    ],
)
def test_what_is_refused_when_it_is_planned(tmp_path: Path, fields: dict, message: str) -> None:
    study = read(file(tmp_path, **fields))
    with pytest.raises(BadInput, match=message):
        trials(study)
        budgets(study)


def test_unlike_budgets_where_they_are_wanted(tmp_path: Path) -> None:
    study = read(file(tmp_path, arms=ARMS | {"long": {"generations": 3}}, unequal=True))
    assert budgets(study)["", "long"] == 768
