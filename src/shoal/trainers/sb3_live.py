"""What can change on a live model of Stable-Baselines3, and where SB3 keeps it. Part of the adapter `sb3.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import FloatSchedule

INFINITE = float("inf")


class Live(NamedTuple):
    """A hyperparameter that can change on a live model.

    low, high: its possible values
    integer:   whether it is a whole number
    range:     what is tuned by default, where the usual value lies in it
    after:     what must happen once the value has been assigned, where assigning it is not enough
    """

    low: float
    high: float
    integer: bool = False
    range: Mapping[str, Any] | None = None
    after: Callable[[Any, Any], None] = lambda model, value: None


def _set_rollout(model: Any, steps: int) -> None:
    if isinstance(model, OnPolicyAlgorithm):
        model.rollout_buffer.buffer_size = steps  # it is made anew before every rollout


def _set_entropy(model: Any, coefficient: float) -> None:
    if hasattr(model, "ent_coef_tensor"):  # SAC and TQC
        model.ent_coef_tensor.fill_(coefficient)


def _set_noise(model: Any, std: float) -> None:
    for noise in getattr(model.action_noise, "noises", [model.action_noise]):
        noise._sigma[:] = std


def _set_schedule(name: str) -> Callable[[Any, float], None]:
    return lambda model, value: setattr(model, name, FloatSchedule(value))


LIVE = {
    "learning_rate": Live(
        0,
        INFINITE,
        range={"low": 1e-5, "high": 1e-2, "scale": "log"},
        after=lambda model, _: model._setup_lr_schedule(),
    ),
    "gamma": Live(0, 1, range={"low": 0.9, "high": 0.9999, "scale": "one_minus_log"}),
    "gae_lambda": Live(0, 1, range={"low": 0.8, "high": 0.995, "scale": "one_minus_log"}),
    "clip_range": Live(0, INFINITE, range={"low": 0.1, "high": 0.4}, after=_set_schedule("clip_range")),
    "clip_range_vf": Live(0, INFINITE, after=_set_schedule("clip_range_vf")),
    "ent_coef": Live(0, INFINITE, range={"low": 0.0, "high": 0.05}, after=_set_entropy),
    "vf_coef": Live(0, INFINITE),
    "max_grad_norm": Live(0, INFINITE),
    "target_kl": Live(0, INFINITE),
    "n_steps": Live(2, INFINITE, integer=True, after=_set_rollout),
    "n_epochs": Live(1, INFINITE, integer=True),
    "batch_size": Live(2, INFINITE, integer=True),
    "tau": Live(0, 1, range={"low": 1e-3, "high": 0.05, "scale": "log"}),
    "train_freq": Live(1, INFINITE, integer=True, after=lambda model, _: model._convert_train_freq()),
    "gradient_steps": Live(1, INFINITE, integer=True),
    "target_entropy": Live(-INFINITE, INFINITE),
    "target_update_interval": Live(1, INFINITE, integer=True),
    "policy_delay": Live(1, INFINITE, integer=True),
    "target_policy_noise": Live(0, INFINITE),
    "target_noise_clip": Live(0, INFINITE),
    "top_quantiles_to_drop_per_net": Live(0, INFINITE, integer=True),
    "exploration_final_eps": Live(0, 1, range={"low": 0.01, "high": 0.2, "scale": "log"}),
    "noise_std": Live(0, INFINITE, range={"low": 0.02, "high": 0.5, "scale": "log"}, after=_set_noise),
}
FIXED = {
    "QRDQN": {"batch_size"},  # the optimiser's epsilon is made from it
    "RecurrentPPO": {"n_steps"},  # its buffer keeps the shape
    "SAC": {"target_update_interval"},  # counts within one round of updates, which mostly has one
    "TQC": {"target_update_interval"},
}


def hyperparameters(algorithm: Any, values: Mapping[str, Any]) -> dict[str, float]:
    """What can change live of the arguments of an algorithm, which are `values`, with these values."""
    names = sorted(set(LIVE) & set(values) - FIXED.get(algorithm.__name__, set()))
    return {name: float(values[name]) for name in names if _within(values[name], LIVE[name].low, LIVE[name].high)}


def ranges(hyper: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """What is tuned by default."""
    given = ((name, LIVE[name].range, value) for name, value in hyper.items())
    return {name: dict(r) for name, r, value in given if r is not None and _within(value, r["low"], r["high"])}


def number(name: str, value: float) -> float:
    """A value as SB3 takes it."""
    return round(value) if LIVE[name].integer else float(value)


def tell(model: Any, hyper: Mapping[str, float]) -> None:
    """Assign each value wherever SB3 keeps it: in the model, its buffers, or its normaliser."""
    kept = (getattr(model, name, None) for name in ("rollout_buffer", "replay_buffer"))
    places = [vars(x) for x in (model, *kept, model.get_vec_normalize_env()) if x is not None]
    for name, x in hyper.items():
        value = number(name, x)
        for place in places:
            if name in place:
                place[name] = value
        LIVE[name].after(model, value)


def _within(value: Any, low: float, high: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
