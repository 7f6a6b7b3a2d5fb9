"""Letting a champion play."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.errors import BadInput, unknown
from shoal.core.keys import derive
from shoal.core.knobs import usual
from shoal.core.spec import Spec
from shoal.environments.guard import callbacks_blamed
from shoal.experiment.experiment import Experiment
from shoal.experiment.make import make_environment, make_learner, make_trainers, measurement_of
from shoal.experiment.registry import method, name_of
from shoal.members.devices import prepare
from shoal.members.member_shard import MemberShard
from shoal.members.rollouts.episodes import statistics
from shoal.members.shard import Shard
from shoal.members.trainer_shard import TrainerShard
from shoal.methods.independent import independent
from shoal.run.champion import load_champion
from shoal.trainers.trainers import is_trainer


def evaluate(
    run: str | Path, episodes: int = 100, seed: int = 0, trust_code: bool = False, levels: str | None = None
) -> dict[str, Any]:
    """Statistics of the champion's returns on `episodes` fresh episodes, beside the fitness it was selected for.

    Episodes that were broken have no return, and do not count. Raises BadInput, also where no episode has one.

    levels: train, validation or test, of a run that has levels; by default test.
    trust_code: import what the run names, where it is not Shoal's.
    """
    if episodes < 1:
        raise BadInput(f"--episodes {episodes}: must be at least 1")
    if seed < 0:
        raise BadInput(f"--seed {seed}: must be at least 0")
    prepare()
    champion = load_champion(run, trust_code)
    if levels is not None:
        if champion.experiment.levels is None:
            raise BadInput(f"--levels {levels}: {run} was trained without levels")
        if levels not in (known_levels := champion.experiment.levels.spans()):
            raise unknown("--levels", levels, known_levels)
    experiment = champion.experiment
    shard, spec, known = _alone(experiment, min(episodes, 64))
    try:
        if spec != champion.spec or not champion.hyper.keys() <= set(known):
            raise BadInput(f"{run}: its champion was trained by another experiment than its experiment.yaml states")
        shard.begin({name: np.array([value]) for name, value in champion.hyper.items()}, train=False)
        key = derive((experiment.seed,), "evaluate", seed)
        with callbacks_blamed(str(name_of(experiment.env))):
            returns = shard.test(champion.learned, champion.hyper, key, episodes, levels or "test")
    finally:
        shard.close()
    finite = returns[np.isfinite(returns)]
    if not len(finite):
        raise BadInput(f"{run}: no episode has a return, for rewards or observations of its environment are not finite")
    extremes = {"min": float(finite.min()), "max": float(finite.max())}
    return statistics(returns) | extremes | {"selection_fitness": champion.fitness}


def _alone(e: Experiment, episodes: int) -> tuple[Shard, Spec | None, Collection[str]]:
    """A shard of one member, for so many episodes at a time; its environment's spec, and its hyperparameters."""
    uid, measurement = np.zeros(1, np.int64), replace(measurement_of(e), episodes=episodes)
    if is_trainer(e.agent, e.python):
        trainers = make_trainers(e)
        shard = TrainerShard(trainers, [uid], e.seed, e.interval, measurement)
        return shard, trainers.spec, trainers.hyper._fields
    e, environment = make_environment(e)
    agent = make_learner(e, environment.spec, method(e.method))[1].agent
    members = MemberShard(environment, independent(agent), uid, e.seed, measurement)
    return members, environment.spec, usual(agent, environment.knobs)
