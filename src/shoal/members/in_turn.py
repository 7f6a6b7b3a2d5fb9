"""Several shards of one process, one after another: a population larger than the memory of the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import jax
import numpy as np

from shoal.core.population import ARRAYS, Decision, DistributionUpdate, PopulationStats, Seed
from shoal.core.types import START, PyTree, RunProgress
from shoal.members.protocol import Pause, Setup, Shard

T = TypeVar("T")


class Movable(Shard, Protocol):
    """A shard that can wait on the host while others of its kind use the device."""

    pause: Pause

    def sibling(self, uid: np.ndarray, setup: Setup) -> Self:
        """A shard of the same size for other members, with the same programs."""

    def to_host(self) -> None: ...

    def to_device(self) -> None: ...

    def take_shared(self, other: Self) -> None:
        """Take over what the members of another shard share."""

    def set_hyper(self, hyper: dict[str, np.ndarray]) -> None: ...


S = TypeVar("S", bound=Movable)


class InTurn(Generic[S]):
    """A `Shard` made of shards of equal size. While one uses the accelerator, the others wait on the host.

    first: the shard of the members `uids[0]`
    """

    def __init__(self, first: S, uids: Sequence[np.ndarray], setup: Setup):
        self._shards: list[S] = [first]
        self._shards += [first.sibling(uid, setup) for uid in uids[1:]]
        self._size, self._pause = len(uids[0]), setup.pause
        self.uid = np.concatenate(uids)

    def begin(self, hyper: dict[str, np.ndarray], learned: Sequence[PyTree] | None = None) -> None:
        def begun(shard: S, rows: slice) -> None:
            mine = {name: x[rows] for name, x in hyper.items()}
            shard.begin(mine, None if learned is None else learned[rows])

        self._each(begun)

    def train(
        self, generation: int, iterations: int, chunk: int, progress: RunProgress = START
    ) -> dict[str, np.ndarray]:
        def trained(shard: S, rows: slice) -> dict[str, np.ndarray]:
            before = rows.start * iterations / len(self.uid)

            def pause(result: PyTree, done: float) -> None:
                self._pause(result, done and before + done * self._size / len(self.uid))

            shard.pause = pause
            return shard.train(generation, iterations, chunk, progress)

        return _joined(self._each(trained))

    def evaluate(self, generation: int) -> dict[str, np.ndarray]:
        return _joined(self._each(lambda shard, rows: shard.evaluate(generation)))

    def stats(self) -> PopulationStats:
        parts = [shard.stats() for shard in self._shards]
        rest: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in parts]) for name in ARRAYS}
        return PopulationStats(**rest, hyper=_joined([part.hyper for part in parts]))

    def individuals(
        self, stats: PopulationStats, metrics: dict[str, np.ndarray]
    ) -> tuple[PopulationStats, dict[str, np.ndarray]]:
        return self._shards[0].individuals(stats, metrics)

    def snapshot(self, row: int) -> PyTree:
        return self._shards[row // self._size].snapshot(row % self._size)

    def apply(self, decision: Decision | DistributionUpdate, arrived: Mapping[int, PyTree]) -> dict[str, float]:
        if isinstance(decision, DistributionUpdate):
            return self._update_distribution(decision)
        parents = decision.parents
        rows, home = np.arange(len(parents)), np.arange(len(parents)) // self._size
        moved = {int(row): self.snapshot(int(parents[row])) for row in rows[home != parents // self._size]}
        moved |= arrived  # all snapshots are taken before any member changes

        def applied(shard: S, place: slice) -> None:
            mine = rows[place]
            local = np.where([row in moved for row in mine], mine, parents[mine]) - mine[0]
            shard.apply(decision.part(mine, local), {row - mine[0]: moved[row] for row in mine if row in moved})

        self._each(applied)
        return {}

    def _update_distribution(self, decision: DistributionUpdate) -> dict[str, float]:
        """The first shard makes the step of the mean, and the others take it over."""
        first, rows = self._shards[0], np.arange(len(self.uid))

        def applied(shard: S, place: slice) -> dict[str, float]:
            own = decision.part(rows[place], rows[place])
            if shard is first:
                return shard.apply(own, {})
            shard.take_shared(first)
            shard.set_hyper(own.hyper)
            return {}

        return self._each(applied)[0]

    def test(
        self, learned: PyTree, hyper: dict[str, float], key: Seed, episodes: int, levels: str = "test"
    ) -> np.ndarray:
        first = self._shards[0]
        first.to_device()
        returns = first.test(learned, hyper, key, episodes, levels)
        self._make_room(first)
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

    def _each(self, work: Callable[[S, slice], T]) -> list[T]:
        """Results of `work` for every shard, which is on the device for it; the slice is of its rows."""
        results = []
        for i, shard in enumerate(self._shards):
            shard.to_device()
            results.append(work(shard, slice(i * self._size, (i + 1) * self._size)))
            self._make_room(shard)
        return results

    def _make_room(self, shard: S) -> None:
        if jax.default_backend() != "cpu":  # where the device's memory is the host's
            shard.to_host()


def _joined(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Columns of several shards, one below the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
