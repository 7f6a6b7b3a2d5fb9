"""The conformance kit: a sound trainer passes it, and each kind of broken one is found by the check that is for it."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.commands.doctor import dry_run
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import make_closed_plan
from shoal.testing import TrainerContract, checks
from shoal.testing.trainee import Trainee
from shoal.trainers.process import Recipe

TESTS = Path(__file__).parents[1]
SUPPORT = str(TESTS / "support")
CHECKS = {name for name in vars(checks) if name.startswith("check_")}

# Which check finds what is broken, and what it says.
BROKEN = {
    "Boastful": ("description", "agent.space: 'speed' does not exist; choose from greed, momentum, rate"),
    "Unseeded": ("seeds", "begin must seed every generator"),
    "OneSeed": ("seeds", "the seed of begin has no effect"),
    "OneBirth": ("seeds", "the seed of make has no effect"),
    "Frozen": (
        "live_equals_built",
        "rate = 0.05, set on a live model, does not do what it does in a model that was",
    ),
    "Raising": ("live_equals_built", "momentum = 0.25, set on a live model: .* failed: TypeError"),
    "Deaf": ("every_hyperparameter_has_an_effect", "greed has no effect: 0.5 instead of 1 changes nothing"),
    "Forgetful": ("state_is_complete", "the state lacks something .*such as w"),
    "HalfLoading": ("file", "a model that export has written is another one .*such as velocity"),
    "Obedient": ("own_hyperparameters_win", "trains with the parent's hyperparameters"),
    "Sharing": ("housemates", "they share something"),
    "Located": ("state_is_complete", "in a new process trains differently"),
    "Curious": ("evaluation", "it changed something"),
    "Random": ("evaluation", "must be deterministic|depends on something"),
    "Sentimental": ("evaluation", "depends on something that is not in `learned`"),
    "wrong_trainers:FirstSeed": ("episodes", "for the same backwards: .* one episode for each seed"),
    "wrong_trainers:Common": ("housemates", "another member of the process had trained: they share"),
    "wrong_trainers:Stale": ("evaluation_of_a_set_state", "must go by the state that was set last"),
    "wrong_trainers:Blunt": ("act", "episodes that act plays return .*, and evaluate gave .* normalise them alike"),
    "wrong_trainers:Columns": ("act", r"actions of shape \[1, 1\] for observations \[1, 2\], which must be \[1\]"),
    "wrong_trainers:Deformed": (
        "act",
        r"spec has obs_shape = \[3\], of which act makes no actions: .*could not be",
    ),
    "wrong_trainers:Hoarding": ("returns", "returns for 40 steps: returns are those of the training episodes that"),
    "Rounding": ("steps", "4 and 2 steps, but they trained for equally long|1 and 2 steps"),
    "Lazy": ("steps", "made only"),
    "Healthy": ("what_diverged", "looks finite"),
    "Threaded": ("nothing_is_left", "threads running: left-over"),
    "Parental": ("nothing_is_left", "processes running"),
}


class TestSound(TrainerContract):
    trainer, path = "trainers:Sound", (SUPPORT,)
    steps = 40


class TestRoughly(TrainerContract):
    """The same, where equal training need not give equal bits."""

    trainer, path = "trainers:Rough", (SUPPORT,)
    steps, exact = 40, False


class TestSaving(TrainerContract):
    """With files of its own."""

    trainer, path = "trainers:Saving", (SUPPORT,)
    steps = 40


class TestPlaying(TrainerContract):
    """In an environment of its own, with observations that are normalised."""

    trainer, env = "support.wrong_trainers:Playing", "support.wrong_trainers:Contexts"
    steps = 40


class TestLate(TrainerContract):
    """`make` need not keep its hyperparameters: `set_hyperparameters` is called before `begin`."""

    trainer, steps = "support.wrong_trainers:Late", 40


def trainee_of(name: str, **options: Any) -> Trainee:
    """A trainer of tests/support."""
    module, _, kind = name.rpartition(":")
    env = "support.wrong_trainers:Contexts" if module else ""
    recipe = Recipe(f"support.{module or 'trainers'}:{kind}", env, path=(str(TESTS),))
    return Trainee(recipe, steps=40, **options)


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name):
    check, message = BROKEN[name]
    with closing(trainee_of(name)) as trainee, pytest.raises(AssertionError, match=message) as caught:
        getattr(checks, f"check_{check}")(trainee)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "names", "says"),
    [
        ("Sound", {"rate", "greed"}, "✓ takes effect on a live member: rate, greed; not tested, .*: momentum$"),
        (
            "Sound",
            set(),
            "✓ same seeds give the same training; not tested, as they stay fixed: rate, momentum, greed$",
        ),
        ("Deaf", {"rate"}, "✓ takes effect on a live member: rate; not"),
        ("Deaf", {"greed"}, "✗ greed = 0.5, set on a live model, does not do|✗ greed has no effect"),
        ("Frozen", {"rate", "momentum"}, "✗ rate = 0.05, set on a live model, does not do what"),
        ("Failing", {"rate"}, r"✗ support\.trainers:Failing failed: RuntimeError: the simulator is gone"),
    ],
)
def test_the_doctor_tries_what_an_experiment_changes(name: str, names: set[str], says: str) -> None:
    plan = make_closed_plan(
        Experiment(env="none", agent=f"support.trainers:{name}", method="pbt", population=2, interval=40)
    )
    (finding,) = dry_run.trainer(plan, names)
    assert re.match(says, f"{finding.mark} {finding.text}"), finding


def test_the_doctor_tells_what_a_trainer_raises_in_the_dry_run() -> None:
    plan = make_closed_plan(
        Experiment(env="none", agent="support.trainers:Failing", method="pbt", population=2, interval=40)
    )
    (finding,) = dry_run.dry_run(plan)
    assert finding.mark == "✗" and "the simulator is gone" in finding.text, finding


def test_every_check_is_a_test_and_finds_something():
    tests = {name for name in vars(TrainerContract) if name.startswith("test_")}
    assert {name.replace("test_", "check_", 1) for name in tests} == CHECKS
    assert {f"check_{check}" for check, _ in BROKEN.values()} == CHECKS


@pytest.mark.parametrize("values, wrong", [({}, "give another value of greed in `values`"), ({"greed": 1.005}, None)])
def test_another_value_where_limits_are_narrow(values, wrong):
    expected = nullcontext() if wrong is None else pytest.raises(AssertionError, match=wrong)
    with closing(trainee_of("Narrow", values=values)) as trainee, expected:
        checks.check_live_equals_built(trainee)


@pytest.mark.parametrize(
    ("r", "default", "other"),
    [
        ({"low": 1, "high": 9, "integer": True}, 5.0, 2.0),
        ({"low": 1, "high": 9, "integer": True}, 1.0, 2.0),
        ({"choices": [4, 16, 64]}, 16.0, 4.0),
        ({"low": 1, "high": 9}, 5.0, 2.5),
    ],
)
def test_another_value_is_one_that_its_range_has(r: dict[str, Any], default: float, other: float) -> None:
    """Half an integer is none."""
    trainee = Trainee(Recipe("none", ""))
    description = {"hyper": {"epochs": default}, "space": {"epochs": r}, "limits": {}, "spec": None}
    vars(trainee)["process"] = SimpleNamespace(description=description)
    assert trainee.others == {"epochs": other}


def test_environments_that_can_be_seeded_only_together():
    with closing(trainee_of("wrong_trainers:FirstSeed", seeded=False)) as trainee:
        checks.check_episodes(trainee)


def test_the_kit_runs_as_its_page_says(tmp_path: Path) -> None:
    """The class of the page on external trainers; under the example's name another one, in the current directory alone."""
    page = (TESTS.parent / "docs/how-to/external_trainers.md").read_text()
    section = page.partition("## The conformance kit")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (tmp_path / "test_mine.py").write_text(block)
    (tmp_path / "own_trainer.py").write_text(STAND_IN.format(support=SUPPORT))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        "test_mine.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and f"{len(CHECKS)} passed" in done.stdout, done.stdout
    fields = set(re.findall(r"`(\w+)`", "".join(re.findall(r"(?m)^\| (`.*?) \|", section))))
    assert fields - {"agent"} == set(TrainerContract.__annotations__) - {"trainee"}


STAND_IN = """
import sys
sys.path.append({support!r})
from trainers import Sound

class OwnPpo(Sound):
    def __init__(self, env, env_options, n_envs, n_steps):
        super().__init__(env, env_options, envs=n_envs)
        self.spec = None
"""
