"""`shoal compare`: several runs on one page, their curves on the same axes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.atomic import write_file
from shoal.core.errors import BadInput
from shoal.core.escape import escape
from shoal.report import charts
from shoal.report.charts import Axis
from shoal.report.lineage import flat, inner, number
from shoal.report.over_time import nothing
from shoal.report.page import Section
from shoal.report.palette import series
from shoal.report.rendering import Figure, parts, prose, rendered
from shoal.report.run import Run, read_run
from shoal.report.words import duration, many, text
from shoal.report.workspace import is_workspace, read_workspace

OWN = ("run_dir", "exchange.worker")  # what no two runs have in common
STEPS = "environment steps of all members"
CURVES = {"best": "Best member", "median": "Median member"}


def write_comparison(paths: Sequence[Path], target: Path) -> list[list[str]]:
    """Write the page of these runs, and return its table of champions, heads first. Raises BadInput."""
    if len(paths) < 2:
        raise BadInput("one run is nothing to compare: name at least two")
    runs = {escape(str(path)): read_workspace(path) if is_workspace(path) else read_run(path) for path in paths}
    if len(runs) < len(paths):
        raise BadInput("each run is compared once: the same one is named twice")
    for path, run in runs.items():
        if not run.metrics:
            raise BadInput(f"{path}: no generation has been recorded yet")
    differing, champions = differences(runs), _champions(runs)
    names = ", ".join(runs)
    header = rendered("comparison_header.html", heading=many(len(runs), "run"), names=names)
    page = rendered(
        "page.html", title=f"{names}: a comparison", header=header, footer="Read from the files of these runs.",
        sections=[*_sections(runs, champions, differing)],
    )  # fmt: skip
    write_file(target, page.encode())
    return champions


def differences(runs: dict[str, Run]) -> list[list[str]]:
    """One row for each field of the experiments that is not the same in all of them: its dotted name, then its values."""
    each = [{name: _shown(x) for name, x in flat(run.experiment, ".").items()} for run in runs.values()]
    names = sorted({name for fields in each for name in fields if name not in OWN})
    rows = [[name, *(fields.get(name, "–") for fields in each)] for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _sections(runs: dict[str, Run], champions: list[list[str]], differing: list[list[str]]) -> Iterator[Section]:
    curves = [_curves(runs, name, heading) for name, heading in CURVES.items()]
    yield Section("curves", "Curves", "Learning curves of all runs, on the same axes.", [curves])
    intro = "Return of each champion on held-out episodes, on which nothing was selected."
    yield Section("champions", "Champions", intro, [parts.table(champions[0], champions[1:], "Champions")])
    intro = "The fields of the experiments that are not the same in all runs."
    none = parts.empty("Nothing differs but the place of the run.")
    table = parts.table(["field", *runs], differing, "Differences") if differing else none
    yield Section("differences", "Differences", intro, [table])


def _curves(runs: dict[str, Run], name: str, heading: str) -> Figure:
    """A line for each run through its fitness."""
    curves = {path: _curve(run, name) for path, run in runs.items()}
    every = np.concatenate([_curve(run, other) for run in runs.values() for other in CURVES])
    if not np.isfinite(np.concatenate([*curves.values()])).all(axis=1).any():
        return nothing(heading, "No run has recorded a fitness.")
    x, y = Axis.over(np.r_[0.0, every[:, 0]], STEPS, short=True), Axis.over(every[:, 1], "fitness", 0.04)
    lines = [(path, series(at), curve[:, 0], curve[:, 1]) for at, (path, curve) in enumerate(curves.items())]
    finding = "; ".join(f"{path} ends at {text(float(curve[-1, 1]))}" for path, curve in curves.items()) + "."
    drawn = charts.lines_plot(x, y, lines, heading, finding)
    return Figure(heading, finding, prose("compared_curves"), drawn)


def _curve(run: Run, name: str) -> np.ndarray:
    """[G, 2] Steps, and the fitness of this kind after so many."""
    return np.array([[number(row.get("steps")), number(inner(row, "fitness").get(name))] for row in run.metrics])


def _champions(runs: dict[str, Run]) -> list[list[str]]:
    """The heads of the table, and a row for each run."""
    rows = [["run", "environment", "method", "score", "± error", "95 % interval", "steps", "time", "status"]]
    for path, run in runs.items():
        mean, error = number(run.tested.get("mean")), number(run.tested.get("standard_error"))
        ends = f"{text(mean - 1.96 * error)} to {text(mean + 1.96 * error)}"
        steps = number(run.result.get("environment_steps", run.latest.get("steps")))
        seconds = number(run.result.get("seconds", inner(run.latest, "timing").get("seconds")))
        who = f"{run.method.name}, {run.experiment.get('agent', '')}"
        score = [text(mean), text(error), ends if error == error else "–"]
        made = f"{steps:,.0f}" if steps == steps else "–"
        status = str(run.result.get("status", "no result yet"))
        env = str(run.experiment.get("env", ""))
        row = [path, env, who, *score, made, duration(seconds), status]
        rows.append([escape(word) for word in row])
    return rows
