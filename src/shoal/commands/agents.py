"""`shoal agents`: Shoal's own agents; of one, or of an external trainer, its hyperparameters and its config."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any

from rich.table import Table

from shoal.agents.registry import AGENTS, POLICY, Declaration
from shoal.core.errors import BadField, unknown
from shoal.core.schema import descriptions
from shoal.core.space import Range, declared
from shoal.methods.ranges import validate
from shoal.records.screen import Screen, plain_table, styled
from shoal.trainers.process import Recipe
from shoal.trainers.trainers import TrainerProcesses, Trainers, own_folders


def list_agents(name: str, screen: Screen) -> None:
    """List the agents, or describe one. Raises BadInput if there is none of that name."""
    known = AGENTS | {"policy": POLICY}
    if ":" in name:
        advice = f"shoal doctor --env ID --agent {name} says what is tuned and what is fixed"
        raise BadField("agent", "is not one of Shoal's own agents, which this describes", advice, name=name)
    if name and name not in known:
        raise unknown("agent", name, known)
    if not name:
        table = plain_table(show_header=False)
        for known_name, agent in known.items():
            table.add_row(styled((known_name, "bold")), _title(agent))
        screen.print(table)
        return
    agent = known[name]
    screen.print(_title(agent), "", *_hyperparameters(agent.hyper), _config(agent.config()), sep="\n")


def describe_trainer(name: str, env: str, python: str | None, screen: Screen) -> None:
    """Describe an external trainer, by what it says of itself. Raises BadInput where there is none, or not for this env."""
    with screen.status("starting the trainer"):
        trainers = Trainers(Recipe(name, env, path=own_folders()), python, TrainerProcesses())
        trainers.close()
    for hyper, wanted in trainers.space.items():
        validate(hyper, wanted)
    tuned, fixed = plain_table("hyperparameter", "default", "tuned by default"), plain_table("config", "default")
    for hyper, default in trainers.hyper._asdict().items():
        tuned.add_row(hyper, f"{default:g}", _shown(trainers.space.get(hyper)))
    for option, default in trainers.fixed.items():
        fixed.add_row(option, default)
    parts = [f"{name}, an external trainer", "", "can change during a run; set by `hyper`, tuned by `space`:", tuned]
    parts += ["", "fixed in a run; set by `config`:", fixed] if trainers.fixed else []
    screen.print(*parts, sep="\n")


def _title(agent: Declaration) -> str:
    return (importlib.import_module(agent.factory.partition(":")[0]).__doc__ or "").splitlines()[0]


def _hyperparameters(defaults: Any) -> list[str | Table]:
    known = declared(type(defaults))
    if not known:
        return []
    table = plain_table("hyperparameter", "default", "tuned by default", "meaning")
    for name, number in known.items():
        table.add_row(name, f"{getattr(defaults, name):g}", _shown(number.tuned), number.meaning)
    return ["set by `hyper`, tuned by `space`:", table, ""]


def _config(defaults: Any) -> Table:
    table, meaning = plain_table("config", "default", "meaning"), descriptions(type(defaults))
    for field in fields(defaults):
        default = getattr(defaults, field.name)
        shown = list(default) if isinstance(default, tuple) else default
        table.add_row(field.name, "" if default is None else str(shown), meaning[field.name])
    return table


def _shown(tuned: Range | None) -> str:
    if tuned is None:
        return ""
    if tuned.choices:
        return " or ".join(f"{choice:g}" for choice in tuned.choices)
    kinds = [tuned.scale] * (tuned.scale != "linear") + ["integer"] * tuned.integer
    return ", ".join([f"{tuned.low:g} to {tuned.high:g}", *kinds])
