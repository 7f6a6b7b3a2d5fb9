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
from shoal.core.extras import install
from shoal.core.interrupts import FAILED
from shoal.distributed.exchange import Exchange, Route

FIRST = 60.0  # seconds of waiting after which it is said for whom
LOOK = 0.25  # seconds between two looks for questions of others
ANSWER = 1.0  # seconds in which they answer
OF_LONGEST = 3.0  # times the longest work of a rank so far; it waits for others at least so long
SHOWN = 4  # ranks that are named
ASK, HERE = 1, 2


def library() -> str:
    """The name of the MPI that is there. Raises BadInput where there is none."""
    return str(_mpi().Get_library_version()).splitlines()[0].strip()


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # no package, or no library that it could load
        raise BadField(
            "exchange", f"needs the package mpi4py and an MPI library: {install('mpi')} ({error})", value="mpi"
        ) from error
    return MPI


class Mpi(Exchange):
    """The ranks of MPI.COMM_WORLD. `pause` is called while waiting, and may raise; `note` with what the user should know.

    timeout: see `Watch`.
    """

    def __init__(self, timeout: float, pause: Callable[[], None], note: Callable[[str], None]):
        self._mpi = _mpi()
        self._comm = self._mpi.COMM_WORLD
        self._pause, self._note = pause, note
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        local = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        self.neighbour = (local.Get_rank(), local.Get_size())
        same = local.Split(zlib.crc32(str(usable_cores()).encode()) >> 1)  # some launchers give each rank its own
        self.sharer = (same.Get_rank(), same.Get_size())
        self._roll = Roll(self._mpi, self._comm)
        self._timeout, self._longest, self._worked_since = timeout, 0.0, time.monotonic()

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

    def watch(self) -> Watch:
        self._longest = max(self._longest, time.monotonic() - self._worked_since)
        return Watch(self._roll, max(self._timeout, OF_LONGEST * self._longest), self._say, self.fail)

    def _say(self, message: str) -> None:
        """Tell the user; ranks but the first have no callbacks that would."""
        if self.rank:
            print(f"rank {self.rank} of {self.size}: {message}", file=sys.stderr, flush=True)
        else:
            self._note(message)

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
        """Return the result once it is ready."""
        # Not Wait: it would not return to Python for signals, and would use a whole core.
        late = self.watch()
        while not (found := ready()):
            self._pause()
            late()
            time.sleep(0.0002)
        self._worked_since = time.monotonic()
        return found


class Roll:
    """Ranks that wait ask all others, and answer one another: who does not answer does not wait, and is waited for."""

    def __init__(self, mpi: Any, world: Any):
        self._mpi, self._comm = mpi, world.Dup()
        self.rank = self._comm.Get_rank()
        self._hosts = self._comm.allgather(mpi.Get_processor_name())
        self.waiting: set[int] = set()  # who has answered the last question, and this rank

    def ask(self) -> None:
        """Ask all others whether they wait."""
        self.answer()  # which takes what has come of earlier questions
        self.waiting = {self.rank}
        for rank in range(len(self._hosts)):
            if rank != self.rank:
                self._send(rank, ASK)

    def answer(self) -> None:
        """Answer whoever has asked, and take the answers of others."""
        status = self._mpi.Status()
        while message := self._comm.Improbe(status=status):
            message.Recv([bytearray(), self._mpi.BYTE])
            if status.Get_tag() == ASK:
                self._send(status.Get_source(), HERE)
            else:
                self.waiting.add(status.Get_source())

    def missing(self) -> str:
        """The ranks that have not answered, and where they are."""
        missing = [f"rank {i} on {host}" for i, host in enumerate(self._hosts) if i not in self.waiting]
        return ", ".join(missing[:SHOWN]) + f" and {len(missing) - SHOWN} more" * (len(missing) > SHOWN)

    def _send(self, rank: int, tag: int) -> None:
        self._comm.Isend([b"", self._mpi.BYTE], rank, tag).Free()  # empty: it needs no buffer, and nobody waits for it


class Watch:
    """One wait of a rank; called again and again meanwhile. After FIRST seconds, and after twice, four times, ... as many,
    the first rank that waits says for whom; after `limit` seconds it fails."""

    def __init__(self, roll: Roll, limit: float, say: Callable[[str], None], fail: Callable[[str, int], None]):
        self._roll, self._limit, self._say, self._fail = roll, limit, say, fail
        self._began = self._next = time.monotonic()
        self._due, self._asked = min(FIRST, limit), False

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next, waited = now + LOOK, now - self._began
        self._roll.answer()
        if self._asked:
            self._asked = False
            self._report_missing(waited)
            self._due = min(2 * waited, max(self._limit, waited + FIRST))
        elif waited >= self._due:
            self._roll.ask()
            self._asked, self._next = True, now + ANSWER

    def _report_missing(self, waited: float) -> None:
        missing = self._roll.missing()
        if not missing or self._roll.rank > min(self._roll.waiting):
            return
        if waited < self._limit:
            self._say(f"waiting for {missing} for {waited:.0f} s")
        else:
            text = f"waited for {missing} for {waited:.0f} s (exchange.timeout)"
            self._fail(f"{text}; `shoal resume` continues from the last checkpoint", FAILED)
