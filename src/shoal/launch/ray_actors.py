"""Workers as actors of a Ray cluster, which places them by the cores and GPUs of each.

Decisions and states go by the workspace, on a disk that all nodes see, and not by Ray's object store. That is memory: what a
node held is lost with it, while a worker that comes back elsewhere needs its checkpoint and its records. It would save
little: a megabyte went from one actor to another in 3 ms, and in 18 by a file that is synced (two cores, Ray 2.60).
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray

from shoal.core.atomic import read_or_nothing
from shoal.core.errors import BadInput
from shoal.core.interrupts import described
from shoal.launch.launcher import LOST, Crew, PlaceLost

PATIENCE = 20.0  # seconds in which the head of a cluster must answer
CHECK = 2.0  # seconds between two looks whether it does
LOST_AFTER = 45.0  # seconds without an answer; after a minute Ray ends this process


class _Worker:
    """The actor: the worker's command, in the actor's own process, so that both live and die together."""

    def train(self, words: list[str], folder: str, log: str) -> int:
        if os.path.isdir(folder):
            os.chdir(folder)
        with open(log, "ab") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
        sys.argv = ["shoal", *words]
        try:
            runpy.run_module("shoal", run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
        raise AssertionError("the command did not exit")


def _check_answers(address: str, seconds: float) -> None:
    """Raise OSError where nothing answers at an address of Ray, such as 10.0.0.5:6379 or ray://10.0.0.5:10001. Ray itself
    tries for a minute or more, has no limit that can be set, and may then end the process."""
    host, _, port = address.rpartition("://")[2].partition("?")[0].rpartition(":")
    if port.isdigit():  # else auto, or local
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()


class RayActors:
    """Actors of the cluster that RAY_ADDRESS names, or that this machine is in; else of one that begins here."""

    def __init__(self, crew: Crew, note: Callable[[str], None]):
        """Raises BadInput where no cluster can be had. note: is told which one is tried."""
        if address := os.environ.get("RAY_ADDRESS", ""):
            note(f"connecting to the Ray cluster at {address} (RAY_ADDRESS)")
            try:
                _check_answers(address, PATIENCE)
            except OSError as error:
                problem = f"nothing answers at RAY_ADDRESS={address}: {described(error)}"
                raise BadInput(f"--launcher ray: {problem}") from error
        self._crew = crew
        self._actors: dict[str, Any] = {}
        self._ends: dict[str, Any] = {}  # references to exit codes
        self._before: dict[str, str] = {}  # the leases that predecessors left
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", configure_logging=False)
        except Exception as error:  # of any kind: another version of Ray, a cluster that does not answer
            why = textwrap.shorten(str(error), 300, placeholder=" ...")
            raise BadInput(f"--launcher ray: no cluster can be had: {why}") from error
        self._address = address if "://" in address else str(ray.get_runtime_context().gcs_address)
        self._looked = self._silent = 0.0  # when the head of the cluster was asked last, and since when it is silent
        self._is_lost = False
        flags = os.environ.get("XLA_FLAGS", "")
        if "xla_force_host_platform_device_count" not in flags:  # an actor sees all cores of its node
            flags += f" --xla_force_host_platform_device_count={crew.cpus}"
        env = {"XLA_FLAGS": flags.strip()}
        if 0 < crew.gpus < 1:  # several workers share a GPU, of which JAX would take three quarters for the first
            memory = "XLA_PYTHON_CLIENT_MEM_FRACTION"
            env[memory] = os.environ.get(memory, f"{0.9 * crew.gpus:.3f}")
        self._kind = ray.remote(num_cpus=crew.cpus, num_gpus=crew.gpus, runtime_env={"env_vars": env})(_Worker)

    def start(self, name: str) -> bool:
        while not self._answers():  # for Ray would wait, and in the end leave the process
            time.sleep(CHECK)
        self._before[name] = self._lease(name)
        self._actors[name] = actor = self._kind.options(name=f"{self._crew.path}/{name}").remote()
        log = str(self._crew.log(name))
        self._ends[name] = actor.train.remote(self._crew.words(name), str(Path.cwd()), log)
        return True

    def _answers(self) -> bool:
        """True where the head of the cluster answers. Raises PlaceLost where it has not done so for long."""
        self._looked = time.monotonic()
        try:
            _check_answers(self._address, CHECK)
        except OSError as error:
            self._silent = self._silent or self._looked
            self._is_lost = self._looked - self._silent >= LOST_AFTER
            if self._is_lost:
                lost = f"the Ray cluster at {self._address} is lost ({described(error)})"
                again = "once there is one again, the same command continues from the last checkpoints"
                raise PlaceLost(f"{lost}; {again}") from error
            return False
        self._silent = 0.0
        return True

    def ended(self, name: str) -> int | None:
        if time.monotonic() - self._looked > CHECK:
            self._answers()
        if not ray.wait([self._ends[name]], timeout=0)[0]:
            return None
        try:
            code = ray.get(self._ends[name])
        except ray.exceptions.RayError as error:  # the actor died, or its node; why, Ray alone may know
            code = LOST
            with suppress(OSError), self._crew.log(name).open("a") as log:
                log.write(f"{error}\n")
        ray.kill(self._actors[name])  # gives its cores and GPUs back
        return code

    def stop(self) -> None:
        """Workers see in the workspace that they are to stop; who has no place yet never begins."""
        for name, actor in self._actors.items():
            if self._lease(name) in ("", self._before[name]):
                ray.kill(actor)

    def kill(self, names: Iterable[str]) -> None:
        for name in [] if self._is_lost else names:
            ray.kill(self._actors[name])

    def _lease(self, name: str) -> str:
        return read_or_nothing(self._crew.path / "leases" / name)
