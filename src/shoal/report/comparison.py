"""`shoal compare`: several runs on one page, with their curves on the same axes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.atomic import check_target, write_file
from shoal.core.errors import BadInput
from shoal.core.escape import escape
from shoal.core.run_files import is_workspace
from shoal.records.words import duration, text
from shoal.report import charts
from shoal.report.charts import Axis
from shoal.report.layout import quantile
from shoal.report.lineage import flat, inner, number
from shoal.report.over_time import nothing
from shoal.report.page import Section
from shoal.report.palette import series
from shoal.report.rendering import Figure, parts, prose, rendered
from shoal.report.run import Run, read_run
from shoal.report.workspace import read_workspace

OWN = ("run_dir", "exchange.worker")  # what no two runs have in common
STEPS = "environment steps of all members"
CURVES = {"best": "Best member", "median": "Median member"}


def write_comparison(paths: Sequence[Path], target: Path) -> list[list[str]]:
    """Write the page of these runs, and return its table of champions, heads first. Raises BadInput."""
    check_target(target)
    if len(paths) < 2:
        raise BadInput("one run is nothing to compare: name at least two")
    if len({path.resolve() for path in paths}) < len(paths):
        raise BadInput("each run is compared once: the same one is named twice")
    read = [read_workspace(path) if is_workspace(path) else read_run(path) for path in paths]
    for path, run in zip(paths, read, strict=True):
        if not run.metrics:
            raise BadInput(f"{path}: no generation has been recorded yet")
    unique = len({run.name for run in read}) == len(read)
    runs = {run.name if unique else escape(str(path)): run for path, run in zip(paths, read, strict=True)}
    differing, champions = differences(runs), _champions(runs)
    names = " and ".join(runs) if len(runs) == 2 else ", ".join(runs)
    scores = {name: number(run.tested.get("mean")) for name, run in runs.items()}
    known = sorted((name for name in runs if scores[name] == scores[name]), key=lambda name: -scores[name])
    summary = ", ".join(f"{name} {text(scores[name])}" for name in known)
    abstract = f"Scores of the champions: {summary}." if summary else "No champion has been evaluated yet."
    header = rendered("comparison_header.html", heading=names, abstract=abstract)
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
    names = dict.fromkeys(run.score for run in runs.values() if not run.exact)
    intro = prose("score", names=names, exact=any(run.exact for run in runs.values()))
    yield Section("champions", "Champions", intro, [parts.table(champions[0], champions[1:], "Champions")])
    tuned = list(dict.fromkeys(name for run in runs.values() for name in run.space))
    if tuned:
        intro = "The values that each champion ended with; – where a run has none."
        rows = [[name, *(_ended(run, name) for run in runs.values())] for name in tuned]
        values = parts.table(["hyperparameter", *runs], rows, "Hyperparameters of the champions")
        yield Section("hyperparameters", "Hyperparameters", intro, [values])
    intro = "The fields of the experiments that are not the same in all runs."
    none = parts.empty("Only the run directories differ.")
    table = parts.table(["field", *runs], differing, "Differences") if differing else none
    yield Section("differences", "Differences", intro, [table])


def _ended(run: Run, name: str) -> float | str:
    """The value of a hyperparameter with which the champion of a run ended; NaN where it has none."""
    along = run.lineage.hyper[name][run.trace] if name in run.lineage.hyper else np.empty(0)
    return run.shown(name, along[-1]) if len(along) else np.nan


def _curves(runs: dict[str, Run], name: str, heading: str) -> Figure:
    """A line for each run through its fitness."""
    curves = {path: _curve(run, name) for path, run in runs.items()}
    every = np.concatenate([_curve(run, other) for run in runs.values() for other in CURVES])
    if not np.isfinite(np.concatenate([*curves.values()])).all(axis=1).any():
        return nothing(heading, "No run has recorded a fitness.")
    x, y = Axis.over(np.r_[0.0, every[:, 0]], STEPS, short=True), Axis.over(every[:, 1], "fitness", 0.04)
    lines = [
        (
            path,
            series(at),
            curve[:, 0],
            np.stack([curve[:, 1], *_quartiles(runs[path])]) if name == "median" else curve[:, 1],
        )
        for at, (path, curve) in enumerate(curves.items())
    ]
    finding = "; ".join(f"{path} ends at {text(float(curve[-1, 1]))}" for path, curve in curves.items()) + "."
    drawn = charts.lines_plot(x, y, lines, heading, finding)
    exact = all(run.exact for run in runs.values())
    return Figure(heading, finding, prose("compared_curves", banded=name == "median", exact=exact), drawn)


def _curve(run: Run, name: str) -> np.ndarray:
    """[G, 2] Steps, and the fitness of this kind after so many."""
    return np.array([[number(row.get("steps")), number(inner(row, "fitness").get(name))] for row in run.metrics])


def _quartiles(run: Run) -> list[np.ndarray]:
    """[2][G] The quartiles of the fitness of members, at each line of the metrics; NaN where members are not known."""
    row = {generation: at for at, generation in enumerate(run.lineage.generations.tolist())}
    generations = [line.get("generation") for line in run.metrics]
    at = [row.get(generation, -1) if isinstance(generation, int) else -1 for generation in generations]
    fitness = np.vstack([run.lineage.fitness, np.full((1, len(run.lineage.uids)), np.nan)])[at]
    return [quantile(fitness, q) for q in (0.25, 0.75)]


def _champions(runs: dict[str, Run]) -> list[list[str]]:
    """The heads of the table, and a row for each run."""
    rows = [
        ["run", "environment", "method", "agent", "score", "standard error", "95 % interval", "steps", "time", "status"]
    ]
    for path, run in runs.items():
        mean = number(run.tested.get("mean"))
        error = np.nan if run.exact else number(run.tested.get("standard_error"))  # nothing is played for it
        ends = f"{text(mean - 1.96 * error)} to {text(mean + 1.96 * error)}"
        steps = number(run.result.get("environment_steps", run.latest.get("steps")))
        seconds = number(run.result.get("seconds", inner(run.latest, "timing").get("seconds")))
        names = (run.experiment.get("env"), run.method.name, run.experiment.get("agent"))
        score = [text(mean), text(error), ends if error == error else "–"]
        made = f"{steps:,.0f}" if steps == steps else "–"
        status = str(run.result.get("status", "no result yet"))
        row = [path, *(str(name or "–") for name in names), *score, made, duration(seconds), status]
        rows.append([escape(word) for word in row])
    return rows
