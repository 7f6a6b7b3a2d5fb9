"""Around the values of its parent, the box in which a child's hyperparameters are looked for.

The upper bound of a process is highest where nothing has been tried, and in many dimensions that is the edge of the space,
whatever pays. So only a box around known values is searched, as in TuRBO (arXiv 1910.01739), and in BG-PBT (arXiv
2207.09405) for children in PBT. Those grow it after some successes on end and shrink it after some failures; here each
child counts at once, as in the success rules of evolution strategies: its side becomes longer by a quarter where the child
gained more than the median of its generation, and shorter by a third where it gained less. Two successes of three hold it,
so that chance, which gives every second, makes it small.
"""

from __future__ import annotations

import numpy as np

from shoal.core.evolution import Range
from shoal.methods.ranges import places

# Of the side, in the unit scale: at first, and its bounds. The smallest box moves a value as far as PBT's factors do; the
# whole space lies within the last one.
SIDE, SHORTEST, LONGEST, WHOLE = 0.2, 0.05, 1.6, 2.0
GROWTH, SHRINKAGE = 1.25, 2 / 3


def resized(side: np.ndarray, gained: np.ndarray) -> np.ndarray:
    """The side after children have gained so much more than the median of their generation, [N]; -inf: it diverged."""
    wins, losses = np.sum(gained > 0), np.sum(gained < 0)
    return np.clip(side * GROWTH**wins * SHRINKAGE**losses, SHORTEST, LONGEST)


def around(space: dict[str, Range], hyper: dict[str, float], side: float) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest places in the unit scale, [D] each. Whole numbers and ordered choices reach their
    neighbours at least; choices without an order are free."""
    centre, reach = np.empty(len(space)), np.full(len(space), side / 2)
    for i, (name, r) in enumerate(space.items()):
        x = hyper[name]
        below, centre[i], above = places(r, np.array([x - 1, x, x + 1]))
        if r.choices is not None:
            reach[i] = max(reach[i], 1 / (len(r.choices) - 1)) if r.ordered else 1
        elif r.integer:
            reach[i] = max(reach[i], centre[i] - below, above - centre[i])
    return np.maximum(centre - reach, 0), np.minimum(centre + reach, 1)
