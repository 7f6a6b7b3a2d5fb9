"""A live model of Stable-Baselines3: its hyperparameters set, and what its state is in. Part of the adapter `sb3.py`."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import FloatSchedule

COUNTERS = ("num_timesteps", "_n_updates", "_n_calls")  # warm-up, delays and targets count on them
STATISTICS = ("mean", "var", "count")  # of a running mean


def set_hyperparameters(model: Any, values: Mapping[str, float]) -> None:
    """Assign each value wherever SB3 keeps it: in the model, its buffers, or its normaliser, or in what is made of it."""
    kept = (getattr(model, name, None) for name in ("rollout_buffer", "replay_buffer"))
    places = [vars(x) for x in (model, *kept, model.get_vec_normalize_env()) if x is not None]
    for name, value in values.items():
        for place in places:
            if name in place:
                place[name] = value
        match name:
            case "learning_rate":
                model._setup_lr_schedule()
            case "clip_range" | "clip_range_vf":
                setattr(model, name, FloatSchedule(value))
            case "ent_coef" if hasattr(model, "ent_coef_tensor"):  # SAC and TQC
                model.ent_coef_tensor.fill_(value)
            case "n_steps" if isinstance(model, OnPolicyAlgorithm):
                model.rollout_buffer.buffer_size = value  # it is made anew before every rollout
            case "train_freq":
                model._convert_train_freq()
            case "noise_std":
                for noise in getattr(model.action_noise, "noises", [model.action_noise]):
                    noise._sigma[:] = value


def parts(model: Any) -> Iterator[tuple[str, Any]]:
    """State of a model: what SB3 itself saves, counters, and statistics of the normaliser."""
    modules, variables = model._get_torch_save_params()
    yield from ((path, operator.attrgetter(path)(model)) for path in (*modules, *variables))
    yield from ((name, (model, name)) for name in COUNTERS if name in vars(model))
    if (normalizer := model.get_vec_normalize_env()) is not None:
        yield from statistics(normalizer)


def statistics(normalizer: Any) -> Iterator[tuple[str, Any]]:
    """Statistics of a VecNormalize, in the form of `parts`."""
    means = {"normalize/return": normalizer.ret_rms}
    means |= _flat("normalize/obs", normalizer.obs_rms) if normalizer.norm_obs else {}
    yield from ((f"{path}/{name}", (mean, name)) for path, mean in means.items() for name in STATISTICS)


def replay_buffer(buffer: Any) -> dict[str, np.ndarray]:
    """The filled part of a replay buffer, and its position."""
    arrays = {path: x[: buffer.size()].copy() for path, x in _transitions(buffer)}
    return {"pos": np.array(buffer.pos), "full": np.array(buffer.full), **arrays}


def set_replay_buffer(buffer: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """The opposite of `replay_buffer`."""
    buffer.pos, buffer.full = int(arrays["pos"]), bool(arrays["full"])
    for path, x in _transitions(buffer):
        x[: buffer.size()] = arrays[path]


def _transitions(buffer: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a replay buffer, whose first axis is that of the steps."""
    for name, value in vars(buffer).items():
        yield from ((path, x) for path, x in _flat(name, value).items() if isinstance(x, np.ndarray))


def _flat(path: str, value: Any) -> dict[str, Any]:
    """A value by its path, or those of a dict, as dict observations have them."""
    return {f"{path}/{k}": x for k, x in value.items()} if isinstance(value, dict) else {path: value}
