"""An algorithm of rl_games: its hyperparameters set, and its state as named arrays. Part of the adapter `rl_games.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from rl_games.common.schedulers import LinearScheduler
from shoal_trainers.rl_games_hyper import LIVE, number
from shoal_trainers.torch_state import array, moments, set_moments


def tell(algo: Any, hyper: Mapping[str, float]) -> None:
    """Assign each value wherever rl_games keeps it."""
    for name, x in hyper.items():
        value = number(name, x)
        setattr(algo, LIVE[name].attribute or name, value)
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
    found = {f"{path}/{key}": array(x) for path, module in _modules(algo) for key, x in module.state_dict().items()}
    for path, optimizer in _optimizers(algo):
        found |= moments(optimizer, path)
    found |= {f"scaler/{name}": np.array(x) for name, x in algo.scaler.state_dict().items()}
    found |= {path: np.array(getattr(owner, name)) for path, owner, name in _counters(algo)}
    return found


def set_learned(algo: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """The opposite of `learned`."""
    for path, module in _modules(algo):
        module.load_state_dict({key: torch.from_numpy(arrays[f"{path}/{key}"]) for key in module.state_dict()})
    for path, optimizer in _optimizers(algo):
        set_moments(optimizer, path, arrays)
    if algo.scaler.is_enabled():  # with `mixed_precision`; that of a critic of its own is never used
        algo.scaler.load_state_dict({name: arrays[f"scaler/{name}"].item() for name in algo.scaler.state_dict()})
    for path, owner, name in _counters(algo):
        setattr(owner, name, arrays[path].item())
    _set_rate(algo, algo.last_lr)


def _set_rate(algo: Any, rate: float) -> None:
    # In both places: every minibatch ends with `last_lr` in the optimiser.
    algo.last_lr = rate
    algo.update_lr(rate)


def _modules(algo: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    for name in ("model", "central_value_net", "advantage_mean_std"):
        if hasattr(algo, name):
            yield name, getattr(algo, name)


def _optimizers(algo: Any) -> Iterator[tuple[str, torch.optim.Optimizer]]:
    yield "optimizer", algo.optimizer
    if algo.has_central_value:
        yield "central_value_optimizer", algo.central_value_net.optimizer


def _counters(algo: Any) -> Iterator[tuple[str, Any, str]]:
    """Numbers beside the weights: path, owner and name. Schedules count on them."""
    yield from ((name, algo, name) for name in ("epoch_num", "frame"))
    if algo.is_adaptive_lr:
        yield "last_lr", algo, "last_lr"
    if algo.has_central_value:
        owner = algo.central_value_net
        yield from ((f"central_value/{name}", owner, name) for name in ("epoch_num", "frame", "lr"))
