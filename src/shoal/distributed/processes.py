"""The processes that train together: one alone, the ranks of MPI, or the workers of a shared directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from shoal.core.errors import BadField
from shoal.core.schema import plain
from shoal.core.types import Exchange
from shoal.core.workshop import Workshop
from shoal.distributed.asynchronous import Worker
from shoal.distributed.directory import Workspace
from shoal.distributed.local import Local
from shoal.distributed.returns import Returns
from shoal.distributed.synchronous import Crew
from shoal.experiment.experiment import Experiment, dump, read, to_dict
from shoal.experiment.registry import method
from shoal.population.shard import Shard

# What each worker of a directory decides for itself; all else must be equal.
OWN = ("generations", "run_dir", "workspace", "worker", "shards", "checkpoint", "final_episodes")


class Company:
    """What an experiment's `exchange` names. Raises BadInput where that cannot be had.

    attend: called while waiting, and may raise. note: hears what the user should know.
    """

    def __init__(self, experiment: Experiment, attend: Callable[[], None], note: Callable[[str], None]):
        self.exchange: Exchange = Local()  # of the processes that are in step
        self._workspace: Workspace | None = None
        self._pools, self._population = method(experiment.method).pools, experiment.population
        self._attend = attend
        if experiment.exchange == "mpi":
            from shoal.distributed.mpi import Mpi

            self.exchange = Mpi(experiment.transfer, attend)
        elif experiment.exchange == "directory":
            kept = experiment.checkpoint
            self._workspace = Workspace(Path(experiment.workspace or ""), kept.keep, attend, note, kept.every)
            self._workspace.join(experiment.worker)

    @property
    def leading(self) -> bool:
        """Whether this process writes the records of its run."""
        return self.exchange.rank == 0

    @property
    def worker(self) -> str | None:
        """The name of this worker, where it is one."""
        return self._workspace.name if self._workspace else None

    @property
    def first_uid(self) -> int:
        """The number of this process's first member; populations that workers have each to themselves follow."""
        return self._workspace.slot * self._population if self._workspace and not self._pools else 0

    @property
    def returns(self) -> Returns | None:
        """Where workers measure one population together."""
        if self._workspace is None or not self._pools:
            return None
        return Returns(self._workspace.path / "returns", self._workspace.slot, self._attend)

    @property
    def run_dir(self) -> Path | None:
        """Where a worker's run lies."""
        return self._workspace.path / "workers" / self._workspace.name if self._workspace else None

    @property
    def workshop(self) -> Workshop | None:
        """Where a worker makes its files, for as long as it has its name."""
        return self._workspace.workshop if self._workspace else None

    def agree(self, experiment: Experiment) -> None:
        """Raise BadInput where the others train something else."""
        if self._workspace is None:
            text = dump(experiment)
            if self.exchange.broadcast(text) != text:
                raise BadField("exchange", "the processes were started with different experiments", value="mpi")
        else:
            usual = Experiment()
            own = [name for name in OWN if not (self._pools and name == "shards")]
            common = replace(experiment, **{name: getattr(usual, name) for name in own})
            self._workspace.agree(dump(common), lambda path: _differences(common, read(path)))

    def crew(self, shard: Shard) -> Crew | Worker:
        """The members of this process among all."""
        if self._workspace is None or self._pools:
            return Crew(self.exchange, shard)
        return Worker(self._workspace, shard)

    def check_past(self, first: int, uid: np.ndarray) -> None:
        """Raise BadInput where these members cannot go on at generation `first`, for others know more of them."""
        if self._workspace is not None:
            self._workspace.check_past(first, uid)

    def leave(self) -> None:
        """Let others know that this process is done."""
        if self._workspace is not None:
            self._workspace.leave()


def _differences(one: Experiment, other: Experiment) -> list[str]:
    """Dotted names of the fields in which two experiments differ."""
    a, b = plain(to_dict(one)), plain(to_dict(other))
    found = []
    for name in sorted(a.keys() | b.keys()):
        x, y = a.get(name), b.get(name)
        if isinstance(x, dict) and isinstance(y, dict):
            found += [f"{name}.{key}" for key in sorted(x.keys() | y.keys()) if x.get(key) != y.get(key)]
        elif x != y:
            found.append(name)
    return found
