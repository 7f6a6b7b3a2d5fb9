"""The flags of the `shoal` command: what stands for a field of an experiment, and what several subcommands take."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, make_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from shoal.core.errors import BadInput, error_context, shortened

if TYPE_CHECKING:
    from shoal.experiment.experiment import Experiment

# Flags for options of a field, each with its path.
INSIDE = {"select": "method.select", "explore": "method.explore"}
INSIDE |= {"workspace": "exchange.workspace", "worker": "exchange.worker"}
WHOLE = PrimitiveConstructorSpec(  # tyro's own for `int | None` offers "None" in the help
    nargs=1,
    metavar="N",
    instance_from_str=lambda given: _whole(given[0]),
    is_instance=lambda value: value is None or isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)


def flag(metavar: str | None, help: str, *aliases: str) -> Any:
    """What the help says of a flag. Its default is told where the help does so, or where it is more than nothing."""
    text, told, default = help.partition(" (default: ")

    def hint(value: str) -> str:
        return "" if value in ("", "''", "None", "False") else f"(default: {value})"

    return arg(metavar=metavar, help=text, help_behavior_hint=told[1:] + default if told else hint, aliases=aliases)


Whole = Annotated[int | None, WHOLE]
Settings = UseAppendAction[tuple[str, ...]]
Run = Annotated[Path, Positional, flag("RUN", "a run directory")]
File = Annotated[
    Path | None,
    Positional,
    flag("[EXPERIMENT]", "an experiment file, or the name of one that comes with Shoal; flags win over it"),
]
Quiet = Annotated[bool, flag(None, "no progress, only the outcome and warnings")]
Trust = Annotated[bool, flag(None, "import code that the run names, from the current directory too: it runs")]
Set = Annotated[
    Settings,
    flag(
        "FIELD=VALUE",
        "any field of an experiment file by its path, several times if need be: "
        "--set hyper.epochs=2 --set method.select.bottom=0.4",
    ),
]


def _whole(text: str) -> int:
    """8192, 8_192 or 1e6."""
    with suppress(ValueError):
        if float(text).is_integer():
            return int(float(text))
    raise ValueError(shortened(f"{text!r} is not a whole number"))


def _of(field: str, metavar: str) -> Any:
    """A flag that stands for a field of the experiment; without it the file decides, and then the field's default."""
    defaults, described = _fields()
    default = f" (default: {defaults[field]})" if defaults[field] is not None else ""
    return flag(metavar, f"{described[field]}{default}")


@cache
def _fields() -> tuple[dict[str, Any], dict[str, str]]:
    """Defaults and descriptions of the fields that have flags. Only the commands that have them import them."""
    from shoal.core.schema import descriptions
    from shoal.experiment.experiment import ExchangeSettings, Experiment
    from shoal.methods.pbt import Pbt

    usual = Experiment()
    defaults = vars(Pbt()) | vars(usual.exchange) | vars(usual)
    defaults |= {"method": usual.method_name, "exchange": usual.exchange.name}
    return defaults, descriptions(Pbt) | descriptions(ExchangeSettings) | descriptions(Experiment)


def changeable() -> Any:
    """The help of what may be set when a run is resumed."""
    from shoal.experiment.experiment import CHANGEABLE

    return flag("FIELD=VALUE", f"what may change in a run: {', '.join(CHANGEABLE)}")


@dataclass(frozen=True)
class Flags:
    """fields of an experiment file"""

    env: Annotated[str | None, _of("env", "ID")] = None
    method: Annotated[str | None, _of("method", "NAME")] = None
    agent: Annotated[str | None, _of("agent", "NAME")] = None
    population: Annotated[Whole, _of("population", "N")] = None
    generations: Annotated[Whole, _of("generations", "N")] = None
    interval: Annotated[Whole, _of("interval", "STEPS")] = None
    budget: Annotated[Whole, _of("budget", "STEPS")] = None
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
        """Those that are there, by the field that each stands for."""
        return {INSIDE.get(name, name): value for name, value in vars(self).items() if value is not None}


NOTHING = Flags()


def stated(file: Path | None, flags: Flags, set: Sequence[str]) -> tuple[Experiment, list[str]]:
    """What a file and flags say together, and the fields that are from flags."""
    from shoal.commands.shipped import found
    from shoal.experiment.experiment import Experiment
    from shoal.experiment.files import assign, read

    look_here()
    experiment = read(found(file)) if file else Experiment()
    given = flags.given() | assignments(set)
    return assign(experiment, given), list(given)


def assignments(set: Sequence[str]) -> dict[str, Any]:
    """The values of FIELD=VALUE, by field."""
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
    """Find module:object of the user's own in the current directory, as `python -m` would."""
    if wanted:
        sys.path.append(os.getcwd())


# Isaac Lab's own, which `shoal import isaac` takes as they are.
SWITCH = None  # in place of what a flag takes; N is a whole number
PLACED = {  # and where
    "num_envs": ("N", "env.scene.num_envs"),
    "headless": (SWITCH, "as always"),
    "track": (SWITCH, "wandb"),
    "wandb_project_name": ("NAME", "wandb.project"),
    "wandb_name": ("NAME", "wandb.name"),
    "wandb_entity": ("NAME", "wandb.entity"),
}
STARTED = "isaac_task.py starts the simulator, where that can be changed"
FILMED = "nothing is filmed in training"
LEFT_OUT = {  # and why
    "rl_library": ("NAME", "the file is one of rl_games"),
    "agent": ("NAME", "the file says it"),
    "seed": ("N", "all that is random derives from the experiment's own seed"),
    "max_iterations": ("N", "generations say how long a run is"),
    "checkpoint": ("PATH", "start names a run that members begin with"),
    "sigma": ("X", "members begin as the task's file says"),
    "device": ("NAME", "processes.gpus says which GPUs there are"),
    "distributed": (SWITCH, "processes.gpus says which GPUs there are"),
    **dict.fromkeys(("enable_cameras", "xr", "deterministic", "verbose", "info"), (SWITCH, STARTED)),
    **dict.fromkeys(("rendering_mode", "visualizer"), ("NAME", STARTED)),
    **dict.fromkeys(("kit_args", "experience"), ("TEXT", STARTED)),
    "max_visible_envs": ("N", STARTED),
    "livestream": ("N", "isaac_task.py starts the simulator, without a screen"),
    "video": (SWITCH, FILMED),
    **dict.fromkeys(("video_length", "video_interval"), ("STEPS", FILMED)),
    "anim_recording_enabled": (SWITCH, FILMED),
    **dict.fromkeys(("anim_recording_start_time", "anim_recording_stop_time"), ("X", FILMED)),
    **dict.fromkeys(
        ("capture_env_sensors", "capture_env_sensors_length", "capture_env_sensors_interval"), ("N", FILMED)
    ),
    "capture_env_sensors_format": ("NAME", FILMED),
    "export_io_descriptors": (SWITCH, "shoal export writes the champion"),
    "ray_proc_id": ("N", "Ray starts no process here"),
}
SHORT = {"visualizer": ("--viz",), "ray_proc_id": ("-rid",)}
_HELP = PLACED | {name: (takes, f"left out: {why}") for name, (takes, why) in LEFT_OUT.items()}
_KINDS = {SWITCH: bool, "N": Whole}
IsaacFlags = make_dataclass(
    "IsaacFlags",
    [
        (
            name,
            Annotated[_KINDS.get(takes, str | None), flag(takes, text, *SHORT.get(name, ()))],
            False if takes is SWITCH else None,
        )
        for name, (takes, text) in _HELP.items()
    ],
    namespace={"__doc__": "flags of Isaac Lab's own command"},
)
NO_ISAAC_FLAGS = IsaacFlags()
