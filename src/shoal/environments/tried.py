"""An environment of gymnasium is tried out before anybody learns in it: whether it is as gymnasium 1 asks for, and which of
its numbers may be set."""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shoal.core.errors import BadField
from shoal.core.knobs import numbers_of
from shoal.core.user_code import blamed
from shoal.environments.spaces import is_arrays

FIVE = "five values: observation, reward, terminated, truncated, info"
TRIED = 100  # random steps, in which the numbers of an environment's state change, or its episode ends


def try_out(make: Callable[[], Any], what: str) -> tuple[Any, Any, dict[str, str]]:
    """An environment, closed again; its first observation; and those `numbers_of` it that may be set, by their names.

    Those stay as they are set, through an episode and the resets around it; the others are of the environment's state, or
    are lost at a reset. So each is tried with the number next to its own, with which nothing else changes. Raises BadInput
    where that fails.
    """
    import gymnasium

    def trying(failed: str) -> Any:
        return blamed("env", f"{what} {failed}")

    with warnings.catch_warnings():  # gymnasium warns of what it then raises
        warnings.simplefilter("ignore")
        with trying("cannot be made"):
            try:
                env = make()
            except gymnasium.error.DependencyNotInstalled as error:
                raise BadField("env", f"{what} needs a package that is missing: {error}") from error
        with trying("failed at reset"), contextlib.closing(env):
            attributes, inner = numbers_of(env.unwrapped), env.unwrapped
            usual = {x: float(getattr(inner, x)) for x in attributes.values()}
            tried = {x: math.nextafter(value, math.inf) for x, value in usual.items()}
            _set(inner, tried)
            first = _begin(env) if is_arrays(env.observation_space) else None
            if attributes and first is not None:
                with trying("failed at step"):
                    _play(env)
                env.reset()
            kept = {name: x for name, x in attributes.items() if getattr(inner, x, None) == tried[x]}
            _set(inner, {x: usual[x] for x in kept.values()})
    return env, first, kept


def _set(env: Any, numbers: Mapping[str, float]) -> None:
    """Set attributes of an environment."""
    for attribute, value in numbers.items():
        setattr(env, attribute, value)


def _begin(env: Any) -> Any:
    """The first observation. Raises BadInput where `reset` is not as gymnasium 1 has it."""
    taken = inspect.signature(env.unwrapped.reset).parameters
    if "seed" not in taken and all(x.kind is not inspect.Parameter.VAR_KEYWORD for x in taken.values()):
        raise _older(type(env.unwrapped), "reset", "takes no seed", "reset(self, *, seed=None, options=None)")
    begun = env.reset(seed=0)
    if not (isinstance(begun, tuple) and len(begun) == 2 and isinstance(begun[1], Mapping)):
        raise _older(type(env.unwrapped), "reset", "gives an observation alone", "two values: observation, info")
    return begun[0]


def _play(env: Any) -> None:
    """A few random steps, always the same ones. Raises BadInput where `step` is not as gymnasium 1 has it."""
    kind = type(env.unwrapped)
    env.action_space.seed(0)
    for _ in range(TRIED):
        try:
            made = env.step(env.action_space.sample())
        except ValueError as error:
            check_unpacked(kind, error)
            raise
        if not isinstance(made, tuple) or len(made) != 5:
            raise _older(kind, "step", f"gives {len(made) if isinstance(made, tuple) else 'no five'} values", FIVE)
        if made[2] or made[3]:
            return


def check_unpacked(kind: type, error: ValueError) -> None:
    """Raise BadInput where the error is that `step` gave other than five values to whoever unpacks them."""
    if got := re.search(r"values to unpack \(expected 5, got (\d+)\)", str(error)):
        raise _older(kind, "step", f"gives {got[1]} values", FIVE) from error


def _older(kind: type, method: str, problem: str, asked: str) -> BadField:
    """What is wrong with a method of an environment that is made for other versions, and where it is."""
    code = getattr(kind, method).__code__
    place = f"{Path(code.co_filename).name}, line {code.co_firstlineno}"
    return BadField("env", f"{method} of {kind.__name__} {problem} ({place})", f"gymnasium 1 asks for {asked}")
