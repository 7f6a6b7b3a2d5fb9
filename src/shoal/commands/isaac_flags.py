"""The flags of Isaac Lab's own training command, which `shoal import isaac` takes as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import FlagCreatePairsOff, arg

Switch = Annotated[bool, FlagCreatePairsOff]
LEFT_OUT = {  # and why; what is in neither list has its place in the experiment
    "rl_library": "the file is one of rl_games",
    "agent": "the file says it",
    "seed": "all that is random derives from the experiment's own seed",
    "max_iterations": "generations say how long a run is",
    "checkpoint": "start names a run that members begin with",
    "sigma": "members begin as the task's file says",
    "device": "processes.gpus says which GPUs there are",
    "distributed": "processes.gpus says which GPUs there are",
    "enable_cameras": "isaac_task.py starts the simulator, where that can be changed",
    "livestream": "isaac_task.py starts the simulator, without a screen",
    "video": "nothing is filmed in training",
    "video_length": "nothing is filmed in training",
    "video_interval": "nothing is filmed in training",
    "wandb_name": "runs have the name of their directory",
    "wandb_entity": "set the variable WANDB_ENTITY",
}


def _known(name: str, metavar: str | None = None) -> Any:
    return arg(metavar=metavar, help=f"left out: {LEFT_OUT[name]}", help_behavior_hint="")


@dataclass(frozen=True)
class IsaacFlags:
    """flags of Isaac Lab's own command"""

    num_envs: Annotated[int | None, arg(metavar="N", help="env.scene.num_envs", help_behavior_hint="")] = None
    headless: Annotated[Switch, arg(help="as always", help_behavior_hint="")] = False
    track: Annotated[Switch, arg(help="wandb", help_behavior_hint="")] = False
    wandb_project_name: Annotated[str | None, arg(metavar="NAME", help="wandb.project", help_behavior_hint="")] = None
    wandb_name: Annotated[str | None, _known("wandb_name", "NAME")] = None
    wandb_entity: Annotated[str | None, _known("wandb_entity", "NAME")] = None
    rl_library: Annotated[str | None, _known("rl_library", "NAME")] = None
    agent: Annotated[str | None, _known("agent", "NAME")] = None
    seed: Annotated[str | None, _known("seed", "N")] = None
    max_iterations: Annotated[str | None, _known("max_iterations", "N")] = None
    checkpoint: Annotated[str | None, _known("checkpoint", "PATH")] = None
    sigma: Annotated[str | None, _known("sigma", "X")] = None
    device: Annotated[str | None, _known("device", "NAME")] = None
    distributed: Annotated[Switch, _known("distributed")] = False
    enable_cameras: Annotated[Switch, _known("enable_cameras")] = False
    livestream: Annotated[str | None, _known("livestream", "N")] = None
    video: Annotated[Switch, _known("video")] = False
    video_length: Annotated[str | None, _known("video_length", "STEPS")] = None
    video_interval: Annotated[str | None, _known("video_interval", "STEPS")] = None

    def overrides(self) -> list[str]:
        """What they say in the words of Hydra."""
        return [] if self.num_envs is None else [f"env.scene.num_envs={self.num_envs}"]

    def fields(self) -> dict[str, Any]:
        """What they say in fields of the experiment."""
        if not self.track:
            return {}
        return {"wandb": {} if self.wandb_project_name is None else {"project": self.wandb_project_name}}

    def notes(self) -> list[str]:
        """What is left out, in words."""
        given = [name for name in LEFT_OUT if getattr(self, name) not in (None, False)]
        untracked = () if self.track else ("wandb_name", "wandb_entity")  # which mean nothing then
        return [f"--{name} is left out: {LEFT_OUT[name]}" for name in given if name not in untracked]


NONE = IsaacFlags()


def overrides_last(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command with all overrides, which may stand anywhere in it, behind the others."""
    places = ("-o", "--out")  # which are followed by a path

    def is_override(i: int) -> bool:
        given = arguments[i]
        return "=" in given and not given.startswith("-") and (i == 0 or arguments[i - 1] not in places)

    order = sorted(range(len(arguments)), key=is_override)  # which keeps the order of each kind
    return [arguments[i] for i in order]
