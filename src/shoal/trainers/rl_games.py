"""rl_games as a trainer: `rl_games:FILE`, the YAML file of a task as rl_games reads it. Written for rl_games 1.6; runs
without Shoal.

Beside what the file says, `config` takes:

imports:   modules that are imported first, because they register environments or networks with rl_games
params:    values that win over those of the file, nested as there
objective: a dotted key into the infos of the environments, whose value when an episode ends is used instead of its return

The environment is that of the file, `params.config.env_name`: one that is registered with rl_games, or a task of
gymnasium. Its options are those of the file with `env_options` over them. All members of a process share its copies.
"""

from __future__ import annotations

import copy
import functools
import importlib
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import yaml
from rl_games.torch_runner import Runner
from shoal_trainers import adapter, live, rl_games_file, rl_games_state
from shoal_trainers.recipe import BadRecipe
from shoal_trainers.rl_games_env import EpisodeObserver, SharedEnvironments, objective, register

ENV_STATE = "env_state"  # what the environments keep from training on, JSON as bytes
LONGEST = 100_000  # steps of an episode that is measured


def trainer(name: str) -> Callable[..., RlGames]:
    """The trainer of a task's file. Raises BadRecipe where it cannot be read."""
    try:
        content = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadRecipe("agent", f"{name}: {getattr(error, 'strerror', None) or 'not a text file'}") from error
    except yaml.YAMLError as error:
        raise BadRecipe("agent", f"{name} is no YAML: {error}") from error
    if not (isinstance(content, dict) and isinstance(content.get("params"), dict)):
        raise BadRecipe("agent", f"{name} is no task of rl_games: it has no `params`")
    _check(rl_games_file.composed(content))
    return functools.partial(RlGames, content["params"])


class RlGames(adapter.Adapter):
    """An algorithm of rl_games as a trainer."""

    def __init__(
        self,
        task: Mapping[str, Any],
        env: str,
        env_options: Mapping[str, Any],
        *,
        imports: Sequence[str] = (),
        params: Mapping[str, Any] | None = None,
        objective: str | None = None,
    ):
        """task: `params` of the file. Raises BadRecipe for what cannot be had."""
        for module in [imports] if isinstance(imports, str) else imports:
            importlib.import_module(module)
        self._params = copy.deepcopy(rl_games_file.merged(task, params or {}))
        _check(rl_games_file.unfit(self._params))
        config = self._config = self._params.setdefault("config", {})
        named = config.setdefault("env_name", env.removeprefix("gym:"))
        if named != env.removeprefix("gym:"):
            raise BadRecipe("env", f"the task's file has env_name {named}; write env: {named}")
        device = config.setdefault("device", "cuda:0" if torch.cuda.is_available() else "cpu")
        if str(device).startswith("cuda") and not torch.cuda.is_available():
            text = f"the task's device is {device}, and its process sees no GPU"
            raise BadRecipe("processes.gpus", f"{text}; give it one, or set config.params.config.device to cpu")
        self._options = {**(config.get("env_config") or {}), **env_options}
        self._objective = objective
        try:
            self._describe("rl_games", live.of_rl_games(config, self._params["algo"]["name"] == "a2c_continuous"))
        except (TypeError, ValueError) as error:
            raise BadRecipe("agent", f"a hyperparameter in its file is no number: {error}") from error
        if "rnn" not in self._params.get("network", {}):
            self.act = self._act  # actions depend on the observation alone

    @property
    def spec(self) -> dict[str, Any] | None:
        """The spaces of the environment. Raises BadRecipe where there is no such environment."""
        info = self._shared().info
        return adapter.spec(info["observation_space"], info["action_space"])

    @property
    def at_once(self) -> int:
        """All environments, which are those of training. Those that can be seeded only together play the first seed."""
        return self._envs.count

    def make(self, hyper: Mapping[str, float], seed: int) -> None:
        """Build the algorithm. Raises BadRecipe where rl_games refuses what it is given."""
        self._envs = self._shared()
        self._envs.users += 1
        params = copy.deepcopy(self._params)
        params |= {"seed": 0, "torch_threads": 0}  # no seed of rl_games' own; as many threads as the process was given
        config = params["config"] = {"name": "member", "reward_shaper": {}, **params["config"], **self._values(hyper)}
        config |= {"env_info": self._envs.info, "vec_env": self._envs.envs, "num_actors": self._envs.count}
        config |= {"population_based_training": False, "full_experiment_name": "member"}
        self._episodes = EpisodeObserver(self._objective)
        _seed_generators(seed)
        with tempfile.TemporaryDirectory() as folder:  # for logs and models, which Shoal keeps itself
            config["train_dir"] = folder
            try:
                runner = Runner(self._episodes)
                runner.load_config(params)
                algo = runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)
            except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
                raise BadRecipe("agent", f"rl_games does not take its file: {_said(error)}") from error
            algo.writer.close()
        algo.writer = None
        if algo.has_central_value:
            algo.central_value_net.writter = None
        self.algo = algo
        self._env_state = self._envs.first_state

    def begin(self, seed: int) -> None:
        """Seed Python, NumPy, torch and environments; the next step is the first one of an episode."""
        self._reset([seed + i for i in range(self._envs.count)])
        self.algo.init_tensors()
        self._episodes.values = []

    def train(self, steps: int) -> tuple[int, list[float], dict[str, float]]:
        """Whole epochs of rl_games, until there are `steps` environment steps."""
        algo, done, epochs = self.algo, 0, []
        while done < steps:
            algo.update_epoch()
            result = algo.train_epoch()
            algo.dataset.update_values_dict(None)
            algo.frame += algo.curr_frames
            done += algo.batch_size_envs
            epochs.append(_metrics(result))
        metrics = {name: float(np.mean([epoch[name] for epoch in epochs])) for name in epochs[0]}
        self._env_state = self._envs.state()
        return done, self._episodes.values, metrics | {"info/last_lr": float(algo.last_lr)}

    def _act(self, obs: np.ndarray) -> np.ndarray:
        """The deterministic actions [B, ...] for observations [B, ...] as the environment gives them."""
        action = self.algo.preprocess_actions(self._act_deterministic(self.algo.obs_to_tensors(obs)))
        return action.cpu().numpy() if isinstance(action, torch.Tensor) else action

    def get_state(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Everything that training on depends on, but the hyperparameters and the random generators."""
        arrays = rl_games_state.learned(self.algo)
        if self._env_state is not None:
            arrays[ENV_STATE] = np.frombuffer(json.dumps(self._env_state).encode(), np.uint8)
        return arrays, {}

    def set_state(self, state: Any) -> None:
        """The opposite of `get_state`."""
        arrays = state[0]
        rl_games_state.set_learned(self.algo, arrays)
        if ENV_STATE in arrays:
            self._env_state = json.loads(arrays[ENV_STATE].tobytes())

    def set_hyperparameters(self, hyper: Mapping[str, float]) -> None:
        """Train with these values from now on."""
        rl_games_state.set_hyperparameters(self.algo, self._values(hyper))

    def close(self) -> None:
        """Leave the environments to the other members of the process; the last one closes them."""
        self._envs.leave()

    def _shared(self) -> SharedEnvironments:
        name = self._config["env_name"]
        try:
            register(name)
            return SharedEnvironments.of(name, int(self._config.get("num_actors", 1)), self._options)
        except (gymnasium.error.Error, ModuleNotFoundError, TypeError, KeyError) as error:
            raise BadRecipe("env", f"{name} cannot be made: {_said(error)}") from error

    def _reset(self, seeds: Sequence[int]) -> None:
        """New episodes in all environments; seeds [N]."""
        algo = self.algo
        _seed_generators(seeds[0])
        self._envs.set_state(self._env_state)  # other members use them too
        self._envs.seed(seeds)
        for owner in (algo, *([algo.central_value_net] if algo.has_central_value else [])):
            if owner.is_rnn:
                owner.rnn_states = [torch.zeros_like(x) for x in owner.model.get_default_rnn_state()]
                owner.rnn_states = [x.to(algo.ppo_device) for x in owner.rnn_states]
        algo.obs = algo.env_reset()

    def _play(self, seeds: Sequence[int]) -> list[float]:
        """Copies of the last episode fill the environments up."""
        algo, agents = self.algo, self.algo.num_agents
        self._reset([*seeds, *[seeds[-1]] * (self._envs.count - len(seeds))])
        running, found = set(range(len(seeds))), np.full(len(seeds), 0.0 if self._objective is None else np.nan)
        for _ in range(LONGEST):
            algo.obs, rewards, dones, infos = algo.env_step(self._act_deterministic(algo.obs))
            self.evaluation_steps += len(running)
            ended = sorted(running.intersection(dones[::agents].nonzero().flatten().tolist()))
            if self._objective is None:
                rows = sorted(running)
                found[rows] += rewards[::agents, 0].cpu().numpy()[rows]
            elif ended:
                found[ended] = objective(infos, self._objective, ended)
            running.difference_update(ended)
            if not running:
                break
            if algo.is_rnn:
                for x in algo.rnn_states:
                    x[:, dones.nonzero().flatten(), :] = 0
        return found.tolist()

    def _act_deterministic(self, obs: Mapping[str, Any]) -> torch.Tensor:
        """Actions as rl_games gives them to `env_step`, for observations as it has them."""
        algo = self.algo
        result = algo.get_action_values(obs)
        if algo.is_rnn:
            algo.rnn_states = result["rnn_states"]
        if not algo.is_discrete:
            return result["mus"]
        logits = result["logits"]
        return logits.argmax(-1) if torch.is_tensor(logits) else torch.stack([x.argmax(-1) for x in logits], -1)


def _check(unfit: rl_games_file.Unfit | None) -> None:
    """Raise BadRecipe where there is something that no member can have."""
    if unfit:
        raise BadRecipe("agent", f"its {': '.join(unfit)}")


def _metrics(result: Sequence[Any]) -> dict[str, float]:
    """Metrics of an epoch, by rl_games' own names in TensorBoard."""
    *_, entropies, kls, _, _ = result
    tensors = {"losses/a_loss": result[4], "losses/c_loss": result[5], "losses/entropy": entropies, "info/kl": kls}
    return {name: float(torch.stack([x.detach().mean() for x in values]).mean()) for name, values in tensors.items()}


def _seed_generators(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _said(error: Exception) -> str:
    """A KeyError tells its key alone."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
