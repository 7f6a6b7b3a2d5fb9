"""Measurements of the mean, around which members are sampled."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from shoal.core.population import PopulationStats
from shoal.core.types import Metrics


class OfMean(NamedTuple):
    """Evaluation of the mean.

    steps: environment steps of it
    """

    fitness: float = np.nan
    std: float = np.nan
    episodes: int = 0
    beside_members: float = np.nan  # its return in the episodes of the members
    metrics: Mapping[str, np.ndarray] = MappingProxyType({})  # [1] each: on the levels of each purpose
    steps: int = 0


def mean_of(members: PopulationStats, metrics: Metrics, of_mean: OfMean) -> tuple[PopulationStats, Metrics]:
    """Statistics and metrics of the mean, as if it were the only member, from those of M members and its own evaluation.

    Its steps are those of all members. mean/rank is 1 where no member is better, and NaN where it has no fitness.
    """
    mean = members.take(np.zeros(1, np.int64))._replace(
        uid=np.zeros(1, np.int64),
        steps=members.steps.sum(keepdims=True),
        fitness=np.array([of_mean.fitness], np.float64),
        std=np.array([of_mean.std], np.float64),
        episodes=np.array([of_mean.episodes], np.int64),
    )
    known = members.fitness[np.isfinite(members.fitness)]
    kinds: dict[str, Any] = {"mean": np.mean, "variance": np.var, "max": np.max, "min": np.min}
    found = {name: np.nanmean(x) if np.isfinite(x).any() else np.nan for name, x in metrics.items()}
    found |= {f"returns/{name}": kind(known) if len(known) else np.nan for name, kind in kinds.items()}
    beside = of_mean.beside_members
    found["mean/rank"] = 1 + (known > beside).sum() if np.isfinite(beside) else np.nan
    return mean, {name: np.array([value], np.float32) for name, value in found.items()} | dict(of_mean.metrics)
