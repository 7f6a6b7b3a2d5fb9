"""A run can be stopped anywhere and goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pytest
from support.cases import others_slow
from support.messages import Said
from support.runs import Signals, curves, flags, record, rows, same_run, settings, shoal, start, tiny

from shoal.core.atomic import seal, unseal
from shoal.core.errors import BadInput
from shoal.experiment.experiment import Checkpoint
from shoal.experiment.files import dump
from shoal.records.callback import Callback
from shoal.records.generation import Generation
from shoal.run import checkpoint, control, loop
from shoal.run import start as beginning
from shoal.run.champion import load_champion
from shoal.run.train import Interrupted, resume, train


def generations(run: Path) -> list[int]:
    return sorted(int(p.name) for p in (run / "checkpoints").glob("0*"))


def stop(run: Path, signals: Signals, **changes: Any) -> list[str]:
    """A run of six generations, stopped; what it noted."""
    with pytest.raises(Interrupted) as stopped:
        train(tiny(run, generations=6, **changes), [signals])
    how = "interrupted; continue" if generations(run) else "interrupted before its first checkpoint; start over"
    assert str(stopped.value) == f"{how} with: shoal resume {quote(str(run))}"
    assert not (run / "result.json").exists()
    return signals.notes


# --------------------------------------------------------------------------------------- bit for bit


def test_raised_generations_equal_a_longer_run(six: Path, tmp_path: Path) -> None:
    """Done with three, resumed to six."""
    assert shoal(*flags(tmp_path / "r", generations=3)).code == 0
    assert json.loads((tmp_path / "r/result.json").read_text())["generations"] == 3
    outcome = shoal("resume", tmp_path / "r", "--generations", "6")
    assert outcome.code == 0
    assert "generation 3/6" not in outcome.out
    assert "generation 4/6" in outcome.out
    same_run(six, tmp_path / "r")


def test_a_flag_wins_over_the_field_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For generations as for the time limit."""
    asked: list[int | None] = []

    def asks(run: Path, generations: int | None, *more: Any, **given: Any) -> None:
        asked.append(generations)
        raise Interrupted(run)

    monkeypatch.setattr("shoal.run.train.resume", asks)
    (tmp_path / "experiment.yaml").write_text(dump(tiny(generations=2)))
    for words in (("--set", "generations=4", "--generations", "6"), ("--set", "generations=4"), ("--generations", "6")):
        shoal("resume", tmp_path, *words)
    assert asked == [6, 4, 6]


def test_what_may_change_in_a_run(tmp_path: Path, said: Said) -> None:
    assert shoal(*flags(tmp_path / "r", "--quiet", generations=1)).code == 0
    given = ["generations=3", "final_episodes=3", "checkpoint.keep=1", "checkpoint.every=2"]
    assert shoal("resume", tmp_path / "r", "--quiet", "--set", *given).code == 0
    assert generations(tmp_path / "r") == [2]
    assert json.loads((tmp_path / "r/result.json").read_text())["champion"]["evaluation"]["episodes"] == 3
    refused = shoal("resume", tmp_path / "r", "--set", "population=8")
    assert refused.code == 2
    said(refused.err)
    refused = shoal("resume", tmp_path / "r", "--set", "generatons=8")
    assert refused.code == 2
    said(refused.err)


def test_the_comparison_would_notice(six: Path, tmp_path: Path) -> None:
    """`same_run` sees a single bit, a row, another seed."""
    shutil.copytree(six, tmp_path / "a")
    same_run(six, tmp_path / "a")
    lineage = (tmp_path / "a/lineage.jsonl").read_text()
    (tmp_path / "a/lineage.jsonl").write_text(lineage.replace('"parent": 2', '"parent": 1', 1))
    with pytest.raises(AssertionError):
        same_run(six, tmp_path / "a")
    assert shoal(*flags(tmp_path / "b", "--quiet", generations=6, seed=1)).code == 0
    one, other = record(six)["arrays"], record(tmp_path / "b")["arrays"]
    assert any(one[name].tobytes() != other[name].tobytes() for name in one)


@pytest.mark.parametrize("sign", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.parametrize("phase", others_slow(["train", "evaluate", "evolve"], "train"))
def test_one_signal_ends_after_the_generation(
    six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, sign: int
) -> None:
    monkeypatch.setattr(control, "PATIENCE", 1e9)  # however slow this machine is
    run = tmp_path / "r"
    told = ["stopping: after this generation; once more to abandon it"]
    assert stop(run, Signals(2, phase, sign=sign)) == ([] if phase == "evolve" else told)  # that is over at once
    assert generations(run) == [0, 1, 2]
    resume(run)
    same_run(six, run)


@pytest.mark.parametrize("phase", ["train", pytest.param("evaluate", marks=pytest.mark.slow)])
def test_a_second_signal_abandons_the_generation(six: Path, tmp_path: Path, phase: str) -> None:
    run = tmp_path / "r"
    assert stop(run, Signals(2, phase, count=2)) == ["stopping: this generation is abandoned"]
    assert generations(run) == [0, 1]
    resume(run)
    same_run(six, run)


@pytest.mark.slow
def test_a_long_generation_is_abandoned_at_once(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PATIENCE", 0.0)
    run = tmp_path / "r"
    assert stop(run, Signals(2, "train")) == ["stopping: this generation is abandoned"]
    assert generations(run) == [0, 1]
    resume(run)
    same_run(six, run)


@pytest.mark.parametrize("under_way", others_slow([False, True], True))
def test_stopped_before_the_first_checkpoint(six: Path, tmp_path: Path, under_way: bool) -> None:
    """The first generation is abandoned at once, as nobody knows how long it takes."""
    run, again = tmp_path / "r", Signals(9, "never")
    assert stop(run, Signals(0, "train", under_way=under_way)) == ["stopping: this generation is abandoned"]
    assert not (run / "checkpoints").exists()
    resume(run, callbacks=[again])
    assert again.notes == ["the run was stopped before its first checkpoint: it starts from the beginning"]
    same_run(six, run)


def test_a_champion_without_checkpoints_is_not_replaced(six: Path, tmp_path: Path, said: Said) -> None:
    """One that was saved alone, and that of a run that has ended, whose checkpoints somebody has removed."""
    load_champion(six).save(tmp_path / "alone")
    shutil.copytree(six, tmp_path / "pruned")
    shutil.rmtree(tmp_path / "pruned/checkpoints")
    for run in (tmp_path / "alone", tmp_path / "pruned"):
        before = state(run)
        with pytest.raises(BadInput) as error:
            resume(run, 8)
        said(error.value)
        assert state(run) == before


@pytest.mark.slow
def test_stopped_before_anything_is_written(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal while the parts are made leaves a run that can be resumed, as any other does."""
    make = beginning.make_plan

    def stopped_planning(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return make(*arguments)

    monkeypatch.setattr(beginning, "make_plan", stopped_planning)
    outcome = shoal(*flags(tmp_path / "r", generations=6))
    assert (outcome.code, outcome.err) == (3, "")
    assert f"shoal resume {tmp_path / 'r'}" in outcome.out
    monkeypatch.undo()
    assert shoal("resume", tmp_path / "r", "--quiet").code == 0
    same_run(six, tmp_path / "r")


def test_stopped_in_the_last_generation_or_the_last_test(six: Path, tmp_path: Path) -> None:
    """The last generation ends the run anyway; the champion's test can be taken up again."""
    ended = tmp_path / "ended"
    train(tiny(ended, generations=6), [Signals(5, "train")])
    same_run(six, ended)
    assert stop(tmp_path / "r", Signals(5, "champion")) == ["stopping: this generation is abandoned"]
    assert generations(tmp_path / "r") == [3, 4, 5]
    resume(tmp_path / "r")
    same_run(six, tmp_path / "r")


@pytest.mark.slow
def test_rare_checkpoints(six: Path, tmp_path: Path) -> None:
    """Between two checkpoints a stopped run saves, an abandoned one goes back to the last."""
    every = Checkpoint(every=4)
    stop(tmp_path / "a", Signals(1, "train"), checkpoint=every)
    assert generations(tmp_path / "a") == [1]
    stop(tmp_path / "b", Signals(2, "train", count=2), checkpoint=every)
    assert not (tmp_path / "b/checkpoints").exists()
    stop(tmp_path / "c", Signals(5, "train", count=2), checkpoint=every)
    assert generations(tmp_path / "c") == [3]
    for name in "abc":
        resume(tmp_path / name)
        assert generations(tmp_path / name)[-1] == 5
        same_run(six, tmp_path / name)


def test_short_generations_are_written_together(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files at any time lead to the same end: lines that no checkpoint contains are cut off."""
    monkeypatch.setattr(loop, "REST", 1000.0)
    run, killed, abandoned = (tmp_path / name for name in ("r", "killed", "abandoned"))

    def written(run: Path) -> None:
        """The first checkpoint is complete: who abandons a run that still writes it does not wait for it."""
        while not generations(run):
            time.sleep(0.01)

    class Copy(Callback):
        def on_generation_end(self, event: Generation) -> None:
            if event.generation == 3:
                written(run)
                shutil.copytree(run, killed)

    class Abandon(Signals):
        def on_generation_end(self, event: Generation) -> None:
            if event.generation == 3:
                written(abandoned)

    train(tiny(run, generations=6, checkpoint=Checkpoint()), [Copy()])
    assert generations(run) == [0, 5]
    same_run(six, run)
    assert {row["generation"] for row in rows(killed / "lineage.jsonl")} <= {0}
    stop(abandoned, Abandon(4, "evaluate", count=2), checkpoint=Checkpoint())
    assert generations(abandoned) == [0]
    assert [row["generation"] for row in rows(abandoned / "metrics.jsonl")] == [0, 1, 2, 3]
    for place in (killed, abandoned):
        resume(place)
        same_run(six, place)


@pytest.mark.slow
def test_stopped_again_and_again(six: Path, tmp_path: Path) -> None:
    run = tmp_path / "r"
    stop(run, Signals(0, "evolve", count=2))
    for generation in range(1, 5):
        with pytest.raises(Interrupted):
            resume(run, callbacks=[Signals(generation, "evolve")])
    resume(run)
    same_run(six, run)


@pytest.mark.slow
def test_a_run_that_was_moved(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop(tmp_path / "old place", Signals(2, "evolve"))
    (tmp_path / "old place").rename(tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    outcome = shoal("resume", ".", "--quiet")
    assert outcome.code == 0
    assert not (tmp_path / "old place").exists()
    same_run(six, tmp_path / "new")


def test_signal_handlers_are_given_back(tmp_path: Path) -> None:
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    stop(tmp_path / "r", Signals(0, "train"))
    assert shoal("resume", tmp_path / "r", "--quiet").code == 0
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before


# --------------------------------------------------------------------------------------- replay buffer

REPLAY = {"layers": [8], "rollout_length": 16, "num_envs": 2, "buffer_size": 96, "learning_starts": 96, "batch_size": 8}
LEARNERS: dict[str, dict[str, Any]] = {
    "td3": {"env": "gymnax:Pendulum-v1"},
    "sac": {"env": "gymnax:Pendulum-v1"},
    "dqn": {"config": REPLAY | {"n_step": 3}},
}


def replaying(agent: str, replay: str) -> dict[str, Any]:
    """Six generations of two rollouts; memory holds three. Updates begin in the second generation, never whole ones."""
    settings = {"agent": agent, "replay": replay, "config": REPLAY, "hyper": {"update_ratio": 0.11}}
    return settings | {"select": {"name": "truncation", "bottom": 0.5, "top": 0.5}} | LEARNERS[agent]


@pytest.mark.slow
def test_replay_buffer_goes_on(tmp_path: Path) -> None:
    """Stopped during the warm-up, after a copy and when the ring is overwritten: as if it had never been."""
    whole, run = tmp_path / "whole", tmp_path / "r"
    settings = replaying("dqn", "copy")
    train(tiny(whole, generations=6, **settings))
    stop(run, Signals(0, "evolve", count=2), **settings)
    with pytest.raises(Interrupted):
        resume(run, callbacks=[Signals(2, "train")])
    with pytest.raises(Interrupted):
        resume(run, callbacks=[Signals(4, "train", count=2)])
    resume(run)
    same_run(whole, run)
    copies = {row["generation"] for row in rows(whole / "lineage.jsonl") if row["parent"] != row["uid"]}
    assert copies >= {0, 2, 3}, "nobody copies, so that memory has nothing to tell"


@pytest.mark.slow
def test_copied_memory_makes_another_run(tmp_path: Path) -> None:
    """So that the test above tells the two apart."""
    for replay in ("keep", "copy"):
        train(tiny(tmp_path / replay, generations=3, **replaying("dqn", replay)))
    one, other = (record(tmp_path / replay)["arrays"] for replay in ("keep", "copy"))
    assert one.keys() == other.keys()
    kept = [name for name in one if "replay_buffer" in name and "shard" in name]
    assert kept and all(one[name].shape[0] == 4 for name in kept)
    assert any(one[name].tobytes() != other[name].tobytes() for name in kept)


# --------------------------------------------------------------------------------------- one process, one run


class Meanwhile(Callback):
    """Gives commands while a generation is trained."""

    def __init__(self, *commands: list[Any]):
        self._commands, self.outcomes = list(commands), []

    def on_progress(self, generation: int, phase: str, fraction: float) -> None:
        while self._commands:
            self.outcomes.append(shoal(*self._commands.pop()))


def test_a_run_at_work_is_left_to_its_process(six: Path, tmp_path: Path) -> None:
    run = tmp_path / "r"
    stop(run, Signals(2, "train"))
    before = sorted(run.rglob("*"))
    others = Meanwhile(["resume", run, "--generations", 9], flags(run), ["replay", six, "--run-dir", run])
    resume(run, callbacks=[others])
    told = rf"shoal: run_dir: {re.escape(str(run))} is in use: process {os.getpid()} on \S+ is at work on it\n"
    for outcome in others.outcomes:
        assert (outcome.code, outcome.out) == (2, "")
        assert re.fullmatch(told, outcome.err)
    assert len(others.outcomes) == 3
    same_run(six, run)
    assert {p.name for p in run.iterdir()} == {p.name for p in before if p.parent == run} | {"result.json"}


def test_runs_that_name_no_place_take_one_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where both of them have found the same one to be free."""
    monkeypatch.chdir(tmp_path)
    find, stale = beginning.free_place, [tmp_path / "runs/CartPole-v1-ppo-0"]
    monkeypatch.setattr(beginning, "free_place", lambda *given: stale.pop() if stale else find(*given))
    other = Meanwhile(["train", "--quiet", *settings()])
    stale *= 2
    assert train(tiny(), [other]).run_dir == tmp_path / "runs/CartPole-v1-ppo-0"
    assert other.outcomes[0].code == 0
    same_run(Path("runs/CartPole-v1-ppo-0"), Path("runs/CartPole-v1-ppo-0-2"))


# --------------------------------------------------------------------------------------- processes


def say(process: Any, until: str) -> str:
    """Output of a process, up to a line that contains `until`."""
    told = ""
    for line in process.stdout:
        told += line
        if until in line:
            return told
    raise AssertionError(f"ended without {until!r}: {told} {process.stderr.read()}")


@pytest.mark.slow
def test_a_signal_to_the_command(thirty: Path, tmp_path: Path) -> None:
    run = tmp_path / "a run"
    with start(*flags(run, generations=30)) as process:
        say(process, "generation 3/30")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (3, "")
    assert out.endswith(f"interrupted; continue with: shoal resume '{run}'\n")
    assert not (run / "result.json").exists()
    done = len(rows(run / "metrics.jsonl"))
    assert 3 <= done < 30
    outcome = shoal("resume", run)
    assert outcome.code == 0
    assert f"generation {done + 1}/30" in outcome.out
    assert f"generation {done}/30" not in outcome.out
    same_run(thirty, run)


@pytest.mark.slow
def test_a_signal_while_everything_is_compiled(six: Path, tmp_path: Path) -> None:
    """A compiler cannot be stopped half-way; the run ends, whole, when it has done."""
    run = tmp_path / "r"
    with start(*flags(run, generations=6), JAX_COMPILATION_CACHE_DIR=tmp_path) as process:
        say(process, "4 × ppo")
        os.killpg(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (3, "")
    assert out.splitlines()[-1] == f"interrupted before its first checkpoint; start over with: shoal resume {run}"
    assert shoal("resume", run, "--quiet").code == 0
    same_run(six, run)


def kill(run: Path, moments: Iterator[float], *first: str) -> int:
    """Start or resume a run and kill it; how many generations it then remembers."""
    command = first or ("resume", str(run))
    with start(*command) as process:
        say(process, "generation ")
        time.sleep(next(moments))
        process.kill()
        process.communicate()
    return max(generations(run), default=-1)


@pytest.mark.slow
@pytest.mark.parametrize("times", [3])
def test_killed_at_random_moments(thirty: Path, tmp_path: Path, times: int) -> None:
    run = tmp_path / "r"
    draw = np.random.default_rng(times)
    moments = iter(draw.uniform(0, 0.4 / times, times).tolist())  # seconds, so that it is never done before
    kill(run, moments, *flags(run, generations=30))
    for _ in range(times - 1):
        kill(run, moments)
    assert not (run / "result.json").exists()
    assert shoal("resume", run, "--quiet").code == 0
    same_run(thirty, run)
    same_curves(thirty, run)
    left = [p for p in [*run.iterdir(), *(run / "checkpoints").iterdir()] if p.name.startswith(".")]
    assert left == []


@contextmanager
def watched(run: Path, copies: Path) -> Iterator[list[Path]]:
    """Copies of the run's directory as a SIGKILL would leave it, just before each step of writing files."""
    taken: list[Path] = []
    lock = threading.Lock()

    def before(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*arguments: Any, **options: Any) -> Any:
            with lock:
                if run.exists():
                    copy = copies / f"{len(taken):03d}"
                    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("tensorboard"))
                    taken.append(copy)
            return real(*arguments, **options)

        patch.setattr(owner, name, step)

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "rename"), (checkpoint.shutil, "rmtree")):
            before(owner, name)
        yield taken


@pytest.mark.slow
def test_killed_at_every_third_step_of_writing(tmp_path: Path) -> None:
    """The run goes on to the same end from all states of the files."""
    run = tmp_path / "r"
    with watched(run, tmp_path) as taken:
        train(tiny(run, generations=3, checkpoint=Checkpoint(1, keep=1)))
    assert len(taken) > 30
    for copy in taken[::3]:
        if (copy / "experiment.yaml").exists():
            if not (copy / "result.json").exists():  # else it was done already
                resume(copy)
            same_run(run, copy)


# --------------------------------------------------------------------------------------- damage


def damage(run: Path, generation: int, how: str) -> None:
    path = run / "checkpoints" / f"{generation:08d}"
    if how == "truncated":
        data = (path / "shard-0000.safetensors").read_bytes()
        (path / "shard-0000.safetensors").write_bytes(data[: len(data) // 2])
    elif how == "foreign":
        (path / "manifest.json").write_text('{"format": "something else"}')
    else:
        shutil.rmtree(path)
        path.mkdir()


@pytest.mark.parametrize("how", others_slow(["truncated", "foreign", "empty"], "truncated"))
def test_a_damaged_checkpoint_falls_back(six: Path, tmp_path: Path, how: str) -> None:
    run = tmp_path / "r"
    stop(run, Signals(3, "evolve"))
    damage(run, 3, how)
    outcome = shoal("resume", run)
    assert outcome.code == 0
    assert "skipping a damaged checkpoint" in outcome.out
    assert "generation 4/6" in outcome.out
    same_run(six, run)


def test_nothing_whole_to_go_on_from(tmp_path: Path, said: Said) -> None:
    run = tmp_path / "r"
    stop(run, Signals(1, "evolve"))
    for generation in (0, 1):
        damage(run, generation, "truncated")
    before = (run / "lineage.jsonl").read_bytes()
    outcome = shoal("resume", run)
    assert outcome.code == 2
    said(outcome.err)
    assert (run / "lineage.jsonl").read_bytes() == before


def test_a_damaged_champion_is_written_anew(six: Path, tmp_path: Path) -> None:
    run = tmp_path / "r"
    stop(run, Signals(2, "evolve"))
    shutil.rmtree(run / "champion")
    resume(run)
    same_run(six, run)


def test_records_that_ran_ahead_or_end_in_the_middle(six: Path, tmp_path: Path) -> None:
    """As a kill leaves them: two generations further than the last whole checkpoint, and half of a third."""
    run = tmp_path / "r"
    shutil.copytree(six, run)
    (run / "result.json").unlink()
    for generation in (4, 5):
        shutil.rmtree(run / "checkpoints" / f"{generation:08d}")
    for path in (run / "lineage.jsonl", run / "metrics.jsonl", *(run / "tensorboard").iterdir()):
        data = path.read_bytes()
        path.write_bytes(data + data[:17])
    assert shoal("resume", run).code == 0
    same_run(six, run)
    same_curves(six, run)


def test_a_run_that_begins_again_has_no_curves_of_the_first_time(six: Path, tmp_path: Path) -> None:
    run = tmp_path / "r"
    shutil.copytree(six, run)
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints")
    assert shoal("resume", run).code == 0
    same_curves(six, run)


def test_a_run_that_begins_again_has_no_champion_of_the_first_time(six: Path, tmp_path: Path) -> None:
    """Until it has one of its own, which it may never have: all members may diverge."""
    run = tmp_path / "r"
    shutil.copytree(six, run)
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(Interrupted):
        resume(run, callbacks=[Signals(0, "train")])
    assert not (run / "champion").exists()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_points_that_a_kill_took_along_are_written_on_resume(six: Path, tmp_path: Path, share: float) -> None:
    """TensorBoard is written behind the run, so that a kill leaves the beginning of it: here from no point to most."""
    run = tmp_path / "r"
    shutil.copytree(six, run)
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints" / "00000005")
    (events,) = (run / "tensorboard").iterdir()
    data = events.read_bytes()
    events.write_bytes(data[: int(share * len(data))])
    assert shoal("resume", run).code == 0
    same_curves(six, run)
    speeds = [value for _, value in curves(run)["population/steps_per_second"]]
    assert speeds == pytest.approx([row["timing"]["steps_per_second"] for row in rows(run / "metrics.jsonl")])


def same_curves(whole: Path, run: Path) -> None:
    """Assert that the scalars of two runs are equal, each generation once; of the speed, its steps."""
    one, other = curves(whole), curves(run)
    assert one.keys() == other.keys()
    for tag, points in other.items():
        assert [step for step, _ in points] == [step for step, _ in one[tag]], tag
        if tag != "population/steps_per_second":
            np.testing.assert_equal([value for _, value in points], [value for _, value in one[tag]], tag)


# --------------------------------------------------------------------------------------- refusals


def test_nothing_to_resume(six: Path, tmp_path: Path, said: Said) -> None:
    for run in (tmp_path, tmp_path / "nowhere"):
        outcome = shoal("resume", run)
        assert (outcome.code, outcome.out) == (2, "")
        said(outcome.err)
    for given in ("generations=0", "generations=3", "final_episodes=9"):
        outcome = shoal("resume", six, "--set", given)
        assert outcome.code == 2
        said(outcome.err)
    assert (six / "result.json").exists()


def state(run: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file()}


def test_a_refused_resume_changes_nothing(six: Path) -> None:
    before = state(six)
    assert shoal("resume", six, "--generations", 3).code == 2
    assert state(six) == before


# --------------------------------------------------------------------------------------- what is done already


def test_what_is_done_is_done(six: Path, tmp_path: Path, said: Said) -> None:
    """Resumed again, it says so and changes nothing; from Python too, with the same summary."""
    run = tmp_path / "r"
    shutil.copytree(six, run)
    (run / "report.html").unlink()
    before = state(run)
    for given in ([], ["--quiet"], ["--generations", "6"]):
        outcome = shoal("resume", run, *given)
        assert (outcome.code, outcome.err) == (0, "")
        said(outcome.out.splitlines()[0])
        assert f"open {run / 'report.html'}" in outcome.out and "generation 6/6" not in outcome.out
        assert "<!doctype html>" in (run / "report.html").read_text()
    (run / "report.html").unlink()
    notes = Signals(9, "never")
    again = resume(run, callbacks=[notes])
    assert again.already and again.summary == json.loads((run / "result.json").read_text())
    assert again.champion.uid == again.summary["champion"]["uid"] and len(notes.notes) == 1
    assert state(run) == before
    assert shoal("resume", run, "--generations", "7", "--quiet").code == 0
    assert json.loads((run / "result.json").read_text())["generations"] == 7


@pytest.mark.parametrize("left", ["", "{}", '{"status": "done"}', "[1]"])
def test_a_result_that_is_missing_or_damaged_is_written_anew(six: Path, tmp_path: Path, left: str) -> None:
    run = tmp_path / "r"
    shutil.copytree(six, run)
    (run / "result.json").write_text(left) if left else (run / "result.json").unlink()
    assert shoal("resume", run, "--quiet").code == 0
    same_run(six, run)


def test_what_a_recorder_has_ended_is_not_done(six: Path, tmp_path: Path) -> None:
    class Enough(Callback):
        def on_generation_end(self, event: Generation) -> bool:
            return event.generation != 2

    assert not train(tiny(tmp_path / "r", generations=6), [Enough()]).already
    assert not resume(tmp_path / "r").already
    same_run(six, tmp_path / "r")


@pytest.mark.slow
def test_another_structure_does_not_fit(tmp_path: Path) -> None:
    """An experiment file that was changed by hand between two sittings."""
    run = tmp_path / "r"
    stop(run, Signals(1, "evolve"))
    text = (run / "experiment.yaml").read_text()
    (run / "experiment.yaml").write_text(text.replace("population: 4", "population: 6"))
    outcome = shoal("resume", run)
    assert outcome.code == 2
    assert "made by another experiment" in outcome.err


@pytest.mark.parametrize("change", ["no hyper", "nothing", "others"])
def test_candidates_that_a_checkpoint_tells_wrongly(six: Path, tmp_path: Path, change: str, said: Said) -> None:
    """Sealed as it should be, by somebody who knows how."""
    run = tmp_path / "r"
    shutil.copytree(six, run)
    (run / "result.json").unlink()
    for path in run.glob("checkpoints/*/manifest.json"):
        manifest = unseal(path)
        first = manifest["earlier"][0]
        told = {"no hyper": first | {"hyper": None}, "nothing": {}, "others": first | {"hyper": {"a": 1.0}}}
        manifest["earlier"] = [told[change]]
        path.write_bytes(seal(manifest))
    outcome = shoal("resume", run)
    assert outcome.code == 2
    said(outcome.err)


# --------------------------------------------------------------------------------------- host environments


HOST = {"env": "gym:CartPole-v1", "env_options": {"max_episode_steps": 20}, "generations": 4}


@pytest.mark.slow
def test_host_environments_go_on_with_fresh_episodes(tmp_path: Path) -> None:
    run = tmp_path / "r"
    with pytest.raises(Interrupted):
        train(tiny(run, **HOST), [Signals(1, "train")])
    before = rows(run / "lineage.jsonl")
    outcome = shoal("resume", run)
    assert (outcome.code, outcome.err) == (0, "")
    assert "host environments cannot be saved: the run continues with new episodes" in outcome.out
    lineage = rows(run / "lineage.jsonl")
    assert lineage[: len(before)] == before
    assert [(r["generation"], r["uid"]) for r in lineage] == [(g, u) for g in range(4) for u in range(4)]
    assert [r["steps"] for r in lineage] == [64 * (g + 1) for g in range(4) for _ in range(4)]
    carried = {r["uid"]: r for r in lineage if r["generation"] == 1}
    for r in lineage[8:12]:  # a member that neither copied nor explored keeps its hyperparameters over the gap
        if carried[r["uid"]]["parent"] == r["uid"]:
            assert r["hyper"] == carried[r["uid"]]["hyper"]


@pytest.mark.slow
def test_host_environments_are_deterministic_until_stopped(tmp_path: Path) -> None:
    for name in "ab":
        train(tiny(tmp_path / name, **HOST))
    same_run(tmp_path / "a", tmp_path / "b")


@pytest.mark.slow
def test_ctrl_c_spares_the_workers_of_a_run(tmp_path: Path) -> None:
    """A terminal sends it to every process; worker environments live until their generation has ended."""
    run = tmp_path / "r"
    options = {"vectorization": "async", "max_episode_steps": 20}
    with start(*flags(run, **HOST | {"env_options": options, "generations": 500})) as process:
        say(process, "generation 2/500")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (3, "")
    assert generations(run)[-1] + 1 == len(rows(run / "metrics.jsonl"))
