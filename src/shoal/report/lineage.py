"""What a run left on disk, as tables: who learned what, who copied whom, and how the champion came to be.

Axes: G generations (rows), N members (columns).
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import yaml

from shoal.core.atomic import parse_json
from shoal.core.errors import BadInput
from shoal.core.schema import read_yaml
from shoal.core.types import Range
from shoal.records.jsonl import read_lines, read_text


@dataclass(frozen=True)
class Lineage:
    """`lineage.jsonl` as tables [G, N]; NaN, or the member itself as its parent, where there is no record."""

    generations: np.ndarray  # int64 [G], ascending
    uids: np.ndarray  # int64 [N], ascending
    present: np.ndarray  # bool: is there a record?
    parents: np.ndarray  # int64: the uid whose weights the member carries into the next generation
    parent_generations: np.ndarray  # int64: and of which generation they are; workers that share a directory differ
    explored: np.ndarray  # bool: were its hyperparameters perturbed on the way there?
    fitness: np.ndarray
    returns_std: np.ndarray
    episodes: np.ndarray
    steps: np.ndarray  # environment steps of the member itself
    hyper: dict[str, np.ndarray]

    @property
    def origin(self) -> np.ndarray:
        """int64 [G, N]: the column whose weights a member started from; -1 where that is unknown."""
        return self._sources[1]

    @cached_property
    def _sources(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [G, N] each: row (one up, as a rule) and column whose weights a member started from."""
        rows, columns = np.full((2, *self.present.shape), -1)
        for row in range(1, len(rows)):
            if self.generations[row] != self.generations[row - 1] + 1:
                continue
            uid, generation = self.parents[row - 1], self.parent_generations[row - 1]
            column = np.searchsorted(self.uids, uid).clip(max=len(self.uids) - 1)
            above = np.searchsorted(self.generations, generation).clip(max=row - 1)
            found = (self.uids[column] == uid) & (self.generations[above] == generation) & self.present[above, column]
            known = found & self.present[row - 1] & self.present[row]
            rows[row], columns[row] = np.where(known, above, -1), np.where(known, column, -1)
        return rows, columns

    @cached_property
    def founders(self) -> np.ndarray:
        """int64 [G, N]: the column of the oldest known ancestor; -1 where there is no record."""
        founders = np.broadcast_to(np.arange(len(self.uids)), self.present.shape).copy()
        for row in range(1, len(founders)):
            known = self.origin[row] >= 0
            founders[row, known] = founders[self._sources[0][row, known], self.origin[row, known]]
        return np.where(self.present, founders, -1)

    @cached_property
    def copied(self) -> np.ndarray:
        """bool [G, N]: the member leaves this generation with the weights of another."""
        return self.present & (self.parents != self.uids)

    def copies(self) -> dict[int, int]:
        """How many members copied another at the end of each generation."""
        return dict(zip(self.generations.tolist(), self.copied.sum(axis=1).tolist(), strict=True))

    def trace(self, uid: int, generation: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of a member's ancestors and of itself, oldest first; empty when there is no record of it."""
        rows, columns = np.flatnonzero(self.generations == generation), np.flatnonzero(self.uids == uid)
        if not (len(rows) and len(columns) and self.present[rows[0], columns[0]]):
            return np.empty(0, int), np.empty(0, int)
        path = [(int(rows[0]), int(columns[0]))]
        above, origin = self._sources
        while origin[path[-1]] >= 0:
            path.append((int(above[path[-1]]), int(origin[path[-1]])))
        rows, columns = np.array(path[::-1]).T
        return rows, columns

    def ancestors(self, uid: int, generation: int) -> list[tuple[int, int]]:
        """(uid, generation) of all whose weights led to this member, oldest first, ending with itself."""
        rows, columns = self.trace(uid, generation)
        return list(zip(self.uids[columns].tolist(), self.generations[rows].tolist(), strict=True))

    def best(self) -> tuple[int, int] | None:
        """(uid, generation) of the fittest member of the last generation with any fitness."""
        rows = np.flatnonzero(np.isfinite(self.fitness).any(axis=1))
        if not len(rows):
            return None
        return int(self.uids[np.nanargmax(self.fitness[rows[-1]])]), int(self.generations[rows[-1]])


@dataclass(frozen=True)
class Run:
    """A run's directory, read. Whatever is missing or unreadable is empty."""

    name: str
    text: str  # experiment.yaml as it stands
    experiment: dict[str, Any]
    about: dict[str, Any]  # method.json
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    lineage: Lineage

    @property
    def method(self) -> str:
        """pbt, seeds, es, ..., or module:name."""
        return self._said("name")

    @property
    def title(self) -> str:
        """The method in plain words."""
        return self._said("title")

    @property
    def explanation(self) -> str:
        """What the method says of itself."""
        return self._said("explanation")

    @property
    def drawn(self) -> bool:
        """Are members drawn anew in every generation, around one policy, which alone the lineage holds?"""
        return self._trait("drawn", False)

    @property
    def copies(self) -> bool:
        """May members copy one another?"""
        return self._trait("copies", True)

    @property
    def tunes(self) -> bool:
        """May members differ in hyperparameters?"""
        return self._trait("tunes", True)

    def _said(self, field: str) -> str:
        text = self.about.get(field)
        return text if isinstance(text, str) else ""

    def _trait(self, name: str, otherwise: bool) -> bool:
        traits = self.about.get("traits")
        value = traits.get(name) if isinstance(traits, dict) else None
        return value if isinstance(value, bool) else otherwise

    @property
    def population(self) -> float:
        """Members of a generation; NaN where that is unknown."""
        if len(self.lineage.uids) and not self.drawn:
            return float(len(self.lineage.uids))
        return number(self.result.get("population", self.experiment.get("population")))

    @property
    def settled(self) -> bool:
        """Had a bandit no more than one arm to choose?"""
        method = self.experiment.get("method")
        arms = method.get("arms") if isinstance(method, dict) else None
        return isinstance(arms, list | tuple) and len(arms) == 1

    @cached_property
    def measured(self) -> set[str]:
        """The names of the metrics of members, in any generation."""
        return {name for row in self.metrics if isinstance(row.get("members"), dict) for name in row["members"]}

    @cached_property
    def champion(self) -> tuple[int, int] | None:
        """(uid, generation): of the result; while there is none, of the newest metrics; else the fittest member."""
        if self.lineage.best() is None:
            return None
        for source in (self.result, *self.metrics[:-2:-1]):
            match source.get("champion"):
                case {"uid": int(uid), "generation": int(generation)} if len(self.lineage.trace(uid, generation)[0]):
                    return uid, generation
        return self.lineage.best()

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


def number(value: object) -> float:
    """`value` as a float that can be drawn; NaN for anything else: null, text, infinity, and what squares to that."""
    try:
        # YAML 1.1 reads 1e-5 as text, so text is worth a try
        result = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return math.nan
    return result if abs(result) < 1e100 else math.nan


def tabulate(entries: list[dict[str, Any]]) -> Lineage:
    """The lines of `lineage.jsonl` as tables. Of two lines on the same member and generation the later one holds."""
    entries = [e for e in entries if _whole(e.get("generation")) and _whole(e.get("uid"))]
    generations = np.unique(np.array([e["generation"] for e in entries], np.int64))
    uids = np.unique(np.array([e["uid"] for e in entries], np.int64))
    row = {g: i for i, g in enumerate(generations.tolist())}
    column = {u: i for i, u in enumerate(uids.tolist())}
    shape = (len(generations), len(uids))

    def empty() -> np.ndarray:
        return np.full(shape, np.nan)

    lineage = Lineage(
        generations, uids, np.zeros(shape, bool), np.broadcast_to(uids, shape).copy(),
        np.broadcast_to(generations[:, None], shape).copy(), np.zeros(shape, bool),
        empty(), empty(), empty(), empty(), hyper={},
    )  # fmt: skip
    for entry in entries:
        at = row[entry["generation"]], column[entry["uid"]]
        parent, born = entry.get("parent"), entry.get("parent_generation")
        lineage.present[at] = True
        lineage.parent_generations[at] = born if _whole(born) else entry["generation"]
        lineage.parents[at] = parent if _whole(parent) else entry["uid"]
        lineage.explored[at] = entry.get("explored") is True
        for name in ("fitness", "returns_std", "episodes", "steps"):
            getattr(lineage, name)[at] = number(entry.get(name))
        hyper = entry.get("hyper")
        for name, value in hyper.items() if isinstance(hyper, dict) else ():
            lineage.hyper.setdefault(name, empty())[at] = number(value)
    return lineage


def read_run(path: Path) -> Run:
    """Everything a run has written so far."""
    if not ((path / "experiment.yaml").is_file() or (path / "lineage.jsonl").is_file()):
        raise BadInput(f"{path} is not a run: it holds neither experiment.yaml nor lineage.jsonl.")
    text = read_text(path / "experiment.yaml")
    return Run(
        name=path.resolve().name,
        text=text,
        experiment=mapping(read_yaml, text),
        about=mapping(parse_json, read_text(path / "method.json")),
        result=mapping(parse_json, read_text(path / "result.json")),
        metrics=read_lines(path / "metrics.jsonl"),
        lineage=tabulate(read_lines(path / "lineage.jsonl")),
    )


def schedule(path: Path) -> list[dict[str, Any]]:
    """The champion's lineage, one row per generation: what its weights were trained with and how fit they were.

    Columns: generation, uid (whose hands the weights were in), steps, fitness (None where nothing was measured),
    copied (the weights came over from another member for this generation), then every hyperparameter.
    """
    run = read_run(path)
    table = run.lineage
    if run.champion is None:
        return []
    rows = []
    for row, column in zip(*table.trace(*run.champion), strict=True):
        steps = table.steps[row, column]
        entry: dict[str, Any] = {
            "generation": int(table.generations[row]),
            "uid": int(table.uids[column]),
            "steps": None if np.isnan(steps) else int(steps),
            "fitness": _plain(table.fitness[row, column]),
            "copied": bool(table.origin[row, column] not in (-1, column)),
        }
        for name, values in table.hyper.items():
            entry.setdefault(name, _plain(values[row, column]))
        rows.append(entry)
    return rows


def _whole(value: object) -> bool:
    """An integer that fits the tables, and one more than it; a flag is none."""
    return type(value) is int and abs(value) < 2**53


def mapping(parse: Any, text: str) -> dict[str, Any]:
    try:
        parsed = parse(text)
    except (ValueError, BadInput):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _range(entry: object) -> Range:
    """A range as the experiment states it; what makes no sense is left out, for a report judges nothing."""
    entry = entry if isinstance(entry, Mapping) else {}
    low, high = number(entry.get("low")), number(entry.get("high"))
    listed = entry.get("choices")
    choices = tuple(v for v in map(number, listed if isinstance(listed, list) else []) if not np.isnan(v))
    bounded = low < high and not choices
    scale = entry.get("scale")
    return Range(
        low=low if bounded else None,
        high=high if bounded else None,
        scale=scale if scale in ("log", "one_minus_log") else "linear",
        integer=entry.get("integer") is True,
        choices=choices or None,
        ordered=entry.get("ordered") is True,
    )


def print_schedule(path: Path, format: str, out: TextIO) -> None:
    """Write the champion's schedule as csv, yaml or json."""
    rows = schedule(path)
    if not rows:
        raise BadInput(f"{path} has no lineage yet: its first generation has not ended")
    if format == "csv":
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    elif format == "yaml":
        yaml.safe_dump(rows, out, sort_keys=False)
    else:
        json.dump(rows, out, indent=1)
        out.write("\n")
