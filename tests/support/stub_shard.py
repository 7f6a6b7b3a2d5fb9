"""A shard of numbers, so that whose state went where can be told; and a decision whose result is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from shoal.core.population import Decision, DistributionUpdate, PopulationStats

POPULATION = 12

SHAPES = {"a": ((3,), np.float32), "b": ((), np.int32), "c": ((2, 5), np.uint8)}


def state_of(uid: int) -> tuple[dict[str, np.ndarray], tuple[()]]:
    draw = np.random.default_rng(uid)
    return {name: draw.integers(0, 200, shape).astype(dtype) for name, (shape, dtype) in SHAPES.items()}, ()


def hyper_of(uid: np.ndarray) -> dict[str, np.ndarray]:
    return {"rate": (uid / 7).astype(np.float32), "discount": (1 / (uid + 2)).astype(np.float32)}


def key_of(state: Any) -> bytes:
    return b"".join(np.ascontiguousarray(x).tobytes() for _, x in sorted(state[0].items()))


class StubShard:
    """Members `uid`, with the states that `state_of` gives them."""

    def __init__(self, uid: np.ndarray, generation: int = 0):
        self.uid, self.generation = uid, generation
        self.states = [state_of(int(u)) for u in uid]
        self.hyper = hyper_of(uid)
        self.evaluation_steps = 100 + int(uid[0])

    def stats(self) -> PopulationStats:
        n = len(self.uid)
        fitness = np.where(self.uid % 5 == 4, np.nan, self.uid / 3)
        whole = np.full(n, self.generation)
        return PopulationStats(self.uid, whole, 10 + self.uid, fitness, fitness / 7, whole + 8, self.hyper)

    def individuals(
        self, stats: PopulationStats, metrics: dict[str, np.ndarray]
    ) -> tuple[PopulationStats, dict[str, np.ndarray]]:
        return stats, metrics

    def snapshot(self, row: int) -> Any:
        return self.states[row]

    def learned(self) -> Callable[[int], Any]:
        states = self.states
        return lambda row: states[row][0]

    def apply(self, decision: Decision | DistributionUpdate, arrived: Mapping[int, Any]) -> dict[str, float]:
        self.hyper = decision.hyper
        if isinstance(decision, DistributionUpdate):
            self.updated = decision.weights.tolist()
            return {"step": 0.5}
        assert all(decision.parents[row] == row for row in arrived)
        self.states = [arrived.get(i, self.states[p]) for i, p in enumerate(decision.parents)]
        return {}


KIND: Any = SimpleNamespace(snapshot=state_of(0))


def decide(stats: PopulationStats, rows: np.ndarray) -> tuple[str, Decision]:
    """Every third member copies the one 4 uids further on, in a circle among those to be seen."""
    m = len(stats.uid)
    parents = np.where(stats.uid[rows] % 3 == 0, (rows + 4) % m, rows)
    hyper = {name: values[parents] for name, values in stats.hyper.items()}
    return "state", Decision(parents, hyper)


def expected(uid: np.ndarray) -> list[int]:
    """Whose states the members have after `decide`, when all of them, uid 0 and up, are to be seen."""
    return [int((u + 4) % len(uid)) if u % 3 == 0 else int(u) for u in uid]
