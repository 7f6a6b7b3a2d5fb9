"""The driver of several workers: who ends how, who comes back, and what is said of all."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from support.messages import Said
from support.runs import COMMAND, settings, shoal, start, tiny
from support.synthetic_run import write_run

from shoal.commands.launch import _print_result
from shoal.core.errors import BadInput
from shoal.core.interrupts import BAD_INPUT, DONE, FAILED, INTERRUPTED, Failed, Interrupted
from shoal.distributed.lease import realm_here
from shoal.distributed.stop_request import stop_workers
from shoal.experiment.experiment import Experiment, Fitness
from shoal.launch import driver
from shoal.launch.driver import Driver, complaint, conclude
from shoal.launch.launcher import LOST, Crew
from shoal.launch.local import Found, Local, _env
from shoal.launch.slurm_jobs import SlurmJobs
from shoal.records.callback import Callback
from shoal.records.screen import Screen
from shoal.run import workspace_selection
from shoal.run.train import train
from shoal.run.workspace_selection import best_of_workers

MEMBERS = 4


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LOOK", 0.001)
    monkeypatch.setattr(driver, "GLANCE", 0.0)


class Place:
    """A launcher whose workers end with these codes, one life after another. An entry that can be called is a life that
    goes on until it gives a code."""

    def __init__(self, crew: Crew, **lives: list[int | Callable[[], int | None]]):
        self.crew, self.lives, self.did = crew, lives, list[str]()

    def start(self, name: str) -> bool:
        self.did.append(f"start {name}")
        return True

    def ended(self, name: str) -> int | None:
        life = self.lives[name][0]
        code = life() if callable(life) else life
        if code is not None:
            self.lives[name].pop(0)
        return code

    def stop(self) -> None:
        self.did.append("stop")

    def kill(self, names: Iterable[str]) -> None:
        self.did.append("kill")


class Driven:
    """What a driver did with two workers in a folder."""

    def __init__(self, path: Path, w0: list, w1: list, quiet: bool = False):
        crew = Crew(path, 2, ())
        self.place, out = Place(crew, w0=w0, w1=w1), StringIO()
        self.codes = Driver(crew, self.place, Screen(file=out, width=1000), quiet).run()
        self.said = out.getvalue()


def member(path: Path, slot: int, generations: int, finished: bool = True) -> Path:
    """The run of a worker, as it would have written it."""
    run = write_run(path / "workers" / f"w{slot}", MEMBERS, generations, seed=slot, finished=finished)
    for folder in ("slots", "leases", "published"):
        (path / folder).mkdir(exist_ok=True)
    result = run / "result.json"
    for file in (*run.glob("*.jsonl"), *([result] if finished else [])):
        texts = [file.read_text()] if file == result else file.read_text().splitlines()
        rows = [json.loads(text) for text in texts]
        for row in rows:
            for told in (row, row.get("champion") or {}):
                told |= {name: told[name] + MEMBERS * slot for name in ("uid", "parent") if name in told}
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def test_all_come_to_their_end(tmp_path: Path) -> None:
    for slot in range(2):
        member(tmp_path, slot, 3 + slot)
    driven = Driven(tmp_path, [DONE], [DONE])
    assert driven.codes == [DONE, DONE] and driven.place.did == ["start w0", "start w1"]
    assert (tmp_path / "report.html").exists() and driven.said.count("generation 3/3 of all, 4 of the furthest") == 1
    assert Driven(tmp_path, [DONE], [DONE], quiet=True).said == ""


def test_the_best_is_not_that_of_a_worker_without_a_fitness(tmp_path: Path) -> None:
    """Its members have diverged: whichever worker it is, the others have a best one."""
    for slot in range(2):
        member(tmp_path, slot, 3)
    for slot in range(2):
        file = tmp_path / f"workers/w{slot}/lineage.jsonl"
        whole = file.read_text()
        rows = [json.loads(line) | {"fitness": None} for line in whole.splitlines()]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert re.search(r"best [0-9.]+, ", Driven(tmp_path, [DONE], [DONE]).said)
        file.write_text(whole)


def test_one_result_of_all(tmp_path: Path) -> None:
    results = [json.loads((member(tmp_path, slot, 6) / "result.json").read_text()) for slot in range(3)]
    best = max(range(3), key=lambda slot: results[slot]["champion"]["evaluation"]["mean"])
    result = conclude(tmp_path)
    assert (result["worker"], result["workers"]) == (f"w{best}", 3)
    assert result["champion"] == results[best]["champion"]
    assert json.loads((tmp_path / "result.json").read_text())["champion"]["uid"] == result["champion"]["uid"]
    shutil.copy(tmp_path / "workers/w0/experiment.yaml", tmp_path)
    (row,) = [line for line in shoal("runs", tmp_path).out.splitlines() if line.startswith(str(tmp_path))]
    assert f"{result['champion']['evaluation']['mean']:.4g} ± " in row and " done " in row


def test_a_result_counts_in_whole_numbers_and_all_members(tmp_path: Path) -> None:
    for slot in range(3):
        member(tmp_path, slot, 2)
    for found in (conclude(tmp_path), json.loads((tmp_path / "result.json").read_text())):
        assert all(type(found[name]) is int for name in ("environment_steps", "evaluation_steps", "population"))
        assert found["population"] == 3 * MEMBERS


def test_a_result_of_those_that_have_one(tmp_path: Path) -> None:
    """Others were given up, or are left from an earlier start with more workers."""

    def concluded() -> tuple[int, str]:
        out = StringIO()
        return _print_result(tmp_path, Screen(file=out, width=1000)), out.getvalue()

    member(tmp_path, 2, 2, finished=False)
    assert concluded() == (FAILED, "") and not (tmp_path / "result.json").exists()
    results = [json.loads((member(tmp_path, slot, 3) / "result.json").read_text()) for slot in range(2)]
    code, text = concluded()
    best = max(results, key=lambda result: result["champion"]["evaluation"]["mean"])
    assert code == DONE and f"{best['champion']['evaluation']['mean']:.4g} ± " in text
    assert "the best of 2" in text and "without w2: no result yet" in text
    assert json.loads((tmp_path / "result.json").read_text())["champion"] == best["champion"]


def test_who_was_given_up_does_not_undo_the_final_selection(tmp_path: Path) -> None:
    """Its champion took part; that of the others which was selected is not chosen anew, by held-out returns."""
    champions = [json.loads((member(tmp_path, slot, 3) / "result.json").read_text())["champion"] for slot in range(2)]
    lost = json.loads((member(tmp_path, 2, 3, finished=False) / "metrics.jsonl").read_text().splitlines()[-1])[
        "champion"
    ]
    worse = min((0, 1), key=lambda slot: champions[slot]["evaluation"]["mean"])
    candidates = {f"w{slot}": [one["uid"], one["generation"]] for slot, one in enumerate([*champions, lost])}
    for worker, best in (
        (f"w{worse}", f"w{worse}"),
        ("w2", f"w{1 - worse}"),
    ):  # nothing held-out is known of that of w2
        selected = {"worker": worker, "candidates": candidates, "steps": 7}
        (tmp_path / "final_selection.json").write_text(json.dumps(selected))
        assert conclude(tmp_path)["worker"] == best


def test_who_dies_comes_back(tmp_path: Path, said: Said) -> None:
    """As often as it got on since; three times in a row without a generation are too often."""

    def after(generations: int) -> Callable[[], int]:
        def die() -> int:
            member(tmp_path, 0, generations, finished=False)
            return -signal.SIGKILL

        return die

    lives = [after(1), -signal.SIGKILL, after(2), LOST, DONE]
    driven = Driven(tmp_path, lives, [FAILED, FAILED, FAILED])
    assert driven.codes == [DONE, FAILED]
    assert driven.place.did.count("start w0") == 5 and driven.place.did.count("start w1") == 3
    lines = [line for line in driven.said.splitlines() if line.startswith("worker")]
    for line in sorted(lines):
        said(line)


def test_who_is_refused_when_it_comes_back_ends_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """Slurm may be beyond a limit by then, or closed for maintenance; all others had been killed."""
    start = Place.start

    def refused(self: Place, name: str) -> bool:
        if f"start {name}" in self.did:
            raise BadInput("sbatch: over the limit")
        return start(self, name)

    monkeypatch.setattr(Place, "start", refused)
    waits = iter([None, None, DONE])
    driven = Driven(tmp_path, [LOST], [lambda: next(waits)])
    assert driven.codes == [FAILED, DONE] and driven.place.did == ["start w0", "start w1"]
    said(driven.said.splitlines()[0])


def test_whose_members_all_diverged_is_done(tmp_path: Path) -> None:
    """It ends with 1, as a run alone does, and would do so again."""
    result = member(tmp_path, 0, 3) / "result.json"
    result.write_text(json.dumps(json.loads(result.read_text()) | {"champion": None}))
    member(tmp_path, 1, 3)
    driven = Driven(tmp_path, [FAILED], [DONE])
    assert driven.codes == [DONE, DONE] and driven.place.did == ["start w0", "start w1"]


def test_who_fails_beside_an_earlier_result_is_not_done(tmp_path: Path) -> None:
    """It was to train more generations, and failed before it took up its run again."""
    for slot in range(2):
        member(tmp_path, slot, 3)
    assert Driven(tmp_path, [FAILED] * 3, [DONE]).codes == [FAILED, DONE]
    assert Driven(tmp_path, [FAILED, DONE], [DONE]).codes == [DONE, DONE]


def test_one_that_cannot_train_ends_all(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/w0.log").write_text("warning\nshoal: e.yaml, line 3: hyper.x: unknown\n")
    driven = Driven(tmp_path, [BAD_INPUT], [lambda: INTERRUPTED if (tmp_path / "stop").exists() else None])
    assert driven.codes == [BAD_INPUT, INTERRUPTED] and driven.place.did[-1] == "stop"
    assert complaint(tmp_path / "logs/w0.log") == "e.yaml, line 3: hyper.x: unknown"


@pytest.mark.parametrize("left", ["records", "publications"])
def test_one_that_cannot_go_on_ends_nobody_else(tmp_path: Path, left: str, said: Said) -> None:
    """It has trained here, so what is wrong is its own, such as checkpoints that are lost, or a smaller machine."""
    for slot in range(2):
        member(tmp_path, slot, 3, finished=slot == 1)
    if left == "publications":
        shutil.rmtree(tmp_path / "workers/w0")
        (tmp_path / "published/w0").mkdir()
        (tmp_path / "published/w0/00000002.json").touch()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/w0.log").write_text("shoal: exchange.worker: its own files have lost that\n")
    waits = iter([None, None, DONE])
    driven = Driven(tmp_path, [BAD_INPUT], [lambda: next(waits)])
    assert driven.codes == [FAILED, DONE] and driven.place.did == ["start w0", "start w1"]
    said(driven.said.splitlines()[0])


def test_where_none_can_go_on_the_input_is_bad(tmp_path: Path) -> None:
    """As where they were given another experiment than they had."""
    for slot in range(2):
        member(tmp_path, slot, 3)
    assert Driven(tmp_path, [BAD_INPUT], [BAD_INPUT]).codes == [FAILED, BAD_INPUT]


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_ends_all(tmp_path: Path, signals: int) -> None:
    """The second one at once."""
    left = [signal.SIGINT] * signals

    def life() -> int | None:
        if left:
            signal.raise_signal(left.pop())
        did = place.did
        return {1: INTERRUPTED if "stop" in did else None, 2: -9 if "kill" in did else None}[signals]

    crew = Crew(tmp_path, 2, ())
    place = Place(crew, w0=[life], w1=[life])

    codes = Driver(crew, place, Screen(file=StringIO()), quiet=True).run()
    assert codes == [INTERRUPTED, INTERRUPTED] and (tmp_path / "stop").exists()
    assert place.did == ["start w0", "start w1", "stop", *(["kill"] * (signals - 1))]


def test_ctrl_c_ends_workers_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They had been killed in the midst of a generation, for the request to stop could not be written."""

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path / "stop"))

    monkeypatch.setattr(driver, "stop_workers", full)
    interrupt = iter([signal.SIGINT])

    def life() -> int | None:
        for number in interrupt:
            signal.raise_signal(number)
        return INTERRUPTED if "stop" in driven.did else None

    driven, out = Place(Crew(tmp_path, 2, ()), w0=[life], w1=[life]), StringIO()
    assert Driver(driven.crew, driven, Screen(file=out, width=1000), quiet=False).run() == [INTERRUPTED, INTERRUPTED]
    assert driven.did == ["start w0", "start w1", "stop"]
    assert f"cannot be written: No space left on device: {tmp_path / 'stop'}" in out.getvalue()


def test_shoal_stop_ends_the_driver_too(tmp_path: Path) -> None:
    stop_workers(tmp_path)  # of an earlier time: it is not meant
    asked = []

    def life() -> int | None:
        if not asked:
            asked.append(stop_workers(tmp_path))
            return None
        return INTERRUPTED

    driven = Driven(tmp_path, [life], [life])
    assert driven.codes == [INTERRUPTED, INTERRUPTED] and driven.place.did.count("stop") == 1


# ---------------------------------------------------------------------------------------- workers who are to stop


class StopAll(Callback):
    """Asks all workers to stop while a generation is under way."""

    def __init__(self, path: Path, generation: int):
        self._path, self._generation = path, generation

    def on_progress(self, generation: int, phase: str, fraction: float) -> None:
        if (generation, phase, fraction) == (self._generation, "train", 0.0):
            assert shoal("stop", self._path).out.startswith("a: end after their generation")
            assert " at work" in shoal("status", self._path).out


def worker(path: Path, name: str, generations: int, **changes: Any) -> Experiment:
    exchange = {"name": "directory", "workspace": str(path), "worker": name}
    trained: dict[str, Any] = {
        "env": "none",
        "agent": "support.trainers:Sound",
        "config": {},
        "fitness": Fitness(episodes=2),
    }
    return tiny(generations=generations, population=2, exchange=exchange, **trained | changes)


def test_a_worker_ends_after_its_generation(tmp_path: Path) -> None:
    experiment = worker(tmp_path / "w", "a", 4)
    with pytest.raises(Interrupted) as stopped:
        train(experiment, [StopAll(tmp_path / "w", 1)])
    assert len((stopped.value.run_dir / "metrics.jsonl").read_text().splitlines()) == 2
    assert shoal("stop", tmp_path / "w").out == "no worker is at work\n"
    assert train(experiment).summary["generations"] == 4


def test_a_result_of_all_ends_where_one_trains_on(tmp_path: Path) -> None:
    """It is of what they were: a worker that is resumed by hand, and a new one, are not in it."""
    result = tmp_path / "result.json"
    for name, generations, stays in (("a", 1, False), ("a", 1, True), ("a", 2, False), ("b", 1, False)):
        result.write_text("{}")
        train(worker(tmp_path, name, generations))
        assert result.exists() == stays


def test_machines_have_interpreters_and_processes_of_their_own(tmp_path: Path) -> None:
    """Workers that they run on differ in these alone; who compares their champions takes those of one of them."""
    called, python = tmp_path / "called", tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho >> {called}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    train(worker(tmp_path / "w", "a", 1, python=str(python), processes={"count": 1}))
    train(worker(tmp_path / "w", "b", 1, processes={"count": 2}))
    selected = tmp_path / "w/final_selection.json"
    assert json.loads(selected.read_text())["candidates"].keys() == {"a", "b"}
    selected.unlink()
    called.unlink()
    best_of_workers(tmp_path / "w", trust_code=True)
    assert selected.exists() and called.exists()


def test_a_final_selection_that_cannot_be_written_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `train` promises of all that it writes, it raises Failed, which says how to go on."""

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    train(worker(tmp_path, "a", 1))
    with monkeypatch.context() as patch:
        patch.setattr(workspace_selection, "write_file", full)
        with pytest.raises(Failed, match=f"continue with: shoal resume {tmp_path}/workers/b"):
            train(worker(tmp_path, "b", 1))
    assert train(worker(tmp_path, "b", 1)).already and (tmp_path / "final_selection.json").exists()


def test_status(tmp_path: Path) -> None:
    for slot in range(2):
        member(tmp_path, slot, 5, finished=slot == 0)
    (tmp_path / "leases/w1").write_text(f"node7 4711 {'0' * 8} x")
    heads, *rows = shoal("status", tmp_path).out.splitlines()
    assert re.split(" {2,}", heads.strip()) == [
        *("worker", "process", "since", "generation", "copies"),
        *("from other workers", "latest from other workers", "state"),
    ]
    assert [row.split()[0] for row in rows] == ["w0", "w1"]
    assert rows[0].rstrip().endswith("done") and "5/5" in rows[0]
    assert "4711 on node7" in rows[1] and rows[1].rstrip().endswith("at work")


# --------------------------------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    "words",
    [
        *("--launcher ray", "--cpus 2", "--workers 0", "--workers 2 --cpus 2", "--workers 2 --sbatch time=1"),
        *("--workers 2 --worker a", "--workers 2 --run-dir x", "--workers 2 --exchange mpi"),
        "--workers 2 --set exchange.worker=a",
        *(
            "--workers 2 --launcher slurm --cpus 0",
            "--workers 2 --launcher ray --gpus -1",
            "--workers 2 --launcher ray --gpus 1.5",
        ),
        *("--workers 2 --method successive_halving", "--workers 2 --launcher slurm", "--workers 2 --budget 100"),
    ],
)
def test_what_cannot_be(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = shoal("train", "cartpole", *words.split())
    assert (outcome.code, outcome.out, list(tmp_path.iterdir())) == (2, "", [])
    said(outcome.err)


def test_the_workspace_is_the_one_that_workers_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a field is set by --set too, that has the last word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shoal.launch.local.Local", lambda crew: Place(crew, w0=[DONE]))
    member(tmp_path / "theirs", 0, 2)
    words = ["--workers", 1, "--workspace", "mine", "--set", f"exchange.workspace={tmp_path / 'theirs'}"]
    outcome = shoal("train", "cartpole", *words)
    assert (outcome.code, outcome.err, [path.name for path in tmp_path.iterdir()]) == (DONE, "", ["theirs"])


@pytest.mark.parametrize("words", ["--env gymnax:Pendulum-v1", "--set env=gymnax:Pendulum-v1"])
def test_a_workspace_has_the_name_of_the_environment(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the workers of two environments would share one, which those of the second are refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shoal.launch.local.Local", lambda crew: Place(crew, w0=[DONE]))
    assert " → runs/Pendulum-v1-workers\n" in shoal("train", *words.split(), "--workers", 1).out


@pytest.mark.parametrize("command", ["status", "stop"])
def test_what_is_no_workspace(command: str, tmp_path: Path, said: Said) -> None:
    for folder in ("", "logs"):  # the second is that of a command whose workers still start
        (tmp_path / folder).mkdir(exist_ok=True)
        outcome = shoal(command, tmp_path)
        assert outcome.code == 2
        said(outcome.err)


# ------------------------------------------------------------------------------------------------ on this machine


def test_a_process_here_prints_to_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Crew, "words", lambda self, name: ["--version"])
    crew = Crew(tmp_path, 2, ())
    codes = Driver(crew, Local(crew), Screen(file=StringIO()), quiet=True).run()
    assert codes == [DONE, DONE]
    assert crew.log("w1").read_text().startswith("shoal ")


def left_at_work(crew: Crew, name: str, words: list[str]) -> subprocess.Popen[bytes]:
    """A process of this machine that an earlier command started as a worker."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", *words])
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes():  # for a moment after it has begun
        time.sleep(0.001)
    crew.log(name).parent.mkdir(exist_ok=True)
    crew.log(name).with_suffix(".pid").write_text(f"here {process.pid} {realm_here()}")
    return process


def test_who_was_left_at_work_is_found(tmp_path: Path) -> None:
    """By a command that was killed: a second worker of that name would be refused, and all be stopped for it. When it has
    ended, it is started again, as nobody knows how it ended."""
    crew, out = Crew(tmp_path, 2, ["--help"]), StringIO()
    with left_at_work(crew, "w0", crew.words("w0")) as process:
        threading.Timer(0.5, process.kill).start()
        assert Driver(crew, Local(crew), Screen(file=out, width=1000), quiet=False).run() == [DONE, DONE]
    found, again, *_ = out.getvalue().splitlines()
    assert found == "at work already: w0"
    assert again == "worker w0 ended with -1 before its first generation: started again"


@pytest.mark.parametrize(
    ("end", "sign"),
    [(Local.stop, signal.SIGTERM), (lambda place: place.kill(["w0"]), signal.SIGKILL)],
    ids=["stop", "kill"],
)
def test_who_was_left_at_work_is_ended(tmp_path: Path, end: Callable[[Local], None], sign: int) -> None:
    """And not another process that has its number by now."""
    crew = Crew(tmp_path, 1, ())
    with left_at_work(crew, "w0", crew.words("w0")) as process:
        place = Local(crew)
        assert not place.start("w0") and place.ended("w0") is None
        end(place)
        assert process.wait(20) == -sign and place.ended("w0") == LOST
    with left_at_work(crew, "w0", ["another"]) as another:
        (found := Found(another.pid, "w0")).kill()
        assert found.poll() == LOST and another.poll() is None
        another.kill()


def test_who_was_left_before_it_had_its_lease_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has that seconds after its start; by then the workers of a second command were refused, and all were stopped."""
    (python := tmp_path / "python").write_text("#!/bin/sh\nwhile :; do sleep 0.1; done\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    (crew := Crew(tmp_path, 1, ())).log("w0").parent.mkdir()
    first, second = Local(crew), Local(crew)
    assert first.start("w0") and not second.start("w0")
    second.kill(["w0"])
    assert first._processes["w0"].wait(20) == -signal.SIGKILL  # type: ignore[union-attr]


def test_who_was_left_before_it_had_its_lease_is_stopped(tmp_path: Path) -> None:
    """It makes the workspace when it comes there, and would not see a request that is older: it trained to its end."""
    crew = Crew(tmp_path, 2, ())
    with left_at_work(crew, "w0", crew.words("w0")) as process:
        outcome = shoal("stop", tmp_path)
        assert (outcome.code, outcome.out) == (DONE, "w0: stopped while starting\n")
        assert process.wait(20) == -signal.SIGTERM
    for folder in ("workers", "slots", "leases"):
        (tmp_path / folder).mkdir()
    with left_at_work(crew, "w0", crew.words("w0")) as new, left_at_work(crew, "w1", crew.words("w1")) as there:
        (tmp_path / "leases/w0").write_text(f"here {process.pid} {realm_here()} x")  # of the one that was killed
        (tmp_path / "leases/w1").write_text(f"here {there.pid} {realm_here()} y")
        first, second = shoal("stop", tmp_path).out.splitlines()
        assert first == "w0: stopped while starting" and second.startswith("w1: end after their generation; see")
        assert new.wait(20) == -signal.SIGTERM and there.poll() is None
        there.kill()


def test_jobs_that_wait_before_there_is_a_workspace_are_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, scancel=f"""echo "$@" >> {tmp_path}/cancelled""")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/w0").write_text("10")
    assert shoal("stop", tmp_path).code == DONE and "10" in (tmp_path / "cancelled").read_text()


def test_gpus_are_shared_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shoal.core.cores.GPUS", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    assert [_env(rank, 2)["CUDA_VISIBLE_DEVICES"] for rank in range(2)] == ["3", "4"]
    assert _env(0, 1)["CUDA_VISIBLE_DEVICES"] == "3,4" and "XLA_PYTHON_CLIENT_MEM_FRACTION" not in _env(0, 1)
    shared = [_env(rank, 4) for rank in range(4)]
    assert [env["CUDA_VISIBLE_DEVICES"] for env in shared] == ["3", "3", "4", "4"]
    assert {env["XLA_PYTHON_CLIENT_MEM_FRACTION"] for env in shared} == {"0.450"}


def command(generations: int) -> list[str]:
    return ["train", *settings(generations=generations), "--workers", "2", "--workspace", "w"]


@pytest.mark.slow
def test_for_real(tmp_path: Path) -> None:
    """A worker is killed and goes on, Ctrl-C ends both, and the same command brings them to their end."""
    with start(*command(1_000_000), cwd=tmp_path) as process:
        files = [tmp_path / "w/workers" / name / "metrics.jsonl" for name in ("w0", "w1")]
        wait(process, lambda: all(file.exists() and file.read_text().count("\n") > 2 for file in files))
        os.kill(int((tmp_path / "w/leases/w0").read_text().split()[1]), signal.SIGKILL)
        before = files[0].read_text()
        wait(process, lambda: files[0].read_text().count("\n") > before.count("\n") + 5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
    assert (process.returncode, err) == (INTERRUPTED, ""), out
    assert "worker w0 ended with -9 after" in out and out.endswith("interrupted; run the same command to continue\n")
    done = max(len(file.read_text().splitlines()) for file in files) + 2
    ended = subprocess.run([*COMMAND, *command(done)], cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    for file in files:
        assert [json.loads(row)["generation"] for row in file.read_text().splitlines()] == [*range(done)]
    assert "the best of 2" in ended.stdout and json.loads((tmp_path / "w/result.json").read_text())["workers"] == 2


def wait(process: subprocess.Popen, until: Callable[[], bool]) -> None:
    end = time.monotonic() + 200
    while not until():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)


def stand_in(place: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Put commands in front of those of this machine."""
    for name, script in scripts.items():
        (file := place / name).write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")


def test_where_slurm_refuses_a_job_those_that_it_took_are_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """scancel stops at the first name that is empty, and so did the jobs not."""
    stand_in(
        *(tmp_path, monkeypatch),
        sbatch="""case "$*" in *-w2*) echo "over the limit" >&2; exit 1;; *-w0*) echo 10;; *) echo 11;; esac""",
        squeue="echo 10; echo 11",
        scancel=f"""printf "<%s>" "$@" >> {tmp_path}/cancelled""",
    )
    crew = Crew(tmp_path, 4, ())
    with pytest.raises(BadInput, match="sbatch: over the limit"):
        Driver(crew, SlurmJobs(crew, ()), Screen(file=StringIO()), True).run()
    assert (tmp_path / "cancelled").read_text() == "<10><11>"


def test_where_slurm_refuses_one_more_job_those_at_work_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have been at work for hours, and it was the command alone that had ended."""
    stand_in(
        *(tmp_path, monkeypatch),
        sbatch="""case "$*" in *-w2*) echo "over the limit" >&2; exit 1;; *) echo 11;; esac""",
        squeue="echo 10",
        scancel=f"""printf "<%s>" "$@" >> {tmp_path}/cancelled""",
    )
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/w0").write_text("10")
    crew = Crew(tmp_path, 3, ())
    with pytest.raises(BadInput, match="sbatch: over the limit"):
        Driver(crew, SlurmJobs(crew, ()), Screen(file=StringIO()), True).run()
    assert (tmp_path / "cancelled").read_text() == "<11>"


def test_slurm_takes_the_name_of_a_log_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It puts the user where %u stands, and drops a backslash: a job whose log has no folder never begins."""
    stand_in(tmp_path, monkeypatch, sbatch=f"""printf "%s\n" "$@" > {tmp_path}/words; echo 7""", squeue="")
    (crew := Crew(tmp_path / "50%used\\", 1, ())).path.mkdir()
    SlurmJobs(crew, ()).start("w0")
    words = (tmp_path / "words").read_text().splitlines()
    assert rf"--output={tmp_path}/50\%used\\/logs/w0.log" in words and rf"{tmp_path}/50%used\/jobs/w0.code" in words


def test_a_job_whose_worker_is_not_there_yet_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs, and its worker would not see the request to stop, which it finds in the workspace: it would train to its end.
    That of one that has ended may have given its number to another job."""
    stand_in(tmp_path, monkeypatch, scancel=f"""echo "$@" >> {tmp_path}/cancelled""")
    for folder in ("workers", "slots", "leases", "jobs"):
        (tmp_path / folder).mkdir()
    for name, job in (("w0", "10"), ("w1", "11"), ("w2", "12"), ("w3", "13")):
        (tmp_path / "jobs" / name).write_text(job)
    for name, renewed in (("w0", 1), ("w3", -1)):  # that of w3 was left by a worker that was killed
        (tmp_path / "leases" / name).write_text("node7 4711 realm x")
        os.utime(tmp_path / "leases" / name, (begun := (tmp_path / "jobs" / name).stat().st_mtime + renewed, begun))
    (tmp_path / "jobs/w2.code").write_text("0\n")
    assert shoal("stop", tmp_path).code == DONE
    waiting, running = (sorted(line.split()) for line in (tmp_path / "cancelled").read_text().splitlines())
    assert running == ["11", "13"] and waiting == ["--state=PENDING", "10", "11", "12", "13"]


def test_workers_are_stopped_from_a_machine_without_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    for folder in ("workers", "slots", "leases", "jobs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "jobs/w0").write_text("10")
    (tmp_path / "leases/w0").write_text("node7 4711 realm x")
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = shoal("stop", tmp_path)
    assert (outcome.code, outcome.err) == (DONE, "") and (tmp_path / "stop").exists()
    first, second = outcome.out.splitlines()
    said(first)
    said(second)


def test_another_cluster_is_named_where_all_commands_of_slurm_hear_it(tmp_path: Path, said: Said) -> None:
    """squeue would know of no job there: all seemed to have ended, and were submitted again."""
    with pytest.raises(BadInput) as error:
        SlurmJobs(Crew(tmp_path, 1, ()), ["partition=main", "clusters=c2"])
    said(error.value)


def test_a_job_in_a_hidden_partition_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It seemed to have ended, and was submitted once more."""
    stand_in(tmp_path, monkeypatch, squeue="""case "$*" in *--all*) echo 7;; esac""", sbatch="echo 8")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/w0").write_text("7")
    jobs = SlurmJobs(Crew(tmp_path, 1, ()), ())
    assert not jobs.start("w0") and jobs.ended("w0") is None


def test_a_job_is_not_submitted_twice_where_slurm_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is given again while its jobs are at work. One that has left its exit code has ended."""
    stand_in(tmp_path, monkeypatch, sbatch=f"echo >> {tmp_path}/submitted; echo 8", squeue="exit 1")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/w0").write_text("7")
    jobs = SlurmJobs(Crew(tmp_path, 1, ()), ())
    jobs.start("w0")
    assert jobs.ended("w0") is None and not (tmp_path / "submitted").exists()
    (tmp_path / "jobs/w0.code").write_text("1\n")
    SlurmJobs(Crew(tmp_path, 1, ()), ()).start("w0")
    assert (tmp_path / "submitted").exists() and (tmp_path / "jobs/w0").read_text() == "8"
