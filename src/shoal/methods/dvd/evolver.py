"""The weight of diversity, chosen for each generation by a bandit (DvD, arXiv 2002.00632, section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.core.errors import BadField
from shoal.core.evolution import Cards, Decision, Evolver, Seed
from shoal.core.keys import derive, draws

# wins and losses int64 [arms]; arm: the one of this generation; best: the best fitness of the one before, or NaN
State = dict[str, np.ndarray]


def bandit(start: dict[str, float], arms: Sequence[float] = (0.0, 0.5)) -> Evolver:
    """Thompson sampling of `hyper.diversity`, equal for all members: an arm wins when the best fitness rises.

    start: values of all other hyperparameters. arms: the values to choose from
    """
    if not arms or not all(0 <= arm <= 1 for arm in arms):
        raise BadField("method.arms", "needs numbers, each within 0 and 1", value=list(arms))

    def hyper(state: State, like: dict[str, np.ndarray], members: int) -> dict[str, np.ndarray]:
        return like | {"diversity": np.full(members, arms[int(state["arm"])], np.float32)}

    def pull(key: Seed, state: State) -> State:
        return state | {"arm": np.array(thompson(derive(key, "arm"), state["wins"], state["losses"]))}

    def init(key: Seed, uid: np.ndarray) -> tuple[State, dict[str, np.ndarray]]:
        none = np.zeros(len(arms), np.int64)
        state = pull(key, {"wins": none, "losses": none, "best": np.array(np.nan)})
        values = {name: np.full(len(uid), value, np.float32) for name, value in start.items()}
        return state, hyper(state, values, len(uid))

    def decide(key: Seed, state: State, cards: Cards, mine: np.ndarray) -> tuple[State, Decision]:
        own = cards.fitness[mine]
        finite = own[np.isfinite(own)]
        if not np.isnan(state["best"]):  # in the first generation there is no fitness to compare with
            won = bool(len(finite)) and bool(finite.max() > state["best"])
            side = "wins" if won else "losses"
            state = state | {side: state[side] + (np.arange(len(arms)) == state["arm"])}
        if len(finite):
            state = state | {"best": np.array(finite.max(), np.float64)}
        state = pull(key, state)
        values = {name: x[mine] for name, x in cards.hyper.items()}
        return state, Decision(mine, hyper(state, values, len(mine)))

    return Evolver(init, decide)


def thompson(key: Seed, wins: np.ndarray, losses: np.ndarray) -> int:
    """The arm whose probability of winning, sampled from its posterior Beta(1 + wins, 1 + losses), is the highest.

    Such a sample is the (1 + wins)-th smallest of 1 + wins + losses uniform numbers.
    """
    chances = []
    for arm, (won, lost) in enumerate(zip(wins, losses, strict=True)):
        uniform = draws(derive(key, arm), np.zeros(1, np.int64), int(1 + won + lost))[0]
        chances.append(np.sort(uniform)[int(won)])
    return int(np.argmax(chances))
