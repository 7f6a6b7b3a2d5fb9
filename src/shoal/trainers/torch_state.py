"""Tensors and optimisers of PyTorch as named arrays. Part of the adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def array(x: Any) -> np.ndarray:
    """A copy of a tensor or number."""
    return torch.as_tensor(x).detach().cpu().numpy().copy()


def moments(optimizer: torch.optim.Optimizer, path: str) -> dict[str, np.ndarray]:
    """What an optimiser has gathered of its parameters, by path, number of the parameter and name."""
    state = optimizer.state_dict()["state"]
    return {f"{path}/{i}/{name}": array(x) for i, found in state.items() for name, x in found.items()}


def set_moments(optimizer: torch.optim.Optimizer, path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """The opposite of `moments`. The learning rate, which is no part of the state, stays as it is."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name in (name for name in arrays if name.startswith(f"{path}/")):
        i, key = name[len(path) + 1 :].split("/")
        state.setdefault(int(i), {})[key] = torch.tensor(arrays[name])
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
