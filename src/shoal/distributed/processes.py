"""The processes that train together: one alone, the ranks of MPI, or the workers of a shared directory."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

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
from shoal.experiment.files import differences, dump, of_run
from shoal.experiment.plan import Plan
from shoal.members.protocol import Pause

# What each worker of a directory decides for itself; all else must be equal.
OWN = ("generations", "time_limit", "stop", "run_dir", "shards", "checkpoint", "final_episodes")


def workspace_of(experiment: Experiment, run_dir: Path) -> Path:
    """The workspace in which the run of a worker lies; seen from here it may have another path than it had.

    Raises BadInput for a copy, which is nobody's.
    """
    path, worker = run_dir.resolve(), experiment.exchange.worker
    workspace = path.parent.parent
    if path != workspace / "workers" / str(worker) or not (workspace / "slots").is_dir():
        place = f"WORKSPACE/workers/{worker}, with WORKSPACE/slots beside"
        raise BadInput(f"{run_dir} is the run of worker {worker}, which goes on only where it lies in {place}")
    return workspace


class Processes:
    """The processes that `exchange` of an experiment names. An error that ends this one ends those in step with it.

    attend: called while waiting, and may raise. note: called with what the user should know.
    Raises BadInput where the exchange cannot be had.
    """

    def __init__(self, experiment: Experiment, attend: Callable[[], None], note: Callable[[str], None]):
        self.exchange = Exchange()  # of the processes that are in step
        self._workspace: Workspace | None = None
        self.first_uid = 0  # of this process's members; populations that workers have each to themselves follow
        self._attend, self._note = attend, note
        if experiment.exchange.name == "mpi":
            from shoal.distributed.mpi import Mpi

            how = experiment.exchange
            self.exchange = Mpi(how.timeout, attend, note)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        try:
            match error:
                case Interrupted(agreed=False):
                    self.exchange.fail(shown(str(error)), error.code)
                case BadInput() | Failed():
                    self.exchange.fail(shown(str(error)), FAILED if isinstance(error, Failed) else BAD_INPUT)
                case Interrupted() | None:
                    pass
                case BaseException():  # user code may leave by SystemExit
                    self.exchange.fail("".join(traceback.format_exception(error)), FAILED)
        finally:
            if self._workspace is not None:
                self._workspace.leave()

    def join(self, plan: Plan) -> Plan:
        """Agree with the others on the experiment; a worker gets its name. Raises BadInput where they train another."""
        e = plan.experiment
        if e.exchange.name != "directory":
            if self.exchange.broadcast(text := dump(e)) != text:
                problem = "the processes were started with different experiments"
                raise BadField("exchange", problem, value=e.exchange.name)
            return plan
        path, keep, every = Path(e.exchange.workspace or ""), e.checkpoint.keep, e.checkpoint.every or 1
        self._workspace = space = Workspace(path, keep, self._attend, self._note, every)
        space.join(e.exchange.worker)
        self.first_uid = 0 if plan.kind.sampled else space.slot * e.population
        usual = Experiment()
        own = [name for name in OWN if not (plan.kind.sampled and name == "shards")]
        here = ExchangeSettings(e.exchange.name)
        common = replace(e, exchange=here, **{name: getattr(usual, name) for name in own})
        space.settle(dump(common), lambda path: differences(common, of_run(path.parent)))
        return plan._replace(experiment=replace(e, exchange=replace(e.exchange, worker=space.name)))

    @property
    def leading(self) -> bool:
        """True where this process writes the records of its run."""
        return self.exchange.rank == 0

    @property
    def stopped(self) -> bool:
        """True once all workers of this one's directory are asked to stop."""
        return self._workspace is not None and self._workspace.stopped

    @property
    def run_dir(self) -> Path | None:
        """The folder of a worker's run."""
        return self._workspace.path / "workers" / self._workspace.name if self._workspace else None

    @property
    def ended_workspace(self) -> Path | None:
        """The workspace of a worker that was the last one at work there."""
        return self._workspace.path if self._workspace and self._workspace.is_last() else None

    @property
    def staging(self) -> Staging | None:
        """The place where a worker makes its files, for as long as it has its name."""
        return self._workspace.staging if self._workspace else None

    def uids(self, plan: Plan) -> list[np.ndarray]:
        """Those of the members of this process, by shard."""
        return plan.members(self.exchange.rank, self.exchange.size, self.first_uid)

    def members(self, plan: Plan, uids: Sequence[np.ndarray], pause: Pause, logs: Path) -> Synchronous | Worker:
        """Make the members of this process, uids [n] of each shard, among those of all.

        pause: see `Setup`. logs: the folder for what the processes of trainers print.
        """
        setup = plan.setup._replace(pause=pause, note=self._note, logs=lambda: logs)
        if self._workspace is not None and plan.kind.sampled:  # all measure one population
            returns = Returns(self._workspace.path / "returns", self._workspace.slot, self._attend)
            setup = setup._replace(returns=returns)
        shard = plan.kind.shard(uids, setup)
        if self._workspace is None or plan.kind.sampled:
            return Synchronous(self.exchange, plan.kind, shard)
        return Worker(self._workspace, plan.kind, shard)

    def check_past(self, first: int, uid: np.ndarray) -> None:
        """Raise BadInput where these members cannot go on at generation `first`, for others know more of them."""
        if self._workspace is not None:
            self._workspace.check_past(first, uid)
