"""Environment parameters: numbers of an environment that members tune while they train, as hyperparameters `env.NAME`.

Nothing is ever measured in an environment with other values than its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.core.errors import STRUCTURE
from shoal.core.types import Tunable

PREFIX = "env."
LARGEST = float(np.finfo(np.float32).max)


def split(hyper: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split hyperparameters into those of the agent and the environment parameters, which lose their prefix; without the
    choices of a structure."""
    own = {name: x for name, x in hyper.items() if not name.startswith((PREFIX, STRUCTURE))}
    return own, {name.removeprefix(PREFIX): x for name, x in hyper.items() if name.startswith(PREFIX)}


def joined(own: Mapping[str, Any], env_parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters that `split` has taken apart."""
    return {**own, **{f"{PREFIX}{name}": x for name, x in env_parameters.items()}}


def defaults(tunable: Tunable, env_parameters: Mapping[str, float]) -> dict[str, float]:
    """Return the default of every hyperparameter by name: those of an agent or of trainers, and environment parameters."""
    return joined(tunable.hyper._asdict(), env_parameters)


def unlike(hyper: Mapping[str, float], tunable: Tunable, env_parameters: Mapping[str, float]) -> str:
    """Describe how these differ from the hyperparameters of an agent or of trainers, with any of the environment parameters.

    Empty where they do not.
    """
    lacking = [name for name in tunable.hyper._fields if name not in hyper]
    unknown = sorted(hyper.keys() - defaults(tunable, env_parameters).keys())
    large = [name for name, x in hyper.items() if abs(x) > LARGEST]
    found = {"lacks": lacking, "has": unknown, "is too large in": large}
    return ", ".join(f"{verb} {', '.join(names)}" for verb, names in found.items() if names)


def numbers_of(env: Any) -> dict[str, str]:
    """Return the attributes of an environment that hold finite floats, by their names without leading underscores."""
    numbers = {name: x for name, x in vars(env).items() if isinstance(x, (float, np.floating))}
    return {name.lstrip("_"): name for name, x in numbers.items() if np.isfinite(x)}
