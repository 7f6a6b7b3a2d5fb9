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
from support.runs import SETTINGS, flags, rows, same_run, shoal, start

from shoal.environments import registry
from shoal.experiment.experiment import Experiment
from shoal.methods import METHODS
from shoal.records.jsonl import Lines
from shoal.run import rundir

pytestmark = pytest.mark.usefixtures("shared_programs")


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
    ("changes", "message"),
    [
        ({"env": "CartPol-v1"}, "env: 'CartPol-v1' does not exist; did you mean gymnax:CartPole-v1"),
        ({"env": "gym:CartPole"}, "env: 'gym:CartPole' does not exist; did you mean gym:CartPole-v"),
        ({"env": "gymnaz:CartPole-v1"}, "env: there is no suite 'gymnaz'"),
        ({"env": "gym:Strange-v0"}, "env: gym:Strange-v0 has the action space Tuple(Discrete(2), Discrete(2))"),
        ({"env": "gym:CartPole-v1", "env_options": {"gravity": 3}}, "env: gym:CartPole-v1 with env_options"),
        ({"env_options": {"gravty": 3}}, "env_options: 'gravty' does not exist; did you mean gravity?"),
        ({"env_options": {"max_steps_in_episode": 10**12}}, "env_options.max_steps_in_episode = 1000000000000: must"),
        ({"agent": "ppoo"}, "agent: 'ppoo' does not exist; did you mean ppo?"),
        ({"hyper": {"discuont": 0.9}}, "hyper: 'discuont' does not exist; did you mean discount?"),
        ({"space": {"discuont": [0.8, 0.9]}}, "space: 'discuont' does not exist; did you mean discount?"),
        ({"space": {"discount": [0.9, 0.8]}}, "space.discount: low = 0.9 must be below high = 0.8"),
        ({"space": {"learning_rate": [0, 1, "log"]}}, "space.learning_rate: a log scale needs low > 0, not 0"),
        ({"space": {"discount": [0.9, 1.0, "one_minus_log"]}}, "space.discount: a one_minus_log scale needs"),
        ({"population": 1}, "population = 1: selection by Truncation needs at least 2; for a single agent"),
        ({"population": 0}, "population = 0: must be at least 1"),
        ({"generations": -1}, "generations = -1: must be at least 1"),
        ({"config": {"minibatches": 5}}, "config.minibatches = 5: does not divide the 512 steps of a rollout"),
        ({"config": {"layrs": [8]}}, "config: 'layrs' does not exist; did you mean layers?"),
        ({"config": {"activation": "tahn"}}, "config.activation: 'tahn' does not exist; did you mean tanh?"),
        ({"config": {"precision": "float16"}}, "config.precision: 'float16' does not exist; did you mean"),
        ({"select": "trunc"}, "method.select: 'trunc' does not exist; did you mean truncation?"),
        ({"method.select.botom": 0.3}, "method.select: 'botom' does not exist; did you mean bottom"),
        ({"explore": {"name": "perturb", "factors": []}}, "method.explore.factors = (): must be positive numbers"),
        ({"fitness.objective": "score"}, "fitness.objective: gymnax:CartPole-v1 has no info"),
        (
            {"env": "gym:Points-v0", "fitness.objective": "score.pionts"},
            "score.pionts: the info of an episode's end has",
        ),
        ({"env": "gym:Points-v0", "fitness.objective": "nowhere:score"}, "fitness.objective"),
        ({"env": "gym:Points-v0", "fitness.objective": "score"}, "fitness.objective = score: is not one number"),
        ({"schedule": [{"discuont": 0.9}]}, "method.rows.0: 'discuont' does not exist; did you mean discount?"),
        ({"nonsense": 1}, "the experiment: 'nonsense' does not exist"),
        ({"interval": "soon"}, "interval = 'soon': must be a whole number"),
    ],
)
def test_impossible_experiments(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert message in refused(tmp_path, *flags(tmp_path / "a" / "r", "--quiet", **changes))


OFF_POLICY = {"layers": [8], "rollout": 16, "environments": 2, "warm_up": 32, "capacity": 64, "batch": 8}
PENDULUM = {"env": "gymnax:Pendulum-v1", "config": OFF_POLICY}


@pytest.mark.parametrize(
    ("agent", "changes", "message"),
    [
        ("td3", {"env": "CartPole-v1"}, "agent = td3: needs continuous actions, and this environment's are discrete"),
        ("sac", {"env": "CartPole-v1"}, "agent = sac: needs continuous actions, and this environment's are discrete"),
        ("dqn", {}, "agent = dqn: needs one discrete action; take td3 or sac for continuous actions, ppo for others"),
        (
            "td3",
            {"config": OFF_POLICY | {"capacity": 1000, "warm_up": 200}},
            "config.warm_up = 200: nothing would ever be learned, for a member makes 128 steps in all",
        ),
        ("td3", {"config": {"layers": [8]}}, "config.warm_up = 1000: nothing would ever be learned"),
        (
            "sac",
            {"config": OFF_POLICY | {"warm_up": 65}},
            "config.warm_up = 65: does not fit into config.capacity = 64",
        ),
        ("sac", {"config": OFF_POLICY | {"warm_up": -1}}, "config.warm_up = -1: must be at least 0"),
        ("td3", {"config": OFF_POLICY | {"batch": 0}}, "config.batch = 0: must be at least 1"),
        ("td3", {"config": OFF_POLICY | {"updates_per_step": 0}}, "config.updates_per_step = 0: must be at least 1"),
        ("td3", {"config": OFF_POLICY | {"layers": [8, 0]}}, "config.layers = [8, 0]: every width must be at least 1"),
        ("td3", {"config": OFF_POLICY | {"minibatches": 2}}, "config: 'minibatches' does not exist"),
        ("td3", {"hyper": {"update_ratio": 1.5}}, "hyper.update_ratio = 1.5: must lie within [0, 1]"),
        (
            "td3",
            {"hyper": {"update_ratio": 2.5}, "config": OFF_POLICY | {"updates_per_step": 2}},
            "hyper.update_ratio = 2.5: must lie within [0, 2]",
        ),
        ("sac", {"hyper": {"update_ratio": -0.1}}, "hyper.update_ratio = -0.1: must lie within [0, 1]"),
        ("sac", {"space": {"policy_learning_rate": [-1, 1]}}, "space.policy_learning_rate.low = -1: must lie within"),
        ("td3", {"hyper": {"target_noise": -0.2}}, "hyper.target_noise = -0.2: must lie within [0, inf]"),
        ("sac", {"hyper": {"tau": 1.1}}, "hyper.tau = 1.1: must lie within [0, 1]"),
        ("sac", {"hyper": {"discount": 1.01}}, "hyper.discount = 1.01: must lie within [0, 1]"),
        ("td3", {"hyper": {"policy_delay": 0}}, "hyper.policy_delay = 0: must lie within [1, 1e+06]"),
        ("td3", {"space": {"policy_delay": [0, 4]}}, "space.policy_delay.low = 0: must lie within [1, 1e+06]"),
        ("td3", {"space": {"update_ratio": [0.1, 2]}}, "space.update_ratio.high = 2: must lie within [0, 1]"),
        (
            "td3",
            {"space": {"policy_delay": {"choices": [1, 0.5]}}},
            "space.policy_delay.choices = 0.5: must lie within [1, 1e+06]",
        ),
        (
            "td3",
            {"space": {"tau": {"low": 0.1, "high": 0.9, "start": 3}}},
            "space.tau: start = 3 lies outside low = 0.1",
        ),
        (
            "sac",
            {"schedule": [{"tau": 0.1}, {"tau": -0.5}]},
            "method.rows.1.tau = -0.5: must lie within [0, 1]",
        ),
        ("dqn", {"env": "CartPole-v1", "hyper": {"epsilon": 1.5}}, "hyper.epsilon = 1.5: must lie within [0, 1]"),
        ("dqn", {"env": "CartPole-v1", "hyper": {"target_period": 0}}, "hyper.target_period = 0: must lie within [1,"),
        (
            "dqn",
            {"env": "CartPole-v1", "config": OFF_POLICY | {"network": "nature_cnn"}},
            "config.network = nature_cnn: takes images of at least 36 x 36, not observations (4,)",
        ),
        (
            "dqn",
            {"env": "CartPole-v1", "config": OFF_POLICY | {"network": "nature_cn"}},
            "config.network: 'nature_cn' does not exist; did you mean nature_cnn?",
        ),
        (
            "dqn",
            {"env": "CartPole-v1", "config": OFF_POLICY | {"n_step": 17}},
            "config.n_step = 17: must be from 1 to config.rollout = 16",
        ),
        ("td3", {"memory": "shared"}, "method.memory: 'shared' does not exist; choose from copy, own"),
        ("td3", {"memory": "cpy"}, "method.memory: 'cpy' does not exist; did you mean copy?"),
    ],
)
def test_impossible_learning_from_memory(tmp_path: Path, agent: str, changes: dict[str, Any], message: str) -> None:
    told = refused(tmp_path, *flags(tmp_path / "r", "--quiet", agent=agent, **PENDULUM | changes))
    assert told.startswith(message)


@pytest.mark.slow
def test_a_warm_up_that_a_run_just_ends(tmp_path: Path) -> None:
    """A member makes 128 steps: a warm-up of 128 leaves one round of updates, one of 129 is refused."""
    changes = PENDULUM | {"agent": "td3", "config": OFF_POLICY | {"capacity": 200, "warm_up": 129}}
    assert "nothing would ever be learned" in refused(tmp_path, *flags(tmp_path / "r", "--quiet", **changes))
    changes["config"]["warm_up"] = 128
    assert shoal(*flags(tmp_path / "r", "--quiet", **changes)).code == 0
    targets = [row["members"]["value/target"] for row in rows(tmp_path / "r/metrics.jsonl")]
    assert all(x is None for x in targets[0]) and all(targets[1])


CEM, DVD, ES = (
    PENDULUM | {"method": "cem_rl"},
    PENDULUM | {"method": "dvd"},
    {"method": "es", "config": {"layers": [8]}},
)
METHOD: dict[str, Any] = {"pbt": {}, "mf_pbt": {"periods": [1, 2]}, "pb2": {}, "ipbt": {}, "seeds": {}, "schedule": {}}
METHOD |= {"es": ES, "cem_rl": CEM, "dvd": DVD}


def method(name: str, **options: Any) -> dict[str, Any]:
    return METHOD[name] | {"method": {"name": name} | options}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "ess"}, "method: 'ess' does not exist; did you mean es?"),
        ({"method": "cemrl"}, "method: 'cemrl' does not exist; did you mean cem_rl?"),
        (
            {"method": 3},
            "method = 3: write one of pbt, mf_pbt, pb2, ipbt, seeds, schedule, es, cem_rl, dvd, or a mapping of name",
        ),
        (
            {"method": {"nam": "es"}},
            "method: needs a name, one of pbt, mf_pbt, pb2, ipbt, seeds, schedule, es, cem_rl, dvd",
        ),
        (method("pbt", arms=[0]), "method: 'arms' does not exist"),
        (method("seeds", arms=[0]), "method: 'arms' does not exist"),
        (method("es", optimizer="sgd"), "method: 'optimizer' does not exist; did you mean optimiser?"),
        (method("cem_rl", elite=2), "method: 'elite' does not exist; did you mean elites?"),
        (method("dvd", arm=[0]), "method: 'arm' does not exist; did you mean arms?"),
        (method("es", optimiser="adamm"), "method.optimiser: 'adamm' does not exist; did you mean adam?"),
        (method("es", sigma_decay="slow"), "method.sigma_decay = 'slow': must be a number"),
        (method("es", sigma_decay=0), "method.sigma_decay = 0: must lie within (0, 1]"),
        (method("es", learning_rate_decay=1.1), "method.learning_rate_decay = 1.1: must lie within (0, 1]"),
        (method("es", sigma_end=-1), "method.sigma_end = -1: must be at least 0"),
        (method("es", learning_rate_end=-0.1), "method.learning_rate_end = -0.1: must be at least 0"),
        (method("es", adaptive_cap=2), "method.adaptive_cap = 2: must be true or false"),
        (method("es", chunk=0), "method.chunk = 0: must be at least 1"),
        (method("es", chunk=1.5), "method.chunk = 1.5: must be a whole number"),
        (method("cem_rl", trained=5), "method.trained = 5: must lie within 0 and population = 4"),
        (method("cem_rl", trained="all"), "method.trained = 'all': must be a whole number"),
        (method("cem_rl", elites=0), "method.elites = 0: must lie within 1 and population = 4"),
        (method("cem_rl", elites=5), "method.elites = 5: must lie within 1 and population = 4"),
        (method("cem_rl", variance=0), "method.variance = 0.0: must be above 0"),
        (method("cem_rl", noise_end=-1), "method.noise_end = -1.0: must be at least 0"),
        (method("cem_rl", noise_decay=1.5), "method.noise_decay = 1.5: must lie within 0 and 1"),
        (method("cem_rl", mirrored=2), "method.mirrored = 2: must be true or false"),
        (method("cem_rl", mirrored=True) | {"population": 5}, "population = 5: method.mirrored draws members in pairs"),
        (method("pb2", rows=1), "method.rows = 1: must be at least 2"),
        (method("pb2", rows=5), "method.rows = 5: must be more than the 5 hyperparameters of the space"),
        (method("ipbt", patience=0), "method.patience = 0: must be at least 1"),
        (method("dvd", arms=[]), "method.arms = []: needs numbers, each within 0 and 1"),
        (method("dvd", arms=[0.5, 1.5]), "method.arms = [0.5, 1.5]: needs numbers, each within 0 and 1"),
        (method("dvd", arms=0.5), "method.arms = 0.5: must be a list"),
        (method("dvd", probes=0), "method.probes = 0: must be at least 1"),
        (method("dvd", redraw=0), "method.redraw = 0: must be at least 1"),
        ({"agent": "policy"}, "agent = policy: method pbt trains ppo, td3, sac, dqn, or module:factory of your own; p"),
        (ES | {"agent": "ppo"}, "agent = ppo: method es trains policy, or module:factory of your own; ppo goes with"),
        (
            CEM | {"agent": "sac"},
            "agent = sac: method cem_rl trains td3; sac goes with method pbt or mf_pbt or pb2 or ipbt or seeds or schedule",
        ),
        (DVD | {"agent": "mine:agent"}, "agent = mine:agent: method dvd trains td3"),
        (DVD | {"agent": "td"}, "agent: 'td' does not exist; did you mean td3?"),
        (
            CEM | {"env": "CartPole-v1"},
            "method = cem_rl: td3 needs continuous actions, and this environment's are discrete",
        ),
        (
            DVD | {"env": "CartPole-v1"},
            "method = dvd: td3 needs continuous actions, and this environment's are discrete",
        ),
        (DVD | {"population": 1}, "population = 1: method dvd compares members; it needs at least 2"),
        (CEM | {"population": 1}, "population = 1: method cem_rl draws at least 2 members"),
        (ES | {"population": 1}, "population = 1: method es perturbs in mirrored pairs; it must be a multiple of 2"),
        (ES | {"space": {"sigma": [0.1, 0.2]}}, "space: method es tunes nothing; give hyperparameters fixed values"),
        (CEM | {"space": {"tau": [0.1, 0.2]}}, "space: method cem_rl tunes nothing; give hyperparameters fixed values"),
        (DVD | {"space": {"tau": [0.1, 0.2]}}, "space: method dvd tunes nothing; give hyperparameters fixed values"),
        ({"schedule": [{"tau": 0.1}]}, "method.rows.0: 'tau' does not exist"),
        ({"schedule": [{}], "space": {"discount": [0.1, 0.2]}}, "space: method schedule tunes nothing"),
        (method("schedule"), "method.rows: needs the hyperparameters of at least one generation"),
        (method("pbt", start_after=-1), "method.start_after = -1: must be at least 0"),
        (ES | {"fitness.source": "training"}, "fitness.source = training: with method es members train in their"),
        (CEM | {"fitness.source": "training"}, "fitness.source = training: with method cem_rl members train in their"),
        (ES | {"hyper": {"sigma": 0}}, "hyper.sigma = 0: must lie within [1e-09, 1e+09]"),
        (ES | {"hyper": {"momentum": 1}}, "hyper.momentum = 1: must lie within [0, 0.9999]"),
        (ES | {"hyper": {"episode_cap": 0}}, "hyper.episode_cap = 0: must lie within [1, 1e+09]"),
        (ES | {"hyper": {"sgima": 1}}, "hyper: 'sgima' does not exist; did you mean sigma?"),
        (CEM | {"hyper": {"exploration_noise": 1}}, "hyper: 'exploration_noise' does not exist"),
        (DVD | {"hyper": {"diversity": 0.5}}, "hyper.diversity: method dvd chooses it by itself, among method.arms"),
        (DVD | {"hyper": {"update_ratio": 2}}, "hyper.update_ratio = 2: must lie within [0, 1]"),
        (ES | {"config": {"rollout": 8}}, "config: 'rollout' does not exist"),
    ],
)
def test_impossible_methods(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert refused(tmp_path, *flags(tmp_path / "r", "--quiet", **changes)).startswith(message)


@pytest.mark.parametrize(
    ("field", "value"), [("select", "keep"), ("explore", "keep"), ("memory", "copy"), ("start_after", 5)]
)
@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if not kind.copies])
def test_what_goes_with_copies_alone(tmp_path: Path, name: str, field: str, value: Any) -> None:
    told = refused(tmp_path, *flags(tmp_path / "r", "--quiet", **method(name, **{field: value})))
    assert told.startswith(f"method: '{field}' does not exist")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("method: ess\n", 1, "method: 'ess' does not exist"),
        ("seed: 1\nmethod:\n  name: es\n  sigma_decay: 2\n", 4, "method.sigma_decay = 2"),
        ("method:\n  name: es\n  chnk: 4\n", 3, "method: 'chnk' does not exist; did you mean chunk?"),
        ("env: gymnax:Pendulum-v1\nmethod: {name: cem_rl,\n  elites: 9}\n", 3, "method.elites = 9"),
        ("env: gymnax:Pendulum-v1\nmethod: dvd\nhyper:\n  discount: 0.9\n  diversity: 1\n", 5, "hyper.diversity: m"),
        ("env: CartPole-v1\nmethod: cem_rl\n", 2, "method = cem_rl: td3 needs continuous actions"),
        ("method:\n  name: es\n  select: keep\n", 3, "method: 'select' does not exist"),
        ("method: es\nagent: ppo\n", 2, "agent = ppo: method es trains policy"),
        ("method: es\nfitness:\n  source: training\n", 3, "fitness.source = training"),
        ("method: es\npopulation: 5\n", 2, "population = 5: method es perturbs"),
        ("method:\n  name: schedule\n  rows:\n  - sigma: 0.1\n", 4, "method.rows.0: 'sigma' does not exist"),
    ],
)
def test_an_error_about_a_method_names_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(text)
    told = refused(tmp_path, "train", file, "--run-dir", tmp_path / "r")
    assert told.startswith(f"{file}, line {line}: {message}")


def test_an_error_in_a_file_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("population: 4\nconfig:\n  rollout: 16\n  minibatches: 5\n")
    place = f"{file}, line 4: config.minibatches = 5: does not divide"
    assert refused(tmp_path, "train", file, "--run-dir", tmp_path / "r").startswith(place)
    file.write_text("popluation: 4\n")
    assert refused(tmp_path, "train", file).startswith(f"{file}, line 1: the experiment: 'popluation' does not exist")


def test_a_flag_can_mend_a_file_and_is_not_blamed_on_it(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("population: 1\nhyper:\n  epochs: 2\n")
    message = refused(tmp_path, "train", file, "--env", "CartPol-v1", "--population", "4")
    assert message.startswith("env: 'CartPol-v1' does not exist")
    assert refused(tmp_path, "train", file).startswith(f"{file}, line 1: population = 1")
    assert refused(tmp_path, "train", file, "--population", "0").startswith("population = 0")
    message = refused(tmp_path, "train", file, "--population", "4", "--set", "hyper.epoch=1")
    assert message.startswith("hyper: 'epoch' does not exist; did you mean epochs?")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "cartpole.yaml").write_text("")
    assert "did you mean cartpole.yaml?" in refused(tmp_path, "train", tmp_path / "cartpol.yaml")


def test_paths_that_hold_no_run(six: Path, tmp_path: Path) -> None:
    """Every command that takes a run says the same, and which path may be meant."""
    empty, study, run = tmp_path / "empty", tmp_path / "study", tmp_path / "study/runs/arm/0"
    for folder in (empty, run):
        folder.mkdir(parents=True)
    (run / "experiment.yaml").touch()
    lacks = "holds no run: there is no experiment.yaml in it"
    for path, message in (
        (tmp_path / "nowhere", f"{tmp_path / 'nowhere'}: no such directory"),
        (empty, f"{empty} {lacks}"),
        (study, f"{study} {lacks}; did you mean {run}?"),
        (
            six / "experiment.yaml",
            f"{six / 'experiment.yaml'} is a part of a run: give the directory of the run, {six}",
        ),
        (six / "champion", f"{six / 'champion'} is a part of a run: give the directory of the run, {six}"),
    ):
        for command in ("resume", "evaluate", "report", "schedule", "replay", "play"):
            assert refused(tmp_path, command, path) == message
        assert refused(tmp_path, "export", path, tmp_path / "policy.npz") == message


def test_files_of_another_command(six: Path, tmp_path: Path) -> None:
    study, experiment = tmp_path / "s.yaml", tmp_path / "e.yaml"
    study.write_text("base:\n  env: CartPole-v1\narms: {pbt: {}, seeds: {method: seeds}}\n")
    experiment.write_text("population: 4\nenv: CartPole-v1\n")
    for command in ("train", "doctor"):
        told = refused(tmp_path, command, study)
        assert told.startswith(f"{study}, line 3: arms: ") and told.endswith("give the file to shoal study")
    told = refused(tmp_path, "study", experiment, "--workspace", tmp_path / "w")
    assert told.startswith(f"{experiment}, line 2: env: ") and told.endswith("give the file to shoal train")
    assert refused(tmp_path, "train", six).endswith("it holds a run, with which shoal resume goes on")


def test_a_file_that_may_not_be_read_is_not_said_to_be_missing(
    six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    for command in ("resume", "evaluate", "replay", "play"):
        assert refused(six, command, six) == f"{file}: Permission denied"
    assert refused(six, "train", file) == f"{file}: Permission denied"
    for command in ("report", "schedule"):
        assert shoal(command, six)[::2] == (1, f"shoal: Permission denied: {file}\n")


LONG = {
    "a": "x" * 5000,
    "b": "words " * 900,
    "c": list(range(2000)),
    "d": {f"n{i}": i for i in range(900)},
}


@pytest.mark.parametrize("field", sorted(known.name for known in fields(Experiment)))
@pytest.mark.parametrize("kind", LONG)
def test_long_values_are_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, kind: str) -> None:
    """Whoever refuses them; no experiment survives these."""
    monkeypatch.chdir(tmp_path)
    given = json.dumps(LONG[kind])
    outcome = shoal(*flags(tmp_path / "r", "--set", f"{field}={given}", "--set", f"hyper.{'y' * 3000}=1"))
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    assert len(outcome.err) < 1100
    assert not re.search(r"\w{150}|(words ){30}|(\d+, ){40}", outcome.err)


@pytest.mark.parametrize("given", ["hyper.epochs", "hyper.epochs:2"])
def test_set_without_a_value(tmp_path: Path, given: str) -> None:
    assert refused(tmp_path, "train", "--set", given).startswith(f"--set {given}: write FIELD=VALUE")


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--population", "four"],
        ["train", "--interval", "1.5"],
        ["train", "--no-such-flag"],
        ["tarin"],
        [],
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


def test_a_run_directory_that_holds_a_run(six: Path, tmp_path: Path) -> None:
    message = refused(six, *flags(six))
    advice = f"`shoal resume {six}` continues it, --run-dir NEW trains elsewhere"
    assert message == f"run_dir: {six} already holds a run; {advice}"
    shutil.copytree(six, tmp_path / "a b")
    assert "`shoal resume '" in refused(six, *flags(tmp_path / "a b"))  # as a shell takes it
    (tmp_path / "r/checkpoints").mkdir(parents=True)
    assert "what is left of a run" in refused(tmp_path, *flags(tmp_path / "r"))
    (tmp_path / "file").write_text("")
    assert "cannot be written: File exists" in refused(tmp_path, *flags(tmp_path / "file"))
    assert "cannot be written: Not a directory" in refused(tmp_path, *flags(tmp_path / "file/r"))


def test_bad_numbers_for_commands_on_a_run(six: Path) -> None:
    assert refused(six, "evaluate", six, "--episodes", "0").startswith("--episodes 0: must be at least 1")
    assert refused(six, "evaluate", six, "--seed", "-1").startswith("--seed -1: must be at least 0")
    assert refused(six, "replay", six, "--population", "0").startswith("population = 0: must be at least 1")
    assert refused(six, "replay", six, "--run-dir", six).startswith(f"run_dir: {six} already holds a run")


def test_a_missing_extra_names_the_command_that_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "installed", lambda suite: suite != "brax")
    for env in ("brax:ant", "ant"):
        message = refused(tmp_path, *flags(tmp_path / "r", env=env))
        assert message == f"env: {env} needs the package brax: pip install 'shoal[brax]'"


def test_no_traceback_from_the_command_itself(tmp_path: Path) -> None:
    """In a process of its own, from a file, with the default place for the run."""
    (tmp_path / "e.yaml").write_text("agent: pppo\n")
    with start("train", "e.yaml", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err == "shoal: e.yaml, line 1: agent: 'pppo' does not exist; did you mean ppo?\n"
    assert [p.name for p in tmp_path.iterdir()] == ["e.yaml"]


# --------------------------------------------------------------------------------------- full disks


def full(*arguments: Any, **options: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fails_after(real: Callable, calls: int) -> Callable:
    count = iter(range(10**6))

    def function(*arguments: Any, **options: Any) -> Any:
        return full() if next(count) >= calls else real(*arguments, **options)

    return function


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "mkdir"), (Path, "replace")])
def test_full_at_the_first_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, full)
        message = refused(tmp_path, *flags(tmp_path / "a" / "r"))
    assert message == f"run_dir: {tmp_path / 'a' / 'r'} cannot be written: No space left on device"


def test_what_lay_there_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r/notes.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused(tmp_path, *flags(tmp_path / "r"))
    refused(tmp_path, *flags(tmp_path / "r", "--quiet", env="gym:Points-v0", **{"fitness.objective": "nothing"}))
    assert (tmp_path / "r/notes.txt").read_text() == "mine"


def test_too_little_room_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(rundir.shutil, "disk_usage", lambda path: usage(10**9, 10**9, 5000))
    message = refused(tmp_path, *flags(tmp_path / "a" / "r"))
    assert "for checkpoints" in message
    assert "make room, choose another place, or lower checkpoint.keep" in message


def test_the_room_that_a_run_asks_for_is_the_room_it_takes(six: Path, tmp_path: Path) -> None:
    """Within a factor of a few of what its checkpoints weigh."""
    taken = sum(p.stat().st_size for p in (six / "checkpoints").rglob("*.safetensors"))
    usage, asked = namedtuple("usage", "total used free"), []
    for free in np.geomspace(1000, 10**8, 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rundir.shutil, "disk_usage", lambda path, free=int(free): usage(0, 0, free))
            if not asked and shoal(*flags(tmp_path / "r", "--quiet", generations=1)).code == 0:
                asked.append(free)
    assert taken / 3 < asked[0] < taken * 5


def run_full(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: int, *arguments: str) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails_after(getattr(owner, name), calls))
        return shoal(*arguments)


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    every_slow(
        [(Lines, "write", 5), (Path, "replace", 9), (Lines, "sync", 4), (os, "fsync", 12), (Path, "rename", 3)], 2
    ),
)
def test_full_in_the_middle(
    six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: int
) -> None:
    """The run ends with a clear message, and goes on when there is room again."""
    run = tmp_path / "r"
    outcome = run_full(monkeypatch, owner, name, calls, *flags(run, generations=6))
    assert outcome.code == 1
    message = f"shoal: No space left on device; when that is mended, go on with: shoal resume {run}\n"
    assert outcome.err == message
    assert "Traceback" not in outcome.out
    assert 1 <= len(rows(run / "metrics.jsonl")) <= 5
    assert shoal("resume", run, "--quiet").code == 0
    same_run(six, run)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_programs")
def test_full_in_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops with the run that could not be written, and goes on with it."""
    file, study = tmp_path / "s.yaml", tmp_path / "out"
    file.write_text(yaml.safe_dump({"base": SETTINGS, "arms": {"pbt": {}}, "seeds": 2}))
    begin = ["study", file, "--workspace", study, "--quiet"]
    outcome = run_full(monkeypatch, Lines, "write", 3, *begin)
    again = f"shoal study {file} --workspace {study}"
    assert outcome.code == 1
    assert outcome.err == f"shoal: No space left on device; when that is mended, go on with: {again}\n"
    assert len(list(study.glob("runs/pbt/*"))) == 1
    assert shoal(*begin).code == 0
    assert len(list(study.glob("runs/pbt/*/result.json"))) == 2


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
    told = f"shoal: the run is done, only its page is missing: {full_disk}; when mended: shoal report {run}\n"
    assert (outcome.code, outcome.err) == (1, told)
    assert "champion: " in outcome.out
    assert (later.code, later.err) == (1, f"shoal: {full_disk}\n")
    same_run(six, run)
    assert shoal("report", run).code == 0


def test_full_on_resume(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "r"
    assert shoal(*flags(run, "--quiet", generations=3)).code == 0
    outcome = run_full(monkeypatch, os, "fsync", 0, "resume", str(run), "--generations", "6")
    assert outcome.code == 1
    assert f"go on with: shoal resume {run}" in outcome.err
    assert shoal("resume", run, "--quiet", "--generations", "6").code == 0
    same_run(six, run)
