"""Knobs: numbers of an environment that each member may have its own of while it trains, as hyperparameters `env.NAME`.

Nothing is ever measured in an environment with other values than its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from shoal.core.types import Tunable

PREFIX = "env."
LARGEST = float(np.finfo(np.float32).max)


def split(hyper: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values by the names of hyperparameters, as those of the agent and the knobs, the latter by their own names."""
    own = {name: x for name, x in hyper.items() if not name.startswith(PREFIX)}
    return own, {name.removeprefix(PREFIX): x for name, x in hyper.items() if name not in own}


def joined(own: Mapping[str, Any], knobs: Mapping[str, Any]) -> dict[str, Any]:
    """What `split` has taken apart."""
    return {**own, **{f"{PREFIX}{name}": x for name, x in knobs.items()}}


def usual(tunable: Tunable, knobs: Mapping[str, float]) -> dict[str, float]:
    """The usual value of every hyperparameter, by name: those of an agent or of trainers, and knobs."""
    return joined(tunable.hyper._asdict(), knobs)


def unlike(hyper: Mapping[str, float], tunable: Tunable, knobs: Mapping[str, float]) -> str:
    """In what these are no hyperparameters of an agent, or of trainers, with any of the knobs; empty where they are."""
    lacking = [name for name in tunable.hyper._fields if name not in hyper]
    unknown = sorted(hyper.keys() - usual(tunable, knobs).keys())
    large = [name for name, x in hyper.items() if abs(x) > LARGEST]
    found = {"lacks": lacking, "has": unknown, "is too large in": large}
    return ", ".join(f"{verb} {', '.join(names)}" for verb, names in found.items() if names)


def numbers_of(env: Any) -> dict[str, str]:
    """The attributes of an environment that are finite and no whole numbers, by names without the underscores in front."""
    numbers = {name: x for name, x in vars(env).items() if isinstance(x, (float, np.floating))}
    return {name.lstrip("_"): name for name, x in numbers.items() if np.isfinite(x)}
