"""Iterated population-based training (arXiv 2511.09190): PB2 that begins again, with longer steps, when nothing improves.

How often members should copy is the most delicate choice of PBT: often is greedy, seldom is slow. Here they copy after
every interval at first. When the best fitness no longer rises, all begin again, and from then on copy half as often:

    weights:          the upper half takes over members of the top quarter, of which the share 0.2 is left, with 0.1 of fresh
                      weights (shrink and perturb); the lower half is fresh altogether
    hyperparameters:  of every other member a random draw; of the rest what promises most, by how far those got whose line
                      began with given values, in this and earlier beginnings (the process of PB2, with beginnings as time)

The best fitness has stalled when its mean over the last `patience` copyings is not above that over as many before them; the
paper smooths with a Gaussian process instead. Nobody begins again where fewer than two of the longer intervals are left. The
champion is kept apart, so that beginning again costs steps alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from shoal.core.errors import BadField, check_least
from shoal.core.evolution import Cards, Decision, Init, PureEvolver, Range, Seed
from shoal.core.keys import derive, draws
from shoal.methods.explore import Resample
from shoal.methods.pb2 import UNKNOWN, WHOLE, Pb2, explorer, located, observed
from shoal.methods.pbt import inherit

if TYPE_CHECKING:
    from shoal.core.types import Tunable

KEPT, FRESH = 0.2, 0.1  # of the weights, in those that go on

# That of PB2 and, of members in order of uid: line int64 [N], whose line each is of since the beginning; began float64
# [N, D], with which hyperparameters a line began, in the unit scale, NaN until it is measured; reached [N], the highest
# fitness in it. beginnings [R, 3 + D]: the same of earlier ones, as observations; best [2 P]: the best fitness at each
# copying; pace: intervals from one copying to the next; waited: those since the last one; restarts: how often all began
# again
State = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Ipbt(Pb2):
    """Iterated population-based training: PB2 that begins again, and copies half as often, when fitness stalls."""

    patience: int = 4
    """copyings over which the best fitness is averaged; where the mean is not above that over as many before, all begin
    again"""

    renews: ClassVar[bool] = True
    title: ClassVar[str] = "iterated population-based training"
    tells: ClassVar[dict[str, str]] = {
        "ipbt/restarts": "how often all members have begun again",
        "ipbt/pace": "generations from one copying to the next",
        **Pb2.tells,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(1, self, "patience")

    def fit(self, agent: Tunable, population: int) -> None:
        super().fit(agent, population)
        if not getattr(agent, "weights", ()):
            problem = (
                "method ipbt mixes weights with fresh ones, and this agent does not say which of what it learns are"
            )
            raise BadField("agent", problem, "name the fields in its Agent.weights")

    def beginning(self, space: dict[str, Range], start: dict[str, float]) -> Init:
        first = super().beginning(space, start)

        def init(key: Seed, uid: np.ndarray) -> tuple[State, dict[str, np.ndarray]]:
            state, hyper = first(key, uid)
            state |= {
                "beginnings": state["rows"],
                "best": np.full(2 * self.patience, np.nan),
                "pace": np.array(1),
                "waited": np.array(0),
                "restarts": np.array(0),
            }
            return state | _lines(len(uid), len(space)), hyper

        return init

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> PureEvolver:
        def decide(key: Seed, state: State, cards: Cards, mine: np.ndarray) -> tuple[State, Decision]:
            order = np.argsort(cards.uid)
            cards, row, everybody = cards.take(order), np.argsort(order)[mine], np.arange(len(order))
            waited, pace = int(state["waited"]) + 1, int(state["pace"])
            due = waited >= pace
            who = ~np.isfinite(cards.fitness) | due
            state = state | {"waited": np.array(0 if due else waited)}
            left = generations - int(cards.generation.max()) - 1
            fits = 2 * (2 * pace) <= left  # two of the intervals that come then, or nobody could copy
            if who.any():
                state = observed(state, space, cards, everybody, who)
                state = _begun(state, space, cards, who)
            if due:
                state = _reached(state, cards)
            if due and self._stalled(state) and fits and (cards.steps >= self.start_after).all():
                state, decision = self._begin_again(key, state, space, cards)
            elif who.any():
                state, decision = self.copied(key, state, space, cards, everybody, who)
                state = state | {"line": state["line"][decision.parents]}
            else:
                decision = Decision(everybody, cards.hyper)
            own = {f"ipbt/{name}": float(state[name]) for name in ("pace", "restarts")}
            metrics = {**own, **UNKNOWN, "pb2/side": float(state["side"]), **decision.metrics}
            return state, decision.part(row, order[decision.parents[row]])._replace(metrics=metrics)

        return PureEvolver(self.beginning(space, start), decide)

    def _stalled(self, state: State) -> bool:
        """Whether the best fitness no longer rises; not while there are too few to say, which are NaN."""
        return bool(state["best"][self.patience :].mean() <= state["best"][: self.patience].mean())

    def _begin_again(self, key: Seed, state: State, space: dict[str, Range], cards: Cards) -> tuple[State, Decision]:
        n = len(cards.uid)
        everybody, now = np.arange(n), int(state["restarts"])
        reached = np.where(np.isfinite(state["reached"]), state["reached"], -np.inf)
        ended = np.column_stack([np.full(n, now), np.zeros(n), reached, state["began"]])
        known = np.concatenate([state["beginnings"], ended])[-self.rows :]
        random, luck = draws(derive(key, "restart"), cards.uid, 2).T
        best_first = np.lexsort((random, -np.where(np.isfinite(cards.fitness), cards.fitness, -np.inf)))
        upper, top = best_first[: n // 2], best_first[: max(1, n // 4)]
        top = top[np.isfinite(cards.fitness[top])]
        parents, renewed = everybody.copy(), dict.fromkeys(range(n), (0.0, 1.0))
        if len(top):
            parents[upper] = top[(luck[upper] * len(top)).astype(int)]
            renewed |= dict.fromkeys(upper.tolist(), (KEPT, FRESH))
        at_random = np.isin(everybody, best_first[::2])
        hyper = inherit(Resample(), key, cards, everybody, everybody, at_random, space)
        blank = cards._replace(fitness=np.zeros(n), generation=np.full(n, now), hyper=hyper)
        wise, _ = explorer(Resample(), known, space, blank, everybody, everybody, ~at_random, WHOLE)
        hyper = inherit(wise, key, blank, everybody, everybody, ~at_random, space)
        state = state | _lines(n, len(space))
        state |= {
            "before": np.full(n, np.nan),  # fresh weights go on from a fitness that nobody knows
            "since": cards.steps,
            "tried": np.zeros(n, bool),
            "beginnings": known,
            "best": np.full(2 * self.patience, np.nan),
            "pace": np.array(2 * int(state["pace"])),
            "restarts": np.array(now + 1),
        }
        return state, Decision(parents, hyper, renewed=renewed)

    def explanation(self, population: int) -> str:
        return (
            f"{super().explanation(population)} Whenever the best fitness no longer rose, all began again, half of them "
            "from what was left of good weights, and from then on copied half as often."
        )


def _lines(members: int, hyperparameters: int) -> State:
    """Every member begins a line of its own."""
    began, reached = np.full((members, hyperparameters), np.nan), np.full(members, np.nan)
    return {"line": np.arange(members), "began": began, "reached": reached}


def _begun(state: State, space: dict[str, Range], cards: Cards, who: np.ndarray) -> State:
    """The state after members in order of uid, those that `who` [N] says, have been measured for the first time in their
    lines."""
    at = located(space, cards.hyper, len(cards.uid))
    return state | {"began": np.where(np.isnan(state["began"]) & who[:, None], at, state["began"])}


def _reached(state: State, cards: Cards) -> State:
    """The state after members in order of uid have been measured."""
    finite, reached = np.isfinite(cards.fitness), state["reached"].copy()
    np.fmax.at(reached, state["line"][finite], cards.fitness[finite])
    best = cards.fitness[finite].max() if finite.any() else -np.inf
    return state | {"reached": reached, "best": np.append(state["best"][1:], best)}
