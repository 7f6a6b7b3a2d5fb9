"""Callbacks: what they hear of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from shoal.experiment.plan import Plan
    from shoal.records.generation import Generation


class Start(NamedTuple):
    """A run begins, or goes on."""

    plan: Plan  # its experiment, and all that this names
    devices: int  # on which the members of this process are
    run_dir: Path
    generation: int  # the first one to come
    note: Callable[[str], None] = lambda message: None  # tells the user something, by way of all callbacks
    provenance: Mapping[str, Any] = MappingProxyType({})  # by what it is made, as a line of provenance.jsonl


class Callback:
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


def about_method(plan: Plan) -> dict[str, Any]:
    """What readers of the records need to know of the method, which they do not import."""
    method, kind = plan.method, plan.kind
    traits = {"sampled": kind.sampled, "copies": method.copies, "tunes": method.tunes}
    return {
        "name": plan.experiment.method_name,
        "title": method.title,
        "traits": traits | {"shares_evaluation": kind.sampled and not kind.together},
        "explanation": method.explanation(plan.experiment.population),
        "metric_descriptions": dict(method.metric_descriptions),
    }
