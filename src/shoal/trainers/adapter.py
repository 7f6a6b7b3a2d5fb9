"""Parts that adapters share: descriptions, evaluations, and models of PyTorch as named arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from shoal_trainers.live import LIVE


class Adapter:
    """A model of a library as a trainer: what does not depend on which library it is.

    at_once: how many episodes an evaluation plays side by side
    """

    at_once: int

    def _describe(self, adapter: str, hyper: Mapping[str, float]) -> None:
        """Describe these hyperparameters, whose defaults are given."""
        live = self._live = {name: LIVE[adapter][name] for name in hyper}
        self.hyper = hyper
        self.limits = {name: x[:2] for name, x in live.items()}
        self.space = {name: x.range for name, x in live.items() if x.range and x.range[0] <= hyper[name] <= x.range[1]}

    def _values(self, hyper: Mapping[str, float]) -> dict[str, float]:
        """Values as the library takes them."""
        return {name: self._live[name].value(x) for name, x in hyper.items()}

    def evaluate(self, seeds: Sequence[int]) -> list[float]:
        """One episode per seed, with frozen statistics; their raw returns, or what is measured instead."""
        self.evaluation_steps = 0
        returns: list[float] = []
        while len(returns) < len(seeds):
            returns += self._play(seeds[len(returns) :][: self.at_once])
        return returns

    def _play(self, seeds: Sequence[int]) -> list[float]:
        """Returns of one episode for each of these seeds, at most `at_once`; their steps count in `evaluation_steps`."""
        raise NotImplementedError


def spec(obs: Any, action: Any, start: int = 0) -> dict[str, Any] | None:
    """Describe spaces; None where they are of another kind. start: of discrete actions."""
    # By name: they may be of gym or gymnasium.
    seen, acted = ({kind.__name__ for kind in type(space).__mro__} for space in (obs, action))
    if "Box" in seen and "Discrete" in acted:
        described = {"kind": "discrete", "n": int(action.n), "start": start}
    elif "Box" in seen & acted and len(action.shape) == 1:
        described = {"kind": "continuous", "low": action.low.tolist(), "high": action.high.tolist()}
    else:
        return None
    return {"obs_shape": list(obs.shape), "obs_dtype": str(obs.dtype), "action": described}


def arrays(parts: Iterable[tuple[str, Any]]) -> dict[str, np.ndarray]:
    """Copies of what the parts of a model hold, by path: tensors, modules, what optimisers have gathered of parameters, and
    numbers, of which an owner and the name of its attribute are given."""
    found: dict[str, np.ndarray] = {}
    for path, part in parts:
        match part:
            case torch.nn.Module():
                found |= {f"{path}/{name}": _array(x) for name, x in part.state_dict().items()}
            case torch.optim.Optimizer():
                moments = part.state_dict()["state"].items()
                found |= {f"{path}/{i}/{name}": _array(x) for i, kept in moments for name, x in kept.items()}
            case owner, name:
                found[path] = np.array(getattr(owner, name))
            case tensor:
                found[path] = _array(tensor)
    return found


@torch.no_grad()
def set_arrays(parts: Iterable[tuple[str, Any]], given: Mapping[str, np.ndarray]) -> None:
    """The opposite of `arrays`. The learning rate of an optimiser, which is no part of the state, stays as it is."""
    for path, part in parts:
        match part:
            case torch.nn.Module():
                for name, x in part.state_dict().items():
                    x.copy_(torch.from_numpy(given[f"{path}/{name}"]))
            case torch.optim.Optimizer():
                moments: dict[int, dict[str, torch.Tensor]] = {}
                for place in (place for place in given if place.startswith(f"{path}/")):
                    i, name = place[len(path) + 1 :].split("/")
                    moments.setdefault(int(i), {})[name] = torch.tensor(given[place])
                part.load_state_dict({"state": moments, "param_groups": part.state_dict()["param_groups"]})
            case owner, name:
                setattr(owner, name, given[path].copy() if given[path].ndim else given[path].item())
            case tensor:
                tensor.copy_(torch.from_numpy(given[path]))


def _array(x: Any) -> np.ndarray:
    return torch.as_tensor(x).detach().cpu().numpy().copy()
