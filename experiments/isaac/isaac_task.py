"""Registers the tasks of Isaac Lab with rl_games as `rlgpu`. An experiment names this module in `config.imports`.

Options, from `env_options`: task, its id; clip_obs, clip_actions, obs_groups, concate_obs_groups, as in a task's file under
`params.env`; device; and any setting of the task by its dotted path, such as `scene.num_envs`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from isaaclab.app import AppLauncher

app = AppLauncher(headless=True).app  # what follows can be imported once the simulator runs

import gymnasium  # noqa: E402
import isaaclab_tasks  # noqa: E402, F401
from isaaclab_rl.rl_games import RlGamesVecEnvWrapper  # noqa: E402
from isaaclab_tasks.utils import parse_env_cfg  # noqa: E402
from rl_games.common import env_configurations, vecenv  # noqa: E402


def make(
    task: str,
    clip_obs: float = math.inf,
    clip_actions: float = math.inf,
    obs_groups: dict[str, list[str]] | None = None,
    concate_obs_groups: bool = True,
    device: str = "cuda:0",
    **settings: Any,
) -> RlGamesVecEnvWrapper:
    """The environments of a task. Raises AttributeError for a setting that it has not."""
    cfg = parse_env_cfg(task, device=device)
    for path, value in settings.items():
        *above, last = path.split(".")
        place = functools.reduce(getattr, above, cfg)
        getattr(place, last)  # a name that is wrong would be set without a word
        setattr(place, last, value)
    groups = (obs_groups, concate_obs_groups)
    if groups == (None, True):
        groups = ()  # older versions of Isaac Lab take none
    return RlGamesVecEnvWrapper(gymnasium.make(task, cfg=cfg), device, clip_obs, clip_actions, *groups)


vecenv.register("ISAAC", lambda name, num_actors, **options: make(**options))
env_configurations.register("rlgpu", {"vecenv_type": "ISAAC", "env_creator": make})
