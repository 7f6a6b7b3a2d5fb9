"""Workers as jobs of Slurm, a job each, which go on where the driver ends, and which the next driver finds again.

Why not `submitit`: it asks sacct how its jobs do, which a cluster without accounting does not have, and what it runs is a
pickled function, not the command that a user would type.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from shoal.core.atomic import read_or_nothing, write_file
from shoal.core.errors import BadInput, shortened
from shoal.launch.launcher import LOST, Crew

SCRIPT = Path(__file__).with_name("slurm_job.sh")
BEFORE = 60  # seconds before the time limit at which a worker saves
ASK = 2.0  # seconds between two questions to Slurm, at least


class SlurmJobs:
    """Jobs that sbatch submits. options: NAME=VALUE of it, such as partition=gpu"""

    def __init__(self, crew: Crew, options: Sequence[str]):
        """Raises BadInput for an option that sbatch alone would know of, and not squeue and scancel."""
        for name, _, value in (option.partition("=") for option in options):
            if name in ("cluster", "clusters"):
                raise BadInput(f"--sbatch {name}={value}: squeue does not know of it; export SLURM_CLUSTERS={value}")
        self._crew, self._folder = crew, crew.path / "jobs"
        gpus = [f"--gres=gpu:{crew.gpus:g}"] if crew.gpus else []
        self._options = [f"--cpus-per-task={crew.cpus}", *gpus, *(f"--{option}" for option in options)]
        self._queued, self._asked = set[str](), 0.0

    def start(self, name: str) -> bool:
        self._folder.mkdir(exist_ok=True)
        job = self._job(name)
        if not self._ask() and job and not (self._folder / f"{name}.code").exists():
            self._queued.add(job)  # it may be there: a second worker of this name would end all
        if job in self._queued:
            return False
        end = self._folder / f"{name}.code"
        log = re.sub(r"([\\%])", r"\\\1", str(self._crew.log(name)))  # %u would be the user, and a backslash be gone
        end.unlink(missing_ok=True)
        command = [
            *("sbatch", "--parsable", f"--job-name={self._crew.path.name}-{name}", f"--output={log}"),
            *("--open-mode=append", "--requeue", f"--signal=B:USR1@{BEFORE}", *self._options),
            *(str(SCRIPT), str(end), sys.executable, "-m", "shoal", *self._crew.words(name)),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BadInput(f"sbatch: {shortened(done.stderr.strip())}")
        job = done.stdout.strip().partition(";")[0]
        write_file(self._folder / name, job.encode())
        self._queued.add(job)
        return True

    def ended(self, name: str) -> int | None:
        if time.monotonic() - self._asked > ASK:
            self._ask()
        if self._job(name) in self._queued:
            return None
        code = read_or_nothing(self._folder / f"{name}.code").strip()
        return int(code) if code.isdigit() else LOST

    def stop(self) -> None:
        """Workers see in the workspace that they are to stop."""
        cancel_absent(self._crew.path)

    def kill(self, names: Iterable[str]) -> None:
        _cancel(map(self._job, names))

    def _job(self, name: str) -> str:
        return read_or_nothing(self._folder / name)

    def _ask(self) -> bool:
        """See which jobs are in the queue, running and hidden ones too; where Slurm does not answer, all stay as they were.
        Returns whether it did."""
        self._asked = time.monotonic()
        done = subprocess.run(["squeue", "--me", "--all", "--noheader", "--format=%i"], capture_output=True, text=True)
        if done.returncode == 0:
            self._queued = set(done.stdout.split())
        return done.returncode == 0


def cancel_absent(workspace: Path) -> None:
    """Cancel the jobs of a workspace that wait, to begin or to go on, and those that run and whose workers have not come to
    it yet: these would not see that all are to stop, which is asked of those who are there."""
    jobs = [*(workspace / "jobs").glob("w*[0-9]")]
    _cancel(map(read_or_nothing, jobs), "--state=PENDING")
    _cancel(read_or_nothing(job) for job in jobs if not job.with_suffix(".code").exists() and not _come(workspace, job))


def _come(workspace: Path, job: Path) -> bool:
    """True where the worker of a job has its lease, which it renews: one that is older than the job, whose script touches
    this file, was left by a worker that was killed."""
    try:
        return (workspace / "leases" / job.name).stat().st_mtime > job.stat().st_mtime
    except FileNotFoundError:
        return False


def _cancel(jobs: Iterable[str], *options: str) -> None:
    """Cancel jobs; a name is empty where Slurm refused the job, and scancel would stop at it."""
    if submitted := [job for job in jobs if job]:
        subprocess.run(["scancel", *options, *submitted], capture_output=True)
