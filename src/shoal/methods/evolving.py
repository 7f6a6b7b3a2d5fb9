"""Population-based training and its successors: methods whose members copy better ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from shoal.core.errors import BadField
from shoal.core.evolution import FirstValues
from shoal.methods.method import Independent
from shoal.methods.pbt.explore import Perturb

if TYPE_CHECKING:
    from shoal.core.evolution import Evolver, Range
    from shoal.core.types import Tunable


@dataclass(frozen=True)
class Pbt(Independent):
    """Population-based training: members copy better ones, and explore hyperparameters."""

    select: Any = "truncation"
    """who copies whom: truncation, winner_takes_all, tournament, threshold, t_test or keep"""
    explore: Any = "perturb"
    """how children's hyperparameters change: perturb, resample, mutate, gaussian or keep"""
    start_after: int = 0
    """environment steps of a member before it may copy or explore"""
    first_values: FirstValues = "range"
    """where members begin: range (anywhere in the range of each hyperparameter), usual (at its usual value) or half (half of
    them there)"""
    memory: Literal["own", "copy"] = "own"
    """replay memory of a child (td3, sac, dqn): it keeps its own, or takes over its parent's (copy)"""

    copies: ClassVar[bool] = True
    title: ClassVar[str] = "population-based training"

    def __post_init__(self) -> None:
        if self.start_after < 0:
            raise BadField("start_after", "must be at least 0", value=self.start_after)

    def fit(self, agent: Tunable, population: int) -> None:
        if population < (needs := getattr(self.select, "needs", 1)):
            raise BadField(
                "population",
                f"selection by {type(self.select).__name__} needs at least {needs}",
                "for a single agent write method: seeds",
                value=population,
            )

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> Evolver:
        from shoal.methods.pbt.evolver import pbt

        return pbt(self.select, self.explore, space, start, self.start_after, self.first_values)

    def space(self, agent: Tunable) -> dict[str, Range]:
        return agent.space

    def explanation(self, population: int) -> str:
        return (
            "Weak members then gave up their weights, copied those of a stronger member together with its "
            "hyperparameters, and went on with slightly changed values."
        )


@dataclass(frozen=True)
class MfPbt(Independent):
    """Population-based training in sub-populations, each with a period of its own; the best migrate between them."""

    periods: tuple[int, ...] = (1, 10, 25, 50)
    """of each sub-population, the generations from one copying to the next; member `uid` is in that of uid modulo their
    number"""
    explore: Any = Perturb(factors=(0.8, 1.25), resample_probability=0.0)
    """how children's hyperparameters change: perturb, resample, mutate, gaussian or keep"""
    first_values: FirstValues = "range"
    """where members begin: range (anywhere in the range of each hyperparameter), usual (at its usual value) or half (half of
    them there)"""
    memory: Literal["own", "copy"] = "own"
    """replay memory of a child (td3, sac, dqn): it keeps its own, or takes over its parent's (copy)"""

    copies: ClassVar[bool] = True
    title: ClassVar[str] = "population-based training at several paces"
    tells: ClassVar[dict[str, str]] = {
        "mf_pbt/evolving": "sub-populations that evolved",
        "mf_pbt/migrants": "members that took over the weights of one of another sub-population",
    }

    def __post_init__(self) -> None:
        if not self.periods or min(self.periods) < 1:
            raise BadField("periods", "needs one at least, and each must be at least 1", value=list(self.periods))

    def fit(self, agent: Tunable, population: int) -> None:
        least = 2 * len(self.periods)
        if population < least:
            problem = f"its {len(self.periods)} sub-populations need at least {least} members, and better twice as many"
            raise BadField("population", problem, "or give fewer method.periods", value=population)

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> Evolver:
        from shoal.methods.mf_pbt.evolver import mf_pbt

        return mf_pbt(self.explore, space, start, self.periods, self.first_values)

    def space(self, agent: Tunable) -> dict[str, Range]:
        return agent.space

    def explanation(self, population: int) -> str:
        paces = ", ".join(str(period) for period in self.periods)
        return (
            f"Members live in {len(self.periods)} sub-populations, which evolve every {paces} generations: the weakest "
            "quarter of one then copied its best and explored, and the next quarter took over better members of others."
        )


@dataclass(frozen=True)
class Pb2(Pbt):
    """Population-based bandits: PBT that learns from all its copies which hyperparameters pay."""

    rows: int = 100
    """the newest intervals of members, from which the bandit learns; more than there are hyperparameters"""

    title: ClassVar[str] = "population-based bandits"
    tells: ClassVar[dict[str, str]] = {
        "pb2/length": "how far apart hyperparameters tell of one another, in shares of their ranges",
        "pb2/forgetting": "share of what was learned that one generation makes old",
        "pb2/noise": "what hyperparameters do not explain of the change of fitness, as a multiple of what they do",
        "pb2/side": "how wide the box is in which children's values are looked for, in shares of their ranges",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows < 2:
            raise BadField("rows", "must be at least 2", value=self.rows)

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> Evolver:
        from shoal.methods.pb2.evolver import pb2

        self._check_rows(space)
        return pb2(self.select, self.explore, space, start, self.start_after, self.rows, self.first_values)

    def _check_rows(self, space: dict[str, Range]) -> None:
        """Raise BadInput where there would never be enough of them to learn from."""
        if self.rows <= len(space):
            problem = f"must be more than the {len(space)} hyperparameters of the space"
            raise BadField("method.rows", problem, value=self.rows)

    def explanation(self, population: int) -> str:
        return (
            "Weak members then gave up their weights, copied those of a stronger member, and went on with hyperparameters "
            f"that promised most, by what the last {self.rows} intervals of members had gained with theirs."
        )


@dataclass(frozen=True)
class Ipbt(Pb2):
    """Iterated population-based training: PB2 that begins again, and copies half as often, when fitness stalls."""

    patience: int = 4
    """copyings over which the best fitness is averaged; where the mean is not above that over as many before, all begin
    again"""

    trainers: ClassVar[bool] = False
    workers: ClassVar[bool] = False
    title: ClassVar[str] = "iterated population-based training"
    tells: ClassVar[dict[str, str]] = {
        "ipbt/restarts": "how often all members have begun again",
        "ipbt/pace": "generations from one copying to the next",
        **Pb2.tells,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience < 1:
            raise BadField("patience", "must be at least 1", value=self.patience)

    def fit(self, agent: Tunable, population: int) -> None:
        super().fit(agent, population)
        if not getattr(agent, "weights", ()):
            problem = (
                "method ipbt mixes weights with fresh ones, and this agent does not say which of what it learns are"
            )
            raise BadField("agent", problem, "name the fields in its Agent.weights")

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> Evolver:
        from shoal.methods.ipbt.evolver import ipbt

        self._check_rows(space)
        return ipbt(
            self.select,
            self.explore,
            space,
            start,
            self.start_after,
            self.rows,
            self.patience,
            generations,
            self.first_values,
        )

    def explanation(self, population: int) -> str:
        return (
            f"{super().explanation(population)} Whenever the best fitness no longer rose, all began again, half of them "
            "from what was left of good weights, and from then on copied half as often."
        )
