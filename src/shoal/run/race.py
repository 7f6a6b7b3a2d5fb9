"""More episodes for members about whom a decision is in doubt, before it is made."""

from __future__ import annotations

import numpy as np

from shoal.core.keys import derive
from shoal.core.population import of_row
from shoal.distributed.synchronous import KnownMembers
from shoal.members.acting import Policy
from shoal.members.rollouts.episodes import NOISE
from shoal.run.context import Context, State


def after_race(c: Context, state: State, shared: KnownMembers) -> KnownMembers:
    """The members with a fitness of more episodes where the evolver asks for it before it decides; from then on it is their
    fitness. In each round those in doubt play the same new ones, together as many as all members have in an evaluation."""
    e, shard, members, round_ = c.experiment, state.shard, shared.members, 0
    levels = "test" if e.levels is None else e.fitness.levels
    while len(rows := c.plan.evolver.in_doubt(state.evolution, members.ranked(), round_)):
        policies = [Policy(shard.snapshot(row)[0], of_row(members.hyper, row)) for row in rows.tolist()]
        episodes = c.plan.evaluation.episodes * len(members.uid) // len(rows)
        played = shard.test(policies, derive((e.seed,), state.done, "race", round_), episodes, levels)
        shard.count_evaluation(played.steps)
        members, round_ = members.with_more(rows, played.returns, played.tie_breaker), round_ + 1
    if not round_:
        return shared
    shard.take_fitness(members)
    # That of members with unlike numbers of episodes is not known.
    metrics = shared.metrics | {NOISE: np.full(len(members.uid), np.nan)}
    steps = shard.evaluation_steps
    return shared._replace(members=members, stats=members, metrics=metrics, evaluation_steps=steps)
