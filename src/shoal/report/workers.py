"""The workers of a workspace in the terminal: a row of each, renewed while they run; and who is at work since when."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shoal.core import run_files
from shoal.core.atomic import read_or_nothing
from shoal.core.errors import BadInput
from shoal.core.interrupts import interruptible
from shoal.core.run_files import is_workspace
from shoal.records.generation import summary
from shoal.records.screen import Screen, plain_table, styled
from shoal.records.words import text
from shoal.report.lineage import inner, number
from shoal.report.run import Run, read_worker
from shoal.report.workspace import begun, workers

GLANCE = 2.0  # seconds between two updates
SILENT = 60.0  # seconds without a renewal of its lease after which nobody knows of a worker
FILES = (run_files.EXPERIMENT, run_files.LINEAGE, run_files.METRICS, run_files.RESULT)


class Glance(NamedTuple):
    """A worker in a row of the table."""

    name: str
    done: int  # generations
    planned: str  # and how many it will do
    best: float
    figures: tuple[str, ...]  # best, median and worst fitness, copies, those of other workers' members, steps/s
    over: bool  # it has its result


def watch_workspace(path: Path, console: Screen) -> None:
    """Show the progress of every worker until all are done, or Ctrl-C. Raises BadInput where there are none."""
    check_workspace(path, "--watch has nothing to show")
    try:
        with interruptible() as attend, Live(view(path), console=console, refresh_per_second=4) as live:
            while not _ended(path):
                for _ in range(40):
                    attend()
                    time.sleep(GLANCE / 40)
                live.update(view(path))
    except KeyboardInterrupt:
        console.print()


def _ended(path: Path) -> bool:
    """True where all workers have their results; the last one is then at work on the final selection for a while."""
    rows = glances(path)
    return bool(rows) and all(row.over for row in rows) and not at_work(path)


def check_workspace(path: Path, otherwise: str) -> None:
    """Raise BadInput where this is no workspace."""
    if not is_workspace(path):
        launched = (path / "logs").is_dir()  # by a command whose workers still start, or wait in a queue
        problem = "has no worker yet" if launched else "is not a workspace that workers share"
        raise BadInput(f"{path} {problem}; {otherwise}")


def view(path: Path, states: Mapping[str, str] | None = None) -> Table:
    """The table of all workers. states: of those that were started, by name; the others' are what their files show."""
    table = plain_table(title=str(path), title_justify="left")
    for name in ("worker", "generation", "best", "median", "worst", "copies", "from other workers", "steps/s", "state"):
        table.add_column(name, justify="left" if name in ("worker", "state") else "right", no_wrap=True)
    rows, states = {row.name: row for row in glances(path)}, states or {}
    for name in sorted({*rows, *states}, key=lambda name: (len(name), name)):
        row = rows.get(name) or Glance(name, 0, "?", np.nan, ("",) * 6, False)
        state = styled((states[name], "yellow")) if states.get(name) else state_of(path, row.name, row.over)
        table.add_row(name, f"{row.done}/{row.planned}", *row.figures, state)
    return table


def glances(path: Path) -> list[Glance]:
    """All workers that have begun; what has not changed since the last time is not read again."""
    return [_glance(folder, tuple(map(_stamp, [folder / file for file in FILES]))) for folder in begun(path)]


def _stamp(file: Path) -> tuple[int, int]:
    try:
        return file.stat().st_mtime_ns, file.stat().st_size
    except OSError:
        return 0, 0


@lru_cache(1024)
def _glance(folder: Path, stamp: object) -> Glance:
    run = read_worker(folder)
    lineage, planned = run.lineage, _planned(run)
    if not len(lineage.generations):
        return Glance(run.name, 0, planned, np.nan, ("",) * 6, bool(run.result))
    fitness = {kind: number(value) for kind, value in summary(lineage.fitness[-1]).items()}
    values = [text(fitness[kind]) for kind in ("best", "median", "worst")]
    copies = [str(int(copied.sum())) for copied in (lineage.copied, lineage.foreign)]
    speed = number(inner(run.latest, "timing").get("steps_per_second"))
    done = int(lineage.generations[-1]) + 1
    return Glance(run.name, done, planned, fitness["best"], (*values, *copies, f"{speed:,.0f}"), bool(run.result))


def _planned(run: Run) -> str:
    """The number of generations; "?" where a budget or a time limit ends the run, and it is the most there can be."""
    planned, open_end = run.experiment.get("generations"), any(map(run.experiment.get, ("budget", "time_limit")))
    return str(planned) if isinstance(planned, int) and not open_end else "?"


def state_of(path: Path, name: str, over: bool) -> Text:
    """The state of a worker, as far as its files show. over: it has its result"""
    if over:
        return styled(("done", "green"))
    try:
        before = (path / "leases" / name).stat().st_mtime
    except OSError:
        return styled(("stopped", "yellow"))
    return styled("at work" if abs(time.time() - before) < SILENT else ("silent", "yellow"))


def at_work(path: Path) -> list[str]:
    """The names of those that hold a lease which they renew."""
    names = sorted(lease.name for lease in (path / "leases").glob("[!.]*"))
    return [name for name in names if state_of(path, name, False).plain == "at work"]


def status(path: Path) -> Table:
    """Who is at work, where and since when, how far each is, and what it copied from others. Raises BadInput."""
    check_workspace(path, "`shoal status` has nothing to show")
    table = plain_table()
    for name in (
        "worker",
        "process",
        "since",
        "generation",
        "copies",
        "from other workers",
        "latest from other workers",
        "state",
    ):
        table.add_column(name, justify="right" if name in ("generation", "copies", "from other workers") else "left")
    runs, rows = workers(path), {row.name: row for row in glances(path)}
    owner = {uid: run.name for run in runs for uid in run.lineage.uids.tolist()}
    for run in runs:
        host, process, *_ = [*read_or_nothing(path / "leases" / run.name).split(), "", ""]
        since = str((run.provenance or [{}])[-1].get("date", ""))[:16].replace("T", " ")
        row, copies = rows[run.name], run.lineage.foreign
        latest = ""
        if copies.any():
            at, column = np.argwhere(copies)[-1]
            parent = int(run.lineage.parents[at, column])
            generation = run.lineage.counted[at]
            latest = f"{run.lineage.uids[column]} ← {parent} of {owner.get(parent, '?')}, generation {generation}"
        state = state_of(path, run.name, row.over)
        where = f"{process} on {host}" if process else ""
        table.add_row(run.name, where, since, f"{row.done}/{row.planned}", *row.figures[3:5], latest, state)
    return table
