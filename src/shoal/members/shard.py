"""What a run asks of members that train together, however and wherever they do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from shoal.core.evolution import Cards, Decision, Seed
from shoal.core.types import PyTree

SHARD = "shard-"  # so begin the names of their parts of a checkpoint


def part_of(uid: np.ndarray) -> str:
    """The name of the part of a checkpoint that has the members uid [N], N consecutive ones of as large shards."""
    return f"{SHARD}{uid[0] // len(uid):04d}"


class Shard(Protocol):
    """N members in one process. Individuals are what lives on: the members, or the one mean that they are drawn around.

    In every generation the run calls `train`, `evaluate`, `cards`, `individuals`, then `apply` or `recombine`.
    """

    @property
    def uid(self) -> np.ndarray:
        """Whole numbers [N], which name the members; they never change."""

    @property
    def resumes_exactly(self) -> bool:
        """Whether a run that continues from `state` equals one that never stopped."""

    @property
    def evaluation_steps(self) -> int:
        """Environment steps so far that only measured."""

    @property
    def compile_seconds(self) -> float:
        """Seconds of compiling so far."""

    @property
    def devices(self) -> int:
        """How many devices the members are spread over."""

    def begin(self, hyper: dict[str, np.ndarray], train: bool = True) -> None:
        """New members with these hyperparameters, float32 [N] each. train: prepare for training too."""

    def teach(self, learned: Sequence[PyTree]) -> None:
        """Members that have just begun have learned this: of each, as the first part of a `snapshot`.

        Where they are drawn around a mean, all is the same, and it is the mean that has learned it.
        """

    def train(self, generation: int, iterations: int, chunk: int) -> dict[str, np.ndarray]:
        """One interval, in `iterations` parts, `chunk` of them at a time. Returns metrics [N]."""

    def evaluate(self, generation: int) -> dict[str, np.ndarray]:
        """Measure the fitness of every individual and member; the same episodes for all, new ones in each generation.

        Returns metrics [N].
        """

    def cards(self) -> Cards:
        """The cards of the members [N], with the fitness that was measured last."""

    def individuals(self, cards: Cards, metrics: dict[str, np.ndarray]) -> tuple[Cards, dict[str, np.ndarray]]:
        """Cards and metrics of what lives on, from those of the M members of all shards."""

    def snapshot(self, row: int) -> PyTree:
        """What a child copies of an individual: (what it has learned, its memory where that is copied).

        The arrays are its own, on the host or on a device: they stay as they are when the shard trains on.
        """

    @property
    def packed_size(self) -> int | None:
        """Bytes of a snapshot that is packed; None where they vary."""

    def pack(self, snapshot: PyTree) -> np.ndarray:
        """A snapshot as bytes, uint8 [S]."""

    def unpack(self, data: np.ndarray) -> PyTree:
        """The snapshot that `pack` made these bytes of. Raises BadInput where they are none."""

    def apply(self, decision: Decision, arrived: dict[int, PyTree]) -> None:
        """Do what is decided for these members: children copy their parents as these are before the call; then the new
        hyperparameters are set; then members that begin anew are mixed with fresh ones, of new keys in each generation.

        decision: its parents are rows of this shard. arrived: row of a child -> the `snapshot` of a parent in another shard.
        Raises BadInput where members are drawn around a mean, or where some should be mixed that cannot be.
        """

    def recombine(self, uid: np.ndarray, weights: np.ndarray, hyper: dict[str, np.ndarray]) -> dict[str, float]:
        """Make the next mean; then new hyperparameters [N] are set. Returns metrics.

        uid, weights: [M], of the members of all shards in order of uid. Raises BadInput where members live on.
        """

    def test(
        self, learned: PyTree, hyper: dict[str, float], key: Seed, episodes: int, levels: str = "test"
    ) -> np.ndarray:
        """Returns [episodes] of one individual on new episodes; `learned` is the first part of its snapshot.

        levels: train, validation or test, where there are levels
        """

    def state(self) -> dict[str, PyTree]:
        """The state for a checkpoint, by name of the shard."""

    def restore(self, states: dict[str, PyTree], generation: int) -> None:
        """Continue from a `state` that was saved at the end of `generation`."""

    def close(self) -> None:
        """Give back what is held; nothing else is called after it."""
