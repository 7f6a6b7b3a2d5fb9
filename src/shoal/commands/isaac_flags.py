"""The flags of Isaac Lab's own training command, which `shoal import isaac` takes as they are."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated

from shoal.commands.flags import Whole, flag

SWITCH = None  # in place of what a flag takes; N is a whole number
PLACED = {  # and where
    "num_envs": ("N", "env.scene.num_envs"),
    "headless": (SWITCH, "as always"),
    "track": (SWITCH, "wandb"),
    "wandb_project_name": ("NAME", "wandb.project"),
}
LEFT_OUT = {  # and why
    "rl_library": ("NAME", "the file is one of rl_games"),
    "agent": ("NAME", "the file says it"),
    "seed": ("N", "all that is random derives from the experiment's own seed"),
    "max_iterations": ("N", "generations say how long a run is"),
    "checkpoint": ("PATH", "start names a run that members begin with"),
    "sigma": ("X", "members begin as the task's file says"),
    "device": ("NAME", "processes.gpus says which GPUs there are"),
    "distributed": (SWITCH, "processes.gpus says which GPUs there are"),
    "enable_cameras": (SWITCH, "isaac_task.py starts the simulator, where that can be changed"),
    "livestream": ("N", "isaac_task.py starts the simulator, without a screen"),
    "video": (SWITCH, "nothing is filmed in training"),
    "video_length": ("STEPS", "nothing is filmed in training"),
    "video_interval": ("STEPS", "nothing is filmed in training"),
    "wandb_name": ("NAME", "runs have the name of their directory"),
    "wandb_entity": ("NAME", "set the variable WANDB_ENTITY"),
}
_HELP = PLACED | {name: (takes, f"left out: {why}") for name, (takes, why) in LEFT_OUT.items()}
_KINDS = {SWITCH: bool, "N": Whole}
IsaacFlags = make_dataclass(
    "IsaacFlags",
    [
        (name, Annotated[_KINDS.get(takes, str | None), flag(takes, text)], False if takes is SWITCH else None)
        for name, (takes, text) in _HELP.items()
    ],
    namespace={"__doc__": "flags of Isaac Lab's own command"},
)
NONE = IsaacFlags()
