"""Workers as processes of this machine, which share out its cores and GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from shoal.core.atomic import read_or_nothing, write_file
from shoal.core.cores import share, usable_cores, usable_gpus
from shoal.distributed.lease import holder_of, process_here
from shoal.launch.launcher import LOST, Crew, own_words


class Found:
    """A worker that an earlier command has left at work when it was killed, or its terminal was closed: what is asked of a
    `Popen`. Who has not started a process does not get its exit code."""

    def __init__(self, pid: int, name: str):
        """The process of this number may be none of ours by now."""
        self._pid, self._words = pid, own_words(name)

    def poll(self) -> int | None:
        words = read_or_nothing(Path(f"/proc/{self._pid}/cmdline")).split("\0")[:-1]
        return None if words[-len(self._words) :] == self._words else LOST

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(OSError):  # it has ended, or is somebody else's
            if self.poll() is None:
                os.kill(self._pid, number)


def _found(record: Path) -> Found | None:
    """The worker whose process is on record in logs/NAME.pid, where it is at work."""
    pid = process_here(read_or_nothing(record))
    if pid is None:
        return None
    found = Found(pid, record.stem)
    return found if found.poll() is None else None


def beginning(workspace: Path) -> dict[str, Found]:
    """The workers of this machine that have not come to their workspace yet, by name: these would not see that all are to
    stop, which is asked of those who are there."""
    found = dict[str, Found]()
    for record in sorted((workspace / "logs").glob("*.pid")):
        lease = read_or_nothing(workspace / "leases" / record.stem)
        if (worker := _found(record)) and not lease.startswith(f"{read_or_nothing(record)} "):
            found[record.stem] = worker
    return found


class Local:
    """Processes of this machine, out of reach of the Ctrl-C that ends the driver."""

    def __init__(self, crew: Crew):
        self._crew = crew
        self._processes: dict[str, subprocess.Popen[bytes] | Found] = {}

    def start(self, name: str) -> bool:
        record = self._crew.log(name).with_suffix(".pid")  # a worker gets its lease seconds after its start
        if found := _found(record):
            self._processes[name] = found
            return False
        rank, size = self._crew.names.index(name), self._crew.count
        command = [sys.executable, "-m", "shoal", *self._crew.words(name)]
        with open(self._crew.log(name), "ab") as log:
            self._processes[name] = started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=_env(rank, size)
            )
        with suppress(OSError):  # a full disk: no later command will find it
            write_file(record, holder_of(started.pid).encode())
        if hasattr(os, "sched_setaffinity"):  # long before it looks for its cores
            os.sched_setaffinity(started.pid, share(usable_cores(), rank, size))
        return True

    def ended(self, name: str) -> int | None:
        return self._processes[name].poll()

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()

    def kill(self, names: Iterable[str]) -> None:
        for name in names:
            self._processes[name].kill()


def _env(rank: int, size: int) -> dict[str, str]:
    """The environment of a worker: with its GPUs, of which several workers share the memory where there are fewer."""
    gpus = usable_gpus()
    if not gpus:
        return dict(os.environ)
    memory = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / -(-size // len(gpus)):.3f}"} if size > len(gpus) else {}
    return memory | os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(share(gpus, rank, size))}
