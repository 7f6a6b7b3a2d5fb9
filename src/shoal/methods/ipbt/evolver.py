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

import numpy as np

from shoal.core.evolution import Cards, Decision, Evolver, Explore, FirstValues, Range, Seed, Select
from shoal.core.keys import derive, draws
from shoal.methods.pb2.box import WHOLE
from shoal.methods.pb2.evolver import UNKNOWN, explorer, from_parents, located, observations, observed
from shoal.methods.pbt.evolver import inherit, pbt, selected
from shoal.methods.pbt.explore import Resample

KEPT, FRESH = 0.2, 0.1  # of the weights, in those that go on

# That of PB2 and, of members in order of uid: line int64 [N], whose line each is of since the beginning; began float64
# [N, D], with which hyperparameters a line began, in the unit scale, NaN until it is measured; reached [N], the highest
# fitness in it. beginnings [R, 3 + D]: the same of earlier ones, as observations; best [2 P]: the best fitness at each
# copying; pace: intervals from one copying to the next; waited: those since the last one; restarts: how often all began
# again
State = dict[str, np.ndarray]


def ipbt(
    select: Select,
    explore: Explore,
    space: dict[str, Range],
    start: dict[str, float],
    start_after: int,
    rows: int,
    patience: int,
    generations: int,
    first_values: FirstValues = "range",
) -> Evolver:
    """The evolver. patience: copyings over which fitness is averaged; generations: of the run, at whose end nobody begins
    again. The others are as those of `pb2`."""
    beginning = pbt(select, explore, space, start, 0, first_values).init

    def init(key: Seed, uid: np.ndarray) -> tuple[State, dict[str, np.ndarray]]:
        n, (_, hyper) = len(uid), beginning(key, uid)
        state = observations(n, rows, len(space)) | {
            "beginnings": observations(n, rows, len(space))["rows"],
            "best": np.full(2 * patience, np.nan),
            "pace": np.array(1),
            "waited": np.array(0),
            "restarts": np.array(0),
        }
        return state | _lines(n, len(space)), hyper

    def decide(key: Seed, state: State, cards: Cards, mine: np.ndarray) -> tuple[State, Decision]:
        order = np.argsort(cards.uid)
        sorted_cards, everybody = cards.take(order), np.arange(len(order))
        waited = int(state["waited"]) + 1
        if waited < state["pace"]:
            state = state | {"waited": np.array(waited)}
            if (lost := ~np.isfinite(sorted_cards.fitness)).any():
                state = observed(state, space, sorted_cards, everybody, lost)
                state = _begun(state, space, sorted_cards, lost)
                state, decision = _copy(key, state, sorted_cards, lost)
            else:
                decision = Decision(everybody, sorted_cards.hyper)
        else:
            state = observed(state | {"waited": np.array(0)}, space, sorted_cards, everybody)
            state = _begun(state, space, sorted_cards, np.ones(len(order), bool))
            state = _reached(state, sorted_cards)
            old, new = state["best"][:patience].mean(), state["best"][patience:].mean()
            stalled = new <= old  # false while there are too few, which are NaN
            left = generations - int(sorted_cards.generation.max()) - 1
            fits = 2 * (2 * int(state["pace"])) <= left  # two of the intervals that come then, or nobody could copy
            if stalled and fits and (sorted_cards.steps >= start_after).all():
                state, decision = _begin_again(key, state, sorted_cards)
            else:
                state, decision = _copy(key, state, sorted_cards, np.ones(len(order), bool))
        row = np.argsort(order)[mine]  # of each member, among those in order of uid
        own = {"ipbt/pace": float(state["pace"]), "ipbt/restarts": float(state["restarts"])}
        metrics = {**own, **UNKNOWN, "pb2/side": float(state["side"]), **decision.metrics}
        return state, decision.part(row, order[decision.parents[row]])._replace(metrics=metrics)

    def _copy(key: Seed, state: State, cards: Cards, who: np.ndarray) -> tuple[State, Decision]:
        """who: bool [N], the members that may copy."""
        everybody = np.arange(len(cards.uid))
        parents, explores = selected(select, key, cards, everybody, start_after)
        parents, explores = np.where(who, parents, everybody), explores & who
        side = float(state["side"])
        wise, metrics = explorer(explore, state["rows"], space, cards, everybody, parents, explores, side)
        hyper = inherit(wise, key, cards, everybody, parents, explores, space)
        after = from_parents(state, cards, everybody, parents, explores & (wise is not explore))
        after |= {name: np.where(who, after[name], state[name]) for name in ("before", "since", "tried")}
        return after | {"line": state["line"][parents]}, Decision(parents, hyper, metrics)

    def _begin_again(key: Seed, state: State, cards: Cards) -> tuple[State, Decision]:
        n = len(cards.uid)
        everybody, now = np.arange(n), int(state["restarts"])
        reached = np.where(np.isfinite(state["reached"]), state["reached"], -np.inf)
        ended = np.column_stack([np.full(n, now), np.zeros(n), reached, state["began"]])
        known = np.concatenate([state["beginnings"], ended])[-rows:]
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
            "best": np.full(2 * patience, np.nan),
            "pace": np.array(2 * int(state["pace"])),
            "restarts": np.array(now + 1),
        }
        return state, Decision(parents, hyper, renewed=renewed)

    return Evolver(init, decide)


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
