"""One clear message and exit code 2, and nothing half-made left behind."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections import namedtuple
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from support.cases import every_slow
from support.messages import Said, shown
from support.runs import SETTINGS, flags, rows, same_run, shoal, start

from shoal.environments import suites
from shoal.experiment.experiment import Experiment
from shoal.members.compilation_cache import Entries
from shoal.methods import METHODS
from shoal.records.jsonl import Lines
from shoal.run import rundir


class Points(gymnasium.Env):
    """Episodes of five steps; their info says how often the action was 1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = self._points = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time, self._points = self._time + 1, self._points + int(action == 1)
        info = {"score": {"points": self._points}} if self._time == 5 else {}
        return self._obs(), -1.0, self._time == 5, False, info

    def _obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class Strange(Points):
    action_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)])


@pytest.fixture(autouse=True)
def environments() -> Any:
    """Environments that gymnasium knows for the time of a test."""
    for kind in (Points, Strange):
        gymnasium.register(f"{kind.__name__}-v0", entry_point=kind)
    yield
    for kind in (Points, Strange):
        del gymnasium.registry[f"{kind.__name__}-v0"]


def refused(folder: Path, *arguments: object) -> str:
    """The one message of a command that leaves everything as it was."""
    before = sorted(folder.rglob("*"))
    outcome = shoal(*arguments)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("shoal: ")
    assert outcome.err.count("\n") == 1, outcome.err
    assert "Traceback" not in outcome.err
    assert sorted(folder.rglob("*")) == before
    return outcome.err.removeprefix("shoal: ").rstrip("\n")


@pytest.mark.parametrize(
    "changes",
    [
        {"env": "CartPol-v1"},
        {"env": "gym:CartPole"},
        {"env": "gymnaz:CartPole-v1"},
        {"env": "gymnasium:CartPole-v1"},
        {"env": "json:CartPole-v1"},
        {"env": "gym:Strange-v0"},
        {"env": "gym:CartPole-v1", "env_options": {"gravity": 3}},
        {"env_options": {"gravty": 3}},
        {"env_options": {"max_steps_in_episode": 10**12}},
        {"agent": "ppoo"},
        {"hyper": {"discuont": 0.9}},
        {"space": {"discuont": [0.8, 0.9]}},
        {"space": {"discount": [0.9, 0.8]}},
        {"space": {"learning_rate": [0, 1, "log"]}},
        {"space": {"discount": [0.9, 1.0, "one_minus_log"]}},
        {"population": 1},
        {"population": 0},
        {"generations": -1},
        {"config": {"num_minibatches": 5}},
        {"config": {"layrs": [8]}},
        {"config": {"activation": "tahn"}},
        {"config": {"precision": "float16"}},
        {"select": "trunc"},
        {"method.select.botom": 0.3},
        {"explore": {"name": "perturb", "factors": []}},
        {"fitness.objective": "score"},
        {"env": "gym:Points-v0", "fitness.objective": "score.pionts"},
        {"env": "gym:Points-v0", "fitness.objective": "nowhere:score"},
        {"env": "gym:Points-v0", "fitness.objective": "score"},
        {"schedule": [{"discuont": 0.9}]},
        {"nonsense": 1},
        {"interval": "soon"},
    ],
    ids=shown,
)
def test_impossible_experiments(tmp_path: Path, changes: dict[str, Any], said: Said) -> None:
    said(refused(tmp_path, *flags(tmp_path / "a" / "r", "--quiet", **changes)))


OFF_POLICY = {
    "layers": [8],
    "rollout_length": 16,
    "num_envs": 2,
    "learning_starts": 32,
    "buffer_size": 64,
    "batch_size": 8,
}
PENDULUM = {"env": "gymnax:Pendulum-v1", "config": OFF_POLICY}


@pytest.mark.parametrize(
    ("agent", "changes"),
    [
        ("td3", {"env": "CartPole-v1"}),
        ("sac", {"env": "CartPole-v1"}),
        ("dqn", {}),
        ("td3", {"config": OFF_POLICY | {"buffer_size": 1000, "learning_starts": 200}}),
        ("td3", {"config": {"layers": [8]}}),
        ("sac", {"config": OFF_POLICY | {"learning_starts": 65}}),
        ("sac", {"config": OFF_POLICY | {"learning_starts": -1}}),
        ("td3", {"config": OFF_POLICY | {"batch_size": 0}}),
        ("td3", {"config": OFF_POLICY | {"max_update_ratio": 0}}),
        ("td3", {"config": OFF_POLICY | {"layers": [8, 0]}}),
        ("td3", {"config": OFF_POLICY | {"num_minibatches": 2}}),
        ("td3", {"hyper": {"update_ratio": 1.5}}),
        ("td3", {"hyper": {"update_ratio": 2.5}, "config": OFF_POLICY | {"max_update_ratio": 2}}),
        ("sac", {"hyper": {"update_ratio": -0.1}}),
        ("sac", {"space": {"policy_learning_rate": [-1, 1]}}),
        ("td3", {"hyper": {"target_noise": -0.2}}),
        ("sac", {"hyper": {"tau": 1.1}}),
        ("sac", {"hyper": {"discount": 1.01}}),
        ("td3", {"hyper": {"policy_delay": 0}}),
        ("td3", {"space": {"policy_delay": [0, 4]}}),
        ("td3", {"space": {"update_ratio": [0.1, 2]}}),
        ("td3", {"space": {"policy_delay": {"choices": [1, 0.5]}}}),
        ("td3", {"space": {"tau": {"low": 0.1, "high": 0.9, "initial": 3}}}),
        ("sac", {"schedule": [{"tau": 0.1}, {"tau": -0.5}]}),
        ("dqn", {"env": "CartPole-v1", "hyper": {"final_epsilon": 1.5}}),
        ("dqn", {"env": "CartPole-v1", "hyper": {"target_update_interval": 0}}),
        ("dqn", {"env": "CartPole-v1", "config": OFF_POLICY | {"network": "nature_cnn"}}),
        ("dqn", {"env": "CartPole-v1", "config": OFF_POLICY | {"network": "nature_cn"}}),
        ("dqn", {"env": "CartPole-v1", "config": OFF_POLICY | {"n_step": 17}}),
        ("td3", {"replay": "shared"}),
        ("td3", {"replay": "cpy"}),
    ],
    ids=shown,
)
def test_impossible_learning_from_memory(tmp_path: Path, agent: str, changes: dict[str, Any], said: Said) -> None:
    said(refused(tmp_path, *flags(tmp_path / "r", "--quiet", agent=agent, **PENDULUM | changes)))


@pytest.mark.slow
def test_a_warm_up_that_a_run_just_ends(tmp_path: Path) -> None:
    """A member makes 128 steps: a warm-up of 128 leaves one round of updates, one of 129 is refused."""
    changes = PENDULUM | {"agent": "td3", "config": OFF_POLICY | {"buffer_size": 200, "learning_starts": 129}}
    assert "nothing would ever be learned" in refused(tmp_path, *flags(tmp_path / "r", "--quiet", **changes))
    changes["config"]["learning_starts"] = 128
    assert shoal(*flags(tmp_path / "r", "--quiet", **changes)).code == 0
    targets = [row["members"]["value/target"] for row in rows(tmp_path / "r/metrics.jsonl")]
    assert all(x is None for x in targets[0]) and all(targets[1])


CEM, DVD, ES = (
    PENDULUM | {"method": "cem_rl"},
    PENDULUM | {"method": "dvd"},
    {"method": "es", "config": {"layers": [8]}},
)
METHOD: dict[str, Any] = {
    "pbt": {},
    "mf_pbt": {"periods": [1, 2]},
    "pb2": {},
    "successive_halving": {},
    "independent": {},
    "schedule": {},
}
METHOD |= {"es": ES, "cem_rl": CEM, "dvd": DVD}


def method(name: str, **options: Any) -> dict[str, Any]:
    return METHOD[name] | {"method": {"name": name} | options}


def but_for_pendulum(changes: dict[str, Any]) -> str | None:
    return shown({name: value for name, value in changes.items() if PENDULUM.get(name) != value})


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "ess"},
        {"method": "cemrl"},
        {"method": 3},
        {"method": {"nam": "es"}},
        method("pbt", arms=[0]),
        method("independent", arms=[0]),
        method("es", optimiser="sgd"),
        method("cem_rl", elite=2),
        method("dvd", arm=[0]),
        method("es", optimizer="adamm"),
        method("es", sigma_decay="slow"),
        method("es", sigma_decay=0),
        method("es", learning_rate_decay=1.1),
        method("es", sigma_end=-1),
        method("es", learning_rate_end=-0.1),
        method("es", adaptive_cap=2),
        method("es", chunk=0),
        method("es", chunk=1.5),
        method("cem_rl", gradient_members=5),
        method("cem_rl", gradient_members="all"),
        method("cem_rl", elites=0),
        method("cem_rl", elites=5),
        method("cem_rl", variance=0),
        method("cem_rl", noise_end=-1),
        method("cem_rl", noise_decay=1.5),
        method("cem_rl", mirrored=2),
        method("cem_rl", mirrored=True) | {"population": 5},
        method("pb2", window=1),
        method("pb2", window=5),
        method("successive_halving", eta=1),
        method("dvd", arms=[]),
        method("dvd", arms=[0.5, 1.5]),
        method("dvd", arms=0.5),
        method("dvd", num_states=0),
        method("dvd", resample_interval=0),
        {"agent": "policy"},
        ES | {"agent": "ppo"},
        CEM | {"agent": "sac"},
        DVD | {"agent": "mine:agent"},
        DVD | {"agent": "td"},
        CEM | {"env": "CartPole-v1"},
        DVD | {"env": "CartPole-v1"},
        DVD | {"population": 1},
        CEM | {"population": 1},
        ES | {"population": 1},
        ES | {"space": {"sigma": [0.1, 0.2]}},
        CEM | {"space": {"tau": [0.1, 0.2]}},
        DVD | {"space": {"tau": [0.1, 0.2]}},
        {"schedule": [{"tau": 0.1}]},
        {"schedule": [{}], "space": {"discount": [0.1, 0.2]}},
        method("schedule"),
        method("pbt", burn_in=-1),
        ES | {"fitness.source": "training"},
        CEM | {"fitness.source": "training"},
        ES | {"hyper": {"sigma": 0}},
        ES | {"hyper": {"momentum": 1}},
        ES | {"hyper": {"episode_cap": 0}},
        ES | {"hyper": {"sgima": 1}},
        CEM | {"hyper": {"exploration_noise": 1}},
        DVD | {"hyper": {"diversity": 0.5}},
        DVD | {"hyper": {"update_ratio": 2}},
        ES | {"config": {"rollout_length": 8}},
    ],
    ids=but_for_pendulum,
)
def test_impossible_methods(tmp_path: Path, changes: dict[str, Any], said: Said) -> None:
    said(refused(tmp_path, *flags(tmp_path / "r", "--quiet", **changes)))


@pytest.mark.parametrize(
    ("field", "value"), [("select", "none"), ("explore", "none"), ("replay", "copy"), ("burn_in", 5)]
)
@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if not kind().copies])
def test_what_goes_with_copies_alone(tmp_path: Path, name: str, field: str, value: Any, said: Said) -> None:
    said(refused(tmp_path, *flags(tmp_path / "r", "--quiet", **method(name, **{field: value}))))


LINES = [
    ("method: ess\n", 1),
    ("seed: 1\nmethod:\n  name: es\n  sigma_decay: 2\n", 4),
    ("method:\n  name: es\n  chnk: 4\n", 3),
    ("env: gymnax:Pendulum-v1\nmethod: {name: cem_rl,\n  elites: 9}\n", 3),
    ("env: gymnax:Pendulum-v1\nmethod: dvd\nhyper:\n  discount: 0.9\n  diversity: 1\n", 5),
    ("env: CartPole-v1\nmethod: cem_rl\n", 2),
    ("method:\n  name: es\n  select: none\n", 3),
    ("method: es\nagent: ppo\n", 2),
    ("method: es\nfitness:\n  source: training\n", 3),
    ("method: es\npopulation: 5\n", 2),
    ("method:\n  name: schedule\n  rows:\n  - sigma: 0.1\n", 4),
]


@pytest.mark.parametrize(("text", "line"), LINES, ids=[shown(text) for text, _ in LINES])
def test_an_error_about_a_method_names_its_line(tmp_path: Path, text: str, line: int, said: Said) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(text)
    told = refused(tmp_path, "train", file, "--run-dir", tmp_path / "r")
    assert told.startswith(f"{file}, line {line}: ")
    said(told)


def test_an_error_in_a_file_names_its_line(tmp_path: Path, said: Said) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("population: 4\nconfig:\n  rollout_length: 16\n  num_minibatches: 5\n")
    said(refused(tmp_path, "train", file, "--run-dir", tmp_path / "r"))
    file.write_text("popluation: 4\n")
    said(refused(tmp_path, "train", file))


def test_a_flag_can_mend_a_file_and_is_not_blamed_on_it(tmp_path: Path, said: Said) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("population: 1\nmethod: pbt\nhyper:\n  epochs: 2\n")
    said(refused(tmp_path, "train", file, "--env", "CartPol-v1", "--population", "4"))
    said(refused(tmp_path, "train", file))
    said(refused(tmp_path, "train", file, "--population", "0"))
    said(refused(tmp_path, "train", file, "--population", "4", "--set", "hyper.epoch=1"))


def test_files_that_are_not_there(tmp_path: Path, said: Said) -> None:
    """What is far from any name suggests none."""
    for name in ("cartpole", "e"):
        (tmp_path / f"{name}.yaml").write_text("")
    for name in ("cartpol", "nope"):
        said(refused(tmp_path, "train", tmp_path / f"{name}.yaml"))


def test_a_file_that_comes_with_shoal_is_named_without_its_ending(tmp_path: Path, said: Said) -> None:
    said(refused(tmp_path, "train", "cartpole.yaml"))
    said(refused(tmp_path, "doctor", "carpole.yaml"))


@pytest.mark.parametrize("command", ["train", "doctor"])
@pytest.mark.parametrize("text", ["", "# seed: 1\n"], ids=["empty", "comment"])
def test_a_file_that_is_empty(command: str, text: str, tmp_path: Path, said: Said) -> None:
    (tmp_path / "e.yaml").write_text(text)
    said(refused(tmp_path, command, tmp_path / "e.yaml"))


def test_paths_that_hold_no_run(six: Path, tmp_path: Path, said: Said) -> None:
    """Every command that takes a run says the same, and which path may be meant."""
    empty, study, run = tmp_path / "empty", tmp_path / "study", tmp_path / "study/runs/arm/0"
    for folder in (empty, run):
        folder.mkdir(parents=True)
    (run / "experiment.yaml").touch()
    for path in (tmp_path / "nowhere", empty, study, six / "experiment.yaml", six / "champion"):
        commands = [(name, path) for name in ("resume", "evaluate", "report", "schedule", "replay", "play")]
        (told,) = {refused(tmp_path, *command) for command in [*commands, ("export", path, tmp_path / "policy.npz")]}
        said(told)


@pytest.mark.parametrize("text", ["", "# lost\n", "- 1\n", "a: [\n"], ids=["empty", "comment", "list", "half"])
def test_a_run_whose_experiment_is_damaged(text: str, six: Path, tmp_path: Path, said: Said) -> None:
    """Every command that takes a run says the same."""
    run = Path(shutil.copytree(six, tmp_path / "run"))
    (run / "experiment.yaml").write_text(text)
    commands = [(name, run) for name in ("resume", "evaluate", "report", "schedule", "replay", "play")]
    more = [("export", run, tmp_path / "policy.npz"), ("compare", run, six, "--out", tmp_path / "page.html")]
    (told,) = {refused(tmp_path, *command) for command in [*commands, *more]}
    said(told)


def test_files_of_another_command(six: Path, tmp_path: Path, said: Said) -> None:
    study, experiment = tmp_path / "s.yaml", tmp_path / "e.yaml"
    study.write_text("base:\n  env: CartPole-v1\narms: {pbt: {}, seeds: {method: independent}}\n")
    experiment.write_text("population: 4\nenv: CartPole-v1\n")
    for command in ("train", "doctor"):
        said(refused(tmp_path, command, study))
    said(refused(tmp_path, "study", experiment, "--workspace", tmp_path / "w"))
    said(refused(tmp_path, "train", six))


def test_a_file_that_may_not_be_read_is_not_said_to_be_missing(
    six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """Nor is the file itself proposed in its place."""
    file = six / "experiment.yaml"

    def forbidding(real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, *arguments: Any, **options: Any) -> Any:
            if Path(path).name == file.name:
                raise PermissionError(errno.EACCES, "Permission denied", str(file))
            return real(path, *arguments, **options)

        return opened

    monkeypatch.setattr(Path, "open", forbidding(Path.open))
    monkeypatch.setattr(os, "open", forbidding(os.open))
    commands = [(name, six) for name in ("resume", "evaluate", "report", "schedule", "replay", "play")]
    (told,) = {refused(six, *command) for command in [*commands, ("train", file)]}
    said(told)


LONG = {
    "a": "x" * 5000,
    "b": "words " * 900,
    "c": list(range(2000)),
    "d": {f"n{i}": i for i in range(900)},
}


@pytest.mark.parametrize("field", sorted(known.name for known in fields(Experiment)))
@pytest.mark.parametrize("kind", every_slow(LONG, 1))
def test_long_values_are_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, kind: str) -> None:
    """No experiment survives these, and every message about them is short."""
    monkeypatch.chdir(tmp_path)
    given = json.dumps(LONG[kind])
    outcome = shoal(*flags(tmp_path / "r", "--set", f"{field}={given}", "--set", f"hyper.{'y' * 3000}=1"))
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    assert len(outcome.err) < 1100
    assert not re.search(r"\w{150}|(words ){30}|(\d+, ){40}", outcome.err)


@pytest.mark.parametrize("given", ["hyper.epochs", "hyper.epochs:2"])
def test_set_without_a_value(tmp_path: Path, given: str, said: Said) -> None:
    said(refused(tmp_path, "train", "--set", given))


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--population", "four"],
        ["train", "--interval", "1.5"],
        ["train", "--no-such-flag"],
        ["tarin"],
        ["resume"],
        ["schedule", "runs", "--format", "xml"],
        ["evaluate", "runs", "--episodes", "few"],
    ],
)
def test_flags_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = shoal(*arguments)
    assert outcome.code == 2
    assert "Traceback" not in outcome.out + outcome.err
    assert outcome.err.strip()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        *("evaluate run --episodes ten", "play run --seed x", "toy --seeds 1.5", "report run --port 8080"),
        *("train cartpole --seeds 1 x", "train cartpole --stop-fitness x", "train --workers 2 --launcher ray --gpus x"),
        *(
            "evaluate run --against run --episodes 5",
            "replay run cartpol",
            "play run --episodes 0",
            "play run --seed -1",
            "play run --live --video x.mp4",
            "play run --player 3",
            "study cartpol",
            "study folder",
            "train folder",
            "envs nope",
        ),
        *("train cartpole --method asha", "train cartpole --method random_search", "train cartpole --time-limit 5x"),
    ],
)
def test_words_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: Said) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    outcome = shoal(*words.split())
    assert outcome.code == 2 and list(tmp_path.iterdir()) == [tmp_path / "folder"]
    said(outcome.err)


def test_a_run_directory_that_holds_a_run(six: Path, tmp_path: Path, said: Said) -> None:
    said(refused(six, *flags(six)))
    shutil.copytree(six, tmp_path / "a b")
    said(refused(six, *flags(tmp_path / "a b")))  # as a shell takes it
    (tmp_path / "r/checkpoints").mkdir(parents=True)
    said(refused(tmp_path, *flags(tmp_path / "r")))
    (tmp_path / "file").write_text("")
    said(refused(tmp_path, *flags(tmp_path / "file")))
    said(refused(tmp_path, *flags(tmp_path / "file/r")))


def test_bad_numbers_for_commands_on_a_run(six: Path, said: Said) -> None:
    said(refused(six, "evaluate", six, "--episodes", "0"))
    said(refused(six, "evaluate", six, "--seed", "-1"))
    said(refused(six, "replay", six, "--population", "0"))
    said(refused(six, "replay", six, "--run-dir", six))


def test_a_missing_extra_names_the_command_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setattr(suites, "installed", lambda suite: suite != "brax")
    for env in ("brax:ant", "ant"):
        said(refused(tmp_path, *flags(tmp_path / "r", env=env)))


def test_no_traceback_from_the_command_itself(tmp_path: Path, said: Said) -> None:
    """In a process of its own, from a file, with the default place for the run."""
    (tmp_path / "e.yaml").write_text("agent: pppo\n")
    with start("train", "e.yaml", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    said(err)
    assert [p.name for p in tmp_path.iterdir()] == ["e.yaml"]


# --------------------------------------------------------------------------------------- full disks


def full(*arguments: Any, **options: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def no_program_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a program is written, to the full disk too, depends on how long compiling it took."""
    monkeypatch.setattr(Entries, "put", lambda *arguments: None)


def fails_after(real: Callable, calls: int) -> Callable:
    count = iter(range(10**6))

    def function(*arguments: Any, **options: Any) -> Any:
        return full() if next(count) >= calls else real(*arguments, **options)

    return function


@pytest.mark.usefixtures("no_program_is_written")
@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "mkdir"), (Path, "replace")])
def test_full_at_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, said: Said
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, full)
        message = refused(tmp_path, *flags(tmp_path / "a" / "r"))
    said(message)


@pytest.mark.usefixtures("no_program_is_written")
def test_what_lay_there_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r/notes.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused(tmp_path, *flags(tmp_path / "r"))
    refused(tmp_path, *flags(tmp_path / "r", "--quiet", env="gym:Points-v0", **{"fitness.objective": "nothing"}))
    assert (tmp_path / "r/notes.txt").read_text() == "mine"


def test_too_little_room_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(rundir.shutil, "disk_usage", lambda path: usage(10**9, 10**9, 5000))
    said(refused(tmp_path, *flags(tmp_path / "a" / "r")))


def test_the_room_that_a_run_asks_for_is_the_room_it_takes(six: Path, tmp_path: Path) -> None:
    """Within a factor of a few of what its checkpoints weigh."""
    taken = sum(p.stat().st_size for p in (six / "checkpoints").rglob("*.safetensors"))
    usage, asked = namedtuple("usage", "total used free"), []
    for free in np.geomspace(taken / 4, taken * 5, 10):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rundir.shutil, "disk_usage", lambda path, free=int(free): usage(0, 0, free))
            if not asked and shoal(*flags(tmp_path / "r", "--quiet", generations=1)).code == 0:
                asked.append(free)
    assert taken / 3 < asked[0] < taken * 5


def run_full(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: int, *arguments: str) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails_after(getattr(owner, name), calls))
        return shoal(*arguments)


@pytest.mark.usefixtures("no_program_is_written")
@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    every_slow(
        [(Lines, "write", 5), (Path, "replace", 9), (Lines, "sync", 4), (os, "fsync", 12), (Path, "rename", 3)], 2
    ),
)
def test_full_in_the_middle(
    six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: int, said: Said
) -> None:
    """The run ends with a clear message, and goes on when there is room again."""
    run = tmp_path / "r"
    outcome = run_full(monkeypatch, owner, name, calls, *flags(run, generations=6))
    assert outcome.code == 1
    said(outcome.err)
    assert "Traceback" not in outcome.out
    assert 1 <= len(rows(run / "metrics.jsonl")) <= 5
    assert shoal("resume", run, "--quiet").code == 0
    same_run(six, run)


@pytest.mark.usefixtures("no_program_is_written")
@pytest.mark.slow
def test_full_in_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops with the run that could not be written, and goes on with it."""
    file, study = tmp_path / "s.yaml", tmp_path / "out"
    file.write_text(yaml.safe_dump({"base": SETTINGS, "arms": {"pbt": {}}, "seeds": 2}))
    begin = ["study", file, "--workspace", study, "--quiet"]
    outcome = run_full(monkeypatch, Lines, "write", 3, *begin)
    again = f"shoal study {file} --workspace {study}"
    assert outcome.code == 1
    assert outcome.err == f"shoal: No space left on device; once that is solved, continue with: {again}\n"
    assert len(list(study.glob("runs/pbt/*"))) == 1
    assert shoal(*begin).code == 0
    assert len(list(study.glob("runs/pbt/*/result.json"))) == 2


@pytest.mark.usefixtures("no_program_is_written")
def test_full_at_the_result_and_at_the_report(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "r"
    shutil.copytree(six, run)
    (run / "result.json").unlink()
    real = Path.replace

    def no_result(self: Path, target: Any) -> Any:
        return full() if Path(target).name == "result.json" else real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", no_result)
        outcome = shoal("resume", run)
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert not (run / "result.json").exists()
    with monkeypatch.context() as patch:
        patch.setattr("shoal.report.page.write_file", full)
        outcome, later = shoal("resume", run), shoal("report", run)
    full_disk = f"No space left on device: {run / 'report.html'}"
    told = f"shoal: the run is done, but its report was not written: {full_disk}; try again with: shoal report {run}\n"
    assert (outcome.code, outcome.err) == (1, told)
    assert "champion: " in outcome.out
    assert (later.code, later.err) == (1, f"shoal: {full_disk}\n")
    same_run(six, run)
    assert shoal("report", run).code == 0


@pytest.mark.usefixtures("no_program_is_written")
def test_full_on_resume(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "r"
    assert shoal(*flags(run, "--quiet", generations=3)).code == 0
    outcome = run_full(monkeypatch, os, "fsync", 0, "resume", str(run), "--generations", "6")
    assert outcome.code == 1
    assert f"continue with: shoal resume {run}" in outcome.err
    assert shoal("resume", run, "--quiet", "--generations", "6").code == 0
    same_run(six, run)
