"""The devices of this process: how members are divided among them, and the programs that run there."""

from __future__ import annotations

import math
import os
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shoal.core.atomic import absolute
from shoal.core.cores import share, usable_cores, usable_gpus
from shoal.core.interrupts import COMPILING, attend
from shoal.core.threefry import few_in_one_piece
from shoal.core.types import Population, PyTree
from shoal.members.compilation_cache import keep_whole
from shoal.rl.batching import AXIS

STARTED = (
    "JAX was used before Shoal, and so has one device: members train on one of {cores} cores. To use all of them, train "
    "before anything else uses JAX, or begin with jax.config.update('jax_num_cpu_devices', {cores})"
)
MEMBERS, REPLICATED = PartitionSpec(AXIS), PartitionSpec()  # each member on its device, or the whole on every one
OF_POPULATION: Any = Population(members=MEMBERS, shared=REPLICATED, hyper=MEMBERS, env_parameters=MEMBERS)  # type: ignore[arg-type]


def prepare(neighbour: tuple[int, int] = (0, 1), sharer: tuple[int, int] = (0, 1)) -> None:
    """Make every core a device, random bits cheap, and keep compiled programs on disk; the user's settings stay as they are.

    neighbour: which process this is of those on this machine; each takes a GPU of its own.
    sharer: which it is of those that may run on the same cores; each keeps to its share of them.
    Takes effect when called before JAX is first used in the process.
    """
    rank, size = neighbour
    cores = _own_cores(*sharer)
    if size > 1 and (visible := usable_gpus()):
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[rank % len(visible)]
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        try:
            jax.config.update("jax_num_cpu_devices", cores)
        except RuntimeError:  # JAX is in use already: its devices stay as they are
            if cores > 1 and jax.default_backend() == "cpu" and len(jax.devices()) == 1:
                warnings.warn(STARTED.format(cores=cores), stacklevel=2)
    few_in_one_piece()
    own = absolute(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal" / "compiled"
    keep_whole(own)
    given = getattr(jax.config, "jax_compilation_cache_dir", None)
    if given and "://" not in given and not os.path.isabs(given):
        jax.config.update("jax_compilation_cache_dir", str(absolute(given)))
    if given is None:
        jax.config.update("jax_compilation_cache_dir", str(own))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def _own_cores(rank: int, size: int) -> int:
    """Restrict this process to its share of the cores. Returns their number."""
    cores = usable_cores()
    if not hasattr(os, "sched_setaffinity"):
        return max(1, len(cores) // size)
    if size > 1:  # otherwise the threads of all processes would compete for all cores
        cores = [*share(cores, rank, size)]
        os.sched_setaffinity(0, cores)
    return len(cores)


def free_memory() -> int | None:
    """Bytes free on the devices; None where unknown."""
    stats = [device.memory_stats() for device in jax.devices()]
    if all(stats):
        return sum(s["bytes_limit"] - s["bytes_in_use"] for s in stats)
    return host_memory()


def host_memory() -> int | None:
    """Bytes free on this machine; None where unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


class DeviceLayout:
    """The member axis, divided among the largest possible number of devices; each device runs its members independently.

    together: all members on one device, because they learn from one another. side_by_side: the number of consecutive
    members that must be on the same device; it divides the number of members.
    """

    def __init__(self, members: int, together: bool = False, side_by_side: int = 1):
        devices = jax.devices()
        groups = members // side_by_side
        count = 1 if together else max(d for d in range(1, len(devices) + 1) if groups % d == 0)
        self.mesh = Mesh(np.array(devices[:count]), (AXIS,))

    @property
    def devices(self) -> int:
        return self.mesh.size

    def place(self, tree: PyTree, spec: PyTree = MEMBERS) -> PyTree:
        """Put a tree on the devices. spec: of all of it, or a tree of specs for its first branches."""
        return jax.device_put(tree, self._shardings(spec))

    def beside(self, tree: PyTree, row: int) -> tuple[PyTree, int]:
        """The part of a tree of members [N, ...] that is on the device of this row, and which row that is there."""
        members = len(jax.tree.leaves(tree)[0])
        device, inside = divmod(row, members // self.devices)
        return jax.tree.map(lambda x: x.addressable_data(device), tree), inside

    def program(
        self, function: Callable, *specs: PyTree, out: PyTree = MEMBERS, donate: tuple[int, ...] = ()
    ) -> Program:
        """Compile `function` for this layout.

        specs: of each argument, or a tree of specs for its first branches. out: the same of the results.
        donate: arguments whose memory the results take over.
        """
        return self.gather(self._mapped(function, specs, out), *specs, out=out, donate=donate)

    def shapes(self, function: Callable, specs: PyTree, out: PyTree, *arguments: PyTree) -> PyTree:
        """The shapes that a program of `function` returns; specs, out: see `program`.

        It is traced as the program is, so that JAX knows most of it when the program is compiled.
        """
        with jax.set_mesh(self.mesh):
            jitted = jax.jit(self._mapped(function, specs, out), in_shardings=self._shardings(specs))
            return jitted.eval_shape(*arguments)

    def _mapped(self, function: Callable, specs: PyTree, out: PyTree) -> Callable:
        if self.devices == 1:
            return function
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=out, check_vma=False)

    def gather(
        self, function: Callable, *specs: PyTree, out: PyTree = MEMBERS, donate: tuple[int, ...] = ()
    ) -> Program:
        """Compile a function that moves data between members, and so between devices."""
        shardings, result = self._shardings(specs), self._shardings(out)
        jitted = jax.jit(function, in_shardings=shardings, out_shardings=result, donate_argnums=donate)
        return Program(jitted, self.mesh)

    def _shardings(self, specs: PyTree) -> PyTree:
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), specs)


class Program:
    """A jitted function, traced and compiled once, at its first call; other shapes are an error, not a retrace."""

    def __init__(self, function: Any, mesh: Mesh):
        self._function, self._mesh = function, mesh
        self._compiled: Any = None
        self._error: Exception | None = None  # of the compiler, for the call that waits for it
        self._lock = threading.Lock()
        self.compiling = (0.0, 0.0)  # from when to when, on the clock of time.perf_counter; so far without end

    @property
    def compiled(self) -> bool:
        return self._compiled is not None

    @property
    def begun(self) -> bool:
        """True once it is compiled, or its compilation has begun."""
        return self.compiling[0] > 0

    def begin(self, *arguments: PyTree) -> None:
        """Compile for arguments like these, in a thread: a call waits for it, open to signals, and raises its errors.

        It is traced here and now. Where threads trace at the same time, who is first decides on details of both programs,
        and a later process would not find what this one has compiled.
        """
        with suppress(Exception):
            self._begin(*arguments)

    def __call__(self, *arguments: PyTree) -> Any:
        while self._compiled is None:
            if self._error is not None:
                raise self._error
            self._begin(*arguments)
            while not self._lock.acquire(timeout=0.1):
                attend()
            self._lock.release()
        return self._compiled(*arguments)

    def _begin(self, *arguments: PyTree) -> None:
        """Compile as `begin` does, but raise errors of tracing."""
        if self.compiled or not self._lock.acquire(blocking=False):
            return
        try:
            self.compiling = (time.perf_counter(), math.inf)
            with jax.set_mesh(self._mesh):
                traced = self._function.lower(*arguments)
        except BaseException:
            self._lock.release()
            raise
        # No daemon: the process would crash if it ended while compiling.
        threading.Thread(target=self._compile, args=(traced,), name=COMPILING).start()

    def _compile(self, traced: Any) -> None:
        try:
            with jax.set_mesh(self._mesh):
                self._compiled = traced.compile()
            self._function = None  # with all that was traced
            self.compiling = (self.compiling[0], time.perf_counter())
        except Exception as error:
            self._error = error
        finally:
            self._lock.release()


def covered(spans: list[tuple[float, float]]) -> float:
    """Seconds within at least one of the spans (start, end): parallel work counts once."""
    total, reached = 0.0, 0.0
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total
