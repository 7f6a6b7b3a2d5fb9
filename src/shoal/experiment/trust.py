"""Code that the file of a run names. A run may come from anybody, and to import a module is to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.core.errors import BadField
from shoal.core.user_code import OBJECT
from shoal.environments.suites import PACKAGES
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import of_run, with_fields
from shoal.trainers.recipe import ADAPTERS, OF_FILES

PLACES = (
    *("env", "agent", "method", "method.select", "method.explore", "python"),
    *("fitness.objective", "fitness.tie_breaker"),
    *(f"config.{option}" for option in ("network", "auxiliary_loss", "imports", "policy_kwargs")),
)
COMPONENTS = ("agent", "method", "method.select", "method.explore")  # mappings whose `name` says what they are


def open_run(run: Path, trust_code: bool, **given: Any) -> Experiment:
    """The experiment of a run that is to be used. Raises BadInput where the run names code, and is not trusted.

    This is the gate that whoever uses a run goes through before anything else: to look a module up may be to run it.

    given: fields that are to be others, see `with_fields`; what they name needs no trust
    """
    experiment = with_fields(of_run(run), given)
    if not trust_code:
        check_code(experiment, given)
    return experiment


def check_code(experiment: Experiment, given: Mapping[str, Any]) -> None:
    """Raise BadInput where the experiment of a run names code that is not among the fields that were given for it."""
    own = replace(Experiment(), **given)
    for place in PLACES:
        if code := [name for name in code_at(experiment, place) if name not in code_at(own, place)]:
            raise untrusted(place, ", ".join(code), "code")


def untrusted(place: str, named: str, what: str) -> BadField:
    """The error for something that a run names and that is not loaded."""
    return BadField(
        place,
        f"the run names {what}, which runs when it is loaded",
        "if you trust it, and the current directory, which is searched too, add --trust-code (in Python: trust_code=True)",
        value=named,
    )


def code_at(experiment: Experiment, place: str) -> list[str]:
    """The names of code that an experiment has at one of the `PLACES`."""
    field, _, inner = place.partition(".")
    value = getattr(experiment, field)
    if inner:
        value = value.get(inner) if isinstance(value, dict) else getattr(value, inner, None)
    return [name for name in _names(place, value) if _is_code(place, name)]


def _names(place: str, value: object) -> list[str]:
    """The texts that may name code: of a component its name, elsewhere every text that a value holds."""
    if isinstance(value, dict):
        values = [value.get("name")] if place in COMPONENTS else [*value, *value.values()]
        return [name for inner in values for name in _names(place, inner)]
    if isinstance(value, (list, tuple)):
        return [name for inner in value for name in _names(place, inner)]
    return [value] if isinstance(value, str) else []


def _is_code(place: str, name: str) -> bool:
    """True where a name is module:object or leads to a trainer's file, and neither an environment of a suite, an adapter's
    own, nor what was given in Python."""
    first, colon, rest = name.partition(":")
    if place == "env" and first in PACKAGES:
        return ":" in rest  # gym:module:Name imports the module first
    own = place == "agent" and first in ADAPTERS and first not in OF_FILES
    return place in ("python", "config.imports") or (bool(colon) and first != OBJECT and not own)
