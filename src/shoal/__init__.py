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

_HOMES = {
    "Agent": "shoal.core.types",
    "BadInput": "shoal.core.errors",
    "PopulationStats": "shoal.core.population",
    "Champion": "shoal.run.champion",
    "Continuous": "shoal.core.spec",
    "DeviceEnvironment": "shoal.environments.device",
    "Discrete": "shoal.core.spec",
    "Evolver": "shoal.experiment.evolver",
    "Experiment": "shoal.experiment.experiment",
    "Fitness": "shoal.experiment.experiment",
    "Generation": "shoal.records.generation",
    "HyperparameterSpec": "shoal.core.space",
    "LoadedRun": "shoal.report.load_run",
    "Member": "shoal.core.types",
    "MultiDiscrete": "shoal.core.spec",
    "Range": "shoal.core.space",
    "Callback": "shoal.records.callback",
    "Result": "shoal.run.loop",
    "Selection": "shoal.core.population",
    "Spec": "shoal.core.spec",
    "end_factor": "shoal.core.space",
    "evaluate": "shoal.commands.evaluate",
    "load_champion": "shoal.run.champion",
    "load_run": "shoal.report.load_run",
    "resume": "shoal.run.loop",
    "train": "shoal.run.loop",
}


def __getattr__(name: str) -> object:
    """Imported at first use, so that `shoal --help` need not wait for JAX."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
