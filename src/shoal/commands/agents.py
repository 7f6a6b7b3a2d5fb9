"""`shoal agents`: Shoal's own agents; of one its hyperparameters and its config."""

from __future__ import annotations

import importlib
from dataclasses import fields
from types import ModuleType

from rich.table import Table

from shoal.core.errors import unknown
from shoal.core.schema import descriptions
from shoal.core.space import Range, declared
from shoal.methods import METHODS
from shoal.records.screen import Screen, plain_table, styled


def list_agents(name: str, screen: Screen) -> None:
    """List the agents, or describe one. Raises BadInput if there is none of that name."""
    places: dict[str, str] = {}
    for method in METHODS.values():
        places |= method.agents
    if name and name not in places:
        raise unknown("agent", name, places)
    modules = {agent: importlib.import_module(place.partition(":")[0]) for agent, place in places.items()}
    if not name:
        table = plain_table(show_header=False)
        for agent, module in modules.items():
            table.add_row(styled((agent, "bold")), (module.__doc__ or "").splitlines()[0])
        screen.print(table)
        return
    module = modules[name]
    screen.print((module.__doc__ or "").splitlines()[0], "", *_hyperparameters(module), _config(module), sep="\n")


def _hyperparameters(module: ModuleType) -> list[str | Table]:
    known, defaults = declared(module.Hyper), module.Hyper()
    if not known:
        return []
    table = plain_table("hyperparameter", "default", "tuned by default", "meaning")
    for name, number in known.items():
        table.add_row(name, f"{getattr(defaults, name):g}", _shown(number.tuned), number.meaning)
    return ["set by `hyper`, tuned by `space`:", table, ""]


def _config(module: ModuleType) -> Table:
    table, meaning = plain_table("config", "default", "meaning"), descriptions(module.Config)
    defaults = module.Config()
    for field in fields(module.Config):
        default = getattr(defaults, field.name)
        shown = list(default) if isinstance(default, tuple) else default
        table.add_row(field.name, "" if default is None else str(shown), meaning[field.name])
    return table


def _shown(tuned: Range | None) -> str:
    if tuned is None:
        return ""
    kinds = [tuned.scale] * (tuned.scale != "linear") + ["integer"] * tuned.integer
    return ", ".join([f"{tuned.low:g} to {tuned.high:g}", *kinds])
