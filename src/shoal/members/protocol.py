"""The interface between a run and its members: their kind, before there are any; shards, which train them; testers, which
let policies play. Members are gradient-trained, sampled around a mean by an evolution strategy, or trained by an external
trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from shoal.core.population import Decision, DistributionUpdate, PopulationStats, Seed, Values
from shoal.core.types import START, Metrics, PyTree, RunProgress
from shoal.environments.evaluation import EvaluationConfig

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.core.types import Tunable
    from shoal.members.acting import Policy, PolicyFactory

EPISODES = 8  # of a member and evaluation, where the experiment does not say
# Called with a result to wait for, and with how many parts of an interval are done; may show it, and may raise.
Pause = Callable[[PyTree, float], None]


class SharedReturns(Protocol):
    """The returns of a population that several processes measure together, by part: `shoal.distributed.returns`."""

    rows: dict[int, np.ndarray]

    def to_measure(self, generation: int, parts: int, shape: tuple[int, int]) -> Iterator[int]: ...

    def publish(self, generation: int, part: int, rows: np.ndarray) -> None: ...


class Setup(NamedTuple):
    """Arguments that shards are made with.

    steps: of a member in an interval, where whole episodes do not make one
    note: called with what the user should know
    logs: gives the folder for what the processes of trainers print, when it is needed; None: it is not kept
    returns: where several processes measure one population together
    ends_members: whether members may end before the run does
    structure: all that compiled programs follow from; those of an equal one may be taken (`trace_cache`)
    chosen: uid [N] -> the choices of structure that members make, by name
    """

    seed: int
    evaluation: EvaluationConfig
    steps: int = 0
    pause: Pause = lambda result, done: None
    note: Callable[[str], None] = lambda message: None
    logs: Callable[[], Path | None] = lambda: None
    returns: SharedReturns | None = None
    ends_members: bool = False
    structure: Any = None
    chosen: Callable[[np.ndarray], Values] = lambda uid: {}


class Outcome(NamedTuple):
    """Outcome of the episodes of K policies.

    returns: [K, E]. steps: of the environment, as far as they are known. tie_breaker: [K, E], where fitness
    has one
    """

    returns: np.ndarray
    steps: int
    tie_breaker: np.ndarray | None = None


class Tester(Protocol):
    """A way to let policies play, with members that train or without."""

    def test(self, policies: Sequence[Policy], key: Seed, episodes: int, levels: str) -> Outcome:
        """Let K policies play new episodes, the same for each.

        Episodes depend on (key, their number) alone. levels: train, validation or test, where there are levels
        """

    def close(self) -> None:
        """Give back what is held; nothing else is called after it."""


class Shard(Tester, Protocol):
    """N members in one process. Individuals are what lives on: the members, or the one mean that they are sampled around.

    In every generation the run calls `train`, `evaluate`, `stats`, `individuals`, then `apply`.

    uid: integers [N], which name the members; they never change
    evaluation_steps: environment steps so far that only measured
    compile_seconds: of compiling so far
    """

    @property
    def uid(self) -> np.ndarray: ...

    @property
    def evaluation_steps(self) -> int: ...

    @property
    def compile_seconds(self) -> float: ...

    def count_evaluation(self, steps: int) -> None:
        """Add to `evaluation_steps`."""

    def begin(self, hyper: dict[str, np.ndarray], learned: Sequence[PyTree] | None = None) -> None:
        """Make new members with these hyperparameters, float32 [N] each.

        learned: what they have learned already, of each as the first part of a `snapshot`; of a mean, the same for all
        """

    def train(self, generation: int, iterations: int, chunk: int, progress: RunProgress = START) -> Metrics:
        """One interval, in `iterations` parts, `chunk` of them at a time. Returns metrics [N].

        progress: of the run before it, which schedules follow
        """

    def evaluate(self, generation: int) -> Metrics:
        """Measure the fitness of every individual and member; the same episodes for all, new ones in each generation.

        Returns metrics [N].
        """

    def stats(self) -> PopulationStats:
        """The stats of the members [N], with the fitness that was measured last."""

    def take_fitness(self, stats: PopulationStats) -> None:
        """Take over the fitness of these stats [N], which more episodes have measured; of members that are individuals."""

    def individuals(self, stats: PopulationStats, metrics: Metrics) -> tuple[PopulationStats, Metrics]:
        """PopulationStats and metrics of what lives on, from those of the M members of all shards."""

    def snapshot(self, row: int) -> PyTree:
        """Return the part of an individual that a child copies: (learned, replay buffer where that is copied).

        The arrays are its own, on the host or on a device: they stay as they are when the shard trains on.
        """

    def learned(self) -> Callable[[int], PyTree]:
        """Return a function: row of an individual -> the first part of its `snapshot` as it is now.

        It may be called until the shard trains on, and keeps what was learned for as long as it lives itself.
        """

    def apply(self, decision: Decision | DistributionUpdate, arrived: Mapping[int, PyTree]) -> dict[str, float]:
        """Do what is decided; then the new hyperparameters are set. Returns metrics of it.

        Children copy their parents as these are before the call, which are rows of this shard, or have `arrived`: row of a
        child -> the `snapshot` of its parent. A distribution update gives the next mean. Raises BadInput where the members
        are not of the kind for it.
        """

    def state(self) -> list[PyTree]:
        """The state for a checkpoint, in one part or several; each has what `shoal.run.members` reads:

        uid, hyper, fitness: [N]
        learned: [N, ...], or each: of each member, by its uid, arrays by name; of what is sampled anew, nothing
        """

    def restore(self, states: Sequence[PyTree], generation: int) -> None:
        """Continue from a `state` that was saved at the end of `generation`, of these members or, where members may end, of
        more."""


class Kind(Protocol):
    """A kind of member, with all that it needs to make members.

    tunable: what has the hyperparameters. env_parameters: those of the environment, with their own values
    spec: of the environment; None where a trainer does not say it
    policy_factory: makes policies from what members learn
    snapshot: shapes and dtypes of what a child copies: see `Shard.snapshot`
    compiled: itself as a `members.compiled.Compiled`, with an agent and an environment; None where Shoal does not see them
    resumes_exactly: whether a run that continues from a state equals one that never stopped
    episodes: that measure a member, where the experiment does not say how many
    sampled: members are sampled anew around a mean in every generation, instead of living on
    together: members learn from one another, so that all must be on one device
    side_by_side: the number of consecutive members that must be on the same device
    """

    env_parameters: Mapping[str, float]
    resumes_exactly: bool
    episodes: int
    sampled: bool
    together: bool
    side_by_side: int

    @property
    def tunable(self) -> Tunable: ...

    @property
    def spec(self) -> Spec | None: ...

    @property
    def policy_factory(self) -> PolicyFactory: ...

    def policy_factory_for(self, hyper: Mapping[str, float]) -> PolicyFactory:
        """Return `policy_factory` of a member with these hyperparameters, whose structure may differ from others."""

    @property
    def snapshot(self) -> PyTree: ...

    @property
    def compiled(self) -> Any: ...

    def interval(self, steps: int, generations: int, population: int) -> tuple[int, int]:
        """Return the number of parts of an interval of `steps` per member, and its steps after rounding; 0 steps where an
        interval is whole episodes. Raises BadInput if nothing would be learned."""

    def devices(self, uids: Sequence[np.ndarray]) -> int:
        """The number of devices that the members of a process are spread over; of trainers, processes.

        uids: [n] of each shard
        """

    def memory(self, members: int) -> tuple[int, int]:
        """Bytes that the state of so many members takes on the devices, and how many of them are replay buffer."""

    def shard(self, uids: Sequence[np.ndarray], setup: Setup) -> Shard:
        """Make the shard of members, whose uids [n] are given for each part."""

    def tester(self, setup: Setup) -> Tester:
        """Make a tester, which lets champions play without members."""

    def close(self) -> None:
        """Give back what is held; its shards are closed by themselves."""


class Members:
    """N members of a shard and what was last measured of them; they are its individuals."""

    def __init__(self, uid: np.ndarray):
        self.uid, self._generation = uid, 0
        self._steps, self._counted = np.zeros((2, len(uid)), np.int64)
        self._fitness, self._std = np.full((2, len(uid)), np.nan)
        self._tie_breaker: np.ndarray | None = None

    @property
    def hyper(self) -> dict[str, np.ndarray]:
        """The hyperparameters of the members, float32 [N] each, on the host."""
        raise NotImplementedError

    def stats(self) -> PopulationStats:
        return PopulationStats(
            self.uid.astype(np.int64),
            np.full(len(self.uid), self._generation),
            self._steps.astype(np.int64),
            self._fitness.astype(np.float64),
            self._std.astype(np.float64),
            self._counted.astype(np.int64),
            dict(self.hyper),
            tie_breaker=self._tie_breaker,
        )

    def take_fitness(self, stats: PopulationStats) -> None:
        self._fitness, self._std, self._counted = stats.fitness.copy(), stats.std.copy(), stats.episodes.copy()
        self._tie_breaker = stats.tie_breaker

    def individuals(self, stats: PopulationStats, metrics: Metrics) -> tuple[PopulationStats, Metrics]:
        return stats, metrics
