"""The commands that look at a run, and what the command line promises of all of them."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import yaml
from support.cases import others_slow
from support.messages import Said, shown
from support.runs import COMMAND, CONFIG, flags, record, rows, same_run, shoal, start, tiny

from shoal import cli
from shoal.commands.output import selection_bias
from shoal.core.extras import install
from shoal.core.space import Range
from shoal.core.spec import Box, Discrete, MultiDiscrete, describe_actions
from shoal.environments.levels import Levels
from shoal.experiment.experiment import Checkpoint, ExchangeSettings, Experiment, Fitness, Stop, WeightsAndBiases
from shoal.experiment.files import load
from shoal.experiment.plan import make_plan
from shoal.members import devices
from shoal.members.compilation_cache import BOUND
from shoal.methods.pbt import Pbt
from shoal.records.words import many
from shoal.report.schedule import schedule
from shoal.run.champion import load_champion
from shoal.run.members import read_members
from shoal.run.train import train
from shoal.study.replay import follower
from shoal.trainers.trainers import TrainerProcesses

COMMANDS = [command.__name__ for command in cli.COMMANDS]


# --------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help(command: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    outcome = shoal(*([command] if command else []), "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert "None" not in outcome.out
    for name in COMMANDS if command is None else ():
        assert name in outcome.out


def test_help_teaches_names_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = " ".join(shoal("train", "--help").out.replace("│", " ").split())
    assert "(default: that of the method: ppo, policy for es, td3 for cem_rl and dvd" in text
    usual = vars(Pbt()) | vars(Experiment())
    for name in ("env", "method", "population", "generations", "interval", "select", "explore", "seed"):
        help_text = re.search(rf"--{name} [A-Z]+ (.*?) --", text)
        assert help_text, name
        assert name == "method" or f"(default: {usual[name]})" in help_text[1]
    for name in ("truncation", "winner_takes_all", "tournament", "threshold", "t_test", "none"):
        assert name in re.search(r"--select (.*?) --", text)[1]  # type: ignore[index]
    assert "(default: successive_halving where" in text
    for name in ("pbt", "es", "cem_rl", "dvd", "independent"):
        assert name in re.search(r"--method (.*?) --", text)[1]  # type: ignore[index]
    for name in ("perturb", "resample", "mutate", "gaussian", "none"):
        assert name in re.search(r"--explore (.*?) --", text)[1]  # type: ignore[index]


def test_help_imports_little() -> None:
    """To say which commands there are takes less than to say what one of them takes."""
    heavy = ["jax", "flax", "optax", "gymnax", "gymnasium", "tensorboard", "matplotlib", "scipy"]
    code = ["import sys; from shoal.cli import main"]
    for given, more in ((["--help"], ["numpy", "typeguard"]), (["train", "--help"], [])):
        code += [f"try: main({given})", "except SystemExit: pass"]
        code += [f"assert not set({heavy + more}) & sys.modules.keys(), {given}"]
    subprocess.run([sys.executable, "-c", "\n".join(code)], stdout=subprocess.DEVNULL, check=True)


@pytest.mark.parametrize(
    "given",
    [
        ["trian"],
        ["--quiet", "train"],
        ["train", "--popluation", "4"],
        ["train", "--config.rollout_length", "64"],
        ["doctor", "--method.select.top=0.4", "--quiet"],
        ["train", "--rollout", "64"],
        ["train", "cartpole", "--learning-rate", "3e-4"],
        ["train", "--lr=3e-4"],
        ["train", "--num-envs", "8"],
        ["train", "--n-envs", "8"],
        ["train", "--buffer-size", "1e5"],
        ["train", "--total-timesteps", "1e6"],
        ["train", "--algo", "ppo"],
        ["train", "--algorithm=ppo"],
        ["train", "--env-id", "CartPole-v1"],
        ["train", "--track"],
        ["train", "--wandb"],
        ["train", "--hours", "2"],
        ["train", "--dry-run"],
        ["doctor", "--gpu"],
        ["train", "--device", "cuda"],
        ["train", "--config", "e.yaml"],
        ["train", "--n-jobs", "8"],
        ["resume", "runs/a", "--learning-rate", "3e-4"],
        ["train", "--set", "population"],
        ["train", "cartpole", "--set", "config.layers=64,64"],
        ["train", "cartpole", "--set", "config.layers=64"],
        ["train", "cartpole", "--set", "env.gravity", "9"],
        ["train", "cartpole", "--set", "population", "many"],
        ["play", "run", "--config.rollout_length", "64"],
        ["agents", "ppo", "--learning-rate", "3e-4"],
        ["train", "a", "b"],
        ["train", "--directory", "runs/a"],
        ["study", "cartpole", "--run-dir", "runs/a"],
        ["compare", "a", "b", "--output=c.html"],
        ["resume", "runs/a", "--run-dir", "runs/b"],
        ["play"],
        ["schedule", "runs/a", "--format", "xml"],
        ["train", "--population", "six"],
        ["train", "--population"],
    ],
    ids=shown,
)
def test_what_no_command_takes(given: list[str], said: Said) -> None:
    outcome = shoal(*given)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    said(outcome.err)


SETTABLE: dict[str, tuple[str, Any]] = {  # what is given, and what the field then is
    "env": ("gym:CartPole-v1", "gym:CartPole-v1"),
    "method": (
        "{name: independent, initial: default}",
        {"name": "independent", "initial": "default"},
    ),
    "agent": ("td3", "td3"),
    "population": ("6", 6),
    "generations": ("1e3", 1000),
    "interval": ("4_096", 4096),
    "budget": ("1e6", 1_000_000),
    "time_limit": ("1.5h", 5400.0),
    "stop": ("{patience: 5}", Stop(patience=5)),
    "shards": ("2", 2),
    "exchange": ("{name: mpi, timeout: 60}", ExchangeSettings("mpi", 60.0)),
    "seed": ("7", 7),
    "run_dir": ("'1e5'", "1e5"),
    "python": ("/usr/bin/python3", "/usr/bin/python3"),
    "init_from": ("runs/before/champion", "runs/before/champion"),
    "processes": ("{count: 3}", TrainerProcesses(count=3)),
    "fitness": ("{episodes: 5}", Fitness(episodes=5)),
    "checkpoint": ("{keep: 5}", Checkpoint(keep=5)),
    "final_episodes": ("9", 9),
    "hyper": ("{epochs: 2}", {"epochs": 2.0}),
    "space": ("{discount: [0.8, 0.9]}", {"discount": Range(0.8, 0.9)}),
    "config": ("{layers: [8]}", {"layers": [8]}),
    "env_options": ("{gravity: 1e1}", {"gravity": 10.0}),
    "levels": ("{train: 10}", Levels(train=10)),
    "wandb": ("{project: robots}", WeightsAndBiases(project="robots")),
}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """The experiments that `shoal train` begins with, none of which is trained."""
    experiments: list[Experiment] = []

    def begin(experiment: Experiment, callbacks: object) -> None:
        experiments.append(experiment)
        raise KeyboardInterrupt

    monkeypatch.setattr("shoal.run.train.train", begin)
    return experiments


def test_every_field_can_be_set(seen: list[Experiment]) -> None:
    """--set reaches the fields without a flag of their own."""
    assert list(SETTABLE) == [field.name for field in fields(Experiment)]
    for name, (text, value) in SETTABLE.items():
        more = ["--agent", "sb3:PPO"] if name in ("python", "processes") else []  # which trainers alone have
        assert shoal("train", "--set", f"{name}={text}", *more).code == 130, name
        assert getattr(seen[-1], name) == value != getattr(Experiment(), name), name


@pytest.mark.parametrize(
    "given",
    [
        ["--set", "hyper.epochs=1", "--set=seed=3"],
        ["--set", "hyper.epochs=1", "seed=3"],
        ["--set", "hyper.epochs", "1", "--set", "seed", "3"],
    ],
)
def test_set_several(tmp_path: Path, seen: list[Experiment], given: list[str]) -> None:
    assert shoal(*flags(tmp_path / "r", "--quiet", *given)).code == 130
    planned = make_plan(seen[0]).experiment
    assert (planned.hyper["epochs"], planned.seed) == (1.0, 3)


def test_flags_of_their_own(tmp_path: Path, seen: list[Experiment]) -> None:
    file = tmp_path / "e.yaml"
    settings = {"population": 6, "seed": 3, "final_episodes": 8, "fitness": {"episodes": 2, "step_limit": 60}}
    file.write_text(json.dumps(settings | {"config": CONFIG}))
    given = ["--population", "4", "--interval", "6.4e1", "--generations", "1", "--select", "tournament"]
    given += ["--explore", "resample", "--env", "gymnax:CartPole-v1", "--agent", "ppo", "--quiet"]
    assert shoal("train", *given, "--run-dir", tmp_path / "r", file).code == 130
    e = make_plan(seen[0]).experiment
    assert (e.population, e.interval, e.generations, e.seed) == (4, 64, 1, 3)
    assert (e.method["select"], e.method["explore"]) == ({"name": "tournament"}, {"name": "resample"})
    assert (e.env, e.agent) == ("gymnax:CartPole-v1", "ppo")


def test_default_place_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = flags(tmp_path, "--quiet", generations=1, seed=7)
    del given[1:3]  # --run-dir
    assert "--run-dir" not in given
    for name in ("runs/CartPole-v1-ppo-7", "runs/CartPole-v1-ppo-7-2"):
        assert name in shoal(*given).out
        assert (tmp_path / name / "result.json").exists()


# --------------------------------------------------------------------------------------- evaluate


SCORE = re.compile(
    r"([\d.]+) ± ([\d.]+) \(standard error\) over (\d+) episodes "
    r"\(lowest ([\d.]+), highest ([\d.]+)\); ([\d.]+) when selected\n"
)


def test_evaluate(tmp_path: Path) -> None:
    run = tmp_path / "r"
    assert shoal(*flags(run, "--quiet", generations=1)).code == 0  # a champion that does not always reach the limit
    outcome = shoal("evaluate", run, "--episodes", "9")
    assert (outcome.code, outcome.err) == (0, "")
    found = SCORE.fullmatch(outcome.out)
    assert found, outcome.out
    mean, error, episodes, lowest, highest, selected = map(float, found.groups())
    assert episodes == 9
    assert lowest <= mean <= highest <= 60
    assert 0 < error < 30
    assert selected == json.loads((run / "result.json").read_text())["champion"]["selection_fitness"]
    assert shoal("evaluate", run, "--episodes", "9").out == outcome.out
    assert shoal("evaluate", run, "--episodes", "9", "--seed", "1").out != outcome.out


def test_evaluate_agrees_with_the_champion_at_play(six: Path) -> None:
    """An independent loop over gymnax with `Champion.predict`: the means agree within their errors."""
    import gymnax

    champion = load_champion(six)
    env, params = gymnax.make("CartPole-v1")
    reset, step = (
        jax.jit(jax.vmap(f, in_axes)) for f, in_axes in ((env.reset_env, (0, None)), (env.step_env, (0, 0, 0, None)))
    )
    keys = jax.random.split(jax.random.key(1000), 40)
    ended, returns = np.zeros(40, bool), np.zeros(40)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        obs, state = reset(keys, params)
        for _ in range(60):
            obs, state, _, done, _ = step(keys, state, champion.predict(obs)[0], params)
            returns += ~ended
            ended |= np.asarray(done)
    found = SCORE.fullmatch(shoal("evaluate", six, "--episodes", "200").out)
    assert found
    error = np.hypot(float(found[2]), np.std(returns) / 40**0.5)
    assert abs(float(found[1]) - np.mean(returns)) < 4 * error + 0.5


def test_other_members_and_sampled_actions(six: Path, tmp_path: Path, said: Said) -> None:
    """Of the generations whose checkpoints are kept: 3, 4 and 5. Nobody says of a member how fit it was when selected."""
    saved = read_members(six, 4)
    fittest = load_champion(six, generation=4)
    assert fittest.uid == saved.uid[int(np.nanargmax(saved.fitness))] and fittest.generation == 4
    kept = {g: load_champion(six, member=3, generation=g) for g in (3, 4, 5)}
    now = load_champion(six, member=3)
    assert {one.uid for one in kept.values()} == {3} and [one.generation for one in kept.values()] == [3, 4, 5]
    for g, one in kept.items():
        assert (jax.tree.leaves(one.learned)[0] == jax.tree.leaves(now.learned)[0]).all() == (g == 5)
        np.testing.assert_array_equal(one.hyper["learning_rate"], read_members(six, g).hyper["learning_rate"][3])
    of_member = ("--member", 3, "--generation", 5)  # on the command line generations count from 1
    outcome = shoal("evaluate", six, "--episodes", 9, *of_member)
    assert outcome.code == 0 and re.fullmatch(r".* over 9 episodes \(lowest .*, highest [\d.]+\)\n", outcome.out)
    assert shoal("evaluate", six, "--episodes", 9, *of_member, "--stochastic").out != outcome.out
    assert shoal("export", six, tmp_path / "member.npz", *of_member).code == 0
    told = json.loads(str(np.load(tmp_path / "member.npz")["about.champion"]))
    assert (told["uid"], told["generation"]) == (3, 4)
    kept[4].save(tmp_path / "saved")
    assert shoal("evaluate", tmp_path / "saved", "--episodes", 9).out == outcome.out
    for wrong in (("--member", 9), ("--generation", 2), ("--generation", 0), ("--member", 3, "--generation", 8)):
        outcome = shoal("evaluate", six, *wrong)
        assert (outcome.code, outcome.out) == (2, "")
        said(outcome.err)
    shutil.copytree(six, tmp_path / "sparse")
    shutil.rmtree(tmp_path / "sparse" / "checkpoints" / "00000004")  # as with checkpoint.every: 2
    said(shoal("evaluate", tmp_path / "sparse", "--generation", 5).err)


@pytest.mark.slow
def test_evaluate_from_a_cold_start(six: Path, tmp_path: Path) -> None:
    """In a process that has to compile everything, and then ends as it should."""
    with start("evaluate", six, "--episodes", "2", JAX_COMPILATION_CACHE_DIR=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert SCORE.fullmatch(out)


@pytest.mark.slow
def test_evaluate_without_spread(tmp_path: Path) -> None:
    """Equal returns have a standard error of 0, a single episode has none; nothing says nan."""
    train(tiny(tmp_path / "r", env="support.probes:endless_reward", population=2))
    for episodes, error in (("1", ""), ("5", " ± 0 (standard error)")):
        out = shoal("evaluate", tmp_path / "r", "--episodes", episodes, "--trust-code").out
        assert out.startswith(f"5{error} over {many(int(episodes), 'episode')} (lowest 5, highest 5)")


def test_evaluate_needs_a_whole_champion(six: Path, tmp_path: Path) -> None:
    shutil.copytree(six, tmp_path / "r")
    path = tmp_path / "r/champion/state.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    outcome = shoal("evaluate", tmp_path / "r")
    assert outcome.code == 2
    assert "half-written or corrupted" in outcome.err


# --------------------------------------------------------------------------------------- schedule and replay


def read_schedule(text: str, kind: str) -> list[dict[str, Any]]:
    if kind != "csv":
        return yaml.safe_load(text) if kind == "yaml" else json.loads(text)
    table = csv.DictReader(io.StringIO(text))
    return [{name: json.loads(x.lower()) if x else None for name, x in row.items()} for row in table]


def in_float32(row: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A printed row with all digits of its hyperparameters, as the lineage has them."""
    return row | {name: float(np.float32(row[name])) for name in names}


@pytest.mark.parametrize("kind", ["csv", "yaml", "json"])
def test_schedule(six: Path, kind: str) -> None:
    """The champion's line of descent, followed here by hand from the lineage."""
    outcome = shoal("schedule", six, "--format", kind)
    assert (outcome.code, outcome.err) == (0, "")
    champion = json.loads((six / "result.json").read_text())["champion"]
    every = {(row["generation"], row["uid"]): row for row in rows(six / "lineage.jsonl")}
    expected, uid = [], champion["uid"]
    for generation in range(champion["generation"], -1, -1):
        row, parent = every[generation, uid], every.get((generation - 1, uid), {"parent": uid})["parent"]
        told = {name: row[name] for name in ("generation", "uid", "steps", "fitness")}
        expected.append(told | {"generation": generation + 1, "copied": parent != uid} | row["hyper"])
        uid = parent
    printed = read_schedule(outcome.out, kind)
    assert [in_float32(row, champion["hyper"]) for row in printed] == expected[::-1]
    assert len(expected) > 1
    assert all(len(repr(row[name])) < len("0.00012345678901") for row in printed for name in champion["hyper"])
    if kind == "csv":
        assert shoal("schedule", six).out == outcome.out


def test_replay_follows_the_schedule(six: Path, tmp_path: Path) -> None:
    run = tmp_path / "again"
    outcome = shoal("replay", six, "--run-dir", run, "--population", "4")
    assert (outcome.code, outcome.err) == (0, "")
    expected = schedule(six)
    followed = rows(run / "lineage.jsonl")
    assert len(followed) == 4 * len(expected)
    for row in followed:
        wanted = expected[row["generation"]]
        assert row["hyper"] == {name: wanted[name] for name in row["hyper"]}
        assert row["parent"] == row["uid"]
    one, other = (load(path / "experiment.yaml") for path in (six, run))
    assert (other.seed, other.generations, other.population) == (one.seed + 1, len(expected), 4)
    assert (other.interval, other.env, other.config) == (one.interval, one.env, one.config)
    assert json.loads((run / "result.json").read_text())["champion"] is not None


def test_a_schedule_of_uneven_generations(six: Path, tmp_path: Path) -> None:
    """External trainers may make longer generations than they were asked for: one is still one."""
    shutil.copytree(six, tmp_path / "r")
    lines = rows(six / "lineage.jsonl")
    for line in lines:
        line["steps"] = int(line["steps"] * (1 + line["generation"]))
    (tmp_path / "r/lineage.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert follower(tmp_path / "r").generations == len(schedule(six))


def test_a_run_without_a_champion_has_no_schedule(six: Path, tmp_path: Path, said: Said) -> None:
    shutil.copytree(six, tmp_path / "r")
    lines = [line | {"fitness": None} for line in rows(six / "lineage.jsonl")]
    (tmp_path / "r/lineage.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for file in ("result.json", "metrics.jsonl"):
        (tmp_path / "r" / file).unlink()
    for command in ("schedule", "replay"):
        outcome = shoal(command, tmp_path / "r")
        assert outcome.code == 2
        said(outcome.err)


def test_a_workspace_is_no_run(six: Path, tmp_path: Path, said: Said) -> None:
    """It has an experiment.yaml, too: what asks for a run says which to name."""
    shutil.copytree(six, tmp_path / "w/workers/a")
    (tmp_path / "w/slots").mkdir()
    shutil.copyfile(six / "experiment.yaml", tmp_path / "w/experiment.yaml")
    for command in ("evaluate", "schedule", "replay", "resume", "train"):
        outcome = shoal(command, tmp_path / "w")
        assert outcome.code == 2
        said(outcome.err)
    assert follower(tmp_path / "w/workers/a").run_dir == str(tmp_path / "w-a-replay")


def test_files_that_cannot_be_written(six: Path, tmp_path: Path, said: Said) -> None:
    """Said before the work, under the name that was given."""
    for out in (tmp_path / "none/a.html", tmp_path):
        outcome = shoal("compare", six, six, "--out", out)
        assert outcome.code == 2
        said(outcome.err)
    outcome = shoal("import", "isaac", six / "experiment.yaml", "-o", tmp_path / "none/a.yaml")
    assert outcome.code == 2
    said(outcome.err)


@pytest.mark.slow
def test_replay_beside_the_run_and_of_a_replay(six: Path, tmp_path: Path) -> None:
    """It asks for no selector: one that was given in Python has no name to find it by, and here nobody copies."""
    shutil.copytree(six, tmp_path / "r")
    file = tmp_path / "r/experiment.yaml"
    file.write_text(file.read_text().replace("select: truncation", "select: object:Mine"))
    assert shoal("replay", tmp_path / "r", "--quiet", "--seed", "5").code == 0
    first = tmp_path / "r-replay"
    assert load(first / "experiment.yaml").seed == 5
    assert "already holds a run" in shoal("replay", tmp_path / "r").err
    assert shoal("replay", first, "--quiet").code == 0
    values = [row["hyper"] for row in rows(first / "lineage.jsonl")]
    again = [row["hyper"] for row in rows(tmp_path / "r-replay-replay/lineage.jsonl")]
    assert again == values[: len(again)]


@pytest.mark.slow
def test_a_replay_resumes(six: Path, tmp_path: Path) -> None:
    shoal("replay", six, "--run-dir", tmp_path / "whole", "--quiet")
    shoal("replay", six, "--run-dir", tmp_path / "r", "--quiet")
    for generation in sorted((tmp_path / "r/checkpoints").iterdir())[1:]:
        shutil.rmtree(generation)
    (tmp_path / "r/result.json").unlink()
    assert shoal("resume", tmp_path / "r", "--quiet").code == 0
    same_run(tmp_path / "whole", tmp_path / "r")


# --------------------------------------------------------------------------------------- report, envs


def test_report(six: Path, tmp_path: Path) -> None:
    shutil.copytree(six, tmp_path / "r")
    (tmp_path / "r/report.html").unlink()
    outcome = shoal("report", tmp_path / "r")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"open {tmp_path / 'r/report.html'}\n", "")
    page = (tmp_path / "r/report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "gymnax:CartPole-v1" in page


def test_paths_below_the_current_folder_are_printed_relative_to_it(
    six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every command, however they were given; in a pipe, which is cut nowhere."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(six, tmp_path / "runs/old")
    run, ends = tmp_path / "runs/new", "open runs/new/report.html\n"
    trained = shoal(*flags(run, generations=1))
    assert "→ runs/new\n" in trained.out and f"report:       {ends}" in trained.out
    assert shoal("resume", run).out.startswith("runs/new: done already, 1 generation\n")
    assert shoal("report", run).out == ends
    assert shoal("export", run, tmp_path / "a.npz").out == "written: a.npz\n"
    assert shoal("compare", run, tmp_path / "runs/old", "--out", tmp_path / "c.html").out.endswith("\nopen c.html\n")
    assert "run_dir: runs/new already holds a run; `shoal resume runs/new`" in shoal(*flags(run)).err
    every = shoal("evaluate", run, "--levels", "test"), shoal("play", run / "x"), shoal("runs", run / "champion")
    assert not any(str(tmp_path) in told for told in (trained.out, *(x for told in every for x in told[1:])))


def test_report_of_an_unfinished_run(six: Path, tmp_path: Path) -> None:
    shutil.copytree(six, tmp_path / "r")
    (tmp_path / "r/result.json").unlink()
    (tmp_path / "r/lineage.jsonl").unlink()
    assert shoal("report", tmp_path / "r").code == 0


@pytest.mark.parametrize(
    ("selected", "mean", "error", "levels", "by"),
    [
        (-98.0, -480.0, 50.0, None, "382 above"),
        (-98.0, -200.0, 50.0, None, ""),
        (500.0, 500.0, 0.0, None, ""),
        (-98.0, -480.0, None, None, ""),  # one episode
        (4.5, 1.0, 0.2, 4.4, ""),  # chosen on validation levels, tested on others
        (4.5, 4.5, 0.2, 3.2, "1.2 above"),
        (float("nan"), 1.0, 0.1, None, ""),
    ],
)
def test_selection_bias(selected: float, mean: float, error: float | None, levels: float | None, by: str) -> None:
    """More than three standard errors between what it had when selected and what it has on new episodes of that kind."""
    champion: dict[str, Any] = {
        "selection_fitness": selected,
        "evaluation": {"mean": mean, "standard_error": error},
    }
    if levels is not None:
        means = {"train": levels + 0.1, "validation": levels - 0.1, "test": mean}
        champion["levels"] = {name: {"mean": x, "standard_error": error} for name, x in means.items()}
    told = selection_bias(champion)
    assert by in told and bool(by) == bool(told)


def test_envs() -> None:
    outcome = shoal("envs")
    assert (outcome.code, outcome.err) == (0, "")
    lines = [line for line in outcome.out.splitlines() if ":" in line and "is not installed" not in line]
    listed = " ".join(lines).split()
    for env in ("gymnax:CartPole-v1", "gymnax:Pendulum-v1", "gym:CartPole-v1"):
        assert env in listed
    some = shoal("envs", "cartpole").out.split()
    assert {e for e in some if ":" in e and e != "installed:"} == {
        e for e in listed if ":" in e and "cartpole" in e.lower()
    }
    for pattern, said in (("no such thing", "does not exist"), ("gym:Lander-v3", "did you mean gym:LunarLander-v3")):
        none = shoal("envs", pattern)
        assert none.code == 2 and said in none.err and none.err.count("\n") == 1
    assert "environment parameters, for space or hyper" in (whole := shoal("envs", "Pendulum-v1").out)
    assert "\n  env.g: 10\n" in whole
    assert all(len(line.split()) == 1 for line in lines), "in a pipe each has its line"


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (Discrete(4), "discrete, 4 choices"),
        (MultiDiscrete((2, 3)), "multi-discrete, 2 x 3 choices"),
        (Box((-1, -1), (1, 1)), "continuous, (2,) within [-1, 1]"),
        (Box((-math.inf,), (math.inf,)), "continuous, (1,) within [-inf, inf]"),
        (Box((-1, 0), (1, 3)), "continuous, (2,) within bounds of their own"),
    ],
)
def test_actions_are_described(space: Any, said: str) -> None:
    assert describe_actions(space) == said


def test_envs_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its observations, actions, metrics and environment parameters are listed; a mistake in it gets one line."""
    (tmp_path / "meadow.py").write_text(
        "from gymnasium.envs.classic_control import PendulumEnv\n\n\n"
        "class Swing(PendulumEnv):\n    pass\n\n\ndef stone():\n    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    told = shoal("envs", "meadow:Swing").out
    assert (
        told.startswith("meadow:Swing\nobservations: (3,) float32\nactions: continuous, (1,) within [-2, 2]\n")
        and "\nenvironment parameters, for space or hyper" in told
        and "\n  env.g: 10\n" in told
    )
    for name, problem in (("Grass", "cannot be imported"), ("stone", "meadow:stone gives an int; it must give")):
        wrong = shoal("envs", f"meadow:{name}")
        assert wrong.code == 2 and problem in wrong.err and wrong.err.count("\n") == 1


def test_envs_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.environments import suites

    monkeypatch.setattr(suites, "installed", lambda suite: suite != "brax")
    assert f"brax is not installed: {install('brax')}" in shoal("envs").out
    assert "is not installed" not in shoal("envs", "gymnax:Pendulum-v1").out
    assert shoal("envs", "brax").code == 0
    assert "brax:ant needs the package brax" in shoal("envs", "brax:ant").err


# --------------------------------------------------------------------------------------- the command as a whole


def test_exit_codes(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 done, 1 failed, 2 bad input, 130 interrupted with nothing to resume."""
    assert shoal("schedule", six).code == 0
    assert shoal("schedule", tmp_path).code == 2

    def fail(error: BaseException) -> Any:
        def command(run: Any) -> Any:
            raise error

        return command

    for error, code, said in (
        (OSError("disk on fire"), 1, "shoal: disk on fire\n"),
        (KeyboardInterrupt(), 130, "shoal: interrupted\n"),
    ):
        monkeypatch.setattr("shoal.report.page.write_report", fail(error))
        assert shoal("report", six)[::2] == (code, said)
    monkeypatch.setattr("shoal.report.page.write_report", fail(ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError):  # a bug shows itself whole
        shoal("report", six)


@pytest.mark.parametrize("command", others_slow(["schedule", "envs"], "schedule"))
def test_output_cut_short(six: Path, command: str) -> None:
    """`shoal schedule RUN | head -1` is no error."""
    with start(command, *([six] if command == "schedule" else [])) as process:
        process.stdout.close()  # type: ignore[union-attr]
        err = process.stderr.read()  # type: ignore[union-attr]
        assert process.wait(timeout=60) == 0
    assert "Traceback" not in err


@pytest.mark.parametrize("given", [["train", "none.yaml"], ["train", "--populaton", "4"]])
def test_errors_that_nobody_reads(given: list[str]) -> None:
    """`shoal train … 2>&1 | head -1`: the exit code says what is wrong all the same."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        assert subprocess.run([sys.executable, "-m", "shoal", *given], stderr=pipe, timeout=60).returncode == 2


@pytest.mark.parametrize("given", ["experiments", "runs nowhere"])
def test_output_that_is_closed_before(given: str, tmp_path: Path) -> None:
    """As by `>&-`, where Python has no stream at all."""
    words = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *given.split()]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == (2 if "nowhere" in given else 0) and done.stderr.count("\n") == ("nowhere" in given)


def test_input_that_is_closed_before() -> None:
    """As by `<&-`: a command that asks hears that there is nothing more."""
    code = (
        "import sys, shoal.__main__ as m; sys.argv[1:] = ['--version']\ntry: m.main()\nfinally: print(sys.stdin.read())"
    )
    words = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("shoal ")


def test_names_with_spaces_and_brackets(tmp_path: Path) -> None:
    """Text that rich would take for markup is printed as it is."""
    run = tmp_path / "a [bold]run[/bold]"
    outcome = shoal(*flags(run, generations=1))
    assert outcome.code == 0
    assert str(run) in outcome.out
    assert str(run) in shoal(*flags(run)).err
    assert str(run / "report.html") in shoal("report", run).out


def test_evaluate_leaves_the_run_alone(six: Path) -> None:
    before = {p: p.read_bytes() for p in six.rglob("*") if p.is_file()}
    shoal("evaluate", six, "--episodes", "2")
    shoal("schedule", six)
    assert {p: p.read_bytes() for p in six.rglob("*") if p.is_file()} == before
    assert record(six)["result"]["status"] == "done"


def test_compiled_programs_are_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default under the user's cache folder, which alone is bounded; a setting of the user's stays."""
    from jax._src import compilation_cache

    for name in ("get_file_cache", "get_executable_and_time"):  # put back afterwards
        monkeypatch.setattr(compilation_cache, name, getattr(compilation_cache, name))
    settings: dict[str, Any] = {}
    monkeypatch.setattr(jax.config, "update", lambda name, value: settings.update({name: value}))
    devices.prepare()
    assert "jax_compilation_cache_dir" not in settings
    monkeypatch.setattr(type(jax.config), "jax_compilation_cache_dir", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, folder in (("", tmp_path / ".cache"), (str(tmp_path / "x"), tmp_path / "x")):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        devices.prepare()
        own = folder / "shoal/compiled"
        assert settings["jax_compilation_cache_dir"] == str(own)
        # JAX has no public name for the bound.
        bounds = [compilation_cache.get_file_cache(str(path))[0]._bound for path in (own, tmp_path)]
        assert bounds == [BOUND, float("inf")]
