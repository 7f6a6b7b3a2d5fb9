"""The parts of a run that stay, and the state that each generation replaces."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.core.keys import derive
from shoal.core.population import ChampionSoFar, Contenders, Seed
from shoal.core.types import PyTree
from shoal.distributed.asynchronous import Worker
from shoal.distributed.processes import Processes
from shoal.distributed.synchronous import Synchronous
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import Plan
from shoal.members.protocol import Shard
from shoal.run.control import Control
from shoal.run.rundir import RunDirectory


@dataclass
class Context:
    """The parts of a run, which stay from the first generation to the last, except for the shard where members end."""

    plan: Plan
    processes: Processes
    held: ExitStack  # gives back what is taken, in the end
    files: RunDirectory
    control: Control
    began: float  # on the clock of `time.perf_counter`
    shard: Shard  # the members of this process
    members: Synchronous | Worker  # the same among those of all processes
    ended: int = 0  # environment steps of the members that have ended
    compiled: float = 0.0  # seconds of compiling for shards of before

    @property
    def experiment(self) -> Experiment:
        return self.plan.experiment

    @property
    def leading(self) -> bool:
        """True where this process writes the records."""
        return self.processes.leading

    @property
    def devices(self) -> int:
        """On which the members of this process are."""
        return self.plan.kind.devices(self.processes.uids(self.plan))

    @property
    def compile_seconds(self) -> float:
        """Of all shards so far."""
        return self.compiled + self.shard.compile_seconds

    @property
    def clock(self) -> tuple[float, float]:
        """Seconds that have passed, and those of compiling among them."""
        return time.perf_counter(), self.compile_seconds

    def elapsed(self, state: State) -> float:
        """Seconds of this run, those before it was resumed included."""
        return time.perf_counter() - self.began + state.earlier

    def keep(self, generation: int, ends: Sequence[int]) -> None:
        """Go on after a generation without the members at some rows; the others are as they were."""
        before, steps = self.shard, int(self.shard.stats().steps.sum())
        self.compiled += before.compile_seconds
        self.take(np.delete(before.uid, ends))
        self.shard.restore(before.state(), generation)
        self.ended += steps - int(self.shard.stats().steps.sum())

    def take(self, uid: np.ndarray) -> None:
        """Make the members uid [N], all of those of this process that there are."""
        self.shard = self.processes.shard(self.plan, [uid], self.control.pause, self.control.place)
        self.held.callback(self.shard.close)
        self.members = self.processes.members(self.plan, self.shard)

    def key(self, generation: int, purpose: str) -> Seed:
        return derive((self.experiment.seed,), generation, purpose)


class State(NamedTuple):
    """State that changes from generation to generation, beside the members."""

    done: int  # generations
    evolution: PyTree  # of the evolver
    contenders: Contenders
    steps: int = 0  # environment steps of all members
    evaluation_steps: int = 0  # those that only measured them
    earlier: float = 0.0  # seconds of this run before it was resumed

    def over(self, plan: Plan) -> bool:
        """True once the run has come to its end."""
        return plan.progress(self.done, self.steps + self.evaluation_steps) >= 1

    @property
    def champion(self) -> ChampionSoFar:
        """The fittest so far."""
        return self.contenders.champion
