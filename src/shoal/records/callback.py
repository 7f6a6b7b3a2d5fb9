"""Callbacks, and the events that they receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from shoal.experiment.plan import Plan
    from shoal.records.generation import Generation


class Start(NamedTuple):
    """The start of a run, or of one that is resumed."""

    plan: Plan  # the experiment with all that it names
    devices: int  # of the members of this process
    run_dir: Path
    generation: int  # the first one
    note: Callable[[str], None] = lambda message: None  # passes a message to all callbacks
    provenance: Mapping[str, Any] = MappingProxyType({})  # a line of provenance.jsonl


class Callback:
    """Receives the events of a run. Methods do nothing; a subclass overrides those that it needs."""

    def on_training_start(self, event: Start) -> None:
        """Called when a run starts or resumes."""

    def on_progress(self, generation: int, phase: str, fraction: float) -> None:
        """Called at the start of a phase, and about twice a second while a generation trains.

        phase: train, evaluate, evolve or champion. fraction: done of it, in [0, 1].
        """

    def on_generation_end(self, event: Generation) -> bool | None:
        """Called after each generation. Return False to stop the run; it can be resumed."""
        return None

    def on_message(self, message: str) -> None:
        """Called with each message to the user."""

    def on_training_end(self, result: dict[str, Any] | None) -> None:
        """Called at the end. result: contents of result.json; None after a failure or an interruption."""


def describe_method(plan: Plan) -> dict[str, Any]:
    """Describe the method for readers of the records."""
    method, kind = plan.method, plan.kind
    traits = {"sampled": kind.sampled, "copies": method.copies, "tunes": method.tunes}
    return {
        "name": plan.experiment.method_name,
        "title": method.title,
        "traits": traits | {"shares_evaluation": kind.sampled and not kind.together},
        "explanation": method.explanation,
        "metric_descriptions": dict(method.metric_descriptions),
    }
