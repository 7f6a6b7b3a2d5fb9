"""Islands of one population that the workers of a shared directory measure together."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from shoal.exchanges.returns import Returns
from shoal.islands.drawn import MEASURED, DrawnIsland
from shoal.islands.group import Group


class Pool(Group):
    """A group in which every worker has all islands, but measures only those that nobody else does.

    As members are drawn from keys, and the mean's step from returns, all workers go on with the same mean. The mean
    itself is measured by each of them.
    """

    def __init__(self, first: DrawnIsland, uids: list[np.ndarray], pause: Callable, returns: Returns):
        super().__init__(first, uids, pause)
        self._returns = returns

    def evaluate(self, generation: int) -> None:
        islands = [cast(DrawnIsland, island) for island in self._islands]
        measured: DrawnIsland | None = None
        shape = len(islands[0].uid), MEASURED  # all parts have as many members
        for part in self._returns.to_measure(generation, len(islands), shape):
            island = islands[part]
            island.wake()
            island.evaluate(generation)
            self._returns.publish(generation, part, island.measured())
            self._rest(island)
            measured = measured or island
        assert measured is not None
        for part, island in enumerate(islands):
            rows = self._returns.read(generation, part, shape)
            assert rows is not None
            island.accept(generation, rows, measured)
