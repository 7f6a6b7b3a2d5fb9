"""What a run left on disk, and the schedule by which its champion came to be."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import yaml

from shoal.core.atomic import parse_json
from shoal.core.errors import BadInput, no_run
from shoal.core.escape import escape, write_csv
from shoal.core.evolution import Range
from shoal.core.yaml_text import read_yaml
from shoal.records.jsonl import read_lines, read_text
from shoal.report.lineage import Lineage, inner, number, tabulate


@dataclass(frozen=True)
class About:
    """What a run says of its method (method.json), the traits as `Method` explains them. What is not said is as here."""

    name: str = ""  # pbt, seeds, es, ..., or module:name
    title: str = ""  # the method in plain words
    explanation: str = ""
    drawn: bool = False
    copies: bool = True
    tunes: bool = True
    shares_evaluation: bool = False
    metric_descriptions: Mapping[str, str] = field(default_factory=dict)  # by the name of a metric its words

    @classmethod
    def read(cls, told: dict[str, Any]) -> About:
        """What is said in the right kind of words."""
        told = told | inner(told, "traits")
        known = {f.name: told[f.name] for f in fields(cls) if type(told.get(f.name)) is type(f.default)}
        texts = inner(told, "metric_descriptions").items()
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
    about: About
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    lineage: Lineage
    provenance: list[dict[str, Any]]
    workers: tuple[Run, ...] = ()

    @property
    def population(self) -> float:
        """Members of a generation; NaN where that is unknown."""
        if len(self.lineage.uids) and not self.about.drawn:
            return float(len(self.lineage.uids))
        return number(self.result.get("population", self.experiment.get("population")))

    @cached_property
    def measured(self) -> list[str]:
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

    @property
    def tested(self) -> dict[str, Any]:
        """What is known of the champion of the result on fresh episodes; empty where there is none."""
        return inner(self.result, "champion", "evaluation")

    def worker_of(self, uid: int) -> str | None:
        """The name of the worker whose member this is; None where there is one run, or all share their members."""
        having = [worker.name for worker in self.workers if uid in worker.lineage.uids]
        return having[0] if len(having) == 1 else None

    @cached_property
    def space(self) -> dict[str, Range]:
        """The tuned hyperparameters that were recorded; those that varied, where the experiment does not say."""
        space = self.experiment.get("space")
        if isinstance(space, dict):
            return {str(name): _range(entry) for name, entry in space.items() if str(name) in self.lineage.hyper}
        return {
            name: Range()
            for name, values in self.lineage.hyper.items()
            if len(np.unique(values[np.isfinite(values)])) > 1
        }


def read_run(path: Path) -> Run:
    """Everything a run has written so far."""
    if not ((path / "experiment.yaml").is_file() or (path / "lineage.jsonl").is_file()):
        raise no_run(path)
    text = read_text(path / "experiment.yaml")
    return Run(
        name=escape(path.resolve().name),
        text=text,
        experiment=mapping(read_yaml, text),
        about=About.read(mapping(parse_json, read_text(path / "method.json"))),
        result=mapping(parse_json, read_text(path / "result.json")),
        metrics=read_lines(path / "metrics.jsonl"),
        lineage=tabulate(read_lines(path / "lineage.jsonl")),
        provenance=read_lines(path / "provenance.jsonl"),
    )


def schedule(path: Path) -> list[dict[str, Any]]:
    """The champion's lineage, one row per generation: what its weights were trained with and how fit they were.

    Columns: generation, uid (whose hands the weights were in), steps, fitness (None where nothing was measured),
    copied (the weights came over from another member for this generation), then every hyperparameter.
    """
    run = read_run(path)
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


def mapping(parse: Callable[[str], object], text: str) -> dict[str, Any]:
    """What a file says; nothing where it is damaged."""
    try:
        return inner(parse(text))
    except (ValueError, BadInput):
        return {}


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _shortest(value: float | None) -> float | None:
    """A number of float32 in the fewest digits that tell it from its neighbours: 0.3, not 0.30000001192092896."""
    if value is None or np.float32(value) != value:
        return value
    return float(str(np.float32(value)))


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


def print_schedule(path: Path, format: str, out: TextIO) -> None:
    """Write the champion's schedule as csv, yaml or json, hyperparameters in as few digits as float32 needs."""
    told = ("generation", "uid", "steps", "fitness", "copied")
    rows = [{name: x if name in told else _shortest(x) for name, x in row.items()} for row in schedule(path)]
    if not rows:
        raise BadInput(f"{path} has no lineage yet: its first generation has not ended")
    if format == "csv":
        write_csv(rows, rows[0], out)
    elif format == "yaml":
        yaml.safe_dump(rows, out, sort_keys=False)
    else:
        json.dump(rows, out, indent=1)
        out.write("\n")
