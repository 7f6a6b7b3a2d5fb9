"""Workers as processes of this machine, which share out its cores and GPUs."""

from __future__ import annotations

import os
import subprocess
import sys

from shoal.core.cores import share, usable_cores, usable_gpus
from shoal.launch.launcher import Crew


class Local:
    """Processes of this machine, out of reach of the Ctrl-C that ends the driver."""

    def __init__(self, crew: Crew):
        self._crew = crew
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        rank, size = self._crew.names.index(name), self._crew.count
        command = [sys.executable, "-m", "shoal", *self._crew.words(name)]
        with open(self._crew.log(name), "ab") as log:
            self._processes[name] = started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=_env(rank, size)
            )
        if hasattr(os, "sched_setaffinity"):  # long before it looks for its cores
            os.sched_setaffinity(started.pid, share(usable_cores(), rank, size))

    def ended(self, name: str) -> int | None:
        return self._processes[name].poll()

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()


def _env(rank: int, size: int) -> dict[str, str]:
    """The environment of a worker: with its GPUs, of which several workers share the memory where there are fewer."""
    gpus = usable_gpus()
    if not gpus:
        return dict(os.environ)
    memory = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / -(-size // len(gpus)):.3f}"} if size > len(gpus) else {}
    return memory | os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(share(gpus, rank, size))}
