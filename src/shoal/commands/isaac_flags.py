"""Flags and overrides of Isaac Lab's own training command, which `shoal import isaac` takes as they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Annotated, Any

from shoal.commands.flags import Whole, flag

OVERRIDE = re.compile(r"\+*(agent|env)\.[^=]*=|~(agent|env)\.")
# Fields of an experiment, or an override.
PLACED = {
    "num_envs": "env.scene.num_envs",
    "headless": "accepted; Shoal always runs headless",
    "track": "wandb",
    "wandb_project_name": "wandb.project",
    "wandb_name": "wandb.name",
    "wandb_entity": "wandb.entity",
}
# Flags without a place, and the reason.
GPUS, SIMULATOR = "processes.gpus names the GPUs", "isaac_task.py starts the simulator: set it there"
LEFT_OUT = {
    "rl_library": "the file is one of rl_games",
    "agent": "the file has it",
    "seed": "the seed of the experiment seeds everything",
    "max_iterations": "generations set the length of a run",
    "checkpoint": "use init_from",
    "sigma": "the task's file sets the initial sigma",
    "device": GPUS,
    "distributed": GPUS,
    "export_io_descriptors": "`shoal export` writes the champion",
    "ray_proc_id": "Shoal does not use Ray",
    **dict.fromkeys(("enable_cameras", "xr", "deterministic", "verbose", "info", "rendering_mode"), SIMULATOR),
    **dict.fromkeys(("visualizer", "kit_args", "experience", "max_visible_envs", "livestream"), SIMULATOR),
    **dict.fromkeys(("video", "video_length", "video_interval", "anim_recording_enabled"), SIMULATOR),
    **dict.fromkeys(("anim_recording_start_time", "anim_recording_stop_time", "capture_env_sensors"), SIMULATOR),
    **dict.fromkeys((f"capture_env_sensors_{part}" for part in ("length", "interval", "format")), SIMULATOR),
}
SWITCHES = {"headless", "track", "distributed", "export_io_descriptors", "enable_cameras", "xr", "deterministic"}
SWITCHES |= {"verbose", "info", "video", "anim_recording_enabled"}
# What may stand behind --track, there and here.
YES, NO = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")
SHORT = {"visualizer": ("--viz",), "ray_proc_id": ("-rid",)}
# The help says once why those of the simulator are left out.
HELP = PLACED | {name: "the simulator's" if why == SIMULATOR else f"left out: {why}" for name, why in LEFT_OUT.items()}
ABOUT = f"flags of Isaac Lab's command; the simulator's are left out: {SIMULATOR}"


def _field(name: str) -> tuple[str, Any, bool | None]:
    if name in SWITCHES:
        return name, Annotated[bool, flag(None, HELP[name])], False
    kind, metavar = (Whole, "N") if name == "num_envs" else (str | None, "VALUE")
    return name, Annotated[kind, flag(metavar, HELP[name], *SHORT.get(name, ()))], None


IsaacFlags = make_dataclass("IsaacFlags", map(_field, HELP), namespace={"__doc__": ABOUT})
NO_ISAAC_FLAGS = IsaacFlags()


def isaac_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments in the form of tyro: `--kit_args=VALUE`, `--track` without a value, and overrides behind all others."""
    given: list[str] = []
    for argument in arguments:
        word = argument.removeprefix("--track=")
        if (word != argument or given[-1:] == ["--track"]) and word.lower() in YES + NO:
            given = [*(x for x in given if x != "--track"), *["--track"] * (word.lower() in YES)]
        elif given[-1:] in (["--kit_args"], ["--kit-args"]):
            given[-1] += f"={argument}"
        else:
            given.append(argument)
    return sorted(given, key=lambda argument: OVERRIDE.match(argument) is not None)
