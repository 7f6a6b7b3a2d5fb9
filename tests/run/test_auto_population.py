"""How many members take the time of one is measured, chosen, written down and told."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import jax
import pytest
from support.cases import others_slow
from support.messages import Said
from support.runs import SETTINGS, settings, shoal, tiny

from shoal import resume, train
from shoal.commands.doctor import dry_run
from shoal.core.errors import BadInput
from shoal.core.interrupts import BAD_INPUT
from shoal.experiment.experiment import ExchangeSettings, Experiment, Fitness
from shoal.experiment.files import from_dict, of_run
from shoal.experiment.plan import make_plan
from shoal.records.callback import Callback
from shoal.run import auto_population
from shoal.run.auto_population import FreeMembers, measure, resolved, sizes

# Quick to compile, under the names that a file has for them.
IDLE = {"agent": "support.clocked:clocked", "config": {}}


class Noted(Callback):
    """Keep what the user is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_message(self, message: str) -> None:
        self.notes.append(message)


@pytest.fixture
def four_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which four members take the time of one."""
    monkeypatch.setattr(auto_population, "timed", lambda plan, n, iterations: (iterations * max(1.0, n / 4), 0.1))


@pytest.mark.parametrize(
    "devices, expected", [(1, [1, 2, 4, 8]), (2, [1, 2, 4, 8]), (6, [1, 2, 4, 6, 12, 24]), (8, [1, 2, 4, 8, 16])]
)
def test_sizes_fill_the_devices(monkeypatch: pytest.MonkeyPatch, devices: int, expected: list[int]) -> None:
    monkeypatch.setattr(jax, "devices", lambda: [None] * devices)
    assert list(itertools.islice(sizes(), len(expected))) == expected


def test_the_most_members_within_the_time_of_one() -> None:
    found = FreeMembers({1: 1.0, 2: 0.8, 4: 1.2, 8: 1.3})
    assert found.members == 4 and found.times(8) == 1.3
    assert FreeMembers({1: 1.0, 2: 1.5}).members == 1


@pytest.mark.parametrize("devices", others_slow([1, 2], 2))
def test_generations_are_timed_on_the_devices(monkeypatch: pytest.MonkeyPatch, devices: int) -> None:
    there = jax.devices()[:devices]
    monkeypatch.setattr(jax, "devices", lambda: there)
    monkeypatch.setattr(auto_population, "PART", 0.05)
    found = measure(tiny(env="support.numbered:on_device", **IDLE), limit=0)
    assert list(found.seconds) == [1, 2] and all(x > 0 for x in found.seconds.values())
    assert found.stopped == ("0 s were over" if found.members == 2 else "")


@pytest.mark.usefixtures("four_free")
@pytest.mark.parametrize("free, why", [(None, "120 s were over"), (10, "2 do not fit into memory")])
def test_no_more_are_tried(monkeypatch: pytest.MonkeyPatch, free: int | None, why: str) -> None:
    monkeypatch.setattr(auto_population, "free_memory", lambda: free)
    seconds = itertools.count(0, 200.0)
    monkeypatch.setattr(auto_population.time, "perf_counter", lambda: next(seconds))
    found = measure(tiny())
    assert found.stopped == why


@pytest.mark.slow
@pytest.mark.usefixtures("four_free")
def test_a_run_takes_that_many(said: Said, tmp_path: Path) -> None:
    """Its file has the number, with which it goes on, whatever the machine is by then."""
    noted = Noted()
    train(tiny(tmp_path / "run", population="auto", **IDLE), [noted])
    said(noted.notes[0])
    assert of_run(tmp_path / "run").population == 4
    again = resume(tmp_path / "run", generations=3, trust_code=True)
    assert again.summary["generations"] == 3


def test_episodes_are_a_number_too(said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run says how many they are, and what they cost at most."""
    noted, fitness = Noted(), Fitness(episodes="auto", step_limit=60)  # type: ignore[arg-type]
    monkeypatch.setattr("shoal.members.gradient_trained.EPISODES_ON_DEVICE", 2)
    train(tiny(tmp_path / "run", fitness=fitness, generations=1, **IDLE), [noted])
    said(noted.notes[0])
    assert of_run(tmp_path / "run").fitness.episodes == 2


@pytest.mark.usefixtures("four_free")
@pytest.mark.parametrize("auto", [False, True], ids=["a number", "auto"])
def test_what_the_doctor_says(said: Said, monkeypatch: pytest.MonkeyPatch, auto: bool) -> None:
    monkeypatch.setattr(dry_run, "dry_run", lambda plan: [])
    monkeypatch.setenv("COLUMNS", "300")
    given = settings(population="auto") if auto else ["--members", *settings(population=6)]
    done = shoal("doctor", *given)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("✓ members "))
    for line in lines[at : at + 6]:
        said(line.rstrip())
    assert any(f"{4 if auto else 6} members on 2 of 2" in line for line in lines)


@pytest.mark.usefixtures("four_free")
def test_arms_of_a_study_have_numbers(said: Said, tmp_path: Path) -> None:
    study = {"base": SETTINGS | {"population": "auto"}, "arms": {"pbt": {}, "independent": {"method": "independent"}}}
    (tmp_path / "study.yaml").write_text(json.dumps(study | {"seeds": 1}))
    done = shoal("study", tmp_path / "study.yaml")
    assert done.code == BAD_INPUT
    said(done.err)


@pytest.mark.parametrize(
    "changes",
    [
        {"shards": 2},
        {"exchange": ExchangeSettings("mpi")},
        {"method": "es", "config": {}},
        {"method": "dvd", "config": {}, "env": "gymnax:Pendulum-v1"},
        {"agent": "support.trainers:Sound"},
    ],
    ids=["shards", "mpi", "es", "dvd", "trainer"],
)
def test_runs_without_a_time_of_one(said: Said, changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        train(Experiment(population="auto", **changes))  # type: ignore[arg-type]
    said(str(caught.value))


def test_where_one_is_free_and_the_method_needs_two(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_population, "timed", lambda plan, n, iterations: (iterations * float(n), 0.1))
    with pytest.raises(BadInput) as caught:
        train(tiny(population="auto"))
    said(str(caught.value))


@pytest.mark.usefixtures("four_free")
@pytest.mark.parametrize(
    ("method", "taken"),
    [
        (
            {"name": "successive_halving", "rungs": [0.1, 0.6]},
            4,
        ),  # not the default population, for which there are three
        ({"name": "successive_halving", "rungs": [0.4]}, 2),
        (
            {"name": "successive_halving", "min_members": 6},
            "4 members take the time of one here; method.min_members = 6",
        ),
        ("mf_pbt", "4 members take the time of one here; population = 4: its 4 sub-populations need at least 8"),
    ],
)
def test_methods_that_do_not_take_every_number(method: Any, taken: int | str) -> None:
    experiment = tiny(population="auto", method=method)
    if isinstance(taken, int):
        assert resolved(experiment, lambda message: None).population == taken
    else:
        with pytest.raises(BadInput, match=taken):
            resolved(experiment, lambda message: None)


def test_runs_that_would_differ_by_machine(said: Said) -> None:
    """Arms of a study, for one, are planned and not measured."""
    with pytest.raises(BadInput) as caught:
        make_plan(from_dict({"population": "auto"}))
    said(str(caught.value))
    with pytest.raises(BadInput, match="must be an integer"):
        from_dict({"population": "many"})
