"""The members of all processes of a run that are in step, and how they evolve together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from shoal.core.arrays import pack, unpack
from shoal.core.population import Decision, DistributionUpdate, PopulationStats
from shoal.core.types import PyTree
from shoal.distributed.exchange import Exchange
from shoal.distributed.rows import from_rows, routes, to_rows
from shoal.members.protocol import Kind, Shard

# (visible stats, rows to decide for) -> (state of the evolver, decision)
Decided = Decision | DistributionUpdate
Decide = Callable[[PopulationStats, np.ndarray], tuple[PyTree, Decided]]


class KnownMembers(NamedTuple):
    """Stats and metrics of the members that are decided for; rows in the order of the processes."""

    members: PopulationStats
    stats: PopulationStats  # of the individuals, which live on: the members, or the mean that they are sampled around
    metrics: dict[str, np.ndarray]  # of these
    evaluation_steps: int
    stop: bool  # a process has received a signal to stop
    seconds: float  # that the run has taken, by the clock of process 0


class Evolved(NamedTuple):
    """Results of a decision."""

    evolution: PyTree  # state of the evolver
    parents: PopulationStats  # whose weights the individuals go on with
    hyper: dict[str, np.ndarray]  # and with which hyperparameters
    # Gives what the individuals at some rows had learned before, in process 0, until they train on; all others get None.
    # To be called in all processes alike.
    learned: Callable[[Sequence[int]], list[PyTree]]
    metrics: dict[str, float]  # of the decision, and of a step of the mean
    publish: Callable[[], None] = lambda: None  # shows the members to others, who must not see what could still be lost
    ends: tuple[int, ...] = ()  # rows of the members that train no more


class Synchronous:
    """The shards of all processes, of which this one has `shard`, of members of a kind."""

    def __init__(self, exchange: Exchange, kind: Kind, shard: Shard):
        self._exchange, self._kind, self.shard = exchange, kind, shard
        counts = exchange.gather(np.array([[len(shard.uid)]], np.float64))[:, 0].astype(np.int64)
        self._owner = np.repeat(np.arange(exchange.size), counts)
        self._mine = np.flatnonzero(self._owner == exchange.rank)
        self._starts = np.cumsum(counts) - counts

    def share(self, metrics: dict[str, np.ndarray], stop: bool, seconds: float) -> KnownMembers:
        """PopulationStats and metrics of all members."""
        stats = self.shard.stats()
        unknown = np.full(len(stats.uid), np.nan, np.float32)
        metrics = {name: metrics.get(name, unknown) for name in self._names_of_all(metrics)}
        own = [float(self.shard.evaluation_steps), float(stop), seconds]
        rows = self._exchange.gather(to_rows(stats, metrics, own))
        members, metrics, extra = from_rows(rows, stats, metrics)
        steps, stop = int(extra[self._starts, 0].sum()), bool(extra[:, 1].any())
        return KnownMembers(members, *self.shard.individuals(members, metrics), steps, stop, float(extra[0, 2]))

    def _names_of_all(self, metrics: Iterable[str]) -> list[str]:
        """The names of the metrics that any process has: trainers do not all report the same."""
        lines = "".join(f"{json.dumps(name)}\n" for name in metrics).encode()
        gathered = self._exchange.gather(np.frombuffer(lines, np.uint8)[:, None].astype(np.float64))
        return list(dict.fromkeys(map(json.loads, gathered.astype(np.uint8).tobytes().splitlines())))

    def evolve(self, shared: KnownMembers, decide: Decide) -> Evolved:
        """Decide for all members, in every process alike."""
        stats = shared.members
        evolution, decision = decide(stats, np.arange(len(stats.uid)))
        learned, metrics = self._learned(), self._apply(decision)
        n = len(shared.stats.uid)  # of a mean, there is one
        hyper = {name: x[:n] for name, x in decision.hyper.items()}
        parents = shared.stats.take(decision.parents[:n])
        ends = decision.ends if isinstance(decision, Decision) else ()
        return Evolved(evolution, parents, hyper, learned, dict(decision.metrics) | metrics, ends=ends)

    def _learned(self) -> Callable[[Sequence[int]], list[PyTree]]:
        """See `Evolved.learned`."""
        exchange, owner, template, learned = self._exchange, self._owner, self._kind.snapshot[0], self.shard.learned()
        rank, first = exchange.rank, int(self._starts[exchange.rank])

        def of(wanted: Sequence[int]) -> list[PyTree]:  # nothing of it leads to the shard, which may end
            sent = routes(np.arange(len(owner)), owner, wanted)
            arrived = exchange.move(sent, {r.row: pack(learned(r.row - first)) for r in sent if r.source == rank})
            if rank:
                return [None] * len(wanted)
            return [unpack(arrived[row], template) if row in arrived else learned(row) for row in wanted]

        return of

    def _apply(self, decision: Decided) -> dict[str, float]:
        """Do what is decided for all members; the states that travel are those of parents with children elsewhere.

        Returns metrics of it.
        """
        rank, sent = self._exchange.rank, routes(decision.parents, self._owner, [])
        first = int(self._starts[rank])
        leaving = {r.row: pack(self.shard.snapshot(r.row - first)) for r in sent if r.source == rank}
        arrived = self._exchange.move(sent, leaving)
        states = {row: unpack(data, self._kind.snapshot) for row, data in arrived.items()}
        parents, rows = decision.parents[self._mine], np.arange(len(self._mine))
        foreign = {i: states[int(p)] for i, p in enumerate(parents) if self._owner[p] != rank}
        local = np.where(np.isin(rows, list(foreign)), rows, parents - first)
        return self.shard.apply(decision.part(self._mine, local), foreign)
