"""DvD-TD3 (Parker-Holder et al. 2020, arXiv 2002.00632): actors with shared critics, rewarded for diverse behaviour.

One update, for actors pi[1..N] and probe states x from the shared replay buffer, with λ = `hyper.diversity`:

    descend the loss of the critics, over a batch of each actor          as TD3
    b[i] = pi[i](x), the behaviour of an actor
    K[i, j] = exp(-|b[i] - b[j]|² / 2), with the mean over entries       equation 5
    every `policy_delay` updates:
        ascend (1 - λ) sum over i of Q1(s, pi[i](s)) + λ log det K
        move the target networks                                         as TD3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoal.agents.registry import AGENTS, LIMITED_BY, Declaration, td3_hyper
from shoal.core.errors import BadField, check_least
from shoal.core.keys import derive, draws
from shoal.core.population import Decision, PopulationStats, PureEvolver, Seed
from shoal.core.space import HyperparameterSpec, SearchSpace
from shoal.core.types import Agent, Learner, Tunable
from shoal.methods.method import Method, same_for_all

RATIO = HyperparameterSpec(
    "joint updates per step of a member: each of them takes a batch of every actor", least=0, limited_by=LIMITED_BY
)
DIVERSITY = HyperparameterSpec("lambda; the weight of the values is 1 - lambda", least=0, most=1)
HYPER = td3_hyper("DvdHyper", update_ratio=(1.0, RATIO), diversity=(0.5, DIVERSITY))

# wins and losses int64 [arms]; arm: the one of this generation; best: the best fitness of the one before, or NaN
State = dict[str, np.ndarray]


@dataclass(frozen=True)
class Dvd(Method):
    """DvD: actors with shared critics and replay buffer, rewarded for diverse behaviour.

    All learn from one critic and one replay buffer, and are rewarded not for return alone but also for behaving
    differently from one another; a bandit may choose anew for each generation how much that counts.
    """

    arms: tuple[float, ...] = (0.0, 0.5)
    """possible weights of diversity"""
    num_states: int = 20
    """states in which behaviours are compared"""
    resample_interval: int = 20
    """updates after which new states are sampled"""

    agents: ClassVar[dict[str, Declaration]] = {"td3": AGENTS["td3"]._replace(hyper=HYPER)}
    title: ClassVar[str] = "DvD"
    self_tuned: ClassVar[dict[str, str]] = {"diversity": "arms"}

    def __post_init__(self) -> None:
        check_least(1, self, "num_states", "resample_interval")
        if not self.arms or not all(0 <= arm <= 1 for arm in self.arms):
            raise BadField("arms", "needs numbers, each between 0 and 1", value=list(self.arms))

    def validate(self, agent: Tunable, population: int) -> None:
        if population < 2:
            raise BadField("population", "method dvd compares members", "it needs at least 2", value=population)

    def learner(self, agent: Agent, population: int) -> Learner:
        """Make T x B x `update_ratio` joint updates after a rollout of T steps in B environments of every member.

        Every actor learns as often as if it were alone, as in the paper. `config.buffer_size` and
        `config.learning_starts` count the steps of all members. Raises BadInput where the agent is not TD3.
        """
        from shoal.methods.dvd_learner import DvdLearner

        return DvdLearner(agent, HYPER, population, self.num_states, self.resample_interval).learner()

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        """Thompson sampling of `hyper.diversity` (section 4), equal for all: an arm wins when the best fitness rises."""

        def hyper(state: State, like: dict[str, np.ndarray], members: int) -> dict[str, np.ndarray]:
            return like | {"diversity": np.full(members, self.arms[int(state["arm"])], np.float32)}

        def pull(key: Seed, state: State) -> State:
            return state | {"arm": np.array(thompson(derive(key, "arm"), state["wins"], state["losses"]))}

        def init(key: Seed, uid: np.ndarray) -> tuple[State, dict[str, np.ndarray]]:
            none = np.zeros(len(self.arms), np.int64)
            state = pull(key, {"wins": none, "losses": none, "best": np.array(np.nan)})
            return state, hyper(state, same_for_all(search.fixed, len(uid)), len(uid))

        def decide(key: Seed, state: State, stats: PopulationStats, rows: np.ndarray) -> tuple[State, Decision]:
            own = stats.fitness[rows]
            finite = own[np.isfinite(own)]
            if not np.isnan(state["best"]):  # in the first generation there is no fitness to compare with
                won = bool(len(finite)) and bool(finite.max() > state["best"])
                side = "wins" if won else "losses"
                state = state | {side: state[side] + (np.arange(len(self.arms)) == state["arm"])}
            if len(finite):
                state = state | {"best": np.array(finite.max(), np.float64)}
            state = pull(key, state)
            values = {name: x[rows] for name, x in stats.hyper.items()}
            return state, Decision(rows, hyper(state, values, len(rows)))

        return PureEvolver(init, decide)


def thompson(key: Seed, wins: np.ndarray, losses: np.ndarray) -> int:
    """Return the arm with the highest probability of winning, sampled from its posterior Beta(1 + wins, 1 + losses).

    A sample is the (1 + wins)-th smallest of 1 + wins + losses uniform numbers.
    """
    chances = []
    for arm, (won, lost) in enumerate(zip(wins, losses, strict=True)):
        uniform = draws(derive(key, arm), np.zeros(1, np.int64), int(1 + won + lost))[0]
        chances.append(np.sort(uniform)[int(won)])
    return int(np.argmax(chances))
