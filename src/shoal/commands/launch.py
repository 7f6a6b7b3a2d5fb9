"""`shoal train --workers N`: many workers of one workspace; `shoal status` and `shoal stop` of them."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from shoal.commands.bundled_experiments import find_experiment
from shoal.commands.flags import REAL, Flags, Whole, assignments, flag, stated, words
from shoal.commands.output import console, fail, scored, to_watch
from shoal.core import run_files
from shoal.core.atomic import absolute
from shoal.core.errors import BadInput
from shoal.core.escape import in_shell
from shoal.core.extras import install
from shoal.core.interrupts import BAD_INPUT, DONE, FAILED, INTERRUPTED, ending
from shoal.records.screen import Output, Screen, styled
from shoal.records.words import many


@dataclass(frozen=True)
class Launch:
    """many workers of one workspace"""

    workers: Annotated[Whole, flag("N", "start N workers, each with its own population")] = None
    launcher: Annotated[
        Literal["local", "ray", "slurm"],
        flag("NAME", "where: local (here), ray (on a Ray cluster) or slurm (as Slurm jobs)"),
    ] = "local"
    cpus: Annotated[Whole, flag("N", "cores of each worker on ray or slurm (default: 1)")] = None
    gpus: Annotated[float, REAL, flag("N", "GPUs of each worker on ray or slurm")] = 0
    sbatch: Annotated[
        tuple[str, ...],
        flag("NAME=VALUE ...", "options of sbatch: partition=gpu time=4:00:00 account=lab gres=gpu:1"),
    ] = ()

    def check(self, flags: Flags, seeds: Sequence[int] | None) -> None:
        """Raise BadInput for what cannot be."""
        for name in ("launcher", "cpus", "gpus", "sbatch"):
            if self.workers is None and getattr(self, name) != getattr(ALONE, name):
                raise BadInput(f"--{name} is for several workers; give their number with --workers N")
        if self.workers is None:
            return
        if self.workers < 1:
            raise BadInput(f"--workers {self.workers}: must be at least 1")
        if self.cpus is not None and self.cpus < 1:
            raise BadInput(f"--cpus {self.cpus}: must be at least 1")
        if not (0 <= self.gpus < 1 or (self.gpus > 0 and self.gpus.is_integer())):
            raise BadInput(f"--gpus {self.gpus:g}: must be an integer, or a part of one GPU")
        if self.launcher == "local" and (self.cpus or self.gpus):
            raise BadInput(
                "--cpus and --gpus are for --launcher ray and slurm; workers here share out all cores and GPUs"
            )
        if self.launcher != "slurm" and self.sbatch:
            raise BadInput("--sbatch is for --launcher slurm")
        if seeds is not None:
            raise BadInput("--seeds: its runs are made in one process; leave --workers out")
        if flags.exchange not in (None, "directory"):
            raise BadInput(f"--exchange {flags.exchange}: workers exchange members by the directory that they share")
        for name in ("worker", "run_dir"):
            if getattr(flags, name) is not None:
                raise BadInput(f"--{name.replace('_', '-')} is of one worker; --workers {self.workers} names them all")


Workers = Annotated[Launch, arg(name="worker")]  # in the heading of the help
ALONE = Launch()


def launch_workers(file: Path | None, flags: Flags, set: Sequence[str], how: Launch, quiet: bool) -> int:
    """Start the workers of an experiment, and stay with them until all have ended. Returns the exit code."""
    from shoal.experiment.experiment import Experiment
    from shoal.experiment.files import read
    from shoal.launch.driver import Driver, complaint
    from shoal.launch.launcher import Crew, PlaceLost

    given = read(find_experiment(file)) if file is not None else Experiment()
    env = str(assignments(set).get("env", flags.env or given.env_name))
    name = file.stem if file is not None else env.rpartition(":")[2].replace("/", "-")
    workspace = absolute(flags.workspace or given.exchange.workspace or Path("runs") / f"{name}-workers")
    shared = replace(flags, exchange="directory", workspace=str(workspace))
    exchange = stated(file, shared, set)[0].exchange  # raises BadInput for what workers cannot do
    if exchange.worker not in (None, given.exchange.worker):
        raise BadInput(f"--set exchange.worker is of one worker; --workers {how.workers} names them all")
    path = absolute(exchange.workspace or workspace)  # --set has the last word, for the workers too
    here = absolute(file) if file is not None and file.exists() else file
    crew = Crew(path, how.workers or 1, words(here, shared, set), how.cpus or 1, how.gpus)
    screen = Output()
    place = _launcher(how, crew, lambda message: None if quiet else screen.print(message, style="dim", soft_wrap=True))
    if not quiet:
        where = {"local": "on this machine", "ray": "on Ray", "slurm": "as Slurm jobs"}[how.launcher]
        screen.print(styled((many(crew.count, "worker"), "bold"), f" {where} → {in_shell(path)}"), soft_wrap=True)
    try:
        codes = Driver(crew, place, screen, quiet).run()
    except PlaceLost as error:
        return fail(str(error), FAILED)
    if BAD_INPUT in codes:
        log = crew.log(crew.names[codes.index(BAD_INPUT)])
        return fail(complaint(log), BAD_INPUT)
    if INTERRUPTED in codes:
        ending(INTERRUPTED)
        screen.print("interrupted; run the same command to continue", soft_wrap=True)
        return INTERRUPTED
    return max(_print_result(path, screen), FAILED if FAILED in codes else DONE)


def _launcher(how: Launch, crew: Any, note: Callable[[str], None]) -> Any:
    """The place that was asked for. note: of a cluster that may not answer. Raises BadInput where it cannot be had."""
    if how.launcher == "ray":
        if importlib.util.find_spec("ray") is None:
            raise BadInput(f"--launcher ray needs the package ray: {install('ray')}")
        from shoal.launch.ray_actors import RayActors

        return RayActors(crew, note)
    if how.launcher == "slurm":
        if shutil.which("sbatch") is None:
            raise BadInput("--launcher slurm needs sbatch, which is not among the commands of this machine")
        from shoal.launch.slurm_jobs import SlurmJobs

        return SlurmJobs(crew, how.sbatch)
    from shoal.launch.local import Local

    return Local(crew)


def _print_result(path: Path, screen: Screen) -> int:
    """Print whose champion is the best, and commands for the report and a video. Returns the exit code."""
    from shoal.launch.driver import conclude
    from shoal.report.page import write_report
    from shoal.report.workspace import begun

    try:
        result = conclude(path)
    except BadInput as error:
        return fail(f"{error}; see what they printed, in {path / 'logs'}", FAILED)
    if champion := result["champion"]:
        tested = champion["evaluation"]
        line = styled(
            *("champion: ", (scored(tested), "bold")),
            "" if tested.get("exact") else f" on {many(tested['episodes'], 'held-out episode')}",
            f", of worker {result['worker']}: the best of {result['workers']}; {result['environment_steps']:,.0f} training "
            f"steps and {result['evaluation_steps']:,.0f} evaluation steps in {result['seconds']:.0f} s",
        )
        screen.print(line, soft_wrap=True)
    if others := [run.name for run in begun(path) if not (run / run_files.RESULT).exists()]:
        screen.print(f"without {', '.join(others)}: no result yet", soft_wrap=True)
    screen.print(f"{'report:':13} open {in_shell(write_report(path))}", soft_wrap=True)
    if not champion:
        return fail("all members diverged: none ever had a finite fitness", FAILED)
    run = path / "workers" / result["worker"]
    name, command = to_watch(run, champion)
    screen.print(f"{f'{name}:':13} {command}", soft_wrap=True)
    return DONE


def stop(workspace: Path) -> int:
    """Ask the workers of a workspace to stop; say who will."""
    from shoal.distributed.stop_request import stop_workers
    from shoal.launch.local import beginning
    from shoal.launch.slurm_jobs import cancel_absent
    from shoal.report.workers import at_work, check_workspace

    absent = beginning(workspace)  # asked before the request, which those who come later do not see
    jobs = any((workspace / "jobs").glob("w*[0-9]"))
    if not (absent or jobs):  # the first worker to come makes the workspace
        check_workspace(workspace, "`shoal stop` has no workers to stop")
    names = [name for name in at_work(workspace) if name not in absent]
    stop_workers(workspace)
    for worker in absent.values():
        worker.terminate()
    if jobs:
        if shutil.which("scancel") is None:  # a machine that only shares the directory
            waiting = "jobs that have not begun stay in the queue: scancel is not among the commands of this machine"
            console().print(waiting, soft_wrap=True)
        else:
            cancel_absent(workspace)
    summary = [f"{', '.join(absent)}: stopped while starting"] if absent else []
    if names:
        summary.append(f"{', '.join(names)}: end after their generation; see shoal status {in_shell(workspace)}")
    for line in summary or ["no worker is at work"]:
        console().print(line, soft_wrap=True)
    return DONE
