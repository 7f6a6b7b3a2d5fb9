"""Experiments and agents that come with Shoal, by name, and the packages to install for the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium
import pytest
import yaml
from support.messages import Said, shown
from support.runs import settings, shoal

from shoal.agents.registry import AGENTS, POLICY
from shoal.commands import bundled_experiments
from shoal.core.extras import install
from shoal.core.space import declared
from shoal.rl.config import NetworkConfig

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def test_every_experiment_is_listed_with_what_it_is() -> None:
    lines = shoal("experiments").out.splitlines()
    files = [path.relative_to(EXPERIMENTS).with_suffix("").as_posix() for path in EXPERIMENTS.rglob("*.yaml")]
    told = {line.split()[0]: line.split(maxsplit=1)[1:] for line in lines}
    assert all(told[name.removeprefix("studies/")] for name in files)
    assert told["cartpole"] and len(files) == len(lines) - 2


@pytest.mark.slow
def test_one_is_trained_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = settings(generations=1, final_episodes=1)
    assert shoal("train", "cartpole", *few, "--run-dir", "run", "--quiet").code == 0
    made, file = (
        yaml.safe_load(path.read_text()) for path in (tmp_path / "run/experiment.yaml", EXPERIMENTS / "cartpole.yaml")
    )
    assert made["env"] == f"gymnax:{file['env']}" and made["generations"] == 1


def test_a_file_of_ones_own_comes_before_those_of_shoal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cartpole").write_text("env: nowhere")
    assert bundled_experiments.find_experiment(Path("cartpole")) == Path("cartpole")
    assert bundled_experiments.find_experiment(Path("mazes")) == EXPERIMENTS / "mazes.yaml"
    assert bundled_experiments.find_experiment(Path("mazes"), study=True) == EXPERIMENTS / "studies/mazes.yaml"


def test_one_is_copied_to_be_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shoal("init", "cartpole").out == "written: cartpole.yaml; edit it, then: shoal train cartpole.yaml\n"
    assert Path("cartpole.yaml").read_bytes() == (EXPERIMENTS / "cartpole.yaml").read_bytes()
    Path("cartpole.yaml").write_text("mine")
    outcome = shoal("init", "cartpole")
    assert outcome.code == 2 and "cartpole.yaml" in outcome.err and Path("cartpole.yaml").read_text() == "mine"
    Path("robots").touch()  # where the folder would be
    assert shoal("init", "robots").err == "shoal: robots: exists already, and is not overwritten\n"
    told = "written: isaac/cartpole.yaml, isaac/isaac_task.py; edit it, then: cd isaac && shoal train cartpole.yaml\n"
    assert shoal("init", "isaac").out == told
    assert shoal("init", "studies/mazes").out.endswith("then: shoal study mazes.yaml\n")
    Path("other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert shoal("init", "studies").out.endswith("then: shoal study studies/cartpole.yaml\n")
    told = "written: cartpole.yaml, isaac_task.py; edit it, then: shoal train cartpole.yaml\n"
    assert shoal("init", "isaac/cartpole").out == told


@pytest.mark.parametrize(
    "given",
    [
        ("train", "cartpol"),
        ("train", "CartPole-v1"),
        ("study", "cartpol"),
        ("init", "robot"),
        ("agents", "ppp"),
        ("agents", "my_module:my_agent"),
        ("agents", "ppo", "--env", "Pendulum-v1"),
    ],
    ids=shown,
)
def test_what_does_not_come_with_it(given: tuple[str, ...], said: Said) -> None:
    outcome = shoal(*given)
    assert (outcome.code, outcome.out) == (2, "")
    said(outcome.err)


def test_a_folder_of_ones_own_is_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shoal("init", ".").code == 2 and not any(tmp_path.iterdir())


@pytest.mark.parametrize("given", [(), ("help",), ("help", "train")], ids=shown)
def test_help_is_there_for_who_asks_nothing(given: tuple[str, ...]) -> None:
    outcome = shoal(*given)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("usage: shoal train" if given[1:] else "usage: shoal")
    assert given[1:] or "--version" in outcome.out


def test_shells_complete_commands_and_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    written = shoal("--tyro-print-completion", "bash").out
    assert "--population" in written and "experiments" in written
    unknown = shoal("--tyro-print-completion", "foo")
    assert (unknown.code, unknown.out) == (2, "") and "foo" in unknown.err and unknown.err.count("\n") == 1
    monkeypatch.setitem(sys.modules, "shtab", None)  # which is not installed
    lacking = shoal("--tyro-print-completion", "tcsh")
    assert (lacking.code, lacking.out) == (2, "") and "shtab" in lacking.err and lacking.err.count("\n") == 1


@pytest.mark.parametrize("name", ["ppo", "td3", "sac", "dqn", "policy"])
def test_an_agent_is_told_of(name: str) -> None:
    assert name in [line.split()[0] for line in shoal("agents").out.splitlines()]
    rows = {line.split()[0]: line for line in shoal("agents", name).out.splitlines() if line.strip()}
    agent = (AGENTS | {"policy": POLICY})[name]
    for hyper, number in declared(type(agent.hyper)).items():
        assert f"{getattr(agent.hyper, hyper):g}" in rows[hyper].split() and number.meaning in rows[hyper]
        assert number.tuned is None or f"{number.tuned.low:g} to {number.tuned.high:g}" in rows[hyper]
    for field in ("layers", "network") if issubclass(agent.config, NetworkConfig) else ("layers",):
        assert field in rows


@pytest.mark.parametrize(
    ("package", "env", "extra"),
    [
        ("mujoco", "gym:Ant-v5", "mujoco"),
        ("imageio", "Walker2d-v4", "mujoco"),
        ("Box2D", "gym:LunarLander-v3", "box2d"),
        ("ale_py", "ALE/Pong-v5", "atari"),
        ("envpool", "envpool:CartPole-v1", "envpool"),
        ("brax", "brax:ant", "brax"),
        ("jumanji", "jumanji:Snake-v1", "jumanji"),
        ("mujoco_playground", "playground:CheetahRun", "playground"),
    ],
)
def test_what_is_missing_is_told_with_its_extra(
    package: str, env: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # which then is not found
    if package == "ale_py":
        monkeypatch.delitem(gymnasium.registry, env)
    if package == "imageio":
        monkeypatch.setitem(sys.modules, "envpool", None)  # which has that environment too
    outcome = shoal("train", "--env", env, "--quiet")
    assert outcome.code == 2 and outcome.err.endswith(f"{install(extra)}\n")
    listed = shoal("envs").out
    assert install(extra) in listed
    full = env if ":" in env else f"gym:{env}"
    assert full not in listed.split()
