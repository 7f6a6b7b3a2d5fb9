"""`shoal runs`: the runs in a folder, a line each."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shoal.core import run_files
from shoal.core.errors import BadInput
from shoal.core.escape import escape
from shoal.core.run_files import is_workspace
from shoal.distributed.lease import alive
from shoal.records.jsonl import last_line, read_text
from shoal.records.screen import Screen, plain_table
from shoal.records.words import text
from shoal.report.lineage import inner, number
from shoal.report.run import RunFiles
from shoal.report.workers import at_work
from shoal.report.workspace import begun, read_totals
from shoal.run.lock import NAME as LOCK

HOLDER = re.compile(r"process ([1-9][0-9]{0,8}) on (.+)")
# The status may name a damaged file; the date is that of the last start or resume, UTC.
COLUMNS = ("run", "environment", "method", "agent", "score", "steps", "status", "date")
LONGEST = 99  # characters of a cell that a file fills


def list_runs(folder: Path, screen: Screen) -> None:
    """List the runs, the latest last. Raises BadInput if there is no such folder."""
    if not folder.is_dir():
        raise BadInput(f"there is no folder {folder}; `shoal train` writes to runs where it is called")
    lines = [_read(run, folder) for run in sorted(_runs(folder), key=lambda run: (_begun(run), run))]
    table = plain_table(*COLUMNS)
    for column in table.columns:
        column.no_wrap = column.header in ("score", "steps", "status", "date")
        column.justify = "right" if column.header in ("score", "steps") else "left"
    for run, *cells in lines:
        table.add_row(escape(run), *(escape(cell[:LONGEST]) for cell in cells))
    screen.print(table if lines else f"no runs below {folder}")


def _runs(folder: Path) -> Iterator[Path]:
    """Folders with an experiment.yaml, in this folder and below; links are not followed.

    os.walk goes no deeper than calls of Python may.
    """
    waiting = [folder]
    while waiting:
        inside: list[os.DirEntry[str]] = []
        with suppress(OSError), os.scandir(folder := waiting.pop()) as entries:  # no permission, or deleted meanwhile
            inside.extend(entries)
        if any(entry.name == run_files.EXPERIMENT for entry in inside):
            yield folder
        waiting += [folder / entry.name for entry in inside if entry.is_dir(follow_symlinks=False)]


def _read(run: Path, below: Path) -> tuple[str, ...]:
    """The cells of a run, as far as its files can be read."""
    files = RunFiles(run, lenient=True)
    experiment, result, latest = files.experiment, files.result, files.latest
    if not result and is_workspace(run):
        with suppress(OSError, BadInput):  # what is wrong with a worker's files stands in its own line
            result, latest = read_totals(run)
    made_by, holder = files.read(run_files.PROVENANCE, last_line), _of_workers(run) or files.read(LOCK, _holder)
    if "env" not in experiment:
        files.problems.append(f"{run_files.EXPERIMENT} {'names no env' if experiment else 'holds no fields'}")
    champion = inner(result, "champion", "evaluation") or ({} if result else inner(latest, "champion"))
    mean, error = number(champion.get("mean", champion.get("fitness"))), number(champion.get("standard_error"))
    steps = number(result.get("environment_steps", latest.get("steps", 0)))
    method = experiment.get("method")
    names = (experiment.get("env"), method.get("name") if isinstance(method, dict) else method, experiment.get("agent"))
    return (
        str(run.relative_to(below) if run != below else run),
        *(str(name or "–") for name in names),
        text(mean) if champion.get("exact") is True or error != error else f"{text(mean)} ± {text(error)}",
        f"{steps:,.0f}" if steps == steps else "",
        files.problems[0] if files.problems else str(result.get("status") or holder),
        str(made_by.get("date", ""))[:16].replace("T", " "),
    )


def _of_workers(run: Path) -> str:
    """The status of a workspace, or of the run of a worker in one, without a result; workers have leases in place of a lock.
    Empty for other runs."""
    if is_workspace(run):
        ended = [(one / run_files.RESULT).exists() for one in begun(run)]
        return "running" if at_work(run) else "done" if ended and all(ended) else "stopped"
    workspace = run.parent.parent
    if run.parent.name != "workers" or not is_workspace(workspace):
        return ""
    return "running" if run.name in at_work(workspace) else "stopped"


def _holder(lock: Path) -> str:
    """The status of a run without a result, by the process and machine in its lock."""
    text = read_text(lock)
    if not text:
        return "stopped"
    if not (holder := HOLDER.fullmatch(text)):
        raise ValueError("names no process")
    if holder[2] != socket.gethostname():
        return f"running on {holder[2]}"
    return "running" if alive(int(holder[1])) else "stopped"


def _begun(run: Path) -> float:
    """Time of the last start or resume of a run, in seconds; 0 if unknown."""
    for name in (run_files.PROVENANCE, run_files.EXPERIMENT):
        with suppress(OSError):
            return (run / name).lstat().st_mtime
    return 0.0
