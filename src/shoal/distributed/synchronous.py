"""The members of all processes of a run that are in step, and how they evolve together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shoal.core import tree
from shoal.core.types import Cards, Decision, Exchange, PyTree
from shoal.distributed.rows import from_rows, routes, to_rows

Decide = Callable[[Cards, np.ndarray], tuple[PyTree, Decision]]  # (visible cards, rows to decide for)


class Shared(NamedTuple):
    """What is known of the members that are decided for; rows in the order of the processes."""

    members: Cards
    cards: Cards  # of those who live on: the members, or the one policy that they are drawn around
    metrics: dict[str, np.ndarray]  # of these
    evaluation_steps: int
    stop: bool  # a process has received a signal to stop


def share_of(
    members: Cards, mean: Cards | None, metrics: dict[str, np.ndarray], evaluation_steps: int, stop: bool
) -> Shared:
    """mean: the card of the mean, where members are drawn around one."""
    if mean is None:
        return Shared(members, members, metrics, evaluation_steps, stop)
    fitness = members.fitness[np.isfinite(members.fitness)]
    kinds: dict[str, Any] = {"mean": np.mean, "variance": np.var, "max": np.max, "min": np.min}
    of_all = {name: np.nanmean(x) if np.isfinite(x).any() else np.nan for name, x in metrics.items()}
    of_all |= {f"returns/{name}": kind(fitness) if len(fitness) else np.nan for name, kind in kinds.items()}
    rank = 1 + (fitness > mean.fitness[0]).sum()
    of_all["mean/rank"] = rank if np.isfinite(mean.fitness[0]) else np.nan  # 1: no member is better than their mean
    mean = mean._replace(steps=members.steps.sum(keepdims=True))
    return Shared(members, mean, {k: np.array([v], np.float32) for k, v in of_all.items()}, evaluation_steps, stop)


class Evolved(NamedTuple):
    """What came of a decision."""

    evolution: PyTree  # state of the evolver
    parents: Cards  # whose weights those who live on go on with
    hyper: dict[str, np.ndarray]  # and with which hyperparameters
    champion: PyTree  # what a new one has learned, where that is asked for
    metrics: dict[str, float]  # of the decision, and of a step of the mean
    publish: Callable[[], None] = lambda: None  # shows the members to others, who must not see what could still be lost


class Crew:
    """The shards of all processes, of which this one has `shard` (a MemberShard or a Group)."""

    def __init__(self, exchange: Exchange, shard: Any):
        self._exchange, self._shard = exchange, shard
        counts = exchange.gather(np.array([[len(shard.uid)]], np.float64))[:, 0].astype(np.int64)
        self._owner = np.repeat(np.arange(exchange.size), counts)
        self._starts = np.cumsum(counts) - counts
        self._first = int(self._starts[exchange.rank])

    def share(self, metrics: dict[str, np.ndarray], stop: bool) -> Shared:
        """Cards and metrics of all members."""
        cards = self._shard.cards()
        rows = self._exchange.gather(to_rows(cards, metrics, [float(self._shard.evaluation_steps), float(stop)]))
        cards, metrics, extra = from_rows(rows, cards, metrics)
        steps, stop = int(extra[self._starts, 0].sum()), bool(extra[:, 1].any())
        return share_of(cards, self._shard.card_of_mean(), metrics, steps, stop)

    def evolve(self, shared: Shared, decide: Decide, champion: int | None) -> Evolved:
        """Decide for all members, in every process alike; what travels are states of parents with children elsewhere.

        champion: the row of a new one. Process 0 gets what it has learned, all others None.
        """
        cards = shared.members
        evolution, decision = decide(cards, np.arange(len(cards.uid)))
        shape = self._shard.snapshot_shape()
        arrived = self._exchange.move(
            routes(decision.parents, self._owner, champion),
            lambda row: tree.to_bytes(self._shard.snapshot(row - self._first)),
            tree.size_in_bytes(shape),
        )
        states = {row: tree.from_bytes(data, shape) for row, data in arrived.items()}
        learned = None
        if champion is not None and self._exchange.rank == 0:
            here = self._owner[champion] == 0
            learned = (self._shard.snapshot(champion) if here else states[champion])[0]
        mine = np.flatnonzero(self._owner == self._exchange.rank)
        parents = decision.parents[mine]
        foreign = {i: states[int(p)] for i, p in enumerate(parents) if self._owner[p] != self._exchange.rank}
        local = np.where([i in foreign for i in range(len(mine))], np.arange(len(mine)), parents - self._first)
        metrics = dict(decision.metrics)
        if decision.weights is not None:
            metrics |= self._shard.recombine(cards.uid, decision.weights)
        self._shard.adopt(local, {name: x[mine] for name, x in decision.hyper.items()}, foreign)
        if shared.cards is not cards:
            return Evolved(evolution, shared.cards, {k: x[:1] for k, x in decision.hyper.items()}, learned, metrics)
        return Evolved(evolution, cards.take(decision.parents), decision.hyper, learned, metrics)
