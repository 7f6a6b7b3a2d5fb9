"""What a file of a policy tells of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from shoal.core.spec import Leaf
from shoal.core.yaml_text import plain
from shoal.experiment.files import dump
from shoal.run.champion import Champion


def about(champion: Champion) -> dict[str, str]:
    """Texts by name: the observation and the action as JSON, where the policy comes from, and its experiment as YAML."""
    spec = champion.spec
    assert spec is not None and champion.obs is not None
    action = {"kind": type(spec.action).__name__, "dtype": spec.action.native, **asdict(spec.action)}
    action.pop("native", None)
    told: dict[str, Any] = {
        "observation": _described("obs", champion.obs),
        "action": {"name": "action", "shape": spec.action.shape, **action},
        "champion": {"uid": champion.uid, "generation": champion.generation, "fitness": champion.fitness},
    }
    return {name: json.dumps(plain(x)) for name, x in told.items()} | {"experiment": dump(champion.experiment)}


def _described(name: str, obs: Leaf | dict[str, Leaf]) -> dict[str, Any]:
    """Name, shape and dtype of an input; by key where there are several, in the order in which the network sees them."""
    if isinstance(obs, dict):
        return {key: _described(f"{name}.{key}", leaf) for key, leaf in obs.items()}
    return {"name": name, **asdict(obs)}
