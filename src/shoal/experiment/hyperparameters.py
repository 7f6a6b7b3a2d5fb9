"""Hyperparameters that are knobs of the environment: whether it has them, and whether members would train with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from shoal.core.errors import BadField, unknown
from shoal.core.knobs import PREFIX, joined, split
from shoal.core.types import Evolver
from shoal.experiment.experiment import Experiment
from shoal.experiment.registry import method_name, name_of
from shoal.methods.method import Method


def unknown_name(place: str, name: str, known: Iterable[str], env: str) -> BadField:
    """What is wrong with a hyperparameter that neither the agent nor the environment has."""
    own, knobs = split(dict.fromkeys(known))
    if not name.startswith(PREFIX):
        return unknown(place, name, own)
    if not knobs:
        return BadField(place, f"does not exist: {env} has no numbers that can be tuned", name=name)
    return unknown(place, name, joined({}, knobs))


def check_knobs(e: Experiment, method: Method, evolver: Evolver, knobs: Mapping[str, float]) -> None:
    """Raise BadInput where a method sets knobs that the environment lacks, or that its members would not train with."""
    _, first = evolver.init((e.seed,), np.zeros(1, np.int64))
    for name in split(first)[1]:
        if name not in knobs:
            raise unknown_name("method", f"{PREFIX}{name}", joined({}, knobs), str(name_of(e.env)))
        if e.fitness.source == "training":
            problem = f"training episodes differ from member to member, by {PREFIX}{name}"
            raise BadField("fitness.source", problem, "write evaluation", value="training")
        if method.drawn:
            problem = f"method {method_name(e.method)} learns from the episodes that measure its members"
            raise BadField("hyper", problem, "their environments stay as they are", name=f"{PREFIX}{name}")
