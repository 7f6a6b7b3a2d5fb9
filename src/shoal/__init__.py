"""Shoal trains a population of reinforcement-learning agents that learn from one another."""

from __future__ import annotations

TYPE_CHECKING = False  # that of typing, whose import the command need not wait for before it heeds signals

if TYPE_CHECKING:
    from shoal.champion import Champion, load_champion
    from shoal.environments.device import DeviceEnvironment
    from shoal.experiment import Experiment, Fitness
    from shoal.loop import Result, resume, train
    from shoal.types import Agent, BadInput, Cards, Continuous, Discrete, Member, MultiDiscrete, Range, Selection, Spec

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "BadInput",
    "Cards",
    "Champion",
    "Continuous",
    "DeviceEnvironment",
    "Discrete",
    "Experiment",
    "Fitness",
    "Member",
    "MultiDiscrete",
    "Range",
    "Result",
    "Selection",
    "Spec",
    "load_champion",
    "resume",
    "train",
]

_HOMES = {
    "Agent": "shoal.types",
    "BadInput": "shoal.types",
    "Cards": "shoal.types",
    "Champion": "shoal.champion",
    "Continuous": "shoal.types",
    "DeviceEnvironment": "shoal.environments.device",
    "Discrete": "shoal.types",
    "Experiment": "shoal.experiment",
    "Fitness": "shoal.experiment",
    "Member": "shoal.types",
    "MultiDiscrete": "shoal.types",
    "Range": "shoal.types",
    "Result": "shoal.loop",
    "Selection": "shoal.types",
    "Spec": "shoal.types",
    "load_champion": "shoal.champion",
    "resume": "shoal.loop",
    "train": "shoal.loop",
}


def __getattr__(name: str) -> object:
    """Imported at first use, so that `shoal --help` need not wait for JAX."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
