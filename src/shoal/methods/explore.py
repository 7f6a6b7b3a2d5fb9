"""Explorers: new hyperparameters from inherited ones. Each is a frozen dataclass, called as
`(key, hyper [N], space, uid [N]) -> hyper [N]`.

Only the names in `space` change. Every hyperparameter of every child has its own random numbers, which depend only on the
key, the name and the uid: two children of one parent differ at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoal.core.errors import BadField
from shoal.core.keys import derive, draws
from shoal.core.population import Seed, Values
from shoal.core.space import Range
from shoal.methods.ranges import perturb, sample, shift


@dataclass(frozen=True)
class Explorer:
    """Call `change` for each hyperparameter in the space, with four uniform random numbers per child."""

    changes: ClassVar[bool] = True  # children's hyperparameters differ from their parents'

    def change(self, r: Range, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """New values, float32 [N], from the inherited `x` [N] and random numbers `u` [N, 4], uniform in [0, 1)."""
        raise NotImplementedError

    def __call__(self, key: Seed, hyper: Values, space: dict[str, Range], uid: np.ndarray) -> Values:
        return {
            name: self.change(space[name], x, draws(derive(key, name), uid, 4)) if name in space else x
            for name, x in hyper.items()
        }


@dataclass(frozen=True)
class Perturb(Explorer):
    """Multiply by a random factor, or sometimes sample a new value (PBT, arXiv 1711.09846)."""

    factors: tuple[float, ...] = (0.8, 1.2)
    """one of these, chosen at random for each hyperparameter of each child"""
    resample_probability: float = 0.1
    """probability of a new value from the range instead"""

    def __post_init__(self) -> None:
        if not self.factors or not all(0 < f < np.inf for f in self.factors) or set(self.factors) == {1.0}:
            raise BadField("factors", "must be positive numbers, not all of them 1", value=self.factors)
        _probability("resample_probability", self.resample_probability)

    def change(self, r: Range, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        factor = np.array(self.factors)[(u[:, 1] * len(self.factors)).astype(int)]
        fresh = u[:, 0] < self.resample_probability
        return np.where(fresh, sample(r, u[:, 2]), perturb(r, x, factor, u[:, 3]))


@dataclass(frozen=True)
class Resample(Explorer):
    """Sample every hyperparameter of a child from its range (fastpbrl, arXiv 2206.08888)."""

    def change(self, r: Range, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        return sample(r, u[:, 0])


@dataclass(frozen=True)
class Mutate(Explorer):
    """Change some hyperparameters by a random factor (DexPBT, arXiv 2305.12127; defaults as in Isaac Lab).

    It multiplies or divides by a factor from `change_range`, each with probability 1/2 (`mutate_float` of Isaac Lab). In
    ranges with the scale one_minus_log it does so to 1 - x, by a factor from `discount_range` (`mutate_discount`).
    """

    mutation_rate: float = 0.25
    """probability that a hyperparameter changes"""
    change_range: tuple[float, float] = (1.1, 2.0)
    """smallest and largest factor; multiplies or divides, each with probability 1/2"""
    discount_range: tuple[float, float] = (1.1, 1.2)
    """the same for 1 - x, where the range's scale is one_minus_log"""

    def __post_init__(self) -> None:
        _probability("mutation_rate", self.mutation_rate)
        for which in ("change_range", "discount_range"):
            low, high = getattr(self, which)
            if not 1 <= low <= high < np.inf:
                raise BadField(which, "must be two numbers >= 1, the smaller first", value=(low, high))

    def change(self, r: Range, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        low, high = self.discount_range if r.scale == "one_minus_log" else self.change_range
        factor = low + (high - low) * u[:, 1]
        factor = np.where(u[:, 2] < 0.5, factor, 1 / factor)
        return np.where(u[:, 0] < self.mutation_rate, perturb(r, x, factor, u[:, 3]), x)


@dataclass(frozen=True)
class Gaussian(Explorer):
    """Add a normal step in the range's own scale, clipped at the bounds."""

    std: float = 0.1
    """standard deviation of the step, as a fraction of the range"""

    def __post_init__(self) -> None:
        if not 0 < self.std < np.inf:
            raise BadField("std", "must be positive", value=self.std)

    def change(self, r: Range, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        normal = np.sqrt(-2 * np.log1p(-u[:, 0])) * np.cos(2 * np.pi * u[:, 1])  # Box and Muller
        return shift(r, x, self.std * normal, u[:, 2])


@dataclass(frozen=True)
class NoExploration(Explorer):
    """Change nothing: children inherit hyperparameters as they are."""

    changes: ClassVar[bool] = False

    def change(self, r: Range, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        return x


EXPLORERS: dict[str, type[Explorer]] = {
    "perturb": Perturb,
    "resample": Resample,
    "mutate": Mutate,
    "gaussian": Gaussian,
    "none": NoExploration,
}


def _probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise BadField(name, "must lie between 0 and 1", value=value)
