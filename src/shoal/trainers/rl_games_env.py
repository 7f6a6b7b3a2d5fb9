"""The environments of rl_games in a trainer's process, and what their episodes are worth. Part of `rl_games.py`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from rl_games.common import env_configurations, vecenv
from rl_games.common.algo_observer import AlgoObserver
from rl_games.common.gym_compat import make
from rl_games.common.ivecenv import IVecEnv


class Workers(IVecEnv):
    """Environments that are stepped one after another in this process.

    It takes the place of rl_games' kind RAY, which starts processes of its own and cannot seed gymnasium's environments.
    """

    def __init__(self, name: str, num_actors: int, **options: Any):
        """Raise ValueError for environments whose steps are not one array each."""
        own = {key: x for key, x in options.items() if key not in ("seed", "ray_config")}
        self._workers = [vecenv.RayWorker(name, own) for _ in range(num_actors)]
        self.seeds: list[int | None] = [None] * num_actors  # of the environments, for the next reset
        parameters = inspect.signature(self._workers[0].env.reset).parameters.values()
        # Wrappers of gymnasium hand it on.
        self._takes_seed = any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters)
        info = self.get_env_info()
        if info["agents"] != 1 or info["use_global_observations"] or info["observation_space"].shape is None:
            raise ValueError(f"{name} has several agents or observations: register a vecenv of your own for it")

    def reset(self) -> np.ndarray:
        """Observations [N, ...]."""
        seeds, self.seeds = self.seeds, [None] * len(self._workers)
        if not self._takes_seed:
            return np.stack([worker.reset() for worker in self._workers])
        pairs = zip(self._workers, seeds, strict=True)
        return np.stack([worker._obs_to_fp32(worker.env.reset(seed=seed)) for worker, seed in pairs])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Observations [N, ...], rewards float32 [N], dones bool [N], infos; where an episode ends, the next one begins."""
        steps = [worker.step(action) for worker, action in zip(self._workers, actions, strict=True)]
        obs, rewards, dones, infos = zip(*steps, strict=True)
        time_outs = np.array([bool(info.get("time_outs", False)) for info in infos], np.float32)
        each = {"time_outs": time_outs, "infos": list(infos)}
        return np.stack(obs), np.array(rewards, np.float32), np.array(dones, bool), each

    def get_env_info(self) -> dict[str, Any]:
        """Spaces, and how many agents there are."""
        return self._workers[0].get_env_info()

    def close(self) -> None:
        """Close them."""
        for worker in self._workers:
            worker.close()


vecenv.register("RAY", Workers)


class SharedEnvironments:
    """The environments of a recipe, which all members of a process use in turns: a simulator can often be started once
    only, and takes most of the memory."""

    _open: dict[str, SharedEnvironments] = {}  # noqa: RUF012

    def __init__(self, name: str, num_actors: int, options: Mapping[str, Any]):
        """Make them, and raise what that raises. num_actors: their number, where they do not know it."""
        self.users = 0
        self.envs = vecenv.create_vec_env(name, num_actors, **options)
        self.info = dict(self.envs.get_env_info())
        self.first_state = self.state()
        inside = (getattr(owner, "num_envs", 0) for owner in (self.envs, getattr(self.envs, "env", None)))
        self.count = next((int(n) for n in inside if n), num_actors)  # as Isaac Lab has it, whatever the file says
        if self.count < 1:
            raise ValueError(f"{name} does not say how many environments it has: num_actors must")

    @classmethod
    def of(cls, name: str, num_actors: int, options: Mapping[str, Any]) -> SharedEnvironments:
        """Return those of this recipe; make them where there are none, and raise what that raises."""
        key = json.dumps([name, num_actors, options], sort_keys=True)
        if key not in cls._open:
            cls._open[key] = cls(name, num_actors, options)
        return cls._open[key]

    def leave(self) -> None:
        """Close them when the last member has gone."""
        self.users -= 1
        if self.users == 0:
            SharedEnvironments._open = {key: x for key, x in SharedEnvironments._open.items() if x is not self}
            if hasattr(self.envs, "close"):
                self.envs.close()

    def state(self) -> Any:
        """State that the environments keep through training, such as the stage of a curriculum; None without one."""
        return self.envs.get_env_state() if hasattr(self.envs, "get_env_state") else None

    def set_state(self, state: Any) -> None:
        """The opposite of `state`."""
        if state is not None:
            self.envs.set_env_state(state)

    def seed(self, seeds: Sequence[int]) -> None:
        """Seed the environments: each by its own seed [N] where that is possible, else all by the first one."""
        if isinstance(self.envs, Workers):
            self.envs.seeds = [int(seed) for seed in seeds]
        elif callable(getattr(self.envs, "seed", None)):
            self.envs.seed(int(seeds[0]))


def register(name: str) -> None:
    """Make a task of gymnasium known to rl_games, if there is no environment of that name yet.

    Raises gymnasium's error where there is no such task.
    """
    if name not in env_configurations.configurations:
        gymnasium.spec(name)
        creator = lambda **options: make(name, **options)  # noqa: E731
        env_configurations.register(name, {"env_creator": creator, "vecenv_type": "RAY"})


class EpisodeObserver(AlgoObserver):
    """Read the objectives of the training episodes that end.

    objective: a dotted key into the infos, used instead of the sum of rewards
    """

    def __init__(self, objective: str | None):
        super().__init__()
        self._objective = objective
        self.values: list[float] = []

    def after_init(self, algo: Any) -> None:
        self._algo = algo

    def process_infos(self, infos: Any, done_indices: Any) -> None:
        rows = done_indices.flatten()
        if self._objective is None:
            self.values += self._algo.current_rewards[rows, 0].tolist()
        elif len(rows):
            self.values += objective(infos, self._objective, (rows // self._algo.num_agents).tolist())


def objective(infos: Any, key: str, rows: Sequence[int]) -> list[float]:
    """Look up a dotted key of infos, for the environments whose episodes have ended.

    Infos are one mapping for each environment, or one for all; there the value is an array [N], or one number for all.
    Raises ValueError where there is no such key.
    """
    each = infos.get("infos", infos) if isinstance(infos, Mapping) else infos
    if not isinstance(each, Mapping):
        return [float(_lookup(each[row], key)) for row in rows]
    value = _lookup(each, key)
    value = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, np.float64)
    return [float(value.flat[row] if value.size > 1 else value.flat[0]) for row in rows]


def _lookup(infos: Any, key: str) -> Any:
    for part in key.split("."):
        if part not in infos:
            raise ValueError(f"there is no {part} of the objective {key} in {sorted(infos)}")
        infos = infos[part]
    return infos
