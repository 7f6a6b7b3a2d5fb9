"""OpenAI's evolution strategies (Salimans et al. 2017, arXiv 1703.03864): the weight of each perturbation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.core.evolution import Cards, Evolver, Recombination, Seed

STRETCH = 2.0  # of the mean length, where the cap of episodes adapts (section 2.1)


class Decay(NamedTuple):
    """A hyperparameter times `factor` after each generation, as long as it stays above `end`."""

    factor: float
    end: float


def openai_es(start: dict[str, float], decays: dict[str, Decay], adaptive_cap: bool = False) -> Evolver:
    """Weights by centred ranks.

    start: first values of all hyperparameters; decays: those of them that change
    adaptive_cap: `episode_cap` becomes twice the mean length of the generation's episodes
    """

    def init(key: Seed, uid: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return np.array(0), {name: np.full(len(uid), value, np.float32) for name, value in start.items()}

    def decide(key: Seed, state: np.ndarray, cards: Cards, mine: np.ndarray) -> tuple[np.ndarray, Recombination]:
        hyper = {name: values[mine] for name, values in cards.hyper.items()}
        for name, (factor, end) in decays.items():
            x = hyper[name]
            hyper[name] = np.where(x > end, np.maximum(np.float32(factor) * x, np.float32(end)), x)
        steps = cards.steps.sum()
        if adaptive_cap and (episodes := cards.episodes.sum()):
            hyper["episode_cap"] = np.full(len(mine), np.ceil(STRETCH * (steps - state) / episodes), np.float32)
        return np.array(steps), Recombination(centred_ranks(cards.fitness), hyper)

    return Evolver(init, decide)


def centred_ranks(fitness: np.ndarray) -> np.ndarray:
    """Ranks [M] from -0.5, the worst, to 0.5; equal fitness has the mean of its ranks; non-finite fitness is worst."""
    x = np.where(np.isfinite(fitness), fitness, -np.inf)
    ordered = np.sort(x)
    below, upto = np.searchsorted(ordered, x, "left"), np.searchsorted(ordered, x, "right")
    rank = (below + upto - 1) / 2
    return (rank / max(len(x) - 1, 1) - 0.5).astype(np.float32)
