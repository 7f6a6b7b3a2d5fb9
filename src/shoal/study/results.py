"""Results of the runs of a study as tables, and whether what lies in their places is theirs."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.core import run_files
from shoal.core.atomic import read_file, write_file
from shoal.core.errors import BadInput
from shoal.core.escape import write_csv
from shoal.core.yaml_text import read_yaml
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import differences, dump, from_dict, of_run
from shoal.experiment.plan import make_closed_plan
from shoal.records.jsonl import read_text
from shoal.report.generalisation import PURPOSES
from shoal.report.lineage import count, inner, number
from shoal.report.run import RunFiles, score_name
from shoal.study.sequences import STEPS
from shoal.study.study_file import RunKey, Study, fields_of, read

FILE = "study.yaml"
KNOWN, NEW = list(PURPOSES)[:2]  # levels on which members are evaluated in every generation
COLUMNS = (
    *("task", "arm", "seed", "score", "standard_error", "episodes", "selection_fitness", "population_median"),
    *(*STEPS, "all_steps", "seconds", "compile_seconds", "status"),
    *("date", "host", "cores", "device", "devices", "commit", "clean", "versions", "command"),  # as the run ended
    *PURPOSES,  # what the champion returned on levels of each, where there are levels
)
FREE = ("run_dir", "checkpoint", "processes", "wandb")  # fields on which nothing depends that a run comes to
ADVICE = "move it away, or name a free place"


class RunOutcome(NamedTuple):
    """The outcome of a run. score: of its champion on held-out episodes, NaN where every member diverged.

    exact: the score is minus exploitability, and no episodes were played for it
    curve: [G, 2], training steps of all members so far, and the best fitness of the generation
    on_levels: what its champion returned on levels of each purpose; empty where there are no levels
    population: [G, 3], training steps, and what the median member returned on levels to train on and of validation
    """

    score: float
    row: dict[str, Any]  # of study.csv
    curve: np.ndarray
    on_levels: dict[str, float]
    population: np.ndarray
    exact: bool


@dataclass(frozen=True)
class Results:
    """A study and what is known of its runs, by (task, arm, seed).

    failures: of runs that are not done, why they failed, or cannot be made
    """

    path: Path
    study: Study
    outcomes: dict[RunKey, RunOutcome]
    failures: dict[RunKey, str]

    def of(self, task: str, arm: str) -> list[RunOutcome]:
        """The runs of an arm on a task that are done, by seed."""
        return [self.outcomes[key] for key in self.study.runs(task, arm) if key in self.outcomes]

    def seeds(self, arm: str) -> list[int]:
        """The seeds with which an arm is done on every task."""
        wanted, tasks = range(self.study.seeds), self.study.all_tasks
        return [s for s in wanted if all(RunKey(task, arm, s) in self.outcomes for task in tasks)]

    def scores(self, arm: str) -> np.ndarray:
        """[S, K] Scores of the champions, each task in its scale; NaN for a run without a champion."""
        tasks = self.study.all_tasks
        return self._scaled([[self.outcomes[RunKey(task, arm, s)].score for task in tasks] for s in self.seeds(arm)])

    def counted(self, arm: str) -> np.ndarray:
        """[S, K] `scores` as they are compared: a run without a champion counts as the worst run of its task."""
        worst = self._scaled([self.worst(task) for task in self.study.all_tasks])
        scores = self.scores(arm)
        return np.where(np.isnan(scores), np.nan_to_num(worst), scores)  # the low end of the scale where all have none

    def worst(self, task: str) -> float:
        """The lowest score of a task, that of a run without a champion where runs are compared; NaN where none has one."""
        found = [o.score for key, o in self.outcomes.items() if key.task == task and np.isfinite(o.score)]
        return min(found, default=np.nan)

    def score_names(self, keys: Iterable[RunKey]) -> list[str]:
        """Names of the scores of runs that are evaluated in episodes, each once."""
        arms = dict.fromkeys((key.task, key.arm) for key in keys)
        return [*dict.fromkeys(score_name(fields_of(self.study, *arm)) for arm in arms)]

    def _scaled(self, table: list) -> np.ndarray:
        """[..., K] Scores in the scale of each task."""
        low, high = np.array([self.study.scale(task) for task in self.study.all_tasks]).T
        return (np.array(table).reshape(-1, len(low)) - low) / (high - low)

    def curve(self, task: str, arm: str, steps: np.ndarray) -> np.ndarray:
        """[S, X] The best fitness so far of each seed after so many training steps of all members; NaN before the first."""
        curves = [o.curve for o in self.of(task, arm)]
        highest = [np.stack([curve[:, 0], np.fmax.accumulate(curve[:, 1])], 1) for curve in curves]
        return np.array([held(curve, steps) for curve in highest]).reshape(-1, len(steps))


def held(curve: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The value of a curve [G, 2] that is the latest after so many steps; NaN before the first."""
    if not len(curve):
        return np.full(len(steps), np.nan)
    last = np.searchsorted(curve[:, 0], steps, side="right") - 1
    return np.where(last >= 0, curve[np.maximum(last, 0), 1], np.nan)


class NotOurs(BadInput):
    """Raised where what lies there is not the run that the study would make."""


def begun(run: Path, wanted: Experiment) -> bool:
    """Return whether a run has begun in its place. Raises NotOurs where it is of another experiment than is wanted there."""
    if not (run / run_files.EXPERIMENT).is_file():
        if (run / run_files.RESULT).exists():
            raise NotOurs(f"{run} holds a result and no experiment, which no run of the study leaves; {ADVICE}")
        return False
    found = of_run(run)
    known = _resolved(dump(replace(wanted, seed=0, init_from=None, run_dir=None, wandb=None)))
    wanted = replace(known, seed=wanted.seed, init_from=_end(wanted.init_from))
    differing = differences(wanted, replace(found, init_from=_end(found.init_from)))
    if names := [name for name in differing if name.partition(".")[0] not in FREE]:
        problem = f"{run} is another run than would be made there, as it differs in {', '.join(names)}"
        raise NotOurs(f"{problem}; {ADVICE}")
    return True


@cache
def _resolved(text: str) -> Experiment:
    """An experiment with all its defaults, as the file of its run has it."""
    return make_closed_plan(from_dict(read_yaml(text))).experiment


def _end(start: str | None) -> str | None:
    """ARM/SEED/NUMBER of a run of the study that another begins with: seen from here the study may have another path."""
    return None if start is None else "/".join(Path(start).parts[-3:])


def is_study(path: Path) -> bool:
    """Return whether a study lies here."""
    return (path / FILE).is_file()


def read_results(path: Path) -> Results:
    """Return the results of a study so far. Raises BadInput."""
    if not is_study(path):
        raise BadInput(f"{path} holds no study: there is no {FILE} in it")
    study = read(path / FILE, read_file)
    outcomes, failures = {}, {}
    for task, arm in product(study.all_tasks, study.arms):
        for key in study.runs(task, arm):
            if found := read_outcome(path, key):
                outcomes[key] = found
            elif failure := read_text(path / key.failure):
                failures[key] = failure.strip()
    failures |= {key: why for key, why in stranded(study, failures).items() if key not in outcomes}
    return Results(path, study, outcomes, failures)


def stranded(study: Study, failed: Iterable[RunKey]) -> dict[RunKey, str]:
    """The runs that would replay one that failed, and why they are not made."""
    return {
        RunKey(key.task, arm, key.seed): f"not made, for {key.arm} {key.seed}, whose schedule it replays, failed"
        for key in failed
        for arm, changes in study.arms.items()
        if changes.get("replay") == key.arm
    }


def read_outcome(path: Path, key: RunKey) -> RunOutcome | None:
    """Return the outcome of a run; None where it has not."""
    files = RunFiles(path / key.place)
    if not (result := files.result):
        return None
    champion = inner(result, "champion")
    tested, fitness = inner(champion, "evaluation"), [number(x) for x in inner(result, "fitness").values()]
    score = number(tested.get("mean"))
    steps = {name: _whole(result.get(name)) for name in STEPS}
    known = [made for made in steps.values() if made is not None]
    row = {
        **key._asdict(),
        "score": score,
        "standard_error": number(tested.get("standard_error")),
        "episodes": _whole(tested.get("episodes")),
        "selection_fitness": number(champion.get("selection_fitness")),
        "population_median": float(np.nanmedian(fitness)) if np.isfinite(fitness).any() else np.nan,
        **steps,
        "all_steps": sum(known) if len(known) == len(STEPS) else None,
        **{name: x if (x := number(result.get(name))) >= 0 else np.nan for name in ("seconds", "compile_seconds")},
        "status": status if isinstance(status := result.get("status"), str) else None,
        **{name: x for name, x in inner(result, "provenance").items() if name in COLUMNS and isinstance(x, (str, int))},
        "versions": ", ".join(f"{name} {version}" for name, version in inner(result, "provenance", "versions").items()),
    }
    on_levels = {name: number(inner(champion, "levels", name).get("mean")) for name in PURPOSES}
    lines = [line for line in files.metrics if count(line.get("steps")) >= 0]
    points = [(number(line.get("steps")), number(inner(line, "fitness").get("best"))) for line in lines]
    exact, none = tested.get("exact") is True, np.empty((0, 3))
    curve = np.array(points, float).reshape(-1, 2)
    if not np.isfinite(list(on_levels.values())).any():
        return RunOutcome(score, row, curve, {}, none, exact)
    middles = [(number(line.get("steps")), _middle(line, KNOWN), _middle(line, NEW)) for line in lines]
    population = np.array(middles, float).reshape(-1, 3)
    return RunOutcome(score, row | on_levels, curve, on_levels, population, exact)


def _middle(line: dict[str, Any], levels: str) -> float:
    """Return of the median member on levels, in a line of metrics.jsonl; NaN where it is not known."""
    values = inner(line, "members").get(f"levels/{levels}")
    known = [x for x in map(number, values if isinstance(values, list) else []) if x == x]
    return float(np.median(known)) if known else np.nan


def write_runs(results: Results) -> Path:
    """Write study.csv: a row for each run that is done."""
    out = io.StringIO()
    rows = [{k: "" if x is None or x != x else x for k, x in o.row.items()} for o in results.outcomes.values()]
    write_csv(rows, COLUMNS, out)
    target = results.path / "study.csv"
    write_file(target, out.getvalue().encode())
    return target


def _whole(value: Any) -> int | None:
    """A number of things, as tables hold it; None for anything else."""
    return value if type(value) is int and count(value) == value else None
