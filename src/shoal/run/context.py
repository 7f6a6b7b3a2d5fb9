"""The parts of a run that stay, and the state that each generation replaces."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.core.candidates import Candidate, Candidates
from shoal.core.trend import Trend
from shoal.core.types import PyTree
from shoal.distributed.asynchronous import Worker
from shoal.distributed.processes import Processes
from shoal.distributed.synchronous import Synchronous
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import Plan
from shoal.members.protocol import Shard
from shoal.run.control import Control
from shoal.run.rundir import RunDirectory


@dataclass(frozen=True)
class Context:
    """The parts of a run, which stay from the first generation to the last."""

    plan: Plan
    processes: Processes
    files: RunDirectory
    control: Control
    began: float  # on the clock of `time.perf_counter`
    open_shard: ExitStack  # closes the members of this process

    @property
    def experiment(self) -> Experiment:
        return self.plan.experiment

    @property
    def leading(self) -> bool:
        """True where this process writes the records."""
        return self.processes.leading

    @property
    def devices(self) -> int:
        """Number of devices that the members of this process are on."""
        return self.plan.kind.devices(self.processes.uids(self.plan))

    def members(self, uids: Sequence[np.ndarray]) -> Synchronous | Worker:
        """Make the members uids [n] of each shard of this process, in place of those that there were."""
        self.open_shard.close()
        made = self.processes.members(self.plan, uids, self.control.pause, self.files.path / "trainers")
        self.open_shard.callback(made.shard.close)
        return made


class State(NamedTuple):
    """The state of a run, which each generation replaces."""

    members: Synchronous | Worker  # those of this process among those of all
    evolution: PyTree  # of the evolver
    candidates: Candidates
    trend: Trend
    began: float  # on the clock of `time.perf_counter`; where it was resumed, as if it had never been stopped
    done: int = 0  # generations
    steps: int = 0  # environment steps of all members
    evaluation_steps: int = 0  # those that only measured them
    clock: float = 0.0  # seconds, as all processes take them, when the members were last measured
    ended_steps: int = 0  # environment steps of the members that have ended
    earlier_compiling: float = 0.0  # seconds of compiling before a resume, and for shards whose members have ended
    episode_length: float = 0.0  # mean steps of the episodes that measured the last generation
    stop: bool = False  # a process has received a signal to stop
    publish: Callable[[], None] = lambda: None  # shows the members to others, once nothing of this can be lost

    @property
    def shard(self) -> Shard:
        """The members of this process."""
        return self.members.shard

    @property
    def champion(self) -> Candidate:
        """The best so far, by the smoothed fitness of its generation."""
        return self.candidates.champion

    @property
    def seconds(self) -> float:
        """Seconds of this run, those before it was resumed included."""
        return time.perf_counter() - self.began

    @property
    def compile_seconds(self) -> float:
        """Seconds of compiling among them."""
        return self.earlier_compiling + self.shard.compile_seconds

    def over(self, plan: Plan) -> bool:
        """True once the run has come to its end."""
        whole = plan.progress(self.done, self.steps + self.evaluation_steps, self.clock) >= 1
        return whole or bool(self.stopped_by(plan))

    def stopped_by(self, plan: Plan) -> str:
        """The field of `stop` that ends the run now, and its value; empty where none does."""
        return plan.experiment.stop.reached(self.trend)
