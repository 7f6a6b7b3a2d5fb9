"""The exchange over MPI: one process per rank, all of them synchronous."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
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

    def move(self, routes: Sequence[Route], leaving: Mapping[int, bytes]) -> dict[int, bytes]:
        if self._collective:
            return self._all_at_once(routes, leaving)
        byte = self._mpi.BYTE
        # The same order on both sides, so that one pair's messages need no tags.
        sent = [self._comm.Isend([leaving[r.row], byte], r.destination) for r in routes if r.source == self.rank]
        arrived = {r.row: self._receive(r.source) for r in routes if r.destination == self.rank}
        for request in sent:
            self._wait(request)
        return arrived

    def _receive(self, source: int) -> bytes:
        """The next message of a rank, of whatever length."""
        status, byte = self._mpi.Status(), self._mpi.BYTE
        message = self._until(lambda: self._comm.Improbe(source, status=status))
        data = bytearray(status.Get_count(byte))
        self._wait(message.Irecv([data, byte]))
        return bytes(data)

    def _all_at_once(self, routes: Sequence[Route], leaving: Mapping[int, bytes]) -> dict[int, bytes]:
        told = np.array([[row, len(data)] for row, data in leaving.items()], np.float64).reshape(-1, 2)
        size = {int(row): int(length) for row, length in self.gather(told)}
        out = sorted((r for r in routes if r.source == self.rank), key=lambda r: r.destination)
        into = sorted((r for r in routes if r.destination == self.rank), key=lambda r: r.source)

        def parts(places: list[int], rows: list[int]) -> tuple[list[int], list[int]]:
            counts = np.bincount(np.array(places, int), [size[row] for row in rows], self.size).astype(int)
            return counts.tolist(), np.concatenate([[0], np.cumsum(counts)[:-1]]).tolist()

        rows, byte = [r.row for r in into], self._mpi.BYTE
        received = bytearray(sum(size[row] for row in rows))
        sent = [b"".join(leaving[r.row] for r in out), *parts([r.destination for r in out], [r.row for r in out]), byte]
        self._wait(self._comm.Ialltoallv(sent, [received, *parts([r.source for r in into], rows), byte]))
        ends = np.cumsum([size[row] for row in rows]).tolist()
        return {row: bytes(received[end - size[row] : end]) for row, end in zip(rows, ends, strict=True)}

    def fail(self, message: str, code: int) -> None:
        """End every rank, so that none waits for one that has failed."""
        if self.size == 1:
            return
        if self.rank:
            time.sleep(1)  # where all ranks fail, only the first message is printed
        print(f"rank {self.rank} of {self.size}: {message}", file=sys.stderr, flush=True)
        time.sleep(0.5)  # the launcher may drop what it has not passed on when a rank aborts
        self._comm.Abort(code)

    def _wait(self, request: Any) -> None:
        self._until(request.Test)

    def _until(self, ready: Callable[[], Any]) -> Any:
        """What is ready at last."""
        # Not Wait: it would not return to Python for signals, and would use a whole core.
        while not (found := ready()):
            self._pause()
            time.sleep(0.0002)
        return found
