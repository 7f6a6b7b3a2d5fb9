"""Letting a champion play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.errors import BadInput
from shoal.core.keys import derive
from shoal.environments.blame import callbacks_blamed
from shoal.experiment.registry import name_of, objective
from shoal.experiment.resolve import make_environment
from shoal.experiment.trust import check_trust
from shoal.methods.independent import independent
from shoal.population.devices import prepare
from shoal.population.member_shard import MemberShard
from shoal.population.rollouts.episodes import statistics
from shoal.run.champion import load_champion


def evaluate(run: str | Path, episodes: int = 100, seed: int = 0, trust_code: bool = False) -> dict[str, Any]:
    """Statistics of the champion's returns on `episodes` fresh episodes, beside the fitness it was selected for.

    trust_code: import what the run names, where it is not Shoal's.
    """
    if episodes < 1:
        raise BadInput(f"--episodes {episodes}: must be at least 1")
    if seed < 0:
        raise BadInput(f"--seed {seed}: must be at least 0")
    prepare()
    champion = load_champion(run, trust_code)
    check_trust(champion.experiment, trust_code, ["env", "fitness.objective"])
    experiment, environment = make_environment(champion.experiment)
    shard = MemberShard(
        environment,
        independent(champion.agent),
        np.zeros(1),
        experiment.seed,
        episodes=min(episodes, 64),
        greedy=experiment.fitness.actions == "greedy",
        step_limit=experiment.fitness.step_limit,
        objective=objective(experiment.fitness.objective),
    )
    try:
        known = champion.hyper.keys() <= set(champion.agent.hyper._fields)
        if environment.spec != champion.spec or not known:
            raise BadInput(f"{run}: its champion was trained by another experiment than its experiment.yaml states")
        shard.begin({name: np.array([value]) for name, value in champion.hyper.items()}, train=False)
        key = derive((experiment.seed,), "evaluate", seed)
        with callbacks_blamed(str(name_of(experiment.env))):
            returns = shard.test(champion.learned, champion.hyper, key, episodes)
    finally:
        shard.close()
    extremes = {"min": float(returns.min()), "max": float(returns.max())}
    return statistics(returns) | extremes | {"selection_fitness": champion.fitness}
