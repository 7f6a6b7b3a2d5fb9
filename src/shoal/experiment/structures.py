"""Choices in the structure of the agent: `config: {layers: {choices: [[64, 64], [256, 256]]}}`. Each member has one of the
structures, which are all combinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from shoal.core.atomic import Damaged
from shoal.core.errors import STRUCTURE, BadField
from shoal.core.space import SAMPLED, Range
from shoal.experiment.experiment import Experiment


def choices(e: Experiment) -> dict[str, list[Any]]:
    """The settings of the agent that members may differ in, and what each chooses from. Raises BadField."""
    found = (
        {} if e.external else {k: x["choices"] for k, x in e.config.items() if isinstance(x, dict) and "choices" in x}
    )
    for name, values in found.items():
        several = isinstance(values, (list, tuple)) and len({*map(repr, values)}) == len(values) > 1
        if not several or e.config[name].keys() != {"choices"}:
            raise BadField(f"config.{name}", "write choices: a list of two or more different values, and nothing else")
    return found


def structures(e: Experiment) -> list[dict[str, Any]]:
    """The `config` of each structure; a single one where there is nothing to choose."""
    named = choices(e)
    return [e.config | dict(zip(named, values, strict=True)) for values in product(*named.values())]


def ranges(e: Experiment) -> dict[str, Range]:
    """A range for each choice, of the places in its list; members with default hyperparameters sample it too."""
    return {
        f"{STRUCTURE}{name}": Range(choices=tuple(map(float, range(len(values)))), initial=SAMPLED)
        for name, values in choices(e).items()
    }


def place_of(e: Experiment, hyper: Mapping[str, Any]) -> Any:
    """The place among `structures` of what is chosen by the hyperparameters of one member, or [N] of several."""
    named = choices(e)
    chosen = [np.asarray(hyper[f"{STRUCTURE}{name}"]).astype(np.int64) for name in named]
    return np.ravel_multi_index(chosen, [len(values) for values in named.values()]) if named else np.int64(0)


def with_structure(e: Experiment, hyper: Mapping[str, Any]) -> Experiment:
    """The experiment of a single member, with the structure that it has. Raises Damaged where it has none."""
    try:
        return replace(e, config=structures(e)[int(place_of(e, hyper))])
    except (KeyError, ValueError) as error:
        raise Damaged("this member has none of the structures that config has") from error
