"""Diagnostics of the doctor: sound experiments pass, each oddity is named, and nothing is left behind."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from support.messages import Said, shown
from support.probes import match
from support.runs import CONFIG, of_method

from shoal import train
from shoal.agents.ppo import ppo
from shoal.cli import main
from shoal.commands.doctor import checks, dry_run, evolution, examine
from shoal.commands.doctor.checks import Diagnostic
from shoal.core.extras import install
from shoal.core.population import PopulationStats, Selection
from shoal.core.space import Range
from shoal.distributed import directory_probe
from shoal.experiment.experiment import Checkpoint, Experiment, Fitness, Levels, Stop
from shoal.experiment.plan import make_plan
from shoal.records.callback import Start
from shoal.records.console import Display
from shoal.records.screen import Screen

TINY = {"layers": [4], "rollout_length": 8, "num_envs": 2, "num_minibatches": 1}
DRY: dict[str, Any] = {"config": CONFIG, "fitness": Fitness(episodes=2, step_limit=60)}  # other tests compile it too
PACES = {"name": "mf_pbt", "periods": [1, 2]}
BASE = Experiment(env="CartPole-v1", method="pbt", population=4, generations=5, interval=64, config=TINY)


def about(check: Callable[..., Any], *more: Any, **changes: Any) -> list[Diagnostic]:
    """The diagnostics of one check for the base experiment with these changes."""
    return list(check(make_plan(replace(BASE, **of_method(changes))), *more))


def marked(findings: list[Diagnostic], mark: str) -> str:
    return "\n".join(f"{topic}: {text}" for m, topic, text in findings if m == mark)


def say_all(said: Said, findings: list[Diagnostic], mark: str) -> None:
    """There is such a finding, and this is what it says."""
    told = marked(findings, mark).splitlines()
    assert told
    for text in told:
        said(text)


def failing_agent(spec: Any, **config: Any) -> Any:
    """An agent that acts but cannot learn."""

    def update(*arguments: Any) -> Any:
        raise RuntimeError("no gradient")

    return ppo(spec, **config)._replace(update=update)


def diverging_environment() -> Any:
    """One whose rewards destroy every learner."""
    environment = match()

    def step(key: Any, state: Any, action: Any) -> Any:
        obs, state, _, *ends = environment.step(key, state, action)
        return obs, state, jax.numpy.float32(np.nan), *ends

    return environment._replace(step=step)


def worst_first(key: Any, stats: Any, rows: Any) -> Selection:
    """A selector that lets everybody copy the worst."""
    parents = np.full(len(rows), stats.fitness.argmin())
    return Selection(parents, parents != rows)


def failing(key: Any, stats: Any, rows: Any) -> Selection:
    raise ValueError("not today")


def untouched(key: Any, hyper: Any, space: Any, uid: Any) -> Any:
    return hyper


class Scaled(gymnasium.wrappers.NormalizeReward):
    """One's own kind of it."""


def normalising(observations: bool, rewards: bool) -> Any:
    """CartPole with wrappers that normalise, between others."""
    env = gymnasium.make("CartPole-v1")
    env = gymnasium.wrappers.NormalizeObservation(env) if observations else env
    env = gymnasium.wrappers.ClipReward(env, -1, 1)
    return Scaled(env) if rewards else env


# ------------------------------------------------------------------------------------------ single checks


@pytest.mark.parametrize("levels", [None, Levels(train=4, validation=4, test=4)], ids=["", "levels"])
@pytest.mark.parametrize("observations, rewards", [(False, False), (False, True), (True, True)])
def test_an_environment_that_normalises_itself(
    said: Said, observations: bool, rewards: bool, levels: Levels | None
) -> None:
    """The doctor says so, and so do the first lines of a run."""
    options = {"observations": observations, "rewards": rewards}
    plan = make_plan(replace(BASE, env=f"{__name__}:normalising", env_options=options, levels=levels))
    told = marked(list(checks.normalisation(plan)), "!")
    console = Screen(file=StringIO(), width=400)
    Display(console).on_training_start(Start(plan, 1, Path("somewhere"), 0))
    shown = [line for line in console.file.getvalue().splitlines() if "normalise" in line]  # type: ignore[attr-defined]
    assert shown == [told.replace(": ", " ", 1)] * rewards
    if rewards:
        said(told)


@pytest.mark.parametrize(
    "changes",
    [
        *({}, {"method": "successive_halving"}, {"budget": 4096}, {"method": "independent", "population": 1}),
        {"stop": Stop(patience=3)},
    ],
    ids=["pbt", "successive_halving", "budget", "one", "stop"],
)
def test_the_steps_of_all_and_of_each_are_told(said: Said, changes: dict[str, Any]) -> None:
    """In the first lines of a run."""
    console = Screen(file=StringIO(), width=400)
    Display(console).on_training_start(Start(make_plan(replace(BASE, **changes)), 1, Path("somewhere"), 0))
    for line in console.file.getvalue().splitlines():  # type: ignore[attr-defined]
        said(line)


def test_a_sound_experiment_has_nothing_to_note() -> None:
    for check in examine.CHECKS:
        findings = about(check)
        assert findings or check in (
            checks.normalisation,
            checks.processes,
            checks.warm_start,
            checks.run_dir,
            checks.rungs,
            evolution.environment_parameters,
        )
        assert marked(findings, "!") + marked(findings, "✗") == ""


@pytest.mark.parametrize(
    ("ends", "size", "time"),
    [
        ({}, "5 generations of 64 steps each, 1,280 steps in total", "about 6 min 40 s"),
        (
            {"stop": {"patience": 4}},
            "at most 5 generations of 64 steps each, at most 1,280 steps in total",
            "at most 6 min",
        ),
        ({"time_limit": 60}, "1 min 0 s in generations of 64 steps each", "at least 1 min 0 s"),
        (
            {"time_limit": 60, "stop": {"fitness": 9}},
            "at most 1 min 0 s in generations of 64 steps",
            "at most 1 min 0 s",
        ),
        ({"budget": 1280}, "at most 5 generations of 64 steps each, 1,280 steps in total", "at most 6 min 40 s"),
        (
            {"budget": 1280, "time_limit": 60},
            "at most 1 min 0 s in generations of 64 steps each, at most 1,280 steps in total",
            "at most 1 min 0 s",
        ),
        ({"method": "es", "config": {}, "space": {}, "time_limit": 60}, "1 min 0 s in generations of 8 episodes", ""),
    ],
)
def test_what_ends_the_run_first_bounds_its_size_and_its_time(ends: dict[str, Any], size: str, time: str) -> None:
    plan = make_plan(replace(BASE, **ends))
    assert f"on gymnax:CartPole-v1, {size}" in marked(list(checks.size(plan)), "✓")
    timing = {"compile": 0.0, "train": 80.0, "evaluate": 0.0, "evolve": 0.0, "record": 0.0}
    if time:
        assert f"the whole run {time}" in dry_run._speed(plan, plan.iterations, [timing, timing], 256, 64, 0.0).text


@pytest.mark.parametrize(("share", "time"), [(0, "7 min 40 s"), (0.01, "7 min 50 s"), (0.5, "9 min 20 s")])
def test_the_time_of_a_run_includes_the_final_selection(share: float, time: str) -> None:
    """Of the 1,280 steps of the run, 640 at the pace of evaluations; and no fewer episodes than of the final evaluation."""
    plan = make_plan(replace(BASE, fitness=Fitness(episodes=8, final_selection=share), final_episodes=32))
    timing = {"compile": 0.0, "train": 80.0, "evaluate": 10.0, "evolve": 0.0, "record": 0.0}
    diagnostic = dry_run._speed(plan, plan.iterations, [timing, timing], 256, 64, 0.0)
    assert f"the whole run about {time}" in diagnostic.text


@pytest.mark.parametrize(("share", "time"), [(0, "8 min 0 s"), (0.5, "11 min 20 s")])
def test_the_time_of_a_run_without_evaluations_includes_the_final_ones(share: float, time: str) -> None:
    """Of 32 episodes of 8 steps, at the pace of training: 256 steps in 80 s."""
    fitness = Fitness(source="training", episodes=8, final_selection=share)
    plan = make_plan(replace(BASE, fitness=fitness, final_episodes=32))
    timing = {"compile": 0.0, "train": 80.0, "evaluate": 0.0, "evolve": 0.0, "record": 0.0}
    diagnostic = dry_run._speed(plan, plan.iterations, [timing, timing], 256, 0, 8.0)
    assert f"the whole run about {time}" in diagnostic.text


@pytest.mark.parametrize(("share", "mark"), [(0.02, "✓"), (1.8, "!")], ids=["short episodes", "long episodes"])
def test_what_evaluations_cost(share: float, mark: str, said: Said) -> None:
    """The upper bound alone, 188 %, had a tick: what the dry run measures decides."""
    plan = make_plan(replace(BASE, fitness=Fitness(episodes=2, step_limit=60)))
    diagnostic = dry_run._evaluation(plan, share)
    assert diagnostic.mark == mark
    said(diagnostic.text)


def test_exploitability_has_no_standard_error() -> None:
    """No episodes are played for it: it was told of two, with an error of 0."""
    plan = make_plan(replace(BASE, env="game:kuhn", config={}))
    four = np.zeros(4)
    stats = PopulationStats(np.arange(4), four, four, np.array([-0.4, -0.3, -0.2, -0.1]), four, np.full(4, 2), {})
    event: Any = SimpleNamespace(stats=stats, metrics={"episode/length": np.full(4, 2.5)})
    (finding,) = dry_run._noise(plan, 2, 16, event)
    text = "std over members 0.11 after 4 rollouts; exploitability is exact, without a standard error"
    assert finding == checks.ok("fitness", text)


@pytest.mark.parametrize(("std", "mark"), [(0.1, "✓"), (1.0, "!")])
def test_where_fitness_is_mostly_noise_doctor_says_what_to_do(std: float, mark: str) -> None:
    """Standard errors of 0.05 and 0.5, and members with a standard deviation of 0.11."""
    zeros = np.zeros(4)
    fitness = np.array([0.1, 0.2, 0.3, 0.4])
    stats = PopulationStats(np.arange(4), zeros, zeros, fitness, np.full(4, std), np.full(4, 4), {})
    event: Any = SimpleNamespace(stats=stats, metrics={"episode/length": np.full(4, 2.5)})
    (finding,) = dry_run._noise(make_plan(BASE), 2, 16, event)
    assert finding.mark == mark and ("raise fitness.episodes" in finding.text) == (mark == "!")


@pytest.mark.parametrize(
    ("interval", "mark", "words"), [(60, "✓", "60 is rounded up to 64: whole rollouts of 16"), (50, "!", "up to 64")]
)
def test_a_rounded_interval(interval: int, mark: str, words: str) -> None:
    assert words in marked(about(checks.size, interval=interval), mark)
    assert "rounded" not in marked(about(checks.size, interval=64), "✓")


def test_members_that_leave_devices_idle() -> None:
    if len(jax.devices()) < 2:
        pytest.skip("one device is never idle")
    n = len(jax.devices()) * 2 + 1
    assert f"a population of {n + len(jax.devices()) - 1} would use all devices" in marked(
        about(checks.devices, population=n), "!"
    )


def test_host_environments_are_called_slow() -> None:
    assert "8 copies step on the host" in marked(about(checks.devices, env="gym:CartPole-v1"), "✓")


@pytest.mark.parametrize(
    ("suite", "words"), [("gymnax", "never reads it"), ("gym", "with 2, 200 random steps are the same")]
)
def test_environment_parameters_without_effect(suite: str, words: str) -> None:
    """CartPole adds its masses up once and for all, so that one of them is not looked at again."""
    changes = {"env": f"{suite}:CartPole-v1", "space": {"env.gravity": [5, 20], "env.masscart": [0.9, 2]}}
    findings = about(evolution.environment_parameters, **changes, hyper={"env.tau": 0.03})
    assert f"env parameters: env.masscart has no effect: {'the environment ' * (suite == 'gymnax')}{words}" in marked(
        findings, "!"
    )
    assert "env parameters: tau, gravity: in each member's training environment" in marked(findings, "✓")
    assert about(evolution.environment_parameters) == []


def test_too_little_memory_and_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "free_memory", lambda: 10)
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10}))
    assert [f.mark for f in about(checks.storage)] == ["✗", "✗"]
    marks = [checks.fits("disk", "some", 100, free).mark for free in (99, 150, 250, None)]
    assert marks == ["✗", "!", "✓", "✓"]


def test_a_place_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    experiment = {"run_dir": str(tmp_path / "new" / "run")}
    assert about(checks.run_dir, **experiment) == []
    asked = []
    monkeypatch.setattr(checks.os, "access", lambda *given: asked.append(given))
    assert marked(about(checks.run_dir, **experiment), "✗") == f"run_dir: no permission to write in {tmp_path}"
    assert asked == [(tmp_path, os.W_OK)]


def test_a_place_where_no_run_can_begin(tmp_path: Path) -> None:
    """As `shoal train` would say: what the doctor calls ready to run must run."""
    (tmp_path / "file").write_text("")
    (tmp_path / "run").mkdir()
    assert about(checks.run_dir, run_dir=str(tmp_path / "run")) == []
    (tmp_path / "run" / "experiment.yaml").write_text("env: CartPole-v1\n")
    told = marked(about(checks.run_dir, run_dir=str(tmp_path / "run")), "✗")
    assert told.startswith(f"run_dir: {tmp_path / 'run'} already holds a run; `shoal resume")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        assert marked(about(checks.run_dir, run_dir=str(path)), "✗") == f"run_dir: {tmp_path / 'file'} is no directory"


def test_the_rollouts_of_images_are_told() -> None:
    """64 copies with 256 steps of Procgen: 12,288 bytes an observation, and the numbers of a step."""
    pytest.importorskip("envpool")
    config = {"network": "nature_cnn", "rollout_length": 256, "num_envs": 64}
    found = about(checks.storage, env="envpool:bigfish", config=config)[0]
    assert "rollouts (201.7 MB per member)" in found.text


@pytest.mark.slow
def test_the_checkpoint_is_as_large_as_foretold(tmp_path: Path) -> None:
    experiment = replace(BASE, generations=1, run_dir=str(tmp_path / "run"), final_episodes=1, config={})
    size = sum(part.stat().st_size for part in train(experiment).run_dir.glob("checkpoints/*/*.safetensors"))
    text = next(text for _, topic, text in checks.storage(make_plan(experiment)) if topic == "disk")
    number, unit = text.split("checkpoints of ")[1].split()[:2]
    foretold = float(number) * {"kB": 1e3, "MB": 1e6}[unit]
    assert 0.8 * size < foretold < 1.2 * size


@pytest.mark.parametrize(
    ("platform", "devices", "times", "mark"),
    [("cpu", 1, 1.0, "✓"), ("cpu", 2, 1.5, "✓"), ("cpu", 8, 43 / 8, "!"), ("gpu", 1, 43 / 8, "!")],
)
def test_what_rungs_cost(monkeypatch: pytest.MonkeyPatch, platform: str, devices: int, times: float, mark: str) -> None:
    """By hand: 8, 4, 2 and 1 members take 4, 4, 4 and 8 turns of an interval on two devices, and 1, 2, 4 and 8 on eight, for
    1, 1, 2 and 4 eighths of the run."""
    plan = make_plan(
        replace(
            BASE, population=8, generations=8, method="successive_halving", space={"learning_rate": Range(1e-4, 1e-2)}
        )
    )
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    monkeypatch.setattr(plan.kind, "devices", lambda uids: min(devices, len(uids[0])))
    assert plan.lengthening == pytest.approx(times)
    ((found, _, text),) = checks.rungs(plan)
    assert found == mark and "8 members: 4 after 12% of the run, 2 after 25% of the run, 1 after 50% of the run" in text
    assert ("method: pbt" in text) == (mark == "!")


@pytest.mark.parametrize(
    "changes",
    [
        {"select": {"name": "truncation", "bottom": 0.1, "top": 0.1}},
        {"select": "t_test", "fitness": Fitness(episodes=1)},
        {"select": worst_first},
        {"burn_in": 320},
        {"generations": 1},
    ],
    ids=shown,
)
def test_evolution_that_cannot_work(changes: dict[str, Any], said: Said) -> None:
    say_all(said, about(evolution.selection, **changes), "!")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"select": "winner_takes_all"},
        {"select": "t_test"},
        {"select": "none"},
        {"select": {"name": "none", "explore": True}},
        {"burn_in": 65},
        {"method": PACES},
        {"method": {"name": "successive_halving", "between_rungs": "none"}},
        {"schedule": [{"learning_rate": 1e-3}], "space": {}},
    ],
    ids=shown,
)
def test_how_evolution_works(changes: dict[str, Any], said: Said) -> None:
    findings = about(evolution.selection, **changes)
    say_all(said, findings, "✓")
    assert not marked(findings, "!")


def test_a_failing_selector_is_in_the_way() -> None:
    assert "ValueError: not today" in marked(about(evolution.selection, select=failing), "✗")


@pytest.mark.parametrize(
    "changes",
    [
        {"space": {}},
        {"explore": "none"},
        {"space": {"learning_rate": Range(1e-3, 1e-1, "log")}},
        {"space": {"learning_rate": Range(1e-4, 1e-2, "log", initial=1e-2)}},
        {"method": PACES | {"explore": "none"}},
    ],
    ids=shown,
)
def test_hyperparameters_that_cannot_be_tuned(changes: dict[str, Any], said: Said) -> None:
    say_all(said, about(evolution.hyperparameters, **changes), "!")


def test_what_is_tuned_and_what_is_fixed() -> None:
    said = marked(about(evolution.hyperparameters, space={"epochs": Range(1, 10, integer=True)}), "✓")
    assert said.startswith("tuned: epochs; fixed: learning_rate 0.0003")
    assert about(evolution.hyperparameters, schedule=[{"learning_rate": 1e-3}], space={}) == []


# -------------------------------------------------------------------------------------------- the dry run


@pytest.mark.slow
def test_training_fitness_needs_episodes_that_end() -> None:
    findings = about(dry_run.dry_run, env="Pendulum-v1", fitness=Fitness(source="training"))
    assert "no episode ended in 32; a member that ends no episode has no fitness" in marked(findings, "!")
    findings = about(dry_run.dry_run, interval=256, fitness=Fitness(source="training"))
    assert "an interval is 128 steps in each environment" in marked(findings, "!")
    assert "short episodes weigh more" in marked(findings, "!") and "no fitness" not in marked(findings, "!")
    findings = about(dry_run.dry_run, interval=8192, fitness=Fitness(source="training"))
    assert "an interval is" not in marked(findings, "!")


@pytest.mark.parametrize(
    ("method", "share", "times"),
    [
        ({"name": "pbt", "default_members": 0.5}, "1 of 8", "members copy after generations 1 to 19 of 20"),
        ("pbt", "2 of 8", "members copy after generations 1 to 19 of 20"),
        ("mf_pbt", "1 to 4 of 8", "members copy after generations 1 to 19 of 20"),
        (
            "successive_halving",
            "1 of 8",
            "tuned members may copy after each generation until {one}, except where {rung}",
        ),
        (
            {"name": "successive_halving", "burn_in": 160},
            "1 of 8",
            "tuned members may copy after each generation from 2 on until {one}, except where {rung}",
        ),
        (
            {"name": "successive_halving", "min_members": 2},
            "1 of 8",
            "tuned members may copy after each generation, except where {rung}",
        ),
    ],
    ids=str,
)
def test_who_takes_part(method: Any, share: str, times: str) -> None:
    """Members that hold the defaults copy nobody; and who is alone."""
    told = marked(about(evolution.selection, population=8, generations=20, method=method), "✓")
    copy = "copies" if share.startswith("1 of") else "copy"
    assert f"selection: {share} members {copy} in a generation{', while all train' * ('rung' in times)}" in told
    one = "one member is left (generation 10 of 20)"
    assert f"evolution: {times.format(one=one, rung='a rung ends members')}" in told.splitlines()


def test_nobody_copies_who_is_alone_before_burn_in_is_over() -> None:
    method = {"name": "successive_halving", "burn_in": 2000}
    told = marked(about(evolution.selection, population=8, generations=20, method=method), "!")
    assert "never takes effect: burn_in = 2,000 steps last until one member is left (generation 10 of 20)" in told


@pytest.mark.slow
def test_no_rung_in_the_dry_run() -> None:
    """It has two generations: where members ended after the first, they would seem to have diverged."""
    bare = DRY | {"config": CONFIG | {"layers": []}}
    findings = about(dry_run.dry_run, population=2, generations=2, method="successive_halving", **bare)
    assert "diverged" not in marked(findings, "!") and "selection bias of the best of 2" in str(findings)


def test_what_else_the_steps_would_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags that it names are an experiment of as many steps, whose agent has the default hyperparameters."""
    (finding,) = about(checks.one_agent, population=4, generations=5)
    assert finding.mark == "✓"
    flags = finding.text[finding.text.index("--") :].split()
    monkeypatch.setattr(dry_run, "dry_run", lambda parts: [])
    with pytest.raises(SystemExit) as stop:
        given = ["--set", f"config={json.dumps(CONFIG)}", "fitness.episodes=2", "fitness.step_limit=60"]
        main(["doctor", "--env", "CartPole-v1", "--interval", "64", *given, *flags])
    told = capsys.readouterr().out
    assert stop.value.code == 0 and "1 × ppo" in told and "20 generations of" in told and "alternative" not in told
    assert "--budget 5000 --method independent" in about(checks.one_agent, budget=5000)[0].text
    for changes in (
        {"method": "independent"},
        {"space": {}},
        {"population": 1, "method": "independent"},
        {"method": "es", "config": {}},
    ):
        assert not about(checks.one_agent, **changes)


@pytest.mark.slow
def test_what_one_episode_says() -> None:
    assert "one episode gives no standard error" in marked(about(dry_run.dry_run, fitness=Fitness(episodes=1)), "!")


def test_a_failing_agent_is_in_the_way() -> None:
    assert "failed: RuntimeError: no gradient" in marked(about(dry_run.dry_run, agent=failing_agent, **DRY), "✗")


@pytest.mark.slow
def test_members_that_all_diverge_are_in_the_way() -> None:
    assert "4 of 4 members diverged" in marked(about(dry_run.dry_run, env=diverging_environment), "✗")


# ------------------------------------------------------------------------------------------- the command


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run `shoal doctor` on an experiment text: its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")

    def run(text: str, *flags: str) -> tuple[int, str]:
        (tmp_path / "e.yaml").write_text(text)
        with pytest.raises(SystemExit) as stop:
            main(["doctor", "e.yaml", *flags])
        said = capsys.readouterr()
        return int(str(stop.value.code)), said.out + said.err

    return run


SOUND = "env: CartPole-v1\npopulation: 4\ngenerations: 3\ninterval: 64\n"
SOUND += f"config: {json.dumps(CONFIG)}\nfitness: {{episodes: 2, step_limit: 60}}\n"


def test_a_sound_file(ask: Callable[..., Any], tmp_path: Path) -> None:
    code, said = ask(SOUND)
    assert code == 0, said
    assert "ready to run: shoal train e.yaml" in said
    for topic in (
        "size",
        "devices",
        "memory",
        "disk",
        "selection",
        "evolution",
        "tuned",
        "time",
        "evaluation",
        "fitness",
    ):
        assert f" {topic} " in said
    assert all(line[0] in "✓!" for line in said.splitlines()[:-1]), "in a pipe a finding is a line, however long"
    assert [p.name for p in tmp_path.iterdir()] == ["e.yaml"], "the doctor leaves nothing behind"


def test_flags_win_over_the_file(ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "dry_run", lambda parts: [])
    code, said = ask(SOUND, "--population", "6", "--set", "hyper.epochs=2", "config.layers=[8]")
    assert code == 0 and "6 " in said.splitlines()[0]
    assert "shoal train e.yaml --population 6 --set hyper.epochs=2 --set 'config.layers=[8]'" in said
    code, said = ask(SOUND, "--shards", "3")
    assert code == 2 and "shards = 3" in said and "e.yaml" not in said


def test_a_bad_file(ask: Callable[..., Any]) -> None:
    code, said = ask(SOUND + "intervall: 3\n")
    assert code == 2 and "did you mean interval" in said


def test_problems_are_counted(ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "free_memory", lambda: 10)
    monkeypatch.setattr(dry_run, "dry_run", lambda *parts: pytest.fail("tried"))  # what does not fit is not tried
    code, said = ask(SOUND)
    assert code == 2 and "1 error" in said


# ----------------------------------------------------------------------------------------------- processes


def test_a_workspace_that_works(tmp_path: Path) -> None:
    space = tmp_path / "not" / "yet"
    found = about(
        checks.processes, exchange={"name": "directory", "workspace": str(space)}, checkpoint=Checkpoint(keep=2)
    )
    assert marked(found, "✗") == marked(found, "!") == ""
    told = marked(found, "✓")
    assert "a rename replaces" in told and "another process here sees the files" in told
    assert "keeps up to 4 of them there" in told  # of 5 generations 0, 2, 3, 4
    assert not list(tmp_path.iterdir())


def test_a_workspace_that_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    found = about(checks.processes, exchange={"name": "directory", "workspace": str(tmp_path / "file")})
    assert f"{tmp_path / 'file'} cannot be used: Not a directory" in marked(found, "✗")

    def overwrite(path: Path, data: bytes) -> bool:
        path.write_bytes(data)
        return True

    monkeypatch.setattr(directory_probe, "create_file", overwrite)
    found = about(checks.processes, exchange={"name": "directory", "workspace": str(tmp_path)})
    assert "of two that create a file one succeeds" in marked(found, "✗")


def test_mpi_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found = about(checks.processes, exchange="mpi")
    assert "MPICH" in marked(found, "✓") and "-n RANKS shoal train" in marked(found, "✓")
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    monkeypatch.setattr(checks.sys, "executable", "/nowhere/python")
    assert "mpiexec was not found" in marked(about(checks.processes, exchange="mpi"), "!")


def test_mpi_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert install("mpi") in marked(about(checks.processes, exchange="mpi"), "✗")


def test_one_process_needs_nothing() -> None:
    assert not about(checks.processes)
