"""Following a given schedule of hyperparameters, without copies and without exploring."""

from __future__ import annotations

import numpy as np

from shoal.core.evolution import Cards, Decision, Evolver, Seed


def scheduled(rows: list[dict[str, float]]) -> Evolver:
    """Every member trains generation g with `rows[g]`, and with the last row after the end."""

    def values(generation: int, members: int) -> dict[str, np.ndarray]:
        row = rows[min(generation, len(rows) - 1)]
        return {name: np.full(members, value, np.float32) for name, value in row.items()}

    def init(key: Seed, uid: np.ndarray) -> tuple[tuple[()], dict[str, np.ndarray]]:
        return (), values(0, len(uid))

    def decide(key: Seed, state: tuple[()], cards: Cards, mine: np.ndarray) -> tuple[tuple[()], Decision]:
        return state, Decision(mine, values(int(cards.generation.max()) + 1, len(mine)))

    return Evolver(init, decide)
