"""Atari's games: the console's own vector of copies, with the meaning that gymnasium's wrappers give to them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from shoal.core.cores import usable_cores
from shoal.core.errors import BadField, check_names
from shoal.core.spec import Discrete, Spec
from shoal.core.user_code import attributed
from shoal.environments.host import AutoResetVectorEnv, HostEnvironment, VectorEnv, VectorStep, info_at

# What gymnasium's environment can do and the vector cannot: with one of these options, gymnasium's plays.
ONLY_GYMNASIUM = frozenset({"obs_type", "mode", "difficulty", "continuous", "vectorization"})
ONLY_IN_TRAINING = frozenset({"reward_clipping", "episodic_life"})


@dataclass(frozen=True)
class AtariOptions:
    """Settings of a game (Machado et al. 2018), named as in ale-py or else as in gymnasium."""

    frameskip: int = 4  # frames that an action lasts; the last two are seen as one
    frame_stack: int = 1  # how many observations are seen at once
    screen_size: int = 84  # pixels of each side of an observation
    repeat_action_probability: float = 0.25  # sticky actions, in every frame
    full_action_space: bool = False  # all 18 actions of the console
    noop_max: int = 30  # an episode begins with so many frames without an action, at most
    max_episode_steps: int | None = None  # counted in steps of the agent
    max_num_frames_per_episode: int = 108_000  # half an hour
    reward_clipping: bool = False  # in training, rewards are -1, 0 or 1
    episodic_life: bool = False  # in training, a lost life ends an episode, and the game goes on


def plays(name: str, options: dict[str, Any]) -> bool:
    """True where the vector of ale-py plays a game of gymnasium's id."""
    return name.startswith("ALE/") and not ONLY_GYMNASIUM & options.keys()


def atari_options(options: dict[str, Any]) -> AtariOptions:
    """The options of a file. Raises BadInput where one does not exist or cannot be."""
    known = {field.name: field.default for field in fields(AtariOptions)}
    check_names("env_options", options, [*known, *ONLY_GYMNASIUM])
    for name, value in options.items():
        kind = int if name == "max_episode_steps" else type(known[name])
        least = 0 if name in ("noop_max", "repeat_action_probability") else 1
        sound = type(value) in ((int, float) if kind is float else (kind,))
        if not sound or (kind is not bool and not least <= value <= (1 if kind is float else 2**31 - 1)):
            wanted = {bool: "true or false", float: "a number from 0 to 1", int: f"an integer from {least}"}[kind]
            raise BadField(f"env_options.{name}", f"must be {wanted}", value=f"{value!r}")
    return AtariOptions(**options)


def atari_environment(name: str, options: dict[str, Any]) -> HostEnvironment:
    """A game by gymnasium's id, such as ALE/Pong-v5: its screen in grey, uint8 [frame_stack, screen_size, screen_size].

    Evaluations play whole games with the rewards of the game, however members are trained.
    """
    env = f"gym:{name}"
    chosen = atari_options(options)

    def played(chosen: AtariOptions) -> HostEnvironment:
        def open_copies(n: int) -> VectorEnv:
            return _Console(_vector(game, n, chosen), n, chosen.max_episode_steps)

        return HostEnvironment(spec, open_copies, episode_limit=limit)

    with attributed("env", f"{env} with env_options {options} cannot be made"):
        quietly()
        import gymnasium

        game = gymnasium.spec(name).kwargs["game"]
        actions = _vector(game, 1, chosen).single_action_space
    frames = -(-chosen.max_num_frames_per_episode // chosen.frameskip)
    limit = min(chosen.max_episode_steps or frames, frames)
    spec = Spec((chosen.frame_stack, chosen.screen_size, chosen.screen_size), "uint8", Discrete(int(actions.n)))
    measured = played(replace(chosen, reward_clipping=False, episodic_life=False))
    return played(chosen)._replace(measured=measured)


def quietly() -> None:
    """Keep consoles from printing their version."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def one_game(env: Any, **options: Any) -> Any:
    """One copy of gymnasium, to be filmed, or with what the vector does not have; `obs_type`: the console's own output."""
    from gymnasium import make

    quietly()
    made: Any = make(env, **options) if "obs_type" in options else _preprocessed(env, **options)
    frames = float(np.mean(options.get("frameskip", AtariOptions.frameskip)))  # in gymnasium it may be a range
    made.metadata = made.metadata | {"render_fps": 60 / frames}  # ale-py says 30, whatever the frameskip
    return made


def _preprocessed(
    env: Any,
    frameskip: int = AtariOptions.frameskip,
    frame_stack: int = 1,
    screen_size: int = 84,
    noop_max: int = 30,
    max_episode_steps: int | None = None,
    **options: Any,
) -> Any:
    """A game as the vector has it. Options: see `AtariOptions`."""
    from gymnasium import make, wrappers

    made: Any = wrappers.AtariPreprocessing(make(env, frameskip=1, **options), noop_max, frameskip, screen_size)
    made = wrappers.FrameStackObservation(made, frame_stack)
    return made if max_episode_steps is None else wrappers.TimeLimit(made, max_episode_steps)


def _vector(game: str, n: int, chosen: AtariOptions) -> Any:
    from ale_py import AtariVectorEnv

    return AtariVectorEnv(
        game,
        n,
        num_threads=min(n, len(usable_cores())),
        stack_num=chosen.frame_stack,
        img_height=chosen.screen_size,
        img_width=chosen.screen_size,
        maxpool=chosen.frameskip > 1,
        frameskip=chosen.frameskip,
        repeat_action_probability=chosen.repeat_action_probability,
        full_action_space=chosen.full_action_space,
        noop_max=chosen.noop_max,
        use_fire_reset=False,
        max_num_frames_per_episode=chosen.max_num_frames_per_episode,
        reward_clipping=chosen.reward_clipping,
        life_loss_info=chosen.episodic_life,  # its own episodic_life would begin a new game
    )


class _Console(AutoResetVectorEnv):
    """Copies of one of Atari's games."""

    def __init__(self, envs: Any, n: int, limit: int | None):
        self._envs, self._limit = envs, limit
        self._age = np.zeros(n, np.int64)  # steps of the episode
        self._over = np.zeros(n, bool)  # where it is the game that has ended, and not a life
        self._shown = np.zeros(0, np.uint8)

    def reset(self, seeds: list[int]) -> np.ndarray:
        self._age[:] = 0
        return self._filled(self._envs.reset(seed=np.asarray(seeds))[0])

    def step_raw(self, action: np.ndarray) -> VectorStep:
        obs, reward, terminated, truncated, info = self._envs.step(action)
        self._age += 1
        if self._limit is not None:
            truncated = truncated | (self._age >= self._limit)
        self._over = truncated | (terminated & (info["lives"] == 0))
        self._shown = self._filled(obs)
        return VectorStep(self._shown, reward, terminated, truncated, lambda i: info_at(info, i))

    def reset_copies(self, copies: np.ndarray) -> np.ndarray:
        self._age[copies] = 0
        obs = self._shown.copy()
        if self._over.any():
            new = self._envs.reset(options={"reset_mask": self._over})[0]
            obs[self._over] = new[self._over]
        return self._filled(obs)[copies]

    def _filled(self, obs: np.ndarray) -> np.ndarray:
        """Fill the frames before an episode with its first one, as gymnasium does; ale-py leaves them black."""
        stack = obs.shape[1]
        for age in range(stack - 1):
            young = self._age == age
            obs[young, : stack - 1 - age] = obs[young, stack - 1 - age, None]
        return obs

    def close(self) -> None:
        self._envs = None  # nothing else refers to it: its threads end here
