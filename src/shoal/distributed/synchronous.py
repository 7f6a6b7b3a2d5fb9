"""The members of all processes of a run that are in step, and how they evolve together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from shoal.core.evolution import Cards, Decision, Recombination
from shoal.core.types import PyTree
from shoal.distributed.exchange import Exchange
from shoal.distributed.rows import filled, from_rows, routes, to_rows
from shoal.members.shard import Shard

# (visible cards, rows to decide for) -> (state of the evolver, decision)
Decide = Callable[[Cards, np.ndarray], tuple[PyTree, Decision | Recombination]]


class Shared(NamedTuple):
    """What is known of the members that are decided for; rows in the order of the processes."""

    members: Cards
    cards: Cards  # of the individuals, which live on: the members, or the mean that they are drawn around
    metrics: dict[str, np.ndarray]  # of these
    evaluation_steps: int
    stop: bool  # a process has received a signal to stop


class Evolved(NamedTuple):
    """What came of a decision."""

    evolution: PyTree  # state of the evolver
    parents: Cards  # whose weights the individuals go on with
    hyper: dict[str, np.ndarray]  # and with which hyperparameters
    champion: PyTree  # what a new one has learned, where that is asked for
    metrics: dict[str, float]  # of the decision, and of a step of the mean
    publish: Callable[[], None] = lambda: None  # shows the members to others, who must not see what could still be lost


class Synchronous:
    """The shards of all processes, of which this one has `shard`."""

    def __init__(self, exchange: Exchange, shard: Shard):
        self._exchange, self._shard = exchange, shard
        counts = exchange.gather(np.array([[len(shard.uid)]], np.float64))[:, 0].astype(np.int64)
        self._owner = np.repeat(np.arange(exchange.size), counts)
        self._mine = np.flatnonzero(self._owner == exchange.rank)
        self._starts = np.cumsum(counts) - counts

    def share(self, metrics: dict[str, np.ndarray], stop: bool) -> Shared:
        """Cards and metrics of all members."""
        cards = self._shard.cards()
        unknown = np.full(len(cards.uid), np.nan, np.float32)
        metrics = {name: metrics.get(name, unknown) for name in self._names_of_all(metrics)}
        rows = self._exchange.gather(to_rows(cards, metrics, [float(self._shard.evaluation_steps), float(stop)]))
        members, metrics, extra = from_rows(rows, cards, metrics)
        steps, stop = int(extra[self._starts, 0].sum()), bool(extra[:, 1].any())
        return Shared(members, *self._shard.individuals(members, metrics), steps, stop)

    def _names_of_all(self, metrics: Iterable[str]) -> list[str]:
        """The names of the metrics that any process has: trainers do not all report the same."""
        lines = "".join(f"{json.dumps(name)}\n" for name in metrics).encode()
        told = self._exchange.gather(np.frombuffer(lines, np.uint8)[:, None].astype(np.float64))
        return list(dict.fromkeys(map(json.loads, told.astype(np.uint8).tobytes().splitlines())))

    def evolve(self, shared: Shared, decide: Decide, champion: int | None) -> Evolved:
        """Decide for all members, in every process alike.

        champion: the row of a new one. Process 0 gets what it has learned, all others None.
        """
        cards = shared.members
        evolution, decision = decide(cards, np.arange(len(cards.uid)))
        metrics = dict(decision.metrics)
        if isinstance(decision, Recombination):
            learned = None if champion is None or self._exchange.rank else self._shard.snapshot(champion)[0]
            hyper = {name: x[self._mine] for name, x in decision.hyper.items()}
            metrics |= self._shard.recombine(cards.uid, decision.weights, hyper)
            of_mean = {name: x[:1] for name, x in decision.hyper.items()}
            return Evolved(evolution, shared.cards, of_mean, learned, metrics)
        learned = self._apply(decision, champion)
        return Evolved(evolution, cards.take(decision.parents), decision.hyper, learned, metrics)

    def _apply(self, decision: Decision, champion: int | None) -> PyTree:
        """Do what is decided for all members; the states that travel are those of parents with children elsewhere.

        Returns what the champion has learned, in process 0.
        """
        rank, wanted = self._exchange.rank, routes(decision.parents, self._owner, champion)
        first = int(self._starts[rank])
        leaving = {
            row: self._shard.pack(self._shard.snapshot(row - first))
            for row in {route.row for route in wanted if route.source == rank}
        }
        size = self._shard.packed_size
        if size is None:  # the largest of them
            size = int(self._exchange.gather(np.array([[max(map(len, leaving.values()), default=0)]], float)).max())
        arrived = self._exchange.move(wanted, lambda row: filled(leaving[row], size), size)
        states = {row: self._shard.unpack(data) for row, data in arrived.items()}
        learned = None
        if champion is not None and rank == 0:
            here = self._owner[champion] == 0
            learned = (self._shard.snapshot(champion) if here else states[champion])[0]
        mine = decision.part(self._mine)
        foreign = {i: states[int(p)] for i, p in enumerate(mine.parents) if self._owner[p] != rank}
        rows = np.arange(len(self._mine))
        local = np.where(np.isin(rows, list(foreign)), rows, mine.parents - first)
        self._shard.apply(mine._replace(parents=local), foreign)
        return learned
