"""Shoal trains a population of reinforcement-learning agents that learn from one another."""

from __future__ import annotations

TYPE_CHECKING = False  # that of typing, whose import the command need not wait for before it handles signals

if TYPE_CHECKING:
    from shoal.commands.evaluate import evaluate
    from shoal.core.errors import BadInput
    from shoal.core.population import PopulationStats, Selection
    from shoal.core.space import HyperparameterSpec, Range, end_factor
    from shoal.core.spec import Continuous, Discrete, MultiDiscrete, Spec
    from shoal.core.types import Agent, Member
    from shoal.environments.device import DeviceEnvironment
    from shoal.experiment.evolver import Evolver
    from shoal.experiment.experiment import Experiment, Fitness
    from shoal.records.callback import Callback
    from shoal.records.generation import Generation
    from shoal.report.load_run import LoadedRun, load_run
    from shoal.run.champion import Champion, load_champion
    from shoal.run.loop import Result, resume, train

__version__ = "0.2.0"
__all__ = [
    "Agent",
    "BadInput",
    "Callback",
    "Champion",
    "Continuous",
    "DeviceEnvironment",
    "Discrete",
    "Evolver",
    "Experiment",
    "Fitness",
    "Generation",
    "HyperparameterSpec",
    "LoadedRun",
    "Member",
    "MultiDiscrete",
    "PopulationStats",
    "Range",
    "Result",
    "Selection",
    "Spec",
    "end_factor",
    "evaluate",
    "load_champion",
    "load_run",
    "resume",
    "train",
]

_NAMES = {
    "shoal.commands.evaluate": ["evaluate"],
    "shoal.core.errors": ["BadInput"],
    "shoal.core.population": ["PopulationStats", "Selection"],
    "shoal.core.space": ["HyperparameterSpec", "Range", "end_factor"],
    "shoal.core.spec": ["Continuous", "Discrete", "MultiDiscrete", "Spec"],
    "shoal.core.types": ["Agent", "Member"],
    "shoal.environments.device": ["DeviceEnvironment"],
    "shoal.experiment.evolver": ["Evolver"],
    "shoal.experiment.experiment": ["Experiment", "Fitness"],
    "shoal.records.callback": ["Callback"],
    "shoal.records.generation": ["Generation"],
    "shoal.report.load_run": ["LoadedRun", "load_run"],
    "shoal.run.champion": ["Champion", "load_champion"],
    "shoal.run.loop": ["Result", "resume", "train"],
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Imported at first use, so that `shoal --help` need not wait for JAX."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
