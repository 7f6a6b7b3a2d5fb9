"""Shards of one population that the workers of a shared directory measure together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shoal.distributed.returns import Returns
from shoal.members.search_shard import MEASURED, SearchShard
from shoal.members.shards import Shards


class SharedEvaluation(Shards[SearchShard]):
    """A group in which every worker has all shards, but measures only those that no other worker measures.

    Members derive from keys, and the mean's step from the returns, so that all workers have the same mean. Each of them
    measures the mean itself.
    """

    def __init__(self, first: SearchShard, uids: Sequence[np.ndarray], pause: Callable, returns: Returns):
        super().__init__(first, uids, pause)
        self._returns = returns

    def evaluate(self, generation: int) -> dict[str, np.ndarray]:
        shards = self._shards
        measured: SearchShard | None = None
        shape = len(shards[0].uid), MEASURED  # all parts have as many members
        for part in self._returns.to_measure(generation, len(shards), shape):
            shard = shards[part]
            shard.to_device()
            shard.evaluate(generation)
            self._returns.publish(generation, part, shard.measured())
            self._make_room(shard)
            measured = measured or shard
        assert measured is not None
        for part, shard in enumerate(shards):
            shard.accept(generation, self._returns.rows[part], measured)
        return {}
