"""Stable-Baselines3 and sb3_contrib as trainers: `sb3:PPO` and the like. Written for SB3 2.9; runs without Shoal.

SB3 fixes some values when a model is built. They are changed on the live model wherever SB3 keeps them, so that a value set
live does what it would have done from the start. Beside the arguments of the algorithm, `config` takes:

policy:            `MlpPolicy` by default, or what the algorithm has in its place
n_envs:            training environments, stepped one after another; 1 by default
normalize:         true, or the arguments of VecNormalize: observations and rewards are normalised in training
policy_kwargs:     as in SB3; classes by name, of torch (`ReLU`, `Adam`) or as `module:Class`
noise_type, noise_std: `normal` or `ornstein-uhlenbeck` noise on the actions of off-policy algorithms
exploration_steps: environment steps in which DQN's epsilon falls to `exploration_final_eps`; 10,000 by default
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from shoal_trainers import adapter, live, sb3_env, sb3_file, sb3_state
from shoal_trainers.recipe import BadRecipe, environment
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

OPTIONS = {"n_envs": 1, "normalize": False}
ALGORITHMS = (OnPolicyAlgorithm, OffPolicyAlgorithm)
HER = "hindsight experience replay is a buffer that is not saved with a member; write sb3:SAC, policy: MultiInputPolicy"
UNFIT = dict.fromkeys(("HER", "HerReplayBuffer"), HER)
NOISES = {"normal": NormalActionNoise, "ornstein-uhlenbeck": OrnsteinUhlenbeckActionNoise}
# Arguments that the adapter gives itself, or that would break what a member promises.
REFUSED = {
    "env": "it is a field of its own",
    "seed": "members have seeds of their own",
    "action_noise": "write noise_type and noise_std",
    "exploration_fraction": "it would be a part of each interval; write exploration_steps",
    "optimize_memory_usage": "the last step of an interval would be joined to the first one of the next",
    "replay_buffer_class": "only SB3's own buffers are known to be saved whole",
    "rollout_buffer_class": "only SB3's own buffers are known to be saved whole",
    "tensorboard_log": "Shoal records the metrics",
    "_init_setup_model": "a model is always set up",
}
LAYERS = "stable_baselines3.common.torch_layers"
CLASSES = {"activation_fn": "torch.nn", "optimizer_class": "torch.optim", "features_extractor_class": LAYERS}
LONGEST = 100_000  # steps of an episode that is measured


def trainer(name: str) -> Callable[..., Sb3]:
    """The trainer of an algorithm. Raises BadRecipe where there is none of that name."""
    found: dict[str, Any] = {}
    for package in ("stable_baselines3", "sb3_contrib"):
        try:
            members = vars(importlib.import_module(package))
        except ModuleNotFoundError as error:
            text = f"there is no {name} in stable_baselines3 ({', '.join(sorted(found))}), and sb3_contrib is not installed"
            raise BadRecipe("agent", text) from error
        found |= {key: x for key, x in members.items() if isinstance(x, type) and issubclass(x, ALGORITHMS)}
        if name in UNFIT:
            raise BadRecipe("agent", f"{name} cannot be a member: {UNFIT[name]}")
        if name in found:
            return functools.partial(Sb3, found[name])
    raise BadRecipe("agent", f"there is no {name}", name, sorted(found))


class Sb3(adapter.Adapter):
    """A model of Stable-Baselines3 as a trainer."""

    at_once = 16

    def __init__(self, algorithm: Any, env: str, env_options: Mapping[str, Any], **config: Any):
        """Raise BadRecipe for a config that the algorithm does not take."""
        self._algorithm, self._env_options = algorithm, env_options
        self._env = env
        defaults = {name: p.default for name, p in inspect.signature(algorithm).parameters.items()}
        allowed = set(OPTIONS) | set(defaults) - set(REFUSED)
        if issubclass(algorithm, OffPolicyAlgorithm):
            allowed |= {"noise_type", "noise_std"} if "action_noise" in defaults else set()
            allowed |= {"exploration_steps"} if "exploration_fraction" in defaults else set()
        for name in config:
            if name in REFUSED:
                raise BadRecipe("config", f"{name} cannot be given: {REFUSED[name]}")
            if name not in allowed:
                raise BadRecipe("config", f"there is no {name}", name, sorted(allowed))
        policies = algorithm.policy_aliases
        policy = "MlpPolicy" if "MlpPolicy" in policies else next(iter(policies))
        self._config = {**OPTIONS, "policy": policy, **config}
        if "exploration_steps" in allowed:
            self._config.setdefault("exploration_steps", 10_000)
        self._masked = "action_masks" in inspect.signature(algorithm.predict).parameters
        if not (self._masked or any("Lstm" in name for name in policies)):
            self.act = lambda obs: self._act_deterministic(obs)[0]  # it depends on the observation alone
        if config.get("noise_type"):
            self._config.setdefault("noise_std", 0.1)
        elif "noise_std" in config:
            raise BadRecipe("config", "noise_std needs a noise_type")
        values = {**defaults, **self._config}
        if not isinstance(values["learning_rate"], (int, float)):
            raise BadRecipe("config.learning_rate", "must be a number: schedules would begin anew with every interval")
        self._describe("sb3", live.of_sb3(algorithm.__name__, values))
        self.fixed = {name: values.get(name) for name in sorted(allowed - self.hyper.keys())}
        self._tests: list[gymnasium.Env] = []

    @property
    def spec(self) -> dict[str, Any] | None:
        """The spaces of the environment. Raises BadRecipe where there is no such environment."""
        env = self._make_env()
        env.close()
        action = env.action_space
        return adapter.spec(env.observation_space, action, int(getattr(action, "start", 0)))

    def make(self, hyper: Mapping[str, float], seed: int) -> None:
        """Build the model. Raises BadRecipe where SB3 refuses what it is given."""
        options = copy.deepcopy({**self._config, **self._values(hyper)})
        n_envs, normalize, noise_std = options.pop("n_envs"), options.pop("normalize"), options.pop("noise_std", 0.0)
        noise_type, exploration_steps = options.pop("noise_type", None), options.pop("exploration_steps", 0)
        if isinstance(options.get("train_freq"), list):
            options["train_freq"] = tuple(options["train_freq"])
        networks = options["policy_kwargs"] = dict(options.get("policy_kwargs") or {})
        try:
            networks |= {name: _class(x, CLASSES[name]) for name, x in networks.items() if name in CLASSES}
            env = DummyVecEnv([lambda: Monitor(sb3_env.Kept(self._make_env())) for _ in range(n_envs)])
            if normalize:
                env = VecNormalize(env, **({} if normalize is True else normalize), gamma=options["gamma"])
            if noise_type:
                noise, mean = NOISES[noise_type], np.zeros(env.action_space.shape, np.float32)
                options["action_noise"] = noise(mean, np.full_like(mean, noise_std))
            self.model = self._algorithm(env=env, seed=seed, **options)
        except (AssertionError, AttributeError, TypeError, KeyError) as error:  # how SB3 refuses what it is given
            raise BadRecipe("config", f"{self._algorithm.__name__} does not take it: {error}") from error
        self._normalizer = self.model.get_vec_normalize_env()
        self._buffer = getattr(self.model, "replay_buffer", None)
        self._exploration_steps = max(1, exploration_steps)
        if hasattr(self.model, "exploration_schedule"):
            # SB3's own one begins anew with every call of `learn`.
            self.model.exploration_schedule = self._epsilon

    def begin(self, seed: int) -> None:
        """Seed Python, NumPy, torch, action space and environments; the next step is the first one of an episode."""
        model = self.model
        model.set_random_seed(seed)
        model._last_obs = None
        model.set_logger(Logger(None, []))  # metrics of this interval alone, and no folder for them
        if hasattr(model, "exploration_schedule"):
            model.exploration_rate = self._epsilon(0)
        if self._buffer is not None and self._buffer.size():
            # The episode under way is cut off here: returns of n steps end, and its value is bootstrapped.
            last = self._buffer.pos - 1
            self._buffer.timeouts[last] = np.where(self._buffer.dones[last], self._buffer.timeouts[last], 1.0)

    def train(self, steps: int) -> tuple[int, list[float], dict[str, float]]:
        """Whole rollouts, until there are `steps` environment steps."""
        before, episodes = self.model.num_timesteps, _EpisodeReturns()
        self.model.learn(steps, episodes, log_interval=None, reset_num_timesteps=False)
        recorded = self.model.logger.name_to_value
        metrics = {name: float(x) for name, x in recorded.items() if isinstance(x, (int, float, np.number))}
        return self.model.num_timesteps - before, episodes.returns, metrics

    def export(self, path: str) -> list[str]:
        """Write the model as SB3 saves it, and beside it the statistics of VecNormalize where it has some."""
        return sb3_file.save(self.model, path)

    def load(self, path: str) -> None:
        """Go on from a model that SB3 has saved. Raises ValueError for one of another algorithm, network or space."""
        sb3_file.load(self.model, path)

    def get_state(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Everything that training on depends on, but the hyperparameters and the random generators."""
        learned = adapter.arrays(sb3_state.parts(self.model))
        if self._buffer is None:
            return learned, {}
        replay_buffer = sb3_state.replay_buffer(self._buffer)
        if not all(np.isfinite(x).all() for x in replay_buffer.values()):
            self._buffer.reset()  # what a member wrote while it diverged would spoil the weights that it copies
            replay_buffer = sb3_state.replay_buffer(self._buffer)
        return learned, replay_buffer

    def set_state(self, state: Any) -> None:
        """The opposite of `get_state`."""
        learned, replay_buffer = state
        adapter.set_arrays(sb3_state.parts(self.model), learned)
        if self._buffer is not None and replay_buffer:
            sb3_state.set_replay_buffer(self._buffer, replay_buffer)

    def set_hyperparameters(self, hyper: Mapping[str, float]) -> None:
        """Train with these values from now on."""
        sb3_state.set_hyperparameters(self.model, self._values(hyper))

    def close(self) -> None:
        """Close all environments."""
        self.model.get_env().close()
        for env in self._tests:
            env.close()

    def _make_env(self) -> gymnasium.Env:
        try:
            env = environment(self._env, self._env_options)
            return sb3_env.with_masks(env, self._env) if self._masked else env
        except (gymnasium.error.Error, ModuleNotFoundError, TypeError) as error:
            raise BadRecipe("env", f"{self._env} cannot be made: {error}") from error

    def _epsilon(self, _: float) -> float:
        """The part of random actions of DQN, by the steps that this member has made."""
        model = self.model
        done = min(1.0, model.num_timesteps / self._exploration_steps)
        return model.exploration_initial_eps + done * (model.exploration_final_eps - model.exploration_initial_eps)

    def _act_deterministic(
        self, obs: Any, carry: Any = None, first: Any = None, **masks: Any
    ) -> tuple[np.ndarray, Any]:
        """The deterministic actions [B, ...] for observations [B, ...] of the environment, and what recurrent policies keep.

        first: bool [B], where episodes begin. masks: `action_masks` [B, choices], of an algorithm that heeds them
        """
        if self._normalizer is not None:
            obs = self._normalizer.normalize_obs(obs)
        return self.model.predict(obs, carry, first, deterministic=True, **masks)

    def _play(self, seeds: Sequence[int]) -> list[float]:
        """Returns, in environments that are not those of training; of episodes that do not end, up to `LONGEST`."""
        envs, returns, running = self._tests, [0.0] * len(seeds), set(range(len(seeds)))
        envs += [self._make_env() for _ in range(len(seeds) - len(envs))]
        obs = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=False)]
        carry, first, masks = None, np.ones(len(seeds), bool), dict[str, Any]()
        legal = [env.get_wrapper_attr("action_masks")() for env in envs[: len(obs)]] if self._masked else []
        for _ in range(LONGEST):
            # Of all, so that no row depends on which others have ended.
            if legal:
                masks["action_masks"] = np.stack(legal)
            actions, carry = self._act_deterministic(_stack(obs), carry, first, **masks)
            first[:] = False
            self.evaluation_steps += len(running)
            for i in sorted(running):
                obs[i], reward, terminated, truncated, _ = envs[i].step(actions[i])
                returns[i] += float(reward)
                if terminated or truncated:
                    running.discard(i)
                elif legal:
                    legal[i] = envs[i].get_wrapper_attr("action_masks")()
            if not running:
                break
        return returns


class _EpisodeReturns(BaseCallback):
    """Returns of the episodes that end, as the environment gives the rewards."""

    def __init__(self) -> None:
        super().__init__()
        self.returns: list[float] = []

    def _on_step(self) -> bool:
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return True


def _class(name: Any, package: str) -> Any:
    """A class from its name in a package, from `module:Class`, or as it is."""
    if not isinstance(name, str):
        return name
    place, _, attribute = name.rpartition(":")
    return getattr(importlib.import_module(place or package), attribute.removeprefix("nn."))


def _stack(obs: Sequence[Any]) -> Any:
    """Observations as a batch [B, ...]."""
    if isinstance(obs[0], Mapping):
        return {name: np.stack([x[name] for x in obs]) for name in obs[0]}
    return np.stack(obs)
