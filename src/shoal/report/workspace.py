"""A directory that workers share: all of their runs as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core import run_files
from shoal.core.errors import BadInput
from shoal.core.escape import escape
from shoal.core.run_files import is_workspace
from shoal.records.generation import summary
from shoal.report.figures import PHASES
from shoal.report.generalisation import PURPOSES
from shoal.report.lineage import Lineage, count, inner, number, tabulate
from shoal.report.run import Run, RunFiles, read_run, read_worker

NEW = list(PURPOSES)[1]  # levels that nobody trains on, and of which the test knows nothing


def workers(path: Path) -> list[Run]:
    """The runs of all workers so far, by name."""
    return [read_worker(folder) for folder in begun(path)]


def begun(path: Path) -> list[Path]:
    """The folders of the runs of all workers so far, by name."""
    return sorted(folder for folder in (path / "workers").glob("*") if (folder / run_files.EXPERIMENT).is_file())


def read_workspace(path: Path, ended: bool = False) -> Run:
    """The runs of all workers as one population. ended: of those that have a result."""
    runs = [run for run in workers(path) if run.result or not ended]
    if not runs:
        raise BadInput(f"{path}: no worker has {'a result' if ended else 'begun'} yet")
    lineage, result = _lineage(path), _result(path, runs)
    metrics = _together(runs, lineage)
    members, planned = ([number(run.experiment.get(of)) for run in runs] for of in ("population", "generations"))
    population = _whole(_over(runs)([n for n in members if not np.isnan(n)] or [0.0]))
    if result:
        result |= {"population": population}
    elif metrics:
        metrics[-1]["champion"] = _best(runs)
    return replace(
        runs[0],
        name=escape(path.resolve().name),
        experiment=runs[0].experiment | {"population": population, "generations": _whole(max(planned))},
        result=result,
        metrics=metrics,
        lineage=lineage,
        wandb={},  # each worker has a run of its own there
        workers=tuple(runs),
    )


def read_totals(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The result of a workspace, empty until all of its workers have one, and its newest metrics: champion and steps alone,
    for which no lineage is read."""
    runs = [_now(RunFiles(folder, lenient=True)) for folder in begun(path)]
    if not runs:
        return {}, {}
    champion = {"fitness": (_best(runs) or {}).get("selection_fitness")}
    return _result(path, runs), _counts(runs, [run.latest for run in runs], "steps") | {"champion": champion}


def _now(files: RunFiles) -> Run:
    """The run of a worker without its history."""
    metrics, lineage = [files.latest], tabulate([])
    return Run(files.path.name, "", {}, files.method, files.result, metrics, lineage, provenance=[])


def _result(path: Path, runs: list[Run]) -> dict[str, Any]:
    """The result of all workers, without their number of members; nothing where one has none yet."""
    if not all(run.result for run in runs):
        return {}
    result = _results(runs) | {"champion": _best(runs)}
    if selected := _selected(path, runs):
        steps = count(selected["final_selection"].get("steps"))
        result |= {"champion": selected, "evaluation_steps": _whole(result["evaluation_steps"] + steps)}
    return result


def read_with_ancestors(path: Path) -> Run:
    """A run as `read_run` has it; that of a worker with the lineage of all workers, whose members it may have copied."""
    run, folder = read_run(path), path.resolve().parent
    alone = run.champion is None or folder.name != "workers" or not is_workspace(folder.parent)
    return run if alone else replace(run, lineage=_lineage(folder.parent))


def _lineage(path: Path) -> Lineage:
    """The lineage of all workers of a workspace."""
    return tabulate([row for folder in sorted((path / "workers").iterdir()) for row in RunFiles(folder).lineage])


def _together(runs: list[Run], lineage: Lineage) -> list[dict[str, Any]]:
    """The metrics of all workers, one entry per generation: fitness of all members in it, phases of the worker that took
    longest for it, of speeds see `_over`. Steps and seconds are those so far, of workers that are not yet there too."""
    found: dict[int, dict[int, dict[str, Any]]] = {}  # by generation and worker
    for worker, run in enumerate(runs):
        for row in run.metrics:
            if isinstance(row.get("generation"), int) and isinstance(row.get("timing"), dict):
                found.setdefault(row["generation"], {})[worker] = row
    together, newest = [], dict[int, dict[str, Any]]()
    for generation, rows in sorted(found.items()):
        newest |= rows
        timings = [row["timing"] for row in rows.values()]
        timing = max(timings, key=lambda t: np.nansum([number(t.get(name)) for name in PHASES]))
        timing = timing | {
            "seconds": max(number(row["timing"].get("seconds")) for row in newest.values()),
            "steps_per_second": _over(runs)([number(t.get("steps_per_second")) for t in timings]),
        }
        fitness = summary(lineage.fitness[lineage.generations == generation])
        counts = _counts(runs, [*newest.values()], "steps")
        together.append({"generation": generation, "timing": timing, "fitness": fitness, **counts})
    return together


def _over(runs: list[Run]) -> Callable[[list[float]], float]:
    """The way to combine counts of workers: their sum, or their maximum where each counts the whole population."""
    return max if runs[0].method.shares_evaluation else sum


def _counts(runs: list[Run], entries: list[dict[str, Any]], steps: str) -> dict[str, float]:
    """Environment steps of all, of training and of tests, from the counts of each worker."""
    kinds = {steps: _over(runs), "evaluation_steps": sum}
    return {name: _whole(kind([count(of.get(name)) for of in entries])) for name, kind in kinds.items()}


def _whole(total: float) -> float:
    """A number of things as the files of a single run have it: 512, and not 512.0. NaN stays."""
    return total if np.isnan(total) else int(total)


def _results(runs: list[Run]) -> dict[str, Any]:
    """The results of all workers but for the champion: what they agree on, sums, and the longest time."""
    results = [run.result for run in runs]
    alike = {name: value for name, value in results[0].items() if all(value == r.get(name, ...) for r in results[1:])}
    longest = max(results, key=lambda r: np.nan_to_num(number(r.get("seconds")), nan=-1.0))
    seconds = {name: number(longest.get(name)) for name in ("seconds", "compile_seconds")}
    return {"status": "stopped"} | alike | _counts(runs, results, "environment_steps") | seconds


def _best(runs: list[Run]) -> dict[str, Any] | None:
    """The best of the workers' champions: on held-out episodes, when all are done; until then as they were selected."""
    done = all(run.result for run in runs)

    def merit(champion: dict[str, Any]) -> tuple[float, ...]:
        # with levels on those of validation, for the test chooses nothing
        held_out = inner(champion, "levels", NEW) if inner(champion, "levels") else inner(champion, "evaluation")
        figures = [number(held_out.get("mean"))] if done else []
        return tuple(np.nan_to_num([*figures, number(champion.get("selection_fitness"))], nan=-np.inf).tolist())

    return max(filter(None, map(_champion, runs)), key=merit, default=None)


def _selected(path: Path, runs: list[Run]) -> dict[str, Any] | None:
    """The champion that the final selection found among those of these workers, and perhaps of more, with what is recorded
    of it; None where it is of none of these, and where theirs were others or there was no selection."""
    found = RunFiles(path).final_selection
    champions, among = {run.name: one for run in runs if (one := _champion(run))}, inner(found, "candidates")
    same = all(among.get(name) == [one.get("uid"), one.get("generation")] for name, one in champions.items())
    best = champions.get(str(found.get("worker"))) if same else None
    return best and best | {"final_selection": found}


def _champion(run: Run) -> dict[str, Any]:
    """The champion of one worker: of its result, or so far."""
    latest = inner(run.latest, "champion")
    fitness = number(latest.get("fitness"))
    return inner(run.result, "champion") or (latest | {"selection_fitness": fitness} if np.isfinite(fitness) else {})
