"""Study files: what is read, what is refused, and which runs they amount to."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import yaml
from support.messages import Said, shown
from support.runs import SETTINGS

from shoal.core.errors import BadInput
from shoal.study.study_file import RunKey, budgets, read, trials

ARMS = {"pbt": {"method": "pbt"}, "control": {"method": "independent"}}


def file(folder: Path, **fields: object) -> Path:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({"base": SETTINGS, "arms": ARMS, "seeds": 2} | fields, sort_keys=False))
    return path


def test_runs_of_the_first_seed_come_first(tmp_path: Path) -> None:
    tasks = {"easy": {"scale": [0, 1]}, "hard": {"env": "Acrobot-v1", "scale": [-500, -100]}}
    arms = ARMS | {"single": {"population": 1, "generations": 8, "config": {"layers": [4]}}, "again": {"replay": "pbt"}}
    planned = trials(read(file(tmp_path, tasks=tasks, arms=arms)))
    assert len(planned) == 2 * 2 * 4 and [t.key.seed for t in planned] == [0] * 8 + [1] * 8
    assert str(planned[5].key.place) == "runs/hard/control/0"
    single = next(t for t in planned if t.key == ("hard", "single", 1)).experiment
    assert (single.env, single.population, single.generations, single.seed) == ("Acrobot-v1", 1, 8, 1)
    assert single.config == SETTINGS["config"] | {"layers": [4]}  # field by field
    again = next(t for t in planned if t.key.arm == "again")
    assert again.replays == ("easy", "pbt", 0) and again.experiment.population == SETTINGS["population"]
    assert read(file(tmp_path, tasks=tasks)).scale("hard") == (-500, -100)


def test_no_two_runs_have_a_lease_in_common() -> None:
    """Nor a place, or a file for their failures, whatever characters join words in the names of tasks and arms."""
    keys = [RunKey(*key) for key in (("a-b", "c", 0), ("a", "b-c", 0), ("a b", "c", 0), ("a", "b c", 0))]
    for of in ("lease", "place", "failure"):
        assert len({getattr(key, of) for key in keys}) == len(keys)


def test_equal_budgets(tmp_path: Path) -> None:
    arms = ARMS | {"single": {"population": 1, "generations": 8, "method": "independent"}, "again": {"replay": "pbt"}}
    assert set(budgets(read(file(tmp_path, arms=arms))).values()) == {4 * 2 * 64}


def test_optimisers_that_differ_are_no_arm_twice(tmp_path: Path) -> None:
    """Their trials are not known before; and with a space random search is not the default hyperparameters again."""
    other = TUNE | {"optimizer": "support.optimizers:Mute"}
    space = {"space": {"learning_rate": [1e-4, 1e-2, "log"]}}
    arms = {"a": {"tune": TUNE}, "b": {"tune": other}, "random": {"method": "independent"} | space}
    arms["default"] = {"method": {"name": "independent", "initial": "default"}} | space
    assert set(budgets(read(file(tmp_path, arms=arms))).values()) == {512}


TUNE = {"optimizer": "support.optimizers:Ladder", "trials": 4}


def test_sequences_cost_what_other_arms_cost(tmp_path: Path) -> None:
    arms = ARMS | {"halving": {"method": "successive_halving"}, "asked": {"tune": TUNE}}
    study = read(file(tmp_path, arms=arms))
    assert set(budgets(study).values()) == {512}
    asked = next(t for t in trials(study) if t.key.arm == "asked")
    assert [(p.population, p.generations) for p in asked.sequence.parts(asked.experiment)] == [(1, 2)] * 4


@pytest.mark.parametrize("source", [{"space": {}}, {"method": "es", "config": {"layers": [4]}}], ids=shown)
def test_a_replay_of_an_arm_that_tunes_nothing_is_told_before_that_arm_runs(tmp_path: Path, source: dict) -> None:
    base = {name: value for name, value in SETTINGS.items() if name not in ("config", "method")}
    arms = {"source": {"method": "pbt"} | source, "again": {"replay": "source"}}
    with pytest.raises(BadInput, match="arms.again.replay = source: has no schedule: nothing is tuned there"):
        budgets(read(file(tmp_path, base=base, arms=arms, unequal_steps=True)))


def test_a_schedule_can_be_replayed(tmp_path: Path) -> None:
    rows = [{"learning_rate": 1e-3}] * 2
    arms = {"given": {"method": {"name": "schedule", "rows": rows}, "space": {}}, "again": {"replay": "given"}}
    assert set(budgets(read(file(tmp_path, arms=arms))).values()) == {512}


def test_an_optimiser_shares_the_steps_of_a_number_of_members(tmp_path: Path) -> None:
    study = read(file(tmp_path, base=SETTINGS | {"population": "auto"}, arms={"asked": {"tune": TUNE}}))
    with pytest.raises(BadInput, match="arms.asked.population = auto: .*write a number"):
        budgets(study)


@pytest.mark.parametrize(
    "fields",
    [
        {"arms": ARMS | {"x": {"replay": "pbt", "tune": TUNE}}},
        {"arms": ARMS | {"x": {"tune": TUNE, "method": "es"}}},
        {"arms": ARMS | {"x": {"tune": TUNE}, "y": {"replay": "x"}}},
        {"arms": ARMS | {"x": {"tune": "smac"}}},
        {"arms": ARMS | {"x": {"tune": TUNE | {"trials": 0}}}},
        {"arms": ARMS | {"x": {"tune": TUNE | {"trials": 2**62}}}},
        {"arms": ARMS | {"x": {"replay": ["pbt"]}}},
        {"arms": ARMS | {"x": {"replay": {"pbt": 1}}}},
        {"arms": {}},
        {"seeds": 0},
        {"seeds": 9 * 10**18},
        {"arms": ARMS | {"a/b": {}}},
        {"arms": ARMS | {256 * "x": {}}},
        {"arms": ARMS | {"x": {"seed": 3}}},
        {"arms": ARMS | {"x": {"replay": "nobody"}}},
        {"arms": ARMS | {"x": {"replay": "pbt", "method": "es"}}},
        {"tasks": {"a": {}, "b": {}}},
        {"tasks": {"a": {"scale": [1, 0]}}},
        {"tasks": {"a": {"scale": [0, math.inf]}}},
        {"tasks": {"a": {"scale": [-math.inf, 0]}}},
        {"tasks": {"a": {"scale": "01"}}},
        {"arm": {}},
        {"interim_analyses": [1, 2]},
        {"interim_analyses": [2, 3]},
        {"interim_analyses": [2, 5], "seeds": 5, "arms": {"pbt": {}}},
        {"pairs": [["pbt", "contrl"]]},
        {"pairs": [["pbt", "control"], ["control", "pbt"]]},
    ],
    ids=shown,
)
def test_what_is_refused_when_it_is_read(tmp_path: Path, fields: dict, said: Said) -> None:
    path = file(tmp_path, **fields)
    with pytest.raises(BadInput) as error:
        read(path)
    said(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"arms": ARMS | {"x": {"populaton": 3}}},
        {"arms": ARMS | {"x": {"agent": "pppo"}}},
        {"arms": ARMS | {"x": {"generations": 3}}},
        {"arms": ARMS | {"x": {"method": "es", "config": {}, "fitness": {}}}},
        {"arms": {"x": {}, "y": {"generations": 2}}, "tasks": {"a": {"scale": [0, 1]}}},
        {"arms": {"x": {"tune": TUNE | {"trials": 5}}}},
        {"arms": {"x": {"tune": TUNE, "space": {}}}},
        {"arms": ARMS | {"x": {"budget": 1000}}},
        {"arms": {"a": {"budget": 1000}, "b": {"budget": 1011}}},
        {"base": SETTINGS | {"stop": {"patience": 2}}},
        {"arms": {"asked": {"tune": TUNE, "stop": {"patience": 2}}}},
        {"arms": {"asked": {"tune": TUNE, "config": {"layers": {"choices": [[4], [8]]}}}}},
    ],
    ids=shown,
)
def test_what_is_refused_when_it_is_planned(tmp_path: Path, fields: dict, said: Said) -> None:
    study = read(file(tmp_path, **fields))
    with pytest.raises(BadInput) as error:
        trials(study)
        budgets(study)
    said(error.value)


def test_budgets_of_all_steps(tmp_path: Path) -> None:
    """They are alike whatever the generations, of methods whose intervals are episodes too; sequences share them."""
    arms = ARMS | {"es": {"method": "es"}, "long": {"generations": 9, "interval": 128}}
    arms |= {
        "halving": {"method": "successive_halving"},
        "asked": {"tune": TUNE | {"trials": 3}, "space": {"learning_rate": [1e-4, 1e-2, "log"]}},
        "again": {"replay": "pbt"},
    }
    study = read(file(tmp_path, base={"population": 4, "budget": 6000}, arms=arms))
    assert set(budgets(study).values()) == {6000}
    trial = {t.key.arm: t for t in trials(study)}
    sequence, experiment = trial["asked"].sequence, trial["asked"].experiment
    parts = [(p.population, p.budget) for p in sequence.parts(experiment)]
    assert parts == [(1, 2000), (1, 4000), (1, 6000)], "of each with those before it"
    place = tmp_path / "runs"
    given = sequence.runs(experiment, place)
    for k, (budget, spent) in enumerate([(2000, 2500), (1500, 3600), (1, 40)]):  # the first two spend too much
        run, part = next(given)
        assert (run, part.budget) == (place / str(k), budget)
        run.mkdir(parents=True)
        champion = {"selection_fitness": 1.0, "final_selection": {"steps": 700}}  # which no budget holds
        told = {"environment_steps": spent - 30, "evaluation_steps": 730, "champion": champion}
        (run / "result.json").write_text(json.dumps(told))


def test_unlike_budgets_where_they_are_wanted(tmp_path: Path) -> None:
    study = read(file(tmp_path, arms=ARMS | {"long": {"generations": 3}}, unequal_steps=True))
    assert budgets(study)["", "long"] == 768
