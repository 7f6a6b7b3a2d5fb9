"""The cross-entropy method (as in CEM-RL, arXiv 1810.01222): the weight of each member in the next distribution."""

from __future__ import annotations

import numpy as np

from shoal.core.errors import BadField
from shoal.core.evolution import Cards, Evolver, Recombination, Seed


def cem(start: dict[str, float], elites: int | None = None) -> Evolver:
    """Weights by the logarithm of the rank; hyperparameters do not change.

    start: values of all hyperparameters. elites: how many members count, by default half of them
    """
    if elites is not None and elites < 1:
        raise BadField("method.elites", "must be at least 1", value=elites)

    def init(key: Seed, uid: np.ndarray) -> tuple[tuple[()], dict[str, np.ndarray]]:
        return (), {name: np.full(len(uid), value, np.float32) for name, value in start.items()}

    def decide(key: Seed, state: tuple[()], cards: Cards, mine: np.ndarray) -> tuple[tuple[()], Recombination]:
        count = max(len(cards.fitness) // 2, 1) if elites is None else elites
        hyper = {name: values[mine] for name, values in cards.hyper.items()}
        weights = log_ranks(cards.fitness, count)
        returns = np.where(weights > 0, cards.fitness, 0.0)
        metrics = {"elites/return": float((weights * returns).sum()) if weights.any() else np.nan}
        return state, Recombination(weights, hyper, metrics)

    return Evolver(init, decide)


def log_ranks(fitness: np.ndarray, elites: int) -> np.ndarray:
    """Weights [M], proportional to log(elites + 1) - log(rank), with sum 1; 0 for all but elites of finite fitness.

    Members of equal fitness have the mean of their weights. Where no fitness is finite, all weights are 0.
    """
    finite = np.isfinite(fitness)
    worth = np.maximum(np.log(elites + 1) - np.log(np.arange(1, len(fitness) + 1)), 0.0)
    x = np.where(finite, fitness, -np.inf)
    by_rank = np.zeros(len(x))
    by_rank[np.argsort(-x, kind="stable")] = worth
    _, tied = np.unique(x, return_inverse=True)
    weights = np.where(finite, (np.bincount(tied, by_rank) / np.bincount(tied))[tied], 0.0)
    return (weights / max(weights.sum(), np.finfo(np.float64).tiny)).astype(np.float32)
