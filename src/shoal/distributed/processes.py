"""The processes that train together: one alone, the ranks of MPI, or the workers of a shared directory."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from shoal.core import run_files
from shoal.core.atomic import Staging
from shoal.core.errors import BadField, BadInput
from shoal.core.escape import shown
from shoal.core.interrupts import BAD_INPUT, FAILED, Failed, Interrupted
from shoal.distributed.asynchronous import Worker
from shoal.distributed.directory import Workspace
from shoal.distributed.exchange import Exchange
from shoal.distributed.returns import Returns
from shoal.distributed.synchronous import Synchronous
from shoal.experiment.experiment import ExchangeSettings, Experiment
from shoal.experiment.files import differences, dump, of_workspace
from shoal.experiment.plan import Plan
from shoal.members.protocol import Pause, Setup

# What each worker of a directory decides for itself; all else must be equal.
OWN = ("generations", "time_limit", "stop", "run_dir", "shards", "checkpoint", "final_episodes", "python", "processes")


def workspace_of(experiment: Experiment, run_dir: Path) -> Path:
    """The workspace in which the run of a worker lies; seen from here it may have another path than it had.

    Raises BadInput for a copy, which is nobody's.
    """
    path, worker = run_dir.resolve(), experiment.exchange.worker
    workspace = path.parent.parent
    if path != workspace / "workers" / str(worker) or not (workspace / "slots").is_dir():
        place = f"WORKSPACE/workers/{worker}, with WORKSPACE/slots beside"
        raise BadInput(f"{run_dir} is the run of worker {worker}, which can be resumed only in {place}")
    return workspace


class Processes:
    """The processes that train one population in step: one alone, or the ranks of MPI.

    An error that ends this one ends the others. exchange: between them. note: called with what the user should know.
    """

    def __init__(self, exchange: Exchange, note: Callable[[str], None]):
        self.exchange, self._note = exchange, note
        self.first_uid = 0  # of this process's members; populations that workers have each to themselves follow

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        match error:
            case Interrupted(agreed=False):
                self.exchange.fail(shown(str(error)), error.code)
            case BadInput() | Failed():
                self.exchange.fail(shown(str(error)), FAILED if isinstance(error, Failed) else BAD_INPUT)
            case Interrupted() | None:
                pass
            case BaseException():  # user code may leave by SystemExit
                self.exchange.fail("".join(traceback.format_exception(error)), FAILED)

    def join(self, plan: Plan) -> Plan:
        """Agree with the others on the experiment; a worker gets its name. Raises BadInput where they train another."""
        if self.exchange.broadcast(text := dump(plan.experiment)) != text:
            problem = "the processes were started with different experiments"
            raise BadField("exchange", problem, value=plan.experiment.exchange.name)
        return plan

    @property
    def leading(self) -> bool:
        """True where this process writes the records of its run."""
        return self.exchange.rank == 0

    @property
    def stopped(self) -> bool:
        """True once all workers of this one's directory are asked to stop."""
        return False

    @property
    def run_dir(self) -> Path | None:
        """The folder of a worker's run."""
        return None

    @property
    def ended_workspace(self) -> Path | None:
        """The workspace of a worker that was the last one at work there."""
        return None

    @property
    def staging(self) -> Staging | None:
        """The place where a worker makes its files, for as long as it has its name."""
        return None

    def uids(self, plan: Plan) -> list[np.ndarray]:
        """Uids of the members of this process, by shard."""
        return plan.members(self.exchange.rank, self.exchange.size, self.first_uid)

    def members(self, plan: Plan, uids: Sequence[np.ndarray], pause: Pause, logs: Path) -> Synchronous | Worker:
        """Make the members of this process, uids [n] of each shard, among those of all.

        pause: see `Setup`. logs: the folder for what the processes of trainers print.
        """
        return Synchronous(self.exchange, plan.kind, plan.kind.shard(uids, self._setup(plan, pause, logs)))

    def _setup(self, plan: Plan, pause: Pause, logs: Path) -> Setup:
        return plan.setup._replace(pause=pause, note=self._note, logs=lambda: logs)

    def check_past(self, first: int, uid: np.ndarray) -> None:
        """Raise BadInput where these members cannot go on at generation `first`, for others know more of them."""

    def remove_result(self) -> None:
        """Remove the result of a worker's workspace: it is of members that this one now trains further, or without them."""


class WorkspaceWorkers(Processes):
    """The workers of a workspace, of which this process is one. Each trains a population of its own; policies that are
    sampled around a mean are one population, which they measure together.

    attend: called while waiting, and may raise.
    """

    _workspace: Workspace  # once this one has joined

    def __init__(self, attend: Callable[[], None], note: Callable[[str], None]):
        super().__init__(Exchange(), note)  # no other process is in step with this one
        self._attend, self._held = attend, ExitStack()

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        self._held.close()

    def join(self, plan: Plan) -> Plan:
        e = plan.experiment
        path, keep, every = Path(e.exchange.workspace or ""), e.checkpoint.keep, e.checkpoint.every or 1
        self._workspace = space = Workspace(path, keep, self._attend, self._note, every)
        self._held.callback(space.leave)
        space.join(e.exchange.worker)
        self.first_uid = 0 if plan.kind.sampled else space.slot * e.population
        own = [name for name in OWN if not (plan.kind.sampled and name == "shards")]
        here = ExchangeSettings(e.exchange.name)
        default = Experiment()
        common = replace(e, exchange=here, **{name: getattr(default, name) for name in own})
        space.ensure_experiment(dump(common), lambda path: differences(common, of_workspace(path.parent)))
        return plan._replace(experiment=replace(e, exchange=replace(e.exchange, worker=space.name)))

    @property
    def stopped(self) -> bool:
        return self._workspace.stopped

    @property
    def run_dir(self) -> Path:
        return self._workspace.path / "workers" / self._workspace.name

    @property
    def ended_workspace(self) -> Path | None:
        return self._workspace.path if self._workspace.is_last() else None

    @property
    def staging(self) -> Staging:
        return self._workspace.staging

    def members(self, plan: Plan, uids: Sequence[np.ndarray], pause: Pause, logs: Path) -> Synchronous | Worker:
        setup = self._setup(plan, pause, logs)
        if plan.kind.sampled:
            returns = Returns(self._workspace.path / "returns", self._workspace.slot, self._attend)
            return Synchronous(self.exchange, plan.kind, plan.kind.shard(uids, setup._replace(returns=returns)))
        return Worker(self._workspace, plan.kind, plan.kind.shard(uids, setup))

    def check_past(self, first: int, uid: np.ndarray) -> None:
        self._workspace.check_past(first, uid)

    def remove_result(self) -> None:
        (self._workspace.path / run_files.RESULT).unlink(missing_ok=True)


def make_processes(experiment: Experiment, attend: Callable[[], None], note: Callable[[str], None]) -> Processes:
    """The processes that `exchange` of an experiment names. Raises BadInput where the exchange cannot be had.

    attend: called while waiting, and may raise. note: called with what the user should know.
    """
    how = experiment.exchange
    if how.name == "directory":
        return WorkspaceWorkers(attend, note)
    if how.name == "mpi":
        from shoal.distributed.mpi import Mpi

        return Processes(Mpi(how.timeout, attend, note), note)
    return Processes(Exchange(), note)
