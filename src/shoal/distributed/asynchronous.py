"""The members of one worker, among those that others publish in a shared directory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from shoal.core.errors import BadField
from shoal.core.evolution import Cards, Decision
from shoal.core.types import PyTree
from shoal.distributed.directory import Lost, Workspace
from shoal.distributed.rows import columns, filled, from_rows, sound, to_rows
from shoal.distributed.synchronous import Decide, Evolved, Shared
from shoal.members.shard import Shard


class Worker:
    """A shard that decides for itself alone, with all others that can be seen; it never waits."""

    def __init__(self, workspace: Workspace, shard: Shard):
        self._workspace, self._shard = workspace, shard

    def share(self, metrics: dict[str, np.ndarray], stop: bool) -> Shared:
        """What `Synchronous.share` tells, of this worker's members."""
        cards = self._shard.cards()
        return Shared(cards, *self._shard.individuals(cards, metrics), self._shard.evaluation_steps, stop)

    def evolve(self, shared: Shared, decide: Decide, champion: int | None) -> Evolved:
        """Decide for these members among all that are no further than they are.

        Where the state of a chosen parent is gone, or is not what its card says, the decision is taken again without it.
        """
        cards = shared.members
        states = [self._shard.snapshot(row) for row in range(len(cards.uid))]
        packed = [self._shard.pack(state) for state in states]
        largest = max(map(len, packed))
        packed = [filled(data, largest) for data in packed]
        generation, names, rows = int(cards.generation[0]), columns(cards), to_rows(cards, {}, [])
        while True:
            others = self._others(cards, generation, names, self._shard.packed_size)
            table = np.concatenate([rows, *(card.rows for card in others)])
            order = np.argsort(table[:, 0], kind="stable")  # by uid, so that the order is the same for every worker
            visible, _, _ = from_rows(table[order], cards, {})
            owner = np.repeat(np.arange(-1, len(others)), [len(rows), *(len(card.rows) for card in others)])
            start = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
            mine = np.argsort(order)[: len(rows)]
            evolution, decision = decide(visible, mine)
            if not isinstance(decision, Decision):
                raise BadField("method", "its evolver weighs members for a mean, which workers do not share")
            parents = order[decision.parents]  # rows of `table`
            try:
                foreign = {
                    i: self._workspace.read(others[owner[p]], int(p - start[owner[p] + 1]))
                    for i, p in enumerate(parents)
                    if owner[p] >= 0
                }
            except Lost:
                continue
            break
        local = np.where(owner[parents] >= 0, np.arange(len(rows)), parents)
        arrived = {i: self._shard.unpack(x) for i, x in foreign.items()}
        self._shard.apply(decision._replace(parents=local), arrived)
        learned: PyTree = None if champion is None else states[champion][0]
        publish = partial(self._workspace.publish, generation, names, rows, packed)
        chosen = visible.take(decision.parents)
        return Evolved(evolution, chosen, decision.hyper, learned, dict(decision.metrics), publish)

    def _others(self, cards: Cards, generation: int, names: list[str], size: int | None) -> list[Any]:
        """What others show who have done half as many generations or more: members of a worker that has ended, or has just
        begun, would be the worst for ever. A member that is there twice, in a copied folder perhaps, is seen once."""
        seen, others = set(cards.uid.tolist()), []
        for card in self._workspace.visible(generation, names, size):
            if not sound(card.rows, names, card.generation):
                self._workspace.reject(card, "its numbers are no card's")
                continue
            if 2 * (card.generation + 1) <= generation:
                continue
            uid = set(card.rows[:, 0].astype(np.int64).tolist())
            if seen & uid or len(uid) < len(card.rows):
                self._workspace.reject(card, "its members are another worker's")
            else:
                seen |= uid
                others.append(card)
        return others
