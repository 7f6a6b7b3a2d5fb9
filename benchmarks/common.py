"""What the benchmarks share: running commands and generations, reading runs, printing tables."""

import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that nothing that was started stays behind
SHOAL = [sys.executable, "-m", "shoal"]
COMPILING = 2  # generations that do not count
WIDE = 1000  # characters in a line of a file or a pipe


def mpiexec(ranks: int, python: str = sys.executable) -> list[str]:
    """The start of a command line for so many ranks, with the MPI of an interpreter's environment."""
    return [str(Path(python).with_name("mpiexec")), "-n", str(ranks)]


def machine() -> str:
    """The machine in a few words, to stand over every table."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; all columns but the first are numbers."""
    made = Table(title=f"{title}\n[dim]{machine()}[/]", title_justify="left")
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        made.add_row(*row)
    Console(width=None if sys.stdout.isatty() else WIDE).print(made)  # so that no figure is cut


def most_memory() -> int:
    """The most bytes that the first device had in use; on a CPU, which does not say, those of this process."""
    import jax

    device = jax.local_devices()[0].memory_stats() or {}
    return device.get("peak_bytes_in_use") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def last_json(command: Sequence[str], **environment: str) -> dict:
    """Run a command, in this environment with these changes, and parse the last line that it prints."""
    changed = {**os.environ, **environment}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=changed).stdout
    return json.loads(output.strip().splitlines()[-1])


def timed_generations(
    plan: Any, shard: Any, seconds: float, ready: Callable[[], Any] = lambda: None
) -> list[tuple[float, float]]:
    """Play generations of a run for so long, three at least that count: all that the loop does between two records.

    Of each that counts the seconds of training, and of everything. ready: is called before the first that counts, and may
    wait.
    """
    from shoal.distributed.exchange import Exchange
    from shoal.distributed.synchronous import Synchronous

    times, began = [], 0.0
    evolution, hyper = plan.evolver.init((0, 0, 0), shard.uid)
    shard.begin(hyper)
    crew = Synchronous(Exchange(), plan.kind, shard)
    while len(times) < COMPILING + 3 or time.perf_counter() - began < seconds:
        if len(times) == COMPILING:
            ready()
            began = time.perf_counter()
        start, generation = time.perf_counter(), len(times)
        metrics = shard.train(generation, plan.iterations, plan.iterations)
        trained = time.perf_counter() - start
        shard.evaluate(generation)
        shared = crew.share(metrics, False, 0.0)
        decide = partial(plan.evolver.decide, (0, generation, 1), evolution)
        evolution = crew.evolve(shared, decide).evolution
        times.append((trained, time.perf_counter() - start))
    shard.close()
    return times[COMPILING:]


def generations(run_dir: Path) -> list[dict]:
    """The whole lines of a run's metrics so far."""
    path = run_dir / "metrics.jsonl"
    return (
        [json.loads(line) for line in path.read_text().splitlines(True) if line.endswith("\n")] if path.exists() else []
    )


def shoal_until(
    arguments: Sequence[str], reached, cache: Path | None = None, limit: float = 600
) -> tuple[float, list[dict]]:
    """Start `shoal train` and stop it when `reached(generations)`.

    Returns the seconds from the command's start and the generations. cache: where compiled programs are kept, instead of
    the user's own place.
    """
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        environment = dict(os.environ)
        if cache is not None:
            environment["XDG_CACHE_HOME"] = str(cache)
        began = time.perf_counter()
        command = [*SHOAL, "train", *arguments, "--quiet", "--run-dir", str(run_dir)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            while time.perf_counter() - began < limit and process.poll() is None:
                rows = generations(run_dir)
                if rows and reached(rows):
                    break
                time.sleep(0.01)
            seconds = time.perf_counter() - began
            rows = generations(run_dir)
        finally:
            process.kill()
            process.wait()
    if not rows or not reached(rows):
        raise SystemExit(f"the target was not reached within {limit} s: {' '.join(command)}")
    return seconds, rows
