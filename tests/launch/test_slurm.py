"""Workers that are jobs of Slurm: their script with stand-ins, and all of it on one node of Slurm where there is one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.runs import COMMAND, settings, shoal

from shoal.distributed.stop_request import stop_workers
from shoal.launch.slurm_jobs import SCRIPT

CONF = """
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName={host} CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
WORKER = """
import os, signal, sys, time
def save(number, frame):
    open("saved", "w").write(str(number))
    sys.exit(CODE)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, save)
open("begun", "w").close()
time.sleep(0.2 if CODE != 3 else 20)
sys.exit(CODE)
"""


def until(true: Callable[[], object], *processes: subprocess.Popen) -> None:
    end = time.monotonic() + 200
    while not true():
        assert time.monotonic() < end and all(process.poll() is None for process in processes)
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("code", "sign", "stopped"),
    [(0, None, 0), (1, None, 0), (3, signal.SIGUSR1, 0), (3, signal.SIGUSR1, 1), (3, signal.SIGTERM, 0)],
    ids=["0", "1", "late", "late and stopped", "ended"],
)
def test_the_script_of_a_job(tmp_path: Path, code: int, sign: int | None, stopped: int) -> None:
    """At the time limit it goes back into the queue once its worker has saved, unless all were asked to stop; else it leaves
    the exit code."""
    stop_workers(tmp_path)  # of an earlier time: it is not meant
    (tmp_path / "jobs").mkdir()
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@" > requeued\n')
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "jobs/w0.code").write_text("of an earlier job")
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}
    command = ["bash", str(SCRIPT), "jobs/w0.code", sys.executable, "-c", WORKER.replace("CODE", str(code))]
    job = subprocess.Popen(command, cwd=tmp_path, env=env)
    until((tmp_path / "begun").exists)
    if stopped:
        stop_workers(tmp_path)
    if sign is not None:
        job.send_signal(sign)
    assert job.wait(20) == code
    files = [path for path in (tmp_path / "requeued", tmp_path / "jobs/w0.code") if path.exists()]
    late = sign == signal.SIGUSR1 and not stopped
    assert {path.name: path.read_text() for path in files} == (
        {"requeued": "requeue 77\n"} if late else {"w0.code": f"{code}\n"}
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slurm of one node, which begins within a second."""
    if shutil.which("slurmctld") is None or shutil.which("munged") is None or os.getuid() != 0:
        pytest.skip("slurm-wlm and munge are not installed here, or this is not root")
    folder = tmp_path / "slurm"
    for place in (folder, folder / "state", folder / "spool"):
        place.mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(CONF.format(host=host, folder=folder, ports=[free_port(), free_port()]))
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    with ExitStack() as running:
        for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = running.enter_context(subprocess.Popen(command, **quiet))  # type: ignore[call-overload]
            running.callback(process.terminate)
            if command is munge:
                until((folder / "munge.socket").exists)
        until(lambda: "idle" in asked("sinfo", "--noheader", "--format=%T"))
        yield
        asked("scancel", "--user=root")
        until(lambda: not asked("squeue", "--noheader"))


def asked(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_for_real(slurm: None, tmp_path: Path) -> None:
    """A job is killed, another comes to its time limit; the driver dies and the next one finds both. All are stopped, and
    the same command brings them to their end."""
    space = tmp_path / "w"
    own = ["--workers", "2", "--launcher", "slurm", "--workspace", "w", "--sbatch", "partition=main", "time=10"]
    files = [space / "workers" / name / "metrics.jsonl" for name in ("w0", "w1")]

    def command(generations: int) -> list[str]:
        return [*COMMAND, "train", *settings(generations=generations), *own]

    def start() -> subprocess.Popen:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": tmp_path}
        return subprocess.Popen(command(1_000_000), **pipes)  # type: ignore[call-overload]

    def get_on(driver: subprocess.Popen, *which: int) -> None:
        before = [file.read_text().count("\n") if file.exists() else 0 for file in files]
        until(
            lambda: all(files[i].exists() and files[i].read_text().count("\n") > before[i] + 2 for i in which), driver
        )

    def job(name: str) -> str:
        return (space / "jobs" / name).read_text()

    first = start()
    get_on(first, 0, 1)
    killed, late = job("w0"), job("w1")
    asked("scancel", "--full", "--signal=KILL", killed)
    asked("scancel", "--batch", "--signal=USR1", late)
    until(lambda: job("w0") != killed, first)
    get_on(first, 0)
    first.kill()
    first.communicate()
    until(lambda: "PENDING" in asked("squeue", "--noheader", f"--job={late}", "--format=%T"))
    asked("scontrol", "update", f"JobId={late}", "StartTime=now")
    second = start()
    get_on(second, 0, 1)
    assert (job("w1"), len(asked("squeue", "--noheader").splitlines())) == (late, 2)
    assert shoal("stop", space).out.startswith("w0, w1: end after their generation")
    out, _ = second.communicate(timeout=100)
    assert (second.returncode, out.splitlines()[-1]) == (3, "interrupted; run the same command to continue")
    done = max(len(file.read_text().splitlines()) for file in files) + 2
    last = subprocess.run(command(done), cwd=tmp_path, capture_output=True, text=True)
    assert (last.returncode, last.stderr) == (0, ""), last.stdout
    for file in files:
        assert [json.loads(row)["generation"] for row in file.read_text().splitlines()] == [*range(done)]
