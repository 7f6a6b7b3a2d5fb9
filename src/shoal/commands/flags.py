"""The flags of the `shoal` command: what stands for a field of an experiment, and what several subcommands take."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from shoal.core.errors import BadInput
from shoal.core.suggestions import shortened

if TYPE_CHECKING:
    from shoal.experiment.experiment import Experiment

OF_METHOD = {"select": "method.select", "explore": "method.explore"}  # flags for options of a method
Run = Annotated[Path, Positional, arg(metavar="RUN", help="a run directory", help_behavior_hint="")]
Quiet = Annotated[
    bool, FlagCreatePairsOff, arg(help="no progress, only the outcome and warnings", help_behavior_hint="")
]
Trust = Annotated[
    bool,
    FlagCreatePairsOff,
    arg(help="import code that the run names, from the current directory too: it runs", help_behavior_hint=""),
]
WHOLE = PrimitiveConstructorSpec(  # tyro's own for `int | None` offers "None" in the help
    nargs=1,
    metavar="N",
    instance_from_str=lambda given: _whole(given[0]),
    is_instance=lambda value: value is None or isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)


def _whole(text: str) -> int:
    """8192, 8_192 or 1e6."""
    with suppress(ValueError):
        if float(text).is_integer():
            return int(float(text))
    raise ValueError(shortened(f"{text!r} is not a whole number"))


def _flag(metavar: str, field: str) -> Any:
    """A flag that stands for a field of the experiment; without it the file decides, and then the field's default."""
    defaults, described = _fields()
    default = defaults[field]
    hint = f"(default: {default})" if default is not None else ""
    return arg(metavar=metavar, help=described[field], help_behavior_hint=hint)


@cache
def _fields() -> tuple[dict[str, Any], dict[str, str]]:
    """Defaults and descriptions of the fields that have flags. Only the commands that have them import them."""
    from shoal.core.schema import descriptions
    from shoal.experiment.experiment import Experiment
    from shoal.methods.evolving import Pbt

    return vars(Pbt()) | vars(Experiment()), descriptions(Pbt) | descriptions(Experiment)


def changeable() -> Any:
    """The help of what may be set when a run is resumed."""
    from shoal.experiment.experiment import CHANGEABLE

    return arg(metavar="FIELD=VALUE", help=f"what may change in a run: {', '.join(CHANGEABLE)}", help_behavior_hint="")


@dataclass(frozen=True)
class Flags:
    """fields of an experiment file"""

    env: Annotated[str | None, _flag("ID", "env")] = None
    method: Annotated[str | None, _flag("NAME", "method")] = None
    agent: Annotated[str | None, _flag("NAME", "agent")] = None
    population: Annotated[int | None, WHOLE, _flag("N", "population")] = None
    generations: Annotated[int | None, WHOLE, _flag("N", "generations")] = None
    interval: Annotated[int | None, WHOLE, _flag("STEPS", "interval")] = None
    select: Annotated[str | None, _flag("NAME", "select")] = None
    explore: Annotated[str | None, _flag("NAME", "explore")] = None
    seed: Annotated[int | None, WHOLE, _flag("N", "seed")] = None
    run_dir: Annotated[str | None, _flag("PATH", "run_dir")] = None
    start: Annotated[str | None, _flag("RUN", "start")] = None
    shards: Annotated[int | None, WHOLE, _flag("N", "shards")] = None
    exchange: Annotated[str | None, _flag("NAME", "exchange")] = None
    workspace: Annotated[str | None, _flag("DIR", "workspace")] = None
    worker: Annotated[str | None, _flag("NAME", "worker")] = None
    python: Annotated[str | None, _flag("PATH", "python")] = None

    def given(self) -> dict[str, Any]:
        """Those that are there, by the field that each stands for."""
        return {OF_METHOD.get(name, name): value for name, value in vars(self).items() if value is not None}


File = Annotated[
    Path | None,
    Positional,
    arg(metavar="[EXPERIMENT]", help="an experiment file; flags win over it", help_behavior_hint=""),
]
Stated = Annotated[Flags, OmitArgPrefixes]
NOTHING = Flags()
Set = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        metavar="FIELD=VALUE",
        help="any field of an experiment file by its path, several times if need be: "
        "--set hyper.epochs=2 --set method.select.bottom=0.4",
        help_behavior_hint="",
    ),
]


def stated(file: Path | None, flags: Flags, set: Sequence[str]) -> tuple[Experiment, list[str]]:
    """What a file and flags say together, and the fields that are from flags."""
    from shoal.experiment.experiment import Experiment
    from shoal.experiment.files import assign, read

    look_here()
    experiment = read(file) if file else Experiment()
    given = flags.given() | assignments(set)
    for path, value in given.items():
        experiment = assign(experiment, path, value)
    return experiment, list(given)


def assignments(set: Sequence[str]) -> dict[str, Any]:
    """The values of FIELD=VALUE, by field."""
    from shoal.core.yaml_text import read_yaml

    given = {}
    for assignment in set:
        path, equals, value = assignment.partition("=")
        if not equals:
            raise BadInput(f"--set {assignment}: write FIELD=VALUE, such as --set hyper.discount=0.95")
        try:
            given[path] = read_yaml(value)
        except BadInput as error:
            raise BadInput(f"--set {assignment}: {error}") from error
    return given


def look_here(wanted: bool = True) -> None:
    """Find module:object of the user's own in the current directory, as `python -m` would."""
    if wanted:
        sys.path.append(os.getcwd())
