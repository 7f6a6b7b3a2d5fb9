"""Population-based training (Jaderberg et al., arXiv 1711.09846): select, inherit, explore."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from shoal.core.errors import STRUCTURE, BadField, check_least, type_in_words
from shoal.core.keys import derive
from shoal.core.population import Decision, Explore, Init, PopulationStats, PureEvolver, Seed, Select, Values
from shoal.core.space import Range, SearchSpace
from shoal.core.types import Tunable
from shoal.core.user_code import call_own
from shoal.methods.independent import Tuning
from shoal.methods.ranges import nearest
from shoal.methods.select import Selector


@dataclass(frozen=True, kw_only=True)
class Copying(Tuning):
    """Base of the methods whose members copy better ones."""

    explore: Any = "perturb"
    """how children's hyperparameters change: perturb, resample, mutate, gaussian or none"""
    replay: Literal["keep", "copy"] = "keep"
    """replay buffer of a child (td3, sac, dqn): its own (keep), or its parent's (copy)"""

    @property
    def copies(self) -> bool:
        return True

    @property
    def explanation(self) -> str:
        alone = "" if self.copies else " With these options no member copies another: each keeps its own weights."
        return super().explanation + alone

    def initial_values(self, search: SearchSpace) -> Init:
        init = super().initial_values(search)
        # Try the explorer now, so that an error comes before the first interval.
        one = np.zeros(1, np.int64)
        _explored(self.explore, (), init((), one)[1], search.ranges, one)
        return init


@dataclass(frozen=True, kw_only=True)
class Selecting(Copying):
    """Base of the methods with a selector."""

    select: Any = "truncation"
    """who copies whom: truncation, winner_takes_all, tournament, threshold, t_test or none"""
    burn_in: int = 0
    """environment steps of a member before it may copy or explore"""

    def __post_init__(self) -> None:
        check_least(0, self, "burn_in")

    @property
    def copies(self) -> bool:
        return getattr(self.select, "copies", True)

    def advice(self, members: int, episodes: int) -> str:
        return self.select.advice(members, episodes) if isinstance(self.select, Selector) else ""

    def validate(self, agent: Tunable, population: int) -> None:
        if population < (least := min_population(self.select)):
            problem = f"selection by {type(self.select).__name__} needs at least {least}"
            raise BadField("population", problem, "for a single agent write method: independent", value=population)

    def selected(self, key: Seed, stats: PopulationStats, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parents int64 [N], and which members explore, bool [N]; during the burn-in neither, except that a member without a
        finite fitness copies one that has it.

        Raises BadInput where the selector fails, or gives anything else.
        """
        selection = call_own("method.select", _name(self.select), self.select, derive(key, "select"), stats, rows)
        if not isinstance(selection, tuple) or len(selection) != 2:
            raise BadField("method.select", f"it gave {type_in_words(selection)}", "it must give a Selection")
        shape, visible = rows.shape, len(stats.uid)
        parents, explores = (np.asarray(x) for x in selection)
        whole = parents.dtype.kind in "iu" and explores.dtype.kind == "b" and parents.shape == explores.shape == shape
        if not whole or not ((parents >= 0) & (parents < visible)).all():
            problem = f"of {len(rows)} members each needs a parent among the {visible} rows of the stats"
            raise BadField("method.select", problem)
        if not self.copies and (copying := np.flatnonzero(parents != rows)).size:
            child, parent = stats.uid[rows[copying[0]]], stats.uid[parents[copying[0]]]
            problem = f"it has member {child} copy member {parent}, and says copies = False"
            raise BadField("method.select", problem, "remove copies there, or give each member itself as its parent")
        finite = np.isfinite(stats.fitness)
        ready = (stats.steps[rows] >= self.burn_in) | (~finite[rows] & finite[parents])
        return np.where(ready, parents, rows), explores & ready


@dataclass(frozen=True, kw_only=True)
class Pbt(Selecting):
    """Population-based training: members copy better ones, and explore hyperparameters.

    Weak members then give up their weights, copy those of a stronger member together with its hyperparameters, and go
    on with slightly changed values.
    """

    default_members: float = 0.0
    """share of members that hold the default hyperparameters, copy nobody and are not explored"""

    title: ClassVar[str] = "population-based training"

    @property
    def explanation(self) -> str:
        defaults = (
            " Members with the default hyperparameters copy nobody." if self.copies and self.default_members else ""
        )
        return super().explanation + defaults

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.default_members < 1:
            raise BadField("default_members", "must lie within [0, 1)", value=self.default_members)

    def defaults_among(self, members: int) -> int:
        """Number of members with default hyperparameters: the share, rounded down, but at least one."""
        return max(1, int(self.default_members * members + 1e-9)) if self.default_members else 0

    def too_few_tuned(self, population: int) -> bool:
        return self.copies and population - self.defaults_among(population) < min_population(self.select)

    def holds_defaults(self, uid: np.ndarray, population: int) -> np.ndarray:
        """Mark the members with default hyperparameters, bool [N]: the first of each population."""
        return uid % population < self.defaults_among(population)

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        sampled = self.initial_values(search)

        def init(key: Seed, uid: np.ndarray) -> tuple[Any, Values]:
            state, hyper = sampled(key, uid)
            default = self.holds_defaults(uid, population)
            for name, value in search.defaults.items():
                hyper[name] = np.where(default, np.float32(value), hyper[name])
            return state, hyper

        def decide(key: Seed, state: Any, stats: PopulationStats, rows: np.ndarray) -> tuple[Any, Decision]:
            tuned = np.flatnonzero(~self.holds_defaults(stats.uid, population))
            parents, explores = rows.copy(), np.zeros(len(rows), bool)
            here = np.isin(rows, tuned)
            if here.any() and len(tuned) >= min_population(self.select):
                found, explores[here] = self.selected(key, stats.take(tuned), np.searchsorted(tuned, rows[here]))
                parents[here] = tuned[found]
            return state, Decision(parents, inherit(self.explore, key, stats, rows, parents, explores, search.ranges))

        return PureEvolver(init, decide)


def min_population(select: Any) -> int:
    """The smallest population that a selector can select from."""
    return getattr(select, "min_population", 1)


def inherit(
    explore: Explore,
    key: Seed,
    stats: PopulationStats,
    rows: np.ndarray,
    donors: np.ndarray,
    explores: np.ndarray,
    space: dict[str, Range],
) -> Values:
    """The hyperparameters [N] that members go on with: those of their donors, int64 [N], changed where one explores.

    rows: int64 [N], the members to decide for. explores: bool [N]. Raises BadInput where the explorer fails, or gives
    anything else.
    """
    hyper = {name: values[donors] for name, values in stats.hyper.items()}
    if len(exploring := np.flatnonzero(explores)):
        taken = {name: values[exploring] for name, values in hyper.items()}
        changed = _explored(explore, derive(key, "explore"), taken, space, stats.uid[rows[exploring]])
        for name, values in changed.items():
            hyper[name][exploring] = values
    return hyper


def _explored(explore: Explore, key: Seed, hyper: Values, space: dict[str, Range], uid: np.ndarray) -> Values:
    """New values [N] of the same names, within their ranges, but for the structure of a member, which stays as it is.

    Raises BadInput where the explorer fails, or gives anything else.
    """
    hyper = {name: values for name, values in hyper.items() if not name.startswith(STRUCTURE)}
    space = {name: r for name, r in space.items() if name in hyper}
    changed = call_own("method.explore", _name(explore), explore, key, hyper, space, uid)
    if not isinstance(changed, dict) or changed.keys() != hyper.keys():
        problem = f"it gave {type_in_words(changed)}"
        raise BadField("method.explore", problem, "it must give a dict of all hyperparameters")
    numbers = {name: np.asarray(values) for name, values in changed.items()}
    for name, x in numbers.items():
        if x.dtype.kind not in "biuf" or x.shape not in ((), uid.shape) or not np.isfinite(x).all():
            raise BadField("method.explore", f"of {len(uid)} members each needs one finite number as its {name}")
    return {name: nearest(space[name], x) if name in space else x for name, x in numbers.items()}


def _name(part: Select | Explore) -> str:
    kind: Any = part if hasattr(part, "__qualname__") else type(part)
    return f"{kind.__module__}:{kind.__qualname__}"
