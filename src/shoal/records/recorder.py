"""Recorders: the events of a run that they receive, and the rows of its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core.evolution import Cards
from shoal.experiment.registry import method_name

if TYPE_CHECKING:
    from shoal.core.evolution import Best
    from shoal.experiment.resolve import Resolved


TRAITS = ("drawn", "copies", "tunes", "shares_evaluation")  # of the method, by which its records are read


class Start(NamedTuple):
    """A run begins, or goes on."""

    resolved: Resolved  # its experiment, and all that this names
    devices: int  # on which the members of this process are
    run_dir: Path
    generation: int  # the first one to come
    note: Callable[[str], None] = lambda message: None  # tells the user something, by way of all recorders


class Generation(NamedTuple):
    """The events of one generation."""

    generation: int
    cards: Cards  # of the members, or of the mean that they are drawn around; after the interval, before the decision
    parents: Cards  # [N], of the members whose weights each member continues with
    hyper: dict[str, np.ndarray]  # float32 [N] each, of the next interval
    explored: np.ndarray  # bool [N]
    metrics: dict[str, np.ndarray]  # [N] each
    steps: int  # environment steps of all members so far
    evaluation_steps: int
    best: Best
    timing: dict[str, float]

    @property
    def levels(self) -> dict[str, np.ndarray]:
        """[N] each: returns on the levels of train and validation, and the gap; empty where there are no levels."""
        start = "levels/"
        return {name.removeprefix(start): x for name, x in self.metrics.items() if name.startswith(start)}

    @property
    def copied(self) -> np.ndarray:
        """bool [N]: the members that copied another."""
        return self.parents.uid != self.cards.uid


class Recorder:
    """Receives the events of a run. Every method here does nothing; a subclass overrides those that it needs."""

    def start(self, event: Start) -> None:
        """A run begins, or goes on."""

    def progress(self, generation: int, phase: str, fraction: float) -> None:
        """`phase` (train, evaluate, evolve, champion) of a generation is `fraction` done."""

    def generation(self, event: Generation) -> bool | None:
        """A generation has ended. Return True to end the run after it; it can be resumed."""
        return None

    def note(self, message: str) -> None:
        """Something the user should know."""

    def finish(self, result: dict[str, Any] | None) -> None:
        """The run is over: with its result, or None when it was stopped or failed."""


def finite_or_none(value: float) -> float | None:
    """JSON has no NaN."""
    return float(value) if np.isfinite(value) else None


def about_method(resolved: Resolved) -> dict[str, Any]:
    """What readers of the records need to know of the method, which they do not import."""
    method = resolved.method
    return {
        "name": method_name(resolved.experiment.method),
        "title": method.title,
        "traits": {name: getattr(method, name) for name in TRAITS},
        "explanation": method.explanation(resolved.experiment.population),
        "tells": dict(method.tells),
    }


def lineage_rows(event: Generation) -> list[dict[str, Any]]:
    """One row per member: its uid, fitness and hyperparameters, and the parent that it copies."""
    cards = event.cards
    return [
        {
            "generation": event.generation,
            "uid": int(cards.uid[i]),
            "parent": int(event.parents.uid[i]),
            "parent_generation": int(event.parents.generation[i]),
            "parent_fitness": finite_or_none(event.parents.fitness[i]),
            "explored": bool(event.explored[i]),
            "fitness": finite_or_none(cards.fitness[i]),
            "returns_std": finite_or_none(cards.deviation[i]),
            "episodes": int(cards.episodes[i]),
            "steps": int(cards.steps[i]),
            "hyper": {name: float(values[i]) for name, values in cards.hyper.items()},
        }
        | ({"levels": {name: finite_or_none(x[i]) for name, x in event.levels.items()}} if event.levels else {})
        for i in range(len(cards.uid))
    ]


def metrics_row(event: Generation) -> dict[str, Any]:
    """The generation as a whole."""
    fitness = event.cards.fitness[np.isfinite(event.cards.fitness)]
    kinds: dict[str, Any] = {"best": np.max, "median": np.median, "worst": np.min, "mean": np.mean}
    best = event.best
    return {
        "generation": event.generation,
        "steps": event.steps,
        "evaluation_steps": event.evaluation_steps,
        "fitness": {name: float(kind(fitness)) if len(fitness) else None for name, kind in kinds.items()},
        "champion": {"uid": best.uid, "generation": best.generation, "fitness": finite_or_none(best.fitness)},
        "copies": int(event.copied.sum()),
        "members": {name: [finite_or_none(x) for x in values] for name, values in event.metrics.items()},
        "timing": event.timing,
    }
