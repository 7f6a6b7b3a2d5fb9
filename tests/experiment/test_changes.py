"""A run goes on as it was begun, whoever asks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.parts import in_parts
from support.runs import CONFIG, shoal, tiny

from shoal import BadInput, Fitness, resume
from shoal.experiment.changes import going_on
from shoal.experiment.experiment import CHANGEABLE, Checkpoint
from shoal.experiment.files import differences, dump, of_run
from shoal.experiment.plan import make_closed_plan

CHANGES: dict[str, dict[str, Any]] = {  # by what is said to be wrong
    "interval": {"interval": 128},
    "seed": {"seed": 1},
    "population": {"population": 16},
    "fitness.episodes": {"fitness": Fitness(episodes=3)},
    "fitness.source": {"fitness": {"source": "training"}},
    "env": {"env": "gym:CartPole-v1"},
    "method.name": {"method": "independent"},
    "method.select.name": {"method": {"select": "random"}},
    "config.layers": {"config": {"layers": [9]}},
    "config.network": {"config": {"network": "mine:network"}},
    "hyper.epochs": {"hyper": {"epochs": 2}},
    "space.learning_rate.high": {"space": {"learning_rate": [1e-5, 1e-1, "log"]}},
    "levels": {"levels": {"train": [0, 5]}},
    "wandb": {"wandb": {"project": "x"}},
    "init_from": {"init_from": "elsewhere"},
}
FREE: list[dict[str, Any]] = [
    {"budget": 10_000},
    {"time_limit": "2h"},
    {"stop": {"patience": 3}},
    {"final_episodes": 3},
    {"checkpoint": {"keep": 1}},
    {"checkpoint": Checkpoint(every=None)},
    {"python": "python3"},
    {"processes": {"threads": 2}},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a run, with every default filled in."""
    place = tmp_path_factory.mktemp("run")
    (place / "experiment.yaml").write_text(dump(make_closed_plan(tiny(place)).experiment))
    return place


@pytest.mark.parametrize("path", CHANGES)
def test_no_other_run_comes_of_it(run: Path, path: str) -> None:
    before = (run / "experiment.yaml").read_bytes()
    with pytest.raises(BadInput) as error:
        resume(run, **CHANGES[path])
    advice = (
        "start a new one with `shoal train --init-from RUN" if path == "population" else "may change: generations, "
    )
    assert str(error.value).startswith(f"{path}: cannot change in a resumed run; {advice}")
    assert (run / "experiment.yaml").read_bytes() == before


@pytest.mark.parametrize("field", ["interval", "seed", "population", "fitness.final_selection"])
def test_the_command_and_python_say_the_same(run: Path, field: str) -> None:
    outcome = shoal("resume", run, "--set", f"{field}=17")
    with pytest.raises(BadInput) as error:
        resume(run, **({"fitness": {"final_selection": 0.5}} if "." in field else {field: 17}))
    assert (outcome.code, outcome.err) == (2, f"shoal: {error.value}\n")


@given(st.lists(st.sampled_from([*CHANGES.values(), *FREE]), max_size=3), st.booleans())
def test_what_is_taken_changes_nothing_else(run: Path, given: list[dict[str, Any]], again: bool) -> None:
    """Also where what the run has already is given as well."""
    before, changes = of_run(run), {name: x for one in given for name, x in one.items()}
    fields = (vars(before) if again else {}) | changes
    try:
        after = going_on(run, True, fields)
    except BadInput:
        assert any(name in change for change in CHANGES.values() for name in changes)
        return
    assert all(change in FREE for change in ({name: x} for name, x in changes.items()))
    changed = differences(before, after)
    assert set(changed) <= set(CHANGEABLE) and {path.partition(".")[0] for path in changed} <= set(changes)


def walk() -> None:
    """Nothing that is made here."""


@pytest.mark.parametrize(
    ("begun", "again"),
    [
        ({"env": lambda: None}, {"env": walk}),
        ({"config": CONFIG | {"network": lambda spec: None}}, {"config": {"network": walk}}),
        ({"method": {"name": "pbt", "select": lambda key, stats, rows: None}}, {"method": {"select": walk}}),
        ({"fitness": {"objective": lambda info: 0.0, "episodes": 5}}, {"fitness": {"objective": walk}}),
        ({"env": "object:in_parts"}, {"env": in_parts}),
        ({"env": "elsewhere:walk"}, {"env": "object:walk"}),  # of a script, whose module was imported the last time
    ],
)
def test_objects_are_given_again(tmp_path: Path, begun: dict[str, Any], again: dict[str, Any]) -> None:
    """And what is left out beside them stays."""
    (tmp_path / "experiment.yaml").write_text(dump(tiny(**begun)))
    before, after = of_run(tmp_path), going_on(tmp_path, True, again)
    (field,) = again
    assert differences(before, after) != [] and all(path.startswith(field) for path in differences(before, after))
    assert replace(after, **{field: getattr(before, field)}) == before
    if field == "config":
        assert after.config == {**before.config, "network": walk}


def test_code_beside_what_is_given_needs_trust(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(
        dump(tiny(config=CONFIG | {"network": "a:b", "auxiliary_loss": "object:c"}))
    )
    with pytest.raises(BadInput, match=r"config\.network = a:b: the run names code"):
        going_on(tmp_path, False, {"config": {"auxiliary_loss": walk}})
    going_on(tmp_path, False, {"config": {"auxiliary_loss": walk, "network": "a:b"}})
