"""The exchange over MPI: one process per rank, all of them synchronous."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.core.cores import usable_cores
from shoal.core.errors import BadField
from shoal.distributed.exchange import Route


def library() -> str:
    """Which MPI is there. Raises BadInput where there is none."""
    return str(_mpi().Get_library_version()).splitlines()[0].strip()


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # no package, or no library that it could load
        raise BadField(
            "exchange", f"needs the package mpi4py and an MPI library: pip install 'shoal[mpi]' ({error})", value="mpi"
        ) from error
    return MPI


class Mpi:
    """The ranks of MPI.COMM_WORLD. `pause` is called while waiting, and may raise.

    transfer: point_to_point (each parent's state straight to the ranks of its children) or collective (all of them in
    one Alltoallv).
    """

    def __init__(self, transfer: str, pause: Callable[[], None]):
        self._mpi = _mpi()
        self._comm = self._mpi.COMM_WORLD
        self._collective, self._pause = transfer == "collective", pause
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        local = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        self.neighbour = (local.Get_rank(), local.Get_size())
        same = local.Split(zlib.crc32(str(usable_cores()).encode()) >> 1)  # some launchers give each rank its own
        self.sharer = (same.Get_rank(), same.Get_size())

    def gather(self, rows: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(rows, np.float64)
        counts = np.zeros(self.size, np.int64)
        self._wait(self._comm.Iallgather(np.array([rows.size], np.int64), counts))
        total = np.empty(int(counts.sum()), np.float64)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self._wait(self._comm.Iallgatherv(rows, [total, counts.tolist(), starts.tolist(), self._mpi.DOUBLE]))
        return total.reshape(-1, rows.shape[1])

    def broadcast(self, text: str) -> str:
        data = np.frombuffer(text.encode(), np.uint8).copy()
        length = np.array([data.size], np.int64)
        self._wait(self._comm.Ibcast(length))
        if self.rank:
            data = np.empty(int(length[0]), np.uint8)
        self._wait(self._comm.Ibcast(data))
        return data.tobytes().decode()

    def move(self, routes: Sequence[Route], provide: Callable[[int], np.ndarray], size: int) -> dict[int, np.ndarray]:
        leaving = {row: provide(row) for row in sorted({r.row for r in routes if r.source == self.rank})}
        if self._collective:
            return self._all_at_once(routes, leaving, size)
        requests, arriving = [], {}
        for route in routes:  # the same order on both sides, so that one pair's messages need no tags
            if route.source == self.rank:
                requests.append(self._comm.Isend(leaving[route.row], route.destination))
            elif route.destination == self.rank:
                arriving[route.row] = np.empty(size, np.uint8)
                requests.append(self._comm.Irecv(arriving[route.row], route.source))
        for request in requests:
            self._wait(request)
        return arriving

    def _all_at_once(self, routes: Sequence[Route], leaving: dict[int, np.ndarray], size: int) -> dict[int, np.ndarray]:
        out = sorted((r for r in routes if r.source == self.rank), key=lambda r: r.destination)
        into = sorted((r for r in routes if r.destination == self.rank), key=lambda r: r.source)

        def parts(places: list[int]) -> tuple[list[int], list[int]]:
            counts = np.bincount(np.array(places, int), minlength=self.size) * size
            return counts.tolist(), np.concatenate([[0], np.cumsum(counts)[:-1]]).tolist()

        sent = np.concatenate([leaving[r.row] for r in out]) if out else np.empty(0, np.uint8)
        received = np.empty((len(into), size), np.uint8)
        byte = self._mpi.BYTE
        self._wait(
            self._comm.Ialltoallv(
                [sent, *parts([r.destination for r in out]), byte],
                [received.reshape(-1), *parts([r.source for r in into]), byte],
            )
        )
        return {route.row: x for route, x in zip(into, received, strict=True)}

    def fail(self, message: str, code: int) -> None:
        """End every rank, so that none waits for one that has failed."""
        if self.rank:
            time.sleep(1)  # where all ranks fail, only the first message is printed
        print(f"rank {self.rank} of {self.size}: {message}", file=sys.stderr, flush=True)
        time.sleep(0.5)  # the launcher may drop what it has not passed on when a rank aborts
        self._comm.Abort(code)

    def _wait(self, request: Any) -> None:
        # Not Wait: it would not return to Python for signals, and would use a whole core.
        while not request.Test():
            self._pause()
            time.sleep(0.0002)
