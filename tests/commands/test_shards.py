"""The same run on one shard after another and over ranks of MPI; what happens when some of them end."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support.ancestry import check_ancestry
from support.messages import Said, shown
from support.runs import COMMAND, flags, mpiexec, record, same_run, settings, shoal, tiny
from support.runs import rows as lines

from shoal import Evolver
from shoal.core.errors import BadInput
from shoal.core.interrupts import Failed
from shoal.distributed.directory import Workspace
from shoal.experiment.files import load
from shoal.run.checkpoint import Checkpoints
from shoal.run.train import resume, train

RUN = {"generations": 3, "select": "winner_takes_all", "shards": 4}


def launch(ranks: int, *arguments: object) -> subprocess.Popen:
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = mpiexec(ranks, *COMMAND, *arguments)
    return subprocess.Popen(command, **pipes, start_new_session=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})


def run(ranks: int, *arguments: object, code: int = 0) -> str:
    process = launch(ranks, *arguments)
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, out + err
    return out + err


def over_mpi(ranks: int, path: Path, *more: str, code: int = 0, **changes: Any) -> str:
    return run(ranks, *flags(path, "--exchange", "mpi", *more, **RUN | changes), code=code)


def ranks_of(path: Path) -> list[int]:
    """Process ids of the ranks that are at work on a run."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command, environment = ((entry / name).read_bytes() for name in ("cmdline", "environ"))
            except OSError:
                continue
            if str(path).encode() in command and b"PMI_RANK=" in environment:
                found.append(int(entry.name))
    return found


def nobody_is_left(path: Path) -> None:
    """Wait for the ranks of a run that mpiexec has ended to be gone."""
    end = time.monotonic() + 30
    while ranks_of(path):
        assert time.monotonic() < end, "a rank outlived the others"
        time.sleep(0.05)
    if (path / ".lock").exists():  # which a process loses after it can no longer be seen
        with (path / ".lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)


def wait_for(path: Path, process: subprocess.Popen, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards in this process."""
    path = tmp_path_factory.mktemp("four") / "run"
    train(tiny(path, **RUN))
    return path


# ----------------------------------------------------------------------------------------- one process


def test_shards_of_one_process(four: Path) -> None:
    """Four parts of a checkpoint; children on other shards than their parents."""
    names = {p.name for p in (four / "checkpoints" / "00000002").iterdir()}
    assert names == {"manifest.json", "run.safetensors", *(f"shard-000{i}.safetensors" for i in range(4))}
    lineage = record(four)["lineage"]
    assert sum(row["parent"] != row["uid"] for row in lineage) == 9


def test_shards_decide_as_one(four: Path) -> None:
    """As a population that was never split, told the same fitness: who copies whom, and what all train with next."""
    evolver = Evolver(load(four / "experiment.yaml").space or {}, 4, RUN["select"])
    for generation in range(3):
        now = [row for row in lines(four / "lineage.jsonl") if row["generation"] == generation]
        for row, asked in zip(now, evolver.ask(), strict=True):
            assert asked["hyper"] == {name: row["hyper"][name] for name in asked["hyper"]}
        evolver.tell({row["uid"]: row["fitness"] for row in now})
        parents = [m["uid"] if m["copy_from"] is None else m["copy_from"] for m in evolver.ask()]
        assert [row["parent"] for row in now] == parents


@pytest.mark.slow
def test_two_shards_and_four_resume_exactly(four: Path, tmp_path: Path) -> None:
    train(tiny(tmp_path / "run", **RUN | {"generations": 1}))
    resume(tmp_path / "run", generations=3)
    same_run(tmp_path / "run", four)


@pytest.mark.parametrize(
    "changes",
    [
        {"shards": 3},
        {"shards": 0},
        {"exchange": {"workspace": "x"}},
        {"exchange": {"worker": "a"}},
        {"exchange": {"timeout": 60}},
        {"exchange": {"name": "mpi", "timeout": 0}},
        {"exchange": "directory"},
        {"exchange": {"name": "directory", "workspace": "w"}},
    ],
    ids=shown,
)
def test_bad_layouts(tmp_path: Path, changes: dict[str, Any], said: Said) -> None:
    with pytest.raises(BadInput) as error:
        train(tiny(tmp_path / "run", **changes))
    said(error.value)
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------- mpi


@pytest.mark.slow
def test_mpi_gives_the_same_run(four: Path, tmp_path: Path) -> None:
    """Bit for bit: weights, lineage, metrics and result, of a run that began in one process. What ranks have done is
    done, for all of them and for one alone."""
    path = tmp_path / "run"
    train(tiny(path, **RUN | {"generations": 2, "exchange": "mpi"}))
    run(2, "resume", path, "--generations", 3, "--quiet")
    same_run(path, four)
    for ranks in (2, 1):
        (path / "report.html").unlink()
        told = run(ranks, "resume", path, "--quiet")
        assert told.count("done already") == 1 and (path / "report.html").is_file()


@pytest.mark.slow
def test_a_signal_to_one_rank_stops_all(four: Path, tmp_path: Path) -> None:
    """And what they saved goes on as if nothing had been."""
    path = tmp_path / "run"
    process = launch(2, *flags(path, "--exchange", "mpi", **RUN | {"generations": 10_000}))
    wait_for(path / "checkpoints" / "00000000", process)
    os.kill(ranks_of(path)[1], signal.SIGUSR1)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3, out + err
    assert f"continue with: shoal resume {path}" in out
    done = max(int(p.name) for p in (path / "checkpoints").iterdir() if p.name.isdigit()) + 1
    train(tiny(tmp_path / "whole", **RUN | {"generations": done}))
    one, other = (record(p)["arrays"] for p in (path, tmp_path / "whole"))
    saved = [name for name in one if not name.startswith("champion ")]
    assert one.keys() == other.keys() and all(one[k].tobytes() == other[k].tobytes() for k in saved)


@pytest.mark.slow
def test_a_killed_rank_ends_all_and_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = launch(2, *flags(path, "--exchange", "mpi", **RUN | {"generations": 10_000}))
    wait_for(path / "checkpoints" / "00000001", process)
    os.kill(ranks_of(path)[0], signal.SIGKILL)
    assert process.wait(timeout=60) not in (0, 3)
    process.communicate()
    nobody_is_left(path)
    done = max(int(p.name) for p in (path / "checkpoints").glob("[0-9]*")) + 1
    resume(path, generations=done + 2)
    train(tiny(tmp_path / "whole", **RUN | {"generations": done + 2}))
    same_run(path, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_hangs_ends_all_after_the_timeout(tmp_path: Path, rank: int) -> None:
    """Also where it hangs while the other waits for its part of a checkpoint; and the run goes on."""
    path = tmp_path / "run"
    given = flags(path, "--exchange", "mpi", "--set", "exchange.timeout=1", **RUN | {"generations": 10_000})
    process = launch(2, *given)
    wait_for(path / "checkpoints" / "00000001", process)
    (hung,) = (
        pid for pid in ranks_of(path) if f"PMI_RANK={rank}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    )
    os.kill(hung, signal.SIGSTOP)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 1, out + err
    assert f"rank {1 - rank} of 2: waited for rank {rank} on " in err and "(exchange.timeout)" in err
    nobody_is_left(path)
    done = max(int(p.name) for p in (path / "checkpoints").glob("[0-9]*")) + 1
    assert resume(path, generations=done + 1).summary["generations"] == done + 1


@pytest.mark.slow
def test_an_exception_in_one_rank_ends_all(tmp_path: Path) -> None:
    """With its message, whichever rank it is, and nothing is left of the run."""
    (tmp_path / "flaky.py").write_text(
        "import os\nfrom shoal.environments.registry import make\n\n\ndef environment():\n"
        "    if os.environ['PMI_RANK'] == '1':\n        raise RuntimeError('the simulator is not installed here')\n"
        "    return make('gymnax:CartPole-v1', {})\n"
    )
    given = flags(tmp_path / "run", "--exchange", "mpi", **RUN | {"env": "flaky:environment"})
    command = mpiexec(2, *COMMAND, *given)
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "rank 1 of 2: " in done.stderr and "the simulator is not installed here" in done.stderr
    nobody_is_left(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_is_wrong_is_said_plainly(tmp_path: Path) -> None:
    told = over_mpi(3, tmp_path / "run", code=2, shards=2)
    assert told.count("shards = 2: each of the 3 processes needs one; start fewer, or raise shards") >= 1
    assert "Traceback" not in told and not (tmp_path / "run").exists()


# --------------------------------------------------------------------------------------------- drawn members

ES = {"method": {"name": "es", "chunk": 3}, "generations": 3, "population": 8, "config": {"layers": [8]}}
PENDULUM = {
    "env": "gymnax:Pendulum-v1",
    "config": {"layers": [8], "buffer_size": 64, "learning_starts": 8, "batch_size": 8},
}


@pytest.fixture
def perturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evolution strategies on two shards of this process."""
    if "run" not in PERTURBED:
        PERTURBED["run"] = path = tmp_path_factory.mktemp("perturbed") / "run"
        train(tiny(path, **ES | {"shards": 2}))
    return PERTURBED["run"]


PERTURBED: dict[str, Path] = {}


def evolution(path: Path) -> dict[str, Any]:
    """A run as it evolved: but for the shards in its checkpoint."""
    told = record(path)
    told["arrays"] = {name: x.tobytes() for name, x in told["arrays"].items() if "shard" not in name}
    told["manifests"] = told["manifests"][1:]
    return told


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 4])
def test_a_mean_knows_no_shards(perturbed: Path, tmp_path: Path, shards: int) -> None:
    """Bit for bit: its weights as champion, lineage, metrics and result; and all shards agree on it.

    Four shards have fewer pairs than there are devices, and a pair is never torn apart.
    """
    train(tiny(tmp_path / "run", **ES | {"shards": shards}))
    assert evolution(tmp_path / "run") == evolution(perturbed)
    here, there = record(tmp_path / "run")["arrays"], record(perturbed)["arrays"]
    shared = [name for name in there if " shard-0000 " in name and "shared" in name]
    assert shared
    for name in shared:
        for i in range(shards):
            assert here[name.replace("shard-0000", f"shard-000{i}")].tobytes() == there[name].tobytes(), name


@pytest.mark.slow
def test_mpi_moves_the_same_mean(tmp_path: Path) -> None:
    """Bit for bit, where one of three ranks has two of four shards."""
    changes = ES | {"shards": 4}
    run(3, *flags(tmp_path / "run", "--exchange", "mpi", **changes))
    train(tiny(tmp_path / "here", **changes))
    same_run(tmp_path / "run", tmp_path / "here")


@pytest.mark.parametrize(
    "changes",
    [
        ES | {"population": 6, "shards": 2},
        ES | {"population": 5, "shards": 1},
        PENDULUM | {"method": "cem_rl", "shards": 2},
        PENDULUM | {"method": "dvd", "shards": 2},
        PENDULUM | {"method": "cem_rl", "exchange": "directory"},
    ],
    ids=shown,
)
def test_layouts_that_methods_do_not_have(tmp_path: Path, changes: dict[str, Any], said: Said) -> None:
    place = ["--workspace", tmp_path / "w"] if "exchange" in changes else ["--run-dir", tmp_path / "r"]
    done = shoal("train", *place, "--quiet", *settings(**changes))
    assert (done.code, done.out) == (2, "")
    said(done.err)
    assert not list(tmp_path.rglob("*.yaml"))


# --------------------------------------------------------------------------------------------- directory


def worker(space: Path, name: str | None, **changes: Any) -> Any:
    """A worker of a shared directory, to its end."""
    exchange = {"name": "directory", "workspace": str(space), "worker": name}
    changes = {"shards": 1, "exchange": exchange} | changes
    return train(tiny(None, **RUN | changes))


def test_workers_one_after_another(tmp_path: Path) -> None:
    """The second one sees what the first has published, of no later generation, and copies from it."""
    worker(tmp_path, "a", generations=2)
    result = worker(tmp_path, None, generations=4)
    assert result.run_dir == tmp_path / "workers" / "1"
    rows = lines(result.run_dir / "lineage.jsonl")
    assert {row["uid"] for row in rows} == {4, 5, 6, 7}
    for row in rows:
        assert row["parent_generation"] == (row["generation"] if row["parent"] >= 4 else min(row["generation"], 1))
    for path in (tmp_path / "workers" / "a", result.run_dir):
        summary = json.loads((path / "result.json").read_text())
        assert set(summary["fitness"]) == ({"0", "1", "2", "3"} if path.name == "a" else {"4", "5", "6", "7"})


def test_a_worker_that_comes_back_goes_on(tmp_path: Path) -> None:
    """Alone in its directory it is the run that was never stopped."""
    worker(tmp_path / "one", "a", generations=1)
    worker(tmp_path / "one", "a", generations=2)
    shoal("resume", tmp_path / "one" / "workers" / "a", "--generations", 3, "--quiet")
    worker(tmp_path / "other", "a", generations=3)
    same_run(tmp_path / "one" / "workers" / "a", tmp_path / "other" / "workers" / "a")


def test_a_worker_that_is_done_is_done(tmp_path: Path, said: Said) -> None:
    """Started again by whoever starts workers again, from the command and from Python; and where its page is missing."""
    given = ["train", "--exchange", "directory", "--workspace", tmp_path, "--worker", "a", "--quiet", *settings()]
    assert shoal(*given).code == 0
    run = tmp_path / "workers" / "a"
    (run / "report.html").unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = shoal(*given)
    assert again.code == 0 and (run / "report.html").is_file(), again.err
    said(again.out.splitlines()[0])
    (run / "report.html").unlink()
    result = worker(tmp_path, "a", generations=2, select="truncation", shards=None)
    assert result.already and result.summary == json.loads((run / "result.json").read_text())
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    other = shoal(*given, "--set", "interval=128")
    assert other.code == 2 and "belongs to another experiment" in other.err


def test_a_directory_of_another_experiment(tmp_path: Path, said: Said) -> None:
    worker(tmp_path, "a", generations=1)
    before = sorted(p for p in tmp_path.rglob("*"))
    with pytest.raises(BadInput) as error:
        worker(tmp_path, None, select="none", interval=128)
    said(error.value)
    assert sorted(p for p in tmp_path.rglob("*")) == before
    worker(tmp_path, "b", generations=1)


def test_one_command_for_every_worker(tmp_path: Path) -> None:
    """`shoal train` with a workspace, and the page of the whole population."""
    both = ["train", "--exchange", "directory", "--workspace", tmp_path, "--quiet", *settings()]
    for name in ("left", "right"):
        done = shoal(*both, "--worker", name)
        assert done.code == 0, done.err
    done = shoal("report", tmp_path)
    assert done.code == 0 and (tmp_path / "report.html").is_file()
    page = (tmp_path / "report.html").read_text()
    assert "8 agents learned side by side" in page
    assert shoal("train", "--exchange", "directory", "--workspace", tmp_path, "--worker", "a/b").code == 2
    assert shoal("report", tmp_path / "workers" / "left", "--watch").code == 2


def test_a_full_disk_stops_a_worker_that_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    worker(tmp_path / "whole", "a")
    publish = Workspace.publish

    def full(self: Workspace, generation: int, *arguments: Any) -> None:
        if generation == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")
        publish(self, generation, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "publish", full)
        with pytest.raises(Failed) as error:
            worker(tmp_path / "space", "a")
        said(error.value)
    assert not list((tmp_path / "space" / "leases").iterdir())
    resume(tmp_path / "space" / "workers" / "a")
    same_run(tmp_path / "space" / "workers" / "a", tmp_path / "whole" / "workers" / "a")


@pytest.mark.slow
def test_two_workers_at_once(tmp_path: Path) -> None:
    """Side by side they see each other, and copy across; each decides for its own members only."""
    given = settings(generations=40, select="winner_takes_all")
    command = [*COMMAND, "train", "--exchange", "directory", "--workspace", str(tmp_path), "--quiet", *given]
    both = [subprocess.Popen([*command, "--worker", name], start_new_session=True) for name in ("a", "b")]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    lineage = {name: lines(tmp_path / "workers" / name / "lineage.jsonl") for name in ("a", "b")}
    own = {name: {row["uid"] for row in found} for name, found in lineage.items()}
    assert sorted(u for uids in own.values() for u in uids) == list(range(8))
    assert check_ancestry(tmp_path) > 0
    assert shoal("schedule", tmp_path / "workers" / "a").code == 0
    assert shoal("evaluate", tmp_path / "workers" / "b", "--episodes", 2).code == 0


@pytest.mark.slow
def test_nobody_copies_what_may_still_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends before it has saved a generation lives it again, and otherwise: for now there are others."""
    chance = {"select": "tournament", "seed": 1}
    with monkeypatch.context() as patch:

        def lost(self: Checkpoints, generation: int, *arguments: Any) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))  # the next generation has ended by now

        patch.setattr(Checkpoints, "save", lost)
        with pytest.raises(Failed):
            worker(tmp_path, "a", **chance)
    worker(tmp_path, "b", **chance)
    worker(tmp_path, "a", **chance)
    assert check_ancestry(tmp_path) > 0


def test_a_worker_whose_past_is_lost(tmp_path: Path, said: Said) -> None:
    """Others may have copied what it would live again."""
    worker(tmp_path, "a", generations=1)
    shutil.rmtree(tmp_path / "workers" / "a")
    with pytest.raises(BadInput) as error:
        worker(tmp_path, "a")
    said(error.value)
    assert not list((tmp_path / "workers").iterdir()) and not list((tmp_path / "leases").iterdir())


def test_a_worker_is_resumed_from_wherever_it_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory is found by another name too, and no other one is made or taken for it."""
    path = worker(tmp_path / "space", "a", generations=1).run_dir
    (tmp_path / "link").symlink_to(path)
    before = sorted(tmp_path.iterdir())
    assert resume(tmp_path / "link", generations=2).run_dir == path
    monkeypatch.chdir(path / "checkpoints")
    assert resume(Path(".."), generations=3).run_dir == path
    assert sorted(tmp_path.iterdir()) == before
    assert [p.name for p in (tmp_path / "space" / "workers").iterdir()] == ["a"]


@pytest.mark.parametrize("place", ["copy", "workers/a", "space/workers/b", "space/a"])
def test_a_copy_of_a_worker_is_none(tmp_path: Path, place: str, said: Said) -> None:
    path = worker(tmp_path / "space", "a", generations=1).run_dir
    shutil.copytree(path, tmp_path / place)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BadInput) as error:
        resume(tmp_path / place, generations=2)
    said(error.value)
    assert sorted(tmp_path.rglob("*")) == before
