"""`shoal runs`: the runs below a folder, a line each."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from shoal.core.atomic import parse_json
from shoal.core.errors import BadInput
from shoal.core.visible import visible
from shoal.core.yaml_text import read_yaml
from shoal.records.jsonl import last_line, read_text
from shoal.records.screen import Screen, plain_table
from shoal.report.lineage import inner, number
from shoal.report.run import mapping
from shoal.report.words import text
from shoal.run.lock import NAME as LOCK
from shoal.run.provenance import FILE as PROVENANCE

FILE = "experiment.yaml"


class Line(NamedTuple):
    """What is told of a run."""

    run: str
    environment: str
    method: str
    score: str
    steps: str
    status: str
    date: str  # when it was last begun or resumed, UTC


def tell(folder: Path, screen: Screen) -> None:
    """List them, the latest last. Raises BadInput where there is no such folder."""
    if not folder.is_dir():
        raise BadInput(f"there is no folder {folder}; `shoal train` writes to runs where it is called")
    found = {file.parent: _read(file.parent, folder) for file in sorted(folder.rglob(FILE))}
    lines = [line for _, line in sorted(found.items(), key=lambda item: _begun(item[0])) if line]
    table = plain_table(*Line._fields)
    for column in table.columns:
        column.no_wrap = column.header in ("score", "steps", "status", "date")
        column.justify = "right" if column.header in ("score", "steps") else "left"
    for line in lines:
        table.add_row(*line)
    screen.print(table if lines else f"no runs below {folder}")
    for place in (place for place, line in found.items() if line is None):
        screen.print(f"passed over, as it cannot be read: {place}", style="yellow", soft_wrap=True)


def _read(run: Path, below: Path) -> Line | None:
    """What a run says of itself; None where it says nothing that can be understood."""
    experiment = mapping(read_yaml, read_text(run / FILE))
    if "env" not in experiment:
        return None
    result = mapping(parse_json, read_text(run / "result.json"))
    latest = {} if result else last_line(run / "metrics.jsonl")
    told = inner(result, "champion", "evaluation") or inner(latest, "champion")
    mean, error = number(told.get("mean", told.get("fitness"))), number(told.get("standard_error"))
    steps = number(result.get("environment_steps", latest.get("steps", 0)))
    made_by = last_line(run / PROVENANCE)
    method, agent = experiment.get("method"), experiment.get("agent")
    name = method.get("name") if isinstance(method, dict) else method
    return Line(
        visible(str(run.relative_to(below) if run != below else run)),
        visible(str(experiment["env"])),
        visible(f"{name}, {agent}"),
        f"{text(mean)} ± {text(error)}" if error == error else text(mean),
        f"{steps:,.0f}" if steps == steps else "",
        visible(str(result.get("status") or _unended(run))),
        visible(str(made_by.get("date") or datetime.fromtimestamp(_begun(run), UTC))[:16].replace("T", " ")),
    )


def _unended(run: Path) -> str:
    """Whether a run without a result goes on: its lock names a process, and says on which machine."""
    holder = re.match(r"process (\d+) on (.+)", read_text(run / LOCK))
    if holder is None:
        return "stopped"
    if holder[2] != socket.gethostname():
        return f"running on {holder[2]}"
    with suppress(ProcessLookupError):
        os.kill(int(holder[1]), 0)
        return "running"
    return "stopped"


def _begun(run: Path) -> float:
    """When a run was last begun or resumed, in seconds."""
    made_by = run / PROVENANCE
    return (made_by if made_by.exists() else run / FILE).stat().st_mtime
