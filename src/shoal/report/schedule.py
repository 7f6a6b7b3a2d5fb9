"""The schedule by which a run's champion came to be."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import yaml

from shoal.core.errors import BadInput
from shoal.core.escape import write_csv
from shoal.report.run import Run
from shoal.report.workspace import read_with_ancestors


def schedule(path: Path) -> list[dict[str, Any]]:
    """The champion's lineage, one row per generation: what its weights were trained with and how fit they were.

    Columns: generation (from 0), uid (whose hands the weights were in), steps, fitness (None where nothing was evaluated),
    copied (the weights came over from another member for this generation), then every hyperparameter.
    """
    return schedule_of(read_with_ancestors(path))


def schedule_of(run: Run) -> list[dict[str, Any]]:
    """The rows of `schedule` of a run that was read."""
    table, rows = run.lineage, []
    for row, column in zip(*run.trace, strict=True):
        steps = table.steps[row, column]
        entry: dict[str, Any] = {
            "generation": int(table.generations[row]),
            "uid": int(table.uids[column]),
            "steps": None if np.isnan(steps) else int(steps),
            "fitness": _plain(table.fitness[row, column]),
            "copied": bool(table.origin[row, column] not in (-1, column)),
        }
        rows.append(entry | {name: _plain(values[row, column]) for name, values in table.hyper.items()} | entry)
    return rows


def print_schedule(path: Path, format: str, out: TextIO) -> None:
    """Write the champion's schedule as csv, yaml or json, hyperparameters in as few digits as float32 needs.

    Generations count from 1, as on the terminal. Of choices in the structure it has what was chosen.
    """
    exact, run = ("generation", "uid", "steps", "fitness", "copied"), read_with_ancestors(path)
    rows: list[dict[str, Any]] = [
        {name: x if name in exact else shortest(x) for name, x in row.items()} for row in schedule_of(run)
    ]
    for row in rows:
        row["generation"] += 1
        for name, listed in run.choices.items():
            if (place := row.get(name)) is not None:
                row[name] = deepcopy(listed[int(place)])  # YAML would refer from one row to another
    if not rows:
        raise no_schedule(path, run)
    if format == "csv":
        write_csv(rows, rows[0], out)
    elif format == "yaml":
        yaml.safe_dump(rows, out, sort_keys=False)
    else:
        json.dump(rows, out, indent=1)
        out.write("\n")


def no_schedule(path: Path, run: Run) -> BadInput:
    """Describe why a run has no schedule."""
    if len(run.lineage.generations):
        return BadInput(f"{path} has no schedule: no member ever had a finite fitness, so there is no champion")
    return BadInput(f"{path} has no schedule yet: its first generation has not ended")


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def shortest(value: float | None) -> float | None:
    """A number of float32 in the fewest digits that identify it: 0.3, not 0.30000001192092896."""
    if value is None or np.float32(value) != value:
        return value
    return float(str(np.float32(value)))
