"""Letting a champion play."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.build import build_run
from shoal.champion import load_champion
from shoal.collect.episodes import statistics
from shoal.devices import prepare
from shoal.experiment import Experiment, alone
from shoal.keys import derive
from shoal.types import BadInput


def evaluate(run: Path, episodes: int = 100, seed: int = 0) -> dict[str, Any]:
    """Statistics of the champion's returns on `episodes` fresh episodes, beside the fitness it was selected for."""
    if episodes < 1:
        raise BadInput(f"--episodes {episodes}: must be at least 1")
    if seed < 0:
        raise BadInput(f"--seed {seed}: must be at least 0")
    prepare()
    champion = load_champion(run)
    single = replace(
        alone(champion.experiment),
        population=1,
        method="seeds",
        agent=lambda spec: champion.agent,
        config={},
        select=Experiment.select,
        explore=Experiment.explore,
        memory="own",
        start_after=0,
        schedule=None,
        space={},
        hyper={},
        fitness=replace(champion.experiment.fitness, source="evaluation", episodes=min(episodes, 64)),
    )
    parts = build_run(single)
    try:
        parts.island.begin({name: np.array([value]) for name, value in champion.hyper.items()}, train=False)
        returns = parts.island.test(champion.learned, derive((single.seed,), "evaluate", seed), episodes)
    finally:
        parts.island.close()
    extremes = {"min": float(returns.min()), "max": float(returns.max())}
    return statistics(returns) | extremes | {"selection_fitness": champion.fitness}
