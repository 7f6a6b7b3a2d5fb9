"""Members of several structures: those of one train side by side as one program, and the structures in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from shoal.core.errors import BadField
from shoal.core.population import Decision, DistributionUpdate, PopulationStats, Seed, Values
from shoal.core.types import PyTree
from shoal.members.acting import Policy, PolicyFactory
from shoal.members.gradient_trained import GradientTrained
from shoal.members.protocol import Outcome, Setup, Shard
from shoal.members.shards import InTurn


class StructuredShard(InTurn):
    """Shards of several structures in turn, by the structure of each."""

    def __init__(self, kind: Structured, shards: dict[int, Any], rates: Sequence[int], chosen: Values, setup: Setup):
        """chosen: what members chose [N], by the name of the choice. rates: see `InTurn`."""
        super().__init__([*shards.values()], setup, rates)
        self._kind, self._chosen, self._setup = kind, chosen, setup

    def stats(self) -> PopulationStats:
        stats = super().stats()
        return stats._replace(hyper=stats.hyper | self._chosen)

    def apply(self, decision: Decision | DistributionUpdate, arrived: Mapping[int, PyTree]) -> dict[str, float]:
        hyper = {name: x for name, x in decision.hyper.items() if name not in self._chosen}
        return super().apply(decision._replace(hyper=hyper), arrived)

    def test(self, policies: Sequence[Policy], key: Seed, episodes: int, levels: str) -> Outcome:
        places = [self._kind.place(policy.hyper) for policy in policies]
        played: list[Any] = [None] * len(policies)
        steps = 0
        for place in sorted({*places}):
            rows = [row for row, other in enumerate(places) if other == place]
            with closing(self._kind.kinds[place].tester(self._setup)) as tester:
                outcome = tester.test([policies[row] for row in rows], key, episodes, levels)
            steps += outcome.steps
            for i, row in enumerate(rows):
                played[row] = outcome.returns[i], None if outcome.tie_breaker is None else outcome.tie_breaker[i]
        returns, tie_breaker = zip(*played, strict=True)
        return Outcome(np.stack(returns), steps, None if tie_breaker[0] is None else np.stack(tie_breaker))

    def state(self) -> list[PyTree]:
        states = super().state()
        for state, rows in zip(states, self._rows, strict=True):
            state["hyper"] = state["hyper"] | {name: x[rows] for name, x in self._chosen.items()}
        return states

    def restore(self, states: Sequence[PyTree], generation: int) -> None:
        own = [next(state for state in states if shard.uid[0] in state["uid"]) for shard in self._shards]
        total = sum(int(state["rest"]["counters"]["evaluation_steps"]) for state in states)
        super().restore(own, generation)
        self.count_evaluation(total - self.evaluation_steps)  # those of structures without members left too

    @property
    def compile_seconds(self) -> float:
        return sum(shard.compile_seconds for shard in self._shards)


class Structured(GradientTrained):
    """Members of several kinds, which differ in the structure of their agent.

    place: of the hyperparameters of a member, or [N] of several -> its structure, a place in `kinds`
    """

    def __init__(self, kinds: Sequence[GradientTrained], place: Callable[[Mapping[str, Any]], Any]):
        super().__init__(kinds[0].environment, kinds[0].learner, kinds[0].copies_replay)
        self.kinds, self.place = kinds, place
        self._rollouts = [kind.agent.rollout_length * kind.agent.num_envs for kind in kinds]  # steps of one, of each
        self._iteration = math.lcm(*self._rollouts)  # its steps: a whole number of rollouts of every structure
        limits = [kind.tunable.limits for kind in kinds]
        common = {x: (max(of[x][0] for of in limits), min(of[x][1] for of in limits)) for x in limits[0]}
        self.tunable = self.tunable._replace(limit_overrides=common)

    def policy_factory_for(self, hyper: Mapping[str, float]) -> PolicyFactory:
        return self.kinds[int(self.place(hyper))].policy_factory

    def memory(self, members: int) -> tuple[int, int]:
        return max(kind.memory(members) for kind in self.kinds)

    def interval(self, steps: int, generations: int, population: int) -> tuple[int, int]:
        each = [kind.interval(steps, generations, population)[1] for kind in self.kinds]
        if len({*each}) > 1:
            rounded = " and ".join(f"{x:,}" for x in sorted({*each}))
            raise BadField("interval", f"is rounded up to {rounded}", "take a multiple of all rollouts", value=steps)
        return each[0] // self._iteration, each[0]

    def shard(self, uids: Sequence[np.ndarray], setup: Setup) -> Shard:
        (uid,) = uids
        chosen = setup.chosen(uid)
        places = np.asarray(self.place(chosen))
        present = sorted({*places.tolist()})
        shards = {
            place: self.kinds[place].shard([uid[places == place]], setup._replace(structure=(setup.structure, place)))
            for place in present
        }
        order = np.concatenate([np.flatnonzero(places == place) for place in present])
        # All make the same steps in an iteration of the run: the shorter its rollouts, the more there are.
        rates = [self._iteration // self._rollouts[place] for place in present]
        return StructuredShard(self, shards, rates, {name: x[order] for name, x in chosen.items()}, setup)
