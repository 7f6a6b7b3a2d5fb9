"""Shoal trains a population of reinforcement-learning agents that learn from one another."""

from __future__ import annotations

TYPE_CHECKING = False  # that of typing, whose import the command need not wait for before it handles signals

if TYPE_CHECKING:
    from shoal.core.errors import BadInput as BadInput
    from shoal.core.population import PopulationStats as PopulationStats
    from shoal.core.population import Selection as Selection
    from shoal.core.space import HyperparameterSpec as HyperparameterSpec
    from shoal.core.space import Range as Range
    from shoal.core.space import end_factor as end_factor
    from shoal.core.spec import Box as Box
    from shoal.core.spec import Discrete as Discrete
    from shoal.core.spec import MultiDiscrete as MultiDiscrete
    from shoal.core.spec import Spec as Spec
    from shoal.core.types import Agent as Agent
    from shoal.core.types import Member as Member
    from shoal.environments.device import DeviceEnvironment as DeviceEnvironment
    from shoal.experiment.evolver import Evolver as Evolver
    from shoal.experiment.experiment import Experiment as Experiment
    from shoal.experiment.experiment import Fitness as Fitness
    from shoal.records.callback import Callback as Callback
    from shoal.records.generation import Generation as Generation
    from shoal.report.load_run import LoadedRun as LoadedRun
    from shoal.report.load_run import load_run as load_run
    from shoal.run.champion import Champion as Champion
    from shoal.run.champion import load_champion as load_champion
    from shoal.run.evaluation import evaluate as evaluate
    from shoal.run.result import Result as Result
    from shoal.run.train import resume as resume
    from shoal.run.train import train as train

__version__ = "0.2.0"
_NAMES = {
    "shoal.run.evaluation": ["evaluate"],
    "shoal.core.errors": ["BadInput"],
    "shoal.core.population": ["PopulationStats", "Selection"],
    "shoal.core.space": ["HyperparameterSpec", "Range", "end_factor"],
    "shoal.core.spec": ["Box", "Discrete", "MultiDiscrete", "Spec"],
    "shoal.core.types": ["Agent", "Member"],
    "shoal.environments.device": ["DeviceEnvironment"],
    "shoal.experiment.evolver": ["Evolver"],
    "shoal.experiment.experiment": ["Experiment", "Fitness"],
    "shoal.records.callback": ["Callback"],
    "shoal.records.generation": ["Generation"],
    "shoal.report.load_run": ["LoadedRun", "load_run"],
    "shoal.run.champion": ["Champion", "load_champion"],
    "shoal.run.result": ["Result"],
    "shoal.run.train": ["resume", "train"],
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Imported at first use, so that `shoal --help` need not wait for JAX."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
