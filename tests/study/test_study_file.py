"""Study files: what is read, what is refused, and which runs they amount to."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.runs import SETTINGS

from shoal.core.errors import BadInput
from shoal.experiment.experiment import Experiment
from shoal.study.sequences import Halving
from shoal.study.study_file import budgets, read, trials

ARMS = {"pbt": {}, "control": {"method": "seeds"}}


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


def test_equal_budgets(tmp_path: Path) -> None:
    arms = ARMS | {"single": {"population": 1, "generations": 8, "method": "seeds"}, "again": {"replay": "pbt"}}
    assert set(budgets(read(file(tmp_path, arms=arms))).values()) == {4 * 2 * 64}


ASK = {"optimiser": "support.optimisers:Ladder", "runs": 4}


@pytest.mark.parametrize(
    ("population", "generations", "factor", "rungs"),
    [
        (8, 20, 2, [(8, 5), (4, 10), (2, 20), (1, 40)]),  # each rung 40 of 160
        (8, 30, 2, [(8, 7), (4, 15), (2, 30), (1, 64)]),  # what is left over goes to the last
        (10, 9, 3, [(10, 3), (3, 10), (1, 30)]),
        (3, 4, 4, [(3, 2), (1, 6)]),
    ],
)
def test_halving_by_hand(population: int, generations: int, factor: int, rungs: list) -> None:
    e = Experiment(population=population, generations=generations, seed=3)
    parts = Halving(factor).parts(e)
    assert [(p.population, p.generations) for p in parts] == rungs
    assert sum(n * g for n, g in rungs) == population * generations
    assert all(p.method_name == "seeds" and "learning_rate" in p.space for p in parts), "of the other arms"
    assert [p.seed for p in parts] == [3 + k * 1_000_000 for k in range(len(rungs))]
    places = [(str(place), part.start) for place, part in Halving(factor).runs(e, Path("a"))]
    assert places[:2] == [("a/0", None), ("a/1", "a/0")]


def test_sequences_cost_what_other_arms_cost(tmp_path: Path) -> None:
    arms = ARMS | {"halving": {"halving": 2, "generations": 4, "interval": 32}, "asked": {"ask": ASK}}
    study = read(file(tmp_path, arms=arms))
    assert set(budgets(study).values()) == {512}
    asked = next(t for t in trials(study) if t.key.arm == "asked")
    assert [(p.population, p.generations) for p in asked.sequence.parts(asked.experiment)] == [(1, 2)] * 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arms": ARMS | {"x": {"halving": 1}}}, "arms.x.halving = 1: must be at least 2"),
        ({"arms": ARMS | {"x": {"halving": "often"}}}, "arms.x.halving = 'often': must be a whole number"),
        ({"arms": ARMS | {"x": {"halving": 2, "ask": ASK}}}, "arms.x: has halving and ask; an arm has one"),
        ({"arms": ARMS | {"x": {"halving": 2, "method": "es"}}}, "arms.x.method: its members learn alone"),
        ({"arms": ARMS | {"x": {"halving": 2}, "y": {"replay": "x"}}}, "arms.y.replay = 'x': must name another arm"),
        ({"arms": ARMS | {"x": {"ask": "smac"}}}, "arms.x.ask = smac: write ask: {optimiser: module:name, runs"),
        ({"arms": ARMS | {"x": {"ask": ASK | {"runs": 0}}}}, "arms.x.ask.runs = 0: must be 1 to 10,000"),
        ({"arms": ARMS | {"x": {"ask": ASK | {"runs": 2**62}}}}, f"arms.x.ask.runs = {2**62}: must be 1 to 10,000"),
        ({"arms": ARMS | {"x": {"replay": ["pbt"]}}}, "arms.x.replay = .*: must be text"),
        ({"arms": ARMS | {"x": {"replay": {"pbt": 1}}}}, "arms.x.replay = .*: must be text"),
        ({"arms": {}}, "arms: a study compares arms: name some"),
        ({"seeds": 0}, "seeds = 0: must be 1 to 10,000"),
        ({"seeds": 9 * 10**18}, f"seeds = {9 * 10**18}: must be 1 to 10,000"),
        ({"arms": ARMS | {"a/b": {}}}, "arms: 'a/b' is a folder's name"),
        ({"arms": ARMS | {"x": {"seed": 3}}}, "arms.x.seed: the study sets it for each run"),
        (
            {"arms": ARMS | {"x": {"replay": "nobody"}}},
            "arms.x.replay: 'nobody' does not exist; choose from control, pbt, x",
        ),
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
        ({"arms": ARMS | {"x": {"halving": 2}}}, "arms.x.generations = 2: 4 members make 3 rungs.*take at least 3"),
        ({"arms": {"x": {"halving": 2, "population": 1}}}, "arms.x.population = 1: halving needs at least 2"),
        ({"arms": {"x": {"ask": ASK | {"runs": 5}}}}, "arms.x.ask.runs = 5: must divide .* = 8"),
        ({"arms": {"x": {"ask": ASK, "space": {}}}}, "arms.x.space: there is nothing to ask for"),
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
