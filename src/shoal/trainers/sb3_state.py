"""The state of a model of Stable-Baselines3 as named arrays. Part of the adapter `sb3.py`."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from shoal_trainers.torch_state import array, moments, set_moments

Arrays = Mapping[str, np.ndarray]
COUNTERS = ("num_timesteps", "_n_updates", "_n_calls")  # warm-up, delays and targets count on them
STATISTICS = ("mean", "var", "count")  # of a running mean; in float64, else training on would differ


def learned(model: Any) -> dict[str, np.ndarray]:
    """Weights, moments of the optimisers, counters, and statistics of the normaliser."""
    found = {name: np.array(vars(model)[name]) for name in COUNTERS if name in vars(model)}
    found |= {path: array(tensor) for path, tensor in _tensors(model)}
    for path, optimizer in _optimizers(model):
        found |= moments(optimizer, path)
    for path, statistics in _statistics(model):
        found |= {f"{path}/{name}": np.array(getattr(statistics, name), np.float64) for name in STATISTICS}
    return found


def set_learned(model: Any, arrays: Arrays) -> None:
    """The opposite of `learned`."""
    for name in set(COUNTERS) & set(arrays):
        setattr(model, name, int(arrays[name]))
    with torch.no_grad():
        for path, tensor in _tensors(model):
            tensor.copy_(torch.from_numpy(arrays[path]))
    for path, optimizer in _optimizers(model):
        set_moments(optimizer, path, arrays)
    for path, statistics in _statistics(model):
        for name in STATISTICS:
            setattr(statistics, name, arrays[f"{path}/{name}"].copy())


def memory(buffer: Any) -> dict[str, np.ndarray]:
    """The filled part of a replay memory, and its position."""
    arrays = {path: x[: buffer.size()].copy() for path, x in _transitions(buffer)}
    return {"pos": np.array(buffer.pos), "full": np.array(buffer.full), **arrays}


def set_memory(buffer: Any, arrays: Arrays) -> None:
    """The opposite of `memory`."""
    buffer.pos, buffer.full = int(arrays["pos"]), bool(arrays["full"])
    for path, x in _transitions(buffer):
        x[: buffer.size()] = arrays[path]


def _saved(model: Any) -> Iterator[tuple[str, Any]]:
    """What SB3 itself saves of a model, by its path there."""
    modules, variables = model._get_torch_save_params()
    return ((path, operator.attrgetter(path)(model)) for path in (*modules, *variables))


def _tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for path, x in _saved(model):
        if isinstance(x, torch.Tensor):
            yield path, x
        elif isinstance(x, torch.nn.Module):
            yield from ((f"{path}/{name}", tensor) for name, tensor in x.state_dict().items())


def _optimizers(model: Any) -> Iterator[tuple[str, torch.optim.Optimizer]]:
    return ((path, x) for path, x in _saved(model) if isinstance(x, torch.optim.Optimizer))


def _statistics(model: Any) -> Iterator[tuple[str, Any]]:
    """The running means of the normaliser, if there is one."""
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None:
        yield "normalize/return", normalizer.ret_rms
        if normalizer.norm_obs:
            yield from _flat("normalize/obs", normalizer.obs_rms)


def _transitions(buffer: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a replay memory, whose first axis is that of the steps."""
    for name, value in vars(buffer).items():
        yield from ((path, x) for path, x in _flat(name, value) if isinstance(x, np.ndarray))


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value by its path, or those of a dict, as dict observations have them."""
    return ((f"{path}/{k}", x) for k, x in value.items()) if isinstance(value, dict) else iter([(path, value)])
