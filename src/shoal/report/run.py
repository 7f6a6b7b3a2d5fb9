"""The files of a run, read: for its page, and for all that lists or compares runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core import run_files
from shoal.core.atomic import Irregular, parse_json
from shoal.core.errors import STRUCTURE, BadInput, no_run, shortened
from shoal.core.escape import escape
from shoal.core.space import Range
from shoal.core.yaml_text import read_yaml
from shoal.experiment.files import fields_of_run
from shoal.records.jsonl import last_line, read_lines, read_text
from shoal.records.words import text
from shoal.report.lineage import Lineage, inner, number, tabulate


@dataclass(frozen=True)
class MethodTraits:
    """The method of a run, from method.json, with the traits as `Method` explains them. These are defaults."""

    name: str = ""  # pbt, independent, es, ..., or module:name
    title: str = ""  # the method in plain words
    explanation: str = ""
    sampled: bool = False
    copies: bool = True
    tunes: bool = True
    shares_evaluation: bool = False
    metric_descriptions: Mapping[str, str] = field(default_factory=dict)  # by the name of a metric its words

    @classmethod
    def read(cls, entry: dict[str, Any]) -> MethodTraits:
        """Return those of an entry that have the right types."""
        entry = entry | inner(entry, "traits")
        known = {f.name: entry[f.name] for f in fields(cls) if type(entry.get(f.name)) is type(f.default)}
        texts = inner(entry, "metric_descriptions").items()
        descriptions = {name: text for name, text in texts if isinstance(text, str) and text}
        return cls(**known, metric_descriptions=descriptions)


@dataclass(frozen=True)
class Run:
    """A run's directory, read. Whatever is missing or unreadable is empty.

    workers: where this is all that workers of a directory did, the run of each of them
    """

    name: str
    text: str  # experiment.yaml as it stands
    experiment: dict[str, Any]
    method: MethodTraits
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    lineage: Lineage
    provenance: list[dict[str, Any]]
    wandb: dict[str, Any] = field(default_factory=dict)  # its ids and its address there
    workers: tuple[Run, ...] = ()

    @property
    def population(self) -> float:
        """Members of a generation; NaN where that is unknown."""
        if len(self.lineage.uids) and not self.method.sampled:
            return float(len(self.lineage.uids))
        return number(self.result.get("population", self.experiment.get("population")))

    @cached_property
    def metric_names(self) -> list[str]:
        """The names of the metrics of members, in any generation."""
        return list(dict.fromkeys(name for row in self.metrics for name in inner(row, "members")))

    @property
    def latest(self) -> dict[str, Any]:
        """The newest metrics."""
        return self.metrics[-1] if self.metrics else {}

    @cached_property
    def champion(self) -> tuple[int, int] | None:
        """(uid, generation): of the result; while there is none, of the newest metrics; else the fittest member."""
        best = self.lineage.best()
        for source in (self.result, self.latest) if best else ():
            match source.get("champion"):
                case {"uid": int(uid), "generation": int(generation)} if len(self.lineage.trace(uid, generation)[0]):
                    return uid, generation
        return best

    @cached_property
    def trace(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the champion's lineage, oldest first; empty where there is no champion."""
        return self.lineage.trace(*self.champion) if self.champion else (np.empty(0, int), np.empty(0, int))

    @cached_property
    def moves(self) -> np.ndarray:
        """Rows after which the champion's weights went over to another member."""
        rows, columns = self.trace
        return rows[:-1][columns[1:] != columns[:-1]]

    def along(self, values: np.ndarray) -> np.ndarray:
        """[G] Values along the champion's lineage, NaN outside it."""
        along = np.full(len(values), np.nan)
        along[self.trace[0]] = values[self.trace]
        return along

    @cached_property
    def entries(self) -> dict[int, dict[str, Any]]:
        """The metrics of each generation, by its row of the lineage."""
        row = {generation: at for at, generation in enumerate(self.lineage.generations.tolist())}
        return {row[g]: e for e in self.metrics if isinstance(g := e.get("generation"), int) and g in row}

    def timing(self, name: str) -> np.ndarray:
        """[G] A timing of each generation."""
        rows = range(len(self.lineage.generations))
        return np.array([number(inner(self.entries.get(row), "timing").get(name)) for row in rows])

    def metric(self, name: str) -> np.ndarray:
        """[G, N] A metric of the members; NaN where it was not recorded."""
        table = np.full(self.lineage.present.shape, np.nan)
        for row, entry in self.entries.items():
            values, columns = inner(entry, "members").get(name), np.flatnonzero(self.lineage.present[row])
            if isinstance(values, list) and len(values) == len(columns):
                table[row, columns] = [number(value) for value in values]
        return table

    def common(self, name: str) -> np.ndarray:
        """[G] A metric that is equal for all members, or that of the mean."""
        return np.fmax.reduce(self.metric(name), axis=1)

    @property
    def tested(self) -> dict[str, Any]:
        """Final evaluation of the champion, on held-out episodes; empty where there is none."""
        return inner(self.result, "champion", "evaluation")

    @property
    def exact(self) -> bool:
        """True where fitness is minus exploitability."""
        return inner(self.experiment, "fitness").get("source") == "exploitability"

    @property
    def from_training(self) -> bool:
        """True where the training episodes give the fitness, and members are not evaluated."""
        return inner(self.experiment, "fitness").get("source") == "training"

    @property
    def score(self) -> str:
        """Name of the score."""
        return score_name(self.experiment)

    def worker_of(self, uid: int) -> str | None:
        """The name of the worker whose member this is; None where there is one run, or all share their members."""
        having = [worker.name for worker in self.workers if uid in worker.lineage.uids]
        return having[0] if len(having) == 1 else None

    @cached_property
    def space(self) -> dict[str, Range]:
        """The tuned hyperparameters that were recorded; those that varied, where the experiment does not say."""
        space = self.experiment.get("space")
        if isinstance(space, dict):
            space = space | {name: {"choices": [*range(len(listed))]} for name, listed in self.choices.items()}
            return {str(name): _range(entry) for name, entry in space.items() if str(name) in self.lineage.hyper}
        return {
            name: Range()
            for name, values in self.lineage.hyper.items()
            if len(np.unique(values[np.isfinite(values)])) > 1
        }

    @cached_property
    def choices(self) -> dict[str, list[Any]]:
        """The choices in the structure of the agent, by the name under which the index of a choice is recorded."""
        config = inner(self.experiment, "config")
        listed = {f"{STRUCTURE}{name}": inner(config, name).get("choices") for name in config}
        return {name: values for name, values in listed.items() if isinstance(values, list)}

    def words(self, name: str) -> list[str]:
        """Each choice in the structure as text; none for other hyperparameters."""
        return [shortened(x if isinstance(x, str) else json.dumps(x, default=str)) for x in self.choices.get(name, ())]

    def shown(self, name: str, value: float) -> float | str:
        """A value of a hyperparameter as people read it: a number, or the choice that it is the place of."""
        words = self.words(name)
        return words[round(value)] if words and 0 <= value < len(words) else float(value)

    def as_text(self, name: str, value: float) -> str:
        """Return a value of a hyperparameter as text for a sentence."""
        shown = self.shown(name, value)
        return shown if isinstance(shown, str) else text(shown)


def score_name(experiment: Mapping[str, Any]) -> str:
    """Name of the score of runs that are evaluated in episodes: the mean return, or that of an objective in its place."""
    fitness = inner(experiment, "fitness")
    objective = fitness.get("objective") or inner(experiment, "config").get("objective")  # of Shoal, or of a trainer
    sign = "negative " if fitness.get("direction") == "minimize" else ""
    return f"{sign}mean {objective or 'return'}"


class RunFiles:
    """The files of a run, each read when it is first asked for. A missing or a damaged one is empty.

    problems: what is wrong with files, in a few words each. lenient: files that are none, or that the system does not
    let one read, are noted there too; otherwise they raise.
    """

    def __init__(self, path: Path, lenient: bool = False):
        self.path, self.problems, self._lenient = path, list[str](), lenient

    def read(self, name: str, reader: Callable[[Path], Any]) -> Any:
        """Return what a reader makes of a file."""
        try:
            return reader(self.path / name)
        except (Irregular, OSError) as error:
            if not self._lenient:
                raise
            what = f" {error.short}" if isinstance(error, Irregular) else f": {error.strerror}"
            self.problems.append(f"{name}{what}")
        except (ValueError, BadInput):
            self.problems.append(f"{name} is damaged")
        return {}

    @cached_property
    def experiment(self) -> dict[str, Any]:
        return self.read(run_files.EXPERIMENT, lambda file: inner(read_yaml(read_text(file))))

    @cached_property
    def method(self) -> MethodTraits:
        return MethodTraits.read(self._json(run_files.METHOD))

    @cached_property
    def result(self) -> dict[str, Any]:
        return self._json(run_files.RESULT)

    @cached_property
    def final_selection(self) -> dict[str, Any]:
        """Final selection of a workspace, among the champions of its workers."""
        return self._json(run_files.FINAL_SELECTION)

    @cached_property
    def latest(self) -> dict[str, Any]:
        """The newest metrics."""
        return self.read(run_files.METRICS, last_line)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return read_lines(self.path / run_files.METRICS)

    @cached_property
    def lineage(self) -> list[dict[str, Any]]:
        return read_lines(self.path / run_files.LINEAGE)

    @cached_property
    def wandb(self) -> dict[str, Any]:
        return self._json(run_files.WANDB)

    def _json(self, name: str) -> dict[str, Any]:
        return self.read(name, lambda file: inner(parse_json(read_text(file) or "{}")))


def read_run(path: Path) -> Run:
    """Return everything a run has written so far. Raises BadInput where there is none, or its experiment.yaml is damaged."""
    if (path / run_files.EXPERIMENT).is_file():
        fields_of_run(path)
    elif not (path / run_files.LINEAGE).is_file():
        raise no_run(path)
    return read_worker(path)


def read_worker(path: Path) -> Run:
    """Return everything that one of many runs has written so far; damaged files hide none of the others."""
    files = RunFiles(path)
    return Run(
        name=escape(path.resolve().name),
        text=read_text(path / run_files.EXPERIMENT),
        experiment=files.experiment,
        method=files.method,
        result=files.result,
        metrics=files.metrics,
        lineage=tabulate(files.lineage),
        provenance=read_lines(path / run_files.PROVENANCE),
        wandb=files.wandb,
    )


def _range(entry: object) -> Range:
    """A range as the experiment states it; what makes no sense is left out, for a report judges nothing."""
    entry = inner(entry)
    low, high, scale = number(entry.get("low")), number(entry.get("high")), entry.get("scale")
    listed = entry.get("choices")
    choices = tuple(v for v in map(number, listed if isinstance(listed, list) else []) if not np.isnan(v))
    bounded = low < high and not choices
    return Range(
        low=low if bounded else None,
        high=high if bounded else None,
        scale=scale if scale in ("log", "one_minus_log") else "linear",
        integer=entry.get("integer") is True,
        choices=choices or None,
        ordered=entry.get("ordered") is True,
    )
