"""What can change on a live algorithm of rl_games. Part of the adapter `rl_games.py`; needs no package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

INFINITE = float("inf")


class Live(NamedTuple):
    """A hyperparameter that can change on a live algorithm, by its name in the task's file.

    high:      its highest possible value; the lowest is `low`
    range:     what is tuned by default, where the usual value lies in it
    attribute: where rl_games keeps it, if not under its name
    integer:   whether it is a whole number
    """

    high: float = INFINITE
    low: float = 0.0
    range: Mapping[str, Any] | None = None
    attribute: str = ""
    integer: bool = False


LIVE = {
    "learning_rate": Live(range={"low": 1e-5, "high": 1e-2, "scale": "log"}),
    "kl_threshold": Live(range={"low": 1e-3, "high": 0.1, "scale": "log"}),
    "gamma": Live(1, range={"low": 0.9, "high": 0.9999, "scale": "one_minus_log"}),
    "tau": Live(1, range={"low": 0.8, "high": 0.999, "scale": "one_minus_log"}),
    "e_clip": Live(range={"low": 0.05, "high": 0.4}),
    "entropy_coef": Live(range={"low": 0.0, "high": 0.05}),
    "critic_coef": Live(range={"low": 0.1, "high": 10.0, "scale": "log"}),
    "bounds_loss_coef": Live(range={"low": 1e-5, "high": 0.1, "scale": "log"}),
    "grad_norm": Live(range={"low": 0.1, "high": 10.0, "scale": "log"}),
    "mini_epochs": Live(low=1, attribute="mini_epochs_num", integer=True),
}


def hyperparameters(config: Mapping[str, Any], continuous: bool) -> dict[str, float]:
    """What can change live, with the values of the task's file.

    An adaptive schedule finds the learning rate by itself, so that only its `kl_threshold` is one.
    """
    adaptive = config.get("lr_schedule") == "adaptive"
    without_effect = {
        "learning_rate": adaptive,
        "kl_threshold": not adaptive,
        "grad_norm": not config.get("truncate_grads", False),
        "bounds_loss_coef": not continuous,
    }
    names = (name for name in LIVE if config.get(name) is not None and not without_effect.get(name, False))
    return {name: float(config[name]) for name in names}


def ranges(hyper: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """What is tuned by default."""
    given = ((name, LIVE[name].range, value) for name, value in hyper.items())
    return {name: dict(r) for name, r, value in given if r is not None and r["low"] <= value <= r["high"]}


def number(name: str, value: float) -> float:
    """A value as rl_games takes it."""
    return round(value) if LIVE[name].integer else float(value)
