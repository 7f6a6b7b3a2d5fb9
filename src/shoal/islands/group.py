"""Several islands of one process, one after another: a population larger than the memory of the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import jax
import numpy as np

from shoal.islands.drawn import DrawnIsland
from shoal.islands.vector import VectorIsland
from shoal.types import Cards, PyTree, Seed


class Group:
    """Islands of equal size, seen as one. While one is at work on an accelerator, the others wait on the host."""

    def __init__(self, first: VectorIsland | DrawnIsland, uids: list[np.ndarray], pause: Callable):
        self._islands = [first, *(first.sibling(uid) for uid in uids[1:])]
        self._size, self._pause = len(uids[0]), pause
        self.uid = np.concatenate(uids)
        self.resumes_exactly = first.resumes_exactly

    def begin(self, hyper: dict[str, np.ndarray], train: bool = True) -> None:
        for i, island in enumerate(self._islands):
            island.begin(self._part(hyper, i), train and i == 0)
            self._rest(island)

    def train(self, generation: int, iterations: int, chunk: int) -> dict[str, np.ndarray]:
        count = len(self._islands)
        parts: list[dict[str, np.ndarray]] = []

        def pause(result: PyTree, done: float) -> None:
            self._pause(result, done and (len(parts) * iterations + done) / count)

        for island in self._islands:
            island.pause = pause
            island.wake()
            parts.append(island.train(generation, iterations, chunk))
            self._rest(island)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def evaluate(self, generation: int) -> None:
        for island in self._islands:
            island.wake()
            island.evaluate(generation)
            self._rest(island)

    def cards(self) -> Cards:
        parts = [island.cards() for island in self._islands]
        hyper = {name: np.concatenate([part.hyper[name] for part in parts]) for name in parts[0].hyper}
        rest = {name: np.concatenate([getattr(p, name) for p in parts]) for name in Cards._fields if name != "hyper"}
        return Cards(**rest, hyper=hyper)

    def card_of_mean(self) -> Cards | None:
        return self._islands[0].card_of_mean()

    def recombine(self, uid: np.ndarray, weights: np.ndarray) -> dict[str, float]:
        first, *others = (cast(DrawnIsland, island) for island in self._islands)
        first.wake()
        metrics = first.recombine(uid, weights)
        for island in others:
            island.wake()
            island.agree(first)
            self._rest(island)
        self._rest(first)
        return metrics

    def snapshot(self, row: int) -> PyTree:
        return self._islands[row // self._size].snapshot(row % self._size)

    def snapshot_shape(self) -> PyTree:
        return self._islands[0].snapshot_shape()

    def adopt(self, parents: np.ndarray, hyper: dict[str, np.ndarray], foreign: dict[int, PyTree]) -> None:
        rows, home = np.arange(len(parents)), np.arange(len(parents)) // self._size
        moved = {int(row): self.snapshot(int(parents[row])) for row in rows[home != parents // self._size]}
        moved |= foreign  # all snapshots are taken before anybody changes
        for i, island in enumerate(self._islands):
            mine = rows[home == i]
            local = np.where([row in moved for row in mine], mine, parents[mine]) - mine[0]
            island.wake()
            island.adopt(local, self._part(hyper, i), {row - mine[0]: moved[row] for row in mine if row in moved})
            self._rest(island)

    def test(self, learned: PyTree, hyper: dict[str, float], key: Seed, episodes: int) -> np.ndarray:
        self._islands[0].wake()
        returns = self._islands[0].test(learned, hyper, key, episodes)
        self._rest(self._islands[0])
        return returns

    def state(self) -> dict[str, PyTree]:
        return {name: state for island in self._islands for name, state in island.state().items()}

    def restore(self, states: dict[str, PyTree], generation: int) -> None:
        for island in self._islands:
            island.restore(states, generation)
            self._rest(island)

    def close(self) -> None:
        for island in self._islands:
            island.close()

    @property
    def evaluation_steps(self) -> int:
        return sum(island.evaluation_steps for island in self._islands)

    @property
    def compile_seconds(self) -> float:
        return self._islands[0].compile_seconds

    @property
    def devices(self) -> int:
        return self._islands[0].devices

    def _part(self, hyper: dict[str, np.ndarray], i: int) -> dict[str, np.ndarray]:
        return {name: x[i * self._size : (i + 1) * self._size] for name, x in hyper.items()}

    def _rest(self, island: VectorIsland) -> None:
        if jax.default_backend() != "cpu":  # where the device's memory is the host's
            island.rest()
