"""One measurement in a process of its own: timing calls, processes that start together, and memory. Standard library.

Whoever measures under JAX or PyTorch makes a function `call`, which returns when its work is done, and hands it to
`alone` or, one per process, to `together`. Both return what `benchmarks/update_step.py` writes into its file.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SKIP = 2  # calls before those that count
BLOCKS = 3  # of calls between two meetings of processes


class Cell(NamedTuple):
    """What is measured: `population` agents, each of which makes `steps` updates per call."""

    agent: str
    steps: int
    method: str  # sequential, parallel or vectorised
    population: int
    calls: int  # at most
    seconds: float  # after which no more calls begin, once enough are counted


def parse(text: str) -> Cell:
    """A cell from a command line."""
    return Cell(**json.loads(text))


def alone(call: Callable[[], None], cell: Cell) -> dict[str, Any]:
    """Seconds per call within this process."""
    times, cpu, began = [], [], time.perf_counter()
    for i in range(cell.calls):
        start, spent = time.perf_counter(), time.process_time()
        call()
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - spent)
        if i + 1 >= SKIP + BLOCKS and time.perf_counter() - began > cell.seconds:
            break
    return {**_summary(times[SKIP:], len(times) - SKIP), "cpu": statistics.fmean(cpu[SKIP:])}


def together(prepare: Callable[[int], tuple[Callable, Callable]], cell: Cell) -> dict[str, Any]:
    """One process per agent: seconds until all have made a call, as the mean over each of some blocks of calls.

    prepare: from an agent's number to its `call` and to a function that says what else there is to report, such as
    seconds of compilation. It runs in the new process, first in one and then in all others, so that compiled programs
    can be taken from the cache.
    """
    context = multiprocessing.get_context("fork")  # what is imported is shared by all, and its memory counts once
    barrier, count, results = (
        context.Barrier(cell.population + 1, timeout=1800),
        context.Value("i", 0),
        context.SimpleQueue(),
    )
    first = context.Event()
    processes = [
        context.Process(target=_work, args=(i, prepare, barrier, count, first, results), daemon=True)
        for i in range(cell.population)
    ]
    for process in processes:
        process.start()

    def block(calls: int) -> float:
        count.value = calls
        barrier.wait()
        start = time.perf_counter()
        barrier.wait()
        return (time.perf_counter() - start) / max(calls, 1)

    barrier.wait()  # all are ready
    estimate = min(block(1) for _ in range(SKIP))
    calls = max(1, min(cell.calls - SKIP, int(cell.seconds / estimate)) // BLOCKS)
    times = [block(calls) for _ in range(BLOCKS)]
    block(0)
    reports = [results.get() for _ in processes]
    for process in processes:
        process.join()
    names = set().union(*reports) - {"memory_mb", "cpu"}
    return {
        **_summary(times, BLOCKS * calls),
        "cpu": sum(report["cpu"] for report in reports),
        "memory_mb": _share() + sum(report["memory_mb"] for report in reports),
        **{name: max(report.get(name, 0) for report in reports) for name in names},
    }


def _work(number: int, prepare: Callable, barrier: Any, count: Any, first: Any, results: Any) -> None:
    if number > 0:
        first.wait()
    call, report = prepare(number)
    first.set()
    barrier.wait()
    cpu, done = [], []
    while True:
        barrier.wait()
        calls, spent = count.value, time.process_time()
        for _ in range(calls):
            call()
        cpu, done = [*cpu, time.process_time() - spent], [*done, calls]
        if not calls:
            results.put({"cpu": sum(cpu[SKIP:]) / sum(done[SKIP:]), "memory_mb": _share(), **report()})
        barrier.wait()
        if not calls:
            break
    os._exit(0)  # without what a library does when it is unloaded


def peak() -> float:
    """Megabytes that this process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _share() -> float:
    """Megabytes of this process now, what it shares with others divided among them."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    except OSError:
        return peak()


def _summary(times: list[float], calls: int) -> dict[str, Any]:
    return {
        "calls": calls,
        "mean": statistics.fmean(times),
        "median": statistics.median(times),
        "min": min(times),
        "max": max(times),
    }


def best(call: Callable, seconds: float) -> tuple[float, float]:
    """The least wall time, and the least CPU time, of all calls within so long; the first one does not count."""
    call()
    times: list[tuple[float, float]] = []
    while len(times) < 2 or sum(wall for wall, _ in times) < seconds:
        began, spent = time.perf_counter(), time.process_time()
        call()
        times.append((time.perf_counter() - began, time.process_time() - spent))
    return min(wall for wall, _ in times), min(cpu for _, cpu in times)


def answer(measure: Callable[[dict], dict], description: str | None) -> None:
    """The command line of a script that measures what `--cell JSON` says, and prints one line of JSON."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", required=True, type=json.loads, metavar="JSON")
    print(json.dumps(measure(parser.parse_args().cell)))
