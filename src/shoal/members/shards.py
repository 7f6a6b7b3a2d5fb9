"""Several shards of one process, one after another: a population larger than the memory of the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import jax
import numpy as np

from shoal.core.evolution import Cards, Decision, Seed
from shoal.core.types import PyTree
from shoal.members.jax_shard import JaxShard
from shoal.members.member_shard import MemberShard
from shoal.members.search_shard import SearchShard

S = TypeVar("S", MemberShard, SearchShard)


class Shards(Generic[S]):
    """A `Shard` made of shards of equal size. While one uses the accelerator, the others wait on the host.

    first: the shard of the members `uids[0]`
    """

    def __init__(self, first: S, uids: Sequence[np.ndarray], pause: Callable):
        self._shards: list[S] = [first]
        self._shards += [first.sibling(uid) for uid in uids[1:]]
        self._size, self._pause = len(uids[0]), pause
        self.uid = np.concatenate(uids)
        self.resumes_exactly = first.resumes_exactly

    def begin(self, hyper: dict[str, np.ndarray], train: bool = True) -> None:
        for i, shard in enumerate(self._shards):
            shard.begin(self._part(hyper, i), train and i == 0)
            self._make_room(shard)

    def teach(self, learned: Sequence[PyTree]) -> None:
        for i, shard in enumerate(self._shards):
            shard.to_device()
            shard.teach(learned[i * self._size : (i + 1) * self._size])
            self._make_room(shard)

    def train(self, generation: int, iterations: int, chunk: int) -> dict[str, np.ndarray]:
        count = len(self._shards)
        parts: list[dict[str, np.ndarray]] = []

        def pause(result: PyTree, done: float) -> None:
            self._pause(result, done and (len(parts) * iterations + done) / count)

        for shard in self._shards:
            shard.pause = pause
            shard.to_device()
            parts.append(shard.train(generation, iterations, chunk))
            self._make_room(shard)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def evaluate(self, generation: int) -> dict[str, np.ndarray]:
        parts = []
        for shard in self._shards:
            shard.to_device()
            parts.append(shard.evaluate(generation))
            self._make_room(shard)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def cards(self) -> Cards:
        parts = [shard.cards() for shard in self._shards]
        hyper = {name: np.concatenate([part.hyper[name] for part in parts]) for name in parts[0].hyper}
        rest = {name: np.concatenate([getattr(p, name) for p in parts]) for name in Cards._fields if name != "hyper"}
        return Cards(**rest, hyper=hyper)

    def individuals(self, cards: Cards, metrics: dict[str, np.ndarray]) -> tuple[Cards, dict[str, np.ndarray]]:
        return self._shards[0].individuals(cards, metrics)

    def snapshot(self, row: int) -> PyTree:
        return self._shards[row // self._size].snapshot(row % self._size)

    @property
    def packed_size(self) -> int:
        return self._shards[0].packed_size

    def pack(self, snapshot: PyTree) -> np.ndarray:
        return self._shards[0].pack(snapshot)

    def unpack(self, data: np.ndarray) -> PyTree:
        return self._shards[0].unpack(data)

    def apply(self, decision: Decision, arrived: dict[int, PyTree]) -> None:
        parents = decision.parents
        rows, home = np.arange(len(parents)), np.arange(len(parents)) // self._size
        moved = {int(row): self.snapshot(int(parents[row])) for row in rows[home != parents // self._size]}
        moved |= arrived  # all snapshots are taken before any member changes
        for i, shard in enumerate(self._shards):
            mine = rows[home == i]
            local = np.where([row in moved for row in mine], mine, parents[mine]) - mine[0]
            shard.to_device()
            own = decision.part(mine)._replace(parents=local)
            shard.apply(own, {row - mine[0]: moved[row] for row in mine if row in moved})
            self._make_room(shard)

    def recombine(self, uid: np.ndarray, weights: np.ndarray, hyper: dict[str, np.ndarray]) -> dict[str, float]:
        first, *others = self._shards
        first.to_device()
        metrics = first.recombine(uid, weights, self._part(hyper, 0))
        for i, shard in enumerate(others, 1):
            shard.to_device()
            shard.agree(first)
            shard.set_hyper(self._part(hyper, i))
            self._make_room(shard)
        self._make_room(first)
        return metrics

    def test(
        self, learned: PyTree, hyper: dict[str, float], key: Seed, episodes: int, levels: str = "test"
    ) -> np.ndarray:
        self._shards[0].to_device()
        returns = self._shards[0].test(learned, hyper, key, episodes, levels)
        self._make_room(self._shards[0])
        return returns

    def state(self) -> dict[str, PyTree]:
        return {name: state for shard in self._shards for name, state in shard.state().items()}

    def restore(self, states: dict[str, PyTree], generation: int) -> None:
        for shard in self._shards:
            shard.restore(states, generation)
            self._make_room(shard)

    def close(self) -> None:
        for shard in self._shards:
            shard.close()

    @property
    def evaluation_steps(self) -> int:
        return sum(shard.evaluation_steps for shard in self._shards)

    @property
    def compile_seconds(self) -> float:
        return self._shards[0].compile_seconds

    @property
    def devices(self) -> int:
        return self._shards[0].devices

    def _part(self, hyper: dict[str, np.ndarray], i: int) -> dict[str, np.ndarray]:
        return {name: x[i * self._size : (i + 1) * self._size] for name, x in hyper.items()}

    def _make_room(self, shard: JaxShard) -> None:
        if jax.default_backend() != "cpu":  # where the device's memory is the host's
            shard.to_host()
