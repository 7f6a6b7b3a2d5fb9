"""The event of a generation, its rows in lineage.jsonl and metrics.jsonl, and their reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core import run_files
from shoal.core.population import PopulationStats
from shoal.records.jsonl import each_line

if TYPE_CHECKING:
    from shoal.core.candidates import Candidate


class Rows(NamedTuple):
    """The rows of a generation in the files of a run."""

    lineage: list[dict[str, Any]]  # one row per member: uid, fitness, hyperparameters, and parent
    metrics: dict[str, Any]  # the generation as a whole

    @property
    def step(self) -> int:
        """Environment steps per member so far; of a mean, those of all members that were sampled around it."""
        return max(row["steps"] for row in self.lineage)


@dataclass(frozen=True)
class Generation:
    """The result of a generation."""

    generation: int
    stats: PopulationStats  # of the individuals, after the interval and before the decision
    parents: PopulationStats  # [N], of the members that each member copied, or its own
    hyper: dict[str, np.ndarray]  # float32 [N] each, of the next interval
    explored: np.ndarray  # bool [N]
    metrics: dict[str, np.ndarray]  # [N] each
    steps: int  # environment steps of all members so far
    evaluation_steps: int
    champion: Candidate
    timing: dict[str, float]  # seconds of its phases; `record` is set after all callbacks

    @cached_property
    def rows(self) -> Rows:
        """The rows of this generation in the files of the run."""
        stats, parents, best = self.stats, self.parents, self.champion
        columns = _plain(
            {
                "uid": stats.uid,
                "parent": parents.uid,
                "parent_generation": parents.generation,
                "parent_fitness": parents.fitness,
                "explored": self.explored,
                "fitness": stats.fitness,
                "returns_std": stats.std,
                "episodes": stats.episodes,
                "steps": stats.steps,
            }
        )
        if stats.tie_breaker is not None:
            columns |= _plain({"tie_breaker": stats.tie_breaker})
        groups = {"hyper": _plain(stats.hyper)} | ({"levels": _plain(self.levels)} if self.levels else {})
        lineage = [
            {"generation": self.generation}
            | {name: x[i] for name, x in columns.items()}
            | {group: {name: x[i] for name, x in some.items()} for group, some in groups.items()}
            for i in range(len(stats.uid))
        ]
        champion = {
            "uid": best.uid,
            "generation": best.generation,
            "fitness": best.fitness,
            "smoothed_fitness": best.smoothed.fitness,
        }
        metrics = {
            "generation": self.generation,
            "steps": self.steps,
            "evaluation_steps": self.evaluation_steps,
            "fitness": summary(stats.fitness),
            "champion": {name: finite_or_none(x) for name, x in champion.items()},
            "copies": int(self.copied.sum()),
            "members": _plain(self.metrics),
            "timing": self.timing,
        }
        return Rows(lineage, metrics)

    @property
    def levels(self) -> dict[str, np.ndarray]:
        """[N] each: returns on train and validation levels, and the gap; empty without levels."""
        start = "levels/"
        return {name.removeprefix(start): x for name, x in self.metrics.items() if name.startswith(start)}

    @property
    def copied(self) -> np.ndarray:
        """bool [N]: members that copied another."""
        return self.parents.uid != self.stats.uid


def summary(fitness: np.ndarray) -> dict[str, float | None]:
    """The best, median, worst and mean fitness of members [N], None without a finite one, as metrics.jsonl has them."""
    known = fitness[np.isfinite(fitness)]
    kinds: dict[str, Any] = {"best": np.max, "median": np.median, "worst": np.min, "mean": np.mean}
    with np.errstate(over="ignore"):  # of returns near the ends of float64
        return {name: finite_or_none(kind(known)) if len(known) else None for name, kind in kinds.items()}


def read_rows(run_dir: Path, before: int) -> Iterator[Rows]:
    """Yield the generations before `before` from the files of a run."""
    lineage = (row for row in each_line(run_dir / run_files.LINEAGE) if isinstance(row.get("steps"), int))
    metrics = each_line(run_dir / run_files.METRICS)
    entry = next(metrics, None)
    for generation, rows in groupby(lineage, lambda row: row["generation"]):
        if generation >= before:
            return
        while entry is not None and entry["generation"] < generation:
            entry = next(metrics, None)
        if entry is not None and entry["generation"] == generation:
            yield Rows(list(rows), entry)


def finite_or_none(values: Any) -> Any:
    """Python numbers; None where a number is not finite, as JSON has no NaN."""
    found = np.asarray(values)
    return np.where(np.isfinite(found), found.astype(object), np.array(None)).tolist()


def _plain(columns: dict[str, np.ndarray]) -> dict[str, list[Any]]:
    return {name: finite_or_none(x) for name, x in columns.items()}
