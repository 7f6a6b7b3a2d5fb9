"""Members that trainers train, in whole runs: what holds for Shoal's own agents holds for them."""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save
from support import runs
from support.ancestry import check_ancestry
from support.cases import others_slow
from support.messages import Said, shown
from support.runs import COMMAND, mpiexec, rows, same_run, shoal
from support.trainers import Sound

import shoal as library
from shoal.core.atomic import seal
from shoal.core.errors import BadInput
from shoal.core.interrupts import Failed, Interrupted
from shoal.core.space import Range
from shoal.experiment.build import recipe_of
from shoal.experiment.experiment import Experiment, Fitness
from shoal.experiment.plan import make_plan
from shoal.members.external import ExternalShard
from shoal.records.callback import Callback
from shoal.records.generation import Generation
from shoal.records.tensorboard import TensorBoard
from shoal.run.champion import load_champion
from shoal.run.checkpoint import read_manifest
from shoal.run.members import read_members
from shoal.run.train import resume, train
from shoal.trainers.process import TrainerProcess
from shoal.trainers.remote import RemoteTrainer
from shoal.trainers.trainers import TrainerProcesses, is_trainer

SOUND = "support.trainers:Sound"
GENERATIONS = 4


def bandit(run_dir: Path | None, **changes: Any) -> Experiment:
    """Four members in two processes, which learn which arm pays most in a context."""
    usual: dict[str, Any] = {
        "env": "none",
        "method": "pbt",
        "agent": SOUND,
        "population": 4,
        "generations": GENERATIONS,
        "interval": 40,
        "final_episodes": 8,
        "fitness": Fitness(episodes=4),
        "processes": TrainerProcesses(count=2),
        "run_dir": None if run_dir is None else str(run_dir),
    }
    return Experiment(**usual | changes)


# A run of which one generation will do.
FEW: dict[str, Any] = {"population": 2, "generations": 1, "interval": 4, "final_episodes": 2}
FEW["processes"] = TrainerProcesses(count=1)


def edit(run: Path, before: str, after: str) -> None:
    """Change the experiment of a run by hand, as none changes while it goes on."""
    text = (run / "experiment.yaml").read_text()
    assert before in text
    (run / "experiment.yaml").write_text(text.replace(before, after))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    path = tmp_path_factory.mktemp("whole") / "run"
    train(bandit(path))
    return path


def test_a_run_has_all_that_others_have(whole: Path) -> None:
    result = json.loads((whole / "result.json").read_text())
    assert result["status"] == "done" and len(result["fitness"]) == 4
    assert result["environment_steps"] == 4 * GENERATIONS * 40
    selection = result["champion"]["final_selection"]
    assert (selection["candidates"], selection["episodes"], selection["steps"]) == (2, 12, 12), (
        "2 % of 640 steps, one each"
    )
    assert result["evaluation_steps"] == 4 * GENERATIONS * 4 + 12
    assert result["champion"]["evaluation"]["episodes"] == 8
    lineage = rows(whole / "lineage.jsonl")
    assert [row["steps"] for row in lineage if row["uid"] == 0] == [40, 80, 120, 160]
    assert any(row["parent"] != row["uid"] for row in lineage), "somebody copies"
    assert {"rate", "momentum", "greed"} <= lineage[0]["hyper"].keys()
    assert rows(whole / "metrics.jsonl")[0]["members"]["updates"] == [10] * 4
    assert sorted(p.name for p in (whole / "trainers").iterdir()) == ["0.log", "1.log"]


def test_members_begin_with_what_others_have_learned(whole: Path, tmp_path: Path, said: Said) -> None:
    """A population of as many; of the fittest; and one of a champion."""
    ended, last = read_members(whole), rows(whole / "lineage.jsonl")[-4:]
    fittest = sorted(sorted(range(4), key=lambda uid: -last[uid]["fitness"])[:2])
    champion = json.loads((whole / "champion" / "manifest.json").read_text())["uid"]
    for start, population, expected in (
        (whole, 4, [0, 1, 2, 3]),
        (whole, 2, fittest),
        (whole / "champion", 2, [champion] * 2),
    ):
        run = tmp_path / f"{start.name}{population}"
        train(bandit(run, init_from=str(start), population=population, generations=1, seed=7))
        begun = [member["parent"] for member in json.loads((run / "init_from.json").read_text())["members"]]
        assert begun == expected
        updates = [x["updates"] for x in ended.learned]
        best = load_file(whole / "champion" / "state.safetensors")["updates"]
        expected = [best + 10] * 2 if start != whole else [updates[uid] + 10 for uid in expected]
        assert rows(run / "metrics.jsonl")[0]["members"]["updates"] == expected, "they go on, and count on"
        assert {row["steps"] for row in rows(run / "lineage.jsonl")} == {40}
    with pytest.raises(BadInput) as error:
        train(bandit(tmp_path / "other", init_from=str(whole), agent="support.trainers:Rough"))
    said(error.value)


def test_a_curve_has_no_points_of_a_metric_of_its_name(tmp_path: Path) -> None:
    """A trainer's fitness, such as a mean of training returns, made a zigzag of the curve of the run's."""
    run = train(bandit(tmp_path / "r", agent="support.trainers:Namesake", **FEW), [TensorBoard()]).run_dir
    found, lineage = runs.curves(run), rows(run / "lineage.jsonl")
    for row in lineage:
        for name, value in (("fitness", row["fitness"]), ("hyper/rate", row["hyper"]["rate"])):
            assert found[f"{name}/member{row['uid']}"] == [(4, pytest.approx(value))]


def test_trainers_get_what_the_file_of_the_run_holds() -> None:
    """Python may give numbers of NumPy, and classes such as an activation function, which JSON has not."""
    given = {"arms": np.int64(4), "rate": np.float32(0.5), "greed": 1}
    plan = make_plan(bandit(None, config=given))
    plan.kind.close()
    assert plan.experiment.config["arms"] == 4 and plan.kind.tunable.hyper.rate == 0.5
    networks = recipe_of(bandit(None, config={"policy_kwargs": {"activation_fn": Sound}})).config["policy_kwargs"]
    assert networks == {"activation_fn": SOUND}


def test_the_display_names_what_is_given_as_an_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the file of the run does, and not by where it lies in memory."""
    train(bandit(tmp_path / "r", env=Sound, **FEW), progress=True)
    assert f"2 × {SOUND} by pbt on {SOUND}, " in " ".join(capsys.readouterr().out.split())


def test_no_seed_of_a_champions_test_has_selected_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor has `shoal evaluate` any of them: three generations, final selection, final evaluation, and the command. Of each
    member every interval has a seed of its own."""
    played, trained = list[list[int]](), list[int]()
    evaluate, teach = RemoteTrainer.evaluate, RemoteTrainer.train

    def watched(self: RemoteTrainer, seeds: Sequence[int]) -> np.ndarray:
        played.append(list(seeds))
        return evaluate(self, seeds)

    def taught(self: RemoteTrainer, seed: int, steps: int) -> Any:
        trained.append(seed)
        return teach(self, seed, steps)

    monkeypatch.setattr(RemoteTrainer, "evaluate", watched)
    monkeypatch.setattr(RemoteTrainer, "train", taught)
    train(bandit(tmp_path / "r", **FEW | {"generations": 3, "final_episodes": 8}))
    assert len(trained) == len({*trained}) == 2 * 3
    assert shoal("evaluate", tmp_path / "r", "--episodes", 4, "--trust-code").code == 0
    assert played[0:6:2] == played[1:6:2], "both members play the same"
    assert played[6] == played[7], "both candidates, too"
    assert [len(seeds) for seeds in played[0:6:2] + played[7:]] == [4, 4, 4, 4, 8, 4]
    assert len({seed for seeds in played for seed in seeds}) == 28


def test_members_get_better(tmp_path: Path) -> None:
    """At twenty times the steps; a policy that does not look earns nothing on average."""
    long = {"interval": 800, "fitness": Fitness(episodes=64), "final_episodes": 200}
    result = library.train(bandit(tmp_path / "r", **long))
    assert result.summary["agent"] == SOUND
    assert result.summary["champion"]["evaluation"]["mean"] > 0.5


class Stop(Callback):
    """Ends a run after a generation, as Ctrl-C does."""

    def __init__(self, after: int):
        self.after = after

    def on_generation_end(self, event: Generation) -> None:
        if event.generation == self.after:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("count", [1, 3])
def test_a_run_goes_on_exactly_in_other_processes(whole: Path, tmp_path: Path, count: int) -> None:
    run = tmp_path / "r"
    with pytest.raises(Interrupted):
        train(bandit(run), [Stop(1)])
    outcome = shoal("resume", run, "--quiet", "--trust-code", "--set", f"processes.count={count}")
    assert outcome.code == 0, outcome.err
    same_run(whole, run)


@pytest.mark.parametrize("shards", others_slow([2, 4], 2))
def test_groups_and_processes_change_nothing_but_the_parts(whole: Path, tmp_path: Path, shards: int) -> None:
    train(bandit(tmp_path / "r", shards=shards, processes=TrainerProcesses(count=1)))
    assert rows(tmp_path / "r/lineage.jsonl") == rows(whole / "lineage.jsonl")


@pytest.mark.slow
def test_ranks_of_mpi_give_the_same_run(whole: Path, tmp_path: Path) -> None:
    told = f"--env none --agent {SOUND} --method pbt --population 4 --generations {GENERATIONS} --interval 40"
    more = "--shards 2 --quiet --exchange mpi --set processes.count=1 final_episodes=8 fitness.episodes=4"
    command = [*COMMAND, "train", *told.split(), *more.split(), "--run-dir", str(tmp_path / "r")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    done = subprocess.run(mpiexec(2, *command), capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    one, two = (rows(path / "lineage.jsonl") for path in (whole, tmp_path / "r"))
    assert one == two and any(row["parent"] // 2 != row["uid"] // 2 for row in one), "states travelled"


def test_workers_of_a_directory(tmp_path: Path) -> None:
    """One after another, the later ones copy what the first has published."""
    best = {"name": "pbt", "select": "winner_takes_all"}
    one = {"processes": TrainerProcesses(count=1), "method": best}
    for name in ("a", "b"):
        train(bandit(None, exchange={"name": "directory", "workspace": str(tmp_path), "worker": name}, **one))
    assert check_ancestry(tmp_path) >= 1


def test_selection_and_exploration_are_those_of_any_population(tmp_path: Path) -> None:
    """The record says what `shoal.Evolver` decides from the same fitness, and that members train with it next."""
    chosen = {"select": "tournament", "explore": "mutate"}
    one = TrainerProcesses(count=1)
    train(bandit(tmp_path / "r", method={"name": "pbt"} | chosen, interval=4, processes=one))
    evolver, every = library.Evolver(Sound.space, 4, **chosen), rows(tmp_path / "r/lineage.jsonl")
    for generation in range(GENERATIONS):
        now = [row for row in every if row["generation"] == generation]
        for row, asked in zip(now, evolver.ask(), strict=True):
            assert row["hyper"] == asked["hyper"] | {"greed": 1.0}
        evolver.tell({row["uid"]: row["fitness"] for row in now})
        parents = [m["uid"] if m["copy_from"] is None else m["copy_from"] for m in evolver.ask()]
        assert [row["parent"] for row in now] == parents
    assert any(row["explored"] for row in every)


def test_replay_buffer_is_copied_where_the_experiment_says_so(tmp_path: Path) -> None:
    """The replay buffer of a child is its parent's, or its own; the rest is its parent's in either case."""
    for replay in ("keep", "copy"):
        seen: list[Any] = []
        apply = ExternalShard.apply

        def watched(self: ExternalShard, decision: Any, arrived: Any, apply: Any = apply, seen: list = seen) -> Any:
            # States of members have no public name: a shard shows those of a snapshot only.
            before = [m.state for m in self._members]
            metrics = apply(self, decision, arrived)
            copied = [(r, p) for r, p in enumerate(decision.parents) if p != r]
            seen += [(before[r], before[p], self._members[r].state) for r, p in copied]
            return metrics

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ExternalShard, "apply", watched)
            one = {"processes": TrainerProcesses(count=1), "generations": 2}
            train(bandit(tmp_path / replay, method={"name": "pbt", "replay": replay}, **one))
        assert seen
        for old, parent, child in seen:
            np.testing.assert_array_equal(child.learned["w"], parent.learned["w"])
            wanted = parent if replay == "copy" else old
            np.testing.assert_array_equal(child.replay_buffer["contexts"], wanted.replay_buffer["contexts"])
            assert (parent.replay_buffer["contexts"] != old.replay_buffer["contexts"]).any()


# --------------------------------------------------------------------------------------- processes that die


def servers() -> list[int]:
    """The processes of trainers that this one has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command, status = (entry / "cmdline").read_bytes(), (entry / "stat").read_text()
            except OSError:
                continue
            if b"server.py" in command and int(status.rsplit(")", 1)[1].split()[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def test_a_run_that_is_refused_leaves_no_process_and_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "logs"))
    together = FEW | {"exchange": {"name": "directory", "workspace": str(tmp_path / "w")}}
    train(bandit(None, **together))
    with pytest.raises(BadInput, match="interval"):
        train(bandit(None, **together | {"interval": 30}))
    assert servers() == [] and list((tmp_path / "logs").iterdir()) == []


class Killer(Callback):
    """Kills a random process of a trainer with every so many signs of progress, until a run has noticed `times` of them.

    Not by the clock: a quick machine would be done before the first of them.
    """

    def __init__(self, times: int, every: int) -> None:
        self.times, self.turns, self.draw = times, itertools.cycle(range(every)), np.random.default_rng(0)
        self.killed: list[int] = []
        self.heard = 0  # of deaths that a run has noticed: some processes have nothing more to do
        self.others = servers()  # of tests before

    def on_progress(self, generation: int, phase: str, fraction: float) -> None:
        if self.heard < self.times and not next(self.turns) and (found := sorted({*servers()} - {*self.others})):
            self.killed.append(int(self.draw.choice(found)))
            os.kill(self.killed[-1], signal.SIGKILL)

    def on_message(self, message: str) -> None:
        self.heard += "was killed by SIGKILL; it is started again" in message


@pytest.mark.parametrize("times", others_slow([3, 20], 3))
def test_killed_processes_cost_intervals_and_no_bits(tmp_path: Path, times: int) -> None:
    changes = {"generations": 4, "interval": 800} if times < 10 else {"generations": 40, "interval": 1500}
    train(bandit(tmp_path / "whole", **changes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.trainers.jobs.ATTEMPTS", 20)  # more than chance brings about
        train(bandit(tmp_path / "r", **changes), [killer := Killer(times, 3 if times < 10 else 7)])
    assert 1 <= killer.heard <= len(killer.killed)
    same_run(tmp_path / "whole", tmp_path / "r")
    assert not servers()


@pytest.mark.parametrize("when", others_slow(["ready", "describe", "log", "train"], "log", "train"))
def test_a_process_that_is_killed_before_the_first_interval_is_started_again(
    whole: Path, tmp_path: Path, when: str
) -> None:
    """While it starts, says what it can do, gets its log, or begins; the run is that of processes that nobody killed."""
    # Two steps inside `call`, between which the process is killed.
    receive, ask, killed = TrainerProcess._receive, TrainerProcess._ask, []

    def kill(self: TrainerProcess, name: str) -> None:
        if name == when and not killed:
            os.kill(self.pid or 0, signal.SIGKILL)
            killed.append(name)

    def receiving(self: TrainerProcess) -> Any:
        kill(self, "ready")  # the first time of all
        return receive(self)

    def asking(self: TrainerProcess, name: str, *given: Any) -> Any:
        kill(self, name)
        return ask(self, name, *given)

    with pytest.MonkeyPatch.context() as patch:
        # Private: the steps of a call, which no public name tells apart.
        patch.setattr(TrainerProcess, "_receive", receiving)
        patch.setattr(TrainerProcess, "_ask", asking)
        train(bandit(tmp_path / "r"))
    assert killed
    same_run(whole, tmp_path / "r")
    assert not servers()


def test_a_process_that_always_dies_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    run = tmp_path / "r"
    train(bandit(run, agent="support.trainers:Mortal", env_options={"after": 10_000}, **FEW))
    edit(run, "after: 10000", "after: 0")
    with pytest.raises(Failed, match="(?s)ended with exit code 7.*these are my last words") as failed:
        resume(run, 2, trust_code=True)
    assert "continue with: shoal resume" in str(failed.value)
    assert not servers()


def test_a_long_interval_is_abandoned_at_once(tmp_path: Path) -> None:
    class Signal(Callback):
        def on_progress(self, generation: int, phase: str, done: float) -> None:
            if (generation, phase, done) == (1, "train", 0):
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    run = tmp_path / "r"
    train(bandit(run, **FEW))
    edit(run, "interval: 4", "interval: 1000000")
    with pytest.raises(Interrupted):
        resume(run, 3, [Signal()], trust_code=True)
    assert {row["generation"] for row in rows(run / "lineage.jsonl")} == {0} and not servers()


def test_a_signal_is_heard_while_a_trainer_is_first_asked_what_it_can_do(tmp_path: Path) -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(Interrupted, match="start it again"):
        train(bandit(tmp_path / "r", agent="support.trainers:Dawdling"))
    assert time.monotonic() - began < 20 and not servers() and not (tmp_path / "r").exists()


# ------------------------------------------------------------------------------------------------ commands


def test_commands_on_a_run(whole: Path, tmp_path: Path) -> None:
    played = shoal("evaluate", whole, "--episodes", 5, "--trust-code")
    assert played.code == 0 and "over 5 episodes" in played.out, played.err
    assert shoal("report", whole).code == 0
    assert shoal("schedule", whole).code == 0
    replayed = shoal("replay", whole, "--quiet", "--trust-code", "--run-dir", tmp_path / "again")
    assert replayed.code == 0, replayed.err
    assert not servers()


def test_what_plays_alone_has_no_file_that_a_signal_could_leave_behind(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is ended at once, wherever it is."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[Path] = []
    for name in ("evaluate", "act"):
        called = getattr(RemoteTrainer, name)

        def watched(self: RemoteTrainer, x: Any, called: Any = called) -> np.ndarray:
            seen.extend(tmp_path.iterdir())
            return called(self, x)

        monkeypatch.setattr(RemoteTrainer, name, watched)
    assert len(servers()) == 0
    assert library.evaluate(whole, episodes=3, trust_code=True)["episodes"] == 3
    assert load_champion(whole, trust_code=True).predict(np.float32([1, 0]))[0] in range(3)
    assert not seen and not list(tmp_path.iterdir())


def test_the_champion_acts(whole: Path) -> None:
    champion = load_champion(whole, trust_code=True)
    obs = np.float32([[1, 0], [0, 1], [-1, 0]])
    action = champion.predict(obs)[0]
    np.testing.assert_array_equal(action, (obs @ champion.learned["w"]).argmax(1))
    assert champion.predict(obs[0])[0] == action[0]
    with pytest.raises(BadInput, match="deterministic actions only"):
        champion.predict(obs, deterministic=False)
    with pytest.raises(
        BadInput, match="fitness.deterministic = False: trainers are evaluated with deterministic actions"
    ):
        library.evaluate(whole, trust_code=True, stochastic=True)
    other = load_champion(whole, trust_code=True, member=1)
    np.testing.assert_array_equal(other.predict(obs)[0], (obs @ other.learned["w"]).argmax(1))
    del champion, other
    gc.collect()
    end = time.monotonic() + 10
    while servers():
        assert time.monotonic() < end, "nobody asks its process any more"


def test_a_member_that_a_table_names_is_shown_and_saved(whole: Path, tmp_path: Path) -> None:
    """Tables have numbers of NumPy: such a member had no text, and its file no JSON."""
    member = load_champion(whole, trust_code=True, member=np.int64(1), generation=np.int64(GENERATIONS - 1))
    assert f"member 1 after {GENERATIONS} generations" in repr(member)
    member.save(tmp_path / "alone")
    assert repr(load_champion(tmp_path / "alone", trust_code=True)) == repr(member)


def test_arrays_that_no_trainer_gave_are_told_in_one_line(whole: Path, tmp_path: Path) -> None:
    for i, (arrays, message) in enumerate(
        (
            ({"['w']": np.zeros(2)}, f"{SOUND} failed: KeyError: 'w' (trainers.py, line "),
            ({}, f"{SOUND} failed: KeyError: 'w' (trainers.py, line "),
        )
    ):
        shutil.copytree(whole, run := tmp_path / f"{i}")
        write_champion(run / "champion", arrays, read_manifest(run / "champion", run))
        outcome = shoal("evaluate", run, "--episodes", 3, "--trust-code")
        assert outcome.code == 2 and message in outcome.err and outcome.err.count("\n") == 1, outcome.err


def write_champion(folder: Path, arrays: dict[str, Any], told: dict[str, Any]) -> None:
    """A champion with these arrays, for which its manifest vouches."""
    data = save(arrays)
    (folder / "state.safetensors").write_bytes(data)
    (folder / "manifest.json").write_bytes(seal(told | {"bytes": len(data), "crc32": zlib.crc32(data)}))


def test_a_champion_acts_in_the_space_of_its_environment(tmp_path: Path) -> None:
    train(bandit(tmp_path / "r", agent="support.trainers:Counted", **FEW))
    champion = load_champion(tmp_path / "r", trust_code=True)
    obs = np.random.default_rng(0).normal(size=(16, 2)).astype(np.float32)
    np.testing.assert_array_equal(champion.predict(obs)[0], (obs @ champion.learned["w"]).argmax(1) - 2)


def test_more_processes_than_episodes(tmp_path: Path) -> None:
    result = train(bandit(tmp_path / "r", generations=1, final_episodes=1, processes=TrainerProcesses(count=3)))
    assert result.summary["champion"]["evaluation"]["episodes"] == 1


def test_code_that_a_run_names_is_not_run_unasked(whole: Path) -> None:
    refused = shoal("resume", whole, "--generations", 9)
    assert refused.code == 2 and "--trust-code" in refused.err and refused.err.count("\n") == 1


def test_nor_the_code_of_the_environment_that_a_champion_of_a_trainer_makes(
    whole: Path, tmp_path: Path, said: Said
) -> None:
    shutil.copytree(whole / "champion", tmp_path / "champion")
    told = (whole / "experiment.yaml").read_text()
    assert told.count(SOUND) == told.count("env: none") == 1
    told = told.replace(SOUND, "sb3:PPO").replace("env: none", "env: gym:mine:World-v0")
    (tmp_path / "experiment.yaml").write_text(told)
    with pytest.raises(BadInput) as error:
        load_champion(tmp_path)
    said(error.value)


def test_a_trainer_is_known_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a class, and an agent a function."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loud.py").write_text("raise SystemExit('imported')\nclass Mine: ...\ndef agent(spec): ...\n")
    assert is_trainer("loud:Mine", None) and not is_trainer("loud:agent", None)
    assert is_trainer("sb3:PPO", None) and not is_trainer("ppo", None) and not is_trainer("nowhere:X", None)
    assert is_trainer("anything:X", "/usr/bin/python3") and "loud" not in sys.modules
    (tmp_path / "package/inner").mkdir(parents=True)
    (tmp_path / "package/__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "loud.py").rename(tmp_path / "package/inner/mine.py")
    assert is_trainer("package.inner.mine:Mine", None) and not is_trainer("package.inner.other:Mine", None)
    assert "package" not in sys.modules


def test_a_trainer_is_known_where_it_is_imported_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/__init__.py").write_text("from .inner import Inner as Outer\nraise SystemExit('imported')\n")
    (tmp_path / "ours/inner.py").write_text("class Inner: ...\ndef agent(spec): ...\n")
    for name, (line, known) in {
        "named": ("from ours.inner import Inner as Mine", True),
        "handed_on": ("from ours import Outer as Mine", True),
        "a_function": ("from ours.inner import agent as Mine", False),
        "missing": ("from ours.inner import Mine", False),
        "circular": ("from circular import Mine", False),
        "beyond": ("from ... import Mine", False),
    }.items():
        (tmp_path / f"{name}.py").write_text(line)
        assert is_trainer(f"{name}:Mine", None) == known, name
    assert not {"ours", "named"} & {*sys.modules}


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "es"},
        {"method": "cem_rl"},
        {"method": "dvd"},
        {"fitness": Fitness(deterministic=False)},
        {"fitness": Fitness(objective="score")},
        {"fitness": Fitness(tie_breaker="score")},
        {"fitness": Fitness(step_limit=500)},
        {"hyper": {"rte": 0.1}},
        {"space": {"momentum": [0.5, 2.0]}},
        {"config": {"arms": 1}},
        {"config": {"weapons": 1}},
        {"python": "/nowhere/python"},
        {"agent": "sb3:PPO", "python": "/bin/true"},
        {"agent": "support.trainers:Stillborn"},
        {"agent": "ppo", "env": "CartPole-v1"},
        {"processes": {"count": 0}},
        {"processes": {"timeout": 1e10}},
    ],
    ids=shown,
)
def test_what_cannot_be(changes: dict[str, Any], said: Said, tmp_path: Path) -> None:
    from shoal.core.schema import build

    with pytest.raises(BadInput) as error:
        if isinstance(changes.get("processes"), dict):
            changes = {"processes": build(TrainerProcesses, changes["processes"], "processes.")}
        train(bandit(tmp_path / "r", **changes))
    said(error.value)
    assert not (tmp_path / "r").exists() and not servers()


def test_an_environment_that_is_given_as_a_class_reaches_trainers_by_its_name(said: Said) -> None:
    """Not as `<class ...>`, which no library finds."""
    assert recipe_of(bandit(None, env=Sound)).env == "support.trainers:Sound"
    with pytest.raises(BadInput) as error:
        make_plan(bandit(None, env=lambda: None))
    said(error.value)
    assert not servers()


@pytest.mark.parametrize(
    "about",
    [
        {"hyper": {"lambda": 0.9}},
        {"hyper": {"rate": "fast"}},
        {"hyper": [3]},
        {"limits": {"rate": 3}},
        {"limits": [3]},
        {"space": {"speed": [0.0, 1.0]}},
        {"space": 3},
        *(
            {"spec": spec}
            for spec in (
                "text",
                3,
                [1],
                {},
                {"obs_shape": [2], "obs_dtype": "float32"},
                {"action": None},
                {"action": "discrete"},
                {"action": {}},
                {"action": {"kind": ["discrete"]}},
                {"obs_shape": [2], "obs_dtype": "float32", "action": {"kind": "discrete", "n": 2, "odd": 1}},
                {"obs_shape": [2], "obs_dtype": "float32", "action": {"kind": "discrete", "n": 0}},
                {"obs_shape": [2], "obs_dtype": "float32", "action": {"kind": "discrete", "n": float("inf")}},
                {"obs_shape": [2], "obs_dtype": "float32", "action": {"kind": "continuous", "low": [0], "high": []}},
                {"obs_shape": "22", "obs_dtype": "float32", "action": {"kind": "discrete", "n": 2}},
                {"obs_shape": [-2], "obs_dtype": "float32", "action": {"kind": "discrete", "n": 2}},
                {"obs_shape": [2], "obs_dtype": None, "action": {"kind": "discrete", "n": 2}},
                {"obs_shape": [2], "obs_dtype": "object", "action": {"kind": "discrete", "n": 2}},
            )
        ),
        {"space": {"rate": 3}},
        {"space": {"rate": [1e-3]}},
        {"space": {"rate": [1e-3, 1, "lag"]}},
    ],
    ids=shown,
)
def test_what_a_trainer_cannot_say_of_itself(about: dict[str, Any], said: Said) -> None:
    with pytest.raises(BadInput) as caught:
        make_plan(bandit(None, agent="support.trainers:Told", config=about))
    said(caught.value)
    assert not servers()


def test_what_a_trainer_can_say_of_itself(tmp_path: Path) -> None:
    """Ranges as in a file, and no limits."""
    about = {"space": {"rate": [1e-3, 1, "log"], "momentum": [0, 0.95]}, "limits": None}
    plan = make_plan(bandit(None, agent="support.trainers:Told", config=about))
    plan.kind.close()
    assert plan.experiment.space == {"rate": Range(1e-3, 1.0, "log"), "momentum": Range(0.0, 0.95)}
    assert plan.kind.tunable.limits == {}


def test_a_hyperparameter_may_have_a_letter_that_python_takes_for_another_one(tmp_path: Path) -> None:
    config = {"hyper": {"rate": 0.1, "momentum": 0.5, "greed": 1.0, "\u03f5": 0.1}}  # ϵ, in code the same as ε
    run = train(bandit(tmp_path / "r", agent="support.trainers:Told", config=config, **FEW)).run_dir
    assert rows(run / "lineage.jsonl")[0]["hyper"]["\u03f5"] == pytest.approx(0.1)


def test_errors_of_a_trainer_end_a_command_with_one_line(tmp_path: Path) -> None:
    run, agent = tmp_path / "r", "support.trainers:Unhelpful"
    train(bandit(run, agent=agent, env="gym:MountainCar-v0", **FEW))
    for command, message in (
        (("export", run, tmp_path / "model", "--trust-code"), f"{agent} failed: RuntimeError: no files today ("),
        (
            ("play", run, "--video", tmp_path / "f.gif", "--trust-code"),
            f"{agent} failed: RuntimeError: no actions today",
        ),
    ):
        outcome = shoal(*command)
        assert outcome.code == 2 and message in outcome.err and outcome.err.count("\n") == 1, outcome.err


def test_a_trainer_without_export_is_told_so_whatever_the_file(whole: Path, tmp_path: Path) -> None:
    for name in ("model", "model.onnx", "model.npz"):
        outcome = shoal("export", whole, tmp_path / name, "--trust-code")
        assert outcome.code == 2 and f"{SOUND} has no `export`" in outcome.err and not (tmp_path / name).exists()
    train(bandit(tmp_path / "r", agent="support.trainers:Unhelpful", **FEW))
    outcome = shoal("export", tmp_path / "r", tmp_path / "model.onnx", "--trust-code")
    assert outcome.code == 2 and "support.trainers:Unhelpful writes files of its own kind" in outcome.err


def test_a_trainers_file_is_a_model_that_samples_by_itself(whole: Path, tmp_path: Path) -> None:
    outcome = shoal("export", whole, tmp_path / "model", "--stochastic", "--trust-code")
    assert outcome.code == 2 and outcome.err.count("\n") == 1 and not (tmp_path / "model").exists()
    assert f"--stochastic: the file of {SOUND} is a model of its library, which can sample by itself" in outcome.err


@pytest.mark.parametrize(
    ("at_once", "later"),
    [(["Mortal", "env_options.after=0"], ["Mortal", "env_options.after=5"]), (["Failing"], ["Later"])],
)
def test_the_exit_code_of_a_run_whose_trainer_fails(tmp_path: Path, at_once: list[str], later: list[str]) -> None:
    """2 where there is nothing to keep, 1 where the run can be resumed."""
    told = f"train --env none --population 2 --interval 40 --quiet --run-dir {tmp_path / 'r'}".split()
    few = ["--set", "final_episodes=2", "fitness.episodes=2", "processes.count=1"]
    outcome = shoal(*told, "--agent", f"support.trainers:{at_once[0]}", *few, *at_once[1:])
    assert outcome.code == 2 and not (tmp_path / "r" / "experiment.yaml").exists(), outcome.err
    assert outcome.err.count("\n") == 1 and "\\n" not in outcome.err
    outcome = shoal(*told, "--agent", f"support.trainers:{later[0]}", *few, *later[1:])
    assert outcome.code == 1 and "continue with: shoal resume" in outcome.err, outcome.err
    assert len(rows(tmp_path / "r" / "lineage.jsonl")) == 2


def test_the_log_of_a_refused_experiment_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BadInput) as error:
        train(bandit(tmp_path / "r", hyper={"rte": 0.1}))
    said(error.value)
    assert not list(tmp_path.iterdir())


def test_what_coordinates_trainers_leaves_the_devices_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX would take most of a GPU's memory, which is the trainers'."""

    def taken(*_: object) -> None:
        raise AssertionError("JAX is asked for its devices")

    for name in ("devices", "local_devices", "default_backend"):
        monkeypatch.setattr(jax, name, taken)
    train(bandit(tmp_path / "run", **FEW))
    resume(tmp_path / "run", 2, trust_code=True)
    library.evaluate(tmp_path / "run", 4, trust_code=True)


@pytest.mark.slow
def test_trainers_where_jax_has_no_device(tmp_path: Path) -> None:
    changes = [f"--set={name}={value}" for name, value in (("agent", SOUND), ("env", "none"), ("space", "null"))]
    given = ["--population=2", "--generations=2", "--interval=40", "--run-dir=run", *changes]
    own = {"JAX_PLATFORMS": "nope", "PYTHONPATH": os.pathsep.join(sys.path)}
    with runs.start("train", *given, cwd=tmp_path, **own) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, ""), out
