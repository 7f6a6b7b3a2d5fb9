"""A directory that workers share: all of their runs as one, and live in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shoal.core.errors import BadInput
from shoal.core.interrupts import interruptible
from shoal.core.visible import visible
from shoal.records.jsonl import read_lines
from shoal.records.screen import Screen, styled
from shoal.report.figures import PHASES
from shoal.report.generalisation import PURPOSES
from shoal.report.lineage import count, number, tabulate
from shoal.report.run import Run, read_run

NEW = list(PURPOSES)[1]  # levels that nobody trains on, and of which the test knows nothing
GLANCE = 2.0  # seconds between two looks
Kind = Callable[[list[float]], float]  # the number of all workers, from those of each


def is_workspace(path: Path) -> bool:
    """Whether workers share this directory."""
    return (path / "workers").is_dir() and (path / "slots").is_dir()


def workers(path: Path) -> list[Run]:
    """What every worker has written so far, by name."""
    return [
        read_run(folder) for folder in sorted((path / "workers").iterdir()) if (folder / "experiment.yaml").is_file()
    ]


def read_workspace(path: Path) -> Run:
    """The runs of all workers as one population."""
    runs = workers(path)
    if not runs:
        raise BadInput(f"{path}: no worker has begun yet")
    entries = [row for folder in sorted((path / "workers").iterdir()) for row in read_lines(folder / "lineage.jsonl")]
    metrics = _together(runs)
    champion = _best(runs)
    planned = {name: [number(run.experiment.get(name)) for run in runs] for name in ("population", "generations")}
    over, members = _over(runs), [n for n in planned["population"] if not np.isnan(n)]
    experiment = runs[0].experiment | {"population": over(members or [0.0])}
    experiment["generations"] = max(planned["generations"])
    result: dict[str, Any] = {}
    if all(run.result for run in runs):
        result = _results(runs) | {"champion": champion}
    elif metrics:
        metrics[-1]["champion"] = champion
    whole = Run(
        visible(path.resolve().name), runs[0].text, experiment, runs[0].about, result, metrics, tabulate(entries)
    )
    return replace(whole, workers=tuple(runs))


def watch_workspace(path: Path, console: Screen) -> None:
    """Show how every worker fares until Ctrl-C. Raises BadInput where there are none."""
    if not is_workspace(path):
        raise BadInput(f"{path} is not a workspace that workers share; --watch has nothing to show")
    try:
        with interruptible() as attend, Live(_view(path), console=console, refresh_per_second=4) as live:
            while True:
                for _ in range(40):
                    attend()
                    time.sleep(GLANCE / 40)
                live.update(_view(path))
    except KeyboardInterrupt:
        console.print()


def _view(path: Path) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", title=str(path), title_justify="left")
    for name in ("worker", "generation", "best", "median", "worst", "copies", "of others", "steps/s", "state"):
        table.add_column(name, justify="left" if name in ("worker", "state") else "right", no_wrap=True)
    for run in workers(path):
        lineage = run.lineage
        planned = run.experiment.get("generations")
        planned = planned if isinstance(planned, int) else "?"
        if not len(lineage.generations):
            table.add_row(run.name, f"0/{planned}", *[""] * 6, _state(path, run))
            continue
        fitness = lineage.fitness[-1][np.isfinite(lineage.fitness[-1])]
        figures = [f"{kind(fitness):.4g}" if len(fitness) else "–" for kind in (np.max, np.median, np.min)]
        foreign = int((lineage.copied & ~np.isin(lineage.parents, lineage.uids)).sum())
        timing = run.metrics[-1].get("timing") if run.metrics else None
        speed = number(timing.get("steps_per_second") if isinstance(timing, dict) else None)
        done = f"{lineage.generations[-1] + 1}/{planned}"
        copies = str(int(lineage.copied.sum()))
        table.add_row(run.name, done, *figures, copies, str(foreign), f"{speed:,.0f}", _state(path, run))
    return table


def _state(path: Path, run: Run) -> Text:
    """What a worker is up to, as far as files tell."""
    if run.result:
        return styled(("done", "green"))
    try:
        before = (path / "leases" / run.name).stat().st_mtime
    except OSError:
        return styled(("stopped", "yellow"))
    return styled("at work" if abs(time.time() - before) < 60 else ("silent", "yellow"))


def _together(runs: list[Run]) -> list[dict[str, Any]]:
    """The metrics of all workers, one entry per generation: the seconds of the one that took longest for it, of steps and
    speeds see `_over`."""
    found: dict[int, list[dict[str, Any]]] = {}
    for run in runs:
        for row in run.metrics:
            if isinstance(row.get("generation"), int) and isinstance(row.get("timing"), dict):
                found.setdefault(row["generation"], []).append(row)
    together, over = [], _over(runs)
    for generation, rows in sorted(found.items()):
        longest: dict[str, Any] = max((row["timing"] for row in rows), key=_spent)
        timing = dict(longest)
        timing["seconds"] = max(number(row["timing"].get("seconds")) for row in rows)
        timing["steps_per_second"] = over([number(row["timing"].get("steps_per_second")) for row in rows])
        steps: dict[str, Kind] = {"steps": over, "evaluation_steps": sum}
        counts = {name: kind([count(row.get(name)) for row in rows]) for name, kind in steps.items()}
        together.append({"generation": generation, "timing": timing, **counts})
    return together


def _over(runs: list[Run]) -> Kind:
    """Of what workers tell of members and steps, that of all: the sum, or where each tells of the whole, the most."""
    return max if runs and runs[0].shares_evaluation else sum


def _spent(timing: dict[str, Any]) -> float:
    """The seconds of a generation."""
    return float(np.nansum([number(timing.get(name)) for name in PHASES]))


def _results(runs: list[Run]) -> dict[str, Any]:
    """What the results of all workers amount to, but for the champion: what they agree on, sums, and the longest time."""
    first, *others = (run.result for run in runs)
    alike = {name: value for name, value in first.items() if all(value == other.get(name, ...) for other in others)}
    steps = {"environment_steps": _over(runs), "evaluation_steps": sum}
    counts = {name: kind([count(run.result.get(name)) for run in runs]) for name, kind in steps.items()}
    longest = max(runs, key=lambda run: np.nan_to_num(number(run.result.get("seconds")), nan=-1.0)).result
    seconds = {name: number(longest.get(name)) for name in ("seconds", "compile_seconds")}
    return {"status": "stopped"} | alike | counts | seconds


def _best(runs: list[Run]) -> dict[str, Any] | None:
    """The best of the workers' champions: on fresh episodes, when all are done; until then as they were selected."""

    def merit(champion: dict[str, Any]) -> tuple[float, ...]:
        figures = [_on_fresh(champion)] if all(run.result for run in runs) else []
        return tuple(np.nan_to_num([*figures, number(champion.get("selection_fitness"))], nan=-np.inf).tolist())

    return max((champion for run in runs if (champion := _champion(run))), key=merit, default=None)


def _on_fresh(champion: dict[str, Any]) -> float:
    """What a champion returned on fresh episodes; with levels on those of validation, for the test chooses nothing."""
    levels = champion.get("levels")
    tested = levels.get(NEW) if isinstance(levels, dict) else champion.get("evaluation")
    return number(tested.get("mean")) if isinstance(tested, dict) else np.nan


def _champion(run: Run) -> dict[str, Any] | None:
    """The champion of one worker: of its result, or so far."""
    stated = run.result.get("champion")
    if isinstance(stated, dict):
        return stated
    latest = run.metrics[-1].get("champion") if run.metrics else None
    if not isinstance(latest, dict) or not np.isfinite(number(latest.get("fitness"))):
        return None
    return latest | {"selection_fitness": number(latest["fitness"])}
