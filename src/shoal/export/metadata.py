"""What a file of a policy tells of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from shoal.core.yaml_text import plain
from shoal.experiment.experiment import dump
from shoal.run.champion import Champion


def about(champion: Champion) -> dict[str, str]:
    """Texts by name: the observation and the action as JSON, where the policy comes from, and its experiment as YAML."""
    spec = champion.spec
    assert spec is not None
    action = {"kind": type(spec.action).__name__, "dtype": spec.action.native, **asdict(spec.action)}
    action.pop("native", None)
    told: dict[str, Any] = {
        "observation": {"name": "obs", "shape": spec.obs_shape, "dtype": spec.obs_dtype},
        "action": {"name": "action", "shape": spec.action.shape, **action},
        "champion": {"uid": champion.uid, "generation": champion.generation, "fitness": champion.fitness},
    }
    return {name: json.dumps(plain(x)) for name, x in told.items()} | {"experiment": dump(champion.experiment)}
