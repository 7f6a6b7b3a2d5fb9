"""A population of eight on one and all of eight virtual devices, PPO's also on two.

Prints by agent the largest difference of any number from what one device gives: JSON.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
from support.tiny import hyper_of, leaves, make_agent, walk

from shoal.core.population import Decision
from shoal.environments.evaluation import EvaluationConfig
from shoal.members.gradient_trained import GradientTrained
from shoal.members.protocol import Setup
from shoal.rl.independent import independent

N = 8
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("discrete", {"layers": (), "normalize_observations": False}),  # quick to compile
    "td3": ("continuous", {"layers": (), "learning_starts": 0}),
    "dqn": ("discrete", {"layers": (), "learning_starts": 0}),
}


def lived(name: str) -> list[np.ndarray]:
    """Two intervals, and between them copies from one device to another."""
    actions, settings = CASES[name]
    agent = make_agent(name, actions, **settings)
    kind = GradientTrained(walk(actions), independent(agent))
    assert kind.devices([np.arange(N)]) == len(jax.devices())
    shard = kind.one_shard(np.arange(N), Setup(0, EvaluationConfig("training")))
    hyper = hyper_of(name, agent, N)._asdict()
    rate = next(name for name in hyper if "learning_rate" in name)
    hyper[rate] = hyper[rate] * np.linspace(0.5, 1, N, dtype=np.float32)
    shard.begin(hyper)
    told = []
    for generation in range(2):
        told.append(shard.train(generation, 2, 2))
        shard.apply(Decision(np.roll(np.arange(N), 3), hyper), {})
    return leaves((shard.population, shard.rollouts.state(), told))


def apart(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest difference, relative to numbers beyond 1; infinite where one has a NaN that the other has not."""
    largest = 0.0
    for a, b in zip(ours, theirs, strict=True):
        x, y = (np.asarray(v, np.float64) for v in (a, b))
        off = np.where(np.isnan(x) & np.isnan(y), 0, np.abs(x - y) / np.maximum(1, np.abs(x)))
        largest = max(largest, float(np.nan_to_num(off, nan=np.inf).max(initial=0)))
    return largest


def main() -> None:
    every, found = jax.devices(), {}
    for name in CASES:
        runs = []
        for count in (1, 2, N) if name == "ppo" else (1, N):
            jax.devices = lambda count=count: every[:count]  # type: ignore[assignment]
            runs.append(lived(name))
        found[name] = max(apart(runs[0], run) for run in runs[1:])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
