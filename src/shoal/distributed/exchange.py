"""How the processes of a run talk to one another, whatever carries it: `local` and `mpi` are two ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np


class Route(NamedTuple):
    """The state of the member at `row` of the stats goes from one process to another."""

    row: int
    source: int
    destination: int


class Exchange(Protocol):
    """Communication between the processes of a run; all of them make the same calls in the same order.

    rank, size: which process this is, of how many. neighbour: the same among those on this machine; sharer: among those
    of them that may run on the same cores.
    """

    rank: int
    size: int
    neighbour: tuple[int, int]
    sharer: tuple[int, int]

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """float64 [n, C] of every process, one below the other: [sum of n, C]."""

    def broadcast(self, text: str) -> str:
        """The `text` of process 0."""

    def move(self, routes: Sequence[Route], leaving: Mapping[int, bytes]) -> dict[int, bytes]:
        """Send and receive states. The same `routes` in all processes; leaving: by row, those that this one sends.

        Returns the received states, by row.
        """

    def watch(self) -> Callable[[], None]:
        """Gives a function to be called while this process waits for others: it says for whom, and fails in the end."""

    def fail(self, message: str, code: int) -> None:
        """End all processes with this message and exit code."""
