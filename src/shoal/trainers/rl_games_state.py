"""A live algorithm of rl_games: its hyperparameters set, and what its state is in. Part of the adapter `rl_games.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rl_games.common.schedulers import LinearScheduler
from shoal_trainers import adapter

ATTRIBUTES = {"mini_epochs": "mini_epochs_num"}  # where rl_games keeps what is not under its name


def set_hyperparameters(algo: Any, values: Mapping[str, float]) -> None:
    """Assign each value wherever rl_games keeps it."""
    for name, value in values.items():
        setattr(algo, ATTRIBUTES.get(name, name), value)
        if name == "kl_threshold":
            algo.scheduler.kl_threshold = value
        elif name == "learning_rate":
            if isinstance(algo.scheduler, LinearScheduler):
                algo.scheduler.start_lr = value
                if algo.epoch_num:
                    value, _ = algo.scheduler.update(value, 0.0, algo.epoch_num, 0, 0.0)
            _set_rate(algo, value)


def learned(algo: Any) -> dict[str, np.ndarray]:
    """Weights, normalisers, moments of the optimisers, the scale of gradients, and counters."""
    scale = {f"scaler/{name}": np.array(x) for name, x in algo.scaler.state_dict().items()}
    return adapter.arrays(_parts(algo)) | scale


def set_learned(algo: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """The opposite of `learned`."""
    adapter.set_arrays(_parts(algo), arrays)
    if algo.scaler.is_enabled():  # with `mixed_precision`; that of a critic of its own is never used
        algo.scaler.load_state_dict({name: arrays[f"scaler/{name}"].item() for name in algo.scaler.state_dict()})
    _set_rate(algo, algo.last_lr)


def _set_rate(algo: Any, rate: float) -> None:
    # In both places: every minibatch ends with `last_lr` in the optimiser.
    algo.last_lr = rate
    algo.update_lr(rate)


def _parts(algo: Any) -> Iterator[tuple[str, Any]]:
    """Flatten a state for `adapter.arrays`, with the numbers that schedules rely on."""
    for name in ("model", "central_value_net", "advantage_mean_std", "optimizer"):
        if hasattr(algo, name):
            yield name, getattr(algo, name)
    yield from ((name, (algo, name)) for name in ("epoch_num", "frame"))
    if algo.is_adaptive_lr:
        yield "last_lr", (algo, "last_lr")
    if algo.has_central_value:
        critic = algo.central_value_net
        yield "central_value_optimizer", critic.optimizer
        yield from ((f"central_value/{name}", (critic, name)) for name in ("epoch_num", "frame", "lr"))
