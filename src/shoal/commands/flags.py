"""Flags of the `shoal` command: fields of an experiment, and flags that several subcommands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from shoal.core.errors import BadInput, error_context, shortened

if TYPE_CHECKING:
    from shoal.experiment.experiment import Experiment

# Fields of flags that are not at the top of an experiment.
INSIDE = {"select": "method.select", "explore": "method.explore"}
INSIDE |= {"workspace": "exchange.workspace", "worker": "exchange.worker"}
INSIDE |= {"stop_fitness": "stop.fitness", "stop_patience": "stop.patience"}
# Defaults that depend on other fields.
METHOD = (
    "successive_halving where Shoal's own agents train in one process, else pbt with half at default hyperparameters"
)
AGENT = "that of the method: ppo, policy for es, td3 for cem_rl and dvd"
WHOLE = PrimitiveConstructorSpec(  # tyro shows "None" in the help of `int | None`
    nargs=1,
    metavar="N",
    instance_from_str=lambda given: _whole(given[0]),
    is_instance=lambda value: value is None or isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)
WHOLES = PrimitiveConstructorSpec(
    nargs="*",
    metavar="N ...",
    instance_from_str=lambda given: tuple(map(_whole, given)),
    is_instance=lambda value: value is None or isinstance(value, tuple),
    str_from_instance=lambda value: [*map(str, value or ())],
)
REAL = PrimitiveConstructorSpec(
    nargs=1,
    metavar="N",
    instance_from_str=lambda given: _real(given[0]),
    is_instance=lambda value: value is None or isinstance(value, float | int),
    str_from_instance=lambda value: [str(value)],
)


def flag(metavar: str | None, help: str, *aliases: str) -> Any:
    """The help of a flag, with its default if that is in the text or is not empty."""
    text, given, default = help.partition(" (default: ")

    def hint(value: str) -> str:
        return "" if value in ("", "''", "None", "False") else f"(default: {value})"

    return arg(metavar=metavar, help=text, help_behavior_hint=given[1:] + default if given else hint, aliases=aliases)


Whole = Annotated[int | None, WHOLE]
Count = Annotated[int, WHOLE]  # of a flag that has a default
Real = Annotated[float | None, REAL]
Population = Annotated[  # as the field of an experiment
    int | None, replace(WHOLE, instance_from_str=lambda given: "auto" if given == ["auto"] else _whole(given[0]))
]
Settings = UseAppendAction[tuple[str, ...]]
Run = Annotated[Path, Positional, flag("RUN", "a run directory")]
File = Annotated[
    Path | None,
    Positional,
    flag("[EXPERIMENT]", "an experiment file, or the name of one that comes with Shoal; flags override it"),
]
Seeds = Annotated[
    tuple[int, ...] | None, WHOLES, flag("N ...", "train one run per seed, and compare the runs in one report")
]
Quiet = Annotated[bool, flag(None, "print the result and warnings only")]
Trust = Annotated[bool, flag(None, "import and run the code that the run names, also from the current directory")]
Member = Annotated[Whole, flag("UID", "the member with this uid in place of the champion, from the newest checkpoint")]
Generation = Annotated[  # counts from 0 in Python and in files
    int | None,
    replace(WHOLE, instance_from_str=lambda given: _counted(given[0])),
    flag(
        "N",
        "the fittest member after generation N, counted from 1; with --member, that member. Only kept checkpoints are"
        " available (checkpoint.keep)",
    ),
]
Stochastic = Annotated[bool, flag(None, "sample actions from the policy, overriding fitness.deterministic of the run")]
Set = Annotated[
    Settings,
    flag(
        "FIELD=VALUE",
        "any field of an experiment file by its path, repeatable: --set hyper.epochs=2 --set method.select.bottom=0.4",
    ),
]


def _whole(text: str) -> int:
    """Parse an integer: 8192, 8_192 or 1e6."""
    with suppress(ValueError):
        if float(text).is_integer():
            return int(float(text))
    raise ValueError(shortened(f"{text!r} is not an integer"))


def _real(text: str) -> float:
    with suppress(ValueError):
        return float(text)
    raise ValueError(shortened(f"{text!r} is not a number"))


def _counted(text: str) -> int:
    """Return the index of a generation that is counted from 1."""
    if (number := _whole(text)) < 1:
        raise ValueError(f"{text}: generations count from 1")
    return number - 1


def _of(field: str, metavar: str, default: str | None = None) -> Any:
    """The help of a flag for a field of the experiment; `default` says what decides where the field has none."""
    defaults, described = _fields()
    default = default or defaults.get(field)
    return flag(metavar, described[field] + ("" if default is None else f" (default: {default})"))


@cache
def _fields() -> tuple[dict[str, Any], dict[str, str]]:
    """Defaults and descriptions of the fields that have flags; imported by the commands that have them only."""
    from shoal.core.schema import descriptions
    from shoal.experiment.experiment import ExchangeSettings, Experiment, Stop
    from shoal.methods.pbt import Pbt

    e = Experiment()
    defaults = vars(Pbt()) | vars(e.exchange) | vars(e)
    defaults |= {"exchange": e.exchange.name}
    stop = {f"stop_{name}": text for name, text in descriptions(Stop).items()}
    return defaults, descriptions(Pbt) | descriptions(ExchangeSettings) | descriptions(Experiment) | stop


def changeable() -> Any:
    """The help of `shoal resume --set`."""
    from shoal.experiment.experiment import CHANGEABLE

    return flag("FIELD=VALUE", f"fields that may change in a run: {', '.join(CHANGEABLE)}")


@dataclass(frozen=True)
class Flags:
    """fields of an experiment file"""

    env: Annotated[str | None, _of("env", "ID")] = None
    method: Annotated[str | None, _of("method", "NAME", METHOD)] = None
    agent: Annotated[str | None, _of("agent", "NAME", AGENT)] = None
    population: Annotated[Population, _of("population", "N")] = None
    generations: Annotated[Whole, _of("generations", "N")] = None
    interval: Annotated[Whole, _of("interval", "STEPS")] = None
    budget: Annotated[Whole, _of("budget", "STEPS")] = None
    time_limit: Annotated[str | None, _of("time_limit", "TIME")] = None
    stop_fitness: Annotated[Real, _of("stop_fitness", "N")] = None
    stop_patience: Annotated[Whole, _of("stop_patience", "N")] = None
    select: Annotated[str | None, _of("select", "NAME")] = None
    explore: Annotated[str | None, _of("explore", "NAME")] = None
    seed: Annotated[Whole, _of("seed", "N")] = None
    run_dir: Annotated[str | None, _of("run_dir", "PATH")] = None
    init_from: Annotated[str | None, _of("init_from", "RUN")] = None
    shards: Annotated[Whole, _of("shards", "N")] = None
    exchange: Annotated[str | None, _of("exchange", "NAME")] = None
    workspace: Annotated[str | None, _of("workspace", "DIR")] = None
    worker: Annotated[str | None, _of("worker", "NAME")] = None
    python: Annotated[str | None, _of("python", "PATH")] = None

    def given(self) -> dict[str, Any]:
        """The flags that are given, by the path of their field."""
        return {INSIDE.get(name, name): value for name, value in vars(self).items() if value is not None}


Fields = Annotated[Flags, arg(name="experiment")]  # in the heading of the help: no flag has it in front
NOTHING = Flags()


def stated(file: Path | None, flags: Flags, set: Sequence[str]) -> tuple[Experiment, list[str]]:
    """The experiment of a file and flags, and the fields that flags set. Names are checked before JAX is imported."""
    from shoal.commands.bundled_experiments import find_experiment
    from shoal.environments import suites
    from shoal.experiment.experiment import Experiment
    from shoal.experiment.files import assign, attribute_errors, read
    from shoal.experiment.validation import check

    look_here()
    experiment = read(find_experiment(file)) if file else Experiment()
    given = flags.given() | assignments(set)
    experiment = assign(experiment, given)
    with attribute_errors(file, given, always=False):
        check(experiment)
        if isinstance(experiment.env, str) and not experiment.external:
            suites.resolve(experiment.env)
    return experiment, list(given)


def words(file: Path | None, flags: Flags, set: Sequence[str]) -> list[str]:
    """The arguments that say the same again."""
    given = [(f"--{name.replace('_', '-')}", str(value)) for name, value in vars(flags).items() if value is not None]
    return [*([str(file)] if file else []), *chain(*given), *chain(*(("--set", part) for part in set))]


def assignments(set: Sequence[str]) -> dict[str, Any]:
    """Parse FIELD=VALUE to values by field."""
    from shoal.core.yaml_text import read_yaml

    given = {}
    for assignment in set:
        path, equals, value = assignment.partition("=")
        if not equals:
            raise BadInput(f"--set {assignment}: write FIELD=VALUE, such as --set hyper.discount=0.95")
        with error_context(f"--set {assignment}"):
            given[path] = read_yaml(value)
    return given


def look_here(wanted: bool = True) -> None:
    """Import the user's module:object from the current directory, as `python -m` does."""
    if wanted:
        sys.path.append(os.getcwd())
