"""Population-based training (Jaderberg et al., arXiv 1711.09846): select, inherit, explore."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from shoal.core.errors import BadField, check_least
from shoal.core.evolution import Cards, Decision, Explore, FirstValues, Init, PureEvolver, Range, Seed, Select
from shoal.core.keys import derive
from shoal.core.user_code import call_own
from shoal.methods.method import Method
from shoal.methods.seeds import Tuning
from shoal.methods.survivors import Shrinking, odd

if TYPE_CHECKING:
    from shoal.core.types import Tunable

MANY = 8  # members of which half are still a population; one of so many survives
ENOUGH = 8  # generations for a population that halves three times, and for the one that is left


@dataclass(frozen=True, kw_only=True)
class Copying(Tuning):
    """What the methods whose members copy better ones have in common."""

    explore: Any = "perturb"
    """how children's hyperparameters change: perturb, resample, mutate, gaussian or keep"""
    memory: Literal["own", "copy"] = "own"
    """replay memory of a child (td3, sac, dqn): it keeps its own, or takes over its parent's (copy)"""

    copies: ClassVar[bool] = True

    def beginning(self, space: dict[str, Range], start: dict[str, float]) -> Init:
        init = super().beginning(space, start)
        # Try the explorer now, so that an error comes before the first interval.
        _explored(self.explore, (), init((), np.zeros(1, np.int64))[1], space, np.zeros(1, np.int64))
        return init


@dataclass(frozen=True, kw_only=True)
class Selecting(Copying):
    """What the methods have in common that a selector decides for."""

    select: Any = "truncation"
    """who copies whom: truncation, winner_takes_all, tournament, threshold, t_test or keep"""
    start_after: int = 0
    """environment steps of a member before it may copy or explore"""

    def __post_init__(self) -> None:
        check_least(0, self, "start_after")

    def fit(self, agent: Tunable, population: int) -> None:
        if population < (needs := getattr(self.select, "needs", 1)):
            raise BadField(
                "population",
                f"selection by {type(self.select).__name__} needs at least {needs}",
                "for a single agent write method: seeds",
                value=population,
            )

    def selected(self, key: Seed, cards: Cards, mine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parents int64 [N], and which members explore, bool [N]; before `start_after` steps neither, except that a member
        without a finite fitness copies one that has it.

        Raises BadInput where the selector fails, or gives anything else.
        """
        selection = call_own("method.select", _name(self.select), self.select, derive(key, "select"), cards, mine)
        if not isinstance(selection, tuple) or len(selection) != 2:
            raise BadField("method.select", f"it gave a {type(selection).__name__}", "it must give a Selection")
        shape, visible = mine.shape, len(cards.uid)
        parents, explores = (np.asarray(x) for x in selection)
        whole = parents.dtype.kind in "iu" and explores.dtype.kind == "b" and parents.shape == explores.shape == shape
        if not whole or not ((parents >= 0) & (parents < visible)).all():
            problem = f"of {len(mine)} members each needs a parent among the {visible} rows of the cards"
            raise BadField("method.select", problem)
        finite = np.isfinite(cards.fitness)
        ready = (cards.steps[mine] >= self.start_after) | (~finite[mine] & finite[parents])
        return np.where(ready, parents, mine), explores & ready


@dataclass(frozen=True, kw_only=True)
class Pbt(Selecting, Shrinking):
    """Population-based training: members copy better ones, and explore hyperparameters."""

    first_values: FirstValues | None = None  # type: ignore[assignment]
    """where members begin: range (anywhere in the range of each hyperparameter), usual (at its usual value) or half (half of
    them there, which keep these values and copy nobody, while the others copy one another); by default half of 8 members and
    more, where something is tuned and no range has a start, of which an eighth survives; and range elsewhere"""

    title: ClassVar[str] = "population-based training"

    def settled(self, population: int, space: dict[str, Range] | None, generations: int | None) -> Method:
        found = self
        if self.first_values is None:
            anywhere = space is None or (space and all(r.start is None for r in space.values()))
            half = population >= MANY and anywhere
            found = replace(self, first_values="half" if half else "range")
            if half and self.survivors is None and generations is not None and generations >= ENOUGH:
                found = replace(found, survivors=population // MANY)
        return super(Pbt, found).settled(population, space, generations)

    def selected(self, key: Seed, cards: Cards, mine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same, where half of them began at the usual values in the other half alone."""
        if self.first_values != "half":
            return super().selected(key, cards, mine)
        parents, explores, rows = mine.copy(), np.zeros(len(mine), bool), np.flatnonzero(odd(cards.uid))
        here = np.isin(mine, rows)
        if here.any():
            found, explores[here] = super().selected(key, cards.take(rows), np.searchsorted(rows, mine[here]))
            parents[here] = rows[found]
        return parents, explores

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> PureEvolver:
        def decide(key: Seed, state: Any, cards: Cards, mine: np.ndarray) -> tuple[Any, Decision]:
            parents, explores = self.selected(key, cards, mine)
            return state, Decision(parents, inherit(self.explore, key, cards, mine, parents, explores, space))

        return PureEvolver(self.beginning(space, start), decide)

    def explanation(self, population: int) -> str:
        told = (
            "Weak members then gave up their weights, copied those of a stronger member together with its "
            "hyperparameters, and went on with slightly changed values."
        )
        apart = " Half of the members took no part in this: they began at the usual values and kept them."
        return told + (apart if self.first_values == "half" else "") + super().explanation(population)


def inherit(
    explore: Explore,
    key: Seed,
    cards: Cards,
    mine: np.ndarray,
    donors: np.ndarray,
    explores: np.ndarray,
    space: dict[str, Range],
) -> dict[str, np.ndarray]:
    """The hyperparameters [N] that members go on with: those of their donors, int64 [N], changed where one explores.

    mine: int64 [N], the rows of the members. explores: bool [N]. Raises BadInput where the explorer fails, or gives
    anything else.
    """
    hyper = {name: values[donors] for name, values in cards.hyper.items()}
    if len(rows := np.flatnonzero(explores)):
        taken = {name: values[rows] for name, values in hyper.items()}
        changed = _explored(explore, derive(key, "explore"), taken, space, cards.uid[mine[rows]])
        for name, values in changed.items():
            hyper[name][rows] = values
    return hyper


def _explored(
    explore: Explore, key: Seed, hyper: dict[str, np.ndarray], space: dict[str, Range], uid: np.ndarray
) -> dict[str, np.ndarray]:
    """New values [N] of the same names. Raises BadInput where the explorer fails, or gives anything else."""
    changed = call_own("method.explore", _name(explore), explore, key, hyper, space, uid)
    if not isinstance(changed, dict) or changed.keys() != hyper.keys():
        problem = f"it gave a {type(changed).__name__}"
        raise BadField("method.explore", problem, "it must give a dict of all hyperparameters")
    numbers = {name: np.asarray(values) for name, values in changed.items()}
    for name, x in numbers.items():
        if x.dtype.kind not in "biuf" or x.shape not in ((), uid.shape):
            raise BadField("method.explore", f"of {len(uid)} members each needs one number as its {name}")
    return numbers


def _name(part: Select | Explore) -> str:
    kind: Any = part if hasattr(part, "__qualname__") else type(part)
    return f"{kind.__module__}:{kind.__qualname__}"
