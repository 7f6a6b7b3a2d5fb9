"""Runs, and the files that they leave behind."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import sys
import threading
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from support.runs import SETTINGS, build_run, curves, ended, flags, record, rows, same_run, shoal, start, tiny
from test_bad_input import Points

from shoal.cli import main
from shoal.core.space import Range
from shoal.experiment.experiment import Fitness
from shoal.experiment.files import load
from shoal.experiment.plan import make_closed_plan
from shoal.methods.explore import EXPLORERS
from shoal.methods.select import SELECTORS, Truncation
from shoal.records.callback import Callback, Start
from shoal.records.console import Display
from shoal.records.generation import Generation
from shoal.records.screen import Screen
from shoal.run.train import resume, train


def lineage(run: Path, generation: int) -> dict[int, dict[str, Any]]:
    """The rows of one generation, by uid."""
    return {row["uid"]: row for row in rows(run / "lineage.jsonl") if row["generation"] == generation}


# --------------------------------------------------------------------------------------- files


def test_layout(six: Path) -> None:
    expected = {
        "experiment.yaml",
        "method.json",
        "lineage.jsonl",
        "metrics.jsonl",
        "provenance.jsonl",
        "tensorboard",
        "checkpoints",
        "champion",
    }
    assert {p.name for p in six.iterdir()} == expected | {"result.json", "report.html"}
    assert sorted(p.name for p in (six / "checkpoints").iterdir()) == ["00000003", "00000004", "00000005"]
    assert {p.name for p in (six / "champion").iterdir()} == {"manifest.json", "state.safetensors"}
    for folder in (six / "checkpoints").iterdir():
        assert {p.name for p in folder.iterdir()} == {"manifest.json", "run.safetensors", "shard-0000.safetensors"}
    assert not [p for p in six.rglob("*") if p.suffix in (".pkl", ".pickle", ".npy")]


def test_result(six: Path) -> None:
    result = json.loads((six / "result.json").read_text())
    assert set(result) == {
        *("status", "env", "method", "traits", "agent", "population", "generations", "seed", "fitness", "champion"),
        *("environment_steps", "evaluation_steps", "seconds", "compile_seconds", "provenance", "stopped_by"),
    }
    told = {k: result[k] for k in ("status", "env", "method", "agent", "population", "generations", "seed")}
    assert told == {
        **{"status": "done", "env": "gymnax:CartPole-v1", "method": "pbt", "agent": "ppo"},
        **{"population": 4, "generations": 6, "seed": 0},
    }
    last = lineage(six, 5)
    assert result["fitness"] == {str(uid): row["fitness"] for uid, row in last.items()}
    champion = result["champion"]
    assert set(champion) == {
        "uid",
        "generation",
        "selection_fitness",
        "final_selection",
        "evaluation",
        "returns",
        "hyper",
    }
    assert set(champion["evaluation"]) == {"mean", "standard_error", "episodes"}
    selection = champion["final_selection"]
    assert (selection["candidates"], selection["episodes"], selection["champion"]["episodes"]) == (2, 8, 4)
    assert champion["evaluation"]["episodes"] == 8
    assert 8 <= champion["evaluation"]["mean"] <= 60
    assert len(champion["returns"]) == 8 and np.mean(champion["returns"]) == champion["evaluation"]["mean"]
    assert result["environment_steps"] == 4 * 6 * 64
    measured = sum(row["fitness"] * row["episodes"] for row in rows(six / "lineage.jsonl"))
    assert result["evaluation_steps"] == measured + selection["steps"]
    assert 0 < result["seconds"] < 600


def test_champion_is_among_the_best_that_ever_were(six: Path) -> None:
    """Two candidates: the best of the generation of the highest smoothed fitness, and of the last one."""
    champion = json.loads((six / "result.json").read_text())["champion"]
    best = {g: max(row["fitness"] for row in lineage(six, g).values()) for g in range(6)}
    chosen = lineage(six, champion["generation"])[champion["uid"]]
    assert (
        champion["selection_fitness"] == chosen["fitness"] == best[champion["generation"]] >= sorted(best.values())[2]
    )
    assert chosen["hyper"] == champion["hyper"]


def test_lineage(six: Path) -> None:
    every = rows(six / "lineage.jsonl")
    assert [(row["generation"], row["uid"]) for row in every] == [(g, u) for g in range(6) for u in range(4)]
    keys = {"generation", "uid", "parent", "parent_generation", "parent_fitness", "explored", "fitness"}
    keys |= {"returns_std", "episodes", "steps", "hyper"}
    assert all(set(row) == keys for row in every)
    space = load(six / "experiment.yaml").space or {}
    copies = 0
    for row in every:
        assert row["steps"] == 64 * (row["generation"] + 1)
        assert row["episodes"] == 2
        if row["generation"] == 5:
            continue
        child, parent = lineage(six, row["generation"] + 1)[row["uid"]], lineage(six, row["generation"])[row["parent"]]
        changed = {name for name in row["hyper"] if child["hyper"][name] != parent["hyper"][name]}
        assert row["explored"] == bool(changed)
        assert changed <= set(space)
        if row["parent"] == row["uid"]:
            assert not changed
        else:
            copies += 1
            assert parent["fitness"] >= row["fitness"]
            assert parent["parent"] == parent["uid"], "whoever is copied keeps its weights"
    assert copies == 5


def test_metrics(six: Path) -> None:
    for generation, row in enumerate(rows(six / "metrics.jsonl")):
        members = lineage(six, generation)
        fitness = [m["fitness"] for m in members.values()]
        assert row["generation"] == generation
        assert row["steps"] == 4 * 64 * (generation + 1)
        expected = {"best": max(fitness), "worst": min(fitness), "median": np.median(fitness), "mean": np.mean(fitness)}
        assert row["fitness"] == expected
        assert row["copies"] == sum(m["parent"] != m["uid"] for m in members.values())
        champion = row["champion"]
        assert champion["fitness"] == max(m["fitness"] for m in lineage(six, champion["generation"]).values())
        assert set(row["timing"]) >= {"seconds", "train", "evaluate", "evolve", "record", "compile", "steps_per_second"}
        assert all(len(values) == 4 for values in row["members"].values())
        assert "loss/policy" in row["members"]


def test_resolved_experiment_reloads_to_the_same_run(six: Path, tmp_path: Path) -> None:
    outcome = shoal("train", six / "experiment.yaml", "--run-dir", tmp_path / "again")
    assert outcome.code == 0
    same_run(six, tmp_path / "again")
    one, other = load(six / "experiment.yaml"), load(tmp_path / "again/experiment.yaml")
    assert replace(one, run_dir=None) == replace(other, run_dir=None)


def test_tensorboard(six: Path) -> None:
    told, metrics = curves(six), rows(six / "metrics.jsonl")
    steps = [64 * (g + 1) for g in range(6)]

    def curve(tag: str) -> list[float]:
        assert [step for step, _ in told[tag]] == steps, tag
        return [value for _, value in told[tag]]

    for name in ("best", "median", "worst"):
        assert curve(f"population/fitness/{name}") == pytest.approx([row["fitness"][name] for row in metrics])
    assert curve("champion/smoothed_fitness") == pytest.approx([row["champion"]["smoothed_fitness"] for row in metrics])
    assert curve("population/copies") == [row["copies"] for row in metrics]
    for uid in range(4):
        mine = [lineage(six, g)[uid] for g in range(6)]
        assert curve(f"fitness/member{uid}") == pytest.approx([row["fitness"] for row in mine])
        for name in mine[0]["hyper"]:
            assert curve(f"hyper/{name}/member{uid}") == pytest.approx([row["hyper"][name] for row in mine])
        assert curve(f"loss/value/member{uid}") == pytest.approx([r["members"]["loss/value"][uid] for r in metrics])


# --------------------------------------------------------------------------------------- the terminal

LINE = re.compile(
    r"generation (\d+)/6  best ([\d.]+)  median ([\d.]+)  worst ([\d.]+)  copies ([\d←\s]+|none)  "
    r"steps/s ([\d,]+)  left (\d+:\d\d)"
)


def test_plain_lines_where_nobody_watches(six: Path) -> None:
    told = (six.parent / "six.out").read_text().splitlines()
    first, steps, *lines = [line for line in told if "selection bias" not in line]
    assert first == f"4 × ppo by pbt on gymnax:CartPole-v1, 6 generations of 64 steps each, 2 devices → {six}"
    assert steps == "4 members × 384 steps each: 1,536 environment steps in total"
    found = [LINE.fullmatch(line) for line in lines[:6]]
    assert all(found), lines
    for row, match in zip(rows(six / "metrics.jsonl"), found, strict=True):
        number, best, median, worst, copies, speed, _ = match.groups()  # type: ignore[union-attr]
        assert int(number) == row["generation"] + 1
        assert [float(best), float(median), float(worst)] == [row["fitness"][k] for k in ("best", "median", "worst")]
        members = lineage(six, row["generation"]).values()
        pairs = [f"{m['uid']}←{m['parent']}" for m in members if m["uid"] != m["parent"]]
        assert copies.split() == (pairs or ["none"])
        assert int(speed.replace(",", "")) == pytest.approx(row["timing"]["steps_per_second"], abs=1)
    assert lines[6].startswith("champion: ")
    assert "on 8 held-out episodes" in lines[6]
    assert [line.split(":")[0] for line in lines[7:]] == ["report", "curves", "video"]
    assert str(six / "report.html") in lines[7]
    assert "\x1b" not in "".join(lines)


def test_quiet_prints_the_outcome_only(tmp_path: Path) -> None:
    outcome = shoal(*flags(tmp_path / "r", "--quiet"))
    assert (outcome.code, outcome.err) == (0, "")
    told = [line.split(":")[0] for line in outcome.out.splitlines() if "selection bias" not in line]
    assert told == ["champion", "report", "curves", "video"]


def test_a_run_goes_on_when_nobody_reads(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`shoal train | head -1`; and where standard error is such a pipe too."""
    for name, both in (("one", False), ("both", True)):
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as pipe, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", pipe)
            if both:
                patch.setattr(sys, "stderr", pipe)
            with pytest.raises(SystemExit) as ended:
                main(flags(tmp_path / name))
            assert ended.value.code == 0
        assert (tmp_path / name / "result.json").exists()
        told = "shoal: output is closed; the run continues\n"
        assert capfd.readouterr() == ("", "" if both else told)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_members_that_end_are_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    """And what that costs where all could train in parallel: by hand, (1 + 2 + 2 * 4 + 4 * 8) / 8 times as long."""
    space = {"learning_rate": Range(1e-4, 1e-2)}
    plan, console = (
        make_closed_plan(tiny(method="successive_halving", population=8, generations=8, space=space, hyper={})),
        Screen(file=StringIO(), width=200),
    )
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    Display(console).on_training_start(Start(plan, 1, tmp_path, 0))
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert (
        "8 members: 4 after 12% of the run, 2 after 25% of the run, 1 after 50% of the run; the surviving members"
        in told
    )
    assert ("5.38 times as long as with all members training to the end" in told) == (platform == "gpu")


def test_an_interval_is_rounded_up_and_that_is_said(tmp_path: Path) -> None:
    parts, console = build_run(tiny(interval=65)), Screen(file=StringIO(), width=200)
    Display(console).on_training_start(Start(parts.plan, 2, tmp_path, 0))
    assert "2 generations of 96 steps each" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "interval 65 is rounded up to 96: whole rollouts" in console.file.getvalue()  # type: ignore[attr-defined]
    assert (parts.steps, parts.iterations) == (96, 3)


def test_live_view() -> None:
    """Sampled as it goes: best, median, worst, who copied whom, speed."""
    console = Screen(file=StringIO(), force_terminal=True, width=100, color_system=None)
    display = Display(console)

    broken = {"steps/broken": np.float32([0, 0.1, 0, 1e-6])}
    alone = ended(0, np.array([1.5, 9.0, np.nan, 4.0]), broken)
    event = replace(
        alone, parents=alone.stats.take(np.array([1, 1, 1, 3])), timing=alone.timing | {"steps_per_second": 12345.6}
    )
    display.on_training_start(Start(make_closed_plan(tiny(generations=3)), 2, Path("somewhere"), 0))
    display.on_progress(0, "train", 0.5)
    display.on_generation_end(event)
    display.on_generation_end(event)
    display.on_progress(1, "evaluate", 0.0)
    display.on_message("take note")
    display.on_training_end(None)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for expected in ("best", "median", "worst", "child ← parent", "steps/s", "take note"):
        assert expected in text
    last = [line for line in text.splitlines() if "1/3" in line][-1]
    assert last.split()[:4] == ["1/3", "9", "4", "1.5"]
    assert "0←1 2←1" in last
    assert "12,346" in last
    assert text.count("generation 1, members 1, 3: rewards or observations of the environment were not finite") == 1
    assert text.count("generation 1, member 2: no fitness: weights or returns are not finite") == 1


def test_in_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command under a pseudo-terminal draws its live view there."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    ours, theirs = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        while chunk := os.read(ours, 4096):
            seen.append(chunk)
            if b"video:" in chunk:
                return

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as terminal, redirect_stdout(terminal), pytest.raises(SystemExit) as stopped:
        main(flags(tmp_path / "r"))
    reader.join(timeout=20)
    os.close(ours)
    assert stopped.value.code == 0
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", b"".join(seen).decode())
    for expected in ("best", "median", "worst", "child ← parent", "steps/s", "2/2", "champion: "):
        assert expected in text
    assert b"\x1b[" in b"".join(seen)


# --------------------------------------------------------------------------------------- evolution in the real loop


class Watch(Callback):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[Generation] = []

    def on_generation_end(self, event: Generation) -> None:
        self.events.append(event)


# Neither knows the other: each meets the usual one.
PAIRS = dict.fromkeys(
    [(select, "perturb") for select in SELECTORS] + [("truncation", explore) for explore in EXPLORERS]
)


@pytest.mark.parametrize(("select", "explore"), PAIRS)
def test_every_selector_and_every_explorer(tmp_path: Path, select: str, explore: str) -> None:
    chosen: Any = {"name": "threshold", "threshold_abs": 0.0} if select == "threshold" else select
    watch = Watch()
    train(tiny(tmp_path / "r", select=chosen, explore=explore), [watch])
    first, second = watch.events
    parents, inherited = first.parents.uid, first.stats.hyper
    explored = explore not in ("none",)
    for name, values in second.stats.hyper.items():
        assert values.tolist() == first.hyper[name].tolist()
        same = values == inherited[name][parents]
        kept = parents == np.arange(4)
        if select != "threshold":
            assert same[kept].all(), name
        if not explored:
            assert same.all(), name
    copied = parents != np.arange(4)
    assert copied.tolist() == first.copied.tolist()
    if select == "none":
        assert not copied.any()
        assert not first.explored.any()
    elif select == "winner_takes_all":
        assert copied.sum() == 3
    elif select == "truncation":
        assert copied.sum() == 1
    if copied.any() and explore in ("perturb", "resample", "gaussian"):
        assert first.explored[copied].all()
    fitness = np.where(np.isfinite(first.stats.fitness), first.stats.fitness, -np.inf)
    assert (fitness[parents] >= fitness).all()
    assert parents[fitness.argmax()] == fitness.argmax() or fitness[parents[fitness.argmax()]] == fitness.max()


def test_keep_changes_nothing(tmp_path: Path) -> None:
    run = tmp_path / "r"
    train(tiny(run, generations=4, select="none"))
    for row in rows(run / "lineage.jsonl"):
        assert row["parent"] == row["uid"]
        assert not row["explored"]
        assert row["hyper"] == lineage(run, 0)[row["uid"]]["hyper"]
    starts = [row["hyper"]["learning_rate"] for row in lineage(run, 0).values()]
    assert len(set(starts)) == 4


@pytest.mark.slow
def test_a_single_member(tmp_path: Path) -> None:
    train(tiny(tmp_path / "r", population=1, select="none"))
    assert [row["uid"] for row in rows(tmp_path / "r/lineage.jsonl")] == [0, 0]


def test_burn_in_delays_copying(tmp_path: Path) -> None:
    """A member that has trained for 192 steps may copy: at the end of the third generation of 64."""
    train(tiny(tmp_path / "r", generations=5, burn_in=192))
    copies = [row["copies"] for row in rows(tmp_path / "r/metrics.jsonl")]
    assert copies[:2] == [0, 0]
    assert copies[2:] == [1, 1, 1]
    assert not any(row["explored"] for row in rows(tmp_path / "r/lineage.jsonl") if row["generation"] < 2)


def test_equal_weights_have_equal_fitness(tmp_path: Path) -> None:
    """All members play the same episodes: a child that learns nothing scores as its parent does."""
    run = tmp_path / "r"
    still = {"learning_rate": 0.0}
    train(tiny(run, generations=5, hyper=still, select=Truncation(bottom=0.5, top=0.25)))
    compared, scores = 0, []
    for generation in range(4):
        now, then = lineage(run, generation), lineage(run, generation + 1)
        scores.append([now[u]["fitness"] for u in now])
        for row in now.values():
            assert then[row["uid"]]["fitness"] == then[row["parent"]]["fitness"]
            compared += row["uid"] != row["parent"]
    assert compared == 8
    assert len({tuple(s) for s in scores}) == 4, "each generation plays episodes of its own"


def test_fixed_and_started_hyperparameters(tmp_path: Path) -> None:
    space = {"discount": Range(0.9, 0.99, initial=0.95), "clip_range": Range(choices=(0.1, 0.2, 0.3))}
    train(tiny(tmp_path / "r", space=space, hyper={"gae_lambda": 0.5}))
    for row in lineage(tmp_path / "r", 0).values():
        assert row["hyper"]["discount"] == np.float32(0.95)
        assert row["hyper"]["gae_lambda"] == 0.5
        assert row["hyper"]["clip_range"] in [np.float32(x) for x in (0.1, 0.2, 0.3)]
        assert row["hyper"]["learning_rate"] == np.float32(3e-4)


# --------------------------------------------------------------------------------------- fitness


def test_fitness_of_the_training_episodes(tmp_path: Path) -> None:
    run = tmp_path / "r"
    result = train(tiny(run, generations=3, fitness=Fitness("training", 2, step_limit=60)))
    for metrics in rows(run / "metrics.jsonl"):
        members = lineage(run, metrics["generation"])
        assert metrics["evaluation_steps"] == 0
        for uid, row in members.items():
            returned = metrics["members"]["episode/return"][uid]  # None where no episode has ended
            assert row["fitness"] == (returned and pytest.approx(returned, rel=1e-6))
            assert (row["episodes"] == 0) == (returned is None) and row["episodes"] <= 8
    assert all(row["fitness"] for row in lineage(run, 0).values())
    champion = result.summary["champion"]
    assert result.summary["evaluation_steps"] == champion["final_selection"]["steps"] > 0
    assert champion["evaluation"]["episodes"] == 8


LONG = {"env": "support.probes:endless_reward", "env_options": {"limit": 100}}


@pytest.mark.slow
def test_nothing_measured_yet(tmp_path: Path) -> None:
    """Training episodes that end in the fourth generation only: no champion before, yet checkpoints, and exact resume."""
    changes = {"generations": 5, "fitness": Fitness("training", 2, step_limit=60)}
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(tiny(whole, **LONG | changes))
    fitness = [row["fitness"]["best"] for row in rows(whole / "metrics.jsonl")]
    assert fitness == [None, None, None, 100.0, None]
    assert all(row["copies"] == 0 for row in rows(whole / "metrics.jsonl")[:3])
    result = train(tiny(stopped, **LONG | changes | {"generations": 2}))
    assert result.summary["champion"] is None
    assert not (stopped / "champion").exists()
    resume(stopped, 5, trust_code=True)
    same_run(whole, stopped)


@pytest.mark.slow
def test_nobody_ever_had_a_fitness(tmp_path: Path) -> None:
    changes = LONG | {"fitness": {"source": "training", "episodes": 2, "step_limit": 60}}
    outcome = shoal(*flags(tmp_path / "r", **changes))
    assert outcome.code == 1
    assert outcome.err == "shoal: all members diverged: none ever had a finite fitness\n"
    assert json.loads((tmp_path / "r/result.json").read_text())["champion"] is None
    assert shoal("report", tmp_path / "r").code == 0
    assert "holds no champion" in shoal("evaluate", tmp_path / "r", "--trust-code").err


@pytest.fixture
def points() -> Any:
    gymnasium.register("Points-v0", entry_point=Points)
    yield
    del gymnasium.registry["Points-v0"]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["evaluation", "training"])
def test_objective_of_the_info(tmp_path: Path, points: None, source: Any) -> None:
    """Fitness is what the info says, 0 to 5, where the return is always -5."""
    run = tmp_path / "r"
    fitness = Fitness(source, 4, False, objective="score.points")
    result = train(tiny(run, env="gym:Points-v0", generations=3, fitness=fitness))
    scores = [row["fitness"] for row in rows(run / "lineage.jsonl")]
    assert all(0 <= score <= 5 for score in scores)
    assert len(set(scores)) > 1
    assert 0 <= result.summary["champion"]["evaluation"]["mean"] <= 5


def test_diverged_members_are_replaced_and_never_champions(tmp_path: Path) -> None:
    """A learning rate that no weights survive: NaN ranks last, is copied over, and is null in the files."""
    run, broken = tmp_path / "r", {"learning_rate": Range(choices=(1e-4, 1e30))}
    train(tiny(run, generations=4, space=broken, seed=3, select=Truncation(bottom=0.5, top=0.25)))
    first = lineage(run, 0)
    lost = [uid for uid, row in first.items() if row["fitness"] is None]
    assert 0 < len(lost) < 4
    assert all(first[row["parent"]]["fitness"] is not None for row in first.values() if row["uid"] not in lost)
    result = json.loads((run / "result.json").read_text(), parse_constant=pytest.fail)
    assert result["champion"]["hyper"]["learning_rate"] == np.float32(1e-4)
    for name in ("lineage.jsonl", "metrics.jsonl"):
        for line in (run / name).read_text().splitlines():
            json.loads(line, parse_constant=pytest.fail)


# --------------------------------------------------------------------------------------- no global state


@pytest.mark.slow
def test_two_runs_in_one_process_equal_two_processes(tmp_path: Path) -> None:
    for seed in (0, 1):
        train(tiny(tmp_path / f"here{seed}", seed=seed))
    others = [start(*flags(tmp_path / f"there{seed}", "--quiet", seed=seed)) for seed in (0, 1)]
    for process in others:
        with process:
            assert process.wait(timeout=120) == 0
    for seed in (0, 1):
        same_run(tmp_path / f"here{seed}", tmp_path / f"there{seed}")
    one, other = (record(tmp_path / f"here{seed}")["lineage"] for seed in (0, 1))
    assert one != other


def test_runs_in_threads(six: Path, tmp_path: Path) -> None:
    """Training outside the main thread works, two at once too, and gives what it gives anywhere."""
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            train(tiny(tmp_path / name, generations=6))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for name in "ab":
        same_run(six, tmp_path / name)


def test_training_leaves_numpys_random_numbers_alone(tmp_path: Path) -> None:
    np.random.seed(5)
    expected = np.random.RandomState(5).random()
    train(tiny(tmp_path / "r"))
    assert np.random.random() == expected


@pytest.mark.slow
def test_every_program_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Hyperparameters change in every generation, and nothing is traced or compiled for it."""
    monkeypatch.undo()  # no programs shared with other tests
    compiled: list[tuple[int, str]] = []
    watch = Watch()

    def listen(event: str, duration: float, **more: Any) -> None:
        if event in ("/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/backend_compile_duration"):
            compiled.append((len(watch.events), event))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        # Seven members without a layer: shapes that no other test has compiled in this process.
        changes = {"population": 7, "config": SETTINGS["config"] | {"layers": []}, "generations": 6}
        result = train(tiny(tmp_path / "r", select="winner_takes_all", **changes), [watch])
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    hypers = {event.stats.hyper["learning_rate"].tobytes() for event in watch.events}
    assert len(hypers) == 6
    assert [c for c in compiled if c[0] == 0], "the listener hears nothing"
    assert [c for c in compiled if 1 < c[0] < 6] == []
    assert result.summary["compile_seconds"] > 0


@pytest.mark.slow
def test_module_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`module:factory` is found where the command runs; of one that a run names that holds only for who trusts it."""
    (tmp_path / "my_world.py").write_text("from support.probes import match as world\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    made = shoal(*flags(tmp_path / "r", env="my_world:world"))
    assert made.code == 0 and "--video champion.mp4 --trust-code\n" in made.out
    assert sys.path == before
    assert load(tmp_path / "r/experiment.yaml").env == "my_world:world"
    sys.modules.pop("my_world")
    shutil.copy(tmp_path / "my_world.py", tmp_path / "r")
    for place, run in ((tmp_path, "r"), (tmp_path / "r", ".")):
        monkeypatch.chdir(place)
        for command in (["resume", "--generations", 3], ["evaluate"], ["play"], ["replay"]):
            refused = shoal(command[0], run, *command[1:])
            assert refused.code == 2 and refused.err.count("\n") == 1
            assert "env = my_world:world: the run names code, which runs when it is loaded; " in refused.err
            assert refused.err.endswith("add --trust-code (in Python: trust_code=True)\n")
        for command in ("report", "schedule"):
            assert shoal(command, run).code == 0
        assert "my_world" not in sys.modules and sys.path == before
    assert shoal("evaluate", ".", "--episodes", 2, "--trust-code").code == 0
    sys.modules.pop("my_world")
