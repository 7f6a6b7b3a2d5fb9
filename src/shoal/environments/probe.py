"""Probe an environment of gymnasium before training: does it follow the API of gymnasium 1, and which of its numbers
may be set?"""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.env_parameters import numbers_of
from shoal.core.errors import BadField, BadInput
from shoal.core.spec import MASK, each
from shoal.core.user_code import attributed
from shoal.environments.spaces import is_arrays

FIVE = "five values: observation, reward, terminated, truncated, info"
PROBE_STEPS = 100  # random steps, in which the numbers of an environment's state change, or its episode ends


def probe(make: Callable[[], Any], what: str) -> tuple[Any, Any, Mapping[str, Any], dict[str, str]]:
    """Return an environment, closed again, its first observation and info, and those `numbers_of` it that may be set, by
    their names.

    Those stay as they are set, through an episode and the resets around it; the others are of the environment's state, or
    are lost at a reset. So each is set to the next larger float, which changes nothing else. Raises BadInput
    where that fails.
    """
    import gymnasium

    def trying(failed: str) -> Any:
        return attributed("env", f"{what} {failed}")

    with warnings.catch_warnings():  # gymnasium warns of what it then raises
        warnings.simplefilter("ignore")
        with trying("cannot be made"):
            try:
                env = make()
            except gymnasium.error.DependencyNotInstalled as error:
                raise BadField("env", f"{what} needs a package that is missing: {error}") from error
        with trying("failed at reset"), contextlib.closing(env):
            attributes, inner = numbers_of(env.unwrapped), env.unwrapped
            before = {x: float(getattr(inner, x)) for x in attributes.values()}
            probed = {x: math.nextafter(value, math.inf) for x, value in before.items()}
            set_numbers(inner, probed)
            first, info = _begin(env) if is_arrays(env.observation_space) else (None, {})
            sound = first is not None and each(np.shape, first) == each(lambda box: box.shape, env.observation_space)
            if sound and attributes:
                with trying("failed at step"):
                    _play(env, PROBE_STEPS, info)
                env.reset()
            elif sound:
                try:
                    _play(env, 1, info)
                except BadInput:
                    raise
                except Exception:
                    pass  # left to the run, which can be continued after it
            kept = {name: x for name, x in attributes.items() if getattr(inner, x, None) == probed[x]}
            set_numbers(inner, {x: before[x] for x in kept.values()})
    return env, first, info, kept


def set_numbers(env: Any, numbers: Mapping[str, float]) -> None:
    """Set attributes of an environment."""
    for attribute, value in numbers.items():
        setattr(env, attribute, value)


def _begin(env: Any) -> tuple[Any, Mapping[str, Any]]:
    """The first observation, and its info. Raises BadInput where `reset` is not as gymnasium 1 has it."""
    kind = type(env.unwrapped)
    try:
        begun = env.reset(seed=0, options=None)  # as vectors of environments call it
    except TypeError as error:
        if lacking := re.search(r"unexpected keyword argument '(seed|options)'", str(error)):
            asked = "reset(self, *, seed=None, options=None)"
            raise _older(kind, "reset", f"takes no {lacking[1]}", asked) from error
        raise
    if not (isinstance(begun, tuple) and len(begun) == 2):
        problem = "gives nothing" if begun is None else "gives an observation alone"
        raise _older(kind, "reset", problem, "two values: observation, info")
    if not isinstance(begun[1], Mapping):
        raise _older(kind, "reset", f"gives {_describe(begun[1])} as the info", "a dictionary")
    return begun


def check_spaces(env: Any) -> None:
    """Raise BadInput where an environment does not say what it takes and gives."""
    import gymnasium

    for name in ("observation_space", "action_space"):
        given = getattr(env, name, None)
        if not isinstance(given, gymnasium.Space):
            kind, has = type(env.unwrapped).__name__, f"no {name}" if given is None else f"{given!r} as its {name}"
            raise BadField("env", f"{kind} has {has}", "gymnasium 1 asks for one of gymnasium.spaces")


def legal_choices(space: Any, info: Mapping[str, Any]) -> Any:
    """The mask of an info as spaces of gymnasium take it: int8 [n], or one of each choice; None where there is none."""
    from gymnasium import spaces

    if info.get(MASK) is None or not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return None
    flat = np.hstack(info[MASK]).astype(np.int8)
    return flat if isinstance(space, spaces.Discrete) else tuple(np.split(flat, np.cumsum(space.nvec)[:-1]))


def _play(env: Any, steps: int, info: Mapping[str, Any]) -> None:
    """A few random steps, always the same ones, of actions that the info says are legal. Raises BadInput where `step` is
    not as gymnasium 1 has it."""
    kind = type(env.unwrapped)
    env.action_space.seed(0)
    for _ in range(steps):
        try:
            made = env.step(env.action_space.sample(legal_choices(env.action_space, info)))
        except ValueError as error:
            check_unpacked(kind, error)
            raise
        _check_step(kind, env.observation_space, made)
        if made[2] or made[3]:
            return
        info = made[4]


def _check_step(kind: type, space: Any, made: Any) -> None:
    """Raise BadInput where a step gives something else than gymnasium 1 asks for."""
    if not isinstance(made, (tuple, list)) or len(made) != 5:
        raise _older(kind, "step", f"gives {len(made) if isinstance(made, (tuple, list)) else 'no five'} values", FIVE)
    obs, reward, terminated, truncated, info = made
    expected = each(lambda box: box.shape, space)
    if (given := each(np.shape, obs)) != expected:
        asked = f"an observation of its observation_space, of shape {expected}"
        raise _older(kind, "step", f"gives an observation of shape {given}", asked)
    if np.ndim(reward) or np.asarray(reward).dtype.kind not in "biuf":
        raise _older(kind, "step", f"gives {_describe(reward)} as the reward", "one number")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if np.size(flag) != 1 or np.asarray(flag).dtype.kind not in "biuf":
            raise _older(kind, "step", f"gives {_describe(flag)} as {name}", "True or False")
    if not isinstance(info, Mapping):
        raise _older(kind, "step", f"gives {_describe(info)} as the info", "a dictionary")


def _describe(given: Any) -> str:
    """Something that should be something else, in a few words."""
    return f"an array of shape {np.shape(given)}" if np.ndim(given) else f"{given!r}"


def check_unpacked(kind: type, error: ValueError) -> None:
    """Raise BadInput where the error is that `step` gave other than five values to whoever unpacks them."""
    if got := re.search(r"values to unpack \(expected 5, got (\d+)\)", str(error)):
        raise _older(kind, "step", f"gives {got[1]} values", FIVE) from error


def _older(kind: type, method: str, problem: str, asked: str) -> BadField:
    """Describe an environment's method that is made for other versions of gymnasium, with its place in the code."""
    code = getattr(kind, method).__code__
    place = f"{Path(code.co_filename).name}, line {code.co_firstlineno}"
    return BadField("env", f"{method} of {kind.__name__} {problem} ({place})", f"gymnasium 1 asks for {asked}")
