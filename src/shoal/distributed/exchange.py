"""Messages between the processes of a run: of one that is alone here; `mpi` carries those of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Route(NamedTuple):
    """The state of the member at `row` of the stats goes from one process to another."""

    row: int
    source: int
    destination: int


class Exchange:
    """Communication between the processes of a run; all of them make the same calls in the same order. Here there is one.

    rank, size: which process this is, of how many. neighbour: the same among those on this machine; sharer: among those
    of them that may run on the same cores.
    """

    rank, size = 0, 1
    neighbour = sharer = (0, 1)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """float64 [n, C] of every process, one below the other: [sum of n, C]."""
        return rows

    def broadcast(self, text: str) -> str:
        """The `text` of process 0."""
        return text

    def move(self, routes: Sequence[Route], leaving: Mapping[int, bytes]) -> dict[int, bytes]:
        """Send and receive states. The same `routes` in all processes; leaving: by row, those that this one sends.

        Returns the received states, by row.
        """
        return {}

    def watch(self) -> Callable[[], None]:
        """Gives a function to be called while this process waits for others: it says for whom, and fails in the end."""
        return lambda: None

    def fail(self, message: str, code: int) -> None:
        """End all other processes with this message and exit code."""
