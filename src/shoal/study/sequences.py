"""Arms whose run is a sequence of runs that share its budget: those of external optimisers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.core import run_files
from shoal.core.atomic import write_file
from shoal.core.errors import BadField
from shoal.core.schema import convert
from shoal.core.user_code import call_own, import_from
from shoal.core.yaml_text import plain
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import of_run
from shoal.experiment.plan import make_closed_plan
from shoal.experiment.structures import choices
from shoal.report.lineage import inner, number
from shoal.report.run import RunFiles

MOST = 10_000  # runs of an arm, or of a sequence: each is planned before the first is made
STEPS = ("environment_steps", "evaluation_steps")  # of result.json: of training, and of evaluation
SEED_STEP = 1_000_000  # added to the seed from run to run, so that no two use the same


@dataclass(frozen=True)
class Tune:
    """An optimiser of hyperparameters by ask and tell, over single members: each of its trials is a run of one member.

    The runs spend what an experiment has: its population times its generations, or its budget. Members learn alone, from
    the ranges that the experiment tunes: where it names none, those that its method would.

    optimizer: module:name, called with (space, seed, trials): the ranges by name, see `Range`, an integer, and how often
        it will be asked. Its `ask()` gives a value for each name, then `tell(hyper, fitness)` says what came of them: the
        fitness of the run's champion, as it was selected; NaN where the member diverged. It must ask for the same again
        where the seed and what it was given are the same.
    trials: how many runs share the budget
    """

    optimizer: str
    trials: int

    @classmethod
    def of(cls, arm: Mapping[str, Any]) -> Tune | None:
        """Return that of an arm, from its fields in the study file; None where it is a single run. Raises BadInput."""
        if "tune" not in arm:
            return None
        given = arm["tune"] if isinstance(arm["tune"], dict) else {}
        if given.keys() != {"optimizer", "trials"}:
            raise BadField("tune", "write tune: {optimizer: module:name, trials: NUMBER}", value=arm["tune"])
        return cls(convert(str, given["optimizer"], "tune.optimizer"), convert(int, given["trials"], "tune.trials"))

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= MOST:
            raise BadField("tune.trials", f"must be 1 to {MOST:,}", value=self.trials)

    def parts(self, e: Experiment) -> list[Experiment]:
        """The runs, as far as they are known before any is made; budgets are of a run and all before it. Raises BadInput."""
        for name in ("time_limit", "stop"):
            if getattr(e, name) != getattr(Experiment(), name):
                raise BadField(name, "runs of an optimiser share generations or a budget", "write a budget")
        for name in choices(e):
            problem = "an optimiser is asked for hyperparameters, not for structures"
            raise BadField(f"config.{name}", problem, "give it one value")
        if e.auto:
            raise BadField("population", "runs of an optimiser share its steps", "write a number", value="auto")
        generations, left = (1, 0) if e.budget is not None else divmod(e.population * e.generations, self.trials)
        if left or not generations:
            problem = f"must divide population x generations = {e.population * e.generations}"
            raise BadField("tune.trials", problem, value=self.trials)
        space, made = make_closed_plan(e).experiment.space if e.space is None else e.space, []
        if not space:
            raise BadField("space", "there is nothing to ask for: name the ranges to tune")
        alone = replace(e, method="independent", space=space, population=1, generations=generations)
        for k in range(self.trials):
            budget = None if e.budget is None else e.budget * (k + 1) // self.trials
            made.append(replace(alone, budget=budget, seed=e.seed + k * SEED_STEP))
        return made

    def imported(self) -> Any:
        """The class or function that makes the optimiser. Raises BadInput where it cannot be imported."""
        return import_from(self.optimizer, "tune.optimizer")

    def runs(self, e: Experiment, place: Path) -> Iterator[tuple[Path, Experiment]]:
        """Yield the place and the experiment of each run; the next is asked for when it is done. Raises BadInput."""
        parts, spent = self.parts(e), 0
        space = parts[0].space or {}
        optimizer = self._own(self.imported(), space, e.seed, self.trials)
        for k, part in enumerate(parts):
            hyper, run = self._own(optimizer.ask), place / str(k)
            if not isinstance(hyper, Mapping) or hyper.keys() != space.keys():
                raise BadField("tune.optimizer", f"its ask gave {hyper!r}", f"it must give {', '.join(space)}")
            asked = {name: convert(float, plain(x), f"tune.{name}") for name, x in hyper.items()}
            if (run / run_files.EXPERIMENT).is_file() and not asked.items() <= of_run(run).hyper.items():
                problem = f"it asks for other values than those with which {run} began"
                raise BadField("tune.optimizer", problem, "let it draw from the seed that it is given")
            left = None if part.budget is None else max(1, part.budget - spent)
            yield run, replace(part, space={}, hyper=e.hyper | asked, budget=left)
            result = RunFiles(run).result
            spent += sum(result[name] for name in STEPS) - _selection(result)  # no budget of a run holds those
            self._own(optimizer.tell, hyper, _fitness(result))

    def _own(self, function: Any, *arguments: Any) -> Any:
        return call_own("tune.optimizer", self.optimizer, function, *arguments)


def put_together(place: Path, runs: list[Path]) -> None:
    """Write what runs one after another have come to, as if it were one: result.json and metrics.jsonl.

    The champion is that of the run whose champion had the highest fitness; of equal ones, the latest.
    """
    files = [RunFiles(run) for run in runs]
    results, lines, steps = [of.result for of in files], list[dict[str, Any]](), 0
    for run, of in zip(runs, files, strict=True):
        for line in of.metrics:
            at = {name: line.get(name) for name in ("generation", "fitness")}
            lines.append({"run": run.name, "steps": steps + int(line["steps"])} | at)
        steps += of.result["environment_steps"]
    fitness = [-math.inf if math.isnan(f) else f for f in map(_fitness, results)]
    best = max(range(len(runs)), key=lambda k: (fitness[k], k))
    sums = (*STEPS, "seconds", "compile_seconds")
    whole = results[best] | {name: sum(result[name] for result in results) for name in sums}
    write_file(place / run_files.METRICS, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
    write_file(place / run_files.RESULT, json.dumps(whole | {"run": runs[best].name}, indent=1).encode())


def _fitness(result: Mapping[str, Any]) -> float:
    """The fitness of a run's champion; NaN where it has none."""
    return number(inner(result, "champion").get("selection_fitness"))


def _selection(result: Mapping[str, Any]) -> int:
    """The environment steps of a run's final selection."""
    return inner(result, "champion", "final_selection").get("steps", 0)
